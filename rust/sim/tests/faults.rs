//! What seeds do to a world, one at a time, with the outcome written out by hand.
#![allow(clippy::unwrap_used)] // helpers of tests

use gabion_sim::config::{Fault, WorldConfig, MS, SECOND};
use gabion_sim::network::{Delay, LinkDelay};
use gabion_sim::swarm::fixed;
use gabion_sim::World;

const HOUR: u64 = 3_600 * SECOND;

fn config(members: usize, limit: u32) -> WorldConfig {
    WorldConfig::calm(1, members, vec![fixed(limit, HOUR)])
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

#[track_caller]
fn settled(world: &mut World) {
    assert!(world.settle(), "{}", world.violation().unwrap());
}

#[test]
fn a_member_that_joins_learns_what_was_counted_and_is_counted() {
    let mut config = config(4, 100);
    config.later = vec![3];
    let mut world = World::new(config);
    world.run_for(2 * SECOND);
    assert_eq!(hits(&mut world, 0, 60), 60);
    assert_eq!(world.request(3, 0, 1, 1), None, "it is not there yet");
    world.run_for(5 * SECOND);
    world.apply(Fault::Join { member: 3 });
    world.run_for(4 * SECOND);
    assert_eq!(world.known(3, 0, 1), 60);
    let first = hits(&mut world, 3, 1);
    world.run_for(50 * MS);
    assert_eq!(first + hits(&mut world, 3, 100), 40);
    settled(&mut world);
    assert_eq!(views(&world), [100; 4]);
}

#[test]
fn a_member_that_leaves_in_order_takes_no_hit_along() {
    let mut world = World::new(config(3, 1_000));
    world.run_for(2 * SECOND);
    // The last hits are on nobody's wire yet when it stops.
    assert_eq!(hits(&mut world, 1, 25), 25);
    world.apply(Fault::Leave { member: 1 });
    assert_eq!(world.request(1, 0, 1, 1), None);
    world.run_for(5 * SECOND);
    assert_eq!((world.known(0, 0, 1), world.known(2, 0, 1)), (25, 25));
    assert_eq!(world.member(0).node.peers_up(), 1);
    settled(&mut world);
}

#[test]
fn what_a_clog_held_back_arrives_late_and_harms_nobody() {
    let mut world = World::new(config(2, 1_000));
    world.run_for(2 * SECOND);
    world.apply(Fault::Clog {
        from: 0,
        to: 1,
        for_ns: 3 * SECOND,
    });
    for _ in 0..20 {
        assert_eq!(hits(&mut world, 0, 10), 10);
        world.run_for(100 * MS);
    }
    assert_eq!(world.known(1, 0, 1), 0, "nothing passes");
    world.run_for(1_100 * MS);
    assert_eq!(world.known(1, 0, 1), 200, "and then all of it");
    settled(&mut world);
}

#[test]
fn a_pair_that_is_cut_hears_of_each_other_from_the_third() {
    let mut world = World::new(config(3, 1_000));
    world.run_for(2 * SECOND);
    world.apply(Fault::Apart { one: 0, other: 1 });
    world.run_for(8 * SECOND);
    assert_eq!((hits(&mut world, 0, 7), hits(&mut world, 1, 8)), (7, 8));
    world.run_for(10 * SECOND);
    assert_eq!(views(&world), [15, 15, 15]);
    settled(&mut world);
}

#[test]
fn a_slow_driver_is_late_and_loses_nothing() {
    let mut world = World::new(config(3, 1_000));
    world.run_for(2 * SECOND);
    world.apply(Fault::Slow {
        member: 1,
        pause_ns: 400 * MS,
        for_ns: 20 * SECOND,
    });
    assert_eq!((hits(&mut world, 0, 9), hits(&mut world, 1, 5)), (9, 5));
    world.run_for(100 * MS);
    assert_eq!(world.known(1, 0, 1), 0, "it has not looked yet");
    world.run_for(5 * SECOND);
    assert_eq!(views(&world), [14, 14, 14]);
    settled(&mut world);
}

#[test]
fn case_23_a_clock_that_steps_while_running_is_brought_back() {
    for by_ns in [-11_000_000_000, 11_000_000_000] {
        let mut world = World::new(WorldConfig::calm(1, 3, vec![fixed(10, 60 * SECOND)]));
        world.run_until(61 * SECOND);
        assert_eq!(hits(&mut world, 1, 4), 4);
        world.run_for(SECOND);
        world.apply(Fault::ClockStep { member: 0, by_ns });
        world.run_for(8 * SECOND);
        let off = |world: &World| {
            let now = |m: usize| world.member(m).now(world.now_ns()).cluster_ns;
            now(0).abs_diff(now(1))
        };
        assert!(
            off(&world) <= 20 * MS,
            "{by_ns}: still off by {} ns",
            off(&world)
        );
        assert_eq!(hits(&mut world, 0, 10), 6, "{by_ns}");
        world.run_until(125 * SECOND);
        assert_eq!(
            hits(&mut world, 0, 10),
            10,
            "{by_ns}: the next window is open"
        );
        settled(&mut world);
    }
}

#[test]
fn links_of_their_own_delay_deliver_each_in_its_time() {
    let mut config = config(3, 1_000);
    let link = |from, to, delay| LinkDelay { from, to, delay };
    config.links = vec![
        link(0, 1, Delay::Constant { ns: 80 * MS }),
        link(
            0,
            2,
            Delay::Exponential {
                min_ns: MS,
                mean_ns: 2 * MS,
                most_ns: 20 * MS,
            },
        ),
    ];
    let mut world = World::new(config);
    world.run_for(3 * SECOND);
    assert_eq!(hits(&mut world, 0, 100), 100);
    world.run_for(40 * MS);
    assert_eq!(views(&world), [100, 0, 100]);
    world.run_for(60 * MS);
    assert_eq!(views(&world), [100, 100, 100]);
    settled(&mut world);
}

#[test]
fn case_49_a_socket_that_fails_for_a_minute_leaves_decisions_and_resumes() {
    let mut world = World::new(config(3, 100));
    world.run_for(2 * SECOND);
    world.apply(Fault::Partition { side: 0b001 });
    world.run_for(5 * SECOND);
    assert_eq!((hits(&mut world, 0, 30), hits(&mut world, 1, 20)), (30, 20));
    world.run_for(55 * SECOND);
    assert_eq!(
        views(&world),
        [30, 20, 20],
        "each side decides by what it knows"
    );
    world.apply(Fault::Heal);
    world.run_for(5 * SECOND);
    assert_eq!(views(&world), [50, 50, 50]);
    assert_eq!(hits(&mut world, 0, 200), 50);
    settled(&mut world);
}

#[test]
fn case_44_a_member_that_is_listed_under_two_addresses_is_one() {
    let mut config = config(3, 1_000);
    config.two_addresses = vec![1];
    let mut world = World::new(config);
    world.run_for(3 * SECOND);
    assert_eq!(world.member(0).node.peers_up(), 2);
    for _ in 0..50 {
        assert_eq!((hits(&mut world, 0, 1), hits(&mut world, 1, 1)), (1, 1));
        world.run_for(20 * MS);
    }
    world.run_for(2 * SECOND);
    assert_eq!(views(&world), [100, 100, 100]);
    assert_eq!(world.member(0).node.peers_up(), 2);
    settled(&mut world);
}

#[test]
fn case_50_damage_that_passes_the_checksum_stops_nobody() {
    let mut config = config(3, 100);
    config.damage_passes = true;
    config.calm.corrupt_ppm = 300_000;
    config.calm.truncate_ppm = 100_000;
    let mut world = World::new(config);
    for n in 0..400 {
        world.request(n % 3, 0, 1, 1);
        world.run_for(25 * MS);
    }
    assert!(
        world.network.stats.damaged > 150,
        "{:?}",
        world.network.stats
    );
    // Whatever was counted, the members are there, within their budgets, and agree on bounds.
    assert!(world.settle(), "{:?}", world.violation());
    assert!(world.request(0, 0, 77, 1).is_some());
}

#[test]
fn own_counts_that_a_set_back_clock_let_go_come_back_from_a_peer() {
    let world = r#"{
        "seed": 2916, "members": 2,
        "rules": [{"algorithm": {"window": {"limit": 148, "window_ns": 10000000000,
                                            "bucket_ns": 1000000000, "sliding": "live"}},
                   "cardinality": 400, "error_budget_ppm": 10000}],
        "table_bytes": 4194304, "authenticated": false,
        "calm": {"delay_min_ns": 100000, "delay_max_ns": 2000000, "loss_ppm": 0,
                 "duplicate_ppm": 0, "late_ppm": 0, "late_max_ns": 0, "replay_ppm": 0,
                 "corrupt_ppm": 0, "truncate_ppm": 0},
        "clocks": [{"wall_error_ns": -2910214340, "drift_ppm": 3},
                   {"wall_error_ns": 9885278002, "drift_ppm": 69}],
        "loads": [{"rule": 0, "keys": {"zipf": 100}, "target": "any", "hits": 2,
                   "arrival": {"on_off": {"every_ns": 7852918, "on_ns": 1482320444,
                                          "off_ns": 814533181}},
                   "from_ns": 3294164897, "until_ns": 8107753851}],
        "faults": [{"at_ns": 7287141035,
                    "do": {"clock_step": {"member": 0, "by_ns": -4245021618}}}],
        "settle_ns": 10000000000, "starve_ns": 3000000000, "roomy": true
    }"#;
    let config = gabion_sim::scenario::parse("own counts".as_ref(), world).unwrap();
    if let Err(found) = gabion_sim::run::run(config) {
        panic!("{found}");
    }
}
