//! Against a fake API server: in memory and in virtual time, and over real connections.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use kube::Client;

use super::space::Connection;
use super::*;
use fake::{slice, Fake, InMemory};

mod fake;
mod faults;
mod real;

/// A member that discovers.
struct Member {
    peers: PeerStream,
    health: Health,
    said: Arc<Mutex<Vec<DiscoveryError>>>,
}

impl Member {
    /// At 10.0.0.1:7946, in namespace `here`.
    fn new(fake: &Fake, watched: Watched) -> Self {
        let own = Own::new(addr("0.0.0.0:7946"), None, &[addr("10.0.0.1:1").ip()]);
        Member::with(fake, watched, own, 100)
    }

    fn with(fake: &Fake, watched: Watched, own: Own, capacity: usize) -> Self {
        let connection = Connection {
            client: Client::new(InMemory(fake.clone()), "here"),
            namespace: "here".to_owned(),
            server: "https://127.0.0.1/".to_owned(),
        };
        let said = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&said);
        let source = KubernetesPeers::over(watched, Access::Through(connection), own)
            .capacity(capacity)
            .seeded(7)
            .reporting(Arc::new(move |error| {
                heard.lock().unwrap().push(error.clone())
            }));
        let health = source.health.clone();
        Member {
            peers: Box::new(source).peers(),
            health,
            said,
        }
    }

    /// The next set, within two minutes.
    async fn set(&mut self) -> Vec<String> {
        let set = tokio::time::timeout(Duration::from_secs(120), self.peers.next()).await;
        let set = set.expect("a set").expect("sources never end");
        set.iter().map(ToString::to_string).collect()
    }

    /// Time passes without news.
    async fn quiet(&mut self, time: Duration) {
        let news = tokio::time::timeout(time, self.peers.next()).await;
        assert!(news.is_err(), "{news:?}");
    }

    fn said(&self) -> Vec<String> {
        let said = self.said.lock().unwrap();
        said.iter().map(ToString::to_string).collect()
    }

    /// Failures of a kind, which must be one that metrics show from the start.
    fn errors(&self, kind: &str) -> u64 {
        let errors = self.health.view().errors;
        assert_eq!(errors.len(), KINDS.len(), "{errors:?}");
        let found = errors.iter().find(|(own, _)| *own == kind);
        found.map_or(0, |(_, count)| *count)
    }
}

