//! The network between members: delay, loss, duplication, reordering, damage, cuts, clogs.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::rng::Rng;

/// How long datagrams of one link take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Delay {
    /// Always the same: order is kept.
    Constant {
        /// This long.
        ns: u64,
    },
    /// Anything between two ends, alike.
    Uniform {
        /// Shortest.
        min_ns: u64,
        /// Longest.
        max_ns: u64,
    },
    /// Mostly short, with a long tail.
    Exponential {
        /// Shortest.
        min_ns: u64,
        /// Mean of what is on top of the shortest.
        mean_ns: u64,
        /// Longest, all in all.
        most_ns: u64,
    },
}

impl Delay {
    /// Shortest, middle and longest, nanoseconds; ascending unless the world was written by hand.
    pub(crate) fn bounds(self) -> (u64, u64, u64) {
        match self {
            Delay::Constant { ns } => (ns, ns, ns),
            Delay::Uniform { min_ns, max_ns } => (min_ns, max_ns, max_ns),
            Delay::Exponential {
                min_ns,
                mean_ns,
                most_ns,
            } => (min_ns, min_ns.saturating_add(mean_ns), most_ns),
        }
    }

    fn draw(self, rng: &mut Rng) -> u64 {
        match self {
            Delay::Constant { ns } => ns,
            Delay::Uniform { min_ns, max_ns } => rng.between(min_ns, max_ns),
            Delay::Exponential {
                min_ns,
                mean_ns,
                most_ns,
            } => min_ns.saturating_add(rng.exponential(mean_ns)).min(most_ns),
        }
    }
}

/// A link with a delay of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkDelay {
    /// Sender.
    pub from: usize,
    /// Receiver.
    pub to: usize,
    /// How long its datagrams take.
    pub delay: Delay,
}

/// How links behave. Rates are parts per million of datagrams. In JSON, what is left out is as in
/// [`CALM`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
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
    /// Datagrams with flipped bits. Without authentication the UDP checksum is what stands between
    /// a flipped bit and a count, and such a datagram is lost, unless the world says
    /// `damage_passes`.
    pub corrupt_ppm: u32,
    /// Datagrams cut short.
    pub truncate_ppm: u32,
}

