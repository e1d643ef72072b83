//! The mesh and forwarding side by side, for a number of members.
//!
//! I measure lag, frames, bytes, time in the protocol machine and memory with
//! [`gabion_sim::flock`]. Figures of time and memory are of this machine; the others are the same
//! everywhere.

use gabion_node::Fanout;
use gabion_sim::flock::{measure as cost_of, Cost, Work};

use crate::report::{Bar, Figure};
use crate::BenchError;

/// Keys of the burst.
const BURST_KEYS: u32 = 2_000;

/// Two more than the natural logarithm, rounded up, as `fanout=auto` would take.
fn coverage(members: usize) -> u16 {
    let reached = |power: &u16| f64::from(*power).exp() >= members as f64;
    (0..u16::MAX).find(reached).unwrap_or(0) + 2
}

/// Measures `members` both ways under each load for `length_ms`. `packets_most` is the bar on
/// frames per second of any member when all are hot.
pub(super) fn measure(
    members: usize,
    length_ms: u64,
    packets_most: Option<f64>,
) -> Result<Vec<Figure>, BenchError> {
    let works = [
        ("idle", Work::Idle),
        ("hot row at each", Work::HotEverywhere),
        ("1,000 hits/s at one", Work::SteadyAtOne),
        ("2,000 new keys at one", Work::BurstAtOne(BURST_KEYS)),
    ];
    let ways = [
        ("mesh", Fanout::Mesh),
        ("forwarding", Fanout::Members(coverage(members))),
    ];
    let mut figures = Vec::new();
    for (work_name, work) in works {
        for (way_name, way) in ways {
            let name = format!("{members} members, {way_name}, {work_name}");
            let cost = cost_of(1, members, way, work, length_ms * 1_000_000);
            let cost = cost.ok_or_else(|| BenchError::Void(format!("{name}: never met")))?;
            let forwards = matches!(way, Fanout::Members(_));
            let bar = packets_most.filter(|_| work == Work::HotEverywhere && forwards);
            add(&mut figures, &name, work, &cost, bar);
        }
    }
    Ok(figures)
}

fn add(figures: &mut Vec<Figure>, name: &str, work: Work, cost: &Cost, most: Option<f64>) {
    let mut state = |what: &str, value: f64, unit| {
        figures.push(Figure::stated(format!("{name}: {what}"), value, unit));
    };
    let [p50, p99, last] = cost.lag_ns.map(|ns| ns as f64 / 1e6);
    state("lag p50", p50, "ms");
    state("lag p99", p99, "ms");
    state("lag longest", last, "ms");
    if matches!(work, Work::BurstAtOne(_)) {
        state(
            "burst is everywhere after",
            cost.burst_ns as f64 / 1e6,
            "ms",
        );
    }
    state("frames per member", cost.frames, "1/s");
    state("bytes per member", cost.bytes, "bytes/s");
    state("time in the machine per member", cost.cpu_us, "us/s");
    if work == Work::Idle {
        state(
            "frames per member until all met",
            cost.meeting_frames,
            "frames",
        );
        state("memory per member", cost.memory, "bytes");
    }
    let busiest = format!("{name}: frames of the busiest member");
    figures.push(match most {
        Some(most) => Figure::barred(busiest, cost.frames_most, "1/s", Bar::AtMost(most)),
        None => Figure::stated(busiest, cost.frames_most, "1/s"),
    });
    let unreached = format!("{name}: hits that did not arrive");
    figures.push(Figure::barred(
        unreached,
        cost.unreached as f64,
        "pairs",
        Bar::Exactly(0.0),
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_flock_is_measured_both_ways() {
        let figures = measure(12, 200, Some(10_000.0)).unwrap();
        assert!(
            figures.iter().all(|f| f.holds != Some(false)),
            "{figures:?}"
        );
        assert!(figures.iter().any(|f| f.holds == Some(true)));
        assert_eq!(coverage(1_024), 9);
    }
}
