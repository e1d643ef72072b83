//! Which rules cannot stand together in one configuration.
//!
//! I own the checks over a set of rules. I promise one error per rule at fault, in the order of the
//! configuration, with both places. I never look at a rule by itself: that is for `spec`.

use std::collections::BTreeSet;

use crate::error::RuleError;
use crate::identity::CounterIdentity;
use crate::limits::MAX_RULES;
use crate::rule::Rule;

/// Rules that cannot stand together: equal counters, equal names, too many, a replaced limiter that
/// is not there. One error per later rule, naming the first one.
// spec: rule-12
pub(crate) fn check_conflicts(rules: &[Rule]) -> Vec<RuleError> {
    if rules.len() > MAX_RULES {
        return vec![RuleError::TooManyRules {
            count: rules.len(),
            most: MAX_RULES,
        }];
    }
    let mut errors: Vec<(usize, RuleError)> = Vec::new();
    let mut order: Vec<(CounterIdentity, usize)> = rules
        .iter()
        .enumerate()
        .map(|(i, rule)| (rule.identity(), i))
        .collect();
    // By the wire name, so that two identities that share it (odds 2^-64) are refused as well.
    order.sort_by_key(|(identity, i)| (identity.short(), *i));
    for same in order.chunk_by(|a, b| a.0.short() == b.0.short()) {
        for (_, i) in &same[1..] {
            let (first, second) = (&rules[same[0].1], &rules[*i]);
            errors.push((
                *i,
                RuleError::SameCounters {
                    first: first.name.clone(),
                    first_place: first.place.clone(),
                    second: second.name.clone(),
                    second_place: second.place.clone(),
                },
            ));
        }
    }
    let doubled: BTreeSet<usize> = errors.iter().map(|(i, _)| *i).collect();
    let mut names: Vec<usize> = (0..rules.len()).collect();
    let name_of = |i: usize| (&rules[i].domain, &rules[i].name);
    names.sort_by_key(|i| (name_of(*i), *i));
    for same in names.chunk_by(|a, b| name_of(*a) == name_of(*b)) {
        for i in &same[1..] {
            if doubled.contains(i) {
                continue;
            }
            errors.push((
                *i,
                RuleError::SameName {
                    name: rules[*i].name.clone(),
                    first_place: rules[same[0]].place.clone(),
                    second_place: rules[*i].place.clone(),
                },
            ));
        }
    }
    errors.extend(crate::silence::unknown_replaced(rules));
    errors.sort_by_key(|(i, _)| *i);
    errors.into_iter().map(|(_, error)| error).collect()
}
