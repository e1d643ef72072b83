//! A tiny deterministic network of nodes in memory: time advances from event to event.
#![allow(dead_code, clippy::cast_possible_truncation, clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;

use gabion_node::{Config, Effect, Input, LimiterSpec, Node, Note, Now, Tunables};
use gabion_rule::Key;
use gabion_wire::KeyRing;

pub(crate) const MS: u64 = 1_000_000;
pub(crate) const SECOND: u64 = 1_000 * MS;
/// Unix time at the start of every test: 2027-01-15 08:00:00, an epoch boundary of minutes and
/// hours.
pub(crate) const START: u64 = 1_800_000_000 * SECOND;

pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }
}

pub(crate) struct Member {
    pub(crate) node: Node,
    pub(crate) addr: SocketAddr,
    /// Error of its clock, and the correction its node asked for.
    pub(crate) error_ns: i64,
    pub(crate) offset_ns: i64,
    /// Its driver ignores corrections.
    pub(crate) stubborn: bool,
    pub(crate) alive: bool,
    /// Its next deadline.
    pub(crate) due: Option<u64>,
    pub(crate) totals: BTreeMap<(u16, Key, u64), u64>,
    pub(crate) notes: Vec<Note>,
    pub(crate) ups: u32,
    pub(crate) downs: u32,
    pub(crate) steps: u32,
    pub(crate) bytes_out: u64,
}

pub(crate) struct Net {
    pub(crate) now: u64,
    pub(crate) members: Vec<Member>,
    queue: BTreeMap<(u64, u64), (SocketAddr, SocketAddr, Vec<u8>)>,
    sent: u64,
    pub(crate) rng: Rng,
    pub(crate) loss_pct: u64,
    pub(crate) dup_pct: u64,
    pub(crate) delay_ns: (u64, u64),
    /// Directed pairs of member indexes that lose everything.
    pub(crate) cut: BTreeSet<(usize, usize)>,
    pub(crate) tap: VecDeque<(SocketAddr, SocketAddr, Vec<u8>)>,
    pub(crate) largest: usize,
    /// Further addresses of members.
    pub(crate) alias: BTreeMap<SocketAddr, usize>,
}

pub(crate) fn addr(i: usize) -> SocketAddr {
    SocketAddr::from(([127, 0, (i >> 8) as u8, i as u8], 7_000))
}

pub(crate) fn key(i: u64) -> Key {
    let mut r = Rng(i);
    Key::new(r.next(), r.next())
}

/// One limiter: limit 100 per minute.
pub(crate) fn minute() -> LimiterSpec {
    LimiterSpec {
        short: 0x11,
        digest: 0xd1,
        epoch_ns: 60 * SECOND,
        live_epochs: 1,
        limit: 100,
        error_budget_ppm: 10_000,
    }
}

pub(crate) fn config(node: u64, incarnation: u64, limiters: &[LimiterSpec]) -> Config {
    Config {
        node,
        incarnation,
        session: 1,
        cluster: 7,
        keys: None,
        limiters: limiters.to_vec(),
        tunables: Tunables::default(),
    }
}

pub(crate) fn keys(file: &str) -> Option<KeyRing> {
    Some(KeyRing::parse(file).unwrap())
}

impl Net {
    pub(crate) fn new(seed: u64) -> Net {
        println!("seed {seed}");
        Net {
            now: SECOND,
            members: Vec::new(),
            queue: BTreeMap::new(),
            sent: 0,
            rng: Rng(seed),
            loss_pct: 0,
            dup_pct: 0,
            delay_ns: (MS / 4, MS / 2),
            cut: BTreeSet::new(),
            tap: VecDeque::new(),
            largest: 0,
            alias: BTreeMap::new(),
        }
    }

    /// `n` members with ids 1.. that all know each other.
    pub(crate) fn mesh(seed: u64, n: usize, limiters: &[LimiterSpec]) -> Net {
        let mut net = Net::new(seed);
        for i in 0..n {
            net.add(config(i as u64 + 1, 1_000 + i as u64, limiters));
        }
        net.introduce();
        net
    }

