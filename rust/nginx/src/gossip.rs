//! The gossip of an instance: one worker at a time runs the shared driver.
//!
//! I own the loop of a worker's gossip thread: look at the lease, start the driver when it is mine,
//! post its state in the zone, stop it when the lease is not mine, give it up as soon as the worker
//! is leaving. I promise that requests
//! never wait for me and that an instance whose gossip fails counts on alone. I never call nginx.

use std::net::SocketAddr;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use gabion_discovery::{
    DnsPeers, FilePeers, KubernetesPeers, MergedPeers, PeerDiscovery, PeerSet, StaticPeers,
};
use gabion_driver::{monotonic_ns, node_id_from_seed, ClusterClock, DriverConfig, DriverHandle};
use gabion_node::LimiterSpec;
use gabion_pump::Joined;
use gabion_rule::KeyHasher;
use gabion_table::{Mem, SubSpec};

use crate::board::Posted;
use crate::lease::tick_of;
use crate::limits::{LEASE_LOOK_MS, LEAVE_PATIENCE_MS, POST_EVERY_MS, RETRY_AFTER_FAILURE_MS};
use crate::orders::{standing, Names};
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

/// A zone as gossip sees it.
pub struct Part<M: Mem> {
    /// The zone.
    pub zone: Arc<Zone<M>>,
    /// What its rules are called.
    pub names: Vec<String>,
    /// As whoever moves counts between table and node needs them.
    pub subs: Vec<SubSpec>,
    /// As the node needs them.
    pub limiters: Vec<LimiterSpec>,
    /// What the orders for its rules are called, in the order of its table.
    pub order_names: Vec<Names>,
}

