//! Every bound and tunable of this room, in one place, units last.

/// At most this many buckets of one window count, the current one included (SEMANTICS 2).
pub const BUCKETS_MAX: u64 = 64;

/// At most this many *closed* buckets count: `strict` and `weighted` count one more than the window
/// has.
pub const CLOSED_BUCKETS_MAX: usize = 64;

/// A fold of remote hits may push a token bucket's debt this far past its depth. It is the bound on
/// staleness: less over-admits under load, more denies longer after a partition heals.
pub const FOLD_SLACK_NS: u64 = 20_000_000;

/// A token bucket counts at most 2^this ticks for one hit.
pub const TICK_SHIFT_MAX: u32 = 10;

/// Ticks are this many bits of a nanosecond at the finest: 2 = a quarter.
pub const TICK_FINEST_SHIFT: u32 = 2;

/// Slices of `paced` are at least 2^this nanoseconds (2 ms).
pub const SLICE_SHIFT_MIN: u8 = 21;

/// Slices of `paced` are at most 2^this nanoseconds (1.07 s).
pub const SLICE_SHIFT_MAX: u8 = 30;

/// The second, in nanoseconds.
pub const SECOND_NS: u64 = 1_000_000_000;

/// Longest header value that is made.
pub const HEADER_BYTES_MAX: usize = 1_280;
