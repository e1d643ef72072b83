//! Dissemination by forwarding: coverage, anti-entropy, mixed settings, rules that differ.
#![allow(clippy::cast_possible_truncation)]

mod net;

use gabion_node::{Config, Fanout, Input, LimiterSpec, NodeStats};
use net::{config, key, minute, Net, MS, SECOND};

/// Members 1.. that forward to at least `fanout`, all introduced.
fn flock(seed: u64, n: usize, fanout: Fanout) -> Net {
    let mut net = Net::new(seed);
    for i in 0..n {
        net.add(forwarder(i as u64 + 1, 1_000 + i as u64, fanout));
    }
    net.introduce();
    net.run(2 * SECOND);
    net
}

fn forwarder(node: u64, incarnation: u64, fanout: Fanout) -> Config {
    let mut made = config(node, incarnation, &[minute()]);
    made.tunables.fanout = fanout;
    made
}

fn sum(net: &Net, which: impl Fn(&NodeStats) -> u64) -> u64 {
    net.members.iter().map(|m| which(m.node.stats())).sum()
}

// spec: dis-1, dis-2
#[test]
fn what_one_counts_reaches_all_in_a_few_hops_and_costs_its_member_few_frames() {
    let mut net = flock(1, 40, Fanout::Members(1));
    assert!(net.members.iter().all(|m| m.node.stats().forwarding == 1));
    let epoch = net.epoch(&minute());
    let before = net.members[3].node.stats().frames_out;
    net.own(3, 0, key(1), epoch, 9);
    net.run(900 * MS);
    assert!(net.all_see(0, key(1), epoch, 9));
    let sent = net.members[3].node.stats().frames_out - before;
    assert!(
        sent < 39,
        "{sent} frames: in the mesh it is 39, and a second's heartbeats"
    );
}

// spec: dis-5, dis-6
#[test]
fn with_a_third_of_all_frames_lost_everyone_ends_up_with_everything() {
    let mut net = flock(2, 20, Fanout::Members(2));
    net.loss_pct = 33;
    let epoch = net.epoch(&minute());
    for round in 1..=20u32 {
        for i in 0..20 {
            net.own(i, 0, key(u64::from(round % 5)), epoch, round);
        }
        net.run(20 * MS);
    }
    net.run(8 * SECOND);
    for k in 0..5u64 {
        let last = (16..=20u64).find(|r| r % 5 == k).unwrap();
        assert!(net.all_see(0, key(k), epoch, 20 * last), "key {k}");
    }
}

// spec: dis-8, case 36: two incarnations of a member stay apart.
#[test]
fn case_36_a_member_that_starts_again_catches_up_and_both_its_lives_count() {
    let mut net = flock(3, 16, Fanout::Members(1));
    let epoch = net.epoch(&minute());
    for k in 0..500 {
        net.own((k % 16) as usize, 0, key(k), epoch, 3);
    }
    net.own(5, 0, key(9_999), epoch, 40);
    net.run(2 * SECOND);
    net.restart(5, forwarder(6, 77_777, Fanout::Members(1)));
    net.run(3 * SECOND);
    net.own(5, 0, key(9_999), epoch, 5);
    net.run(2 * SECOND);
    assert!(net.all_see(0, key(9_999), epoch, 45));
    assert!((0..500).all(|k| net.all_see(0, key(k), epoch, 3)));
}

// spec: dis-12
#[test]
fn members_with_different_settings_reach_each_other() {
    let mut net = Net::new(4);
    for i in 0..18u64 {
        let fanout = [Fanout::Mesh, Fanout::Members(2), Fanout::Auto][i as usize % 3];
        net.add(forwarder(i + 1, 1_000 + i, fanout));
    }
    net.introduce();
    net.run(2 * SECOND);
    let epoch = net.epoch(&minute());
    (0..18).for_each(|i| net.own(i, 0, key(i as u64 % 4), epoch, 7));
    net.run(3 * SECOND);
    for k in 0..4u64 {
        let members = (0..18u64).filter(|i| i % 4 == k).count() as u64;
        assert!(net.all_see(0, key(k), epoch, 7 * members), "key {k}");
    }
    let downs: u32 = net.members.iter().map(|m| m.downs).sum();
    net.run(60 * SECOND);
    let later: u32 = net.members.iter().map(|m| m.downs).sum();
    assert_eq!(
        later, downs,
        "rare liveness frames are not taken for silence"
    );
}

