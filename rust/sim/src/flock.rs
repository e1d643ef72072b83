//! Many members without tables: the protocol machines alone, in virtual time, up to 1,024 of them.
//!
//! I measure how news spreads and what that costs a member: lag, frames, bytes, time in the
//! machine, memory. I promise the same figures for the same seed, but for time and memory, which
//! are of this process. I check no invariants: worlds do.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use gabion_node::{Config, Effect, Fanout, Input, LimiterSpec, Node, Now, Tunables};
use gabion_rule::Key;
use gabion_wire::MAX_FRAME_BYTES;

use crate::clock::WORLD_UNIX_NS;
use crate::config::{MS, SECOND};
use crate::member::{address, key};
use crate::rng::Rng;

/// A machine that a datagram woke handles what arrives within this time in one go.
const BATCH_NS: u64 = 20_000;
/// One-way delay of every link, nanoseconds: shortest and longest.
const DELAY_NS: (u64, u64) = (200_000, 500_000);
/// Epoch of the one limiter: nothing ends during a measurement.
const EPOCH_NS: u64 = 3_600 * SECOND;
/// A member is told its own hits this often, as a driver's turn would.
const TURN_NS: u64 = MS;
/// Time between two keys whose way is followed.
const PROBE_NS: u64 = 20 * MS;
/// Keys that are followed have numbers from here.
const PROBES: u32 = 1 << 24;

/// What the members count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Nothing but the keys that are followed.
    Idle,
    /// One key is hit at every member in every turn.
    HotEverywhere,
    /// One member gets a hit in every turn, on one of 100 keys.
    SteadyAtOne,
    /// One member gets this many new keys at once.
    BurstAtOne(u32),
}

/// What was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// From a hit to another member, nanoseconds: median, 99th percentile, longest.
    pub lag_ns: [u64; 3],
    /// Pairs (hit, member) that were never seen to arrive.
    pub unreached: u64,
    /// Until the last member had the last key of a burst, nanoseconds.
    pub burst_ns: u64,
    /// Frames sent per member and second.
    pub frames: f64,
    /// Frames sent per second by the member that sends most.
    pub frames_most: f64,
    /// Bytes sent per member and second.
    pub bytes: f64,
    /// Time in the machine, microseconds per member and second.
    pub cpu_us: f64,
    /// Frames sent per member until all had met.
    pub meeting_frames: f64,
    /// Resident memory per member, bytes.
    pub memory: f64,
    /// Of which cells, and what forwarding holds.
    pub cells: f64,
    /// News, packets and queues of forwarding, bytes per member.
    pub spread: f64,
}

enum Event {
    Wake(usize),
    Frame {
        from: usize,
        to: usize,
        bytes: Box<[u8]>,
    },
    Turn(usize),
    Probe(u32),
}

/// Members, and what is on its way between them.
pub struct Flock {
    now_ns: u64,
    nodes: Vec<Node>,
    wakes: Vec<u64>,
    places: BTreeMap<SocketAddr, usize>,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    events: BTreeMap<u64, Event>,
    sequence: u64,
    rng: Rng,
    work: Work,
    counts: Vec<u32>,
    probes: BTreeMap<Key, (usize, u64)>,
    lags_ns: Vec<u64>,
    burst: BTreeMap<Key, ()>,
    burst_left: u64,
    burst_done_ns: u64,
    until_ns: u64,
    cpu: Duration,
}

/// Resident memory of this process, bytes.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|n| n.parse::<u64>().ok());
    pages.unwrap_or(0) * 4_096
}

/// Time this thread ran, as far as the system tells.
fn ran() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let ns = text.split(' ').next().and_then(|n| n.parse::<u64>().ok());
    Duration::from_nanos(ns.unwrap_or(0))
}

fn epoch() -> u64 {
    WORLD_UNIX_NS / EPOCH_NS
}

