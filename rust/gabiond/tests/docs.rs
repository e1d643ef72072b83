//! The operator's manual names everything that a member can show.
#![allow(clippy::unwrap_used)] // a test fails by panicking

mod common;

use common::{introduce, Member};
use serde_json::Value;

const RULES: &str = "limits:\n- {name: ip, domain: edge, rate: 3r/h, descriptors: [{key: ip}]}\n";

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
