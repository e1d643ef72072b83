//! Eras and flags: every member has them in the end, and nobody goes on talking about them.

#![allow(clippy::cast_possible_truncation, clippy::unwrap_used)] // a failure is a failed test

mod net;

use gabion_node::{Note, OrderError, Reach};
use gabion_rule::{flag_name, limiter_name, Order, Share};
use gabion_wire::{EraEntry, FlagEntry};
use net::*;

const KEYS: &str = "1:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n";

fn api() -> u64 {
    limiter_name("edge", "api")
}

fn raise(net: &mut Net, i: usize, limiter: u64) -> u32 {
    let now = net.clock(i);
    let era = net.members[i].node.raise_era(limiter, now).unwrap();
    net.drain(i);
    era
}

fn set(net: &mut Net, i: usize, flag: &str, percent: Option<u8>) -> Reach {
    let (now, share) = (net.clock(i), percent.and_then(Share::percent));
    let node = &mut net.members[i].node;
    let reach = node.set_flag(flag_name(flag), share, now).unwrap();
    net.drain(i);
    reach
}

fn era(net: &Net, i: usize, limiter: u64) -> u32 {
    let mut eras = net.members[i].node.eras();
    eras.find(|e| e.limiter == limiter).map_or(0, |e| e.era)
}

fn all_have(net: &Net, limiter: u64, want: u32) -> bool {
    (0..net.members.len())
        .filter(|i| net.members[*i].alive)
        .all(|i| era(net, i, limiter) == want)
}

fn percent(net: &Net, i: usize, flag: &str) -> Option<Option<u8>> {
    let mut flags = net.members[i].node.flags();
    flags.find(|f| f.flag == flag_name(flag)).map(|f| f.percent)
}

fn signed(seed: u64, n: usize) -> Net {
    let mut net = Net::new(seed);
    for i in 0..n {
        let mut c = config(i as u64 + 1, 1_000 + i as u64, &[minute()]);
        c.keys = keys(KEYS);
        net.add(c);
    }
    net.introduce();
    net
}

fn registers_out(net: &Net) -> u64 {
    let out = |m: &Member| m.node.stats().registers_out;
    net.members.iter().map(out).sum()
}

#[test]
fn an_era_is_everywhere_within_a_round_trip_and_then_there_is_silence() {
    let mut net = Net::mesh(1, 8, &[minute()]);
    net.run(3 * SECOND);
    let raised = raise(&mut net, 3, api());
    net.run(2 * MS);
    assert!(all_have(&net, api(), raised));
    net.run(3 * SECOND);
    let said = registers_out(&net);
    assert!((7..=56).contains(&said), "n - 1 to n (n - 1): {said}");
    net.run(60 * SECOND);
    assert_eq!(registers_out(&net), said);
    // Deciders learn of it once, with the value of now.
    let orders: Vec<Order> = net.members[0].node.orders_since(0).collect();
    let (limiter, era) = (api(), raised);
    assert_eq!(orders, [Order::Era { limiter, era }]);
    let head = net.members[0].node.orders_head();
    assert_eq!(net.members[0].node.orders_since(head).count(), 0);
}

#[test]
fn whoever_heard_of_it_passes_it_on_when_the_writer_is_gone() {
    let mut net = Net::mesh(2, 5, &[minute()]);
    net.run(3 * SECOND);
    (2..5).for_each(|i| {
        net.cut.insert((0, i));
    });
    let raised = raise(&mut net, 0, api());
    net.run(MS);
    assert_eq!(era(&net, 1, api()), raised);
    net.members[0].alive = false;
    net.run(2 * MS);
    assert!(all_have(&net, api(), raised));
}

