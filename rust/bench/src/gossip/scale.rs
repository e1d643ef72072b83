//! Millions of live keys: memory against its design, when all know them, how long one step takes.

use std::time::{Duration, Instant};

use gabion_rule::Mode;
use gabion_sim::config::{MS, SECOND};
use gabion_sim::member::key;
use gabion_sim::swarm::fixed;
use gabion_sim::World;
use gabion_table::Charge;

use super::worlds;
use crate::report::{Bar, Figure};
use crate::{system, BenchError};

/// When members have met.
const MET_NS: u64 = 3 * SECOND;
/// Window: it ends while the world runs. (Worlds start at its beginning.)
const WINDOW_NS: u64 = 300 * SECOND;
/// Limit that nobody reaches.
const LIMIT: u32 = 1_000;
/// New keys per second, over all members.
const KEYS_PER_S: u64 = 200_000;
/// Simulated time of one step that is timed; members' turns in it are counted together.
const STEP_NS: u64 = 100_000;
/// How long it may take until all know all.
const PATIENCE_NS: u64 = 60 * SECOND;
/// Keys that are looked for at every member.
const SAMPLED: u32 = 10_000;
/// Bytes of a cell, of its place in the index, and of two remote origins' counts.
const CELL_BYTES: f64 = 25.0;
const INDEX_BYTES: f64 = 7.0;
const PAIR_BYTES: f64 = 16.0;
/// How much more than that a store may hold: pages and segments that are not full.
const SLACK: f64 = 1.35;

/// Lets time pass in steps; keeps the longest of them, in real time.
struct Steps {
    longest: Duration,
}

impl Steps {
    fn run(&mut self, world: &mut World, for_ns: u64) {
        let until_ns = world.now_ns() + for_ns;
        while world.now_ns() < until_ns {
            let started = Instant::now();
            world.run_for(STEP_NS);
            self.longest = self.longest.max(started.elapsed());
        }
    }
}

/// Hits a key at `hitters` members. The table decides alone: what was admitted is not remembered
/// by the world, which would need more memory than the members.
fn hit(world: &World, n: u32, hitters: usize) -> Result<(), BenchError> {
    for k in 0..hitters {
        let member = world.member((n as usize + k) % world.members());
        let now = member.now(world.now_ns());
        let mut charges = [Charge::new(0, key(0, n), 1, Mode::Enforce, 0)];
        member.table.decide(&mut charges, now.cluster_ns);
        if charges[0].fail_open.is_some() {
            return Err(BenchError::Void(format!("key {n} found no row")));
        }
    }
    Ok(())
}

/// Measures `keys` live keys, each hit at `hitters` of the members.
pub(super) fn measure(
    members: usize,
    keys: u32,
    hitters: usize,
    delay_us: u64,
) -> Result<Vec<Figure>, BenchError> {
    let own = u64::from(keys) * hitters as u64 / members as u64;
    let mut config = worlds::world(13, members, LIMIT, delay_us);
    config.rules = vec![fixed(LIMIT, WINDOW_NS)];
    config.node = gabion_node::Tunables::default();
    config.starve_ns = 0;
    // 64 bytes a slot and its tag, and room for keys that fall together.
    config.table_bytes = usize::try_from(own * 128).unwrap_or(usize::MAX) + (1 << 20);
    let mut world = World::new(config);
    world.hit_from_outside();
    let mut steps = Steps {
        longest: Duration::ZERO,
    };
    steps.run(&mut world, MET_NS);
    let per_step = u32::try_from(KEYS_PER_S * STEP_NS / 1_000_000_000).unwrap_or(1);
    let mut n = 0;
    while n < keys {
        for _ in 0..per_step.min(keys - n) {
            n += 1;
            hit(&world, n, hitters)?;
        }
        steps.run(&mut world, STEP_NS);
    }
    let filled_ns = world.now_ns();
    let missing = |world: &World| {
        let sampled = (1..=SAMPLED)
            .map(|i| i * (keys / SAMPLED).max(1))
            .filter(|n| *n <= keys);
        let all = |n: u32| (0..members).all(|m| world.known(m, 0, n) >= hitters as u64);
        let rows = (0..members).map(|m| world.member(m).node.stats().cells);
        let cells = rows.min().unwrap_or(0) < u64::from(keys);
        usize::from(cells) + sampled.filter(|n| !all(*n)).count()
    };
    while missing(&world) > 0 {
        worlds::check(&world)?;
        steps.run(&mut world, 50 * MS);
        if world.now_ns() > filled_ns + PATIENCE_NS {
            return Err(BenchError::Void(format!(
                "{} keys are missing",
                missing(&world)
            )));
        }
    }
    let known_ns = world.now_ns() - filled_ns;
    let figures = figures(&world, members, keys, hitters, known_ns, &mut steps)?;
    worlds::check(&world)?;
    Ok(figures)
}

fn figures(
    world: &World,
    members: usize,
    keys: u32,
    hitters: usize,
    known_ns: u64,
    steps: &mut Steps,
) -> Result<Vec<Figure>, BenchError> {
    let name = format!("{keys} keys x {members} members, hit at {hitters}");
    let stats = |m: usize| world.member(m).node.stats();
    let bytes = (0..members).map(|m| stats(m).cell_bytes).max().unwrap_or(0);
    let per_key = bytes as f64 / f64::from(keys);
    // Of `hitters` origins one is the member itself, at its share of the keys.
    let (h, m) = (hitters as f64, members as f64);
    let pairs = (h / m) * ((h - 1.0) / 2.0).ceil() + (1.0 - h / m) * (h / 2.0).ceil();
    let design = CELL_BYTES + INDEX_BYTES + PAIR_BYTES * pairs;
    let overrun: u64 = (0..members).map(|m| stats(m).log_overruns).sum();
    Ok(vec![
        Figure::barred(
            format!("{name}: bytes per key in a node (design {design:.0})"),
            per_key,
            "bytes",
            Bar::AtMost(design * SLACK),
        ),
        Figure::stated(
            format!("{name}: all known after"),
            known_ns as f64 / 1e6,
            "ms",
        ),
        Figure::stated(format!("{name}: logs overrun"), overrun as f64, "times"),
        Figure::stated(
            format!("{name}: longest 0.1 ms of all members, real time"),
            steps.longest.as_secs_f64() * 1e3,
            "ms",
        ),
        Figure::stated(
            format!("{name}: resident, all members and the simulator"),
            system::resident_most_bytes()? as f64,
            "bytes",
        ),
    ])
}
