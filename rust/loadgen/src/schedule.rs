//! When each request is due.
//!
//! Owns: the open-loop schedule. Promises: even arrival `i` is due exactly `floor(i / rate)` after
//! the start, with no drift however long the run; independent arrivals are as many, within the same
//! time, and follow from their seed; neither depends on any answer. Never: reads a clock.

use crate::limits::{MAX_DURATION_S, MAX_RATE_PER_S};
use crate::mix::SplitMix64;

/// Milli-requests per second in one request per second: rates are kept in thousandths.
const MILLI: u128 = 1_000;
const NS_PER_S: u128 = 1_000_000_000;

/// How arrivals are spread over the time of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// At equal distances: like one metronome. Members that are asked in turn then never race.
    Even,
    /// Each at a moment of its own, as those of many clients (a Poisson process of known count).
    Independent,
}

/// A constant offered rate over a fixed time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    milli_rate: u64,
    count: u64,
    arrivals: Arrivals,
}

/// The moments of one run, in order.
#[derive(Clone, Debug)]
pub struct Moments {
    schedule: Schedule,
    next: u64,
    last_ns: f64,
    rng: SplitMix64,
}

impl Iterator for Moments {
    /// Nanoseconds after the start.
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let left = self
            .schedule
            .count
            .checked_sub(self.next)
            .filter(|left| *left > 0)?;
        let i = self.next;
        self.next += 1;
        match self.schedule.arrivals {
            Arrivals::Even => Some(self.schedule.due_ns(i)),
            Arrivals::Independent => {
                // the first of `left` uniform moments in the time that is left
                let end_ns = self.schedule.due_ns(self.schedule.count) as f64;
                let share = 1.0 - (1.0 - self.rng.unit()).powf(1.0 / left as f64);
                self.last_ns += (end_ns - self.last_ns) * share;
                Some(round_to_u64(self.last_ns))
            }
        }
    }
}

/// Why a schedule cannot be built. Nothing was started.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum ScheduleError {
    /// The rate is not usable.
    #[error("rate must be from 0.001 to {MAX_RATE_PER_S} requests per second, not {0}")]
    Rate(f64),
    /// The duration is not usable.
    #[error("duration must be more than 0 and at most {MAX_DURATION_S} seconds, not {0}")]
    Duration(f64),
    /// Rate and duration together give no request at all.
    #[error("{0} requests per second for {1} seconds is less than one request")]
    Empty(f64, f64),
}

impl Schedule {
    /// `rate_per_s` requests per second (kept to a thousandth) for `duration_s` seconds.
    ///
    /// # Errors
    /// A rate or duration out of bounds, or a product below one request.
    pub fn constant(rate_per_s: f64, duration_s: f64) -> Result<Schedule, ScheduleError> {
        if !(0.001..=MAX_RATE_PER_S).contains(&rate_per_s) {
            return Err(ScheduleError::Rate(rate_per_s));
        }
        if !(duration_s > 0.0 && duration_s <= MAX_DURATION_S) {
            return Err(ScheduleError::Duration(duration_s));
        }
        let milli_rate = round_to_u64(rate_per_s * 1_000.0);
        let duration_ns = round_to_u64(duration_s * 1e9);
        let count = u128::from(milli_rate) * u128::from(duration_ns) / (MILLI * NS_PER_S);
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        if count == 0 {
            return Err(ScheduleError::Empty(rate_per_s, duration_s));
        }
        Ok(Schedule {
            milli_rate,
            count,
            arrivals: Arrivals::Even,
        })
    }

    /// The same rate and time with arrivals spread as said.
    pub fn spread(self, arrivals: Arrivals) -> Schedule {
        Schedule { arrivals, ..self }
    }

    /// The moments of one run; independent ones follow from `seed`.
    pub fn moments(&self, seed: u64) -> Moments {
        // apart from the keys, which are drawn from the same seed
        let rng = SplitMix64::new(seed ^ 0xA5A5_5A5A_C3C3_3C3C);
        Moments {
            schedule: *self,
            next: 0,
            last_ns: 0.0,
            rng,
        }
    }

