//! A row is given to another key while a slow worker, a slow driver or a slow reader still holds on
//! to what it was: the new key inherits nothing, is never denied for a stranger's hits, and keeps
//! what it counts.

mod common;
mod explore;

use common::{key, sub, window, SECOND_NS, START_NS};
use explore::table::{
    busy, charge_one, heads, killed_at_claim, one_row_per_key, use_up, with_fault, Found, World,
    ADMITTED, DENIED, KILLED,
};
use explore::Program;
use gabion_rule::{Key, Sliding};
use gabion_table::{Fault, Geometry};

const LIMIT: u64 = 2;
/// Short, so that the slow one's clock is not so late that it takes others' claims for abandoned.
const BUCKET_NS: u64 = SECOND_NS / 10;
/// What the first key had counted when its row died.
const OLD: u64 = 1;
/// What the second key counts.
const NEW: u64 = 2;

const ONE_SLOT: Geometry = Geometry { ways: 1, sets: 1 };

/// Who is slow.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Slow {
    /// Reserves for the old key, a bucket later: closes a bucket on the way.
    Worker,
    /// Publishes a remote total for the old key.
    Driver,
    /// Reads the old key.
    Reader,
    /// Visits rows.
    Scrub,
}

/// The slow one acts at an old time; meanwhile `hits` workers take the row for another key.
#[derive(Clone, Copy)]
struct Case {
    closed: u64,
    slow: Slow,
    hits: usize,
    /// The old key had this many hits.
    old_hits: u64,
    /// Generation of the row before the old key claimed it.
    generation: u64,
}

impl Case {
    fn new(closed: u64, slow: Slow, hits: usize) -> Case {
        Case {
            closed,
            slow,
            hits,
            old_hits: 1,
            generation: 0,
        }
    }

    fn old_ns(&self) -> u64 {
        START_NS + 1
    }

    /// The old key's counts are over by now.
    fn new_ns(&self) -> u64 {
        self.old_ns() + (self.closed + 3) * BUCKET_NS
    }

    fn plan(&self) -> gabion_admit::Plan {
        let (window_ns, sliding) = match self.closed {
            0 => (BUCKET_NS, Sliding::Live),
            closed => (closed * BUCKET_NS, Sliding::Strict),
        };
        window(2, window_ns, BUCKET_NS, sliding)
    }

    fn slow_program(&self, world: &World) -> Program {
        let table = world.handle();
        let (old_ns, slow) = (self.old_ns(), self.slow);
        let (epoch, heads) = (old_ns / BUCKET_NS, heads(&table));
        Program::new("slow").then("slow one", move || match slow {
            // Once it has lost its row it would claim another: that has its own searches.
            Slow::Worker => {
                let decide = || charge_one(&table, 0, key(OLD), 1, old_ns + BUCKET_NS);
                vec![killed_at_claim(&heads, decide).unwrap_or(KILLED), OLD]
            }
            Slow::Driver => vec![
                table.publish_remote(0, key(OLD), epoch, 2, old_ns) as u64,
                0,
            ],
            Slow::Reader => vec![table.read(0, key(OLD), old_ns).used, 0],
            Slow::Scrub => {
                table.scrub(&mut 0, 4, old_ns, &mut |_| ());
                vec![0, 0]
            }
        })
    }

