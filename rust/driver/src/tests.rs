//! Drivers against real sockets on loopback, with faults behind the socket where one is needed.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use gabion_admit::{Outcome, Plan};
use gabion_discovery::{PeerDiscovery, PeerSet, PeerStream};
use gabion_node::{LimiterSpec, PeerView, Reach};
use gabion_rule::{Algorithm, CounterIdentity, Key, Mode, Order, Orders, Share, Sliding};
use gabion_table::{Charge, RawMem, SubSpec, Table};
use gabion_wire::KeyRing;
use tokio::sync::watch;

use crate::driver::{spawn_with, DriverConfig, DriverHandle};
use crate::replace::{Next, Replacer};
use crate::socket::{Binder, Link, UdpBinder};
use crate::{random_incarnation, random_node_id, ClusterClock, OrderError, StandingOrders};

const KEY: Key = Key { a: 7, b: 9 };
const LIMIT: u32 = 1_000;
const PATIENCE: Duration = Duration::from_secs(20);

/// Peers as a test says them.
struct Told(watch::Receiver<PeerSet>);

impl PeerDiscovery for Told {
    fn peers(self: Box<Self>) -> PeerStream {
        Box::pin(futures_util::stream::unfold(
            (self.0, true),
            |(mut told, first)| async move {
                if !first && told.changed().await.is_err() {
                    return std::future::pending().await;
                }
                let set = told.borrow_and_update().clone();
                Some((set, (told, false)))
            },
        ))
    }
}

fn rule(name: u8, limit: u32) -> (SubSpec, LimiterSpec) {
    let plan = Plan::new(&Algorithm::Window {
        limit,
        window_ns: 3_600_000_000_000,
        bucket_ns: 3_600_000_000_000,
        sliding: Sliding::Live,
    });
    let sub = SubSpec {
        identity: CounterIdentity([name; 16]),
        plan,
        cardinality: None,
    };
    let limiter = LimiterSpec {
        short: sub.identity.short(),
        digest: 5,
        epoch_ns: plan.epoch_ns(),
        live_epochs: plan.live_epochs(),
        limit,
        error_budget_ppm: 10_000,
    };
    (sub, limiter)
}

/// A source that never has an answer.
struct Silent;

impl PeerDiscovery for Silent {
    fn peers(self: Box<Self>) -> PeerStream {
        Box::pin(futures_util::stream::pending())
    }
}

struct Member {
    table: Arc<Table<RawMem>>,
    driver: DriverHandle,
    replacer: Replacer<Table<RawMem>>,
    peers: watch::Sender<PeerSet>,
}

impl Member {
    fn start() -> Self {
        Self::start_with("127.0.0.1:0".parse().unwrap(), UdpBinder)
    }

    fn start_with(bind: SocketAddr, binder: impl Binder) -> Self {
        Self::start_all(bind, binder, StandingOrders::default(), None)
    }

    fn start_all(
        bind: SocketAddr,
        binder: impl Binder,
        orders: StandingOrders,
        keys: Option<KeyRing>,
    ) -> Self {
        let (sub, limiter) = rule(3, LIMIT);
        let table = Arc::new(Table::private(1 << 20, std::slice::from_ref(&sub)).unwrap());
        let (peers, told) = watch::channel(PeerSet::new());
        let config = DriverConfig {
            bind,
            self_addr: None,
            node: random_node_id(),
            incarnation: random_incarnation(),
            session: 1,
            cluster: 77,
            keys,
            rule_names: Vec::new(),
            discovery: Box::new(Told(told)),
            members_hint: 2,
            node_tunables: gabion_node::Tunables::default(),
            pump_tunables: gabion_pump::Tunables::default(),
            rng_seed: None,
            clock: Arc::new(ClusterClock::from_wall_clock()),
            on_offset: None,
            orders,
        };
        let (driver, replacer) =
            spawn_with(config, Arc::clone(&table), vec![sub], vec![limiter], binder).unwrap();
        Member {
            table,
            driver,
            replacer,
            peers,
        }
    }

    fn addr(&self) -> SocketAddr {
        until("the socket is bound", || self.driver.local_addr())
    }

