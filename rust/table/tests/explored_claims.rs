//! Claiming rows under every interleaving: one key never has two live rows, one row never serves
//! two keys, a claimer killed at any step is in nobody's way.

mod common;
mod explore;

use common::{key, sub, window, SECOND_NS, START_NS};
use explore::table::{
    busy, charge_one, heads, killed_at_claim, live_rows, one_row_per_key, use_up, with_fault,
    Found, World, ADMITTED, DENIED, FAILED_OPEN, KILLED,
};
use explore::Program;
use gabion_admit::Plan;
use gabion_rule::Sliding;
use gabion_table::{Fault, Geometry};

const LIMIT: u64 = 2;
const NOW_NS: u64 = START_NS + 5 * SECOND_NS;

/// A minute, so that the time after which a claim counts as left behind is within the window.
fn minute() -> Plan {
    window(2, 60 * SECOND_NS, 60 * SECOND_NS, Sliding::Live)
}

/// How a claim scenario is set up.
#[derive(Clone)]
struct Case {
    ways: usize,
    sets: u64,
    /// Keys of the workers, one hit each.
    workers: Vec<u64>,
    /// Keys that held the rows a window ago.
    dead: Vec<u64>,
    /// Another worker visits all rows meanwhile.
    scrub: bool,
    /// Bound on interruptions, where all interleavings are too many.
    preemptions: Option<u32>,
    states: u64,
}

impl Case {
    fn new(ways: usize, sets: u64, workers: &[u64]) -> Case {
        Case {
            ways,
            sets,
            workers: workers.to_vec(),
            dead: Vec::new(),
            scrub: false,
            preemptions: None,
            states: 20_000_000,
        }
    }

    fn explore(self) -> Found {
        let name = format!("{} x {} slots, {:?}", self.sets, self.ways, self.workers);
        let geometry = Geometry {
            ways: self.ways,
            sets: self.sets,
        };
        let mut world = World::new(&name, &[sub(1, minute())], geometry).states(self.states);
        world = world.before(|table| {
            for n in &self.dead {
                let then_ns = NOW_NS - 3_600 * SECOND_NS;
                assert_eq!(charge_one(table, 0, key(*n), 1, then_ns), ADMITTED);
            }
        });
        let mut keys = self.workers.clone();
        keys.sort_unstable();
        keys.dedup();
        for n in &keys {
            let table = world.handle();
            let k = key(*n);
            let count = self.workers.iter().filter(|w| *w == n).count();
            let program = Program::new(&format!("key {n}"))
                .then("decide", move || vec![charge_one(&table, 0, k, 1, NOW_NS)]);
            world = world.workers(count, program);
        }
        if self.scrub {
            let table = world.handle();
            let program = Program::new("scrub").then("scrub", move || {
                table.scrub(&mut 0, 8, NOW_NS, &mut |_| ());
                vec![ADMITTED]
            });
            world = world.workers(1, program);
        }
        if let Some(most) = self.preemptions {
            world = world.preemptions(most);
        }
        let mut of_worker = self.workers.clone();
        of_worker.sort_unstable();
        let room = self.ways * usize::try_from(self.sets).expect("small");
        world.search(move |table, view| {
            one_row_per_key(table)?;
            let mut all = view.outcomes.iter().flat_map(|o| o.iter());
            if all.any(|o| o[0] == FAILED_OPEN) && room >= view.done.len() {
                return Err("failed open though there is room".to_owned());
            }
            // Survivors find every key as it should be, now and when a claim has become stale.
            for n in &keys {
                let of_key = of_worker
                    .iter()
                    .zip(&view.outcomes)
                    .filter(|(k, _)| *k == n);
                let codes: Vec<u64> = of_key.flat_map(|(_, o)| o.iter().map(|o| o[0])).collect();
                let used = codes.iter().filter(|c| **c == ADMITTED).count() as u64;
                if codes.contains(&DENIED) && used + busy(view) < LIMIT {
                    return Err(format!("key {n} denied with {used} used"));
                }
                let mut left = 0;
                // Every slot may be a half-made claim; there is room again once those are stale.
                let now = (room > view.done.len()).then_some(0);
                for wait_ns in now.into_iter().chain([10 * SECOND_NS]) {
                    left += use_up(table, 0, key(*n), NOW_NS + wait_ns)?;
                    check_key(*n, used, left, busy(view))?;
                }
            }
            one_row_per_key(table)
        })
    }
}

fn check_key(n: u64, used: u64, left: u64, busy: u64) -> Result<(), String> {
    if used + left > LIMIT {
        return Err(format!("key {n}: {used} used and {left} more admitted"));
    }
    if used + left + busy < LIMIT {
        return Err(format!("key {n}: {used} used, only {left} left"));
    }
    Ok(())
}

#[test]
fn two_claimers_of_one_key_share_a_row() {
    Case::new(2, 1, &[1, 1]).explore().holds();
    Case::new(1, 2, &[1, 1]).explore().holds();
    Case::new(3, 1, &[1, 1]).explore().holds();
    Case::new(2, 2, &[1, 1]).explore().holds();
}

#[test]
fn claimers_of_two_keys_get_a_row_each() {
    Case::new(2, 1, &[1, 2]).explore().holds();
    Case::new(3, 1, &[1, 2]).explore().holds();
    Case::new(2, 2, &[1, 2]).explore().holds();
}

