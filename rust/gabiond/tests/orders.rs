//! Resets and flags: what a member's decisions make of them, alone and in a cluster.
#![allow(clippy::unwrap_used)] // a test fails by panicking

use std::path::PathBuf;
use std::time::{Duration, Instant};

use gabion_driver::OrderError;
use gabion_node::Reach;
use gabion_rule::Share;
use gabion_server::config::{Config, Variables};
use gabion_server::member::Member;
use gabion_server::orders::OrderFailure;
use gabion_server::protocol::{descriptor, request, Code};

const PATIENCE: Duration = Duration::from_secs(30);

const RULES: &str = "flags: {new: {default: off}, some: {default: 30%}}\nlimits:\n\
    - {name: a, domain: d, limiter: l, rate: 3r/d, descriptors: [{key: k}]}\n\
    - {name: b, domain: d, limiter: l, rate: 2r/d, descriptors: [{key: other}]}\n\
    - {name: c, domain: e, limiter: l, rate: 1r/d, descriptors: [{key: k}]}\n\
    - {name: off, domain: d, rate: 1r/d, descriptors: [{key: off}], if_flag: new}\n\
    - {name: part, domain: d, rate: 1r/d, descriptors: [{key: part}], if_flag: some}\n";

fn start(more: &str) -> Member {
    let text = format!("admin_bind: off\n{RULES}{more}");
    let none = Variables::new(std::iter::empty());
    Member::start(Config::parse("test", &text, &none).unwrap()).unwrap()
}

fn ask(member: &Member, domain: &str, key: &str, value: &str) -> Code {
    let request = request(domain, vec![descriptor(&[(key, value)])]);
    member.engine().answer(&request).overall_code()
}

/// Hits until it is denied; how many passed.
fn fill(member: &Member, domain: &str, key: &str, value: &str) -> usize {
    let passed = |_: &usize| ask(member, domain, key, value) == Code::Ok;
    (0..100).take_while(passed).count()
}