    fn hit(&self, hits: u32) -> Outcome {
        let mut charges = [Charge::new(0, KEY, hits, Mode::Enforce, 0)];
        self.table
            .decide(&mut charges, self.driver.clock().now_ns())
            .outcome
    }

    fn used(&self) -> u64 {
        self.table.read(0, KEY, self.driver.clock().now_ns()).used
    }
}

/// Introduces all members to each other. Each hits the key once: a remote count that is small
/// enters the table only where the key is asked for.
fn introduce(members: &[&Member]) {
    for member in members {
        member.hit(1);
    }
    let all: PeerSet = members.iter().map(|member| member.addr()).collect();
    members
        .iter()
        .for_each(|member| drop(member.peers.send_replace(all.clone())));
}

/// Looks until there is an answer; the sleep only spares the processor.
fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(
            start.elapsed() < PATIENCE,
            "not within {PATIENCE:?}: {what}"
        );
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn until_true(what: &str, mut look: impl FnMut() -> bool) {
    until(what, || look().then_some(()));
}

#[test]
fn two_drivers_converge() {
    let (a, b) = (Member::start(), Member::start());
    introduce(&[&a, &b]);
    assert_eq!(a.hit(39), Outcome::Allowed);
    assert_eq!(b.hit(4), Outcome::Allowed);
    until_true("both count 45", || a.used() == 45 && b.used() == 45);
    assert_eq!(b.hit(LIMIT - 45), Outcome::Allowed);
    until_true("a sees the limit reached", || a.used() == u64::from(LIMIT));
    assert_eq!(a.hit(1), Outcome::Denied);
    until_true("it is counted", || a.driver.snapshot().stats.received > 0);
    assert!(a.driver.snapshot().running);
}

#[test]
fn a_member_finds_itself_in_the_peer_set_and_leaves_itself_out() {
    let a = Member::start();
    introduce(&[&a]);
    until_true("the set was taken", || {
        a.driver.snapshot().discovered == Some(0)
    });
}

#[test]
fn case_49_a_taken_port_is_waited_for_while_decisions_go_on() {
    let squatter = UdpSocket::bind("127.0.0.1:0").unwrap();
    let addr = squatter.local_addr().unwrap();
    let a = Member::start_with(addr, UdpBinder);
    assert_eq!(a.hit(1), Outcome::Allowed);
    until_true("a failed attempt", || {
        a.driver.snapshot().stats.bind_failures > 0
    });
    assert_eq!(a.driver.local_addr(), None);
    drop(squatter);
    assert_eq!(a.addr(), addr);
}

/// Real sockets that fail while a switch is on.
#[derive(Clone, Default)]
struct Faulty {
    broken: Arc<AtomicBool>,
    /// Sends that find no room before the next one does.
    full: Arc<AtomicU32>,
}

struct FaultyLink {
    inner: Box<dyn Link>,
    faults: Faulty,
}

impl Binder for Faulty {
    fn bind(&mut self, addr: SocketAddr) -> io::Result<Box<dyn Link>> {
        let inner = UdpBinder.bind(addr)?;
        let faults = self.clone();
        Ok(Box::new(FaultyLink { inner, faults }))
    }
}

impl FaultyLink {
    fn check(&self) -> io::Result<()> {
        match self.faults.broken.load(Ordering::SeqCst) {
            true => Err(io::Error::from_raw_os_error(9)), // EBADF
            false => Ok(()),
        }
    }
}

type Ready<'a> = std::pin::Pin<Box<dyn std::future::Future<Output = io::Result<()>> + Send + 'a>>;

impl Link for FaultyLink {
    fn try_recv(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.check()?;
        self.inner.try_recv(buf)
    }
    fn try_send(&self, bytes: &[u8], to: SocketAddr) -> io::Result<()> {
        self.check()?;
        let left = self.faults.full.load(Ordering::SeqCst);
        if left > 0 {
            self.faults.full.store(left - 1, Ordering::SeqCst);
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.inner.try_send(bytes, to)
    }
    fn local_addr(&self) -> SocketAddr {
        self.inner.local_addr()
    }
    fn buffers(&self) -> (usize, usize) {
        self.inner.buffers()
    }
    fn readable(&self) -> Ready<'_> {
        self.inner.readable()
    }
    fn writable(&self) -> Ready<'_> {
        self.inner.writable()
    }
}

