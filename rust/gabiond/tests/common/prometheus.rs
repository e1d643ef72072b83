//! A strict reader of Prometheus' text form 0.0.4.

use std::collections::{BTreeMap, BTreeSet};

/// One family: what it is, what it says, and its series.
#[derive(Debug, Default)]
pub struct Family {
    pub kind: String,
    pub help: String,
    /// (name with suffix, labels) to value.
    pub series: BTreeMap<(String, Vec<(String, String)>), f64>,
}

/// Reads a page; panics at anything that Prometheus or `promtool check metrics` would refuse.
pub fn parse(page: &str) -> BTreeMap<String, Family> {
    assert!(page.ends_with('\n'), "a page ends with a line end");
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut current = String::new();
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap_or_else(|| panic!("{line}"));
            assert!(!families.contains_key(name), "twice: {line}");
            assert!(!help.is_empty() && !help.contains('\\'), "{line}");
            current = name.to_owned();
            families.entry(current.clone()).or_default().help = help.to_owned();
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap_or_else(|| panic!("{line}"));
            assert_eq!(name, current, "TYPE follows HELP: {line}");
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            families.get_mut(name).unwrap().kind = kind.to_owned();
        } else {
            assert!(!line.starts_with('#'), "{line}");
            let (name, labels, value) = sample(line);
            let family = families
                .get_mut(&current)
                .unwrap_or_else(|| panic!("{line}"));
            let suffix = name
                .strip_prefix(current.as_str())
                .unwrap_or_else(|| panic!("not in its family: {line}"));
            let allowed: &[&str] = match family.kind.as_str() {
                "histogram" => &["_bucket", "_sum", "_count"],
                _ => &[""],
            };
            assert!(allowed.contains(&suffix), "{line}");
            let twice = family.series.insert((name, labels), value);
            assert!(twice.is_none(), "twice: {line}");
        }
    }
    for (name, family) in &families {
        check_name(name);
        assert!(!family.kind.is_empty() && !family.help.is_empty(), "{name}");
        if family.kind == "histogram" {
            check_histogram(name, family);
        }
        let labels = |labels: &[(String, String)]| -> BTreeSet<String> {
            let names = labels.iter().map(|(label, _)| label.clone());
            names.filter(|label| label != "le").collect()
        };
        let sets: BTreeSet<_> = family.series.keys().map(|(_, l)| labels(l)).collect();
        assert!(
            sets.len() <= 1,
            "{name}: all series have the same labels: {sets:?}"
        );
    }
    families
}

fn check_name(name: &str) {
    let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    assert!(name.chars().all(good) && !name.contains("__"), "{name}");
    assert!(
        name.starts_with("gabion_") || name.starts_with("process_"),
        "{name}"
    );
}

fn check_histogram(name: &str, family: &Family) {
    let value = |suffix: &str| family.series[&(format!("{name}{suffix}"), Vec::new())];
    let mut buckets: Vec<(f64, f64)> = family
        .series
        .iter()
        .filter(|((series, _), _)| series.ends_with("_bucket"))
        .map(|((_, labels), count)| {
            assert_eq!(labels.len(), 1);
            let le = labels[0].1.replace("+Inf", "inf");
            (le.parse().unwrap(), *count)
        })
        .collect();
    buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
    assert!(buckets
        .windows(2)
        .all(|w| w[0].0 < w[1].0 && w[0].1 <= w[1].1));
    let last = buckets.last().unwrap();
    assert_eq!((last.0, last.1), (f64::INFINITY, value("_count")));
    assert!(value("_sum") >= 0.0);
}

fn sample(line: &str) -> (String, Vec<(String, String)>, f64) {
    let end = line.find(['{', ' ']).unwrap_or_else(|| panic!("{line}"));
    let (name, mut rest) = line.split_at(end);
    let mut labels = Vec::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        loop {
            let (label, after) = rest.split_once("=\"").unwrap_or_else(|| panic!("{line}"));
            let good = |c: char| c.is_ascii_lowercase() || c == '_';
            assert!(!label.is_empty() && label.chars().all(good), "{line}");
            let (value, after) = quoted(after, line);
            labels.push((label.to_owned(), value));
            if let Some(end) = after.strip_prefix('}') {
                rest = end;
                break;
            }
            rest = after.strip_prefix(',').unwrap_or_else(|| panic!("{line}"));
        }
    }
    let value = rest.strip_prefix(' ').unwrap_or_else(|| panic!("{line}"));
    labels.sort();
    (
        name.to_owned(),
        labels,
        value.parse().unwrap_or_else(|_| panic!("{line}")),
    )
}

fn quoted<'l>(text: &'l str, line: &str) -> (String, &'l str) {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (value, &text[at + 1..]),
            '\\' => match chars.next() {
                Some((_, 'n')) => value.push('\n'),
                Some((_, c @ ('\\' | '"'))) => value.push(c),
                other => panic!("{other:?} in {line}"),
            },
            c => value.push(c),
        }
    }
    panic!("no end of a value: {line}")
}
