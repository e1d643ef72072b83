//! The socket's life: bound, used, given up, bound again.
//!
//! I own the back-off between attempts and the judgement of errors. I promise that a bad socket is
//! replaced, a bad peer is only counted, and the port a member is known by stays the same: while
//! somebody else has it, another port stands in.

use std::net::SocketAddr;

use crate::limits::{
    REBIND_MAX_NS, REBIND_MIN_NS, SEND_ERRORS_BEFORE_REBIND, STAND_IN_AFTER_NS, STAND_IN_LOOK_NS,
};
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

/// What an attempt to bind came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// None was due, or it failed.
    Nothing,
    /// There is a new socket.
    Bound,
    /// The wanted address is free and held, and another one still stands in for it: say goodbye
    /// through that one, then [`Port::take_wanted`].
    Freed,
}

pub(crate) struct Port {
    wanted: SocketAddr,
    link: Option<Box<dyn Link>>,
    /// `link` has another port, since the wanted one is taken (by an instance that is replaced).
    stands_in: bool,
    /// Has the wanted address, while `link` still stands in for it.
    next: Option<Box<dyn Link>>,
    /// Since when attempts fail; `None`: the last one did not.
    failing_since_ns: Option<u64>,
    retry_at_ns: u64,
    pause_ns: u64,
    errors_in_row: u32,
}

impl Port {
    pub(crate) fn new(wanted: SocketAddr) -> Self {
        Self {
            wanted,
            link: None,
            stands_in: false,
            next: None,
            failing_since_ns: None,
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

    /// The wanted address, while another one stands in for it.
    pub(crate) fn stands_in_for(&self) -> Option<SocketAddr> {
        self.stands_in.then_some(self.wanted)
    }

    pub(crate) fn buffers(&self) -> (usize, usize) {
        self.link.as_ref().map_or((0, 0), |link| link.buffers())
    }

    /// When a new attempt to bind is due; `None` while there is the wanted socket.
    pub(crate) fn retry_at_ns(&self) -> Option<u64> {
        (self.link.is_none() || self.stands_in).then_some(self.retry_at_ns)
    }

    /// Binds when there is no wanted socket and an attempt is due.
    pub(crate) fn ensure(
        &mut self,
        mono_ns: u64,
        binder: &mut impl Binder,
        stats: &mut DriverStats,
    ) -> Step {
        if (self.link.is_some() && !self.stands_in) || mono_ns < self.retry_at_ns {
            return Step::Nothing;
        }
        // Set first, so that a socket which fails at once is not replaced in a tight loop.
        self.retry_at_ns = mono_ns.saturating_add(self.pause_ns);
        match binder.bind(self.wanted) {
            Ok(link) if self.stands_in => {
                self.next = Some(link);
                Step::Freed
            }
            Ok(link) => {
                self.adopt(link, stats);
                Step::Bound
            }
            Err(error) => {
                stats.bind_failures += 1;
                self.failed(&error, mono_ns, binder, stats)
            }
        }
    }

    /// From now on frames go through the wanted address.
    pub(crate) fn take_wanted(&mut self, stats: &mut DriverStats) {
        if let Some(link) = self.next.take() {
            self.stands_in = false;
            self.adopt(link, stats);
        }
    }

    fn adopt(&mut self, link: Box<dyn Link>, stats: &mut DriverStats) {
        let again = stats.binds > 0 || stats.bind_failures > 0;
        stats.binds += 1;
        self.wanted = link.local_addr();
        self.errors_in_row = 0;
        self.failing_since_ns = None;
        let verb = if again { "is bound again" } else { "is bound" };
        tracing::info!(addr = %link.local_addr(), "the gossip socket {verb}");
        self.link = Some(link);
    }

    fn failed(
        &mut self,
        error: &std::io::Error,
        mono_ns: u64,
        binder: &mut impl Binder,
        stats: &mut DriverStats,
    ) -> Step {
        let first = self.failing_since_ns.is_none();
        let since_ns = *self.failing_since_ns.get_or_insert(mono_ns);
        if first {
            tracing::warn!(
                addr = %self.wanted, %error,
                "the gossip port cannot be bound. Requests are decided on local counts alone \
                 until it can, and it is tried again; free the address or set another gossip bind"
            );
        }
        if self.stands_in {
            return Step::Nothing;
        }
        self.slow_down();
        let long = mono_ns.saturating_sub(since_ns) >= STAND_IN_AFTER_NS;
        let taken = error.kind() == std::io::ErrorKind::AddrInUse && self.wanted.port() != 0;
        let any = SocketAddr::new(self.wanted.ip(), 0);
        let Some(Ok(link)) = (long && taken).then(|| binder.bind(any)) else {
            return Step::Nothing;
        };
        stats.binds += 1;
        self.pause_ns = STAND_IN_LOOK_NS;
        self.retry_at_ns = mono_ns.saturating_add(self.pause_ns);
        tracing::warn!(
            addr = %link.local_addr(), wanted = %self.wanted,
            "gossip goes through another port until its own is free; peers that take no unknown \
             members do not hear it meanwhile"
        );
        self.stands_in = true;
        self.link = Some(link);
        Step::Bound
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
                if !self.stands_in {
                    self.pause_ns = REBIND_MIN_NS; // it works: the next trouble starts afresh
                }
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
        self.stands_in = false;
        self.next = None;
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
