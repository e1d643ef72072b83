//! What the admin server shows, and to whom, on real members.
#![allow(clippy::unwrap_used)] // a test fails by panicking

mod common;

use common::{introduce, until, Member};
use gabion_server::protocol::{descriptor, request, Code};
use serde_json::Value;

const RULES: &str = "limits:\n\
    - {name: ip, domain: edge, rate: 100r/h, descriptors: [{key: ip}]}\n\
    - {name: tight, domain: edge, rate: 2r/h, descriptors: [{key: user}]}\n";

fn json(member: &Member, path: &str) -> (u16, Value) {
    let (status, body) = member.get(path);
    let value = serde_json::from_str(&body).unwrap_or_else(|_| panic!("{path}: {body}"));
    (status, value)
}

async fn ask(member: &Member, key: &str, value: &str, times: usize) {
    let mut client = member.client().await;
    for _ in 0..times {
        let asked = request("edge", vec![descriptor(&[(key, value)])]);
        client.should_rate_limit(asked).await.unwrap();
    }
}

#[tokio::test]
async fn rules_are_listed_as_configured_with_counts_and_fill() {
    let member = Member::start(RULES);
    ask(&member, "user", "a", 3).await;
    ask(&member, "user", "b", 1).await;
    let (status, rules) = json(&member, "/rules");
    assert_eq!((status, rules.as_array().unwrap().len()), (200, 2));
    let (_, tight) = json(&member, "/rules?rule=tight&domain=edge");
    assert_eq!(tight.as_array().unwrap().len(), 1);
    let tight = &tight[0];
    assert_eq!(
        (&tight["name"], &tight["limit"]),
        (&"tight".into(), &2.into())
    );
    assert_eq!(tight["counts"]["allowed"], 3);
    assert_eq!(tight["counts"]["denied"], 1);
    assert_eq!(
        (&tight["live_keys"], &tight["live_keys_exact"]),
        (&2.into(), &true.into())
    );
    assert!(tight["capacity_keys"].as_u64().unwrap() > 1_000);
    let (status, error) = json(&member, "/rules?rule=tigth");
    assert_eq!(status, 404);
    assert!(
        error["error"]
            .as_str()
            .unwrap()
            .contains("did you mean `tight`?"),
        "{error}"
    );
    let (status, error) = json(&member, "/rules?name=tight");
    assert_eq!(status, 400, "{error}");
}

#[tokio::test]
async fn the_most_used_keys_come_first_with_their_counters() {
    let member = Member::start(&format!("{RULES}observe: {{sample: 1}}\n"));
    ask(&member, "ip", "10.0.0.1", 30).await;
    ask(&member, "ip", "10.0.0.2", 50).await;
    ask(&member, "ip", "10.0.0.3", 5).await;
    ask(&member, "user", "x", 5).await;
    let (status, keys) = json(&member, "/keys?rule=ip&top=2");
    assert_eq!(status, 200, "{keys}");
    let ip = &keys["rules"][0];
    assert_eq!((&ip["rule"], &ip["keys_held"]), (&"ip".into(), &3.into()));
    let shown = ip["keys"].as_array().unwrap();
    assert_eq!(shown.len(), 2);
    assert_eq!(
        (&shown[0]["key"], &shown[0]["hits"]),
        (&"ip=10.0.0.2".into(), &50.into())
    );
    assert_eq!(
        (&shown[0]["used"], &shown[0]["limit"]),
        (&50.into(), &100.into())
    );
    assert_eq!(shown[1]["key"], "ip=10.0.0.1");
    let (_, keys) = json(&member, "/keys?rule=tight");
    let key = &keys["rules"][0]["keys"][0];
    assert_eq!((&key["over_limit"], &key["used"]), (&3.into(), &2.into()));
    assert_eq!(json(&member, "/keys").0, 400);
    assert_eq!(json(&member, "/keys?rule=nobody").0, 404);
}

#[tokio::test]
async fn keys_can_be_hidden_or_not_kept_at_all() {
    let hashed = Member::start(&format!("{RULES}observe: {{sample: 1, values: hashed}}\n"));
    ask(&hashed, "user", "alice@example.com", 4).await;
    let (_, keys) = json(&hashed, "/keys?rule=tight");
    assert_eq!(keys["values"], "hashed");
    let key = keys["rules"][0]["keys"][0]["key"].as_str().unwrap();
    assert!(key.starts_with("user=#"), "{key}");
    until("the denial is in the log", || {
        hashed.log().contains("denied rule=\"tight\"").then_some(())
    });
    let log = hashed.log();
    assert!(
        log.contains("key=\"user=#") && !log.contains("alice"),
        "{log}"
    );
    let off = Member::start(&format!("{RULES}observe: {{keys: false}}\n"));
    assert_eq!(json(&off, "/keys?rule=ip").0, 404);
}