impl Default for NetworkFault {
    fn default() -> Self {
        CALM
    }
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
    /// Directed links that hold everything back until this true time.
    clogged: BTreeMap<(usize, usize), u64>,
    /// Directed links with a delay of their own.
    links: BTreeMap<(usize, usize), Delay>,
    rng: Rng,
    damage_arrives: bool,
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
    /// A network with some links of their own; `damage_arrives`: damaged datagrams are delivered,
    /// not lost.
    pub fn new(calm: NetworkFault, links: &[LinkDelay], damage_arrives: bool, rng: Rng) -> Self {
        Network {
            fault: calm,
            calm,
            cut: BTreeSet::new(),
            clogged: BTreeMap::new(),
            links: links
                .iter()
                .map(|link| ((link.from, link.to), link.delay))
                .collect(),
            rng,
            damage_arrives,
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

    /// Directed links that carry nothing.
    pub fn cuts(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.cut.iter().copied()
    }

    /// Holds everything back that is sent from `from` to `to`, until true time `until_ns`.
    pub fn clog(&mut self, from: usize, to: usize, until_ns: u64) {
        let held = self.clogged.entry((from, to)).or_default();
        *held = (*held).max(until_ns);
    }

    /// The true time at which the last clog dissolves; 0 when there was none.
    pub fn clogged_until_ns(&self) -> u64 {
        self.clogged.values().copied().max().unwrap_or(0)
    }

    /// All links carry again, and calmly; clogs dissolve in their own time.
    pub fn heal(&mut self) {
        self.cut.clear();
        self.fault = self.calm;
    }

    /// Whether anything is wrong at true time `now_ns`.
    pub fn troubled(&self, now_ns: u64) -> bool {
        !self.cut.is_empty() || self.fault != self.calm || self.clogged_until_ns() > now_ns
    }

    /// Sends one datagram at true time `now_ns`: the copies that will arrive.
    pub fn send(&mut self, now_ns: u64, from: usize, to: usize, bytes: &[u8]) -> Vec<Copy> {
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
        let clogged = self.clogged.get(&(from, to));
        let held_ns = clogged.map_or(0, |until_ns| until_ns.saturating_sub(now_ns));
        let link = self.links.get(&(from, to)).copied();
        let delay_ns = self.delay(link).max(held_ns);
        if let Some(bytes) = self.damage(bytes) {
            copies.push(Copy { delay_ns, bytes });
        }
        if self.rng.chance(fault.duplicate_ppm) {
            self.stats.copies += 1;
            copies.push(Copy {
                delay_ns: self.delay(link).max(held_ns),
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

    fn delay(&mut self, link: Option<Delay>) -> u64 {
        let fault = self.fault;
        let usual = Delay::Uniform {
            min_ns: fault.delay_min_ns,
            max_ns: fault.delay_max_ns,
        };
        let delay = link.unwrap_or(usual).draw(&mut self.rng);
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
        if !self.damage_arrives {
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

    fn network(fault: NetworkFault, damage_arrives: bool) -> Network {
        let mut network = Network::new(CALM, &[], damage_arrives, Rng::new(9));
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
            .filter(|_| !net.send(0, 0, 1, b"x").is_empty())
            .count();
        assert!((4_800..5_200).contains(&arrived), "{arrived}");
        assert_eq!(net.stats.sent, 10_000);
        assert!(net.troubled(0));
        net.heal();
        assert!(!net.troubled(0) && net.send(0, 0, 1, b"x").len() == 1);
    }

    #[test]
    fn a_cut_is_one_way() {
        let mut net = network(CALM, false);
        net.set_cut(0, 1, true);
        assert!(net.send(0, 0, 1, b"x").is_empty());
        assert_eq!(net.send(0, 1, 0, b"x").len(), 1);
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
            open.send(0, 0, 1, b"count").is_empty(),
            "the checksum drops it"
        );
        let mut closed = network(fault, true);
        let copies = closed.send(0, 0, 1, b"count");
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
        let copies = network(fault, false).send(0, 0, 1, b"row");
        assert_eq!(copies.len(), 3);
        assert!(copies.iter().all(|copy| copy.bytes == b"row"));
        assert!(copies[2].delay_ns >= 500_000_000);
    }

    #[test]
    fn a_clog_releases_everything_at_once() {
        let mut net = network(CALM, false);
        net.clog(0, 1, 5_000_000_000);
        let arrivals: Vec<u64> = (0..50u64)
            .map(|n| {
                let now_ns = n * 90_000_000;
                now_ns + net.send(now_ns, 0, 1, b"x")[0].delay_ns
            })
            .collect();
        assert!(
            arrivals.iter().all(|at_ns| *at_ns == 5_000_000_000),
            "{arrivals:?}"
        );
        assert!(net.troubled(4_999_999_999) && !net.troubled(5_000_000_000));
        assert!(net.send(5_000_000_000, 0, 1, b"x")[0].delay_ns <= CALM.delay_max_ns);
    }

    #[test]
    fn each_link_draws_from_its_own_delays() {
        let link = |to, delay| LinkDelay { from: 0, to, delay };
        let links = [
            link(1, Delay::Constant { ns: 7_000 }),
            link(
                2,
                Delay::Exponential {
                    min_ns: 1_000_000,
                    mean_ns: 2_000_000,
                    most_ns: 9_000_000,
                },
            ),
        ];
        let mut net = Network::new(CALM, &links, false, Rng::new(9));
        let mut drawn = |to| -> Vec<u64> {
            (0..2_000)
                .map(|_| net.send(0, 0, to, b"x")[0].delay_ns)
                .collect()
        };
        assert!(drawn(1).iter().all(|ns| *ns == 7_000));
        let tail = drawn(2);
        let mean = tail.iter().sum::<u64>() / 2_000;
        assert!((2_700_000..3_200_000).contains(&mean), "{mean}");
        assert_eq!(tail.iter().max(), Some(&9_000_000));
        assert!(tail.iter().all(|ns| *ns >= 1_000_000));
        assert!(drawn(3).iter().all(|ns| (50_000..=300_000).contains(ns)));
    }
}
