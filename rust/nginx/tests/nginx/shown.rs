//! What `gabion_status` shows of gossip: every zone shared, peers, counters, differences.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::peer::Gabiond;
use crate::server::{udp_port, wait_for, Nginx};

/// An instance with two zones, a rule in each.
fn two_zones(own: u16, peer: u16) -> String {
    format!(
        "gabion_limit_zone zone=one:1m; gabion_limit_zone zone=two:1m;
         gabion_limit_rule a k:$arg_k rate=100r/w domain=edge zone=one;
         gabion_limit_rule b k:$arg_k rate=50r/w domain=edge zone=two;
         gabion_gossip_bind 127.0.0.1:{own}; gabion_gossip_cluster test;
         gabion_peers 127.0.0.1:{peer};
         server {{ listen 127.0.0.1:PORT; root DIR/html;
             location = /state {{ gabion off; gabion_status; }}
             location = /metrics {{ gabion off; gabion_status prometheus; }}
             location /a {{ gabion_limit a; try_files /x.txt =404; }}
             location /b {{ gabion_limit b; try_files /x.txt =404; }}
             location /both {{ gabion_limit a b; try_files /x.txt =404; }} }}"
    )
}

fn is_up(state: &Value) -> bool {
    state["gossip"]["peers"][0]["up"] == true
}

fn left(nginx: &Nginx, path: &str) -> u64 {
    nginx.get(path).number("X-RateLimit-Remaining")
}

#[test]
fn the_rules_of_every_zone_are_shared() {
    let (a, b) = (udp_port(), udp_port());
    let (one, two) = (
        Nginx::start("2", &two_zones(a, b)),
        Nginx::start("2", &two_zones(b, a)),
    );
    wait_for("both to hear each other", || {
        is_up(&one.state()) && is_up(&two.state())
    });
    assert_eq!(one.statuses("/a?k=x", 40), [200; 40]);
    assert_eq!(one.statuses("/b?k=x", 30), [200; 30]);
    wait_for("the first zone's counts", || left(&two, "/a?k=x") <= 59);
    wait_for("the second zone's counts", || left(&two, "/b?k=x") <= 19);
    // One member for all its zones.
    let state = one.state();
    let zones = state["zones"].as_array().unwrap();
    assert_eq!(zones[0]["incarnation"], zones[1]["incarnation"]);
    assert_eq!(zones[0]["node"], state["gossip"]["node"]);
    assert_eq!(state["gossip"]["peers"].as_array().unwrap().len(), 1);
    // A rule that moves to the other zone takes its counts along, and the first zone changes.
    assert_eq!(one.statuses("/both?k=own", 7), [200; 7]);
    one.reload(&two_zones(a, b).replace("edge zone=one", "edge zone=two"));
    assert_eq!(left(&one, "/a?k=own"), 92);
    assert_eq!(left(&one, "/b?k=own"), 42);
    wait_for("gossip after the reload", || is_up(&one.state()));
    assert_eq!(
        one.state()["gossip"]["incarnation"],
        zones[0]["incarnation"]
    );
    assert_eq!(one.statuses("/a?k=z", 20), [200; 20]);
    wait_for("counts after the reload", || left(&two, "/a?k=z") <= 79);
}

/// With every rule of every zone, once the peer is caught up with.
fn bounds_are_shown(nginx: &Nginx) {
    wait_for("the peer to be caught up with", || {
        nginx.state()["gossip"]["unreachable_peers"] == 0
    });
    let zones = nginx.state()["zones"].clone();
    for zone in zones.as_array().unwrap() {
        let over = &zone["rules"][0]["over_admission"];
        // One other member: its one hit, and what of the ten may be under way as fast again.
        let bound = over["bound_hits"].as_u64().unwrap();
        assert!((1..=50).contains(&bound), "{over}");
        assert!(over["staleness_ns"].as_u64().unwrap() > 0, "{over}");
    }
}

