//! The rest of the protocol: limits that requests bring, headers, metadata, refunds.
#![allow(clippy::unwrap_used)] // a test fails by panicking

mod common;

use std::collections::BTreeMap;

use common::{codes, Member};
use gabion_server::protocol::{
    descriptor, request, Code, RateLimitDescriptor, RateLimitOverride, RateLimitRequest,
    RateLimitResponse, RateLimitUnit, Unit,
};
use prost_types::value::Kind;

const RULES: &str = "
limits:
- {name: ip, domain: edge, rate: 3r/d, descriptors: [{key: ip}]}
- {name: path, domain: edge, rate: 100r/d, descriptors: [{key: path}]}
- {name: watched, domain: dry, rate: 1r/d, mode: dry_run, descriptors: [{key: k}]}
- {name: tokens, domain: tokens, rate: 2000r/s, burst: 5000, descriptors: [{key: k}]}
- {name: odd, domain: odd, rate: 10r/s, window: 90s, descriptors: [{key: k}]}
";
const OK: Code = Code::Ok;
const OVER: Code = Code::OverLimit;

fn brings(hits: u32, unit: RateLimitUnit, entries: &[(&str, &str)]) -> RateLimitDescriptor {
    let limit = RateLimitOverride {
        requests_per_unit: hits,
        unit: unit.into(),
    };
    RateLimitDescriptor {
        limit: Some(limit),
        ..descriptor(entries)
    }
}

fn one(domain: &str, key: &str, value: &str) -> RateLimitRequest {
    request(domain, vec![descriptor(&[(key, value)])])
}

async fn left(member: &Member, domain: &str, descriptor: RateLimitDescriptor) -> (Code, u32) {
    let answer = member.ask(request(domain, vec![descriptor])).await;
    (answer.overall_code(), answer.statuses[0].limit_remaining)
}

fn headers(answer: &RateLimitResponse) -> BTreeMap<String, String> {
    let all = answer.response_headers_to_add.iter();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let map: BTreeMap<_, _> = all.map(|h| (text(&h.key), text(&h.value))).collect();
    assert_eq!(map.len(), answer.response_headers_to_add.len(), "each once");
    map
}

/// The metadata of an answer, as text.
fn metadata(answer: &RateLimitResponse) -> BTreeMap<String, String> {
    let fields = answer.dynamic_metadata.iter().flat_map(|s| &s.fields);
    fields
        .map(|(name, value)| {
            let value = match value.kind.as_ref().unwrap() {
                Kind::StringValue(text) => text.clone(),
                Kind::NumberValue(number) => number.to_string(),
                other => panic!("{name}: {other:?}"),
            };
            (name.clone(), value)
        })
        .collect()
}

#[tokio::test]
async fn a_limit_that_is_brought_replaces_the_rule_and_has_its_own_counter() {
    let member = Member::start(RULES);
    let own = |hits| brings(hits, RateLimitUnit::Day, &[("ip", "a")]);
    for n in (0..5).rev() {
        assert_eq!(left(&member, "edge", own(5)).await, (OK, n));
    }
    assert_eq!(left(&member, "edge", own(5)).await, (OVER, 0));
    // Another number, another counter; and the rule's own was never touched.
    assert_eq!(left(&member, "edge", own(6)).await, (OK, 5));
    let plain = descriptor(&[("ip", "a")]);
    assert_eq!(left(&member, "edge", plain).await, (OK, 2));
    let causes = member.snapshot()["fail_open"].clone();
    assert_eq!(causes["override_ignored"], 0);
}

