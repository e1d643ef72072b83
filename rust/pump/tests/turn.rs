//! The pump between a real table and real nodes.
#![allow(clippy::unwrap_used)] // helpers of tests

use std::net::SocketAddr;

use gabion_admit::{Outcome, Plan};
use gabion_node::{Config, Effect, Input, LimiterSpec, Node, Now, Tunables as NodeTunables};
use gabion_pump::{Pump, Tunables, Turn};
use gabion_rule::{Algorithm, CounterIdentity, Key, Mode, Sliding};
use gabion_table::{Charge, RawMem, SubSpec, Table};

const SECOND: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;
const START: u64 = 1_795_910_400 * SECOND;
const HOUR: u64 = 3_600 * SECOND;

fn key(n: u64) -> Key {
    let spread = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Key {
        a: spread >> 16,
        b: (spread ^ n) & 0xffff_ffff_ffff,
    }
}

fn rules(limit: u32, window_ns: u64, bucket_ns: u64, cardinality: u32) -> Vec<SubSpec> {
    let sliding = Sliding::Live;
    let plan = Plan::new(&Algorithm::Window {
        limit,
        window_ns,
        bucket_ns,
        sliding,
    });
    vec![SubSpec {
        identity: CounterIdentity([7; 16]),
        plan,
        cardinality: Some(cardinality),
    }]
}

/// A member without clock errors; the "network" is [`Pair::exchange`].
struct Member {
    table: Table<RawMem>,
    node: Node,
    pump: Pump,
    rules: Vec<SubSpec>,
    addr: SocketAddr,
    at_ns: u64,
    random: u64,
}

fn node(rules: &[SubSpec], id: u64, session: u32, at_ns: u64) -> Node {
    let plan = rules[0].plan;
    let limiter = LimiterSpec {
        short: rules[0].identity.short(),
        digest: 1,
        epoch_ns: plan.epoch_ns(),
        live_epochs: plan.live_epochs(),
        limit: plan.limit(),
        error_budget_ppm: 10_000,
    };
    let tunables = NodeTunables {
        max_cells: 100_000,
        max_chunks: 100_000,
        dirty_log_entries: 1 << 14,
        ..NodeTunables::default()
    };
    let config = Config {
        node: id,
        incarnation: id * 1_000,
        session,
        cluster: 1,
        keys: None,
        limiters: vec![limiter],
        tunables,
    };
    Node::new(config, at_ns)
}

impl Member {
    fn new(id: u64, rules: &[SubSpec]) -> Member {
        let port = u16::try_from(id).unwrap();
        Member {
            table: Table::private(1 << 20, rules).unwrap(),
            node: node(rules, id, 1, START),
            pump: Pump::new(rules, 2, Tunables::default()),
            rules: rules.to_vec(),
            addr: SocketAddr::from(([127, 0, 0, 1], port)),
            at_ns: START,
            random: id,
        }
    }

    fn now(&self) -> Now {
        Now {
            mono_ns: self.at_ns,
            cluster_ns: self.at_ns,
        }
    }

    fn hit(&self, n: u64, hits: u32) -> bool {
        let mut charges = [Charge::new(0, key(n), hits, Mode::Enforce, 0)];
        self.table.decide(&mut charges, self.at_ns).outcome == Outcome::Allowed
            && charges[0].fail_open.is_none()
    }

    fn turn(&mut self) -> Turn {
        let now = self.now();
        self.node.handle(Input::Tick, now);
        let turn = self.pump.turn(&self.table, &mut self.node, now);
        while let Some(effect) = self.pump.poll_effect() {
            assert!(
                !matches!(effect, Effect::RemoteTotal { .. }),
                "the pump's own business"
            );
        }
        turn
    }

    fn used(&self, n: u64) -> u64 {
        self.table.read(0, key(n), self.at_ns).used
    }

    fn own(&self, n: u64) -> u32 {
        let epoch = self.rules[0].plan.epoch_of(self.at_ns);
        self.node.own_count(0, key(n), epoch)
    }

