//! Clocks that disagree by seconds, members that start in any order.
//!
//! I measure the same burst and the same steady load twice, with right clocks and with wrong ones,
//! so that the difference is what the clocks cost. I look at windows that begin after all have met.

use gabion_sim::clock::{ClockFault, WORLD_UNIX_NS};
use gabion_sim::config::{Arrival, Fault, Keys, Load, Target, WorldConfig, MS, SECOND};
use gabion_sim::member::key;
use gabion_sim::rng::Rng;
use gabion_sim::swarm::fixed;
use gabion_sim::World;

use super::worlds;
use super::Scenario;
use crate::report::{Bar, Figure};
use crate::BenchError;

/// The last member starts before this; the load comes a while later.
const STARTED_NS: u64 = 5 * SECOND;
/// Between the last start and the load.
const MEET_NS: u64 = 3 * SECOND;
/// Window of the steady load.
const WINDOW_NS: u64 = 10 * SECOND;
/// How many times the limit the steady load offers, and in how many windows.
const STEADY_OFFERED: u64 = 4;
const STEADY_WINDOWS: u64 = 3;

/// One of the worlds that are compared.
#[derive(Clone, Copy)]
struct Kind {
    skew_ns: u64,
    /// Members start one after the other, in an order of the seed.
    staggered: bool,
    window_ns: u64,
    until_ns: u64,
    arrivals_ns: u64,
}

/// Measures a [`Scenario::Skew`].
pub(super) fn measure(scenario: &Scenario) -> Result<Vec<Figure>, BenchError> {
    let Scenario::Skew {
        members,
        limit,
        offered,
        length_ms,
        delay_us,
        skew_ms,
        seeds,
        most_percent,
    } = *scenario
    else {
        return Err(BenchError::Void("it is no skew".to_owned()));
    };
    let from_ns = STARTED_NS + MEET_NS;
    let burst = Kind {
        skew_ns: 0,
        staggered: false,
        window_ns: 5 * 3_600 * SECOND, // none ends while the world runs
        until_ns: from_ns + length_ms * MS,
        arrivals_ns: (length_ms * MS / (u64::from(limit) * offered)).max(1),
    };
    let steady = Kind {
        window_ns: WINDOW_NS,
        until_ns: from_ns + (STEADY_WINDOWS + 2) * WINDOW_NS,
        arrivals_ns: (WINDOW_NS / (u64::from(limit) * STEADY_OFFERED)).max(1),
        ..burst
    };
    let skew_ns = skew_ms * MS;
    let mut figures = Vec::new();
    for (what, kind, barred) in [("burst", burst, true), ("steady", steady, false)] {
        for (clocks, skew_ns, staggered) in [
            ("right clocks", 0, false),
            ("skewed", skew_ns, false),
            ("skewed, any start order", skew_ns, true),
        ] {
            let kind = Kind {
                skew_ns,
                staggered,
                ..kind
            };
            let mut worst = 0.0f64;
            for seed in 1..=seeds {
                worst = worst.max(admitted(members, limit, delay_us, seed, kind)?);
            }
            let name = format!("{members} members, {what}, {clocks}: worst of {seeds}");
            figures.push(match most_percent.filter(|_| barred) {
                Some(most) => Figure::barred(name, worst, "% of limit", Bar::AtMost(most)),
                None => Figure::stated(name, worst, "% of limit"),
            });
        }
    }
    Ok(figures)
}

/// The most that one window admitted, in percent of its limit.
fn admitted(
    members: usize,
    limit: u32,
    delay_us: u64,
    seed: u64,
    kind: Kind,
) -> Result<f64, BenchError> {
    let mut config = worlds::world(seed, members, limit, delay_us);
    config.rules = vec![fixed(limit, kind.window_ns)];
    config.starve_ns = 0;
    let mut rng = Rng::new(seed ^ 0x5e_ed);
    skew(&mut config, &mut rng, kind);
    config.loads.push(Load {
        rule: 0,
        keys: Keys::One(1),
        target: Target::Any,
        arrival: Arrival::Poisson {
            mean_ns: kind.arrivals_ns,
        },
        hits: 1,
        from_ns: STARTED_NS + MEET_NS,
        until_ns: kind.until_ns,
    });
    let plan = config.rules[0].plan();
    let mut world = World::new(config);
    world.run_until(kind.until_ns + SECOND);
    worlds::check(&world)?;
    // Members agree on a clock, which need not be the right one: up to the skew beside it.
    let first = plan.epoch_of(WORLD_UNIX_NS - kind.skew_ns);
    let last = plan.epoch_of(WORLD_UNIX_NS + world.now_ns() + kind.skew_ns);
    // Where a clock went back the world cannot say which window a hit is of, and credits two: the
    // windows after that are looked at.
    let clear = (first..=last)
        .map(|epoch| world.truth.epoch(0, key(0, 1), epoch))
        .filter(|truth| !truth.ambiguous);
    let most = clear.map(|truth| truth.total()).max().unwrap_or(0);
    if most == 0 {
        return Err(BenchError::Void("no window could be judged".to_owned()));
    }
    Ok(most as f64 / f64::from(limit) * 100.0)
}

/// Each member's clock is wrong by anything up to the skew, the first two by all of it.
fn skew(config: &mut WorldConfig, rng: &mut Rng, kind: Kind) {
    let most = i64::try_from(kind.skew_ns).unwrap_or(i64::MAX);
    for member in 0..config.members {
        let wall_error_ns = match member {
            0 => -most,
            1 => most,
            _ => i64::try_from(rng.between(0, 2 * kind.skew_ns)).unwrap_or(0) - most,
        };
        if kind.staggered {
            let down_ns = rng.between(0, STARTED_NS - MS);
            let fault = Fault::Restart {
                member,
                down_ns,
                moves: false,
                wall_error_ns,
            };
            config.faults.push((0, fault));
        } else {
            config.clocks.push(ClockFault {
                wall_error_ns,
                drift_ppm: 0,
            });
        }
    }
}
