//! One running member: its engine, its gossip, its state.
//!
//! I own how a configuration becomes counters, clock, engine and driver, and what "ready" means. I
//! promise that gossip trouble never keeps a member from deciding.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use gabion_admit::Plan;
use gabion_driver::{
    node_id_from_seed, random_incarnation, random_node_id, ClusterClock, DriverConfig, DriverError,
    DriverHandle, DriverSnapshot, StandingOrders,
};
use gabion_node::{LimiterSpec, Reach};
use gabion_rule::limits::DEFAULT_ERROR_BUDGET_PPM;
use gabion_rule::{KeyHasher, OverrideUnit, Rule, RuleTable, Share};
use gabion_table::{SubSpec, Table, TableError};
use serde::Serialize;
use thiserror::Error;

use crate::admin::Guard;
use crate::config::{Bind, Config, Gossip, Observe, Runtime, Storage};
use crate::discovery;
use crate::engine::Engine;
use crate::limits::READY_AT_LATEST;
use crate::net::View;
use crate::observe::Observer;
use crate::orders::{self, FlagState, Known, OrderFailure, Reset};
use crate::overrides;
use crate::policy::{Policy, PolicyParts};
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

/// One running member.
pub struct Member {
    engine: Arc<Engine>,
    observe: Observe,
    guard: Guard,
    driver: Option<DriverHandle>,
    orders: Arc<Known>,
    notices: Vec<String>,
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
        let Config {
            mut rules,
            gossip,
            storage,
            runtime,
            flags,
            answers,
            observe,
            mut notices,
            ..
        } = config;
        if let Some(budget) = gossip.as_ref().and_then(|gossip| gossip.error_budget_ppm) {
            rules = with_budget(rules, budget);
        }
        let (counters, override_keys) = counters(&rules, &storage, &mut notices)?;
        let clock = Arc::new(ClusterClock::from_wall_clock());
        let hasher = hasher(gossip.as_ref());
        let rules = Arc::new(rules);
        let orders = Arc::<Known>::default();
        let driver = match (gossip, &counters) {
            (Some(gossip), Some(counters)) => Some(start_driver(
                gossip,
                &runtime,
                &rules,
                override_keys,
                counters,
                &clock,
                &orders,
            )?),
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
            overrides: override_keys > 0,
            bounds: storage,
            answers,
            flags,
            orders: Arc::clone(&orders),
        };
        let engine = Engine::new(Policy::new(parts, None), clock)
            .watched_by(Arc::new(Observer::new(&observe)));
        Ok(Self {
            engine: Arc::new(engine),
            observe,
            guard,
            driver,
            orders,
            notices,
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
        self.driver.as_ref().map(DriverHandle::snapshot)
    }

    /// What an operator should know about the configuration.
    pub fn notices(&self) -> &[String] {
        &self.notices
    }

    /// Notes what was bound; the first call counts.
    pub fn set_addresses(&self, addresses: Addresses) {
        let _ = self.addresses.set(addresses);
    }

    /// What was bound, with the gossip address of this moment.
    pub fn addresses(&self) -> Addresses {
        let mut addresses = self.addresses.get().cloned().unwrap_or_default();
        addresses.gossip = self.driver.as_ref().and_then(DriverHandle::local_addr);
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
        self.driver.is_some()
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
        let driver = self.driver.as_ref();
        orders::reset_limiter(&self.orders, driver, &policy, limiter, domain).await
    }

    /// Sets a declared flag, on all members if gossip has keys; `None`: back to its default.
    ///
    /// # Errors
    /// [`OrderFailure`]; nothing changed.
    pub async fn set_flag(&self, flag: &str, share: Option<Share>) -> Result<Reach, OrderFailure> {
        let policy = self.engine.policy();
        orders::set_flag(&self.orders, self.driver.as_ref(), &policy, flag, share).await
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
        if let Some(driver) = &self.driver {
            if !driver.shutdown(patience) {
                tracing::warn!("gossip did not end in time; peers will time this member out");
            }
        }
    }
}

/// The table, with the sub-tables of limits that requests bring behind those of the rules, and how
/// many keys each of these holds. Without a setting they are left out where there is no room.
fn counters(
    rules: &RuleTable,
    storage: &Storage,
    notices: &mut Vec<String>,
) -> Result<(Option<Arc<Counters>>, u32), TableError> {
    let bytes = usize::try_from(storage.table_bytes).unwrap_or(usize::MAX);
    let mut subs: Vec<SubSpec> = rules.rules().iter().map(sub_spec).collect();
    let of_rules = subs.len();
    let keys = overrides::cardinality(storage);
    if keys > 0 {
        subs.extend(overrides::table_specs(keys));
        match Table::private(bytes, &subs) {
            Ok(table) => return Ok((Some(Arc::new(table)), keys)),
            Err(error) if storage.override_cardinality.is_some() => return Err(error),
            Err(_) => subs.truncate(of_rules),
        }
    }
    if subs.is_empty() {
        return Ok((None, 0));
    }
    let table = Table::private(bytes, &subs)?;
    if keys > 0 {
        notices.push(
            "storage.table_bytes has no room for limits that requests bring, so these are ignored; \
             enlarge it, or set storage.override_cardinality: 0"
                .to_owned(),
        );
    }
    Ok((Some(Arc::new(table)), 0))
}

fn start_driver(
    gossip: Gossip,
    runtime: &Runtime,
    rules: &RuleTable,
    override_keys: u32,
    counters: &Arc<Counters>,
    clock: &Arc<ClusterClock>,
    orders: &Arc<Known>,
) -> Result<DriverHandle, DriverError> {
    let known = Arc::clone(orders);
    let mut subs: Vec<SubSpec> = rules.rules().iter().map(sub_spec).collect();
    let limiters = rules
        .rules()
        .iter()
        .zip(&subs)
        .map(|(rule, sub)| limiter_spec(rule, sub));
    let mut limiters: Vec<LimiterSpec> = limiters.collect();
    let mut rule_names: Vec<String> = rules.rules().iter().map(Rule::describe).collect();
    if override_keys > 0 {
        subs.extend(overrides::pump_specs(override_keys));
        limiters.extend(overrides::limiter_specs());
        rule_names.extend(OverrideUnit::ALL.map(overrides::name));
    }
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
        rule_names,
        members_hint: u32::try_from(gossip.discovery.addresses.len()).unwrap_or(u32::MAX),
        discovery: discovery::from(gossip.discovery),
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
    gabion_driver::spawn(config, Arc::clone(counters), subs, limiters)
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

fn sub_spec(rule: &Rule) -> SubSpec {
    SubSpec {
        identity: rule.identity(),
        plan: Plan::new(&rule.algorithm),
        cardinality: rule.cardinality,
    }
}

fn limiter_spec(rule: &Rule, sub: &SubSpec) -> LimiterSpec {
    LimiterSpec {
        short: rule.identity().short(),
        digest: rule.digest().0,
        epoch_ns: sub.plan.epoch_ns(),
        live_epochs: sub.plan.live_epochs(),
        limit: sub.plan.limit(),
        error_budget_ppm: rule.error_budget_ppm,
    }
}

/// The same rules with `gossip.target_err_bps` for those that name no budget of their own.
fn with_budget(rules: RuleTable, budget_ppm: u32) -> RuleTable {
    let changed = rules.rules().iter().cloned().map(|mut rule| {
        if rule.error_budget_ppm == DEFAULT_ERROR_BUDGET_PPM {
            rule.error_budget_ppm = budget_ppm;
        }
        rule
    });
    // The budget is no part of what can conflict; if it were, the rules stay as they are.
    RuleTable::build(changed.collect()).unwrap_or(rules)
}
