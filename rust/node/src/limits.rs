//! Every bound and tunable of this room, in one place, with its unit in its name.

/// Frames of no proven session that are looked at per second and source; as many at once.
pub const STRANGER_FRAMES_PER_S: u64 = 200;
/// Sources that have budgets of their own; beyond, some share one.
pub const STRANGER_SOURCES: usize = 256;
/// The same for all sources together that are in no peer set: some 10 ms of a core.
pub const UNLISTED_FRAMES_PER_S: u64 = 2_000;
/// One millisecond in nanoseconds.
pub(crate) const MS: u64 = 1_000_000;
/// One second in nanoseconds.
pub(crate) const SECOND: u64 = 1_000 * MS;

/// Records in one segment of the cell store (25 bytes each).
pub(crate) const SEGMENT_CELLS: u32 = 256;
/// Origin chunks in one segment (16 bytes each, two origins).
pub(crate) const SEGMENT_CHUNKS: u32 = 256;
/// Slots of a new index page.
pub(crate) const PAGE_SLOTS_MIN: usize = 64;
/// Slots at which an index page splits instead of growing.
pub(crate) const PAGE_SLOTS_SPLIT: usize = 896;
/// Deepest split of the index directory: 2^20 pages.
pub(crate) const INDEX_DEPTH_MAX: u8 = 20;
/// Epochs ahead of now that are ever accepted, whatever the skew bound. spec: time-5
pub const FUTURE_EPOCHS_MAX: u64 = 2;
/// Epochs behind the live ones that are still accepted and kept. spec: time-5
pub const GRACE_EPOCHS: u64 = 1;
/// Frames that may be unacknowledged on one link. spec: link-8
pub const MAX_IN_FLIGHT: usize = 64;
/// Frames after which an ack is owed at once. spec: link-7
pub const ACK_EVERY_FRAMES: u32 = 32;
/// A frame is lost when this many later ones are acknowledged. spec: link-9
pub(crate) const LOSS_GAP_FRAMES: u64 = 3;
/// Lost ranges of the dirty log one link remembers; more fall back to digest repair.
pub(crate) const MAX_RESEND_RANGES: usize = 256;
/// Rows published again before they arrived whose age one link remembers; further ones count as
/// one. spec: bnd-4
pub(crate) const MAX_PASSED_ROWS: usize = 256;
/// Rows waiting to be relayed on one link; more fall back to digest repair.
pub(crate) const MAX_RELAY_ROWS: usize = 4_096;
/// Digest mismatches one node remembers; more wait for the next heartbeat.
pub(crate) const MAX_REPAIRS: usize = 1_024;
/// Partition repairs one link serves at a time; more are refused and asked for again.
pub(crate) const MAX_JOBS_PER_LINK: usize = 8;
/// Notes waiting to be polled; more are dropped, counted.
pub(crate) const MAX_EFFECTS: usize = 1_024;
/// Addresses a peer set may hold; the rest is ignored, counted.
pub const MAX_PEERS: usize = 1_024;
/// Nodes this member may announce as out of reach at once. spec: link-12
pub(crate) const MAX_UNREACHED: usize = 16;
/// Differing limiters that are kept of one peer, and as many that only the peer has.
pub const MAX_DIFFERENCES: usize = 64;
/// Limiters a configuration may hold.
pub const MAX_LIMITERS: usize = u16::MAX as usize;
/// Answers to an unproven source are at most this many times what it sent. spec: link-4
pub const UNPROVEN_REPLY_FACTOR: u64 = 3;

/// Reset eras a member keeps, whether it has the limiter or not. spec: ord-6
pub const MAX_ERAS: usize = 1_024;
/// Flags a member keeps, whether it knows the flag or not. spec: ord-6
pub const MAX_FLAGS: usize = 1_024;
/// Eras and flags in one frame: beside the largest, half a frame is left for rows.
pub(crate) const REGISTERS_PER_FRAME: usize = 24;

/// (limiter, origin) pairs whose rates are kept; further origins are counted as this member.
pub(crate) const FLOWS_MAX: usize = 1 << 14;
/// Rates are those of the busiest slot of this length, nanoseconds.
pub(crate) const FLOW_SLOT_NS: u64 = 100 * MS;

/// Cold rows leave this long before their heartbeat is up, nanoseconds, so that it holds from the
/// request at one member to the table of another: each side's pump may rest for 10 ms.
pub const COLD_EARLY_NS: u64 = 30 * MS;

/// Members from which `fanout=auto` forwards; `None`: never. spec: dis-11
pub const AUTO_MEMBERS: Option<usize> = None;

/// How own rows reach the others. spec: dis-11
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fanout {
    /// Whatever measures better for the number of members.
    #[default]
    Auto,
    /// Directly to every member.
    Mesh,
    /// By rounds to this many members, who forward.
    Members(u16),
}