#[test]
fn case_49_a_socket_that_fails_is_replaced_at_the_same_port_and_counts_catch_up() {
    let faulty = Faulty::default();
    let broken = Arc::clone(&faulty.broken);
    let a = Member::start_with("127.0.0.1:0".parse().unwrap(), faulty);
    let b = Member::start();
    introduce(&[&a, &b]);
    until_true("they talk", || a.used() == 2 && b.used() == 2);
    let addr = a.addr();
    broken.store(true, Ordering::SeqCst);
    until_true("the socket was given up", || {
        a.driver.snapshot().stats.socket_faults > 0
    });
    assert_eq!(a.hit(10), Outcome::Allowed, "decisions go on");
    until_true("it is tried again and again", || {
        a.driver.snapshot().stats.socket_faults > 1
    });
    broken.store(false, Ordering::SeqCst);
    until_true("the count arrives", || b.used() == 12);
    assert_eq!(a.addr(), addr);
}

#[test]
fn a_frame_that_finds_no_room_is_kept_and_sent_later() {
    let faulty = Faulty::default();
    let full = Arc::clone(&faulty.full);
    let a = Member::start_with("127.0.0.1:0".parse().unwrap(), faulty);
    let b = Member::start();
    introduce(&[&a, &b]);
    until_true("they talk", || a.used() == 2 && b.used() == 2);
    full.store(50, Ordering::SeqCst);
    a.hit(100);
    until_true("the count arrives", || b.used() == 102);
    until_true("it waited", || a.driver.snapshot().stats.send_waits >= 50);
    assert_eq!(a.driver.snapshot().stats.socket_faults, 0);
}

/// Panics inside the loop a few times, then works.
struct Panicking {
    left: Arc<AtomicU32>,
}

impl Binder for Panicking {
    fn bind(&mut self, addr: SocketAddr) -> io::Result<Box<dyn Link>> {
        let left = self.left.load(Ordering::SeqCst);
        if left > 0 {
            self.left.store(left - 1, Ordering::SeqCst);
            panic!("planted by a test");
        }
        UdpBinder.bind(addr)
    }
}

#[test]
fn case_49_a_loop_that_panics_starts_again_with_a_higher_session() {
    let left = Arc::new(AtomicU32::new(2));
    let panicking = Panicking {
        left: Arc::clone(&left),
    };
    let a = Member::start_with("127.0.0.1:0".parse().unwrap(), panicking);
    let b = Member::start();
    introduce(&[&a, &b]);
    a.hit(3);
    until_true("its counts arrive all the same", || b.used() == 5);
    let snapshot = until("a snapshot", || {
        Some(a.driver.snapshot()).filter(|s| s.stats.restarts > 0)
    });
    assert_eq!((snapshot.stats.restarts, snapshot.session), (2, 3));
    assert_eq!(left.load(Ordering::SeqCst), 0);
}

#[test]
fn shutdown_says_goodbye_and_ends_the_thread_in_time() {
    let (a, b) = (Member::start(), Member::start());
    introduce(&[&a, &b]);
    until_true("they talk", || a.used() == 2 && b.used() == 2);
    a.hit(2);
    let start = Instant::now();
    assert!(a.driver.shutdown(Duration::from_secs(2)));
    assert!(start.elapsed() < Duration::from_secs(2));
    assert!(!a.driver.is_running() && !a.driver.snapshot().running);
    assert!(a.driver.shutdown(Duration::ZERO), "once more does no harm");
    until_true("the last hits were still told", || b.used() == 4);
    assert_eq!(
        a.hit(1),
        Outcome::Allowed,
        "decisions go on without a driver"
    );
}

#[test]
fn an_idle_driver_rests() {
    let a = Member::start();
    a.addr();
    // Turns in half a second of rest: 10 ms apart and a few more, not thousands.
    std::thread::sleep(Duration::from_secs(2));
    let (before, start) = (a.driver.turns(), Instant::now());
    std::thread::sleep(Duration::from_millis(500));
    let per_second = (a.driver.turns() - before) as f64 / start.elapsed().as_secs_f64();
    assert!(per_second < 300.0, "{per_second} turns per second");
    assert!(per_second > 0.0);
}

