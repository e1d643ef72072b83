//! Why a rule applies to a descriptor, or does not; which rules never can.
//!
//! I own the words of a miss. I promise that what I call applying is what the index matches. I am
//! for people and not for decisions: I allocate, and look at every rule.

use std::fmt;

use crate::attributes::{AttributeRef, Found};
use crate::canonical::Sorted;
use crate::condition::{Alternative, Clause};
use crate::request::{Dropped, Values};
use crate::rule::{DescriptorPattern, Matching, Mode, Rule};
use crate::silence::covers;
use crate::table::{Matches, RuleIdx, RuleTable};
use crate::wants::{Refs, STATUS};

/// Why a rule does not apply to a descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Miss {
    /// The rule is of another domain.
    Domain,
    /// The keys differ.
    Keys {
        /// Keys of the rule that the descriptor lacks.
        missing: Vec<String>,
        /// Keys of the descriptor that the rule does not name.
        extra: Vec<String>,
    },
    /// The keys are the same, in an order other than that of a rule that matches by path.
    Order,
    /// A value does not fit.
    Value {
        /// Of which key.
        key: String,
        /// What the rule wants, as written.
        wants: String,
        /// What the descriptor has.
        has: String,
    },
    /// The rule is switched off.
    Disabled,
    /// Another rule that matches by path comes first, or an unlimited one shields.
    Behind {
        /// Its name.
        rule: String,
        /// How.
        how: Behind,
    },
    /// More rules match than are looked at.
    BeyondTheCap,
    /// The descriptor has more entries than can match.
    TooManyEntries,
}

/// How a rule that matches keeps another from applying.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behind {
    /// It is unlimited, and narrower.
    Shielded,
    /// It comes first on the path.
    Earlier,
    /// It replaces the other's limiter.
    Replaced,
}

fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl fmt::Display for Miss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Miss::Domain => f.write_str("it is of another domain"),
            Miss::Keys { missing, extra } => {
                let list = |keys: &[String]| keys.join(", ");
                match (missing.is_empty(), extra.is_empty()) {
                    (false, true) => write!(f, "the descriptor lacks {}", list(missing)),
                    (true, _) => write!(f, "the rule does not name {}", list(extra)),
                    (false, false) => write!(
                        f,
                        "the descriptor lacks {}, and the rule does not name {}",
                        list(missing),
                        list(extra)
                    ),
                }
            }
            Miss::Order => f.write_str(
                "the keys stand in another order, which counts for a rule that matches by path",
            ),
            Miss::Value { key, wants, has } => {
                write!(f, "{key}: the rule wants \"{wants}\", not \"{has}\"")
            }
            Miss::Disabled => f.write_str("it is switched off (mode: disabled)"),
            Miss::Behind { rule, how } => match how {
                Behind::Shielded => write!(f, "the unlimited rule {rule} shields from it"),
                Behind::Earlier => write!(f, "{rule} comes first on the path"),
                Behind::Replaced => write!(f, "{rule} replaces it"),
            },
            Miss::BeyondTheCap => f.write_str("more rules match than are looked at"),
            Miss::TooManyEntries => f.write_str("the descriptor has more entries than can match"),
        }
    }
}

impl RuleTable {
    /// For each rule, in configuration order: nothing when it applies to the descriptor, else why
    /// it does not. `replaces` is about whole requests, and not looked at here.
    pub fn explain(&self, domain: &[u8], entries: &[(&[u8], &[u8])]) -> Vec<Option<Miss>> {
        let mut matches = Matches::new();
        let report = self.match_descriptor(domain, entries, &mut matches);
        let miss = |(rule, index): (&Rule, RuleIdx)| {
            if matches.iter().any(|matched| matched == index) {
                return None;
            }
            if rule.domain.as_bytes() != domain {
                return Some(Miss::Domain);
            }
            if report.too_many_entries {
                return Some(Miss::TooManyEntries);
            }
            let miss =
                differs(rule, entries).or((rule.mode == Mode::Disabled).then_some(Miss::Disabled));
            Some(miss.unwrap_or_else(|| self.behind(rule, index, domain, entries)))
        };
        self.rules().iter().zip(0..).map(miss).collect()
    }

