//! Operator events, thinned: one of a kind and subject per minute, and a bound on how many at all.

use std::collections::BTreeMap;

use crate::api::{Effect, Note};
use crate::limits::SECOND;
use crate::node::Node;

/// The same note is not repeated within this, nanoseconds.
const NOTE_EVERY_NS: u64 = 60 * SECOND;
/// Different notes remembered; beyond, new ones wait until old ones are forgotten.
const NOTES_MAX: usize = 256;

#[derive(Debug, Default)]
pub(crate) struct Notes {
    said: BTreeMap<Note, u64>,
}

impl Notes {
    /// Is it to be said now?
    fn admit(&mut self, note: Note, now_ns: u64) -> bool {
        if self.said.len() >= NOTES_MAX {
            self.said
                .retain(|_, at| now_ns.saturating_sub(*at) < NOTE_EVERY_NS);
        }
        // A skew is one subject whatever its size.
        let subject = match note {
            Note::ClockSkew { node, .. } => Note::ClockSkew { node, skew_ms: 0 },
            other => other,
        };
        match self.said.get(&subject) {
            Some(at) if now_ns.saturating_sub(*at) < NOTE_EVERY_NS => false,
            None if self.said.len() >= NOTES_MAX => false,
            _ => {
                self.said.insert(subject, now_ns);
                true
            }
        }
    }
}

impl Node {
    pub(crate) fn note(&mut self, note: Note) {
        if self.notes.admit(note, self.now.mono_ns) {
            self.effect(Effect::Note(note));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_said_once_a_minute_and_many_subjects_stay_bounded() {
        let mut n = Notes::default();
        assert!(n.admit(Note::CellsFull, 0));
        assert!(!n.admit(Note::CellsFull, NOTE_EVERY_NS - 1));
        assert!(n.admit(Note::CellsFull, NOTE_EVERY_NS));
        for node in 0..1_000 {
            n.admit(Note::ClockSkew { node, skew_ms: 5 }, NOTE_EVERY_NS + 1);
        }
        assert!(n.said.len() <= NOTES_MAX);
        assert!(!n.admit(
            Note::ClockSkew {
                node: 1,
                skew_ms: 6
            },
            NOTE_EVERY_NS + 2
        ));
    }
}
