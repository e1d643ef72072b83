//! The policy file: YAML in, validated rules out.
//!
//! I own the `limits:` list and the located errors. I promise that a file is taken whole or not at
//! all, and that each error says file, line, column, key and, for a misspelt key, the right one. I
//! never read files: the edge hands me their text.

use std::fmt;

use crate::attributes::Attributes;
use crate::error::{Notice, Place, RuleError};
use crate::rule::Rule;
use crate::silence::never_match;
use crate::spec::{DescriptorSpec, RuleSpec};

mod attributes;
mod flags;
mod print;
mod reader;
pub mod toml;
mod vocabulary;
pub mod yaml;

pub use attributes::attributes_to_yaml;
pub(crate) use attributes::read_networks;
pub use flags::{declared, FlagSpec};
pub use print::{flags_to_yaml, policy_to_yaml, to_yaml};
pub use reader::{MapReader, Problems};
use vocabulary::{read_charge, read_conditions, read_denial, read_fallback, read_log, read_tiers};
use yaml::{Node, Pos};

/// What a policy file says, in its order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// The attributes that are derived from what a request brings.
    pub attributes: Attributes,
    /// The rules.
    pub rules: Vec<Rule>,
    /// The flags that rules may name.
    pub flags: Vec<FlagSpec>,
    /// What an operator should know about them.
    pub notices: Vec<Notice>,
}

/// One fault of a policy file. The file was refused as a whole; what was in force stays in force.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct PolicyError {
    /// Where.
    pub place: Place,
    /// Path of the key, like `limits[2].rate`; empty for the document.
    pub key: String,
    /// What is wrong and what to write.
    pub message: String,
    /// The key or word that was probably meant.
    pub suggestion: Option<String>,
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.place)?;
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.message)?;
        match &self.suggestion {
            Some(word) => write!(f, "; did you mean {word}?"),
            None => Ok(()),
        }
    }
}

/// Parses a policy file: a mapping whose only keys are `limits`, `flags` and `attributes`.
///
/// # Errors
/// Every fault that can be found at once, in the order of the file.
pub fn parse_limits(file_name: &str, yaml: &str) -> Result<Policy, Vec<PolicyError>> {
    let root = yaml::parse(file_name, yaml)?;
    let problems = Problems::new(file_name);
    let mut policy = Policy::default();
    if let Some(mut map) = MapReader::new(&root, "", &problems) {
        if map.node("limits").is_none() {
            map.problem(
                "limits",
                "this key is required; write limits: [] for no rules",
            );
        }
        policy = read_limits(&mut map, &problems);
        map.finish();
    }
    if problems.is_empty() {
        Ok(policy)
    } else {
        Err(problems.into_errors())
    }
}

/// Parses a file of rules by its name: a `.toml` file is a registry's block
/// ([`crate::registry::parse`]), any other a policy file ([`parse_limits`]).
///
/// # Errors
/// Every fault that can be found at once, in the order of the file.
// spec: rule-16, attr-11
pub fn parse_file(file_name: &str, text: &str) -> Result<Policy, Vec<PolicyError>> {
    let suffix = file_name.rsplit('.').next().unwrap_or_default();
    match suffix.eq_ignore_ascii_case("toml") {
        true => crate::registry::parse(file_name, text),
        false => parse_limits(file_name, text),
    }
}

/// Reads the keys `limits`, `flags` and `attributes` of a larger document. Faults go to `problems`,
/// also those between rules (equal counters, equal names); what is returned is only of use when
/// there are none. Absent keys are empty ones.
pub fn read_limits(map: &mut MapReader<'_, '_>, problems: &Problems) -> Policy {
    let attributes = attributes::read_attributes(map, problems);
    let flags = flags::read_flags(map, problems);
    let path = map.path_of("limits");
    let items = map.list("limits").unwrap_or_default();
    let mut rules = Vec::with_capacity(items.len());
    let mut notices = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let path = format!("{path}[{index}]");
        if let Some((rule, said)) = read_rule(item, &path, &flags, problems) {
            rules.push(rule);
            notices.extend(said);
        }
    }
    for error in crate::conflicts::check_conflicts(&rules) {
        let nowhere = Pos { line: 1, column: 1 };
        let place = error
            .place()
            .cloned()
            .unwrap_or_else(|| problems.place(nowhere));
        problems.report(place, &path, error.to_string(), None);
    }
    for (later, earlier) in never_match(&rules) {
        notices.push(Notice::never_matches(&rules[later], &rules[earlier]));
    }
    Policy {
        attributes,
        rules,
        flags,
        notices,
    }
}

