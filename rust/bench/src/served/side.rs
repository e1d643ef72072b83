//! One server under load, and two of them in turns.
//!
//! What is compared runs in the same minute under the same client, round by round in changing
//! order, and the median of the pairs counts: a machine that slows down slows both.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use gabion_loader::mix::MixSpec;
use gabion_loader::run::{run, Live, Plan};
use gabion_loader::schedule::{Arrivals, Schedule};
use gabion_loader::target::Target;
use gabion_loader::template::{HitsField, Shape};

use super::load;
use crate::limits::{PACED_CONCURRENCY, PACED_KEYS, PACED_ROUND, RATIO_CONNECTIONS};
use crate::report::percentile;
use crate::{system, BenchError};

/// One server under load.
pub(super) struct Side {
    addr: SocketAddr,
    /// The processes whose time counts.
    pids: Vec<u32>,
    /// Descriptors of a request.
    descriptors: usize,
    /// Requests per CPU second and per second, one per round, times 1,000 (for exact ordering).
    rounds: Vec<u64>,
    per_s: Vec<u64>,
    p99_ns: Vec<u64>,
}

impl Side {
    pub(super) fn new(addr: SocketAddr, pids: Vec<u32>) -> Side {
        Side {
            addr,
            pids,
            descriptors: 1,
            rounds: Vec::new(),
            per_s: Vec::new(),
            p99_ns: Vec::new(),
        }
    }

    /// The same, asked about several descriptors at once.
    pub(super) fn with_descriptors(self, descriptors: usize) -> Side {
        Side {
            descriptors,
            ..self
        }
    }

    fn cpu_seconds(&self) -> Result<f64, BenchError> {
        self.pids.iter().map(|pid| system::cpu_seconds(*pid)).sum()
    }

    /// A closed loop for `length`; not noted when it only warms up.
    async fn round(&mut self, length: Duration, is_noted: bool) -> Result<(), BenchError> {
        let before = self.cpu_seconds()?;
        let answered = load::closed_loops(self.addr, self.descriptors, length).await? as f64;
        let used = self.cpu_seconds()? - before;
        if used <= 0.0 || answered == 0.0 {
            return Err(BenchError::Void(format!(
                "{answered} answers in {used} CPU seconds"
            )));
        }
        if is_noted {
            self.rounds.push(thousandths(answered / used));
            self.per_s
                .push(thousandths(answered / length.as_secs_f64()));
        }
        Ok(())
    }

    /// An open loop at `per_s`; notes the 99th percentile, from the scheduled moments.
    async fn paced(&mut self, per_s: f64, seed: u64) -> Result<(), BenchError> {
        let void = |e: &dyn std::fmt::Display| BenchError::Void(e.to_string());
        let target: Target = self.addr.to_string().parse().map_err(|e| void(&e))?;
        let schedule = Schedule::constant(per_s, PACED_ROUND.as_secs_f64());
        let keys = load::DESCRIPTOR_KEYS.iter().take(self.descriptors);
        let templates: Vec<String> = keys.map(|key| format!("{key}={{key}}")).collect();
        let shape = Shape::grpc("bench", &templates, HitsField::Request);
        let plan = Plan {
            schedule: schedule
                .map_err(|e| void(&e))?
                .spread(Arrivals::Independent),
            targets: vec![target],
            mix: MixSpec::Uniform(PACED_KEYS),
            seed,
            shape: shape.map_err(|e| void(&e))?,
            concurrency: PACED_CONCURRENCY,
            connections: RATIO_CONNECTIONS,
            timeout: Duration::from_secs(5),
        };
        let report = run(plan, Arc::new(Live::default()))
            .await
            .map_err(|e| void(&e))?;
        if report.error_count > 0 || report.admitted == 0 {
            return Err(BenchError::Void(format!(
                "at {per_s:.0}/s: {} errors, {} admitted",
                report.error_count, report.admitted
            )));
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // positive, below 2^53
        self.p99_ns
            .push((report.latency.p99_us * 1_000.0).round() as u64);
        Ok(())
    }

    /// Median of the rounds: requests per CPU second.
    pub(super) fn per_cpu_s(&self) -> f64 {
        median(&self.rounds) / 1e3
    }

    /// Median of the rounds: requests per second.
    pub(super) fn per_s(&self) -> f64 {
        median(&self.per_s) / 1e3
    }

    /// Median of the paced rounds' 99th percentiles, microseconds.
    pub(super) fn p99_us(&self) -> f64 {
        median(&self.p99_ns) / 1e3
    }
}

fn median(samples: &[u64]) -> f64 {
    percentile(&mut samples.to_vec(), 0.5).unwrap_or(0) as f64
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // positive, below 2^53
fn thousandths(value: f64) -> u64 {
    (value * 1e3) as u64
}

/// How often one side did what the other did, per CPU second: the median of pairs and the worst.
pub(super) struct Ratio {
    pub(super) median: f64,
    pub(super) worst: f64,
}

/// Closed loops on both, in turns; `left` per CPU second against `right`.
pub(super) async fn in_turns(
    left: &mut Side,
    right: &mut Side,
    rounds: usize,
    length: Duration,
) -> Result<Ratio, BenchError> {
    left.round(Duration::from_secs(1), false).await?;
    right.round(Duration::from_secs(1), false).await?;
    let mut ratios = Vec::new();
    for n in 0..rounds {
        if n % 2 == 0 {
            left.round(length, true).await?;
            right.round(length, true).await?;
        } else {
            right.round(length, true).await?;
            left.round(length, true).await?;
        }
        let last = |side: &Side| side.rounds.last().copied().unwrap_or(0);
        ratios.push(last(left) * 10_000 / last(right).max(1));
    }
    Ok(Ratio {
        median: median(&ratios) / 1e4,
        worst: percentile(&mut ratios, 0.0).unwrap_or(0) as f64 / 1e4,
    })
}

/// Open loops on both, in turns, at half of what the slower one can do; gives that rate.
pub(super) async fn paced_in_turns(
    left: &mut Side,
    right: &mut Side,
    rounds: usize,
) -> Result<f64, BenchError> {
    let per_s = left.per_s().min(right.per_s()) / 2.0;
    for n in 0..rounds {
        let seed = n as u64 + 1;
        if n % 2 == 0 {
            left.paced(per_s, seed).await?;
            right.paced(per_s, seed).await?;
        } else {
            right.paced(per_s, seed).await?;
            left.paced(per_s, seed).await?;
        }
    }
    Ok(per_s)
}