    /// A rule that fits the descriptor and still does not apply.
    fn behind(
        &self,
        rule: &Rule,
        index: RuleIdx,
        domain: &[u8],
        entries: &[(&[u8], &[u8])],
    ) -> Miss {
        let fits = |other: &&(&Rule, RuleIdx)| {
            let (other, at) = *other;
            *at != index
                && other.domain.as_bytes() == domain
                && other.mode != Mode::Disabled
                && differs(other, entries).is_none()
        };
        let others: Vec<(&Rule, RuleIdx)> = self.rules().iter().zip(0..).collect();
        let name = |found: &(&Rule, RuleIdx)| found.0.name.clone();
        let fitting = || others.iter().filter(fits);
        let earlier = fitting().find(|(other, at)| {
            rule.matching == Matching::Path && other.matching == Matching::Path && *at < index
        });
        if let Some(found) = earlier {
            let (rule, how) = (name(found), Behind::Earlier);
            return Miss::Behind { rule, how };
        }
        let shield =
            fitting().find(|(other, _)| other.mode == Mode::Unlimited && covers(rule, other));
        match shield {
            Some(found) if rule.mode != Mode::Unlimited => Miss::Behind {
                rule: name(found),
                how: Behind::Shielded,
            },
            _ => Miss::BeyondTheCap,
        }
    }

    /// Rules that no request can meet, though they are not switched off: each with the rule that
    /// always stands before it.
    pub fn never_apply(&self) -> Vec<(RuleIdx, Miss)> {
        let rules: Vec<(&Rule, RuleIdx)> = self.rules().iter().zip(0..).collect();
        let never = |(rule, index): &(&Rule, RuleIdx)| {
            let always = rules.iter().find_map(|(other, at)| {
                let how = (at != index).then(|| stands_before(self, (other, *at), (rule, *index)));
                let rule = other.name.clone();
                how.flatten().map(|how| Miss::Behind { rule, how })
            });
            always.map(|miss| (*index, miss))
        };
        let on = |(rule, _): &&(&Rule, RuleIdx)| rule.mode != Mode::Disabled;
        rules.iter().filter(on).filter_map(never).collect()
    }
}

/// How `other` keeps `rule` from every request that fits it, if it does.
fn stands_before(
    table: &RuleTable,
    (other, at): (&Rule, RuleIdx),
    (rule, index): (&Rule, RuleIdx),
) -> Option<Behind> {
    // What hangs on a request, too, keeps nothing from all of them.
    let hangs = other.matching == Matching::Request || !other.is_plain();
    if hangs || other.mode == Mode::Disabled || other.domain != rule.domain {
        return None;
    }
    let paths = other.matching == Matching::Path && rule.matching == Matching::Path;
    let same_keys = match (paths, other.matching == rule.matching) {
        (true, _) => keys_of(other).eq(keys_of(rule)),
        (false, true) => {
            let sorted = |rule| {
                let mut keys: Vec<&[u8]> = keys_of(rule).collect();
                keys.sort_unstable();
                keys
            };
            sorted(other) == sorted(rule)
        }
        (false, false) => false,
    };
    if !same_keys || !covers(other, rule) {
        return None;
    }
    if paths {
        // One rule of a path applies, the first: a later one does not even shield from it.
        return (at < index).then_some(Behind::Earlier);
    }
    if other.mode == Mode::Unlimited && rule.mode != Mode::Unlimited && covers(rule, other) {
        return Some(Behind::Shielded);
    }
    table.replaces(at, index).then_some(Behind::Replaced)
}

fn keys_of(rule: &Rule) -> impl Iterator<Item = &[u8]> {
    rule.descriptors.iter().map(|d| d.key.as_slice())
}

