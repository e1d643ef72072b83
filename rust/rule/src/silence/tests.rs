//! Paths, shields, replacements and shared counters, as rules match descriptors.

use crate::error::Place;
use crate::key::KeyHasher;
use crate::policy::parse_limits;
use crate::table::{Matches, RuleTable};
use crate::{MatchReport, RuleIdx};
use proptest::prelude::*;

fn table(yaml: &str) -> RuleTable {
    let policy = parse_limits("p.yaml", yaml).unwrap_or_else(|e| panic!("{e:#?}"));
    RuleTable::build(policy.rules).unwrap_or_else(|e| panic!("{e:#?}"))
}

fn asked(table: &RuleTable, entries: &[(&str, &str)]) -> (Vec<RuleIdx>, MatchReport) {
    let entries: Vec<(&[u8], &[u8])> = entries
        .iter()
        .map(|(k, v)| (k.as_bytes(), v.as_bytes()))
        .collect();
    let mut out = Matches::new();
    let report = table.match_descriptor(b"d", &entries, &mut out);
    (out.iter().collect(), report)
}

fn names(table: &RuleTable, entries: &[(&str, &str)]) -> String {
    let (found, _) = asked(table, entries);
    let names = found
        .iter()
        .map(|i| table.rule(*i).map_or("?", |r| r.name.as_str()));
    names.collect::<Vec<_>>().join(" ")
}

fn refused(yaml: &str) -> String {
    match parse_limits("p.yaml", yaml) {
        Ok(policy) => panic!("accepted: {policy:?}"),
        Err(errors) => errors
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("\n"),
    }
}

const PATHS: &str = r#"
limits:
- {name: ab, domain: d, rate: 1r/s, match: path, descriptors: [{key: a, value: x}, {key: b}]}
- {name: a1, domain: d, rate: 1r/s, match: path, descriptors: [{key: a, value: x1}]}
- {name: ax, domain: d, rate: 1r/s, match: path, descriptors: [{key: a, value: "x*"}]}
- {name: a, domain: d, rate: 1r/s, match: path, descriptors: [{key: a}]}
- {name: ba, domain: d, rate: 1r/s, match: path, descriptors: [{key: b}, {key: a}]}
- {name: any, domain: d, rate: 1r/s, descriptors: [{key: a}]}
- {name: both, domain: d, rate: 1r/s, descriptors: [{key: a}, {key: b}]}
"#;

#[test]
fn of_the_paths_only_the_first_applies_and_other_rules_beside_it() {
    let table = table(PATHS);
    assert_eq!(names(&table, &[("a", "x1")]), "a1 any");
    assert_eq!(names(&table, &[("a", "x2")]), "ax any");
    assert_eq!(names(&table, &[("a", "y")]), "a any");
    assert_eq!(names(&table, &[("b", "y")]), "");
    let (_, report) = asked(&table, &[("a", "x1")]);
    assert_eq!((report.matched, report.skipped, report.shielded), (2, 0, 0));
}

#[test]
fn a_path_is_walked_in_the_order_of_the_request() {
    let table = table(PATHS);
    assert_eq!(names(&table, &[("a", "x"), ("b", "1")]), "ab both");
    assert_eq!(names(&table, &[("b", "1"), ("a", "x")]), "ba both");
    assert_eq!(names(&table, &[("a", "z"), ("b", "1")]), "both");
}

#[test]
fn many_paths_over_one_set_of_keys_do_not_hide_the_one_that_fits() {
    let mut yaml = String::from("limits:\n");
    for i in 0..40 {
        yaml += &format!(
            "- {{name: n{i}, domain: d, rate: 1r/s, match: path, descriptors: [{{key: k, value: \
             \"{}*\"}}, {{key: z}}]}}\n",
            "v".repeat(i + 1)
        );
    }
    yaml += "- {name: turned, domain: d, rate: 1r/s, match: path, descriptors: [{key: z}, \
             {key: k}]}\n";
    let table = table(&yaml);
    let long = "v".repeat(50);
    assert_eq!(names(&table, &[("k", &long), ("z", "")]), "n0");
    assert_eq!(names(&table, &[("z", ""), ("k", &long)]), "turned");
}

#[test]
fn case_17_an_unlimited_rule_shields_from_broader_ones_and_no_others() {
    let table = table(
        r#"
limits:
- {name: wide, domain: d, rate: 1r/s, descriptors: [{key: u}]}
- {name: prefix, domain: d, rate: 1r/s, descriptors: [{key: u, value: "ad*"}]}
- {name: same, domain: d, rate: 2r/s, descriptors: [{key: u, value: "admin*"}]}
- {name: free, domain: d, mode: unlimited, descriptors: [{key: u, value: "admin*"}]}
- {name: exact, domain: d, rate: 1r/s, descriptors: [{key: u, value: admin7}]}
- {name: twofold, domain: d, rate: 1r/s, descriptors: [{key: u}, {key: v}]}
"#,
    );
    assert_eq!(names(&table, &[("u", "admin")]), "free");
    assert_eq!(names(&table, &[("u", "admin7")]), "free exact");
    assert_eq!(names(&table, &[("u", "adam")]), "wide prefix");
    assert_eq!(names(&table, &[("u", "admin"), ("v", "")]), "twofold");
    let (_, report) = asked(&table, &[("u", "admin7")]);
    assert_eq!((report.matched, report.skipped, report.shielded), (5, 0, 3));
}

