//! What a run came to: counted while it runs, read by people and machines after.
//!
//! Owns: counters, histograms and their two forms. Promises: bounded memory whatever the run; the
//! JSON form keeps its key names. Never: leaves out what went wrong (late, unsent, errors by kind).

use std::collections::BTreeMap;
use std::fmt::Write as _;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::client::Outcome;
use crate::limits::{HISTOGRAM_DIGITS, LATE_NS, MAX_ERROR_KINDS, MAX_LATENCY_NS};

/// Latencies in nanoseconds, to three digits; longer ones count as [`MAX_LATENCY_NS`].
#[derive(Clone, Debug)]
pub struct Latencies(Histogram<u64>);

impl Default for Latencies {
    fn default() -> Self {
        Self::new()
    }
}

impl Latencies {
    /// An empty histogram.
    ///
    /// # Panics
    /// Never: the bounds are constants that a test checks.
    #[allow(clippy::expect_used)]
    pub fn new() -> Latencies {
        let histogram = Histogram::new_with_bounds(1_000, MAX_LATENCY_NS, HISTOGRAM_DIGITS);
        Latencies(histogram.expect("constant histogram bounds are valid"))
    }

    /// Counts one latency.
    pub fn record(&mut self, ns: u64) {
        self.0.saturating_record(ns.max(1));
    }

    /// The figures a report shows.
    pub fn summary(&self) -> Summary {
        let us = |ns: u64| round1(ns as f64 / 1_000.0);
        Summary {
            count: self.0.len(),
            mean_us: round1(self.0.mean() / 1_000.0),
            p50_us: us(self.0.value_at_quantile(0.50)),
            p90_us: us(self.0.value_at_quantile(0.90)),
            p99_us: us(self.0.value_at_quantile(0.99)),
            p999_us: us(self.0.value_at_quantile(0.999)),
            max_us: us(self.0.max()),
        }
    }
}

fn round1(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

/// Latency figures in microseconds, to a tenth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)] // the names say it
pub struct Summary {
    pub count: u64,
    pub mean_us: f64,
    pub p50_us: f64,
    pub p90_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    pub max_us: f64,
}

/// Figures of one target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TargetReport {
    /// Its URL.
    pub url: String,
    /// Requests sent to it.
    pub sent: u64,
    /// Let through.
    pub admitted: u64,
    /// Over a limit.
    pub denied: u64,
    /// Neither.
    pub errors: u64,
    /// From the scheduled time to the answer.
    pub latency: Summary,
}

/// The whole report. `offered = sent + unsent`, `sent = admitted + denied + error_count`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Requests that the schedule held (fewer when the run was stopped early).
    pub offered: u64,
    /// Requests sent.
    pub sent: u64,
    /// Of those, sent more than 5 ms after their scheduled time.
    pub late: u64,
    /// Not sent: too many were waiting, or the time to send was over.
    pub unsent: u64,
    /// Let through.
    pub admitted: u64,
    /// Over a limit.
    pub denied: u64,
    /// Neither, in all.
    pub error_count: u64,
    /// Neither, by kind.
    pub errors: BTreeMap<String, u64>,
    /// From the first scheduled time to the last answer, seconds.
    pub elapsed_s: f64,
    /// The seed of the key mix.
    pub seed: u64,
    /// From the scheduled time to the answer: admitted, denied and timed out.
    pub latency: Summary,
    /// From the scheduled time to the sending: the load generator's own delay.
    pub send_lag: Summary,
    /// By target.
    pub targets: Vec<TargetReport>,
}

/// Counts while the run goes on.
#[derive(Debug)]
pub struct Recorder {
    report: Report,
    latency: Latencies,
    send_lag: Latencies,
    by_target: Vec<Latencies>,
}

impl Recorder {
    /// Nothing counted yet.
    pub fn new(urls: &[String], seed: u64) -> Recorder {
        let targets = urls
            .iter()
            .map(|url| TargetReport {
                url: url.clone(),
                ..TargetReport::default()
            })
            .collect();
        Recorder {
            report: Report {
                seed,
                targets,
                ..Report::default()
            },
            latency: Latencies::new(),
            send_lag: Latencies::new(),
            by_target: urls.iter().map(|_| Latencies::new()).collect(),
        }
    }

    /// Counts a request that was sent `lag_ns` after its time and answered `latency_ns` after it.
    pub fn answered(&mut self, target: usize, outcome: &Outcome, lag_ns: u64, latency_ns: u64) {
        let at = &mut self.report.targets[target];
        self.report.sent += 1;
        at.sent += 1;
        self.report.late += u64::from(lag_ns > LATE_NS);
        self.send_lag.record(lag_ns);
        let timed = match outcome {
            Outcome::Admitted => {
                self.report.admitted += 1;
                at.admitted += 1;
                true
            }
            Outcome::Denied => {
                self.report.denied += 1;
                at.denied += 1;
                true
            }
            Outcome::Error(kind) => {
                self.report.error_count += 1;
                at.errors += 1;
                let full = self.report.errors.len() >= MAX_ERROR_KINDS;
                let known = self.report.errors.contains_key(kind.as_ref());
                let kind = if full && !known {
                    "other"
                } else {
                    kind.as_ref()
                };
                *self.report.errors.entry(kind.to_owned()).or_insert(0) += 1;
                kind == Outcome::TIMEOUT
            }
        };
        if timed {
            self.latency.record(latency_ns);
            self.by_target[target].record(latency_ns);
        }
    }

