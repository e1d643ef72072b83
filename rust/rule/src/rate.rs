//! Rates (`100r/s`, `600r/m`, `0.5r/s`, `10/h`, `1000r/mo`) and shares of a limit (`1%`, `50bps`).
//!
//! I own parsing and printing of rates and the arithmetic from a rate to a limit. I promise that a
//! rate is held exactly, as a ratio of integers, and that nothing overflows. I never round a rate
//! up: a limit is the floor of what was written.

use std::fmt;
use std::str::FromStr;

use crate::duration::{shorten, DurationText};
use crate::error::RuleError;
use crate::limits::{MAX_ERROR_BUDGET_PPM, MAX_RATE_DIGITS};

/// Units of a rate with their length in nanoseconds.
// spec: rule-1
const UNITS: [(&str, u64); 7] = [
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
    ("w", 604_800_000_000_000),
    ("mo", 30 * 86_400_000_000_000),
    ("y", 365 * 86_400_000_000_000),
];

const HINT: &str = "a rate like 100r/s, 0.5r/m, 10/h (units s m h d w mo y)";

/// `hits` per `per_ns` nanoseconds, as written: `per_ns` is the unit times the smallest power of
/// ten that makes `hits` whole. So `600r/m` is 600 per 60 s (not 10 per 1 s), and `0.5r/s` is 5 per
/// 10 s.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    /// Hits in `per_ns`.
    pub hits: u64,
    /// Nanoseconds.
    pub per_ns: u64,
}

impl Rate {
    /// What stands for the rate of a rule that counts nothing and names none.
    pub(crate) const UNUSED: Rate = Rate {
        hits: 1,
        per_ns: 1_000_000_000,
    };

    /// The unit the rate was written with, in nanoseconds: the default window. A rate made by hand
    /// with another period is its own unit.
    pub fn unit_ns(&self) -> u64 {
        // No unit is a power of ten times another one, so this finds at most one.
        self.unit().map_or(self.per_ns, |(_, unit_ns, _)| unit_ns)
    }

    fn unit(&self) -> Option<(&'static str, u64, u32)> {
        UNITS.into_iter().find_map(|(name, unit_ns)| {
            if self.per_ns == 0 || self.per_ns % unit_ns != 0 {
                return None;
            }
            let scale = self.per_ns / unit_ns;
            let power = scale.ilog10();
            (10u64.pow(power) == scale).then_some((name, unit_ns, power))
        })
    }

    /// The same rate in lowest terms.
    pub fn reduced(&self) -> Rate {
        let divisor = gcd(self.hits, self.per_ns).max(1);
        Rate {
            hits: self.hits / divisor,
            per_ns: self.per_ns / divisor,
        }
    }

    /// Hits in a window: the floor of `hits * window / per`.
    // spec: rule-3
    pub fn limit_over(&self, window_ns: u64) -> u128 {
        u128::from(self.hits) * u128::from(window_ns) / u128::from(self.per_ns.max(1))
    }

