//! The checks of what picks, exempts and tiers a request.
//!
//! I own the bounds of conditions, fallbacks, tiers and late charges, and what a rule may name. I
//! promise that a rule never names what it can never see.

use std::collections::BTreeSet;

use super::{limit_of, Check};
use crate::condition::{Alternative, Test};
use crate::duration::shorten;
use crate::error::RuleError;
use crate::limits::{MAX_ALTERNATIVES, MAX_CLAUSES, MAX_NAME_BYTES, MAX_PATTERNS, MAX_TIERS};
use crate::operator::Switch;
use crate::rate::Rate;
use crate::rule::{Algorithm, DescriptorPattern, Matching, Mode, ValuePattern};
use crate::tier::{Tier, Tiers};

/// The tiers of a rule as a configuration gives them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TiersSpec {
    /// Name of the attribute.
    pub by: Vec<u8>,
    /// Values with their rates, like `100r/s`.
    pub rates: Vec<(Vec<u8>, String)>,
}

impl TiersSpec {
    /// The words that make these tiers again.
    pub fn of(tiers: &Tiers) -> Self {
        let rates = tiers.all().iter();
        TiersSpec {
            by: tiers.by().to_vec(),
            rates: rates
                .map(|tier| (tier.value.clone(), tier.rate.to_string()))
                .collect(),
        }
    }
}

fn text(bytes: &[u8]) -> String {
    shorten(&String::from_utf8_lossy(bytes))
}

