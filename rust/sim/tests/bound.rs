//! What members state of a bound, against what is really admitted.

use gabion_sim::config::{Arrival, Keys, Load, Target, WorldConfig, MS, SECOND};
use gabion_sim::member::key;
use gabion_sim::swarm::fixed;
use gabion_sim::World;

/// The largest bound that any member states now.
fn stated(world: &World) -> u64 {
    let bound = |index: usize| {
        let member = world.member(index);
        let bounds = member.node.bounds(member.now(world.now_ns()));
        bounds.rules.first().map_or(0, |rule| rule.bound_hits)
    };
    (0..world.members()).map(bound).max().unwrap_or(0)
}

/// (most over the limit, most stated) in the third minute, offered `per_second` in all.
fn minute(members: usize, limit: u32, per_second: u64) -> (u64, u64) {
    let mut config = WorldConfig::calm(9, members, vec![fixed(limit, 60 * SECOND)]);
    config.starve_ns = 0;
    config.loads.push(Load {
        rule: 0,
        keys: Keys::One(1),
        target: Target::Any,
        arrival: Arrival::Poisson {
            mean_ns: SECOND / per_second,
        },
        hits: 1,
        from_ns: 50 * SECOND,
        until_ns: 180 * SECOND,
    });
    let plan = config.rules[0].plan();
    let mut world = World::new(config);
    let epoch = plan.epoch_of(gabion_sim::clock::WORLD_UNIX_NS) + 2;
    world.run_until(120 * SECOND);
    let mut most = 0;
    while world.now_ns() < 179 * SECOND && world.truth.epoch(0, key(0, 1), epoch).total() == 0 {
        world.run_for(50 * MS);
    }
    while world.now_ns() < 180 * SECOND {
        most = most.max(stated(&world));
        world.run_for(100 * MS);
    }
    assert_eq!(world.violation(), None);
    let admitted = world.truth.epoch(0, key(0, 1), epoch).total();
    (admitted.saturating_sub(u64::from(limit)), most)
}

#[test]
fn case_46_what_is_admitted_beyond_450_is_within_what_is_stated() {
    for per_second in [10, 20] {
        let (over, stated) = minute(3, 450, per_second);
        println!("3 members, 450/min at {per_second} r/s: {over} over, {stated} stated");
        assert!(
            over <= stated && (2..=12).contains(&stated),
            "{over} {stated}"
        );
    }
}

#[test]
fn ten_times_the_limit_is_within_what_is_stated() {
    let (over, stated) = minute(8, 1_000, 167);
    println!("8 members, 1,000/min at 167 r/s: {over} over, {stated} stated");
    assert!(
        over <= stated && (7..=60).contains(&stated),
        "{over} {stated}"
    );
}

#[test]
fn case_47_ten_members_and_a_limit_of_5_state_a_hit_of_each_other_member() {
    let mut world = World::new(WorldConfig::calm(3, 10, vec![fixed(5, 3_600 * SECOND)]));
    world.run_for(6 * SECOND);
    assert_eq!(stated(&world), 9);
    let mut admitted = 0;
    for n in 0..40 {
        let answer = world.request(n % 10, 0, 1, 1);
        admitted += u64::from(answer.is_some_and(|answer| answer.allowed()));
        world.run_for(20 * MS);
    }
    assert!(
        admitted >= 5 && admitted - 5 <= stated(&world),
        "{admitted}"
    );
    assert_eq!(world.violation(), None);
}
