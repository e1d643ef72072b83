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
use crate::rig::Picker;
use crate::BenchError;

/// How often the schedule is looked at; calls that are due by then leave together.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Seed of the arrivals.
const SEED: u64 = 1;

/// What one load came to.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    offered: u64,
    admitted: u64,
    failed: u64,
}

/// Arrivals of one client: independent of each other and of the other clients (exponential pauses),
/// because clients in step would meet the limit in step, and show less than they should.
struct Arrivals {
    random: Picker,
    mean: Duration,
    next: Instant,
}

impl Arrivals {
    fn due(&mut self, now: Instant) -> bool {
        if self.next > now {
            return false;
        }
        // Uniform in (0, 1], from the upper 53 bits.
        let uniform = ((self.random.next() >> 11) + 1) as f64 / (1u64 << 53) as f64;
        self.next += self.mean.mul_f64(-uniform.ln());
        true
    }
}

/// Offers one member's share of a load over its time.
async fn offer(
    client: load::Client,
    key: String,
    mut arrivals: Arrivals,
    until: Instant,
) -> Result<Sum, BenchError> {
    let mut every = interval_at(arrivals.next, LOOK_EVERY);
    every.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut open = JoinSet::new();
    let mut sum = Sum::default();
    let count = |sum: &mut Sum, answer: Option<bool>| match answer {
        Some(admitted) => sum.admitted += u64::from(admitted),
        None => sum.failed += 1,
    };
    while arrivals.next < until {
        every.tick().await;
        let now = Instant::now().min(until);
        while arrivals.due(now) {
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

/// Measures the standard number of members.
///
/// # Errors
/// As [`measure_of`].
pub async fn measure(options: &ServedOptions) -> Result<Vec<Figure>, BenchError> {
    measure_of(options, CLUSTER_MEMBERS, &CLUSTER_LOADS).await
}

/// Starts the members, waits for a fresh window and offers all loads in it.
///
/// # Errors
/// A member does not start, calls fail, or the window ended too early.
pub async fn measure_of(
    options: &ServedOptions,
    count: usize,
    offered: &[(u64, u64, Option<f64>)],
) -> Result<Vec<Figure>, BenchError> {
    let (_dir, gabiond) = members(options, count, CLUSTER_LIMIT).await?;
    let mut clock = load::connect(gabiond[0].envoy).await?;
    let before = wait_for_room(&mut clock, CLUSTER_LOAD_S + 2).await?;
    let started = Instant::now();
    let mut loads = JoinSet::new();
    let mut random = Picker(SEED);
    for (i, (times, length_s, _)) in offered.iter().enumerate() {
        let length = Duration::from_secs(*length_s);
        let calls = times * CLUSTER_LIMIT / count as u64;
        for member in &gabiond {
            let client = load::connect(member.envoy).await?;
            let key = format!("times-{times}-{length_s}");
            let arrivals = Arrivals {
                random: Picker(random.next()),
                mean: length.div_f64(calls as f64),
                next: Instant::now(),
            };
            let run = offer(client, key, arrivals, Instant::now() + length);
            loads.spawn(async move { run.await.map(|sum| (i, sum)) });
        }
    }
    let mut sums = vec![Sum::default(); offered.len()];
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
    for (load, sum) in offered.iter().zip(sums) {
        figures.extend(judged(count, *load, sum)?);
    }
    Ok(figures)
}

fn judged(
    count: usize,
    load: (u64, u64, Option<f64>),
    sum: Sum,
) -> Result<Vec<Figure>, BenchError> {
    let (times, length_s, bar) = load;
    if sum.failed * 1_000 > sum.offered {
        return Err(BenchError::Void(format!(
            "{} of {} calls failed",
            sum.failed, sum.offered
        )));
    }
    let percent = sum.admitted as f64 / CLUSTER_LIMIT as f64 * 100.0;
    let over = (percent - 100.0).max(0.0);
    let name = |what: &str| format!("{count} members, {times} x the limit in {length_s} s: {what}");
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
