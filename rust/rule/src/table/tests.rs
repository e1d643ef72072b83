//! The index against a plain scan, conflicts, and identities.

use std::collections::BTreeSet;

use super::*;
use crate::error::Place;
use crate::key::KeyHasher;
use crate::spec::{DescriptorSpec, RuleSpec};
use crate::{Key, Sliding};
use proptest::prelude::*;

type Entries<'a> = Vec<(&'a [u8], &'a [u8])>;

fn spec(name: &str, entries: &[(&str, &str)], rate: &str) -> RuleSpec {
    RuleSpec {
        name: name.into(),
        domain: Some("d".into()),
        rate: Some(rate.into()),
        descriptors: entries
            .iter()
            .map(|(key, value)| DescriptorSpec {
                key: key.as_bytes().to_vec(),
                value: Some(value.as_bytes().to_vec()),
                ..DescriptorSpec::default()
            })
            .collect(),
        ..RuleSpec::default()
    }
}

fn rule(name: &str, entries: &[(&str, &str)]) -> Rule {
    spec(name, entries, "10r/s").build().unwrap().0
}

fn matched(table: &RuleTable, entries: &[(&str, &str)]) -> Vec<RuleIdx> {
    let entries: Entries<'_> = entries
        .iter()
        .map(|(k, v)| (k.as_bytes(), v.as_bytes()))
        .collect();
    let mut out = Matches::new();
    table.match_descriptor(b"d", &entries, &mut out);
    out.iter().collect()
}

#[test]
fn exact_any_and_prefix_match_together_in_configuration_order() {
    let table = RuleTable::build(vec![
        rule("any", &[("path", "*")]),
        rule("prefix", &[("path", "/api*")]),
        rule("exact", &[("path", "/api/v1")]),
        rule("longer", &[("path", "/api/v2*")]),
        rule("other key", &[("host", "*")]),
        rule("two", &[("path", "*"), ("host", "a*")]),
    ])
    .unwrap();
    assert_eq!(matched(&table, &[("path", "/api/v1")]), [0, 1, 2]);
    assert_eq!(matched(&table, &[("path", "/api/v2/x")]), [0, 1, 3]);
    assert_eq!(matched(&table, &[("path", "/ap")]), [0]);
    assert_eq!(matched(&table, &[("host", "")]), [4]);
    assert_eq!(matched(&table, &[("host", "ab"), ("path", "/")]), [5]);
    assert_eq!(matched(&table, &[("path", "/"), ("host", "ab")]), [5]);
    assert_eq!(matched(&table, &[("path", "/"), ("path", "/")]), []);
    assert_eq!(matched(&table, &[]), []);
    let mut out = Matches::new();
    let report = table.match_descriptor(b"other domain", &[(b"path", b"/")], &mut out);
    assert_eq!((out.len(), report.matched), (0, 0));
}

#[test]
fn disabled_rules_match_nothing_and_deny_rules_match() {
    let mut off = rule("off", &[("ip", "*")]);
    off.mode = Mode::Disabled;
    let mut deny = rule("deny", &[("ip", "6*")]);
    deny.mode = Mode::DenyAll;
    let table = RuleTable::build(vec![off, deny]).unwrap();
    assert_eq!(matched(&table, &[("ip", "66")]), [1]);
    assert_eq!(table.rules().len(), 2);
    assert_eq!(table.by_name("d", "deny"), Some(1));
    assert_eq!(table.by_name("e", "deny"), None);
}

#[test]
fn case_57_values_that_are_not_utf8_match_and_hash_like_any_other() {
    let address: &[u8] = &[0xC0, 0x00, 0x02, 0xFF];
    let mut any = spec("any", &[], "1r/s");
    any.descriptors = vec![DescriptorSpec {
        key: b"binary_remote_addr".to_vec(),
        value: None,
        ..DescriptorSpec::default()
    }];
    let mut exact = spec("exact", &[], "1r/s");
    let value = Some(address.to_vec());
    exact.descriptors = vec![DescriptorSpec {
        key: b"binary_remote_addr".to_vec(),
        value,
        ..DescriptorSpec::default()
    }];
    let rules = vec![any.build().unwrap().0, exact.build().unwrap().0];
    let table = RuleTable::build(rules).unwrap();
    let entries: [(&[u8], &[u8]); 1] = [(b"binary_remote_addr", address)];
    let mut out = Matches::new();
    table.match_descriptor(b"d", &entries, &mut out);
    assert_eq!(out.as_slice(), [0, 1]);
    let hasher = KeyHasher::new([7; 16]);
    let other: [(&[u8], &[u8]); 1] = [(b"binary_remote_addr", &[0xC0, 0x00, 0x02, 0xFE])];
    let id = &table.identities()[0];
    assert_ne!(hasher.key(id, &entries, 0), hasher.key(id, &other, 0));
}

