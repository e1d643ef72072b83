//! From a seed to a world: which members, rules, clocks, network, loads and faults.

use gabion_rule::{Algorithm, Pace, Sliding};

use crate::clock::ClockFault;
use crate::config::{Arrival, Fault, Keys, Load, Plant, SimRule, Target, WorldConfig, MS, SECOND};
use crate::network::{Delay, LinkDelay, NetworkFault, CALM};
use crate::orders::Order;
use crate::rng::Rng;

/// Requests per world, about.
const REQUESTS: u64 = 3_000;

/// A fixed window of `window_ns`.
pub fn fixed(limit: u32, window_ns: u64) -> SimRule {
    let sliding = Sliding::Live;
    SimRule::new(Algorithm::Window {
        limit,
        window_ns,
        bucket_ns: window_ns,
        sliding,
    })
}

/// A sliding window.
pub fn sliding(limit: u32, window_ns: u64, bucket_ns: u64, sliding: Sliding) -> SimRule {
    SimRule::new(Algorithm::Window {
        limit,
        window_ns,
        bucket_ns,
        sliding,
    })
}

/// A token bucket of `hits` per `per_ns` and depth `burst`.
pub fn bucket(hits: u64, per_ns: u64, burst: u32) -> SimRule {
    // The replication epoch as the rule room derives it: a power of two milliseconds, at least 1 s
    // and at least the time the whole depth takes to refill.
    let refill_ms = u64::from(burst).saturating_mul(per_ns) / hits.max(1) / MS;
    let epoch_ms = refill_ms.max(1_000).next_power_of_two();
    let epoch_ns = epoch_ms * MS;
    SimRule::new(Algorithm::TokenBucket {
        hits,
        per_ns,
        burst,
        epoch_ns,
    })
}

fn rule(rng: &mut Rng, keys: u32) -> SimRule {
    let limit = match rng.below(4) {
        0 => u32::try_from(rng.between(1, 5)).unwrap_or(1),
        1 | 2 => u32::try_from(rng.between(10, 200)).unwrap_or(1),
        _ => 1_000,
    };
    let window_ns = rng.pick(&[SECOND, 5 * SECOND, 10 * SECOND, 60 * SECOND, 3_600 * SECOND]);
    let mut rule = match rng.below(8) {
        0..=3 => fixed(limit, window_ns),
        4 => sliding(limit, 10 * SECOND, SECOND, Sliding::Live),
        5 => sliding(limit, 60 * SECOND, 20 * SECOND, Sliding::Strict),
        6 => sliding(limit, 60 * SECOND, 30 * SECOND, Sliding::Weighted),
        _ => bucket(u64::from(limit), SECOND, limit.min(50)),
    };
    rule.cardinality = Some(keys.saturating_mul(4).max(256));
    rule.error_budget_ppm = rng.pick(&[1_000, 10_000, 100_000]);
    rule
}

fn calm(rng: &mut Rng) -> NetworkFault {
    let (delay_min_ns, delay_max_ns) = rng.pick(&[
        (50_000, 300_000),
        (100_000, 2 * MS),
        (MS, 10 * MS),
        (20 * MS, 60 * MS),
    ]);
    NetworkFault {
        delay_min_ns,
        delay_max_ns,
        ..CALM
    }
}

fn clocks(rng: &mut Rng, members: usize) -> Vec<ClockFault> {
    let wall_most_ns = match rng.below(4) {
        0 | 1 => return Vec::new(),
        2 => 200_000_000,
        _ => 10_000_000_000,
    };
    let fault = |_| ClockFault {
        wall_error_ns: rng.signed(wall_most_ns),
        drift_ppm: i32::try_from(rng.signed(100)).unwrap_or(0),
    };
    (0..members).map(fault).collect()
}

fn load(rng: &mut Rng, config: &WorldConfig, keys: u32, requests: u64, until_ns: u64) -> Load {
    let rules = u64::try_from(config.rules.len()).unwrap_or(1);
    let from_ns = rng.between(0, until_ns / 3);
    let mean_ns = ((until_ns - from_ns) / requests.max(1)).max(1);
    let burst = rng.chance(250_000);
    let (mean_ns, until_ns) = if burst {
        (mean_ns / 20 + 1, from_ns + (until_ns - from_ns) / 20)
    } else {
        (mean_ns, until_ns)
    };
    Load {
        rule: u16::try_from(rng.below(rules)).unwrap_or(0),
        keys: match rng.below(4) {
            0 => Keys::One(u32::try_from(rng.below(u64::from(keys))).unwrap_or(0)),
            1 => Keys::Uniform(keys),
            _ => Keys::Zipf(keys),
        },
        target: match rng.below(4) {
            0 => Target::One(rng.index(config.members)),
            1 => Target::Rotating {
                stay_ns: rng.between(50 * MS, 3 * SECOND),
            },
            _ => Target::Any,
        },
        arrival: match rng.below(3) {
            0 => Arrival::Steady { every_ns: mean_ns },
            1 => Arrival::OnOff {
                every_ns: mean_ns / 2 + 1,
                on_ns: rng.between(100 * MS, 2 * SECOND),
                off_ns: rng.between(100 * MS, 2 * SECOND),
            },
            _ => Arrival::Poisson { mean_ns },
        },
        hits: if rng.chance(800_000) {
            1
        } else {
            u32::try_from(rng.between(1, 5)).unwrap_or(1)
        },
        from_ns,
        until_ns,
    }
}

