//! The state of a member as JSON, for people and tests.
//!
//! I own the form of `/snapshot`. Its names are documented in `docs/operating.md`. I only read.

use gabion_driver::DriverSnapshot;
use gabion_rule::{Algorithm, OverrideUnit, Rule};
use gabion_table::TableStats;
use serde_json::{json, Value};

use crate::bound;
use crate::member::{Member, ReloadRecord};
use crate::net::View;
use crate::orders::FlagState;
use crate::overrides;
use crate::policy::Policy;
use crate::tally::{Cause, RuleCounts, Tally, LEFT_OUT};

/// Everything `/snapshot` says.
pub fn of(member: &Member) -> Value {
    let engine = member.engine();
    let policy = engine.policy();
    let driver = member.gossip();
    let rules = 0..policy.rules().rules().len();
    let rules = rules.filter_map(|index| rule(&policy, index, driver.as_deref()));
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "state": member.state().word(),
        "uptime_ms": member.uptime().as_millis(),
        "cluster_time_ns": engine.now_ns().to_string(),
        "addresses": member.addresses(),
        "ports": member.ports().iter().map(port_json).collect::<Value>(),
        "config": {
            "rules": policy.rules().rules().len(),
            "rules_fingerprint": hex(policy.rules().fingerprint()),
            "notices": *member.notices(),
            "reloads": reloads_json(&member.reloads()),
        },
        "decisions": decisions(engine.tally()),
        "fail_open": causes(engine.tally()),
        "rules": rules.collect::<Vec<_>>(),
        "flags": member.flags().iter().map(flag_json).collect::<Value>(),
        "overrides": policy.overrides.then(|| units(&policy)),
        "table": policy.counters().map(|counters| table_json(&counters.stats())),
        "gossip": driver.as_ref().map(|driver| driver.json(usize::MAX)),
    })
}

/// A declared flag as it is now.
pub(crate) fn flag_json(flag: &FlagState) -> Value {
    json!({
        "name": flag.name,
        "value": flag.share().to_string(),
        "default": flag.default.to_string(),
        "set": flag.set.map(|share| share.to_string()),
        "by": flag.by,
    })
}

/// Limits that requests bring, by unit.
fn units(policy: &Policy) -> Value {
    let units = OverrideUnit::ALL.into_iter().map(|unit| {
        let index = overrides::index(policy.rules().rules().len(), unit);
        let capacity = policy.counters().map_or(0, |c| c.capacity(index));
        json!({
            "name": overrides::name(unit),
            "short": hex(unit.identity().short()),
            "capacity_keys": capacity,
            "counts": counts_json(policy.override_counts(unit)),
        })
    });
    units.collect()
}

/// One rule as `/snapshot` and `/rules` show it.
pub(crate) fn rule(
    policy: &Policy,
    index: usize,
    driver: Option<&DriverSnapshot>,
) -> Option<Value> {
    let rule = policy.rules().rules().get(index)?;
    let bound = bound::now(driver, index, rule);
    let capacity = u16::try_from(index)
        .ok()
        .zip(policy.counters())
        .map_or(0, |(index, counters)| counters.capacity(index));
    let mut shown = rule_json(rule, policy.counts(index), capacity);
    shown["over_admission"] = bound;
    Some(shown)
}

fn port_json((name, view): &(&'static str, View)) -> (String, Value) {
    let mut port = named(view.events().counts().into_iter());
    port["open"] = json!(view.open());
    port["open_most"] = json!(view.most());
    port["tls"] = view.tls().map_or(Value::Null, |source| {
        json!({
            "expires_unix_s": source.expires_unix_s(),
            "reloads": source.reloads(),
            "refusals": source.refusals(),
        })
    });
    ((*name).to_owned(), port)
}

fn reloads_json(reloads: &ReloadRecord) -> Value {
    json!({
        "done": reloads.done,
        "refused": reloads.refused,
        "last_refusal": reloads.last_refusal,
    })
}

/// 64-bit names are texts: JSON's numbers would round them.
fn hex(n: u64) -> String {
    format!("{n:016x}")
}

fn decisions(tally: &Tally) -> Value {
    json!({
        "allowed": tally.allowed.get(),
        "denied": tally.denied.get(),
        "descriptors": tally.descriptors.get(),
        "unmatched_descriptors": tally.unmatched.get(),
    })
}

fn causes(tally: &Tally) -> Value {
    named(
        Cause::ALL
            .iter()
            .map(|cause| (cause.name(), tally.of_cause(*cause))),
    )
}

fn named(counters: impl Iterator<Item = (&'static str, u64)>) -> Value {
    let counters = counters.map(|(name, count)| (name.to_owned(), Value::from(count)));
    Value::Object(counters.collect())
}

fn rule_json(rule: &Rule, counts: RuleCounts, capacity: u64) -> Value {
    let identity: String = rule
        .identity()
        .0
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let (kind, limit, window_ns, bucket_ns) = match rule.algorithm {
        Algorithm::Window {
            limit,
            window_ns,
            bucket_ns,
            ..
        } => ("window", limit, Some(window_ns), Some(bucket_ns)),
        Algorithm::TokenBucket { burst, .. } => ("token_bucket", burst, None, None),
    };
    json!({
        "name": rule.name,
        "domain": rule.domain,
        "limiter": rule.limiter,
        "rule": rule.describe(),
        "identity": identity,
        "short": hex(rule.identity().short()),
        "digest": hex(rule.digest().0),
        "kind": kind,
        "limit": limit,
        "rate": rule.rate.to_string(),
        "window_ms": window_ns.map(|ns| ns / 1_000_000),
        "bucket_ms": bucket_ns.map(|ns| ns / 1_000_000),
        "mode": rule.mode_word(),
        "error_budget_ppm": rule.error_budget_ppm,
        "capacity_keys": capacity,
        "counts": counts_json(counts),
    })
}

fn counts_json(counts: RuleCounts) -> Value {
    json!({
        "allowed": counts.allowed,
        "denied": counts.denied,
        "would_deny": counts.would_deny,
        "near_limit": counts.near_limit,
        "hits": counts.hits,
        "left_out": named(LEFT_OUT.into_iter().zip(counts.left_out)),
    })
}

fn table_json(stats: &TableStats) -> Value {
    json!({
        "rows": stats.rows,
        "live": stats.live,
        "claims": stats.claims,
        "full_admits": stats.full_admits,
        "doorkeeper_hits": stats.doorkeeper_hits,
        "evicted_rows": stats.evicted_rows,
        "evicted_hits": stats.evicted_hits,
        "evicted_exhausted": stats.evicted_exhausted,
        "phantom_hits": stats.phantom_hits,
        "takeovers": stats.takeovers,
        "withdrawals": stats.withdrawals,
        "void_epochs": stats.void_epochs,
        "unknown_rules": stats.unknown_rules,
        "bad_clock": stats.bad_clock,
        "scrubbed": stats.scrubbed,
        "remarked": stats.remarked,
        "share_denials": stats.share_denials,
    })
}
