//! What a reload replaces: the rules with everything that is made from them, as one value.
//!
//! I own what a decision reads of the configuration. I promise that a value never changes once it
//! is made, so that a request is decided by one configuration from its first rule to its last, and
//! that the counters of a rule's answers outlive a reload that keeps the rule's domain and name. I
//! never decide.

use std::collections::BTreeMap;
use std::sync::Arc;

use gabion_rule::policy::FlagSpec;
use gabion_rule::{
    Context, CounterIdentity, Entries, FlagStates, Key, KeyHasher, OverrideUnit, RuleIdx, RuleTable,
};

use crate::config::{Answers, Storage};
use crate::observe::{Counted, Values};
use crate::orders::{Board, Known};
use crate::overrides;
use crate::shown::Shown;
use crate::tally::{RuleCounts, RuleTally};
use crate::Counters;

/// What a [`Policy`] is made from.
#[derive(Debug)]
pub struct PolicyParts {
    /// The rules.
    pub rules: Arc<RuleTable>,
    /// Makes the keys of counters.
    pub hasher: KeyHasher,
    /// Where they count, in the order of the rules; `None` when there are no rules.
    pub counters: Option<Arc<Counters>>,
    /// Whether the counters have the sub-tables of [`crate::overrides`], behind those of the rules.
    pub overrides: bool,
    /// What one request may carry.
    pub bounds: Storage,
    /// What answers carry beside the verdict.
    pub answers: Answers,
    /// The flags that rules may name.
    pub flags: Vec<FlagSpec>,
    /// What operators ordered so far.
    pub orders: Arc<Known>,
    /// Most sets of values that have metric series of their own.
    pub value_series: usize,
}

/// One configuration as decisions need it.
#[derive(Debug)]
pub struct Policy {
    pub(crate) rules: Arc<RuleTable>,
    pub(crate) shown: Box<[Shown]>,
    pub(crate) hasher: KeyHasher,
    pub(crate) counters: Option<Arc<Counters>>,
    pub(crate) overrides: bool,
    /// In the order of the rules; behind them those of the limits that requests bring, by unit.
    pub(crate) tallies: Box<[Arc<RuleTally>]>,
    /// For rules that name values which metrics tell apart.
    pub(crate) values: Option<Values>,
    /// Whether a rule is a quota, so that answers may have to say so.
    pub(crate) any_quota: bool,
    pub(crate) bounds: Storage,
    pub(crate) answers: Answers,
    flags: Vec<FlagSpec>,
    /// In the order of the rules.
    pub(crate) orders: Arc<Board>,
}

impl Policy {
    /// Puts one together. Rules that `before` has by the same domain and name go on with its
    /// tallies, so that what a scrape shows only ever grows.
    pub fn new(parts: PolicyParts, before: Option<&Policy>) -> Self {
        let mut kept: BTreeMap<(&str, &str), &Arc<RuleTally>> = BTreeMap::new();
        for (rule, tally) in before
            .iter()
            .flat_map(|before| before.rules.rules().iter().zip(&before.tallies))
        {
            kept.insert((&rule.domain, &rule.name), tally);
        }
        let rules = parts.rules.rules();
        // Taken once: two rules of one name have a tally each.
        let of_rules = rules.iter().map(|rule| {
            kept.remove(&(rule.domain.as_str(), rule.name.as_str()))
                .map_or_else(Arc::default, Arc::clone)
        });
        let of_units = OverrideUnit::ALL.map(|unit| {
            before
                .and_then(|before| {
                    before
                        .tallies
                        .get(before.rules.rules().len() + unit.index())
                })
                .map_or_else(Arc::default, Arc::clone)
        });
        let units = OverrideUnit::ALL.into_iter().map(Shown::of_unit);
        let orders = parts.orders.board(&parts.rules);
        let tallies: Box<[Arc<RuleTally>]> = of_rules.chain(of_units).collect();
        let values_before = before.and_then(|before| {
            let values = before.values.as_ref()?;
            Some((values, before.rules.rules(), &*before.tallies))
        });
        Self {
            values: Values::new(parts.value_series, rules, &tallies, values_before),
            any_quota: rules.iter().any(|rule| rule.quota),
            tallies,
            shown: rules.iter().map(Shown::new).chain(units).collect(),
            overrides: parts.overrides,
            rules: parts.rules,
            hasher: parts.hasher,
            counters: parts.counters,
            bounds: parts.bounds,
            answers: parts.answers,
            flags: parts.flags,
            orders,
        }
    }

    /// The rules.
    pub fn rules(&self) -> &RuleTable {
        &self.rules
    }

    /// The flags that rules may name.
    pub fn flags(&self) -> &[FlagSpec] {
        &self.flags
    }

