//! The keys of a rule that pick, exempt and tier a request.
//!
//! I own their form in YAML. I promise that a bad pattern, network or rate is reported where it
//! stands. I never check how settings go together: that is for `spec`.

use super::yaml::{Entry, Node};
use super::{flags, FlagSpec, MapReader, Problems};
use crate::attributes::{Glob, Networks};
use crate::condition::{Alternative, Clause, Test};
use crate::denial::Denial;
use crate::duration::shorten;
use crate::error::RuleError;
use crate::log_line::LogLine;
use crate::rule::Fallback;
use crate::spec::TiersSpec;
use crate::tier::ChargeAfter;

/// Reads `only_if` or `except_if`: a list of mappings from an attribute to what it must be like.
// spec: pol-7
pub(super) fn read_conditions(
    map: &mut MapReader<'_, '_>,
    key: &'static str,
    problems: &Problems,
) -> Vec<Alternative> {
    let path = map.path_of(key);
    let mut alternatives = Vec::new();
    for (index, item) in map.list(key).unwrap_or_default().iter().enumerate() {
        let path = format!("{path}[{index}]");
        let Some(entries) = item.as_map().filter(|entries| !entries.is_empty()) else {
            let kind = match item.as_map() {
                Some(_) => "an empty mapping",
                None => item.kind(),
            };
            let message = format!(
                "{kind} stands here; a mapping of attributes to patterns is expected, like {{path: \
                 \"/api/*\"}}"
            );
            problems.at(item.pos, &path, message);
            continue;
        };
        let clauses = entries.iter().filter_map(|entry| {
            let path = format!("{path}.{}", shorten(&entry.key));
            let test = read_test(key, entry, &path, problems)?;
            Some(Clause {
                key: entry.key.clone().into_bytes(),
                test,
            })
        });
        alternatives.push(Alternative {
            clauses: clauses.collect(),
        });
    }
    alternatives
}

fn read_test(
    setting: &'static str,
    entry: &Entry,
    path: &str,
    problems: &Problems,
) -> Option<Test> {
    let value = &entry.value;
    if value.is_null() {
        problems.at(
            value.pos,
            path,
            "a pattern is expected; write \"\" for an absent attribute, \"*\" for any that is \
             there",
        );
        return None;
    }
    if value.as_map().is_some() {
        return read_within(value, path, problems).map(Test::Within);
    }
    let mut patterns = Vec::new();
    for (path, node) in one_or_more(value, path) {
        let Some(text) = node.as_text() else {
            let message = format!("{} stands here; a pattern is expected", node.kind());
            problems.at(node.pos, &path, message);
            continue;
        };
        match Glob::parse(setting, text.as_bytes()) {
            Ok(pattern) => patterns.push(pattern),
            Err(error) => problems.at(node.pos, &path, error.to_string()),
        }
    }
    if patterns.is_empty() {
        if value.as_list().is_some_and(<[Node]>::is_empty) {
            problems.at(value.pos, path, "the list is empty; it would never match");
        }
        return None;
    }
    Some(Test::Like(patterns))
}

/// A node, or the items of a list, each with its path.
fn one_or_more<'n>(node: &'n Node, path: &str) -> Vec<(String, &'n Node)> {
    match node.as_list() {
        Some(items) => {
            let items = items.iter().enumerate();
            items
                .map(|(at, item)| (format!("{path}[{at}]"), item))
                .collect()
        }
        None => vec![(path.to_owned(), node)],
    }
}

fn read_within(node: &Node, path: &str, problems: &Problems) -> Option<Networks> {
    let mut map = MapReader::new(node, path, problems)?;
    if map.node("networks").is_none() {
        map.problem(
            "networks",
            "this key is required; patterns stand without a mapping",
        );
        map.finish();
        return None;
    }
    let networks = super::read_networks(&mut map, "networks", problems);
    if networks
        .as_ref()
        .is_some_and(|all| all.entries().is_empty())
    {
        map.problem("networks", "the list is empty; it would never match");
    }
    map.finish();
    networks
}

/// Reads `tiers: {by: ATTRIBUTE, rates: {VALUE: RATE}}`.
// spec: pol-14
pub(super) fn read_tiers(map: &mut MapReader<'_, '_>, problems: &Problems) -> Option<TiersSpec> {
    let mut tiers = map.map("tiers")?;
    let by = tiers.required_text("by").unwrap_or_default().to_owned();
    let path = tiers.path_of("rates");
    let mut rates = Vec::new();
    match tiers.node("rates").map(|node| (node, node.as_map())) {
        Some((_, Some(entries))) => {
            for entry in entries {
                match entry.value.as_text() {
                    Some(rate) => rates.push((entry.key.clone().into_bytes(), rate.to_owned())),
                    None => problems.at(
                        entry.value.pos,
                        &format!("{path}.{}", shorten(&entry.key)),
                        format!("{} stands here; a rate is expected", entry.value.kind()),
                    ),
                }
            }
        }
        Some((node, None)) => problems.at(
            node.pos,
            &path,
            format!(
                "{} stands here; a mapping of values to rates is expected",
                node.kind()
            ),
        ),
        None => tiers.problem("rates", "this key is required: a rate for each value"),
    }
    tiers.finish();
    Some(TiersSpec {
        by: by.into_bytes(),
        rates,
    })
}

