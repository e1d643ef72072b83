//! What the driver counts, and the snapshot of it that others read.

use std::net::SocketAddr;

use gabion_discovery::HealthView;
use gabion_node::{Bounds, NodeStats, PeerView, RuleBound};
use gabion_pump::PumpStats;

use crate::view::RuleNames;

/// Counters of the loop and its socket. All only rise, over restarts of the loop too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriverStats {
    /// Turns of the loop.
    pub turns: u64,
    /// Datagrams received.
    pub received: u64,
    /// Bytes in them.
    pub received_bytes: u64,
    /// Frames sent.
    pub sent: u64,
    /// Bytes in them.
    pub sent_bytes: u64,
    /// Frames given up because of one peer's address or route.
    pub send_errors: u64,
    /// Times the kernel's send buffer was full; the frame was kept and sent later.
    pub send_waits: u64,
    /// Receive errors that concerned one peer.
    pub receive_errors: u64,
    /// Times the socket was given up.
    pub socket_faults: u64,
    /// Attempts to bind that failed.
    pub bind_failures: u64,
    /// Sockets bound, the first included.
    pub binds: u64,
    /// Peer sets taken from discovery.
    pub peer_sets: u64,
    /// Times discovery ended or failed for good; the last peer set stays in force.
    pub discovery_ended: u64,
    /// Times the loop panicked and was started again with a higher session.
    pub restarts: u64,
    /// Operator events that were logged.
    pub notes: u64,
}

/// The driver as it was when the snapshot was taken (at most about 200 ms ago while it runs).
#[derive(Clone, Debug)]
pub struct DriverSnapshot {
    /// Node id.
    pub node: u64,
    /// Incarnation.
    pub incarnation: u64,
    /// Session.
    pub session: u32,
    /// Address of the socket; `None` while there is none.
    pub local_addr: Option<SocketAddr>,
    /// The address that is wanted, while another one stands in for it since it is taken.
    pub stands_in_for: Option<SocketAddr>,
    /// What the limiters are called, in their order.
    pub rules: RuleNames,
    /// Granted receive and send buffer in bytes.
    pub socket_buffers: (usize, usize),
    /// Members that discovery named, this one left out; `None` before the first answer.
    pub discovered: Option<usize>,
    /// What the sources of peers say of themselves.
    pub sources: Vec<HealthView>,
    /// What is known of each peer.
    pub peers: Vec<PeerView>,
    /// The over-admission bound and the staleness of each limiter.
    pub bounds: Bounds,
    /// Counters of the protocol machine.
    pub node_stats: NodeStats,
    /// Counters of the pump.
    pub pump_stats: PumpStats,
    /// Counters of the loop.
    pub stats: DriverStats,
    /// Correction of the cluster clock that is in force, nanoseconds.
    pub clock_correction_ns: i64,
    /// Monotonic time at which this was taken.
    pub taken_mono_ns: u64,
    /// False once the driver's thread has ended.
    pub running: bool,
}

impl DriverSnapshot {
    /// What holds for the limiter at `index`; `None` while nothing was stated, or when the limiter
    /// there has other numbers than `digest` says: a reload is on its way.
    pub fn bound(&self, index: usize, digest: u64) -> Option<&RuleBound> {
        let same = self.rules.get(index)?.digest == digest;
        self.bounds.rules.get(index).filter(|_| same)
    }
}