impl Flock {
    /// `members` that know each other's addresses.
    pub fn new(seed: u64, members: usize, fanout: Fanout, work: Work) -> Flock {
        let tunables = Tunables {
            fanout,
            max_cells: 200_000,
            max_chunks: 1_000_000,
            dirty_log_entries: 1 << 14,
            ..Tunables::default()
        };
        let limiter = LimiterSpec {
            short: 7,
            digest: 7,
            epoch_ns: EPOCH_NS,
            live_epochs: 1,
            // Whatever comes is urgent.
            limit: 1,
            error_budget_ppm: 10_000,
        };
        let node = |index: usize| {
            let config = Config {
                node: index as u64 + 1,
                incarnation: index as u64 ^ 0xabcd_ef01,
                session: 1,
                cluster: 1,
                keys: None,
                limiters: vec![limiter],
                tunables: tunables.clone(),
            };
            Node::new(config, SECOND)
        };
        let mut flock = Flock {
            now_ns: SECOND,
            nodes: (0..members).map(node).collect(),
            wakes: vec![u64::MAX; members],
            places: (0..members).map(|i| (address(i, 0), i)).collect(),
            queue: BinaryHeap::new(),
            events: BTreeMap::new(),
            sequence: 0,
            rng: Rng::new(seed),
            work,
            counts: vec![0; members],
            probes: BTreeMap::new(),
            lags_ns: Vec::new(),
            burst: BTreeMap::new(),
            burst_left: 0,
            burst_done_ns: 0,
            until_ns: u64::MAX,
            cpu: Duration::ZERO,
        };
        let all: Vec<SocketAddr> = (0..members).map(|i| address(i, 0)).collect();
        for index in 0..members {
            let mut others = all.clone();
            others.remove(index);
            let now = flock.now();
            flock.nodes[index].handle(Input::Peers(&others), now);
            // Members start within a second, not in one instant.
            let starts = flock.now_ns + flock.rng.below(SECOND);
            flock.wake(index, starts);
        }
        flock
    }

    fn now(&self) -> Now {
        Now {
            mono_ns: self.now_ns,
            cluster_ns: WORLD_UNIX_NS + self.now_ns,
        }
    }

    fn push(&mut self, at_ns: u64, event: Event) {
        self.sequence += 1;
        self.events.insert(self.sequence, event);
        self.queue.push(Reverse((at_ns, self.sequence)));
    }

    fn wake(&mut self, index: usize, at_ns: u64) {
        if at_ns < self.wakes[index] {
            self.wakes[index] = at_ns;
            self.push(at_ns, Event::Wake(index));
        }
    }

    /// Lets `for_ns` pass.
    pub fn run(&mut self, for_ns: u64) {
        let end = self.now_ns + for_ns;
        while let Some(&Reverse((at, id))) = self.queue.peek().filter(|e| e.0 .0 <= end) {
            self.queue.pop();
            self.now_ns = self.now_ns.max(at);
            match self.events.remove(&id) {
                Some(Event::Wake(index)) if self.wakes[index] == at => self.serve(index),
                Some(Event::Frame { from, to, bytes }) => self.deliver(from, to, &bytes),
                Some(Event::Turn(index)) => self.turn(index),
                Some(Event::Probe(number)) => self.probe(number),
                _ => {}
            }
        }
        self.now_ns = end;
    }

    fn deliver(&mut self, from: usize, to: usize, bytes: &[u8]) {
        let now = self.now();
        let from = address(from, 0);
        let began = Instant::now();
        self.nodes[to].handle(Input::Datagram { from, bytes }, now);
        self.cpu += began.elapsed();
        self.wake(to, self.now_ns + BATCH_NS);
    }

