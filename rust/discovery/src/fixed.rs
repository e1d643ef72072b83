//! Peers that are known from the start.
//!
//! I own the static list. I promise to give it once, in canonical form. I never resolve names.

use std::net::SocketAddr;

use futures_util::stream::{self, StreamExt};

use crate::{canonical, usable, Health, PeerDiscovery, PeerSet, PeerStream};

/// A list of addresses that never changes. An empty list is a member on its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StaticPeers {
    peers: PeerSet,
}

impl StaticPeers {
    /// The peers of a list. Addresses that nothing can be sent to (port 0, unspecified, multicast)
    /// are left out; so are repetitions.
    pub fn new(peers: impl IntoIterator<Item = SocketAddr>) -> Self {
        StaticPeers {
            peers: peers.into_iter().map(canonical).filter(usable).collect(),
        }
    }

    /// The set.
    pub fn set(&self) -> &PeerSet {
        &self.peers
    }
}

impl PeerDiscovery for StaticPeers {
    fn peers(self: Box<Self>) -> PeerStream {
        Box::pin(stream::iter([self.peers]).chain(stream::pending()))
    }

    fn health(&self) -> Vec<Health> {
        let health = Health::new("static", &[]);
        health.found(self.peers.len());
        vec![health]
    }
}
