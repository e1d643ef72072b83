//! What rules said, told apart by values of descriptors (`metric_values`).
//!
//! I own these counters and how they are found. I promise that there are no more of them than I was
//! made for, whatever values come, that the rest is counted together, and that a decision neither
//! waits nor allocates here. I never decide.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher as _, Hasher as _};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use gabion_rule::Rule;

use super::text::{Shower, Text};
use crate::tally::{RuleCounts, RuleTally, Said};

/// Places that are looked at for one set of values; when all are others', it is counted with the
/// rest.
const PROBES: usize = 16;

/// Counters of single values, for the rules of one policy.
#[derive(Debug)]
pub struct Values {
    /// Twice as many as may be used, so that a free place is near.
    slots: Box<[Slot]>,
    left: AtomicUsize,
    hasher: RandomState,
    /// In the order of the rules; `None` for those that name no values.
    rest: Box<[Option<Arc<RuleTally>>]>,
}

#[derive(Debug, Default)]
struct Slot {
    /// 0: free. Set once.
    tag: AtomicU64,
    cell: Arc<Cell>,
}

#[derive(Debug, Default)]
struct Cell {
    /// Set by whoever took the place, so that nobody ever waits for it.
    of: OnceLock<Of>,
    tally: RuleTally,
}

#[derive(Debug)]
struct Of {
    /// Stands for the rule over reloads; its address is not given to another while it is held.
    rule: Arc<RuleTally>,
    text: Text,
    whole: u64,
}

/// The counters before a reload, with the rules and the tallies that they were made with.
pub(crate) type Before<'b> = (&'b Values, &'b [Rule], &'b [Arc<RuleTally>]);

/// What a rule said about one set of values, or about all that have no counters of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counted {
    /// The values as `key=value,key=value` with a hash of all of it; `None`: the rest.
    pub values: Option<(Text, u64)>,
    /// What was counted.
    pub counts: RuleCounts,
}

/// One verdict of a rule.
#[derive(Clone, Copy, Debug)]
pub struct Verdict {
    /// What it said.
    pub said: Said,
    /// Whether the counter was near its limit.
    pub near: bool,
    /// Hits charged.
    pub hits: u32,
}

impl Values {
    /// Counters for at most `most` sets of values, `None` when no rule names any. `tallies` are
    /// those of `rules`, in their order. What `before` holds of rules that name the same values
    /// goes on; `same` says which rule there is which one here, by their tallies.
    pub(crate) fn new(
        most: usize,
        rules: &[Rule],
        tallies: &[Arc<RuleTally>],
        before: Option<Before<'_>>,
    ) -> Option<Self> {
        if rules.iter().all(|rule| rule.metric_values.is_empty()) {
            return None;
        }
        let was = |tally: &Arc<RuleTally>, rule: &Rule| {
            let (values, rules, tallies) = before?;
            let at = tallies.iter().position(|was| Arc::ptr_eq(was, tally))?;
            let same = rules.get(at)?.metric_values == rule.metric_values;
            values.rest.get(at)?.as_ref().filter(|_| same)
        };
        let (mut rest, mut kept) = (Vec::new(), BTreeSet::new());
        for (rule, tally) in rules.iter().zip(tallies) {
            rest.push(
                (!rule.metric_values.is_empty()).then(|| match was(tally, rule) {
                    Some(rest) => {
                        kept.insert(Arc::as_ptr(tally));
                        Arc::clone(rest)
                    }
                    None => Arc::default(),
                }),
            );
        }
        let slots = (2 * most.max(1)).next_power_of_two();
        let values = Self {
            slots: (0..slots).map(|_| Slot::default()).collect(),
            left: AtomicUsize::new(most),
            hasher: before.map_or_else(RandomState::new, |(before, ..)| before.hasher.clone()),
            rest: rest.into(),
        };
        Some(match before {
            Some((before, ..)) => values.heir_of(before, &kept),
            None => values,
        })
    }