#[tokio::test]
async fn denials_are_logged_thinned_in_the_form_that_is_set() {
    let settings = "log: {format: json, denials: 2}\n";
    let member = Member::start(&format!("{RULES}{settings}"));
    ask(&member, "user", "a\nb", 50).await;
    let lines = until("a denial is in the log", || {
        let lines: Vec<Value> = member
            .log()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}")))
            .filter(|line: &Value| line["target"] == "gabion::denials")
            .collect();
        (!lines.is_empty()).then_some(lines)
    });
    assert_eq!(lines[0]["message"], "denied");
    assert_eq!(
        (&lines[0]["rule"], &lines[0]["domain"]),
        (&"tight".into(), &"edge".into())
    );
    assert_eq!(lines[0]["key"], "user=a\\x0ab", "no line can be forged");
    assert_eq!(
        (&lines[0]["limit"], &lines[0]["used"]),
        (&2.into(), &2.into())
    );
    assert!((1..=3_600).contains(&lines[0]["reset_s"].as_u64().unwrap()));
    // 48 denials within some seconds, two lines in each: what was not written is counted.
    let page = common::prometheus::parse(&member.get("/metrics").1);
    let of = |log: &str| {
        let labels = vec![("log".to_owned(), log.to_owned())];
        page["gabion_denials_total"].series[&("gabion_denials_total".to_owned(), labels)]
    };
    assert_eq!(of("written") + of("thinned"), 48.0);
    assert!(of("thinned") > 0.0 && of("written") >= 2.0);
}

#[tokio::test]
async fn the_form_of_lines_can_be_set_by_variable_and_by_flag() {
    let config = format!("{}{RULES}", common::PORTS);
    let member = Member::start_with(&config, &[("GABION_LOG_FORMAT", "logfmt")]);
    let log = member.log();
    assert!(log.contains(" level=info msg="), "{log}");
    assert!(log.contains(" target=gabion_server::server\n"), "{log}");
    let output = common::run(&["--log-format", "xml", "x.yaml"]);
    assert!(common::ended_with(&output, 2).contains("text, json, logfmt"));
}

#[test]
fn pages_of_other_origins_and_wrong_names_are_sent_away() {
    let member = Member::start(RULES);
    let (status, head, body) = member.send("GET", "/snapshot", "Host: evil.example\r\n");
    assert_eq!(status, 421, "{body}");
    assert!(
        head.contains("application/json") && body.contains("Host header"),
        "{head}{body}"
    );
    let (status, _, _) = member.send("GET", "/snapshot", "Host: localhost:1\r\n");
    assert_eq!(status, 200);
    let (status, _, body) = member.send("GET", "/", "");
    assert_eq!(status, 200);
    for page in body.lines().filter_map(|line| line.strip_prefix("GET  ")) {
        let page = page.split(' ').next().unwrap();
        let (status, _, body) = member.send("GET", page, "");
        assert!([200, 400].contains(&status), "{page}: {status} {body}");
    }
    let written = body.lines().filter_map(|line| line.strip_prefix("POST "));
    for page in written.map(|page| page.split(['?', ' ']).next().unwrap()) {
        assert_eq!(member.send("PUT", page, "").0, 405, "{page}");
    }
    assert_eq!(member.send("GET", "/nothing", "").0, 404);
    assert_eq!(
        member.send("POST", "/metrics", "Content-Length: 0\r\n").0,
        405
    );
}

fn post(member: &Member, path: &str) -> (u16, Value) {
    let (status, _, body) = member.send("POST", path, "Content-Length: 0\r\n");
    let value = serde_json::from_str(&body).unwrap_or_else(|_| panic!("{path}: {body}"));
    (status, value)
}

async fn code(member: &Member, user: &str) -> Code {
    let asked = request("edge", vec![descriptor(&[("user", user)])]);
    member.ask(asked).await.overall_code()
}

async fn used_up(member: &Member, user: &str) {
    while code(member, user).await == Code::Ok {}
}

#[tokio::test]
async fn a_limiter_is_reset_on_every_member_and_one_counter_here() {
    let members = [
        Member::start_gossiping(RULES),
        Member::start_gossiping(RULES),
    ];
    introduce(&[&members[0], &members[1]]);
    used_up(&members[0], "a").await;
    used_up(&members[0], "b").await;
    // One counter, on one member.
    let (status, answer) = post(&members[0], "/reset?limiter=tight&entry=user=a");
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["reach"], "local");
    assert_eq!(answer["counters"][0]["result"], "forgotten");
    assert!(answer["message"]
        .as_str()
        .unwrap()
        .contains("this member only"));
    assert_eq!(code(&members[0], "a").await, Code::Ok);
    assert_eq!(code(&members[0], "b").await, Code::OverLimit);
    let (_, answer) = post(&members[0], "/reset?limiter=tight&entry=user=nobody");
    assert_eq!(answer["counters"][0]["result"], "nothing was counted here");
    // All, everywhere.
    let (status, answer) = post(&members[1], "/reset?limiter=tight");
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["resets"][0]["reach"], "cluster");
    assert_eq!(answer["resets"][0]["domain"], "edge");
    let start = std::time::Instant::now();
    while code(&members[0], "b").await != Code::Ok {
        assert!(
            start.elapsed() < common::PATIENCE,
            "the reset did not arrive"
        );
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    for (path, status, says) in [
        ("/reset", 400, "which limiter?"),
        ("/reset?limiter=tigth", 404, "did you mean tight?"),
        (
            "/reset?limiter=tight&domain=other",
            404,
            "no rule of domain other",
        ),
        ("/reset?limiter=tight&limiter=ip", 400, "twice"),
        ("/reset?limiter=tight&key=a", 400, "`key` is not known"),
        ("/reset?limiter=tight&entry=user", 400, "no `=`"),
        (
            "/reset?limiter=tight&entry=ip=1",
            404,
            "no rule of that limiter",
        ),
    ] {
        let (found, answer) = post(&members[0], path);
        let error = answer["error"].as_str().unwrap();
        assert!(
            found == status && error.contains(says),
            "{path}: {found} {error}"
        );
    }
}

