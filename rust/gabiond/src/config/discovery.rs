//! The section `discovery`.

use std::fmt::Display;
use std::net::SocketAddr;
use std::path::PathBuf;

use gabion_discovery::kubernetes::{namespace, Watched};
use gabion_discovery::DnsPeers;
use gabion_rule::policy::MapReader;

use super::read::address;
use super::{Discovery, Kubernetes};

/// `None` when the section is absent.
pub(super) fn discovery(
    map: &mut MapReader<'_, '_>,
    peers_max: Option<usize>,
) -> Option<Discovery> {
    let mut map = map.map("discovery")?;
    let mut found = Discovery::default();
    for text in map.texts("static").unwrap_or_default() {
        match text.parse::<SocketAddr>() {
            Ok(addr) if addr.port() != 0 => found.addresses.push(addr),
            _ => map.problem(
                "static",
                format!("`{text}` is no address with a port; write 10.0.0.7:7946 or [::1]:7946"),
            ),
        }
    }
    if let Some(text) = map.text("dns") {
        match DnsPeers::parse(text) {
            Ok(_) => {
                found.dns = text
                    .rsplit_once(':')
                    .and_then(|(name, port)| port.parse().ok().map(|port| (name.to_owned(), port)))
            }
            Err(error) => map.problem("dns", error.to_string()),
        }
    }
    found.file = map.text("file").map(PathBuf::from);
    found.self_addr = address(&mut map, "self_addr");
    found.kubernetes = kubernetes(&mut map, peers_max);
    map.finish();
    Some(found)
}

/// On when a namespace or a Service is named, or when it is switched on.
fn kubernetes(map: &mut MapReader<'_, '_>, peers_max: Option<usize>) -> Option<Kubernetes> {
    let switch = map.bool("kubernetes");
    let watched = Watched {
        namespaces: words(map, "namespace_allow", namespace),
        services: words(map, "service_allow", str::parse),
        port: word(map, "gossip_port").unwrap_or_default(),
    };
    if let Err(error) = watched.check() {
        map.problem("service_allow", error.to_string());
    }
    let named = !watched.namespaces.is_empty() || !watched.services.is_empty();
    switch
        .unwrap_or(named)
        .then_some(Kubernetes { watched, peers_max })
}

fn word<T: std::str::FromStr>(map: &mut MapReader<'_, '_>, key: &'static str) -> Option<T>
where
    T::Err: Display,
{
    let text = map.text(key)?;
    let read = text.parse();
    read.map_err(|error: T::Err| map.problem(key, error.to_string()))
        .ok()
}

fn words<T, E: Display>(
    map: &mut MapReader<'_, '_>,
    key: &'static str,
    read: impl Fn(&str) -> Result<T, E>,
) -> Vec<T> {
    let mut all = Vec::new();
    for text in map.texts(key).unwrap_or_default() {
        match read(text) {
            Ok(word) => all.push(word),
            Err(error) => map.problem(key, error.to_string()),
        }
    }
    all
}