#[test]
fn claimers_reuse_dead_rows() {
    for (workers, dead) in [
        (vec![1, 1], vec![8, 9]),
        (vec![1, 2], vec![8, 9]),
        (vec![1, 1], vec![1]),
    ] {
        let case = Case {
            dead,
            ..Case::new(2, 1, &workers)
        };
        case.explore().holds();
    }
}

fn against_a_scrub(workers: &[u64], dead: &[u64]) -> Found {
    let case = Case::new(2, 1, workers);
    Case {
        dead: dead.to_vec(),
        scrub: true,
        ..case
    }
    .explore()
}

#[test]
fn a_scrub_that_frees_dead_rows_takes_none_from_a_claimer() {
    against_a_scrub(&[1], &[1, 9]).holds();
    against_a_scrub(&[1], &[9]).holds();
}

#[test]
#[ignore = "slow tier"]
fn a_scrub_that_frees_dead_rows_takes_none_from_two_claimers() {
    against_a_scrub(&[1, 1], &[1]).holds();
    against_a_scrub(&[1, 2], &[1, 2]).holds();
}

/// A claimer of key 1 stops halfway for longer than a claim may take; workers take its slot, the
/// only one, for key 2; then it goes on.
fn takeover(workers: usize, preemptions: Option<u32>) -> Found {
    let name = format!("takeover by {workers}");
    let mut world = World::new(&name, &[sub(1, minute())], Geometry { ways: 1, sets: 1 });
    if let Some(most) = preemptions {
        world = world.preemptions(most);
    }
    let (table, heads) = (world.handle(), heads(&world.table));
    let slow = Program::new("slow claimer").then("decide", move || {
        // It may claim the fresh slot; a second claim would be an eviction.
        let decide = || charge_one(&table, 0, key(1), 1, NOW_NS);
        vec![killed_at_claim(&heads, decide).unwrap_or(KILLED)]
    });
    world = world.workers(1, slow);
    let (table, later_ns) = (world.handle(), NOW_NS + 3 * SECOND_NS);
    let taker = Program::new("key 2").then("decide", move || {
        vec![charge_one(&table, 0, key(2), 1, later_ns)]
    });
    world
        .workers(workers, taker)
        .states(100_000_000)
        .search(move |table, view| {
            one_row_per_key(table)?;
            if let Some(row) = live_rows(table)
                .iter()
                .find(|r| r.key != key(1) && r.key != key(2))
            {
                return Err(format!("a row of nobody's key: {row:?}"));
            }
            let slow_had_it = view.outcomes[0].iter().any(|o| o[0] == ADMITTED);
            let used = view.outcomes[1..]
                .iter()
                .flat_map(|o| o.iter())
                .filter(|o| o[0] == ADMITTED);
            let used = used.count() as u64;
            if slow_had_it {
                // It was in time: key 2 came to a full set.
                return Ok(());
            }
            let left = use_up(table, 0, key(2), NOW_NS + 30 * SECOND_NS)?;
            check_key(2, used, left, busy(view))
        })
}

#[test]
fn a_claim_that_was_left_is_taken_over_for_good() {
    takeover(1, None).holds();
}

#[test]
#[ignore = "slow tier"]
fn a_claim_that_was_left_is_taken_over_by_one_of_two() {
    takeover(2, Some(3)).holds();
}

#[test]
fn planted_takeover_keeps_generation_is_found() {
    with_fault(Fault::TakeoverKeepsGeneration, || takeover(1, None)).fails_with("key");
}

/// Three claimers have too many interleavings: all with a bounded number of interruptions.
fn three_claimers(slots: usize, workers: &[u64], preemptions: u32) -> Found {
    let case = Case::new(slots, 1, workers);
    Case {
        states: 100_000_000,
        preemptions: Some(preemptions),
        ..case
    }
    .explore()
}

#[test]
fn three_claimers_get_a_row_each_key_with_two_interruptions() {
    three_claimers(2, &[1, 1, 1], 2).holds();
    three_claimers(3, &[1, 1, 2], 2).holds();
}

#[test]
#[ignore = "slow tier"]
fn three_claimers_get_a_row_each_key_with_three_interruptions() {
    three_claimers(2, &[1, 1, 1], 3).holds();
    three_claimers(3, &[1, 1, 2], 3).holds();
}

#[test]
fn planted_skip_rescan_is_found() {
    let found = with_fault(Fault::SkipRescan, || Case::new(2, 1, &[1, 1]).explore());
    found.fails_with("key");
}

#[test]
fn planted_ignore_failed_kill_is_found() {
    let found = with_fault(Fault::IgnoreFailedKill, || {
        Case::new(2, 1, &[1, 1]).explore()
    });
    found.fails_with("key");
}

#[test]
fn planted_tag_after_live_is_found() {
    let found = with_fault(Fault::TagAfterLive, || Case::new(2, 1, &[1, 1]).explore());
    found.fails_with("key");
}

#[test]
fn planted_lost_takeover_is_found() {
    let found = with_fault(Fault::LostTakeover, || Case::new(2, 1, &[1, 1]).explore());
    found.fails_with("");
}