#[tokio::test]
async fn a_member_alone_resets_itself_and_says_so() {
    let member = Member::start(&format!("{RULES}observe: {{sample: 1}}\n"));
    used_up(&member, "a").await;
    let (_, answer) = post(&member, "/reset?limiter=tight&domain=edge");
    assert_eq!(answer["resets"][0]["reach"], "local");
    let (_, keys) = json(&member, "/keys?rule=tight");
    assert_eq!(
        keys["rules"][0]["keys_held"], 0,
        "keys of the old era are gone: {keys}"
    );
    assert_eq!(code(&member, "a").await, Code::Ok);
    let (_, keys) = json(&member, "/keys?rule=tight");
    assert_eq!(keys["rules"][0]["keys"][0]["used"], 1);
}

#[tokio::test]
async fn a_flag_is_shown_and_set() {
    let config = "flags: {trial: {default: off}}\nlimits:\n\
        - {name: t, domain: edge, rate: 1r/h, descriptors: [{key: user}], if_flag: trial}\n";
    let member = Member::start(config);
    used_up_or(&member, "a", 5).await;
    let (status, flag) = json(&member, "/flags/trial");
    assert_eq!(
        (status, &flag["value"], &flag["set"]),
        (200, &"off".into(), &Value::Null)
    );
    let (status, answer) = post(&member, "/flags/trial?value=on");
    assert_eq!(
        (status, &answer["reach"]),
        (200, &"local".into()),
        "{answer}"
    );
    assert!(answer["message"]
        .as_str()
        .unwrap()
        .contains("this member only"));
    assert_eq!(code(&member, "a").await, Code::Ok);
    assert_eq!(code(&member, "a").await, Code::OverLimit);
    assert_eq!(json(&member, "/flags").1[0]["value"], "on");
    assert_eq!(post(&member, "/flags/trial?value=25%25").0, 200);
    assert_eq!(json(&member, "/flags/trial").1["set"], "25%");
    assert_eq!(post(&member, "/flags/trial?value=default").0, 200);
    assert_eq!(json(&member, "/flags/trial").1["set"], Value::Null);
    for (path, status) in [
        ("/flags/trial", 400),
        ("/flags/trial?value=maybe", 400),
        ("/flags/trial?value=101%25", 400),
        ("/flags/trail?value=on", 404),
    ] {
        assert_eq!(post(&member, path).0, status, "{path}");
    }
    assert_eq!(json(&member, "/flags/trail").0, 404);
}

/// A rule whose flag is off denies nothing.
async fn used_up_or(member: &Member, user: &str, times: usize) {
    for _ in 0..times {
        assert_eq!(code(member, user).await, Code::Ok);
    }
}

#[test]
fn writing_asks_for_the_token() {
    let scratch = common::Scratch::new();
    let file = scratch.file("token", "0123456789abcdef\nsecond line\n");
    let config = format!(
        "{}{RULES}admin_token_file: '{}'\n",
        common::PORTS,
        file.display()
    );
    let member = Member::start_with(&config, &[]);
    let (status, head, body) = member.send("POST", "/reset?limiter=tight", "");
    assert_eq!(status, 401);
    assert!(head.contains("www-authenticate: Bearer"), "{head}");
    assert!(body.contains("admin_token_file"), "{body}");
    let with = |token: &str| {
        let header = format!("Authorization: Bearer {token}\r\n");
        member.send("POST", "/reset?limiter=tight", &header).0
    };
    assert_eq!(with("0123456789abcdeg"), 401);
    assert_eq!(with("0123456789abcdef"), 200);
    // Another token in the same file is taken up by itself, by whichever way it comes.
    let part = scratch.file("part", "fedcba9876543210\n");
    std::fs::rename(part, &file).unwrap();
    until("the new token", || {
        (with("fedcba9876543210") == 200).then_some(())
    });
    assert_eq!(with("0123456789abcdef"), 401);
    assert!(
        !member.log().contains("0123456789"),
        "the token is never logged"
    );
    let short = scratch.file("short", "abc\n");
    let config = format!(
        "{}{RULES}admin_token_file: '{}'\n",
        common::PORTS,
        short.display()
    );
    let path = scratch.file("short.yaml", &config);
    let said = common::ended_with(&common::run(&["check", common::text(&path)]), 1);
    assert!(
        said.contains("admin_token_file") && said.contains("16 visible"),
        "{said}"
    );
}