impl Fanout {
    /// A setting's number: so many members per round; 0: no rounds.
    pub fn of_number(members: u64) -> Fanout {
        match u16::try_from(members).unwrap_or(u16::MAX) {
            0 => Fanout::Mesh,
            members => Fanout::Members(members),
        }
    }
}

/// What an operator (or the simulator) may vary. `Default` is what production runs.
#[derive(Clone, Debug)]
pub struct Tunables {
    /// How own rows reach the others.
    pub fanout: Fanout,
    /// Shortest time between two emission rounds, nanoseconds.
    pub min_emit_interval_ns: u64,
    /// Frames per second one member may send for its own news; sets the floor between rounds.
    pub packets_per_second: u64,
    /// Rows below the urgency threshold wait this long, nanoseconds.
    pub heartbeat_ns: u64,
    /// Time between liveness frames of an idle link, nanoseconds.
    pub idle_heartbeat_ns: u64,
    /// An ack is sent at most this long after the frame, nanoseconds; longer where rounds are
    /// further apart than this. spec: link-7
    pub ack_delay_ns: u64,
    /// Time between hellos to an address that does not answer: first and longest, nanoseconds.
    pub hello_min_ns: u64,
    /// Longest time between hellos, nanoseconds.
    pub hello_max_ns: u64,
    /// A peer that is silent for this long is down, nanoseconds.
    pub peer_timeout_ns: u64,
    /// Shortest retransmission time-out, nanoseconds.
    pub rto_min_ns: u64,
    /// Longest retransmission time-out after back-off, nanoseconds.
    pub rto_max_ns: u64,
    /// Most cells (limiter, epoch, key) held.
    pub max_cells: u32,
    /// Most pairs of per-origin counts held (16 bytes each).
    pub max_chunks: u32,
    /// Share of `max_cells` that rows of one remote origin may create, parts per million.
    pub origin_share_ppm: u32,
    /// Most origins (node, incarnation) known at once.
    pub max_origins: u16,
    /// Most (limiter, epoch) pairs held at once.
    pub max_shelves: u32,
    /// Entries of the dirty log (4 bytes each); rounded up to a power of two.
    pub dirty_log_entries: u32,
    /// Rows below the urgency threshold that may wait; beyond, the oldest are sent early.
    pub cold_queue_rows: usize,
    /// Urgent rows of one round that are ordered by urgency; beyond, they go out unordered.
    pub urgent_rows: usize,
    /// Rows one link may send for repair per second.
    pub repair_rows_per_second: u64,
    /// Repairs this member asks for at the same time, over all peers.
    pub active_repairs: usize,
    /// First wait before the same digest is repaired again, nanoseconds (doubles to 64 times it).
    pub repair_backoff_ns: u64,
    /// Members' clocks are assumed to agree within this after synchronisation, nanoseconds.
    pub max_skew_ns: u64,
    /// Offsets beyond this are stepped (or a quarter of the smallest epoch, if smaller),
    /// nanoseconds.
    pub clock_step_ns: u64,
    /// How fast a small offset is slewed, parts per million.
    pub clock_slew_ppm: u64,
    /// Accept members whose address is not in the peer set, once they prove the address. spec:
    /// link-5
    pub accept_unknown_sources: bool,
    /// Most links to addresses outside the peer set.
    pub max_provisional_links: usize,
    /// Frames per second that introductions from unproven sources may make us send.
    pub unproven_replies_per_second: u64,
}

impl Default for Tunables {
    fn default() -> Self {
        Tunables {
            fanout: Fanout::Auto,
            min_emit_interval_ns: MS,
            packets_per_second: 10_000,
            heartbeat_ns: 500 * MS,
            idle_heartbeat_ns: SECOND,
            ack_delay_ns: 25 * MS,
            hello_min_ns: 100 * MS,
            hello_max_ns: SECOND,
            peer_timeout_ns: 5 * SECOND,
            rto_min_ns: 60 * MS,
            rto_max_ns: SECOND,
            max_cells: 12_000_000,
            max_chunks: 24_000_000,
            origin_share_ppm: 500_000,
            max_origins: 4_096,
            max_shelves: 8_192,
            dirty_log_entries: 1 << 20,
            cold_queue_rows: 1 << 17,
            urgent_rows: 1 << 15,
            repair_rows_per_second: 50_000,
            active_repairs: 4,
            repair_backoff_ns: 2 * SECOND,
            max_skew_ns: 250 * MS,
            clock_step_ns: 250 * MS,
            clock_slew_ppm: 500,
            accept_unknown_sources: true,
            max_provisional_links: 64,
            unproven_replies_per_second: 100,
        }
    }
}
