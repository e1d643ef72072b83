//! Ten members in one process, with real sockets: how fast a hit is seen everywhere, and what an
//! idle link costs.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::stream::{self, Stream, StreamExt};
use gabion_admit::Outcome;
use gabion_discovery::{PeerDiscovery, PeerSet};
use gabion_driver::{
    monotonic_ns, random_incarnation, spawn, wall_clock_ns, ClusterClock, ClusterId, DriverConfig,
    DriverHandle, StandingOrders,
};
use gabion_rule::{Key, Mode};
use gabion_table::{Charge, RawMem, Table};
use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;

use crate::limits::{
    ARRIVAL_PATIENCE, COLD_HITS, COLD_MS_MAX, HOT_HITS, HOT_P99_MS_MAX, HOT_PAUSE,
    IDLE_BYTES_PER_S_MAX, IDLE_WATCH, MESH_MEMBERS,
};
use crate::report::{percentile, Bar, Figure};
use crate::rig::{self, Picker, SECOND_NS};
use crate::BenchError;

/// Rule 0: limit 1,000, so that every hit is more than a member's share of the error budget: hot.
const HOT: u16 = 0;
/// Rule 1: limit 1,000,000, so that one hit waits for the heartbeat: cold.
const COLD: u16 = 1;
/// How often the watcher looks at all tables.
const LOOK_EVERY: Duration = Duration::from_micros(50);
/// Longest that the measurement may take: its window must not end before.
const ROOM_NS: u64 = 600 * SECOND_NS;

/// Peers that are told once they are known: the sockets are bound to ports of the kernel's choice.
struct Told(watch::Receiver<PeerSet>);

impl PeerDiscovery for Told {
    fn peers(self: Box<Self>) -> Pin<Box<dyn Stream<Item = PeerSet> + Send>> {
        let told = WatchStream::new(self.0).filter(|peers| {
            let known = !peers.is_empty();
            async move { known }
        });
        Box::pin(told.chain(stream::pending()))
    }
}

/// A window that does not end soon, whatever the time of day: one of two that rarely end together.
fn roomy_window_ns(now_ns: u64) -> u64 {
    let hours = [5, 7].map(|hours| hours * 3_600 * SECOND_NS);
    let room = |window: &u64| window - now_ns % window;
    hours
        .into_iter()
        .find(|window| room(window) > ROOM_NS)
        .unwrap_or(hours[1])
}

struct MeshMember {
    table: Arc<Table<RawMem>>,
    clock: Arc<ClusterClock>,
    driver: DriverHandle,
}

/// The members; dropped, they end.
struct Mesh {
    members: Vec<MeshMember>,
    _peers: watch::Sender<PeerSet>,
}

fn start_member(
    i: usize,
    window_ns: u64,
    peers: watch::Receiver<PeerSet>,
) -> Result<MeshMember, BenchError> {
    let (hot, hot_limiter) = rig::fixed_rule(1, 1_000, window_ns);
    let (cold, cold_limiter) = rig::fixed_rule(2, 1_000_000, window_ns);
    let rules = vec![hot, cold];
    let table = Table::private(4 << 20, &rules).map_err(BenchError::start("table"))?;
    let table = Arc::new(table);
    let clock = Arc::new(ClusterClock::from_wall_clock());
    let cluster = ClusterId::parse("bench").map_err(BenchError::start("cluster"))?;
    let config = DriverConfig {
        bind: SocketAddr::from(([127, 0, 0, 1], 0)),
        self_addr: None,
        node: i as u64 + 1,
        incarnation: random_incarnation(),
        session: 1,
        cluster: cluster.tag(),
        keys: None,
        rule_names: Vec::new(),
        discovery: Box::new(Told(peers)),
        members_hint: 10,
        node_tunables: gabion_node::Tunables::default(),
        pump_tunables: gabion_pump::Tunables::default(),
        rng_seed: None,
        clock: Arc::clone(&clock),
        on_offset: None,
        orders: StandingOrders::default(),
    };
    let limiters = vec![hot_limiter, cold_limiter];
    let driver = spawn(config, Arc::clone(&table), rules, limiters);
    let driver = driver.map_err(BenchError::start("driver"))?;
    Ok(MeshMember {
        table,
        clock,
        driver,
    })
}

