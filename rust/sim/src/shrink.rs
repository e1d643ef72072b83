//! From a world that fails to a small one that fails alike.
//!
//! I own the order in which things are left out: faults, streams, orders, members, rules, time,
//! then whatever is unusual. I promise: the result fails in the same checker, and no more than the
//! given number of worlds is run. I never: change a plant or the seed.

use crate::config::{Fault, SimRule, Target, WorldConfig};
use crate::network::CALM;
use crate::orders::Order;
use crate::run::{run_caught, run_twice, SAME_TRACE};
use crate::Violation;

/// Worlds that are tried unless one asks for another number.
pub const TRIES: u32 = 400;

/// What shrinking came to.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// The smallest world found that fails.
    pub config: WorldConfig,
    /// How it fails.
    pub violation: Violation,
    /// Worlds that were run.
    pub tries: u32,
}

/// A change to a world.
type Change = fn(&mut WorldConfig);

struct Search {
    best: Shrunk,
    tries_max: u32,
}

/// Makes `config`, which fails with `violation`, as small as `tries_max` runs allow.
pub fn shrink(config: WorldConfig, violation: Violation, tries_max: u32) -> Shrunk {
    let best = Shrunk {
        config,
        violation,
        tries: 0,
    };
    let mut search = Search { best, tries_max };
    loop {
        let mut smaller = search.thin_out(|config| &mut config.faults);
        smaller |= search.thin_out(|config| &mut config.loads);
        smaller |= search.thin_out(|config| &mut config.orders);
        smaller |= search.drop_members();
        smaller |= search.drop_rules();
        smaller |= search.shorten();
        smaller |= search.make_usual();
        if !smaller || search.best.tries >= tries_max {
            return search.best;
        }
    }
}

impl Search {
    /// Keeps `config` if it fails in the same checker.
    fn keep(&mut self, config: WorldConfig) -> bool {
        if self.best.tries >= self.tries_max {
            return false;
        }
        self.best.tries += 1;
        let checker = self.best.violation.checker;
        let result = if checker == SAME_TRACE {
            run_twice(config.clone())
        } else {
            run_caught(config.clone())
        };
        match result {
            Err(violation) if violation.checker == checker => {
                self.best.config = config;
                self.best.violation = violation;
                true
            }
            _ => false,
        }
    }

    fn with(&mut self, change: impl FnOnce(&mut WorldConfig)) -> bool {
        let mut config = self.best.config.clone();
        change(&mut config);
        self.keep(config)
    }

    /// Leaves out parts of a list: all of it, halves, .. single entries.
    fn thin_out<T>(&mut self, list: fn(&mut WorldConfig) -> &mut Vec<T>) -> bool {
        let mut smaller = false;
        let mut part = list(&mut self.best.config).len();
        while part > 0 {
            let mut from = 0;
            loop {
                let length = list(&mut self.best.config).len();
                if from >= length {
                    break;
                }
                let to = length.min(from + part);
                if self.with(|config| drop(list(config).drain(from..to))) {
                    smaller = true;
                } else {
                    from = to;
                }
            }
            part /= 2;
        }
        smaller
    }

    fn drop_members(&mut self) -> bool {
        let mut smaller = false;
        // First most at once, then one by one.
        for keep in [2, 3, self.best.config.members / 2] {
            while keep >= 2 && self.best.config.members > keep {
                let mut config = self.best.config.clone();
                while config.members > keep {
                    config = without_member(&config, config.members - 1);
                }
                if !self.keep(config) {
                    break;
                }
                smaller = true;
            }
        }
        let mut member = self.best.config.members;
        while member > 0 && self.best.config.members > 1 {
            member -= 1;
            let config = without_member(&self.best.config, member);
            smaller |= self.keep(config);
        }
        smaller
    }

    fn drop_rules(&mut self) -> bool {
        let mut smaller = false;
        let mut rule = self.best.config.rules.len();
        while rule > 0 && self.best.config.rules.len() > 1 {
            rule -= 1;
            let config = without_rule(&self.best.config, rule);
            smaller |= self.keep(config);
        }
        smaller
    }

