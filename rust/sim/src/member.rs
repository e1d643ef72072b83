//! One simulated member: a real table, pump and node under simulated clocks.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use gabion_admit::{Pacing, Reading};
use gabion_node::{Config as NodeConfig, Effect, Input, LimiterSpec, Node, Note, Now};
use gabion_pump::Pump;
use gabion_rule::{CounterIdentity, Key, Pace, RuleIdx};
use gabion_table::{Fault, RawMem, SubSpec, Table};
use gabion_wire::{KeyRing, MAX_FRAME_BYTES};

use crate::budget::Traffic;
use crate::clock::{Clock, ClockFault};
use crate::config::{Plant, WorldConfig, MS};
use crate::mem::SimMem;
use crate::rng::{mix, Rng};
use crate::truth::Life;

/// The table of a simulated member.
pub type SimTable = Table<SimMem>;

/// Frames one service sends at most before the world goes on.
const FRAMES_PER_SERVICE: usize = 512;

/// Who a member is: what a restart changes and what it keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its node id.
    pub node: u64,
    /// Lives with the rows.
    pub incarnation: u64,
    /// Raised by each driver.
    pub session: u32,
    /// Its cluster tag.
    pub cluster: u32,
}

/// A member.
pub struct Member {
    /// Its number.
    pub index: usize,
    /// Where it is reached now.
    pub addr: SocketAddr,
    /// Who it is.
    pub identity: Identity,
    /// Names its rows' life in the truth.
    pub life: Life,
    /// Its counters.
    pub table: SimTable,
    /// Its protocol machine.
    pub node: Node,
    /// What moves between the two.
    pub pump: Pump,
    /// Its clocks.
    pub clock: Clock,
    /// No decisions and no driver before this true time.
    pub away_until_ns: u64,
    /// No driver before this true time.
    pub stopped_until_ns: u64,
    /// When it wakes next (true time).
    pub wake_at_ns: u64,
    /// When the pump's next turn is due (true time).
    pub pump_due_ns: u64,
    /// Something arrived since the last turn.
    pub received: bool,
    /// What the node told operators, counted.
    pub notes: BTreeMap<Note, u64>,
    /// The latest cluster time its clock ever showed: a clock may go back, rows do not.
    pub peak_cluster_ns: u64,
    /// Clock steps so far.
    pub steps: u64,
    /// Discovery answers nothing.
    pub no_peers: bool,
    /// It has not started yet, or has left for good.
    pub gone: bool,
    /// Until this true time each round of its driver comes `slow_pause_ns` late.
    pub slow_until_ns: u64,
    /// See `slow_until_ns`.
    pub slow_pause_ns: u64,
    /// What it sent and why, in this second and the one before.
    pub(crate) traffic: Traffic,
    /// What waits in the socket of a slow driver.
    pub inbox: Vec<(SocketAddr, Vec<u8>)>,
    /// The place of each of the world's rules in this member's configuration.
    places: Vec<Option<RuleIdx>>,
    rng: Rng,
}

/// Address of member `index` in its `life`-th place.
pub fn address(index: usize, place: u32) -> SocketAddr {
    let [_, _, high, low] = u32::try_from(index).unwrap_or(0).to_be_bytes();
    let place = u8::try_from(place % 250).unwrap_or(0);
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, place, high, low)), 7_946)
}

/// The `n`-th key of a rule: 48 pseudo-random bits twice, as a hash would give.
pub fn key(rule: RuleIdx, n: u32) -> Key {
    let seed = u64::from(rule) << 32 | u64::from(n);
    Key {
        a: mix(seed ^ 0x1234) >> 16,
        b: mix(seed ^ 0x9876_0000_0000) >> 16,
    }
}

fn identity_of(index: usize) -> CounterIdentity {
    let half = mix(u64::try_from(index).unwrap_or(0) ^ 0xface);
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&half.to_le_bytes());
    bytes[8..].copy_from_slice(&mix(half).to_le_bytes());
    CounterIdentity(bytes)
}

/// Which of the world's rules member `index` has, in its order.
fn rules_of(config: &WorldConfig, index: usize) -> Vec<usize> {
    let own = config.rules_at.iter().find(|(member, _)| *member == index);
    own.map_or_else(
        || (0..config.rules.len()).collect(),
        |(_, rules)| rules.clone(),
    )
}

/// How member `index` decides a rule of the world.
fn pacing(config: &WorldConfig, rule: usize, index: usize) -> Pacing {
    match config.rules[rule].pace {
        Pace::Strict { .. } if config.plant == Plant::WholePart => Pacing::strict(1, 0),
        pace => Pacing::of(pace.at(u32::try_from(index).ok())),
    }
}

/// The rules of member `index` as a table needs them.
pub fn sub_specs(config: &WorldConfig, index: usize) -> Vec<SubSpec> {
    let spec = |&rule: &usize| SubSpec {
        identity: identity_of(rule),
        plan: config.rules[rule].plan().paced(pacing(config, rule, index)),
        cardinality: config.rules[rule].cardinality,
    };
    rules_of(config, index).iter().map(spec).collect()
}

