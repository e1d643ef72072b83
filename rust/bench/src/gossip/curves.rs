//! Scenarios that the figures of docs/gossip.md are drawn from. All are simulated.
//!
//! I own what is varied in them. A figure's name ends in `: ` and the name of its curve, by which
//! tools/figures finds it.

use gabion_sim::config::{Arrival, Fault, Keys, Load, Target, MS, SECOND};
use gabion_sim::World;

use super::worlds::{check, hit_each, known_everywhere, roomy, wait_known, world, MET_NS};
use super::Scenario;
use crate::report::{percentile, Figure};
use crate::BenchError;

/// Time between two looks for a hit.
const GLANCE_NS: u64 = 50_000;
/// After this a hit that was not seen everywhere is given up.
const LOST_NS: u64 = 60 * SECOND;
/// Limit of rows that are not used up.
const WIDE: u32 = 100;

/// Measures one of these scenarios.
pub(super) fn measure(scenario: &Scenario) -> Result<Vec<Figure>, BenchError> {
    match scenario {
        Scenario::Converge { .. } => converge(scenario),
        Scenario::Cut { .. } => cut(scenario),
        Scenario::Budget { .. } => budget(scenario),
        Scenario::Sizing { .. } => sizing(scenario),
        Scenario::Join {
            members,
            rows,
            delay_us,
        } => join(*members, *rows, *delay_us),
        Scenario::Memory { members, keys } => memory(*members, *keys),
        _ => Err(BenchError::Void("it is no curve".to_owned())),
    }
}

fn wrong() -> BenchError {
    BenchError::Void("it is another kind of scenario".to_owned())
}

/// Hits one after the other, each followed until all know it.
fn converge(scenario: &Scenario) -> Result<Vec<Figure>, BenchError> {
    let Scenario::Converge {
        members,
        limit,
        delay_us,
        loss_percent,
        hits,
        every_ms,
    } = *scenario
    else {
        return Err(wrong());
    };
    let mut config = world(11, members, limit, delay_us);
    config.calm.loss_ppm = loss_percent * 10_000;
    config.starve_ns = 0;
    let mut world = World::new(config);
    world.run_until(MET_NS);
    let before = world.report();
    let mut lags_us = Vec::new();
    for n in 0..hits {
        let asked_ns = world.now_ns();
        let answer = world.request(n % members, 0, 1, 1);
        if !answer.is_some_and(|answer| answer.allowed()) {
            return Err(BenchError::Void("a hit was denied".to_owned()));
        }
        while !known_everywhere(&world, members, 1, n as u64 + 1) {
            world.run_for(GLANCE_NS);
            if world.now_ns() > asked_ns + LOST_NS {
                return Err(BenchError::Void("a hit never arrives".to_owned()));
            }
        }
        lags_us.push((world.now_ns() - asked_ns) / 1_000);
        world.run_until((asked_ns + every_ms * MS).max(world.now_ns()));
    }
    check(&world)?;
    let seconds = (world.now_ns() - MET_NS) as f64 / 1e9;
    let each = members as f64 * seconds;
    let after = world.report();
    let per = |now: u64, then: u64| (now - then) as f64 / each;
    let name = format!(
        "{members} members, limit {limit}, links of {delay_us} us and {loss_percent} % loss, a \
         hit each {every_ms} ms"
    );
    let ms = |lags: &mut Vec<u64>, at| percentile(lags, at).unwrap_or(0) as f64 / 1e3;
    let stated = |curve: &str, value, unit| Figure::stated(format!("{name}: {curve}"), value, unit);
    Ok(vec![
        stated("p50", ms(&mut lags_us, 0.5), "ms"),
        stated("p99", ms(&mut lags_us, 0.99), "ms"),
        stated("bytes", per(after.bytes, before.bytes), "bytes/s"),
        stated("frames", per(after.datagrams, before.datagrams), "frames/s"),
    ])
}

