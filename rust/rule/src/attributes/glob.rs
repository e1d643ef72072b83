//! Patterns of conditions and captures.
//!
//! I own their grammar and the match. I promise that matching ends after at most the product of
//! both lengths and never allocates, and that the text of a pattern reads as the same pattern. I
//! never look at what a value means.

use crate::duration::shorten;
use crate::error::RuleError;
use crate::limits::MAX_NAME_BYTES;

/// A pattern: exact text, `abc*`, `*` (any value but none), the empty text (no value), and inner
/// stars, each a run of characters without `/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob {
    pieces: Box<[Piece]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    /// These bytes.
    Text(Box<[u8]>),
    /// Bytes without `/`, possibly none.
    Run,
    /// At least one byte, none of them `/`: what a capture takes.
    Capture,
    /// Everything up to the end, possibly nothing. Only the last piece.
    Rest,
}

impl Glob {
    /// Reads a pattern. `setting` is where it was written, for messages.
    ///
    /// # Errors
    /// A pattern longer than [`MAX_NAME_BYTES`].
    // spec: attr-5
    pub fn parse(setting: &'static str, text: &[u8]) -> Result<Glob, RuleError> {
        Self::read(setting, text, false)
    }

    /// Reads a pattern with one `{}`.
    ///
    /// # Errors
    /// As [`Glob::parse`], and a pattern with none or several.
    // spec: attr-9
    pub(crate) fn parse_capture(setting: &'static str, text: &[u8]) -> Result<Glob, RuleError> {
        let glob = Self::read(setting, text, true)?;
        let captures = glob.pieces.iter().filter(|p| **p == Piece::Capture).count();
        if captures == 1 {
            return Ok(glob);
        }
        Err(RuleError::Malformed {
            setting,
            text: shorten(&String::from_utf8_lossy(text)),
            why: format!("it has {captures} times {{}}"),
            hint: "{} once, where the wanted part stands, like /users/{}/*",
        })
    }

    fn read(setting: &'static str, text: &[u8], captures: bool) -> Result<Glob, RuleError> {
        if text.len() > MAX_NAME_BYTES {
            return Err(RuleError::OutOfRange {
                setting,
                text: shorten(&String::from_utf8_lossy(text)),
                why: format!("a pattern has at most {MAX_NAME_BYTES} bytes"),
            });
        }
        let mut pieces = Vec::new();
        let mut literal: Vec<u8> = Vec::new();
        let mut at = 0;
        while let Some(byte) = text.get(at) {
            let wild = match byte {
                b'*' => Some(1),
                b'{' if captures && text[at..].starts_with(b"{}") => Some(2),
                _ => None,
            };
            let Some(width) = wild else {
                literal.push(*byte);
                at += 1;
                continue;
            };
            // Backslashes directly before it are pairs, and an odd one makes it plain text.
            let slashes = literal.iter().rev().take_while(|b| **b == b'\\').count();
            literal.truncate(literal.len() - slashes.div_ceil(2));
            if slashes % 2 == 1 {
                literal.extend_from_slice(&text[at..at + width]);
            } else {
                if !literal.is_empty() {
                    pieces.push(Piece::Text(std::mem::take(&mut literal).into()));
                }
                pieces.push(match (byte, at + width == text.len()) {
                    (b'*', true) => Piece::Rest,
                    (b'*', false) => Piece::Run,
                    _ => Piece::Capture,
                });
            }
            at += width;
        }
        if !literal.is_empty() {
            pieces.push(Piece::Text(literal.into()));
        }
        Ok(Glob {
            pieces: pieces.into(),
        })
    }

    /// Whether a value matches. The empty value stands for an absent one: only the empty pattern
    /// matches it.
    pub fn matches(&self, value: &[u8]) -> bool {
        self.find(value).is_some()
    }