/// One word, as deciders have it.
fn word(orders: &mut StandingOrders) -> Arc<AtomicU64> {
    let word = Arc::new(AtomicU64::new(0));
    let cell = Arc::clone(&word);
    orders.on_order = Some(Box::new(move |order: Order| {
        let before = Orders::from_word(cell.load(Ordering::SeqCst));
        cell.store(gabion_rule::applied(before, order).word(), Ordering::SeqCst);
    }));
    word
}

fn block<T>(future: impl std::future::Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.unwrap().block_on(future)
}

#[test]
fn an_order_is_in_force_here_when_it_is_answered_and_soon_everywhere() {
    let ring = || KeyRing::parse("1:000102030405060708090a0b0c0d0e0f\n").ok();
    let bind: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let mut orders = [(); 2].map(|()| StandingOrders::default());
    let words = [0, 1].map(|i| word(&mut orders[i]));
    let [a, b] = orders.map(|orders| Member::start_all(bind, UdpBinder, orders, ring()));
    let now = |i: usize| Orders::from_word(words[i].load(Ordering::SeqCst));
    introduce(&[&a, &b]);
    let era = block(a.driver.raise_era(5)).unwrap();
    assert_eq!(now(0).era(), era);
    until_true("the other has the era", || now(1).era() == era);
    assert_eq!(block(b.driver.raise_era(5)).unwrap(), era.max(now(1).era()));
    let quarter = Share::percent(25);
    assert_eq!(block(b.driver.set_flag(6, quarter)), Ok(Reach::Cluster));
    assert_eq!(now(1).share(), quarter);
    until_true("the other has the flag", || now(0).share() == quarter);
    assert_eq!(block(a.driver.set_flag(6, None)), Ok(Reach::Cluster));
    until_true("it is unset", || now(1).share().is_none());
    until_true("registers say so", || {
        a.driver.registers() == b.driver.registers()
    });
    assert_eq!(a.driver.registers().era(5), now(0).era());
    assert!(b.driver.shutdown(PATIENCE));
    assert_eq!(block(b.driver.raise_era(5)), Err(OrderError::NotRunning));
}

#[test]
fn orders_outlive_a_loop_that_panics_and_a_driver() {
    let left = Arc::new(AtomicU32::new(0));
    let panicking = Panicking {
        left: Arc::clone(&left),
    };
    let mut orders = StandingOrders::default();
    let told = word(&mut orders);
    let bind = "127.0.0.1:0".parse().unwrap();
    let a = Member::start_all(bind, panicking, orders, None);
    a.addr();
    let era = block(a.driver.raise_era(5)).unwrap();
    let off = Some(Share::OFF);
    assert_eq!(block(a.driver.set_flag(6, off)), Ok(Reach::Local));
    let kept = a.driver.registers();
    told.store(0, Ordering::SeqCst);
    let mut orders = StandingOrders {
        kept: (*kept).clone(),
        ..StandingOrders::default()
    };
    let again = word(&mut orders);
    left.store(2, Ordering::SeqCst);
    let panicking = Panicking { left };
    let b = Member::start_all(bind, panicking, orders, None);
    until_true("a restarted loop tells it", || {
        Orders::from_word(again.load(Ordering::SeqCst)).era() == era
    });
    until_true("it restarted", || b.driver.snapshot().stats.restarts == 2);
    assert_eq!(b.driver.registers(), kept);
    assert!(block(b.driver.raise_era(5)).unwrap() > era);
}

