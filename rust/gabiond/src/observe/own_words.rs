//! What a rule wants the log to say of its decisions: its message and its fields.
//!
//! I own the way from a rule's `log` to a line. I promise that nothing is derived for a line that
//! is thinned out, and that nothing is allocated before a line is written.

use std::fmt;

use arrayvec::{ArrayString, ArrayVec};
use gabion_rule::limits::{MAX_LOG_FIELDS, MAX_LOG_NAME_BYTES};
use gabion_rule::LogLine;

use super::text::{name, Shower, Text};

/// Name of the field of an event that carries the fields of a rule, as JSON pairs; the log writes
/// each of them under its own name.
pub(crate) const SHOWN: &str = "shown";

/// Names and values of a line, as they are shown.
pub(crate) type Fields = ArrayVec<(ArrayString<MAX_LOG_NAME_BYTES>, Text), MAX_LOG_FIELDS>;

/// Takes a name and a value.
pub type Take<'t> = dyn FnMut(&str, &[u8]) + 't;

/// A rule's own words about one decision.
// spec: pol-21
#[derive(Clone, Copy)]
pub struct OwnWords<'a> {
    line: Option<&'a LogLine>,
    values: &'a dyn Fn(&mut Take<'_>),
}

impl<'a> OwnWords<'a> {
    /// The words of `line`; `values` derives its fields and hands each of them over.
    pub fn new(line: Option<&'a LogLine>, values: &'a dyn Fn(&mut Take<'_>)) -> Self {
        OwnWords { line, values }
    }

    /// The message; empty when the rule has none.
    pub(super) fn message(&self) -> &'a str {
        let message = self.line.and_then(|line| line.message.as_deref());
        message.unwrap_or("")
    }

    /// The fields, derived now.
    pub(super) fn fields(&self, shower: &Shower) -> Fields {
        let mut fields = Fields::new();
        if self.line.is_some_and(|line| !line.fields.is_empty()) {
            (self.values)(&mut |of, value| {
                // A rule has no more fields than there is room for.
                let _ = fields.try_push((name(of), shower.value(value)));
            });
        }
        fields
    }
}

impl fmt::Debug for OwnWords<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OwnWords({:?})", self.line)
    }
}

/// The fields as the event carries them; `None` when there are none.
pub(super) fn as_json(fields: &Fields) -> Option<String> {
    let pairs: Vec<(&str, &str)> = fields
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    // Texts can always be written.
    (!pairs.is_empty()).then(|| serde_json::to_string(&pairs).unwrap_or_default())
}
