//! Scenarios in the simulator.

use gabion_sim::config::{Arrival, Fault, Keys, Load, Target, WorldConfig, MS, SECOND};
use gabion_sim::member::key;
use gabion_sim::network::{NetworkFault, CALM};
use gabion_sim::swarm::fixed;
use gabion_sim::World;

use super::{curves, full_mesh, scale, skew, Scenario};
use crate::report::{percentile, Bar, Figure};
use crate::BenchError;

const HOUR: u64 = 3_600 * SECOND;
/// Window that a burst falls into, well before its end.
const WINDOW_NS: u64 = 20 * SECOND;
/// When members have met.
pub(super) const MET_NS: u64 = 3 * SECOND;
/// How long anything simulated may take before it is given up.
const PATIENCE_NS: u64 = 120 * SECOND;
/// How often a world is looked at.
const LOOK_NS: u64 = 5 * MS;
/// Limit that no scenario of many keys uses up.
const WIDE: u32 = 100;

/// Measures one simulated scenario.
pub(super) fn measure(scenario: &Scenario) -> Result<Vec<Figure>, BenchError> {
    match *scenario {
        Scenario::Burst { .. } => burst(scenario),
        Scenario::HotRow {
            members,
            delay_us,
            hits,
            p99_most_ms,
        } => hot_row(members, delay_us, hits, p99_most_ms),
        Scenario::Loss {
            members,
            percent,
            seeds,
            load_s,
        } => loss(members, percent, seeds, load_s),
        Scenario::NewKeys {
            members,
            keys,
            delay_us,
            most_ms,
            idle_most_bytes_per_s,
        } => new_keys(members, keys, delay_us, most_ms, idle_most_bytes_per_s),
        Scenario::Heal {
            members,
            rows,
            changed,
            delay_us,
            most_ms,
        } => heal(members, rows, changed, delay_us, most_ms),
        Scenario::Converge { .. }
        | Scenario::Cut { .. }
        | Scenario::Budget { .. }
        | Scenario::Sizing { .. }
        | Scenario::Join { .. }
        | Scenario::Memory { .. } => curves::measure(scenario),
        Scenario::Skew { .. } => skew::measure(scenario),
        Scenario::FullMesh {
            members,
            limit,
            delay_us,
            packets_most_per_s,
        } => full_mesh::measure(members, limit, delay_us, packets_most_per_s),
        Scenario::Scale {
            members,
            keys,
            hitters,
            delay_us,
        } => scale::measure(members, keys, hitters, delay_us),
        Scenario::Mesh | Scenario::Fanout { .. } | Scenario::Cluster { .. } => {
            Err(BenchError::Void("it is not simulated".to_owned()))
        }
    }
}

/// Members that are right about the time, on links of one delay.
pub(super) fn world(seed: u64, members: usize, limit: u32, delay_us: u64) -> WorldConfig {
    let mut config = WorldConfig::calm(seed, members, vec![fixed(limit, HOUR)]);
    let delay_ns = delay_us * 1_000;
    config.calm = NetworkFault {
        delay_min_ns: delay_ns,
        delay_max_ns: delay_ns,
        ..CALM
    };
    config
}

/// Room for many rows: memory as in production.
pub(super) fn roomy(mut config: WorldConfig, rows: u32) -> WorldConfig {
    config.node = gabion_node::Tunables::default();
    config.table_bytes = usize::try_from(rows).unwrap_or(usize::MAX) * 128 + (1 << 20);
    config.starve_ns = 0; // what is looked at here is how long it takes
    config
}

pub(super) fn check(world: &World) -> Result<(), BenchError> {
    match world.violation() {
        None => Ok(()),
        Some(found) => Err(BenchError::Void(found.to_string())),
    }
}

