//! The life of a process: start, ports, probes, drain, and what it says when it cannot start.
#![allow(clippy::unwrap_used)] // a test fails by panicking

mod common;

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use common::{ended_with, introduce, run, text, until, Member, Scratch, GOSSIP, PORTS};
use gabion_server::protocol::{descriptor, request, Code, SERVICE_NAME};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::HealthCheckRequest;

const RULES: &str = "limits:\n- {name: ip, domain: edge, rate: 3r/h, descriptors: [{key: ip}]}\n";

#[test]
fn help_and_version_end_well() {
    let help = run(&["--help"]);
    assert!(help.status.success());
    let text = String::from_utf8(help.stdout).unwrap();
    for word in ["check", "--ports-file", "GABION_GOSSIP_BIND"] {
        assert!(text.contains(word), "{text}");
    }
    let version = run(&["--version"]);
    assert!(version.status.success());
    assert!(String::from_utf8(version.stdout)
        .unwrap()
        .contains(env!("CARGO_PKG_VERSION")));
    ended_with(&run(&[]), 2);
}

#[test]
fn check_prints_places_and_ends_with_one() {
    let scratch = Scratch::new();
    let good = scratch.file("good.yaml", &format!("{PORTS}{RULES}"));
    let output = run(&["check", text(&good)]);
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).contains("ok, 1 rules"));
    let bad = scratch.file("bad.yaml", "limits:\n- {nam: x}\n");
    let stderr = ended_with(&run(&["check", text(&bad)]), 1);
    assert!(stderr.contains("bad.yaml:2:4: limits[0].nam"), "{stderr}");
    assert!(stderr.contains("did you mean name?"), "{stderr}");
}

#[test]
fn case_06_missing_empty_unreadable_and_strange_files_are_named() {
    let scratch = Scratch::new();
    let empty = scratch.file("empty.yaml", "");
    let binary = scratch.0.join("binary.yaml");
    std::fs::write(&binary, b"\x7fELF\x00\x01\xff").unwrap();
    let missing = scratch.0.join("missing.yaml");
    for (path, word) in [
        (text(&missing), "cannot be read"),
        (text(&empty), "the file is empty"),
        (text(&scratch.0), "this is a directory"),
        (text(&binary), "not UTF-8"),
        ("/dev/null", "a device, pipe or socket"),
    ] {
        for arguments in [&[path][..], &["--config", path], &["check", path]] {
            let stderr = ended_with(&run(arguments), 1);
            assert!(
                stderr.contains(word) && stderr.contains(path),
                "{path}: {stderr}"
            );
        }
    }
}

#[test]
fn case_09_a_table_without_room_for_a_row_is_refused_at_start() {
    let scratch = Scratch::new();
    let rules: String = (0..2_000)
        .map(|i| format!("- {{name: r{i}, domain: d, rate: 1r/h, descriptors: [{{key: k}}]}}\n"))
        .collect();
    let text_of = format!("{PORTS}storage: {{table_bytes: 64k}}\nlimits:\n{rules}");
    let file = scratch.file("small.yaml", &text_of);
    let stderr = ended_with(&run(&[text(&file)]), 1);
    assert!(
        stderr.contains("storage.table_bytes") && stderr.contains("need"),
        "{stderr}"
    );
}

#[test]
fn a_taken_port_of_a_server_ends_the_start_with_one() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = taken.local_addr().unwrap();
    let scratch = Scratch::new();
    for (envoy, admin, setting) in [
        (addr.to_string(), "off".to_owned(), "envoy_bind"),
        (":0".into(), addr.to_string(), "admin_bind"),
    ] {
        let config = format!("envoy_bind: '{envoy}'\nadmin_bind: '{admin}'\n{RULES}");
        let file = scratch.file("taken.yaml", &config);
        let stderr = ended_with(&run(&[text(&file)]), 1);
        assert!(
            stderr.contains(setting) && stderr.contains(&addr.to_string()),
            "{stderr}"
        );
    }
}

#[tokio::test]
async fn case_49_a_taken_gossip_port_is_said_and_retried_while_requests_are_served() {
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let addr = taken.local_addr().unwrap();
    let gossip = format!("gossip: {{bind: '{addr}', cluster_id: test}}\n");
    let member = Member::start(&format!("{gossip}{RULES}"));
    assert_eq!(member.gossip, None);
    let answer = member
        .ask(request("edge", vec![descriptor(&[("ip", "a")])]))
        .await;
    assert_eq!(answer.overall_code(), Code::Ok);
    assert!(
        member.log().contains("the gossip port cannot be bound"),
        "{}",
        member.log()
    );
    drop(taken);
    until("it is bound after all", || {
        (member.snapshot()["gossip"]["bound"] == addr.to_string()).then_some(())
    });
}

