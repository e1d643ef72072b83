//! The cluster clock: local monotonic time plus an offset that the cluster agrees on.
//!
//! I own the one number that turns monotonic time into cluster time. I promise that reading it is
//! one vDSO clock read and one atomic load, and that cluster time never runs backwards while it is
//! slewed. I never look at the wall clock after start, so that setting it changes nothing.

use std::sync::atomic::{AtomicI64, Ordering};

use rustix::time::{clock_gettime, ClockId, Timespec};

use crate::limits::SLEW_PPM;

/// Monotonic time in nanoseconds, the same for every process of this host since its boot.
pub fn monotonic_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Monotonic))
}

/// Wall-clock time in nanoseconds since 1970; 0 when the clock stands before that.
pub fn wall_clock_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Realtime))
}

fn nanoseconds(time: Timespec) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let fraction = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds
        .saturating_mul(1_000_000_000)
        .saturating_add(fraction)
}

/// Cluster time for deciders; shared by `Arc`, written by the driver alone.
#[derive(Debug)]
pub struct ClusterClock {
    offset_ns: AtomicI64,
}

impl ClusterClock {
    /// A clock that agrees with this host's wall clock at this moment.
    pub fn from_wall_clock() -> Self {
        Self::ahead_of_wall_clock(0)
    }

    /// A clock that is ahead of this host's wall clock: for tests of what a cluster does with a
    /// clock that is wrong.
    pub fn ahead_of_wall_clock(ahead_ns: u64) -> Self {
        let wall_ns = wall_clock_ns().saturating_add(ahead_ns);
        Self::with_offset(difference_ns(wall_ns, monotonic_ns()))
    }

    /// A clock with a known offset (kept by an earlier driver), in nanoseconds.
    pub fn with_offset(offset_ns: i64) -> Self {
        Self {
            offset_ns: AtomicI64::new(offset_ns),
        }
    }

    /// Cluster time in nanoseconds since 1970.
    #[inline]
    pub fn now_ns(&self) -> u64 {
        self.at(monotonic_ns())
    }

    /// Cluster time at a given monotonic time.
    #[inline]
    pub fn at(&self, mono_ns: u64) -> u64 {
        mono_ns.saturating_add_signed(self.offset_ns())
    }

    /// What is added to monotonic time, in nanoseconds.
    #[inline]
    pub fn offset_ns(&self) -> i64 {
        // Relaxed: one number that carries no other memory with it; any recent value is right.
        self.offset_ns.load(Ordering::Relaxed)
    }

    /// Sets the offset. For the one driver of this clock.
    pub fn set_offset(&self, offset_ns: i64) {
        self.offset_ns.store(offset_ns, Ordering::Relaxed);
    }
}

/// `a - b`, saturating at the ends of the signed range.
pub(crate) fn difference_ns(a: u64, b: u64) -> i64 {
    let wide = i128::from(a) - i128::from(b);
    i64::try_from(wide).unwrap_or(if wide < 0 { i64::MIN } else { i64::MAX })
}

/// Brings an offset to where the node wants it: at once, or by at most [`SLEW_PPM`].
#[derive(Debug, Clone)]
pub(crate) struct Steering {
    base_ns: i64,
    target_ns: i64,
    current_ns: i64,
    moved_at_mono_ns: u64,
}

impl Steering {
    /// Starts at `offset_ns`, which corrections are relative to.
    pub(crate) fn new(offset_ns: i64, mono_ns: u64) -> Self {
        Self {
            base_ns: offset_ns,
            target_ns: offset_ns,
            current_ns: offset_ns,
            moved_at_mono_ns: mono_ns,
        }
    }

    /// Takes the node's absolute correction, relative to the offset at start.
    pub(crate) fn correct(&mut self, correction_ns: i64, step: bool, mono_ns: u64) {
        self.advance(mono_ns);
        self.target_ns = self.base_ns.saturating_add(correction_ns);
        if step {
            self.current_ns = self.target_ns;
        }
    }

