//! Every bound and tunable of the table, in one place, units last.

/// Private tables of at least this many bytes ask for huge pages.
pub const HUGE_FROM_BYTES: usize = 32 << 20;

/// Sub-tables of at least this many rows hardly fit a cache.
pub const LARGE_FROM_ROWS: usize = 1 << 17;

/// Rules a table can hold.
pub const RULES_MAX: usize = 4096;

/// Ways of a set.
pub const WAYS: usize = 16;

/// Sets of one sub-table at most (rows are named by 32 bits).
pub const SETS_MAX: u64 = 1 << 27;

/// Slots for a declared cardinality: this many percent of it, so that two choices of sixteen ways
/// hardly ever overflow.
pub const SLOTS_PERCENT: u64 = 125;

/// A newcomer takes its second set only when the first has this many rows, per 16 ways.
pub const FIRST_SET_FILL_WAYS: usize = 12;

/// A window of this limit is *open*: its charges bring their own limits, and its rows are
/// ranked without one. spec: adm-30
pub const OPEN_LIMIT: u32 = u32::MAX;

/// A claim older than this belongs to somebody who was killed or stopped.
pub const CLAIM_STALE_NS: u64 = 2_000_000_000;

/// Nanoseconds per unit of a claim's stamp, as a shift (about a millisecond).
pub const STAMP_SHIFT: u32 = 20;

/// Attempts to get a row before the hits are admitted uncounted (each failed one is another's
/// progress).
pub const CLAIM_ATTEMPTS_MAX: usize = 64;

/// A head that is ahead of now by at most this many epochs ...
pub const HEAD_AHEAD_EPOCHS_MIN: u64 = 2;

/// ... or by at most this is what somebody wrote while this caller stood still, or by a faster
/// clock: it counts. Further ahead it is void.
pub const HEAD_AHEAD_NS: u64 = 2_000_000_000;

/// Remote totals are taken up to this many epochs ahead of now ...
pub const REMOTE_AHEAD_EPOCHS_MAX: i64 = 2;

/// ... but of token buckets, whose epochs are a second at least.
pub const REMOTE_AHEAD_EPOCHS_GCRA_MAX: i64 = 1;

/// Remote totals of an epoch are kept this long past its last use.
pub const REMOTE_GRACE_EPOCHS: i64 = 1;

/// Requests of at least limit / this many hits pass the doorkeeper.
pub const DOORKEEPER_SHARE: u32 = 8;

/// Closed buckets that a dirty row still exports: as many as began in this time.
pub const EXPORT_LOOKBACK_NS: u64 = 25_000_000;

/// New counters of a strict rule know a window that begins this long after them: clocks that are
/// less apart are not stepped.
pub const CLOCK_SLACK_NS: u64 = 250_000_000;

/// Charges of one decision that are looked at; the rest is let through as an unknown rule.
pub const CHARGES_MAX: usize = 255;

/// Times after this cannot be real (year 2262).
pub const NOW_MAX_NS: u64 = 1 << 63;

/// A word further than this many epochs behind now is cleared by the scrub: a quarter of the period
/// of the 22-bit epoch.
pub const SCRUB_AGE_EPOCHS: i64 = 1 << 20;

/// Rows that a walk over an old table looks at between two pauses.
pub const CARRY_ROWS_PER_PAUSE: usize = 256;
