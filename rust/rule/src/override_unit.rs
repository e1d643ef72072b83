//! Limits that a caller brings along: their units and whose counters they are.
//!
//! I own the identity of the counters of each unit, which follows from nothing that is configured,
//! so that all members agree on it. I never decide whether a caller may bring one.

use crate::identity::{override_identity, CounterIdentity};

const SECOND_NS: u64 = 1_000_000_000;
const DAY_NS: u64 = 86_400 * SECOND_NS;

/// The unit of a limit that a caller brings. Its window is fixed and as long as the unit; a month
/// has 30 days, a year 365. spec: rule-30
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OverrideUnit {
    /// 1 s.
    Second,
    /// 60 s.
    Minute,
    /// 3,600 s.
    Hour,
    /// 24 hours.
    Day,
    /// 30 days.
    Month,
    /// 365 days.
    Year,
}

impl OverrideUnit {
    /// All of them, from short to long.
    pub const ALL: [OverrideUnit; 6] = [
        OverrideUnit::Second,
        OverrideUnit::Minute,
        OverrideUnit::Hour,
        OverrideUnit::Day,
        OverrideUnit::Month,
        OverrideUnit::Year,
    ];

    /// Its name.
    pub fn word(self) -> &'static str {
        match self {
            OverrideUnit::Second => "second",
            OverrideUnit::Minute => "minute",
            OverrideUnit::Hour => "hour",
            OverrideUnit::Day => "day",
            OverrideUnit::Month => "month",
            OverrideUnit::Year => "year",
        }
    }

    /// Its place in [`OverrideUnit::ALL`].
    pub fn index(self) -> usize {
        match self {
            OverrideUnit::Second => 0,
            OverrideUnit::Minute => 1,
            OverrideUnit::Hour => 2,
            OverrideUnit::Day => 3,
            OverrideUnit::Month => 4,
            OverrideUnit::Year => 5,
        }
    }

    /// Its length, ns.
    pub fn window_ns(self) -> u64 {
        match self {
            OverrideUnit::Second => SECOND_NS,
            OverrideUnit::Minute => 60 * SECOND_NS,
            OverrideUnit::Hour => 3_600 * SECOND_NS,
            OverrideUnit::Day => DAY_NS,
            OverrideUnit::Month => 30 * DAY_NS,
            OverrideUnit::Year => 365 * DAY_NS,
        }
    }

    /// The identity of all counters of this unit. spec: rule-30
    pub fn identity(self) -> CounterIdentity {
        override_identity(self.window_ns())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::MAX_WINDOW_NS;

    #[test]
    fn units_are_told_apart_and_in_their_place() {
        for (at, unit) in OverrideUnit::ALL.into_iter().enumerate() {
            assert_eq!(unit.index(), at);
            assert!(unit.window_ns() <= MAX_WINDOW_NS);
            for other in &OverrideUnit::ALL[at + 1..] {
                assert_ne!(unit.identity(), other.identity());
                assert_ne!(unit.identity().short(), other.identity().short());
                assert!(unit.window_ns() < other.window_ns());
            }
        }
    }

    #[test]
    fn identities_stay_as_they_are() {
        // A change would start new counters in a mixed cluster.
        let shorts = OverrideUnit::ALL.map(|unit| unit.identity().short());
        let known = [
            18_145_490_539_989_765_039,
            2_951_571_764_504_819_334,
            8_808_703_591_286_775_610,
            3_299_566_742_811_758_285,
            15_306_686_831_840_237_675,
            3_804_371_517_991_236_860,
        ];
        assert_eq!(shorts, known);
    }
}