#[test]
fn every_worker_shows_the_state_of_gossip() {
    let (a, b) = (udp_port(), udp_port());
    let limits = "- {name: a, domain: edge, rate: 100r/w, descriptors: [{key: k}]}\n\
                  - {name: b, domain: edge, rate: 50r/w, descriptors: [{key: k}]}\n";
    let gabiond = Gabiond::start(limits, b, a);
    let nginx = Nginx::start("4", &two_zones(a, b));
    wait_for("the peer", || is_up(&nginx.state()));
    assert_eq!(nginx.statuses("/both?k=x", 10), [200; 10]);
    let mut asked = BTreeSet::new();
    wait_for("answers of two workers", || {
        let state = nginx.state();
        assert!(is_up(&state), "{state}");
        asked.insert(state["pid"].as_u64().unwrap());
        asked.len() > 1
    });
    let shows = |state: &Value, name: &str, least: u64| {
        let counters = ["node_counters", "pump_counters", "driver_counters"];
        let of = counters.map(|part| state["gossip"][part][name].as_u64());
        of.iter().flatten().any(|count| *count >= least)
    };
    wait_for("counters", || {
        let state = nginx.state();
        let gossip = &state["gossip"];
        gossip["peers"][0]["rtt_ns"].as_u64().unwrap() > 0
            && ["rows_out", "rows_adopted", "received"]
                .iter()
                .all(|name| shows(&state, name, 1))
    });
    bounds_are_shown(&nginx);
    // The same names as gabiond's, and a few of its own.
    let (state, snapshot) = (nginx.state(), gabiond.snapshot());
    let (ours, theirs) = (&state["gossip"], &snapshot["gossip"]);
    for (name, value) in theirs.as_object().unwrap() {
        assert!(ours.get(name).is_some(), "{name}: {value}");
    }
    assert!(ours["age_ms"].as_u64().unwrap() < 5_000, "{ours}");
    assert_eq!(ours["peers"][0]["node"], theirs["node"]);
    assert_eq!(ours["differences"], serde_json::json!([]));
    let text = nginx.get("/metrics").body;
    let lines: Vec<&str> = text.lines().collect();
    for start in [
        "gabion_rule_requests_total{domain=\"edge\",rule=\"a\",result=\"passed\"} 10",
        "gabion_rule_requests_total{domain=\"edge\",rule=\"b\",result=\"passed\"} 10",
        "gabion_table_live_rows{zone=\"one\"} ",
        "gabion_table_live_rows{zone=\"two\"} ",
        "gabion_gossip_up 1",
        "gabion_gossip_peers_up 1",
        "gabion_gossip_staleness_seconds ",
        "gabion_gossip_peers_unreachable 0",
        "gabion_rule_over_admission_bound_hits{domain=\"edge\",rule=\"b\"} ",
        "gabion_rule_staleness_seconds{domain=\"edge\",rule=\"a\"} 0.0",
        "gabion_peer_round_trip_seconds{peer=\"127.0.0.1:",
        "gabion_gossip_events_total{event=\"rows_adopted\",part=\"pump\"} ",
    ] {
        assert!(
            lines.iter().any(|l| l.starts_with(start)),
            "{start}: {text}"
        );
    }
    let mut types: Vec<&&str> = lines.iter().filter(|l| l.starts_with("# TYPE")).collect();
    let all = types.len();
    types.sort_unstable();
    types.dedup();
    assert_eq!(types.len(), all, "a family is declared once");
}

#[test]
fn other_numbers_for_one_rule_are_shown_on_both_sides() {
    let (a, b) = (udp_port(), udp_port());
    let limits = "- {name: a, domain: edge, rate: 100r/w, descriptors: [{key: k}]}\n\
                  - {name: b, domain: edge, rate: 70r/w, descriptors: [{key: k}]}\n\
                  - {name: only, domain: edge, rate: 1r/s, descriptors: [{key: only}]}\n";
    let gabiond = Gabiond::start(limits, b, a);
    let nginx = Nginx::start("2", &two_zones(a, b));
    let one = |state: &Value| {
        let list = state["gossip"]["differences"].as_array();
        list.filter(|list| list.len() == 1)
            .map(|list| list[0].clone())
    };
    wait_for("the difference at nginx", || one(&nginx.state()).is_some());
    wait_for("the difference at gabiond", || {
        one(&gabiond.snapshot()).is_some()
    });
    let (state, snapshot) = (nginx.state(), gabiond.snapshot());
    let (here, there) = (one(&state).unwrap(), one(&snapshot).unwrap());
    assert!(
        here["rule"].as_str().unwrap().contains("rate=50r/w"),
        "{here}"
    );
    assert!(
        there["rule"].as_str().unwrap().contains("rate=70r/w"),
        "{there}"
    );
    assert_eq!(here["digest"], there["peer_digest"]);
    assert_eq!(there["digest"], here["peer_digest"]);
    assert_eq!(here["peer"], format!("127.0.0.1:{b}"));
    let rules = snapshot["rules"].as_array().unwrap();
    let only = rules.iter().find(|rule| rule["name"] == "only").unwrap();
    wait_for("the rule that only gabiond has", || {
        let not_here = &nginx.state()["gossip"]["peers"][0]["rules_not_here"];
        let mut list = not_here.as_array().into_iter().flatten();
        list.any(|rule| rule["short"] == only["short"])
    });
    let said = "enforces other numbers";
    wait_for("both logs", || {
        nginx.log().contains(said) && gabiond.log().contains(said)
    });
    // Once the numbers are the same, nothing is shown any more.
    nginx.reload(&two_zones(a, b).replace("50r/w", "70r/w"));
    wait_for("no difference at nginx", || {
        let state = nginx.state();
        is_up(&state) && state["gossip"]["differences"] == serde_json::json!([])
    });
    wait_for("no difference at gabiond", || {
        gabiond.snapshot()["gossip"]["differences"] == serde_json::json!([])
    });
}
