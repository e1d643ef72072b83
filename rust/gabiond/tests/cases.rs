//! Situations that broke other limiters, met by a whole running member.
#![allow(clippy::unwrap_used)] // a test fails by panicking

mod common;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;

use common::{codes, introduce, run, text, until, Member, Scratch, PORTS};
use gabion_server::protocol::{descriptor, request, Code, RateLimitRequest, RateLimitResponse};
use serde_json::Value;

const OK: Code = Code::Ok;
const OVER: Code = Code::OverLimit;

fn asked(domain: &str, entries: &[(&str, &str)]) -> RateLimitRequest {
    request(domain, vec![descriptor(entries)])
}

/// Puts a configuration in place and asks for it; the answer's status and body.
fn reload(member: &Member, config: &str) -> (u16, String) {
    let part = member.scratch.file("part", config);
    std::fs::rename(part, member.scratch.0.join("gabiond.yaml")).unwrap();
    let (status, _, body) = member.send("POST", "/reload", "Content-Length: 0\r\n");
    (status, body)
}

/// The specific branch lacks the next key, and only the wildcard has it.
#[tokio::test]
async fn case_02_a_branch_that_ends_does_not_hide_the_wildcard_that_goes_on() {
    let files = Scratch::new();
    let file = files.file(
        "tree.yaml",
        "domain: tree
descriptors:
- key: user
  value: ann
  descriptors: [{key: path, rate_limit: {unit: day, requests_per_unit: 9}}]
- key: user
  value: a*
  descriptors: [{key: method, rate_limit: {unit: day, requests_per_unit: 1}}]
- key: user
  value: anna*
  descriptors: [{key: method, rate_limit: {unit: day, requests_per_unit: 5}}]
- key: user
  descriptors: [{key: agent, rate_limit: {unit: day, requests_per_unit: 2}}]
",
    );
    let reference = format!("{PORTS}reference: {{directory: '{}'}}\n", files.0.display());
    let member = Member::start_with(&reference, &[]);
    for (entries, limit) in [
        ([("user", "ann"), ("path", "/")], 9),
        ([("user", "ann"), ("method", "GET")], 1),
        ([("user", "ann"), ("agent", "x")], 2),
        ([("user", "bob"), ("agent", "x")], 2),
    ] {
        for _ in 0..limit {
            assert_eq!(
                codes(&member.ask(asked("tree", &entries)).await),
                [OK],
                "{entries:?}"
            );
        }
        assert_eq!(
            codes(&member.ask(asked("tree", &entries)).await),
            [OVER],
            "{entries:?}"
        );
    }
    let said = run(&["check", "--reference", text(&files.0)]);
    let said = String::from_utf8(said.stdout).unwrap();
    let place = format!("{}:11:", file.display());
    let line = said.lines().find(|line| line.contains("it never matches"));
    let line = line.unwrap_or_else(|| panic!("no warning: {said}"));
    assert!(
        line.contains(&place) && line.contains("user_anna*.method"),
        "{said}"
    );
    assert_eq!(said.matches("it never matches").count(), 1, "{said}");
}

fn limits(rate: u32) -> String {
    format!(
        "{PORTS}response_headers: [always, all]\nlimits:\n- {{name: a, domain: d, rate: {rate}r/d, \
         descriptors: [{{key: k}}]}}\n"
    )
}

/// What an answer may say of its one counter, whatever limit is in force.
fn is_sound(answer: &RateLimitResponse) {
    let status = &answer.statuses[0];
    let limit = status.current_limit.as_ref().unwrap().requests_per_unit;
    assert!(status.limit_remaining <= limit, "{status:?}");
    if status.code() == OVER {
        assert_eq!(status.limit_remaining, 0, "{status:?}");
    }
    for header in &answer.response_headers_to_add {
        if header.key == "x-ratelimit-remaining" {
            assert_eq!(header.value, status.limit_remaining.to_string());
        }
        let longest = "9007199254740991".len();
        assert!(
            header.value.len() <= longest || header.key.starts_with(b"ratelimit"),
            "{header:?}"
        );
    }
}

/// Limits far below what is used already, and above it again, while requests come.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_08_a_limit_lowered_under_load_leaves_remaining_at_zero() {
    let member = Arc::new(Member::start_with(&limits(100_000), &[]));
    let (stop, admitted) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let load: Vec<_> = (0..3)
        .map(|_| {
            let (member, stop) = (Arc::clone(&member), Arc::clone(&stop));
            let admitted = Arc::clone(&admitted);
            tokio::spawn(async move {
                let mut client = member.client().await;
                while !stop.load(Ordering::Relaxed) {
                    let answer = client.should_rate_limit(asked("d", &[("k", "x")])).await;
                    let answer = answer.unwrap().into_inner();
                    is_sound(&answer);
                    let passed = u64::from(answer.overall_code() == OK);
                    admitted.fetch_add(passed, Ordering::Relaxed);
                }
            })
        })
        .collect();
    let used = || admitted.load(Ordering::Relaxed);
    for _ in 0..5 {
        let before = used();
        until("hits are admitted", || {
            (used() >= before + 20).then_some(())
        });
        let member = Arc::clone(&member);
        let lowered = tokio::task::spawn_blocking(move || {
            assert_eq!(reload(&member, &limits(10)).0, 200);
            member
        });
        let member = lowered.await.unwrap();
        let answer = member.ask(asked("d", &[("k", "x")])).await;
        is_sound(&answer);
        assert_eq!(
            (answer.overall_code(), answer.statuses[0].limit_remaining),
            (OVER, 0)
        );
        assert_eq!(reload(&member, &limits(100_000)).0, 200);
    }
    stop.store(true, Ordering::Relaxed);
    for task in load {
        task.await.unwrap();
    }
    let answer = member.ask(asked("d", &[("k", "x")])).await;
    let left = u64::from(answer.statuses[0].limit_remaining);
    assert_eq!(
        left,
        100_000 - used() - 1,
        "not one hit was lost or doubled"
    );
}

