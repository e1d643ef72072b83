//! Members that come late, die, fall behind, hear one way, or have no room.
#![allow(clippy::cast_possible_truncation, clippy::unwrap_used)]

mod net;

use gabion_node::{Config, Input, LimiterSpec, Note};
use net::{addr, config, hour, key, load, minute, Net, MS, SECOND};

#[test]
fn a_newcomer_gets_every_count_once_and_not_from_everybody() {
    let mut net = Net::mesh(1, 8, &[hour()]);
    net.run(SECOND);
    for i in 0..8 {
        load(&mut net, i, 0..2_000, 1 + i as u32);
    }
    net.run(3 * SECOND);
    let e = net.epoch(&hour());
    assert!((0..2_000).all(|k| net.all_see(0, key(k), e, 36)));
    // One of them dies; its counts live on in the others.
    net.members[7].alive = false;
    net.run(6 * SECOND);
    let before: u64 = net.members.iter().map(|m| m.node.stats().rows_out).sum();
    net.add(config(50, 50, &[hour()]));
    net.introduce();
    net.run(20 * SECOND);
    let missing = (0..2_000)
        .filter(|k| net.total(8, 0, key(*k), e) != 36)
        .count();
    assert_eq!(missing, 0, "{:?}", net.members[8].node.stats());
    let sent: u64 = net
        .members
        .iter()
        .map(|m| m.node.stats().rows_out)
        .sum::<u64>()
        - before;
    // 8 origins x 2,000 rows are needed.
    assert!((16_000..18_000).contains(&sent), "{sent} rows for 16,000");
}

#[test]
fn what_a_dead_member_told_to_some_reaches_all() {
    let mut net = Net::mesh(2, 4, &[hour()]);
    net.run(SECOND);
    let e = net.epoch(&hour());
    net.own(0, 0, key(1), e, 38);
    net.own(0, 0, key(2), e, 90);
    net.run(SECOND);
    net.cut = [(0, 2), (0, 3)].into();
    net.own(0, 0, key(1), e, 40);
    net.run(20 * MS);
    assert_eq!(
        (net.total(1, 0, key(1), e), net.total(2, 0, key(1), e)),
        (40, 38)
    );
    net.members[0].alive = false;
    net.cut.clear();
    net.run(20 * SECOND);
    assert!(net.all_see(0, key(1), e, 40), "holders that differ meet");
    let (n, c) = (net.members.len(), config(1, 999, &[hour()]));
    net.restart(0, c);
    assert_eq!(n, 4);
    net.run(10 * SECOND);
    assert!(net.all_see(0, key(1), e, 40) && net.all_see(0, key(2), e, 90));
    // The lowest holder serves; the others are quiet about it.
    let digests = |net: &Net| -> u64 {
        net.members
            .iter()
            .map(|m| m.node.stats().digests_in)
            .sum::<u64>()
    };
    let before = digests(&net);
    net.run(60 * SECOND);
    // 4 members: 3 serve nothing, 1 serves one digest to 3 links each second (nobody has own rows).
    let per_second = (digests(&net) - before) as f64 / 60.0;
    assert!(per_second <= 3.5, "{per_second} digests per second");
}

#[test]
fn a_member_that_heard_nobody_is_told_at_once_of_those_who_died_meanwhile() {
    let mut net = Net::mesh(3, 6, &[hour()]);
    net.run(SECOND);
    for other in 1..6 {
        net.cut.extend([(0, other), (other, 0)]);
    }
    net.run(6 * SECOND);
    // 20 processes, so that one digest of the dead in each heartbeat takes long.
    for round in 1..=5 {
        for member in 2..6 {
            let incarnation = 1_000 * round + member as u64;
            net.restart(member, config(member as u64 + 1, incarnation, &[hour()]));
        }
        net.run(SECOND);
        (2..6).for_each(|member| load(&mut net, member, 0..10, 1));
        net.run(SECOND);
    }
    let e = net.epoch(&hour());
    assert!((0..10).all(|k| net.total(1, 0, key(k), e) == 20));
    net.cut.clear();
    net.run(5 * SECOND);
    let lacking = (0..10).filter(|k| net.total(0, 0, key(*k), e) != 20);
    assert_eq!(lacking.count(), 0, "{:?}", net.members[0].node.stats());
}

