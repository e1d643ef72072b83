//! Named situations, each of which broke some limiter: restarts, partitions, clocks, discovery.
#![allow(clippy::unwrap_used)] // helpers of tests

use std::collections::BTreeSet;

use gabion_node::Note;
use gabion_sim::config::{Fault, WorldConfig, MS, SECOND};
use gabion_sim::swarm::fixed;
use gabion_sim::World;

const HOUR: u64 = 3_600 * SECOND;

fn world(members: usize, limit: u32, window_ns: u64) -> World {
    World::new(WorldConfig::calm(1, members, vec![fixed(limit, window_ns)]))
}

fn hits(world: &mut World, member: usize, count: usize) -> usize {
    (0..count)
        .filter(|_| world.request(member, 0, 1, 1).is_some_and(|a| a.allowed()))
        .count()
}

fn views(world: &World) -> Vec<u64> {
    (0..world.members())
        .map(|member| world.known(member, 0, 1))
        .collect()
}

fn restart(member: usize, wall_error_ns: i64) -> Fault {
    Fault::Restart {
        member,
        down_ns: 300 * MS,
        moves: false,
        wall_error_ns,
    }
}

#[track_caller]
fn settled(world: &mut World) {
    assert!(world.settle(), "{}", world.violation().unwrap());
}

#[test]
fn case_36_a_restarted_member_adds_up_with_what_it_was() {
    let mut world = world(3, 1_000, HOUR);
    world.run_for(2 * SECOND);
    assert_eq!(hits(&mut world, 0, 40), 40);
    world.run_for(2 * SECOND);
    world.apply(restart(0, 0));
    world.run_for(3 * SECOND);
    assert_eq!(hits(&mut world, 0, 5), 5);
    settled(&mut world);
    assert_eq!(views(&world), [45, 45, 45]);
}

#[test]
fn case_36_the_restarted_member_enforces_what_it_forgot() {
    let mut world = world(3, 40, HOUR);
    world.run_for(2 * SECOND);
    assert_eq!(hits(&mut world, 0, 40), 40);
    world.run_for(2 * SECOND);
    world.apply(restart(0, 0));
    world.run_for(3 * SECOND);
    // The first request claims the row; the counts of peers are in it within one turn.
    let admitted = hits(&mut world, 0, 1);
    world.run_for(50 * MS);
    assert_eq!(hits(&mut world, 0, 100), 0);
    assert!(admitted <= 1);
    settled(&mut world);
}

#[test]
fn case_37_two_restarts_in_a_millisecond_and_a_clock_that_went_back() {
    let mut world = world(3, 1_000, HOUR);
    let mut incarnations = BTreeSet::from([world.member(0).identity.incarnation]);
    world.run_for(2 * SECOND);
    assert_eq!(hits(&mut world, 0, 10), 10);
    world.run_for(2 * SECOND);
    for back_ns in [0, 3_600_000_000_000] {
        world.apply(Fault::Restart {
            member: 0,
            down_ns: 0,
            moves: false,
            wall_error_ns: -back_ns,
        });
        incarnations.insert(world.member(0).identity.incarnation);
        world.run_for(MS / 2);
    }
    assert_eq!(incarnations.len(), 3);
    world.run_for(4 * SECOND);
    assert_eq!(hits(&mut world, 0, 3), 3);
    settled(&mut world);
    assert_eq!(views(&world), [13, 13, 13]);
}

#[test]
fn case_38_two_members_with_one_node_id_are_both_counted_and_reported() {
    let mut config = WorldConfig::calm(1, 3, vec![fixed(1_000, HOUR)]);
    config.node_ids = vec![7, 7, 9];
    let mut world = World::new(config);
    world.run_for(3 * SECOND);
    assert_eq!((hits(&mut world, 0, 10), hits(&mut world, 1, 20)), (10, 20));
    settled(&mut world);
    assert_eq!(views(&world), [30, 30, 30]);
    let told = (0..3).filter(|&member| {
        let notes = world.member(member).notes.keys();
        notes
            .clone()
            .any(|note| matches!(note, Note::DuplicateNode { node: 7, .. }))
    });
    assert!(told.count() >= 1, "nobody reported the duplicate node id");
}

