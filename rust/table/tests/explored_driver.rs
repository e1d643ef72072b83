//! The driver's side under every interleaving: no count is hidden from it, remote totals only rise.

mod common;
mod explore;

use std::collections::BTreeMap;

use common::{bucket, fixed, key, strict, sub, SECOND_NS, START_NS};
use explore::table::{charge_one, live_rows, use_up, with_fault, Found, World, ADMITTED};
use explore::{Program, View};
use gabion_rule::Key;
use gabion_table::{DirtyRow, Fault, Geometry, RowView};

const NOW_NS: u64 = START_NS + 1;
const EPOCH: u64 = START_NS / SECOND_NS;
const EPOCH_MASK: u64 = (1 << 22) - 1;

/// Closed bucket and current one of two keys on their way to the driver: a worker rolls the row.
#[test]
fn a_closing_bucket_is_shown_to_the_driver() {
    for (workers, turns) in [(&[1][..], 2), (&[0, 1], 1), (&[0, 1], 2), (&[1, 1], 2)] {
        rolled_is_never_lost(workers, turns).holds();
    }
}

#[test]
fn planted_ring_not_published_hides_hits_from_the_driver() {
    let found = with_fault(Fault::RingNotPublished, || rolled_is_never_lost(&[0, 1], 1));
    found.fails_with("the driver");
}

/// Own hits per epoch (low 22 bits), as a row holds them.
fn held(row: &RowView) -> BTreeMap<u64, u64> {
    let mut by_epoch: BTreeMap<u64, u64> = row
        .ring
        .iter()
        .filter(|w| w.1 > 0)
        .map(|w| (w.0, u64::from(w.1)))
        .collect();
    by_epoch.insert(row.epoch, row.count);
    by_epoch
}

/// Workers hit one key, some in the next bucket, while a driver drains; the oldest hit is there.
fn rolled_is_never_lost(workers: &[u64], turns: usize) -> Found {
    let name = format!("drain while rolled {workers:?}");
    let world = World::new(
        &name,
        &[sub(1, strict(9, 2))],
        Geometry { ways: 1, sets: 1 },
    );
    let mut world =
        world.before(|table| assert_eq!(charge_one(table, 0, key(1), 1, NOW_NS), ADMITTED));
    let mut program = Program::new("driver");
    for _ in 0..turns {
        let table = world.handle();
        program = program.then("drain", move || {
            let mut seen = Vec::new();
            table.drain_dirty(8, NOW_NS + SECOND_NS, &mut |row| {
                let shown = &row.counts[..usize::from(row.n)];
                seen.extend(
                    shown
                        .iter()
                        .flat_map(|(e, own)| [*e & EPOCH_MASK, (*own).into()]),
                );
            });
            seen
        });
    }
    world = world.workers(1, program);
    for epoch in workers {
        let (table, now_ns) = (world.handle(), NOW_NS + epoch * SECOND_NS);
        let program = Program::new(&format!("at {epoch}")).then("decide", move || {
            vec![charge_one(&table, 0, key(1), 1, now_ns)]
        });
        world = world.workers(1, program);
    }
    world.search(|table, view| {
        let mut known = seen(view);
        let truth = held(&live_rows(table)[0]);
        for (epoch, hits) in &known {
            if hits > truth.get(epoch).unwrap_or(&0) {
                return Err(format!(
                    "the driver saw {hits} hits in {epoch}, of {truth:?}"
                ));
            }
        }
        if !view.all_done() {
            return Ok(());
        }
        table.drain_dirty(8, NOW_NS + SECOND_NS, &mut |row| {
            for (epoch, hits) in &row.counts[..usize::from(row.n)] {
                known.insert(*epoch & EPOCH_MASK, u64::from(*hits));
            }
        });
        if view.outcomes[1..].iter().any(|o| o[0][0] != ADMITTED) {
            return Err("denied though there is room".to_owned());
        }
        let total: u64 = known.values().sum();
        if known != truth || total != view.done.len() as u64 {
            return Err(format!(
                "not shown: the driver knows {known:?} of {truth:?}"
            ));
        }
        Ok(())
    })
}

