//! The driver's thread and the handle to it.
//!
//! I own the thread, its runtime, the supervision of the loop and the shared view of it. I promise
//! that a panic inside the loop neither reaches the caller nor ends gossip: the loop starts again
//! with a higher session. I never decide a request, and deciders never wait for me.

use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{mpsc, Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::{FutureExt as _, StreamExt as _};
use gabion_discovery::{PeerDiscovery, PeerSet};
use gabion_node::{LimiterSpec, Reach};
use gabion_pump::Counters;
use gabion_rule::Share;
use gabion_table::SubSpec;
use gabion_wire::KeyRing;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{oneshot, watch};

use crate::clock::{monotonic_ns, ClusterClock, Steering};
use crate::error::DriverError;
use crate::limits::{ORDERS_WAITING, RESTART_MAX_NS, RESTART_MIN_NS};
use crate::machine::Machine;
use crate::orders::{Command, Desk, OrderError, Registers, StandingOrders};
use crate::replace::{pair, Replaced, Replacer, Rest};
use crate::socket::{Binder, UdpBinder};
use crate::stats::{DriverSnapshot, DriverStats};
use crate::turn::{End, Lasting, Loop};

/// Everything a driver is made from, but the table.
pub struct DriverConfig {
    /// Where the one socket is bound. Port 0: the kernel's choice, kept over re-binds.
    pub bind: SocketAddr,
    /// This member's address as peers see it, if discovery names it and it is not `bind`.
    pub self_addr: Option<SocketAddr>,
    /// Node id; never 0.
    pub node: u64,
    /// Random; lives with the counters' memory.
    pub incarnation: u64,
    /// Higher after each take-over of that memory.
    pub session: u32,
    /// Cluster tag ([`crate::ClusterId::tag`]).
    pub cluster: u32,
    /// Keys; `None`: frames are neither signed nor required to be.
    pub keys: Option<KeyRing>,
    /// What the rules are called, in their order, for people; may be left empty.
    pub rule_names: Vec<String>,
    /// Who the peers are.
    pub discovery: Box<dyn PeerDiscovery>,
    /// Members that the cluster is expected to have while no peer is known yet; 0 counts as 1.
    pub members_hint: u32,
    /// The node's tunables.
    pub node_tunables: gabion_node::Tunables,
    /// The pump's tunables.
    pub pump_tunables: gabion_pump::Tunables,
    /// Reproduces a run; `None` draws from the system, as production should.
    pub rng_seed: Option<u64>,
    /// The clock that deciders read; the driver alone steers it.
    pub clock: Arc<ClusterClock>,
    /// Told whenever the clock's offset changed, nanoseconds (nginx keeps it in its zone).
    pub on_offset: Option<Box<dyn Fn(i64) + Send>>,
    /// What operators ordered before, and who is told of orders.
    pub orders: StandingOrders,
}

/// What the loop and its readers share.
pub(crate) struct Shared {
    pub(crate) snapshot: ArcSwap<DriverSnapshot>,
    pub(crate) registers: ArcSwap<Registers>,
    pub(crate) turns: AtomicU64,
}

/// A running driver. Dropping it asks the thread to end, and does not wait.
pub struct DriverHandle {
    shared: Arc<Shared>,
    clock: Arc<ClusterClock>,
    stop: watch::Sender<bool>,
    commands: tokio::sync::mpsc::Sender<Command>,
    ended: Mutex<mpsc::Receiver<()>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl DriverHandle {
    /// The driver as it was at most about 200 ms ago.
    pub fn snapshot(&self) -> Arc<DriverSnapshot> {
        self.shared.snapshot.load_full()
    }

    /// Raises the reset era of a limiter (`gabion_rule::limiter_name`) on all members; gives the
    /// new one. This member's deciders have it then.
    ///
    /// # Errors
    /// [`OrderError`]; nothing changed.
    pub async fn raise_era(&self, limiter: u64) -> Result<u32, OrderError> {
        let (answer, answered) = oneshot::channel();
        self.ask(Command::Raise { limiter, answer }).await?;
        answered.await.unwrap_or(Err(OrderError::NotRunning))
    }

    /// Sets a flag (`gabion_rule::flag_name`); `None`: back to its declared default. Says whether
    /// that holds on all members or, since gossip has no keys, on this one only.
    ///
    /// # Errors
    /// [`OrderError`]; nothing changed.
    pub async fn set_flag(&self, flag: u64, share: Option<Share>) -> Result<Reach, OrderError> {
        let (answer, answered) = oneshot::channel();
        let command = Command::Set {
            flag,
            share,
            answer,
        };
        self.ask(command).await?;
        answered.await.unwrap_or(Err(OrderError::NotRunning))
    }

    async fn ask(&self, command: Command) -> Result<(), OrderError> {
        let sent = self.commands.send(command).await;
        sent.map_err(|_| OrderError::NotRunning)
    }

    /// The eras and flags that are in force on this member.
    pub fn registers(&self) -> Arc<Registers> {
        self.shared.registers.load_full()
    }

    /// The address of the socket; `None` while there is none (taken port, failed interface).
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.shared.snapshot.load().local_addr
    }

    /// The cluster clock.
    pub fn clock(&self) -> Arc<ClusterClock> {
        Arc::clone(&self.clock)
    }

    /// Turns of the loop so far; it rises as long as the loop lives.
    pub fn turns(&self) -> u64 {
        self.shared.turns.load(Ordering::Relaxed) // a statistic; orders nothing
    }

    /// Whether the thread still runs.
    pub fn is_running(&self) -> bool {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Says goodbye to the peers and ends the thread. Waits at most `patience`; returns whether
    /// the thread has ended. May be called again.
    pub fn shutdown(&self, patience: Duration) -> bool {
        self.stop.send_replace(true);
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        // Disconnected means ended, too: the sender dies with the thread.
        if let Err(mpsc::RecvTimeoutError::Timeout) = ended.recv_timeout(patience) {
            return false;
        }
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(thread) = thread {
            let _ = thread.join(); // panics were caught and counted inside
        }
        true
    }
}

impl Drop for DriverHandle {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}

/// Starts a driver on its own thread. A socket that cannot be bound is no error: the loop says so,
/// and tries again.
///
/// `rules` and `limiters` are in the order of the table's rules.
///
/// # Errors
/// [`DriverError`] when the system gives no thread or event loop; nothing was started then.
pub fn spawn<T: Counters + Send + Sync + 'static>(
    config: DriverConfig,
    table: Arc<T>,
    rules: Vec<SubSpec>,
    limiters: Vec<LimiterSpec>,
) -> Result<DriverHandle, DriverError> {
    spawn_with(config, table, rules, limiters, UdpBinder).map(|(handle, _replacer)| handle)
}

/// As [`spawn`], with the means to give the driver another table later.
///
/// # Errors
/// As [`spawn`].
pub fn spawn_replaceable<T: Counters + Send + Sync + 'static>(
    config: DriverConfig,
    table: Arc<T>,
    rules: Vec<SubSpec>,
    limiters: Vec<LimiterSpec>,
) -> Result<(DriverHandle, Replacer<T>), DriverError> {
    spawn_with(config, table, rules, limiters, UdpBinder)
}

