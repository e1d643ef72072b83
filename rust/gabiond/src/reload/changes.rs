//! What another configuration changes, rule by rule.
//!
//! I own the comparison and its words. I promise that every rule that is added, removed or changed
//! is named once, and whether its counts are kept. I only read.

use std::collections::BTreeMap;
use std::fmt;

use gabion_rule::{Algorithm, Rule, RuleTable};

/// What becomes of one rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Its domain.
    pub domain: String,
    /// Its name.
    pub rule: String,
    /// What becomes of it.
    pub what: What,
}

/// What becomes of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// It is new; as a configuration would say it.
    Added(String),
    /// It is gone.
    Removed,
    /// It is another now.
    Changed {
        /// Each part with what it was and what it is.
        parts: Vec<(&'static str, String, String)>,
        /// Whether its counts are kept.
        kept: bool,
    },
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rule {} of domain {}: ", self.rule, self.domain)?;
        match &self.what {
            What::Added(text) => write!(f, "added: {text}"),
            What::Removed => f.write_str("removed"),
            What::Changed { parts, kept } => {
                for (i, (part, was, is)) in parts.iter().enumerate() {
                    let comma = if i == 0 { "" } else { ", " };
                    write!(f, "{comma}{part} {was} -> {is}")?;
                }
                f.write_str(if *kept {
                    "; its counts are kept"
                } else {
                    "; its counters start anew"
                })
            }
        }
    }
}

/// What the rules of `after` change, in their order; then those that are gone.
pub fn changes(before: &RuleTable, after: &RuleTable) -> Vec<Change> {
    let mut old: BTreeMap<(&str, &str), Vec<&Rule>> = BTreeMap::new();
    for rule in before.rules().iter().rev() {
        old.entry((&rule.domain, &rule.name))
            .or_default()
            .push(rule);
    }
    let mut found = Vec::new();
    let mut note = |rule: &Rule, what| {
        found.push(Change {
            domain: rule.domain.clone(),
            rule: rule.name.clone(),
            what,
        });
    };
    for rule in after.rules() {
        let was = old.get_mut(&(rule.domain.as_str(), rule.name.as_str()));
        match was.and_then(Vec::pop) {
            None => note(rule, What::Added(rule.describe())),
            Some(was) => {
                let parts = differences(was, rule);
                if !parts.is_empty() {
                    let kept = was.identity() == rule.identity();
                    note(rule, What::Changed { parts, kept });
                }
            }
        }
    }
    let gone = before.rules().iter().filter(|rule| {
        let left = old.get(&(rule.domain.as_str(), rule.name.as_str()));
        left.is_some_and(|left| left.iter().any(|other| std::ptr::eq(*other, *rule)))
    });
    gone.for_each(|rule| note(rule, What::Removed));
    found
}

fn differences(was: &Rule, is: &Rule) -> Vec<(&'static str, String, String)> {
    let pairs = facets(was).into_iter().zip(facets(is));
    let mut parts: Vec<_> = pairs
        .filter(|((_, was), (_, is))| was != is)
        .map(|((name, was), (_, is))| (name, was, is))
        .collect();
    if parts.is_empty() && was.describe() != is.describe() {
        parts.push(("it was", was.describe(), is.describe()));
    }
    parts
}