    /// What stands at the place of `{}`, never empty; `None` when the value does not match.
    pub(crate) fn capture<'v>(&self, value: &'v [u8]) -> Option<&'v [u8]> {
        let (start, end) = self.find(value)?;
        value.get(start..end).filter(|found| !found.is_empty())
    }

    /// Where the capture starts and ends; both 0 without one.
    ///
    /// Each run takes as little as it can. Only the last one is ever made longer: a longer earlier
    /// run cannot help, since what stands between two runs has no `/` where it can be moved.
    fn find(&self, value: &[u8]) -> Option<(usize, usize)> {
        if value.is_empty() {
            return self.pieces.is_empty().then_some((0, 0));
        }
        let mut captured = (0, 0);
        // The last run: its piece, where it starts, and where it ends now.
        let mut run: Option<(usize, usize, usize)> = None;
        let (mut piece, mut at) = (0, 0);
        loop {
            let fits = match self.pieces.get(piece) {
                None => at == value.len(),
                Some(Piece::Rest) => return Some(captured),
                Some(Piece::Text(text)) => value[at..].starts_with(text),
                Some(Piece::Run) => {
                    run = Some((piece, at, at));
                    true
                }
                Some(Piece::Capture) => {
                    run = Some((piece, at, at));
                    // It needs a byte: taken below, as when a run is made longer.
                    false
                }
            };
            if fits {
                match self.pieces.get(piece) {
                    None => return Some(captured),
                    Some(Piece::Text(text)) => at += text.len(),
                    Some(_) => {}
                }
                piece += 1;
                continue;
            }
            let (of, start, end) = run?;
            if value.get(end).is_none_or(|byte| *byte == b'/') {
                return None;
            }
            run = Some((of, start, end + 1));
            if self.pieces[of] == Piece::Capture {
                captured = (start, end + 1);
            }
            (piece, at) = (of + 1, end + 1);
        }
    }

    /// The text that reads as this pattern.
    pub fn text(&self) -> Vec<u8> {
        let captures = self.pieces.contains(&Piece::Capture);
        let mut out: Vec<u8> = Vec::new();
        let mut pieces = self.pieces.iter().peekable();
        while let Some(piece) = pieces.next() {
            match piece {
                Piece::Text(text) => {
                    for (at, byte) in text.iter().enumerate() {
                        let wild = *byte == b'*' || captures && text[at..].starts_with(b"{}");
                        if wild {
                            double_slashes(&mut out);
                            out.push(b'\\');
                        }
                        out.push(*byte);
                    }
                    if pieces.peek().is_some() {
                        double_slashes(&mut out);
                    }
                }
                Piece::Run | Piece::Rest => out.push(b'*'),
                Piece::Capture => out.extend_from_slice(b"{}"),
            }
        }
        out
    }
}

