//! Leaving this member out of its own peers.
//!
//! I own the question "is this address me?". I promise to leave out only addresses that are surely
//! this member's: a wrong yes would silence a peer, while a wrong no costs little, since `node`
//! drops the frames of its own node id. I never send a packet.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use futures_util::stream::StreamExt;

use crate::{canonical, usable, Health, PeerDiscovery, PeerSet, PeerStream};

/// The addresses under which peers reach this member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SelfAddress {
    bind: SocketAddr,
    advertised: Option<SocketAddr>,
}

impl SelfAddress {
    /// This member listens on `bind` (with its real port), and peers may know it as `advertised`
    /// (the setting `self_addr`) when an address translation stands between.
    pub fn new(bind: SocketAddr, advertised: Option<SocketAddr>) -> Self {
        SelfAddress {
            bind: canonical(bind),
            advertised: advertised.map(canonical),
        }
    }

    /// Whether `addr` is this member. An unspecified bind address (`0.0.0.0`, `[::]`) stands for
    /// every address of this host, with the bound port.
    pub fn is_self(&self, addr: SocketAddr) -> bool {
        let addr = canonical(addr);
        if addr == self.bind || Some(addr) == self.advertised {
            return true;
        }
        addr.port() == self.bind.port() && self.bind.ip().is_unspecified() && is_local(addr)
    }
}

/// Whether the system would send to this address from this very address, which is so for the host's
/// own ones. Connecting a UDP socket picks the source address and sends nothing. Binding to the
/// address would ask the same, but answers wrongly where `ip_nonlocal_bind` is set.
fn is_local(addr: SocketAddr) -> bool {
    if addr.ip().is_loopback() {
        return true;
    }
    let any: IpAddr = match addr.ip() {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let source = || {
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect(addr)?;
        socket.local_addr()
    };
    source().is_ok_and(|source| source.ip() == addr.ip())
}

/// A source of peers with this member left out, along with what nothing can be sent to, and every
/// address in canonical form.
pub struct WithoutSelf<D> {
    source: D,
    me: SelfAddress,
}

impl<D: PeerDiscovery> WithoutSelf<D> {
    /// Leaves `me` out of what `source` gives.
    pub fn new(source: D, me: SelfAddress) -> Self {
        WithoutSelf { source, me }
    }
}

impl<D: PeerDiscovery + 'static> PeerDiscovery for WithoutSelf<D> {
    fn peers(self: Box<Self>) -> PeerStream {
        let WithoutSelf { source, me } = *self;
        let mut last: Option<PeerSet> = None;
        Box::pin(Box::new(source).peers().filter_map(move |set| {
            let others: PeerSet = set
                .into_iter()
                .map(canonical)
                .filter(|addr| usable(addr) && !me.is_self(*addr))
                .collect();
            let changed = last.as_ref() != Some(&others);
            if changed {
                last = Some(others.clone());
            }
            std::future::ready(changed.then_some(others))
        }))
    }

    fn health(&self) -> Vec<Health> {
        self.source.health()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn equal_addresses_are_self_in_any_form() {
        let me = SelfAddress::new(addr("127.0.0.1:7946"), Some(addr("203.0.113.9:9000")));
        for own in [
            "127.0.0.1:7946",
            "[::ffff:127.0.0.1]:7946",
            "203.0.113.9:9000",
        ] {
            assert!(me.is_self(addr(own)), "{own}");
        }
        for other in [
            "127.0.0.1:7947",
            "127.0.0.2:7946",
            "203.0.113.9:7946",
            "[::1]:7946",
        ] {
            assert!(!me.is_self(addr(other)), "{other}");
        }
    }

    #[test]
    fn an_unspecified_bind_is_every_local_address_with_its_port() {
        for bind in ["0.0.0.0:7946", "[::]:7946"] {
            let me = SelfAddress::new(addr(bind), None);
            assert!(me.is_self(addr("127.0.0.1:7946")), "{bind}");
            assert!(!me.is_self(addr("127.0.0.1:7947")), "{bind}");
            // An address for documentation is nobody's.
            assert!(!me.is_self(addr("198.51.100.77:7946")), "{bind}");
        }
    }

    #[tokio::test]
    async fn self_repetitions_and_unusable_addresses_are_left_out() {
        let list = [
            "10.0.0.1:1",
            "[::ffff:10.0.0.1]:1",
            "10.0.0.2:1",
            "10.0.0.3:0",
            "0.0.0.0:1",
            "224.0.0.1:1",
            "255.255.255.255:1",
        ];
        let source = Raw(list.map(addr).into_iter().collect());
        let me = SelfAddress::new(addr("10.0.0.2:1"), None);
        let mut sets = Box::new(WithoutSelf::new(source, me)).peers();
        assert_eq!(sets.next().await, Some(PeerSet::from([addr("10.0.0.1:1")])));
    }

    /// A source that gives its set as it is.
    struct Raw(PeerSet);

    impl PeerDiscovery for Raw {
        fn peers(self: Box<Self>) -> PeerStream {
            Box::pin(futures_util::stream::iter([self.0]))
        }
    }
}