pub(crate) fn spawn_with<T: Counters + Send + Sync + 'static, B: Binder>(
    config: DriverConfig,
    table: Arc<T>,
    rules: Vec<SubSpec>,
    limiters: Vec<LimiterSpec>,
    binder: B,
) -> Result<(DriverHandle, Replacer<T>), DriverError> {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(DriverError::Runtime)?;
    let (stop, stopped) = watch::channel(false);
    let (commands, orders) = tokio::sync::mpsc::channel(ORDERS_WAITING);
    let (ending, ended) = mpsc::channel();
    let clock = Arc::clone(&config.clock);
    let mut config = config;
    let known = std::mem::take(&mut config.orders.kept);
    let machine = Machine::new(config, rules, limiters);
    let shared = Arc::new(Shared {
        snapshot: ArcSwap::from_pointee(machine.first_snapshot()),
        registers: ArcSwap::from_pointee(known),
        turns: AtomicU64::new(0),
    });
    let lasting = Lasting {
        binder,
        steering: Steering::new(clock.offset_ns(), monotonic_ns()),
        stats: DriverStats::default(),
        bound: None,
        port: None,
        desk: Desk::new(orders),
    };
    let (replacer, replaced) = pair();
    let supervisor = Supervisor {
        replaced,
        table,
        machine,
        lasting,
        shared: Arc::clone(&shared),
        stopped,
    };
    let thread = std::thread::Builder::new()
        .name("gabion-gossip".to_owned())
        .spawn(move || {
            let _ending: mpsc::Sender<()> = ending; // dropped last: says that the thread ended
            supervisor.run(&runtime);
        })
        .map_err(DriverError::Thread)?;
    let handle = DriverHandle {
        shared,
        clock,
        stop,
        commands,
        ended: Mutex::new(ended),
        thread: Mutex::new(Some(thread)),
    };
    Ok((handle, replacer))
}

