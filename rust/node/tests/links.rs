//! Links that come back, that lose much, that carry one way; acks and liveness that ride along.
#![allow(clippy::cast_possible_truncation, clippy::unwrap_used)]

mod net;

use net::{config, hour, key, load, Net, MS, SECOND};

fn cut_apart(net: &mut Net, a: usize, b: usize) {
    net.cut = [(a, b), (b, a)].into();
}

/// spec: rep-12
#[test]
fn a_link_that_comes_back_sends_what_changed_and_no_more() {
    let mut net = Net::mesh(1, 2, &[hour()]);
    net.run(SECOND);
    load(&mut net, 0, 0..6_000, 1);
    net.run(3 * SECOND);
    let e = net.epoch(&hour());
    assert!((0..6_000).all(|k| net.all_see(0, key(k), e, 1)));
    cut_apart(&mut net, 0, 1);
    net.run(5 * SECOND);
    // Every tenth: each partition of a digest has some of them.
    for k in (0..6_000).step_by(10) {
        net.own(0, 0, key(k), e, 2);
    }
    net.run(20 * SECOND);
    let sent = |net: &Net| net.members[0].node.stats().rows_out;
    let before = sent(&net);
    net.cut.clear();
    net.run(1_100 * MS);
    let missing = (0..6_000).filter(|k| !net.all_see(0, key(*k), e, 1 + u64::from(k % 10 == 0)));
    assert_eq!(missing.count(), 0);
    // Frames overtake each other here, so a few are taken for lost.
    let sent = sent(&net) - before;
    assert!((600..=1_000).contains(&sent), "what changed: {sent}");
    net.run(5 * SECOND);
    assert_eq!(net.members[0].node.stats().rows_repaired, 0);
}

/// The place where a link goes on is not kept for another process at the address.
#[test]
fn a_new_process_at_the_address_is_told_everything() {
    let mut net = Net::mesh(2, 2, &[hour()]);
    net.run(SECOND);
    load(&mut net, 0, 0..6_000, 1);
    net.run(3 * SECOND);
    let e = net.epoch(&hour());
    net.members[1].alive = false;
    net.run(8 * SECOND);
    net.own(0, 0, key(1), e, 2);
    // The same identity, session and all, but nothing in memory.
    net.restart(1, config(2, 1_001, &[hour()]));
    net.run(5 * SECOND);
    let missing = (0..6_000).filter(|k| !net.all_see(0, key(*k), e, 1 + u64::from(*k == 1)));
    assert_eq!(missing.count(), 0);
}

#[test]
fn half_of_all_frames_lost_converges_in_every_seed() {
    for seed in 1..=6 {
        let mut net = Net::new(seed);
        net.loss_pct = 50;
        for i in 0..5u64 {
            net.add(config(i + 1, 1_000 + i, &[hour()]));
        }
        net.introduce();
        let e = net.epoch(&hour());
        for round in 1..=10u32 {
            for i in 0..5 {
                net.own(i, 0, key(1), e, round);
                net.own(i, 0, key(10 + i as u64), e, round);
            }
            net.run(300 * MS);
        }
        net.run(20 * SECOND);
        assert!(net.all_see(0, key(1), e, 50), "seed {seed}");
        assert!(
            (10..15).all(|k| net.all_see(0, key(k), e, 10)),
            "seed {seed}"
        );
    }
}

/// spec: link-12
#[test]
fn news_goes_around_a_link_that_stopped_to_carry_within_two_seconds() {
    let mut net = Net::mesh(3, 4, &[hour()]);
    net.run(5 * SECOND);
    let e = net.epoch(&hour());
    net.cut = [(0, 1)].into();
    net.own(0, 0, key(1), e, 57);
    net.run(2 * SECOND);
    assert!(net.all_see(0, key(1), e, 57));
}

/// Rounds are further apart than the ack delay: acks and liveness wait for them. spec: link-7,
/// link-11
#[test]
fn where_rounds_are_far_apart_nothing_but_rounds_is_sent() {
    let mut net = Net::new(4);
    for i in 0..9u64 {
        let mut config = config(i + 1, 1_000 + i, &[hour()]);
        config.tunables.packets_per_second = 200; // rounds every 40 ms
        net.add(config);
    }
    net.introduce();
    net.run(3 * SECOND);
    let e = net.epoch(&hour());
    let frames = |net: &Net| -> Vec<u64> {
        let of = |m: &net::Member| m.node.stats().frames_out;
        net.members.iter().map(of).collect()
    };
    let mut before = Vec::new();
    for ms in 1..=3_000u32 {
        if ms == 1_000 {
            before = frames(&net);
        }
        for i in 0..9 {
            net.own(i, 0, key(100 + i as u64), e, 1_000 + ms);
        }
        net.run(MS);
    }
    for (after, before) in frames(&net).into_iter().zip(before) {
        assert!(
            (390..=408).contains(&(after - before)),
            "{}",
            after - before
        );
    }
}

/// spec: rep-3
#[test]
fn saved_rounds_leave_close_together_and_the_mean_holds() {
    let mut net = Net::mesh(5, 3, &[hour()]);
    net.run(3 * SECOND);
    let e = net.epoch(&hour());
    let rounds = |net: &Net| net.members[0].node.stats().rounds;
    let mut count = 1_000;
    let mut hit = |net: &mut Net, for_ns: u64| {
        let (before, until) = (rounds(net), net.now + for_ns);
        while net.now < until {
            count += 1;
            net.own(0, 0, key(1), e, count);
            net.run(50_000);
        }
        rounds(net) - before
    };
    let burst = hit(&mut net, 4 * MS);
    assert!((20..=36).contains(&burst), "{burst} in 4 ms");
    let _ = hit(&mut net, 40 * MS);
    let steady = hit(&mut net, 200 * MS);
    assert!((195..=201).contains(&steady), "{steady} in 200 ms");
}