#[tokio::test]
async fn limits_that_are_brought_are_seen_kept_over_a_reload_and_reset_one_by_one() {
    let sampled = format!("{RULES}observe: {{sample: 1}}\n");
    let member = Member::start(&sampled);
    let brought = |user| brings(3, RateLimitUnit::Day, &[("user", user), ("route", "r")]);
    for expected in [(OK, 2), (Code::Ok, 1)] {
        assert_eq!(left(&member, "edge", brought("ann")).await, expected);
    }
    let keys = |member: &Member| {
        let (status, body) = member.get("/keys?rule=override:day");
        assert_eq!(status, 200, "{body}");
        let keys: serde_json::Value = serde_json::from_str(&body).unwrap();
        keys["rules"][0].clone()
    };
    let day = keys(&member);
    assert_eq!(day["domain"], "(overrides)");
    let ann = &day["keys"][0];
    assert_eq!(ann["key"], "user=ann,route=r");
    assert_eq!((&ann["used"], &ann["limit"]), (&2.into(), &3.into()));
    let reload = |config: &str, done: u64| {
        member
            .scratch
            .file("gabiond.yaml", &format!("{}{config}", common::PORTS));
        common::until("the reload", || {
            let reloads = &member.snapshot()["config"]["reloads"]["done"];
            (reloads.as_u64() == Some(done)).then_some(())
        });
    };
    let more = "limits:\n- {name: more, domain: x, rate: 5r/h, descriptors: [{key: k}]}\n";
    reload(&sampled.replacen("limits:\n", more, 1), 1); // a new table
    assert_eq!(keys(&member)["keys"][0]["used"], 2, "carried");
    assert_eq!(left(&member, "edge", brought("ann")).await, (OK, 0));
    let post = |query: &str| {
        let (status, _, body) = member.send("POST", &format!("/reset?{query}"), "");
        (status, body)
    };
    let (status, refused) = post("limiter=override:day");
    assert!(status == 400 && refused.contains("one by one"), "{refused}");
    let one = "limiter=override:day&requests=3&domain=edge&entry=route=r&entry=user=";
    assert!(post(&format!("{one}bob"))
        .1
        .contains("nothing was counted here"));
    assert!(post(&format!("{one}ann")).1.contains("forgotten"));
    assert_eq!(left(&member, "edge", brought("ann")).await, (OK, 2));
    assert_eq!(post("limiter=ip&requests=3").0, 400);
    let (status, body) = member.get("/rules?rule=override:day");
    assert!(status == 404 && body.contains("/snapshot"), "{body}");
}

#[tokio::test]
async fn a_limit_that_is_brought_holds_where_no_rule_is_and_says_its_unit() {
    let member = Member::start("limits: []\n");
    let units = [
        (RateLimitUnit::Hour, Unit::Hour, 3_600),
        (RateLimitUnit::Day, Unit::Day, 86_400),
        (RateLimitUnit::Month, Unit::Month, 30 * 86_400),
        (RateLimitUnit::Year, Unit::Year, 365 * 86_400),
    ];
    for (brought, told, seconds) in units {
        let own = brings(1, brought, &[("a", "x"), ("b", "y")]);
        let turned = brings(1, brought, &[("b", "y"), ("a", "x")]);
        let first = member.ask(request("any", vec![own])).await;
        let second = member.ask(request("any", vec![turned])).await;
        assert_eq!((first.overall_code(), second.overall_code()), (OK, OVER));
        let status = &second.statuses[0];
        let limit = status.current_limit.as_ref().unwrap();
        assert_eq!((limit.requests_per_unit, limit.unit()), (1, told));
        let name = String::from_utf8_lossy(&limit.name).into_owned();
        assert_eq!(
            name,
            format!("override:{}", told.as_str_name().to_lowercase())
        );
        let reset = status.duration_until_reset.as_ref().unwrap().seconds;
        assert!((1..=seconds).contains(&reset), "{reset} of {seconds}");
    }
}

#[tokio::test]
async fn case_12_a_limit_that_is_brought_and_a_rule_are_decided_together() {
    let member = Member::start(RULES);
    let both = || {
        let own = brings(1, RateLimitUnit::Day, &[("user", "a")]);
        request("edge", vec![own, descriptor(&[("ip", "a")])])
    };
    let first = member.ask(both()).await;
    assert_eq!((first.overall_code(), codes(&first)), (OK, vec![OK, OK]));
    let second = member.ask(both()).await;
    assert_eq!(codes(&second), [OVER, OK]);
    assert_eq!(second.statuses[1].limit_remaining, 2, "the rule was spared");
}