fn burst(scenario: &Scenario) -> Result<Vec<Figure>, BenchError> {
    let Scenario::Burst {
        members,
        limit,
        offered,
        length_ms,
        delay_us,
        pace,
        seeds,
        most_percent,
    } = *scenario
    else {
        return Err(BenchError::Void("it is no burst".to_owned()));
    };
    let mut worst = 0.0f64;
    let mut sum = 0.0;
    for seed in 1..=seeds {
        let mut config = world(seed, members, limit, delay_us);
        config.rules[0] = fixed(limit, WINDOW_NS);
        config.rules[0].pace = pace.of(members);
        let unix_ns = gabion_sim::clock::WORLD_UNIX_NS;
        let from_ns = ((unix_ns + MET_NS) / WINDOW_NS + 2) * WINDOW_NS + MET_NS - unix_ns;
        let length_ns = length_ms * MS;
        config.loads.push(Load {
            rule: 0,
            keys: Keys::One(1),
            target: Target::Any,
            arrival: Arrival::Poisson {
                mean_ns: (length_ns / (u64::from(limit) * offered)).max(1),
            },
            hits: 1,
            from_ns,
            until_ns: from_ns + length_ns,
        });
        let plan = config.rules[0].plan();
        let mut world = World::new(config);
        world.run_until(MET_NS);
        // New counters of a strict rule know the window after the one in which they were first
        // asked: for another key, so that this one's burst meets nothing.
        for member in 0..members {
            world.request(member, 0, 2, 1);
        }
        world.run_until(from_ns + length_ns + SECOND);
        check(&world)?;
        let epoch = plan.epoch_of(unix_ns + from_ns);
        let admitted = world.truth.epoch(0, key(0, 1), epoch).total();
        let percent = admitted as f64 / f64::from(limit) * 100.0;
        worst = worst.max(percent);
        sum += percent;
    }
    let word = pace.of(members).word();
    let name =
        format!("{members} members, {word}, {offered} x {limit} in {length_ms} ms, admitted");
    let mean = Figure::stated(format!("{name}, mean"), sum / seeds as f64, "% of limit");
    let name = format!("{name}, worst of {seeds}");
    let worst = match most_percent {
        Some(most) => Figure::barred(name, worst, "% of limit", Bar::AtMost(most)),
        None => Figure::stated(name, worst, "% of limit"),
    };
    Ok(vec![mean, worst])
}

fn hot_row(
    members: usize,
    delay_us: u64,
    hits: usize,
    p99_most_ms: f64,
) -> Result<Vec<Figure>, BenchError> {
    // a limit of which each hit is a large part
    let limit = u32::try_from(hits + 100).unwrap_or(u32::MAX);
    let mut world = World::new(world(5, members, limit, delay_us));
    world.run_until(MET_NS);
    let mut lags_us = Vec::new();
    for n in 0..hits {
        let answer = world.request(n % members, 0, 1, 1);
        if !answer.is_some_and(|answer| answer.allowed()) {
            return Err(BenchError::Void("a hit was denied".to_owned()));
        }
        let sent_ns = world.now_ns();
        let wanted = n as u64 + 1;
        while !known_everywhere(&world, members, 1, wanted) {
            world.run_for(50_000);
            if world.now_ns() > sent_ns + SECOND {
                return Err(BenchError::Void("a hit never arrives".to_owned()));
            }
        }
        lags_us.push((world.now_ns() - sent_ns) / 1_000);
    }
    check(&world)?;
    let p99_ms = percentile(&mut lags_us, 0.99).unwrap_or(0) as f64 / 1e3;
    let p50_ms = percentile(&mut lags_us, 0.5).unwrap_or(0) as f64 / 1e3;
    let name = format!("{members} members, hot row, links of {delay_us} us");
    let bar = Bar::AtMost(p99_most_ms);
    Ok(vec![
        Figure::stated(format!("{name}, p50"), p50_ms, "ms"),
        Figure::barred(format!("{name}, p99"), p99_ms, "ms", bar),
    ])
}

