//! Situations that broke other limiters, as far as they live in the protocol machine.

#![allow(clippy::cast_possible_truncation, clippy::unwrap_used)]

mod net;

use gabion_node::{Input, Note};
use net::{addr, config, key, minute, Net, MS, SECOND};

#[test]
fn counts_reach_every_member_and_sum_up() {
    let spec = minute();
    let mut net = Net::mesh(1, 3, &[spec]);
    net.run(SECOND);
    assert!(
        net.members.iter().all(|m| m.node.peers_up() == 2),
        "{:?}",
        net.members[0].node.stats()
    );
    let e = net.epoch(&spec);
    for i in 0..3 {
        net.own(i, 0, key(1), e, 10 + i as u32);
    }
    net.run(5 * MS);
    assert!(net.all_see(0, key(1), e, 33));
    assert_eq!(net.members[0].totals[&(0, key(1), e)], 23);
}

#[test]
fn a_row_below_the_share_waits_for_the_heartbeat_and_no_longer() {
    let spec = gabion_node::LimiterSpec {
        limit: 1_000_000,
        ..minute()
    };
    let mut net = Net::mesh(2, 3, &[spec]);
    net.run(SECOND);
    let e = net.epoch(&spec);
    net.own(0, 0, key(1), e, 5);
    net.run(400 * MS);
    assert_eq!(net.total(1, 0, key(1), e), 0);
    net.run(110 * MS);
    assert!(net.all_see(0, key(1), e, 5));
}

#[test]
fn case_36_forty_hits_a_restart_and_five_hits_are_45_everywhere() {
    let spec = minute();
    let mut net = Net::mesh(36, 3, &[spec]);
    net.run(SECOND);
    let e = net.epoch(&spec);
    net.own(0, 0, key(1), e, 40);
    net.run(SECOND);
    net.restart(0, config(1, 77_777, &[spec]));
    net.run(3 * SECOND);
    assert_eq!(
        net.members[0].node.remote_total(0, key(1), e),
        40,
        "its own old counts came back"
    );
    net.own(0, 0, key(1), e, 5);
    net.run(SECOND);
    assert!(net.all_see(0, key(1), e, 45));
}

#[test]
fn case_36_a_driver_that_takes_over_learns_the_counts_of_its_own_incarnation() {
    let spec = minute();
    let mut net = Net::mesh(37, 3, &[spec]);
    net.run(SECOND);
    let e = net.epoch(&spec);
    net.own(0, 0, key(1), e, 40);
    net.run(SECOND);
    // Same zone memory, so the same incarnation; a higher session; the row was evicted meanwhile.
    net.restart(
        0,
        gabion_node::Config {
            session: 2,
            ..config(1, 1_000, &[spec])
        },
    );
    net.run(3 * SECOND);
    assert_eq!(net.members[0].node.own_count(0, key(1), e), 40);
    assert!(net.all_see(0, key(1), e, 40));
}

#[test]
fn case_37_two_restarts_at_once_are_two_incarnations_and_nothing_is_lost() {
    let spec = minute();
    let mut net = Net::mesh(37, 3, &[spec]);
    net.run(SECOND);
    let e = net.epoch(&spec);
    for (incarnation, count) in [(5, 3), (4, 4)] {
        net.restart(0, config(1, incarnation, &[spec]));
        net.run(SECOND);
        net.own(0, 0, key(1), e, count);
        net.run(100 * MS);
    }
    net.run(5 * SECOND);
    assert!(net.all_see(0, key(1), e, 7));
}

#[test]
fn case_38_two_members_with_one_node_id_are_both_counted_and_reported() {
    let spec = minute();
    let mut net = Net::new(38);
    for (node, incarnation) in [(1, 1), (2, 2), (2, 3), (3, 4)] {
        net.add(config(node, incarnation, &[spec]));
    }
    net.introduce();
    net.run(SECOND);
    let e = net.epoch(&spec);
    (0..4).for_each(|i| net.own(i, 0, key(1), e, 10));
    net.run(6 * SECOND);
    assert!(net.all_see(0, key(1), e, 40));
    for m in &net.members {
        let told = m
            .notes
            .iter()
            .filter(|n| matches!(n, Note::DuplicateNode { node: 2, .. }));
        assert_eq!(told.count(), 1, "{:?}", m.notes);
    }
}

#[test]
fn case_39_unknown_limiters_epochs_and_keys_are_stored_or_dropped_with_a_count() {
    let (known, other) = (
        minute(),
        gabion_node::LimiterSpec {
            short: 0x22,
            ..minute()
        },
    );
    let mut net = Net::new(39);
    net.add(config(1, 1, &[known, other]));
    net.add(config(2, 2, &[known]));
    net.introduce();
    net.run(SECOND);
    let e = net.epoch(&known);
    net.own(0, 1, key(1), e, 9);
    net.own(0, 0, key(2), e, 9);
    net.own(0, 7, key(2), e, 9);
    net.own(0, 0, key(2), e + 900, 9);
    net.run(2 * SECOND);
    assert_eq!(net.members[1].node.stats().drop_unknown_limiter, 1);
    assert_eq!(net.members[1].node.remote_total(0, key(2), e), 9);
    assert_eq!(net.members[0].node.stats().drop_own, 2);
}