/// One trouble, or several at once where one alone is none.
fn trouble(rng: &mut Rng, config: &WorldConfig) -> Vec<Fault> {
    let members = config.members;
    let member = rng.index(members);
    let fault = match rng.below(14) {
        0 | 1 => Fault::Network(NetworkFault {
            loss_ppm: rng.pick(&[0, 10_000, 100_000, 500_000]),
            duplicate_ppm: rng.pick(&[0, 50_000, 300_000]),
            late_ppm: rng.pick(&[0, 50_000, 300_000]),
            late_max_ns: rng.pick(&[10 * MS, 200 * MS, 2 * SECOND]),
            replay_ppm: rng.pick(&[0, 50_000]),
            corrupt_ppm: rng.pick(&[0, 50_000]),
            truncate_ppm: rng.pick(&[0, 50_000]),
            ..config.calm
        }),
        2 | 3 => Fault::Partition {
            side: rng.next_u64() & (u64::MAX >> (64 - members.min(64))),
        },
        4 => Fault::OneWay {
            from: member,
            to: rng.index(members),
        },
        5 | 6 => Fault::Restart {
            member,
            down_ns: rng.between(0, 4 * SECOND),
            moves: rng.chance(300_000),
            wall_error_ns: if config.clocks.is_empty() {
                0
            } else {
                rng.signed(1_000_000_000)
            },
        },
        7 => Fault::LeaderChange { member },
        8 => Fault::DriverStops {
            member,
            for_ns: rng.between(100 * MS, 8 * SECOND),
        },
        9 => {
            let for_ns = rng.between(100 * MS, 5 * SECOND);
            Fault::Sleep {
                member,
                for_ns,
                clock_stops: rng.chance(300_000),
            }
        }
        10 => Fault::Slow {
            member,
            pause_ns: rng.between(5 * MS, 200 * MS),
            for_ns: rng.between(SECOND, 8 * SECOND),
        },
        11 => return pairs(rng, members),
        12 if !config.clocks.is_empty() => Fault::ClockStep {
            member,
            by_ns: rng.signed(10_000_000_000),
        },
        _ => Fault::Peers { member, none: true },
    };
    vec![fault]
}

/// Some pairs cut off from each other, or clogged for a while.
fn pairs(rng: &mut Rng, members: usize) -> Vec<Fault> {
    let (clog, for_ns) = (rng.chance(500_000), rng.between(200 * MS, 5 * SECOND));
    let pair = |_| {
        let from = rng.index(members);
        let to = (from + 1 + rng.index(members - 1)) % members;
        if clog {
            return Fault::Clog { from, to, for_ns };
        }
        Fault::Apart {
            one: from,
            other: to,
        }
    };
    (0..=members / 2).map(pair).collect()
}

/// Delays of one link: constant, uniform, or with a long tail.
fn delay(rng: &mut Rng) -> Delay {
    let min_ns = rng.between(20_000, 2 * MS);
    match rng.below(3) {
        0 => Delay::Constant { ns: min_ns },
        1 => Delay::Uniform {
            min_ns,
            max_ns: min_ns + rng.between(0, 20 * MS),
        },
        _ => Delay::Exponential {
            min_ns,
            mean_ns: rng.between(100_000, 10 * MS),
            most_ns: rng.between(50 * MS, 400 * MS),
        },
    }
}