fn double_slashes(out: &mut Vec<u8>) {
    let slashes = out.iter().rev().take_while(|b| **b == b'\\').count();
    out.extend(std::iter::repeat_n(b'\\', slashes));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn glob(text: &str) -> Glob {
        Glob::parse("path", text.as_bytes()).unwrap()
    }

    #[test]
    fn every_form_matches_what_it_says() {
        for (pattern, value, expected) in [
            ("/health", "/health", true),
            ("/health", "/health/", false),
            ("/health", "", false),
            ("/api/*", "/api/", true),
            ("/api/*", "/api/v4/x", true),
            ("/api/*", "/api", false),
            ("*", "x", true),
            ("*", "", false),
            ("**", "", false),
            ("**", "a/b", true),
            ("", "", true),
            ("", "x", false),
            ("/a/*/c", "/a/b/c", true),
            ("/a/*/c", "/a//c", true),
            ("/a/*/c", "/a/b/b/c", false),
            ("/a/*/c/*", "/a/b/c/d/e", true),
            ("*.pom", "a-1.0.pom", true),
            ("*.pom", "a.pom.pom", true),
            ("*.pom", "a/b.pom", false),
            ("/*/*.pom", "/b/a.pom", true),
            ("a*b*c", "aXbXbc", true),
            ("a*b*c", "aXc", false),
            ("\\*", "*", true),
            ("\\*", "x", false),
            ("a\\**", "a*anything", true),
            ("a\\**", "ab", false),
            ("a\\\\*", "a\\x", true),
            ("a\\b", "a\\b", true),
            ("{}", "{}", true),
            ("GET", "get", false),
        ] {
            let found = glob(pattern).matches(value.as_bytes());
            assert_eq!(found, expected, "{pattern} {value}");
        }
    }

    #[test]
    fn a_capture_takes_the_part_between_slashes() {
        for (pattern, value, expected) in [
            ("/p/*/{}/*", "/p/maven/42/com/x.pom", Some("42")),
            ("/p/*/{}/*", "/p/npm/43/", Some("43")),
            ("/p/*/{}/*", "/p/npm/43", None),
            ("/p/*/{}/*", "/p/npm//x", None),
            ("/p/*/{}/*", "", None),
            ("/p/{}", "/p/7", Some("7")),
            ("/p/{}", "/p/7/8", None),
            ("/p/{}.pom", "/p/a.pom.pom", Some("a.pom")),
            ("{}", "x", Some("x")),
            ("{}-*-z", "a-b-c-z", Some("a")),
            ("*-{}-z", "a-b-c-z", Some("b-c")),
            ("\\{}{}", "{}x", Some("x")),
            ("/{}*", "/abc/d", Some("a")),
        ] {
            let glob = Glob::parse_capture("pattern", pattern.as_bytes()).unwrap();
            let found = glob.capture(value.as_bytes());
            assert_eq!(found, expected.map(str::as_bytes), "{pattern} {value}");
        }
    }

    #[test]
    fn a_capture_has_one_place_and_a_pattern_a_bound() {
        for bad in ["/p", "", "/{}/{}", "\\{}"] {
            let error = Glob::parse_capture("pattern", bad.as_bytes()).unwrap_err();
            assert!(error.to_string().contains("{} once"), "{error}");
        }
        assert!(Glob::parse("path", &[b'x'; MAX_NAME_BYTES]).is_ok());
        assert!(Glob::parse("path", &[b'x'; MAX_NAME_BYTES + 1]).is_err());
    }

    /// The same by trying every length of every run.
    fn naive(pieces: &[Piece], value: &[u8]) -> bool {
        let longest = |value: &[u8]| value.iter().take_while(|b| **b != b'/').count();
        match pieces {
            [] => value.is_empty(),
            [Piece::Rest, ..] => true,
            [Piece::Text(text), rest @ ..] => value
                .strip_prefix(&**text)
                .is_some_and(|value| naive(rest, value)),
            [Piece::Run, rest @ ..] => (0..=longest(value)).any(|n| naive(rest, &value[n..])),
            [Piece::Capture, rest @ ..] => (1..=longest(value)).any(|n| naive(rest, &value[n..])),
        }
    }

    proptest! {
        #[test]
        fn the_match_agrees_with_trying_everything(
            pattern in "[ab/*]{0,8}", value in "[ab/]{1,12}"
        ) {
            let glob = glob(&pattern);
            let value = value.as_bytes();
            prop_assert_eq!(glob.matches(value), naive(&glob.pieces, value));
        }

        #[test]
        fn a_capture_agrees_with_trying_everything(
            before in "[ab/*]{0,5}", after in "[ab/*]{0,5}", value in "[ab/]{1,12}"
        ) {
            let pattern = format!("{before}{{}}{after}");
            let glob = Glob::parse_capture("pattern", pattern.as_bytes()).unwrap();
            let value = value.as_bytes();
            let found = glob.capture(value);
            prop_assert_eq!(found.is_some(), naive(&glob.pieces, value));
            if let Some(found) = found {
                // With the captured part written out, the value still matches.
                let at = glob.pieces.iter().position(|p| *p == Piece::Capture).unwrap();
                let mut pieces = glob.pieces.to_vec();
                pieces[at] = Piece::Text(found.into());
                prop_assert!(naive(&pieces, value));
                prop_assert!(!found.is_empty() && !found.contains(&b'/'));
            }
        }

        #[test]
        fn the_text_reads_as_the_same_pattern(text in "[a\\\\*{}/]{0,10}") {
            let first = glob(&text);
            prop_assert_eq!(Glob::parse("path", &first.text()).unwrap(), first);
            if let Ok(first) = Glob::parse_capture("pattern", text.as_bytes()) {
                let again = Glob::parse_capture("pattern", &first.text());
                prop_assert_eq!(again.unwrap(), first);
            }
        }

        #[test]
        fn never_panics(
            pattern in proptest::collection::vec(any::<u8>(), 0..20),
            value in proptest::collection::vec(any::<u8>(), 0..40)
        ) {
            if let Ok(glob) = Glob::parse_capture("pattern", &pattern) {
                glob.capture(&value);
            }
            Glob::parse("path", &pattern).unwrap().matches(&value);
        }
    }
}