fn limiters(config: &WorldConfig, index: usize) -> Vec<LimiterSpec> {
    let spec = |&index: &usize| {
        let rule = &config.rules[index];
        let plan = rule.plan();
        LimiterSpec {
            short: identity_of(index).short(),
            digest: u64::from(plan.limit()),
            epoch_ns: plan.epoch_ns(),
            live_epochs: plan.live_epochs(),
            limit: plan.limit(),
            error_budget_ppm: rule.error_budget_ppm,
        }
    };
    rules_of(config, index).iter().map(spec).collect()
}

/// A node for `identity` of member `index` in the world of `config`.
pub fn make_node(config: &WorldConfig, index: usize, identity: Identity, now: Now) -> Node {
    let mut tunables = config.node.clone();
    if config.plant == Plant::LeakCells {
        tunables.max_cells = tunables.max_cells.saturating_mul(8);
        tunables.max_chunks = tunables.max_chunks.saturating_mul(8);
    }
    let keys = config
        .authenticated
        .then(|| {
            let byte = if config.wrong_key.contains(&index) {
                "a5"
            } else {
                "5a"
            };
            KeyRing::parse(&format!("1:{}", byte.repeat(32))).ok()
        })
        .flatten();
    let node_config = NodeConfig {
        node: identity.node,
        incarnation: identity.incarnation,
        session: identity.session,
        cluster: identity.cluster,
        keys,
        limiters: limiters(config, index),
        tunables,
    };
    let mut node = Node::new(node_config, now.mono_ns);
    let places = sub_specs(config, index);
    node.set_place(places.iter().find_map(|sub| sub.plan.pacing().place()));
    node
}

/// Fresh zeroed memory for the rules of `config`.
pub fn make_table(config: &WorldConfig, index: usize) -> SimTable {
    let fault = match config.plant {
        Plant::Unmarked => Some(Fault::SkipDirtyMark),
        Plant::LostBuckets => Some(Fault::RingNotPublished),
        _ => None,
    };
    let made = RawMem::private(config.table_bytes)
        .and_then(|raw| Table::format(SimMem::new(raw, fault), &sub_specs(config, index)));
    match made {
        Ok(table) => table,
        Err(error) => panic!("a world needs room for its rules: {error}"),
    }
}

fn places(config: &WorldConfig, index: usize) -> Vec<Option<RuleIdx>> {
    let own = rules_of(config, index);
    let place = |rule| own.iter().position(|&held| held == rule);
    (0..config.rules.len())
        .map(|rule| RuleIdx::try_from(place(rule)?).ok())
        .collect()
}

/// What a fresh start needs to know.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    /// Member number.
    pub index: usize,
    /// True time.
    pub now_ns: u64,
    /// Who.
    pub identity: Identity,
    /// Its rows' life.
    pub life: Life,
    /// Its clocks' errors.
    pub clock: ClockFault,
}

impl Member {
    /// A member that starts with empty memory.
    pub fn start(config: &WorldConfig, start: Start, rng: Rng) -> Member {
        let mut rng = rng;
        let mono_ns = rng.between(1_000_000_000, 1 << 50);
        let clock = Clock::new(start.clock, start.now_ns, mono_ns);
        let now = Now {
            mono_ns,
            cluster_ns: clock.cluster_ns(start.now_ns),
        };
        let members = u32::try_from(config.members).unwrap_or(u32::MAX);
        Member {
            index: start.index,
            addr: address(start.index, 0),
            identity: start.identity,
            life: start.life,
            table: make_table(config, start.index),
            node: make_node(config, start.index, start.identity, now),
            pump: Pump::new(&sub_specs(config, start.index), members, config.pump),
            clock,
            away_until_ns: 0,
            stopped_until_ns: 0,
            wake_at_ns: u64::MAX,
            pump_due_ns: start.now_ns,
            received: false,
            notes: BTreeMap::new(),
            peak_cluster_ns: now.cluster_ns,
            steps: 0,
            no_peers: config.no_peers.contains(&start.index),
            gone: false,
            slow_until_ns: 0,
            slow_pause_ns: 0,
            traffic: Traffic::default(),
            inbox: Vec::new(),
            places: places(config, start.index),
            rng,
        }
    }

    /// Both clocks at true time `now_ns`.
    pub fn now(&self, now_ns: u64) -> Now {
        Now {
            mono_ns: self.clock.mono_ns(now_ns),
            cluster_ns: self.clock.cluster_ns(now_ns),
        }
    }

    /// This member's index of a rule of the world; `None` when it has no such rule.
    pub fn local(&self, rule: RuleIdx) -> Option<RuleIdx> {
        self.places.get(usize::from(rule)).copied().flatten()
    }

    /// What the others admitted, as its node knows it.
    pub fn remote(&self, rule: RuleIdx, key: Key, epoch: u64) -> u64 {
        self.local(rule)
            .map_or(0, |rule| self.node.remote_total(rule, key, epoch))
    }

    /// What it admitted, as its node knows it.
    pub fn own(&self, rule: RuleIdx, key: Key, epoch: u64) -> u64 {
        self.local(rule)
            .map_or(0, |rule| u64::from(self.node.own_count(rule, key, epoch)))
    }