    fn serve(&mut self, index: usize) {
        self.wakes[index] = u64::MAX;
        let now = self.now();
        let mut buf = [0u8; MAX_FRAME_BYTES];
        let mut out = Vec::new();
        let began = Instant::now();
        let node = &mut self.nodes[index];
        if node.next_deadline().is_some_and(|due| due <= now.mono_ns) {
            node.handle(Input::Tick, now);
        }
        let rng = &mut self.rng;
        while let Some((to, n)) = node.poll_transmit(now, &mut buf, &mut || rng.next_u64()) {
            out.push((to, Box::<[u8]>::from(&buf[..n])));
        }
        let mut raised = Vec::new();
        while let Some(effect) = node.poll_effect() {
            if let Effect::RemoteTotal { key, .. } = effect {
                raised.push(key);
            }
        }
        let next = node.next_deadline();
        self.cpu += began.elapsed();
        raised.into_iter().for_each(|key| self.arrived(index, key));
        for (to, bytes) in out {
            if let Some(to) = self.places.get(&to).copied() {
                let at = self.now_ns + self.rng.between(DELAY_NS.0, DELAY_NS.1);
                let from = index;
                self.push(at, Event::Frame { from, to, bytes });
            }
        }
        if let Some(due) = next {
            self.wake(index, due.max(self.now_ns + 10_000));
        }
    }

    fn arrived(&mut self, index: usize, key: Key) {
        match self.probes.get(&key) {
            Some((at, sent_ns)) if *at != index => self.lags_ns.push(self.now_ns - sent_ns),
            _ => {}
        }
        if self.burst.contains_key(&key) {
            self.burst_left = self.burst_left.saturating_sub(1);
            if self.burst_left == 0 {
                self.burst_done_ns = self.now_ns;
            }
        }
    }

    fn hit(&mut self, index: usize, key: Key, count: u32) {
        let now = self.now();
        let own = Input::Own {
            limiter: 0,
            key,
            epoch: epoch(),
            count,
        };
        self.nodes[index].handle(own, now);
        let due = self.nodes[index].next_deadline().unwrap_or(u64::MAX);
        self.wake(index, due.max(self.now_ns));
    }

    fn turn(&mut self, index: usize) {
        if self.now_ns >= self.until_ns {
            return;
        }
        self.counts[index] += 1;
        let count = self.counts[index];
        match self.work {
            Work::HotEverywhere => self.hit(index, key(0, 0), count),
            Work::SteadyAtOne => self.hit(index, key(0, count % 100), count / 100 + 1),
            Work::Idle | Work::BurstAtOne(_) => {}
        }
        self.push(self.now_ns + TURN_NS, Event::Turn(index));
    }

    fn probe(&mut self, number: u32) {
        if self.now_ns >= self.until_ns {
            return;
        }
        let (at, followed) = (self.rng.index(self.nodes.len()), key(0, PROBES + number));
        self.probes.insert(followed, (at, self.now_ns));
        self.hit(at, followed, 1);
        self.push(self.now_ns + PROBE_NS, Event::Probe(number + 1));
    }

    /// Are all links up?
    pub fn met(&self) -> bool {
        let all = self.nodes.len() - 1;
        self.nodes.iter().all(|node| node.peers_up() == all)
    }

    fn start(&mut self, for_ns: u64) {
        self.until_ns = self.now_ns + for_ns;
        let members = match self.work {
            Work::HotEverywhere => self.nodes.len(),
            Work::SteadyAtOne => 1,
            Work::Idle | Work::BurstAtOne(_) => 0,
        };
        for index in 0..members {
            let at = self.now_ns + self.rng.below(TURN_NS);
            self.push(at, Event::Turn(index));
        }
        self.push(self.now_ns, Event::Probe(0));
        if let Work::BurstAtOne(keys) = self.work {
            self.burst_left = u64::from(keys) * (self.nodes.len() as u64 - 1);
            for n in 1..=keys {
                self.burst.insert(key(0, n), ());
                self.hit(0, key(0, n), 1);
            }
        }
    }

