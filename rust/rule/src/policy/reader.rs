//! Typed reading of located nodes, with every fault reported at its place.
//!
//! I own the collection of problems and the reader of mappings. I promise that a reader reports
//! unknown keys with the known one that was probably meant, and that reading goes on after a fault
//! so that all faults are seen at once. I never stop at the first fault.

use std::cell::RefCell;
use std::ops::RangeInclusive;
use std::sync::Arc;

use super::yaml::{nearest, Node, Pos, Value};
use super::PolicyError;
use crate::duration::{parse_duration_ns, shorten, DurationText};
use crate::error::{Place, RuleError};
use crate::limits::MAX_REPORTED_ERRORS;

/// The faults found in one file so far. Shared by reference between readers of one document.
#[derive(Debug)]
pub struct Problems {
    file: Arc<str>,
    found: RefCell<Vec<PolicyError>>,
    /// Faults beyond [`MAX_REPORTED_ERRORS`].
    more: RefCell<usize>,
}

impl Problems {
    /// No problems in `file` yet.
    pub fn new(file: &str) -> Self {
        Problems {
            file: file.into(),
            found: RefCell::default(),
            more: RefCell::default(),
        }
    }

    /// The place of a position in this file.
    pub fn place(&self, pos: Pos) -> Place {
        Place {
            file: self.file.clone(),
            line: pos.line,
            column: pos.column,
        }
    }

    /// Reports a fault at a position; `key` is the path of the key, empty for the whole document.
    pub fn at(&self, pos: Pos, key: &str, message: impl Into<String>) {
        self.report(self.place(pos), key, message.into(), None);
    }

    /// Reports a fault with what was probably meant.
    pub fn at_with(&self, pos: Pos, key: &str, message: impl Into<String>, suggestion: &str) {
        self.report(
            self.place(pos),
            key,
            message.into(),
            Some(suggestion.to_owned()),
        );
    }

    /// Takes over a fault that was found elsewhere.
    pub fn add(&self, error: PolicyError) {
        self.report(error.place, &error.key, error.message, error.suggestion);
    }

    pub(super) fn report(&self, place: Place, key: &str, message: String, hint: Option<String>) {
        let mut found = self.found.borrow_mut();
        if found.len() >= MAX_REPORTED_ERRORS {
            *self.more.borrow_mut() += 1;
            return;
        }
        found.push(PolicyError {
            place,
            key: key.to_owned(),
            message,
            suggestion: hint,
        });
    }

    /// Whether something was reported of the key at a path, or below it.
    pub(super) fn has_at(&self, path: &str) -> bool {
        let at = |error: &PolicyError| {
            let rest = error.key.strip_prefix(path);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        // Beyond what is kept nobody can tell, and something was reported.
        self.found.borrow().iter().any(at) || *self.more.borrow() > 0
    }

    /// Whether nothing was reported.
    pub fn is_empty(&self) -> bool {
        self.found.borrow().is_empty()
    }

    /// The faults in the order of the file. When there were more than are kept, the last one says
    /// how many.
    pub fn into_errors(self) -> Vec<PolicyError> {
        let mut errors = self.found.into_inner();
        errors.sort_by(|a, b| a.place.cmp(&b.place));
        let more = self.more.into_inner();
        if let (true, Some(last)) = (more > 0, errors.last()) {
            let (place, key) = (last.place.clone(), String::new());
            let message = format!("{more} more errors after this one are not shown");
            errors.push(PolicyError {
                place,
                key,
                message,
                suggestion: None,
            });
        }
        errors
    }
}

/// Reads one mapping: each getter takes one key, [`MapReader::finish`] reports the keys that nobody
/// asked for.
#[derive(Debug)]
pub struct MapReader<'d, 'p> {
    node: &'d Node,
    path: String,
    problems: &'p Problems,
    known: Vec<&'static str>,
}

impl<'d, 'p> MapReader<'d, 'p> {
    /// A reader of `node`, whose path is `path` (empty for the document). Anything but a mapping is
    /// reported, and gives `None`.
    pub fn new(node: &'d Node, path: &str, problems: &'p Problems) -> Option<Self> {
        if node.as_map().is_none() {
            let message = match (&node.value, path) {
                (Value::Null, "") => "the file is empty; a mapping is expected".to_owned(),
                _ => format!("{} stands here; a mapping of keys is expected", node.kind()),
            };
            problems.at(node.pos, path, message);
            return None;
        }
        Some(MapReader {
            node,
            path: path.to_owned(),
            problems,
            known: Vec::new(),
        })
    }