#[test]
fn case_40_news_of_a_window_that_ended_does_not_count_in_the_new_one() {
    let spec = gabion_node::LimiterSpec {
        epoch_ns: SECOND,
        ..minute()
    };
    let mut net = Net::mesh(40, 2, &[spec]);
    net.run(SECOND - 10 * MS);
    let e = net.epoch(&spec);
    net.delay_ns = (20 * MS, 20 * MS);
    net.own(0, 0, key(1), e, 50);
    net.run(30 * MS);
    assert_eq!(net.epoch(&spec), e + 1);
    assert_eq!(net.total(1, 0, key(1), e), 50, "kept for its own window");
    assert_eq!(net.total(1, 0, key(1), e + 1), 0);
    net.run(3 * SECOND);
    assert_eq!(net.total(1, 0, key(1), e), 0, "gone once it is over");
    assert_eq!(net.members[1].node.stats().cells, 0);
}

#[test]
fn case_41_after_a_long_partition_old_counts_stay_out_and_live_ones_are_kept() {
    let hour = gabion_node::LimiterSpec {
        short: 2,
        epoch_ns: 3_600 * SECOND,
        ..minute()
    };
    let second = gabion_node::LimiterSpec {
        short: 3,
        epoch_ns: SECOND,
        ..minute()
    };
    let mut net = Net::mesh(41, 2, &[second, hour]);
    net.run(SECOND);
    net.cut = [(0, 1), (1, 0)].into();
    net.run(SECOND / 2);
    let (e, h) = (net.epoch(&second), net.epoch(&hour));
    for i in 0..2 {
        net.own(i, 0, key(1), e, 30);
        net.own(i, 1, key(1), h, 30);
    }
    net.run(20 * SECOND);
    assert_eq!(net.members[0].node.peers_up(), 0);
    net.cut.clear();
    net.run(3 * SECOND);
    assert!(
        net.all_see(1, key(1), h, 60),
        "{:?}",
        net.members[0].node.stats()
    );
    let now = net.epoch(&second);
    assert!((e..=now).all(|e| net.members[0].node.remote_total(0, key(1), e) == 0));
}

#[test]
fn case_43_an_address_reused_by_another_cluster_is_dropped_and_blocks_nobody() {
    let spec = minute();
    let mut net = Net::mesh(43, 3, &[spec]);
    net.run(SECOND);
    net.restart(
        2,
        gabion_node::Config {
            cluster: 8,
            ..config(9, 9, &[spec])
        },
    );
    net.run(10 * SECOND);
    assert_eq!(net.members[0].node.peers_up(), 1);
    assert_eq!(net.members[2].node.peers_up(), 0);
    let drops = net.members[0]
        .node
        .stats()
        .dropped(gabion_wire::WireError::WrongCluster);
    assert!(drops > 0);
    let told = |n: &Note| *n == Note::ForeignCluster { addr: addr(2) };
    assert!(net.members[0].notes.iter().any(told));
    // The address comes back to the cluster with a new member: believed at once.
    net.restart(2, config(10, 10, &[spec]));
    net.run(3 * SECOND);
    assert!(net.members.iter().all(|m| m.node.peers_up() == 2));
}

#[test]
fn case_46_three_members_stay_within_the_bound_of_a_limit_per_minute() {
    let spec = gabion_node::LimiterSpec {
        limit: 450,
        ..minute()
    };
    let mut net = Net::mesh(46, 3, &[spec]);
    net.run(SECOND);
    let e = net.epoch(&spec);
    let (mut admitted, mut own) = (0u64, [0u32; 3]);
    for n in 0..900u64 {
        let i = net.rng.below(3) as usize;
        if net.total(i, 0, key(1), e) < 450 {
            own[i] += 1;
            admitted += 1;
            net.own(i, 0, key(1), e, own[i]);
        }
        net.run(if n % 2 == 0 { 50 * MS } else { 60 * MS });
        assert_eq!(net.epoch(&spec), e);
        if n == 500 {
            break;
        }
    }
    assert!((450..=453).contains(&admitted), "{admitted} of 450");
}

#[test]
fn case_47_ten_members_and_a_limit_of_five_give_five_and_the_stated_bound() {
    let spec = gabion_node::LimiterSpec {
        limit: 5,
        ..minute()
    };
    let mut net = Net::mesh(47, 10, &[spec]);
    net.run(2 * SECOND);
    let e = net.epoch(&spec);
    let (mut admitted, mut own) = (0u64, [0u32; 10]);
    for _ in 0..200 {
        let i = net.rng.below(10) as usize;
        if net.total(i, 0, key(1), e) < 5 {
            own[i] += 1;
            admitted += 1;
            net.own(i, 0, key(1), e, own[i]);
        }
        net.run(2 * MS);
    }
    assert!((5..=6).contains(&admitted), "{admitted} of 5");
}