/// A limit per hour is offered several times while the members are in so many parts.
fn cut(scenario: &Scenario) -> Result<Vec<Figure>, BenchError> {
    let Scenario::Cut {
        members,
        parts,
        limit,
        offered,
        delay_us,
    } = *scenario
    else {
        return Err(wrong());
    };
    if parts == 0 || parts > members {
        return Err(BenchError::Void("parts: from 1 to members".to_owned()));
    }
    const LENGTH_NS: u64 = 10 * SECOND;
    let mut config = world(12, members, limit, delay_us);
    config.starve_ns = 0;
    config.loads.push(Load {
        rule: 0,
        keys: Keys::One(1),
        target: Target::Any,
        arrival: Arrival::Poisson {
            mean_ns: (LENGTH_NS / (u64::from(limit) * offered)).max(1),
        },
        hits: 1,
        from_ns: MET_NS,
        until_ns: MET_NS + LENGTH_NS,
    });
    let plan = config.rules[0].plan();
    let mut world = World::new(config);
    world.run_until(MET_NS - 1);
    for from in 0..members {
        for to in 0..members {
            if from != to && from % parts != to % parts {
                world.apply(Fault::OneWay { from, to });
            }
        }
    }
    world.run_until(MET_NS + LENGTH_NS + SECOND);
    let epoch = plan.epoch_of(gabion_sim::clock::WORLD_UNIX_NS);
    let key = gabion_sim::member::key(0, 1);
    let admitted = world.truth.epoch(0, key, epoch).total();
    let healed_ns = world.now_ns();
    world.apply(Fault::Heal);
    let all: Vec<usize> = (0..members).collect();
    let known_ns = wait_known(&mut world, &all, 1..2, admitted)?;
    let name = format!("{members} members in {parts} parts, {offered} x {limit} offered");
    Ok(vec![
        Figure::stated(
            format!("{name}: admitted"),
            admitted as f64 / f64::from(limit) * 100.0,
            "% of limit",
        ),
        Figure::stated(
            format!("{name}: healed"),
            (known_ns - healed_ns) as f64 / 1e6,
            "ms",
        ),
    ])
}

/// What an error budget costs in accuracy and saves in frames.
fn budget(scenario: &Scenario) -> Result<Vec<Figure>, BenchError> {
    let Scenario::Budget {
        members,
        limit,
        budget_ppm,
        length_s,
        seeds,
        delay_us,
    } = *scenario
    else {
        return Err(wrong());
    };
    let (mut worst, mut bytes, mut frames) = (0.0f64, 0.0, 0.0);
    for seed in 1..=seeds {
        let mut config = world(seed, members, limit, delay_us);
        config.rules[0].error_budget_ppm = budget_ppm;
        config.starve_ns = 0;
        config.loads.push(Load {
            rule: 0,
            keys: Keys::One(1),
            target: Target::Any,
            arrival: Arrival::Poisson {
                // twice the limit in the time
                mean_ns: (length_s * SECOND / (u64::from(limit) * 2)).max(1),
            },
            hits: 1,
            from_ns: MET_NS,
            until_ns: MET_NS + length_s * SECOND,
        });
        let plan = config.rules[0].plan();
        let mut world = World::new(config);
        world.run_until(MET_NS);
        let before = world.report();
        world.run_until(MET_NS + length_s * SECOND);
        check(&world)?;
        let after = world.report();
        let epoch = plan.epoch_of(gabion_sim::clock::WORLD_UNIX_NS);
        let key = gabion_sim::member::key(0, 1);
        let admitted = world.truth.epoch(0, key, epoch).total();
        worst = worst.max(admitted as f64 / f64::from(limit) * 100.0);
        let each = (members as u64 * length_s * seeds) as f64;
        bytes += (after.bytes - before.bytes) as f64 / each;
        frames += (after.datagrams - before.datagrams) as f64 / each;
    }
    let percent = f64::from(budget_ppm) / 1e4;
    let name = format!("{members} members, 2 x {limit} in {length_s} s, budget {percent} %");
    let stated = |curve: &str, value, unit| Figure::stated(format!("{name}: {curve}"), value, unit);
    Ok(vec![
        stated("admitted", worst, "% of limit"),
        stated("bytes", bytes, "bytes/s"),
        stated("frames", frames, "frames/s"),
    ])
}

/// Many keys that change a little.
fn sizing(scenario: &Scenario) -> Result<Vec<Figure>, BenchError> {
    let Scenario::Sizing {
        members,
        per_s,
        limit,
        length_s,
        delay_us,
    } = *scenario
    else {
        return Err(wrong());
    };
    let keys = u32::try_from(per_s).map_err(|_| BenchError::Void("too many keys".to_owned()))?;
    let mut config = roomy(world(15, members, limit, delay_us), keys);
    config.loads.push(Load {
        rule: 0,
        keys: Keys::Uniform(keys),
        target: Target::Any,
        arrival: Arrival::Poisson {
            mean_ns: (SECOND / per_s.max(1)).max(1),
        },
        hits: 1,
        from_ns: MET_NS,
        until_ns: MET_NS + (length_s + 1) * SECOND,
    });
    let mut world = World::new(config);
    world.run_until(MET_NS + SECOND);
    let before = world.report();
    world.run_for(length_s * SECOND);
    check(&world)?;
    let after = world.report();
    let each = (members as u64 * length_s) as f64;
    let name = format!("{members} members, {per_s} hits per second, limit {limit}");
    let bytes = (after.bytes - before.bytes) as f64 / each;
    let frames = (after.datagrams - before.datagrams) as f64 / each;
    Ok(vec![
        Figure::stated(format!("{name}: bytes"), bytes, "bytes/s"),
        Figure::stated(format!("{name}: frames"), frames, "frames/s"),
    ])
}