    fn remote(&self, n: u64) -> u64 {
        let epoch = self.rules[0].plan.epoch_of(self.at_ns);
        self.node.remote_total(0, key(n), epoch)
    }

    fn new_leader(&mut self, session: u32) {
        self.node = node(&self.rules, self.random_id(), session, self.at_ns);
        self.pump = Pump::new(&self.rules, 2, Tunables::default());
    }

    fn random_id(&self) -> u64 {
        u64::from(self.addr.port())
    }
}

/// Two members and a network that delivers everything at once.
struct Pair {
    members: [Member; 2],
}

impl Pair {
    fn new(rules: &[SubSpec]) -> Pair {
        let mut pair = Pair {
            members: [Member::new(1, rules), Member::new(2, rules)],
        };
        pair.introduce();
        pair.run(3 * SECOND);
        pair
    }

    fn introduce(&mut self) {
        let addrs = [self.members[0].addr, self.members[1].addr];
        for (index, member) in self.members.iter_mut().enumerate() {
            let now = member.now();
            member.node.handle(Input::Peers(&[addrs[1 - index]]), now);
        }
    }

    fn step(&mut self) {
        for from in 0..2 {
            self.members[from].turn();
            let now = self.members[from].now();
            let mut buffer = [0u8; 1_200];
            loop {
                let member = &mut self.members[from];
                let random = &mut member.random;
                let mut draw = || {
                    *random = random
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1);
                    *random
                };
                let Some((_, length)) = member.node.poll_transmit(now, &mut buffer, &mut draw)
                else {
                    break;
                };
                let source = member.addr;
                let input = Input::Datagram {
                    from: source,
                    bytes: &buffer[..length],
                };
                self.members[1 - from].node.handle(input, now);
            }
        }
        for member in &mut self.members {
            member.at_ns += MS;
        }
    }

    fn run(&mut self, for_ns: u64) {
        for _ in 0..for_ns / MS {
            self.step();
        }
    }
}

/// Fills member `at`'s small table with other keys until key `n` has lost its row.
fn evict(pair: &mut Pair, at: usize, n: u64) {
    for other in 0..50_000u64 {
        if pair.members[at].used(n) == 0 {
            return;
        }
        pair.members[at].hit(1_000_000 + other, 1);
        pair.members[at].hit(1_000_000 + other, 1);
        if other % 64 == 0 {
            pair.step();
        }
    }
    panic!("key {n} keeps its row");
}

#[test]
fn own_counts_go_out_and_remote_totals_come_in() {
    let mut pair = Pair::new(&rules(100, HOUR, HOUR, 1_000));
    assert!(pair.members[0].hit(1, 30) && pair.members[1].hit(1, 12));
    pair.run(SECOND);
    assert_eq!((pair.members[0].used(1), pair.members[1].used(1)), (42, 42));
    assert_eq!(
        (pair.members[0].own(1), pair.members[0].remote(1)),
        (30, 12)
    );
    assert!(!pair.members[0].hit(1, 59), "the sum is enforced");
    assert!(pair.members[0].hit(1, 58));
}

#[test]
fn a_new_row_gets_what_the_node_holds_within_one_turn() {
    // 20 of 1,000 is below limit / (2 x 2): no row is claimed for it.
    let mut pair = Pair::new(&rules(1_000, HOUR, HOUR, 1_000));
    assert!(pair.members[0].hit(1, 20));
    pair.run(SECOND);
    assert_eq!(
        (pair.members[1].used(1), pair.members[1].remote(1)),
        (0, 20)
    );
    assert!(pair.members[1].pump.stats().remote_left > 0);
    assert!(pair.members[1].hit(1, 1), "asked for");
    pair.members[1].turn();
    assert_eq!(pair.members[1].used(1), 21);
}

#[test]
fn a_remote_total_past_its_share_claims_a_row() {
    let mut pair = Pair::new(&rules(1_000, HOUR, HOUR, 1_000));
    assert!(pair.members[0].hit(1, 251));
    pair.run(SECOND);
    assert_eq!(pair.members[1].used(1), 251, "without a request for it");
    assert_eq!(pair.members[1].pump.stats().remote_claims, 1);
    assert!(
        pair.members[1].hit(1, 3),
        "and its own hits are counted in that row"
    );
    pair.run(SECOND);
    assert_eq!(
        (pair.members[0].used(1), pair.members[1].used(1)),
        (254, 254)
    );
}