    /// Streams that end earlier, and nothing that happens after what was found.
    fn shorten(&mut self) -> bool {
        let at_ns = self.best.violation.at_ns;
        let has_later = |config: &WorldConfig| {
            let loads = config.loads.iter().any(|load| load.until_ns > at_ns);
            loads || config.faults.iter().any(|fault| fault.0 > at_ns)
        };
        let mut smaller = at_ns > 0
            && has_later(&self.best.config)
            && self.with(|config| {
                config.faults.retain(|fault| fault.0 <= at_ns);
                config.orders.retain(|order| order.0 <= at_ns);
                config.loads.retain(|load| load.from_ns <= at_ns);
                let loads = config.loads.iter_mut();
                loads.for_each(|load| load.until_ns = load.until_ns.min(at_ns));
            });
        for load in 0..self.best.config.loads.len() {
            for _ in 0..8 {
                let held = self.best.config.loads[load];
                let half_ns = (held.until_ns - held.from_ns) / 2;
                if half_ns < 1_000_000
                    || !self.with(|config| config.loads[load].until_ns = held.from_ns + half_ns)
                {
                    break;
                }
                smaller = true;
            }
        }
        smaller
    }

    /// Whatever is out of the ordinary, if it does not matter.
    fn make_usual(&mut self) -> bool {
        let usual = WorldConfig::default();
        let changes: [(bool, Change); 14] = {
            let config = &self.best.config;
            [
                (!config.clocks.is_empty(), |c| c.clocks.clear()),
                (!config.links.is_empty(), |c| c.links.clear()),
                (!config.clusters.is_empty(), |c| c.clusters.clear()),
                (!config.node_ids.is_empty(), |c| c.node_ids.clear()),
                (!config.rules_at.is_empty(), |c| c.rules_at.clear()),
                (!config.wrong_key.is_empty(), |c| c.wrong_key.clear()),
                (!config.no_peers.is_empty(), |c| c.no_peers.clear()),
                (!config.later.is_empty(), |c| c.later.clear()),
                (!config.two_addresses.is_empty(), |c| {
                    c.two_addresses.clear()
                }),
                (config.authenticated, |c| c.authenticated = false),
                (config.damage_passes, |c| c.damage_passes = false),
                (config.calm != CALM, |c| c.calm = CALM),
                (config.node.heartbeat_ns != usual.node.heartbeat_ns, |c| {
                    c.node.heartbeat_ns = WorldConfig::default().node.heartbeat_ns;
                }),
                (config.rules.iter().any(is_unusual), |c| {
                    c.rules.iter_mut().for_each(make_usual_rule);
                }),
            ]
        };
        let mut smaller = false;
        for (matters, change) in changes {
            smaller |= matters && self.with(change);
        }
        smaller
    }
}

fn make_usual_rule(rule: &mut SimRule) {
    *rule = SimRule {
        cardinality: rule.cardinality,
        ..SimRule::new(rule.algorithm)
    };
}

fn is_unusual(rule: &SimRule) -> bool {
    let usual = SimRule::new(rule.algorithm);
    rule.error_budget_ppm != usual.error_budget_ppm || rule.pace != usual.pace
}

/// The number of a member once `gone` is left out; what was at it happens at another.
fn moved(member: usize, gone: usize, members: usize) -> usize {
    let moved = if member > gone { member - 1 } else { member };
    moved.min(members.saturating_sub(2))
}

