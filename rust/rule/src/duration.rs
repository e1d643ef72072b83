//! The duration grammar: `30s`, `2h30m`, `500ms`.
//!
//! I own parsing and printing of durations. I promise that printing and parsing are inverse, and
//! that nothing is rounded. I never accept a number without a unit.

use std::fmt;

use crate::error::RuleError;

/// Units from long to short with their length in nanoseconds.
// spec: rule-2
const UNITS: [(&str, u64); 8] = [
    ("w", 604_800_000_000_000),
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

const HINT: &str = "a duration like 500ms, 30s or 2h30m";

/// Parses a duration into nanoseconds. Parts go from long units to short ones, each unit once:
/// `1w2d3h4m5s6ms`. `setting` names what is parsed, for the error.
///
/// # Errors
/// [`RuleError::Malformed`] when the text does not follow the grammar, and
/// [`RuleError::OutOfRange`] when it is longer than `u64` nanoseconds can say.
pub fn parse_duration_ns(setting: &'static str, text: &str) -> Result<u64, RuleError> {
    let malformed = |why: String| RuleError::Malformed {
        setting,
        text: shorten(text),
        why,
        hint: HINT,
    };
    let mut rest = text;
    let mut total: u128 = 0;
    let mut next_unit = 0;
    if rest.is_empty() {
        return Err(malformed("it is empty".into()));
    }
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 {
            return Err(malformed(format!(
                "a digit is expected at {:?}",
                shorten(rest)
            )));
        }
        let after = &rest[digits..];
        let letters = after.bytes().take_while(u8::is_ascii_lowercase).count();
        let unit = &after[..letters];
        if unit.is_empty() {
            return Err(malformed("a unit is missing (w d h m s ms)".into()));
        }
        let Some(index) = UNITS.iter().position(|(name, _)| *name == unit) else {
            return Err(malformed(format!(
                "unit {:?} is not known (w d h m s ms)",
                shorten(unit)
            )));
        };
        if index < next_unit {
            return Err(malformed("units go from long to short, each once".into()));
        }
        next_unit = index + 1;
        let out_of_range = || RuleError::OutOfRange {
            setting,
            text: shorten(text),
            why: "it is longer than 584 years".into(),
        };
        let number: u64 = rest[..digits].parse().map_err(|_| out_of_range())?;
        total += u128::from(number) * u128::from(UNITS[index].1);
        if total > u128::from(u64::MAX) {
            return Err(out_of_range());
        }
        rest = &after[letters..];
    }
    u64::try_from(total).map_err(|_| malformed("it is too long".into()))
}

/// Prints nanoseconds in the duration grammar, longest units first; zero is `0s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DurationText(pub u64);

impl fmt::Display for DurationText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("0s");
        }
        let mut rest = self.0;
        for (name, ns) in UNITS {
            let whole = rest / ns;
            if whole > 0 {
                write!(f, "{whole}{name}")?;
                rest %= ns;
            }
        }
        Ok(())
    }
}

/// At most 64 characters of a text, for messages.
pub(crate) fn shorten(text: &str) -> String {
    if text.chars().take(65).any(char::is_control) {
        // A message is one line.
        let shown = text.chars().take(65).map(|c| match c.is_control() {
            true => c.escape_default().to_string(),
            false => c.to_string(),
        });
        return shorten(&shown.collect::<String>());
    }
    match text.char_indices().nth(64) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Result<u64, RuleError> {
        parse_duration_ns("window", text)
    }

    #[test]
    fn accepts_the_grammar() {
        assert_eq!(parse("30s"), Ok(30_000_000_000));
        assert_eq!(parse("2h30m"), Ok(9_000_000_000_000));
        assert_eq!(parse("500ms"), Ok(500_000_000));
        assert_eq!(parse("1w"), Ok(604_800_000_000_000));
        assert_eq!(parse("1d1ms"), Ok(86_400_001_000_000));
        assert_eq!(parse("0s"), Ok(0));
    }

    #[test]
    fn refuses_everything_else() {
        for text in [
            "", "30", "s", "30 s", "-1s", "1.5h", "30m2h", "1s1s", "1x", "1S", "１s", "1m ",
        ] {
            assert!(parse(text).is_err(), "{text:?}");
        }
        assert!(parse("30")
            .unwrap_err()
            .to_string()
            .contains("unit is missing"));
    }

    #[test]
    fn case_61_a_duration_beyond_its_range_is_refused_not_truncated() {
        assert!(matches!(parse("30501w"), Err(RuleError::OutOfRange { .. })));
        assert!(matches!(
            parse("99999999999999999999s"),
            Err(RuleError::OutOfRange { .. })
        ));
        assert_eq!(parse("18446744073709551615ns"), Ok(u64::MAX));
        assert!(parse("18446744073709551616ns").is_err());
    }

    proptest! {
        #[test]
        fn print_then_parse_is_identity(ns in any::<u64>()) {
            prop_assert_eq!(parse(&DurationText(ns).to_string()), Ok(ns));
        }

        #[test]
        fn never_panics(text in "\\PC{0,24}") {
            let _ = parse(&text);
        }
    }
}