    fn explore(self) -> Found {
        let name = format!(
            "closed {} old hits {} generation {}",
            self.closed, self.old_hits, self.generation
        );
        let mut world = World::new(&name, &[sub(1, self.plan())], ONE_SLOT);
        world = world.before(|table| {
            table.set_generation(0, 0, self.generation);
            for _ in 0..self.old_hits {
                assert_eq!(charge_one(table, 0, key(OLD), 1, self.old_ns()), ADMITTED);
            }
        });
        let slow = self.slow_program(&world);
        world = world.workers(1, slow);
        let table = world.handle();
        let new_ns = self.new_ns();
        let program = Program::new("new key").then("decide", move || {
            vec![charge_one(&table, 0, key(NEW), 1, new_ns), NEW]
        });
        world = world.workers(self.hits, program).states(200_000_000);
        world.search(move |table, view| {
            one_row_per_key(table)?;
            let of = |k: Key, code: u64| {
                let all = view.outcomes[1..].iter().flat_map(|o| o.iter());
                all.filter(|o| key(o[1]) == k && o[0] == code).count() as u64
            };
            let (used, denied) = (of(key(NEW), ADMITTED), of(key(NEW), DENIED));
            if denied > 0 && used + busy(view) < LIMIT {
                return Err(format!("the new key is denied with {used} used"));
            }
            // There is one slot: a claim left half-made is in the way until it is stale.
            let Ok(left) = use_up(table, 0, key(NEW), new_ns + 1) else {
                return match busy(view) {
                    0 => Err("the new key has no row though there is room".to_owned()),
                    _ => Ok(()),
                };
            };
            if used + left > LIMIT {
                return Err(format!("the new key: {used} used and {left} more admitted"));
            }
            if used + left + busy(view) < LIMIT {
                return Err(format!(
                    "the new key is denied early: {used} used, {left} left"
                ));
            }
            Ok(())
        })
    }
}

fn explore_all(closed: u64, hits: usize) {
    for slow in [Slow::Worker, Slow::Driver, Slow::Reader, Slow::Scrub] {
        Case::new(closed, slow, hits).explore().holds();
        Case {
            old_hits: 2,
            ..Case::new(closed, slow, hits)
        }
        .explore()
        .holds();
    }
}

#[test]
fn a_new_key_inherits_nothing_from_a_fixed_window() {
    explore_all(0, 1);
}

#[test]
fn a_new_key_inherits_nothing_from_closed_buckets() {
    explore_all(1, 1);
    explore_all(2, 1);
}

#[test]
#[ignore = "slow tier"]
fn two_workers_of_a_new_key_inherit_nothing() {
    explore_all(3, 1);
    explore_all(0, 2);
    explore_all(1, 2);
}

#[test]
fn nothing_changes_at_the_wrap_of_the_generation() {
    for slow in [Slow::Worker, Slow::Driver, Slow::Reader] {
        for generation in [0xfd, 0xfe, 0xff, 0x3fe, 0x3ff, 0xfffd, 0xfffe, 0xffff] {
            for closed in 0..=1 {
                Case {
                    generation,
                    ..Case::new(closed, slow, 1)
                }
                .explore()
                .holds();
            }
        }
    }
}

#[test]
fn planted_claim_keeps_generation_is_found() {
    let case = Case {
        old_hits: 2,
        ..Case::new(1, Slow::Worker, 1)
    };
    with_fault(Fault::ClaimKeepsGeneration, || case.explore()).fails_with("");
}

/// A row of the next key has a closed bucket of its own by the time a slow worker of the old key
/// puts the old one's closing bucket where it keeps that: the two share a ring word.
fn ring_against_reuse() -> Found {
    let case = Case::new(1, Slow::Worker, 1);
    let world = World::new("ring against reuse", &[sub(1, case.plan())], ONE_SLOT);
    let mut world = world.before(|table| {
        assert_eq!(charge_one(table, 0, key(OLD), 1, case.old_ns()), ADMITTED);
    });
    let slow = case.slow_program(&world);
    world = world.workers(1, slow);
    let mut program = Program::new("new key");
    // From two buckets on the old key counts no more.
    for later in [2, 3] {
        let (table, now_ns) = (world.handle(), case.old_ns() + later * BUCKET_NS);
        program = program.then("decide", move || {
            vec![charge_one(&table, 0, key(NEW), 1, now_ns)]
        });
    }
    world.workers(1, program).search(move |table, view| {
        let used = view.outcomes[1].iter().filter(|o| o[0] == ADMITTED).count() as u64;
        if !view.done[1] {
            return Ok(());
        }
        let left = use_up(table, 0, key(NEW), case.old_ns() + 3 * BUCKET_NS)?;
        match used + left {
            LIMIT => Ok(()),
            all => Err(format!(
                "the new key: {used} used and {left} more, {all} of {LIMIT}"
            )),
        }
    })
}

