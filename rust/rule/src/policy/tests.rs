//! Policy files, good and bad, and the exact words of their errors.

use super::*;
use crate::limits::{MAX_DOCUMENT_BYTES, MAX_REPORTED_ERRORS};
use crate::rule::{Algorithm, Mode, ValuePattern};
use proptest::prelude::*;
use yaml::Value;

fn errors(yaml: &str) -> Vec<String> {
    match parse_limits("p.yaml", yaml) {
        Ok(policy) => panic!("accepted: {policy:?}"),
        Err(errors) => errors.iter().map(ToString::to_string).collect(),
    }
}

fn error(yaml: &str) -> String {
    let mut all = errors(yaml);
    assert_eq!(all.len(), 1, "{all:#?}");
    all.remove(0)
}

const GOOD: &str = r#"# two rules
limits:
  - name: per-ip
    domain: nginx
    descriptors:
      - {key: remote_addr}
    rate: 600r/m
    bucket: 1s
    sliding: strict
    cardinality: 100000
    mode: dry_run
    error_budget: 0.5%
  - name: logins
    domain: web
    limiter: shared
    descriptors:
      - key: path
        value: /login*
      - key: status
        value: 404
    rate: "0.5r/s"
    burst: 3
    pace: fast
"#;

#[test]
fn a_policy_file_is_read_whole() {
    let policy = parse_limits("p.yaml", GOOD).unwrap();
    let [first, second] = &policy.rules[..] else {
        panic!()
    };
    assert_eq!(first.mode, Mode::DryRun);
    assert_eq!(first.error_budget_ppm, 5_000);
    assert_eq!(first.cardinality, Some(100_000));
    assert_eq!(first.algorithm.buckets(), 60);
    assert_eq!(first.place, Some(Place::new("p.yaml", 3, 5)));
    assert_eq!(first.descriptors[0].value, ValuePattern::Any);
    assert_eq!(second.limiter, "shared");
    assert_eq!(
        second.descriptors[1].value,
        ValuePattern::Exact(b"404".to_vec())
    );
    assert!(matches!(
        second.algorithm,
        Algorithm::TokenBucket { burst: 3, .. }
    ));
    assert_eq!(policy.notices, []);
    assert_eq!(parse_limits("p.yaml", "limits: []").unwrap().rules, []);
}

#[test]
fn case_01_a_misspelt_key_is_refused_with_place_and_suggestion() {
    let text = GOOD.replace("cardinality", "cardinalty");
    assert_eq!(
        error(&text),
        "p.yaml:10:5: limits[0].cardinalty: this key is not known; did you mean cardinality?"
    );
    let text = GOOD.replace("value: 404", "vale: 404");
    assert_eq!(
        error(&text),
        "p.yaml:20:9: limits[1].descriptors[1].vale: this key is not known; did you mean value?"
    );
    let text = GOOD.replace("limits:", "limit:");
    let all = errors(&text);
    assert!(all[1].ends_with("did you mean limits?") || all[0].ends_with("did you mean limits?"));
    let text = GOOD.replace("pace: fast", "frobnicate: 1");
    assert!(
        error(&text).contains("known are: bucket, burst, cardinality, charge, descriptors, domain")
    );
    let text = GOOD.replace("mode: dry_run", "mode: dryrun");
    assert_eq!(
        error(&text),
        "p.yaml:11:11: limits[0].mode: dryrun is none of: enforce, dry_run, quota, disabled, \
         deny, unlimited; did you mean dry_run?"
    );
}