    pub(crate) fn add(&mut self, config: Config) -> usize {
        let i = self.members.len();
        self.members.push(member(config, addr(i), self.now));
        i
    }

    /// Every member is told the addresses of all others.
    pub(crate) fn introduce(&mut self) {
        for i in 0..self.members.len() {
            let others: Vec<SocketAddr> = self
                .members
                .iter()
                .map(|m| m.addr)
                .filter(|a| *a != self.members[i].addr)
                .collect();
            self.handle(i, Input::Peers(&others));
        }
    }

    /// A new process at the address of member `i`, with nothing but its configuration.
    pub(crate) fn restart(&mut self, i: usize, config: Config) {
        let at = self.members[i].addr;
        self.members[i] = member(config, at, self.now);
        let others: Vec<SocketAddr> = (0..self.members.len())
            .filter(|j| *j != i)
            .map(|j| self.members[j].addr)
            .collect();
        self.handle(i, Input::Peers(&others));
    }

    pub(crate) fn clock(&self, i: usize) -> Now {
        let m = &self.members[i];
        let offset = if m.stubborn { 0 } else { m.offset_ns };
        let cluster = (START + self.now) as i64 + m.error_ns + offset;
        Now {
            mono_ns: self.now,
            cluster_ns: cluster as u64,
        }
    }

    pub(crate) fn epoch(&self, spec: &LimiterSpec) -> u64 {
        (START + self.now) / spec.epoch_ns
    }

    pub(crate) fn own(&mut self, i: usize, limiter: u16, key: Key, epoch: u64, count: u32) {
        self.handle(
            i,
            Input::Own {
                limiter,
                key,
                epoch,
                count,
            },
        );
    }

    pub(crate) fn handle(&mut self, i: usize, input: Input<'_>) {
        if self.members[i].alive {
            let now = self.clock(i);
            self.members[i].node.handle(input, now);
            self.drain(i);
        }
    }

    /// Sends what member `i` has to send, and takes its effects.
    pub(crate) fn drain(&mut self, i: usize) {
        let now = self.clock(i);
        let mut buf = [0u8; 1200];
        let mut frames = 0;
        let from = self.members[i].addr;
        loop {
            let m = &mut self.members[i];
            let rng = &mut self.rng;
            let sent = m.node.poll_transmit(now, &mut buf, &mut || rng.next());
            let Some((to, len)) = sent else { break };
            m.bytes_out += len as u64;
            self.largest = self.largest.max(len);
            frames += 1;
            assert!(frames < 100_000, "member {i} never stops sending");
            self.post(from, to, &buf[..len]);
        }
        while let Some(effect) = self.members[i].node.poll_effect() {
            let m = &mut self.members[i];
            match effect {
                Effect::RemoteTotal {
                    limiter,
                    key,
                    epoch,
                    total,
                } => {
                    let old = m.totals.insert((limiter, key, epoch), total).unwrap_or(0);
                    assert!(total >= old, "a remote total fell");
                }
                Effect::ClockOffset { offset_ns, step } => {
                    m.offset_ns = offset_ns;
                    m.steps += u32::from(step);
                }
                Effect::PeerUp { .. } => m.ups += 1,
                Effect::PeerDown { .. } => m.downs += 1,
                Effect::Note(n) => m.notes.push(n),
            }
        }
        self.members[i].due = self.members[i].node.next_deadline();
    }

    fn index(&self, a: SocketAddr) -> Option<usize> {
        if let Some(alias) = self.alias.get(&a) {
            return Some(*alias);
        }
        let SocketAddr::V4(v4) = a else { return None };
        let [_, _, high, low] = v4.ip().octets();
        let i = usize::from(high) << 8 | usize::from(low);
        (i < self.members.len() && self.members[i].addr == a).then_some(i)
    }