/// A member starts anew, with nothing, beside others that hold rows; then it is gone for good.
fn join(members: usize, rows: u32, delay_us: u64) -> Result<Vec<Figure>, BenchError> {
    let mut world = World::new(roomy(world(13, members, WIDE, delay_us), rows));
    let last = members - 1;
    world.run_until(MET_NS);
    hit_each(&mut world, 0, 1..rows + 1, 10_000);
    let all: Vec<usize> = (0..members).collect();
    wait_known(&mut world, &all, 1..rows + 1, 1)?;
    hit_each(&mut world, last, 1..2, 10_000);
    wait_known(&mut world, &all, 1..2, 2)?;
    world.run_for(5 * SECOND);
    let restart = |down_ns| Fault::Restart {
        member: last,
        down_ns,
        moves: false,
        wall_error_ns: 0,
    };
    world.apply(restart(8 * SECOND));
    world.run_for(8 * SECOND);
    let (bytes, joined_ns) = (world.report().bytes, world.now_ns());
    let known_ns = wait_known(&mut world, &[last], 1..rows + 1, 1)?;
    let bytes = world.report().bytes - bytes;
    world.apply(restart(100_000 * SECOND));
    world.run_for(10 * SECOND);
    let kept = world.known(0, 0, 1);
    let name = format!("{members} members, {rows} live rows");
    Ok(vec![
        Figure::stated(
            format!("{name}: joined"),
            (known_ns - joined_ns) as f64 / 1e6,
            "ms",
        ),
        Figure::stated(format!("{name}: sent"), bytes as f64, "bytes"),
        Figure::stated(
            format!("{name}: hits of a member that left, kept"),
            kept.saturating_sub(1) as f64,
            "hits",
        ),
    ])
}

/// What each member holds when all members have counted all keys.
fn memory(members: usize, keys: u32) -> Result<Vec<Figure>, BenchError> {
    let mut world = World::new(roomy(world(14, members, WIDE, 500), keys));
    world.run_until(MET_NS);
    for member in 0..members {
        hit_each(&mut world, member, 1..keys + 1, 10_000);
    }
    let all: Vec<usize> = (0..members).collect();
    wait_known(&mut world, &all, 1..keys + 1, members as u64)?;
    world.run_for(2 * SECOND); // what is held is counted from time to time
    let most = |stat: fn(&gabion_node::NodeStats) -> u64| {
        let each = (0..members).map(|member| stat(world.member(member).node.stats()));
        each.max().unwrap_or(0) as f64 / f64::from(keys)
    };
    let name = format!("{members} members, {keys} keys that all count");
    let cells = most(|s| s.cell_bytes);
    Ok(vec![Figure::stated(
        format!("{name}: cells"),
        cells,
        "bytes/key",
    )])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(figures: &[Figure], curve: &str) -> f64 {
        let end = format!(": {curve}");
        let found = figures.iter().find(|figure| figure.name.ends_with(&end));
        found.and_then(|figure| figure.value).unwrap()
    }

    #[test]
    fn what_is_lost_comes_later() {
        let at = |loss_percent| {
            converge(&Scenario::Converge {
                members: 4,
                limit: 200,
                delay_us: 500,
                loss_percent,
                hits: 40,
                every_ms: 20,
            })
            .unwrap()
        };
        let (calm, lossy) = (at(0), at(40));
        assert!(value(&calm, "p99") < 12.0, "{calm:?}");
        assert!(
            value(&lossy, "p99") > 2.0 * value(&calm, "p99"),
            "{lossy:?}"
        );
    }

    #[test]
    fn more_hits_cost_more_and_less_for_each() {
        let at = |per_s| {
            let figures = sizing(&Scenario::Sizing {
                members: 3,
                per_s,
                limit: 10,
                length_s: 2,
                delay_us: 500,
            });
            value(&figures.unwrap(), "bytes")
        };
        let (few, many) = (at(50), at(1_000));
        assert!(many > few && many < 20.0 * few, "{few} {many}");
    }

    #[test]
    fn each_part_admits_its_own_limit() {
        let figures = cut(&Scenario::Cut {
            members: 4,
            parts: 2,
            limit: 200,
            offered: 4,
            delay_us: 500,
        })
        .unwrap();
        let admitted = value(&figures, "admitted");
        assert!((199.0..210.0).contains(&admitted), "{figures:?}");
    }

    #[test]
    fn who_joins_learns_everything_and_who_leaves_is_remembered() {
        let figures = join(3, 300, 500).unwrap();
        assert!(
            value(&figures, "hits of a member that left, kept") >= 1.0,
            "{figures:?}"
        );
        let figures = memory(3, 300).unwrap();
        assert!(value(&figures, "cells") > 1.0, "{figures:?}");
    }
}