#[test]
fn all_faults_are_reported_at_once_in_the_order_of_the_file() {
    let yaml = "limits:\n- name: a\n  rate: 10\n  descriptors: x\n- just text\n- name: [b]\n  \
                domain: d\n  rate: 0r/s\n  descriptors: [{key: k, value: {}}, {value: v}, 7]\n";
    let all = errors(yaml);
    let starts = [
        "p.yaml:2:3: limits[0].domain: domain is missing",
        "p.yaml:3:9: limits[0].rate: rate=10: no / in it",
        "p.yaml:4:16: limits[0].descriptors: a single value stands here; a list is expected",
        "p.yaml:5:3: limits[1]: a single value stands here; a mapping of keys is expected",
        "p.yaml:6:9: limits[2].name: a list stands here; a single value is expected",
        "p.yaml:8:9: limits[2].rate: 0r/s admits nothing",
        "p.yaml:9:33: limits[2].descriptors[0].value: a mapping stands here",
        "p.yaml:9:38: limits[2].descriptors[1].key: this key is required",
        "p.yaml:9:50: limits[2].descriptors[2]: a single value stands here",
    ];
    assert_eq!(all.len(), starts.len(), "{all:#?}");
    for (line, start) in all.iter().zip(starts) {
        assert!(
            line.starts_with(start),
            "{line}\n  should start with {start}"
        );
    }
}

#[test]
fn case_03_the_same_counters_twice_name_both_places() {
    let yaml = "limits:\n\
                - {name: a, limiter: l, domain: d, rate: 1r/s, descriptors: [{key: x}, {key: y}]}\n\
                - {name: b, limiter: l, domain: d, rate: 9r/s, descriptors: [{key: y}, {key: x}]}";
    let line = error(yaml);
    assert!(
        line.starts_with("p.yaml:3:3: limits: rule b (p.yaml:3:3) counts in"),
        "{line}"
    );
    assert!(line.contains("rule a (p.yaml:2:3)"), "{line}");
}

#[test]
fn case_06_files_that_are_no_policy_give_clear_errors() {
    assert_eq!(
        error(""),
        "p.yaml:1:1: the file is empty; a mapping is expected"
    );
    assert_eq!(
        error("# only a comment\n"),
        "p.yaml:1:1: the file is empty; a mapping is expected"
    );
    assert!(error("hello").contains("a single value stands here; a mapping of keys is expected"));
    assert!(error("- 1\n- 2").contains("a list stands here"));
    assert!(error("{}").contains("limits: this key is required"));
    let broken = error("limits: [a, b\nname: {");
    assert!(
        broken.starts_with("p.yaml:2:") && broken.contains("this is not YAML"),
        "{broken}"
    );
    assert!(error("limits: []\n---\nlimits: []").starts_with("p.yaml:3:1: a second document"));
    assert!(error("limits: []\nlimits: []").contains("key limits is already given at 1:1"));
    assert!(error("limits: !custom []").contains("tag !custom means nothing here"));
    assert!(error("? [a]\n: b").contains("a key is a single value"));
    let not_utf8 = yaml::parse_bytes("p.yaml", b"a: 1\nb\xFF").unwrap_err();
    assert_eq!(
        not_utf8[0].to_string(),
        "p.yaml:2:2: the file is not UTF-8 text; save it as UTF-8"
    );
    let binary: Vec<u8> = (0..=255u8).collect();
    assert!(yaml::parse_bytes("p.yaml", &binary).is_err());
}

#[test]
fn case_06_fifty_megabytes_of_aliases_stay_small() {
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
    for i in 1..12 {
        let row = vec![format!("*a{}", i - 1); 9].join(", ");
        bomb.push_str(&format!("a{i}: &a{i} [{row}]\n"));
    }
    assert!(error(&bomb).contains("aliases expand to more than 100000 values"));
    let text = "x".repeat(1 << 20);
    let bytes = format!("a: &a {text}\nlimits: [*a, *a, *a, *a, *a, *a]\n");
    assert!(
        error(&bytes).contains("aliases expand to more than"),
        "text bytes count too"
    );
    let merge = format!("a: &a {{k: {text}}}\nb: [{}]\n", ["{<<: *a}"; 6].join(","));
    assert!(error(&merge).contains("aliases expand to more than"));
    let large = "limits: [*a, *a]\n".repeat((50 << 20) / 17);
    assert!(error(&large).contains("more than the 16777216 that are read"));
    let deep = "[".repeat(100_000);
    assert!(error(&deep).contains("p.yaml:1:"));
    let block: String = (0..200).map(|i| format!("{}a:\n", " ".repeat(i))).collect();
    assert!(error(&block).contains("nested deeper than 64 levels"));
    assert!(error("a: &a [*a]").contains("never ends"));
    assert!(error("limits: *nowhere").contains("p.yaml:1:9"));
}