    /// Shortest window, in whole milliseconds, over which the limit is at least one hit.
    pub fn least_window_ns(&self) -> u64 {
        let ns = self.per_ns.div_ceil(self.hits.max(1));
        ns.div_ceil(1_000_000).saturating_mul(1_000_000)
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    let (mut a, mut b) = (a, b);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

impl FromStr for Rate {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        let malformed = |why: &str| RuleError::Malformed {
            setting: "rate",
            text: shorten(text),
            why: why.to_owned(),
            hint: HINT,
        };
        let (number, unit) = text
            .split_once('/')
            .ok_or_else(|| malformed("no / in it"))?;
        let number = number.strip_suffix('r').unwrap_or(number);
        let (_, unit_ns) = UNITS
            .into_iter()
            .find(|(name, _)| *name == unit)
            .ok_or_else(|| malformed("the unit is not one of s m h d w mo y"))?;
        let (whole, fraction) = match number.split_once('.') {
            Some((_, "")) => return Err(malformed("no digits after the point")),
            Some((whole, fraction)) => (whole, fraction),
            None => (number, ""),
        };
        let all_digits = |t: &str| t.bytes().all(|b| b.is_ascii_digit());
        if whole.is_empty() || !all_digits(whole) || !all_digits(fraction) {
            return Err(malformed(
                "the number is not plain digits with at most one point",
            ));
        }
        let whole = whole.trim_start_matches('0');
        let fraction = fraction.trim_end_matches('0');
        let out_of_range = |why: &str| RuleError::OutOfRange {
            setting: "rate",
            text: shorten(text),
            why: why.to_owned(),
        };
        if whole.len() + fraction.len() > MAX_RATE_DIGITS {
            return Err(out_of_range("a rate has at most 18 digits"));
        }
        let digits = format!("{whole}{fraction}");
        let hits = if digits.is_empty() {
            0
        } else {
            digits.parse::<u64>().unwrap_or(u64::MAX)
        };
        if hits == 0 {
            return Err(RuleError::ZeroRate {
                text: shorten(text),
            });
        }
        let per_ns = u32::try_from(fraction.len())
            .ok()
            .and_then(|n| 10u64.checked_pow(n))
            .and_then(|scale| unit_ns.checked_mul(scale))
            .ok_or_else(|| out_of_range("too many digits after the point for this unit"))?;
        Ok(Rate { hits, per_ns })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((unit, _, power)) = self.unit() else {
            return write!(f, "{}r/{}", self.hits, DurationText(self.per_ns));
        };
        let scale = 10u64.pow(power);
        write!(f, "{}", self.hits / scale)?;
        if power > 0 {
            let fraction = format!("{:0width$}", self.hits % scale, width = power as usize);
            let fraction = fraction.trim_end_matches('0');
            if !fraction.is_empty() {
                write!(f, ".{fraction}")?;
            }
        }
        write!(f, "r/{unit}")
    }
}

/// `1%`, `0.5%`, `100bps`, `10000ppm` in parts per million.
// spec: rule-7
pub(crate) fn parse_ppm(text: &str) -> Result<u32, RuleError> {
    let setting = "error_budget";
    let malformed = |why: &str| RuleError::Malformed {
        setting,
        text: shorten(text),
        why: why.to_owned(),
        hint: "a share like 1%, 0.5%, 100bps or 10000ppm",
    };
    let units = [("%", 10_000u32, 4), ("bps", 100, 2), ("ppm", 1, 0)];
    let found = units
        .iter()
        .find_map(|(u, ppm, d)| text.strip_suffix(u).map(|n| (n, *ppm, *d)));
    let (number, ppm, decimals) = found.ok_or_else(|| malformed("a unit is missing"))?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |t: &str| !t.is_empty() && t.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(fraction) {
        return Err(malformed("it is not a plain number"));
    }
    let fraction = fraction.trim_end_matches('0');
    if fraction.len() > decimals {
        return Err(malformed("it is finer than one part per million"));
    }
    let range = || RuleError::OutOfRange {
        setting,
        text: shorten(text),
        why: "it is 0% to 100%".to_owned(),
    };
    let whole = whole
        .parse::<u32>()
        .ok()
        .and_then(|w| w.checked_mul(ppm))
        .ok_or_else(range)?;
    let part = fraction
        .bytes()
        .zip(1u32..)
        .map(|(digit, place)| u32::from(digit - b'0') * (ppm / 10u32.pow(place)))
        .sum::<u32>();
    whole
        .checked_add(part)
        .filter(|total| *total <= MAX_ERROR_BUDGET_PPM)
        .ok_or_else(range)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rate(text: &str) -> Rate {
        text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn accepts_the_grammar() {
        assert_eq!(
            rate("100r/s"),
            Rate {
                hits: 100,
                per_ns: SECOND
            }
        );
        assert_eq!(
            rate("600r/m"),
            Rate {
                hits: 600,
                per_ns: 60 * SECOND
            }
        );
        assert_eq!(
            rate("10/h"),
            Rate {
                hits: 10,
                per_ns: 3600 * SECOND
            }
        );
        assert_eq!(
            rate("0.5r/s"),
            Rate {
                hits: 5,
                per_ns: 10 * SECOND
            }
        );
        assert_eq!(rate("0.50r/s"), rate("0.5r/s"));
        assert_eq!(
            rate("007r/d"),
            Rate {
                hits: 7,
                per_ns: 86_400 * SECOND
            }
        );
        assert_eq!(rate("1r/w").unit_ns(), 604_800 * SECOND);
        assert_eq!(rate("0.125r/h").unit_ns(), 3_600 * SECOND);
        assert_eq!(rate("9r/mo").unit_ns(), 30 * 86_400 * SECOND);
        assert_eq!(rate("9r/y").unit_ns(), 365 * 86_400 * SECOND);
    }

    #[test]
    fn refuses_everything_else() {
        for text in [
            "", "100", "r/s", "/s", "100r/", "100r/x", "100r/ms", "1 r/s", "-1r/s", "+1r/s",
            ".5r/s", "5.r/s", "1e3r/s", "1rr/s", "1r/s/s", "100r/S", "1,000r/s", "0x10r/s",
            "1r/2s",
        ] {
            assert!(text.parse::<Rate>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn case_10_zero_is_refused_with_what_to_write() {
        for text in ["0r/s", "0/h", "0.000r/d"] {
            let error = text.parse::<Rate>().unwrap_err();
            assert!(matches!(error, RuleError::ZeroRate { .. }));
            assert!(error.to_string().contains("mode=disabled"));
            assert!(error.to_string().contains("mode=deny"));
        }
    }

    #[test]
    fn case_61_a_rate_beyond_its_range_is_refused_not_truncated() {
        for text in [
            "99999999999999999999r/s",
            "1.0000000000001r/w",
            "0.0000000000000000001r/s",
        ] {
            assert!(
                matches!(text.parse::<Rate>(), Err(RuleError::OutOfRange { .. })),
                "{text}"
            );
        }
    }

    #[test]
    fn limits_are_exact_at_both_ends() {
        assert_eq!(rate("700000r/s").limit_over(SECOND), 700_000);
        assert_eq!(rate("1r/d").limit_over(86_400 * SECOND), 1);
        assert_eq!(rate("1r/d").limit_over(86_400 * SECOND - 1), 0);
        assert_eq!(rate("0.1r/s").limit_over(60 * SECOND), 6);
        assert_eq!(rate("4294967295/s").limit_over(SECOND), 4_294_967_295);
        assert_eq!(rate("1r/s").limit_over(u64::MAX), 18_446_744_073);
    }

    #[test]
    fn the_least_window_holds_one_hit() {
        for text in ["0.3r/s", "7r/d", "0.001r/w", "999999r/s"] {
            let rate = rate(text);
            let least = rate.least_window_ns();
            assert!(rate.limit_over(least) >= 1, "{text}");
            assert_eq!(rate.limit_over(least - 1_000_000), 0, "{text}");
        }
    }

    proptest! {
        #[test]
        fn print_then_parse_is_identity(
            hits in 1u64..=999_999_999_999, digits in 0u32..4, unit in 0usize..7
        ) {
            // A year times 1,000 does not fit 64 bits of nanoseconds; such a rate is refused.
            let digits = if UNITS[unit].0 == "y" { digits.min(2) } else { digits };
            let text = {
                let scale = 10u64.pow(digits);
                let fraction = format!("{:0w$}", hits % scale, w = digits as usize);
                let point = if digits == 0 { String::new() } else { format!(".{fraction}") };
                format!("{}{point}r/{}", hits / scale, UNITS[unit].0)
            };
            let first = rate(&text);
            prop_assert_eq!(rate(&first.to_string()), first);
            prop_assert_eq!(first.unit_ns(), UNITS[unit].1);
            // The value is what was written.
            let scale = u128::from(10u64.pow(digits));
            prop_assert_eq!(
                u128::from(first.hits) * scale * u128::from(UNITS[unit].1),
                u128::from(hits) * u128::from(first.per_ns)
            );
        }

        #[test]
        fn reducing_keeps_the_value(hits in 1u64.., per_ns in 1u64..) {
            let reduced = Rate { hits, per_ns }.reduced();
            prop_assert_eq!(
                u128::from(reduced.hits) * u128::from(per_ns),
                u128::from(hits) * u128::from(reduced.per_ns)
            );
        }

        #[test]
        fn never_panics(text in "\\PC{0,24}") {
            let _ = text.parse::<Rate>();
        }
    }
}
