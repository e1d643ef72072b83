//! What a switch from the Envoy project's reference service relies on, asked over real gRPC.
#![allow(clippy::unwrap_used)] // a test fails by panicking

mod common;

use std::io::Write as _;
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use common::{
    codes, ended_with, gabiond, http_post as post, mounted, remount, run, Member, Scratch,
};
use gabion_server::config::{read_directory, Reading};
use gabion_server::protocol::{descriptor, request, Code, RateLimitResponse, Unit};

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

/// A directory like those of the reference service, in a configuration of our own.
const MAIL: &str = "
domain: mail
descriptors:
- key: kind
  value: promo
  descriptors:
  - {key: to, rate_limit: {unit: day, requests_per_unit: 2}}
- {key: to, rate_limit: {unit: day, requests_per_unit: 3}}
- {key: file, value: pub/*, share_threshold: true, rate_limit: {unit: day, requests_per_unit: 2}}
- {key: seen, rate_limit: {unit: day, requests_per_unit: 1}, shadow_mode: true}
- {key: shut, rate_limit: {unit: minute, requests_per_unit: 0}}
- {key: free, rate_limit: {unlimited: true}}
";

fn directory(files: &[(&str, &str)]) -> Scratch {
    let scratch = Scratch::new();
    for (name, text) in files {
        let path = scratch.0.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    scratch
}

fn serving(directory: &Path) -> Member {
    let directory = directory.display();
    let json = "json_bind: 127.0.0.1:0\n";
    Member::start(&format!("{json}reference: {{directory: '{directory}'}}\n"))
}

/// `POST path` with a body: status and body.
/// An address out of a ports file.
fn port(ports: &Path, name: &str) -> SocketAddr {
    let text = std::fs::read_to_string(ports).unwrap();
    let ports: serde_json::Value = serde_json::from_str(&text).unwrap();
    ports[name].as_str().unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_directory_of_the_reference_service_is_served_as_it_is() {
    let files = directory(&[("mail.yaml", MAIL)]);
    let member = serving(&files.0);
    let ask = |entries: &'static [(&'static str, &'static str)]| {
        let member = &member;
        async move {
            let answer = member.ask(request("mail", vec![descriptor(entries)])).await;
            (answer.overall_code(), answer.statuses[0].clone())
        }
    };
    let promo: &[_] = &[("kind", "promo"), ("to", "1")];
    for (code, left) in [(OK, 1), (OK, 0), (OVER, 0)] {
        let (said, status) = ask(promo).await;
        assert_eq!((said, status.limit_remaining), (code, left));
        let limit = status.current_limit.unwrap();
        assert_eq!((limit.requests_per_unit, limit.unit()), (2, Unit::Day));
        assert_eq!(&limit.name[..], b"kind_promo.to");
    }
    assert_eq!(ask(&[("to", "1")]).await.1.limit_remaining, 2);
    assert_eq!(ask(&[("file", "pub/a")]).await.0, OK);
    assert_eq!(ask(&[("file", "pub/b")]).await.0, OK);
    assert_eq!(ask(&[("file", "pub/c")]).await.0, OVER);
    for _ in 0..3 {
        assert_eq!(ask(&[("seen", "x")]).await.0, OK);
        let (code, status) = ask(&[("free", "x")]).await;
        assert_eq!((code, status.limit_remaining), (OK, u32::MAX));
        let (code, status) = ask(&[("shut", "x")]).await;
        let limit = status.current_limit.unwrap();
        assert_eq!((code, limit.requests_per_unit), (OVER, 0));
        assert_eq!(limit.unit(), Unit::Minute);
    }
    assert_eq!(ask(&[("other", "x")]).await.1.limit_remaining, 0);
}

#[test]
fn the_json_door_answers_with_its_status_codes() {
    let files = directory(&[("mail.yaml", MAIL)]);
    let member = serving(&files.0);
    let json = port(&member.scratch.0.join("ports.json"), "json");
    let body = r#"{"domain": "mail", "hitsAddend": 2, "descriptors":
        [{"entries": [{"key": "to", "value": "9"}]}, {"entries": [{"key": "free"}]}]}"#;
    let (status, answer) = post(json, "/json", body);
    assert_eq!(status, 200, "{answer}");
    let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer["overallCode"], "OK");
    let first = &answer["statuses"][0];
    assert_eq!(first["code"], "OK");
    assert_eq!(first["limitRemaining"], 1);
    assert_eq!(first["currentLimit"]["requestsPerUnit"], 3);
    assert_eq!(first["currentLimit"]["unit"], "DAY");
    let reset = first["durationUntilReset"].as_str().unwrap();
    assert!(reset.ends_with('s'), "{reset}");
    assert_eq!(answer["statuses"][1]["limitRemaining"], u32::MAX);
    let (status, answer) = post(json, "/json", &body.replace("hitsAddend", "hits_addend"));
    assert_eq!(status, 429, "{answer}");
    let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer["overallCode"], "OVER_LIMIT");
    assert_eq!(answer["statuses"][0]["code"], "OVER_LIMIT");
    for wrong in [
        "",
        "{",
        "{\"domain\": \"mail\"}",
        "{\"descriptors\": [{}]}",
        "{\"x\": 1}",
    ] {
        let (status, answer) = post(json, "/json", wrong);
        assert_eq!(status, 400, "{wrong}: {answer}");
        assert!(answer.starts_with("Bad Request: "), "{answer}");
    }
    common::until("it is ready", || {
        (common::http_get(json, "/healthcheck") == (200, "OK".to_owned())).then_some(())
    });
    assert_eq!(common::http_get(json, "/json").0, 405);
}

#[test]
fn case_04_each_file_of_a_mounted_config_map_is_read_once() {
    let other = MAIL.replace("domain: mail", "domain: other");
    let files = mounted(&[("mail.yaml", MAIL), ("other.yml", &other)], "1");
    // A second name of a file, a hidden one, and what is no configuration.
    symlink(files.0.join("mail.yaml"), files.0.join("again.yaml")).unwrap();
    files.file("README", "not read");
    let reading = Reading::default();
    let found = read_directory(&files.0, reading).unwrap();
    assert_eq!(found.policy.rules.len(), 12, "{:#?}", found.policy.rules);
    assert_eq!(found.watched, std::slice::from_ref(&files.0));
    assert!(
        found.notices[0].contains("README: not read"),
        "{:?}",
        found.notices
    );
    files.file(
        ".hidden.yaml",
        &MAIL.replace("domain: mail", "domain: hidden"),
    );
    assert_eq!(
        read_directory(&files.0, reading)
            .unwrap()
            .policy
            .rules
            .len(),
        18
    );
    let reading = Reading {
        ignore_dot_files: true,
        ..reading
    };
    assert_eq!(
        read_directory(&files.0, reading)
            .unwrap()
            .policy
            .rules
            .len(),
        12
    );
}

#[test]
fn case_06_what_is_no_configuration_gives_a_clear_error() {
    let wrong = |files: &[(&str, &str)]| {
        let files = directory(files);
        let path = files.0.display().to_string();
        let output = run(&["import", &path]);
        ended_with(&output, 1).replace(&path, "DIR")
    };
    assert!(wrong(&[]).contains("DIR: no file in it ends in .yaml or .yml"));
    let said = wrong(&[("a.yaml", ""), ("sub/b.yaml", "domain: d\nx: 1\n")]);
    assert!(said.contains("DIR/a.yaml:1:1: the file is empty"), "{said}");
    assert!(
        said.contains("DIR/sub/b.yaml:2:1: x: this key is not known"),
        "{said}"
    );
    let said = ended_with(&run(&["import", "/no/such/directory"]), 1);
    assert!(
        said.contains("/no/such/directory: the directory cannot be read"),
        "{said}"
    );
    let files = directory(&[("a.yaml", MAIL)]);
    let said = ended_with(
        &run(&["import", &files.0.join("a.yaml").display().to_string()]),
        1,
    );
    assert!(
        said.contains("a.yaml: the directory cannot be read"),
        "{said}"
    );
    std::fs::write(files.0.join("b.yaml"), b"domain: \xFF\n").unwrap();
    let said = ended_with(&run(&["import", &files.0.display().to_string()]), 1);
    assert!(said.contains("b.yaml:1:9: the file is not UTF-8"), "{said}");
    std::fs::remove_file(files.0.join("b.yaml")).unwrap();
    symlink("nowhere", files.0.join("c.yaml")).unwrap();
    let said = ended_with(&run(&["import", &files.0.display().to_string()]), 1);
    assert!(said.contains("c.yaml: it cannot be read"), "{said}");
}

#[tokio::test]
async fn the_imported_file_answers_as_the_directory_does() {
    let files = directory(&[("mail.yaml", MAIL)]);
    let output = run(&["import", files.0.to_str().unwrap()]);
    ended_with(&output, 0);
    let native = String::from_utf8(output.stdout).unwrap();
    let members = [serving(&files.0), Member::start(&native)];
    let all: [&[(&str, &str)]; 6] = [
        &[("kind", "promo"), ("to", "1")],
        &[("to", "1"), ("kind", "promo")],
        &[("file", "pub/1")],
        &[("file", "pub/2")],
        &[("shut", "1")],
        &[("free", "1")],
    ];
    for _ in 0..3 {
        for entries in all {
            let request = || request("mail", vec![descriptor(entries)]);
            let first = members[0].ask(request()).await;
            let second = members[1].ask(request()).await;
            assert_eq!(
                first.statuses[0].code, second.statuses[0].code,
                "{entries:?}"
            );
            assert_eq!(
                first.statuses[0].current_limit, second.statuses[0].current_limit,
                "{entries:?}"
            );
        }
    }
    let identities = |member: &Member| {
        let snapshot = member.snapshot();
        let rules = snapshot["rules"].as_array().unwrap().clone();
        rules
            .iter()
            .map(|rule| rule["identity"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(identities(&members[0]), identities(&members[1]));
}

/// Starts the binary with these arguments and variables; its ports once they are bound.
fn launch(arguments: &[&str], variables: &[(&str, &str)], scratch: &Scratch) -> (Child, PathBuf) {
    let ports = scratch.0.join("ports.json");
    let mut child = gabiond()
        .args(arguments)
        .arg("--ports-file")
        .arg(&ports)
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .stderr(std::fs::File::create(scratch.0.join("log")).unwrap())
        .spawn()
        .unwrap();
    let log = || std::fs::read_to_string(scratch.0.join("log")).unwrap();
    common::until("the ports file", || {
        let ended = child.try_wait().unwrap();
        assert!(ended.is_none(), "{ended:?}\n{}", log());
        ports.exists().then_some(())
    });
    (child, ports)
}

#[test]
fn a_directory_or_the_reference_services_environment_is_enough() {
    let files = directory(&[("ratelimit/config/mail.yaml", MAIL)]);
    let root = files.0.to_str().unwrap();
    let own = Scratch::new();
    let loopback = [
        ("GABION_ENVOY_BIND", "127.0.0.1:0"),
        ("GABION_ADMIN_BIND", "127.0.0.1:0"),
        ("GABION_JSON_BIND", "127.0.0.1:0"),
    ];
    let (mut child, ports) = launch(&["--reference", root], &loopback, &own);
    let ask = |ports: &Path| {
        let body = r#"{"domain":"mail","descriptors":[{"entries":[{"key":"shut"}]}]}"#;
        post(port(ports, "json"), "/json", body).0
    };
    assert_eq!(ask(&ports), 429);
    child.kill().unwrap();
    child.wait().unwrap();
    let own = Scratch::new();
    let environment = [
        ("RUNTIME_ROOT", root),
        ("RUNTIME_SUBDIRECTORY", "ratelimit"),
        ("GRPC_HOST", "127.0.0.1"),
        ("GRPC_PORT", "0"),
        ("HOST", "127.0.0.1"),
        ("PORT", "0"),
        ("GABION_ADMIN_BIND", "off"),
        ("REDIS_URL", "localhost:6379"),
    ];
    let (mut child, ports) = launch(&["--reference-env"], &environment, &own);
    assert_eq!(ask(&ports), 429);
    child.kill().unwrap();
    child.wait().unwrap();
    let log = std::fs::read_to_string(own.0.join("log")).unwrap();
    assert!(
        log.contains("these variables have no meaning here: REDIS_URL"),
        "{log}"
    );
}

/// Reloads so far: done and refused.
fn reloads(member: &Member) -> (u64, u64) {
    let reloads = member.snapshot()["config"]["reloads"].clone();
    (
        reloads["done"].as_u64().unwrap(),
        reloads["refused"].as_u64().unwrap(),
    )
}

/// The limit that `("k", value)` of a domain meets, as the configuration in force has it.
async fn limit_of(member: &Member, domain: &str) -> u32 {
    let answer = member
        .ask(request(domain, vec![descriptor(&[("k", "x")])]))
        .await;
    let limit = answer.statuses[0].current_limit.clone();
    limit.map_or(0, |limit| limit.requests_per_unit)
}

fn limit(domain: &str, requests: u32) -> String {
    let limit = format!("{{unit: day, requests_per_unit: {requests}}}");
    format!("domain: {domain}\ndescriptors:\n- {{key: k, rate_limit: {limit}}}\n")
}

/// Makes a change and waits until it is in force.
fn change(member: &Member, make: impl FnOnce()) {
    let before = reloads(member).0;
    make();
    common::until("the change is in force", || {
        (reloads(member).0 > before).then_some(())
    });
}

#[tokio::test]
async fn case_05_every_way_to_change_a_file_is_taken_up_once_and_whole() {
    let files = directory(&[
        ("a.yaml", &limit("a", 1_001)),
        ("sub/b.yaml", &limit("b", 2_001)),
    ]);
    let member = serving(&files.0);
    assert_eq!(limit_of(&member, "b").await, 2_001);
    let (a, b) = (files.0.join("a.yaml"), files.0.join("sub/b.yaml"));
    change(&member, || {
        let part = files.0.join("a.part");
        std::fs::write(&part, limit("a", 1_002)).unwrap();
        std::fs::rename(&part, &a).unwrap();
    });
    assert_eq!(limit_of(&member, "a").await, 1_002, "by rename");
    change(&member, || {
        // Emptied, and written in two parts; half of it would be another limit.
        let text = limit("b", 2_002);
        let (head, tail) = text.split_at(text.len() - 4);
        let mut file = std::fs::File::create(&b).unwrap();
        file.write_all(head.as_bytes()).unwrap();
        file.write_all(tail.as_bytes()).unwrap();
    });
    assert_eq!(
        limit_of(&member, "b").await,
        2_002,
        "in place, below the directory"
    );
    change(&member, || {
        std::fs::write(files.0.join("c.yaml"), limit("c", 3_001)).unwrap()
    });
    assert_eq!(limit_of(&member, "c").await, 3_001, "a new file");
    change(&member, || std::fs::remove_file(&a).unwrap());
    assert_eq!(limit_of(&member, "a").await, 0, "a file that is gone");
    // A machine that stalls between the two writes lets half a file be seen, which is refused.
    let (done, refused) = reloads(&member);
    assert_eq!(done, 4, "each change once");
    std::fs::write(&b, "domain: c\n").unwrap();
    common::until("the second domain c is refused", || {
        (reloads(&member).1 == refused + 1).then_some(())
    });
    assert_eq!(
        limit_of(&member, "b").await,
        2_002,
        "what was in force stays"
    );
    let log = member.log();
    assert!(log.contains("domain c is already given at"), "{log}");
    assert_eq!(
        log.matches("domain c is already").count(),
        1,
        "one line: {log}"
    );
}

#[tokio::test]
async fn case_05_a_swapped_config_map_or_root_is_taken_up_at_once() {
    let files = mounted(
        &[("a.yaml", &limit("a", 1)), ("b.yaml", &limit("b", 2))],
        "1",
    );
    let member = serving(&files.0);
    assert_eq!(limit_of(&member, "a").await, 1);
    let next = [("a.yaml", &*limit("a", 11)), ("b.yaml", &*limit("b", 12))];
    change(&member, || remount(&files, &next, "2"));
    assert_eq!(
        (limit_of(&member, "a").await, limit_of(&member, "b").await),
        (11, 12)
    );
    assert_eq!(reloads(&member), (1, 0), "both files at once");
    // The way of the reference service: a root that is a link to one of several versions.
    let one = directory(&[("config/a.yaml", &limit("a", 1))]);
    let two = directory(&[("config/a.yaml", &limit("a", 2))]);
    let root = Scratch::new();
    let current = root.0.join("current");
    symlink(&one.0, &current).unwrap();
    let member = serving(&current.join("config"));
    assert_eq!(limit_of(&member, "a").await, 1);
    change(&member, || {
        let next = root.0.join("next");
        symlink(&two.0, &next).unwrap();
        std::fs::rename(next, &current).unwrap();
    });
    assert_eq!(limit_of(&member, "a").await, 2);
}
