//! What `gabion_status` answers: JSON for people, the Prometheus text for machines.
//!
//! I own the form of both. I only read words of zones; a report costs nothing to requests.

use std::fmt::Write as _;
use std::sync::Arc;

use gabion_table::Mem;
use serde_json::{json, Value};

use crate::catalog::{Bound, Catalog, ZonePlan};
use crate::settings::Settings;
use crate::zone::{Zone, STATS};

/// A configuration with its zones' memory, by index; `None`: the zone has none.
pub struct View<'v, M: Mem> {
    /// The settings.
    pub settings: &'v Settings,
    /// The rules.
    pub catalog: &'v Catalog,
    /// In the order of the catalog's zones.
    pub zones: Vec<Option<Arc<Zone<M>>>>,
    /// The nginx that the module was built for.
    pub built_for: &'v str,
    /// Process id of the worker that answers.
    pub pid: u32,
}

impl<M: Mem> View<'_, M> {
    /// As JSON.
    pub fn json(&self) -> String {
        let zones = self.catalog.zones.iter().zip(&self.zones);
        let zones: Vec<Value> = zones
            .map(|(plan, zone)| self.zone(plan, zone.as_deref()))
            .collect();
        let leader = self
            .zones
            .first()
            .and_then(Option::as_ref)
            .map(|zone| zone.leader());
        let gossip = self.settings.bind.map(|bind| {
            let (pid, takeovers) = leader.unwrap_or_default();
            json!({
                "bind": bind.to_string(),
                "cluster": self.settings.cluster().text(),
                "authenticated": self.settings.keys.is_some(),
                "leader_pid": pid,
                "takeovers": takeovers,
            })
        });
        let all = [&self.settings.notices, &self.catalog.notices];
        let notices: Vec<&String> = all.into_iter().flatten().collect();
        let report = json!({
            "module": { "version": env!("CARGO_PKG_VERSION"), "built_for": self.built_for },
            "pid": self.pid,
            "gossip": gossip,
            "zones": zones,
            "notices": notices,
        });
        let mut text = serde_json::to_string_pretty(&report).unwrap_or_else(|_| "{}".to_owned());
        text.push('\n');
        text
    }

    fn zone(&self, plan: &ZonePlan, zone: Option<&Zone<M>>) -> Value {
        let rules: Vec<Value> = plan
            .rules
            .iter()
            .filter_map(|at| self.catalog.rules.get(*at))
            .map(|bound| rule(bound, zone))
            .collect();
        let Some(zone) = zone else {
            return json!({ "name": plan.name, "bytes": plan.bytes, "rules": rules });
        };
        let (kept, table) = (zone.kept(), zone.table_stats());
        json!({
            "name": plan.name,
            "bytes": plan.bytes,
            "node": format!("{:016x}", kept.node),
            "incarnation": format!("{:016x}", kept.incarnation),
            "session": kept.session,
            "clock_offset_ns": kept.offset_ns,
            "rules": rules,
            "table": {
                "rows": table.rows, "live": table.live, "claims": table.claims,
                "full_admits": table.full_admits, "doorkeeper_hits": table.doorkeeper_hits,
                "evicted_rows": table.evicted_rows, "evicted_hits": table.evicted_hits,
                "evicted_exhausted": table.evicted_exhausted,
                "phantom_hits": table.phantom_hits, "takeovers": table.takeovers,
                "void_epochs": table.void_epochs, "unknown_rules": table.unknown_rules,
                "bad_clock": table.bad_clock, "scrubbed": table.scrubbed,
            },
        })
    }

    /// As the Prometheus text format.
    pub fn prometheus(&self) -> String {
        let mut text = String::from(
            "# HELP gabion_rule_requests_total What became of requests, by rule.\n\
             # TYPE gabion_rule_requests_total counter\n",
        );
        let mut tables = String::new();
        for (plan, zone) in self.catalog.zones.iter().zip(&self.zones) {
            let Some(zone) = zone else { continue };
            for (index, at) in plan.rules.iter().enumerate() {
                let Some(bound) = self.catalog.rules.get(*at) else {
                    continue;
                };
                for (stat, word) in STATS {
                    let count = zone.count(index, stat);
                    let (rule, domain) = (label(&bound.rule.name), label(&bound.rule.domain));
                    let _ = writeln!(
                        text,
                        "gabion_rule_requests_total{{domain=\"{domain}\",rule=\"{rule}\",\
                         result=\"{word}\"}} {count}"
                    );
                }
            }
            let (stats, name) = (zone.table_stats(), label(&plan.name));
            let of = [
                ("gabion_table_rows", "gauge", stats.rows),
                ("gabion_table_live_rows", "gauge", stats.live),
                (
                    "gabion_table_full_admits_total",
                    "counter",
                    stats.full_admits,
                ),
                (
                    "gabion_table_doorkeeper_hits_total",
                    "counter",
                    stats.doorkeeper_hits,
                ),
                (
                    "gabion_table_evicted_hits_total",
                    "counter",
                    stats.evicted_hits,
                ),
                (
                    "gabion_table_phantom_hits_total",
                    "counter",
                    stats.phantom_hits,
                ),
            ];
            for (metric, kind, value) in of {
                let _ = writeln!(
                    tables,
                    "# TYPE {metric} {kind}\n{metric}{{zone=\"{name}\"}} {value}"
                );
            }
        }
        text + &tables
    }
}

fn rule<M: Mem>(bound: &Bound, zone: Option<&Zone<M>>) -> Value {
    let index = usize::from(bound.index);
    let counts: serde_json::Map<String, Value> = STATS
        .iter()
        .map(|(stat, word)| {
            (
                (*word).to_owned(),
                zone.map_or(0, |z| z.count(index, *stat)).into(),
            )
        })
        .collect();
    json!({
        "name": bound.rule.name,
        "domain": bound.rule.domain,
        "limiter": bound.rule.limiter,
        "rule": bound.rule.describe(),
        "limit": bound.rule.algorithm.limit(),
        "mode": bound.rule.mode.word(),
        "identity": format!("{:016x}", bound.identity.short()),
        "digest": format!("{:016x}", bound.rule.digest().0),
        "capacity": zone.map_or(0, |z| z.table.capacity(bound.index)),
        "counts": counts,
    })
}

/// A label's value: quotes, backslashes and line breaks escaped.
fn label(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}
