//! The Prometheus form of `gabion_status`, with the names of gabiond's `/metrics`.
//!
//! I own names, labels and the bound on series: [`RULE_SERIES_MAX`] rules, [`PEER_SERIES_MAX`]
//! peers; what is beyond is summed up or counted. The state of gossip is read from what its worker
//! posted. I only read.

use std::fmt::Write as _;

use gabion_node::RuleBound;
use gabion_table::{Mem, TableStats};
use serde_json::Value;

use crate::catalog::Bound;
use crate::limits::{PEER_SERIES_MAX, RULE_SERIES_MAX};
use crate::report::{stated, View};
use crate::zone::STATS;

/// A page of metrics: each family once, with its help and type.
struct Page(String);

type Series = (String, f64);

impl Page {
    fn family(&mut self, name: &str, help: &str, series: impl IntoIterator<Item = Series>) {
        let kind = match name.ends_with("_total") {
            true => "counter",
            false => "gauge",
        };
        // Writing into a string cannot fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (labels, value) in series {
            let _ = match labels.as_str() {
                "" => writeln!(self.0, "{name} {value}"),
                _ => writeln!(self.0, "{name}{{{labels}}} {value}"),
            };
        }
    }

    fn one(&mut self, name: &str, help: &str, value: f64) {
        self.family(name, help, [(String::new(), value)]);
    }
}

/// A label's value: quotes, backslashes and line breaks escaped.
fn label(name: &str, text: &str) -> String {
    let text = text
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n");
    format!("{name}=\"{text}\"")
}

/// The page of a configuration.
pub fn page<M: Mem>(view: &View<'_, M>) -> String {
    let mut page = Page(String::with_capacity(16 << 10));
    let state = view.gossip();
    rules(view, &mut page);
    bounds(view, &state, &mut page);
    tables(view, &mut page);
    gossip(&state, &mut page);
    page.0
}

