//! The checks of what a rule counts by.
//!
//! I own the bounds of descriptors and their fallbacks. I promise that a value which looks like a
//! wildcard and is none is said.

use super::{Check, DescriptorSpec};
use crate::duration::shorten;
use crate::error::{NoticeKind, RuleError};
use crate::limits::{MAX_DESCRIPTOR_ENTRIES, MAX_KNOWN, MAX_NAME_BYTES};
use crate::rule::{DescriptorPattern, Fallback, Matching, ValuePattern};

impl Check<'_> {
    // spec: rule-8, rule-9
    pub(super) fn descriptors(&mut self, matching: Matching) -> Vec<DescriptorPattern> {
        let spec = self.spec;
        let setting = "descriptors";
        if spec.descriptors.is_empty() && matching != Matching::Request {
            let hint = "at least one key to count by";
            self.errors.push(RuleError::Missing { setting, hint });
        }
        if spec.descriptors.len() > MAX_DESCRIPTOR_ENTRIES {
            self.errors.push(RuleError::OutOfRange {
                setting,
                text: format!("{} entries", spec.descriptors.len()),
                why: format!("a descriptor has at most {MAX_DESCRIPTOR_ENTRIES}"),
            });
        }
        let entries = spec.descriptors.iter().take(MAX_DESCRIPTOR_ENTRIES);
        entries
            .map(|entry| self.descriptor(matching, entry))
            .collect()
    }

    fn descriptor(&mut self, matching: Matching, entry: &DescriptorSpec) -> DescriptorPattern {
        let setting = "descriptors";
        let key = String::from_utf8_lossy(&entry.key).into_owned();
        let value = entry.value.as_deref();
        if entry.key.is_empty() {
            let hint = "a descriptor key";
            self.errors.push(RuleError::Missing { setting, hint });
        }
        if entry.key.len() > MAX_NAME_BYTES || value.is_some_and(|v| v.len() > MAX_NAME_BYTES) {
            self.errors.push(RuleError::OutOfRange {
                setting,
                text: shorten(&key),
                why: format!("keys and values have at most {MAX_NAME_BYTES} bytes"),
            });
        }
        let mut pattern = DescriptorPattern::new(entry.key.clone(), value);
        pattern.shared = entry.shared;
        if entry.shared && matches!(pattern.value, ValuePattern::Exact(_)) {
            self.errors.push(RuleError::Conflict {
                first: "shared",
                second: setting,
                why: "an exact value has one counter anyway; share a value that ends in *",
            });
        }
        match &pattern.value {
            ValuePattern::Exact(exact) if exact.is_empty() && matching != Matching::Request => {
                self.notice(NoticeKind::EmptyValue { key });
            }
            ValuePattern::Exact(inner) | ValuePattern::Prefix(inner)
                if inner
                    .split_last()
                    .is_some_and(|(_, rest)| rest.contains(&b'*')) =>
            {
                let value = String::from_utf8_lossy(&pattern.value.text()).into_owned();
                self.notice(NoticeKind::LiteralStar { key, value });
            }
            _ => {}
        }
        if let Some(given) = &entry.fallback {
            pattern.fallback = Some(self.fallback(&pattern, given));
        }
        pattern
    }

    /// A descriptor's fallback, checked.
    // spec: pol-6
    fn fallback(&mut self, part: &DescriptorPattern, given: &Fallback) -> Fallback {
        let setting = "descriptors";
        if part.value != ValuePattern::Any {
            self.errors.push(RuleError::Malformed {
                setting,
                text: shorten(&String::from_utf8_lossy(&part.key)),
                why: "value and fallback exclude each other".to_owned(),
                hint: "the good values in known instead of value",
            });
        }
        let values = || std::iter::once(&given.value).chain(&given.known);
        if values().any(|value| value.is_empty() || value.len() > MAX_NAME_BYTES) {
            self.errors.push(RuleError::OutOfRange {
                setting,
                text: shorten(&String::from_utf8_lossy(&part.key)),
                why: format!("fallback and known values have 1 to {MAX_NAME_BYTES} bytes"),
            });
        }
        if given.known.len() > MAX_KNOWN {
            self.errors.push(RuleError::OutOfRange {
                setting,
                text: format!("{} known values", given.known.len()),
                why: format!("there are at most {MAX_KNOWN}; use a lookup attribute for more"),
            });
        }
        let mut known = given.known.clone();
        known.sort();
        known.dedup();
        Fallback {
            value: given.value.clone(),
            known,
        }
    }
}
