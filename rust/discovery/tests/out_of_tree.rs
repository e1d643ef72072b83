//! A source of peers that this crate knows nothing about: the one method of the trait is enough to
//! write one, to compose it with the others, and to hand it over as a boxed trait object.

use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use futures_util::StreamExt;
use gabion_discovery::{
    MergedPeers, PeerDiscovery, PeerSet, PeerStream, SelfAddress, StaticPeers, WithoutSelf,
};
use tokio::sync::mpsc;

/// Peers that somebody announces through a channel.
struct Announced {
    sets: mpsc::UnboundedReceiver<PeerSet>,
}

/// A stream written by hand, as a foreign crate might have it.
struct Sets(mpsc::UnboundedReceiver<PeerSet>);

impl Stream for Sets {
    type Item = PeerSet;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<PeerSet>> {
        self.0.poll_recv(cx)
    }
}

impl PeerDiscovery for Announced {
    fn peers(self: Box<Self>) -> PeerStream {
        Box::pin(Sets(self.sets))
    }
}

fn set(addresses: &[&str]) -> PeerSet {
    addresses
        .iter()
        .map(|a| a.parse().expect("an address"))
        .collect()
}

fn me(addr: &str) -> SelfAddress {
    SelfAddress::new(addr.parse::<SocketAddr>().expect("an address"), None)
}

#[tokio::test]
async fn a_foreign_source_drives_the_peers() {
    let (announce, sets) = mpsc::unbounded_channel();
    let source: Box<dyn PeerDiscovery> = Box::new(Announced { sets });
    let mut peers = Box::new(WithoutSelf::new(source, me("10.0.0.1:1"))).peers();
    announce
        .send(set(&["10.0.0.1:1", "10.0.0.2:1"]))
        .expect("announced");
    assert_eq!(peers.next().await, Some(set(&["10.0.0.2:1"])));
    // Only this member's own address changed: no news for the others.
    announce.send(set(&["10.0.0.2:1"])).expect("announced");
    announce.send(set(&["10.0.0.3:1"])).expect("announced");
    assert_eq!(peers.next().await, Some(set(&["10.0.0.3:1"])));
    drop(announce);
    assert_eq!(
        peers.next().await,
        None,
        "the end of the source is passed on"
    );
}

#[tokio::test]
async fn a_foreign_source_joins_others_and_its_end_ends_nothing() {
    let (announce, sets) = mpsc::unbounded_channel();
    let fixed = StaticPeers::new(set(&["10.0.0.9:1"]));
    let all = MergedPeers::new(vec![Box::new(fixed), Box::new(Announced { sets })]);
    let mut peers = Box::new(all).peers();
    assert_eq!(peers.next().await, Some(set(&["10.0.0.9:1"])));
    announce
        .send(set(&["10.0.0.1:1", "10.0.0.9:1"]))
        .expect("announced");
    let both = set(&["10.0.0.1:1", "10.0.0.9:1"]);
    assert_eq!(peers.next().await, Some(both));
    announce.send(set(&["10.0.0.2:1"])).expect("announced");
    drop(announce);
    assert_eq!(peers.next().await, Some(set(&["10.0.0.2:1", "10.0.0.9:1"])));
    let mut rest = Box::pin(peers.next());
    let waker = std::task::Waker::noop();
    let polled = std::future::Future::poll(rest.as_mut(), &mut Context::from_waker(waker));
    assert!(
        polled.is_pending(),
        "the stream goes on after one source has ended"
    );
}

#[tokio::test]
async fn what_was_known_before_counts_until_each_source_has_answered() {
    let (one, sets) = mpsc::unbounded_channel();
    let first = Box::new(Announced { sets });
    let (two, sets) = mpsc::unbounded_channel();
    let second = Box::new(Announced { sets });
    let all = MergedPeers::new(vec![first, second]).remembering(set(&["10.0.0.7:1"]));
    let mut peers = Box::new(all).peers();
    assert_eq!(peers.next().await, Some(set(&["10.0.0.7:1"])));
    one.send(set(&["10.0.0.1:1"])).expect("announced");
    let wanted = set(&["10.0.0.1:1", "10.0.0.7:1"]);
    assert_eq!(peers.next().await, Some(wanted));
    two.send(PeerSet::new()).expect("announced");
    assert_eq!(peers.next().await, Some(set(&["10.0.0.1:1"])));
}

#[tokio::test]
async fn no_sources_are_an_empty_set() {
    let mut peers = Box::new(MergedPeers::new(Vec::new())).peers();
    assert_eq!(peers.next().await, Some(PeerSet::new()));
}