/// Own hits of the present epoch that a row shows.
fn own(row: &DirtyRow) -> u64 {
    let shown = &row.counts[..usize::from(row.n)];
    shown
        .iter()
        .find(|(epoch, _)| *epoch == EPOCH)
        .map_or(0, |(_, own)| u64::from(*own))
}

/// A driver that drains twice; outcome: (key half, own hits) pairs.
fn driver(world: &World, turns: usize) -> Program {
    let mut program = Program::new("driver");
    for _ in 0..turns {
        let table = world.handle();
        program = program.then("drain", move || {
            let mut seen = Vec::new();
            table.drain_dirty(8, NOW_NS, &mut |row| seen.extend([row.key.a, own(&row)]));
            seen
        });
    }
    program
}

/// The most that the driver (worker 0) has seen of each key.
fn seen(view: &View<'_>) -> BTreeMap<u64, u64> {
    let mut seen = BTreeMap::new();
    for pair in view.outcomes[0].iter().flat_map(|o| o.chunks(2)) {
        let most = seen.entry(pair[0]).or_insert(0);
        *most = pair[1].max(*most);
    }
    seen
}

fn drain_world(workers: &[u64], before: &[u64], turns: usize) -> World {
    let name = format!("drain {workers:?} after {before:?}");
    let world = World::new(&name, &[sub(1, fixed(9))], Geometry { ways: 2, sets: 1 });
    let world = world.before(|table| {
        for n in before {
            assert_eq!(charge_one(table, 0, key(*n), 1, NOW_NS), ADMITTED);
        }
    });
    let driver = driver(&world, turns);
    let mut world = world.workers(1, driver);
    for n in workers {
        let (table, k) = (world.handle(), key(*n));
        let program = Program::new(&format!("key {n}"))
            .then("decide", move || vec![charge_one(&table, 0, k, 1, NOW_NS)]);
        world = world.workers(1, program);
    }
    world
}

/// Once the deciders are done, what the driver has not seen it will be shown.
fn dirty_is_never_lost(world: World) -> Found {
    world.search(|table, view| {
        let deciders_done = view.done[1..].iter().all(|d| *d);
        let seen = seen(view);
        let mut rows = BTreeMap::new();
        for row in live_rows(table) {
            rows.insert(row.key.a, row.count);
        }
        for (k, hits) in &seen {
            if hits > rows.get(k).unwrap_or(&0) {
                return Err(format!("the driver saw {hits} hits of {rows:?}"));
            }
        }
        // A driver in the middle of a turn may hold what it took; a killed one is replaced by one
        // that scrubs. So this is about a driver between turns.
        if !deciders_done || !view.done[0] {
            return Ok(());
        }
        let mut known = seen;
        table.drain_dirty(8, NOW_NS, &mut |row| {
            known.insert(row.key.a, own(&row));
        });
        for (k, hits) in &rows {
            if known.get(k) != Some(hits) {
                return Err(format!("the driver is not shown {hits} hits: {known:?}"));
            }
        }
        Ok(())
    })
}

#[test]
fn a_dirty_mark_is_never_lost() {
    dirty_is_never_lost(drain_world(&[1], &[1], 2)).holds();
    dirty_is_never_lost(drain_world(&[1, 1], &[1], 2)).holds();
    dirty_is_never_lost(drain_world(&[1, 2], &[1, 2], 1)).holds();
    dirty_is_never_lost(drain_world(&[1], &[], 2)).holds();
}

#[test]
fn planted_skip_dirty_mark_is_found() {
    let found = with_fault(Fault::SkipDirtyMark, || {
        dirty_is_never_lost(drain_world(&[1], &[], 1))
    });
    found.fails_with("not shown");
}

#[test]
fn planted_mark_before_reserve_is_found() {
    let found = with_fault(Fault::MarkBeforeReserve, || {
        dirty_is_never_lost(drain_world(&[1], &[1], 2))
    });
    found.fails_with("not shown");
}

#[test]
fn planted_drain_clears_after_read_is_found() {
    let found = with_fault(Fault::DrainClearsAfterRead, || {
        dirty_is_never_lost(drain_world(&[1], &[1], 2))
    });
    found.fails_with("not shown");
}

