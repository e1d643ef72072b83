//! The dashboard and the alerts ask only for what a member really exports, and the manual says what
//! to do about each alert.
#![allow(clippy::unwrap_used)] // a test fails by panicking

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use common::prometheus::{parse, Family};
use common::{introduce, until, Member};
use gabion_rule::policy::yaml::{self, Node};
use serde_json::Value;

/// Labels that Prometheus adds to each series of a target, and the one of a histogram's buckets.
const OF_THE_TARGET: [&str; 3] = ["instance", "job", "le"];
/// Words of the language that are followed by a list of labels.
const LISTS: [&str; 4] = ["by", "without", "on", "ignoring"];
/// Labels whose values are a closed set of words, so that a value in an expression can be checked.
const CLOSED: [&str; 8] = [
    "cause",
    "state",
    "kind",
    "decision",
    "direction",
    "event",
    "log",
    "part",
];

type Exported = BTreeMap<String, Family>;

fn exported() -> Exported {
    let rules = "limits:\n- {name: ip, domain: edge, rate: 3r/h, descriptors: [{key: ip}]}\n";
    let members = [
        Member::start_gossiping(rules),
        Member::start_gossiping(rules),
    ];
    introduce(&[&members[0], &members[1]]);
    until("a round trip and a clock offset were measured", || {
        let page = parse(&members[0].get("/metrics").1);
        let measured = !page["gabion_peer_round_trip_seconds"].series.is_empty()
            && !page["gabion_peer_clock_offset_seconds"].series.is_empty();
        measured.then_some(page)
    })
}

fn file(name: &str) -> String {
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    std::fs::read_to_string(root.join(name)).unwrap()
}

/// What an expression uses: metrics, the labels it names, and the matchers.
#[derive(Debug, Default)]
struct Used {
    metrics: BTreeSet<String>,
    labels: BTreeSet<String>,
    /// (metric, label, value or pattern)
    matchers: Vec<(String, String, String)>,
}

/// Takes an expression apart as far as names go.
fn used_by(expr: &str) -> Used {
    let mut used = Used::default();
    let mut rest = expr;
    let mut last_word = String::new();
    while let Some(c) = rest.chars().next() {
        if c.is_ascii_alphabetic() || c == '_' {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            let (word, after) = rest.split_at(end.unwrap_or(rest.len()));
            if ["gabion_", "process_"].iter().any(|p| word.starts_with(p)) || word == "up" {
                used.metrics.insert(word.to_owned());
            }
            (last_word, rest) = (word.to_owned(), after);
        } else if c == '{' {
            let (inside, after) = rest[1..].split_once('}').unwrap();
            for matcher in inside.split(", ") {
                let at = matcher.find(['=', '!']).unwrap();
                let value = matcher[at..].trim_matches(['=', '~', '!', '"']);
                used.labels.insert(matcher[..at].to_owned());
                let of = (
                    last_word.clone(),
                    matcher[..at].to_owned(),
                    value.to_owned(),
                );
                used.matchers.push(of);
            }
            rest = after;
        } else if c == '(' && LISTS.contains(&last_word.as_str()) {
            let (inside, after) = rest[1..].split_once(')').unwrap();
            used.labels
                .extend(inside.split(',').map(|label| label.trim().to_owned()));
            (last_word, rest) = (String::new(), after);
        } else {
            if !c.is_whitespace() {
                last_word.clear();
            }
            rest = &rest[c.len_utf8()..];
        }
    }
    used
}

/// The family of a name in an expression, and the labels of its series.
fn family<'e>(exported: &'e Exported, metric: &str) -> Option<(&'e Family, BTreeSet<&'e str>)> {
    let histogram = ["_bucket", "_sum", "_count"]
        .iter()
        .find_map(|suffix| metric.strip_suffix(suffix))
        .and_then(|name| exported.get(name))
        .filter(|family| family.kind == "histogram");
    let family = histogram.or_else(|| {
        let family = exported.get(metric)?;
        (family.kind != "histogram").then_some(family)
    })?;
    let series = family.series.keys();
    let labels = series.flat_map(|(_, labels)| labels.iter().map(|(label, _)| label.as_str()));
    let mut labels: BTreeSet<&str> = labels.collect();
    if metric.starts_with("gabion_tls_") {
        labels.insert("port"); // this member has no certificates, and so no series
    }
    Some((family, labels))
}

/// Checks that everything an expression, or a text made from its result, names is there.
fn check(exported: &Exported, place: &str, expr: &str, texts: &[&str]) {
    let used = used_by(expr);
    assert!(!used.metrics.is_empty(), "{place}: no metric in {expr}");
    let mut labels: BTreeSet<&str> = OF_THE_TARGET.into();
    for metric in used.metrics.iter().filter(|metric| *metric != "up") {
        let found = family(exported, metric);
        let (_, its) = found.unwrap_or_else(|| panic!("{place}: {metric} is not exported"));
        labels.extend(its);
    }
    for label in &used.labels {
        assert!(
            labels.contains(label.as_str()),
            "{place}: no label {label} in {expr}"
        );
    }
    for (metric, label, pattern) in &used.matchers {
        let Some((family, its)) = family(exported, metric) else {
            assert_eq!(metric, "up", "{place}");
            continue;
        };
        let of_the_target = OF_THE_TARGET.contains(&label.as_str());
        assert!(
            of_the_target || its.contains(label.as_str()),
            "{place}: {metric} has no {label}"
        );
        if !CLOSED.contains(&label.as_str()) {
            continue;
        }
        for word in pattern.split('|') {
            let mut all = family.series.keys().flat_map(|(_, labels)| labels);
            let known = all.any(|(l, value)| l == label && value == word);
            assert!(known, "{place}: {metric} has no {label}=\"{word}\"");
        }
    }
    for text in texts {
        for label in named_in(text) {
            assert!(
                labels.contains(label),
                "{place}: no label {label} for {text}"
            );
        }
    }
}

