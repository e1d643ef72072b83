//! Metrics of the exchange with other members. All families are there, empty or zero, also on a
//! member that counts alone, so that alerts and dashboards find them.

use std::fmt;

use gabion_discovery::HealthView;
use gabion_driver::{DriverSnapshot, DriverStats};
use gabion_node::{NodeStats, PeerView};
use gabion_pump::PumpStats;
use gabion_wire::WireError;

use super::page::{seconds, Page};
use crate::limits::PEER_SERIES_MAX;

/// Counters of the node that have a metric of their own, or say what is now and not what was.
const ELSEWHERE: [&str; 19] = [
    "frames_in",
    "bytes_in",
    "frames_out",
    "bytes_out",
    "rows_in",
    "rows_out",
    "rows_resent",
    "frames_lost",
    "clock_steps",
    "clock_slews",
    "cells",
    "cells_max",
    "cell_bytes",
    "shelves",
    "origins",
    "registers",
    "peers_up",
    "staleness_ns",
    "drop_unproven",
];

pub(super) fn write(driver: Option<&DriverSnapshot>, page: &mut Page<'_, '_>) -> fmt::Result {
    let configured = driver.is_some();
    page.gauge(
        "gabion_gossip_configured",
        "1 when this member is to share counts",
        u64::from(configured),
    )?;
    let up = driver.is_some_and(|driver| driver.running && driver.local_addr.is_some());
    page.gauge(
        "gabion_gossip_up",
        "1 while gossip runs and has its socket",
        u64::from(up),
    )?;
    let none = (
        NodeStats::default(),
        PumpStats::default(),
        DriverStats::default(),
    );
    let (node, pump, stats) = driver.map_or((&none.0, &none.1, &none.2), |driver| {
        (&driver.node_stats, &driver.pump_stats, &driver.stats)
    });
    let peers = driver.map_or(&[][..], |driver| &driver.peers);
    counts_of_peers(driver, peers, page)?;
    sources(driver.map_or(&[][..], |driver| &driver.sources), page)?;
    each_peer(peers, page)?;
    let correction_ns = driver.map_or(0, |driver| driver.clock_correction_ns);
    page.gauge(
        "gabion_clock_correction_seconds",
        "What was added to this host's clock to agree with the peers",
        correction_ns as f64 / 1e9,
    )?;
    page.gauge(
        "gabion_gossip_staleness_seconds",
        "Age of the oldest news that a peer which is up lacks: the live bound",
        seconds(node.staleness_ns),
    )?;
    traffic(node, stats, page)?;
    drops(node, page)?;
    store(node, page)?;
    events(node, pump, stats, page)
}

fn counts_of_peers(
    driver: Option<&DriverSnapshot>,
    peers: &[PeerView],
    page: &mut Page<'_, '_>,
) -> fmt::Result {
    let count = |pick: fn(&PeerView) -> bool| peers.iter().filter(|peer| pick(peer)).count() as u64;
    page.gauge(
        "gabion_gossip_peers_known",
        "Peers that are known",
        count(|_| true),
    )?;
    page.gauge(
        "gabion_gossip_peers_up",
        "Peers that were heard lately",
        count(|p| p.up),
    )?;
    page.gauge(
        "gabion_gossip_peers_deaf",
        "Peers that are heard and do not hear this member",
        count(|p| p.up && !p.hears_us),
    )?;
    let unreachable = driver.map_or(0, |driver| driver.bounds.unreachable);
    page.gauge(
        "gabion_gossip_peers_unreachable",
        "Peers that may be counting alone: down, silent, deaf or not caught up with",
        unreachable,
    )?;
    let discovered = driver.and_then(|driver| driver.discovered).unwrap_or(0) as u64;
    page.gauge(
        "gabion_gossip_peers_discovered",
        "Peers that discovery named last",
        discovered,
    )?;
    let beyond = peers.len().saturating_sub(PEER_SERIES_MAX) as u64;
    page.gauge(
        "gabion_gossip_peers_without_series",
        "Peers that have no series of their own",
        beyond,
    )
}

fn sources(all: &[HealthView], page: &mut Page<'_, '_>) -> fmt::Result {
    let peers = all
        .iter()
        .filter_map(|view| Some(([("source", view.source)], view.peers?)));
    page.gauges(
        "gabion_discovery_peers",
        "Peers that a source of discovery named last",
        peers,
    )?;
    let ages = all
        .iter()
        .filter_map(|view| Some(([("source", view.source)], view.age_s?)));
    page.gauges(
        "gabion_discovery_age_seconds",
        "Time since a source of discovery last heard that what it knows holds",
        ages,
    )?;
    let errors = all.iter().flat_map(|view| {
        let errors = view.errors.iter();
        errors.map(|(kind, count)| ([("source", view.source), ("kind", *kind)], *count))
    });
    page.counters(
        "gabion_discovery_errors",
        "Failures of discovery by source and kind",
        errors,
    )
}

