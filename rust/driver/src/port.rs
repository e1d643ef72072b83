//! The socket's life: bound, used, given up, bound again.
//!
//! I own the back-off between attempts and the judgement of errors. I promise that a bad socket is
//! replaced, a bad peer is only counted, and the port a member is known by stays the same.

use std::net::SocketAddr;

use crate::limits::{REBIND_MAX_NS, REBIND_MIN_NS, SEND_ERRORS_BEFORE_REBIND};
use crate::socket::{judge, Binder, Fault, Link};
use crate::stats::DriverStats;

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// It left, or was given up and counted.
    Done,
    /// The kernel has no room: keep it.
    Later,
}

pub(crate) struct Port {
    wanted: SocketAddr,
    link: Option<Box<dyn Link>>,
    retry_at_ns: u64,
    pause_ns: u64,
    errors_in_row: u32,
}

impl Port {
    pub(crate) fn new(wanted: SocketAddr) -> Self {
        Self {
            wanted,
            link: None,
            retry_at_ns: 0,
            pause_ns: REBIND_MIN_NS,
            errors_in_row: 0,
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.link.is_some()
    }

    pub(crate) fn local_addr(&self) -> Option<SocketAddr> {
        self.link.as_ref().map(|link| link.local_addr())
    }

    pub(crate) fn buffers(&self) -> (usize, usize) {
        self.link.as_ref().map_or((0, 0), |link| link.buffers())
    }

    /// When a new attempt to bind is due; `None` while there is a socket.
    pub(crate) fn retry_at_ns(&self) -> Option<u64> {
        self.link.is_none().then_some(self.retry_at_ns)
    }

    /// Binds when there is no socket and an attempt is due; returns whether a new one is there.
    pub(crate) fn ensure(
        &mut self,
        mono_ns: u64,
        binder: &mut impl Binder,
        stats: &mut DriverStats,
    ) -> bool {
        if self.link.is_some() || mono_ns < self.retry_at_ns {
            return false;
        }
        // Set first, so that a socket which fails at once is not replaced in a tight loop.
        self.retry_at_ns = mono_ns.saturating_add(self.pause_ns);
        match binder.bind(self.wanted) {
            Ok(link) => {
                let again = stats.binds > 0 || stats.bind_failures > 0;
                stats.binds += 1;
                self.wanted = link.local_addr();
                self.errors_in_row = 0;
                let verb = if again { "is bound again" } else { "is bound" };
                tracing::info!(addr = %link.local_addr(), "the gossip socket {verb}");
                self.link = Some(link);
                true
            }
            Err(error) => {
                stats.bind_failures += 1;
                tracing::warn!(
                    addr = %self.wanted, %error, retry_ms = self.pause_ns / 1_000_000,
                    "the gossip port cannot be bound. Requests are decided on local counts alone \
                     until it can; free the address or set another gossip bind"
                );
                self.slow_down();
                false
            }
        }
    }

    /// One datagram that is ready, if any. Errors are counted and, if they are the socket's, cost
    /// it its place.
    pub(crate) fn receive(
        &mut self,
        buf: &mut [u8],
        stats: &mut DriverStats,
    ) -> Option<(usize, SocketAddr)> {
        // A peer's ICMP errors may queue up before a datagram: pass a bounded number of them.
        for _ in 0..SEND_ERRORS_BEFORE_REBIND {
            let result = self.link.as_ref()?.try_recv(buf);
            match result {
                Ok((length, from)) => {
                    stats.received += 1;
                    stats.received_bytes += length as u64;
                    return Some((length, from));
                }
                Err(error) => match judge(&error) {
                    Fault::NotReady => return None,
                    Fault::Peer => stats.receive_errors += 1,
                    Fault::Socket => {
                        self.give_up(&error, stats);
                        return None;
                    }
                },
            }
        }
        None
    }

    /// Sends one frame.
    pub(crate) fn send(&mut self, bytes: &[u8], to: SocketAddr, stats: &mut DriverStats) -> Sent {
        let Some(link) = &self.link else {
            return Sent::Done;
        };
        match link.try_send(bytes, to) {
            Ok(()) => {
                stats.sent += 1;
                stats.sent_bytes += bytes.len() as u64;
                self.errors_in_row = 0;
                self.pause_ns = REBIND_MIN_NS; // it works: the next trouble starts afresh
            }
            Err(error) => match judge(&error) {
                Fault::NotReady => {
                    stats.send_waits += 1;
                    return Sent::Later;
                }
                Fault::Peer => {
                    stats.send_errors += 1;
                    self.errors_in_row = self.errors_in_row.saturating_add(1);
                    if self.errors_in_row >= SEND_ERRORS_BEFORE_REBIND {
                        self.give_up(&error, stats);
                    }
                }
                Fault::Socket => {
                    stats.send_errors += 1;
                    self.give_up(&error, stats);
                }
            },
        }
        Sent::Done
    }

    fn give_up(&mut self, error: &std::io::Error, stats: &mut DriverStats) {
        stats.socket_faults += 1;
        tracing::warn!(
            addr = %self.wanted, %error,
            "the gossip socket failed and is replaced; decisions go on locally meanwhile"
        );
        self.link = None;
        self.slow_down();
    }

    fn slow_down(&mut self) {
        self.pause_ns = self.pause_ns.saturating_mul(2).min(REBIND_MAX_NS);
    }

    pub(crate) async fn readable(&self) {
        match &self.link {
            // An error shows itself again in `receive`, where it is judged.
            Some(link) => drop(link.readable().await),
            None => std::future::pending().await,
        }
    }

    pub(crate) async fn writable(&self) {
        match &self.link {
            Some(link) => drop(link.writable().await),
            None => std::future::pending().await,
        }
    }
}