#[test]
fn case_48_an_idle_hour_costs_about_nothing_and_the_peer_is_believed_at_once() {
    let hour = gabion_node::LimiterSpec {
        epoch_ns: 86_400 * SECOND,
        ..minute()
    };
    let mut net = Net::mesh(48, 2, &[hour]);
    net.run(SECOND);
    let e = net.epoch(&hour);
    net.own(0, 0, key(1), e, 3);
    net.own(1, 0, key(1), e, 4);
    net.run(10 * SECOND);
    let before: u64 = net.members.iter().map(|m| m.bytes_out).sum();
    net.run(3_600 * SECOND);
    let per_second = (net.members.iter().map(|m| m.bytes_out).sum::<u64>() - before) / 3_600;
    assert!(
        per_second <= 200,
        "{per_second} bytes per second on the link, both directions"
    );
    assert_eq!(net.members[0].downs, 0);
    net.own(0, 0, key(1), e, 90);
    net.run(3 * MS);
    assert_eq!(net.total(1, 0, key(1), e), 94);
}

#[test]
fn case_49_a_minute_without_a_socket_and_gossip_resumes_by_itself() {
    let hour = gabion_node::LimiterSpec {
        epoch_ns: 3_600 * SECOND,
        ..minute()
    };
    let mut net = Net::mesh(49, 3, &[hour]);
    net.run(SECOND);
    net.cut = [(0, 1), (0, 2), (1, 0), (2, 0)].into();
    let e = net.epoch(&hour);
    net.own(0, 0, key(1), e, 60);
    net.own(1, 0, key(1), e, 7);
    net.run(60 * SECOND);
    assert_eq!(net.total(0, 0, key(1), e), 60, "local counts go on");
    net.cut.clear();
    net.run(3 * SECOND);
    assert!(net.all_see(0, key(1), e, 67));
}

#[test]
fn case_58_twenty_thousand_keys_spread_within_seconds_and_then_it_is_quiet() {
    let hour = gabion_node::LimiterSpec {
        epoch_ns: 3_600 * SECOND,
        ..minute()
    };
    let mut net = Net::mesh(58, 3, &[hour]);
    net.run(SECOND);
    let e = net.epoch(&hour);
    for k in 0..20_000 {
        let input = Input::Own {
            limiter: 0,
            key: key(k),
            epoch: e,
            count: 1,
        };
        let now = net.clock(0);
        net.members[0].node.handle(input, now);
    }
    net.drain(0);
    net.run(2 * SECOND);
    let there = (0..20_000)
        .filter(|k| net.all_see(0, key(*k), e, 1))
        .count();
    assert_eq!(there, 20_000, "{:?}", net.members[0].node.stats());
    let stats = net.members[0].node.stats();
    let per_row = stats.bytes_out as f64 / stats.rows_out as f64;
    assert!(per_row <= 16.0, "{per_row} bytes per replicated row");
    net.run(5 * SECOND);
    let before: u64 = net.members.iter().map(|m| m.bytes_out).sum();
    net.run(60 * SECOND);
    let after: u64 = net.members.iter().map(|m| m.bytes_out).sum();
    // Three links, each both ways.
    assert!(
        (after - before) / 60 / 3 <= 200,
        "{} B/s per link",
        (after - before) / 60 / 3
    );
}

#[test]
fn a_lone_row_frame_is_at_most_80_bytes() {
    let spec = minute();
    let mut net = Net::mesh(3, 2, &[spec]);
    net.run(3 * SECOND + 300 * MS);
    let e = net.epoch(&spec);
    net.tap.clear();
    net.own(0, 0, key(1), e, 50);
    net.run(MS);
    let sizes: Vec<usize> = net
        .tap
        .iter()
        .filter(|t| t.0 == addr(0))
        .map(|t| t.2.len())
        .collect();
    assert_eq!(sizes.len(), 1, "{sizes:?}");
    assert!(sizes[0] <= 80, "{sizes:?}");
}

#[test]
fn leaving_sends_what_is_pending_says_farewell_and_then_nothing() {
    let spec = gabion_node::LimiterSpec {
        limit: 1_000_000,
        ..minute()
    };
    let mut net = Net::mesh(4, 3, &[spec]);
    net.run(SECOND);
    let e = net.epoch(&spec);
    net.own(0, 0, key(1), e, 5);
    net.handle(0, Input::Leave);
    net.run(5 * MS);
    assert!(net.all_see(0, key(1), e, 5));
    assert_eq!(net.members[1].node.peers_up(), 1);
    let sent = net.members[0].bytes_out;
    net.run(SECOND);
    assert_eq!(net.members[0].bytes_out, sent);
}