#[test]
fn a_rule_replaces_limiters_by_name_and_an_unknown_name_is_refused() {
    let yaml = r#"
limits:
- {name: a, domain: d, rate: 1r/s, limiter: common, descriptors: [{key: a}]}
- {name: b, domain: d, rate: 1r/s, limiter: common, descriptors: [{key: b}]}
- {name: c, domain: d, rate: 1r/s, replaces: [common], descriptors: [{key: c}]}
- {name: e, domain: e, rate: 1r/s, limiter: common, descriptors: [{key: e}]}
- {name: f, domain: d, rate: 1r/s, replaces: c, descriptors: [{key: f}]}
"#;
    let found = &table(yaml);
    assert!(found.any_replaces());
    let spared = |from: RuleIdx| (0..5).filter(move |to| found.replaces(from, *to));
    assert_eq!(spared(2).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(spared(4).collect::<Vec<_>>(), [2]);
    assert_eq!(spared(0).count(), 0);
    let wrong = refused(
        "limits:
- {name: a, domain: d, rate: 1r/s, limiter: common, descriptors: [{key: a}]}
- {name: c, domain: d, rate: 1r/s, replaces: [comon], descriptors: [{key: c}]}
",
    );
    assert!(
        wrong.contains("p.yaml:3:3") && wrong.contains("did you mean common?"),
        "{wrong}"
    );
    let own = refused(
        "limits:\n- {name: a, domain: d, rate: 1r/s, replaces: [a], descriptors: [{key: a}]}\n",
    );
    assert!(own.contains("its own limiter"), "{own}");
}

#[test]
fn shared_values_have_one_counter_and_others_one_each() {
    let table = table(
        r#"
limits:
- {name: s, domain: d, rate: 1r/s, descriptors: [{key: f, value: "f/*", shared: true}, {key: a}]}
- {name: o, domain: d, rate: 1r/s, descriptors: [{key: f, value: "f/*"}, {key: a}]}
"#,
    );
    assert_ne!(table.identities()[0], table.identities()[1]);
    let hasher = KeyHasher::new([9; 16]);
    let key = |rule, f: &str, a: &str| {
        let entries: [(&[u8], &[u8]); 2] = [(b"f", f.as_bytes()), (b"a", a.as_bytes())];
        table.key(&hasher, rule, &entries, 0)
    };
    assert!(key(0, "f/1", "x").is_some());
    assert_eq!(key(0, "f/1", "x"), key(0, "f/2", "x"));
    assert_ne!(key(0, "f/1", "x"), key(0, "f/1", "y"));
    assert_ne!(key(1, "f/1", "x"), key(1, "f/2", "x"));
    assert_eq!(key(2, "f/1", "x"), None);
    let exact = refused(
        "limits:
- {name: s, domain: d, rate: 1r/s, descriptors: [{key: f, value: f1, shared: true}]}
",
    );
    assert!(exact.contains("has one counter anyway"), "{exact}");
}

#[test]
fn a_misspelt_matching_is_refused_with_what_was_meant() {
    let wrong = refused(
        "limits:\n- {name: s, domain: d, rate: 1r/s, match: pth, descriptors: [{key: f}]}\n",
    );
    assert!(
        wrong.contains("p.yaml:2:43") && wrong.contains("did you mean path?"),
        "{wrong}"
    );
}

#[test]
fn the_words_of_a_rule_build_it_again() {
    let table = table(
        r#"
limits:
- {name: s, domain: d, rate: 1r/mo, match: path, replaces: [x], descriptors:
    [{key: f, value: "f/*", shared: true}, {key: a}]}
- {name: x, domain: d, mode: unlimited, match: path, descriptors: [{key: f}]}
"#,
    );
    for rule in table.rules() {
        let (again, _) = rule.to_spec().build().unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(&again, rule);
        assert_eq!(again.place, rule.place.clone());
        assert!(matches!(&rule.place, Some(Place { line, .. }) if *line > 0));
    }
}

proptest! {
    #[test]
    fn paths_agree_with_a_walk_over_all_rules(
        rules in proptest::collection::vec(
            proptest::collection::vec(("[ab]", "(|x|y|x\\*|xy\\*)"), 1..4), 1..20),
        entries in proptest::collection::vec(("[ab]", "(x|y|xy|xyz)"), 1..4),
    ) {
        let mut yaml = String::from("limits:\n");
        for (i, rule) in rules.iter().enumerate() {
            yaml += &format!("- name: r{i}\n  domain: d\n  rate: 1r/s\n  match: path\n");
            yaml += "  descriptors:\n";
            for (key, value) in rule {
                yaml += &format!("  - key: {key}\n");
                if !value.is_empty() {
                    yaml += &format!("    value: \"{value}\"\n");
                }
            }
        }
        let fits = |rule: &Vec<(String, String)>| rule.len() == entries.len()
            && rule.iter().zip(&entries).all(|((key, pattern), (k, v))| key == k
                && match pattern.strip_suffix('*') {
                    Some(prefix) => v.starts_with(prefix),
                    None => pattern.is_empty() || pattern == v,
                });
        let expected: Vec<RuleIdx> =
            (0..).zip(&rules).filter(|(_, r)| fits(r)).map(|(i, _)| i).take(1).collect();
        let entries: Vec<(&str, &str)> =
            entries.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        prop_assert_eq!(asked(&table(&yaml), &entries).0, expected);
    }
}