impl RuleTable {
    /// Why a rule does not apply to a request with these attributes, in words.
    pub fn why_dropped(&self, index: RuleIdx, why: Dropped, values: &impl Values) -> String {
        let Some(rule) = self.rule(index) else {
            return "there is no such rule".to_owned();
        };
        let name = |of: RuleIdx| self.rule(of).map_or("?", |rule| rule.name.as_str());
        let wants = self.mark(index).and_then(|mark| mark.wants.as_ref());
        match why {
            Dropped::Flag => rule.switch.as_ref().map_or_else(String::new, |switch| {
                let is = if switch.on { "off" } else { "on" };
                let (word, flag) = (switch.word(), &switch.flag.name);
                format!("{word}: the flag {flag} is {is} for this request")
            }),
            Dropped::OnlyIf => {
                let misses = wants.map(|wants| misses(&rule.only_if, &wants.only_if, values));
                format!("only_if does not hold: {}", misses.unwrap_or_default())
            }
            Dropped::ExceptIf => {
                let met = wants.and_then(|wants| met(&rule.except_if, &wants.except_if, values));
                format!("except_if holds: {}", met.unwrap_or_default())
            }
            Dropped::Absent | Dropped::Value => {
                let parts = rule.descriptors.iter();
                let absent = |key: &[u8], at| matches!(values.value(key, at), Found::Absent);
                let mut pairs = parts.zip(wants.iter().flat_map(|wants| wants.keys.iter()));
                let lacking = pairs.find(|(part, at)| match values.value(&part.key, **at) {
                    Found::Value(value) => part.fallback.is_none() && !part.value.matches(value),
                    _ => part.fallback.is_none(),
                });
                match lacking {
                    Some((part, at)) if absent(&part.key, *at) => {
                        format!("the request has no {}", shown(&part.key))
                    }
                    Some((part, at)) => format!(
                        "{}: the rule wants \"{}\", not \"{}\"",
                        shown(&part.key),
                        shown(&part.value.text()),
                        shown(values.value(&part.key, *at).value().unwrap_or_default())
                    ),
                    None => "a value does not fit".to_owned(),
                }
            }
            Dropped::Unreadable => "an attribute that it needs could not be read".to_owned(),
            Dropped::Phase => {
                "the response is known, and the rule was charged before it".to_owned()
            }
            Dropped::Status => {
                let status = wants.map(|wants| values.value(STATUS.as_bytes(), wants.status));
                let status = status.and_then(Found::value).unwrap_or_default();
                format!("it is not charged for the status {}", shown(status))
            }
            Dropped::Replaced(by) => format!("{} replaces it", name(by)),
            Dropped::AfterLast(by) => format!("{} is the last rule (last: true)", name(by)),
            Dropped::TooMany => "more rules apply than are looked at".to_owned(),
        }
    }
}

/// Of each alternative the first attribute that does not fit, with what it is.
fn misses(alternatives: &[Alternative], refs: &Refs, values: &impl Values) -> String {
    let all = alternatives
        .iter()
        .zip(refs)
        .filter_map(|(alternative, refs)| {
            let mut clauses = alternative.clauses.iter().zip(refs);
            let (clause, at) =
                clauses.find(|(clause, at)| clause.holds(**at, values) != Some(true))?;
            Some(format!("{clause} ({})", value_text(clause, *at, values)))
        });
    all.collect::<Vec<_>>().join("; ")
}

/// The first alternative that holds.
fn met(alternatives: &[Alternative], refs: &Refs, values: &impl Values) -> Option<String> {
    let mut all = alternatives.iter().zip(refs);
    let (alternative, _) = all.find(|(alternative, refs)| {
        let mut clauses = alternative.clauses.iter().zip(refs.iter());
        clauses.all(|(clause, at)| clause.holds(*at, values) == Some(true))
    })?;
    Some(alternative.to_string())
}

fn value_text(clause: &Clause, at: AttributeRef, values: &impl Values) -> String {
    let key = shown(&clause.key);
    match values.value(&clause.key, at) {
        Found::Value(value) => format!("{key} is \"{}\"", shown(value)),
        Found::Absent => format!("{key} is absent"),
        Found::Failed => format!("{key} could not be read"),
    }
}

/// The first difference between a rule's patterns and a descriptor.
fn differs(rule: &Rule, entries: &[(&[u8], &[u8])]) -> Option<Miss> {
    let sorted = Sorted::new(entries)?;
    let mut patterns: Vec<&DescriptorPattern> = rule.descriptors.iter().collect();
    patterns.sort_by(|a, b| a.key.cmp(&b.key));
    let (mut missing, mut extra) = (Vec::new(), Vec::new());
    let has: Vec<&[u8]> = sorted.keys().collect();
    let wants: Vec<&[u8]> = patterns.iter().map(|d| d.key.as_slice()).collect();
    let times = |keys: &[&[u8]], key: &[u8]| keys.iter().filter(|k| **k == key).count();
    for (at, key) in wants.iter().enumerate() {
        if times(&wants[..=at], key) > times(&has, key) {
            missing.push(shown(key));
        }
    }
    for (at, key) in has.iter().enumerate() {
        if times(&has[..=at], key) > times(&wants, key) {
            extra.push(shown(key));
        }
    }
    if !missing.is_empty() || !extra.is_empty() {
        return Some(Miss::Keys { missing, extra });
    }
    let in_order = entries.iter().map(|(key, _)| *key).eq(keys_of(rule));
    if rule.matching == Matching::Path && !in_order {
        return Some(Miss::Order);
    }
    // Of equal keys the nth pattern meets the nth entry; both orders are stable.
    let mut pairs = patterns.iter().zip(sorted.iter());
    let (pattern, (key, value)) = pairs.find(|(d, (_, value))| !d.value.matches(value))?;
    Some(Miss::Value {
        key: shown(key),
        wants: shown(&pattern.value.text()),
        has: shown(value),
    })
}

#[cfg(test)]
mod tests;
