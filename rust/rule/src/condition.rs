//! Conditions on a request's attributes: `only_if` and `except_if`.
//!
//! I own what an alternative is and when a list of them holds. I promise an answer that does not
//! depend on the order in which things are looked at, and that an attribute which could not be read
//! never decides in secret. I never read text: patterns and networks are in `attributes`.

use std::fmt;

use crate::attributes::{AttributeRef, Found, Glob, Networks};
use crate::request::Values;
use crate::wants::Refs;

/// All of these must hold.
// spec: pol-7
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alternative {
    /// At least one.
    pub clauses: Vec<Clause>,
}

/// What one attribute must be like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clause {
    /// Name of the attribute.
    pub key: Vec<u8>,
    /// What its value must be like.
    pub test: Test,
}

/// What a value must be like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Test {
    /// Any of these patterns matches; an absent attribute is an empty value.
    Like(Vec<Glob>),
    /// It is an address, or an address with a length, inside one of these.
    Within(Networks),
}

/// Whether something holds; `None` when an attribute that it hangs on could not be read.
type Answer = Option<bool>;

/// Whether any of the alternatives holds: none of none. `refs` are those of the clauses.
// spec: pol-7, pol-9
pub(crate) fn any_holds(alternatives: &[Alternative], refs: &Refs, values: &impl Values) -> Answer {
    let mut answer = Some(false);
    for (alternative, refs) in alternatives.iter().zip(refs) {
        match alternative.holds(refs, values) {
            Some(true) => return Some(true),
            Some(false) => {}
            None => answer = None,
        }
    }
    answer
}

impl Alternative {
    fn holds(&self, refs: &[AttributeRef], values: &impl Values) -> Answer {
        let mut answer = Some(true);
        for (clause, at) in self.clauses.iter().zip(refs) {
            match clause.holds(*at, values) {
                Some(false) => return Some(false),
                Some(true) => {}
                None => answer = None,
            }
        }
        answer
    }
}

impl Clause {
    pub(crate) fn holds(&self, at: AttributeRef, values: &impl Values) -> Answer {
        let value = match values.value(&self.key, at) {
            Found::Value(value) => value,
            Found::Absent => b"",
            Found::Failed => return None,
        };
        Some(match &self.test {
            Test::Like(patterns) => patterns.iter().any(|pattern| pattern.matches(value)),
            Test::Within(networks) => networks.contains_text(value),
        })
    }
}

/// The alternatives as a configuration writes them, in one line.
pub(crate) struct Shown<'a>(pub(crate) &'a [Alternative]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, alternative) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_str(" or ")?;
            }
            write!(f, "{alternative}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Alternative {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, clause) in self.clauses.iter().enumerate() {
            if at > 0 {
                f.write_str(" and ")?;
            }
            write!(f, "{clause}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Clause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<String> = match &self.test {
            Test::Like(patterns) => patterns.iter().map(shown).collect(),
            Test::Within(networks) => networks.entries().iter().map(ToString::to_string).collect(),
        };
        let key = String::from_utf8_lossy(&self.key);
        let sign = match &self.test {
            Test::Like(_) => "=",
            Test::Within(_) => " in ",
        };
        match texts.as_slice() {
            [] => write!(f, "{key}{sign}\"\""),
            [only] if only.is_empty() => write!(f, "{key}{sign}\"\""),
            texts => write!(f, "{key}{sign}{}", texts.join("|")),
        }
    }
}

fn shown(pattern: &Glob) -> String {
    String::from_utf8_lossy(&pattern.text()).into_owned()
}
