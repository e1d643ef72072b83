//! Peer discovery as it is configured.
//!
//! I only put sources together; each of them keeps its last good answer by itself.

use gabion_discovery::{DnsPeers, FilePeers, MergedPeers, PeerDiscovery, StaticPeers};

use crate::config::Discovery;

/// The sources of a configuration, united. This member's own address is left out by the driver,
/// which alone knows the port that the kernel gave.
pub(crate) fn from(config: Discovery) -> Box<dyn PeerDiscovery> {
    let mut sources: Vec<Box<dyn PeerDiscovery>> = Vec::new();
    if !config.addresses.is_empty() || (config.dns.is_none() && config.file.is_none()) {
        sources.push(Box::new(StaticPeers::new(config.addresses)));
    }
    if let Some((name, port)) = config.dns {
        sources.push(Box::new(DnsPeers::new(name, port)));
    }
    if let Some(path) = config.file {
        sources.push(Box::new(FilePeers::new(path)));
    }
    match sources.len() {
        1 => sources.remove(0),
        _ => Box::new(MergedPeers::new(sources)),
    }
}
