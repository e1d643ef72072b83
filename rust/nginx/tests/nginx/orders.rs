//! Resets and flags that come from another member of the cluster.

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll, Wake};
use std::time::Duration;

use gabion_discovery::StaticPeers;
use gabion_driver::{
    random_incarnation, random_node_id, ClusterClock, ClusterId, DriverConfig, DriverHandle,
    StandingOrders,
};
use gabion_node::Reach;
use gabion_rule::{flag_name, limiter_name, CounterIdentity, Share};
use gabion_table::{SubSpec, Table};
use gabion_wire::KeyRing;

use crate::server::{udp_port, wait_for, Folder, Nginx};

const KEY: &str = "1:000102030405060708090a0b0c0d0e0f";

/// A member without rules of its own, as an operator's tool would be.
fn member(own: u16, nginx: u16) -> DriverHandle {
    let peer = SocketAddr::from(([127, 0, 0, 1], nginx));
    let config = DriverConfig {
        bind: SocketAddr::from(([127, 0, 0, 1], own)),
        self_addr: None,
        node: random_node_id(),
        incarnation: random_incarnation(),
        session: 1,
        cluster: ClusterId::parse("test").expect("a name").tag(),
        keys: Some(KeyRing::parse(KEY).expect("a key")),
        rule_names: Vec::new(),
        discovery: Box::new(StaticPeers::new([peer])),
        members_hint: 2,
        node_tunables: gabion_node::Tunables::default(),
        pump_tunables: gabion_pump::Tunables::default(),
        rng_seed: None,
        clock: Arc::new(ClusterClock::from_wall_clock()),
        on_offset: None,
        orders: StandingOrders::default(),
    };
    let second = gabion_rule::Algorithm::Window {
        limit: 1,
        window_ns: 1_000_000_000,
        bucket_ns: 1_000_000_000,
        sliding: gabion_rule::Sliding::Live,
    };
    let sub = SubSpec {
        identity: CounterIdentity([9; 16]),
        plan: gabion_admit::Plan::new(&second),
        cardinality: None,
    };
    let table = Table::private(1 << 16, std::slice::from_ref(&sub)).expect("a table");
    gabion_driver::spawn(config, Arc::new(table), vec![sub], Vec::new()).expect("a driver")
}

/// Waits for an answer of the driver's thread.
fn block<T>(future: impl std::future::Future<Output = T>) -> T {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut context = Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(answer) => return answer,
            Poll::Pending => std::thread::park(),
        }
    }
}

fn config(own: u16, peer: u16) -> String {
    format!(
        "gabion_limit_zone zone=z:1m;
         gabion_limit_rule shared k:$arg_k rate=3r/w domain=edge;
         gabion_limit_rule later j:$arg_j rate=2r/w domain=edge if_flag=later;
         gabion_flag later default=off;
         gabion_auth_key_file DIR/keys; gabion_gossip_cluster test;
         gabion_gossip_bind 127.0.0.1:{own}; gabion_peers 127.0.0.1:{peer};
         server {{ listen 127.0.0.1:PORT; root DIR/html;
             location / {{ gabion_limit shared later; try_files /x.txt =404; }} }}"
    )
}

fn admitted(nginx: &Nginx, path: &str) -> usize {
    let statuses = nginx.statuses(path, 5);
    statuses.iter().filter(|status| **status == 200).count()
}

#[test]
fn a_reset_and_a_flag_reach_nginx_and_outlive_a_reload_without_peers() {
    let (own, other) = (udp_port(), udp_port());
    let operator = member(other, own);
    let folder = Folder::new();
    folder.write("keys", KEY);
    let nginx = Nginx::start_in(folder, "2", &config(own, other));
    wait_for("the peer", || {
        operator.snapshot().peers.iter().any(|p| p.up && p.hears_us)
    });
    assert_eq!(admitted(&nginx, "/?k=x"), 3);
    assert_eq!(admitted(&nginx, "/?j=x"), 5, "its flag is off");
    block(operator.raise_era(limiter_name("edge", "shared"))).expect("an era");
    wait_for("the reset", || nginx.get("/?k=x").status == 200);
    assert_eq!(admitted(&nginx, "/?k=x"), 2);
    let set = block(operator.set_flag(flag_name("later"), Some(Share::ON)));
    assert_eq!(set, Ok(Reach::Cluster));
    wait_for("the flag", || nginx.get("/?j=y").status == 429);
    assert_eq!(admitted(&nginx, "/?j=z"), 2);
    // Nobody is there to tell the next workers: the zone is.
    assert!(operator.shutdown(Duration::from_secs(5)));
    nginx.reload(&config(own, other));
    assert_eq!(
        admitted(&nginx, "/?k=x"),
        0,
        "the counts of the new era are there"
    );
    assert_eq!(admitted(&nginx, "/?j=z"), 0);
    // Another size is another zone: it begins with the orders of the one it follows.
    let larger = config(own, other).replace("zone=z:1m", "zone=z:2m");
    nginx.reload(&larger);
    assert!(nginx.log().contains("were carried over"));
    assert_eq!(admitted(&nginx, "/?k=x"), 0);
    assert_eq!(admitted(&nginx, "/?j=z"), 0);
    assert_eq!(admitted(&nginx, "/?k=fresh"), 3);
}
