//! Reloads of real processes: what changes, what stays, what is said.
#![allow(clippy::unwrap_used)] // a test fails by panicking

mod common;

use std::path::Path;

use common::{introduce, mounted, remount, until, Member, Scratch, GOSSIP, PORTS};
use gabion_server::protocol::{descriptor, request, Code};

const TEN: &str = "{name: a, domain: d, rate: 10r/d, descriptors: [{key: k}]}";
const TWENTY: &str = "{name: a, domain: d, rate: 20r/d, descriptors: [{key: k}]}";
const OTHER: &str = "{name: b, domain: d, rate: 3r/d, descriptors: [{key: other}]}";

fn config(limits: &[&str]) -> String {
    format!("{PORTS}limits: [{}]\n", limits.join(", "))
}

fn path(member: &Member) -> std::path::PathBuf {
    member.scratch.0.join("gabiond.yaml")
}

/// Puts a file in place by rename, as an editor or a deployment does.
fn put(at: &Path, text: &str) {
    let part = at.with_extension("part");
    std::fs::write(&part, text).unwrap();
    std::fs::rename(part, at).unwrap();
}

fn done(member: &Member) -> u64 {
    member.snapshot()["config"]["reloads"]["done"]
        .as_u64()
        .unwrap()
}

fn refused(member: &Member) -> u64 {
    member.snapshot()["config"]["reloads"]["refused"]
        .as_u64()
        .unwrap()
}

/// Changes the file and waits until it is in force.
fn reload(member: &Member, text: &str) {
    let before = done(member);
    put(&path(member), text);
    common::signal(&member.child, "HUP");
    until("the reload is done", || {
        (done(member) > before).then_some(())
    });
}

/// Hits that pass before the first denial.
async fn room(member: &Member, key: &str, value: &str) -> u32 {
    room_for(member, &[(key, value)]).await
}

async fn room_for(member: &Member, entries: &[(&str, &str)]) -> u32 {
    let mut client = member.client().await;
    for passed in 0.. {
        let ask = request("d", vec![descriptor(entries)]);
        let answer = client.should_rate_limit(ask).await.unwrap().into_inner();
        if answer.overall_code() != Code::Ok {
            return passed;
        }
        assert!(passed < 1_000, "it never denies");
    }
    0
}

#[tokio::test]
async fn case_07_a_raised_limit_gives_the_difference_and_a_lowered_one_denies_at_once() {
    let member = Member::start(&format!("limits: [{TEN}]\n"));
    assert_eq!(room(&member, "k", "x").await, 10);
    reload(&member, &config(&[TWENTY]));
    let log = member.log();
    let line = "rule a of domain d: rate 10r/d -> 20r/d; its counts are kept";
    assert!(log.contains(line), "{log}");
    assert!(log.contains("all counters stay"), "{log}");
    assert_eq!(room(&member, "k", "x").await, 10);
    // Another rule beside it needs another table.
    reload(&member, &config(&[OTHER, TEN]));
    let log = member.log();
    assert!(log.contains("rule b of domain d: added"), "{log}");
    assert!(log.contains("the counts of 1 keys were carried"), "{log}");
    assert_eq!(room(&member, "k", "x").await, 0);
    assert_eq!(room(&member, "k", "y").await, 10);
    assert_eq!(room(&member, "other", "x").await, 3);
    reload(&member, &config(&[TEN]));
    assert!(member.log().contains("rule b of domain d: removed"));
    assert_eq!(room(&member, "k", "y").await, 0);
    // What the rule said goes on, whatever the table.
    let rule = &member.snapshot()["rules"][0];
    assert_eq!(rule["counts"]["allowed"], 30, "{rule}");
}