#[test]
fn aliases_and_merge_keys_save_writing() {
    let yaml = "limits:\n- &base\n  name: a\n  domain: d\n  rate: 1r/s\n  descriptors: \
                &d [{key: k}]\n- {<<: *base, name: b, mode: deny}\n- {name: c, domain: d, rate: \
                5r/m, descriptors: *d}\n";
    let policy = parse_limits("p.yaml", yaml).unwrap();
    let names: Vec<&str> = policy.rules.iter().map(|r| r.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "c"]);
    assert_eq!(policy.rules[1].domain, "d");
    assert_eq!(policy.rules[1].mode, Mode::DenyAll);
}

#[test]
fn merged_keys_yield_to_written_ones_and_to_earlier_merges() {
    let yaml = "a: &a {x: 1, y: 1}\nb: &b {y: 2, z: 2}\nm: {<<: [*a, *b], x: 0}\n";
    let root = yaml::parse("t", yaml).unwrap();
    let merged: Vec<_> = root.get("m").unwrap().as_map().unwrap().iter().collect();
    let merged: Vec<_> = merged
        .iter()
        .map(|e| (e.key.as_str(), e.value.as_text()))
        .collect();
    assert_eq!(
        merged,
        [("x", Some("0")), ("y", Some("1")), ("z", Some("2"))]
    );
    assert!(error("m: {<<: 7}").contains("<< merges a mapping"));
}

#[test]
fn a_bare_star_is_told_to_be_quoted() {
    for value in ["*", "*/x", "*any"] {
        let line = error(&format!(
            "limits:\n- descriptors: [{{key: k, value: {value} }}]\n"
        ));
        assert!(
            line.starts_with("p.yaml:2:33: ") && line.ends_with("in quotes, like \"*\""),
            "{line}"
        );
    }
    assert!(!error("limits: @x").contains("quotes"));
}

#[test]
fn many_comments_and_a_byte_order_mark_do_no_harm() {
    let text = format!("\u{FEFF}{}{GOOD}", "# comment\n".repeat(1_000));
    assert_eq!(parse_limits("p.yaml", &text).unwrap().rules.len(), 2);
}

#[test]
fn nothing_null_and_absent_are_the_same() {
    let yaml =
        "limits:\n- name: a\n  domain: d\n  rate: 1r/s\n  window: ~\n  burst:\n  mode: null\n  \
                descriptors: [{key: k, value: }, {key: l, value: ''}]\n";
    let policy = parse_limits("p.yaml", yaml).unwrap();
    let values: Vec<_> = policy.rules[0]
        .descriptors
        .iter()
        .map(|d| d.value.clone())
        .collect();
    assert_eq!(values, [ValuePattern::Any, ValuePattern::Exact(Vec::new())]);
    assert_eq!(policy.notices.len(), 1);
    assert!(policy.notices[0]
        .to_string()
        .starts_with("p.yaml:2:3: rule a: descriptor l matches"));
}

#[test]
fn a_flood_of_errors_is_cut_and_counted() {
    let yaml = format!("limits: [{}]", vec!["7"; 500].join(", "));
    let all = errors(&yaml);
    assert_eq!(all.len(), MAX_REPORTED_ERRORS + 1);
    assert!(
        all[MAX_REPORTED_ERRORS].contains("436 more errors"),
        "{}",
        all[MAX_REPORTED_ERRORS]
    );
}