impl Check<'_> {
    /// Which settings go with which way of matching.
    pub(super) fn vocabulary(&mut self, matching: Matching, parts: &[DescriptorPattern]) {
        let spec = self.spec;
        self.conditions("only_if", &spec.only_if);
        self.conditions("except_if", &spec.except_if);
        if matching == Matching::Request {
            return self.request(parts);
        }
        let conditional = !spec.only_if.is_empty() || !spec.except_if.is_empty();
        if conditional && spec.mode.as_deref() == Some(Mode::Unlimited.word()) {
            self.errors.push(RuleError::Conflict {
                first: "only_if and except_if",
                second: "mode",
                why: "an unlimited rule shields whole descriptors; write match: request, and \
                      replaces or last to say what is spared",
            });
        }
        if spec.charge.is_some() {
            self.errors.push(RuleError::Conflict {
                first: "match",
                second: "charge",
                why: "only match: request can wait for the response; write it, or leave charge out",
            });
        }
        if let Some(part) = parts.iter().find(|part| part.fallback.is_some()) {
            self.errors.push(RuleError::Malformed {
                setting: "descriptors",
                text: text(&part.key),
                why: "its fallback stands for a key that is absent, and only match: request looks \
                      at descriptors that lack one"
                    .to_owned(),
                hint: "match: request, or leave fallback out",
            });
        }
        let clauses = |list: &[Alternative]| {
            let clauses = list.iter().flat_map(|alternative| &alternative.clauses);
            clauses.map(|clause| clause.key.clone()).collect::<Vec<_>>()
        };
        self.sees("only_if", clauses(&spec.only_if), matching, parts);
        self.sees("except_if", clauses(&spec.except_if), matching, parts);
        let by = spec.tiers.iter().map(|tiers| tiers.by.clone());
        self.sees("tiers", by.collect(), matching, parts);
        let switch = spec.switch.as_ref();
        let by = switch.and_then(|switch| switch.flag.by.clone());
        let word = switch.map_or("if_flag", Switch::word);
        self.sees(word, by.into_iter().collect(), matching, parts);
    }

    /// What the log shows must be there to be seen.
    // spec: pol-8, pol-21
    pub(super) fn log(&mut self, matching: Matching, parts: &[DescriptorPattern]) {
        let Some(log) = &self.spec.log else {
            return;
        };
        self.errors.extend(log.faults());
        if matching != Matching::Request {
            let names = log.fields.iter().map(|name| name.clone().into_bytes());
            self.sees("log", names.collect(), matching, parts);
        }
    }

    /// All names must be keys of the descriptor.
    // spec: pol-8
    fn sees(
        &mut self,
        setting: &'static str,
        names: Vec<Vec<u8>>,
        matching: Matching,
        parts: &[DescriptorPattern],
    ) {
        let mut told = BTreeSet::new();
        for name in names {
            if parts.iter().any(|part| part.key == name) || !told.insert(name.clone()) {
                continue;
            }
            let keys: Vec<String> = parts.iter().map(|part| text(&part.key)).collect();
            let key = text(&name);
            let near = crate::policy::yaml::nearest(&key, keys.iter().map(String::as_str));
            self.errors.push(RuleError::NeverSeen {
                setting,
                suggestion: near.map(str::to_owned),
                key,
                matching: matching.word(),
                known: keys.join(", "),
            });
        }
    }

    /// What goes for rules that pick their keys.
    // spec: pol-3, pol-6
    fn request(&mut self, parts: &[DescriptorPattern]) {
        let mut seen = BTreeSet::new();
        for part in parts {
            let key = text(&part.key);
            if !seen.insert(&part.key) {
                self.errors.push(RuleError::Malformed {
                    setting: "descriptors",
                    text: key.clone(),
                    why: "the key stands here twice".to_owned(),
                    hint: "each attribute once",
                });
            }
            if matches!(&part.value, ValuePattern::Exact(value) if value.is_empty()) {
                self.errors.push(RuleError::Malformed {
                    setting: "descriptors",
                    text: key,
                    why: "an empty value is an absent attribute, so this rule would never apply"
                        .to_owned(),
                    hint: "only_if with this key and \"\", or a fallback",
                });
            }
        }
    }

    fn conditions(&mut self, setting: &'static str, list: &[Alternative]) {
        let mut bound = |count: usize, most: usize, what: &str, advice: &str| {
            if count > most {
                self.errors.push(RuleError::OutOfRange {
                    setting,
                    text: format!("{count} {what}"),
                    why: format!("there are at most {most}; {advice}"),
                });
            }
        };
        let advice = "put several patterns of one key into a list";
        bound(list.len(), MAX_ALTERNATIVES, "alternatives", advice);
        for alternative in list {
            let advice = "an alternative names each attribute once";
            bound(alternative.clauses.len(), MAX_CLAUSES, "keys", advice);
            for clause in &alternative.clauses {
                if let Test::Like(patterns) = &clause.test {
                    let advice = "use prefixes, or a lookup attribute";
                    bound(patterns.len(), MAX_PATTERNS, "patterns", advice);
                }
            }
        }
    }

    /// The limits of tiers in the rule's window.
    // spec: pol-14
    pub(super) fn tiers(&mut self, algorithm: Option<&Algorithm>) -> Option<Tiers> {
        let given = self.spec.tiers.as_ref()?;
        let setting = "tiers";
        let window_ns = match algorithm {
            Some(Algorithm::Window { window_ns, .. }) => Some(*window_ns),
            Some(Algorithm::TokenBucket { .. }) => {
                self.errors.push(RuleError::Conflict {
                    first: "burst",
                    second: setting,
                    why: "tiers are limits of a window, and burst makes a token bucket; leave \
                          burst out, or write a rule for each tier with only_if",
                });
                None
            }
            None => None,
        };
        if given.by.is_empty() || given.rates.is_empty() {
            self.errors.push(RuleError::Missing {
                setting,
                hint: "by: the attribute, and rates: a rate for each value",
            });
        }
        if given.rates.len() > MAX_TIERS {
            self.errors.push(RuleError::OutOfRange {
                setting,
                text: format!("{} rates", given.rates.len()),
                why: format!("there are at most {MAX_TIERS}; group values with a lookup attribute"),
            });
        }
        let mut tiers = Vec::new();
        for (value, rate) in &given.rates {
            if value.is_empty() || value.len() > MAX_NAME_BYTES {
                self.errors.push(RuleError::OutOfRange {
                    setting,
                    text: text(value),
                    why: format!("a tier's value has 1 to {MAX_NAME_BYTES} bytes"),
                });
            }
            let parsed = rate.parse::<Rate>();
            let Some(rate) = self.keep(parsed.map_err(|error| in_tier(value, &error))) else {
                continue;
            };
            let Some(window_ns) = window_ns else { continue };
            let limit = limit_of(rate, window_ns).map_err(|error| in_tier(value, &error));
            if let Some(limit) = self.keep(limit) {
                tiers.push(Tier {
                    value: value.clone(),
                    rate,
                    limit,
                });
            }
        }
        Some(Tiers::new(given.by.clone(), tiers))
    }
}

/// An error of a tier's rate, so that it is looked for among the tiers.
fn in_tier(value: &[u8], error: &RuleError) -> RuleError {
    RuleError::Malformed {
        setting: "tiers",
        text: text(value),
        why: error.to_string(),
        hint: "a rate that gives at least one hit in the rule's window",
    }
}
