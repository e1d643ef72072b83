//! Peer discovery as it is configured.
//!
//! I only put sources together; each of them keeps its last good answer by itself.

use std::net::SocketAddr;

use gabion_discovery::kubernetes::Place;
use gabion_discovery::{
    DnsPeers, FilePeers, KubernetesPeers, MergedPeers, PeerDiscovery, StaticPeers,
};

use crate::config::{Discovery, Kubernetes};

/// The sources of a configuration, united, for a member that is bound to `bind`. This member's own
/// address is left out by the driver, which alone knows the port that the kernel gave; a pod's own
/// ones by the source that knows pods.
pub(crate) fn from(config: Discovery, bind: SocketAddr) -> Box<dyn PeerDiscovery> {
    let mut sources: Vec<Box<dyn PeerDiscovery>> = Vec::new();
    if let Some((name, port)) = config.dns {
        sources.push(Box::new(DnsPeers::new(name, port)));
    }
    if let Some(path) = config.file {
        sources.push(Box::new(FilePeers::new(path)));
    }
    if let Some(kubernetes) = config.kubernetes {
        sources.push(Box::new(pods(kubernetes, bind, config.self_addr)));
    }
    if !config.addresses.is_empty() || sources.is_empty() {
        sources.push(Box::new(StaticPeers::new(config.addresses)));
    }
    match sources.len() {
        1 => sources.remove(0),
        _ => Box::new(MergedPeers::new(sources)),
    }
}

fn pods(config: Kubernetes, bind: SocketAddr, own: Option<SocketAddr>) -> KubernetesPeers {
    let place = Place::here().with_kubeconfig();
    for notice in place.notices() {
        tracing::warn!("{notice}");
    }
    let most = config.peers_max.unwrap_or(gabion_node::limits::MAX_PEERS);
    KubernetesPeers::new(config.watched, place, bind, own).capacity(most)
}
