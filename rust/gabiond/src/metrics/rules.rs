//! Metrics per rule: the first ones have series of their own, the rest share one.

use std::collections::BTreeSet;
use std::fmt;

use gabion_driver::DriverSnapshot;
use gabion_rule::{Matching, OverrideUnit, Rule, RuleIdx};

use super::page::{label, seconds, Page};
use crate::bound;
use crate::limits::FILL_ROWS_A_SCRAPE;
use crate::member::Member;
use crate::overrides;
use crate::policy::Policy;
use crate::tally::LEFT_OUT;

/// Label of the series that rules without one of their own share.
pub(super) const OTHERS: &str = "(others)";
/// Rows of each of their units that a scrape looks at.
const OVERRIDE_ROWS: u64 = 1_024;

/// What is known of one rule, or of all that share a series.
#[derive(Default)]
struct Facts {
    domain: String,
    rule: String,
    allowed: u64,
    denied: u64,
    near_limit: u64,
    would_deny: u64,
    hits: u64,
    capacity: u64,
    live: u64,
    /// By the ways of [`LEFT_OUT`]; of rules that can be left out.
    left_out: Option<[u64; LEFT_OUT.len()]>,
    /// Limit in hits and error budget; not of the shared series.
    numbers: Option<(u64, f64)>,
    /// Over-admission bound in hits and staleness in nanoseconds; the largest of those that share.
    bound: (u64, u64),
}

