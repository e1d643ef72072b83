//! The operator's manual names everything that a member can show.
#![allow(clippy::unwrap_used)] // a test fails by panicking

mod common;

use common::{introduce, until, Member};
use serde_json::Value;

use common::prometheus::parse;

const RULES: &str = "flags: {on: }\nlimits:\n- {name: ip, domain: edge, rate: 3r/h, if_flag: on, \
    descriptors: [{key: ip}], \
                     metric_values: [ip]}\n";

fn manual() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operating.md");
    std::fs::read_to_string(path).unwrap()
}

/// All keys of a value, but those of maps whose keys are data.
fn keys(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| {
            found.push(key.clone());
            keys(value, found);
        }),
        Value::Array(items) => items.iter().for_each(|item| keys(item, found)),
        _ => {}
    }
}

#[test]
fn every_name_of_the_snapshot_is_in_the_manual() {
    let members = [
        Member::start_gossiping(RULES),
        Member::start_gossiping(RULES),
    ];
    introduce(&[&members[0], &members[1]]);
    let snapshot = members[0].snapshot();
    let manual = manual();
    for part in ["fail_open", "table", "decisions"] {
        let mut names = Vec::new();
        keys(&snapshot[part], &mut names);
        assert!(!names.is_empty(), "{part}");
        for name in names {
            assert!(manual.contains(&format!("`{name}`")), "{part}.{name}");
        }
    }
    let mut names = Vec::new();
    keys(&snapshot["gossip"], &mut names);
    assert!(names.len() > 80, "{names:?}");
    let known = [
        "running",
        "session",
        "receive_buffer_bytes",
        "send_buffer_bytes",
        "peers",
    ];
    for name in names.iter().filter(|name| !known.contains(&name.as_str())) {
        let written = manual.contains(&format!("`{name}`"))
            || manual.contains(&format!("gossip.{name}"))
            || manual.contains(&format!(".{name}`"));
        assert!(written, "gossip: {name}");
    }
}

/// The rows of the manual's table of metrics: name and labels.
fn documented_metrics() -> Vec<(String, Vec<String>)> {
    let manual = manual();
    let rows = manual.lines().filter(|line| {
        ["| `gabion_", "| `process_"]
            .iter()
            .any(|start| line.starts_with(start))
    });
    rows.map(|row| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let labels = cells[2].split(", ").filter(|label| !label.is_empty());
        let bare = |text: &str| text.trim_matches('`').to_owned();
        (bare(cells[1]), labels.map(bare).collect())
    })
    .collect()
}

#[test]
fn the_manual_lists_the_metrics_that_there_are_and_no_others() {
    let members = [
        Member::start_gossiping(RULES),
        Member::start_gossiping(RULES),
    ];
    introduce(&[&members[0], &members[1]]);
    let documented = documented_metrics();
    // What takes a frame of the peer, or an answer of discovery, which may come later than that.
    let late = [
        "gabion_discovery_age_seconds",
        "gabion_peer_clock_offset_seconds",
        "gabion_peer_round_trip_seconds",
    ];
    let exported = until("all was measured", || {
        let page = parse(&members[0].get("/metrics").1);
        let all = late.iter().all(|name| !page[*name].series.is_empty());
        all.then_some(page)
    });
    for (name, family) in &exported {
        let row = documented.iter().find(|(documented, _)| documented == name);
        let (_, labels) = row.unwrap_or_else(|| panic!("{name} is not in the manual"));
        let Some((_, used)) = family.series.keys().next() else {
            assert!(name.starts_with("gabion_tls_"), "{name} has no series");
            continue; // of members with certificates only
        };
        let used: Vec<&String> = used.iter().map(|(l, _)| l).filter(|l| *l != "le").collect();
        assert_eq!(used, labels.iter().collect::<Vec<_>>(), "{name}");
    }
    for (name, _) in &documented {
        assert!(exported.contains_key(name), "{name} is not exported");
    }
    assert_eq!(documented.len(), exported.len(), "each once");
}