#[test]
fn case_39_updates_for_rules_and_members_never_heard_of() {
    let mut config = WorldConfig::calm(1, 3, vec![fixed(1_000, HOUR), fixed(500, HOUR)]);
    config.rules_at = vec![(2, vec![0])];
    config.no_peers = vec![1];
    let mut world = World::new(config);
    world.run_for(2 * SECOND);
    for _ in 0..30 {
        world.request(0, 1, 1, 1);
        world.request(1, 0, 1, 1);
    }
    assert_eq!(world.request(2, 1, 1, 1), None, "member 2 has no such rule");
    world.run_for(5 * SECOND);
    assert_eq!(
        world.known(2, 0, 1),
        30,
        "a member nobody was configured with is heard"
    );
    assert_eq!(world.known(1, 1, 1), 30);
    settled(&mut world);
}

#[test]
fn case_40_news_that_arrives_after_its_window_does_not_count() {
    let mut config = WorldConfig::calm(1, 2, vec![fixed(10, SECOND)]);
    config.calm.delay_min_ns = 30 * MS;
    config.calm.delay_max_ns = 40 * MS;
    let mut world = World::new(config);
    world.run_until(5 * SECOND + 985 * MS);
    assert_eq!(hits(&mut world, 1, 10), 10);
    world.run_until(6 * SECOND + 5 * MS);
    assert_eq!(world.known(0, 0, 1), 0, "still in flight");
    assert_eq!(hits(&mut world, 0, 4), 4);
    world.run_until(6 * SECOND + 100 * MS);
    assert_eq!(
        world.known(0, 0, 1),
        4,
        "the ten of the window before stay there"
    );
    assert_eq!(hits(&mut world, 0, 10), 6);
    settled(&mut world);
}

#[test]
fn case_41_a_partition_longer_than_the_window() {
    let mut world = world(4, 10, 10 * SECOND);
    world.run_for(2 * SECOND);
    world.apply(Fault::Partition { side: 0b0011 });
    assert_eq!(hits(&mut world, 0, 8), 8);
    assert_eq!(
        hits(&mut world, 2, 8),
        8,
        "the other side knows nothing of it"
    );
    world.run_until(32 * SECOND);
    assert_eq!(views(&world), [0, 0, 0, 0], "the window has passed");
    assert_eq!((hits(&mut world, 1, 3), hits(&mut world, 3, 3)), (3, 3));
    world.run_until(33 * SECOND);
    world.apply(Fault::Heal);
    world.run_until(39 * SECOND);
    assert_eq!(views(&world), [6, 6, 6, 6]);
    settled(&mut world);
}

#[test]
fn case_43_an_address_is_reused_by_another_cluster_and_comes_back() {
    let mut world = world(3, 1_000, HOUR);
    world.run_for(2 * SECOND);
    world.set_cluster(2, 9);
    world.run_for(3 * SECOND);
    assert_eq!((hits(&mut world, 2, 50), hits(&mut world, 0, 5)), (50, 5));
    world.run_for(5 * SECOND);
    assert_eq!(views(&world), [5, 5, 50]);
    world.set_cluster(2, 1);
    world.run_for(5 * SECOND);
    assert_eq!(hits(&mut world, 2, 7), 7);
    settled(&mut world);
    assert_eq!(views(&world), [12, 12, 12]);
}

#[test]
fn case_45_no_peers_at_start_serves_at_once_and_joins_in_seconds() {
    let mut config = WorldConfig::calm(1, 3, vec![fixed(100, HOUR)]);
    config.no_peers = vec![0, 1, 2];
    let mut world = World::new(config);
    assert_eq!(hits(&mut world, 0, 30), 30, "at time 0");
    world.run_for(20 * SECOND);
    assert_eq!(views(&world), [30, 0, 0]);
    for member in 0..3 {
        world.apply(Fault::Peers {
            member,
            none: false,
        });
    }
    world.run_for(3 * SECOND);
    assert_eq!(hits(&mut world, 1, 1), 1);
    world.run_for(2 * SECOND);
    assert_eq!(world.known(1, 0, 1), 31);
    settled(&mut world);
}

#[test]
fn case_48_an_idle_hour_costs_little_and_the_idle_one_is_believed_at_once() {
    let mut world = world(3, 1_000, HOUR);
    world.run_for(10 * SECOND);
    let before = world.report().bytes;
    world.run_for(HOUR - 20 * SECOND);
    let per_link = (world.report().bytes - before) / (3_590 * 6);
    assert!(per_link <= 100, "{per_link} bytes per second and link");
    world.run_until(HOUR + SECOND);
    assert_eq!((hits(&mut world, 2, 9), hits(&mut world, 0, 4)), (9, 4));
    world.run_for(600 * MS);
    assert_eq!(world.known(0, 0, 1), 13);
    assert_eq!(world.known(2, 0, 1), 13);
    settled(&mut world);
}