    pub(crate) fn post(&mut self, from: SocketAddr, to: SocketAddr, bytes: &[u8]) {
        if self.tap.len() > 50_000 {
            self.tap.pop_front();
        }
        self.tap.push_back((from, to, bytes.to_vec()));
        if let (Some(a), Some(b)) = (self.index(from), self.index(to)) {
            if self.cut.contains(&(a, b)) {
                return;
            }
        }
        let copies = 1 + u64::from(self.rng.below(100) < self.dup_pct);
        for _ in 0..copies {
            if self.rng.below(100) < self.loss_pct {
                continue;
            }
            let (low, high) = self.delay_ns;
            let at = self.now + low + self.rng.below(high - low + 1);
            self.sent += 1;
            self.queue
                .insert((at, self.sent), (from, to, bytes.to_vec()));
        }
    }

    /// Runs for a time.
    pub(crate) fn run(&mut self, ns: u64) {
        let end = self.now + ns;
        let (mut last, mut at_once) = (0, 0u64);
        loop {
            let due = self
                .members
                .iter()
                .filter(|m| m.alive)
                .filter_map(|m| m.due)
                .min();
            let packet = self.queue.first_key_value().map(|(k, _)| k.0);
            let Some(next) = due.into_iter().chain(packet).min().filter(|t| *t <= end) else {
                self.now = end;
                return;
            };
            self.now = self.now.max(next);
            at_once = if self.now == last { at_once + 1 } else { 0 };
            last = self.now;
            assert!(at_once < 20_000, "busy loop at {} ns", self.now);
            if packet == Some(next) {
                if let Some((_, (from, to, bytes))) = self.queue.pop_first() {
                    if let Some(i) = self.index(to) {
                        self.handle(
                            i,
                            Input::Datagram {
                                from,
                                bytes: &bytes,
                            },
                        );
                    }
                }
                continue;
            }
            for i in 0..self.members.len() {
                let due = self.members[i].due.is_some_and(|d| d <= self.now);
                if self.members[i].alive && due {
                    self.handle(i, Input::Tick);
                    let next = self.members[i].due;
                    assert!(
                        next.is_none_or(|d| d > self.now),
                        "member {i}: deadline {next:?} stays at {}",
                        self.now
                    );
                }
            }
        }
    }

    pub(crate) fn total(&self, i: usize, limiter: u16, key: Key, epoch: u64) -> u64 {
        let node = &self.members[i].node;
        node.remote_total(limiter, key, epoch) + u64::from(node.own_count(limiter, key, epoch))
    }

    /// Does every living member see `total`?
    pub(crate) fn all_see(&self, limiter: u16, key: Key, epoch: u64, total: u64) -> bool {
        (0..self.members.len())
            .filter(|i| self.members[*i].alive)
            .all(|i| self.total(i, limiter, key, epoch) == total)
    }
}

fn member(config: Config, addr: SocketAddr, now: u64) -> Member {
    Member {
        node: Node::new(config, now),
        addr,
        error_ns: 0,
        offset_ns: 0,
        stubborn: false,
        alive: true,
        due: Some(0),
        totals: BTreeMap::new(),
        notes: Vec::new(),
        ups: 0,
        downs: 0,
        steps: 0,
        bytes_out: 0,
    }
}

/// A window of an hour.
pub(crate) fn hour() -> LimiterSpec {
    LimiterSpec {
        epoch_ns: 3_600 * SECOND,
        ..minute()
    }
}

/// Own counts of `keys` at member `i`, in the present hour.
pub(crate) fn load(net: &mut Net, i: usize, keys: std::ops::Range<u64>, count: u32) {
    let (epoch, now) = (net.epoch(&hour()), net.clock(i));
    for k in keys {
        let input = Input::Own {
            limiter: 0,
            key: key(k),
            epoch,
            count,
        };
        net.members[i].node.handle(input, now);
    }
    net.drain(i);
}