async fn until(what: &str, look: impl Fn() -> bool) {
    let start = Instant::now();
    while !look() {
        assert!(start.elapsed() < PATIENCE, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn a_reset_starts_every_rule_of_the_limiter_afresh_and_nothing_else() {
    let member = start("");
    assert_eq!(fill(&member, "d", "k", "x"), 3);
    assert_eq!(fill(&member, "d", "other", "x"), 2);
    assert_eq!(fill(&member, "e", "k", "x"), 1);
    let done = member.reset_limiter("l", Some("d")).await.unwrap();
    assert_eq!((done.len(), done[0].domain.as_str()), (1, "d"));
    assert_eq!(done[0].reach, Reach::Local, "this member counts alone");
    assert_eq!(fill(&member, "d", "k", "x"), 3);
    assert_eq!(fill(&member, "d", "other", "x"), 2);
    assert_eq!(fill(&member, "e", "k", "x"), 0);
    let both = member.reset_limiter("l", None).await.unwrap();
    let said: Vec<(&str, bool)> = both
        .iter()
        .map(|r| (r.domain.as_str(), r.era > 0))
        .collect();
    assert_eq!(said, [("d", true), ("e", true)]);
    assert!(both[0].era > done[0].era);
    assert_eq!(fill(&member, "d", "k", "x"), 3);
    assert_eq!(fill(&member, "e", "k", "x"), 1);
}

#[tokio::test]
async fn names_that_do_not_exist_change_nothing_and_say_what_was_meant() {
    let member = start("");
    fill(&member, "d", "k", "x");
    let error = member.reset_limiter("pars", None).await.unwrap_err();
    assert!(matches!(error, OrderFailure::NoLimiter { .. }));
    assert!(error.to_string().ends_with("did you mean part?"), "{error}");
    let error = member.reset_limiter("l", Some("z")).await.unwrap_err();
    assert!(error.to_string().contains("no rule of domain z"), "{error}");
    let error = member.set_flag("neww", None).await.unwrap_err();
    assert!(error.to_string().contains("did you mean new?"), "{error}");
    assert_eq!(fill(&member, "d", "k", "x"), 0);
}

#[tokio::test]
async fn a_flag_that_is_off_takes_its_rule_out_of_the_request() {
    let member = start("");
    assert_eq!(fill(&member, "d", "off", "x"), 100);
    assert_eq!(
        member.set_flag("new", Some(Share::ON)).await,
        Ok(Reach::Local)
    );
    assert_eq!(
        fill(&member, "d", "off", "x"),
        1,
        "nothing was counted while it was off"
    );
    let state = &member.flags()[0];
    assert_eq!(
        (state.name.as_str(), state.default, state.set),
        ("new", Share::OFF, Some(Share::ON))
    );
    assert_eq!(member.set_flag("new", None).await, Ok(Reach::Local));
    assert_eq!(fill(&member, "d", "off", "x"), 100);
    assert_eq!(member.flags()[0].share(), Share::OFF);
}

#[tokio::test]
async fn a_partial_flag_is_stable_per_key_also_over_a_reset() {
    let member = start("");
    let limited = || -> Vec<bool> {
        let value = |n: &u32| fill(&member, "d", "part", &n.to_string()) < 100;
        (0..200).map(|n| value(&n)).collect()
    };
    let first = limited();
    let on = first.iter().filter(|on| **on).count();
    assert!((30..=90).contains(&on), "30 % of 200: {on}");
    assert_eq!(limited(), first);
    member.reset_limiter("part", None).await.unwrap();
    assert_eq!(limited(), first);
    member.set_flag("some", Share::percent(60)).await.unwrap();
    let more = limited();
    assert!(first.iter().zip(&more).all(|(was, is)| *is || !*was));
    assert!(more.iter().filter(|on| **on).count() > on);
}

struct Cluster {
    members: Vec<Member>,
    dir: PathBuf,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// Members that have met.
async fn cluster(name: &str, n: usize, keys: bool) -> Cluster {
    let dir = std::env::temp_dir().join(format!("gabion-orders-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let (peers, key) = (dir.join("peers"), dir.join("key"));
    std::fs::write(&peers, "").unwrap();
    std::fs::write(&key, format!("1:{}\n", "5a".repeat(32))).unwrap();
    let auth = format!(", auth_key_file: '{}'", key.display());
    let auth = if keys { auth.as_str() } else { "" };
    let more = format!(
        "gossip: {{bind: '127.0.0.1:0', cluster_id: t{auth}}}\ndiscovery: {{file: '{}'}}\n",
        peers.display()
    );
    let members: Vec<Member> = (0..n).map(|_| start(&more)).collect();
    let mut addresses = String::new();
    for member in &members {
        until("the socket is bound", || {
            member.addresses().gossip.is_some()
        })
        .await;
        let address = member.addresses().gossip.unwrap();
        addresses.push_str(&format!("{address}\n"));
    }
    std::fs::write(dir.join("part"), addresses).unwrap();
    std::fs::rename(dir.join("part"), &peers).unwrap();
    for member in &members {
        until("all peers are up", || {
            let snapshot = member.gossip().unwrap();
            snapshot.peers.iter().filter(|p| p.up && p.hears_us).count() == n - 1
        })
        .await;
    }
    Cluster { members, dir }
}

#[tokio::test]
async fn a_reset_at_one_member_resets_all_and_counts_go_on_together() {
    let cluster = cluster("reset", 3, false).await;
    let [a, b, c] = &cluster.members[..] else {
        panic!("three members")
    };
    assert_eq!(fill(a, "d", "k", "x"), 3);
    until("everybody denies", || {
        [b, c]
            .iter()
            .all(|m| ask(m, "d", "k", "x") == Code::OverLimit)
    })
    .await;
    let done = b.reset_limiter("l", Some("d")).await.unwrap();
    assert_eq!(done[0].reach, Reach::Cluster);
    assert_eq!(
        ask(b, "d", "k", "x"),
        Code::Ok,
        "at once where it was asked for"
    );
    until("the others follow", || ask(c, "d", "k", "x") == Code::Ok).await;
    until("and a too", || ask(a, "d", "k", "x") == Code::Ok).await;
    until("they still count as one", || {
        cluster
            .members
            .iter()
            .all(|m| ask(m, "d", "k", "x") == Code::OverLimit)
    })
    .await;
}

#[tokio::test]
async fn a_flag_reaches_all_members_with_keys_and_only_one_without() {
    let signed = cluster("signed", 2, true).await;
    let [a, b] = &signed.members[..] else {
        panic!("two members")
    };
    assert_eq!(a.set_flag("new", Some(Share::ON)).await, Ok(Reach::Cluster));
    until("b follows", || b.flags()[0].set == Some(Share::ON)).await;
    assert_eq!(fill(b, "d", "off", "y"), 1);
    assert_eq!(b.set_flag("new", None).await, Ok(Reach::Cluster));
    until("a follows", || a.flags()[0].set.is_none()).await;
    let open = cluster("open", 2, false).await;
    let [a, b] = &open.members[..] else {
        panic!("two members")
    };
    assert_eq!(a.set_flag("new", Some(Share::ON)).await, Ok(Reach::Local));
    fill(b, "d", "k", "z");
    let era = a.reset_limiter("l", Some("d")).await.unwrap()[0].era;
    assert!(era > 0);
    // Eras go the same way, so whatever was to come before one has come.
    until("b has the era", || ask(b, "d", "k", "z") == Code::Ok).await;
    assert_eq!(b.flags()[0].set, None);
    a.leave(PATIENCE);
    let error = a.reset_limiter("l", None).await.unwrap_err();
    assert_eq!(error, OrderFailure::Gossip(OrderError::NotRunning));
}