    /// How many requests are offered in all.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Nanoseconds after the start at which request `i` of even arrivals is due.
    pub fn due_ns(&self, i: u64) -> u64 {
        let due = u128::from(i) * MILLI * NS_PER_S / u128::from(self.milli_rate);
        u64::try_from(due).unwrap_or(u64::MAX)
    }
}

/// Both callers have checked that the value is finite, positive and far below 2^63.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn round_to_u64(value: f64) -> u64 {
    value.round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_are_exact_and_do_not_drift() {
        let schedule = Schedule::constant(240.0, 10.0).unwrap();
        assert_eq!(schedule.count(), 2_400);
        assert_eq!(schedule.due_ns(0), 0);
        assert_eq!(schedule.due_ns(1), 4_166_666);
        assert_eq!(schedule.due_ns(240), 1_000_000_000);
        assert_eq!(schedule.due_ns(2_399), 9_995_833_333);
        let long = Schedule::constant(999_999.0, 86_400.0).unwrap();
        assert_eq!(long.due_ns(999_999 * 86_000), 86_000 * 1_000_000_000);
    }

    #[test]
    fn a_fractional_rate_is_exact() {
        let schedule = Schedule::constant(0.5, 10.0).unwrap();
        assert_eq!(schedule.count(), 5);
        assert_eq!(schedule.due_ns(3), 6_000_000_000);
        let third = Schedule::constant(0.333, 1_000.0).unwrap();
        assert_eq!(third.count(), 333);
        assert_eq!(third.due_ns(333), 1_000_000_000_000);
    }

    #[test]
    fn due_times_never_go_backwards() {
        let schedule = Schedule::constant(7_919.123, 2.0).unwrap();
        let mut last = 0;
        for i in 0..schedule.count() {
            let due = schedule.due_ns(i);
            assert!(due >= last && due < 2_000_000_000);
            last = due;
        }
    }

    #[test]
    fn independent_arrivals_are_as_many_in_the_same_time_and_irregular() {
        let seed = 20_261_129;
        println!("seed {seed}");
        let schedule = Schedule::constant(2_000.0, 10.0).unwrap();
        let even: Vec<u64> = schedule.moments(seed).collect();
        assert!(even
            .iter()
            .enumerate()
            .all(|(i, at)| *at == schedule.due_ns(i as u64)));
        let schedule = schedule.spread(Arrivals::Independent);
        let moments: Vec<u64> = schedule.moments(seed).collect();
        assert_eq!(moments, schedule.moments(seed).collect::<Vec<_>>());
        assert_ne!(moments, schedule.moments(seed + 1).collect::<Vec<_>>());
        assert_eq!(moments.len(), 20_000);
        assert!(moments.is_sorted() && *moments.last().unwrap() <= 10_000_000_000);
        // each tenth of the time holds a tenth of them, within five standard deviations
        for tenth in 0..10u64 {
            let range = tenth * 1_000_000_000..(tenth + 1) * 1_000_000_000;
            let n = moments.iter().filter(|at| range.contains(at)).count() as f64;
            assert!((n - 2_000.0).abs() < 5.0 * 2_000f64.sqrt(), "{tenth}: {n}");
        }
        // the distances are exponential: their standard deviation is their mean, 0.5 ms
        let gaps: Vec<f64> = moments.windows(2).map(|w| (w[1] - w[0]) as f64).collect();
        let variance = gaps.iter().map(|g| (g - 5e5).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!(
            (variance.sqrt() / 5e5 - 1.0).abs() < 0.05,
            "{}",
            variance.sqrt()
        );
    }

    #[test]
    fn unusable_numbers_are_refused_with_the_number() {
        assert_eq!(Schedule::constant(0.0, 1.0), Err(ScheduleError::Rate(0.0)));
        assert!(Schedule::constant(f64::NAN, 1.0).is_err());
        assert!(Schedule::constant(2e6, 1.0).is_err());
        assert_eq!(
            Schedule::constant(1.0, 0.0),
            Err(ScheduleError::Duration(0.0))
        );
        assert!(Schedule::constant(1.0, f64::INFINITY).is_err());
        assert_eq!(
            Schedule::constant(0.5, 1.0),
            Err(ScheduleError::Empty(0.5, 1.0))
        );
    }
}