    /// What its table shows at true time `now_ns`.
    pub fn read(&self, rule: RuleIdx, key: Key, now_ns: u64) -> Option<Reading> {
        let rule = self.local(rule)?;
        Some(self.table.read(rule, key, self.clock.cluster_ns(now_ns)))
    }

    /// Decides requests now.
    pub fn here(&self, now_ns: u64) -> bool {
        !self.gone && now_ns >= self.away_until_ns
    }

    /// A datagram is read from its socket at true time `now_ns`.
    pub fn hear(&mut self, from: SocketAddr, bytes: &[u8], now_ns: u64) {
        let now = self.now(now_ns);
        self.node.handle(Input::Datagram { from, bytes }, now);
        self.received = true;
    }

    /// Its driver comes late now.
    pub fn slow(&self, now_ns: u64) -> bool {
        now_ns < self.slow_until_ns
    }

    /// Its clock jumps at true time `now_ns`, forward or back.
    pub fn step_clock(&mut self, now_ns: u64, by_ns: i64) {
        self.peak_cluster_ns = self.peak_cluster_ns.max(self.clock.cluster_ns(now_ns));
        match u64::try_from(by_ns) {
            Ok(forward_ns) => self.clock.jump(now_ns, forward_ns),
            Err(_) => self.clock.set_back(by_ns.unsigned_abs()),
        }
    }

    /// The last round of an orderly stop: everything is published, then a farewell.
    pub fn leave(&mut self, plant: Plant, now_ns: u64, out: &mut Vec<(SocketAddr, Vec<u8>)>) {
        self.turn(plant, now_ns);
        self.node.handle(Input::Leave, self.now(now_ns));
        self.serve(plant, now_ns, out);
        self.gone = true;
    }

    /// Runs its driver now.
    pub fn driving(&self, now_ns: u64) -> bool {
        self.here(now_ns) && now_ns >= self.stopped_until_ns
    }

    /// Another driver over the same memory.
    pub fn change_leader(&mut self, config: &WorldConfig, now_ns: u64) {
        self.identity.session += 1;
        self.peak_cluster_ns = self.peak_cluster_ns.max(self.clock.cluster_ns(now_ns));
        self.clock.keep_offset();
        let members = u32::try_from(config.members).unwrap_or(u32::MAX);
        // As a driver's next life gets them, and as nginx keeps eras in its zone.
        let (eras, flags): (Vec<_>, Vec<_>) =
            (self.node.eras().collect(), self.node.flags().collect());
        self.node = make_node(config, self.index, self.identity, self.now(now_ns));
        self.node.remember(&eras, &flags);
        self.pump = Pump::new(&sub_specs(config, self.index), members, config.pump);
        self.pump_due_ns = now_ns;
    }

    /// One round of the driver: a turn of the pump when it is due or something arrived, then
    /// frames. Returns the true time at which the next is due. `out` gets (to, frame).
    pub fn serve(
        &mut self,
        plant: Plant,
        now_ns: u64,
        out: &mut Vec<(SocketAddr, Vec<u8>)>,
    ) -> u64 {
        let received = self.received && plant != Plant::LateTurns;
        if received || now_ns >= self.pump_due_ns {
            self.turn(plant, now_ns);
        }
        let now = self.now(now_ns);
        if self
            .node
            .next_deadline()
            .is_some_and(|due| due <= now.mono_ns)
        {
            self.node.handle(Input::Tick, now);
        }
        let mut buffer = [0u8; MAX_FRAME_BYTES];
        for _ in 0..FRAMES_PER_SERVICE {
            let rng = &mut self.rng;
            let sent = self
                .node
                .poll_transmit(now, &mut buffer, &mut || rng.next_u64());
            let Some((to, length)) = sent else { break };
            out.push((to, buffer[..length].to_vec()));
        }
        match self.node.next_deadline() {
            Some(mono_ns) => self
                .pump_due_ns
                .min(self.clock.when(mono_ns, now_ns).max(now_ns + 10_000)),
            None => self.pump_due_ns,
        }
    }

    fn turn(&mut self, plant: Plant, now_ns: u64) {
        self.received = false;
        let now = self.now(now_ns);
        if plant == Plant::SkipKeys && self.rng.below(4) == 0 {
            self.table.drain_dirty(1, now.cluster_ns, &mut |_| {});
        }
        let turn = self.pump.turn(&self.table, &mut self.node, now);
        // A turn that used up its budget comes again after what such a turn costs.
        self.pump_due_ns = now_ns.saturating_add(turn.next_turn_ns.max(100_000));
        if plant == Plant::LateTurns {
            self.pump_due_ns = now_ns.saturating_add(400 * MS);
        }
        while let Some(effect) = self.pump.poll_effect() {
            match effect {
                Effect::ClockOffset { offset_ns, step } => {
                    self.peak_cluster_ns = self.peak_cluster_ns.max(now.cluster_ns);
                    self.clock.set_offset(offset_ns);
                    self.steps += u64::from(step);
                }
                Effect::Note(note) => *self.notes.entry(note).or_default() += 1,
                _ => {}
            }
        }
    }
}