#[test]
fn rules_beyond_the_cap_are_counted_and_the_first_ones_kept() {
    let rules: Vec<Rule> = (0..40)
        .map(|i| rule(&format!("r{i:02}"), &[("ip", "*")]))
        .collect();
    let table = RuleTable::build(rules).unwrap();
    let mut out = Matches::new();
    let report = table.match_descriptor(b"d", &[(b"ip", b"x")], &mut out);
    assert_eq!((report.matched, report.skipped), (40, 24));
    assert_eq!(out.iter().collect::<Vec<_>>(), (0..16).collect::<Vec<_>>());
    // The same when the late signature holds the early rules.
    let mut rules: Vec<Rule> = (0..20)
        .map(|i| rule(&format!("p{i}"), &[("ip", "x*")]))
        .collect();
    rules.extend((0..20).map(|i| rule(&format!("e{i}"), &[("ip", "xy")])));
    let table = RuleTable::build(rules).unwrap();
    let report = table.match_descriptor(b"d", &[(b"ip", b"xy")], &mut out);
    assert_eq!((report.matched, report.skipped), (40, 24));
    assert_eq!(out.iter().collect::<Vec<_>>(), (0..16).collect::<Vec<_>>());
}

#[test]
fn a_descriptor_with_too_many_entries_matches_nothing_and_is_reported() {
    let table = RuleTable::build(vec![rule("r", &[("ip", "*")])]).unwrap();
    let entries: Entries<'_> = vec![(b"ip", b"x"); 33];
    let mut out = Matches::new();
    let report = table.match_descriptor(b"d", &entries, &mut out);
    assert!(report.too_many_entries && out.is_empty());
}

#[test]
fn the_work_of_a_match_does_not_grow_with_the_number_of_rules() {
    let many: Vec<Rule> = (0..5_000)
        .map(|i| {
            rule(
                &format!("r{i}"),
                &[("path", &format!("/p{i:05}")), ("ip", "*")],
            )
        })
        .collect();
    let table = RuleTable::build(many).unwrap();
    let mut out = Matches::new();
    let entries: Entries<'_> = vec![(b"ip", b"1"), (b"path", b"/p04321")];
    let report = table.match_descriptor(b"d", &entries, &mut out);
    assert_eq!(out.as_slice(), [4321]);
    assert_eq!(report.lookups, 2);
}

#[test]
fn too_many_signatures_are_refused() {
    let rules: Vec<Rule> = (1..=300)
        .map(|i| {
            rule(
                &format!("r{i}"),
                &[("path", &format!("{}*", "x".repeat(i)))],
            )
        })
        .collect();
    let errors = RuleTable::build(rules).unwrap_err();
    assert!(
        matches!(
            errors[..],
            [RuleError::TooManySignatures { count: 300, .. }]
        ),
        "{errors:?}"
    );
}

#[test]
fn case_03_the_same_counters_twice_are_refused_naming_both_places() {
    let mut first = rule("first", &[("a", "*"), ("b", "x")]);
    let mut second = rule("second", &[("b", "x"), ("a", "*")]);
    (first.limiter, second.limiter) = ("shared".into(), "shared".into());
    first.place = Some(Place::new("a.yaml", 3, 5));
    second.place = Some(Place::new("b.yaml", 7, 5));
    // Another rate or mode is still the same set of counters.
    second.rate = "20r/s".parse().unwrap();
    second.mode = Mode::DryRun;
    let errors = RuleTable::build(vec![first.clone(), second.clone(), second]).unwrap_err();
    assert_eq!(errors.len(), 2, "one error per later rule: {errors:?}");
    let text = errors[0].to_string();
    assert!(
        text.contains("a.yaml:3:5") && text.contains("b.yaml:7:5"),
        "{text}"
    );
    assert!(
        text.contains("rule second") && text.contains("rule first"),
        "{text}"
    );
    let errors = RuleTable::build(vec![rule("x", &[("a", "*")]), rule("x", &[("b", "*")])]);
    assert!(matches!(
        errors.unwrap_err()[..],
        [RuleError::SameName { .. }]
    ));
}