fn addr(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn services(names: &[&str]) -> Watched {
    Watched {
        services: names.iter().map(|name| name.parse().unwrap()).collect(),
        ..Watched::default()
    }
}

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_pod_is_a_peer_from_its_slice_until_it_leaves_it() {
    let fake = Fake::default();
    fake.put(
        "here",
        "edge-1",
        slice("edge", "gossip", 7946, &[("10.0.0.1", "me")]),
    );
    let mut member = Member::new(&fake, Watched::default());
    assert!(member.set().await.is_empty(), "alone");
    let began = tokio::time::Instant::now();
    let both = slice(
        "edge",
        "gossip",
        7946,
        &[("10.0.0.1", "me"), ("10.0.0.2", "b")],
    );
    fake.put("here", "edge-1", both.clone());
    assert_eq!(member.set().await, ["10.0.0.2:7946"]);
    assert!(began.elapsed() < SECOND, "{:?}", began.elapsed());
    // Terminating: still a peer, and nothing has changed.
    let mut leaving = both;
    leaving["endpoints"][1]["conditions"] =
        serde_json::json!({ "ready": false, "serving": true, "terminating": true });
    fake.put("here", "edge-1", leaving);
    member.quiet(SECOND).await;
    fake.put(
        "here",
        "edge-1",
        slice("edge", "gossip", 7946, &[("10.0.0.1", "me")]),
    );
    assert!(member.set().await.is_empty());
    fake.put(
        "here",
        "edge-2",
        slice("edge", "gossip", 7946, &[("10.0.0.3", "c")]),
    );
    assert_eq!(member.set().await, ["10.0.0.3:7946"]);
    fake.remove("here", "edge-2");
    assert!(member.set().await.is_empty());
    assert_eq!(member.said(), [] as [&str; 0]);
    assert_eq!(fake.lists(), 1);
    assert_eq!(member.health.view().peers, Some(0));
}

#[tokio::test(start_paused = true)]
async fn case_44_one_member_for_several_slices_families_and_services() {
    let fake = Fake::default();
    let pods = [("10.0.0.2", "b"), ("10.0.0.3", "c")];
    fake.put("here", "edge-1", slice("edge", "gossip", 7946, &pods));
    fake.put("here", "edge-2", slice("edge", "gossip", 7946, &pods[..1]));
    let six = [("fd00::1", "me"), ("fd00::2", "b"), ("fd00::3", "c")];
    fake.put("here", "edge-6", slice("edge", "gossip", 7946, &six));
    fake.put("here", "gossip-1", slice("gossip", "gossip", 7946, &pods));
    let own = [("10.0.0.1", "me"), ("10.0.0.9", "")];
    fake.put("here", "gossip-2", slice("gossip", "gossip", 7946, &own));
    let mut member = Member::new(&fake, Watched::default());
    let four = ["10.0.0.2:7946", "10.0.0.3:7946", "10.0.0.9:7946"];
    assert_eq!(member.set().await, four);

    // The other family where the own address is of it; both Services named, in one namespace.
    let own = Own::new(addr("[::]:7946"), Some(addr("[fd00::1]:7946")), &[]);
    let watched = services(&["edge", "here/gossip"]);
    let mut member = Member::with(&fake, watched, own, 100);
    let six = ["10.0.0.9:7946", "[fd00::2]:7946", "[fd00::3]:7946"];
    assert_eq!(member.set().await, six);
    let (_, _, query) = &fake.world().asked[2];
    assert!(query.contains("labelSelector"), "{query}");
}

#[tokio::test(start_paused = true)]
async fn case_44_not_ready_at_cold_start_is_found() {
    let fake = Fake::default();
    let mut cold = slice(
        "edge",
        "gossip",
        7946,
        &[("10.0.0.1", "me"), ("10.0.0.2", "b")],
    );
    for at in 0..2 {
        cold["endpoints"][at]["conditions"] =
            serde_json::json!({ "ready": false, "serving": false, "terminating": false });
    }
    fake.put("here", "edge-1", cold);
    let mut member = Member::new(&fake, services(&["edge"]));
    assert_eq!(member.set().await, ["10.0.0.2:7946"]);
}

#[tokio::test(start_paused = true)]
async fn case_45_an_empty_list_at_start_is_an_empty_set_and_the_first_peer_is_found_at_once() {
    let fake = Fake::default();
    let mut member = Member::new(&fake, services(&["edge"]));
    assert!(member.set().await.is_empty());
    let said = member.said();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(
        said[0].contains("Service edge in namespace here"),
        "{}",
        said[0]
    );
    fake.put(
        "here",
        "edge-1",
        slice("edge", "gossip", 7946, &[("10.0.0.2", "b")]),
    );
    let began = tokio::time::Instant::now();
    assert_eq!(member.set().await, ["10.0.0.2:7946"]);
    assert!(began.elapsed() < SECOND);
}

#[tokio::test(start_paused = true)]
async fn several_namespaces_are_one_set_and_one_that_is_refused_hides_no_other() {
    let fake = Fake::default();
    fake.put(
        "here",
        "a",
        slice("edge", "gossip", 7946, &[("10.0.0.2", "b")]),
    );
    fake.put(
        "there",
        "a",
        slice("edge", "gossip", 7946, &[("10.0.1.2", "c")]),
    );
    fake.put(
        "far",
        "a",
        slice("edge", "gossip", 7946, &[("10.0.2.2", "d")]),
    );
    let forbidden = fake::Answer::status(403, "Forbidden", "no");
    fake.world().next.push_back(forbidden);
    let watched = Watched {
        namespaces: vec!["there".into(), "here".into()],
        ..services(&["edge"])
    };
    let mut member = Member::new(&fake, watched);
    let first = member.set().await;
    assert_eq!(first.len(), 1, "{first:?}");
    assert_eq!(member.set().await, ["10.0.0.2:7946", "10.0.1.2:7946"]);
    assert_eq!(member.errors("forbidden"), 1);
}

#[tokio::test(start_paused = true)]
async fn services_and_ports_that_are_not_there_are_named() {
    let fake = Fake::default();
    fake.put(
        "here",
        "web-1",
        slice("web", "http", 80, &[("10.0.0.8", "w")]),
    );
    let mut member = Member::new(&fake, services(&["web", "edge"]));
    assert!(member.set().await.is_empty());
    let said = member.said();
    assert!(
        said[0].contains("no EndpointSlice of Service edge in namespace here"),
        "{said:?}"
    );
    let lacks = "Service web lacks the port gossip and has http (80 UDP)";
    assert!(said[1].contains(lacks), "{said:?}");
    assert_eq!(
        (member.errors("no_service"), member.errors("no_port")),
        (1, 1)
    );
    // A number needs no entry in a Service that is named.
    let watched = Watched {
        port: GossipPort::Number(7946),
        ..services(&["web"])
    };
    let mut member = Member::new(&fake, watched);
    assert_eq!(member.set().await, ["10.0.0.8:7946"]);
    assert!(member.said().is_empty());
    // Without names: whoever has the port.
    let mut member = Member::new(&fake, Watched::default());
    assert!(member.set().await.is_empty());
    assert!(
        member.said()[0].contains("every Service in namespace here lacks"),
        "{:?}",
        member.said()
    );
}

#[tokio::test(start_paused = true)]
async fn a_thousand_foreign_endpoints_are_bounded_and_the_service_is_named() {
    let fake = Fake::default();
    fake.put(
        "here",
        "edge-1",
        slice("edge", "gossip", 7946, &[("10.0.0.2", "b")]),
    );
    let foreign: Vec<String> = (0..1_000)
        .map(|n| format!("10.9.{}.{}", n / 250, n % 250 + 1))
        .collect();
    for (at, part) in foreign.chunks(100).enumerate() {
        let ends: Vec<(&str, &str)> = part.iter().map(|ip| (ip.as_str(), ip.as_str())).collect();
        fake.put(
            "here",
            &format!("other-{at}"),
            slice("other", "gossip", 7946, &ends),
        );
    }
    let own = Own::new(addr("0.0.0.0:7946"), None, &[]);
    let mut member = Member::with(&fake, Watched::default(), own, 64);
    let set = member.set().await;
    assert_eq!(set.len(), 64);
    assert!(set.contains(&"10.0.0.2:7946".to_owned()), "the lowest stay");
    let said = member.said();
    assert_eq!(said.len(), 1, "{said:?}");
    for part in [
        "1001 endpoints",
        "64 peers",
        "Service here/other (1000)",
        "service_allow",
    ] {
        assert!(said[0].contains(part), "{part}: {}", said[0]);
    }
    assert_eq!(member.errors("too_many"), 1);
}

#[test]
fn settings_that_contradict_each_other_are_refused() {
    let mut watched = services(&["prod/edge"]);
    assert!(watched.check().is_ok());
    assert_eq!(watched.spaces(), [Some("prod".to_owned())]);
    watched.namespaces = vec!["test".into()];
    let why = watched.check().unwrap_err().to_string();
    assert!(
        why.contains("namespace_allow lacks the namespace of Service prod/edge"),
        "{why}"
    );
    assert_eq!(Watched::default().spaces(), [None]);
}
