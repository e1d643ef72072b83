//! Three members, one window: how far the sum of what they admit is from the limit.
//!
//! Open loop: calls go out on schedule, whatever the answers do. Each load has a key of its own;
//! all run in the same window.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{interval_at, Instant, MissedTickBehavior};

use super::exact::wait_for_room;
use super::{load, members, ServedOptions};
use crate::limits::{
    CLUSTER_ADMITTED_MIN_PERCENT, CLUSTER_LIMIT, CLUSTER_LOADS, CLUSTER_LOAD_S, CLUSTER_MEMBERS,
};
use crate::report::{Bar, Figure};
use crate::BenchError;

/// Calls leave in groups, this many per second.
const TICKS_PER_S: u32 = 200;

/// What one load came to.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    offered: u64,
    admitted: u64,
    failed: u64,
}

/// Offers one member's share of a load, evenly over its time.
async fn offer(
    client: load::Client,
    key: String,
    calls: u64,
    length_s: u64,
) -> Result<Sum, BenchError> {
    let ticks = length_s * u64::from(TICKS_PER_S);
    let tick = Duration::from_secs(1) / TICKS_PER_S;
    let mut every = interval_at(Instant::now() + tick, tick);
    every.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut open = JoinSet::new();
    let mut sum = Sum::default();
    let count = |sum: &mut Sum, answer: Option<bool>| match answer {
        Some(admitted) => sum.admitted += u64::from(admitted),
        None => sum.failed += 1,
    };
    for tick in 1..=ticks {
        every.tick().await;
        while sum.offered < calls * tick / ticks {
            sum.offered += 1;
            let (mut client, key) = (client.clone(), key.clone());
            open.spawn(async move { load::ask(&mut client, &key).await.ok().map(|s| s.admitted) });
        }
        while let Some(ended) = open.try_join_next() {
            count(&mut sum, ended.ok().flatten());
        }
    }
    while let Some(ended) = open.join_next().await {
        count(&mut sum, ended.ok().flatten());
    }
    Ok(sum)
}

/// Starts the members, waits for a fresh window and offers all loads in it.
///
/// # Errors
/// A member does not start, calls fail, or the window ended too early.
pub async fn measure(options: &ServedOptions) -> Result<Vec<Figure>, BenchError> {
    let (_dir, gabiond) = members(options, CLUSTER_MEMBERS, CLUSTER_LIMIT).await?;
    let mut clock = load::connect(gabiond[0].envoy).await?;
    let before = wait_for_room(&mut clock, CLUSTER_LOAD_S + 2).await?;
    let started = Instant::now();
    let mut loads = JoinSet::new();
    for (i, (times, length_s, _)) in CLUSTER_LOADS.iter().enumerate() {
        for member in &gabiond {
            let client = load::connect(member.envoy).await?;
            let calls = times * CLUSTER_LIMIT / CLUSTER_MEMBERS as u64;
            let run = offer(
                client,
                format!("times-{times}-{length_s}"),
                calls,
                *length_s,
            );
            loads.spawn(async move { run.await.map(|sum| (i, sum)) });
        }
    }
    let mut sums = [Sum::default(); CLUSTER_LOADS.len()];
    while let Some(ended) = loads.join_next().await {
        let (i, sum) = ended.map_err(|e| BenchError::Void(e.to_string()))??;
        sums[i].offered += sum.offered;
        sums[i].admitted += sum.admitted;
        sums[i].failed += sum.failed;
    }
    let after = load::ask(&mut clock, "clock").await?.reset_s;
    if after > before {
        return Err(BenchError::Void(format!(
            "the load took {:?} and met the end of the window",
            started.elapsed()
        )));
    }
    let mut figures = Vec::new();
    for (load, sum) in CLUSTER_LOADS.iter().zip(sums) {
        figures.extend(judged(*load, sum)?);
    }
    Ok(figures)
}

fn judged(load: (u64, u64, Option<f64>), sum: Sum) -> Result<Vec<Figure>, BenchError> {
    let (times, length_s, bar) = load;
    if sum.failed * 1_000 > sum.offered {
        return Err(BenchError::Void(format!(
            "{} of {} calls failed",
            sum.failed, sum.offered
        )));
    }
    let percent = sum.admitted as f64 / CLUSTER_LIMIT as f64 * 100.0;
    let over = (percent - 100.0).max(0.0);
    let name = |what: &str| format!("3 members, {times} x the limit in {length_s} s: {what}");
    let (admitted, excess) = (name("admitted"), name("over-admission"));
    let least = Bar::AtLeast(CLUSTER_ADMITTED_MIN_PERCENT);
    let excess = match bar {
        Some(most) => Figure::barred(excess, over, "% of limit", Bar::AtMost(most)),
        None => Figure::stated(excess, over, "% of limit"),
    };
    Ok(vec![
        Figure::stated(name("offered"), sum.offered as f64, "hits"),
        Figure::barred(admitted, percent, "% of limit", least),
        excess,
    ])
}