    fn sent(&self, which: impl Fn(&gabion_node::NodeStats) -> u64) -> Vec<u64> {
        self.nodes.iter().map(|node| which(node.stats())).collect()
    }
}

fn share(sorted: &[u64], millionths: usize) -> u64 {
    let last = sorted.len().saturating_sub(1);
    sorted
        .get(last * millionths / 1_000_000)
        .copied()
        .unwrap_or(0)
}

/// Lets `members` meet, then work for `for_ns`, and gives what it cost. `None`: they never met.
pub fn measure(seed: u64, members: usize, fanout: Fanout, work: Work, for_ns: u64) -> Option<Cost> {
    let resident_ns = resident();
    let mut flock = Flock::new(seed, members, fanout, work);
    let most_ns = 60 * SECOND;
    while !flock.met() {
        flock.run(250 * MS);
        if flock.now_ns > most_ns {
            return None;
        }
    }
    let met: u64 = flock.sent(|s| s.frames_out).iter().sum();
    // Introductions end, modes settle.
    flock.run(3 * SECOND);
    let (frames, bytes) = (flock.sent(|s| s.frames_out), flock.sent(|s| s.bytes_out));
    flock.cpu = Duration::ZERO;
    let began_ns = flock.now_ns;
    let (clock, ran_before) = (Instant::now(), ran());
    flock.start(for_ns);
    flock.run(for_ns);
    // Less what other processes took meanwhile.
    let on_cpu = (ran() - ran_before).as_secs_f64() / clock.elapsed().as_secs_f64();
    let cpu = flock.cpu.mul_f64(on_cpu.min(1.0));
    let frames_then = flock.sent(|s| s.frames_out);
    let each: Vec<u64> = frames_then
        .iter()
        .zip(&frames)
        .map(|(b, a)| b - a)
        .collect();
    let bytes: u64 = flock
        .sent(|s| s.bytes_out)
        .iter()
        .zip(&bytes)
        .map(|(b, a)| b - a)
        .sum();
    // What is under way may arrive.
    flock.run(6 * SECOND);
    let resident_bytes = resident().saturating_sub(resident_ns);
    let (n, seconds) = (members as f64, for_ns as f64 / 1e9);
    flock.lags_ns.sort_unstable();
    let lags = &flock.lags_ns;
    let expected = flock.probes.len() * (members - 1);
    let per = |total: u64| total as f64 / n / seconds;
    Some(Cost {
        lag_ns: [
            share(lags, 500_000),
            share(lags, 990_000),
            share(lags, 1_000_000),
        ],
        unreached: (expected - lags.len().min(expected)) as u64,
        burst_ns: flock.burst_done_ns.saturating_sub(began_ns),
        frames: per(each.iter().sum()),
        frames_most: each.iter().max().map_or(0.0, |most| *most as f64 / seconds),
        bytes: per(bytes),
        cpu_us: cpu.as_secs_f64() * 1e6 / n / seconds,
        meeting_frames: met as f64 / n,
        memory: resident_bytes as f64 / n,
        cells: flock.sent(|s| s.cell_bytes).iter().sum::<u64>() as f64 / n,
        spread: flock.sent(|s| s.spread_bytes).iter().sum::<u64>() as f64 / n,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forwarding_reaches_everyone_with_fewer_frames_than_the_mesh() {
        let cost = |fanout| measure(3, 48, fanout, Work::SteadyAtOne, SECOND).unwrap();
        let (mesh, spread) = (cost(Fanout::Mesh), cost(Fanout::Members(6)));
        println!("{mesh:?}\n{spread:?}");
        assert_eq!((mesh.unreached, spread.unreached), (0, 0));
        // A round of the mesh has 47 receivers, one of forwarding 6, which all forward what is
        // news; both have rounds as close as packets per second allow.
        assert!(spread.frames_most < mesh.frames_most * 0.6);
        assert!(spread.lag_ns[1] < 50 * MS, "{spread:?}");
    }
}