    /// Moves towards the target for the time that passed; returns the offset to use now.
    pub(crate) fn advance(&mut self, mono_ns: u64) -> i64 {
        let passed_ns = mono_ns.saturating_sub(self.moved_at_mono_ns);
        let most_ns = passed_ns.saturating_mul(SLEW_PPM) / 1_000_000;
        if most_ns == 0 && self.current_ns != self.target_ns {
            return self.current_ns; // too soon for a whole nanosecond: let the time add up
        }
        self.moved_at_mono_ns = self.moved_at_mono_ns.max(mono_ns);
        let most_ns = i64::try_from(most_ns).unwrap_or(i64::MAX);
        let missing_ns = self.target_ns.saturating_sub(self.current_ns);
        self.current_ns = self
            .current_ns
            .saturating_add(missing_ns.clamp(most_ns.saturating_neg(), most_ns));
        self.current_ns
    }

    /// The part of the correction that is already in force.
    pub(crate) fn applied_ns(&self) -> i64 {
        self.current_ns.saturating_sub(self.base_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    #[test]
    fn a_fresh_clock_agrees_with_the_wall_clock() {
        let clock = ClusterClock::from_wall_clock();
        let before = wall_clock_ns();
        let now = clock.now_ns();
        assert!(now.abs_diff(before) < SECOND_NS, "{now} against {before}");
        let ahead = ClusterClock::ahead_of_wall_clock(30 * SECOND_NS).now_ns();
        assert!(ahead.abs_diff(before + 30 * SECOND_NS) < SECOND_NS);
    }

    #[test]
    fn a_step_is_taken_at_once() {
        let mut steering = Steering::new(1_000, 0);
        steering.correct(-20_000_000_000, true, 5);
        assert_eq!(steering.advance(5), 1_000 - 20_000_000_000);
        assert_eq!(steering.applied_ns(), -20_000_000_000);
    }

    #[test]
    fn slewing_bends_by_500_ppm_and_stops_at_the_target() {
        let mut steering = Steering::new(0, 0);
        steering.correct(1_000_000, false, 0); // one millisecond late: takes two seconds
        assert_eq!(steering.advance(SECOND_NS), 500_000);
        assert_eq!(steering.advance(2 * SECOND_NS), 1_000_000);
        assert_eq!(steering.advance(9 * SECOND_NS), 1_000_000);
        steering.correct(0, false, 9 * SECOND_NS);
        assert_eq!(steering.advance(10 * SECOND_NS), 500_000);
    }

    #[test]
    fn cluster_time_never_runs_backwards_while_it_is_slewed() {
        let mut steering = Steering::new(0, 0);
        steering.correct(-50_000_000, false, 0);
        let mut last = 0;
        for mono_ns in (0..SECOND_NS).step_by(1_234_567) {
            let now = mono_ns.saturating_add_signed(steering.advance(mono_ns));
            assert!(now >= last, "went back from {last} to {now}");
            last = now;
        }
    }

    #[test]
    fn a_correction_is_absolute_and_not_added_up() {
        let mut steering = Steering::new(7, 0);
        steering.correct(100, true, 0);
        steering.correct(100, true, 0);
        assert_eq!(steering.advance(0), 107);
    }

    #[test]
    fn many_short_turns_slew_as_far_as_one_long_one() {
        let mut steering = Steering::new(0, 0);
        steering.correct(1_000_000, false, 0);
        for mono_ns in (0..=SECOND_NS).step_by(500) {
            steering.advance(mono_ns);
        }
        assert!(steering.current_ns >= 490_000, "{}", steering.current_ns);
    }

    #[test]
    fn case_23_extreme_numbers_saturate() {
        let clock = ClusterClock::with_offset(i64::MIN);
        assert_eq!(clock.at(5), 0);
        let mut steering = Steering::new(i64::MAX, 0);
        steering.correct(i64::MAX, true, u64::MAX);
        assert_eq!(steering.advance(0), i64::MAX);
        assert_eq!(difference_ns(0, u64::MAX), i64::MIN);
    }
}
