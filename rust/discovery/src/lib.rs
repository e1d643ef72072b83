//! Who the peers are: a static list, a DNS name, a watched file, Kubernetes.
//!
//! I own the [`PeerDiscovery`] trait and its sources. I promise that a
//! source never ends, never fails for good, and keeps the last good set while it cannot find a new
//! one; that addresses are in canonical form, so one address is one peer; and that this member is
//! left out where [`WithoutSelf`] wraps a source. I never connect to a peer, and I never decide
//! who is alive: that is for `node`.

#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::pin::Pin;

use futures_core::Stream;

mod dns;
mod error;
mod file;
mod fixed;
mod health;
pub mod kubernetes;
pub mod limits;
mod merged;
mod own;

pub use dns::DnsPeers;
pub use error::{DiscoveryError, Report};
pub use file::FilePeers;
pub use fixed::StaticPeers;
pub use health::{Health, HealthView};
pub use kubernetes::KubernetesPeers;
pub use merged::MergedPeers;
pub use own::{SelfAddress, WithoutSelf};

/// The addresses of all peers, each once, in order.
pub type PeerSet = BTreeSet<SocketAddr>;

/// A stream of peer sets. Each item is a whole set that replaces the one before.
pub type PeerStream = Pin<Box<dyn Stream<Item = PeerSet> + Send>>;

/// A way to find the peers. Implement it for whatever knows them; nothing else is needed.
///
/// The stream gives the first set as soon as it is known and another one whenever the peers change.
/// It is polled inside a tokio runtime. Until its first item there are no peers, and the member
/// limits alone. Sets may name the member itself: see [`WithoutSelf`]. A stream that ends means
/// that its last set stays in force for good.
pub trait PeerDiscovery: Send {
    /// Starts looking.
    fn peers(self: Box<Self>) -> PeerStream;

    /// What the source will say of itself once it runs, for status pages and metrics. Taken before
    /// [`PeerDiscovery::peers`]; by default nothing.
    fn health(&self) -> Vec<Health> {
        Vec::new()
    }
}

impl PeerDiscovery for Box<dyn PeerDiscovery> {
    fn peers(self: Box<Self>) -> PeerStream {
        (*self).peers()
    }

    fn health(&self) -> Vec<Health> {
        (**self).health()
    }
}

/// One form for each address: an IPv4 address that IPv6 carries (`::ffff:10.0.0.7`) is that IPv4
/// address, and the flow label, which names no endpoint, is 0.
pub(crate) fn canonical(addr: SocketAddr) -> SocketAddr {
    let ip = addr.ip().to_canonical();
    match (addr, ip) {
        (SocketAddr::V6(v6), std::net::IpAddr::V6(ip)) => {
            std::net::SocketAddrV6::new(ip, v6.port(), 0, v6.scope_id()).into()
        }
        _ => SocketAddr::new(ip, addr.port()),
    }
}

/// Whether a datagram can be sent to the address at all.
pub(crate) fn usable(addr: &SocketAddr) -> bool {
    let broadcast = matches!(addr.ip(), std::net::IpAddr::V4(ip) if ip.is_broadcast());
    addr.port() != 0 && !addr.ip().is_unspecified() && !addr.ip().is_multicast() && !broadcast
}
