//! Runs a world to its end.
//!
//! I promise: a panic of the code under test is a violation like any other, and where two runs of
//! one world are compared, any difference is one, too.

use crate::config::{Plant, WorldConfig};
use crate::swarm;
use crate::world::{Report, World};
use crate::Violation;

/// One seed in this many is run twice, to compare traces.
pub const TWICE_ONE_IN: u64 = 8;

/// Name of the checker that compares two runs.
pub(crate) const SAME_TRACE: &str = "same-trace";

/// Runs one world to its end and lets every checker look.
///
/// # Errors
/// The first violation.
pub fn run(config: WorldConfig) -> Result<Report, Violation> {
    run_watched(config, None)
}

/// [`run`], printing what happens to one counter (see [`World::watch`]).
///
/// # Errors
/// The first violation.
pub fn run_watched(config: WorldConfig, watch: Option<(u16, u64)>) -> Result<Report, Violation> {
    let loads = config.loads.iter().map(|load| load.until_ns);
    let faults = config.faults.iter().map(|fault| fault.0);
    let last_ns = loads.chain(faults).max().unwrap_or(0);
    let mut world = World::new(config);
    if let Some((rule, key_a)) = watch {
        world.watch(rule, key_a);
    }
    world.run_until(last_ns);
    world.settle();
    match world.violation() {
        Some(violation) => Err(violation.clone()),
        None => Ok(world.report()),
    }
}

fn violation(checker: &'static str, detail: String) -> Violation {
    Violation {
        checker,
        at_ns: 0,
        member: 0,
        detail,
    }
}

/// [`run`]; a panic is the violation `panic`.
///
/// # Errors
/// The first violation.
pub fn run_caught(config: WorldConfig) -> Result<Report, Violation> {
    std::panic::catch_unwind(|| run(config)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(violation(
            "panic",
            text.unwrap_or_else(|| "a panic without a text".to_owned()),
        ))
    })
}

/// [`run_caught`], twice.
///
/// # Errors
/// The first violation; `same-trace` when the two runs differ.
pub fn run_twice(config: WorldConfig) -> Result<Report, Violation> {
    let first = run_caught(config.clone());
    let again = run_caught(config);
    if first == again {
        return first;
    }
    let detail = format!("first {first:?}, then {again:?}");
    Err(violation(SAME_TRACE, detail))
}

/// Runs `seed`, some seeds twice.
///
/// # Errors
/// The first violation; `same-trace` when two runs differ.
pub fn run_seed(seed: u64, plant: Plant) -> Result<Report, Violation> {
    let config = swarm::world(seed, plant);
    if seed % TWICE_ONE_IN == 0 || plant == Plant::HashOrder {
        return run_twice(config);
    }
    run_caught(config)
}
