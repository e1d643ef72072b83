//! Metrics of the two servers' ports: connections and certificates.

use std::fmt;
use std::sync::Arc;

use super::page::Page;
use crate::net::View;
use crate::tls::Source;

pub(super) fn write(ports: &[(&'static str, View)], page: &mut Page<'_, '_>) -> fmt::Result {
    let label = |port: &'static str| [("port", port)];
    let all = || ports.iter().map(|(port, view)| (label(port), view));
    page.gauges(
        "gabion_port_connections",
        "Connections that are open",
        all().map(|(label, view)| (label, view.open())),
    )?;
    page.gauges(
        "gabion_port_connections_max",
        "Connections that may be open at once; more wait",
        all().map(|(label, view)| (label, view.most() as u64)),
    )?;
    let events = ports.iter().flat_map(|(port, view)| {
        let counts = view.events().counts().into_iter();
        counts.map(|(event, count)| ([("port", *port), ("event", event)], count))
    });
    page.counters(
        "gabion_port_events",
        "What happened to connections, by event",
        events,
    )?;
    let tls = || {
        ports
            .iter()
            .filter_map(|(port, view)| Some((*port, view.tls()?)))
    };
    let of = |pick: fn(&Arc<Source>) -> u64| tls().map(move |(port, tls)| (label(port), pick(tls)));
    page.gauges(
        "gabion_tls_certificate_expiry_timestamp_seconds",
        "When the certificate of a port ends, seconds since 1970",
        tls().filter_map(|(port, tls)| Some((label(port), tls.expires_unix_s()?))),
    )?;
    page.counters(
        "gabion_tls_reloads",
        "Certificates taken from changed files",
        of(|t| t.reloads()),
    )?;
    page.counters(
        "gabion_tls_refusals",
        "Changed certificate files that were refused; the old ones stay",
        of(|t| t.refusals()),
    )
}
