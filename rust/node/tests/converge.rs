//! Random worlds: whatever is lost, repeated, reordered or cut, no view exceeds the truth, and all
//! views meet it once the links heal.
#![allow(clippy::cast_possible_truncation, clippy::unwrap_used)]

mod net;

use std::collections::BTreeMap;

use gabion_node::{Input, LimiterSpec};
use gabion_rule::Key;
use net::{addr, config, key, minute, Net, MS, SECOND};
use proptest::prelude::*;

fn hour() -> LimiterSpec {
    LimiterSpec {
        epoch_ns: 3_600 * SECOND,
        ..minute()
    }
}

/// What was really admitted, per limiter and key: by (member, incarnation).
type Truth = BTreeMap<(u16, Key), BTreeMap<(usize, u64), u32>>;

struct World {
    net: Net,
    truth: Truth,
    incarnations: Vec<u64>,
    specs: Vec<LimiterSpec>,
}

impl World {
    fn new(seed: u64, n: usize) -> World {
        let specs = vec![
            hour(),
            LimiterSpec {
                short: 9,
                limit: 1_000_000,
                ..hour()
            },
        ];
        let net = Net::mesh(seed, n, &specs);
        let incarnations = (0..n as u64).map(|i| 1_000 + i).collect();
        World {
            net,
            truth: Truth::new(),
            incarnations,
            specs,
        }
    }

    fn hit(&mut self, i: usize, limiter: u16, k: u64, hits: u32) {
        let key = key(k);
        let origins = self.truth.entry((limiter, key)).or_default();
        let count = origins.entry((i, self.incarnations[i])).or_insert(0);
        *count += hits;
        let (count, e) = (*count, self.net.epoch(&self.specs[0]));
        self.net.own(i, limiter, key, e, count);
    }

    fn restart(&mut self, i: usize) {
        let incarnation = self.net.rng.next();
        self.incarnations[i] = incarnation;
        self.net
            .restart(i, config(i as u64 + 1, incarnation, &self.specs));
    }

    /// No member believes more of a key than was admitted.
    fn check_truth(&self) {
        let e = self.net.epoch(&self.specs[0]);
        for ((limiter, key), origins) in &self.truth {
            let all: u64 = origins.values().map(|c| u64::from(*c)).sum();
            for i in 0..self.net.members.len() {
                let seen = self.net.total(i, *limiter, *key, e);
                assert!(seen <= all, "member {i} sees {seen} of {all}");
            }
        }
    }

    fn behind(&self) -> usize {
        let e = self.net.epoch(&self.specs[0]);
        let seen = |limiter: u16, key: Key, all: u64| self.net.all_see(limiter, key, e, all);
        self.truth
            .iter()
            .filter(|((l, k), o)| !seen(*l, *k, o.values().map(|c| u64::from(*c)).sum()))
            .count()
    }

    /// Rows that not all members see alike: what died untold with a member is nobody's.
    fn differing(&self) -> usize {
        let e = self.net.epoch(&self.specs[0]);
        let differs = |l: u16, k: Key| !self.net.all_see(l, k, e, self.net.total(0, l, k, e));
        self.truth.keys().filter(|(l, k)| differs(*l, *k)).count()
    }

    fn heal(&mut self) {
        self.net.cut.clear();
        self.net.loss_pct = 0;
        for _ in 0..60 {
            self.net.run(SECOND);
            if self.behind() == 0 {
                break;
            }
        }
        let stats: Vec<_> = self.net.members.iter().map(|m| m.node.stats()).collect();
        assert_eq!(self.behind(), 0, "rows that never met: {stats:#?}");
    }
}

fn step(world: &mut World, dice: u64) {
    let n = world.net.members.len() as u64;
    let (i, j) = ((dice >> 8) % n, (dice >> 16) % n);
    match dice % 16 {
        0..=8 => {
            let (k, hits) = (dice >> 24 & 31, 1 + (dice >> 32 & 7) as u32);
            world.hit(i as usize, (dice >> 40 & 1) as u16, k, hits);
        }
        9..=11 => world.net.run((dice >> 24) % (200 * MS)),
        12 => world.net.run((dice >> 24) % (8 * SECOND)),
        13 if i != j => {
            world.net.cut.insert((i as usize, j as usize));
        }
        14 => {
            if let Some(pair) = world.net.cut.first().copied() {
                world.net.cut.remove(&pair);
            }
        }
        _ => {}
    }
}

/// A part of the usual number of cases (`PROPTEST_CASES` raises it).
fn one_in(n: u32) -> ProptestConfig {
    let usual = ProptestConfig::default();
    ProptestConfig {
        cases: usual.cases / n,
        ..usual
    }
}

