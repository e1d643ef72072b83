//! The network between members: delay, loss, duplication, reordering, damage, cuts.

use std::collections::BTreeSet;

use crate::rng::Rng;

/// How links behave. Rates are parts per million of datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetworkFault {
    /// Shortest one-way delay.
    pub delay_min_ns: u64,
    /// Longest ordinary one-way delay; each datagram draws its own, so close ones are reordered.
    pub delay_max_ns: u64,
    /// Datagrams lost.
    pub loss_ppm: u32,
    /// Datagrams that arrive twice.
    pub duplicate_ppm: u32,
    /// Datagrams that take up to `late_max_ns` longer (heavy reordering).
    pub late_ppm: u32,
    /// See `late_ppm`.
    pub late_max_ns: u64,
    /// Datagrams of which a copy arrives seconds later (a capture that is played back).
    pub replay_ppm: u32,
    /// Datagrams with flipped bits. Used only with authentication on: without it the UDP checksum
    /// is what stands between a flipped bit and a count, and such a datagram is lost instead.
    pub corrupt_ppm: u32,
    /// Datagrams cut short.
    pub truncate_ppm: u32,
}

/// A quiet local network.
pub const CALM: NetworkFault = NetworkFault {
    delay_min_ns: 50_000,
    delay_max_ns: 300_000,
    loss_ppm: 0,
    duplicate_ppm: 0,
    late_ppm: 0,
    late_max_ns: 0,
    replay_ppm: 0,
    corrupt_ppm: 0,
    truncate_ppm: 0,
};

/// Counts of what the network did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetworkStats {
    /// Datagrams sent by members.
    pub sent: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Longest datagram.
    pub longest_bytes: usize,
    /// Lost by chance.
    pub lost: u64,
    /// Stopped by a cut.
    pub cut: u64,
    /// Delivered copies beyond the first.
    pub copies: u64,
    /// Damaged ones that were delivered.
    pub damaged: u64,
}

/// Links between members, by member number.
#[derive(Clone, Debug)]
pub struct Network {
    /// What every link does now.
    pub fault: NetworkFault,
    /// What `fault` returns to when faults end.
    pub calm: NetworkFault,
    /// Directed links that carry nothing.
    cut: BTreeSet<(usize, usize)>,
    rng: Rng,
    authenticated: bool,
    /// What happened so far.
    pub stats: NetworkStats,
}

/// One copy of a datagram on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copy {
    /// Pause before it arrives.
    pub delay_ns: u64,
    /// What arrives.
    pub bytes: Vec<u8>,
}

impl Network {
    /// A network; `authenticated` says whether damaged datagrams may be delivered.
    pub fn new(calm: NetworkFault, authenticated: bool, rng: Rng) -> Self {
        Network {
            fault: calm,
            calm,
            cut: BTreeSet::new(),
            rng,
            authenticated,
            stats: NetworkStats::default(),
        }
    }

    /// Cuts (or heals) the link from `from` to `to`, one way.
    pub fn set_cut(&mut self, from: usize, to: usize, cut: bool) {
        if cut {
            self.cut.insert((from, to));
        } else {
            self.cut.remove(&(from, to));
        }
    }

    /// All links carry again, and calmly.
    pub fn heal(&mut self) {
        self.cut.clear();
        self.fault = self.calm;
    }

    /// Whether anything is wrong now.
    pub fn troubled(&self) -> bool {
        !self.cut.is_empty() || self.fault != self.calm
    }