fn each_peer(peers: &[PeerView], page: &mut Page<'_, '_>) -> fmt::Result {
    let mut named: Vec<(String, &PeerView)> = peers
        .iter()
        .map(|peer| (peer.addr.to_string(), peer))
        .collect();
    // By address: the same peers keep their series from scrape to scrape.
    named.sort_by_key(|(_, peer)| peer.addr);
    named.dedup_by_key(|(_, peer)| peer.addr);
    named.truncate(PEER_SERIES_MAX);
    let mut gauge = |name: &str, help: &str, of: fn(&PeerView) -> Option<f64>| {
        let all = named.iter();
        let all = all.filter_map(|(addr, peer)| Some(([("peer", addr.as_str())], of(peer)?)));
        page.gauges(name, help, all)
    };
    gauge("gabion_peer_up", "1 while the peer is heard", |p| {
        Some(f64::from(u8::from(p.up)))
    })?;
    gauge(
        "gabion_peer_round_trip_seconds",
        "Smoothed round trip to the peer",
        |p| (p.rtt_ns > 0).then(|| seconds(p.rtt_ns)),
    )?;
    gauge(
        "gabion_peer_clock_offset_seconds",
        "The peer's cluster clock minus this member's",
        |p| p.offset_ns.map(|ns| ns as f64 / 1e9),
    )?;
    gauge(
        "gabion_peer_staleness_seconds",
        "Age of the oldest news the peer has not acknowledged",
        |p| Some(seconds(p.staleness_ns)),
    )?;
    gauge(
        "gabion_peer_silent_seconds",
        "Time since the peer's last frame",
        |p| Some(seconds(p.silent_ns)),
    )?;
    gauge(
        "gabion_peer_backlog_rows",
        "Rows the peer was not sent yet",
        |p| Some(p.backlog as f64),
    )
}

fn traffic(node: &NodeStats, stats: &DriverStats, page: &mut Page<'_, '_>) -> fmt::Result {
    let both = |received, sent| {
        [
            ([("direction", "in")], received),
            ([("direction", "out")], sent),
        ]
    };
    page.counters(
        "gabion_gossip_frames",
        "Datagrams by direction",
        both(stats.received, stats.sent),
    )?;
    page.counters(
        "gabion_gossip_bytes",
        "Bytes of datagrams by direction",
        both(stats.received_bytes, stats.sent_bytes),
    )?;
    page.counters(
        "gabion_gossip_rows",
        "Rows by direction",
        both(node.rows_in, node.rows_out),
    )?;
    page.counter(
        "gabion_gossip_rows_resent",
        "Rows sent again after a loss",
        node.rows_resent,
    )?;
    page.counter(
        "gabion_gossip_frames_lost",
        "Frames found lost by a gap in acks",
        node.frames_lost,
    )?;
    page.counters(
        "gabion_gossip_errors",
        "Faults of the socket and the loop by kind",
        [
            ([("kind", "send")], stats.send_errors),
            ([("kind", "send_wait")], stats.send_waits),
            ([("kind", "receive")], stats.receive_errors),
            ([("kind", "socket")], stats.socket_faults),
            ([("kind", "bind")], stats.bind_failures),
            ([("kind", "restart")], stats.restarts),
            ([("kind", "discovery_ended")], stats.discovery_ended),
        ],
    )?;
    page.counters(
        "gabion_clock_changes",
        "Changes of the cluster clock by kind",
        [
            ([("kind", "step")], node.clock_steps),
            ([("kind", "slew")], node.clock_slews),
        ],
    )
}

fn is_row_drop(name: &str) -> bool {
    (name.starts_with("drop_") && name != "drop_unproven")
        || (name.starts_with("refused_")
            && !matches!(
                name,
                "refused_provisional" | "refused_peers" | "refused_replies" | "refused_strangers"
            ))
        || name == "void_cells"
}

fn is_wire_drop(name: &str) -> bool {
    WireError::ALL.iter().any(|cause| cause.name() == name)
}

fn drops(node: &NodeStats, page: &mut Page<'_, '_>) -> fmt::Result {
    let frames = node
        .named()
        .filter(|(name, _)| is_wire_drop(name) || *name == "drop_unproven");
    page.counters(
        "gabion_gossip_frames_dropped",
        "Frames dropped unread by cause",
        frames.map(|(name, count)| ([("cause", name)], count)),
    )?;
    let rows = node.named().filter(|(name, _)| is_row_drop(name));
    page.counters(
        "gabion_gossip_rows_dropped",
        "Counts of other members, or of this one, that were not taken, by cause",
        rows.map(|(name, count)| ([("cause", name)], count)),
    )
}

fn store(node: &NodeStats, page: &mut Page<'_, '_>) -> fmt::Result {
    page.gauge(
        "gabion_gossip_cells",
        "Counters held beside the table",
        node.cells,
    )?;
    page.gauge(
        "gabion_gossip_cell_bytes",
        "Bytes they take",
        node.cell_bytes,
    )?;
    page.gauge(
        "gabion_gossip_epochs",
        "(limiter, epoch) pairs held",
        node.shelves,
    )?;
    page.gauge("gabion_gossip_origins", "Origins known", node.origins)?;
    page.gauge(
        "gabion_gossip_registers",
        "Eras and flags that are kept",
        node.registers,
    )
}

/// Everything else that the three parts count, so that nothing is seen in `/snapshot` only.
fn events(
    node: &NodeStats,
    pump: &PumpStats,
    stats: &DriverStats,
    page: &mut Page<'_, '_>,
) -> fmt::Result {
    let node = node
        .named()
        .filter(|(name, _)| !ELSEWHERE.contains(name) && !is_row_drop(name) && !is_wire_drop(name));
    let driver = [
        ("turns", stats.turns),
        ("binds", stats.binds),
        ("peer_sets", stats.peer_sets),
        ("notes", stats.notes),
    ];
    let all = node.map(|(name, count)| ([("part", "node"), ("event", name)], count));
    let pump = pump
        .named()
        .map(|(name, count)| ([("part", "pump"), ("event", name)], count));
    let driver = driver.map(|(name, count)| ([("part", "driver"), ("event", name)], count));
    page.counters(
        "gabion_gossip_events",
        "Everything else that gossip counts, by part and name",
        all.chain(pump).chain(driver),
    )
}