#[tokio::test]
async fn case_04_a_mounted_config_map_and_secret_are_taken_up_when_they_are_swapped() {
    let key = |id: u32, byte: &str| format!("{id}:{}\n", byte.repeat(32));
    let policy = mounted(&[("policy.yaml", &format!("limits: [{TEN}]\n"))], "1");
    let keys = mounted(&[("gossip.keys", &key(1, "ab"))], "1");
    let member = Member::start(&format!(
        "rules_file: {}/policy.yaml\n\
         gossip: {{bind: '127.0.0.1:0', cluster_id: t, auth_key_file: {}/gossip.keys}}\n",
        policy.0.display(),
        keys.0.display()
    ));
    assert_eq!(room(&member, "k", "x").await, 10);
    // Nobody says so: a kubelet only swaps the link, and removes the old version.
    let swap = |volume: &Scratch, name: &str, text: &str, version: &str, wanted: u64| {
        remount(volume, &[(name, text)], version);
        until("it is taken up", || {
            (done(&member) + refused(&member) >= wanted).then_some(())
        });
    };
    swap(
        &policy,
        "policy.yaml",
        &format!("limits: [{TWENTY}]\n"),
        "2",
        1,
    );
    std::fs::remove_dir_all(policy.0.join("..2026_1")).unwrap();
    assert_eq!(room(&member, "k", "x").await, 10);
    let both = key(2, "cd") + &key(1, "ab");
    swap(&keys, "gossip.keys", &both, "2", 2);
    assert_eq!(refused(&member), 0, "{}", member.log());
    swap(&keys, "gossip.keys", "no key\n", "3", 3);
    assert_eq!(refused(&member), 1, "{}", member.log());
    assert_eq!(room(&member, "k", "y").await, 20);
}

#[tokio::test]
async fn cases_01_03_11_a_bad_configuration_changes_nothing_and_is_reported_once() {
    let member = Member::start(&format!("limits: [{TEN}]\n"));
    assert_eq!(room(&member, "k", "x").await, 10);
    // A misspelt key; the same counters twice; a fault at the very end; a table of no rows.
    let misspelt = config(&["{name: a, domain: d, rate: 20r/d, descripters: [{key: k}]}"]);
    let twice = config(&[
        TWENTY,
        "{name: c, domain: d, limiter: a, rate: 9r/d, \
        descriptors: [{key: k}]}",
    ]);
    let late = config(&[TWENTY]) + "storage: {table_bytes: 1}\n";
    let small = config(
        &[&TWENTY.replace('}', ", cardinality: 4000000000}").replacen(
            ", cardinality: 4000000000}",
            "}",
            1,
        )],
    ) + "storage: {table_bytes: 64KiB}\n";
    for (n, (text, word)) in (1..).zip([
        (&misspelt, "descriptors"),
        (&twice, "limiter"),
        (&late, "table_bytes"),
        (&small, "bytes"),
    ]) {
        put(&path(&member), text);
        until("it is refused", || (refused(&member) == n).then_some(()));
        let said = member.snapshot()["config"]["reloads"]["last_refusal"].to_string();
        assert!(said.contains(word), "{said}");
        assert_eq!(
            room(&member, "k", "x").await,
            0,
            "the old limit holds: {text}"
        );
    }
    let lines = || member.log().matches("was refused").count();
    assert_eq!(lines(), 4, "{}", member.log());
    // The same bad content again is not news; asked for, it is answered.
    put(&path(&member), &small);
    let (status, _, body) = member.send("POST", "/reload", "Content-Length: 0\r\n");
    assert_eq!(status, 409, "{body}");
    assert_eq!(lines(), 5);
    put(&path(&member), &config(&[TWENTY]));
    until("good again", || (done(&member) == 1).then_some(()));
    assert_eq!(room(&member, "k", "x").await, 10);
    assert_eq!(lines(), 5);
    let reloads = &member.snapshot()["config"]["reloads"];
    assert!(reloads["last_refusal"].is_null(), "{reloads}");
}