fn wait_for(what: &str, mut done: impl FnMut() -> bool) -> Result<(), BenchError> {
    let give_up = Instant::now() + Duration::from_secs(20);
    while !done() {
        if Instant::now() > give_up {
            return Err(BenchError::Void(format!("{what} within 20 s")));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

impl Mesh {
    fn start() -> Result<Mesh, BenchError> {
        let (tell, told) = watch::channel(PeerSet::new());
        let window_ns = roomy_window_ns(wall_clock_ns());
        let members: Result<Vec<_>, _> = (0..MESH_MEMBERS)
            .map(|i| start_member(i, window_ns, told.clone()))
            .collect();
        let mesh = Mesh {
            members: members?,
            _peers: tell,
        };
        let bound = |m: &MeshMember| m.driver.local_addr();
        wait_for("not all sockets were bound", || {
            mesh.members.iter().all(|m| bound(m).is_some())
        })?;
        mesh._peers
            .send_replace(mesh.members.iter().filter_map(bound).collect());
        let met = |m: &MeshMember| {
            m.driver
                .snapshot()
                .peers
                .iter()
                .filter(|peer| peer.up)
                .count()
                == MESH_MEMBERS - 1
        };
        wait_for("not all members met", || mesh.members.iter().all(met))?;
        Ok(mesh)
    }

    fn hit(&self, member: usize, rule: u16, key: Key) -> Result<(), BenchError> {
        let m = &self.members[member];
        let mut charges = [Charge::new(rule, key, 1, Mode::Enforce, 0)];
        match m.table.decide(&mut charges, m.clock.now_ns()).outcome {
            Outcome::Allowed => Ok(()),
            Outcome::Denied => Err(BenchError::Void("a hit was denied".to_owned())),
        }
    }

    /// How long until every member shows `used` hits. Remote totals are shown for keys that have a
    /// row or pass a share of the limit, so each member has asked for the key before.
    fn arrival(&self, rule: u16, key: Key, used: u64) -> Result<Duration, BenchError> {
        let from = Instant::now();
        let mut missing: Vec<usize> = (0..self.members.len()).collect();
        while !missing.is_empty() {
            missing.retain(|i| {
                let m = &self.members[*i];
                m.table.read(rule, key, m.clock.now_ns()).used < used
            });
            if from.elapsed() > ARRIVAL_PATIENCE {
                return Err(BenchError::Void(format!(
                    "hit {used} on rule {rule} did not reach members {missing:?}"
                )));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(from.elapsed())
    }

    /// Bytes sent by all members so far.
    fn sent_bytes(&self) -> u64 {
        self.members
            .iter()
            .map(|m| m.driver.snapshot().stats.sent_bytes)
            .sum()
    }
}

fn millis(d: Duration) -> f64 {
    d.as_secs_f64() * 1e3
}

/// Hits by members in turn on one key that all members know.
fn hot(mesh: &Mesh) -> Result<Vec<Figure>, BenchError> {
    let key = rig::key(1);
    for i in 0..MESH_MEMBERS {
        mesh.hit(i, HOT, key)?;
    }
    mesh.arrival(HOT, key, MESH_MEMBERS as u64)?;
    let mut times = Vec::with_capacity(HOT_HITS);
    for n in 1..=HOT_HITS {
        std::thread::sleep(HOT_PAUSE);
        mesh.hit(n % MESH_MEMBERS, HOT, key)?;
        times.push(mesh.arrival(HOT, key, (MESH_MEMBERS + n) as u64)?);
    }
    let at = |times: &mut [Duration], share| millis(percentile(times, share).unwrap_or_default());
    let (p50, p99, most) = (
        at(&mut times, 0.5),
        at(&mut times, 0.99),
        at(&mut times, 1.0),
    );
    Ok(vec![
        Figure::stated("10 members, hot row: all have seen a hit, p50", p50, "ms"),
        Figure::barred(
            "10 members, hot row: all have seen a hit, p99",
            p99,
            "ms",
            Bar::AtMost(HOT_P99_MS_MAX),
        ),
        Figure::stated("10 members, hot row: all have seen a hit, max", most, "ms"),
    ])
}

/// Single hits on keys that all members know, after all are at rest.
fn cold(mesh: &Mesh) -> Result<Vec<Figure>, BenchError> {
    let mut times = Vec::with_capacity(COLD_HITS);
    let mut pause = Picker(1);
    for n in 0..COLD_HITS {
        let key = rig::key(1_000 + n as u64);
        for i in 0..MESH_MEMBERS {
            mesh.hit(i, COLD, key)?;
        }
        mesh.arrival(COLD, key, MESH_MEMBERS as u64)?;
        // Anywhere between two heartbeats, not right behind one.
        std::thread::sleep(Duration::from_millis(pause.below(500)));
        mesh.hit(n % MESH_MEMBERS, COLD, key)?;
        times.push(mesh.arrival(COLD, key, MESH_MEMBERS as u64 + 1)?);
    }
    let p50 = millis(percentile(&mut times, 0.5).unwrap_or_default());
    let most = millis(percentile(&mut times, 1.0).unwrap_or_default());
    Ok(vec![
        Figure::stated("10 members, cold row: all have seen a hit, p50", p50, "ms"),
        Figure::barred(
            "10 members, cold row: all have seen a hit, max",
            most,
            "ms",
            Bar::AtMost(COLD_MS_MAX),
        ),
    ])
}

/// Bytes per second and direction of a link while nothing happens.
fn idle(mesh: &Mesh) -> Figure {
    std::thread::sleep(Duration::from_secs(2)); // acks and heartbeats of the hits before
    let (bytes, from_ns) = (mesh.sent_bytes(), monotonic_ns());
    std::thread::sleep(IDLE_WATCH);
    let (bytes, took_ns) = (mesh.sent_bytes() - bytes, monotonic_ns() - from_ns);
    let links = (MESH_MEMBERS * (MESH_MEMBERS - 1)) as f64;
    let per_s = bytes as f64 / links / (took_ns as f64 / SECOND_NS as f64);
    let bar = Bar::AtMost(IDLE_BYTES_PER_S_MAX);
    Figure::barred(
        "idle link, UDP payload, one direction",
        per_s,
        "bytes/s",
        bar,
    )
}

/// Starts the mesh and measures it.
///
/// # Errors
/// A member does not start or a hit never arrives.
pub fn measure() -> Result<Vec<Figure>, BenchError> {
    let mesh = Mesh::start()?;
    let mut figures = hot(&mesh)?;
    figures.extend(cold(&mesh)?);
    figures.push(idle(&mesh));
    Ok(figures)
}
