//! Rules that look at a whole request, asked over real gRPC: conditions, flags, tiers, order, and
//! charges that wait for the response.
#![allow(clippy::unwrap_used)] // a test fails by panicking

mod common;

use common::Member;
use gabion_server::protocol::{descriptor, request, Code, RateLimitResponse};
use serde_json::Value;

const OK: Code = Code::Ok;
const OVER: Code = Code::OverLimit;

const POLICY: &str = r#"
response_headers: [always, x, retry_after, name]
attributes:
  client_ip: {client_address: {peer: peer, forwarded: forwarded, trusted_proxies: [127.0.0.1]}}
  id: {capture: {from: path, pattern: "/api/v4/virtual_registries/packages/*/{}/*"}}
  group: {lookup: {from: id, values: {"42": acme, "43": acme}}}
flags:
  skip: {default: off, by: user}
limits:
- name: skip_packages
  domain: edge
  match: request
  descriptors: []
  mode: unlimited
  only_if: [{path: "/api/v4/virtual_registries/packages/*"}]
  if_flag: skip
  replaces: [general, plan_cap]
- name: general
  domain: edge
  match: request
  descriptors: [{key: user}]
  rate: 5r/h
  only_if: [{path: "/api/*"}]
  except_if:
  - {path: "/api/v4/internal/*", method: [GET, HEAD]}
  - {client_ip: {networks: [10.0.0.0/8]}}
  raw_body: '{"slow":"down"}'
  raw_body_type: application/json
  raw_headers: {X-Registry: "2.0"}
- name: plan_cap
  domain: edge
  match: request
  descriptors: [{key: user}]
  rate: 20r/h
  tiers: {by: plan, rates: {free: 2r/h, gold: 100r/h}}
  only_if: [{plan: "*"}]
- name: dedicated
  domain: edge
  match: request
  descriptors: [{key: client_ip}, {key: group, fallback: unknown}]
  rate: 8r/h
  only_if: [{path: "/api/v4/virtual_registries/packages/*"}]
- name: health
  domain: edge
  match: request
  descriptors: []
  rate: 3r/h
  only_if: [{path: /health}]
  last: true
- name: after_health
  domain: edge
  match: request
  descriptors: []
  rate: 1r/h
  only_if: [{path: [/health, /other]}]
- name: failed_logins
  domain: login
  match: request
  descriptors: [{key: client_ip}]
  rate: 2r/h
  charge: {after: response, status: ["401", "403"]}
- name: logins
  domain: login
  match: request
  descriptors: [{key: client_ip}]
  rate: 100r/h
"#;

const PACKAGE: &str = "/api/v4/virtual_registries/packages/maven/42/com/example/app-1.0.pom";

struct Asked {
    code: Code,
    answer: RateLimitResponse,
}

impl Asked {
    fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.answer.response_headers_to_add.iter();
        let found = headers.find(|h| h.key == name)?;
        std::str::from_utf8(&found.value).ok()
    }

    fn rule(&self) -> &str {
        self.header("ratelimit-name").unwrap_or_default()
    }
}

async fn ask(member: &Member, domain: &str, attributes: &[(&str, &str)]) -> Asked {
    let answer = member
        .ask(request(domain, vec![descriptor(attributes)]))
        .await;
    Asked {
        code: answer.overall_code(),
        answer,
    }
}