/// What is odd about a world from the start: links, identities, who comes and goes, floods.
fn oddities(config: &mut WorldConfig, rng: &mut Rng, until_ns: u64) {
    let members = config.members;
    let last = members - 1;
    if rng.chance(300_000) {
        let all = (0..members * members).map(|n| (n / members, n % members));
        let links = all.filter(|(from, to)| from != to);
        let own = links.map(|(from, to)| LinkDelay {
            from,
            to,
            delay: delay(rng),
        });
        config.links = own.collect();
    }
    if rng.chance(60_000) {
        config.node_ids = (1..=u64::try_from(members).unwrap_or(1)).collect();
        config.node_ids[last] = config.node_ids[0];
    }
    if rng.chance(60_000) {
        config.two_addresses = vec![rng.index(members)];
    }
    if rng.chance(150_000) {
        config.later = vec![last];
        let join = Fault::Join { member: last };
        config.faults.push((rng.between(0, until_ns / 2), join));
    }
    if members > 2 && rng.chance(120_000) {
        let member = rng.index(members);
        let leave = Fault::Leave { member };
        config.faults.push((rng.between(SECOND, until_ns), leave));
    }
    config.damage_passes = !config.authenticated && rng.chance(60_000);
    if config.roomy && rng.chance(100_000) {
        config.table_bytes = 8 << 20;
        let flood = rng.index(config.loads.len());
        let load = &mut config.loads[flood];
        load.keys = Keys::Fresh;
        config.rules[usize::from(load.rule)].cardinality = Some(12_000);
    }
}

/// The world of `seed`, with `plant` in the code under test.
pub fn world(seed: u64, plant: Plant) -> WorldConfig {
    let mut rng = Rng::new(seed).fork(99);
    let members = match rng.below(5) {
        0 => 2,
        1 | 2 => rng.index(3) + 3,
        _ => rng.index(8) + 5,
    };
    let keys = rng.pick(&[1u32, 4, 20, 100, 500]);
    let rules: Vec<SimRule> = (0..=rng.index(3)).map(|_| rule(&mut rng, keys)).collect();
    let mut config = WorldConfig::calm(seed, members, rules);
    config.table_bytes = 4 << 20;
    config.plant = plant;
    config.authenticated = rng.chance(300_000);
    config.calm = calm(&mut rng);
    config.clocks = clocks(&mut rng, members);
    config.node.heartbeat_ns = rng.pick(&[200 * MS, 500 * MS, 500 * MS, 1_000 * MS]);
    if rng.chance(200_000) {
        config.no_peers = vec![rng.index(members)];
    }
    let until_ns = rng.between(8, 25) * SECOND;
    let streams = rng.between(1, 4);
    for _ in 0..streams {
        let load = load(&mut rng, &config, keys, REQUESTS / streams, until_ns);
        config.loads.push(load);
    }
    // A planted fault must not hide behind a table without room.
    if rng.chance(200_000) && plant == Plant::None {
        tighten(&mut config, &mut rng);
    }
    // One world in four has no fault at all: there news has a deadline from the start.
    if !rng.chance(250_000) {
        for _ in 0..rng.between(1, 6) {
            let at_ns = rng.between(0, until_ns * 2 / 3);
            let faults = trouble(&mut rng, &config);
            config
                .faults
                .extend(faults.into_iter().map(|fault| (at_ns, fault)));
            let heals_ns = at_ns + rng.between(100 * MS, 6 * SECOND);
            config.faults.push((heals_ns, Fault::Heal));
        }
    }
    if plant == Plant::None {
        oddities(&mut config, &mut Rng::new(seed).fork(94), until_ns);
    }
    // Other plants are for other checkers.
    if plant == Plant::None {
        config.orders = orders(&mut Rng::new(seed).fork(98), members, until_ns);
    }
    if plant == Plant::None {
        paces(&mut config, &mut Rng::new(seed).fork(97));
    }
    // One world in three forwards, if it has members enough. spec: dis-11
    let mut rng = Rng::new(seed).fork(95);
    if rng.chance(333_333) {
        let members = u16::try_from(rng.between(1, 6)).unwrap_or(1);
        config.node.fanout = gabion_node::Fanout::Members(members);
        // What forwarding misses waits for exchanges, which take turns. spec: dis-14
        config.starve_ns = 10 * SECOND;
    }
    plant_needs(&mut config);
    config
}

/// Some rules share their limit.
fn paces(config: &mut WorldConfig, rng: &mut Rng) {
    let members = u32::try_from(config.members).unwrap_or(1);
    for rule in &mut config.rules {
        let pace = rng.below(4);
        let window = matches!(rule.algorithm, Algorithm::Window { .. });
        let divides = rule.algorithm.limit() >= 4 * members;
        rule.pace = match pace {
            0 if window && divides => Pace::Strict {
                members,
                place: None,
            },
            1 if window => Pace::Paced,
            _ => Pace::Fast,
        };
    }
}

/// A few resets and flags, two names each, at any member at any time.
fn orders(rng: &mut Rng, members: usize, until_ns: u64) -> Vec<(u64, Order)> {
    let count = rng.below(7);
    let one = |_| {
        let (member, name) = (rng.index(members), rng.below(2));
        let order = match rng.below(2) {
            0 => Order::Raise {
                member,
                limiter: name,
            },
            _ => Order::Set {
                member,
                flag: name,
                percent: rng.pick(&[None, Some(0), Some(40), Some(100)]),
            },
        };
        (rng.between(0, until_ns), order)
    };
    (0..count).map(one).collect()
}