#[test]
fn a_closed_bucket_of_the_new_key_stays() {
    ring_against_reuse().holds();
}

#[test]
fn planted_ring_skips_generation_is_found() {
    with_fault(Fault::RingSkipsGeneration, ring_against_reuse).fails_with("the new key");
}

/// A slow driver publishes a total of the old key for an epoch that counts when the next key has
/// the row (its members' clocks are a bucket ahead).
fn remote_against_reuse() -> Found {
    let case = Case::new(1, Slow::Driver, 1);
    let world = World::new("remote against reuse", &[sub(1, case.plan())], ONE_SLOT);
    let mut world = world.before(|table| {
        assert_eq!(charge_one(table, 0, key(OLD), 1, case.old_ns()), ADMITTED);
    });
    let (table, at_ns) = (world.handle(), case.old_ns() + BUCKET_NS);
    let epoch = at_ns / BUCKET_NS + 1;
    let slow = Program::new("slow driver").then("publish", move || {
        vec![table.publish_remote(0, key(OLD), epoch, 2, at_ns) as u64]
    });
    world = world.workers(1, slow);
    let (table, now_ns) = (world.handle(), case.old_ns() + 2 * BUCKET_NS);
    let program = Program::new("new key").then("decide", move || {
        vec![charge_one(&table, 0, key(NEW), 1, now_ns)]
    });
    world.workers(1, program).search(move |table, view| {
        let codes: Vec<u64> = view.outcomes[1].iter().map(|o| o[0]).collect();
        if codes.contains(&DENIED) {
            return Err("the new key is denied for a stranger's hits".to_owned());
        }
        if !view.done[1] {
            return Ok(());
        }
        match table.read(0, key(NEW), now_ns).used {
            1 => Ok(()),
            used => Err(format!("the new key shows {used} hits of its 1")),
        }
    })
}

#[test]
fn a_total_of_the_old_key_is_not_shown_on_the_new_one() {
    remote_against_reuse().holds();
}

#[test]
fn planted_remote_skips_generation_is_found() {
    with_fault(Fault::RemoteSkipsGeneration, remote_against_reuse).fails_with("the new key");
}

/// The old key's row is evicted, in the same epoch, for a key that other members have used up,
/// while a slow worker of the old key sums.
fn rejection_against_reuse() -> Found {
    let case = Case::new(0, Slow::Worker, 1);
    let now_ns = case.old_ns();
    let world = World::new("rejection against reuse", &[sub(1, case.plan())], ONE_SLOT);
    let mut world = world.before(|table| {
        assert_eq!(charge_one(table, 0, key(OLD), 1, now_ns), ADMITTED);
    });
    let (table, heads) = (world.handle(), heads(&world.table));
    let slow = Program::new("slow").then("decide", move || {
        let decide = || charge_one(&table, 0, key(OLD), 1, now_ns);
        vec![killed_at_claim(&heads, decide).unwrap_or(KILLED)]
    });
    world = world.workers(1, slow);
    let table = world.handle();
    let driver = Program::new("driver").then("publish or claim", move || {
        let epoch = now_ns / BUCKET_NS;
        vec![table.publish_remote_or_claim(0, key(NEW), epoch, 2, now_ns) as u64]
    });
    world.workers(1, driver).search(|_, view| {
        if view.outcomes[0].iter().any(|o| o[0] == DENIED) {
            return Err("the old key is denied for a stranger's hits".to_owned());
        }
        Ok(())
    })
}

#[test]
fn a_rejection_is_never_a_strangers() {
    rejection_against_reuse().holds();
}

#[test]
fn planted_reject_skips_recheck_is_found() {
    with_fault(Fault::RejectSkipsRecheck, rejection_against_reuse).fails_with("denied");
}
