//! The over-admission bound of a rule, for people and machines.
//!
//! I own which bound is shown with which rule. The law is `docs/spec/bound.md`; the node states
//! what holds now. I only read.

use gabion_driver::{bound_json, DriverSnapshot};
use gabion_node::{bound_at_rest_hits, RuleBound};
use gabion_rule::{Pace, Rule};
use serde_json::{json, Value};

/// What the member states of a rule; `None` when it counts alone or has stated nothing yet.
pub(crate) fn stated(
    driver: Option<&DriverSnapshot>,
    index: usize,
    rule: &Rule,
) -> Option<RuleBound> {
    let stated = driver?.bound(index, rule.digest().0).copied()?;
    Some(match rule.pace {
        Pace::Strict { .. } => stated.strict(),
        Pace::Fast | Pace::Paced => stated,
    })
}

/// The same as JSON; null when nothing is stated.
pub(crate) fn now(driver: Option<&DriverSnapshot>, index: usize, rule: &Rule) -> Value {
    stated(driver, index, rule).map_or(Value::Null, |bound| bound_json(&bound))
}

/// What the law says of a rule that `members` share: while all reach each other, and at worst.
// spec: bnd-2, bnd-3, bnd-10
pub(crate) fn by_law(rule: &Rule, members: u64) -> Value {
    let limit = match rule.pace {
        Pace::Strict { .. } => 0,
        Pace::Fast | Pace::Paced => rule.algorithm.limit(),
    };
    json!({
        "members": members,
        "at_rest_hits": bound_at_rest_hits(limit, rule.error_budget_ppm, members),
        "at_worst_hits": u64::from(limit).saturating_mul(members.saturating_sub(1)),
    })
}
