//! Every bound and interval of this room, with its unit in its name.
//!
//! I own the numbers. I promise that no other file of the room hides one. I never change at run
//! time.

/// Peers one set may hold; more are cut off, lowest addresses first, and reported.
pub const MAX_PEERS: usize = 4096;
/// Bytes a peer file may have.
pub const MAX_FILE_BYTES: u64 = 1 << 20;
/// Pause between two looks at a peer file.
pub const FILE_POLL_MS: u64 = 1_000;
/// Pause between two looks at a peer file that has just changed.
pub const FILE_SETTLE_MS: u64 = 250;
/// How long a file that looks unfinished (no address in it, or no newline at its end) must stay as
/// it is before it is believed.
pub const FILE_UNFINISHED_MS: u64 = 3_000;
/// Shortest pause between two resolutions of a name, whatever its time to live.
pub const DNS_MIN_REFRESH_MS: u64 = 1_000;
/// Longest pause between two resolutions of a name, whatever its time to live.
pub const DNS_MAX_REFRESH_MS: u64 = 60_000;
/// First pause after a failed resolution; it doubles up to [`DNS_MAX_RETRY_MS`].
pub const DNS_MIN_RETRY_MS: u64 = 1_000;
/// Longest pause after a failed resolution.
pub const DNS_MAX_RETRY_MS: u64 = 5_000;
/// How long a name that had addresses must be answered with nothing before the peers are given up.
pub const DNS_NEGATIVE_GRACE_MS: u64 = 30_000;
/// Time one query to one name server may take.
pub const DNS_QUERY_TIMEOUT_MS: u64 = 2_000;
/// Time one resolution, all servers and both families, may take.
pub const DNS_RESOLVE_TIMEOUT_MS: u64 = 10_000;
/// How long an unchanged problem is not reported again.
pub const REPORT_AGAIN_MS: u64 = 60_000;
