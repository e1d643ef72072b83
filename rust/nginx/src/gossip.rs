//! The gossip of an instance: one worker at a time runs the shared driver.
//!
//! I own the loop of a worker's gossip thread: look at the lease, start the driver when it is mine,
//! stop it when it is not, give it up as soon as the worker is leaving. I promise that requests
//! never wait for me and that an instance whose gossip fails counts on alone. I never call nginx.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use gabion_discovery::{DnsPeers, FilePeers, MergedPeers, PeerDiscovery, StaticPeers};
use gabion_driver::{monotonic_ns, node_id_from_seed, ClusterClock, DriverConfig, DriverHandle};
use gabion_node::LimiterSpec;
use gabion_rule::KeyHasher;
use gabion_table::{Mem, SubSpec};

use crate::lease::tick_of;
use crate::limits::{LEASE_LOOK_MS, LEAVE_PATIENCE_MS};
use crate::settings::Settings;
use crate::zone::Zone;

/// The keys' hasher when the cluster shares it; `None` when the instance is alone.
pub fn shared_hasher(settings: &Settings) -> Option<KeyHasher> {
    match (settings.key_secret, settings.bind) {
        (Some(secret), _) => Some(KeyHasher::new(secret)),
        (None, Some(_)) => Some(KeyHasher::derived_from_cluster(settings.cluster().text())),
        (None, None) => None,
    }
}

/// What tells a worker's gossip thread to end.
#[derive(Debug, Default)]
pub struct Stop {
    asked: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    /// Asks.
    pub fn ask(&self) {
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    /// Waits at most `patience`; returns whether it was asked.
    fn asked_within(&self, patience: Duration) -> bool {
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self
            .changed
            .wait_timeout_while(asked, patience, |asked| !*asked);
        let (asked, _) = waited.unwrap_or_else(PoisonError::into_inner);
        *asked
    }
}

/// Everything a worker needs to take the lease.
pub struct Leader<M: Mem> {
    /// The zone whose counters are gossiped.
    pub zone: Arc<Zone<M>>,
    /// What the rules are called.
    pub names: Vec<String>,
    /// As the table needs them.
    pub subs: Vec<SubSpec>,
    /// As the node needs them.
    pub limiters: Vec<LimiterSpec>,
    /// Process id, for people.
    pub pid: u32,
    /// 32 random bits, not 0.
    pub me: u32,
}

impl<M: Mem + Send + Sync + 'static> Leader<M> {
    /// Runs until it is asked to stop. `leaving` says that the worker takes no new requests: the
    /// lease goes to another worker at once, though requests may still be open. `say` is told
    /// what an operator should know.
    pub fn run(
        self,
        settings: &Settings,
        stop: &Stop,
        leaving: &dyn Fn() -> bool,
        say: &dyn Fn(&str),
    ) {
        let mut driver: Option<DriverHandle> = None;
        let pause = Duration::from_millis(LEASE_LOOK_MS);
        loop {
            if leaving() {
                self.give_up(&mut driver);
            } else {
                self.look(&mut driver, settings, say);
            }
            if stop.asked_within(pause) {
                break;
            }
        }
        self.give_up(&mut driver);
    }

    fn look(&self, driver: &mut Option<DriverHandle>, settings: &Settings, say: &dyn Fn(&str)) {
        let now = tick_of(monotonic_ns());
        let (mine, taken) = self.zone.look_at_lease(self.me, self.pid, now);
        if taken {
            say("this worker runs gossip from now on");
        }
        match (mine, driver.is_some()) {
            (true, false) => match self.start(settings) {
                Ok(started) => *driver = Some(started),
                Err(error) => say(&format!("gossip could not start, next try soon: {error}")),
            },
            (false, true) => {
                say("another worker runs gossip, since this one stood still for too long");
                end(driver);
            }
            _ => {}
        }
    }

    fn start(&self, settings: &Settings) -> Result<DriverHandle, String> {
        let bind = settings.bind.ok_or("no address")?;
        let kept = self.zone.kept();
        let seed = settings.node_id_seed.as_deref();
        let zone = Arc::clone(&self.zone);
        let config = DriverConfig {
            bind,
            self_addr: settings.self_addr,
            node: seed.map_or(kept.node, node_id_from_seed),
            incarnation: kept.incarnation,
            session: self.zone.next_session(),
            cluster: settings.cluster().tag(),
            keys: settings.keys.clone(),
            rule_names: self.names.clone(),
            discovery: discovery(settings),
            members_hint: u32::try_from(settings.peers.len()).unwrap_or(u32::MAX),
            node_tunables: settings.tunables.clone(),
            pump_tunables: gabion_pump::Tunables::default(),
            rng_seed: settings.rng_seed,
            clock: Arc::new(ClusterClock::with_offset(kept.offset_ns)),
            on_offset: Some(Box::new(move |offset_ns| zone.set_offset(offset_ns))),
            orders: gabion_driver::StandingOrders::default(),
        };
        let table = Arc::clone(&self.zone.table);
        gabion_driver::spawn(config, table, self.subs.clone(), self.limiters.clone())
            .map_err(|error| error.to_string())
    }

    fn give_up(&self, driver: &mut Option<DriverHandle>) {
        end(driver);
        self.zone.give_lease_up(self.me);
    }
}

/// The socket is closed before the lease is given up, so that the next holder can bind.
fn end(driver: &mut Option<DriverHandle>) {
    if let Some(driver) = driver.take() {
        driver.shutdown(Duration::from_millis(LEAVE_PATIENCE_MS));
    }
}

fn discovery(settings: &Settings) -> Box<dyn PeerDiscovery> {
    let mut sources: Vec<Box<dyn PeerDiscovery>> = Vec::new();
    let elsewhere = settings.dns.is_some() || settings.peers_file.is_some();
    if !settings.peers.is_empty() || !elsewhere {
        sources.push(Box::new(StaticPeers::new(settings.peers.iter().copied())));
    }
    if let Some((name, port)) = &settings.dns {
        sources.push(Box::new(DnsPeers::new(name.clone(), *port)));
    }
    if let Some(path) = &settings.peers_file {
        sources.push(Box::new(FilePeers::new(path.clone())));
    }
    match sources.len() {
        1 => sources.remove(0),
        _ => Box::new(MergedPeers::new(sources)),
    }
}
