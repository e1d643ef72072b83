//! Rules as the YAML that loads them again.
//!
//! I own the text of `limits:`. I promise that reading it gives rules equal to the printed ones but
//! for their places. I leave out what is the default.

use std::fmt::Write as _;

use super::{attributes_to_yaml, FlagSpec, Policy};
use crate::condition::Test;
use crate::limits::DEFAULT_ERROR_BUDGET_PPM;
use crate::pace::Pace;
use crate::rate::Rate;
use crate::rule::{Algorithm, Matching, Mode, Rule, Sliding};
use crate::spec::DescriptorSpec;

/// A whole policy file.
pub fn policy_to_yaml(policy: &Policy) -> String {
    let attributes = attributes_to_yaml(&policy.attributes);
    attributes + &flags_to_yaml(&policy.flags) + &to_yaml(&policy.rules)
}

/// The `limits:` of a configuration file. Bytes of a value that are not UTF-8 cannot be written in
/// YAML and are replaced.
pub fn to_yaml(rules: &[Rule]) -> String {
    if rules.is_empty() {
        return "limits: []\n".to_owned();
    }
    let mut out = String::from("limits:\n");
    rules.iter().for_each(|rule| one(rule, &mut out));
    out
}

fn one(rule: &Rule, out: &mut String) {
    let spec = rule.to_spec();
    // Writing to a string cannot fail.
    let mut line = |key: &str, text: &str| {
        let lead = if key == "name" { "- " } else { "  " };
        let _ = writeln!(out, "{lead}{key}: {}", scalar(text));
    };
    line("name", &rule.name);
    line("domain", &rule.domain);
    if rule.limiter != rule.name {
        line("limiter", &rule.limiter);
    }
    if rule.matching != Matching::All {
        line("match", rule.matching.word());
    }
    // A rule that is switched off keeps its rate, which gives its window and so its counters.
    if rule.mode.counts() || rule.rate != Rate::UNUSED {
        line("rate", &rule.rate.to_string());
    }
    let mut given = |key: &str, text: Option<String>| {
        text.iter().for_each(|text| line(key, text));
    };
    match rule.algorithm {
        Algorithm::Window {
            window_ns,
            bucket_ns,
            sliding,
            ..
        } => {
            given(
                "window",
                spec.window.filter(|_| window_ns != rule.rate.unit_ns()),
            );
            given("bucket", spec.bucket.filter(|_| bucket_ns != window_ns));
            given("sliding", spec.sliding.filter(|_| sliding != Sliding::Live));
        }
        Algorithm::TokenBucket { .. } => given("burst", spec.burst),
    }
    given("cardinality", spec.cardinality);
    given("mode", spec.mode.filter(|_| rule.mode != Mode::Enforce));
    if let Some(switch) = &spec.switch {
        given(switch.word(), Some(switch.flag.name.clone()));
    }
    given("pace", spec.pace.filter(|_| rule.pace != Pace::Fast));
    given("members", spec.members);
    given("last", spec.last.then(|| "true".to_owned()));
    let budget = rule.error_budget_ppm != DEFAULT_ERROR_BUDGET_PPM;
    given("error_budget", spec.error_budget.filter(|_| budget));
    if !rule.replaces.is_empty() {
        let names: Vec<String> = rule.replaces.iter().map(|name| scalar(name)).collect();
        let _ = writeln!(out, "  replaces: [{}]", names.join(", "));
    }
    if !rule.metric_values.is_empty() {
        let keys: Vec<String> = rule.metric_values.iter().map(|key| scalar(key)).collect();
        let _ = writeln!(out, "  metric_values: [{}]", keys.join(", "));
    }
    vocabulary(rule, out);
    descriptors(&spec.descriptors, out);
}

fn descriptors(descriptors: &[DescriptorSpec], out: &mut String) {
    if descriptors.is_empty() {
        let _ = writeln!(out, "  descriptors: []");
        return;
    }
    let _ = writeln!(out, "  descriptors:");
    for entry in descriptors {
        let _ = write!(
            out,
            "  - {{key: {}",
            scalar(&String::from_utf8_lossy(&entry.key))
        );
        if let Some(value) = &entry.value {
            let _ = write!(out, ", value: {}", scalar(&String::from_utf8_lossy(value)));
        }
        if let Some(fallback) = &entry.fallback {
            let _ = write!(out, ", fallback: {}", bytes(&fallback.value));
            if !fallback.known.is_empty() {
                let _ = write!(
                    out,
                    ", known: {}",
                    list(fallback.known.iter().map(|k| bytes(k)))
                );
            }
        }
        let _ = writeln!(
            out,
            "{}}}",
            if entry.shared { ", shared: true" } else { "" }
        );
    }
}