#[test]
fn case_45_without_a_peer_in_sight_a_member_is_ready_within_seconds() {
    let discovery = "discovery: {static: ['127.0.0.1:9']}\n";
    let start = Instant::now();
    let member = Member::start_with(&format!("{PORTS}{GOSSIP}{discovery}{RULES}"), &[]);
    assert_eq!(member.get("/healthz"), (200, "ok\n".into()));
    assert_eq!(member.get("/readyz"), (503, "starting\n".into()));
    until("it is ready", || {
        (member.get("/readyz").0 == 200).then_some(())
    });
    assert!(start.elapsed() < Duration::from_secs(15));
}

#[test]
fn admin_answers_probes_and_says_what_it_knows() {
    let member = Member::start(RULES);
    assert_eq!(member.get("/healthz"), (200, "ok\n".into()));
    assert_eq!(member.get("/readyz"), (200, "ready\n".into()));
    assert_eq!(member.get("/nothing").0, 404);
    assert!(member.get("/").1.contains("/snapshot"));
    let snapshot = member.snapshot();
    assert_eq!(snapshot["state"], "ready");
    assert_eq!(snapshot["addresses"]["envoy"], member.envoy.to_string());
    assert_eq!(snapshot["rules"][0]["limit"], 3);
    assert!(snapshot["rules"][0]["capacity_keys"].as_u64().unwrap() > 1_000);
    assert_eq!(snapshot["gossip"], serde_json::Value::Null);
    assert!(snapshot["fail_open"]["table_full"].is_u64());
}

#[test]
fn environment_variables_reach_the_process() {
    let config = format!("envoy_bind: 192.0.2.1:1\nadmin_bind: 192.0.2.1:1\n{RULES}");
    let environment = [
        ("GABION_ENVOY_BIND", "127.0.0.1:0"),
        ("GABION_ADMIN_BIND", "127.0.0.1:0"),
    ];
    let member = Member::start_with(&config, &environment);
    assert_eq!(member.get("/healthz").0, 200);
    let scratch = Scratch::new();
    let file = scratch.file("g.yaml", RULES);
    let output = common::gabiond()
        .arg(&file)
        .env("GABION_ENVOY_BNID", "127.0.0.1:0")
        .output()
        .unwrap();
    let stderr = ended_with(&output, 1);
    assert!(
        stderr.contains("did you mean GABION_ENVOY_BIND?"),
        "{stderr}"
    );
}

async fn health(member: &Member) -> HealthClient<tonic::transport::Channel> {
    let endpoint = tonic::transport::Endpoint::new(format!("http://{}", member.envoy)).unwrap();
    HealthClient::new(endpoint.connect().await.unwrap())
}

