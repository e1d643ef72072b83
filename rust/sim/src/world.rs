//! The event loop: virtual time, members, network, loads and faults.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::net::SocketAddr;

use gabion_admit::{Outcome, Plan, Verdict};
use gabion_rule::{Key, Mode, RuleIdx};
use gabion_table::limits::{HEAD_AHEAD_EPOCHS_MIN, HEAD_AHEAD_NS};
use gabion_table::{Charge, FailOpen};

use crate::check::{Sample, Violation};
use crate::clock::ClockFault;
use crate::config::{Plant, WorldConfig, MS, SECOND};
use crate::inflict::SECOND_PLACE;
use crate::member::{self, Identity, Member, Start};
use crate::network::Network;
use crate::orders::Given;
use crate::rng::{Rng, Zipf};
use crate::trace::Trace;
use crate::truth::{Life, Truth};

/// A driver that a datagram woke handles what arrives within this time in one round.
pub(crate) const BATCH_NS: u64 = 20_000;
/// Datagrams that wait in the socket of a slow driver; more are lost.
const SOCKET_DATAGRAMS: usize = 1_024;
/// Epochs a row's head may be ahead of now; further ahead it is void. (Simulated epochs are long
/// enough for the cap here not to matter.)
pub(crate) fn head_ahead(plan: &Plan) -> u64 {
    HEAD_AHEAD_NS
        .div_ceil(plan.epoch_ns().max(1))
        .clamp(HEAD_AHEAD_EPOCHS_MIN, 64)
}

/// Things that can be put on a world's programme while it runs.
const PROGRAMME_MOST: u64 = 1 << 20;

/// Time between two sweeps of the checkers.
const SWEEP_NS: u64 = SECOND;

pub(crate) enum Event {
    Wake(usize),
    Deliver {
        from: SocketAddr,
        to: usize,
        bytes: Vec<u8>,
    },
    Load(usize),
    Fault(usize),
    Order(usize),
    Sample(Box<Sample>),
    Back(usize),
    Discover(usize),
    Sweep,
}

/// What a request was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The rule's verdict.
    pub verdict: Verdict,
    /// Why it was admitted uncounted, if it was.
    pub fail_open: Option<FailOpen>,
}

impl Answer {
    /// It was admitted.
    pub fn allowed(&self) -> bool {
        self.verdict.outcome == Outcome::Allowed
    }
}

/// What a run amounted to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Requests answered.
    pub requests: u64,
    /// Of which admitted and counted.
    pub admitted: u64,
    /// Of which denied.
    pub denied: u64,
    /// Of which admitted uncounted.
    pub failed_open: u64,
    /// Datagrams sent.
    pub datagrams: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Longest datagram.
    pub longest_bytes: usize,
    /// Single comparisons the checkers made.
    pub checks: u64,
    /// Of which views compared at the end.
    pub views_compared: u64,
    /// Of which news followed to every peer.
    pub news_followed: u64,
    /// Largest share of a budget that was used: frames, bytes, memory; parts per thousand.
    pub budget_permille: [u64; 3],
    /// Digest of all datagrams and verdicts.
    pub trace: u64,
}

/// A world.
pub struct World {
    pub(crate) config: WorldConfig,
    pub(crate) now_ns: u64,
    pub(crate) members: Vec<Member>,
    /// The network between them.
    pub network: Network,
    /// What was really admitted.
    pub truth: Truth,
    pub(crate) report: Report,
    pub(crate) violation: Option<Violation>,
    /// When a fault was last on.
    pub(crate) troubled_ns: u64,
    /// See [`World::hit_from_outside`].
    pub(crate) hit_from_outside: bool,
    /// What was admitted lately.
    pub(crate) lately: crate::bound::Lately,
    /// What operators ordered so far.
    pub(crate) given: Vec<Given>,
    pub(crate) rng: Rng,
    pub(crate) watch: Option<crate::watch::Watch>,
    pub(crate) recorder: Option<Box<crate::record::Recorder>>,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    events: BTreeMap<u64, Event>,
    sequence: u64,
    /// Number of the last thing that was on the programme; those come first at their time.
    programmed: u64,
    trace: Trace,
    pub(crate) lives: Life,
    pub(crate) places: BTreeMap<SocketAddr, usize>,
    pub(crate) zipfs: BTreeMap<u32, Zipf>,
    pub(crate) fresh_key: u32,
    out: Vec<(SocketAddr, Vec<u8>)>,
    capture_room: usize,
    captured: Vec<(SocketAddr, usize, Vec<u8>)>,
}