    /// Where they count; `None` when there are no rules.
    pub fn counters(&self) -> Option<&Arc<Counters>> {
        self.counters.as_ref()
    }

    /// The reset era of a rule's counters.
    pub(crate) fn era(&self, rule: usize) -> u32 {
        self.orders.era(rule)
    }

    /// The key that a rule which matches whole descriptors counts one under, in the era that is in
    /// force; `None` when flag or conditions leave the rule out. For people, not for decisions.
    pub(crate) fn key_in_force(&self, index: RuleIdx, entries: &[(&[u8], &[u8])]) -> Option<Key> {
        self.asked(|context| {
            let entries = Entries {
                entries,
                has_query: true,
            };
            self.rules.ask_entries(index, entries, context).ok()
        })
        .map(|applies| applies.key)
    }

    /// Asks rules with everything that is in force, each flag read once.
    #[inline]
    pub(crate) fn asked<T>(&self, ask: impl FnOnce(&Context<'_>) -> T) -> T {
        let flag = |flag| self.orders.flag(flag);
        let era = |rule| self.era(usize::from(rule));
        let flags = FlagStates::new(&flag);
        ask(&Context {
            hasher: &self.hasher,
            era: &era,
            flags: &flags,
        })
    }

    /// Name, domain and counters that a charge's rule stands for: a rule, or a limit that a request
    /// for `domain` brought.
    pub(crate) fn who<'p>(
        &'p self,
        index: RuleIdx,
        domain: &'p [u8],
    ) -> Option<(&'p str, &'p str, CounterIdentity)> {
        let at = usize::from(index);
        if let Some(rule) = self.rules.rule(index) {
            let identity = *self.rules.identities().get(at)?;
            return Some((&rule.name, &rule.domain, identity));
        }
        let unit = OverrideUnit::ALL.get(at - self.rules.rules().len())?;
        let domain = std::str::from_utf8(domain).unwrap_or_default();
        Some((&self.shown.get(at)?.text.name, domain, unit.identity()))
    }

    /// What the limits of this unit that requests brought said so far.
    pub fn override_counts(&self, unit: OverrideUnit) -> RuleCounts {
        self.counts(usize::from(overrides::index(
            self.rules.rules().len(),
            unit,
        )))
    }

    /// What rules said so far by the values that their metrics tell apart, each by its index.
    pub fn counts_by_value(&self) -> Vec<(usize, Counted)> {
        let values = self.values.as_ref();
        values.map_or_else(Vec::new, |values| values.counted(&self.tallies))
    }

    /// What the rule of this index said so far; nothing for an index beyond the rules.
    pub fn counts(&self, rule: usize) -> RuleCounts {
        self.tallies
            .get(rule)
            .map(|tally| tally.counts())
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tally::Said;
    use gabion_rule::policy::parse_limits;

    fn policy(limits: &str, before: Option<&Policy>) -> Policy {
        let rules = parse_limits("test", &format!("limits: [{limits}]")).expect("good limits");
        let parts = PolicyParts {
            rules: Arc::new(RuleTable::build(rules.rules).expect("rules")),
            hasher: KeyHasher::new([7; 16]),
            counters: None,
            overrides: false,
            bounds: Storage {
                table_bytes: 1 << 20,
                override_cardinality: None,
                max_descriptor_count: 8,
                max_descriptor_bytes: 4_096,
                max_key_bytes: 4_096,
            },
            answers: Answers::default(),
            flags: Vec::new(),
            orders: Arc::default(),
            value_series: 0,
        };
        Policy::new(parts, before)
    }

    #[test]
    fn what_rules_said_follows_their_names_over_a_reload() {
        let a = "{name: a, domain: d, rate: 5r/s, descriptors: [{key: k}]}";
        let b = "{name: b, domain: d, rate: 9r/s, descriptors: [{key: k}]}";
        let wider = "{name: b, domain: d, rate: 90r/m, descriptors: [{key: k}]}";
        let before = policy(&format!("{a}, {b}"), None);
        before.tallies[0].add(Said::Allowed, false, 1);
        before.tallies[1].add(Said::Denied, false, 1);
        let after = policy(&format!("{wider}, {a}"), Some(&before));
        assert_eq!((after.counts(0).denied, after.counts(1).allowed), (1, 1));
        after.tallies[0].add(Said::Denied, false, 1);
        let gone = policy(a, Some(&after));
        assert_eq!(gone.counts(0).allowed, 1);
        assert_eq!(gone.counts(1), RuleCounts::default());
        let back = policy(&format!("{a}, {b}"), Some(&gone));
        assert_eq!(back.counts(1).denied, 0, "a rule that was gone begins anew");
    }
}
