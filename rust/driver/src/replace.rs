//! Other rules and another table for a running driver.
//!
//! I own what is said between whoever reloads a configuration and the gossip thread. I promise that
//! the thread, the socket, discovery and the identity of this member stay: only the node and the
//! pump are made anew, under a higher session, over what is given. Nothing is said to the peers;
//! for them it is as if the link had been silent for a moment.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{mpsc, Arc};
use std::time::Duration;

use gabion_discovery::PeerDiscovery;
use gabion_node::LimiterSpec;
use gabion_table::SubSpec;
use gabion_wire::KeyRing;

/// What a driver goes on with.
pub struct Next<T> {
    /// The counters.
    pub table: Arc<T>,
    /// In the order of the table's rules.
    pub rules: Vec<SubSpec>,
    /// In the order of the table's rules.
    pub limiters: Vec<LimiterSpec>,
    /// As in [`crate::DriverConfig`].
    pub rule_names: Vec<String>,
    /// Keys; `None`: frames are neither signed nor required to be.
    pub keys: Option<KeyRing>,
    /// The node's tunables.
    pub node_tunables: gabion_node::Tunables,
    /// As in [`crate::DriverConfig`].
    pub members_hint: u32,
    /// Who the peers are; `None`: discovery goes on as it is.
    pub discovery: Option<Box<dyn PeerDiscovery>>,
}

/// Takes a driver from one table to another, in two steps, so that nobody writes to the old one
/// while its counts are carried.
pub struct Replacer<T> {
    pub(crate) pause: Arc<AtomicBool>,
    pub(crate) paused: mpsc::Receiver<()>,
    pub(crate) next: mpsc::Sender<Option<Box<Next<T>>>>,
}

impl<T> Replacer<T> {
    /// Sends what is due and lets go of the table. Waits at most `patience`; returns whether the
    /// driver rests. To be followed by [`Replacer::resume`] in any case.
    pub fn pause(&self, patience: Duration) -> bool {
        // Answers of an earlier pause that came too late.
        while self.paused.try_recv().is_ok() {}
        // Relaxed: what the driver wrote to the table is atomic, and the answer orders the rest.
        self.pause.store(true, Ordering::Relaxed);
        self.paused.recv_timeout(patience).is_ok()
    }

    /// Goes on, with something else or as before.
    pub fn resume(&self, next: Option<Next<T>>) {
        // Gone: the driver has ended, and needs nothing.
        let _ = self.next.send(next.map(Box::new));
    }
}

/// The driver's end of it.
pub(crate) struct Replaced<T> {
    pub(crate) pause: Arc<AtomicBool>,
    pub(crate) paused: mpsc::Sender<()>,
    pub(crate) next: mpsc::Receiver<Option<Box<Next<T>>>>,
}

/// What a pause ended with.
pub(crate) enum Rest<T> {
    /// Go on with this.
    With(Box<Next<T>>),
    /// Go on as before.
    AsBefore,
    /// End.
    Stop,
}

/// How often a resting driver looks whether it has to end.
const LOOK_EVERY: Duration = Duration::from_millis(5);

impl<T> Replaced<T> {
    /// Rests until there is something to go on with.
    pub(crate) fn rest(&self, stopped: impl Fn() -> bool) -> Rest<T> {
        let _ = self.paused.send(()); // nobody waits any more: the answer comes all the same
        let rest = loop {
            match self.next.recv_timeout(LOOK_EVERY) {
                Ok(Some(next)) => break Rest::With(next),
                Ok(None) | Err(mpsc::RecvTimeoutError::Disconnected) => break Rest::AsBefore,
                Err(mpsc::RecvTimeoutError::Timeout) if stopped() => break Rest::Stop,
                Err(mpsc::RecvTimeoutError::Timeout) => {}
            }
        };
        self.pause.store(false, Ordering::Relaxed);
        rest
    }
}

/// Both ends.
pub(crate) fn pair<T>() -> (Replacer<T>, Replaced<T>) {
    let pause = Arc::new(AtomicBool::new(false));
    let (paused, answers) = mpsc::channel();
    let (next, nexts) = mpsc::channel();
    let replacer = Replacer {
        pause: Arc::clone(&pause),
        paused: answers,
        next,
    };
    let replaced = Replaced {
        pause,
        paused,
        next: nexts,
    };
    (replacer, replaced)
}
