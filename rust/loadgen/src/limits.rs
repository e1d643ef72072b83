//! Every bound and tunable of the load generator, with units in the names.
//!
//! Owns: the numbers. Promises: each queue, table and report in this room is bounded by one of
//! them. Never: decides anything.

/// Highest offered rate, requests per second. One process on two cores saturates far below it.
pub const MAX_RATE_PER_S: f64 = 1_000_000.0;
/// Longest run, in seconds.
pub const MAX_DURATION_S: f64 = 86_400.0;
/// Most requests in flight at once, over all targets.
pub const MAX_CONCURRENCY: usize = 65_536;
/// Requests in flight at once when none is given.
pub const DEFAULT_CONCURRENCY: usize = 256;
/// Arrivals that may wait for a free slot; what comes beyond is reported as `unsent`.
pub const MAX_WAITING: usize = 65_536;
/// A request sent this much after its scheduled time counts as late (it is still measured from the
/// scheduled time).
pub const LATE_NS: u64 = 5_000_000;
/// Most targets of one run.
pub const MAX_TARGETS: usize = 256;
/// Most weight one target can have.
pub const MAX_WEIGHT: u32 = 1_000;
/// Most different keys a Zipf mix draws from: its table holds 8 bytes for each.
pub const MAX_ZIPF_KEYS: u64 = 4_194_304;
/// Most tenants of a mix.
pub const MAX_TENANTS: usize = 4_096;
/// Most descriptors of one request.
pub const MAX_DESCRIPTORS: usize = 32;
/// Most kinds of error kept apart in a report; the rest is counted as `other`.
pub const MAX_ERROR_KINDS: usize = 32;
/// How long one request may take, when no other time is given.
pub const DEFAULT_TIMEOUT_MS: u64 = 5_000;
/// Longest latency a histogram tells apart; longer ones are counted as this.
pub const MAX_LATENCY_NS: u64 = 120_000_000_000;
/// Significant decimal digits of the latency histograms.
pub const HISTOGRAM_DIGITS: u8 = 3;
/// Time between two progress lines on a terminal.
pub const PROGRESS_TTY_MS: u64 = 200;
/// Time between two progress lines in a log.
pub const PROGRESS_LOG_MS: u64 = 2_000;
/// Most HTTP/2 connections per gRPC target.
pub const MAX_CONNECTIONS: usize = 64;
/// Largest response body that is read; a larger one is an error of its own kind.
pub const MAX_BODY_BYTES: usize = 1 << 20;
