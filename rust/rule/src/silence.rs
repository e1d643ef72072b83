//! Which rules stand aside for which others.
//!
//! I own `replaces`, which spares a request the rules of the named limiters, and the meaning of
//! *broader*, by which an unlimited rule shields its descriptor and
//! an earlier path hides a later one. I promise answers that never
//! allocate. I never match: the table asks me about rules that did.

use std::collections::BTreeMap;

use crate::error::RuleError;
use crate::limits::MAX_NEVER_MATCH_COMPARISONS;
use crate::policy::yaml::nearest;
use crate::rule::{DescriptorPattern, Matching, Mode, Rule, ValuePattern};
use crate::table::RuleIdx;

/// Limiters as small numbers, and which of them each rule replaces.
#[derive(Debug, Default)]
pub(crate) struct Replacing {
    /// The limiter of each rule; empty when no rule replaces anything.
    limiters: Vec<u32>,
    /// The limiters each rule replaces, sorted.
    replaced: Vec<Box<[u32]>>,
}

/// A number per (domain, limiter).
fn numbers(rules: &[Rule]) -> BTreeMap<(&str, &str), u32> {
    let mut numbers = BTreeMap::new();
    for rule in rules {
        let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
        let name = (rule.domain.as_str(), rule.limiter.as_str());
        numbers.entry(name).or_insert(next);
    }
    numbers
}

impl Replacing {
    /// Names that no rule has are left out: [`unknown_replaced`] refuses them.
    // spec: rule-21
    pub(crate) fn of(rules: &[Rule]) -> Self {
        if rules.iter().all(|rule| rule.replaces.is_empty()) {
            return Self::default();
        }
        let numbers = numbers(rules);
        let number = |domain: &str, name: &str| numbers.get(&(domain, name)).copied();
        let replaced = |rule: &Rule| {
            let names = rule.replaces.iter();
            let mut found: Vec<u32> = names.filter_map(|n| number(&rule.domain, n)).collect();
            found.sort_unstable();
            found.dedup();
            found.into_boxed_slice()
        };
        // An unlimited rule counts nothing that a request could be spared.
        let limiter = |rule: &Rule| match rule.mode {
            Mode::Unlimited => u32::MAX,
            _ => number(&rule.domain, &rule.limiter).unwrap_or(u32::MAX),
        };
        Self {
            limiters: rules.iter().map(limiter).collect(),
            replaced: rules.iter().map(replaced).collect(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.replaced.is_empty()
    }

    /// Whether `rule` replaces the limiter of `other`.
    pub(crate) fn replaces(&self, rule: RuleIdx, other: RuleIdx) -> bool {
        let replaced = self.replaced.get(usize::from(rule));
        let limiter = self.limiters.get(usize::from(other));
        match (replaced, limiter) {
            (Some(replaced), Some(limiter)) => replaced.binary_search(limiter).is_ok(),
            _ => false,
        }
    }
}

/// Replaced limiters that no rule of the domain has, each with the index of the rule.
// spec: rule-21
pub(crate) fn unknown_replaced(rules: &[Rule]) -> Vec<(usize, RuleError)> {
    if rules.iter().all(|rule| rule.replaces.is_empty()) {
        return Vec::new();
    }
    let numbers = numbers(rules);
    let mut errors = Vec::new();
    for (index, rule) in rules.iter().enumerate() {
        let domain = rule.domain.as_str();
        let unknown = |name: &&String| !numbers.contains_key(&(domain, name.as_str()));
        for name in rule.replaces.iter().filter(unknown) {
            let known = numbers.keys().filter(|(of, _)| *of == domain);
            let near = nearest(name, known.map(|(_, limiter)| *limiter));
            errors.push((
                index,
                RuleError::UnknownReplaced {
                    rule: rule.name.clone(),
                    place: rule.place.clone(),
                    name: name.clone(),
                    suggestion: near.map(str::to_owned),
                },
            ));
        }
    }
    errors
}

/// Whether every value that `narrow` matches is matched by `wide`, too. Both are over the same
/// keys.
// spec: rule-20
pub(crate) fn covers(wide: &Rule, narrow: &Rule) -> bool {
    let patterns = &narrow.descriptors;
    patterns.iter().enumerate().all(|(at, pattern)| {
        // The nth entry of a key meets the nth entry of that key.
        let same = |d: &&DescriptorPattern| d.key == pattern.key;
        let nth = patterns[..at].iter().filter(same).count();
        let wide = wide.descriptors.iter().filter(same).nth(nth);
        wide.is_some_and(|wide| covers_value(&wide.value, &pattern.value))
    })
}

fn covers_value(wide: &ValuePattern, narrow: &ValuePattern) -> bool {
    match (wide, narrow) {
        (ValuePattern::Any, _) => true,
        (ValuePattern::Prefix(wide), ValuePattern::Prefix(narrow)) => narrow.starts_with(wide),
        (ValuePattern::Prefix(wide), ValuePattern::Exact(value)) => value.starts_with(wide),
        (ValuePattern::Prefix(wide), ValuePattern::Any) => wide.is_empty(),
        (ValuePattern::Exact(wide), ValuePattern::Exact(narrow)) => wide == narrow,
        (ValuePattern::Exact(_), _) => false,
    }
}

/// Rules that match by path and never do, since an earlier one matches all that they could: pairs
/// of the later and the earlier.
// spec: rule-23
pub(crate) fn never_match(rules: &[Rule]) -> Vec<(usize, usize)> {
    let mut groups: BTreeMap<(&str, Vec<&[u8]>), Vec<usize>> = BTreeMap::new();
    for (at, rule) in rules.iter().enumerate() {
        if rule.matching == Matching::Path && rule.mode != Mode::Disabled {
            let keys = rule.descriptors.iter().map(|d| d.key.as_slice()).collect();
            groups.entry((&rule.domain, keys)).or_default().push(at);
        }
    }
    let mut found = Vec::new();
    let mut left = MAX_NEVER_MATCH_COMPARISONS;
    for group in groups.values() {
        found.extend(hidden_in(rules, group, &mut left));
    }
    found.sort_unstable();
    found
}

/// The hidden rules of one group of keys; `left` comparisons may be made.
fn hidden_in(rules: &[Rule], group: &[usize], left: &mut usize) -> Vec<(usize, usize)> {
    let is_exact = |d: &DescriptorPattern| matches!(d.value, ValuePattern::Exact(_));
    let mut wide: Vec<usize> = Vec::new();
    let mut exact: BTreeMap<&[DescriptorPattern], usize> = BTreeMap::new();
    let mut found = Vec::new();
    for &at in group {
        let rule = &rules[at];
        let same = exact.get(rule.descriptors.as_slice()).copied();
        *left = left.saturating_sub(wide.len());
        if *left == 0 {
            break;
        }
        let wider = || wide.iter().copied().find(|by| covers(&rules[*by], rule));
        if let Some(by) = same.or_else(wider) {
            found.push((at, by));
        } else if rule.descriptors.iter().all(is_exact) {
            exact.insert(&rule.descriptors, at);
        } else {
            wide.push(at);
        }
    }
    found
}

#[cfg(test)]
mod tests;
