//! Real Envoy, two real members: statuses, headers, hits, and what happens when members fail.
// a test fails by panicking, in its helpers too
#![allow(clippy::unwrap_used)]

use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gabion_envoy_e2e::{ask, check_config, Edge};
use gabion_loader::run::{run, Live, Plan};
use gabion_loader::schedule::Schedule;
use gabion_loader::template::Shape;

/// Limits by the day: no test runs into the end of a window, but once a day at most. Two hits of
/// each are taken by `prime`: 10, 3, 20 and 20 are left.
const LIMITS: &str = "
limits:
  - {name: api, domain: edge, descriptors: [{key: route, value: api}], rate: 12r/d}
  - {name: user, domain: edge, descriptors: [{key: route, value: api}, {key: user}], rate: 5r/d}
  - {name: upload, domain: edge, descriptors: [{key: route, value: upload}], rate: 22r/d}
  - {name: batch, domain: edge, descriptors: [{key: route, value: batch}], rate: 22r/d}
";
const WIDE: &str = "
limits:
  - {name: api, domain: edge, descriptors: [{key: route, value: api}], rate: 1000000r/d}
";
const FAILURES_ALLOWED: &str = "cluster.upstream.ratelimit.failure_mode_allowed";
/// Envoy's own timeout for a rate-limit call, and what a loaded machine may add to it.
const TIMEOUT: Duration = Duration::from_millis(250);
const SLACK: Duration = Duration::from_secs(2);

#[test]
fn the_example_configuration_of_a_member_is_accepted_without_a_note() {
    let (accepted, said) = check_config("envoy/gabiond.yaml").unwrap();
    assert!(accepted, "{said}");
    assert!(!said.contains("note:"), "{said}");
    assert!(said.contains("5 rules"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_limit_over_two_members_as_a_client_sees_it() {
    let edge = Edge::start(LIMITS).await.unwrap();
    edge.prime(&[("route", "api")]).await.unwrap();
    edge.agree(&[("route", "api")], 10).await.unwrap();
    for i in 0..10 {
        let reply = edge.get("/api/", &[]).await.unwrap();
        assert_eq!(
            (reply.status, reply.body.as_str()),
            (200, "upstream\n"),
            "request {i}"
        );
        assert!(reply
            .header("x-ratelimit-limit")
            .unwrap()
            .starts_with("12, 12;w=86400"));
        let left = 9 - i;
        edge.agree(&[("route", "api")], left).await.unwrap();
        assert_eq!(
            reply.header("x-ratelimit-remaining"),
            Some(left.to_string().as_str())
        );
        assert_eq!(reply.header("x-envoy-ratelimited"), None);
    }
    for _ in 0..6 {
        let reply = edge.get("/api/", &[]).await.unwrap();
        assert_eq!(reply.status, 429);
        assert_eq!(reply.header("x-envoy-ratelimited"), Some("true"));
        assert_eq!(reply.header("x-ratelimit-remaining"), Some("0"));
        let reset: u64 = reply.header("x-ratelimit-reset").unwrap().parse().unwrap();
        assert!((1..=86_400).contains(&reset), "reset {reset}");
        let after: u64 = reply.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=86_400).contains(&after), "retry after {after}");
        for name in [
            "x-ratelimit-limit",
            "x-ratelimit-remaining",
            "x-ratelimit-reset",
        ] {
            assert_eq!(reply.headers.get_all(name).iter().count(), 1, "{name}");
        }
    }
    assert_eq!(
        edge.upstream.served(),
        10,
        "what is denied never reaches the upstream"
    );
    // a route without descriptors makes no call and has no limit
    let free = edge.get("/", &[]).await.unwrap();
    assert_eq!((free.status, free.header("x-ratelimit-limit")), (200, None));
}

/// Case 12, through Envoy: of two descriptors one is over its limit, so the other is not charged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_12_a_denied_user_does_not_use_up_the_route() {
    let edge = Edge::start(LIMITS).await.unwrap();
    let alice = [("x-user", "alice")];
    edge.prime(&[("route", "api")]).await.unwrap();
    edge.prime(&[("route", "api"), ("user", "alice")])
        .await
        .unwrap();
    for left in [2, 1, 0] {
        assert_eq!(edge.get("/api/", &alice).await.unwrap().status, 200);
        edge.agree(&[("route", "api"), ("user", "alice")], left)
            .await
            .unwrap();
    }
    for _ in 0..4 {
        assert_eq!(edge.get("/api/", &alice).await.unwrap().status, 429);
    }
    edge.agree(&[("route", "api")], 7).await.unwrap();
    assert_eq!(
        edge.get("/api/", &[("x-user", "bob")])
            .await
            .unwrap()
            .status,
        200
    );
    edge.agree(&[("route", "api")], 6).await.unwrap();
}

