//! Delay, jitter, reordering and duplication, which the kernel here cannot do: a relay in user
//! space for each pair of members.
//!
//! Owns: two sockets per pair. Member A knows B by the address of one, B knows A by the address of
//! the other, and what comes in at one leaves from the other, so each member sees one peer with one
//! address. Promises: a direction holds at most [`RELAY_QUEUE_FRAMES`]; the same seed draws the
//! same faults for the same sequence of frames. Never: looks into a frame.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::{SocketAddr, SocketAddrV4};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gabion_loader::mix::SplitMix64;
use tokio::net::UdpSocket;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::limits::{RELAY_CAPTURE_FRAMES, RELAY_QUEUE_FRAMES};
use crate::net::{address, GOSSIP_PORT, LAB_ADDRESS};
use crate::LabError;

/// Largest datagram that is passed on whole.
const DATAGRAM_BYTES_MAX: usize = 2_048;

/// What happens to each frame of a link, in each direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkFaults {
    /// Every frame is held for this long.
    pub delay: Duration,
    /// And for a random part of this.
    pub jitter: Duration,
    /// So many in a hundred are held once more for `delay + jitter`, behind those sent after.
    pub late_percent: u64,
    /// So many in a hundred arrive twice.
    pub twice_percent: u64,
}

/// When the copies of one frame arrive, after it came: one, or two.
fn arrivals(faults: &LinkFaults, random: &mut SplitMix64) -> (Duration, Option<Duration>) {
    let mut one = || {
        let jitter_us = u64::try_from(faults.jitter.as_micros()).unwrap_or(u64::MAX);
        let late = random.below(100) < faults.late_percent;
        let more = if late {
            faults.delay + faults.jitter
        } else {
            Duration::ZERO
        };
        faults.delay + Duration::from_micros(random.below(jitter_us)) + more
    };
    let first = one();
    let second = one();
    let twice = random.below(100) < faults.twice_percent;
    (first, twice.then_some(second))
}

/// What the relay saw.
#[derive(Debug, Default)]
pub struct RelayCounts {
    /// Frames that came.
    pub taken: AtomicU64,
    /// Frames that left, copies included.
    pub passed: AtomicU64,
    /// Frames that found the queue full.
    pub full: AtomicU64,
}

/// One direction of a link.
#[derive(Debug)]
struct Direction {
    from: usize,
    to: usize,
    /// The receiver's name for the sender.
    out: Arc<UdpSocket>,
    captured: Arc<Mutex<Vec<Vec<u8>>>>,
}

/// All links of a lab.
#[derive(Debug)]
pub struct Relay {
    directions: Vec<Direction>,
    tasks: Vec<AbortHandle>,
    /// What it saw.
    pub counts: Arc<RelayCounts>,
}

impl Relay {
    /// Starts a relay between each two of `members`.
    ///
    /// # Errors
    /// A socket cannot be bound.
    pub async fn start(members: usize, faults: LinkFaults, seed: u64) -> Result<Relay, LabError> {
        let mut relay = Relay {
            directions: Vec::new(),
            tasks: Vec::new(),
            counts: Arc::default(),
        };
        for a in 0..members {
            for b in a + 1..members {
                let a_side = Arc::new(UdpSocket::bind((LAB_ADDRESS, 0)).await?);
                let b_side = Arc::new(UdpSocket::bind((LAB_ADDRESS, 0)).await?);
                relay.direction((a, b), &a_side, &b_side, faults, seed);
                relay.direction((b, a), &b_side, &a_side, faults, seed);
            }
        }
        Ok(relay)
    }

    fn direction(
        &mut self,
        (from, to): (usize, usize),
        inward: &Arc<UdpSocket>,
        out: &Arc<UdpSocket>,
        faults: LinkFaults,
        seed: u64,
    ) {
        let captured = Arc::<Mutex<Vec<Vec<u8>>>>::default();
        let random = SplitMix64::new(seed ^ ((from as u64) << 32 | (to as u64) << 16));
        let work = Work {
            inward: Arc::clone(inward),
            out: Arc::clone(out),
            to: gossip_address(to),
            faults,
            random,
            captured: Arc::clone(&captured),
            counts: Arc::clone(&self.counts),
        };
        self.tasks.push(tokio::spawn(work.run()).abort_handle());
        let out = Arc::clone(out);
        self.directions.push(Direction {
            from,
            to,
            out,
            captured,
        });
    }

    fn find(&self, from: usize, to: usize) -> Result<&Direction, LabError> {
        let mut all = self.directions.iter();
        let found = all.find(|direction| (direction.from, direction.to) == (from, to));
        found.ok_or_else(|| LabError::Odd(format!("no relayed link from {from} to {to}")))
    }

