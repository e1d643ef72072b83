//! What a rule wants the log to show of a request.

use gabion_rule::attributes::Resolver;
use gabion_rule::{Entries, Matching, RuleIdx};

use super::gather::{keys_and_values, raw};
use crate::observe::Take;
use crate::policy::Policy;
use crate::protocol::RateLimitDescriptor;

/// Hands over the fields of a rule's log line that are there.
// spec: pol-21
pub(super) fn log_values(
    policy: &Policy,
    rule: RuleIdx,
    descriptor: &RateLimitDescriptor,
    take: &mut Take<'_>,
) {
    let rules = &policy.rules;
    let picks = |rule: &gabion_rule::Rule| rule.matching == Matching::Request;
    if rules.rule(rule).is_some_and(picks) {
        let source = |slot| raw(rules.sources().name(slot), descriptor);
        let values = Resolver::new(rules.attributes(), &source);
        let shown = rules.log_values(rule, &values);
        shown.iter().for_each(|(name, value)| take(name, value));
    } else {
        let entries = keys_and_values(descriptor);
        let values = Entries {
            entries: &entries,
            has_query: true,
        };
        let shown = rules.log_values(rule, &values);
        shown.iter().for_each(|(name, value)| take(name, value));
    }
}