/// Case 21 too: a request for more than is left is denied and charges nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_hit_fields_charge_what_they_say() {
    let edge = Edge::start(LIMITS).await.unwrap();
    for (path, header, route) in [
        ("/upload/", "x-cost", "upload"),
        ("/batch/", "x-hits", "batch"),
    ] {
        edge.prime(&[("route", route)]).await.unwrap();
        edge.agree(&[("route", route)], 20).await.unwrap();
        for (hits, status, left) in [
            ("7", 200, 13),
            ("7", 200, 6),
            ("7", 429, 6),
            ("6", 200, 0),
            ("1", 429, 0),
        ] {
            let reply = edge.get(path, &[(header, hits)]).await.unwrap();
            assert_eq!(
                reply.status, status,
                "{route}: {hits} hits, {left} left after"
            );
            edge.agree(&[("route", route)], left).await.unwrap();
        }
    }
}

fn traffic(edge: &Edge, seconds: f64) -> Plan {
    Plan {
        schedule: Schedule::constant(200.0, seconds).unwrap(),
        targets: vec![format!("http://{}", edge.envoy.listener).parse().unwrap()],
        mix: "single".parse().unwrap(),
        seed: 1,
        shape: Shape::http("/api/", &[]).unwrap(),
        concurrency: 64,
        connections: 1,
        timeout: Duration::from_secs(10),
    }
}

async fn until_due(live: &Live, n: u64) {
    let give_up = Instant::now() + Duration::from_secs(20);
    while live.due.load(Ordering::Relaxed) < n {
        assert!(Instant::now() < give_up, "the traffic does not flow");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_killed_mid_traffic_is_no_error_for_any_client() {
    let mut edge = Edge::start_as_shipped(WIDE).await.unwrap();
    let live = Arc::new(Live::default());
    let running = tokio::spawn(run(traffic(&edge, 3.0), Arc::clone(&live)));
    until_due(&live, 200).await;
    edge.members[0].process.kill();
    let report = running.await.unwrap().unwrap();
    println!("{}", report.text());
    assert_eq!((report.offered, report.unsent), (600, 0));
    assert_eq!(report.admitted, 600, "errors {:?}", report.errors);
    assert_eq!(edge.upstream.served(), 600);
    // the survivor limits: its headers are there
    edge.members.remove(0);
    let give_up = Instant::now() + Duration::from_secs(10);
    loop {
        let reply = edge.get("/api/", &[]).await.unwrap();
        assert_eq!(reply.status, 200);
        if reply.header("x-ratelimit-limit").is_some() {
            break;
        }
        assert!(
            Instant::now() < give_up,
            "the surviving member is never asked"
        );
    }
}

/// Case 60 as Envoy sees it: a member that is told to end drains, and ends within its limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_is_stopped_in_order_is_no_error_for_any_client() {
    let mut edge = Edge::start(WIDE).await.unwrap();
    let live = Arc::new(Live::default());
    let running = tokio::spawn(run(traffic(&edge, 3.0), Arc::clone(&live)));
    until_due(&live, 200).await;
    let ended = edge.members[0]
        .process
        .stop(Duration::from_secs(10))
        .await
        .unwrap();
    assert!(ended.success(), "{ended}");
    let report = running.await.unwrap().unwrap();
    assert_eq!(report.admitted, 600, "errors {:?}", report.errors);
    let allowed = edge.envoy_counter(FAILURES_ALLOWED).await.unwrap_or(0);
    println!("{allowed} requests passed without an answer of a member");
    // what was in flight when the member closed its connection, not what came later
    assert!(allowed <= 10, "{allowed} requests were not limited");
}

/// Counts survive the loss of the member that counted them, as long as one member is left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_member_counted_still_counts() {
    let mut edge = Edge::start(LIMITS).await.unwrap();
    edge.prime(&[("route", "api")]).await.unwrap();
    for left in (0..10).rev() {
        assert_eq!(edge.get("/api/", &[]).await.unwrap().status, 200);
        edge.agree(&[("route", "api")], left).await.unwrap();
    }
    edge.members[0].process.kill();
    edge.members.remove(0);
    // a request or two may still be sent to the dead member, and pass
    denied_before(&edge, Duration::from_secs(10)).await;
    edge.agree(&[("route", "api")], 0).await.unwrap();
}