#[test]
fn a_driver_that_takes_over_learns_all_own_counts_that_peers_kept() {
    // More (limiter, epoch) pairs than repairs run at once.
    let limiters: Vec<LimiterSpec> = (1..=12)
        .map(|short| LimiterSpec { short, ..hour() })
        .collect();
    let mut net = Net::mesh(4, 2, &limiters);
    net.run(SECOND);
    let e = net.epoch(&hour());
    (0..12).for_each(|limiter| net.own(0, limiter, key(1), e, 7));
    net.run(SECOND);
    let next = Config {
        session: 2,
        ..config(1, 1_000, &limiters)
    };
    net.restart(0, next);
    net.run(8 * SECOND);
    let own = |limiter| net.members[0].node.own_count(limiter, key(1), e);
    let known: Vec<u32> = (0..12).map(own).collect();
    assert_eq!(known, [7; 12], "{:?}", net.members[0].node.stats());
}

#[test]
fn a_link_that_fell_behind_the_dirty_log_is_repaired_by_digest() {
    let mut net = Net::new(3);
    for i in 0..3 {
        let mut c = config(i + 1, i + 1, &[hour()]);
        c.tunables.dirty_log_entries = 64;
        net.add(c);
    }
    net.introduce();
    net.run(SECOND);
    net.cut = [(0, 1), (1, 0)].into();
    for k in 0..40 {
        load(&mut net, 0, k * 100..k * 100 + 100, 2);
        net.run(30 * MS);
    }
    net.cut.clear();
    net.run(10 * SECOND);
    let e = net.epoch(&hour());
    let missing = (0..4_000)
        .filter(|k| !net.all_see(0, key(*k), e, 2))
        .count();
    assert_eq!(missing, 0, "{:?}", net.members[0].node.stats());
    assert!(net.members[0].node.stats().log_overruns > 0);
    assert!(net.members[0].node.stats().rows_repaired > 100);
}

#[test]
fn rows_reach_a_member_that_cannot_hear_their_origin() {
    // One way, and both ways, also when they never heard each other.
    for cut in [vec![(0, 1)], vec![(0, 1), (1, 0)]] {
        for early in [false, true] {
            let mut net = Net::mesh(4, 4, &[hour()]);
            if early {
                net.cut = cut.iter().copied().collect();
            }
            net.run(SECOND);
            net.cut = cut.iter().copied().collect();
            net.run(10 * SECOND);
            let e = net.epoch(&hour());
            net.own(0, 0, key(1), e, 50);
            net.own(1, 0, key(1), e, 7);
            net.run(5 * MS);
            assert!(
                net.all_see(0, key(1), e, 57),
                "cut {cut:?} early {early}: relayed at once"
            );
            let relayed: Vec<u64> = net
                .members
                .iter()
                .map(|m| m.node.stats().rows_relayed)
                .collect();
            assert!(
                relayed[2] > 0 && relayed[3] == 0,
                "the lowest one relays: {relayed:?}"
            );
            if cut.len() == 1 && !early {
                let told = |n: &Note| *n == Note::OneWay { addr: addr(1) };
                assert!(
                    net.members[0].notes.iter().any(told),
                    "{:?}",
                    net.members[0].notes
                );
            }
            net.cut.clear();
            net.run(10 * SECOND);
            let before = net.members[2].node.stats().rows_relayed;
            net.own(0, 0, key(1), e, 60);
            net.run(SECOND);
            assert_eq!(net.members[2].node.stats().rows_relayed, before, "it stops");
            assert!(net.all_see(0, key(1), e, 67));
        }
    }
}

/// Two pairs share a member that is cut off from both: 2 reaches 1, but not 0, and must
/// not keep 3 from relaying. spec: link-12
#[test]
fn a_member_that_is_cut_off_itself_keeps_nobody_from_relaying() {
    let mut net = Net::mesh(4, 4, &[hour()]);
    net.run(SECOND);
    net.cut = [(0, 1), (1, 0), (0, 2), (2, 0)].into();
    net.run(10 * SECOND);
    let e = net.epoch(&hour());
    net.own(0, 0, key(1), e, 50);
    net.own(1, 0, key(1), e, 7);
    net.own(2, 0, key(1), e, 3);
    net.run(5 * MS);
    assert!(net.all_see(0, key(1), e, 60), "relayed at once");
    let relayed = |i: usize| net.members[i].node.stats().rows_relayed;
    assert!(relayed(3) > 0, "3 alone reaches all");
    assert_eq!(relayed(1) + relayed(2), 0, "1 and 2 reach no pair's both");
}

