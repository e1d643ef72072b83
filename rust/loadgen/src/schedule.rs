//! When each request is due.
//!
//! Owns: the open-loop schedule. Promises: arrival `i` is due exactly `floor(i / rate)` after the
//! start, with no drift however long the run, and does not depend on any answer. Never: reads
//! a clock.

use crate::limits::{MAX_DURATION_S, MAX_RATE_PER_S};

/// Milli-requests per second in one request per second: rates are kept in thousandths.
const MILLI: u128 = 1_000;
const NS_PER_S: u128 = 1_000_000_000;

/// A constant offered rate over a fixed time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    milli_rate: u64,
    count: u64,
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
        Ok(Schedule { milli_rate, count })
    }

    /// How many requests are offered in all.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Nanoseconds after the start at which request `i` is due.
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