#[tokio::test]
async fn case_05_every_way_of_changing_the_file_is_picked_up_once_and_whole() {
    let member = Member::start(&format!("limits: [{TEN}]\n"));
    let at = path(&member);
    let limits = |n: u32| {
        config(&[&format!(
            "{{name: a, domain: d, rate: {n}r/d, descriptors: [{{key: k}}]}}"
        )])
    };
    let in_force = |n: u32, reloads: u64| {
        until("it is in force", || {
            let snapshot = member.snapshot();
            (snapshot["rules"][0]["limit"] == n).then_some(())
        });
        assert_eq!(done(&member), reloads);
    };
    put(&at, &limits(11));
    in_force(11, 1);
    // In place, in two writes: a half of it would be a good file with fewer rules.
    let text = limits(12).replace("limits:", "# a comment\nlimits:");
    let (first, second) = text.split_at(text.len() / 2);
    let mut file = std::fs::File::create(&at).unwrap();
    std::io::Write::write_all(&mut file, first.as_bytes()).unwrap();
    std::io::Write::write_all(&mut file, second.as_bytes()).unwrap();
    in_force(12, 2);
    // A link that points elsewhere.
    let versions = ["one", "two"].map(|name| member.scratch.0.join(name));
    std::fs::write(&versions[0], limits(13)).unwrap();
    std::fs::write(&versions[1], limits(14)).unwrap();
    let link = |to: &Path| {
        let part = member.scratch.0.join("link.part");
        std::os::unix::fs::symlink(to, &part).unwrap();
        std::fs::rename(part, &at).unwrap();
    };
    link(&versions[0]);
    in_force(13, 3);
    link(&versions[1]);
    in_force(14, 4);
    // Touched, or replaced by its equal: nothing to do. A later change shows that it was seen.
    std::fs::write(&versions[1], limits(14)).unwrap();
    link(&versions[1]);
    put(&at, &limits(15));
    in_force(15, 5);
    assert_eq!(refused(&member), 0, "{}", member.log());
}

#[tokio::test]
async fn case_06_what_is_no_configuration_is_refused_with_a_reason() {
    let member = Member::start(&format!("limits: [{TEN}]\n"));
    let at = path(&member);
    let wanted: [(&str, &dyn Fn()); 4] = [
        ("empty", &|| put(&at, "\n# nothing\n")),
        ("UTF-8", &|| {
            std::fs::write(at.with_extension("part"), b"limits: [\xff\xfe]\n").unwrap();
            std::fs::rename(at.with_extension("part"), &at).unwrap();
        }),
        ("a directory", &|| {
            std::fs::remove_file(&at).unwrap();
            std::fs::create_dir(&at).unwrap();
        }),
        ("cannot be read", &|| std::fs::remove_dir(&at).unwrap()),
    ];
    for (n, (word, change)) in (1..).zip(wanted) {
        change();
        until("it is refused", || (refused(&member) == n).then_some(()));
        let said = member.snapshot()["config"]["reloads"]["last_refusal"].to_string();
        assert!(said.contains(word), "{word}: {said}");
    }
    assert_eq!(room(&member, "k", "x").await, 10);
    put(&at, &config(&[TWENTY]));
    until("good again", || (done(&member) == 1).then_some(()));
    assert_eq!(room(&member, "k", "x").await, 10);
}

#[tokio::test]
async fn what_takes_a_restart_is_named_and_not_applied() {
    let member = Member::start(&format!("limits: [{TEN}]\n"));
    let other = "envoy_bind: 127.0.0.1:1\nadmin_bind: 127.0.0.1:0\nruntime: {worker_threads: 1}\n\
                 log: {format: json}\nobserve: {sample: 3}\n\
                 traces: {endpoint: 'http://127.0.0.1:1'}\n";
    reload(&member, &format!("{other}{GOSSIP}limits: [{TWENTY}]\n"));
    let log = member.log();
    let line = "takes effect at the next start only: envoy_bind, runtime, log, observe, \
                traces, gossip";
    assert!(log.contains(line), "{log}");
    assert_eq!(room(&member, "k", "x").await, 20, "the rules are in force");
    assert!(member.snapshot()["gossip"].is_null());
}

