//! Reserving on a row that is there, under every interleaving: no window of closed buckets and the
//! current one ever holds more than the limit, nothing that fits is denied, whatever is killed.

mod common;
mod explore;

use common::{key, sub, window, SECOND_NS, START_NS};
use explore::table::{
    busy, charge_one, charged_epoch, one_row_per_key, use_up, with_fault, Found, Ledger, World,
    ADMITTED, DENIED,
};
use explore::Program;
use gabion_rule::Sliding;
use gabion_table::{Fault, Geometry};

/// The epoch that the tests count from.
const FIRST: u64 = START_NS / BUCKET_NS;
/// Long enough that workers' clocks differ by whole buckets, short enough that this happens.
const BUCKET_NS: u64 = SECOND_NS / 10;
const EPOCH_MASK: u64 = (1 << 22) - 1;

/// One scenario: a row with a past, and workers whose clocks differ.
#[derive(Clone, Copy)]
struct Case<'a> {
    /// Closed buckets that count.
    closed: u64,
    limit: u32,
    /// Epoch of relative time 0.
    first: u64,
    /// (relative epoch, hits) counted before.
    before: &'a [(u64, u64)],
    /// Per worker: the relative epochs at which it hits, one after the other.
    workers: &'a [&'a [u64]],
}

impl Case<'_> {
    fn now_ns(&self, relative: u64) -> u64 {
        (self.first + relative) * BUCKET_NS + 1
    }

    fn ledger(&self) -> Ledger {
        Ledger {
            closed: self.closed,
            limit: self.limit.into(),
            before: self.before.to_vec(),
        }
    }

    fn explore(self) -> Found {
        let (window_ns, sliding) = match self.closed {
            0 => (BUCKET_NS, Sliding::Live),
            closed => (closed * BUCKET_NS, Sliding::Strict),
        };
        let plan = window(self.limit, window_ns, BUCKET_NS, sliding);
        let k = key(1);
        let name = format!("closed {} {:?}", self.closed, self.workers);
        let mut world =
            World::new(&name, &[sub(1, plan)], Geometry { ways: 2, sets: 1 }).states(100_000_000);
        world = world.before(|table| {
            for (epoch, hits) in self.before {
                for _ in 0..*hits {
                    assert_eq!(charge_one(table, 0, k, 1, self.now_ns(*epoch)), ADMITTED);
                }
            }
        });
        let mut last = 0;
        for epochs in self.workers {
            let mut program = Program::new(&format!("at {epochs:?}"));
            for epoch in *epochs {
                last = last.max(*epoch);
                let table = world.handle();
                let (now_ns, first, epoch) = (self.now_ns(*epoch), self.first, *epoch);
                program = program.then("decide", move || {
                    let code = charge_one(&table, 0, k, 1, now_ns);
                    let charged = charged_epoch(&table).unwrap_or(0);
                    let relative = charged.wrapping_sub(first) & EPOCH_MASK;
                    vec![code, if code == ADMITTED { relative } else { epoch }]
                });
            }
            world = world.workers(1, program);
        }
        let (ledger, end_ns) = (self.ledger(), self.now_ns(last));
        world.search(move |table, view| {
            ledger.within_limit(view)?;
            one_row_per_key(table)?;
            let mut denials = view
                .outcomes
                .iter()
                .flat_map(|o| o.iter())
                .filter(|o| o[0] == DENIED);
            if view.all_done() {
                denials.try_for_each(|o| ledger.full_since(view, o[1]))?;
            }
            // What is left is what the survivors can still use: no more, no less.
            let used = ledger.window(&ledger.admitted(view), last);
            let left = use_up(table, 0, k, end_ns)?;
            if used + left > ledger.limit {
                return Err(format!(
                    "{used} used and {left} more admitted of {}",
                    ledger.limit
                ));
            }
            if used + left + busy(view) < ledger.limit {
                return Err(format!("{used} used, only {left} left of {}", ledger.limit));
            }
            Ok(())
        })
    }
}

/// Clocks of three workers around two bucket ends.
const CLOCKS: [&[&[u64]]; 6] = [
    &[&[0], &[0], &[0]],
    &[&[0], &[0], &[1]],
    &[&[0], &[1], &[1]],
    &[&[0], &[1], &[2]],
    &[&[0, 1], &[1]],
    &[&[0, 1], &[1, 2]],
];

fn explore_closed(closed: u64, clocks: &[&[&[u64]]], first: u64) {
    for workers in clocks {
        for (limit, before) in [(2, &[(0u64, 1u64)][..]), (3, &[(0, 1)]), (3, &[(0, 2)])] {
            let case = Case {
                closed,
                limit,
                first,
                before,
                workers,
            };
            case.explore().holds();
        }
    }
}

#[test]
fn a_fixed_window_never_passes_its_limit() {
    explore_closed(0, &CLOCKS, FIRST);
}

#[test]
fn one_closed_bucket_counts_exactly() {
    explore_closed(1, &CLOCKS[..5], FIRST);
}

#[test]
fn two_closed_buckets_count_exactly() {
    explore_closed(2, &CLOCKS[1..5], FIRST);
}

#[test]
fn three_closed_buckets_count_exactly() {
    explore_closed(3, &CLOCKS[2..5], FIRST);
}

#[test]
fn nothing_changes_at_the_wrap_of_the_epoch() {
    let wrap = (FIRST | EPOCH_MASK) + 1;
    for first in [wrap - 2, wrap - 1, wrap] {
        for closed in 0..=2 {
            explore_closed(closed, &CLOCKS[3..5], first);
        }
    }
}

/// A worker reads its clock, is stopped for several buckets, and then decides.
#[test]
fn a_worker_that_was_stopped_for_some_buckets_does_not_undo_counts() {
    for closed in 0..=2 {
        for late in [2, 3, 5] {
            let workers: &[&[u64]] = &[&[0], &[late], &[late]];
            let case = Case {
                closed,
                limit: 2,
                first: FIRST,
                before: &[(0, 1)],
                workers,
            };
            case.explore().holds();
        }
    }
}

#[test]
#[ignore = "slow tier"]
fn every_clock_of_three_workers_with_up_to_three_closed_buckets() {
    for closed in 0..=3 {
        explore_closed(closed, &CLOCKS, FIRST);
        let more: [&[&[u64]]; 4] = [
            &[&[0, 1], &[0, 2], &[1]],
            &[&[0, 1], &[1, 2], &[2]],
            &[&[0, 2], &[1, 2], &[0]],
            &[&[0], &[0], &[1], &[1]],
        ];
        explore_closed(closed, &more, FIRST);
    }
}

#[test]
fn planted_ring_not_published_is_found() {
    let case = Case {
        closed: 1,
        limit: 2,
        first: FIRST,
        before: &[(0, 1)],
        workers: &[&[1], &[1]],
    };
    with_fault(Fault::RingNotPublished, || case.explore()).fails_with("of 2");
}

#[test]
fn planted_plain_epoch_compare_is_found() {
    let first = FIRST | EPOCH_MASK;
    let case = Case {
        closed: 1,
        limit: 2,
        first,
        before: &[(0, 2)],
        workers: &[&[1], &[1]],
    };
    with_fault(Fault::PlainEpochCompare, || case.explore()).fails_with("of 2");
}
