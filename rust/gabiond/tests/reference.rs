//! What a switch from the Envoy project's reference service relies on, asked over real gRPC.
#![allow(clippy::unwrap_used)] // a test fails by panicking

mod common;

use common::{codes, Member};
use gabion_server::protocol::{descriptor, request, Code, RateLimitResponse};

const OK: Code = Code::Ok;
const OVER: Code = Code::OverLimit;

const NATIVE: &str = r#"
limits:
- {name: user, domain: d, rate: 2r/d, descriptors: [{key: user}]}
- {name: staff, domain: d, mode: unlimited, descriptors: [{key: user, value: "staff-*"}]}
- {name: robot, domain: d, rate: 1r/d, descriptors: [{key: user, value: staff-robot}]}
- {name: path, domain: d, rate: 1r/d, descriptors: [{key: path}]}
- {name: raised, domain: d, rate: 3r/d, replaces: [path], descriptors: [{key: plan, value: pro}]}
- {name: files, domain: d, rate: 3r/d, descriptors: [{key: f, value: "f/*", shared: true}]}
- {name: watched, domain: d, rate: 1r/d, mode: dry_run, descriptors: [{key: both}]}
- {name: held, domain: d, rate: 3r/d, limiter: held, descriptors: [{key: both}]}
"#;

async fn ask(member: &Member, descriptors: &[&[(&str, &str)]]) -> RateLimitResponse {
    let descriptors = descriptors.iter().map(|d| descriptor(d)).collect();
    member.ask(request("d", descriptors)).await
}

fn left(answer: &RateLimitResponse) -> Vec<u32> {
    let statuses = answer.statuses.iter();
    statuses.map(|status| status.limit_remaining).collect()
}

#[tokio::test]
async fn case_17_unlimited_allows_shields_and_names_no_limit() {
    let member = Member::start(&format!("response_headers: always{NATIVE}"));
    for _ in 0..5 {
        let answer = ask(&member, &[&[("user", "staff-1")]]).await;
        assert_eq!((answer.overall_code(), left(&answer)), (OK, vec![u32::MAX]));
        assert!(answer.statuses[0].current_limit.is_none());
        assert!(answer.response_headers_to_add.is_empty());
    }
    let codes_of = |n: usize, user: &'static str| {
        let member = &member;
        async move {
            let mut all = Vec::new();
            for _ in 0..n {
                all.extend(codes(&ask(member, &[&[("user", user)]]).await));
            }
            all
        }
    };
    assert_eq!(codes_of(3, "guest").await, [OK, OK, OVER]);
    assert_eq!(
        codes_of(2, "staff-robot").await,
        [OK, OVER],
        "a narrower rule"
    );
}

#[tokio::test]
async fn a_rule_that_replaces_others_spares_the_whole_request_and_charges_them_nothing() {
    let member = Member::start(NATIVE);
    let (path, plan): (&[_], &[_]) = (&[("path", "/x")], &[("plan", "pro")]);
    for expected in [2, 1, 0] {
        let answer = ask(&member, &[path, plan]).await;
        assert_eq!(
            (answer.overall_code(), left(&answer)),
            (OK, vec![0, expected])
        );
        assert!(answer.statuses[0].current_limit.is_none());
    }
    let answer = ask(&member, &[path, plan]).await;
    assert_eq!(codes(&answer), [OK, OVER]);
    assert_eq!(codes(&ask(&member, &[path]).await), [OK], "was not charged");
    assert_eq!(codes(&ask(&member, &[path]).await), [OVER]);
}

#[tokio::test]
async fn shared_values_are_counted_together() {
    let member = Member::start(NATIVE);
    let mut all = Vec::new();
    for value in ["f/a", "f/b", "f/c", "f/d"] {
        all.extend(codes(&ask(&member, &[&[("f", value)]]).await));
    }
    assert_eq!(all, [OK, OK, OK, OVER]);
}

#[tokio::test]
async fn case_16_an_exhausted_dry_run_is_seen_and_later_rules_still_hold() {
    let member = Member::start(NATIVE);
    let mut all = Vec::new();
    for _ in 0..4 {
        all.extend(codes(&ask(&member, &[&[("both", "x")]]).await));
    }
    assert_eq!(all, [OK, OK, OK, OVER]);
    let snapshot = member.snapshot();
    let mut rules = snapshot["rules"].as_array().unwrap().iter();
    let watched = rules.find(|rule| rule["name"] == "watched").unwrap();
    assert_eq!(watched["counts"]["would_deny"], 3, "{watched}");
}
