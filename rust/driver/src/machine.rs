//! What a loop is built from, again after every restart: identity, rules, tunables.

use std::cell::Cell;
use std::net::SocketAddr;
use std::sync::Arc;

use gabion_discovery::{Health, PeerDiscovery};
use gabion_node::{Config, LimiterSpec, Node};
use gabion_pump::Pump;
use gabion_rule::Order;
use gabion_table::SubSpec;

use crate::clock::{monotonic_ns, ClusterClock};
use crate::driver::DriverConfig;
use crate::entropy::Entropy;
use crate::replace::Next;
use crate::stats::{DriverSnapshot, DriverStats};
use crate::view::{RuleName, RuleNames};

/// The lasting part of a driver.
pub(crate) struct Machine {
    pub(crate) bind: SocketAddr,
    pub(crate) self_addr: Option<SocketAddr>,
    pub(crate) clock: Arc<ClusterClock>,
    pub(crate) on_offset: Option<Box<dyn Fn(i64) + Send>>,
    pub(crate) on_order: Option<Box<dyn Fn(Order) + Send>>,
    pub(crate) discovery: Option<Box<dyn PeerDiscovery>>,
    /// What the sources of peers say of themselves.
    pub(crate) sources: Vec<Health>,
    pub(crate) names: RuleNames,
    /// Read by the driver's thread alone, once it runs.
    session: Cell<u32>,
    node: Config,
    rules: Vec<SubSpec>,
    members_hint: u32,
    rng_seed: Option<u64>,
    pump_tunables: gabion_pump::Tunables,
}

impl Machine {
    pub(crate) fn new(
        config: DriverConfig,
        rules: Vec<SubSpec>,
        limiters: Vec<LimiterSpec>,
    ) -> Self {
        Self {
            names: names(config.rule_names, &limiters),
            bind: config.bind,
            self_addr: config.self_addr,
            clock: config.clock,
            on_offset: config.on_offset,
            on_order: config.orders.on_order,
            session: Cell::new(config.session),
            discovery: Some(config.discovery),
            sources: Vec::new(),
            node: Config {
                node: config.node,
                incarnation: config.incarnation,
                session: config.session,
                cluster: config.cluster,
                keys: config.keys,
                limiters,
                tunables: config.node_tunables,
            },
            rules,
            members_hint: config.members_hint,
            rng_seed: config.rng_seed,
            pump_tunables: config.pump_tunables,
        }
    }

    /// Takes other rules and settings; who this member is stays.
    pub(crate) fn replace<T>(&mut self, next: Next<T>) {
        self.names = names(next.rule_names, &next.limiters);
        self.node.limiters = next.limiters;
        self.node.keys = next.keys;
        self.node.tunables = next.node_tunables;
        self.rules = next.rules;
        self.members_hint = next.members_hint;
        self.discovery = next.discovery;
    }

    /// A fresh protocol machine under the current session.
    pub(crate) fn node(&self) -> Node {
        let mut config = self.node.clone();
        config.session = self.session();
        let mut node = Node::new(config, monotonic_ns());
        node.set_place(
            self.rules
                .iter()
                .find_map(|rule| rule.plan.pacing().place()),
        );
        node
    }

    /// A fresh pump; its first scrub finds every live row again.
    pub(crate) fn pump(&self) -> Pump {
        Pump::new(&self.rules, self.members_hint, self.pump_tunables)
    }

    pub(crate) fn entropy(&self) -> Entropy {
        self.rng_seed
            .map_or_else(Entropy::from_system, Entropy::from_seed)
    }

    /// After a restart, sequence numbers begin again, so the session must rise; after a move, too.
    pub(crate) fn next_session(&self) {
        self.session.set(self.session().saturating_add(1));
    }

    pub(crate) fn session(&self) -> u32 {
        self.session.get()
    }

    pub(crate) fn identity(&self) -> (u64, u64) {
        (self.node.node, self.node.incarnation)
    }

    pub(crate) fn first_snapshot(&self) -> DriverSnapshot {
        DriverSnapshot {
            node: self.node.node,
            incarnation: self.node.incarnation,
            session: self.session(),
            local_addr: None,
            rules: self.names.clone(),
            stands_in_for: None,
            socket_buffers: (0, 0),
            discovered: None,
            sources: Vec::new(),
            peers: Vec::new(),
            bounds: Default::default(),
            node_stats: Default::default(),
            pump_stats: Default::default(),
            stats: DriverStats::default(),
            clock_correction_ns: 0,
            taken_mono_ns: monotonic_ns(),
            running: true,
        }
    }
}

fn names(texts: Vec<String>, limiters: &[LimiterSpec]) -> RuleNames {
    let mut texts = texts.into_iter();
    let names = limiters.iter().enumerate().map(|(i, limiter)| RuleName {
        text: texts.next().unwrap_or_else(|| format!("rule {i}")),
        digest: limiter.digest,
    });
    names.collect()
}