#[test]
fn case_51_different_windows_on_one_descriptor_are_two_counters() {
    let mut slow = spec("slow", &[("ip", "*")], "50r/m");
    let mut fast = spec("fast", &[("ip", "*")], "40r/s");
    slow.limiter = Some("shared".into());
    fast.limiter = Some("shared".into());
    let rules = vec![slow.build().unwrap().0, fast.build().unwrap().0];
    assert_ne!(rules[0].identity(), rules[1].identity());
    let table = RuleTable::build(rules).unwrap();
    assert_eq!(matched(&table, &[("ip", "x")]), [0, 1]);
    let hasher = KeyHasher::new([1; 16]);
    let entries: [(&[u8], &[u8]); 1] = [(b"ip", b"x")];
    let keys: Vec<Key> = table
        .identities()
        .iter()
        .map(|id| hasher.key(id, &entries, 0))
        .collect();
    assert_ne!(keys[0], keys[1]);
}

#[test]
fn case_07_a_raised_limit_keeps_the_counters_and_changes_the_digest() {
    let before = spec("r", &[("ip", "*")], "10r/h").build().unwrap().0;
    let after = spec("r", &[("ip", "*")], "20r/h").build().unwrap().0;
    assert_eq!(before.identity(), after.identity());
    assert_ne!(before.digest(), after.digest());
}

#[test]
fn the_identity_covers_the_shape_and_nothing_else() {
    let mut base = spec("r", &[("ip", "*"), ("path", "/a*")], "60r/m");
    base.window = Some("1m".into());
    let id = |spec: &RuleSpec| spec.build().unwrap_or_else(|e| panic!("{e}")).0.identity();
    let same: [&dyn Fn(&mut RuleSpec); 7] = [
        &|s| s.rate = Some("1r/s".into()),
        &|s| s.mode = Some("dry_run".into()),
        &|s| s.cardinality = Some("5".into()),
        &|s| s.error_budget = Some("5%".into()),
        &|s| s.place = Some(Place::new("x", 1, 1)),
        &|s| (s.name, s.limiter) = ("q".into(), Some("r".into())),
        &|s| s.descriptors.reverse(),
    ];
    for (i, change) in same.iter().enumerate() {
        assert_eq!(with_base(&base, change), id(&base), "change {i}");
    }
    let other: [&dyn Fn(&mut RuleSpec); 8] = [
        &|s| s.domain = Some("e".into()),
        &|s| s.name = "q".into(),
        &|s| s.window = Some("2m".into()),
        &|s| s.bucket = Some("1s".into()),
        &|s| s.sliding = Some("strict".into()),
        &|s| (s.window, s.burst) = (None, Some("60".into())),
        &|s| s.descriptors[1].value = Some(b"/a".to_vec()),
        &|s| s.descriptors[1].value = None,
    ];
    let mut seen: Vec<CounterIdentity> = other.iter().map(|c| with_base(&base, c)).collect();
    seen.push(id(&base));
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), other.len() + 1);
}

fn with_base(base: &RuleSpec, change: &dyn Fn(&mut RuleSpec)) -> CounterIdentity {
    let mut other = base.clone();
    change(&mut other);
    other.build().unwrap_or_else(|e| panic!("{e}")).0.identity()
}