/// A world whose tables and cells are too small: bounds must hold, views need not be equal.
fn tighten(config: &mut WorldConfig, rng: &mut Rng) {
    config.roomy = false;
    config.node.max_cells = rng.pick(&[100, 1_000]);
    config.node.max_chunks = config.node.max_cells * 2;
    config.pump.bases_max = 50;
    for rule in &mut config.rules {
        rule.cardinality = Some(32);
    }
    for load in &mut config.loads {
        if rng.chance(500_000) {
            load.keys = Keys::Fresh;
        }
    }
}

/// A burst at one member in an idle cluster, of which every hit is news at once: what hits may cost
/// is what they cost.
fn burst_at_rest(config: &WorldConfig) -> WorldConfig {
    let rule = fixed(1_000_000, 3_600 * SECOND);
    let mut rest = WorldConfig {
        plant: config.plant,
        ..WorldConfig::calm(config.seed, config.members, vec![rule])
    };
    rest.rules[0].error_budget_ppm = 0;
    rest.loads.push(Load {
        rule: 0,
        keys: Keys::One(1),
        target: Target::One(0),
        arrival: Arrival::Steady { every_ns: 2 * MS },
        hits: 1,
        from_ns: 20 * SECOND + 50 * MS,
        until_ns: 20 * SECOND + 950 * MS,
    });
    // The world is at rest when the burst's second is looked at.
    rest.faults.push((25 * SECOND, Fault::Heal));
    rest
}

/// What a planted fault needs around it to show.
fn plant_needs(config: &mut WorldConfig) {
    match config.plant {
        Plant::None | Plant::HashOrder => {}
        Plant::TwiceFrames | Plant::FatFrames => *config = burst_at_rest(config),
        Plant::LeakCells => {
            config.roomy = false;
            config.node.max_cells = 64;
            config.node.max_chunks = 128;
            config
                .loads
                .iter_mut()
                .for_each(|load| load.keys = Keys::Fresh);
        }
        Plant::LateTurns => {
            config.faults.clear();
            config.no_peers.clear();
            config.clocks.clear();
            config.roomy = true;
            config.rules = vec![fixed(200, 10 * SECOND)];
            config.loads = vec![Load {
                rule: 0,
                keys: Keys::One(1),
                target: Target::Any,
                arrival: Arrival::Steady { every_ns: 5 * MS },
                hits: 1,
                from_ns: 5 * SECOND,
                until_ns: 40 * SECOND,
            }];
        }
        Plant::DeafToOrders => {
            config.faults.clear();
            config.no_peers.clear();
            config.authenticated = false;
            let (member, limiter) = (0, 7);
            let order = Order::Raise { member, limiter };
            config.orders.push((5 * SECOND, order));
        }
        Plant::WholePart => {
            config.faults.clear();
            config.clocks.clear();
            config.roomy = true;
            let mut rule = fixed(48, 2 * SECOND);
            rule.pace = Pace::Strict {
                members: 12,
                place: None,
            };
            let all = config.rules.iter_mut();
            all.for_each(|held| *held = rule.clone());
        }
        Plant::LostBuckets => {
            config.faults.clear();
            config.clocks.clear();
            config.roomy = true;
            let rule = sliding(10_000, 60 * SECOND, 5 * SECOND, Sliding::Live);
            config
                .rules
                .iter_mut()
                .for_each(|held| *held = rule.clone());
        }
        _ => {
            config.faults.clear();
            config.no_peers.clear();
            config.roomy = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_names_one_world_and_seeds_differ() {
        let text = |seed| format!("{:?}", world(seed, Plant::None));
        assert_eq!(text(7), text(7));
        assert_ne!(text(7), text(8));
    }

    #[test]
    fn the_swarm_has_every_kind_of_trouble() {
        let all: String = (0..200)
            .map(|seed| format!("{:?}", world(seed, Plant::None)))
            .collect();
        for word in [
            "Partition",
            "OneWay",
            "Restart",
            "LeaderChange",
            "DriverStops",
            "Sleep",
            "Network(",
            "none: true",
            "Zipf",
            "Fresh",
            "Rotating",
            "OnOff",
            "Poisson",
            "TokenBucket",
            "Weighted",
            "Strict",
            "roomy: false",
            "authenticated: true",
            "moves: true",
            "Raise",
            "Members(",
            "pace: Paced",
            "pace: Strict",
            "Set {",
            "Apart",
            "Clog",
            "Slow",
            "ClockStep",
            "Join",
            "Leave",
            "Constant",
            "Uniform {",
            "Exponential",
            "later: [1]",
            "node_ids: [1, 2",
            "damage_passes: true",
            "two_addresses: [1",
            "target: One",
        ] {
            assert!(all.contains(word), "{word}");
        }
    }
}
