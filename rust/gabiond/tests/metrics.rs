//! `/metrics` as Prometheus reads it, on real members.
#![allow(clippy::unwrap_used)] // a test fails by panicking

mod common;

use std::collections::BTreeMap;

use common::prometheus::{parse, Family};
use common::{introduce, until, Member};
use gabion_server::protocol::{descriptor, request, Code};

const RULES: &str = "limits:\n\
    - {name: ip, domain: edge, rate: 10r/h, descriptors: [{key: ip}]}\n\
    - {name: trial, domain: edge, rate: 2r/h, mode: dry_run, descriptors: [{key: trial}]}\n";

fn page(member: &Member) -> BTreeMap<String, Family> {
    let (status, body) = member.get("/metrics");
    assert_eq!(status, 200);
    parse(&body)
}

/// The value of one series; labels as `a=b,c=d`, sorted.
fn value(page: &BTreeMap<String, Family>, name: &str, labels: &str) -> Option<f64> {
    let labels: Vec<(String, String)> = labels
        .split(',')
        .filter(|pair| !pair.is_empty())
        .map(|pair| pair.split_once('=').unwrap())
        .map(|(label, value)| (label.to_owned(), value.to_owned()))
        .collect();
    let family = page
        .get(name)
        .unwrap_or_else(|| panic!("{name} is missing"));
    family.series.get(&(name.to_owned(), labels)).copied()
}

#[tokio::test]
async fn what_happened_is_on_the_page() {
    let member = Member::start(&format!("{RULES}observe: {{sample: 1}}\n"));
    for _ in 0..10 {
        member
            .ask(request("edge", vec![descriptor(&[("ip", "a")])]))
            .await;
    }
    for _ in 0..3 {
        let answer = member
            .ask(request("edge", vec![descriptor(&[("ip", "a")])]))
            .await;
        assert_eq!(answer.overall_code(), Code::OverLimit);
        let answer = member
            .ask(request("edge", vec![descriptor(&[("trial", "a")])]))
            .await;
        assert_eq!(answer.overall_code(), Code::Ok);
    }
    let nothing = member
        .client()
        .await
        .should_rate_limit(request("edge", vec![]))
        .await;
    assert!(nothing.is_err());
    let page = page(&member);
    let rule = |name: &str, rule: &str| value(&page, name, &format!("domain=edge,rule={rule}"));
    assert_eq!(rule("gabion_rule_allowed_total", "ip"), Some(10.0));
    assert_eq!(rule("gabion_rule_denied_total", "ip"), Some(3.0));
    // The 8th, 9th and 10th of 10.
    assert_eq!(rule("gabion_rule_near_limit_total", "ip"), Some(3.0));
    assert_eq!(rule("gabion_rule_dry_run_denied_total", "trial"), Some(1.0));
    assert_eq!(rule("gabion_rule_denied_total", "trial"), Some(0.0));
    assert_eq!(rule("gabion_rule_live_keys", "ip"), Some(1.0));
    assert_eq!(rule("gabion_rule_limit_hits", "ip"), Some(10.0));
    let of = |name: &str, labels: &str| value(&page, name, labels);
    assert_eq!(of("gabion_requests_total", "decision=allowed"), Some(13.0));
    assert_eq!(of("gabion_requests_total", "decision=denied"), Some(3.0));
    assert_eq!(of("gabion_grpc_requests_total", "code=OK"), Some(16.0));
    assert_eq!(
        of("gabion_grpc_requests_total", "code=INVALID_ARGUMENT"),
        Some(1.0)
    );
    assert_eq!(
        of("gabion_fail_open_total", "cause=no_descriptors"),
        Some(1.0)
    );
    assert_eq!(of("gabion_state", "state=ready"), Some(1.0));
    assert_eq!(of("gabion_gossip_configured", ""), Some(0.0));
    let count = page["gabion_decision_duration_seconds"].series.get(&(
        "gabion_decision_duration_seconds_count".to_owned(),
        Vec::new(),
    ));
    assert_eq!(count, Some(&16.0), "each decision was sampled");
    assert!(of("process_resident_memory_bytes", "").unwrap() > 1e6);
    assert!(of("process_open_fds", "").unwrap() > 3.0);
    let start = of("process_start_time_seconds", "").unwrap();
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    assert!((0.0..300.0).contains(&(now.as_secs_f64() - start)));
}

