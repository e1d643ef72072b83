//! How a rule shows itself in an answer: `requests_per_unit`, `unit`, `name`, texts of headers.
//!
//! I own the translation from a window or a token bucket to the units that the protocol has.

use bytes::Bytes;
use gabion_admit::headers::RuleText;
use gabion_rule::{Algorithm, Mode, OverrideUnit, Rate, Rule};

use crate::overrides;
use crate::protocol::{HeaderValue, RateLimit, Unit};

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
    /// `None`: the limit that was brought, or that of a tier.
    requests_per_unit: Option<u32>,
    unit: Unit,
    /// For headers.
    pub(crate) text: RuleText,
    /// What a denied client reads.
    pub(crate) denial: Option<Body>,
}

/// A body with its media type, and headers. Cloning the text copies nothing.
#[derive(Clone, Debug)]
pub(crate) struct Body {
    /// Empty: the proxy's own.
    pub(crate) text: Bytes,
    pub(crate) content_type: Option<Bytes>,
    pub(crate) headers: Vec<HeaderValue>,
}

impl Shown {
    /// A window that is one unit long shows its limit, since that is what `limit_remaining` counts
    /// down from; anything else shows its rate in the unit it was written with, or in the shortest
    /// longer one in which it is a whole number. Where that is less than may remain, the limit (or
    /// burst) is shown without a unit. A rule that denies all shows 0 in its unit.
    pub(crate) fn new(rule: &Rule) -> Self {
        let limit = rule.algorithm.limit();
        let as_limit = match rule.algorithm {
            Algorithm::Window { window_ns, .. } => unit_of(window_ns),
            Algorithm::TokenBucket { .. } => None,
        };
        let (requests_per_unit, unit) = match (as_limit, rate_per_unit(rule.rate)) {
            (Some(unit), _) => (limit, unit),
            (None, (least, _)) if least < limit => (limit, Unit::Unknown),
            (None, rate) => rate,
        };
        let denies_all = rule.mode == Mode::DenyAll;
        let requests_per_unit = match rule.tiers {
            _ if denies_all => Some(0),
            Some(_) => None,
            None => Some(requests_per_unit),
        };
        // Each tier shows its limit, which is a rate only of a window of one unit.
        let unit = match (&rule.tiers, as_limit) {
            (Some(_), None) => Unit::Unknown,
            _ => unit,
        };
        Self {
            name: shared(&rule.name),
            requests_per_unit,
            unit,
            text: RuleText::new(rule),
            denial: rule.denial.as_ref().map(|denial| Body {
                text: shared(denial.body.as_deref().unwrap_or_default()),
                content_type: denial.content_type.as_deref().map(shared),
                headers: denial.headers.iter().map(header).collect(),
            }),
        }
    }

    /// Limits that requests bring, of one unit.
    pub(crate) fn of_unit(unit: OverrideUnit) -> Self {
        let name = overrides::name(unit);
        let window_ns = unit.window_ns();
        Self {
            name: shared(&name),
            requests_per_unit: None,
            unit: unit_of(window_ns).unwrap_or(Unit::Unknown),
            text: RuleText::named(&name, window_ns),
            denial: None,
        }
    }

    /// As the protocol says it, of a counter that is held to `limit`.
    pub(crate) fn limit(&self, limit: u32) -> RateLimit {
        RateLimit {
            name: self.name.clone(),
            requests_per_unit: self.requests_per_unit.unwrap_or(limit),
            unit: self.unit.into(),
        }
    }
}

fn header((name, value): &(String, String)) -> HeaderValue {
    HeaderValue {
        key: shared(&name.to_ascii_lowercase()),
        value: shared(value),
        ..HeaderValue::default()
    }
}

fn shared(text: &str) -> Bytes {
    let bytes = Bytes::from(text.to_owned());
    // The first clone of fresh bytes allocates what all share: here, and not in a request.
    drop(bytes.clone());
    bytes
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
        (shown.requests_per_unit.unwrap(), shown.unit)
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
        assert_eq!(shown("3r/s", Some("500ms"), None), (3, Unit::Second));
        assert_eq!(shown("100r/m", Some("30s"), None), (100, Unit::Minute));
    }

    #[test]
    fn case_19_what_may_remain_is_never_more_than_what_is_shown() {
        assert_eq!(shown("10r/s", Some("90s"), None), (900, Unit::Unknown));
        assert_eq!(shown("50r/s", None, Some("100")), (100, Unit::Unknown));
        assert_eq!(shown("50r/s", None, Some("50")), (50, Unit::Second));
    }

    #[test]
    fn a_limit_that_was_brought_shows_itself_in_its_unit() {
        for (at, unit) in OverrideUnit::ALL.into_iter().enumerate() {
            let limit = Shown::of_unit(unit).limit(7);
            assert_eq!(limit.requests_per_unit, 7);
            let units = [1, 2, 3, 4, 5, 6];
            assert_eq!(limit.unit, units[at], "{unit:?}");
            assert_eq!(limit.name, overrides::name(unit));
        }
    }

    #[test]
    fn a_fraction_shows_in_the_unit_that_makes_it_whole() {
        assert_eq!(shown("0.5r/s", None, Some("3")), (30, Unit::Minute));
        assert_eq!(shown("1.5r/h", None, Some("3")), (36, Unit::Day));
    }
}