/// A reload: another table, in which the rule has another number, and another limit; and other
/// sources of peers.
#[test]
fn a_driver_goes_on_over_another_table_as_the_same_member() {
    let (mut a, b) = (Member::start(), Member::start());
    introduce(&[&a, &b]);
    assert_eq!(a.hit(39), Outcome::Allowed);
    until_true("both count 41", || a.used() == 41 && b.used() == 41);
    let (addr, before) = (a.addr(), a.driver.snapshot());
    let (old, other, wider) = (rule(3, LIMIT).0, rule(8, 5), rule(3, 2 * LIMIT));
    let rules = vec![other.0, wider.0];
    assert!(a.replacer.pause(PATIENCE));
    let mut table = Table::private(1 << 20, &rules).unwrap();
    let now_ns = a.driver.clock().now_ns();
    gabion_table::carry((&a.table, &[old]), (&mut table, &rules), now_ns);
    let table = Arc::new(table);
    a.replacer.resume(Some(Next {
        table: Arc::clone(&table),
        rules,
        limiters: vec![other.1, wider.1],
        rule_names: Vec::new(),
        keys: None,
        node_tunables: gabion_node::Tunables::default(),
        members_hint: 2,
        discovery: Some(Box::new(Silent)),
    }));
    a.table = table;
    let hit = |hits| {
        let mut charges = [Charge::new(1, KEY, hits, Mode::Enforce, 0)];
        let now_ns = a.driver.clock().now_ns();
        a.table.decide(&mut charges, now_ns).outcome
    };
    let used = || a.table.read(1, KEY, a.driver.clock().now_ns()).used;
    assert_eq!(used(), 41, "own and remote hits were carried");
    assert_eq!(hit(5), Outcome::Allowed);
    assert_eq!(b.hit(7), Outcome::Allowed);
    until_true("both count 53", || used() == 53 && b.used() == 53);
    let after = until("a snapshot of the new session", || {
        let snapshot = a.driver.snapshot();
        (snapshot.session > before.session).then_some(snapshot)
    });
    assert_eq!(a.addr(), addr, "the socket stays");
    let named = |peer: &PeerView| peer.configured && peer.addr == b.addr();
    assert!(
        after.peers.iter().any(named),
        "a source without an answer takes no peer away"
    );
    assert_eq!(after.stats.binds, 1);
    assert_eq!(after.stats.restarts, 0);
    assert_eq!(
        (after.node, after.incarnation),
        (before.node, before.incarnation)
    );
}

#[test]
fn a_pause_that_leads_nowhere_is_ended_by_whoever_made_it_or_by_the_end() {
    let (a, b) = (Member::start(), Member::start());
    introduce(&[&a, &b]);
    assert!(a.replacer.pause(PATIENCE));
    a.hit(4);
    a.replacer.resume(None);
    until_true("both count 6", || a.used() == 6 && b.used() == 6);
    assert!(a.replacer.pause(PATIENCE));
    assert!(a.driver.shutdown(PATIENCE), "also a resting driver ends");
}

#[test]
fn a_member_that_replaces_another_at_its_port_hears_it_out_and_then_takes_the_port() {
    let old = Member::start();
    let port = old.addr();
    let third = Member::start();
    third.peers.send_replace([port].into());
    old.hit(30);
    third.hit(1);
    until_true("the third hears the old one", || third.used() == 31);
    // Nobody tells the new one who else is there.
    let new = Member::start_with(port, UdpBinder);
    let stand_in = new.addr();
    assert_ne!(stand_in, port);
    assert_eq!(new.driver.snapshot().stands_in_for, Some(port));
    new.hit(1);
    until_true("the counts of before", || new.used() == 31);
    new.hit(5);
    until_true("both count together", || old.used() == 37);
    assert!(old.driver.shutdown(PATIENCE));
    until_true("the port is taken over", || {
        let snapshot = new.driver.snapshot();
        snapshot.local_addr == Some(port) && snapshot.stands_in_for.is_none()
    });
    assert_eq!(new.driver.snapshot().session, 2);
    assert!(new.used() >= 36, "nothing is forgotten on the way");
    until_true("the third hears the new one", || third.used() == 37);
    third.hit(4);
    until_true("and the new one the third", || new.used() == 41);
}

#[test]
fn a_port_that_stays_taken_is_said_once_and_tried_again() {
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let a = Member::start_with(taken.local_addr().unwrap(), UdpBinder);
    until_true("several attempts", || {
        a.driver.snapshot().stats.bind_failures >= 3
    });
    assert_eq!(a.hit(1), Outcome::Allowed);
    let port = taken.local_addr().unwrap();
    until_true("another port stands in", || {
        a.driver.snapshot().stands_in_for == Some(port)
    });
    drop(taken);
    until_true("its own port", || a.driver.local_addr() == Some(port));
}
