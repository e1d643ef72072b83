//! Every bound and tunable of this room, with its unit in its name.

/// Dirty rows moved into the node in one turn.
pub const DIRTY_ROWS_PER_TURN: usize = 2_048;
/// Effects taken from the node in one turn.
pub const EFFECTS_PER_TURN: usize = 4_096;
/// Rows the scrub visits in one turn at most (also the speed of the first pass after a start).
pub const SCRUB_ROWS_PER_TURN: usize = 2_048;
/// A whole pass of the scrub takes at most this long.
pub const SCRUB_PERIOD_NS: u64 = 60_000_000_000;
/// Rows of a table carry this many bits of the epoch.
pub const EPOCH_BITS: u32 = 22;
/// The scrub passes a table at least this many times per epoch wrap ("well within a quarter").
pub const SCRUB_PASSES_PER_WRAP: u64 = 8;
/// Pause after a turn that moved something.
pub const PAUSE_BUSY_NS: u64 = 1_000_000;
/// Shortest pause, in a burst of urgent news.
pub const PAUSE_BURST_NS: u64 = 200_000;
/// Longest pause at rest.
pub const PAUSE_IDLE_MAX_NS: u64 = 10_000_000;
/// Bases kept at once (about 64 B each).
pub const BASES_MAX: usize = 65_536;
/// Remote totals kept for an epoch that has not begun here (about 40 B each).
pub const EARLY_MAX: usize = 65_536;
/// Effects handed on to the driver that wait for it; beyond, they wait in the node.
pub const HANDED_ON_MAX: usize = 256;

/// Who is there is looked at this often.
pub const CROWD_EVERY_NS: u64 = 50_000_000;

/// Cluster time that moves against monotonic time by more than this between two turns was set.
pub const CLOCK_JUMP_NS: u64 = 200_000_000;

/// The tunables of a [`crate::Pump`]; `Default` is what production uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunables {
    /// See [`DIRTY_ROWS_PER_TURN`].
    pub dirty_rows_per_turn: usize,
    /// See [`EFFECTS_PER_TURN`].
    pub effects_per_turn: usize,
    /// See [`SCRUB_ROWS_PER_TURN`].
    pub scrub_rows_per_turn: usize,
    /// See [`SCRUB_PERIOD_NS`].
    pub scrub_period_ns: u64,
    /// See [`PAUSE_BUSY_NS`].
    pub pause_busy_ns: u64,
    /// See [`PAUSE_IDLE_MAX_NS`].
    pub pause_idle_max_ns: u64,
    /// See [`BASES_MAX`].
    pub bases_max: usize,
    /// See [`EARLY_MAX`].
    pub early_max: usize,
}

impl Default for Tunables {
    fn default() -> Self {
        Tunables {
            dirty_rows_per_turn: DIRTY_ROWS_PER_TURN,
            effects_per_turn: EFFECTS_PER_TURN,
            scrub_rows_per_turn: SCRUB_ROWS_PER_TURN,
            scrub_period_ns: SCRUB_PERIOD_NS,
            pause_busy_ns: PAUSE_BUSY_NS,
            pause_idle_max_ns: PAUSE_IDLE_MAX_NS,
            bases_max: BASES_MAX,
            early_max: EARLY_MAX,
        }
    }
}