impl World {
    /// A world at true time 0, all members started.
    pub fn new(config: WorldConfig) -> World {
        let rng = Rng::new(config.seed);
        let mut world = World {
            now_ns: 0,
            members: Vec::new(),
            network: Network::new(
                config.calm,
                &config.links,
                config.authenticated || config.damage_passes,
                rng.fork(1),
            ),
            truth: Truth::default(),
            report: Report::default(),
            violation: None,
            troubled_ns: 0,
            hit_from_outside: false,
            lately: Default::default(),
            given: Vec::new(),
            rng: rng.fork(2),
            watch: None,
            recorder: None,
            queue: BinaryHeap::new(),
            events: BTreeMap::new(),
            sequence: 0,
            programmed: 0,
            trace: Trace::default(),
            lives: 0,
            places: BTreeMap::new(),
            zipfs: BTreeMap::new(),
            fresh_key: 1 << 20,
            out: Vec::new(),
            capture_room: 0,
            captured: Vec::new(),
            config,
        };
        for index in 0..world.config.members {
            let mut member = world.fresh_member(index, None, 0);
            member.gone = world.config.later.contains(&index);
            if !member.gone {
                world.places.insert(member.addr, index);
            }
            world.members.push(member);
        }
        for &index in &world.config.two_addresses {
            let second = member::address(index, SECOND_PLACE);
            world.places.insert(second, index);
        }
        for index in 0..world.config.members {
            world.tell_peers(index);
            if !world.members[index].gone {
                world.wake(index, 0);
            }
        }
        for load in 0..world.config.loads.len() {
            let from_ns = world.config.loads[load].from_ns;
            world.push(from_ns, Event::Load(load));
        }
        for fault in 0..world.config.faults.len() {
            let at_ns = world.config.faults[fault].0;
            world.push(at_ns, Event::Fault(fault));
        }
        for order in 0..world.config.orders.len() {
            let at_ns = world.config.orders[order].0;
            world.push(at_ns, Event::Order(order));
        }
        world.programmed = world.sequence;
        world.sequence += PROGRAMME_MOST;
        world.push(SWEEP_NS, Event::Sweep);
        world
    }

    pub(crate) fn fresh_member(
        &mut self,
        index: usize,
        keep: Option<Identity>,
        wall_error_ns: i64,
    ) -> Member {
        self.lives += 1;
        let mut rng = self.rng.fork(0x1000 + u64::from(self.lives));
        let drawn = Identity {
            node: rng.next_u64() | 1,
            incarnation: rng.next_u64() | 1,
            session: 1,
            cluster: self.config.clusters.get(index).copied().unwrap_or(1),
        };
        let mut identity = drawn;
        if let Some(kept) = keep {
            identity.node = kept.node;
            identity.cluster = kept.cluster;
        } else if let Some(&node) = self.config.node_ids.get(index) {
            identity.node = node;
        }
        let mut clock = self.config.clocks.get(index).copied().unwrap_or_default();
        if keep.is_some() {
            clock = ClockFault {
                wall_error_ns,
                ..clock
            };
        }
        let start = Start {
            index,
            now_ns: self.now_ns,
            identity,
            life: self.lives,
            clock,
        };
        Member::start(&self.config, start, rng)
    }

    /// True time since the start, nanoseconds.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Member number `index`.
    pub fn member(&self, index: usize) -> &Member {
        &self.members[index]
    }