/// The world without one member: what was done to it is left out, requests go to another.
fn without_member(config: &WorldConfig, gone: usize) -> WorldConfig {
    let mut config = config.clone();
    let members = config.members;
    let at = |member: usize| moved(member, gone, members);
    for list in [
        &mut config.wrong_key,
        &mut config.no_peers,
        &mut config.later,
        &mut config.two_addresses,
    ] {
        list.retain(|&member| member != gone);
        list.iter_mut().for_each(|member| *member = at(*member));
    }
    fn cut<T>(list: &mut Vec<T>, gone: usize) {
        if gone < list.len() {
            list.remove(gone);
        }
    }
    cut(&mut config.clocks, gone);
    cut(&mut config.clusters, gone);
    cut(&mut config.node_ids, gone);
    config.rules_at.retain(|(member, _)| *member != gone);
    config
        .rules_at
        .iter_mut()
        .for_each(|held| held.0 = at(held.0));
    config
        .links
        .retain(|link| link.from != gone && link.to != gone);
    for link in &mut config.links {
        (link.from, link.to) = (at(link.from), at(link.to));
    }
    for load in &mut config.loads {
        if let Target::One(member) = &mut load.target {
            *member = at(*member);
        }
    }
    config
        .faults
        .retain(|(_, fault)| !fault.members().contains(&gone));
    for (_, fault) in &mut config.faults {
        renumber(fault, gone, &at);
    }
    config.orders.retain(|(_, order)| member_of(order) != gone);
    for (_, order) in &mut config.orders {
        let (Order::Raise { member, .. } | Order::Set { member, .. }) = order;
        *member = at(*member);
    }
    config.members -= 1;
    config
}

fn member_of(order: &Order) -> usize {
    let (Order::Raise { member, .. } | Order::Set { member, .. }) = *order;
    member
}

fn renumber(fault: &mut Fault, gone: usize, at: &impl Fn(usize) -> usize) {
    match fault {
        Fault::Network(_) | Fault::Heal => {}
        Fault::Partition { side } => {
            let gone = u32::try_from(gone).unwrap_or(u32::MAX);
            let below = 1u64.checked_shl(gone).map_or(u64::MAX, |bit| bit - 1);
            *side = *side & below | (*side >> 1) & !below;
        }
        Fault::OneWay { from, to } | Fault::Clog { from, to, .. } => {
            (*from, *to) = (at(*from), at(*to));
        }
        Fault::Apart { one, other } | Fault::Mend { one, other } => {
            (*one, *other) = (at(*one), at(*other));
        }
        Fault::Restart { member, .. }
        | Fault::LeaderChange { member }
        | Fault::DriverStops { member, .. }
        | Fault::Sleep { member, .. }
        | Fault::Slow { member, .. }
        | Fault::ClockStep { member, .. }
        | Fault::Join { member }
        | Fault::Leave { member }
        | Fault::Peers { member, .. } => *member = at(*member),
    }
}

/// The world without one rule, and without the requests for it.
fn without_rule(config: &WorldConfig, gone: usize) -> WorldConfig {
    let mut config = config.clone();
    config.rules.remove(gone);
    config.loads.retain(|load| usize::from(load.rule) != gone);
    for load in &mut config.loads {
        if usize::from(load.rule) > gone {
            load.rule -= 1;
        }
    }
    for (_, rules) in &mut config.rules_at {
        rules.retain(|&rule| rule != gone);
        let later = rules.iter_mut().filter(|rule| **rule > gone);
        later.for_each(|rule| *rule -= 1);
    }
    config.rules_at.retain(|(_, rules)| !rules.is_empty());
    config
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::SECOND;
    use crate::swarm::fixed;

    #[test]
    fn a_member_that_is_left_out_takes_its_own_along_and_moves_the_others() {
        let rules = vec![fixed(1, SECOND), fixed(2, SECOND)];
        let mut config = WorldConfig::calm(1, 4, rules);
        config.no_peers = vec![1, 3];
        config.node_ids = vec![10, 11, 12, 13];
        config.faults = vec![
            (1, Fault::Partition { side: 0b1010 }),
            (2, Fault::LeaderChange { member: 1 }),
            (3, Fault::Apart { one: 0, other: 3 }),
        ];
        let smaller = without_member(&config, 1);
        assert_eq!((smaller.members, smaller.no_peers), (3, vec![2]));
        assert_eq!(smaller.node_ids, [10, 12, 13]);
        let faults: Vec<Fault> = smaller.faults.iter().map(|fault| fault.1).collect();
        let apart = Fault::Apart { one: 0, other: 2 };
        assert_eq!(faults, [Fault::Partition { side: 0b100 }, apart]);
        config.rules_at = vec![(0, vec![1, 0]), (1, vec![0])];
        let smaller = without_rule(&config, 0);
        assert_eq!(smaller.rules_at, [(0, vec![0])]);
        assert_eq!(smaller.rules.len(), 1);
    }
}