    /// Takes over the counters of the rules in `kept`.
    fn heir_of(mut self, before: &Values, kept: &BTreeSet<*const RuleTally>) -> Self {
        for slot in &before.slots {
            let tag = slot.tag.load(Ordering::Acquire);
            let rule = slot.cell.of.get().map(|of| &of.rule);
            let stays = rule.is_some_and(|rule| kept.contains(&Arc::as_ptr(rule)));
            if !stays || *self.left.get_mut() == 0 {
                continue;
            }
            let free = self.probe(tag).find(|at| {
                let tag = self
                    .slots
                    .get(*at)
                    .map(|slot| slot.tag.load(Ordering::Relaxed));
                tag == Some(0)
            });
            if let Some(place) = free.and_then(|at| self.slots.get_mut(at)) {
                *place.tag.get_mut() = tag;
                place.cell = Arc::clone(&slot.cell);
                *self.left.get_mut() -= 1;
            }
        }
        self
    }

    fn probe(&self, tag: u64) -> impl Iterator<Item = usize> {
        let mask = self.slots.len() - 1;
        let start = (tag >> 1) as usize;
        (0..PROBES).map(move |step| start.wrapping_add(step) & mask)
    }

    /// Counts what the rule at `index` said about what it counts by. Allocates nothing.
    pub(crate) fn add(
        &self,
        (index, rule, tally): (usize, &Rule, &Arc<RuleTally>),
        entries: &[(&[u8], &[u8])],
        verdict: Verdict,
        shower: &Shower,
    ) {
        let Some(Some(rest)) = self.rest.get(index) else {
            return;
        };
        let mut hasher = self.hasher.build_hasher();
        hasher.write_usize(Arc::as_ptr(tally) as usize);
        for (key, value) in named(rule, entries) {
            hasher.write_usize(key.len());
            hasher.write(key);
            hasher.write_usize(value.len());
            hasher.write(value);
        }
        let cell = self.cell(hasher.finish() | 1, || {
            let (text, whole) = shower.entries(named(rule, entries));
            Of {
                rule: Arc::clone(tally),
                text,
                whole,
            }
        });
        let tally = cell.map_or(&**rest, |cell| &cell.tally);
        tally.add(verdict.said, verdict.near, verdict.hits);
    }

    fn cell(&self, tag: u64, of: impl FnOnce() -> Of) -> Option<&Cell> {
        for at in self.probe(tag) {
            let slot = self.slots.get(at)?;
            let mut found = slot.tag.load(Ordering::Acquire);
            if found == 0 {
                let one_less = |left: usize| left.checked_sub(1);
                let relaxed = Ordering::Relaxed; // a budget; orders nothing
                self.left.fetch_update(relaxed, relaxed, one_less).ok()?;
                // Release: pairs with the load in `heir_of`; the cell itself is older than both.
                match slot
                    .tag
                    .compare_exchange(0, tag, Ordering::AcqRel, Ordering::Acquire)
                {
                    Ok(_) => {
                        let _ = slot.cell.of.set(of()); // nobody else sets it
                        return Some(&slot.cell);
                    }
                    Err(other) => {
                        self.left.fetch_add(1, relaxed);
                        found = other;
                    }
                }
            }
            if found == tag {
                return Some(&slot.cell);
            }
        }
        None
    }

    /// What rules said, each by its index; `tallies` are those that this was made with.
    pub(crate) fn counted(&self, tallies: &[Arc<RuleTally>]) -> Vec<(usize, Counted)> {
        let (mut all, mut places) = (Vec::new(), BTreeMap::new());
        for (index, (rest, tally)) in self.rest.iter().zip(tallies).enumerate() {
            let Some(rest) = rest else { continue };
            places.insert(Arc::as_ptr(tally), index);
            let counts = rest.counts();
            let values = None;
            all.push((index, Counted { values, counts }));
        }
        for slot in &self.slots {
            let of = slot.cell.of.get();
            let found = of.and_then(|of| Some((*places.get(&Arc::as_ptr(&of.rule))?, of)));
            all.extend(found.map(|(index, of)| {
                let counts = slot.cell.tally.counts();
                let values = Some((of.text, of.whole));
                (index, Counted { values, counts })
            }));
        }
        all
    }
}