    /// How many members.
    pub fn members(&self) -> usize {
        self.members.len()
    }

    /// The first thing a checker found.
    pub fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }

    /// What happened so far.
    pub fn report(&self) -> Report {
        Report {
            datagrams: self.network.stats.sent,
            bytes: self.network.stats.bytes,
            longest_bytes: self.network.stats.longest_bytes,
            trace: self.trace.digest(),
            ..self.report
        }
    }

    pub(crate) fn push(&mut self, at_ns: u64, event: Event) {
        self.sequence += 1;
        self.enqueue(at_ns, self.sequence, event);
    }

    /// Something that could have been on the programme from the start: it comes before whatever
    /// else is at its time, as it would have then.
    pub(crate) fn programme(&mut self, at_ns: u64, event: Event) {
        self.programmed += 1;
        self.enqueue(at_ns, self.programmed, event);
    }

    fn enqueue(&mut self, at_ns: u64, sequence: u64, event: Event) {
        self.events.insert(sequence, event);
        self.queue.push(Reverse((at_ns.max(self.now_ns), sequence)));
    }

    pub(crate) fn wake(&mut self, index: usize, at_ns: u64) {
        let slow = self.members[index].slow(self.now_ns);
        let at_ns = if slow {
            at_ns.max(self.now_ns + self.members[index].slow_pause_ns)
        } else {
            at_ns
        };
        if at_ns < self.members[index].wake_at_ns {
            self.members[index].wake_at_ns = at_ns;
            self.push(at_ns, Event::Wake(index));
        }
    }

    /// Lets time pass until true time `until_ns`, or until a checker objects.
    pub fn run_until(&mut self, until_ns: u64) {
        self.run_some(until_ns, u64::MAX);
    }

    /// [`World::run_until`], but at most `most` events: false when there are more up to then, and
    /// the time is that of the last one.
    pub fn run_some(&mut self, until_ns: u64, most: u64) -> bool {
        let mut left = most;
        while self.violation.is_none() {
            match self.queue.peek() {
                Some(&Reverse((at_ns, _))) if at_ns <= until_ns => {}
                _ => break,
            }
            if left == 0 {
                return false;
            }
            left -= 1;
            let Some(Reverse((at_ns, id))) = self.queue.pop() else {
                break;
            };
            let Some(event) = self.events.remove(&id) else {
                continue;
            };
            self.now_ns = at_ns;
            self.handle(event);
        }
        self.now_ns = self.now_ns.max(until_ns);
        true
    }

    /// Lets `for_ns` pass.
    pub fn run_for(&mut self, for_ns: u64) {
        self.run_until(self.now_ns.saturating_add(for_ns));
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Wake(index) => self.on_wake(index),
            Event::Deliver { from, to, bytes } => self.on_datagram(from, to, &bytes),
            Event::Load(load) => self.on_load(load),
            Event::Fault(fault) => {
                let fault = self.config.faults[fault].1;
                self.apply(fault);
            }
            Event::Order(order) => {
                let order = self.config.orders[order].1;
                self.order(order);
            }
            Event::Sample(sample) => self.check_sample(&sample),
            Event::Back(index) => self.on_back(index),
            Event::Discover(index) => self.tell_peers(index),
            Event::Sweep => {
                self.note_trouble();
                self.sweep();
                self.push(self.now_ns + SWEEP_NS, Event::Sweep);
            }
        }
    }

    fn on_wake(&mut self, index: usize) {
        if self.members[index].wake_at_ns != self.now_ns {
            return; // superseded by an earlier one
        }
        self.members[index].wake_at_ns = u64::MAX;
        if !self.members[index].driving(self.now_ns) {
            return; // `Back` wakes it
        }
        self.serve(index);
    }

    fn serve(&mut self, index: usize) {
        for (from, bytes) in std::mem::take(&mut self.members[index].inbox) {
            self.hear(index, from, &bytes);
        }
        let mut out = std::mem::take(&mut self.out);
        let steps = self.members[index].steps;
        let before_ns = self.members[index].clock.cluster_ns(self.now_ns);
        let due = self.members[index].serve(self.config.plant, self.now_ns, &mut out);
        if self.members[index].steps != steps {
            // What it counted by the wrong clock may be in an epoch that is void to all.
            self.troubled_ns = self.now_ns;
            self.clock_changed(index, before_ns);
            self.lately.stepped(self.now_ns);
        }
        for (to, bytes) in out.drain(..) {
            self.send(index, to, bytes);
        }
        self.out = out;
        self.watch_views(index);
        self.wake(index, due);
    }

    pub(crate) fn send(&mut self, from: usize, to: SocketAddr, mut bytes: Vec<u8>) {
        if self.config.plant == Plant::LongFrames && bytes.len() > 100 {
            bytes.resize(1_300, 0);
        }
        self.account(from, &bytes);
        self.trace.add(self.now_ns);
        self.trace
            .add(u64::try_from(from).unwrap_or(0) << 32 | u64::from(to.port()));
        self.trace.add_bytes(&bytes);
        let Some(&to) = self.places.get(&to) else {
            return;
        };
        if self.config.plant == Plant::DropLink && to == 1 && !self.network.troubled(self.now_ns) {
            return;
        }
        self.without_orders(to, &mut bytes);
        let from_addr = self.members[from].addr;
        if self.captured.len() < self.capture_room {
            self.captured.push((from_addr, to, bytes.clone()));
        }
        let cuts = self.network.stats.cut;
        let mut copies = self.network.send(self.now_ns, from, to, &bytes);
        let cut = self.network.stats.cut > cuts;
        self.record_sent((from, to), &bytes, cut, &copies);
        if self.config.plant == Plant::TwiceFrames {
            self.account(from, &bytes);
            copies.extend(self.network.send(self.now_ns, from, to, &bytes));
        }
        for copy in copies {
            let delay_ns = copy.delay_ns + self.planted_delay();
            let event = Event::Deliver {
                from: from_addr,
                to,
                bytes: copy.bytes,
            };
            self.push(self.now_ns.saturating_add(delay_ns), event);
        }
    }

    /// The order of a hash map, when that fault is planted: differs between two runs.
    fn planted_delay(&self) -> u64 {
        use std::hash::BuildHasher;
        if self.config.plant != Plant::HashOrder {
            return 0;
        }
        std::collections::hash_map::RandomState::new().hash_one(self.sequence) % 50_000
    }

    fn on_datagram(&mut self, from: SocketAddr, to: usize, bytes: &[u8]) {
        let now_ns = self.now_ns;
        let member = &mut self.members[to];
        if !member.driving(now_ns) {
            return; // nobody reads the socket; a full socket buffer loses it
        }
        member.traffic.heard += 1;
        if member.slow(now_ns) {
            if member.inbox.len() < SOCKET_DATAGRAMS {
                member.inbox.push((from, bytes.to_vec()));
            }
        } else {
            self.hear(to, from, bytes);
        }
        self.wake(to, now_ns + BATCH_NS);
    }

    /// One request of one rule at one member; `None` when the member is away.
    pub fn request(&mut self, member: usize, rule: RuleIdx, n: u32, hits: u32) -> Option<Answer> {
        let now_ns = self.now_ns;
        if !self.members[member].here(now_ns) {
            return None;
        }
        let key = member::key(rule, n);
        let local = self.members[member].local(rule)?;
        let cluster_ns = self.members[member].clock.cluster_ns(now_ns);
        let mut charges = [Charge::new(local, key, hits, Mode::Enforce, 0)];
        self.members[member].table.decide(&mut charges, cluster_ns);
        let [charge] = charges;
        let mut answer = Answer {
            verdict: charge.verdict,
            fail_open: charge.fail_open,
        };
        if self.config.plant == Plant::DenyEarly && answer.verdict.reading.remaining < 3 {
            answer.verdict.outcome = Outcome::Denied;
        }
        self.report.requests += 1;
        if !answer.allowed() {
            self.report.denied += 1;
            self.check_denial(member, rule, key, hits, &answer.verdict);
        } else if answer.fail_open.is_some() {
            self.report.failed_open += 1;
        } else {
            self.report.admitted += 1;
            self.members[member].traffic.admitted += 1;
            self.admitted(member, rule, key, hits, cluster_ns);
        }
        self.trace_answer(member, &answer);
        self.record_answer(member, rule, &answer);
        self.watch_answer(member, rule, key, &answer);
        self.check_counter(member, rule, key);
        Some(answer)
    }

    fn admitted(&mut self, member: usize, rule: RuleIdx, key: Key, hits: u32, cluster_ns: u64) {
        let plan = self.config.rules[usize::from(rule)].plan();
        let epoch = plan.epoch_of(cluster_ns);
        let held = &self.members[member];
        // A row may be ahead of this member's clock: the clock went back, or remote totals of a
        // later epoch came early. So the table may have charged a later one.
        let mut maybe = self.truth.later(rule, key, epoch, held.life);
        let peak = plan.epoch_of(held.peak_cluster_ns);
        for later in epoch + 1..=epoch + head_ahead(&plan) {
            let possible = later <= peak || held.remote(rule, key, later) > 0;
            if possible && !maybe.contains(&later) {
                maybe.push(later);
            }
        }
        self.truth
            .admit(rule, key, epoch, &maybe, held.life, u64::from(hits));
        self.check_strict(member, rule, key, epoch);
        self.check_bound(member, rule, key, hits);
        self.sample(rule, key, epoch);
        self.plant_lie(member, rule, key, epoch);
    }

    fn trace_answer(&mut self, member: usize, answer: &Answer) {
        let reading = answer.verdict.reading;
        self.trace.add(self.now_ns);
        self.trace
            .add(u64::try_from(member).unwrap_or(0) << 1 | u64::from(answer.allowed()));
        self.trace
            .add(u64::from(reading.remaining) << 32 | u64::from(reading.limit));
        self.trace
            .add(reading.reset_ns ^ answer.verdict.retry_after_ns.rotate_left(32));
    }

    /// Hits that count now at `member` for the `n`-th key of a rule, as its table shows them.
    pub fn used(&self, member: usize, rule: RuleIdx, n: u32) -> u64 {
        let reading = self.members[member].read(rule, member::key(rule, n), self.now_ns);
        reading.map_or(0, |reading| reading.used)
    }

    /// Hits that count now at `member` for the `n`-th key of a rule, as its node knows them,
    /// whether a row shows them or not.
    pub fn known(&self, member: usize, rule: RuleIdx, n: u32) -> u64 {
        let plan = self.config.rules[usize::from(rule)].plan();
        let (held, key) = (&self.members[member], member::key(rule, n));
        let now = plan.epoch_of(held.clock.cluster_ns(self.now_ns));
        let oldest = now.saturating_sub(u64::from(plan.live_epochs()) - 1);
        (oldest..=now)
            .map(|epoch| held.own(rule, key, epoch) + held.remote(rule, key, epoch))
            .sum()
    }

    /// Members' tables are given hits past the world: it cannot say how many rows they may hold.
    pub fn hit_from_outside(&mut self) {
        self.hit_from_outside = true;
    }

    /// A datagram that nobody sent arrives at `to`, now.
    pub fn inject(&mut self, from: SocketAddr, to: usize, bytes: &[u8]) {
        self.on_datagram(from, to, bytes);
    }

    /// Keeps the next `count` datagrams that are sent: (from, to, bytes).
    pub fn capture(&mut self, count: usize) {
        self.capture_room = count;
    }

    /// What was kept since [`World::capture`].
    pub fn captured(&self) -> &[(SocketAddr, usize, Vec<u8>)] {
        &self.captured
    }
}

/// Milliseconds, for reading times in messages.
pub fn ms(ns: u64) -> u64 {
    ns / MS
}