fn loss(members: usize, percent: u32, seeds: u64, load_s: u64) -> Result<Vec<Figure>, BenchError> {
    let mut converged = 0u64;
    for seed in 1..=seeds {
        let mut config = world(seed, members, 10_000, 500);
        config.calm.loss_ppm = percent * 10_000;
        config.starve_ns = 0;
        config.settle_ns = 30 * SECOND;
        config.loads.push(Load {
            rule: 0,
            keys: Keys::Zipf(50),
            target: Target::Any,
            arrival: Arrival::Poisson { mean_ns: 5 * MS },
            hits: 1,
            from_ns: 0,
            until_ns: load_s * SECOND,
        });
        let mut world = World::new(config);
        world.run_until(load_s * SECOND);
        converged += u64::from(world.settle());
    }
    let name = format!("{members} members, {percent} % loss: seeds that converge, of {seeds}");
    let bar = Bar::Exactly(seeds as f64);
    Ok(vec![Figure::barred(name, converged as f64, "seeds", bar)])
}

/// Hits keys `from..to` once at a member, `every_ns` apart.
pub(super) fn hit_each(
    world: &mut World,
    member: usize,
    keys: std::ops::Range<u32>,
    every_ns: u64,
) {
    for n in keys {
        world.request(member, 0, n, 1);
        world.run_for(every_ns);
    }
}

/// Whether all members know so many hits of a key.
pub(super) fn known_everywhere(world: &World, members: usize, n: u32, hits: u64) -> bool {
    (0..members).all(|member| world.known(member, 0, n) >= hits)
}

/// Lets time pass until `members` know `wanted` hits of all `keys`; gives when.
pub(super) fn wait_known(
    world: &mut World,
    members: &[usize],
    keys: std::ops::Range<u32>,
    wanted: u64,
) -> Result<u64, BenchError> {
    let give_up = world.now_ns() + PATIENCE_NS;
    for member in members {
        for n in keys.clone() {
            // what was known once stays known: each key is waited for in turn
            while world.known(*member, 0, n) < wanted {
                world.run_for(LOOK_NS);
                check(world)?;
                if world.now_ns() > give_up {
                    let why = format!("key {n} did not reach member {member}");
                    return Err(BenchError::Void(why));
                }
            }
        }
    }
    Ok(world.now_ns())
}

fn new_keys(
    members: usize,
    keys: u32,
    delay_us: u64,
    most_ms: u64,
    idle_most: f64,
) -> Result<Vec<Figure>, BenchError> {
    let mut world = World::new(roomy(world(7, members, WIDE, delay_us), keys));
    world.run_until(MET_NS);
    let bytes = world.report().bytes;
    hit_each(&mut world, 0, 1..keys + 1, 10_000);
    let asked_ns = world.now_ns();
    let others: Vec<usize> = (1..members).collect();
    let known_ns = wait_known(&mut world, &others, 1..keys + 1, 1)?;
    let bytes = world.report().bytes - bytes;
    // digests of what is quiet come first, then there is nothing to say
    world.run_for(10 * SECOND);
    let before = world.report().bytes;
    world.run_for(10 * SECOND);
    check(&world)?;
    let links = (members * (members - 1)) as f64;
    let idle = (world.report().bytes - before) as f64 / 10.0 / links;
    let ms = (known_ns - asked_ns) as f64 / 1e6;
    let name = format!("{keys} new keys on one of {members} members");
    let per_row = bytes as f64 / f64::from(keys) / (members - 1) as f64;
    Ok(vec![
        Figure::barred(
            format!("{name}: everywhere after"),
            ms,
            "ms",
            Bar::AtMost(most_ms as f64),
        ),
        Figure::stated(format!("{name}: per row and receiver"), per_row, "bytes"),
        Figure::barred(
            format!("{name}: then per link"),
            idle,
            "bytes/s",
            Bar::AtMost(idle_most),
        ),
    ])
}

