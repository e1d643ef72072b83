//! The bound that members state: small while all is well, as large as it must be when it is not.
#![allow(clippy::unwrap_used)]

mod net;

use gabion_node::{Bounds, LimiterSpec, Now};
use net::{config, key, minute, Net, MS, SECOND};

/// What member `i` states, as its driver asks: after a look at what is due.
fn stated(net: &mut Net, i: usize) -> Bounds {
    net.drain(i);
    net.members[i].node.bounds(net.clock(i))
}

/// Lets time pass while drivers turn as they do at rest: one that does not has stood still.
fn run(net: &mut Net, for_ns: u64) {
    let end = net.now + for_ns;
    while net.now < end {
        net.run((end - net.now).min(10 * MS));
        for i in 0..net.members.len() {
            if net.members[i].alive {
                net.drain(i);
            }
        }
    }
}

fn calm(n: usize, limiters: &[LimiterSpec]) -> Net {
    let mut net = Net::mesh(11, n, limiters);
    run(&mut net, 5 * SECOND);
    net
}

#[test]
fn links_that_are_up_leave_the_budget_and_links_that_are_down_a_limit_each() {
    let big = LimiterSpec {
        short: 0x12,
        limit: 10_000,
        ..minute()
    };
    let mut net = calm(3, &[minute(), big]);
    for i in 0..3 {
        let b = stated(&mut net, i);
        assert_eq!((b.members, b.unreachable), (3, 0), "{b:?}");
        assert_eq!(
            (b.rules[0].bound_hits, b.rules[1].bound_hits),
            (2, 66),
            "{b:?}"
        );
        assert!(b.rules[0].staleness_ns < 20 * MS, "{b:?}");
    }
    net.members[2].alive = false;
    run(&mut net, 6 * SECOND);
    let b = stated(&mut net, 0);
    assert_eq!((b.members, b.unreachable), (3, 1), "{b:?}");
    assert_eq!(
        (b.rules[0].bound_hits, b.rules[1].bound_hits),
        (101, 10_033),
        "{b:?}"
    );
    net.members[1].alive = false;
    run(&mut net, 6 * SECOND);
    let b = stated(&mut net, 0);
    assert_eq!((b.unreachable, b.rules[0].bound_hits), (2, 200), "{b:?}");
    for i in [1, 2] {
        net.restart(i, config(i as u64 + 1, 2_000 + i as u64, &[minute(), big]));
    }
    run(&mut net, 8 * SECOND);
    for i in 0..3 {
        let b = stated(&mut net, i);
        assert_eq!((b.unreachable, b.rules[0].bound_hits), (0, 2), "{i}: {b:?}");
    }
}

#[test]
fn a_peer_that_stops_to_hear_is_as_good_as_away() {
    let mut net = calm(2, &[minute()]);
    net.cut.insert((0, 1));
    run(&mut net, 7 * SECOND);
    for i in 0..2 {
        let b = stated(&mut net, i);
        assert_eq!(
            (b.unreachable, b.rules[0].bound_hits),
            (1, 100),
            "{i}: {b:?}"
        );
    }
}

#[test]
fn a_member_alone_bounds_nothing_and_one_that_started_bounds_a_limit() {
    let mut net = Net::mesh(3, 1, &[minute()]);
    run(&mut net, SECOND);
    let b = stated(&mut net, 0);
    assert_eq!((b.members, b.unreachable, b.rules[0].bound_hits), (1, 0, 0));
    let mut net = Net::mesh(3, 2, &[minute()]);
    run(&mut net, 100 * MS);
    let b = stated(&mut net, 0);
    assert_eq!(
        (b.members, b.unreachable, b.rules[0].bound_hits),
        (2, 1, 100)
    );
}

#[test]
fn hits_under_way_are_in_the_bound_of_both_sides_and_are_forgotten_later() {
    let mut net = calm(2, &[minute()]);
    let epoch = net.epoch(&minute());
    net.own(1, 0, key(1), epoch, 40);
    // Not yet at the other side: who admitted them knows.
    assert!(stated(&mut net, 1).rules[0].bound_hits >= 40);
    run(&mut net, 100 * MS);
    let b = stated(&mut net, 0);
    assert!(
        b.rules[0].bound_hits >= 40,
        "40 at once may come again: {b:?}"
    );
    run(&mut net, 12 * SECOND);
    for i in 0..2 {
        assert_eq!(stated(&mut net, i).rules[0].bound_hits, 1);
    }
}