    /// Counts requests that could not be sent.
    pub fn unsent(&mut self, n: u64) {
        self.report.unsent += n;
    }

    /// The report of everything counted so far.
    pub fn finish(mut self, elapsed_s: f64) -> Report {
        self.report.offered = self.report.sent + self.report.unsent;
        self.report.elapsed_s = (elapsed_s * 1_000.0).round() / 1_000.0;
        self.report.latency = self.latency.summary();
        self.report.send_lag = self.send_lag.summary();
        for (target, latencies) in self.report.targets.iter_mut().zip(&self.by_target) {
            target.latency = latencies.summary();
        }
        self.report
    }
}

impl Report {
    /// The report for people.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let per_s = if self.elapsed_s > 0.0 {
            self.sent as f64 / self.elapsed_s
        } else {
            0.0
        };
        let _ = writeln!(
            out,
            "offered {}  sent {} ({per_s:.0}/s over {:.1} s)  late {}  unsent {}  seed {}",
            self.offered, self.sent, self.elapsed_s, self.late, self.unsent, self.seed
        );
        let _ = writeln!(
            out,
            "admitted {}  denied {}  errors {}",
            self.admitted, self.denied, self.error_count
        );
        for (kind, count) in &self.errors {
            let _ = writeln!(out, "  error {kind}: {count}");
        }
        let _ = writeln!(out, "latency from the scheduled time, us:");
        let _ = writeln!(out, "  {:<28}{}", "all", line(&self.latency));
        for target in &self.targets {
            let _ = writeln!(out, "  {:<28}{}", target.url, line(&target.latency));
        }
        let _ = writeln!(
            out,
            "  {:<28}{}",
            "(of it waiting to be sent)",
            line(&self.send_lag)
        );
        out
    }
}

fn line(s: &Summary) -> String {
    format!(
        "p50 {:.0}  p90 {:.0}  p99 {:.0}  p99.9 {:.0}  max {:.0}",
        s.p50_us, s.p90_us, s.p99_us, s.p999_us, s.max_us
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_samples() {
        let mut latencies = Latencies::new();
        for us in 1..=1_000u64 {
            latencies.record(us * 1_000);
        }
        let s = latencies.summary();
        let near = |got: f64, want: f64| assert!((got - want).abs() <= want * 0.002, "{got}");
        near(s.p50_us, 500.0);
        near(s.p90_us, 900.0);
        near(s.p99_us, 990.0);
        near(s.p999_us, 999.0);
        near(s.max_us, 1_000.0);
        near(s.mean_us, 500.5);
        assert_eq!(s.count, 1_000);
        latencies.record(u64::MAX);
        near(latencies.summary().max_us, MAX_LATENCY_NS as f64 / 1_000.0);
    }

    #[test]
    fn everything_is_counted_once() {
        let mut recorder = Recorder::new(&["a".into(), "b".into()], 9);
        recorder.answered(0, &Outcome::Admitted, 10, 1_000_000);
        recorder.answered(1, &Outcome::Denied, LATE_NS + 1, 2_000_000);
        recorder.answered(1, &Outcome::Error("connect".into()), 0, 1);
        recorder.answered(
            1,
            &Outcome::Error(Outcome::TIMEOUT.into()),
            0,
            5_000_000_000,
        );
        recorder.unsent(3);
        let report = recorder.finish(1.0);
        assert_eq!(
            (report.offered, report.sent, report.unsent, report.late),
            (7, 4, 3, 1)
        );
        assert_eq!(
            (report.admitted, report.denied, report.error_count),
            (1, 1, 2)
        );
        assert_eq!(report.errors["connect"], 1);
        // the refused connection is no latency, the timeout is
        assert_eq!(
            (report.latency.count, report.targets[1].latency.count),
            (3, 2)
        );
        let json = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<Report>(&json).unwrap(), report);
        assert!(report.text().contains("error connect: 1"));
    }

    #[test]
    fn kinds_of_error_are_bounded() {
        let mut recorder = Recorder::new(&["a".into()], 0);
        for i in 0..1_000 {
            recorder.answered(0, &Outcome::Error(format!("http_{i}").into()), 0, 1);
        }
        let report = recorder.finish(1.0);
        assert_eq!(report.errors.len(), MAX_ERROR_KINDS + 1);
        assert_eq!(report.errors["other"], 1_000 - MAX_ERROR_KINDS as u64);
    }
}
