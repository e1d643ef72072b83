//! Bounds of this room.

/// Memory of one member's table, unless a run says otherwise, bytes: some 2,000 counters, so that
/// hundreds of members fit in a tab.
pub const TABLE_BYTES: usize = 256 << 10;
/// Longest text of rules, bytes.
pub const RULES_BYTES_MAX: usize = 64 << 10;
/// Longest text of a run or a command, bytes.
pub const RUN_BYTES_MAX: usize = 16 << 20;
/// A burst is spread over this time unless it says otherwise, nanoseconds.
pub const BURST_OVER_NS: u64 = 20_000_000;