/// A line for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Say<'t> {
    /// Good to know.
    Notice(&'t str),
    /// Something is wrong.
    Failure(&'t str),
}

/// Everything a worker needs to take the lease.
pub struct Leader<M: Mem> {
    /// The zones that hold rules, in the order of the configuration, and at least one. All are
    /// gossiped; the first holds the lease.
    pub parts: Vec<Part<M>>,
    /// Process id, for people.
    pub pid: u32,
    /// 32 random bits, not 0.
    pub me: u32,
}

/// A driver that runs, and when its state was last posted.
struct Running {
    driver: DriverHandle,
    /// Whether it begins with peers of the driver before it; the board keeps them until it does.
    remembers: bool,
    posted_mono_ns: u64,
}

impl<M: Mem + Send + Sync + 'static> Leader<M> {
    /// Runs until it is asked to stop. `leaving` says that the worker takes no new requests: the
    /// lease goes to another worker at once, though requests may still be open. `say` is told
    /// what an operator should know. A panic is said, costs the lease, and is followed by another
    /// attempt.
    pub fn run(
        &self,
        settings: &Settings,
        stop: &Stop,
        leaving: &dyn Fn() -> bool,
        say: &dyn Fn(&Say<'_>),
    ) {
        let Some(first) = self.parts.first() else {
            return;
        };
        loop {
            // What a panic left half done ends with it: the driver was dropped, which ends it, and
            // the zone's words are atomics.
            let life = || self.live(&first.zone, settings, stop, leaving, say);
            let ended = catch_unwind(AssertUnwindSafe(life));
            first.zone.give_lease_up(self.me);
            if ended.is_ok() {
                return;
            }
            say(&Say::Failure(
                "gossip failed inside this worker; it decides on, and tries again. Please report \
                 this",
            ));
            if stop.asked_within(Duration::from_millis(RETRY_AFTER_FAILURE_MS)) {
                return;
            }
        }
    }

    fn live(
        &self,
        lead: &Zone<M>,
        settings: &Settings,
        stop: &Stop,
        leaving: &dyn Fn() -> bool,
        say: &dyn Fn(&Say<'_>),
    ) {
        let mut running: Option<Running> = None;
        let pause = Duration::from_millis(LEASE_LOOK_MS);
        loop {
            if leaving() {
                end(&mut running);
                lead.give_lease_up(self.me);
            } else {
                self.look(lead, &mut running, settings, say);
            }
            if let Some(running) = &mut running {
                post(lead, running);
                let session = running.driver.snapshot().session;
                // Within its life a driver raises its session, too: the next one must be above.
                let zones = self.parts.iter().map(|part| &part.zone);
                zones.for_each(|zone| zone.raise_session(session));
            }
            if stop.asked_within(pause) {
                break;
            }
        }
        end(&mut running);
    }

    fn look(
        &self,
        lead: &Zone<M>,
        running: &mut Option<Running>,
        settings: &Settings,
        say: &dyn Fn(&Say<'_>),
    ) {
        let now = tick_of(monotonic_ns());
        let (mine, taken) = lead.look_at_lease(self.me, self.pid, now);
        if taken {
            say(&Say::Notice("this worker runs gossip from now on"));
        }
        match (mine, running.is_some()) {
            (true, false) => match self.start(settings) {
                Ok(started) => *running = Some(started),
                Err(error) => {
                    let text = format!("gossip could not start, next try soon: {error}");
                    say(&Say::Failure(&text));
                }
            },
            (false, true) => {
                say(&Say::Notice(
                    "another worker runs gossip, since this one stood still for too long",
                ));
                end(running);
            }
            _ => {}
        }
    }

    fn start(&self, settings: &Settings) -> Result<Running, String> {
        let bind = settings.bind.ok_or("no address")?;
        let lead = &self.parts.first().ok_or("no zone")?.zone;
        let kept = lead.kept();
        let seed = settings.node_id_seed.as_deref();
        let known = known(lead);
        let remembers = !known.is_empty();
        let zones: Vec<Arc<Zone<M>>> = self.parts.iter().map(|p| Arc::clone(&p.zone)).collect();
        let parts = self.parts.iter();
        let named = parts.map(|part| (Arc::clone(&part.zone), part.order_names.clone()));
        let config = DriverConfig {
            bind,
            self_addr: settings.self_addr,
            node: seed.map_or(kept.node, node_id_from_seed),
            incarnation: kept.incarnation,
            session: next_session(&zones),
            cluster: settings.cluster().tag(),
            keys: settings.keys.clone(),
            rule_names: self.parts.iter().flat_map(|p| p.names.clone()).collect(),
            discovery: discovery(settings, bind, known),
            members_hint: u32::try_from(settings.peers.len()).unwrap_or(u32::MAX),
            node_tunables: settings.tunables.clone(),
            pump_tunables: gabion_pump::Tunables::default(),
            rng_seed: settings.rng_seed,
            clock: Arc::new(ClusterClock::with_offset(kept.offset_ns)),
            on_offset: Some(Box::new(move |offset_ns| {
                zones.iter().for_each(|zone| zone.set_offset(offset_ns));
            })),
            orders: standing(named.collect()),
        };
        let parts = self.parts.iter();
        let tables = parts.map(|p| (Arc::clone(&p.zone.table), p.subs.len()));
        let tables = Arc::new(Joined::new(tables));
        let subs = self.parts.iter().flat_map(|p| p.subs.clone()).collect();
        let limiters = self.parts.iter().flat_map(|p| p.limiters.clone());
        let spawned = gabion_driver::spawn(config, tables, subs, limiters.collect());
        spawned
            .map_err(|error| error.to_string())
            .map(|driver| Running {
                driver,
                remembers,
                posted_mono_ns: 0,
            })
    }
}

/// A session higher than any that a driver of one of the zones had: each driver gets its own, also
/// when a reload made another zone the first.
fn next_session<M: Mem>(zones: &[Arc<Zone<M>>]) -> u32 {
    let before = zones.iter().map(|zone| zone.kept().session).max();
    let session = before.unwrap_or(0).saturating_add(1);
    zones.iter().for_each(|zone| zone.raise_session(session));
    session
}

/// Posts what the driver last said of itself, at its pace, with as many peers and bounds of
/// rules as there is room for.
fn post<M: Mem>(lead: &Zone<M>, running: &mut Running) {
    let snapshot = running.driver.snapshot();
    let due_ns = running.posted_mono_ns + POST_EVERY_MS * 1_000_000;
    if running.remembers && snapshot.stats.peer_sets == 0 {
        return;
    }
    if running.posted_mono_ns != 0 && snapshot.taken_mono_ns < due_ns {
        return;
    }
    running.posted_mono_ns = snapshot.taken_mono_ns;
    let (mut peers, mut rules) = (snapshot.peers.len(), snapshot.bounds.rules.len());
    loop {
        let mut state = snapshot.json(peers);
        state["bounds"] = snapshot.packed_bounds(rules);
        state["taken_mono_ns"] = snapshot.taken_mono_ns.into();
        if lead.board().post(lead.head(), &state.to_string()) || (peers, rules) == (0, 0) {
            return;
        }
        (peers, rules) = (peers / 2, rules / 2);
    }
}

/// The socket is closed before the lease is given up, so that the next holder can bind.
fn end(running: &mut Option<Running>) {
    if let Some(running) = running.take() {
        running
            .driver
            .shutdown(Duration::from_millis(LEAVE_PATIENCE_MS));
    }
}

/// The peers that the sources of the driver before this one had named, as far as it posted them.
fn known<M: Mem>(lead: &Zone<M>) -> PeerSet {
    let Posted::Text(text) = lead.board().read(lead.head()) else {
        return PeerSet::new();
    };
    let state: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
    let peers = state["peers"].as_array().into_iter().flatten();
    let named = peers.filter(|peer| peer["configured"] == true);
    named
        .filter_map(|peer| peer["address"].as_str()?.parse().ok())
        .collect()
}

/// The sources that the settings name. Those that have to ask somebody begin with the peers that
/// are known: the worker that ran gossip before may have learned them when there was an answer.
fn discovery(settings: &Settings, bind: SocketAddr, known: PeerSet) -> Box<dyn PeerDiscovery> {
    let mut sources: Vec<Box<dyn PeerDiscovery>> = Vec::new();
    if let Some((watched, place, most)) = settings.kubernetes.wanted() {
        let pods = KubernetesPeers::new(watched, place, bind, settings.self_addr);
        sources.push(Box::new(pods.capacity(most)));
    }
    if let Some((name, port)) = &settings.dns {
        sources.push(Box::new(DnsPeers::new(name.clone(), *port)));
    }
    if let Some(path) = &settings.peers_file {
        sources.push(Box::new(FilePeers::new(path.clone())));
    }
    let known = if sources.is_empty() {
        PeerSet::new()
    } else {
        known
    };
    if !settings.peers.is_empty() || sources.is_empty() {
        sources.push(Box::new(StaticPeers::new(settings.peers.iter().copied())));
    }
    Box::new(MergedPeers::new(sources).remembering(known))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zone::{words_before_table, Kept};
    use futures_util::stream::StreamExt;
    use gabion_admit::Plan;
    use gabion_rule::{Algorithm, CounterIdentity, Sliding};
    use gabion_table::{RawMem, Table};
    use std::cell::{Cell, RefCell};
    use std::time::Instant;

    fn part(name: u8) -> Part<RawMem> {
        let sub = SubSpec {
            identity: CounterIdentity([name; 16]),
            plan: Plan::new(&Algorithm::Window {
                limit: 5,
                window_ns: 1_000_000_000,
                bucket_ns: 1_000_000_000,
                sliding: Sliding::Live,
            }),
            cardinality: None,
        };
        let kept = Kept {
            incarnation: 11,
            node: 12,
            offset_ns: 0,
            secret: [0; 16],
            session: u32::from(name),
        };
        let head = RawMem::private(words_before_table(1, 0) * 8).unwrap();
        let table = Table::private(1 << 16, std::slice::from_ref(&sub)).unwrap();
        let limiter = LimiterSpec {
            short: sub.identity.short(),
            digest: 1,
            epoch_ns: sub.plan.epoch_ns(),
            live_epochs: sub.plan.live_epochs(),
            limit: 5,
            error_budget_ppm: 1_000,
        };
        Part {
            zone: Arc::new(Zone::format(head, table, 1, &kept)),
            names: vec![format!("rule {name}")],
            subs: vec![sub],
            limiters: vec![limiter],
            order_names: vec![Names::default()],
        }
    }

    #[test]
    fn case_49_a_panic_costs_the_lease_and_is_followed_by_another_attempt() {
        let leader = Leader {
            parts: vec![part(3), part(8)],
            pid: 77,
            me: 5,
        };
        let mut settings = Settings::default();
        let place = gabion_rule::Place::new("nginx.conf", 1, 1);
        let taken = settings.apply("gabion_gossip_bind", &["127.0.0.1:0"], place);
        assert_eq!(taken, Ok(()));
        let (stop, said, looks) = (Stop::default(), RefCell::new(Vec::new()), Cell::new(0));
        let zone = Arc::clone(&leader.parts[0].zone);
        let began = Instant::now();
        let leaving = || {
            looks.set(looks.get() + 1);
            if looks.get() == 2 {
                assert_eq!(zone.leader().0, 77, "it held the lease");
                panic!("planted by this test");
            }
            let posted = zone.board().read(zone.head());
            let again = matches!(posted, Posted::Text(text) if text.contains("\"session\":10"));
            if again || began.elapsed() > Duration::from_secs(20) {
                stop.ask();
            }
            false
        };
        leader.run(&settings, &stop, &leaving, &|what| {
            said.borrow_mut().push(match what {
                Say::Notice(text) => (*text).to_owned(),
                Say::Failure(text) => format!("failure: {text}"),
            });
        });
        let said = said.into_inner();
        let failed = said.iter().filter(|line| line.starts_with("failure: "));
        assert_eq!(failed.count(), 1, "{said:?}");
        let took = said.iter().filter(|line| line.contains("runs gossip"));
        assert_eq!(took.count(), 2, "{said:?}");
        // The second driver, above the highest session of both zones.
        assert_eq!(leader.parts[1].zone.kept().session, 10);
        assert_eq!(zone.leader().0, 0, "at the end the lease is given up");
    }
    #[test]
    fn the_next_worker_begins_with_the_peers_of_the_last_one() {
        let lead = part(3);
        let zone = &lead.zone;
        assert_eq!(known(zone), PeerSet::new(), "nothing was ever posted");
        let post = |text: &str| assert!(zone.board().post(zone.head(), text));
        post("{");
        assert_eq!(known(zone), PeerSet::new(), "no state");
        post(
            r#"{"peers": [
                {"address": "10.0.0.2:7946", "configured": true, "up": false},
                {"address": "10.0.0.3:7946", "configured": false, "up": true},
                {"address": "[fd00::4]:7946", "configured": true, "up": true}]}"#,
        );
        let named: PeerSet = ["10.0.0.2:7946", "[fd00::4]:7946"]
            .map(|a| a.parse().unwrap())
            .into();
        assert_eq!(
            known(zone),
            named,
            "who came by itself comes again by itself"
        );

        // The file is not there yet; who is in the list is known anyway.
        let mut settings = Settings::default();
        let place = gabion_rule::Place::new("nginx.conf", 1, 1);
        let gone = std::env::temp_dir().join(format!("gabion-none-{}", std::process::id()));
        let gone = gone.display().to_string();
        for (name, value) in [
            ("gabion_peers_file", &*gone),
            ("gabion_peers", "10.0.0.9:7946"),
        ] {
            assert_eq!(settings.apply(name, &[value], place.clone()), Ok(()));
        }
        let bind: SocketAddr = "127.0.0.1:1".parse().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_all().build().unwrap();
        let all = runtime.block_on(async {
            let mut sets = discovery(&settings, bind, named.clone()).peers();
            assert_eq!(sets.next().await, Some(named.clone()));
            sets.next().await
        });
        let listed: PeerSet = ["10.0.0.9:7946".parse().unwrap()].into();
        assert_eq!(all, Some(&named | &listed));
    }
}
