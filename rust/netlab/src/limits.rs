//! Every bound of this room, with units in the names.

use std::time::Duration;

/// Most members of one lab: their addresses are one `/24`.
pub const MEMBERS_MAX: usize = 32;
/// Longest time that one scenario may take.
pub const SCENARIO_S_MAX: u64 = 240;
/// How long a start, a meeting or a convergence may take before the scenario is given up.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// Workers of an nginx member.
pub const NGINX_WORKERS: usize = 2;
/// Pause between two looks at a condition.
pub const LOOK_EVERY: Duration = Duration::from_millis(5);
/// How long one call may take.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// Resident memory that a member may reach: table (8 MiB), cells, connections and the program.
pub const MEMBER_RSS_BYTES_MAX: u64 = 128 << 20;
/// Room that a day must still have when a scenario with daily limits starts, seconds.
pub const DAY_ROOM_S: u64 = 180;
/// Frames that wait in one direction of a relayed link; more are dropped and counted.
pub const RELAY_QUEUE_FRAMES: usize = 4_096;
/// Frames that a relayed link keeps for replaying, per direction.
pub const RELAY_CAPTURE_FRAMES: usize = 256;
/// Over-admission that is stated for a limit that members share, parts per thousand of it; at least
/// one hit for each member.
pub const OVER_PER_MILLE: u64 = 10;
/// Longest time from the end of a cut until all members show the same counts.
pub const HEAL_MAX: Duration = Duration::from_secs(10);
/// Datagrams per second of the storm of garbage.
pub const STORM_PER_S: u64 = 50_000;
/// How long the storm lasts.
pub const STORM: Duration = Duration::from_secs(5);
/// Bytes per second and direction of a link that has nothing to say (UDP payload).
pub const IDLE_BYTES_PER_S_MAX: u64 = 200;
