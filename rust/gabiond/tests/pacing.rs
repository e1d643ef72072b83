//! Rules with shares at real processes: what a member must be told, and what it tells.
#![allow(clippy::unwrap_used)] // a test fails by panicking

mod common;

use common::{introduce, run, until, Member, Scratch, PORTS};
use gabion_server::protocol::{descriptor, request, Code, RateLimitResponse};
use serde_json::Value;

const STRICT: &str =
    "{name: a, domain: d, rate: 40r/w, pace: strict, members: 4, descriptors: [{key: k}]}";

async fn ask(member: &Member) -> RateLimitResponse {
    let ask = request("d", vec![descriptor(&[("k", "x")])]);
    let answer = member.client().await.should_rate_limit(ask).await.unwrap();
    answer.into_inner()
}

#[test]
fn a_strict_rule_without_a_place_is_refused_with_what_to_write() {
    let scratch = Scratch::new();
    let file = scratch.file("c.yaml", &format!("{PORTS}limits: [{STRICT}]\n"));
    let out = run(&["check", file.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(!out.status.success(), "{said}");
    let wanted = "runtime: rule a is pace=strict, so each member has one part of its limit, and \
                  this one does not say which; set runtime.member_place";
    assert!(said.contains(wanted), "{said}");
    let placed = format!("{PORTS}runtime: {{member_place: 3}}\nlimits: [{STRICT}]\n");
    let file = scratch.file("d.yaml", &placed);
    let out = run(&["check", file.to_str().unwrap()]);
    assert!(out.status.success(), "{out:?}");
}

#[tokio::test]
async fn the_place_may_come_from_the_environment_as_that_of_a_stateful_set_does() {
    let place = [("GABION_RUNTIME_MEMBER_PLACE", "2")];
    let member = Member::start_with(&format!("{PORTS}limits: [{STRICT}]\n"), &place);
    assert_eq!(ask(&member).await.overall_code(), Code::OverLimit);
}

// spec: pace-7, pace-8
#[tokio::test]
async fn a_denial_on_a_share_says_so_in_headers_metadata_log_explain_and_metrics() {
    let config = format!(
        "runtime: {{member_place: 0}}\nresponse_headers: [denied, all]\nlog: {{format: json}}\n\
         limits: [{STRICT}]\n"
    );
    let member = Member::start(&config);
    // New counters do not know this week, so that every request is denied, though nothing is used.
    let answer = ask(&member).await;
    assert_eq!(answer.overall_code(), Code::OverLimit);
    let header = |name: &str| {
        let found = answer
            .response_headers_to_add
            .iter()
            .find(|h| h.key == name);
        found.map(|h| String::from_utf8_lossy(&h.value).into_owned())
    };
    assert_eq!(header("x-ratelimit-denied-on").as_deref(), Some("share"));
    assert_eq!(header("x-ratelimit-remaining").as_deref(), Some("0"));
    assert!(header("ratelimit").unwrap().ends_with(";share"));
    let metadata = answer.dynamic_metadata.as_ref().unwrap();
    assert!(metadata.fields.contains_key("on_share"), "{metadata:?}");
    let line = until("the line of the denial", || {
        let log = member.log();
        let lines = log
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok());
        let mut lines = lines.filter(|line: &Value| line["target"] == "gabion::denials");
        lines.next()
    });
    assert_eq!(
        (&line["on_share"], &line["used"]),
        (&true.into(), &0.into()),
        "{line}"
    );
    let said = run(&["explain", "--member", &member.admin.to_string(), "d", "k=x"]);
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(
        said.contains("denies on this member's share; the limit has room"),
        "{said}"
    );
    let (status, metrics) = member.get("/metrics");
    assert_eq!(status, 200);
    assert!(
        metrics.contains("\ngabion_table_share_denials_total 1\n"),
        "{metrics}"
    );
}

// spec: pace-10
#[test]
fn two_members_with_one_place_say_so() {
    let strict = format!("runtime: {{member_place: 1}}\nlimits: [{STRICT}]\n");
    let members = [
        Member::start_gossiping(&strict),
        Member::start_gossiping(&strict),
    ];
    introduce(&members.iter().collect::<Vec<_>>());
    for member in &members {
        until("the note", || {
            let log = member.log();
            let told = log.contains("DuplicatePlace") && log.contains("place: 1");
            told.then_some(())
        });
    }
}
