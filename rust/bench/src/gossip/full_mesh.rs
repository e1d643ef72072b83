//! Very many members in a full mesh, each with a hot row of its own: packets, and how late news is.

use gabion_sim::config::{Arrival, Keys, Load, Target, MS, SECOND};
use gabion_sim::World;

use super::worlds;
use crate::report::{percentile, Bar, Figure};
use crate::BenchError;

/// When so many members have met.
const MET_NS: u64 = 5 * SECOND;
/// The load before anything is counted, and while it is.
const WARM_NS: u64 = SECOND / 2;
const COUNTED_NS: u64 = SECOND;
/// Pause between two hits on a row.
const EVERY_NS: u64 = 2 * MS;
/// Hits whose way is followed, and the pause between two.
const FOLLOWED: usize = 20;
/// Key that is followed.
const NEWS: u32 = 1 << 19;

/// Frames that each member sent and received so far.
fn frames(world: &World) -> Vec<(u64, u64)> {
    let of = |index| world.member(index).node.stats();
    (0..world.members())
        .map(|index| (of(index).frames_out, of(index).frames_in))
        .collect()
}

/// Measures a mesh of `members`.
pub(super) fn measure(
    members: usize,
    limit: u32,
    delay_us: u64,
    packets_most: f64,
) -> Result<Vec<Figure>, BenchError> {
    let mut config = worlds::world(11, members, limit, delay_us);
    config.starve_ns = 0;
    for member in 0..members {
        config.loads.push(Load {
            rule: 0,
            keys: Keys::One(u32::try_from(member).unwrap_or(0) + 1),
            target: Target::One(member),
            arrival: Arrival::Steady { every_ns: EVERY_NS },
            hits: 1,
            // not in step
            from_ns: MET_NS + EVERY_NS * member as u64 / members as u64,
            until_ns: MET_NS + WARM_NS + COUNTED_NS + 5 * SECOND,
        });
    }
    let mut world = World::new(config);
    world.run_until(MET_NS + WARM_NS);
    let before = frames(&world);
    world.run_for(COUNTED_NS);
    let seconds = COUNTED_NS as f64 / 1e9;
    let per_second = |pick: fn(&(u64, u64)) -> u64| {
        let pairs = frames(&world).into_iter().zip(&before);
        let most = pairs.map(|(now, then)| pick(&now) - pick(then)).max();
        most.unwrap_or(0) as f64 / seconds
    };
    let (out, inward) = (per_second(|f| f.0), per_second(|f| f.1));
    let mut lags_us = Vec::new();
    for n in 0..FOLLOWED {
        let sent_ns = world.now_ns();
        world.request(n % members, 0, NEWS, 1);
        while (0..members).any(|member| world.known(member, 0, NEWS) < n as u64 + 1) {
            world.run_for(MS / 2);
            if world.now_ns() > sent_ns + SECOND {
                return Err(BenchError::Void("news never arrives".to_owned()));
            }
        }
        lags_us.push((world.now_ns() - sent_ns) / 1_000);
    }
    worlds::check(&world)?;
    let late_ms = percentile(&mut lags_us, 0.99).unwrap_or(0) as f64 / 1e3;
    let name = format!("{members} members in a full mesh, a hot row each");
    let bar = Bar::AtMost(packets_most);
    // Members may at most admit what comes while news is on its way.
    let stated = format!("{name}: news is everywhere after, p99 of {FOLLOWED}");
    Ok(vec![
        Figure::barred(format!("{name}: sent by one"), out, "packets/s", bar),
        Figure::barred(format!("{name}: received by one"), inward, "packets/s", bar),
        Figure::stated(stated, late_ms, "ms"),
    ])
}
