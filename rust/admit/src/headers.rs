//! Response headers of a decision, as text.
//!
//! I own their names and forms, for every program that sends them. I promise that a remaining
//! count is never above its limit, that `Retry-After` is at least 1, and that nothing is allocated
//! while a request is answered. I never decide which are sent.

use arrayvec::ArrayVec;
use gabion_rule::{Algorithm, Rule};

use crate::limits::{HEADER_BYTES_MAX, SECOND_NS};
use crate::{retry_after_seconds, Reading};

/// Which response headers are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Families {
    /// `X-RateLimit-Limit`, `-Remaining`, `-Reset`, and `-Denied-On` of a denial on a share.
    pub x: bool,
    /// `RateLimit` and `RateLimit-Policy`.
    pub ietf: bool,
    /// `Retry-After` on a denial.
    pub retry_after: bool,
    /// `RateLimit-Name`.
    pub name: bool,
}

impl Families {
    /// All of them.
    pub const ALL: Families = Families {
        x: true,
        ietf: true,
        retry_after: true,
        name: true,
    };
    /// None of them.
    pub const NONE: Families = Families {
        x: false,
        ietf: false,
        retry_after: false,
        name: false,
    };
    /// The words that [`Families::add`] knows.
    pub const WORDS: [&'static str; 4] = ["x", "ietf", "retry_after", "name"];

    /// Adds the family that `word` names; false, and nothing changed, when it names none.
    pub fn add(&mut self, word: &str) -> bool {
        match word {
            "x" => self.x = true,
            "ietf" => self.ietf = true,
            "retry_after" => self.retry_after = true,
            "name" => self.name = true,
            _ => return false,
        }
        true
    }
}

/// The parts of a rule's headers that never change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleText {
    /// Its name as plain header text.
    pub name: String,
    /// Its name as a quoted string of structured fields.
    pub quoted: String,
    /// What `w` of `RateLimit-Policy` says: the window, or the time in which a token bucket fills,
    /// s, rounded up.
    pub window_s: u64,
}

impl RuleText {
    /// The texts of a rule.
    pub fn new(rule: &Rule) -> Self {
        let window_ns = match rule.algorithm {
            Algorithm::Window { window_ns, .. } => u128::from(window_ns),
            Algorithm::TokenBucket {
                hits,
                per_ns,
                burst,
                ..
            } => (u128::from(burst) * u128::from(per_ns)).div_ceil(u128::from(hits.max(1))),
        };
        let window_ns = u64::try_from(window_ns).unwrap_or(u64::MAX);
        RuleText::named(&rule.name, window_ns)
    }

    /// The texts of something of this name that admits its limit in each `window_ns`.
    pub fn named(name: &str, window_ns: u64) -> Self {
        let plain = |c: char| {
            if c == ' ' || c.is_ascii_graphic() {
                c
            } else {
                '?'
            }
        };
        let name: String = name.chars().map(plain).collect();
        let quoted = format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\""));
        let window_s = window_ns.div_ceil(SECOND_NS).max(1);
        RuleText {
            name,
            quoted,
            window_s,
        }
    }
}

/// What a decision shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The counter.
    pub reading: Reading,
    /// When denied: until the request can pass, ns.
    pub denied_for_ns: Option<u64>,
}

impl Shown {
    /// Hits left, never more than the limit. A request for many hits may be denied with some left.
    pub fn remaining(&self) -> u32 {
        self.reading.remaining.min(self.reading.limit)
    }

    /// Whether a denial is one on this member's share: the limit itself has room. spec: pace-8
    pub fn is_on_share(&self) -> bool {
        self.denied_for_ns.is_some() && self.reading.is_share_used_up()
    }

    /// Whole seconds until the answer can change; at least 1 on a denial.
    pub fn reset_s(&self) -> u64 {
        let reset_s = self.reading.reset_ns.div_ceil(SECOND_NS);
        match self.denied_for_ns {
            Some(_) => reset_s.max(1),
            None => reset_s,
        }
    }
}

/// Takes one header, name and value.
pub type Send<'s, E> = dyn FnMut(&'static str, &[u8]) -> Result<(), E> + 's;

/// Hands every header of the families to `send`, name and value.
///
/// # Errors
/// What `send` returned; the rest was not sent.
pub fn headers<E>(
    families: Families,
    rule: &RuleText,
    shown: &Shown,
    send: &mut Send<'_, E>,
) -> Result<(), E> {
    let (limit, left, reset) = (shown.reading.limit, shown.remaining(), shown.reset_s());
    let mut text = Text(ArrayVec::new());
    if families.x {
        send(
            "X-RateLimit-Limit",
            text.start().number(limit.into()).bytes(),
        )?;
        send(
            "X-RateLimit-Remaining",
            text.start().number(left.into()).bytes(),
        )?;
        send("X-RateLimit-Reset", text.start().number(reset).bytes())?;
        if shown.is_on_share() {
            send("X-RateLimit-Denied-On", b"share")?;
        }
    }
    if families.ietf {
        let policy = text
            .start()
            .text(&rule.quoted)
            .text(";q=")
            .number(limit.into());
        let policy = policy.text(";w=").number(rule.window_s);
        send("RateLimit-Policy", policy.bytes())?;
        let now = text
            .start()
            .text(&rule.quoted)
            .text(";r=")
            .number(left.into());
        let now = now.text(";t=").number(reset);
        let now = now.text(if shown.is_on_share() { ";share" } else { "" });
        send("RateLimit", now.bytes())?;
    }
    if families.name {
        send("RateLimit-Name", rule.name.as_bytes())?;
    }
    if let (true, Some(ns)) = (families.retry_after, shown.denied_for_ns) {
        let seconds = retry_after_seconds(ns);
        send("Retry-After", text.start().number(seconds).bytes())?;
    }
    Ok(())
}

