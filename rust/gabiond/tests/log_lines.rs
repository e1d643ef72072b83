//! What a rule says in the log in words of its own, on real members.
#![allow(clippy::unwrap_used)] // a test fails by panicking

mod common;

use common::{until, Member};
use gabion_server::protocol::{descriptor, request};

const REGISTRY: &str = "[api.rate_limit]\nglobal_rps = 1000\nper_ip_rps = 0.001\nburst = 2\n\
                        trusted_proxies = ['127.0.0.1']\n";

const ENTRIES: &str = "limits:\n- name: per_user\n  domain: edge\n  rate: 2r/h\n  descriptors: \
    [{key: user}, {key: path}]\n  log: {fields: [path]}\n- {name: watched, domain: edge, rate: \
    1r/h, descriptors: [{key: ip}], mode: dry_run, log: {message: too fast}}\n";

async fn ask(member: &Member, domain: &str, entries: &[(&str, &str)], times: usize) {
    let mut client = member.client().await;
    for _ in 0..times {
        let asked = request(domain, vec![descriptor(entries)]);
        client.should_rate_limit(asked).await.unwrap();
    }
}

/// A line of the log that holds this.
fn line(member: &Member, part: &str) -> String {
    until(part, || {
        let log = member.log();
        let line = log.lines().find(|line| line.contains(part));
        line.map(str::to_owned)
    })
}

#[tokio::test]
async fn a_registry_s_denial_names_the_client_and_the_path() {
    let scratch = common::Scratch::new();
    let block = scratch.file("registry.toml", REGISTRY);
    let config = format!(
        "{}log: {{format: logfmt}}\nrules_file: '{}'\n",
        common::PORTS,
        block.display()
    );
    let member = Member::start_with(&config, &[]);
    let pull = [
        ("peer", "127.0.0.1"),
        ("forwarded", "198.51.100.9, 203.0.113.50"),
        ("path", "/v2/myapp/manifests/latest?n=1"),
    ];
    ask(&member, "registry", &pull, 40).await;
    let denied = line(
        &member,
        " level=info msg=\"rate limit exceeded\" client_ip=203.0.113.50 \
         path=/v2/myapp/manifests/latest rule=registry_per_ip domain=registry ",
    );
    assert!(denied.ends_with(" target=gabion::denials"), "{denied}");
    // Thinned: 38 denials are a few lines, and what was left out is counted.
    let lines = member.log().matches("rate limit exceeded").count();
    assert!((1..38).contains(&lines), "{lines}");
    assert!(!member.log().contains("gabion::decisions"));
}

#[tokio::test]
async fn rules_that_match_whole_descriptors_show_their_entries() {
    let member = Member::start(&format!("{ENTRIES}log: {{format: json}}\n"));
    ask(&member, "edge", &[("user", "a"), ("path", "/x?q\"")], 3).await;
    ask(&member, "edge", &[("ip", "192.0.2.1")], 2).await;
    let denied = line(&member, "per_user");
    let denied: serde_json::Value = serde_json::from_str(&denied).unwrap();
    assert_eq!(
        (&denied["path"], &denied["message"]),
        (&"/x".into(), &"denied".into())
    );
    let watched = line(&member, "would be denied: too fast");
    assert!(watched.contains("\"rule\":\"watched\""), "{watched}");
    let hidden = Member::start(&format!("{ENTRIES}observe: {{values: hashed}}\n"));
    ask(&hidden, "edge", &[("user", "a"), ("path", "/secret")], 3).await;
    let denied = line(&hidden, "denied path=");
    assert!(
        denied.contains("denied path=\"#") && !denied.contains("secret"),
        "{denied}"
    );
}

#[tokio::test]
async fn every_decision_is_shown_to_who_wants_them_all() {
    let config = format!("{}{ENTRIES}log: {{format: logfmt}}\n", common::PORTS);
    let only = [("GABION_LOG", "info,gabion::decisions=debug")];
    let member = Member::start_with(&config, &only);
    ask(&member, "edge", &[("user", "a"), ("path", "/x")], 30).await;
    let shown = |message: &str| {
        let start = format!(" level=debug msg={message} path=/x rule=per_user domain=edge ");
        member.log().matches(&start).count()
    };
    until("all decisions are in the log", || {
        (shown("allowed") == 2 && shown("denied") == 28).then_some(())
    });
}