    /// Sends one datagram: the copies that will arrive.
    pub fn send(&mut self, from: usize, to: usize, bytes: &[u8]) -> Vec<Copy> {
        self.stats.sent += 1;
        self.stats.bytes += u64::try_from(bytes.len()).unwrap_or(0);
        self.stats.longest_bytes = self.stats.longest_bytes.max(bytes.len());
        let fault = self.fault;
        if self.cut.contains(&(from, to)) {
            self.stats.cut += 1;
            return Vec::new();
        }
        if self.rng.chance(fault.loss_ppm) {
            self.stats.lost += 1;
            return Vec::new();
        }
        let mut copies = Vec::with_capacity(1);
        let delay_ns = self.delay();
        if let Some(bytes) = self.damage(bytes) {
            copies.push(Copy { delay_ns, bytes });
        }
        if self.rng.chance(fault.duplicate_ppm) {
            self.stats.copies += 1;
            copies.push(Copy {
                delay_ns: self.delay(),
                bytes: bytes.to_vec(),
            });
        }
        if self.rng.chance(fault.replay_ppm) {
            self.stats.copies += 1;
            let delay_ns = self.rng.between(500_000_000, 8_000_000_000);
            copies.push(Copy {
                delay_ns,
                bytes: bytes.to_vec(),
            });
        }
        copies
    }

    fn delay(&mut self) -> u64 {
        let fault = self.fault;
        let delay = self.rng.between(fault.delay_min_ns, fault.delay_max_ns);
        if self.rng.chance(fault.late_ppm) {
            return delay.saturating_add(self.rng.between(0, fault.late_max_ns));
        }
        delay
    }

    /// What arrives of `bytes`; nothing when the checksum caught the damage.
    fn damage(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        let mut bytes = bytes.to_vec();
        let flip = self.rng.chance(self.fault.corrupt_ppm);
        let truncate = self.rng.chance(self.fault.truncate_ppm);
        if !flip && !truncate || bytes.is_empty() {
            return Some(bytes);
        }
        if !self.authenticated {
            self.stats.lost += 1;
            return None;
        }
        self.stats.damaged += 1;
        if truncate {
            let keep = self.rng.index(bytes.len());
            bytes.truncate(keep);
        }
        if flip {
            for _ in 0..self.rng.between(1, 4) {
                if bytes.is_empty() {
                    break;
                }
                let at = self.rng.index(bytes.len());
                bytes[at] ^= 1 << self.rng.below(8);
            }
        }
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(fault: NetworkFault, authenticated: bool) -> Network {
        let mut network = Network::new(CALM, authenticated, Rng::new(9));
        network.fault = fault;
        network
    }

    #[test]
    fn rates_are_what_they_say() {
        let mut net = network(
            NetworkFault {
                loss_ppm: 500_000,
                ..CALM
            },
            false,
        );
        let arrived = (0..10_000)
            .filter(|_| !net.send(0, 1, b"x").is_empty())
            .count();
        assert!((4_800..5_200).contains(&arrived), "{arrived}");
        assert_eq!(net.stats.sent, 10_000);
        assert!(net.troubled());
        net.heal();
        assert!(!net.troubled() && net.send(0, 1, b"x").len() == 1);
    }

    #[test]
    fn a_cut_is_one_way() {
        let mut net = network(CALM, false);
        net.set_cut(0, 1, true);
        assert!(net.send(0, 1, b"x").is_empty());
        assert_eq!(net.send(1, 0, b"x").len(), 1);
        assert_eq!(net.stats.cut, 1);
    }

    #[test]
    fn damage_reaches_only_those_who_can_tell() {
        let fault = NetworkFault {
            corrupt_ppm: 1_000_000,
            ..CALM
        };
        let mut open = network(fault, false);
        assert!(
            open.send(0, 1, b"count").is_empty(),
            "the checksum drops it"
        );
        let mut closed = network(fault, true);
        let copies = closed.send(0, 1, b"count");
        assert_eq!(copies[0].bytes.len(), 5);
        assert_eq!(closed.stats.damaged, 1);
    }

    #[test]
    fn replayed_and_duplicated_copies_are_whole() {
        let fault = NetworkFault {
            duplicate_ppm: 1_000_000,
            replay_ppm: 1_000_000,
            ..CALM
        };
        let copies = network(fault, false).send(0, 1, b"row");
        assert_eq!(copies.len(), 3);
        assert!(copies.iter().all(|copy| copy.bytes == b"row"));
        assert!(copies[2].delay_ns >= 500_000_000);
    }
}