#[test]
fn the_typed_getters_check_kinds_and_ranges() {
    let yaml = "id: 0xFF_ff\nn: 256\nbig: 99999999999999999999\nneg: -1\non: true\noff: 'no'\n\
                tick: 10ms\nslow: 2h\nsize: 64m\nhuge: 99999999999g\nlist: [a, b]\none: c\n\
                bad: [a, [b]]\nword: bleu\nsub: {x: 1, y: 2}\nnot: {}\n";
    let root = yaml::parse("c.yaml", yaml).unwrap();
    let problems = Problems::new("c.yaml");
    let mut map = MapReader::new(&root, "", &problems).unwrap();
    assert_eq!(map.u64_in("id", 0..=u64::MAX), Some(0xFFFF));
    assert_eq!(map.u64_in("n", 0..=255), None);
    assert_eq!(map.u64_in("big", 0..=u64::MAX), None);
    assert_eq!(map.u64_in("neg", 0..=255), None);
    assert_eq!(map.u64_in("absent", 0..=255), None);
    assert_eq!(map.bool("on"), Some(true));
    assert_eq!(map.bool("off"), None);
    assert_eq!(map.duration_ns("tick", 1..=1_000_000_000), Some(10_000_000));
    assert_eq!(map.duration_ns("slow", 1..=1_000_000_000), None);
    assert_eq!(map.size_bytes("size", 0..=u64::MAX), Some(64 << 20));
    assert_eq!(map.size_bytes("huge", 0..=u64::MAX), None);
    assert_eq!(map.texts("list"), Some(vec!["a", "b"]));
    assert_eq!(map.texts("one"), Some(vec!["c"]));
    assert_eq!(map.texts("bad"), Some(vec!["a"]));
    assert_eq!(map.word("word", &["red", "blue"]), None);
    let mut sub = map.map("sub").unwrap();
    assert_eq!(sub.u64_in("x", 1..=1), Some(1));
    sub.problem("x", "told so");
    sub.finish();
    assert_eq!(map.text("not"), None);
    assert_eq!(map.required_text("needed"), None);
    map.finish();
    let all: Vec<String> = problems
        .into_errors()
        .iter()
        .map(ToString::to_string)
        .collect();
    let expected = [
        "c.yaml:1:1: needed: this key is required",
        "c.yaml:2:4: n: 256 is outside 0 to 255",
        "c.yaml:3:6: big: 99999999999999999999 is outside 0 to 18446744073709551615",
        "c.yaml:4:6: neg: -1 is not a whole number",
        "c.yaml:6:6: off: no is neither true nor false",
        "c.yaml:8:7: slow: 2h is outside 1ns to 1s",
        "c.yaml:10:7: huge: 99999999999g is not a size like 4096, 64k, 512m or 2g",
        "c.yaml:13:10: bad[1]: a list stands here; a single value is expected",
        "c.yaml:14:7: word: bleu is none of: red, blue; did you mean blue?",
        "c.yaml:15:10: sub.x: told so",
        "c.yaml:15:13: sub.y: this key is not known; did you mean x?",
        "c.yaml:16:6: not: a mapping stands here; a single value is expected",
    ];
    assert_eq!(all, expected);
}

#[test]
fn suggestions_are_near_or_absent() {
    let words = ["unlimited", "shadow_mode", "rate", "value"];
    let near = |text: &str| yaml::nearest(text, words);
    assert_eq!(near("unlimied"), Some("unlimited"));
    assert_eq!(near("shadow-mode"), Some("shadow_mode"));
    assert_eq!(near("Rate"), Some("rate"));
    assert_eq!(near("rats"), Some("rate"));
    assert_eq!(near("elephant"), None);
    assert_eq!(near(&"x".repeat(100_000)), None);
}