/// Asks until a request is denied, which with the shipped timeouts may take more than one.
async fn denied_before(edge: &Edge, patience: Duration) {
    let give_up = Instant::now() + patience;
    while edge.get("/api/", &[]).await.unwrap().status != 429 {
        assert!(Instant::now() < give_up, "the limit is not there");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hung_members_hold_a_request_no_longer_than_envoys_timeout() {
    let edge = Edge::start_as_shipped(LIMITS).await.unwrap();
    edge.prime(&[("route", "api")]).await.unwrap();
    edge.agree(&[("route", "api")], 10).await.unwrap();
    ask(&edge.members[0], &[("route", "api")], 10)
        .await
        .unwrap();
    edge.agree(&[("route", "api")], 0).await.unwrap();
    denied_before(&edge, Duration::from_secs(20)).await;
    let allowed = edge.envoy_counter(FAILURES_ALLOWED).await.unwrap_or(0);
    edge.members
        .iter()
        .for_each(|member| member.process.freeze());
    for _ in 0..3 {
        let start = Instant::now();
        let reply = edge.get("/api/", &[]).await.unwrap();
        let took = start.elapsed();
        println!("with all members frozen: {} after {took:?}", reply.status);
        assert_eq!(reply.status, 200, "a hung limiter must not deny");
        assert!(took < TIMEOUT + SLACK, "held for {took:?}");
    }
    let now_allowed = edge.envoy_counter(FAILURES_ALLOWED).await.unwrap();
    assert!(now_allowed >= allowed + 3, "{allowed} then {now_allowed}");
    edge.members.iter().for_each(|member| member.process.thaw());
    denied_before(&edge, Duration::from_secs(20)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_hung_member_is_no_error_for_any_client() {
    let edge = Edge::start_as_shipped(WIDE).await.unwrap();
    let live = Arc::new(Live::default());
    let running = tokio::spawn(run(traffic(&edge, 3.0), Arc::clone(&live)));
    until_due(&live, 200).await;
    edge.members[1].process.freeze();
    let report = running.await.unwrap().unwrap();
    println!("{}", report.text());
    assert_eq!(report.admitted, 600, "errors {:?}", report.errors);
    let longest = Duration::from_secs_f64(report.latency.max_us / 1e6);
    assert!(longest < TIMEOUT + SLACK, "held for {longest:?}");
}

/// Three of them and each member's own headers: Envoy's `x-ratelimit-*` stay Envoy's.
const SPOKEN: &str = r#"
response_headers: [always, ietf, name]
limits:
  - name: api
    domain: edge
    descriptors: [{key: route, value: api}]
    rate: 2r/d
    raw_body: '{"error": "slow down"}'
    raw_body_type: application/json
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn headers_body_and_metadata_of_a_member_pass_through_envoy() {
    let edge = Edge::start(SPOKEN).await.unwrap();
    // A hit at each member uses the limit up.
    edge.prime(&[("route", "api")]).await.unwrap();
    edge.agree(&[("route", "api")], 0).await.unwrap();
    for _ in 0..3 {
        let reply = edge.get("/api/x", &[]).await.unwrap();
        assert_eq!(reply.status, 429);
        assert_eq!(reply.body, r#"{"error": "slow down"}"#);
        assert_eq!(reply.header("content-type"), Some("application/json"));
        assert_eq!(
            reply.header("ratelimit-policy"),
            Some("\"api\";q=2;w=86400")
        );
        assert_eq!(reply.header("ratelimit-name"), Some("api"));
        let ratelimit = reply.header("ratelimit").unwrap();
        assert!(ratelimit.starts_with("\"api\";r=0;t="), "{ratelimit}");
        for name in ["content-type", "ratelimit", "x-ratelimit-limit"] {
            let count = reply.headers.get_all(name).iter().count();
            assert_eq!(count, 1, "{name}");
        }
    }
    for line in edge.access_log(3).await.unwrap() {
        assert_eq!(
            (&line["rule"], &line["path"]),
            (&"api".into(), &"/api/x".into())
        );
        assert_eq!((&line["limit"], &line["status"]), (&2.into(), &429.into()));
        let after = line["retry_after"].as_u64().unwrap();
        assert!((1..=86_400).contains(&after), "{line}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_that_envoy_sends_along_is_enforced_for_each_user() {
    let edge = Edge::start(LIMITS).await.unwrap();
    let mut denied = 0;
    for n in 0..40 {
        let reply = edge.get("/plan/", &[("x-user", "alice")]).await.unwrap();
        match reply.status {
            200 if n < 5 => assert!(reply
                .header("x-ratelimit-limit")
                .unwrap()
                .starts_with("5, 5;w=86400;name=\"override:day\"")),
            // What passes while news travels between the two members.
            200 => assert!(n < 10, "request {n}"),
            429 => denied += 1,
            other => panic!("status {other}"),
        }
    }
    assert!(denied >= 30, "{denied} denied");
    let bob = edge.get("/plan/", &[("x-user", "bob")]).await.unwrap();
    assert_eq!(bob.status, 200);
    let line = &edge.access_log(1).await.unwrap()[0];
    assert_eq!(
        (&line["rule"], &line["limit"]),
        (&"override:day".into(), &5.into())
    );
}