fn rules<M: Mem>(view: &View<'_, M>, page: &mut Page) {
    let zones = view.catalog.zones.iter().zip(&view.zones);
    let all: Vec<_> = zones
        .filter_map(|(plan, zone)| Some((plan, zone.as_deref()?)))
        .flat_map(|(plan, zone)| plan.rules.iter().map(move |at| (*at, zone)))
        .filter_map(|(at, zone)| Some((view.catalog.rules.get(at)?, zone)))
        .collect();
    let (own, rest) = all.split_at(all.len().min(RULE_SERIES_MAX));
    let of = |stat| {
        let own = own.iter().map(move |(bound, zone)| {
            let (domain, rule) = (&bound.rule.domain, &bound.rule.name);
            let labels = format!("{},{}", label("domain", domain), label("rule", rule));
            (labels, zone.count(usize::from(bound.index), stat))
        });
        let rest = (!rest.is_empty()).then(|| {
            let rest = rest.iter();
            let sum = rest.map(|(bound, zone)| zone.count(usize::from(bound.index), stat));
            (r#"domain="",rule="""#.to_owned(), sum.sum())
        });
        own.chain(rest)
    };
    let series = STATS.iter().flat_map(|(stat, word)| {
        of(*stat).map(move |(labels, n)| (format!("{labels},result=\"{word}\""), n as f64))
    });
    page.family(
        "gabion_rule_requests_total",
        "What became of requests, by rule",
        series.collect::<Vec<_>>(),
    );
    let flags = view.flag_states().into_iter();
    page.family(
        "gabion_flag_percent",
        "Per cent of keys that a flag is on for",
        flags.map(|(flag, share)| (label("flag", &flag.name), f64::from(share.get()))),
    );
    page.one(
        "gabion_untrusted_forwarded_requests_total",
        "Requests with forwarded addresses from a private peer that is not trusted",
        view.untrusted_peers() as f64,
    );
    page.one(
        "gabion_rules_sharing_a_series",
        "Rules that have no series of their own and are summed up",
        rest.len() as f64,
    );
}

/// Of the rules with series of their own; the others share the largest.
fn bounds<M: Mem>(view: &View<'_, M>, state: &Value, page: &mut Page) {
    let bounds = view.bounds(state);
    let zones = view.catalog.zones.iter().zip(&view.zones).zip(&bounds);
    let all: Vec<(&Bound, RuleBound)> = zones
        .filter(|((_, zone), _)| zone.is_some())
        .flat_map(|((plan, _), bounds)| plan.rules.iter().map(move |at| (*at, bounds)))
        .filter_map(|(at, bounds)| {
            let bound = view.catalog.rules.get(at)?;
            Some((bound, stated(bound, bounds).unwrap_or_default()))
        })
        .collect();
    let (own, rest) = all.split_at(all.len().min(RULE_SERIES_MAX));
    type Pick = fn(&RuleBound) -> f64;
    let families: [(&str, &str, Pick); 2] = [
        (
            "gabion_rule_over_admission_bound_hits",
            "Hits that all members together may admit beyond the limit of one key, as it is now",
            |over| over.bound_hits as f64,
        ),
        (
            "gabion_rule_staleness_seconds",
            "Age of the oldest hit of the rule that a member which is reached may lack",
            |over| over.staleness_ns as f64 / 1e9,
        ),
    ];
    for (name, help, value) in families {
        let own = own.iter().map(|(bound, over)| {
            let (domain, rule) = (&bound.rule.domain, &bound.rule.name);
            let labels = format!("{},{}", label("domain", domain), label("rule", rule));
            (labels, value(over))
        });
        let most = rest.iter().map(|(_, over)| value(over)).reduce(f64::max);
        let rest = most.map(|most| (r#"domain="",rule="""#.to_owned(), most));
        page.family(name, help, own.chain(rest).collect::<Vec<_>>());
    }
}

/// Name, help and value of a metric of a zone's table.
type TableMetric = (&'static str, &'static str, fn(&TableStats) -> u64);

const TABLE: [TableMetric; 9] = [
    ("gabion_table_rows", "Row slots", |s| s.rows),
    ("gabion_table_live_rows", "Rows that hold a key", |s| s.live),
    ("gabion_table_claims_total", "Rows given to a key", |s| {
        s.claims
    }),
    (
        "gabion_table_full_admits_total",
        "Hits let through uncounted: no row",
        |s| s.full_admits,
    ),
    (
        "gabion_table_doorkeeper_hits_total",
        "Hits let through uncounted: new to a full table",
        |s| s.doorkeeper_hits,
    ),
    (
        "gabion_table_evicted_rows_total",
        "Rows taken from a key that still counted",
        |s| s.evicted_rows,
    ),
    (
        "gabion_table_evicted_hits_total",
        "Own hits that were forgotten with them",
        |s| s.evicted_hits,
    ),
    (
        "gabion_table_phantom_hits_total",
        "Hits that stayed counted on a denied request",
        |s| s.phantom_hits,
    ),
    (
        "gabion_table_share_denials_total",
        "Denials on a member's share of a paced or strict rule",
        |s| s.share_denials,
    ),
];

fn tables<M: Mem>(view: &View<'_, M>, page: &mut Page) {
    let zones = view.catalog.zones.iter().zip(&view.zones);
    let stats: Vec<(String, TableStats)> = zones
        .filter_map(|(plan, zone)| {
            let zone = zone.as_ref()?;
            Some((label("zone", &plan.name), zone.table_stats()))
        })
        .collect();
    for (name, help, pick) in TABLE {
        let series = stats
            .iter()
            .map(|(zone, stats)| (zone.clone(), pick(stats) as f64));
        page.family(name, help, series);
    }
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(0.0)
}

fn truth(value: &Value) -> f64 {
    f64::from(u8::from(value.as_bool().unwrap_or(false)))
}

fn gossip(state: &Value, page: &mut Page) {
    page.one(
        "gabion_gossip_configured",
        "1 when this member is to share counts",
        f64::from(u8::from(!state.is_null())),
    );
    let running = state["running"].as_bool() == Some(true);
    page.one(
        "gabion_gossip_up",
        "1 while gossip runs and has its socket",
        f64::from(u8::from(running && state["bound"].is_string())),
    );
    page.one(
        "gabion_gossip_state_age_seconds",
        "Age of the state of gossip that is shown here",
        number(&state["age_ms"]) / 1e3,
    );
    let none = Vec::new();
    let peers = state["peers"].as_array().unwrap_or(&none);
    let left_off = number(&state["peers_left_off"]);
    let up = peers.iter().filter(|p| p["up"] == true).count() as f64;
    let (known, shown) = (
        peers.len() as f64 + left_off,
        peers.len().min(PEER_SERIES_MAX),
    );
    let counters = &state["node_counters"];
    let up = counters["peers_up"].as_f64().unwrap_or(up);
    let differing = state["differences"].as_array().map_or(0, Vec::len) as f64;
    for (name, help, value) in [
        ("gabion_gossip_peers_known", "Peers that are known", known),
        ("gabion_gossip_peers_up", "Peers that were heard lately", up),
        (
            "gabion_gossip_peers_unreachable",
            "Peers that may be counting alone: down, silent, deaf or not caught up with",
            number(&state["unreachable_peers"]),
        ),
        (
            "gabion_gossip_peers_discovered",
            "Peers that discovery named last",
            number(&state["discovered_peers"]),
        ),
        (
            "gabion_gossip_peers_without_series",
            "Peers that have no series of their own",
            known - shown as f64,
        ),
        (
            "gabion_gossip_rule_differences",
            "Rules that a peer enforces with other numbers",
            differing,
        ),
        (
            "gabion_clock_correction_seconds",
            "What was added to this host's clock to agree with the peers",
            number(&state["clock_correction_ns"]) / 1e9,
        ),
        (
            "gabion_gossip_staleness_seconds",
            "Age of the oldest news that a peer which is up lacks: the live bound",
            number(&counters["staleness_ns"]) / 1e9,
        ),
    ] {
        page.one(name, help, value);
    }
    sources(state["discovery"].as_array().unwrap_or(&none), page);
    each_peer(&peers[..shown], page);
    counters_of(state, page);
}

fn sources(all: &[Value], page: &mut Page) {
    let of = |what: &'static str| {
        all.iter().filter_map(move |source| {
            let name = label("source", source["source"].as_str()?);
            Some((name, source[what].as_f64()?))
        })
    };
    page.family(
        "gabion_discovery_peers",
        "Peers that a source of discovery named last",
        of("peers"),
    );
    page.family(
        "gabion_discovery_age_seconds",
        "Time since a source of discovery last heard that what it knows holds",
        of("age_s"),
    );
    let errors = all.iter().flat_map(|source| {
        let name = source["source"].as_str().unwrap_or_default();
        let errors = source["errors"].as_object().into_iter().flatten();
        errors.map(move |(kind, count)| {
            let labels = [label("kind", kind), label("source", name)].join(",");
            (labels, number(count))
        })
    });
    page.family(
        "gabion_discovery_errors_total",
        "Failures of discovery by source and kind",
        errors,
    );
}

fn each_peer(peers: &[Value], page: &mut Page) {
    type Pick = fn(&Value) -> Option<f64>;
    let families: [(&str, &str, Pick); 5] = [
        ("gabion_peer_up", "1 while the peer is heard", |p| {
            Some(truth(&p["up"]))
        }),
        (
            "gabion_peer_round_trip_seconds",
            "Smoothed round trip to the peer",
            |p| {
                p["rtt_ns"]
                    .as_f64()
                    .filter(|ns| *ns > 0.0)
                    .map(|ns| ns / 1e9)
            },
        ),
        (
            "gabion_peer_clock_offset_seconds",
            "The peer's cluster clock minus this member's",
            |p| p["clock_offset_ns"].as_f64().map(|ns| ns / 1e9),
        ),
        (
            "gabion_peer_staleness_seconds",
            "Age of the oldest news the peer has not acknowledged",
            |p| Some(number(&p["staleness_ns"]) / 1e9),
        ),
        (
            "gabion_peer_silent_seconds",
            "Time since the peer's last frame",
            |p| Some(number(&p["last_heard_ms_ago"]) / 1e3),
        ),
    ];
    for (name, help, pick) in families {
        let series = peers.iter().filter_map(|peer| {
            let address = peer["address"].as_str()?;
            Some((label("peer", address), pick(peer)?))
        });
        page.family(name, help, series);
    }
}

/// Counters of the node that are no counters, or are shown elsewhere.
const GAUGES: [&str; 7] = [
    "cells",
    "cells_max",
    "cell_bytes",
    "shelves",
    "origins",
    "peers_up",
    "staleness_ns",
];

fn counters_of(state: &Value, page: &mut Page) {
    let (node, driver) = (&state["node_counters"], &state["driver_counters"]);
    let both = |of: &Value, received: &str, sent: &str| {
        [
            (r#"direction="in""#.to_owned(), number(&of[received])),
            (r#"direction="out""#.to_owned(), number(&of[sent])),
        ]
    };
    page.family(
        "gabion_gossip_frames_total",
        "Datagrams by direction",
        both(driver, "received", "sent"),
    );
    page.family(
        "gabion_gossip_bytes_total",
        "Bytes of datagrams by direction",
        both(driver, "received_bytes", "sent_bytes"),
    );
    page.family(
        "gabion_gossip_rows_total",
        "Rows by direction",
        both(node, "rows_in", "rows_out"),
    );
    for (name, help, from) in [
        (
            "gabion_gossip_cells",
            "Counters held beside the zones",
            "cells",
        ),
        ("gabion_gossip_cell_bytes", "Bytes they take", "cell_bytes"),
        (
            "gabion_gossip_epochs",
            "(limiter, epoch) pairs held",
            "shelves",
        ),
        ("gabion_gossip_origins", "Origins known", "origins"),
    ] {
        page.one(name, help, number(&node[from]));
    }
    let parts = [
        ("node", node),
        ("pump", &state["pump_counters"]),
        ("driver", driver),
    ];
    let events = parts.into_iter().flat_map(|(part, counters)| {
        let counters = counters.as_object().into_iter().flatten();
        counters
            .filter(move |(name, _)| part != "node" || !GAUGES.contains(&name.as_str()))
            .map(move |(name, count)| (format!("event=\"{name}\",part=\"{part}\""), number(count)))
    });
    page.family(
        "gabion_gossip_events_total",
        "Everything that gossip counts, by part and name",
        events,
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_family_is_declared_once_and_labels_are_escaped() {
        let mut page = Page(String::new());
        let state = serde_json::json!({
            "running": true, "bound": "127.0.0.1:7", "age_ms": 1_500,
            "peers": [{ "address": "a\"b\\c\n", "up": true, "rtt_ns": 2_000_000 }],
            "peers_left_off": 4,
            "discovery": [{ "source": "kubernetes", "peers": 3, "age_s": 1.5,
                "errors": { "forbidden": 2 } }],
            "node_counters": { "rows_in": 5, "peers_up": 1, "staleness_ns": 3_000_000 },
        });
        gossip(&state, &mut page);
        let text = page.0;
        let mut declared: Vec<&str> = text.lines().filter(|l| l.starts_with("# TYPE")).collect();
        let all = declared.len();
        declared.sort_unstable();
        declared.dedup();
        assert_eq!(declared.len(), all);
        for line in [
            "gabion_gossip_up 1",
            "gabion_gossip_state_age_seconds 1.5",
            "gabion_gossip_peers_known 5",
            "gabion_gossip_peers_without_series 4",
            r#"gabion_discovery_peers{source="kubernetes"} 3"#,
            r#"gabion_discovery_age_seconds{source="kubernetes"} 1.5"#,
            r#"gabion_discovery_errors_total{kind="forbidden",source="kubernetes"} 2"#,
            "gabion_gossip_staleness_seconds 0.003",
            r#"gabion_peer_round_trip_seconds{peer="a\"b\\c\n"} 0.002"#,
            r#"gabion_gossip_rows_total{direction="in"} 5"#,
            r#"gabion_gossip_events_total{event="rows_in",part="node"} 5"#,
        ] {
            assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
        }
        assert!(!text.contains("event=\"peers_up\""));
    }

    #[test]
    fn without_gossip_the_families_are_there_all_the_same() {
        let mut page = Page(String::new());
        gossip(&Value::Null, &mut page);
        assert!(page.0.contains("gabion_gossip_configured 0\n"));
        assert!(page.0.contains("# TYPE gabion_peer_up gauge\n"));
    }
}
