//! The driver's snapshot as JSON: the part about gossip of gabiond's `/snapshot` and of nginx's
//! `gabion_status`, the same in both.
//!
//! I own its form; its names are documented in `docs/operating.md`. I only read.

use std::sync::Arc;

use gabion_discovery::HealthView;
use gabion_node::{PeerView, RuleBound};
use serde_json::{json, Value};

use crate::stats::{DriverSnapshot, DriverStats};

/// A rule as operators know it, in the order of the limiters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleName {
    /// What it is called and does, in the words of a configuration.
    pub text: String,
    /// Digest of its numbers, as peers are told.
    pub digest: u64,
}

/// The names of all rules.
pub type RuleNames = Arc<[RuleName]>;

/// 64-bit names are texts: JSON's numbers would round them.
pub(crate) fn hex(n: u64) -> String {
    format!("{n:016x}")
}

fn named<'n>(counters: impl Iterator<Item = (&'n str, u64)>) -> Value {
    let counters = counters.map(|(name, count)| (name.to_owned(), Value::from(count)));
    Value::Object(counters.collect())
}

impl DriverStats {
    /// Every counter with its stable name.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
        [
            ("turns", self.turns),
            ("received", self.received),
            ("received_bytes", self.received_bytes),
            ("sent", self.sent),
            ("sent_bytes", self.sent_bytes),
            ("send_errors", self.send_errors),
            ("send_waits", self.send_waits),
            ("receive_errors", self.receive_errors),
            ("socket_faults", self.socket_faults),
            ("bind_failures", self.bind_failures),
            ("binds", self.binds),
            ("peer_sets", self.peer_sets),
            ("discovery_ended", self.discovery_ended),
            ("restarts", self.restarts),
            ("notes", self.notes),
        ]
        .into_iter()
    }
}

impl DriverSnapshot {
    /// As JSON, with at most `peers_max` peers; `peers_left_off` counts the others.
    pub fn json(&self, peers_max: usize) -> Value {
        let peers: Vec<Value> = self.peers.iter().take(peers_max).map(peer_json).collect();
        let differences = self.peers.iter().take(peers_max);
        let differences = differences.flat_map(|peer| self.differences(peer));
        json!({
            "node": hex(self.node),
            "incarnation": hex(self.incarnation),
            "session": self.session,
            "running": self.running,
            "bound": self.local_addr,
            "stands_in_for": self.stands_in_for,
            "receive_buffer_bytes": self.socket_buffers.0,
            "send_buffer_bytes": self.socket_buffers.1,
            "discovered_peers": self.discovered,
            "discovery": self.sources.iter().map(source_json).collect::<Vec<_>>(),
            "peers_left_off": self.peers.len().saturating_sub(peers_max),
            "peers": peers,
            "differences": differences.collect::<Vec<_>>(),
            "members": self.bounds.members,
            "unreachable_peers": self.bounds.unreachable,
            "clock_correction_ns": self.clock_correction_ns,
            "node_counters": named(self.node_stats.named()),
            "pump_counters": named(self.pump_stats.named()),
            "driver_counters": named(self.stats.named()),
        })
    }

    /// The bounds of at most `rules_max` limiters, in their order, as little text as there can be;
    /// [`unpacked`] reads one of them.
    pub fn packed_bounds(&self, rules_max: usize) -> Value {
        let rules = self.bounds.rules.iter().take(rules_max);
        let packed = rules.map(|b| {
            json!([
                b.bound_hits,
                b.held_back_hits,
                b.under_way_hits,
                b.unreachable_hits,
                b.staleness_ns,
            ])
        });
        packed.collect()
    }

    /// The rules that a peer enforces with other numbers.
    fn differences<'s>(&'s self, peer: &'s PeerView) -> impl Iterator<Item = Value> + 's {
        let differing = peer.differences.differing.iter();
        differing.filter_map(move |(limiter, theirs)| {
            let rule = self.rules.get(usize::from(*limiter))?;
            Some(json!({
                "rule": rule.text,
                "digest": hex(rule.digest),
                "peer": peer.addr,
                "peer_node": peer.identity.map(|(node, _)| hex(node)),
                "peer_digest": hex(*theirs),
            }))
        })
    }
}

/// A bound as `/snapshot`, `/rules` and `gabion_status` show it with its rule.
pub fn bound_json(bound: &RuleBound) -> Value {
    json!({
        "bound_hits": bound.bound_hits,
        "held_back_hits": bound.held_back_hits,
        "under_way_hits": bound.under_way_hits,
        "unreachable_hits": bound.unreachable_hits,
        "staleness_ns": bound.staleness_ns,
    })
}

/// One of [`DriverSnapshot::packed_bounds`]; `None`: it is none.
pub fn unpacked(packed: &Value) -> Option<RuleBound> {
    let number = |at: usize| packed.get(at).and_then(Value::as_u64);
    Some(RuleBound {
        bound_hits: number(0)?,
        held_back_hits: number(1)?,
        under_way_hits: number(2)?,
        unreachable_hits: number(3)?,
        staleness_ns: number(4)?,
    })
}

fn source_json(source: &HealthView) -> Value {
    json!({
        "source": source.source,
        "peers": source.peers,
        "age_s": source.age_s,
        "errors": named(source.errors.iter().copied()),
    })
}

fn peer_json(peer: &PeerView) -> Value {
    let not_here = peer.differences.not_here.iter();
    let not_here =
        not_here.map(|(short, digest)| json!({ "short": hex(*short), "digest": hex(*digest) }));
    json!({
        "address": peer.addr,
        "node": peer.identity.map(|(node, _)| hex(node)),
        "incarnation": peer.identity.map(|(_, incarnation)| hex(incarnation)),
        "up": peer.up,
        "configured": peer.configured,
        "hears_us": peer.hears_us,
        "rtt_ns": peer.rtt_ns,
        "clock_offset_ns": peer.offset_ns,
        "last_heard_ms_ago": peer.silent_ns / 1_000_000,
        "staleness_ns": peer.staleness_ns,
        "frames_in_flight": peer.in_flight,
        "backlog": peer.backlog,
        "rules_not_here": not_here.collect::<Vec<_>>(),
        "differences_left_off": peer.differences.left_off,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packed_bound_is_read_as_it_was() {
        let bound = RuleBound {
            bound_hits: 1,
            held_back_hits: 2,
            under_way_hits: 3,
            unreachable_hits: 4,
            staleness_ns: 5,
        };
        assert_eq!(unpacked(&json!([1, 2, 3, 4, 5])), Some(bound));
        assert_eq!(unpacked(&json!([1, 2, 3, 4])), None);
        assert_eq!(unpacked(&Value::Null), None);
    }
}