#[tokio::test]
async fn a_member_reloads_as_the_same_origin_and_its_peers_keep_its_counts() {
    let limits = |limits: &[&str]| format!("limits: [{}]\n", limits.join(", "));
    let (a, b) = (
        Member::start_gossiping(&limits(&[TWENTY])),
        Member::start_gossiping(&limits(&[TWENTY])),
    );
    introduce(&[&a, &b]);
    let ask = |n: u32| {
        let mut ask = request("d", vec![descriptor(&[("k", "x")])]);
        ask.hits_addend = n;
        ask
    };
    assert_eq!(a.ask(ask(8)).await.overall_code(), Code::Ok);
    assert_eq!(b.ask(ask(1)).await.overall_code(), Code::Ok);
    let read = |member: &Member| {
        let member = member.envoy;
        async move {
            let endpoint = format!("http://{member}");
            let endpoint = tonic::transport::Endpoint::new(endpoint).unwrap();
            let channel = endpoint.connect().await.unwrap();
            let mut client = common::client_of(channel);
            let mut one = descriptor(&[("k", "x")]);
            one.hits_addend = Some(0);
            let answer = client.should_rate_limit(request("d", vec![one])).await;
            answer.unwrap().into_inner().statuses[0].limit_remaining
        }
    };
    let both_see = |left: u32| {
        let (a, b) = (&a, &b);
        async move {
            for member in [a, b] {
                let start = std::time::Instant::now();
                while read(member).await != left {
                    assert!(start.elapsed() < common::PATIENCE, "never {left}");
                    tokio::time::sleep(std::time::Duration::from_millis(2)).await;
                }
            }
        }
    };
    both_see(11).await;
    let origin = |member: &Member| {
        let gossip = &member.snapshot()["gossip"];
        (
            gossip["node"].clone(),
            gossip["incarnation"].clone(),
            gossip["bound"].clone(),
        )
    };
    let before = origin(&a);
    let text = std::fs::read_to_string(path(&a)).unwrap();
    for (rules, hits) in [(limits(&[OTHER, TWENTY]), 2), (limits(&[TWENTY]), 3)] {
        let head = text.split("limits:").next().unwrap();
        reload(&a, &format!("{head}{rules}"));
        assert_eq!(a.ask(ask(hits)).await.overall_code(), Code::Ok);
        assert_eq!(b.ask(ask(1)).await.overall_code(), Code::Ok);
    }
    both_see(4).await;
    assert_eq!(origin(&a), before);
    let log = a.log();
    assert!(log.contains("gossip rested"), "{log}");
    let lines: Vec<&str> = log
        .lines()
        .filter(|l| l.contains("gossip rested"))
        .collect();
    println!("{}", lines.join("\n"));
}

// spec: pol-14, pol-20
#[tokio::test]
async fn tiers_that_come_change_and_go_keep_the_counters() {
    let tiered = |tiers: &str| {
        let rule = "{name: a, domain: d, match: request, rate: 10r/d, descriptors: [{key: k}]";
        let tiers = match tiers {
            "" => String::new(),
            rates => format!(", tiers: {{by: plan, rates: {{{rates}}}}}"),
        };
        config(&[&format!("{rule}{tiers}}}")])
    };
    let limits = tiered("").replacen(PORTS, "", 1);
    let member = Member::start(&limits);
    let gold = |key| [("k", key), ("plan", "gold")];
    let free = |key| [("k", key), ("plan", "free")];
    assert_eq!(room_for(&member, &gold("x")).await, 10, "no tiers yet");

    reload(&member, &tiered("gold: 30r/d, free: 4r/d"));
    let log = member.log();
    assert!(log.contains("rule a of domain d: "), "{log}");
    assert!(log.contains("its counts are kept"), "{log}");
    assert_eq!(room_for(&member, &free("x")).await, 0, "10 are used");
    assert_eq!(room_for(&member, &gold("x")).await, 20);
    assert_eq!(room(&member, "k", "x").await, 0);
    assert_eq!(room_for(&member, &free("y")).await, 4);
    assert_eq!(room(&member, "k", "y").await, 6);

    reload(&member, &tiered("gold: 35r/d, free: 12r/d"));
    assert_eq!(room_for(&member, &gold("x")).await, 5);
    assert_eq!(room_for(&member, &free("y")).await, 2);

    reload(&member, &tiered(""));
    assert_eq!(room_for(&member, &gold("x")).await, 0, "35 are used");
    assert_eq!(room_for(&member, &gold("y")).await, 0, "12 are used");
    assert_eq!(room_for(&member, &gold("z")).await, 10);

    // Another rule beside it needs another table, with other tiers at once.
    let both = tiered("gold: 40r/d").replacen("limits: [", &format!("limits: [{OTHER}, "), 1);
    reload(&member, &both);
    assert_eq!(room_for(&member, &gold("x")).await, 5);
    assert_eq!(room_for(&member, &free("z")).await, 0);
    let said = member.log();
    let kept = said.matches("its counts are kept").count();
    assert_eq!(kept, 4, "{said}");
}