/// Keeps the loop running until it is told to stop.
struct Supervisor<T: Counters + Send + Sync + 'static, B: Binder> {
    table: Arc<T>,
    machine: Machine,
    lasting: Lasting<B>,
    shared: Arc<Shared>,
    stopped: watch::Receiver<bool>,
    replaced: Replaced<T>,
}

/// The latest peer set, and the task that keeps it so.
struct Discovery {
    peers: watch::Receiver<Option<PeerSet>>,
    task: Option<tokio::task::AbortHandle>,
}

impl Drop for Discovery {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

impl<T: Counters + Send + Sync + 'static, B: Binder> Supervisor<T, B> {
    fn run(mut self, runtime: &Runtime) {
        let mut discovery = self.discover(runtime, None);
        let mut pause_ns = RESTART_MIN_NS;
        loop {
            let started_ns = monotonic_ns();
            match self.live(runtime, discovery.peers.clone()) {
                Some(End::Stopped) => break,
                Some(End::Paused) => {
                    if !self.rest(runtime, &mut discovery) {
                        break;
                    }
                    continue;
                }
                None => {}
            }
            self.lasting.stats.restarts += 1;
            self.machine.next_session();
            if monotonic_ns().saturating_sub(started_ns) > RESTART_MAX_NS {
                pause_ns = RESTART_MIN_NS;
            }
            tracing::error!(
                pause_ms = pause_ns / 1_000_000,
                "gossip failed inside and starts again; decisions go on locally. Please report \
                 this with the panic message above"
            );
            if self.stopped_within(runtime, Duration::from_nanos(pause_ns)) {
                break;
            }
            pause_ns = pause_ns.saturating_mul(2).min(RESTART_MAX_NS);
        }
        let mut last = DriverSnapshot::clone(&self.shared.snapshot.load());
        (last.running, last.local_addr, last.stats) = (false, None, self.lasting.stats);
        self.shared.snapshot.store(Arc::new(last));
    }

    /// Rests, and takes what to go on with; false when it is told to end.
    fn rest(&mut self, runtime: &Runtime, discovery: &mut Discovery) -> bool {
        let stopped = &self.stopped;
        let next = match self.replaced.rest(|| *stopped.borrow()) {
            Rest::Stop => return false,
            Rest::AsBefore => {
                self.machine.next_session();
                return true;
            }
            Rest::With(next) => *next,
        };
        self.table = Arc::clone(&next.table);
        self.machine.replace(next);
        self.machine.next_session();
        if self.machine.discovery.is_some() {
            // Until the new sources have an answer, the peers are those of the old ones.
            let known = discovery.peers.borrow().clone();
            *discovery = self.discover(runtime, known);
        }
        true
    }

    /// One life of the loop; `None` when it ended by a panic.
    fn live(&mut self, runtime: &Runtime, peers: watch::Receiver<Option<PeerSet>>) -> Option<End> {
        // Whatever a panic left half-done is dropped with the loop; counts live in the table.
        let life = AssertUnwindSafe(async {
            let stopped = self.stopped.clone();
            let (table, machine, lasting) = (&*self.table, &self.machine, &mut self.lasting);
            let pause = &*self.replaced.pause;
            Loop::new(table, machine, lasting, &self.shared, peers, stopped)
                .run(pause)
                .await
        });
        runtime.block_on(life.catch_unwind()).ok()
    }

    fn stopped_within(&self, runtime: &Runtime, pause: Duration) -> bool {
        let mut stopped = self.stopped.clone();
        runtime.block_on(async move {
            tokio::time::timeout(pause, stopped.wait_for(|stop| *stop))
                .await
                .is_ok()
        })
    }

    /// Turns discovery's stream into the latest peer set. The stream lives beside the loop, so that
    /// neither a slow answer nor a panic of one stops the other.
    fn discover(&mut self, runtime: &Runtime, known: Option<PeerSet>) -> Discovery {
        let (sender, peers) = watch::channel(known);
        let discovery = self.machine.discovery.take();
        self.machine.sources = discovery.as_ref().map_or_else(Vec::new, |d| d.health());
        let task = discovery.map(|discovery| {
            let following = async move {
                let mut sets = discovery.peers();
                while let Some(set) = sets.next().await {
                    sender.send_replace(Some(set));
                }
            };
            runtime.spawn(following).abort_handle()
        });
        Discovery { peers, task }
    }
}
