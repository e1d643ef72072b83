//! One running member: its engine, its gossip, its state.
//!
//! I own how a configuration becomes counters, clock, engine and driver, and what "ready" means. I
//! promise that gossip trouble never keeps a member from deciding.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use arc_swap::{ArcSwap, ArcSwapOption};
use gabion_driver::{
    node_id_from_seed, random_incarnation, random_node_id, ClusterClock, DriverConfig, DriverError,
    DriverHandle, DriverSnapshot, Replacer, StandingOrders,
};
use gabion_node::Reach;
use gabion_rule::{KeyHasher, Share};
use gabion_table::TableError;
use gabion_wire::KeyRing;
use serde::Serialize;
use thiserror::Error;

use crate::admin::Guard;
use crate::config::{self, Bind, Config, Discovery, Gossip, Observe, Runtime};
use crate::discovery;
use crate::engine::Engine;
use crate::limits::READY_AT_LATEST;
use crate::net::View;
use crate::observe::{Observer, Traces};
use crate::orders::{self, FlagState, Known, OrderFailure, Reset};
use crate::policy::{Policy, PolicyParts};
use crate::reload::{Fixed, Reloads};
use crate::specs::{self, Specs};
use crate::Counters;

/// Why a member could not be made. Nothing runs then.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// The counters do not fit.
    #[error("storage.table_bytes: {0}")]
    Table(#[from] TableError),
    /// Gossip has no thread or event loop.
    #[error(transparent)]
    Driver(#[from] DriverError),
}

/// Where a member is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Not all of its parts are there, or its peers were not heard yet.
    Starting,
    /// Serving.
    Ready,
    /// Finishing what is open.
    Draining,
}

impl State {
    /// Its word in snapshots.
    pub fn word(self) -> &'static str {
        match self {
            State::Starting => "starting",
            State::Ready => "ready",
            State::Draining => "draining",
        }
    }
}

/// The addresses that were bound, as the ports file says them too.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Addresses {
    /// Process id.
    pub pid: u32,
    /// The rate-limit service.
    pub envoy: Option<Bind>,
    /// The admin server.
    pub admin: Option<Bind>,
    /// The JSON server.
    pub json: Option<Bind>,
    /// The gossip socket.
    pub gossip: Option<std::net::SocketAddr>,
}

/// The reloads of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReloadRecord {
    /// Configurations that were put in force after the first.
    pub done: u64,
    /// Configurations that were refused.
    pub refused: u64,
    /// Why the last one was refused; `None` when the last one is in force.
    pub last_refusal: Option<String>,
}

/// What a reload has to know of the configuration in force.
pub(crate) struct InForce {
    pub(crate) fixed: Fixed,
    pub(crate) specs: Arc<Specs>,
    pub(crate) gossip: Option<Link>,
    pub(crate) replacer: Option<Replacer<Counters>>,
}

impl InForce {
    fn new(fixed: Fixed, specs: &Arc<Specs>, gossip: Option<&Gossip>) -> Self {
        Self {
            fixed,
            specs: Arc::clone(specs),
            gossip: gossip.map(Link::of),
            replacer: None,
        }
    }
}

/// The settings of gossip that a reload may change.
#[derive(Clone)]
pub(crate) struct Link {
    pub(crate) keys: Option<KeyRing>,
    pub(crate) tunables: gabion_node::Tunables,
    pub(crate) bind: std::net::SocketAddr,
    pub(crate) discovery: Discovery,
}

