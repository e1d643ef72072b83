//! The harness itself, with a rule that needs nothing of the examples' policies.

use gabion_envoy_e2e::doors::{Cluster, Doors, Programs};

const RULE: &str = "limits:\n- {name: per, domain: registry, rate: 3r/d, raw_body: later, \
                    descriptors: [{key: path}, {key: peer}]}\n";

/// The same, as a directive.
const BOUND: &str = "gabion_limit_rule per path:$uri peer:$remote_addr rate=3r/d domain=registry;";

/// The files of the registry's example with that rule, bound by hand.
fn plain(name: &str, text: String) -> String {
    match name {
        "rate-limit.toml" => RULE.to_owned(),
        "nginx.conf" => text
            .replace("gabion_rules_file rate-limit.toml;", BOUND)
            .replace(
                "gabion_domain registry;",
                "gabion_limit per; gabion_reject_body later;",
            ),
        "gabiond.yaml" => text.replace("rules_file: rate-limit.toml\n", RULE),
        _ => text,
    }
}

#[test]
fn doors_that_count_apart_give_the_same_answers() {
    let programs = Programs::find().unwrap();
    let doors = Doors::start(programs, "registry", Cluster::Apart, &plain).unwrap();
    for (line, status) in [
        ("GET /v2/x", 200),
        ("GET //v2/x", 200),
        ("GET /admin/../v2/x", 200),
        ("GET /%76%32/x", 429),
        ("GET /v2/y", 200),
    ] {
        assert_eq!(doors.both(line, &[]).status, status, "{line}");
    }
    assert_eq!(doors.upstream.served(), 8);
}

#[test]
fn doors_that_are_joined_share_one_count() {
    let programs = Programs::find().unwrap();
    let doors = Doors::start(programs, "registry", Cluster::Joined, &plain).unwrap();
    let statuses: Vec<u16> = (0..12)
        .map(|_| doors.either("GET /v2/x", &[]).status)
        .collect();
    let passed = statuses.iter().filter(|status| **status == 200).count();
    // Each door may admit one that the other has not heard of.
    assert!((3..=5).contains(&passed), "{statuses:?}");
    assert_eq!(statuses[10..], [429, 429], "{statuses:?}");
}
