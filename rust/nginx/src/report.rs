//! What `gabion_status` answers: JSON for people, the Prometheus text for machines.
//!
//! I own the form of both. I only read words of zones; a report costs nothing to requests.

use std::sync::Arc;

use gabion_driver::{bound_json, unpacked};
use gabion_node::RuleBound;
use gabion_rule::policy::FlagSpec;
use gabion_rule::{Pace, Share};
use gabion_table::Mem;
use serde_json::{json, Value};

use crate::board::Posted;
use crate::catalog::{Bound, Catalog, ZonePlan};
use crate::prometheus;
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
    /// Monotonic time of this host, ns.
    pub now_mono_ns: u64,
}

impl<M: Mem> View<'_, M> {
    /// As JSON.
    pub fn json(&self) -> String {
        let zones = self.catalog.zones.iter().zip(&self.zones);
        let mut gossip = self.gossip();
        let bounds = self.bounds(&gossip);
        let zones: Vec<Value> = zones
            .zip(&bounds)
            .map(|((plan, zone), bounds)| self.zone(plan, zone.as_deref(), bounds))
            .collect();
        if let Value::Object(gossip) = &mut gossip {
            gossip.remove("bounds"); // shown with the rules
        }
        let all = [&self.settings.notices, &self.catalog.notices];
        let notices: Vec<&String> = all.into_iter().flatten().collect();
        let report = json!({
            "module": { "version": env!("CARGO_PKG_VERSION"), "built_for": self.built_for },
            "pid": self.pid,
            "gossip": gossip,
            "zones": zones,
            "flags": self.flags(),
            "attributes": self.attributes(),
            "untrusted_forwarded_requests": self.untrusted_peers(),
            "notices": notices,
        });
        let mut text = serde_json::to_string_pretty(&report).unwrap_or_else(|_| "{}".to_owned());
        text.push('\n');
        text
    }

    /// Every declared flag with the share that is in force.
    pub(crate) fn flag_states(&self) -> Vec<(&FlagSpec, Share)> {
        let names = self.catalog.table.flags();
        let set = |flag: &FlagSpec| {
            let at = names.iter().position(|named| named.name == flag.name)?;
            let place = self.catalog.flags.get(at)?;
            let zone = self.zones.get(place.zone)?.as_ref()?;
            zone.orders(usize::from(place.index), place.slot, place.name)
                .share()
        };
        let flags = self.settings.flags.iter();
        flags
            .map(|flag| (flag, set(flag).unwrap_or(flag.default)))
            .collect()
    }

    fn flags(&self) -> Value {
        let flag = |(flag, share): (&FlagSpec, Share)| {
            json!({
                "name": flag.name,
                "value": share.to_string(),
                "default": flag.default.to_string(),
                "by": flag.by,
            })
        };
        self.flag_states().into_iter().map(flag).collect()
    }

    /// What rules ask for: where it comes from, and what is derived of it.
    fn attributes(&self) -> Value {
        let sources = self.catalog.sources.iter();
        let bound = sources.map(|source| (source.name.clone(), source.template.as_str().into()));
        let derived = self.settings.attributes.iter().map(|a| a.name.as_str());
        json!({
            "bound": bound.collect::<serde_json::Map<String, Value>>(),
            "derived": derived.collect::<Vec<_>>(),
        })
    }

    /// Requests whose forwarded addresses came from a private peer that no rule trusts.
    pub(crate) fn untrusted_peers(&self) -> u64 {
        self.zones
            .iter()
            .flatten()
            .map(|zone| zone.untrusted_peers())
            .sum()
    }

    /// The bounds of each zone's rules, in the order of its table, out of the state of gossip: one
    /// driver has the rules of all zones, numbered through.
    pub(crate) fn bounds(&self, gossip: &Value) -> Vec<Vec<Option<RuleBound>>> {
        let posted = gossip["bounds"].as_array();
        let posted = posted.map_or(&[][..], Vec::as_slice);
        let mut posted = posted.iter().map(unpacked);
        let zones = self.catalog.zones.iter().zip(&self.zones);
        let of = zones.map(|(plan, zone)| {
            let rules = zone.as_ref().map_or(0, |_| plan.limiters.len());
            posted.by_ref().take(rules).collect()
        });
        of.collect()
    }

    fn zone(&self, plan: &ZonePlan, zone: Option<&Zone<M>>, bounds: &[Option<RuleBound>]) -> Value {
        let rules: Vec<Value> = plan
            .rules
            .iter()
            .filter_map(|at| self.catalog.rules.get(*at))
            .map(|bound| {
                let mut shown = rule(bound, zone);
                let over = stated(bound, bounds);
                shown["over_admission"] = over.as_ref().map_or(Value::Null, bound_json);
                shown
            })
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
        prometheus::page(self)
    }

    /// The state of gossip: what the worker that runs it posted last, and who that is. Null when
    /// gossip is not configured.
    pub(crate) fn gossip(&self) -> Value {
        let Some(bind) = self.settings.bind else {
            return Value::Null;
        };
        let lead = self.zones.iter().flatten().next();
        let posted = lead.map_or(Posted::Nothing, |zone| zone.board().read(zone.head()));
        let mut state = match posted {
            Posted::Nothing => json!({ "state": "nothing was posted yet" }),
            Posted::Torn => json!({ "state": "it changed while it was read; ask again" }),
            Posted::Text(text) => serde_json::from_str(&text)
                .unwrap_or_else(|_| json!({ "state": "what was posted is no JSON" })),
        };
        let (pid, takeovers) = lead.map(|zone| zone.leader()).unwrap_or_default();
        if let Some(taken_ns) = state["taken_mono_ns"].as_u64() {
            state["age_ms"] = (self.now_mono_ns.saturating_sub(taken_ns) / 1_000_000).into();
        }
        if let Value::Object(state) = &mut state {
            state.remove("taken_mono_ns");
        }
        state["bind"] = bind.to_string().into();
        state["cluster"] = self.settings.cluster().text().into();
        state["authenticated"] = self.settings.keys.is_some().into();
        state["leader_pid"] = pid.into();
        state["takeovers"] = takeovers.into();
        state
    }
}

/// What is stated of a rule, out of what is posted for its zone.
pub(crate) fn stated(rule: &Bound, bounds: &[Option<RuleBound>]) -> Option<RuleBound> {
    let stated = bounds.get(usize::from(rule.index)).copied().flatten()?;
    Some(match rule.rule.pace {
        Pace::Strict { .. } => stated.strict(),
        Pace::Fast | Pace::Paced => stated,
    })
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