#[test]
fn case_49_the_driver_stands_still_for_a_minute() {
    let mut world = world(3, 100, HOUR);
    world.run_for(2 * SECOND);
    world.apply(Fault::DriverStops {
        member: 0,
        for_ns: 60 * SECOND,
    });
    world.run_for(5 * SECOND);
    assert_eq!((hits(&mut world, 0, 30), hits(&mut world, 1, 20)), (30, 20));
    world.run_for(5 * SECOND);
    assert_eq!(
        (world.used(0, 0, 1), world.used(1, 0, 1)),
        (30, 20),
        "decisions go on locally"
    );
    assert_eq!(world.known(2, 0, 1), 20, "and the others go on without it");
    world.run_for(60 * SECOND);
    assert_eq!(
        (world.known(0, 0, 1), world.known(1, 0, 1)),
        (50, 50),
        "it resumes by itself"
    );
    assert_eq!(hits(&mut world, 0, 200), 50);
    settled(&mut world);
}

#[test]
fn case_52_the_same_rules_in_another_order_are_one_set_of_counters() {
    let mut config = WorldConfig::calm(1, 3, vec![fixed(100, HOUR), fixed(200, HOUR)]);
    config.rules_at = vec![(1, vec![1, 0])];
    let mut world = World::new(config);
    world.run_for(2 * SECOND);
    for member in 0..3 {
        for _ in 0..10 * (member + 1) {
            assert!(world.request(member, 0, 1, 1).unwrap().allowed());
            assert!(world.request(member, 1, 1, 2).unwrap().allowed());
        }
    }
    world.run_for(2 * SECOND);
    assert_eq!(views(&world), [60, 60, 60]);
    assert_eq!(
        (0..3)
            .map(|member| world.known(member, 1, 1))
            .collect::<Vec<_>>(),
        [120; 3]
    );
    settled(&mut world);
}

#[test]
fn case_23_a_wall_clock_that_is_off_neither_locks_out_nor_refills() {
    for error_ns in [-11_000_000_000, 3_600_000_000_000] {
        let mut world = world(3, 10, 60 * SECOND);
        world.run_until(20 * SECOND);
        assert_eq!(hits(&mut world, 1, 10), 10);
        world.run_until(22 * SECOND);
        world.apply(restart(0, error_ns));
        world.run_until(27 * SECOND);
        let refill = hits(&mut world, 0, 1);
        world.run_until(28 * SECOND);
        assert_eq!(
            refill + hits(&mut world, 0, 20),
            0,
            "wall clock off by {error_ns}: a refill"
        );
        world.run_until(62 * SECOND);
        assert_eq!(
            hits(&mut world, 0, 10),
            10,
            "wall clock off by {error_ns}: locked out"
        );
        settled(&mut world);
    }
}

#[test]
fn case_23_a_host_that_slept_comes_back_behind() {
    let mut world = world(3, 10, 60 * SECOND);
    world.run_until(61 * SECOND);
    assert_eq!(hits(&mut world, 1, 4), 4);
    world.apply(Fault::Sleep {
        member: 0,
        for_ns: 20 * SECOND,
        clock_stops: true,
    });
    world.run_until(86 * SECOND);
    assert_eq!(hits(&mut world, 0, 10), 6);
    world.run_until(125 * SECOND);
    assert_eq!(hits(&mut world, 0, 10), 10);
    settled(&mut world);
}

#[test]
fn a_new_leader_over_kept_memory_counts_nothing_twice_and_forgets_nothing() {
    let mut world = world(3, 1_000, HOUR);
    world.run_for(2 * SECOND);
    assert_eq!(hits(&mut world, 0, 40), 40);
    for _ in 0..3 {
        world.run_for(MS);
        world.apply(Fault::LeaderChange { member: 0 });
        assert_eq!(hits(&mut world, 0, 5), 5);
    }
    settled(&mut world);
    assert_eq!(views(&world), [55, 55, 55]);
}

#[test]
fn a_one_way_link_is_gone_around() {
    let mut world = world(4, 1_000, HOUR);
    world.run_for(2 * SECOND);
    world.apply(Fault::OneWay { from: 0, to: 1 });
    world.run_for(5 * SECOND);
    assert_eq!(hits(&mut world, 0, 25), 25);
    world.run_for(10 * SECOND);
    assert_eq!(world.known(1, 0, 1), 25, "relayed by the others");
    settled(&mut world);
}
