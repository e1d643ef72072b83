//! Rules as the YAML that loads them again.
//!
//! I own the text of `limits:`. I promise that reading it gives rules equal to the printed ones but
//! for their places. I leave out what is the default.

use std::fmt::Write as _;

use crate::limits::DEFAULT_ERROR_BUDGET_PPM;
use crate::rule::{Algorithm, Matching, Mode, Rule, Sliding};

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
    if rule.mode.counts() || rule.mode == Mode::DenyAll {
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
    given("flag", spec.flag.map(|flag| flag.name));
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
    let _ = writeln!(out, "  descriptors:");
    for entry in &spec.descriptors {
        let _ = write!(
            out,
            "  - {{key: {}",
            scalar(&String::from_utf8_lossy(&entry.key))
        );
        if let Some(value) = &entry.value {
            let _ = write!(out, ", value: {}", scalar(&String::from_utf8_lossy(value)));
        }
        let _ = writeln!(
            out,
            "{}}}",
            if entry.shared { ", shared: true" } else { "" }
        );
    }
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