/// Totals that two drivers publish for one key, while a worker reserves on it.
fn remote_world(totals: [u64; 2], hits: usize) -> Found {
    let k: Key = key(1);
    let name = format!("remote {totals:?} and {hits} hits");
    let world = World::new(&name, &[sub(1, fixed(9))], Geometry { ways: 2, sets: 1 });
    let mut world = world.before(|table| {
        assert_eq!(charge_one(table, 0, k, 1, NOW_NS), ADMITTED);
    });
    for total in totals {
        let table = world.handle();
        let program = Program::new(&format!("publishes {total}")).then("publish", move || {
            let said = table.publish_remote(0, k, EPOCH, total, NOW_NS);
            vec![said as u64, total]
        });
        world = world.workers(1, program);
    }
    let table = world.handle();
    let decides =
        Program::new("decides").then("decide", move || vec![charge_one(&table, 0, k, 1, NOW_NS)]);
    world = world.workers(hits, decides);
    world.search(move |table, view| {
        let published = view.outcomes[..2]
            .iter()
            .flat_map(|o| o.iter())
            .map(|o| o[1])
            .max();
        let own = 1 + view.outcomes[2..]
            .iter()
            .map(|o| o.len() as u64)
            .sum::<u64>();
        let used = table.read(0, k, NOW_NS).used;
        let least = published.unwrap_or(0) + own;
        if used < least {
            return Err(format!("{used} shown, though {least} were there"));
        }
        let most = totals[0].max(totals[1]) + 1 + hits as u64;
        if used > most {
            return Err(format!(
                "{used} shown, though there were never more than {most}"
            ));
        }
        let left = use_up(table, 0, k, NOW_NS)?;
        if used + left != 9.max(used) {
            return Err(format!("{used} used, {left} left"));
        }
        Ok(())
    })
}

#[test]
fn remote_totals_only_rise() {
    remote_world([5, 3], 1).holds();
    remote_world([4, 4], 1).holds();
    remote_world([2, 6], 2).holds();
}

#[test]
fn planted_remote_lowers_is_found() {
    with_fault(Fault::RemoteLowers, || remote_world([5, 3], 1)).fails_with("shown");
}

/// Totals that two drivers publish for a token bucket's key, while workers reserve on it: each
/// increase is charged once.
fn folded_world(totals: [u64; 2], hits: usize) -> Found {
    let plan = bucket(1, 3_600 * SECOND_NS, 20);
    let (k, epoch) = (key(1), plan.epoch_of(NOW_NS));
    let name = format!("token bucket, remote {totals:?} and {hits} hits");
    let world = World::new(&name, &[sub(1, plan)], Geometry { ways: 1, sets: 1 });
    let mut world = world.before(|table| {
        // The row has lived since the epoch before, so that all totals of this one are increase;
        // what it counted then has drained.
        let then_ns = NOW_NS - plan.epoch_ns();
        assert_eq!(charge_one(table, 0, k, 1, then_ns), ADMITTED);
        assert_eq!(charge_one(table, 0, k, 1, NOW_NS), ADMITTED);
    });
    for total in totals {
        let table = world.handle();
        let program = Program::new(&format!("publishes {total}")).then("publish", move || {
            vec![
                table.publish_remote(0, k, epoch, total, NOW_NS) as u64,
                total,
            ]
        });
        world = world.workers(1, program);
    }
    let table = world.handle();
    let decides =
        Program::new("decides").then("decide", move || vec![charge_one(&table, 0, k, 1, NOW_NS)]);
    world = world.workers(hits, decides);
    world.search(move |table, view| {
        let used = table.read(0, k, NOW_NS).used;
        let own = 1 + view.outcomes[2..]
            .iter()
            .map(|o| o.len() as u64)
            .sum::<u64>();
        let most = 1 + hits as u64 + totals[0].max(totals[1]);
        if used > most || used < own {
            return Err(format!(
                "{used} shown, {own} own hits, at most {most} in all"
            ));
        }
        if view.all_done() && used != most {
            return Err(format!("{used} shown, though {most} were there"));
        }
        Ok(())
    })
}

#[test]
fn a_token_bucket_is_charged_each_increase_once() {
    folded_world([5, 3], 1).holds();
    folded_world([4, 4], 1).holds();
    folded_world([2, 6], 2).holds();
}