#[tokio::test]
async fn what_a_limit_says_when_it_is_odd() {
    let member = Member::start(RULES);
    let none = brings(0, RateLimitUnit::Minute, &[("ip", "a")]);
    assert_eq!(left(&member, "edge", none).await, (OVER, 0));
    // Without a unit it is no limit: the rule decides.
    let nameless = brings(1, RateLimitUnit::Unknown, &[("ip", "a")]);
    assert_eq!(left(&member, "edge", nameless).await, (OK, 2));
    let too_many = RateLimitDescriptor {
        hits_addend: Some(11),
        ..brings(10, RateLimitUnit::Day, &[("ip", "a")])
    };
    assert_eq!(left(&member, "edge", too_many).await, (OVER, 10), "case 21");
    assert_eq!(member.snapshot()["fail_open"]["override_ignored"], 1);
}

#[tokio::test]
async fn limits_that_requests_bring_can_be_switched_off() {
    let member = Member::start(&format!("{RULES}storage: {{override_cardinality: 0}}\n"));
    let own = brings(1, RateLimitUnit::Day, &[("ip", "a")]);
    assert_eq!(left(&member, "edge", own.clone()).await, (OK, 2));
    assert_eq!(
        left(&member, "edge", own).await,
        (OK, 1),
        "the rule decides"
    );
    assert_eq!(member.snapshot()["fail_open"]["override_ignored"], 2);
}

/// Case 25, over the wire: 100,000 different limits, and what is kept of them stays what was set
/// aside; one that is being denied stays denied meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_25_a_hundred_thousand_different_limits_stay_in_their_bounds() {
    let member = Member::start(&format!("{RULES}storage: {{override_cardinality: 1000}}\n"));
    let before = member.snapshot();
    let held = || brings(1, RateLimitUnit::Day, &[("held", "x")]);
    assert_eq!(left(&member, "edge", held()).await, (OK, 0));
    let mut client = member.client().await;
    for round in 0..2_000u32 {
        let many: Vec<_> = (0..50)
            .map(|n| brings(2 + round * 50 + n, RateLimitUnit::Day, &[("user", "u")]))
            .collect();
        let answer = client.should_rate_limit(request("edge", many)).await;
        assert_eq!(answer.unwrap().into_inner().overall_code(), OK);
        if round % 100 == 0 {
            assert_eq!(left(&member, "edge", held()).await, (OVER, 0), "{round}");
        }
    }
    let (status, page) = member.get("/metrics");
    assert_eq!(status, 200);
    let ours: Vec<&str> = page.lines().filter(|l| l.contains("(overrides)")).collect();
    let denied = "gabion_rule_denied_total{domain=\"(overrides)\",rule=\"override:day\"} 20";
    assert!(ours.contains(&denied), "{ours:#?}");
    assert!(ours.len() < 100, "{} series", ours.len());
    let after = member.snapshot();
    let series = |snapshot: &serde_json::Value| {
        let parts = ["rules", "fail_open", "table"];
        parts.map(|part| match &snapshot[part] {
            serde_json::Value::Array(items) => items.len(),
            serde_json::Value::Object(items) => items.len(),
            _ => panic!("no {part}"),
        })
    };
    assert_eq!(series(&before), series(&after), "no series was added");
    let day = &after["overrides"][3];
    assert_eq!(day["name"], "override:day");
    let denied = day["counts"]["denied"].as_u64();
    assert_eq!(denied, Some(20));
    let live = after["table"]["live"].as_u64().unwrap();
    assert!((500..=1_300).contains(&live), "{live} rows of 1,000 keys");
}

