//! A member's clocks, all driven by the world's true time.
//!
//! True time is nanoseconds since the start of the world. A member sees a monotonic clock that
//! starts anywhere, drifts, and may stand still (a host that was asleep), plus a wall clock that
//! it reads once, when its driver starts; cluster time = monotonic + that base + the offset its
//! node found.

use serde::{Deserialize, Serialize};

/// Unix time at the start of every world, nanoseconds: 2026-11-29 00:00:00 UTC.
pub const WORLD_UNIX_NS: u64 = 1_795_910_400_000_000_000;

/// How a clock is wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClockFault {
    /// What the wall clock is ahead of true time when the driver starts, nanoseconds.
    pub wall_error_ns: i64,
    /// How fast the monotonic clock runs too fast, parts per million.
    pub drift_ppm: i32,
}

/// One member's clocks.
#[derive(Clone, Debug)]
pub struct Clock {
    drift_ppm: i64,
    /// True time and monotonic reading of the last change.
    since_true_ns: u64,
    since_mono_ns: u64,
    /// Wall clock minus monotonic clock, read when the driver started.
    base_ns: i64,
    /// What the node added.
    offset_ns: i64,
}

impl Clock {
    /// A clock that starts at true time `now_ns` with the reading `mono_ns`.
    pub fn new(fault: ClockFault, now_ns: u64, mono_ns: u64) -> Self {
        let mut clock = Clock {
            drift_ppm: i64::from(fault.drift_ppm),
            since_true_ns: now_ns,
            since_mono_ns: mono_ns,
            base_ns: 0,
            offset_ns: 0,
        };
        clock.read_wall(now_ns, fault.wall_error_ns);
        clock
    }

    /// The driver starts: reads the wall clock, which is wrong by `error_ns`; no offset yet.
    pub fn read_wall(&mut self, now_ns: u64, error_ns: i64) {
        let wall = WORLD_UNIX_NS
            .saturating_add(now_ns)
            .saturating_add_signed(error_ns);
        self.base_ns =
            i64::try_from(i128::from(wall) - i128::from(self.mono_ns(now_ns))).unwrap_or(i64::MAX);
        self.offset_ns = 0;
    }

    /// Monotonic reading at true time `now_ns`.
    pub fn mono_ns(&self, now_ns: u64) -> u64 {
        let passed = i128::from(now_ns.saturating_sub(self.since_true_ns));
        let read = passed + passed * i128::from(self.drift_ppm) / 1_000_000;
        self.since_mono_ns
            .saturating_add(u64::try_from(read).unwrap_or(0))
    }

    /// Cluster time at true time `now_ns`, as this member believes it.
    pub fn cluster_ns(&self, now_ns: u64) -> u64 {
        self.mono_ns(now_ns)
            .saturating_add_signed(self.base_ns)
            .saturating_add_signed(self.offset_ns)
    }

    /// The node's verdict on this clock, relative to the base.
    pub fn set_offset(&mut self, offset_ns: i64) {
        self.offset_ns = offset_ns;
    }

    /// The offset now in use, nanoseconds.
    pub fn offset_ns(&self) -> i64 {
        self.offset_ns
    }

    /// A new driver over kept memory: the offset found so far moves into the base.
    pub fn keep_offset(&mut self) {
        self.base_ns = self.base_ns.saturating_add(self.offset_ns);
        self.offset_ns = 0;
    }

    /// The monotonic clock jumps forward by `by_ns` at true time `now_ns`.
    pub fn jump(&mut self, now_ns: u64, by_ns: u64) {
        self.since_mono_ns = self.mono_ns(now_ns).saturating_add(by_ns);
        self.since_true_ns = now_ns;
    }

    /// Cluster time jumps back by `by_ns`: the base is wrong from now on.
    pub fn set_back(&mut self, by_ns: u64) {
        let by_ns = i64::try_from(by_ns).unwrap_or(i64::MAX);
        self.base_ns = self.base_ns.saturating_sub(by_ns);
    }

    /// The monotonic clock stood still for the `by_ns` before true time `now_ns`.
    pub fn lose(&mut self, now_ns: u64, by_ns: u64) {
        self.since_mono_ns = self.mono_ns(now_ns.saturating_sub(by_ns));
        self.since_true_ns = now_ns;
    }

    /// First true time at or after `now_ns` at which the monotonic clock reads `mono_ns` or more.
    pub fn when(&self, mono_ns: u64, now_ns: u64) -> u64 {
        let ahead = i128::from(mono_ns) - i128::from(self.mono_ns(now_ns));
        if ahead <= 0 {
            return now_ns;
        }
        let rate = 1_000_000 + i128::from(self.drift_ppm);
        let passed = (ahead * 1_000_000).div_euclid(rate) + 2;
        now_ns.saturating_add(u64::try_from(passed).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_right_clock_tells_true_time_whatever_its_monotonic_start() {
        let clock = Clock::new(ClockFault::default(), 5 * SECOND, 77);
        assert_eq!(clock.mono_ns(5 * SECOND), 77);
        assert_eq!(clock.cluster_ns(9 * SECOND), WORLD_UNIX_NS + 9 * SECOND);
    }

    #[test]
    fn drift_jumps_and_offsets_add_up() {
        let fault = ClockFault {
            wall_error_ns: -3,
            drift_ppm: 100,
        };
        let mut clock = Clock::new(fault, 0, SECOND);
        assert_eq!(
            clock.cluster_ns(SECOND),
            WORLD_UNIX_NS + SECOND + 100_000 - 3
        );
        clock.set_offset(1_000);
        clock.keep_offset();
        assert_eq!(clock.cluster_ns(SECOND), WORLD_UNIX_NS + SECOND + 100_997);
        clock.jump(SECOND, 7 * SECOND);
        assert_eq!(
            clock.cluster_ns(SECOND),
            WORLD_UNIX_NS + 8 * SECOND + 100_997
        );
        let before = clock.mono_ns(2 * SECOND);
        clock.lose(5 * SECOND, 3 * SECOND);
        assert_eq!(clock.mono_ns(5 * SECOND), before);
    }

    #[test]
    fn when_is_the_first_moment_or_nearly() {
        for drift_ppm in [-200, 0, 200] {
            let clock = Clock::new(
                ClockFault {
                    wall_error_ns: 0,
                    drift_ppm,
                },
                10,
                1_000,
            );
            let at = clock.when(1_000 + SECOND, 10);
            assert!(clock.mono_ns(at) >= 1_000 + SECOND);
            assert!(clock.mono_ns(at - 4) < 1_000 + SECOND);
            assert_eq!(clock.when(5, 10), 10);
        }
    }
}
