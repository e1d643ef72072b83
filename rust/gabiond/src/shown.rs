//! How a rule shows itself in an answer: `requests_per_unit`, `unit`, `name`.
//!
//! I own the translation from a window or a token bucket to the units that the protocol has.

use bytes::Bytes;
use gabion_rule::{Algorithm, Mode, Rate, Rule};

use crate::protocol::{RateLimit, Unit};

const SECOND_NS: u64 = 1_000_000_000;
/// Units of the protocol that have one fixed length, from short to long.
const UNITS: [(Unit, u64); 7] = [
    (Unit::Second, SECOND_NS),
    (Unit::Minute, 60 * SECOND_NS),
    (Unit::Hour, 3_600 * SECOND_NS),
    (Unit::Day, 86_400 * SECOND_NS),
    (Unit::Week, 604_800 * SECOND_NS),
    (Unit::Month, 30 * 86_400 * SECOND_NS),
    (Unit::Year, 365 * 86_400 * SECOND_NS),
];

/// What is ready to be put into an answer. Cloning it copies no text.
#[derive(Clone, Debug)]
pub(crate) struct Shown {
    name: Bytes,
    requests_per_unit: u32,
    unit: Unit,
}

impl Shown {
    /// A window that is one unit long shows its limit, since that is what `limit_remaining` counts
    /// down from; anything else shows its rate in the unit it was written with, or in the shortest
    /// longer one in which it is a whole number. A rule that denies all shows 0 in its unit.
    pub(crate) fn new(rule: &Rule) -> Self {
        let (requests_per_unit, unit) = match rule.algorithm {
            Algorithm::Window {
                limit, window_ns, ..
            } => match unit_of(window_ns) {
                Some(unit) => (limit, unit),
                None => rate_per_unit(rule.rate),
            },
            Algorithm::TokenBucket { .. } => rate_per_unit(rule.rate),
        };
        let denies_all = rule.mode == Mode::DenyAll;
        let requests_per_unit = if denies_all { 0 } else { requests_per_unit };
        let name = Bytes::from(rule.name.clone());
        // The first clone of fresh bytes allocates what all share: here, and not in a request.
        drop(name.clone());
        Self {
            name,
            requests_per_unit,
            unit,
        }
    }

    pub(crate) fn limit(&self) -> RateLimit {
        RateLimit {
            name: self.name.clone(),
            requests_per_unit: self.requests_per_unit,
            unit: self.unit.into(),
        }
    }
}

fn unit_of(window_ns: u64) -> Option<Unit> {
    UNITS
        .iter()
        .find(|(_, unit_ns)| *unit_ns == window_ns)
        .map(|(unit, _)| *unit)
}

fn rate_per_unit(rate: Rate) -> (u32, Unit) {
    let written_ns = rate.unit_ns();
    let mut last = (0, Unit::Unknown);
    for (unit, unit_ns) in UNITS
        .into_iter()
        .filter(|(_, unit_ns)| *unit_ns >= written_ns)
    {
        let hits = u128::from(rate.hits) * u128::from(unit_ns);
        let per_ns = u128::from(rate.per_ns.max(1));
        let Ok(whole) = u32::try_from(hits / per_ns) else {
            break;
        };
        last = (whole, unit);
        if hits % per_ns == 0 && whole > 0 {
            break;
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_rule::{DescriptorSpec, RuleSpec};

    fn shown(rate: &str, window: Option<&str>, burst: Option<&str>) -> (u32, Unit) {
        let spec = RuleSpec {
            name: "r".into(),
            domain: Some("d".into()),
            rate: Some(rate.into()),
            window: window.map(str::to_owned),
            burst: burst.map(str::to_owned),
            descriptors: vec![DescriptorSpec {
                key: b"k".to_vec(),
                value: None,
                ..DescriptorSpec::default()
            }],
            ..RuleSpec::default()
        };
        let shown = Shown::new(&spec.build().unwrap().0);
        (shown.requests_per_unit, shown.unit)
    }

    #[test]
    fn a_rate_shows_as_it_was_configured() {
        assert_eq!(shown("100r/s", None, None), (100, Unit::Second));
        assert_eq!(shown("600r/m", None, None), (600, Unit::Minute));
        assert_eq!(shown("1r/d", None, None), (1, Unit::Day));
        assert_eq!(shown("7r/w", None, None), (7, Unit::Week));
        assert_eq!(shown("9r/mo", None, None), (9, Unit::Month));
        assert_eq!(shown("9r/y", None, None), (9, Unit::Year));
        assert_eq!(shown("60r/m", None, Some("5")), (60, Unit::Minute));
    }

    #[test]
    fn a_window_of_one_unit_shows_what_remaining_counts_down_from() {
        assert_eq!(shown("10r/s", Some("1m"), None), (600, Unit::Minute));
        assert_eq!(shown("60r/m", Some("1s"), None), (1, Unit::Second));
    }

    #[test]
    fn other_windows_show_their_rate() {
        assert_eq!(shown("10r/s", Some("90s"), None), (10, Unit::Second));
        assert_eq!(shown("100r/m", Some("30s"), None), (100, Unit::Minute));
    }

    #[test]
    fn a_fraction_shows_in_the_unit_that_makes_it_whole() {
        assert_eq!(shown("0.5r/s", None, Some("3")), (30, Unit::Minute));
        assert_eq!(shown("1.5r/h", None, Some("3")), (36, Unit::Day));
    }
}