#[tokio::test]
async fn every_family_of_headers_describes_the_denying_rule_and_admitted_answers_too() {
    let member = Member::start(&format!("{RULES}response_headers: [always, all]\n"));
    let answer = member.ask(one("edge", "ip", "a")).await;
    let mut sent = headers(&answer);
    let reset: u64 = sent.remove("x-ratelimit-reset").unwrap().parse().unwrap();
    assert!((1..=86_400).contains(&reset));
    let policy = sent.remove("ratelimit").unwrap();
    assert!(policy.starts_with("\"ip\";r=2;t="), "{policy}");
    let expected = [
        ("ratelimit-name", "ip"),
        ("ratelimit-policy", "\"ip\";q=3;w=86400"),
        ("x-ratelimit-limit", "3"),
        ("x-ratelimit-remaining", "2"),
    ];
    let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(sent, BTreeMap::from(expected));
    // Case 15: of two descriptors the one that denies is described.
    for _ in 0..2 {
        member.ask(one("edge", "ip", "a")).await;
    }
    let path = descriptor(&[("path", "/")]);
    let both = request("edge", vec![path, descriptor(&[("ip", "a")])]);
    let denied = headers(&member.ask(both).await);
    assert_eq!(denied["ratelimit-name"], "ip");
    assert_eq!(denied["x-ratelimit-remaining"], "0");
    let after: u64 = denied["retry-after"].parse().unwrap();
    assert!((1..=86_400).contains(&after));
}

#[tokio::test]
async fn families_are_chosen_and_off_sends_none() {
    let member = Member::start(&format!("{RULES}response_headers: [ietf]\n"));
    for n in 0..4 {
        let sent = headers(&member.ask(one("edge", "ip", "a")).await);
        let names: Vec<&str> = sent.keys().map(String::as_str).collect();
        let expected: &[&str] = match n {
            3 => &["ratelimit", "ratelimit-policy"],
            _ => &[],
        };
        assert_eq!(names, expected, "only on denials, request {n}");
    }
    let off = Member::start(&format!("{RULES}response_headers: off\n"));
    for _ in 0..4 {
        assert!(headers(&off.ask(one("edge", "ip", "a")).await).is_empty());
    }
}

#[tokio::test]
async fn case_22_a_drained_fast_bucket_says_three_seconds_at_most() {
    let member = Member::start(&format!("{RULES}response_headers: [all]\n"));
    let mut drain = request("tokens", vec![descriptor(&[("k", "a")])]);
    drain.hits_addend = 5_000;
    assert_eq!(member.ask(drain.clone()).await.overall_code(), OK);
    let answer = member.ask(drain).await;
    assert_eq!(answer.overall_code(), OVER);
    let sent = headers(&answer);
    let after: u64 = sent["retry-after"].parse().unwrap();
    assert!((1..=3).contains(&after), "{after}");
    assert_eq!(sent["ratelimit-policy"], "\"tokens\";q=5000;w=3");
    let limit = answer.statuses[0].current_limit.as_ref().unwrap();
    assert_eq!(
        (limit.requests_per_unit, limit.unit()),
        (5_000, Unit::Unknown)
    );
}

#[tokio::test]
async fn case_19_a_window_that_is_no_unit_shows_what_remaining_counts_down_from() {
    let member = Member::start(RULES);
    let answer = member.ask(one("odd", "k", "a")).await;
    let status = &answer.statuses[0];
    let limit = status.current_limit.as_ref().unwrap();
    assert_eq!(
        (limit.requests_per_unit, limit.unit()),
        (900, Unit::Unknown)
    );
    assert_eq!(status.limit_remaining, 899);
    let reset = status.duration_until_reset.as_ref().unwrap().seconds;
    assert!((1..=90).contains(&reset), "{reset}");
}