#[test]
fn a_full_store_refuses_by_name_and_does_not_ask_again_and_again() {
    let mut net = Net::mesh(5, 2, &[hour()]);
    let mut small = config(3, 3, &[hour()]);
    small.tunables.max_cells = 500;
    net.add(small);
    net.introduce();
    net.run(SECOND);
    load(&mut net, 0, 0..1_000, 60);
    load(&mut net, 1, 2_000..2_100, 60);
    net.run(SECOND);
    let s = net.members[2].node.stats().clone();
    assert_eq!(
        s.cells, 350,
        "half of all cells for one flooding origin: {s:?}"
    );
    assert_eq!(s.refused_origin_share, 750);
    let e = net.epoch(&hour());
    assert!(
        (2_000..2_100).all(|k| net.total(2, 0, key(k), e) == 60),
        "others have room"
    );
    assert!(net.members[2]
        .notes
        .contains(&Note::OriginShareFull { node: 1 }));
    load(&mut net, 2, 5_000..6_000, 1);
    assert_eq!(net.members[2].node.stats().cells_max, 500);
    assert!(net.members[2].node.stats().refused_full >= 850);
    net.run(3_000 * SECOND);
    let s = net.members[2].node.stats();
    assert!(
        s.repairs_started <= 3_000 / 128 + 2,
        "{} repairs in 50 minutes",
        s.repairs_started
    );
}

#[test]
fn memory_comes_back_when_epochs_end() {
    let second = LimiterSpec {
        epoch_ns: SECOND,
        ..minute()
    };
    let mut net = Net::mesh(6, 2, &[second]);
    net.run(SECOND);
    for round in 0..10u64 {
        let (epoch, now) = (net.epoch(&second), net.clock(0));
        for k in 0..5_000 {
            let key = key(round * 5_000 + k);
            net.members[0].node.handle(
                Input::Own {
                    limiter: 0,
                    key,
                    epoch,
                    count: 70,
                },
                now,
            );
        }
        net.drain(0);
        net.run(SECOND);
    }
    for m in &net.members {
        let s = m.node.stats();
        assert!(s.cells_max <= 4 * 5_000, "{} cells at once", s.cells_max);
    }
    assert_eq!(net.members[1].node.stats().rows_raised, 50_000);
    net.run(5 * SECOND);
    for m in &net.members {
        let s = m.node.stats();
        assert_eq!((s.cells, s.shelves), (0, 0));
        assert!(s.cell_bytes < 1_500_000, "{} bytes kept", s.cell_bytes);
    }
}

#[test]
fn origins_are_bounded_and_come_free_again() {
    let mut net = Net::new(7);
    let mut small = config(1, 1, &[hour()]);
    small.tunables.max_origins = 3;
    net.add(small);
    net.add(config(2, 100, &[hour()]));
    net.introduce();
    let e = net.epoch(&hour());
    for incarnation in 101..106 {
        net.run(2 * SECOND);
        net.own(1, 0, key(1), e, 10);
        net.run(SECOND);
        net.restart(
            1,
            Config {
                session: 1,
                ..config(2, incarnation, &[hour()])
            },
        );
    }
    net.run(SECOND);
    let s = net.members[0].node.stats();
    assert!(s.origins <= 3, "{}", s.origins);
    assert!(s.refused_origins > 0);
    assert_eq!(net.members[0].node.remote_total(0, key(1), e), 30);
}

#[test]
fn a_thousand_hot_rows_never_mismatch_without_loss() {
    let mut net = Net::mesh(8, 3, &[hour()]);
    net.run(SECOND);
    for round in 1..200u32 {
        load(&mut net, 0, 0..300, round);
        load(&mut net, 1, 0..300, round);
        net.run(u64::from(round % 7) * 5 * MS);
    }
    for m in &net.members {
        let s = m.node.stats();
        assert!(s.digests_mismatched <= 1, "{s:?}");
        assert_eq!(s.rows_repaired, 0);
    }
}
