//! Metrics per value of a descriptor, for rules that ask for them (`metric_values`).
//!
//! I promise that no set of labels appears twice, and that there are no more series than
//! `observe.value_series` and one for the rest of each rule that has series of its own.

use std::collections::BTreeMap;
use std::fmt;

use super::page::{label, values_label, Page};
use super::rules::OTHERS;
use crate::member::Member;
use crate::policy::Policy;
use crate::tally::RuleCounts;

/// Domain, rule and values.
type Labels = (String, String, String);

fn gather(policy: &Policy, series_max: usize) -> BTreeMap<Labels, RuleCounts> {
    let mut all = BTreeMap::<Labels, RuleCounts>::new();
    for (index, counted) in policy.counts_by_value() {
        let rule = policy.rules().rules().get(index);
        let rule = rule.filter(|_| index < series_max);
        let others = || OTHERS.to_owned();
        let (domain, name) = rule.map_or_else(
            || (others(), others()),
            |rule| (label(&rule.domain), label(&rule.name)),
        );
        let values = counted.values.filter(|_| rule.is_some());
        let values = values.map_or_else(others, |(text, hash)| values_label(&text, hash));
        all.entry((domain, name, values))
            .or_default()
            .add(counted.counts);
    }
    all
}

pub(super) fn write(member: &Member, page: &mut Page<'_, '_>) -> fmt::Result {
    let policy = member.engine().policy();
    let all = gather(&policy, member.observe().rule_series);
    let mut counter = |name: &str, help: &str, of: fn(&RuleCounts) -> u64| {
        let series = all.iter().map(|((domain, rule, values), counts)| {
            let labels = [("domain", &**domain), ("rule", rule), ("values", values)];
            (labels, of(counts))
        });
        page.counters(name, help, series)
    };
    counter(
        "gabion_rule_value_allowed",
        "Requests with these values that the rule let pass",
        |counts| counts.allowed,
    )?;
    counter(
        "gabion_rule_value_denied",
        "Requests with these values that the rule denied",
        |counts| counts.denied,
    )?;
    counter(
        "gabion_rule_value_near_limit",
        "Requests with these values let pass with 80 % of the limit used or more",
        |counts| counts.near_limit,
    )?;
    counter(
        "gabion_rule_value_dry_run_denied",
        "Requests with these values that the rule would have denied, were it enforced",
        |counts| counts.would_deny,
    )?;
    counter(
        "gabion_rule_value_hits",
        "Hits of requests with these values that passed",
        |counts| counts.hits,
    )
}