/// What a failed reload must not touch: who it is, and what it holds.
fn standing(member: &Member) -> Value {
    let snapshot = member.snapshot();
    let (gossip, table) = (&snapshot["gossip"], &snapshot["table"]);
    serde_json::json!([
        gossip["node"],
        gossip["incarnation"],
        gossip["session"],
        gossip["bound"],
        gossip["peers"][0]["up"],
        table["rows"],
        table["live"],
        table["claims"],
        snapshot["rules"],
        snapshot["config"]["rules_fingerprint"],
    ])
}

/// Configurations whose rules are good, and which fail at each later step of a reload.
fn fails_late(raised: &str) -> Vec<(String, &'static str)> {
    let keys = "gossip: {auth_key_file: /no/such/keys, ";
    let many = "{name: b, domain: d, rate: 1r/d, cardinality: 4000000000, descriptors: [{key: j}]}";
    vec![
        (raised.replace("gossip: {", keys), "/no/such/keys"),
        (
            format!("{raised}storage: {{table_bytes: 64}}\n"),
            "table_bytes",
        ),
        (
            format!("{raised}flags: {{x: {{default: 500%}}}}\n"),
            "flags",
        ),
        (
            format!("{raised}tls: {{cert_file: /no/crt, key_file: /no/key}}\n"),
            "/no/crt",
        ),
        (
            raised.replace("limits: [", &format!("limits: [{many}, ")),
            "cardinalities",
        ),
        (
            format!("{raised}observe: {{sample: 0}}\n"),
            "observe.sample",
        ),
        (
            format!("{raised}reference: {{directory: /no/such}}\n"),
            "/no/such",
        ),
    ]
}

/// The rules are good; what comes after them is not, at every later step of a reload.
#[tokio::test]
async fn case_11_a_reload_that_fails_late_leaves_running_counters_untouched() {
    let rules = "limits: [{name: a, domain: d, rate: 10r/d, descriptors: [{key: k}]}]\n";
    let members = [
        Member::start_gossiping(rules),
        Member::start_gossiping(rules),
    ];
    introduce(&[&members[0], &members[1]]);
    let member = &members[0];
    let path = member.scratch.0.join("gabiond.yaml");
    let good = std::fs::read_to_string(&path).unwrap();
    let raised = good.replace("rate: 10r/d", "rate: 20r/d");
    for _ in 0..4 {
        assert_eq!(codes(&member.ask(asked("d", &[("k", "x")])).await), [OK]);
    }
    let before = standing(member);
    for (config, word) in fails_late(&raised) {
        let (status, body) = reload(member, &config);
        assert_eq!(status, 409, "{word}: {body}");
        assert!(body.contains(word), "{word}: {body}");
        assert_eq!(standing(member), before, "{word}");
    }
    let left = |answer: &RateLimitResponse| answer.statuses[0].limit_remaining;
    assert_eq!(
        left(&member.ask(asked("d", &[("k", "x")])).await),
        5,
        "4 used, and this one"
    );
    let read = || {
        let mut read = descriptor(&[("k", "x")]);
        read.hits_addend = Some(0);
        request("d", vec![read])
    };
    let start = std::time::Instant::now();
    while left(&members[1].ask(read()).await) != 5 {
        assert!(start.elapsed() < common::PATIENCE, "gossip goes on");
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    assert_eq!(reload(member, &raised).0, 200);
    assert_eq!(
        left(&member.ask(asked("d", &[("k", "x")])).await),
        14,
        "20 less 6"
    );
}

/// No request after the answer to a reload meets the limit before it, on a connection that stays.
#[tokio::test]
async fn case_55_a_changed_limit_holds_for_the_next_request() {
    let member = Member::start_with(&limits(1_000), &[]);
    let mut client = member.client().await;
    let mut used = 0;
    for (rate, layout) in (0..20u32).map(|n| (2_000 - 90 * n, n % 3 == 0)) {
        let mut config = limits(rate);
        if layout {
            // Another table, into which counts are carried.
            config += "- {name: b, domain: d, rate: 1r/d, descriptors: [{key: other}]}\n";
        }
        assert_eq!(reload(&member, &config).0, 200);
        let answer = client.should_rate_limit(asked("d", &[("k", "x")])).await;
        let status = answer.unwrap().into_inner().statuses[0].clone();
        used += 1;
        assert_eq!(status.current_limit.unwrap().requests_per_unit, rate);
        assert_eq!(status.limit_remaining, rate - used, "{rate}");
    }
}