#[test]
fn case_52_identities_are_pinned_across_members_and_versions() {
    // Computed by another program from docs/spec/rules.md, rule-11 to rule-15. These values are on
    // the wire and in shared memory: if this test fails, the change starts new
    // counters everywhere and needs a new encoding version.
    let rule = spec(
        "api",
        &[("path", "/a*"), ("ip", "*"), ("verb", "GET")],
        "600r/m",
    );
    let rule = rule.build().unwrap().0;
    assert_eq!(
        rule.identity().to_string(),
        "10eff723b6df091a51d4536f85dc51a9"
    );
    assert_eq!(rule.digest().to_string(), "663f259774364652");
    let mut bucket = spec("b", &[("ip", "*")], "50r/s");
    bucket.burst = Some("100".into());
    assert_eq!(
        bucket.build().unwrap().0.identity().to_string(),
        "edfc1b67abd1c630d11923d66dfe594b"
    );
    let hasher = KeyHasher::derived_from_cluster("prod");
    let entries: [(&[u8], &[u8]); 3] = [(b"verb", b"GET"), (b"ip", b"1"), (b"path", b"/a/b")];
    let key = hasher.key(&rule.identity(), &entries, 3);
    assert_eq!(
        format!("{:012x}{:012x}", key.a, key.b),
        "e10f12321bfc875ad43ecd80"
    );
    assert_eq!(Key::from_bytes(key.to_bytes()), key);
}

#[test]
fn the_fingerprint_of_a_set_ignores_its_order() {
    let rules = vec![
        rule("a", &[("x", "*")]),
        rule("b", &[("x", "*")]),
        rule("c", &[("y", "1")]),
    ];
    let mut turned = rules.clone();
    turned.rotate_left(1);
    let first = RuleTable::build(rules.clone()).unwrap().fingerprint();
    assert_eq!(RuleTable::build(turned).unwrap().fingerprint(), first);
    assert_ne!(
        RuleTable::build(rules[..2].to_vec()).unwrap().fingerprint(),
        first
    );
}

#[test]
fn keys_depend_on_identity_value_boundaries_era_and_secret_only() {
    let id = rule("r", &[("a", "*"), ("b", "*")]).identity();
    let hasher = KeyHasher::new([9; 16]);
    let key = |entries: &[(&[u8], &[u8])], era| hasher.key(&id, entries, era);
    let base = key(&[(b"a", b"xy"), (b"b", b"z")], 0);
    assert_eq!(base, key(&[(b"b", b"z"), (b"a", b"xy")], 0));
    assert_ne!(base, key(&[(b"a", b"x"), (b"b", b"yz")], 0));
    assert_ne!(base, key(&[(b"a", b"xyz"), (b"b", b"")], 0));
    assert_ne!(base, key(&[(b"a", b"xy"), (b"b", b"z")], 1));
    let other = KeyHasher::new([8; 16]).key(&id, &[(b"a", b"xy"), (b"b", b"z")], 0);
    assert_ne!(base, other);
    assert_eq!(format!("{hasher:?}"), "KeyHasher(secret hidden)");
    assert_eq!(base.a >> 48, 0);
    assert_eq!(base.b >> 48, 0);
}

fn any_value() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(prop_oneof![Just(b'a'), Just(b'b')], 0..4)
}

fn any_value_pattern() -> impl Strategy<Value = ValuePattern> {
    prop_oneof![
        any_value().prop_map(ValuePattern::Exact),
        Just(ValuePattern::Any),
        any_value().prop_map(ValuePattern::Prefix),
    ]
}

fn any_rules() -> impl Strategy<Value = Vec<Rule>> {
    let descriptor =
        ("[kl]", any_value_pattern()).prop_map(|(key, value)| crate::DescriptorPattern {
            key: key.into_bytes(),
            value,
            shared: false,
            fallback: None,
        });
    let one = (proptest::collection::vec(descriptor, 1..4), 0u8..8, "[de]");
    proptest::collection::vec(one, 0..24).prop_map(|specs| {
        let build = |(i, (descriptors, mode, domain)): (usize, (Vec<_>, u8, String))| {
            let mut rule = rule(&format!("r{i}"), &[("x", "*")]);
            (rule.descriptors, rule.domain) = (descriptors, domain);
            rule.mode = if mode == 0 {
                Mode::Disabled
            } else {
                Mode::Enforce
            };
            rule
        };
        specs.into_iter().enumerate().map(build).collect()
    })
}