#[test]
fn a_document_at_the_size_bound_is_read() {
    let pad = MAX_DOCUMENT_BYTES - GOOD.len() - 3;
    let text = format!("{GOOD}# {}\n", "x".repeat(pad));
    assert_eq!(text.len(), MAX_DOCUMENT_BYTES);
    assert_eq!(parse_limits("p.yaml", &text).unwrap().rules.len(), 2);
}

/// A document from a tree, in flow style with quoted scalars.
fn write(node: &Value, out: &mut String) {
    match node {
        Value::Null => out.push('~'),
        Value::Text(text) => out.push_str(&format!("'{}'", text.replace('\'', "''"))),
        Value::List(items) => {
            out.push('[');
            for item in items {
                write(&item.value, out);
                out.push_str(", ");
            }
            out.push(']');
        }
        Value::Map(entries) => {
            out.push('{');
            for entry in entries {
                out.push_str(&format!("'{}': ", entry.key));
                write(&entry.value.value, out);
                out.push_str(", ");
            }
            out.push('}');
        }
    }
}

fn without_places(node: &Value) -> Value {
    let pos = Pos { line: 0, column: 0 };
    let bare = |node: &Node| Node {
        pos,
        value: without_places(&node.value),
    };
    match node {
        Value::List(items) => Value::List(items.iter().map(bare).collect()),
        Value::Map(entries) => {
            let entry = |e: &yaml::Entry| yaml::Entry {
                key: e.key.clone(),
                pos,
                value: bare(&e.value),
            };
            Value::Map(entries.iter().map(entry).collect())
        }
        other => other.clone(),
    }
}

fn any_value() -> impl Strategy<Value = Value> {
    let pos = Pos { line: 0, column: 0 };
    let leaf = prop_oneof![Just(Value::Null), "[ -~]{0,8}".prop_map(Value::Text)];
    leaf.prop_recursive(4, 32, 4, move |inner| {
        let list = proptest::collection::vec(inner.clone(), 0..4).prop_map(move |values| {
            Value::List(
                values
                    .into_iter()
                    .map(|value| Node { pos, value })
                    .collect(),
            )
        });
        let map = proptest::collection::btree_map("[a-z]{1,4}", inner, 0..4).prop_map(move |map| {
            let entry = |(key, value)| yaml::Entry {
                key,
                pos,
                value: Node { pos, value },
            };
            Value::Map(map.into_iter().map(entry).collect())
        });
        prop_oneof![list, map]
    })
}

proptest! {
    #[test]
    fn a_tree_is_read_back_as_it_was(value in any_value()) {
        let mut text = String::new();
        write(&value, &mut text);
        let read = yaml::parse("t", &text).map_err(|e| TestCaseError::fail(format!("{e:?}")))?;
        prop_assert_eq!(without_places(&read.value), value);
    }

    #[test]
    fn any_text_is_read_or_refused(text in "[ \\-\\[\\]{}:,&*!|>'\"%@`#\n\ta-c~?<]{0,64}") {
        let _ = yaml::parse("t", &text);
        let _ = parse_limits("t", &text);
    }

    #[test]
    fn any_cut_of_a_good_file_is_read_or_refused(cut in 0usize..GOOD.len()) {
        if let Err(errors) = parse_limits("t", &GOOD[..cut]) {
            prop_assert!(!errors.is_empty());
            prop_assert!(errors.iter().all(|e| e.place.line >= 1 && e.place.column >= 1));
        }
    }
}