/// 1,000 rules with names that want to break the page: the same number of series as few rules.
#[tokio::test]
async fn many_rules_with_odd_names_stay_within_a_bound() {
    let mut rules = "limits:\n".to_owned();
    for n in 0..1_000 {
        let name = match n % 4 {
            0 => format!("\"a \\\\ quote \\\" and {n}\""),
            1 => format!("'{}{n}'", "långt namn ".repeat(40)),
            2 => format!("'{{x=\"{n}\"}}'"),
            _ => format!("plain_{n}"),
        };
        rules +=
            &format!("- {{name: {name}, domain: d, rate: 1r/h, descriptors: [{{key: k{n}}}]}}\n");
    }
    let member = Member::start(&format!("{rules}observe: {{rule_series: 100}}\n"));
    for n in [3, 999] {
        member
            .ask(request("d", vec![descriptor(&[(&format!("k{n}"), "v")])]))
            .await;
    }
    let (_, text) = member.get("/metrics");
    let page = parse(&text);
    let allowed = &page["gabion_rule_allowed_total"].series;
    assert_eq!(
        allowed.len(),
        107,
        "100 of their own, the one that others share, one for each unit of an override"
    );
    assert_eq!(
        value(&page, "gabion_rule_allowed_total", "domain=d,rule=plain_3"),
        Some(1.0)
    );
    let shared = value(
        &page,
        "gabion_rule_allowed_total",
        "domain=(others),rule=(others)",
    );
    assert_eq!(shared, Some(1.0), "rule 999");
    assert_eq!(
        value(&page, "gabion_rules_sharing_a_series", ""),
        Some(900.0)
    );
    let longest = allowed
        .keys()
        .flat_map(|(_, labels)| labels.iter().map(|l| l.1.len()));
    assert!(longest.max().unwrap() <= 64);
    let series: usize = page.values().map(|family| family.series.len()).sum();
    assert!(series < 1_400, "{series} series");
}

#[tokio::test]
async fn peers_are_on_the_page_and_open_metrics_is_spoken() {
    let members = [
        Member::start_gossiping(RULES),
        Member::start_gossiping(RULES),
    ];
    introduce(&[&members[0], &members[1]]);
    members[0]
        .ask(request("edge", vec![descriptor(&[("ip", "a")])]))
        .await;
    let peer = format!("peer={}", members[1].gossip.unwrap());
    until("a round trip was measured and rows went out", || {
        let page = page(&members[0]);
        let out = value(&page, "gabion_gossip_rows_total", "direction=out").unwrap();
        let rtt = value(&page, "gabion_peer_round_trip_seconds", &peer);
        (out > 0.0 && rtt.is_some_and(|s| s > 0.0 && s < 30.0)).then_some(())
    });
    let page = page(&members[0]);
    assert_eq!(value(&page, "gabion_gossip_up", ""), Some(1.0));
    assert_eq!(value(&page, "gabion_gossip_peers_up", ""), Some(1.0));
    assert_eq!(value(&page, "gabion_peer_up", &peer), Some(1.0));
    let bad = "cause=bad_mac";
    assert_eq!(
        value(&page, "gabion_gossip_frames_dropped_total", bad),
        Some(0.0)
    );
    let accept = "Accept: application/openmetrics-text; version=1.0.0\r\n";
    let (status, head, body) = members[0].send("GET", "/metrics", accept);
    assert_eq!(status, 200);
    assert!(
        head.contains("application/openmetrics-text; version=1.0.0"),
        "{head}"
    );
    assert!(body.ends_with("# EOF\n") && body.contains("# TYPE gabion_requests counter\n"));
    let (_, head, _) = members[0].send("GET", "/metrics", "");
    assert!(head.contains("text/plain; version=0.0.4"), "{head}");
}