/// Reads `charge: {after: response, status: [...]}`.
// spec: pol-16, pol-17
pub(super) fn read_charge(
    map: &mut MapReader<'_, '_>,
    flags: &[FlagSpec],
    problems: &Problems,
) -> Option<ChargeAfter> {
    let mut charge = map.map("charge")?;
    let after = match charge.has("after") {
        true => charge.word("after", &["request", "response"]),
        false => {
            charge.problem(
                "after",
                "this key is required: request (the default) or response",
            );
            None
        }
    };
    let path = charge.path_of("status");
    let mut statuses = Vec::new();
    let listed = charge.node("status");
    for (path, node) in listed.map_or_else(Vec::new, |node| one_or_more(node, &path)) {
        match node
            .as_text()
            .map(|text| Glob::parse("status", text.as_bytes()))
        {
            Some(Ok(pattern)) => statuses.push(pattern),
            Some(Err(error)) => problems.at(node.pos, &path, error.to_string()),
            None => problems.at(
                node.pos,
                &path,
                format!(
                    "{} stands here; a status like 401 or 5* is expected",
                    node.kind()
                ),
            ),
        }
    }
    if statuses.len() > crate::limits::MAX_PATTERNS {
        charge.problem("status", "these are more patterns than there may be");
    }
    let switch = flags::read_switch(&mut charge, flags, problems);
    if after == Some("request") && (listed.is_some() || switch.is_some()) {
        charge.problem(
            "after",
            "status and flags go with after: response; leave them out, or charge later",
        );
    }
    charge.finish();
    (after == Some("response")).then_some(ChargeAfter { statuses, switch })
}

/// Reads `fallback` and `known` of a descriptor.
// spec: pol-6
pub(super) fn read_fallback(entry: &mut MapReader<'_, '_>) -> Option<Fallback> {
    let value = entry.text("fallback");
    let known = entry.texts("known");
    if value.is_none() && known.is_some() {
        entry.problem(
            "known",
            "it does nothing without fallback; add one or leave it out",
        );
    }
    let known = known.unwrap_or_default().into_iter();
    Some(Fallback {
        value: value?.as_bytes().to_vec(),
        known: known.map(|text| text.as_bytes().to_vec()).collect(),
    })
}

/// Reads `log: {message: TEXT, fields: [ATTRIBUTE]}`.
// spec: pol-21
pub(super) fn read_log(map: &mut MapReader<'_, '_>) -> Option<LogLine> {
    let mut log = map.map("log")?;
    let fields = log.texts("fields").unwrap_or_default();
    let line = LogLine {
        message: log.text("message").map(str::to_owned),
        fields: fields.into_iter().map(str::to_owned).collect(),
    };
    log.finish();
    Some(line).filter(|line| *line != LogLine::default())
}

/// Reads `raw_body`, `raw_body_type` and `raw_headers`.
pub(super) fn read_denial(map: &mut MapReader<'_, '_>, problems: &Problems) -> Option<Denial> {
    let report = |map: &mut MapReader<'_, '_>, key: &'static str, error: &RuleError| {
        map.problem(key, error.to_string());
    };
    let body = map.text("raw_body");
    let content_type = map.text("raw_body_type");
    if body.is_none() && content_type.is_some() && !map.has("raw_body") {
        map.problem(
            "raw_body_type",
            "it does nothing without raw_body; add one or leave it out",
        );
    }
    let mut denial = None;
    if let Some(body) = body {
        match Denial::new(body, content_type) {
            Ok(made) => denial = Some(made),
            Err(error) => report(map, error.setting(), &error),
        }
    }
    let path = map.path_of("raw_headers");
    let Some(headers) = map.node("raw_headers") else {
        return denial;
    };
    let Some(entries) = headers.as_map() else {
        let message = format!(
            "{} stands here; a mapping of headers is expected",
            headers.kind()
        );
        problems.at(headers.pos, &path, message);
        return denial;
    };
    let mut with_headers = denial.unwrap_or_default();
    for entry in entries {
        let path = format!("{path}.{}", shorten(&entry.key));
        let Some(value) = entry.value.as_text() else {
            let message = format!("{} stands here; a value is expected", entry.value.kind());
            problems.at(entry.value.pos, &path, message);
            continue;
        };
        if let Err(error) = with_headers.add_header(&entry.key, value) {
            problems.at(entry.pos, &path, error.to_string());
        }
    }
    Some(with_headers).filter(|denial| *denial != Denial::default())
}

#[cfg(test)]
mod tests;