/// What picks, exempts and tiers a request, and what a denied client gets.
fn vocabulary(rule: &Rule, out: &mut String) {
    for (key, alternatives) in [("only_if", &rule.only_if), ("except_if", &rule.except_if)] {
        if !alternatives.is_empty() {
            let _ = writeln!(out, "  {key}:");
        }
        for alternative in alternatives {
            let clauses = alternative.clauses.iter().map(|clause| {
                let test = match &clause.test {
                    Test::Like(patterns) => list(patterns.iter().map(|p| bytes(&p.text()))),
                    Test::Within(networks) => {
                        let entries = networks.entries().iter().map(|entry| scalar(entry));
                        format!("{{networks: {}}}", list(entries))
                    }
                };
                format!("{}: {test}", bytes(&clause.key))
            });
            let clauses: Vec<String> = clauses.collect();
            let _ = writeln!(out, "  - {{{}}}", clauses.join(", "));
        }
    }
    if let Some(tiers) = &rule.tiers {
        let rates = tiers.all().iter();
        let rates = rates.map(|t| format!("{}: {}", bytes(&t.value), scalar(&t.rate.to_string())));
        let rates: Vec<String> = rates.collect();
        let (by, rates) = (bytes(tiers.by()), rates.join(", "));
        let _ = writeln!(out, "  tiers: {{by: {by}, rates: {{{rates}}}}}");
    }
    if let Some(charge) = &rule.charge {
        let _ = write!(out, "  charge: {{after: response");
        if !charge.statuses.is_empty() {
            let statuses = charge.statuses.iter().map(|status| bytes(&status.text()));
            let _ = write!(out, ", status: {}", list(statuses));
        }
        if let Some(switch) = &charge.switch {
            let _ = write!(out, ", {}: {}", switch.word(), scalar(&switch.flag.name));
        }
        out.push_str("}\n");
    }
    if let Some(log) = &rule.log {
        let message = log.message.iter();
        let message = message.map(|message| format!("message: {}", scalar(message)));
        let fields = log.fields.iter().map(|field| scalar(field));
        let fields = (!log.fields.is_empty()).then(|| format!("fields: {}", list(fields)));
        let parts: Vec<String> = message.chain(fields).collect();
        let _ = writeln!(out, "  log: {{{}}}", parts.join(", "));
    }
    if let Some(denial) = &rule.denial {
        if let Some(body) = &denial.body {
            let _ = writeln!(out, "  raw_body: {}", scalar(body));
        }
        if let Some(content_type) = &denial.content_type {
            let _ = writeln!(out, "  raw_body_type: {}", scalar(content_type));
        }
        let headers = denial.headers.iter();
        let headers: Vec<String> = headers
            .map(|(name, value)| format!("{}: {}", scalar(name), scalar(value)))
            .collect();
        if !headers.is_empty() {
            let _ = writeln!(out, "  raw_headers: {{{}}}", headers.join(", "));
        }
    }
}

fn bytes(text: &[u8]) -> String {
    scalar(&String::from_utf8_lossy(text))
}

fn list(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(", "))
}

/// The `flags:` of a configuration file; nothing when there are none.
pub fn flags_to_yaml(flags: &[FlagSpec]) -> String {
    if flags.is_empty() {
        return String::new();
    }
    let mut out = String::from("flags:\n");
    for flag in flags {
        let by = flag.by.as_ref();
        let by = by.map_or(String::new(), |by| format!(", by: {}", scalar(by)));
        let (name, default) = (scalar(&flag.name), scalar(&flag.default.to_string()));
        let _ = writeln!(out, "  {name}: {{default: {default}{by}}}");
    }
    out
}

/// A scalar: bare when nothing in it can mean anything else, else in double quotes.
pub(super) fn scalar(text: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '/' | '.');
    let starts = text.starts_with(|c: char| c.is_ascii_alphanumeric());
    let empty = ["null", "true", "false", "yes", "no", "on", "off", "y", "n"];
    if starts && text.chars().all(bare) && !empty.contains(&text.to_ascii_lowercase().as_str()) {
        return text.to_owned();
    }
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            ' '..='~' => out.push(c),
            _ if c.is_control() || !c.is_alphanumeric() => {
                let _ = write!(out, "\\U{:08x}", u32::from(c));
            }
            _ => out.push(c),
        }
    }
    out.push('"');
    out
}