#[tokio::test]
async fn conditions_pick_and_exempt_and_a_denial_carries_what_its_rule_says() {
    let member = Member::start(POLICY);
    let user = |path| {
        [
            ("user", "u"),
            ("path", path),
            ("peer", "192.0.2.1"),
            ("method", "GET"),
        ]
    };
    for n in 0..5 {
        let asked = ask(&member, "edge", &user("/api/x?n=1")).await;
        assert_eq!((asked.code, asked.rule()), (OK, "general"), "{n}");
    }
    let denied = ask(&member, "edge", &user("/api/x")).await;
    assert_eq!((denied.code, denied.rule()), (OVER, "general"));
    assert_eq!(&denied.answer.raw_body[..], br#"{"slow":"down"}"#);
    assert_eq!(denied.header("content-type"), Some("application/json"));
    assert_eq!(denied.header("x-registry"), Some("2.0"));
    assert!(denied.header("retry-after").is_some());
    for path in ["/elsewhere", "/api/v4/internal/x", "/api?x=/api/y"] {
        assert_eq!(ask(&member, "edge", &user(path)).await.code, OK, "{path}");
    }
    let posts = [
        ("user", "u"),
        ("path", "/api/v4/internal/x"),
        ("method", "POST"),
    ];
    assert_eq!(
        ask(&member, "edge", &posts).await.code,
        OVER,
        "GET and HEAD only"
    );
    let inside = [("user", "u"), ("path", "/api/x"), ("peer", "10.1.2.3")];
    assert_eq!(
        ask(&member, "edge", &inside).await.code,
        OK,
        "an exempt network"
    );
    let forged = [
        ("user", "u"),
        ("path", "/api/x"),
        ("peer", "192.0.2.1"),
        ("forwarded", "10.1.2.3"),
    ];
    assert_eq!(
        ask(&member, "edge", &forged).await.code,
        OVER,
        "a forged header"
    );
    let nobody = [("user", ""), ("path", "/api/x")];
    assert_eq!(
        ask(&member, "edge", &nobody).await.code,
        OK,
        "an empty value is absent"
    );
    let left_out = &member.snapshot()["rules"];
    let general = left_out
        .as_array()
        .unwrap()
        .iter()
        .find(|r| r["name"] == "general");
    let ways = &general.unwrap()["counts"]["left_out"];
    assert_eq!(
        (ways["only_if"].as_u64(), ways["except_if"].as_u64()),
        (Some(2), Some(2)),
        "{ways}"
    );
    assert_eq!(ways["absent"].as_u64(), Some(1), "{ways}");
}

#[tokio::test]
async fn all_effects_of_a_flag_change_together_and_for_a_share_of_users() {
    let member = Member::start(POLICY);
    let package = |user: &str| {
        let user = user.to_owned();
        [
            ("user", user),
            ("path", PACKAGE.to_owned()),
            ("plan", "free".to_owned()),
            ("peer", "192.0.2.1".to_owned()),
        ]
    };
    let rules = |member: &Member, user: &str| -> Vec<String> {
        let package = package(user);
        let text: Vec<String> = package.iter().map(|(k, v)| format!("{k}={v}")).collect();
        let path = format!(
            "/explain?domain=edge&descriptor={}",
            text.join(",").replace('/', "%2F")
        );
        let (code, body) = member.get(&path);
        assert_eq!(code, 200, "{body}");
        let found: Value = serde_json::from_str(&body).unwrap();
        let all = found["descriptors"][0]["rules"].as_array().unwrap().clone();
        let applies = all.into_iter().filter(|rule| rule["applies"] == true);
        applies
            .map(|rule| rule["rule"].as_str().unwrap().to_owned())
            .collect()
    };
    let off = ["general", "plan_cap", "dedicated"];
    let on = ["skip_packages", "dedicated"];
    assert_eq!(rules(&member, "u1"), off);
    let set = |value: &str| {
        let path = format!("/flags/skip?value={value}");
        let (code, _, body) = member.send("POST", &path, "");
        assert_eq!(code, 200, "{body}");
    };
    set("on");
    assert_eq!(rules(&member, "u1"), on);
    set("40%25");
    let seen: Vec<bool> = (0..200)
        .map(|n| {
            let found = rules(&member, &format!("u{n}"));
            assert!(found == on || found == off, "half a change: {found:?}");
            found == on
        })
        .collect();
    let share = seen.iter().filter(|on| **on).count();
    assert!((40..120).contains(&share), "{share} of 200");
    set("60%25");
    let kept = seen.iter().zip(0..).filter(|(on, _)| **on);
    for (_, n) in kept {
        assert_eq!(
            rules(&member, &format!("u{n}")),
            on,
            "a larger share keeps whoever was in"
        );
    }
    set("default");
    assert_eq!(rules(&member, "u1"), off);
}

#[tokio::test]
async fn tiers_hold_one_counter_to_other_limits() {
    let member = Member::start(POLICY);
    let plan = |plan| [("user", "u"), ("plan", plan)];
    for left in ["1", "0"] {
        let asked = ask(&member, "edge", &plan("free")).await;
        assert_eq!((asked.code, asked.rule()), (OK, "plan_cap"));
        assert_eq!(asked.header("x-ratelimit-limit"), Some("2"));
        assert_eq!(asked.header("x-ratelimit-remaining"), Some(left));
        let limit = asked.answer.statuses[0].current_limit.clone().unwrap();
        assert_eq!(limit.requests_per_unit, 2);
    }
    assert_eq!(ask(&member, "edge", &plan("free")).await.code, OVER);
    let gold = ask(&member, "edge", &plan("gold")).await;
    assert_eq!(
        gold.header("x-ratelimit-remaining"),
        Some("97"),
        "what was used stays used"
    );
    let other = ask(&member, "edge", &plan("unheard")).await;
    assert_eq!(other.header("x-ratelimit-limit"), Some("20"));
    assert_eq!(other.header("x-ratelimit-remaining"), Some("16"));
    assert_eq!(
        ask(&member, "edge", &plan("free")).await.code,
        OVER,
        "back to the small one"
    );
}

#[tokio::test]
async fn unknown_groups_share_a_counter_and_a_last_rule_ends_the_list() {
    let member = Member::start(POLICY);
    let path = |id: usize| format!("/api/v4/virtual_registries/packages/npm/{id}/x");
    let from = |path: &str, peer: &str| {
        [("path", path.to_owned()), ("peer", peer.to_owned())].map(|(k, v)| (k, v))
    };
    let mut codes = Vec::new();
    for id in 100..110 {
        let asked = from(&path(id), "192.0.2.1");
        let asked: Vec<(&str, &str)> = asked.iter().map(|(k, v)| (*k, v.as_str())).collect();
        codes.push(ask(&member, "edge", &asked).await.code);
    }
    assert_eq!(
        codes,
        [[OK; 8].as_slice(), &[OVER; 2]].concat(),
        "spraying ids opens no bucket"
    );
    let known = path(43);
    assert_eq!(
        ask(&member, "edge", &[("path", &known), ("peer", "192.0.2.1")])
            .await
            .code,
        OK
    );
    for left in ["2", "1", "0"] {
        let asked = ask(&member, "edge", &[("path", "/health")]).await;
        assert_eq!((asked.code, asked.rule()), (OK, "health"));
        assert_eq!(asked.header("x-ratelimit-remaining"), Some(left));
    }
    assert_eq!(
        ask(&member, "edge", &[("path", "/health")]).await.rule(),
        "health"
    );
    let after = ask(&member, "edge", &[("path", "/other")]).await;
    assert_eq!(
        (after.code, after.rule()),
        (OK, "after_health"),
        "it was never charged before"
    );
}

#[tokio::test]
async fn a_charge_that_waits_denies_before_and_counts_after() {
    let member = Member::start(POLICY);
    let before = [("peer", "192.0.2.9")];
    let after = |status| [("peer", "192.0.2.9"), ("status", status)];
    for _ in 0..3 {
        assert_eq!(ask(&member, "login", &before).await.code, OK);
        assert_eq!(ask(&member, "login", &after("200")).await.code, OK);
    }
    for _ in 0..2 {
        assert_eq!(ask(&member, "login", &before).await.code, OK);
        assert_eq!(ask(&member, "login", &after("401")).await.code, OK);
    }
    let denied = ask(&member, "login", &before).await;
    assert_eq!((denied.code, denied.rule()), (OVER, "failed_logins"));
    assert_eq!(
        ask(&member, "login", &after("403")).await.code,
        OK,
        "never denied afterwards"
    );
    let all = member.snapshot();
    let of = |name: &str| {
        let rules = all["rules"].as_array().unwrap();
        rules
            .iter()
            .find(|rule| rule["name"] == name)
            .unwrap()
            .clone()
    };
    assert_eq!(of("failed_logins")["counts"]["hits"], 3);
    assert_eq!(of("failed_logins")["counts"]["denied"], 1);
    assert_eq!(
        of("logins")["counts"]["hits"],
        5,
        "charged once each, and not for the denied one"
    );
}

#[tokio::test]
async fn a_request_is_explained_rule_by_rule() {
    let member = Member::start(POLICY);
    let why = |asked: &str| -> Vec<(String, String)> {
        let asked = asked.replace('/', "%2F").replace('?', "%3F");
        let (_, body) = member.get(&format!("/explain?domain=edge&descriptor={asked}"));
        let found: Value = serde_json::from_str(&body).unwrap();
        let rules = found["descriptors"][0]["rules"].as_array().unwrap().clone();
        let text = |value: &Value| value.as_str().unwrap_or("applies").to_owned();
        rules
            .iter()
            .map(|rule| (text(&rule["rule"]), text(&rule["why"])))
            .collect()
    };
    let of = |found: &[(String, String)], name: &str| {
        found
            .iter()
            .find(|(rule, _)| rule == name)
            .unwrap()
            .1
            .clone()
    };
    let found = why("user=u,path=/health");
    assert_eq!(
        of(&found, "skip_packages"),
        "if_flag: the flag skip is off for this request"
    );
    assert_eq!(
        of(&found, "general"),
        "only_if does not hold: path=/api/* (path is \"/health\")"
    );
    assert_eq!(
        of(&found, "plan_cap"),
        "only_if does not hold: plan=* (plan is absent)"
    );
    assert_eq!(
        of(&found, "after_health"),
        "health is the last rule (last: true)"
    );
    let found = why("path=/api/x?y,peer=10.1.1.1,plan=gold");
    assert_eq!(
        of(&found, "general"),
        "except_if holds: client_ip in 10.0.0.0/8"
    );
    assert_eq!(of(&found, "plan_cap"), "the request has no user");
    let found = why("user=u,path=/api/x?y,peer=192.0.2.1");
    assert_eq!(of(&found, "general"), "applies");
    assert_eq!(
        member.snapshot()["decisions"]["descriptors"],
        0,
        "explaining counts nothing"
    );
}