fn read_rule(
    node: &Node,
    path: &str,
    flags: &[FlagSpec],
    problems: &Problems,
) -> Option<(Rule, Vec<Notice>)> {
    let mut map = MapReader::new(node, path, problems)?;
    let mut word = |key| map.text(key).map(str::to_owned);
    let spec = RuleSpec {
        name: word("name").unwrap_or_default(),
        domain: word("domain"),
        limiter: word("limiter"),
        rate: word("rate"),
        window: word("window"),
        bucket: word("bucket"),
        burst: word("burst"),
        sliding: word("sliding"),
        cardinality: word("cardinality"),
        mode: word("mode"),
        pace: word("pace"),
        members: word("members"),
        error_budget: word("error_budget"),
        matching: word("match"),
        place: Some(problems.place(node.pos)),
        ..RuleSpec::default()
    };
    let spec = RuleSpec {
        descriptors: read_descriptors(&mut map, problems),
        replaces: names(&mut map, "replaces"),
        metric_values: names(&mut map, "metric_values"),
        switch: flags::read_switch(&mut map, flags, problems),
        only_if: read_conditions(&mut map, "only_if", problems),
        except_if: read_conditions(&mut map, "except_if", problems),
        tiers: read_tiers(&mut map, problems),
        last: map.bool("last").unwrap_or(false),
        charge: read_charge(&mut map, flags, problems),
        denial: read_denial(&mut map, problems),
        log: read_log(&mut map),
        ..spec
    };
    let built = spec.build_all();
    if let Err(errors) = &built {
        for error in errors {
            // A value of the wrong kind was reported already; do not call it missing as well.
            let missing = matches!(error, RuleError::Missing { .. });
            if missing && problems.has_at(&map.path_of(error.setting())) {
                continue;
            }
            report(&map, node, problems, error);
        }
    }
    map.finish();
    built.ok()
}

fn report(map: &MapReader<'_, '_>, node: &Node, problems: &Problems, error: &RuleError) {
    let setting = error.setting();
    let value = node.get(setting);
    let named = match error {
        RuleError::NeverSeen { key, .. } => value.and_then(|value| place_of(value, key)),
        RuleError::Malformed { text, .. } => value.and_then(|value| place_of(value, text)),
        _ => None,
    };
    let pos = named.or(value.map(|value| value.pos)).unwrap_or(node.pos);
    let suggestion = match error {
        RuleError::UnknownWord { suggestion, .. } => suggestion.clone(),
        _ => None,
    };
    let message = match error {
        RuleError::UnknownWord { text, known, .. } => format!("{text} is none of: {known}"),
        _ => error.to_string(),
    };
    problems.report(
        problems.place(pos),
        &map.path_of(setting),
        message,
        suggestion,
    );
}

/// Where a key or a text stands below a list or a mapping.
fn place_of(node: &Node, text: &str) -> Option<Pos> {
    if node.as_text() == Some(text) {
        return Some(node.pos);
    }
    let entries = node.as_map().unwrap_or_default();
    let items = node.as_list().unwrap_or_default();
    let in_entry = entries.iter().find_map(|entry| {
        let here = entry.key == text;
        here.then_some(entry.pos)
            .or_else(|| place_of(&entry.value, text))
    });
    in_entry.or_else(|| items.iter().find_map(|item| place_of(item, text)))
}

fn names(map: &mut MapReader<'_, '_>, key: &'static str) -> Vec<String> {
    let texts = map.texts(key).unwrap_or_default();
    texts.into_iter().map(str::to_owned).collect()
}

fn read_descriptors(map: &mut MapReader<'_, '_>, problems: &Problems) -> Vec<DescriptorSpec> {
    let path = map.path_of("descriptors");
    let mut specs = Vec::new();
    for (index, item) in map
        .list("descriptors")
        .unwrap_or_default()
        .iter()
        .enumerate()
    {
        let path = format!("{path}[{index}]");
        let Some(mut entry) = MapReader::new(item, &path, problems) else {
            continue;
        };
        let key = entry.required_text("key");
        let value = entry.text("value");
        let shared = entry.bool("shared").unwrap_or(false);
        let fallback = read_fallback(&mut entry);
        entry.finish();
        if let Some(key) = key {
            specs.push(DescriptorSpec {
                key: key.as_bytes().to_vec(),
                value: value.map(|v| v.as_bytes().to_vec()),
                shared,
                fallback,
            });
        }
    }
    specs
}

#[cfg(test)]
mod tests;