#[test]
fn eras_survive_loss_repetition_and_a_partition_in_which_both_sides_raise() {
    let mut net = Net::mesh(3, 6, &[minute()]);
    (net.loss_pct, net.dup_pct, net.delay_ns) = (40, 20, (MS / 4, 20 * MS));
    net.run(5 * SECOND);
    for a in 0..3 {
        for b in 3..6 {
            net.cut.extend([(a, b), (b, a)]);
        }
    }
    net.run(8 * SECOND);
    let left = raise(&mut net, 0, api());
    net.run(3 * SECOND);
    let right = raise(&mut net, 5, api());
    let other = raise(&mut net, 4, 77);
    net.run(3 * SECOND);
    assert!(right > left);
    assert_eq!(era(&net, 2, api()), left);
    net.cut.clear();
    net.run(20 * SECOND);
    assert!(all_have(&net, api(), right));
    assert!(all_have(&net, 77, other));
}

#[test]
fn a_newcomer_and_a_restarted_member_get_all_of_them() {
    let mut net = signed(4, 3);
    net.run(3 * SECOND);
    let now = net.clock(0);
    for n in 0..1_024u64 {
        net.members[0].node.raise_era(n, now).unwrap();
        net.members[0]
            .node
            .set_flag(n, Share::percent(7), now)
            .unwrap();
    }
    let refused = net.members[0].node.raise_era(5_000, now);
    assert_eq!(refused, Err(OrderError::Full));
    net.drain(0);
    net.loss_pct = 20;
    net.run(5 * SECOND);
    let mut c = config(3, 9_999, &[minute()]);
    c.keys = keys(KEYS);
    net.restart(2, c);
    net.members[0].alive = false;
    net.run(10 * SECOND);
    let there = &net.members[2].node;
    assert_eq!(
        (there.eras().count(), there.flags().count()),
        (1_024, 1_024)
    );
    assert!(there.eras().eq(net.members[1].node.eras()));
    assert!(there.flags().eq(net.members[1].node.flags()));
    assert!(net.largest <= 1_200);
    assert!(net.members[0].node.stats().refused_registers > 0);
    assert!(net.members[2]
        .notes
        .iter()
        .all(|n| *n != Note::RegistersFull));
}

#[test]
fn a_member_that_just_started_resets_although_it_knows_no_era_yet() {
    let mut net = Net::mesh(5, 2, &[minute()]);
    net.run(3 * SECOND);
    let before = (0..5).map(|_| raise(&mut net, 0, api())).max().unwrap();
    net.run(SECOND);
    net.cut.extend([(0, 1), (1, 0)]);
    net.run(10 * SECOND);
    net.restart(1, config(2, 77, &[minute()]));
    let fresh = raise(&mut net, 1, api());
    assert!(fresh > before);
    net.cut.clear();
    net.run(10 * SECOND);
    assert!(all_have(&net, api(), fresh));
}

#[test]
fn the_flag_that_was_set_last_wins_on_every_member() {
    let mut net = signed(6, 4);
    net.loss_pct = 20;
    net.run(3 * SECOND);
    assert_eq!(set(&mut net, 0, "canary", Some(10)), Reach::Cluster);
    net.run(3 * SECOND);
    for a in 0..2 {
        net.cut.extend([(a, 2), (2, a), (a, 3), (3, a)]);
    }
    net.run(8 * SECOND);
    set(&mut net, 3, "canary", Some(50));
    net.run(SECOND);
    set(&mut net, 1, "canary", None);
    net.run(SECOND);
    assert_eq!(percent(&net, 2, "canary"), Some(Some(50)));
    net.cut.clear();
    net.run(15 * SECOND);
    for i in 0..4 {
        assert_eq!(percent(&net, i, "canary"), Some(None), "member {i}");
    }
}