/// What [rule-10] says, rule by rule.
fn scan(rules: &[Rule], domain: &[u8], entries: &[(&[u8], &[u8])]) -> Vec<RuleIdx> {
    let mut entries = entries.to_vec();
    entries.sort_by_key(|e| e.0);
    let matches = |rule: &Rule| {
        let mut patterns = rule.descriptors.clone();
        patterns.sort_by(|a, b| a.key.cmp(&b.key));
        rule.mode != Mode::Disabled
            && rule.domain.as_bytes() == domain
            && patterns.len() == entries.len()
            && patterns
                .iter()
                .zip(&entries)
                .all(|(p, e)| p.key == e.0 && p.value.matches(e.1))
    };
    (0u16..)
        .zip(rules)
        .filter(|(_, rule)| matches(rule))
        .map(|(i, _)| i)
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn the_index_agrees_with_a_scan(
        rules in any_rules(),
        entries in proptest::collection::vec(("[klm]", any_value()), 0..4),
    ) {
        let table = RuleTable::build(rules.clone()).unwrap();
        let entries: Entries<'_> =
            entries.iter().map(|(k, v)| (k.as_bytes(), v.as_slice())).collect();
        let expected = scan(&rules, b"d", &entries);
        let mut out = Matches::new();
        let report = table.match_descriptor(b"d", &entries, &mut out);
        let kept = expected.len().min(MAX_MATCHED_RULES);
        prop_assert_eq!(out.as_slice(), &expected[..kept]);
        prop_assert_eq!(report.matched as usize, expected.len());
        prop_assert_eq!(report.skipped as usize, expected.len() - kept);
    }

    #[test]
    fn case_52_the_identity_ignores_the_order_of_different_keys(
        patterns in proptest::collection::btree_map("[a-h]", any_value_pattern(), 1..6),
        values in proptest::collection::vec(any_value(), 6),
        turn in 0usize..6,
    ) {
        let mut first = rule("r", &[("x", "*")]);
        first.descriptors = patterns
            .into_iter()
            .map(|(key, value)| crate::DescriptorPattern {
                key: key.into_bytes(),
                value,
                shared: false,
                fallback: None,
            })
            .collect();
        let mut second = first.clone();
        let n = second.descriptors.len();
        second.descriptors.rotate_left(turn % n);
        prop_assert_eq!(first.identity(), second.identity());
        prop_assert_eq!(first.digest(), second.digest());
        let hasher = KeyHasher::new([3; 16]);
        let entries: Entries<'_> = first
            .descriptors
            .iter()
            .zip(&values)
            .map(|(d, v)| (d.key.as_slice(), v.as_slice()))
            .collect();
        let mut turned = entries.clone();
        turned.rotate_left(turn % n);
        let id = first.identity();
        prop_assert_eq!(hasher.key(&id, &entries, 0), hasher.key(&id, &turned, 0));
    }

    #[test]
    fn patterns_print_and_parse_back(
        text in proptest::collection::vec(prop_oneof![Just(b'*'), Just(b'\\'), any::<u8>()], 0..8)
    ) {
        let pattern = ValuePattern::parse(&text);
        prop_assert_eq!(ValuePattern::parse(&pattern.text()), pattern);
        for made in [ValuePattern::Exact(text.clone()), ValuePattern::Prefix(text.clone())] {
            if made != ValuePattern::Prefix(Vec::new()) {
                prop_assert_eq!(ValuePattern::parse(&made.text()), made);
            }
        }
    }

    #[test]
    fn every_wire_key_survives(bytes in any::<[u8; 12]>()) {
        let key = Key::from_bytes(bytes);
        prop_assert_eq!(key.to_bytes(), bytes);
        prop_assert_eq!(key, Key::new(key.a, key.b));
    }
}

#[test]
fn sliding_kinds_are_different_counters() {
    let mut rule = rule("r", &[("ip", "*")]);
    let mut seen = BTreeSet::new();
    for kind in [Sliding::Live, Sliding::Strict, Sliding::Weighted] {
        if let crate::Algorithm::Window { sliding, .. } = &mut rule.algorithm {
            *sliding = kind;
        }
        seen.insert(rule.identity());
    }
    assert_eq!(seen.len(), 3);
}