proptest! {
    #![proptest_config(one_in(5))]

    #[test]
    fn views_never_exceed_the_truth_and_meet_it(
        seed in any::<u64>(),
        n in 2usize..6,
        loss in prop_oneof![Just(0u64), 1..60u64],
        dup in 0u64..30,
        jitter in 1u64..40,
        dice in proptest::collection::vec(any::<u64>(), 20..120),
    ) {
        let mut world = World::new(seed, n);
        world.net.loss_pct = loss;
        world.net.dup_pct = dup;
        world.net.delay_ns = (MS / 4, jitter * MS);
        for d in dice {
            step(&mut world, d);
            world.check_truth();
        }
        world.heal();
        world.check_truth();
    }
}

proptest! {
    #![proptest_config(one_in(8))]

    #[test]
    fn with_restarts_at_any_time_views_stay_below_the_truth_and_become_equal(
        seed in any::<u64>(),
        n in 2usize..6,
        loss in 0u64..40,
        dice in proptest::collection::vec(any::<u64>(), 20..100),
    ) {
        let mut world = World::new(seed, n);
        world.net.loss_pct = loss;
        for d in dice {
            if d % 16 == 15 {
                world.restart((d >> 8) as usize % n);
            }
            step(&mut world, d);
            world.check_truth();
        }
        world.net.cut.clear();
        world.net.loss_pct = 0;
        for _ in 0..60 {
            world.net.run(SECOND);
            if world.differing() == 0 {
                break;
            }
        }
        prop_assert_eq!(world.differing(), 0, "rows that members see differently");
        world.check_truth();
    }
}

#[test]
fn half_of_all_frames_lost_still_converges() {
    let mut world = World::new(50, 6);
    world.net.run(SECOND);
    world.net.loss_pct = 50;
    for k in 0..500 {
        world.hit((k % 6) as usize, 0, k, 50);
        if k % 20 == 0 {
            world.net.run(20 * MS);
        }
    }
    world.net.run(15 * SECOND);
    assert_eq!(world.behind(), 0);
    let lost: u64 = world
        .net
        .members
        .iter()
        .map(|m| m.node.stats().frames_lost)
        .sum();
    assert!(lost > 50);
}

#[test]
fn restarts_under_loss_lose_nothing_that_was_told() {
    let mut world = World::new(36, 4);
    world.net.loss_pct = 10;
    world.net.run(2 * SECOND);
    for round in 0..6u64 {
        for k in 0..60 {
            world.hit((k % 4) as usize, 0, k, 2);
        }
        // Long enough to be told to everyone, also under loss.
        world.net.run(6 * SECOND);
        world.restart((round % 4) as usize);
        world.net.run(3 * SECOND);
        world.check_truth();
    }
    world.heal();
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let trace = |seed| {
        let mut world = World::new(seed, 4);
        world.net.loss_pct = 20;
        for k in 0..300 {
            world.hit((k % 4) as usize, 0, k % 40, 1);
            world.net.run(3 * MS);
        }
        world.net.tap.iter().cloned().collect::<Vec<_>>()
    };
    assert_eq!(trace(1), trace(1));
    assert_ne!(trace(1), trace(2));
}

#[test]
fn case_42_every_frame_of_a_crowd_fits_its_budget_and_everyone_gets_a_turn() {
    let mut world = World::new(42, 24);
    world.net.run(2 * SECOND);
    for k in 0..600 {
        world.hit((k % 24) as usize, (k % 2) as u16, k, 60);
    }
    world.net.run(3 * SECOND);
    assert_eq!(world.behind(), 0);
    assert!(world.net.largest <= 1_200, "{}", world.net.largest);
}

#[test]
fn a_member_that_moves_under_a_new_session_keeps_what_it_knows_and_is_believed_again() {
    let mut net = Net::mesh(3, 2, &[minute()]);
    net.run(SECOND);
    let e = net.epoch(&minute());
    net.own(0, 0, key(1), e, 40);
    net.own(1, 0, key(2), e, 7);
    net.run(SECOND);
    assert_eq!(net.total(0, 0, key(2), e), 7);
    net.handle(0, Input::Leave);
    net.run(100 * MS);
    let now = net.clock(0);
    net.members[0].node.rejoin(2, now);
    assert_eq!(net.total(0, 0, key(2), e), 7, "what it knew it still knows");
    net.handle(0, Input::Peers(&[addr(1)]));
    net.own(0, 0, key(1), e, 45);
    net.run(3 * SECOND);
    assert!(net.all_see(0, key(1), e, 45));
    net.own(1, 0, key(2), e, 9);
    net.run(SECOND);
    assert_eq!(net.total(0, 0, key(2), e), 9);
}
