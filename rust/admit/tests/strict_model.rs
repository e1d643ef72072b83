//! `pace=strict`, explored to the end: every order of requests, restarts that lose all counts, late
//! joiners, and news that is late, lost or cut off, in a small cluster. Nothing is ever admitted
//! beyond the limit of a window; a fault planted in each part of the rule is found. spec: pace-9
#![allow(clippy::unwrap_used)] // a test

use std::collections::BTreeSet;

use gabion_admit::{Pacing, WindowPlan};
use gabion_rule::Sliding;

const BUCKET_NS: u64 = 100;
const TICK_NS: u64 = 50;

/// What is left out of the rule, to see that it is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plant {
    Nothing,
    /// New counters admit at once.
    NoWait,
    /// A member beyond `members=` has a part as well.
    SurplusPart,
    /// Every member may have one hit at least.
    OneHitFloor,
    /// Hits that were heard of are taken off, but no part is kept to.
    NoPart,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Member {
    born_ns: Option<u64>,
    /// Own hits by epoch, of this life.
    own: Vec<u32>,
    /// What it heard of the others in the epochs that count.
    heard: u32,
    restarts: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct World {
    now_ns: u64,
    members: Vec<Member>,
    /// Admitted by epoch, by whomever.
    truth: Vec<u32>,
}

struct Model {
    plan: WindowPlan,
    /// `members=`.
    parts: u32,
    ticks: u64,
    restarts: u8,
    plant: Plant,
}

impl Model {
    fn counting(&self, epoch: u64) -> std::ops::RangeInclusive<usize> {
        let first = epoch.saturating_sub(u64::from(self.plan.closed));
        usize::try_from(first).unwrap()..=usize::try_from(epoch).unwrap()
    }

    fn start(&self, members: usize) -> World {
        let epochs = usize::try_from(self.ticks * TICK_NS / BUCKET_NS + 1).unwrap();
        let member = Member {
            born_ns: None,
            own: vec![0; epochs],
            heard: 0,
            restarts: 0,
        };
        World {
            now_ns: 0,
            members: vec![member; members],
            truth: vec![0; epochs],
        }
    }

    /// One request at one member. Whoever is asked first in a life learns that it is new.
    fn hit(&self, world: &World, place: usize) -> World {
        let mut next = world.clone();
        let (now_ns, member) = (world.now_ns, &mut next.members[place]);
        let born_ns = *member.born_ns.get_or_insert(now_ns + 1);
        let (epoch, _) = self.plan.split(now_ns);
        let mut place_number = u32::try_from(place).unwrap();
        if self.plant == Plant::SurplusPart {
            place_number %= self.parts;
        }
        let mut part = Pacing::strict(self.parts, place_number).part_of(self.plan.limit);
        match self.plant {
            Plant::OneHitFloor => part = part.max(1),
            Plant::NoPart => part = self.plan.limit,
            _ => {}
        }
        let knows = self.plan.unknown_ns(born_ns, now_ns).is_none() || self.plant == Plant::NoWait;
        let own: u32 = member.own[self.counting(epoch)].iter().sum();
        let fits = self.plan.fits(u64::from(own + member.heard), 1);
        if knows && own < part && fits {
            let at = usize::try_from(epoch).unwrap();
            member.own[at] += 1;
            next.truth[at] += 1;
        }
        next
    }

    fn after(&self, world: &World) -> Vec<World> {
        let mut all = Vec::new();
        let (epoch, _) = self.plan.split(world.now_ns);
        for place in 0..world.members.len() {
            all.push(self.hit(world, place));
            let own: u32 = world.members[place].own[self.counting(epoch)].iter().sum();
            let truth: u32 = world.truth[self.counting(epoch)].iter().sum();
            // News may be as old as it likes; it never tells more than the truth.
            let mut told = world.clone();
            told.members[place].heard = truth - own;
            all.push(told);
            if world.members[place].restarts < self.restarts {
                let mut again = world.clone();
                let fresh = &mut again.members[place];
                fresh.born_ns = None;
                fresh.own.iter_mut().for_each(|count| *count = 0);
                fresh.heard = 0;
                fresh.restarts += 1;
                all.push(again);
            }
        }
        if world.now_ns < self.ticks * TICK_NS {
            let mut later = world.clone();
            later.now_ns += TICK_NS;
            let (after, _) = self.plan.split(later.now_ns);
            if after != epoch {
                // What was heard of epochs that count no more is dropped; keeping it denies more.
                later.members.iter_mut().for_each(|m| m.heard = 0);
            }
            all.push(later);
        }
        all
    }

    /// The most that was ever admitted in one window, and how many states that took.
    fn explore(&self, members: usize) -> (u32, usize) {
        let start = self.start(members);
        let mut seen = BTreeSet::from([start.clone()]);
        let (mut open, mut worst) = (vec![start], 0);
        while let Some(world) = open.pop() {
            let (epoch, _) = self.plan.split(world.now_ns);
            worst = worst.max(world.truth[self.counting(epoch)].iter().sum());
            for next in self.after(&world) {
                if seen.insert(next.clone()) {
                    open.push(next);
                }
            }
            if worst > self.plan.limit {
                break; // found
            }
        }
        (worst, seen.len())
    }
}

fn model(limit: u32, parts: u32, buckets: u64, sliding: Sliding, plant: Plant) -> Model {
    Model {
        plan: WindowPlan::new(limit, BUCKET_NS * buckets, BUCKET_NS, sliding),
        parts,
        ticks: 2 + 2 * buckets,
        restarts: 1,
        plant,
    }
}

#[test]
fn strict_never_admits_more_than_the_limit_in_any_order_of_events() {
    explore_all(&[(4, 2, 1, Sliding::Live, 2), (3, 2, 1, Sliding::Live, 2)]);
}

#[test]
#[ignore = "a quarter of an hour without optimisation: run it with --profile explore -- --ignored"]
fn strict_holds_with_a_surplus_member_and_in_sliding_windows() {
    explore_all(&[
        (4, 2, 1, Sliding::Live, 3),
        (3, 2, 1, Sliding::Live, 3),
        (4, 2, 2, Sliding::Live, 2),
        (4, 2, 1, Sliding::Strict, 2),
    ]);
}

fn explore_all(worlds: &[(u32, u32, u64, Sliding, usize)]) {
    for &(limit, parts, buckets, sliding, members) in worlds {
        let model = model(limit, parts, buckets, sliding, Plant::Nothing);
        let (worst, states) = model.explore(members);
        println!("limit {limit}, {parts} parts, {members} members: worst {worst}, {states} states");
        assert!(
            worst <= limit && limit - worst < parts,
            "worst {worst} of {limit}"
        );
        assert!(states > 100);
    }
}

#[test]
fn every_part_of_the_rule_is_needed() {
    let cases = [
        (Plant::NoWait, 4, 2, 2),
        (Plant::SurplusPart, 4, 2, 3),
        (Plant::OneHitFloor, 2, 3, 3),
        (Plant::NoPart, 4, 2, 2),
    ];
    for (plant, limit, parts, members) in cases {
        let (worst, _) = model(limit, parts, 1, Sliding::Live, plant).explore(members);
        println!("{plant:?}: {worst} of {limit}");
        assert!(worst > limit, "{plant:?} was not found");
    }
}