/// Those of the entries that a rule counts by whose values the rule's metrics tell apart.
fn named<'d>(
    rule: &'d Rule,
    entries: &'d [(&'d [u8], &'d [u8])],
) -> impl Iterator<Item = (&'d [u8], &'d [u8])> + 'd {
    let is_named = |key: &[u8]| rule.metric_values.iter().any(|name| name.as_bytes() == key);
    let entries = entries.iter().copied();
    entries.filter(move |(key, _)| is_named(key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_rule::policy::parse_limits;

    const SAID: Verdict = Verdict {
        said: Said::Allowed,
        near: false,
        hits: 1,
    };

    fn rules(limits: &str) -> Vec<Rule> {
        let text = format!("limits: [{limits}]");
        parse_limits("test", &text).expect("good limits").rules
    }

    /// Counts one request of each value of `user` under the rule `a`.
    fn count(values: &Values, rule: &Rule, tally: &Arc<RuleTally>, users: &[String]) {
        for user in users {
            let asked: [(&[u8], &[u8]); 2] = [(b"user", user.as_bytes()), (b"route", b"r")];
            values.add((0, rule, tally), &asked, SAID, &Shower::new(true));
        }
    }

    fn counted(values: &Values, tallies: &[Arc<RuleTally>]) -> Vec<Counted> {
        let all = values.counted(tallies).into_iter();
        all.map(|(_, counted)| counted).collect()
    }

    fn users(n: usize) -> Vec<String> {
        (0..n).map(|i| format!("u{i}")).collect()
    }

    const A: &str = "{name: a, domain: d, rate: 5r/s, metric_values: [user], \
                     descriptors: [{key: user}, {key: route}]}";

    #[test]
    fn values_have_counters_up_to_the_bound_and_the_rest_is_counted_together() {
        let (rules, tallies) = (rules(A), [Arc::default()]);
        let values = Values::new(100, &rules, &tallies, None).expect("a rule names values");
        count(&values, &rules[0], &tallies[0], &users(50));
        count(&values, &rules[0], &tallies[0], &users(100_000));
        let all = counted(&values, &tallies);
        assert!((90..=101).contains(&all.len()), "{}", all.len());
        let sum: u64 = all.iter().map(|one| one.counts.allowed).sum();
        assert_eq!(sum, 100_050, "nothing is lost");
        let of = |text: &str| {
            let mut found = all.iter().filter(|one| {
                let values = one.values.as_ref();
                values.is_some_and(|(values, _)| values.as_str() == text)
            });
            let first = found.next().map(|one| one.counts.allowed);
            assert!(found.next().is_none(), "{text} once");
            first
        };
        assert_eq!(of("user=u7"), Some(2));
        assert!(all[0].values.is_none() && all[0].counts.allowed >= 99_900);
        let other = rules_without();
        assert!(Values::new(100, &other, &tallies, None).is_none());
    }

    fn rules_without() -> Vec<Rule> {
        rules("{name: a, domain: d, rate: 5r/s, descriptors: [{key: user}]}")
    }

    #[test]
    fn a_reload_keeps_the_counters_of_rules_that_stay_and_frees_the_others() {
        let before_rules = rules(A);
        let tallies = [Arc::<RuleTally>::default()];
        let before = Values::new(10, &before_rules, &tallies, None).expect("values");
        count(&before, &before_rules[0], &tallies[0], &users(3));
        let heir = |rules: &[Rule], tallies: &[Arc<RuleTally>]| {
            let before = Some((&before, &before_rules[..], &[Arc::clone(&tallies[0])][..]));
            Values::new(10, rules, tallies, before).expect("values")
        };
        let after = heir(&before_rules, &tallies);
        count(&after, &before_rules[0], &tallies[0], &users(4));
        let all = counted(&after, &tallies);
        let twice = all.iter().filter(|one| one.counts.allowed == 2).count();
        assert_eq!((all.len(), twice), (5, 3), "{all:?}");
        let wider = A.replace("[user]", "[user, route]");
        let anew = heir(&rules(&wider), &tallies);
        assert_eq!(counted(&anew, &tallies).len(), 1, "other values: anew");
        count(&anew, &before_rules[0], &tallies[0], &users(10));
        assert_eq!(counted(&anew, &tallies).len(), 11, "and the room is free");
    }

    #[test]
    fn threads_that_meet_a_value_at_once_share_its_counter() {
        let (rules, tallies) = (rules(A), [Arc::default()]);
        let values = Values::new(64, &rules, &tallies, None).expect("values");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        count(&values, &rules[0], &tallies[0], &users(20));
                    }
                });
            }
        });
        let all = counted(&values, &tallies);
        assert_eq!(all.len(), 21);
        assert!(all[1..].iter().all(|one| one.counts.allowed == 2_000));
        assert_eq!(
            values.left.load(Ordering::Relaxed),
            44,
            "one place for each"
        );
    }
}
