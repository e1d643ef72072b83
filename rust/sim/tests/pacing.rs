//! How far each pace is over its limit when ten times the limit comes at once.
#![allow(clippy::unwrap_used)] // helpers of tests

use gabion_rule::Pace;
use gabion_sim::config::{WorldConfig, MS, SECOND};
use gabion_sim::member::key;
use gabion_sim::network::NetworkFault;
use gabion_sim::swarm::fixed;
use gabion_sim::World;

const MEMBERS: usize = 16;
const LIMIT: u32 = 1_000;

/// Hits admitted of 10 x the limit, offered to all members in turn within `for_ns`.
fn admitted(seed: u64, pace: Pace, for_ns: u64) -> u64 {
    let mut rule = fixed(LIMIT, 60 * SECOND);
    rule.pace = pace;
    let mut config = WorldConfig::calm(seed, MEMBERS, vec![rule]);
    config.starve_ns = 0;
    config.calm = NetworkFault {
        delay_min_ns: 100_000,
        delay_max_ns: 500_000,
        ..config.calm
    };
    let plan = config.rules[0].plan();
    let mut world = World::new(config);
    world.run_until(5 * SECOND);
    for member in 0..MEMBERS {
        // New counters of a strict rule learn that they are new.
        world.request(member, 0, 1, 1);
    }
    let window_ns = 60 * SECOND;
    let unix_ns = gabion_sim::clock::WORLD_UNIX_NS;
    let start_ns = (unix_ns / window_ns + 2) * window_ns - unix_ns + 3 * SECOND;
    world.run_until(start_ns);
    let requests = u64::from(LIMIT) * 10;
    for n in 0..requests {
        world.run_until(start_ns + for_ns * n / requests);
        let member = usize::try_from(n).unwrap() % MEMBERS;
        world.request(member, 0, 1, 1);
    }
    world.run_for(SECOND);
    assert_eq!(world.violation(), None);
    let epoch = plan.epoch_of(unix_ns + start_ns);
    world.truth.epoch(0, key(0, 1), epoch).total()
}

fn worst(name: &str, pace: Pace, for_ns: u64) -> (u64, u64) {
    let all: Vec<u64> = (0..3).map(|seed| admitted(seed, pace, for_ns)).collect();
    println!("{name}, 10 x {LIMIT} in {} ms: {all:?}", for_ns / MS);
    (*all.iter().min().unwrap(), *all.iter().max().unwrap())
}

const STRICT: Pace = Pace::Strict {
    members: 16,
    place: None,
};

#[test]
fn strict_admits_all_of_its_parts_and_nothing_beyond() {
    for for_ns in [SECOND, 50 * MS, 5 * MS] {
        assert_eq!(worst("strict", STRICT, for_ns), (992, 992), "16 x 62");
    }
}

#[test]
fn paced_is_within_half_a_percent_in_a_second_and_one_in_50_milliseconds() {
    for (for_ns, most) in [(SECOND, 1_005), (50 * MS, 1_010), (5 * MS, 1_010)] {
        let (_, over) = worst("paced", Pace::Paced, for_ns);
        assert!(over <= most, "{over} admitted");
    }
    let (least, _) = worst("paced", Pace::Paced, 2 * SECOND);
    assert!(least >= 990, "{least} admitted");
}

#[test]
fn fast_is_as_far_over_as_what_comes_before_news_does() {
    let (least, over) = worst("fast", Pace::Fast, SECOND);
    assert!(least >= 1_000 && over <= 1_100, "{least} to {over}");
    worst("fast", Pace::Fast, 50 * MS);
}

#[test]
fn strict_holds_through_a_partition_and_restarts() {
    use gabion_sim::config::Fault;
    let mut rule = fixed(100, 10 * SECOND);
    rule.pace = Pace::Strict {
        members: 5,
        place: None,
    };
    let mut config = WorldConfig::calm(9, 6, vec![rule]);
    config.starve_ns = 0;
    let mut world = World::new(config);
    let mut passed = 0;
    for step in 0..4_000u64 {
        world.run_for(10 * MS);
        if step == 1_000 {
            world.apply(Fault::Partition { side: 0b10101 });
        }
        if step % 700 == 500 {
            world.apply(Fault::Restart {
                member: usize::try_from(step / 700).unwrap() % 6,
                down_ns: 50 * MS,
                moves: false,
                wall_error_ns: 0,
            });
        }
        for member in 0..6 {
            let answer = world.request(member, 0, 1, 1);
            let allowed = answer.is_some_and(|answer| answer.allowed());
            assert!(!allowed || member < 5, "a surplus member admits nothing");
            passed += u64::from(allowed);
        }
        assert_eq!(world.violation(), None, "step {step}");
    }
    assert!(passed > 200, "{passed}");
}