#[tokio::test]
async fn metadata_names_who_denied_and_who_would_have() {
    let member = Member::start(RULES);
    for n in 0..4 {
        let answer = member.ask(one("edge", "ip", "a")).await;
        let mut said = metadata(&answer);
        if n < 3 {
            assert!(answer.dynamic_metadata.is_none(), "{said:?}");
            continue;
        }
        for name in ["reset", "retry_after"] {
            let seconds: u64 = said.remove(name).unwrap().parse().unwrap();
            assert!((1..=86_400).contains(&seconds), "{name}");
        }
        let expected = [
            ("domain", "edge"),
            ("limit", "3"),
            ("limiter", "ip"),
            ("remaining", "0"),
            ("rule", "ip"),
            ("verdict", "denied"),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(said, BTreeMap::from(expected));
    }
    assert!(metadata(&member.ask(one("dry", "k", "a")).await).is_empty());
    let watched = member.ask(one("dry", "k", "a")).await;
    assert_eq!(watched.overall_code(), OK, "case 16");
    let said = metadata(&watched);
    assert_eq!(said["verdict"], "would_deny");
    assert_eq!(
        (&*said["would_deny"], &*said["rule"]),
        ("watched", "watched")
    );
    let own = brings(0, RateLimitUnit::Minute, &[("x", "y")]);
    let said = metadata(&member.ask(request("some", vec![own])).await);
    assert_eq!(
        (&*said["rule"], &*said["domain"]),
        ("override:minute", "some")
    );
}

#[tokio::test]
async fn metadata_comes_always_or_never_as_it_is_set() {
    let always = Member::start(&format!("{RULES}dynamic_metadata: always\n"));
    let said = metadata(&always.ask(one("edge", "ip", "a")).await);
    assert_eq!((&*said["verdict"], &*said["remaining"]), ("allowed", "2"));
    let off = Member::start(&format!("{RULES}dynamic_metadata: off\n"));
    for _ in 0..4 {
        let answer = off.ask(one("edge", "ip", "a")).await;
        assert!(answer.dynamic_metadata.is_none());
    }
    let bounds = "storage: {max_descriptor_bytes: 1k}\n";
    let small = Member::start(&format!("{RULES}{bounds}"));
    let answer = small.ask(one("edge", "ip", &"a".repeat(2_000))).await;
    assert_eq!(answer.overall_code(), OVER);
    assert_eq!(metadata(&answer)["cause"], "too_large");
}

#[tokio::test]
async fn hits_are_never_given_back_and_the_request_is_told() {
    let member = Member::start(RULES);
    for _ in 0..3 {
        assert_eq!(member.ask(one("edge", "ip", "a")).await.overall_code(), OK);
    }
    let back = || RateLimitDescriptor {
        hits_addend: Some(2),
        is_negative_hits: true,
        ..descriptor(&[("ip", "a")])
    };
    let answer = member.ask(request("edge", vec![back()])).await;
    assert_eq!(answer.overall_code(), OK, "the request does not fail");
    assert_eq!(answer.statuses[0].limit_remaining, 0, "nothing given back");
    assert_eq!(metadata(&answer)["refunds_refused"], "1");
    assert_eq!(
        member.ask(one("edge", "ip", "a")).await.overall_code(),
        OVER
    );
    assert_eq!(member.snapshot()["fail_open"]["negative_hits"], 1);
}

#[tokio::test]
async fn a_rule_may_say_what_a_denied_client_reads() {
    let rules = r#"
limits:
- name: json
  domain: edge
  rate: 1r/d
  descriptors: [{key: json}]
  raw_body: '{"error": "slow down"}'
  raw_body_type: application/json
- {name: text, domain: edge, mode: deny, raw_body: No., descriptors: [{key: text}]}
- {name: bare, domain: edge, mode: deny, descriptors: [{key: bare}]}
response_headers: off
"#;
    let member = Member::start(rules);
    let first = member.ask(one("edge", "json", "a")).await;
    assert_eq!((first.overall_code(), first.raw_body.len()), (OK, 0));
    assert!(headers(&first).is_empty());
    let second = member.ask(one("edge", "json", "a")).await;
    assert_eq!(&*second.raw_body, br#"{"error": "slow down"}"#);
    let types = headers(&second);
    assert_eq!(types.len(), 1, "{types:?}");
    assert_eq!(types["content-type"], "application/json");
    let text = member.ask(one("edge", "text", "a")).await;
    assert_eq!((&*text.raw_body, headers(&text).len()), (&b"No."[..], 0));
    let bare = member.ask(one("edge", "bare", "a")).await;
    assert_eq!((bare.overall_code(), bare.raw_body.len()), (OVER, 0));
}

#[tokio::test]
async fn a_denial_by_a_limit_that_was_brought_is_in_the_log() {
    let member = Member::start(RULES);
    let own = brings(0, RateLimitUnit::Hour, &[("user", "alice")]);
    assert_eq!(left(&member, "edge", own).await, (OVER, 0));
    common::until("a line about it", || {
        let log = member.log();
        (log.contains("override:hour") && log.contains("alice")).then_some(())
    });
}