/// `{{label}}` of a legend, and `{{ $labels.label }}` of an annotation.
fn named_in(text: &str) -> impl Iterator<Item = &str> {
    let inside = text.split("{{").skip(1);
    let inside = inside.map(|rest| rest.split("}}").next().unwrap().trim());
    inside
        .filter(|inside| !inside.starts_with("$value"))
        .map(|inside| inside.strip_prefix("$labels.").unwrap_or(inside))
}

fn text<'n>(node: &'n Node, key: &str) -> &'n str {
    node.get(key)
        .and_then(Node::as_text)
        .unwrap_or_else(|| panic!("{key} of {node:?}"))
}

#[test]
fn the_alerts_ask_for_what_is_exported_and_the_manual_helps_with_each() {
    let exported = exported();
    let alerts = yaml::parse("alerts.yaml", &file("deploy/grafana/alerts.yaml")).unwrap();
    let manual = file("docs/operating.md");
    let groups = alerts.get("groups").and_then(Node::as_list).unwrap();
    let rules = groups[0].get("rules").and_then(Node::as_list).unwrap();
    assert!(rules.len() > 15);
    let mut names = BTreeSet::new();
    for rule in rules {
        let name = text(rule, "alert");
        let notes = rule.get("annotations").unwrap();
        let texts = [text(notes, "summary"), text(notes, "description")];
        check(&exported, name, text(rule, "expr"), &texts);
        let severity = text(rule.get("labels").unwrap(), "severity");
        assert!(
            ["critical", "warning", "info"].contains(&severity),
            "{name}"
        );
        assert!(
            manual.contains(&format!("\n| `{name}` | ")),
            "{name} has no line in the manual"
        );
        assert!(names.insert(name), "{name} twice");
    }
    let documented = manual
        .lines()
        .filter_map(|line| line.strip_prefix("| `Gabion"));
    for line in documented {
        let name = format!("Gabion{}", line.split('`').next().unwrap());
        assert!(names.contains(name.as_str()), "{name} is no alert");
    }
}

#[test]
fn the_dashboard_asks_for_what_is_exported_and_its_panels_do_not_overlap() {
    let exported = exported();
    let board: Value = serde_json::from_str(&file("deploy/grafana/gabion.json")).unwrap();
    let mut shown = BTreeSet::new();
    let mut places = BTreeSet::new();
    let mut ids = BTreeSet::new();
    for panel in board["panels"].as_array().unwrap() {
        let title = panel["title"].as_str().unwrap();
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{title}");
        let at = |key: &str| panel["gridPos"][key].as_u64().unwrap();
        assert!(at("x") + at("w") <= 24, "{title} is too wide");
        for x in at("x")..at("x") + at("w") {
            for y in at("y")..at("y") + at("h") {
                assert!(places.insert((x, y)), "{title} lies on another panel");
            }
        }
        if panel["type"] == "row" {
            continue;
        }
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{title}");
        for target in panel["targets"].as_array().unwrap() {
            let expr = target["expr"].as_str().unwrap();
            check(
                &exported,
                title,
                expr,
                &[target["legendFormat"].as_str().unwrap()],
            );
            shown.extend(used_by(expr).metrics);
        }
    }
    for variable in board["templating"]["list"].as_array().unwrap() {
        if let Some(query) = variable["definition"].as_str() {
            let inside = query
                .strip_prefix("label_values(")
                .unwrap()
                .strip_suffix(')')
                .unwrap();
            let (expr, label) = inside.rsplit_once(", ").unwrap();
            check(&exported, query, expr, &[&format!("{{{{{label}}}}}")]);
        }
    }
    assert!(shown.len() > 30, "{shown:?}");
}

#[test]
fn a_name_that_is_not_there_is_found() {
    let page =
        "# HELP gabion_a_total A\n# TYPE gabion_a_total counter\ngabion_a_total{cause=\"x\"} 1\n";
    let exported = parse(page);
    let good = "sum by (cause) (rate(gabion_a_total{cause=\"x\", instance=~\"$i\"}[5m])) > 0";
    check(
        &exported,
        "good",
        good,
        &["{{cause}} of {{ $labels.instance }}"],
    );
    for bad in [
        "rate(gabion_b_total[5m])",
        "gabion_a",
        "gabion_a_total{reason=\"x\"}",
        "gabion_a_total{cause=~\"x|y\"}",
        "sum by (rule) (gabion_a_total)",
    ] {
        let checked = std::panic::catch_unwind(|| check(&exported, "bad", bad, &[]));
        assert!(checked.is_err(), "{bad}");
    }
    let text = || check(&exported, "bad", "gabion_a_total", &["{{rule}}"]);
    assert!(std::panic::catch_unwind(text).is_err());
}
