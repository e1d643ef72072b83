//! Every bound of the suite, with units in the names.

use std::time::Duration;

/// Longest time that one scenario may take.
pub const SCENARIO_S_MAX: u64 = 300;
/// How long a program of the control plane may take to start.
pub const PLANE_START: Duration = Duration::from_secs(90);
/// How long an API server that is told to end has for the watches that are open.
pub const WATCHES_CUT: Duration = Duration::from_secs(3);
/// How long anything else may take before the scenario is given up.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Pause between two looks at the API or at a member.
pub const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Lines of a member's log that an error shows.
pub const LOG_LINES: usize = 12;
/// How often a node's lease is renewed.
pub const LEASE_EVERY: Duration = Duration::from_secs(2);
/// Without a lease for this long a node is unknown, and its pods are not ready.
pub const NODE_GRACE_S: u64 = 8;
/// Least life of a pod's token that the API grants.
pub const TOKEN_S: u64 = 600;
/// A member's heartbeat.
pub const HEARTBEAT: Duration = Duration::from_millis(500);

/// From the slice that names a new pod until it is every other member's peer.
pub const PEER_MS_MAX: u64 = 1_000;
/// From the slice that no longer names a pod until nobody sends to it.
pub const SILENT_MS_MAX: u64 = 2_000;
/// From the peer until counts are everywhere: two heartbeats.
pub const CONVERGED_MS_MAX: u64 = 1_000;
/// What discovery may cost with a thousand endpoints, resident.
pub const DISCOVERY_BYTES_MAX: u64 = 20 << 20;
/// The same in time of one core at rest, parts per thousand.
pub const DISCOVERY_CORE_PER_MILLE_MAX: u64 = 10;

/// How long the API server is away.
pub const API_AWAY: Duration = Duration::from_secs(60);
/// From an API, a role or a Service that is back until all are peers again: members wait longer and
/// longer between their tries, up to 15 s.
pub const BACK_MS_MAX: u64 = 25_000;
/// Endpoints of strangers in the scenario of many.
pub const STRANGERS: usize = 1_000;
/// For how long members are at rest there.
pub const REST: Duration = Duration::from_secs(6);