    /// Where the mapping starts.
    pub fn pos(&self) -> Pos {
        self.node.pos
    }

    /// Path of the mapping, empty for the document.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Path of a key of this mapping, as messages print it.
    pub fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.path)
        }
    }

    /// Reports a fault of a key: at its value, or at the mapping when the key is absent.
    pub fn problem(&self, key: &str, message: impl Into<String>) {
        let pos = self.node.get(key).map_or(self.node.pos, |node| node.pos);
        self.problems.at(pos, &self.path_of(key), message);
    }

    fn rule_problem(&self, key: &str, error: &RuleError) {
        self.problem(key, error.to_string());
    }

    /// The value of a key, whatever it is. `None` when the key is absent or has no value.
    pub fn node(&mut self, key: &'static str) -> Option<&'d Node> {
        self.known.push(key);
        self.node.get(key).filter(|node| !node.is_null())
    }

    /// Whether the key is present, with or without a value.
    pub fn has(&mut self, key: &'static str) -> bool {
        self.known.push(key);
        self.node.get(key).is_some()
    }

    /// Reports a key that has another name now, when it is there.
    pub fn renamed(&mut self, key: &'static str, advice: &str) {
        if self.node.get(key).is_some() {
            self.known.push(key);
            self.problem(key, advice);
        }
    }

    /// The text of a key; any scalar is text.
    pub fn text(&mut self, key: &'static str) -> Option<&'d str> {
        let node = self.node(key)?;
        if node.as_text().is_none() {
            self.problem(
                key,
                format!("{} stands here; a single value is expected", node.kind()),
            );
        }
        node.as_text()
    }

    /// The text of a key that must be there.
    pub fn required_text(&mut self, key: &'static str) -> Option<&'d str> {
        if self.node(key).is_none() {
            self.problem(key, "this key is required");
            return None;
        }
        self.text(key)
    }

    /// `true` or `false`.
    pub fn bool(&mut self, key: &'static str) -> Option<bool> {
        match self.text(key)? {
            "true" => Some(true),
            "false" => Some(false),
            other => {
                self.problem(key, format!("{} is neither true nor false", shorten(other)));
                None
            }
        }
    }

    /// A whole number in a range; decimal, or hexadecimal with `0x`; `_` may group digits.
    pub fn u64_in(&mut self, key: &'static str, range: RangeInclusive<u64>) -> Option<u64> {
        let text = self.text(key)?;
        let message = match parse_u64(text) {
            Some(number) if range.contains(&number) => return Some(number),
            Some(_) => format!("{text} is outside {} to {}", range.start(), range.end()),
            None if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) => {
                format!(
                    "{} is outside {} to {}",
                    shorten(text),
                    range.start(),
                    range.end()
                )
            }
            None => format!("{} is not a whole number", shorten(text)),
        };
        self.problem(key, message);
        None
    }

    /// A duration in nanoseconds, in a range.
    pub fn duration_ns(&mut self, key: &'static str, range: RangeInclusive<u64>) -> Option<u64> {
        let text = self.text(key)?;
        match parse_duration_ns(key, text) {
            Ok(ns) if range.contains(&ns) => return Some(ns),
            Ok(_) => {
                let (least, most) = (DurationText(*range.start()), DurationText(*range.end()));
                self.problem(key, format!("{text} is outside {least} to {most}"));
            }
            Err(error) => self.rule_problem(key, &error),
        }
        None
    }

    /// A size in bytes, in a range: `4096`, `64k`, `512m`, `2g` (powers of 1,024; a `b` or `ib` may
    /// follow, case does not matter).
    pub fn size_bytes(&mut self, key: &'static str, range: RangeInclusive<u64>) -> Option<u64> {
        let text = self.text(key)?;
        let message = match parse_size(text) {
            Some(size) if range.contains(&size) => return Some(size),
            Some(_) => format!(
                "{text} is outside {} to {} bytes",
                range.start(),
                range.end()
            ),
            None => format!("{} is not a size like 4096, 64k, 512m or 2g", shorten(text)),
        };
        self.problem(key, message);
        None
    }

    /// One of some words.
    pub fn word<'w>(&mut self, key: &'static str, words: &[&'w str]) -> Option<&'w str> {
        let text = self.text(key)?;
        if let Some(word) = words.iter().find(|word| **word == text) {
            return Some(word);
        }
        let message = format!("{} is none of: {}", shorten(text), words.join(", "));
        let pos = self.node.get(key).map_or(self.node.pos, |node| node.pos);
        match nearest(text, words.iter().copied()) {
            Some(near) => self
                .problems
                .at_with(pos, &self.path_of(key), message, near),
            None => self.problems.at(pos, &self.path_of(key), message),
        }
        None
    }

    /// The items of a list.
    pub fn list(&mut self, key: &'static str) -> Option<&'d [Node]> {
        let node = self.node(key)?;
        if node.as_list().is_none() {
            self.problem(
                key,
                format!("{} stands here; a list is expected", node.kind()),
            );
        }
        node.as_list()
    }

    /// The texts of a list of scalars; a single scalar is a list of one.
    pub fn texts(&mut self, key: &'static str) -> Option<Vec<&'d str>> {
        let node = self.node(key)?;
        if let Some(text) = node.as_text() {
            return Some(vec![text]);
        }
        let items = self.list(key)?;
        let mut texts = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            match item.as_text() {
                Some(text) => texts.push(text),
                None => {
                    let path = format!("{}[{index}]", self.path_of(key));
                    let message =
                        format!("{} stands here; a single value is expected", item.kind());
                    self.problems.at(item.pos, &path, message);
                }
            }
        }
        Some(texts)
    }

    /// A reader of a mapping below this one.
    pub fn map(&mut self, key: &'static str) -> Option<MapReader<'d, 'p>> {
        let node = self.node(key)?;
        MapReader::new(node, &self.path_of(key), self.problems)
    }

    /// Reports every key that no getter asked for.
    pub fn finish(self) {
        for entry in self.node.as_map().unwrap_or_default() {
            if self.known.contains(&entry.key.as_str()) {
                continue;
            }
            let path = self.path_of(&shorten(&entry.key));
            let near = nearest(&entry.key, self.known.iter().copied());
            match near {
                Some(near) => {
                    self.problems
                        .at_with(entry.pos, &path, "this key is not known", near)
                }
                None => {
                    let message = format!("this key is not known; known are: {}", self.words());
                    self.problems.at(entry.pos, &path, message);
                }
            }
        }
    }

    fn words(&self) -> String {
        let mut known = self.known.clone();
        known.sort_unstable();
        known.dedup();
        known.join(", ")
    }
}

fn parse_u64(text: &str) -> Option<u64> {
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => (hex, 16),
        None => (text, 10),
    };
    let first = digits.bytes().next()?;
    if !char::from(first).is_digit(radix) {
        return None;
    }
    u64::from_str_radix(&digits.replace('_', ""), radix).ok()
}

fn parse_size(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let number: u64 = text[..digits].parse().ok()?;
    let unit = match text[digits..].to_ascii_lowercase().as_str() {
        "" | "b" => 1u64,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        _ => return None,
    };
    number.checked_mul(unit)
}