#[test]
fn an_evicted_row_is_neither_forgotten_nor_counted_twice() {
    let mut pair = Pair::new(&rules(10_000, HOUR, HOUR, 32));
    assert!(pair.members[0].hit(1, 40));
    pair.run(SECOND);
    evict(&mut pair, 0, 1);
    assert_eq!(pair.members[0].own(1), 40, "what was announced stays known");
    while !pair.members[0].hit(1, 5) {} // the doorkeeper lets newcomers wait
    pair.run(SECOND);
    assert_eq!(pair.members[0].own(1), 45);
    assert_eq!(pair.members[0].used(1), 45, "the base is in the row");
    assert_eq!(pair.members[1].remote(1), 45, "and peers count it once");
    evict(&mut pair, 0, 1);
    while !pair.members[0].hit(1, 2) {}
    pair.run(SECOND);
    assert_eq!(
        (pair.members[0].own(1), pair.members[1].remote(1)),
        (47, 47)
    );
    assert!(pair.members[0].pump.bases() > 0);
}

#[test]
fn bases_expire_with_their_epoch() {
    let mut pair = Pair::new(&rules(10_000, SECOND, SECOND, 32));
    assert!(pair.members[0].hit(1, 40));
    pair.run(20 * MS);
    evict(&mut pair, 0, 1);
    while !pair.members[0].hit(1, 5) {}
    pair.run(20 * MS);
    assert!(pair.members[0].pump.bases() > 0);
    pair.run(4 * SECOND);
    assert_eq!(pair.members[0].pump.bases(), 0);
    assert_eq!(pair.members[0].used(1), 0);
}

#[test]
fn bases_beyond_their_bound_are_refused_and_counted_and_nothing_is_counted_twice() {
    let mut pair = Pair::new(&rules(10_000, HOUR, HOUR, 32));
    let tunables = Tunables {
        bases_max: 0,
        ..Tunables::default()
    };
    pair.members[0].pump = Pump::new(&rules(10_000, HOUR, HOUR, 32), 2, tunables);
    assert!(pair.members[0].hit(1, 40));
    pair.run(SECOND);
    evict(&mut pair, 0, 1);
    while !pair.members[0].hit(1, 5) {}
    pair.run(SECOND);
    assert_eq!(pair.members[1].remote(1), 40, "an under-count");
    assert!(pair.members[0].pump.stats().bases_refused > 0);
}

#[test]
fn a_new_leader_announces_what_the_old_one_counted_once() {
    let mut pair = Pair::new(&rules(10_000, HOUR, HOUR, 1_000));
    assert!(pair.members[0].hit(1, 40));
    pair.run(SECOND);
    pair.members[0].new_leader(2);
    pair.introduce();
    assert!(pair.members[0].hit(1, 5));
    pair.run(5 * SECOND);
    assert_eq!(pair.members[0].own(1), 45);
    assert_eq!(
        (pair.members[0].used(1), pair.members[1].remote(1)),
        (45, 45)
    );
    // Also a count nobody touches again is known to the new leader: the first scrub pass.
    pair.members[0].new_leader(3);
    pair.members[0].turn();
    assert_eq!(pair.members[0].own(1), 45);
}

#[test]
fn the_scrub_finds_what_a_killed_worker_left_unmarked() {
    let mut pair = Pair::new(&rules(10_000, HOUR, HOUR, 1_000));
    let member = &mut pair.members[0];
    assert!(member.hit(1, 40));
    // The mark is lost: somebody drained it and died.
    member.table.drain_dirty(100, member.at_ns, &mut |_| {});
    member.turn();
    assert_eq!(member.own(1), 0);
    let mut found_after = None;
    for second in 1..=70u64 {
        member.at_ns += SECOND;
        member.turn();
        if member.own(1) == 40 {
            found_after.get_or_insert(second);
        }
    }
    assert!(
        found_after.is_some_and(|seconds| seconds <= 61),
        "{found_after:?}"
    );
    assert!(member.pump.stats().scrub_found >= 1);
}