/// The parts of a rule in words; the same parts in the same order for every rule.
fn facets(rule: &Rule) -> Vec<(&'static str, String)> {
    let none = || "none".to_owned();
    let descriptors: Vec<String> = rule.descriptors.iter().map(|d| format!("{d:?}")).collect();
    let shown: Vec<String> = rule
        .descriptors
        .iter()
        .map(|d| {
            let (key, value) = (String::from_utf8_lossy(&d.key), d.value.text());
            format!("{key}={}", String::from_utf8_lossy(&value))
        })
        .collect();
    let (window, bucket, sliding, burst) = match rule.algorithm {
        Algorithm::Window {
            window_ns,
            bucket_ns,
            sliding,
            ..
        } => (
            length(window_ns),
            length(bucket_ns),
            format!("{sliding:?}").to_lowercase(),
            none(),
        ),
        Algorithm::TokenBucket { burst, .. } => (none(), none(), none(), burst.to_string()),
    };
    let shown = format!("[{}]", shown.join(", "));
    vec![
        ("limiter", rule.limiter.clone()),
        // What is compared is exact, what is shown is short.
        (
            "descriptors",
            if descriptors.iter().any(|d| d.contains("shared: true")) {
                format!("{shown} (shared)")
            } else {
                shown
            },
        ),
        ("rate", rule.rate.to_string()),
        ("window", window),
        ("bucket", bucket),
        ("sliding", sliding),
        ("burst", burst),
        ("mode", rule.mode_word().to_owned()),
        (
            "cardinality",
            rule.cardinality.map_or_else(none, |keys| keys.to_string()),
        ),
        ("metric values", rule.metric_values.join(", ")),
        ("error budget (ppm)", rule.error_budget_ppm.to_string()),
    ]
}

/// A length of time in the largest unit that makes it whole.
fn length(ns: u64) -> String {
    const UNITS: [(u64, &str); 6] = [
        (86_400_000_000_000, "d"),
        (3_600_000_000_000, "h"),
        (60_000_000_000, "m"),
        (1_000_000_000, "s"),
        (1_000_000, "ms"),
        (1, "ns"),
    ];
    let whole = UNITS.iter().find(|(unit, _)| ns % unit == 0 && ns > 0);
    let (unit, name) = whole.copied().unwrap_or((1, "ns"));
    format!("{}{name}", ns / unit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_rule::policy::parse_limits;

    fn rules(limits: &str) -> RuleTable {
        let text = format!("limits: [{limits}]");
        RuleTable::build(parse_limits("test", &text).expect("good").rules).expect("rules")
    }

    fn said(before: &str, after: &str) -> Vec<String> {
        let changes = changes(&rules(before), &rules(after));
        changes.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn every_kind_of_change_is_named_once() {
        let before = "{name: a, domain: d, rate: 10r/h, descriptors: [{key: k}]}, \
            {name: b, domain: d, rate: 5r/m, descriptors: [{key: k}]}, \
            {name: c, domain: d, rate: 9r/s, burst: 20, descriptors: [{key: k}]}, \
            {name: d, domain: d, rate: 1r/s, descriptors: [{key: k}]}, \
            {name: same, domain: d, rate: 1r/d, descriptors: [{key: k}]}";
        let after = "{name: same, domain: d, rate: 1r/d, descriptors: [{key: k}]}, \
            {name: a, domain: d, rate: 20r/h, descriptors: [{key: k}]}, \
            {name: b, domain: d, rate: 5r/m, window: 1h, descriptors: [{key: k}]}, \
            {name: c, domain: d, rate: 9r/s, burst: 20, mode: dry_run, descriptors: [{key: k}]}, \
            {name: a, domain: other, rate: 7r/s, descriptors: [{key: k}]}";
        assert_eq!(
            said(before, after),
            [
                "rule a of domain d: rate 10r/h -> 20r/h; its counts are kept",
                "rule b of domain d: window 1m -> 1h, bucket 1m -> 1h; its counters start anew",
                "rule c of domain d: mode enforce -> dry_run; its counts are kept",
                "rule a of domain other: added: a domain=other [k=*] rate=7r/s window=1s \
                 (limit 7) mode=enforce",
                "rule d of domain d: removed",
            ]
        );
        assert_eq!(said(before, before), Vec::<String>::new());
    }

    #[test]
    fn other_descriptors_start_new_counters() {
        let was = "{name: a, domain: d, rate: 10r/h, descriptors: [{key: k}]}";
        let is = "{name: a, domain: d, rate: 10r/h, descriptors: [{key: k, value: v}]}";
        let said = said(was, is);
        assert_eq!(said.len(), 1);
        assert!(said[0].ends_with("its counters start anew"), "{said:?}");
    }
}