// spec: dis-10
#[test]
fn a_broken_link_is_no_obstacle_and_nobody_announces_it() {
    let mut net = flock(5, 12, Fanout::Members(1));
    (1..12).filter(|i| i % 2 == 1).for_each(|i| {
        net.cut.insert((0, i));
    });
    net.run(10 * SECOND);
    let epoch = net.epoch(&minute());
    for count in 1..=20 {
        net.own(0, 0, key(1), epoch, count);
        net.run(50 * MS);
    }
    net.run(SECOND);
    assert!(net.all_see(0, key(1), epoch, 20));
    assert_eq!(sum(&net, |s| s.rows_relayed), 0);
}

#[test]
fn who_leaves_tells_its_last_counts() {
    let mut net = flock(6, 15, Fanout::Members(1));
    let epoch = net.epoch(&minute());
    net.own(2, 0, key(1), epoch, 11);
    net.handle(2, Input::Leave);
    net.run(500 * MS);
    net.members[2].alive = false;
    net.run(2 * SECOND);
    assert!(net.all_see(0, key(1), epoch, 11));
    assert_eq!(net.members[0].node.peers_up(), 13);
}

/// One short-lived rule per generation of the configuration.
fn rule(generation: u64) -> LimiterSpec {
    LimiterSpec {
        short: 0x100 + generation,
        epoch_ns: 4 * SECOND,
        live_epochs: 2,
        ..minute()
    }
}

// spec: dis-13
#[test]
fn case_39_a_rolling_change_of_rules_leaks_nothing() {
    let n = 12usize;
    let made = |i: usize, generation: u64| Config {
        limiters: vec![rule(generation), rule(generation + 1)],
        ..forwarder(
            i as u64 + 1,
            5_000 + generation * 100 + i as u64,
            Fanout::Members(2),
        )
    };
    let mut net = Net::new(7);
    (0..n).for_each(|i| {
        net.add(made(i, 0));
    });
    net.introduce();
    net.run(2 * SECOND);
    let mut held = Vec::new();
    for generation in 1..=12u64 {
        for i in 0..n {
            net.restart(i, made(i, generation));
            // Everyone counts under both of its rules while the change rolls.
            for at in 0..n {
                let mine = if at <= i { generation } else { generation - 1 };
                for (place, rule) in [rule(mine), rule(mine + 1)].iter().enumerate() {
                    let epoch = net.epoch(rule);
                    for k in 0..20 {
                        net.own(at, place as u16, key(k), epoch, 1 + i as u32);
                    }
                }
            }
            net.run(100 * MS);
        }
        assert!(sum(&net, |s| s.drop_unknown_limiter) > 0, "rules differ");
        // What both know arrives everywhere, whatever else differs.
        let shared = rule(generation);
        let epoch = net.epoch(&shared);
        net.own(0, 0, key(77), epoch, 5);
        net.run(3 * SECOND);
        assert!(net.all_see(0, key(77), epoch, 5), "generation {generation}");
        net.run(16 * SECOND);
        assert_eq!(
            sum(&net, |s| s.cells + s.shelves),
            0,
            "generation {generation}"
        );
        held.push((
            sum(&net, |s| s.origins),
            sum(&net, |s| s.cell_bytes),
            sum(&net, |s| s.spread_bytes),
        ));
    }
    println!("{held:?}");
    let (first, last) = (held[1], held[11]);
    assert_eq!(last.0, 0, "origins without rows are forgotten");
    assert!(last.1 <= first.1 + first.1 / 10, "{held:?}");
    assert!(last.2 <= first.2 + first.2 / 10 + 4_096, "{held:?}");
}