#[test]
fn a_steady_load_of_one_key_costs_a_hit_or_two_of_each_member() {
    // Case 46: 450 a minute among 3 members at 20 a second in all.
    let spec = LimiterSpec {
        limit: 450,
        ..minute()
    };
    let mut net = calm(3, &[spec]);
    let epoch = net.epoch(&spec);
    for n in 1..=120u32 {
        let member = (n % 3) as usize;
        net.own(member, 0, key(1), epoch, n.div_ceil(3));
        run(&mut net, 50 * MS);
        let b = stated(&mut net, member);
        let bound = b.rules[0].bound_hits;
        assert!((2..=6).contains(&bound), "after {n}: {b:?}");
        assert!(b.rules[0].staleness_ns < 100 * MS, "after {n}: {b:?}");
    }
}

#[test]
fn many_keys_do_not_add_up_to_the_bound_of_one() {
    let mut net = calm(3, &[minute()]);
    let epoch = net.epoch(&minute());
    for n in 0..2_000u64 {
        net.own(1, 0, key(n), epoch, 1);
        if n % 20 == 0 {
            run(&mut net, MS);
        }
    }
    // Saved rounds are closer together than this net is even, so frames overtook each other: the
    // bound reckons with a loss until two time-outs passed.
    run(&mut net, 300 * MS);
    let b = stated(&mut net, 0);
    assert!(b.rules[0].bound_hits <= 12, "{b:?}");
}

#[test]
fn news_that_is_not_acknowledged_is_as_old_as_it_is() {
    let mut net = calm(2, &[minute()]);
    let epoch = net.epoch(&minute());
    net.cut.insert((1, 0));
    net.own(1, 0, key(1), epoch, 1);
    run(&mut net, 700 * MS);
    let b = stated(&mut net, 1);
    let stale = b.rules[0].staleness_ns;
    assert!((700 * MS..2_000 * MS).contains(&stale), "{b:?}");
    net.cut.clear();
    run(&mut net, 3 * SECOND);
    let b = stated(&mut net, 1);
    assert!(b.rules[0].staleness_ns < 20 * MS, "acknowledged: {b:?}");
}

#[test]
fn a_driver_that_stands_still_states_so() {
    let mut net = calm(2, &[minute()]);
    net.drain(0);
    let now = net.clock(0);
    let later = Now {
        mono_ns: now.mono_ns + SECOND,
        ..now
    };
    let b = net.members[0].node.bounds(later);
    assert!(b.rules[0].staleness_ns >= SECOND, "{b:?}");
}

#[test]
fn news_that_is_told_again_is_as_old_as_what_the_peer_lacks() {
    // Each lost row is published again before it is found lost, so no frame repeats the first.
    let mut net = calm(2, &[minute()]);
    let epoch = net.epoch(&minute());
    net.cut.insert((1, 0));
    for n in 1..=45u32 {
        net.own(1, 0, key(1), epoch, n);
        run(&mut net, 20 * MS);
        let least = u64::from(n) * 20 * MS;
        let b = stated(&mut net, 1);
        assert!(b.unacknowledged_ns >= least, "{n}: {b:?}");
        assert!(b.unacknowledged_ns < 2 * least + 20 * MS, "{n}: {b:?}");
    }
    net.cut.clear();
    run(&mut net, 3 * SECOND);
    let b = stated(&mut net, 1);
    assert!(b.rules[0].staleness_ns < 20 * MS, "acknowledged: {b:?}");
}

#[test]
fn what_a_driver_that_stood_still_tells_of_may_be_as_old_as_that() {
    let mut net = calm(2, &[minute()]);
    let epoch = net.epoch(&minute());
    net.run(300 * MS);
    net.own(1, 0, key(1), epoch, 1);
    let b = stated(&mut net, 1);
    assert!(b.unacknowledged_ns >= 200 * MS, "{b:?}");
    assert!(b.rules[0].staleness_ns >= b.unacknowledged_ns, "{b:?}");
    run(&mut net, SECOND);
    let b = stated(&mut net, 1);
    assert!(b.rules[0].staleness_ns < 20 * MS, "{b:?}");
}