#[test]
fn without_keys_a_flag_is_local_and_flags_of_others_are_dropped() {
    let mut net = Net::mesh(7, 2, &[minute()]);
    net.run(3 * SECOND);
    assert_eq!(set(&mut net, 0, "canary", Some(0)), Reach::Local);
    net.run(3 * SECOND);
    assert_eq!(percent(&net, 0, "canary"), Some(Some(0)));
    assert_eq!(percent(&net, 1, "canary"), None);
    assert_eq!(registers_out(&net), 0);
    // A member with other software may send one all the same.
    let flag = FlagEntry {
        flag: 1,
        version: 5,
        node: 1,
        percent: Some(0),
    };
    forge(&mut net, &[flag], &[]);
    assert_eq!(percent(&net, 1, "canary"), None);
    assert_eq!(net.members[1].node.flags().count(), 0);
    assert_eq!(net.members[1].node.stats().drop_unsigned_flags, 1);
    // Whoever can forge a frame can reset counters, as it could raise counts: docs/spec/orders.md.
    forge(&mut net, &[], &[EraEntry { limiter: 9, era: 3 }]);
    assert_eq!(era(&net, 1, 9), 3);
}

/// A frame from member 0 to member 1 that member 0 never wrote.
fn forge(net: &mut Net, flags: &[FlagEntry], eras: &[EraEntry]) {
    let seq = 1 + last_seq(net);
    let header = gabion_wire::Header {
        seq,
        ..gabion_wire::Header::new(7, 1, 1_000, 1)
    };
    let mut buf = [0u8; 1_200];
    let mut w = gabion_wire::FrameWriter::new(&mut buf, &header, None).unwrap();
    if !flags.is_empty() {
        w.flags(flags).unwrap();
    }
    if !eras.is_empty() {
        w.eras(eras).unwrap();
    }
    let len = w.finish();
    net.post(addr(0), addr(1), &buf[..len]);
    net.run(2 * MS);
}

fn last_seq(net: &Net) -> u64 {
    let to_1 = net
        .tap
        .iter()
        .filter(|(from, to, _)| (*from, *to) == (addr(0), addr(1)));
    let seq = |bytes: &[u8]| gabion_wire::peek_header(bytes).unwrap().seq;
    to_1.map(|(_, _, bytes)| seq(bytes)).max().unwrap()
}

#[test]
fn what_is_remembered_is_told_to_the_peers() {
    let mut net = Net::mesh(8, 3, &[minute()]);
    net.run(3 * SECOND);
    let limiter = api();
    net.members[1]
        .node
        .remember(&[EraEntry { limiter, era: 4 }], &[]);
    net.drain(1);
    net.run(10 * MS);
    assert!(all_have(&net, limiter, 4));
    assert_eq!(raise(&mut net, 2, limiter).min(5), 5);
}

#[test]
fn no_order_is_lost_to_a_member_under_two_addresses_that_restarts() {
    let mut lost = Vec::new();
    for seed in 0..8 {
        let mut net = Net::mesh(seed, 2, &[minute()]);
        net.alias.insert(addr(77), 1);
        // The second of them leads to nobody yet, so its link's numbers fall behind.
        net.handle(0, gabion_node::Input::Peers(&[addr(77), addr(78)]));
        net.run(2 * SECOND);
        let (epoch, mut count) = (net.epoch(&minute()), 0);
        let mut count_on = |net: &mut Net, rounds| {
            for _ in 0..rounds {
                count += 1;
                net.own(0, 0, key(1), epoch, count);
                net.run(30 * MS);
            }
        };
        count_on(&mut net, 20);
        // Now both lead to a new process; that the one before is dead is not known at once.
        net.restart(1, config(2, 2_000, &[minute()]));
        net.alias.insert(addr(78), 1);
        net.run(SECOND);
        count_on(&mut net, 30);
        net.cut.insert((0, 1));
        raise(&mut net, 0, api());
        net.run(3_600 * MS);
        net.cut.clear();
        count_on(&mut net, 100);
        net.run(10 * SECOND);
        assert_eq!(net.members[0].node.peers_up(), 1);
        lost.extend((era(&net, 1, api()) == 0).then_some(seed));
    }
    assert_eq!(lost, [0; 0], "seeds whose reset one member never heard of");
}