impl Facts {
    fn labels(&self) -> [(&'static str, &str); 2] {
        [("domain", &self.domain), ("rule", &self.rule)]
    }

    fn add(&mut self, other: &Facts) {
        self.allowed += other.allowed;
        self.denied += other.denied;
        self.near_limit += other.near_limit;
        self.would_deny += other.would_deny;
        self.hits += other.hits;
        self.capacity += other.capacity;
        self.live += other.live;
        self.bound.0 = self.bound.0.max(other.bound.0);
        self.bound.1 = self.bound.1.max(other.bound.1);
        if let Some(others) = other.left_out {
            let mine = self.left_out.get_or_insert_default();
            mine.iter_mut()
                .zip(others)
                .for_each(|(mine, theirs)| *mine += theirs);
        }
    }
}

fn facts(policy: &Policy, now_ns: u64, index: usize, rule: &Rule, rows_max: u64) -> Facts {
    let counts = policy.counts(index);
    let (mut capacity, mut live) = (0, 0);
    if let (Ok(index), Some(counters)) = (u16::try_from(index), policy.counters()) {
        capacity = counters.capacity(index);
        live = counters
            .occupancy(index, now_ns, rows_max)
            .estimate(capacity);
    }
    Facts {
        domain: label(&rule.domain),
        rule: label(&rule.name),
        allowed: counts.allowed,
        denied: counts.denied,
        near_limit: counts.near_limit,
        would_deny: counts.would_deny,
        hits: counts.hits,
        capacity,
        live,
        left_out: can_be_left_out(policy, index, rule).then_some(counts.left_out),
        numbers: Some((
            u64::from(rule.algorithm.limit()),
            f64::from(rule.error_budget_ppm) / 1_000_000.0,
        )),
        bound: (0, 0),
    }
}

fn can_be_left_out(policy: &Policy, index: usize, rule: &Rule) -> bool {
    let index = RuleIdx::try_from(index).unwrap_or(RuleIdx::MAX);
    let rules = policy.rules();
    rule.matching == Matching::Request || !rules.is_plain(index) || rules.any_aside()
}

/// Limits that requests bring, of one unit: one series, however many there are.
fn of_unit(policy: &Policy, now_ns: u64, unit: OverrideUnit) -> Facts {
    let index = overrides::index(policy.rules().rules().len(), unit);
    let counts = policy.override_counts(unit);
    let (mut capacity, mut live) = (0, 0);
    if let Some(counters) = policy.counters() {
        capacity = counters.capacity(index);
        live = counters
            .occupancy(index, now_ns, OVERRIDE_ROWS)
            .estimate(capacity);
    }
    Facts {
        domain: overrides::DOMAIN.to_owned(),
        rule: overrides::name(unit),
        allowed: counts.allowed,
        denied: counts.denied,
        near_limit: counts.near_limit,
        would_deny: counts.would_deny,
        hits: counts.hits,
        capacity,
        live,
        left_out: None,
        numbers: None,
        bound: (0, 0),
    }
}

/// Rules with series of their own in the order of the configuration, then the shared one if any.
fn gather(
    policy: &Policy,
    driver: Option<&DriverSnapshot>,
    now_ns: u64,
    series_max: usize,
) -> Vec<Facts> {
    let rules = policy.rules().rules();
    let rows_max = FILL_ROWS_A_SCRAPE / (rules.len() as u64).max(1);
    let mut own = Vec::new();
    let mut shared: Option<Facts> = None;
    // A name that is taken must not appear twice: the whole page would be refused.
    let mut taken = BTreeSet::from([(OTHERS.to_owned(), OTHERS.to_owned())]);
    taken.extend(
        OverrideUnit::ALL.map(|unit| (overrides::DOMAIN.to_owned(), overrides::name(unit))),
    );
    for (index, rule) in rules.iter().enumerate() {
        let mut facts = facts(policy, now_ns, index, rule, rows_max);
        if let Some(stated) = bound::stated(driver, index, rule) {
            facts.bound = (stated.bound_hits, stated.staleness_ns);
        }
        let names = (facts.domain.clone(), facts.rule.clone());
        if own.len() < series_max && taken.insert(names) {
            own.push(facts);
        } else {
            shared
                .get_or_insert_with(|| Facts {
                    domain: OTHERS.to_owned(),
                    rule: OTHERS.to_owned(),
                    ..Facts::default()
                })
                .add(&facts);
        }
    }
    own.extend(shared);
    if policy.overrides {
        own.extend(OverrideUnit::ALL.map(|unit| of_unit(policy, now_ns, unit)));
    }
    own
}

pub(super) fn write(member: &Member, page: &mut Page<'_, '_>) -> fmt::Result {
    let policy = member.engine().policy();
    let count = policy.rules().rules().len();
    page.gauge("gabion_rules", "Rules of the configuration", count as u64)?;
    let driver = member.gossip();
    let all = gather(
        &policy,
        driver.as_deref(),
        member.engine().now_ns(),
        member.observe().rule_series,
    );
    let own = all.iter().filter(|facts| facts.numbers.is_some()).count();
    page.gauge(
        "gabion_rules_sharing_a_series",
        "Rules that have no series of their own and are summed up",
        (count - own) as u64,
    )?;
    let mut counter = |name: &str, help: &str, of: fn(&Facts) -> u64| {
        page.counters(
            name,
            help,
            all.iter().map(|facts| (facts.labels(), of(facts))),
        )
    };
    counter("gabion_rule_allowed", "Requests the rule let pass", |f| {
        f.allowed
    })?;
    counter("gabion_rule_denied", "Requests the rule denied", |f| {
        f.denied
    })?;
    counter(
        "gabion_rule_near_limit",
        "Requests the rule let pass with 80 % of its limit used or more",
        |f| f.near_limit,
    )?;
    counter(
        "gabion_rule_dry_run_denied",
        "Requests the rule would have denied, were it enforced",
        |f| f.would_deny,
    )?;
    counter("gabion_rule_hits", "Hits of requests that passed", |f| {
        f.hits
    })?;
    page.counters(
        "gabion_rule_left_out",
        "Requests of its domain that the rule was left out of, by why",
        all.iter()
            .filter_map(|f| Some((f, f.left_out?)))
            .flat_map(|(facts, ways)| {
                LEFT_OUT.into_iter().zip(ways).map(|(why, count)| {
                    let [domain, rule] = facts.labels();
                    ([domain, rule, ("why", why)], count)
                })
            }),
    )?;
    let flags: Vec<(String, f64)> = member
        .flags()
        .iter()
        .take(member.observe().rule_series)
        .map(|flag| (label(&flag.name), f64::from(flag.share().get()) / 100.0))
        .collect();
    page.gauges(
        "gabion_flag_ratio",
        "For how many a declared flag is on",
        flags
            .iter()
            .map(|(name, share)| ([("flag", name.as_str())], *share)),
    )?;
    gauges(&all, page)
}

fn gauges(all: &[Facts], page: &mut Page<'_, '_>) -> fmt::Result {
    let mut gauge = |name: &str, help: &str, of: fn(&Facts) -> u64| {
        page.gauges(
            name,
            help,
            all.iter().map(|facts| (facts.labels(), of(facts))),
        )
    };
    gauge(
        "gabion_rule_capacity_keys",
        "Keys that the rule's table can hold",
        |f| f.capacity,
    )?;
    gauge(
        "gabion_rule_live_keys",
        "Keys that count now; estimated when the table is large",
        |f| f.live,
    )?;
    gauge(
        "gabion_rule_over_admission_bound_hits",
        "Hits that all members together may admit beyond the limit of one key, as it is now",
        |f| f.bound.0,
    )?;
    page.gauges(
        "gabion_rule_staleness_seconds",
        "Age of the oldest hit of the rule that a member which is reached may lack",
        all.iter()
            .map(|facts| (facts.labels(), seconds(facts.bound.1))),
    )?;
    let numbers = || {
        all.iter()
            .filter_map(|facts| Some((facts.labels(), facts.numbers?)))
    };
    page.gauges(
        "gabion_rule_limit_hits",
        "The rule's limit in its window, or its burst",
        numbers().map(|(labels, (limit, _))| (labels, limit)),
    )?;
    page.gauges(
        "gabion_rule_error_budget_ratio",
        "How much of its limit members may disagree on",
        numbers().map(|(labels, (_, budget))| (labels, budget)),
    )
}