#[tokio::test]
async fn health_is_serving_for_the_server_and_the_service() {
    let member = Member::start(RULES);
    let mut health = health(&member).await;
    for service in ["", SERVICE_NAME] {
        let request = HealthCheckRequest {
            service: service.to_owned(),
        };
        let answer = health.check(request).await.unwrap().into_inner();
        assert_eq!(answer.status(), ServingStatus::Serving, "{service}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigterm_tells_health_watchers_and_ends_with_zero_at_once_when_nobody_is_there() {
    let mut member = Member::start(RULES);
    let mut watcher = health(&member).await;
    let request = HealthCheckRequest {
        service: SERVICE_NAME.to_owned(),
    };
    let mut states = watcher.watch(request).await.unwrap().into_inner();
    let first = states.message().await.unwrap().unwrap();
    assert_eq!(first.status(), ServingStatus::Serving);
    member.terminate();
    let second = states.message().await.unwrap().unwrap();
    assert_eq!(second.status(), ServingStatus::NotServing);
    drop((states, watcher));
    let start = Instant::now();
    assert_eq!(member.wait().code(), Some(0), "{}", member.log());
    assert!(start.elapsed() < Duration::from_secs(4));
}

#[tokio::test]
async fn case_60_idle_and_stuck_connections_do_not_outlive_the_drain() {
    let mut member = Member::start(&format!("drain_timeout: 1s\n{RULES}"));
    let _idle = TcpStream::connect(member.envoy).unwrap();
    let mut stuck = TcpStream::connect(member.envoy).unwrap();
    stuck
        .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        .unwrap(); // and never reads the answer
    let _half = TcpStream::connect(member.admin).unwrap();
    let mut open = member.client().await;
    open.should_rate_limit(request("edge", vec![descriptor(&[("ip", "a")])]))
        .await
        .unwrap();
    // A stream that the server would hold open for ever.
    let endpoint = tonic::transport::Endpoint::new(format!("http://{}", member.envoy)).unwrap();
    let mut health = HealthClient::new(endpoint.connect().await.unwrap());
    let mut watched = health
        .watch(HealthCheckRequest::default())
        .await
        .unwrap()
        .into_inner();
    assert!(watched.message().await.unwrap().is_some());
    member.terminate();
    let start = Instant::now();
    assert_eq!(member.wait().code(), Some(0), "{}", member.log());
    assert!(
        start.elapsed() < Duration::from_secs(4),
        "{:?}",
        start.elapsed()
    );
    assert!(TcpStream::connect_timeout(&member.envoy, Duration::from_secs(1)).is_err());
}

/// A call over JSON that is under way at the stop is answered; an idle connection holds nothing.
#[test]
fn the_json_port_drains_like_the_others() {
    let mut member = Member::start(&format!("json_bind: 127.0.0.1:0\n{RULES}"));
    let ports = std::fs::read_to_string(member.scratch.0.join("ports.json")).unwrap();
    let ports: serde_json::Value = serde_json::from_str(&ports).unwrap();
    let json: std::net::SocketAddr = ports["json"].as_str().unwrap().parse().unwrap();
    let _idle = TcpStream::connect(json).unwrap();
    let body = r#"{"domain":"edge","descriptors":[{"entries":[{"key":"ip","value":"a"}]}]}"#;
    let mut half = TcpStream::connect(json).unwrap();
    half.set_read_timeout(Some(common::PATIENCE)).unwrap();
    let head = format!(
        "POST /json HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n",
        body.len()
    );
    // The server asks for the body once it has taken the call up.
    write!(half, "{head}Expect: 100-continue\r\n\r\n").unwrap();
    let mut asked = [0; 25];
    half.read_exact(&mut asked).unwrap();
    assert!(asked.starts_with(b"HTTP/1.1 100 Continue"), "{asked:?}");
    member.terminate();
    until("it drains", || {
        (member.get("/readyz").0 == 503).then_some(())
    });
    half.write_all(body.as_bytes()).unwrap();
    let mut answer = String::new();
    half.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(member.wait().code(), Some(0), "{}", member.log());
    assert!(
        !member.log().contains("clients still had connections"),
        "{}",
        member.log()
    );
}

#[test]
fn a_hangup_does_not_end_the_process() {
    let member = Member::start(RULES);
    common::signal(&member.child, "HUP");
    until("it says so", || {
        member
            .log()
            .contains("SIGHUP: the configuration was reloaded")
            .then_some(())
    });
    assert_eq!(member.get("/healthz").0, 200);
}

#[tokio::test]
async fn a_member_that_leaves_is_down_for_the_others_at_once() {
    let (mut a, b) = (
        Member::start_gossiping(RULES),
        Member::start_gossiping(RULES),
    );
    introduce(&[&a, &b]);
    a.terminate();
    assert_eq!(a.wait().code(), Some(0));
    let start = Instant::now();
    until("b knows", || {
        (b.snapshot()["gossip"]["peers"][0]["up"] == false).then_some(())
    });
    assert!(
        start.elapsed() < Duration::from_secs(2),
        "not by its time-out"
    );
}

#[test]
fn the_log_is_thinned() {
    let member = Member::start(RULES);
    member.scratch.file("gabiond.yaml", "limits: wrong\n");
    let reload = || assert_eq!(member.send("POST", "/reload", "").0, 409);
    let lines = || member.log().matches("was refused").count();
    let start = Instant::now();
    for _ in 0..30 {
        reload();
    }
    // On a machine so slow that a new window began, ten more are allowed.
    let windows = 1 + usize::try_from(start.elapsed().as_secs()).unwrap() / 10;
    assert!((10..=10 * windows).contains(&lines()), "{} lines", lines());
}

#[tokio::test]
async fn case_24_more_connections_than_the_usual_limit_of_files_are_held_and_others_served() {
    let member = Member::start(RULES);
    // This process needs files as well: as many as its own limit leaves it.
    let idle: Vec<TcpStream> = (0..900)
        .map_while(|_| TcpStream::connect(member.envoy).ok())
        .collect();
    assert!(idle.len() > 500, "{}", idle.len());
    let garbage: Vec<TcpStream> = (0..20)
        .map_while(|i| {
            let mut stream = TcpStream::connect(member.envoy).ok()?;
            let words: [&[u8]; 3] = [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x00", &[0xff; 512]];
            let _ = stream.write_all(words[i % 3]);
            Some(stream)
        })
        .collect();
    let answer = member
        .ask(request("edge", vec![descriptor(&[("ip", "a")])]))
        .await;
    assert_eq!(answer.overall_code(), Code::Ok);
    assert_eq!(member.get("/healthz").0, 200);
    drop((idle, garbage));
}

#[tokio::test]
async fn a_message_beyond_every_bound_is_an_error_of_the_call_and_no_more() {
    let member = Member::start(RULES);
    let huge = "x".repeat(5 << 20);
    let mut client = member.client().await;
    let status = client
        .should_rate_limit(request("edge", vec![descriptor(&[("ip", &huge)])]))
        .await
        .unwrap_err();
    assert_eq!(status.code(), tonic::Code::OutOfRange, "{status}");
    let answer = member
        .ask(request("edge", vec![descriptor(&[("ip", "a")])]))
        .await;
    assert_eq!(answer.overall_code(), Code::Ok);
}
