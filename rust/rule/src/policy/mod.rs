//! The policy file: YAML in, validated rules out.
//!
//! I own the `limits:` list and the located errors. I promise that a file is taken whole or not at
//! all, and that each error says file, line, column, key and, for a misspelt key, the right one. I
//! never read files: the edge hands me their text.

use std::fmt;

use crate::attributes::Attributes;
use crate::denial::Denial;
use crate::error::{Notice, Place, RuleError};
use crate::rule::Rule;
use crate::silence::never_match;
use crate::spec::{DescriptorSpec, RuleSpec};

mod attributes;
mod flags;
mod print;
mod reader;
pub mod yaml;

pub use attributes::attributes_to_yaml;
pub use flags::{declared, FlagSpec};
pub use print::to_yaml;
pub use reader::{MapReader, Problems};
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
        error_budget: word("error_budget"),
        matching: word("match"),
        replaces: Vec::new(),
        metric_values: Vec::new(),
        flag: None,
        denial: None,
        descriptors: Vec::new(),
        place: Some(problems.place(node.pos)),
    };
    let spec = RuleSpec {
        descriptors: read_descriptors(&mut map, problems),
        replaces: names(&mut map, "replaces"),
        metric_values: names(&mut map, "metric_values"),
        flag: flags::read_flag(&mut map, flags, problems),
        denial: read_denial(&mut map, problems),
        ..spec
    };
    let built = spec.build_all();
    if let Err(errors) = &built {
        for error in errors {
            // A value of the wrong kind was reported already; do not call it missing as well.
            let missing = matches!(error, RuleError::Missing { .. });
            if missing && !error.setting().is_empty() && map.node(error.setting()).is_some() {
                continue;
            }
            report(&map, node, problems, error);
        }
    }
    map.finish();
    built.ok()
}

fn read_denial(map: &mut MapReader<'_, '_>, problems: &Problems) -> Option<Denial> {
    let body = map.text("raw_body");
    let content_type = map.text("raw_body_type");
    let Some(body) = body else {
        if content_type.is_some() && !map.has("raw_body") {
            map.problem(
                "raw_body_type",
                "it does nothing without raw_body; add one or leave it out",
            );
        }
        return None;
    };
    match Denial::new(body, content_type) {
        Ok(denial) => Some(denial),
        Err(error) => {
            let key = error.setting();
            let pos = match key {
                "raw_body" => map.node("raw_body"),
                _ => map.node("raw_body_type"),
            };
            let pos = pos.map_or(map.pos(), |node| node.pos);
            problems.report(
                problems.place(pos),
                &map.path_of(key),
                error.to_string(),
                None,
            );
            None
        }
    }
}

fn report(map: &MapReader<'_, '_>, node: &Node, problems: &Problems, error: &RuleError) {
    let setting = error.setting();
    let pos = node.get(setting).map_or(node.pos, |value| value.pos);
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
        entry.finish();
        if let Some(key) = key {
            specs.push(DescriptorSpec {
                key: key.as_bytes().to_vec(),
                value: value.map(|v| v.as_bytes().to_vec()),
                shared,
            });
        }
    }
    specs
}

#[cfg(test)]
mod tests;
