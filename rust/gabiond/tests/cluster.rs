//! Several members on loopback that share their counts.
#![allow(clippy::unwrap_used)] // a test fails by panicking

mod common;

use common::{introduce, until, Member};
use gabion_server::protocol::{
    descriptor, request, Code, RateLimitDescriptor, RateLimitOverride, RateLimitRequest,
    RateLimitUnit,
};

const RULES: &str = "limits:\n- {name: ip, domain: edge, rate: 100r/d, descriptors: [{key: ip}]}\n\
                     - {name: few, domain: edge, rate: 5r/d, descriptors: [{key: few}]}\n";

fn ask(key: &str, value: &str, hits: u32) -> RateLimitRequest {
    RateLimitRequest {
        hits_addend: hits,
        ..request("edge", vec![descriptor(&[(key, value)])])
    }
}

async fn remaining(member: &Member, key: &str, value: &str) -> u32 {
    let mut read = ask(key, value, 1);
    read.descriptors[0].hits_addend = Some(0);
    member.ask(read).await.statuses[0].limit_remaining
}

/// Waits until the member shows `left` for a key.
async fn shows(member: &Member, key: &str, value: &str, left: u32) {
    let start = std::time::Instant::now();
    loop {
        let now = remaining(member, key, value).await;
        if now == left {
            return;
        }
        let member = member.snapshot();
        let (gossip, table) = (&member["gossip"], &member["table"]);
        let late = start.elapsed() > common::PATIENCE;
        assert!(!late, "{now} left, not {left}: {table} {gossip}");
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn three_members_count_as_one() {
    let members: Vec<Member> = (0..3).map(|_| Member::start_gossiping(RULES)).collect();
    let all: Vec<&Member> = members.iter().collect();
    introduce(&all);
    for (member, hits) in all.iter().zip([40, 30, 20]) {
        assert_eq!(
            member.ask(ask("ip", "a", hits)).await.overall_code(),
            Code::Ok
        );
    }
    for member in &all {
        shows(member, "ip", "a", 10).await;
    }
    assert_eq!(
        all[1].ask(ask("ip", "a", 11)).await.overall_code(),
        Code::OverLimit
    );
    assert_eq!(
        all[1].ask(ask("ip", "a", 10)).await.overall_code(),
        Code::Ok
    );
    for member in &all {
        shows(member, "ip", "a", 0).await;
        assert_eq!(
            member.ask(ask("ip", "a", 1)).await.overall_code(),
            Code::OverLimit
        );
    }
}

#[tokio::test]
async fn case_47_a_limit_of_five_is_neither_nothing_nor_five_for_each() {
    let members: Vec<Member> = (0..3).map(|_| Member::start_gossiping(RULES)).collect();
    introduce(&members.iter().collect::<Vec<_>>());
    // Each hit is told to everyone before the next one comes, so that the sum is exact; what may
    // pass while news travels is the simulator's to bound, where time is its own.
    let mut allowed = 0;
    for round in 0..12 {
        let answer = members[round % 3].ask(ask("few", "x", 1)).await;
        allowed += u32::from(answer.overall_code() == Code::Ok);
        for member in &members {
            shows(member, "few", "x", 5 - allowed.min(5)).await;
        }
    }
    assert_eq!(allowed, 5);
}

/// The bound that a member states for a rule, once `fits` says so.
fn bound_of(member: &Member, rule: usize, fits: impl Fn(u64) -> bool) -> u64 {
    until("the bound", || {
        let snapshot = member.snapshot();
        let over = &snapshot["rules"][rule]["over_admission"];
        over["bound_hits"].as_u64().filter(|hits| fits(*hits))
    })
}

#[tokio::test]
async fn the_bound_is_small_while_links_are_up_and_a_limit_for_each_peer_that_is_not() {
    let mut members: Vec<Member> = (0..3).map(|_| Member::start_gossiping(RULES)).collect();
    introduce(&members.iter().collect::<Vec<_>>());
    // 1 % of 100 among 3 members, and of 5: one hit of each other member.
    for member in &members {
        assert_eq!(bound_of(member, 0, |hits| hits <= 2), 2);
        assert_eq!(bound_of(member, 1, |hits| hits <= 2), 2);
        let (_, page) = member.get("/metrics");
        let line = "gabion_rule_over_admission_bound_hits{domain=\"edge\",rule=\"ip\"} 2";
        assert!(page.contains(line), "{page}");
        assert!(page.contains("gabion_gossip_peers_unreachable 0"), "{page}");
        let stale = "gabion_rule_staleness_seconds{domain=\"edge\",rule=\"few\"} ";
        assert!(page.contains(stale), "{page}");
        let (_, said) = member.get("/explain?domain=edge&descriptor=ip=a");
        assert!(said.contains("\"bound_hits\":2"), "{said}");
    }
    let gone = members.remove(2);
    drop(gone);
    for member in &members {
        assert_eq!(bound_of(member, 0, |hits| hits > 100), 101);
        assert_eq!(bound_of(member, 1, |hits| hits > 5), 6);
        assert_eq!(member.snapshot()["gossip"]["unreachable_peers"], 1);
    }
    // Discovery names it no more: there is nobody who could count alone.
    introduce(&members.iter().collect::<Vec<_>>());
    for member in &members {
        assert_eq!(bound_of(member, 0, |hits| hits < 100), 1);
    }
    // Another one joins.
    members.push(Member::start_gossiping(RULES));
    introduce(&members.iter().collect::<Vec<_>>());
    for member in &members {
        assert_eq!(bound_of(member, 0, |hits| hits == 2), 2);
    }
}

#[tokio::test]
async fn case_52_the_same_rules_in_another_order_are_one_set_of_counters() {
    let turned = "limits:\n- {name: few, domain: edge, rate: 5r/d, descriptors: [{key: few}]}\n\
                  - {name: ip, domain: edge, rate: 100r/d, descriptors: [{key: ip}]}\n";
    let (a, b) = (
        Member::start_gossiping(RULES),
        Member::start_gossiping(turned),
    );
    introduce(&[&a, &b]);
    assert_eq!(
        a.snapshot()["config"]["rules_fingerprint"],
        b.snapshot()["config"]["rules_fingerprint"]
    );
    a.ask(ask("ip", "k", 60)).await;
    b.ask(ask("ip", "k", 10)).await;
    shows(&a, "ip", "k", 30).await;
    shows(&b, "ip", "k", 30).await;
}

#[tokio::test]
async fn case_36_hits_before_and_after_a_restart_add_up_everywhere() {
    let (mut a, b) = (
        Member::start_gossiping(RULES),
        Member::start_gossiping(RULES),
    );
    introduce(&[&a, &b]);
    b.ask(ask("ip", "k", 1)).await;
    a.ask(ask("ip", "k", 40)).await;
    shows(&b, "ip", "k", 59).await;
    let _ = a.child.kill();
    a.wait();
    let again = Member::start_gossiping(RULES);
    introduce_again(&again, &b);
    again.ask(ask("ip", "k", 5)).await;
    shows(&b, "ip", "k", 54).await;
    shows(&again, "ip", "k", 54).await;
}

/// As [`introduce`], but where a peer that is gone may still be listed as down.
fn introduce_again(new: &Member, old: &Member) {
    let all = format!("{}\n{}\n", new.gossip.unwrap(), old.gossip.unwrap());
    for member in [new, old] {
        let part = member.scratch.file("peers.part", &all);
        std::fs::rename(part, member.scratch.0.join("peers")).unwrap();
    }
    for member in [new, old] {
        until("one peer is up", || {
            let snapshot = member.snapshot();
            let peers = snapshot["gossip"]["peers"].as_array().unwrap().clone();
            peers
                .iter()
                .any(|p| p["up"] == true && p["hears_us"] == true)
                .then_some(())
        });
    }
}

#[tokio::test]
async fn case_43_members_of_another_cluster_do_not_share() {
    let (a, b) = (
        Member::start_gossiping(RULES),
        Member::start_gossiping_in("other", RULES),
    );
    let all = format!("{}\n{}\n", a.gossip.unwrap(), b.gossip.unwrap());
    for member in [&a, &b] {
        let part = member.scratch.file("peers.part", &all);
        std::fs::rename(part, member.scratch.0.join("peers")).unwrap();
    }
    for member in [&a, &b] {
        until("frames of the other arrive and are refused", || {
            let drops = member.snapshot()["gossip"]["node_counters"]["wrong_cluster"].clone();
            (drops.as_u64().unwrap() > 2).then_some(())
        });
        let peers = member.snapshot()["gossip"]["peers"]
            .as_array()
            .unwrap()
            .clone();
        assert!(peers.iter().all(|peer| peer["up"] == false), "{peers:?}");
    }
    assert_eq!(a.ask(ask("ip", "k", 100)).await.overall_code(), Code::Ok);
    assert_eq!(b.ask(ask("ip", "k", 100)).await.overall_code(), Code::Ok);
}

#[tokio::test]
async fn other_numbers_for_one_rule_are_shown_on_both_sides_rule_by_rule() {
    let lower = RULES.replace("100r/d", "60r/d")
        + "- {name: mine, domain: edge, rate: 5r/d, descriptors: [{key: mine}]}\n";
    let (a, b) = (
        Member::start_gossiping(RULES),
        Member::start_gossiping(&lower),
    );
    introduce(&[&a, &b]);
    let differences = |member: &Member| {
        let snapshot = member.snapshot();
        let list = snapshot["gossip"]["differences"].as_array().unwrap();
        (!list.is_empty()).then(|| list.clone())
    };
    let at_a = until("the difference at a", || differences(&a));
    let at_b = until("the difference at b", || differences(&b));
    assert_eq!((at_a.len(), at_b.len()), (1, 1), "{at_a:?} {at_b:?}");
    let (at_a, at_b) = (&at_a[0], &at_b[0]);
    assert!(
        at_a["rule"].as_str().unwrap().contains("rate=100r/d"),
        "{at_a}"
    );
    assert!(
        at_b["rule"].as_str().unwrap().contains("rate=60r/d"),
        "{at_b}"
    );
    assert_eq!(at_a["digest"], at_b["peer_digest"]);
    assert_eq!(at_b["digest"], at_a["peer_digest"]);
    assert_eq!(at_a["peer_node"], b.snapshot()["gossip"]["node"]);
    until("the rule that only b has", || {
        let peers = &a.snapshot()["gossip"]["peers"];
        (peers[0]["rules_not_here"].as_array()?.len() == 1).then_some(())
    });
    let said = "enforces other numbers";
    until("the line", || a.log().contains(said).then_some(()));
}

/// Limits that requests bring are shared, too: members agree on their counters without any rule.
#[tokio::test]
async fn limits_that_requests_bring_count_over_all_members() {
    let members: Vec<Member> = (0..2)
        .map(|_| Member::start_gossiping("limits: []\n"))
        .collect();
    introduce(&members.iter().collect::<Vec<_>>());
    let own = |hits: u64| {
        let limit = RateLimitOverride {
            requests_per_unit: 10,
            unit: RateLimitUnit::Day.into(),
        };
        let own = RateLimitDescriptor {
            limit: Some(limit),
            hits_addend: Some(hits),
            ..descriptor(&[("user", "a")])
        };
        request("edge", vec![own])
    };
    let mut left = 10;
    for round in 0..5 {
        let member = &members[round % 2];
        assert_eq!(member.ask(own(2)).await.overall_code(), Code::Ok);
        left -= 2;
        for member in &members {
            let start = std::time::Instant::now();
            loop {
                let now = member.ask(own(0)).await.statuses[0].limit_remaining;
                if now == left {
                    break;
                }
                let late = start.elapsed() > common::PATIENCE;
                assert!(!late, "{now} left, not {left}: {}", member.snapshot());
                tokio::time::sleep(std::time::Duration::from_millis(2)).await;
            }
        }
    }
    for member in &members {
        assert_eq!(member.ask(own(1)).await.overall_code(), Code::OverLimit);
    }
}