fn heal(
    members: usize,
    rows: u32,
    changed: u32,
    delay_us: u64,
    most_ms: u64,
) -> Result<Vec<Figure>, BenchError> {
    let mut world = World::new(roomy(world(9, members, WIDE, delay_us), rows + changed));
    let all: Vec<usize> = (0..members).collect();
    let last = members - 1;
    world.run_until(MET_NS);
    hit_each(&mut world, 0, 1..rows + 1, 10_000);
    wait_known(&mut world, &all, 1..rows + 1, 1)?;
    world.run_for(10 * SECOND);
    world.apply(Fault::Partition { side: 1 << last });
    world.run_for(5 * SECOND);
    hit_each(&mut world, 0, 1..changed + 1, 100_000);
    hit_each(&mut world, last, changed + 1..2 * changed + 1, 100_000);
    world.run_for(5 * SECOND);
    let apart = (0..members).any(|member| world.known(member, 0, 1) < 2);
    if !apart {
        return Err(BenchError::Void("the cut did not cut".to_owned()));
    }
    let (bytes, healed_ns) = (world.report().bytes, world.now_ns());
    world.apply(Fault::Heal);
    let known_ns = wait_known(&mut world, &all, 1..2 * changed + 1, 2)?;
    let bytes = world.report().bytes - bytes;
    let ms = (known_ns - healed_ns) as f64 / 1e6;
    let name = format!("cut of {members} with {rows} live rows, 2 x {changed} changed");
    Ok(vec![
        Figure::barred(
            format!("{name}: healed"),
            ms,
            "ms",
            Bar::AtMost(most_ms as f64),
        ),
        Figure::stated(format!("{name}: sent"), bytes as f64, "bytes"),
    ])
}

#[cfg(test)]
mod tests {
    use super::super::PaceWord;
    use super::*;

    #[test]
    fn a_small_burst_is_measured_and_held_against_its_bar() {
        let scenario = |most_percent| Scenario::Burst {
            members: 4,
            limit: 100,
            offered: 4,
            length_ms: 1_000,
            delay_us: 300,
            pace: PaceWord::Fast,
            seeds: 2,
            most_percent: Some(most_percent),
        };
        let figures = measure(&scenario(110.0)).unwrap();
        assert_eq!(figures[1].holds, Some(true), "{figures:?}");
        assert!(figures[0].value.unwrap() >= 99.0, "{figures:?}");
        let figures = measure(&scenario(50.0)).unwrap();
        assert_eq!(figures[1].holds, Some(false), "{figures:?}");
    }

    #[test]
    fn skew_scale_and_a_full_mesh_are_measured_on_a_small_scale() {
        let skewed = Scenario::Skew {
            members: 3,
            limit: 100,
            offered: 4,
            length_ms: 500,
            delay_us: 300,
            skew_ms: 10_000,
            seeds: 1,
            most_percent: Some(110.0),
        };
        let figures = measure(&skewed).unwrap();
        assert_eq!(figures.len(), 6);
        for figure in &figures {
            let value = figure.value.unwrap();
            assert!((99.0..=110.0).contains(&value), "{figures:?}");
        }
        let figures = full_mesh::measure(5, 1_000, 300, 10_000.0).unwrap();
        assert!(figures[0].value.unwrap() > 300.0, "{figures:?}");
        let figures = scale::measure(3, 20_000, 2, 300).unwrap();
        assert_eq!(figures[0].holds, Some(true), "{figures:?}");
    }

    #[test]
    fn few_keys_heal_and_arrive() {
        let figures = heal(3, 300, 20, 300, 10_000).unwrap();
        assert_eq!(figures[0].holds, Some(true), "{figures:?}");
        let figures = new_keys(3, 300, 300, 5_000, 1e6).unwrap();
        assert!(
            figures.iter().all(|figure| figure.holds != Some(false)),
            "{figures:?}"
        );
    }
}
