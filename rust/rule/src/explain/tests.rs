//! Misses, in words, and against the index.

use super::*;
use crate::policy::parse_limits;
use proptest::prelude::*;

fn table(limits: &str) -> RuleTable {
    let policy = parse_limits("t", &format!("limits:\n{limits}")).unwrap();
    RuleTable::build(policy.rules).unwrap()
}

fn misses(table: &RuleTable, entries: &[(&str, &str)]) -> Vec<String> {
    let entries: Vec<(&[u8], &[u8])> = entries
        .iter()
        .map(|(key, value)| (key.as_bytes(), value.as_bytes()))
        .collect();
    let said = table.explain(b"d", &entries);
    let words = |miss: Option<Miss>| miss.map_or_else(|| "applies".to_owned(), |m| m.to_string());
    said.into_iter().map(words).collect()
}

#[test]
fn each_rule_says_why_it_does_not_apply() {
    let table = table(
        "- {name: a, domain: d, rate: 1r/s, descriptors: [{key: route, value: api}, {key: user}]}
- {name: b, domain: d, rate: 1r/s, descriptors: [{key: route, value: web*}]}
- {name: c, domain: e, rate: 1r/s, descriptors: [{key: route}]}
- {name: f, domain: d, rate: 1r/s, mode: disabled, descriptors: [{key: route}]}
- {name: g, domain: d, rate: 1r/s, descriptors: [{key: route}]}
",
    );
    assert_eq!(
        misses(&table, &[("route", "api")]),
        [
            "the descriptor lacks user",
            "route: the rule wants \"web*\", not \"api\"",
            "it is of another domain",
            "it is switched off (mode: disabled)",
            "applies"
        ]
    );
    let both = misses(&table, &[("user", "u"), ("x", "1")]);
    assert_eq!(
        both[0],
        "the descriptor lacks route, and the rule does not name x"
    );
    assert_eq!(
        both[1],
        "the descriptor lacks route, and the rule does not name user, x"
    );
    let many: Vec<(&str, &str)> = vec![("route", "api"); 40];
    assert_eq!(
        misses(&table, &many)[0],
        "the descriptor has more entries than can match"
    );
}

#[test]
fn rules_that_stand_before_others_are_named() {
    let table = table(
        "- {name: free, domain: d, mode: unlimited, descriptors: [{key: tier, value: gold}]}
- {name: any, domain: d, rate: 1r/s, descriptors: [{key: tier}]}
- {name: first, domain: d, rate: 1r/s, match: path, descriptors: [{key: a, value: x}, {key: b}]}
- {name: later, domain: d, rate: 2r/s, match: path, descriptors: [{key: a}, {key: b}]}
",
    );
    let gold = misses(&table, &[("tier", "gold")]);
    assert_eq!(
        gold[..2],
        ["applies", "the unlimited rule free shields from it"]
    );
    let path = misses(&table, &[("a", "x"), ("b", "1")]);
    assert_eq!(path[2..], ["applies", "first comes first on the path"]);
    let turned = misses(&table, &[("b", "1"), ("a", "x")]);
    assert!(turned[2].contains("in another order"), "{turned:?}");
    assert!(table.never_apply().is_empty());
}

#[test]
fn case_2_rules_that_never_apply_are_found() {
    let table = table(
        "- {name: wide, domain: d, rate: 1r/s, match: path, descriptors: [{key: a}]}
- {name: narrow, domain: d, rate: 2r/s, match: path, descriptors: [{key: a, value: x}]}
- {name: deep, domain: d, rate: 2r/s, match: path, descriptors: [{key: a}, {key: b}]}
- {name: free, domain: d, mode: unlimited, descriptors: [{key: t}]}
- {name: paid, domain: d, rate: 2r/s, descriptors: [{key: t}]}
- {name: better, domain: d, rate: 2r/s, replaces: [old], descriptors: [{key: u}]}
- {name: old, domain: d, rate: 9r/s, window: 1m, descriptors: [{key: u, value: v}]}
- {name: first, domain: d, rate: 1r/s, match: path, descriptors: [{key: p}]}
- {name: late, domain: d, mode: unlimited, match: path, descriptors: [{key: p}]}
",
    );
    let never: Vec<(RuleIdx, String)> = table
        .never_apply()
        .into_iter()
        .map(|(rule, why)| (rule, why.to_string()))
        .collect();
    let want = [
        (1, "wide comes first on the path"),
        (4, "the unlimited rule free shields from it"),
        (6, "better replaces it"),
        (8, "first comes first on the path"),
    ];
    assert_eq!(never, want.map(|(rule, why)| (rule, why.to_owned())));
}

proptest! {
    /// What is said to apply is what the index matches, and nothing that never applies ever does.
    #[test]
    fn explaining_is_matching(
        rules in prop::collection::vec(
            (prop::collection::vec((0..3u8, 0..4u8), 1..3), 0..3u8, any::<bool>()), 1..8),
        entries in prop::collection::vec((0..3u8, 0..3u8), 0..4),
    ) {
        let mut limits = String::new();
        for (at, (patterns, mode, path)) in rules.iter().enumerate() {
            let patterns: Vec<String> = patterns.iter().map(|(key, value)| match value {
                3 => format!("{{key: k{key}}}"),
                value => format!("{{key: k{key}, value: v{value}}}"),
            }).collect();
            let modes = ["rate: 1r/s", "mode: unlimited", "mode: disabled, rate: 1r/s"];
            let mode = modes[usize::from(*mode)];
            let path = if *path { ", match: path" } else { "" };
            let patterns = patterns.join(", ");
            limits.push_str(&format!(
                "- {{name: r{at}, domain: d, {mode}{path}, descriptors: [{patterns}]}}\n"));
        }
        let Ok(policy) = parse_limits("t", &format!("limits:\n{limits}")) else {
            return Ok(()); // two rules with one set of counters
        };
        let table = RuleTable::build(policy.rules).unwrap();
        let texts: Vec<(String, String)> =
            entries.iter().map(|(k, v)| (format!("k{k}"), format!("v{v}"))).collect();
        let entries: Vec<(&[u8], &[u8])> =
            texts.iter().map(|(k, v)| (k.as_bytes(), v.as_bytes())).collect();
        let mut matches = Matches::new();
        table.match_descriptor(b"d", &entries, &mut matches);
        let never = table.never_apply();
        for (miss, rule) in table.explain(b"d", &entries).into_iter().zip(0u16..) {
            let matched = matches.iter().any(|m| m == rule);
            prop_assert_eq!(miss.is_none(), matched, "r{} of {}", rule, limits);
            prop_assert!(miss != Some(Miss::BeyondTheCap), "r{} of {}", rule, limits);
            let never = never.iter().any(|(never, _)| *never == rule);
            prop_assert!(!(matched && never), "r{} of {}", rule, limits);
        }
    }
}
