//! The directives of discovery through Kubernetes.

use std::fmt::Display;

use gabion_discovery::kubernetes::{namespace, GossipPort, Place, Watched};
use gabion_node::limits::MAX_PEERS;

use super::values::{one, size_of};
use super::Settings;
use crate::error::ConfError;

/// What the directives say.
#[derive(Debug, Default)]
pub struct Kubernetes {
    /// `gabion_discovery_kubernetes`.
    switch: Option<bool>,
    watched: Watched,
    /// `gabion_storage_peer_capacity`.
    peers_max: Option<usize>,
    place: Option<Place>,
}

impl Kubernetes {
    /// Whether endpoints are watched: when it is switched on, or something is named.
    pub fn is_on(&self) -> bool {
        let named = !self.watched.namespaces.is_empty() || !self.watched.services.is_empty();
        self.switch.unwrap_or(named)
    }

    /// What to watch, from where, and how many endpoints are taken at most; `None` when it is off.
    pub fn wanted(&self) -> Option<(Watched, Place, usize)> {
        let place = self.place.clone()?;
        let most = self.peers_max.unwrap_or(MAX_PEERS);
        Some((self.watched.clone(), place, most))
    }
}

/// Whether a directive is one of them.
pub(super) fn is_kubernetes(name: &str) -> bool {
    matches!(
        name,
        "gabion_discovery_kubernetes"
            | "gabion_discovery_namespace_allow"
            | "gabion_discovery_service_allow"
            | "gabion_discovery_gossip_port"
            | "gabion_storage_peer_capacity"
    )
}

impl Settings {
    pub(super) fn kubernetes(&mut self, name: &str, args: &[&str]) -> Result<(), ConfError> {
        let to = &mut self.kubernetes;
        match name {
            "gabion_discovery_namespace_allow" => {
                to.watched.namespaces = words(name, args, namespace)?;
            }
            "gabion_discovery_service_allow" => {
                to.watched.services = words(name, args, str::parse)?;
            }
            "gabion_discovery_gossip_port" => {
                let text = one(name, args)?;
                let port: Result<GossipPort, _> = text.parse();
                to.watched.port = port.map_err(|e| ConfError::new(name, text, e.to_string()))?;
            }
            "gabion_discovery_kubernetes" => {
                to.switch = Some(match one(name, args)? {
                    "on" => true,
                    "off" => false,
                    text => return Err(ConfError::new(name, text, "write on or off")),
                });
            }
            _ => {
                let count = size_of(name, one(name, args)?, 0..=u64::from(u32::MAX))?;
                // 0 is what a configuration for another limiter may say for "no bound".
                let count = usize::try_from(count).ok().filter(|count| *count > 0);
                to.peers_max = count.map(|count| count.min(MAX_PEERS));
                if count > Some(MAX_PEERS) {
                    self.notices.push(format!(
                        "\"{name}\": {MAX_PEERS} peers have room; {MAX_PEERS} is used"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Checks the directives against each other, and reads the environment while it is there: the
    /// workers have none.
    pub(super) fn finish_kubernetes(&mut self) -> Result<(), ConfError> {
        let to = &mut self.kubernetes;
        to.watched.check().map_err(|error| {
            let name = "gabion_discovery_service_allow";
            ConfError::new(name, "", error.to_string())
        })?;
        if !to.is_on() {
            return Ok(());
        }
        if self.bind.is_none() {
            self.notices.push(
                "discovery through Kubernetes does nothing without gossip; write \
                 gabion_gossip_bind 0.0.0.0:7946"
                    .to_owned(),
            );
            return Ok(());
        }
        let place = Place::here();
        self.notices.extend_from_slice(place.notices());
        to.place = Some(place);
        Ok(())
    }
}

fn words<T, E: Display>(
    name: &str,
    args: &[&str],
    read: impl Fn(&str) -> Result<T, E>,
) -> Result<Vec<T>, ConfError> {
    let words = args.iter().map(|text| {
        let read = read(text);
        read.map_err(|error| ConfError::new(name, *text, error.to_string()))
    });
    words.collect()
}