/// A value that is put together. What does not fit is left out; names of rules are bounded so that
/// it does not happen. (The standard library's formatting takes five times as long, and a request
/// waits for it.)
struct Text(ArrayVec<u8, HEADER_BYTES_MAX>);

impl Text {
    fn start(&mut self) -> &mut Self {
        self.0.clear();
        self
    }

    fn text(&mut self, text: &str) -> &mut Self {
        let _ = self.0.try_extend_from_slice(text.as_bytes());
        self
    }

    fn number(&mut self, mut number: u64) -> &mut Self {
        let mut digits = [0; 20];
        let mut first = digits.len();
        loop {
            first -= 1;
            digits[first] = b'0' + (number % 10).to_le_bytes()[0];
            number /= 10;
            if number == 0 {
                break;
            }
        }
        let _ = self.0.try_extend_from_slice(&digits[first..]);
        self
    }

    fn bytes(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_rule::{DescriptorSpec, RuleSpec};

    fn rule(name: &str, rate: &str, burst: Option<&str>) -> RuleText {
        let spec = RuleSpec {
            name: name.into(),
            domain: Some("nginx".into()),
            descriptors: vec![DescriptorSpec {
                key: b"k".to_vec(),
                value: None,
                ..DescriptorSpec::default()
            }],
            rate: Some(rate.into()),
            burst: burst.map(str::to_owned),
            ..RuleSpec::default()
        };
        RuleText::new(&spec.build().unwrap().0)
    }

    fn all(families: Families, shown: Shown, name: &str) -> Vec<String> {
        let mut lines = Vec::new();
        let text = rule(name, "100r/m", None);
        let sent: Result<(), ()> = headers(families, &text, &shown, &mut |name, value| {
            lines.push(format!("{name}: {}", String::from_utf8_lossy(value)));
            Ok(())
        });
        sent.unwrap();
        lines
    }

    // spec: pace-8
    #[test]
    fn a_denial_on_a_share_is_named_and_one_at_the_limit_is_not() {
        let reading = Reading {
            limit: 100,
            remaining: 0,
            reset_ns: 400_000_000,
            used: 70,
        };
        let shown = Shown {
            reading,
            denied_for_ns: Some(400_000_000),
        };
        let (x, ietf) = (
            "X-RateLimit-Denied-On: share",
            "RateLimit: \"a\";r=0;t=1;share",
        );
        let lines = all(Families::ALL, shown, "a");
        assert!(lines.iter().any(|line| line == x) && lines.iter().any(|line| line == ietf));
        let full = Reading {
            used: 100,
            ..reading
        };
        for shown in [
            Shown {
                reading: full,
                ..shown
            },
            Shown {
                denied_for_ns: None,
                ..shown
            },
        ] {
            let lines = all(Families::ALL, shown, "a").join(" ");
            assert!(!lines.contains("share"), "{lines}");
        }
    }

    #[test]
    fn an_admitted_request_shows_what_is_left() {
        let reading = Reading {
            limit: 100,
            remaining: 41,
            reset_ns: 29_100_000_000,
            used: 59,
        };
        let shown = Shown {
            reading,
            denied_for_ns: None,
        };
        assert_eq!(
            all(Families::ALL, shown, "per-ip"),
            [
                "X-RateLimit-Limit: 100",
                "X-RateLimit-Remaining: 41",
                "X-RateLimit-Reset: 30",
                "RateLimit-Policy: \"per-ip\";q=100;w=60",
                "RateLimit: \"per-ip\";r=41;t=30",
                "RateLimit-Name: per-ip",
            ]
        );
    }

    #[test]
    fn case_19_a_denial_never_says_zero_seconds_nor_more_than_the_limit() {
        let reading = Reading {
            limit: 100,
            remaining: 0,
            reset_ns: 0,
            used: 250,
        };
        let mut shown = Shown {
            reading,
            denied_for_ns: Some(1),
        };
        let lines = all(Families::ALL, shown, "a\"b\u{e9}");
        assert!(
            lines.contains(&"X-RateLimit-Remaining: 0".to_owned()),
            "{lines:?}"
        );
        assert!(
            lines.contains(&"X-RateLimit-Reset: 1".to_owned()),
            "{lines:?}"
        );
        assert!(lines.contains(&"Retry-After: 1".to_owned()), "{lines:?}");
        assert!(
            lines.contains(&"RateLimit: \"a\\\"b?\";r=0;t=1".to_owned()),
            "{lines:?}"
        );
        shown.reading.remaining = 7_000;
        assert_eq!(shown.remaining(), 100);
    }

    #[test]
    fn numbers_of_every_length_are_written_whole() {
        let mut text = Text(ArrayVec::new());
        let powers = (0..20).map(|power| 10u64.pow(power));
        for number in powers.flat_map(|n| [n - 1, n, n + 1]).chain([u64::MAX]) {
            let bytes = text.start().number(number).bytes();
            assert_eq!(bytes, number.to_string().as_bytes());
        }
    }

    #[test]
    fn a_token_bucket_states_the_time_it_fills_in() {
        assert_eq!(rule("b", "50r/s", Some("100")).window_s, 2);
    }

    #[test]
    fn a_name_of_the_greatest_length_fits() {
        let text = rule(&"\\".repeat(600), "1r/s", None);
        let bytes = text.quoted.len();
        assert!(bytes + 64 < HEADER_BYTES_MAX, "{bytes}");
    }
}