impl Link {
    pub(crate) fn of(gossip: &Gossip) -> Self {
        Self {
            keys: gossip.keys.clone(),
            tunables: gossip.tunables.clone(),
            bind: gossip.bind,
            discovery: gossip.discovery.clone(),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One running member.
pub struct Member {
    engine: Arc<Engine>,
    observe: Observe,
    guard: Guard,
    driver: ArcSwapOption<DriverHandle>,
    in_force: Mutex<InForce>,
    reloads: Mutex<ReloadRecord>,
    reloader: OnceLock<Reloads>,
    orders: Arc<Known>,
    notices: ArcSwap<Vec<String>>,
    addresses: OnceLock<Addresses>,
    ports: OnceLock<Vec<(&'static str, View)>>,
    started: Instant,
    started_at: SystemTime,
    draining: AtomicU8,
}

impl Member {
    /// Makes the counters and starts gossip.
    ///
    /// # Errors
    /// [`StartError`]; nothing runs then.
    pub fn start(config: Config) -> Result<Self, StartError> {
        let guard = Guard::new(config.admin_bind.as_ref(), config.admin_token.clone());
        let fixed = Fixed::of(&config);
        let Config {
            rules,
            gossip,
            storage,
            runtime,
            flags,
            answers,
            observe,
            traces,
            mut notices,
            ..
        } = config;
        let rules = Arc::new(specs::placed(rules, gossip.as_ref(), runtime.member_place));
        let made = specs::counters(&rules, &storage, &mut notices, None)?;
        let counters = made.counters;
        let clock = Arc::new(ClusterClock::ahead_of_wall_clock(runtime.clock_ahead_ns));
        let hasher = hasher(gossip.as_ref());
        let orders = Arc::<Known>::default();
        let mut in_force = InForce::new(fixed, &made.specs, gossip.as_ref());
        let driver = match (gossip, &counters) {
            (Some(gossip), Some(counters)) => {
                let (driver, replacer) =
                    start_driver(gossip, &runtime, &made.specs, counters, &clock, &orders)?;
                in_force.replacer = Some(replacer);
                Some(Arc::new(driver))
            }
            (Some(_), None) => {
                notices.push("there are no rules, so there is nothing to gossip about".to_owned());
                None
            }
            (None, _) => {
                notices.push("gossip is not configured: this member counts alone".to_owned());
                None
            }
        };
        let parts = PolicyParts {
            rules,
            hasher,
            counters,
            overrides: made.specs.overrides,
            bounds: storage,
            answers,
            flags,
            orders: Arc::clone(&orders),
            value_series: observe.value_series,
        };
        let engine = Engine::new(Policy::new(parts, None), clock)
            .watched_by(Arc::new(observer(&observe, traces.as_ref())));
        Ok(Self {
            engine: Arc::new(engine),
            observe,
            guard,
            driver: ArcSwapOption::from(driver),
            in_force: Mutex::new(in_force),
            reloads: Mutex::default(),
            reloader: OnceLock::new(),
            orders,
            notices: ArcSwap::from_pointee(notices),
            addresses: OnceLock::new(),
            ports: OnceLock::new(),
            started: Instant::now(),
            started_at: SystemTime::now(),
            draining: AtomicU8::new(0),
        })
    }

    /// What decides.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// The gossip driver as it was a moment ago; `None` when this member counts alone.
    pub fn gossip(&self) -> Option<Arc<DriverSnapshot>> {
        self.driver.load().as_ref().map(|driver| driver.snapshot())
    }

    /// What an operator should know about the configuration.
    pub fn notices(&self) -> Arc<Vec<String>> {
        self.notices.load_full()
    }

    /// The reloads so far.
    pub fn reloads(&self) -> ReloadRecord {
        lock(&self.reloads).clone()
    }

    /// Notes who reloads it; the first call counts.
    pub fn set_reloader(&self, reloader: Reloads) {
        let _ = self.reloader.set(reloader);
    }

    /// Who reloads it.
    pub fn reloader(&self) -> Option<&Reloads> {
        self.reloader.get()
    }

    /// Notes what became of a reload: done, or refused for a reason.
    pub(crate) fn note_reload(&self, refused: Option<String>) {
        let mut reloads = lock(&self.reloads);
        match &refused {
            None => reloads.done += 1,
            Some(_) => reloads.refused += 1,
        }
        reloads.last_refusal = refused;
    }

    /// What a reload has to know of the configuration in force; held for as long as one takes.
    pub(crate) fn in_force(&self) -> MutexGuard<'_, InForce> {
        lock(&self.in_force)
    }

    /// What operators ordered so far.
    pub(crate) fn orders(&self) -> &Arc<Known> {
        &self.orders
    }

    pub(crate) fn set_notices(&self, notices: Vec<String>) {
        self.notices.store(Arc::new(notices));
    }

    /// Starts gossip that was configured and had nothing to gossip about until now.
    pub(crate) fn start_gossip(
        &self,
        in_force: &mut InForce,
        (gossip, runtime): (Gossip, &Runtime),
        specs: &Specs,
        counters: &Arc<Counters>,
    ) -> Result<(), DriverError> {
        let (clock, orders) = (self.engine.clock(), &self.orders);
        in_force.gossip = Some(Link::of(&gossip));
        let (driver, replacer) = start_driver(gossip, runtime, specs, counters, clock, orders)?;
        in_force.replacer = Some(replacer);
        self.driver.store(Some(Arc::new(driver)));
        Ok(())
    }

    /// Notes what was bound; the first call counts.
    pub fn set_addresses(&self, addresses: Addresses) {
        let _ = self.addresses.set(addresses);
    }

    /// What was bound, with the gossip address of this moment.
    pub fn addresses(&self) -> Addresses {
        let mut addresses = self.addresses.get().cloned().unwrap_or_default();
        addresses.gossip = self
            .driver
            .load()
            .as_ref()
            .and_then(|driver| driver.local_addr());
        addresses
    }

    /// Notes what the servers' ports are; the first call counts.
    pub fn set_ports(&self, ports: Vec<(&'static str, View)>) {
        let _ = self.ports.set(ports);
    }

    /// The servers' ports, by name.
    pub fn ports(&self) -> &[(&'static str, View)] {
        self.ports.get().map_or(&[], Vec::as_slice)
    }

    /// What watches decisions.
    pub fn observer(&self) -> &Arc<Observer> {
        self.engine.observer()
    }

    /// What is asked of whoever comes to the admin server.
    pub fn guard(&self) -> &Guard {
        &self.guard
    }

    /// What is shown of single decisions.
    pub fn observe(&self) -> &Observe {
        &self.observe
    }

    /// Whether gossip is configured.
    pub fn has_gossip(&self) -> bool {
        self.driver.load().is_some()
    }

    /// Starts the counters of a limiter afresh on all members, in one domain or in all that have
    /// it. Decisions of this member know of it when this returns.
    ///
    /// # Errors
    /// [`OrderFailure`]. When one of several domains fails, those before it were reset.
    pub async fn reset_limiter(
        &self,
        limiter: &str,
        domain: Option<&str>,
    ) -> Result<Vec<Reset>, OrderFailure> {
        let policy = self.engine.policy();
        let driver = self.driver.load_full();
        orders::reset_limiter(&self.orders, driver.as_deref(), &policy, limiter, domain).await
    }

    /// Sets a declared flag, on all members if gossip has keys; `None`: back to its default.
    ///
    /// # Errors
    /// [`OrderFailure`]; nothing changed.
    pub async fn set_flag(&self, flag: &str, share: Option<Share>) -> Result<Reach, OrderFailure> {
        let policy = self.engine.policy();
        let driver = self.driver.load_full();
        orders::set_flag(&self.orders, driver.as_deref(), &policy, flag, share).await
    }

    /// The declared flags as they are now.
    pub fn flags(&self) -> Vec<FlagState> {
        orders::flags(&self.orders, &self.engine.policy())
    }

    /// Time since the start.
    pub fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    /// When it was started.
    pub fn started_at(&self) -> SystemTime {
        self.started_at
    }

    /// Where the member is in its life. Ready: its addresses are bound, gossip has its socket, and
    /// each peer was heard or there are none; or [`READY_AT_LATEST`] has passed, since a member
    /// without peers decides all the same.
    pub fn state(&self) -> State {
        if self.draining.load(Ordering::Relaxed) != 0 {
            return State::Draining;
        }
        let bound = self.addresses.get().is_some();
        if bound && (self.uptime() >= READY_AT_LATEST || self.peers_heard()) {
            State::Ready
        } else {
            State::Starting
        }
    }

    fn peers_heard(&self) -> bool {
        let Some(snapshot) = self.gossip() else {
            return true;
        };
        snapshot.local_addr.is_some()
            && snapshot.discovered.is_some()
            && snapshot
                .peers
                .iter()
                .filter(|peer| peer.configured)
                .all(|peer| peer.up)
    }

    /// From now on the member counts as draining.
    pub fn start_draining(&self) {
        self.draining.store(1, Ordering::Relaxed); // one flag that carries no other memory
    }

    /// Tells the peers goodbye, and writes what was not logged yet; waits at most `patience`.
    pub fn leave(&self, patience: Duration) {
        self.observer().drain();
        if let Some(traces) = self.observer().traces() {
            traces.end(patience / 2);
        }
        if let Some(driver) = self.driver.load_full() {
            if !driver.shutdown(patience) {
                tracing::warn!("gossip did not end in time; peers will time this member out");
            }
        }
    }
}

/// What watches decisions. Traces that cannot be sent are no reason not to serve.
fn observer(observe: &Observe, traces: Option<&config::Traces>) -> Observer {
    let traces = traces.and_then(|settings| {
        Traces::start(settings)
            .inspect_err(|error| tracing::error!("traces.endpoint: no traces are sent: {error}"))
            .ok()
    });
    Observer::new(observe).tracing_to(traces)
}

fn start_driver(
    gossip: Gossip,
    runtime: &Runtime,
    specs: &Specs,
    counters: &Arc<Counters>,
    clock: &Arc<ClusterClock>,
    orders: &Arc<Known>,
) -> Result<(DriverHandle, Replacer<Counters>), DriverError> {
    let known = Arc::clone(orders);
    let config = DriverConfig {
        bind: gossip.bind,
        self_addr: gossip.discovery.self_addr,
        node: runtime
            .node_id_seed
            .as_deref()
            .map_or_else(random_node_id, node_id_from_seed),
        incarnation: random_incarnation(),
        session: 1,
        cluster: gossip.cluster.tag(),
        keys: gossip.keys,
        rule_names: specs.names.clone(),
        members_hint: u32::try_from(gossip.discovery.addresses.len()).unwrap_or(u32::MAX),
        discovery: discovery::from(gossip.discovery, gossip.bind),
        node_tunables: gossip.tunables,
        pump_tunables: gabion_pump::Tunables::default(),
        rng_seed: runtime.rng_seed,
        clock: Arc::clone(clock),
        on_offset: None,
        orders: StandingOrders {
            on_order: Some(Box::new(move |order| known.take(order))),
            ..StandingOrders::default()
        },
    };
    let (pump, limiters) = (specs.pump.clone(), specs.limiters.clone());
    gabion_driver::spawn_replaceable(config, Arc::clone(counters), pump, limiters)
}

fn hasher(gossip: Option<&Gossip>) -> KeyHasher {
    match gossip {
        Some(Gossip {
            key_secret: Some(secret),
            ..
        }) => KeyHasher::new(*secret),
        Some(gossip) => KeyHasher::derived_from_cluster(gossip.cluster.text()),
        // Alone, nobody else needs the secret.
        None => {
            let (a, b) = (random_incarnation(), random_incarnation());
            KeyHasher::new(((u128::from(a) << 64) | u128::from(b)).to_be_bytes())
        }
    }
}