    /// By which address member `me` knows `peer`.
    ///
    /// # Errors
    /// There is no such link.
    pub fn address_of(&self, peer: usize, me: usize) -> Result<SocketAddr, LabError> {
        Ok(self.find(peer, me)?.out.local_addr()?)
    }

    /// The first frames that went from one member to another, as they came.
    ///
    /// # Errors
    /// There is no such link.
    pub fn captured(&self, from: usize, to: usize) -> Result<Vec<Vec<u8>>, LabError> {
        let captured = &self.find(from, to)?.captured;
        Ok(captured
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone())
    }

    /// Sends a frame to a member as if another one had sent it.
    ///
    /// # Errors
    /// There is no such link, or the system refuses.
    pub async fn forge(&self, from: usize, to: usize, frame: &[u8]) -> Result<(), LabError> {
        let direction = self.find(from, to)?;
        direction.out.send_to(frame, gossip_address(to)).await?;
        Ok(())
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

fn gossip_address(i: usize) -> SocketAddr {
    SocketAddr::V4(SocketAddrV4::new(address(i), GOSSIP_PORT))
}

/// What carries frames in one direction.
struct Work {
    inward: Arc<UdpSocket>,
    out: Arc<UdpSocket>,
    to: SocketAddr,
    faults: LinkFaults,
    random: SplitMix64,
    captured: Arc<Mutex<Vec<Vec<u8>>>>,
    counts: Arc<RelayCounts>,
}

impl Work {
    async fn run(mut self) {
        // earliest first; equal times in the order of their coming
        let mut waiting: BinaryHeap<Reverse<(Instant, u64, Vec<u8>)>> = BinaryHeap::new();
        let mut buf = [0u8; DATAGRAM_BYTES_MAX];
        let mut number = 0u64;
        loop {
            let next = waiting.peek().map(|Reverse((at, _, _))| *at);
            let due = next.unwrap_or_else(|| Instant::now() + Duration::from_secs(3_600));
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(due), if next.is_some() => {
                    if let Some(Reverse((_, _, frame))) = waiting.pop() {
                        // the receiver may be down: then the frame is lost, as on a wire
                        let _ = self.out.send_to(&frame, self.to).await;
                        self.counts.passed.fetch_add(1, Ordering::Relaxed);
                    }
                }
                came = self.inward.recv_from(&mut buf) => {
                    // an error concerns a frame sent before, to a member that is down
                    let Ok((n, _)) = came else { continue };
                    self.keep(&buf[..n]);
                    let now = Instant::now();
                    let (first, second) = arrivals(&self.faults, &mut self.random);
                    for delay in [Some(first), second].into_iter().flatten() {
                        if waiting.len() >= RELAY_QUEUE_FRAMES {
                            self.counts.full.fetch_add(1, Ordering::Relaxed);
                            continue;
                        }
                        number += 1;
                        waiting.push(Reverse((now + delay, number, buf[..n].to_vec())));
                    }
                }
            }
        }
    }

    fn keep(&mut self, frame: &[u8]) {
        self.counts.taken.fetch_add(1, Ordering::Relaxed);
        let mut captured = self.captured.lock().unwrap_or_else(PoisonError::into_inner);
        if captured.len() < RELAY_CAPTURE_FRAMES {
            captured.push(frame.to_vec());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_lie_in_their_range_and_follow_from_the_seed() {
        let ms = Duration::from_millis;
        let faults = LinkFaults {
            delay: ms(10),
            jitter: ms(50),
            late_percent: 0,
            twice_percent: 20,
        };
        println!("seed 5");
        let draw = || {
            let mut random = SplitMix64::new(5);
            (0..2_000)
                .map(|_| arrivals(&faults, &mut random))
                .collect::<Vec<_>>()
        };
        let all = draw();
        assert_eq!(all, draw());
        assert!(all
            .iter()
            .all(|(first, _)| (ms(10)..ms(60)).contains(first)));
        assert!(all.iter().any(|(first, _)| *first > ms(55)));
        let twice = all.iter().filter(|(_, second)| second.is_some()).count();
        assert!((300..500).contains(&twice), "{twice}");
    }

    #[test]
    fn a_late_frame_comes_behind_those_sent_after_it() {
        let ms = Duration::from_millis;
        let faults = LinkFaults {
            delay: ms(10),
            jitter: ms(5),
            late_percent: 100,
            twice_percent: 0,
        };
        let mut random = SplitMix64::new(6);
        let (first, second) = arrivals(&faults, &mut random);
        assert!(
            (ms(25)..ms(30)).contains(&first) && second.is_none(),
            "{first:?}"
        );
    }
}