#[test]
fn sliding_windows_carry_every_live_bucket() {
    let mut pair = Pair::new(&rules(1_000, 10 * SECOND, SECOND, 1_000));
    for _ in 0..5 {
        assert!(pair.members[0].hit(1, 10));
        pair.run(SECOND);
    }
    assert!(pair.members[1].hit(1, 1), "asked for");
    pair.run(600 * MS); // one hit of many left waits for the heartbeat
    assert_eq!((pair.members[0].used(1), pair.members[1].used(1)), (51, 51));
    pair.run(20 * SECOND);
    assert_eq!((pair.members[0].used(1), pair.members[1].used(1)), (0, 0));
}

#[test]
fn at_rest_the_pause_grows_to_ten_milliseconds_and_a_hit_ends_it() {
    let mut member = Member::new(1, &rules(100, HOUR, HOUR, 1_000));
    let mut pauses = Vec::new();
    for _ in 0..8 {
        let turn = member.turn();
        pauses.push(turn.next_turn_ns / MS);
        member.at_ns += turn.next_turn_ns;
    }
    assert_eq!(pauses.last(), Some(&10), "{pauses:?}");
    assert!(pauses.windows(2).all(|two| two[0] <= two[1]), "{pauses:?}");
    // Alone, it has nobody to tell of a hit.
    assert!(member.hit(1, 1));
    let turn = member.turn();
    let shown = (turn.dirty_rows, turn.idle, turn.next_turn_ns);
    assert_eq!(shown, (1, false, 10 * MS));
    let mut pair = Pair::new(&rules(100, HOUR, HOUR, 1_000));
    pair.run(SECOND);
    assert!(pair.members[0].hit(1, 1));
    let turn = pair.members[0].turn();
    let shown = (turn.dirty_rows, turn.idle, turn.next_turn_ns);
    assert_eq!(shown, (1, false, MS));
}

#[test]
fn a_turn_is_bounded_and_what_is_left_comes_at_once() {
    let rules = rules(100, HOUR, HOUR, 8_000);
    let mut member = Member::new(1, &rules);
    let tunables = Tunables {
        dirty_rows_per_turn: 100,
        ..Tunables::default()
    };
    member.pump = Pump::new(&rules, 1, tunables);
    let counted = (0..350).filter(|&n| member.hit(n, 1)).count();
    assert_eq!(counted, 350);
    let mut rows = Vec::new();
    for _ in 0..4 {
        let turn = member.turn();
        rows.push(turn.dirty_rows);
        assert_eq!(turn.next_turn_ns == 0, turn.dirty_rows >= 100);
    }
    assert!(
        rows.iter().all(|&n| n <= 100) && rows.iter().sum::<usize>() == 350,
        "{rows:?}"
    );
    assert!((0..350).all(|n| member.own(n) == 1));
}

#[test]
fn after_a_clock_was_set_back_no_hit_is_announced_twice() {
    let rules = rules(148, 10 * SECOND, SECOND, 100);
    let mut member = Member::new(1, &rules);
    let mut truth = std::collections::BTreeMap::new();
    // Seconds of the member's clock: it is set back by 4 s behind the fourth, and goes on.
    for (second, hits) in [
        (7, 18),
        (8, 2),
        (9, 8),
        (10, 8),
        (7, 2),
        (8, 2),
        (9, 1),
        (10, 3),
        (11, 1),
    ] {
        member.at_ns = START + second * SECOND;
        assert!(member.hit(1, hits));
        *truth.entry(second).or_insert(0) += hits;
        member.turn();
        for (&second, &admitted) in &truth {
            let epoch = rules[0].plan.epoch_of(START + second * SECOND);
            let announced = member.node.own_count(0, key(1), epoch);
            assert!(
                announced <= admitted,
                "second {second}: {announced} of {admitted}"
            );
        }
    }
    assert!(
        member.pump.stats().shrunk_counts > 0,
        "the row was started again"
    );
}