#[test]
fn flags_are_declared_with_a_default_and_named_by_rules() {
    let yaml = "flags:\n  canary: {default: 25%}\n  new-tier: {default: off}\n  plain:\nlimits:\n\
                - {name: a, domain: d, descriptors: [{key: k}], rate: 1r/s, if_flag: canary}\n\
                - {name: b, domain: d, descriptors: [{key: k}], rate: 1r/s}\n";
    let policy = parse_limits("p.yaml", yaml).unwrap();
    let said: Vec<(&str, String)> = policy
        .flags
        .iter()
        .map(|flag| (flag.name.as_str(), flag.default.to_string()))
        .collect();
    let want = [("canary", "25%"), ("new-tier", "off"), ("plain", "on")];
    assert_eq!(said, want.map(|(name, share)| (name, share.to_owned())));
    let a = &policy.rules[0];
    let flag = a.switch.clone().unwrap().flag;
    assert_eq!((flag.name.as_str(), flag.default.get()), ("canary", 25));
    assert!(a.to_string().ends_with("if_flag=canary"), "{a}");
    assert_eq!(a.to_spec().build().unwrap().0.switch, a.switch);
    // Which flag switches a rule is no part of what it counts or decides.
    let mut without = a.clone();
    without.switch = None;
    assert_eq!(without.identity(), a.identity());
    assert_eq!(without.digest(), a.digest());
}

#[test]
fn a_flag_that_is_not_declared_is_refused_with_the_one_that_was_meant() {
    let rule = "{name: a, domain: d, descriptors: [{key: k}], rate: 1r/s, if_flag: canry}";
    let yaml = format!("flags: {{canary: {{default: off}}}}\nlimits:\n- {rule}\n");
    assert_eq!(
        error(&yaml),
        "p.yaml:3:70: limits[0].if_flag: flag canry is not declared; declare it under flags; did \
         you mean canary?"
    );
    let all = errors(&format!("limits:\n- {rule}\n"));
    assert!(all[0].ends_with("declare it under flags"), "{all:?}");
    for (flags, says) in [
        (
            "{a: {default: 101%}}",
            "flags.a.default: 101% is none of: on, off",
        ),
        (
            "{a: {defalt: on}}",
            "flags.a.defalt: this key is not known; did you mean default?",
        ),
        (
            "{a: off}",
            "flags.a: a single value stands here; a mapping of keys is expected",
        ),
        (
            "[a]",
            "flags: a list stands here; a mapping of flags is expected",
        ),
        ("{\"\": }", "a flag's name has 1 to 1024 bytes"),
    ] {
        let all = errors(&format!("flags: {flags}\nlimits: []\n"));
        assert!(all[0].contains(says), "{flags}: {all:?}");
    }
}

#[test]
fn a_denial_s_body_is_read_and_refused_at_its_place() {
    let rule = |rest: &str| {
        let before = "limits:\n- {name: a, domain: d, rate: 1r/s, descriptors: [{key: k}],\n   ";
        format!("{before}{rest}}}\n")
    };
    let good = parse_limits("p", &rule("raw_body: Slow., raw_body_type: text/html")).unwrap();
    let denial = good.rules[0].denial.clone().unwrap();
    assert_eq!(
        (denial.body.as_deref(), denial.content_type.as_deref()),
        (Some("Slow."), Some("text/html"))
    );
    let plain = parse_limits("p", &rule("cardinality: 5")).unwrap();
    assert_eq!(plain.rules[0].identity(), good.rules[0].identity());
    assert_eq!(plain.rules[0].digest(), good.rules[0].digest());
    for (rest, said) in [
        ("raw_body: ''", "p:3:14: limits[0].raw_body: "),
        (
            "raw_body_type: text/html",
            "p:3:19: limits[0].raw_body_type: it does nothing",
        ),
        (
            "raw_body: x, raw_body_type: \"a\\nb\"",
            "p:3:32: limits[0].raw_body_type: ",
        ),
        (
            "raw_body: {a: b}",
            "p:3:14: limits[0].raw_body: a mapping stands here",
        ),
    ] {
        let errors = parse_limits("p", &rule(rest)).unwrap_err();
        let all: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(all.len(), 1, "{all:?}");
        assert!(all[0].starts_with(said), "{} is not {said}", all[0]);
    }
}
