//! What goes into the node and what comes out of it.

use std::net::SocketAddr;

use gabion_rule::{Key, RuleIdx};
use gabion_wire::KeyRing;

use crate::differences::Differences;
use crate::limits::Tunables;

/// What the node must know of one limiter. Its place in [`Config::limiters`] is its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimiterSpec {
    /// 64-bit name on the wire (`CounterIdentity::short`).
    pub short: u64,
    /// Digest of its numbers, gossiped to show differences.
    pub digest: u64,
    /// Length of one epoch, nanoseconds; never 0.
    pub epoch_ns: u64,
    /// Epochs that still count, the current one included.
    pub live_epochs: u32,
    /// Limit (or burst), hits.
    pub limit: u32,
    /// Error budget, parts per million of what is left.
    pub error_budget_ppm: u32,
}

/// Everything a node is made from.
#[derive(Clone)]
pub struct Config {
    /// Node id; never 0.
    pub node: u64,
    /// Random; lives with the counters' memory.
    pub incarnation: u64,
    /// Higher after each take-over of that memory.
    pub session: u32,
    /// Cluster tag.
    pub cluster: u32,
    /// Keys; `None` = frames are neither signed nor required to be.
    pub keys: Option<KeyRing>,
    /// Limiters, in the order of the rule table.
    pub limiters: Vec<LimiterSpec>,
    /// Bounds and timings.
    pub tunables: Tunables,
}

/// The two clocks of a member, read once per call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Monotonic nanoseconds: deadlines, round trips.
    pub mono_ns: u64,
    /// Cluster time, nanoseconds of Unix time: epochs.
    pub cluster_ns: u64,
}

/// What the world tells the node.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// A datagram arrived.
    Datagram {
        /// Where it came from.
        from: SocketAddr,
        /// What it holds.
        bytes: &'a [u8],
    },
    /// This incarnation's absolute own count. Raise-only: a lower one changes nothing.
    Own {
        /// Which limiter.
        limiter: RuleIdx,
        /// Which key.
        key: Key,
        /// Which epoch (full number).
        epoch: u64,
        /// Hits admitted in it by this incarnation.
        count: u32,
    },
    /// The whole peer set, this member left out. May be given again at any time.
    Peers(&'a [SocketAddr]),
    /// This member is about to stop: what is pending is published, each live peer gets its last
    /// frames and a farewell, then nothing is sent any more.
    Leave,
    /// A deadline passed.
    Tick,
}

/// What the node tells the world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The sum over all other origins of one counter rose.
    RemoteTotal {
        /// Which limiter.
        limiter: RuleIdx,
        /// Which key.
        key: Key,
        /// Which epoch.
        epoch: u64,
        /// Sum of all origins but this incarnation.
        total: u64,
    },
    /// Add this to the driver's initial Unix base from now on.
    ClockOffset {
        /// Absolute correction, nanoseconds.
        offset_ns: i64,
        /// Stepped (true) or slewed.
        step: bool,
    },
    /// A member proved itself at this address.
    PeerUp {
        /// Address frames are sent to.
        addr: SocketAddr,
        /// Its node id.
        node: u64,
        /// Its incarnation.
        incarnation: u64,
    },
    /// A member is silent or left the peer set.
    PeerDown {
        /// Address frames were sent to.
        addr: SocketAddr,
        /// Its node id.
        node: u64,
    },
    /// An event an operator should see. Thinned: one of a kind and subject per minute.
    Note(Note),
}

/// Operator events. Each names what happened; what to do is in its text ([`Note::advice`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Note {
    /// Two live members use one node id. Both are counted. spec: link-13
    DuplicateNode {
        /// The id.
        node: u64,
        /// Where the other one was heard.
        addr: SocketAddr,
    },
    /// Another live member says that it has the same place in strict rules: both take the same
    /// part, and more than the limit may pass. spec: pace-10
    DuplicatePlace {
        /// The place.
        place: u32,
        /// The other member.
        node: u64,
        /// Where it was heard.
        addr: SocketAddr,
    },
    /// A peer enforces other numbers for a limiter both have.
    LimitDiffers {
        /// The peer.
        node: u64,
        /// The limiter.
        limiter: RuleIdx,
        /// Digest of the peer's numbers.
        theirs: u64,
    },
    /// A peer's clock is in another epoch of the smallest limiter after synchronisation.
    ClockSkew {
        /// The peer.
        node: u64,
        /// Peer's cluster clock minus ours, milliseconds.
        skew_ms: i64,
    },
    /// Frames of another cluster arrive from this address.
    ForeignCluster {
        /// Where from.
        addr: SocketAddr,
    },
    /// Frames whose signature does not fit arrive from this address.
    BadSignature {
        /// Where from.
        addr: SocketAddr,
    },
    /// The cell store refuses rows: raise `max_cells`.
    CellsFull,
    /// One origin has used its share of the cell store.
    OriginShareFull {
        /// The origin's node id.
        node: u64,
    },
    /// A peer hears us or we hear it, but not both; its rows are relayed by others.
    OneWay {
        /// Address of the peer.
        addr: SocketAddr,
    },
    /// No room for the name of another era or flag.
    RegistersFull,
    /// More peers were discovered than [`crate::limits::MAX_PEERS`].
    TooManyPeers,
}

impl Note {
    /// What the operator does next.
    pub fn advice(&self) -> &'static str {
        match self {
            Note::DuplicateNode { .. } => "two members share one node id; give each its own seed",
            Note::DuplicatePlace { .. } => {
                "two members have one place, so pace=strict may admit more than its limit; give \
                 each its own"
            }
            Note::LimitDiffers { .. } => "members enforce different numbers; finish the roll-out",
            Note::ClockSkew { .. } => "clocks disagree by more than an epoch; check NTP on both",
            Note::ForeignCluster { .. } => "another cluster sends here; check ids and addresses",
            Note::BadSignature { .. } => "a frame's signature does not fit; check the key files",
            Note::CellsFull => "the cell store is full; raise its cap or shorten windows",
            Note::OriginShareFull { .. } => "one member floods keys; check what it counts by",
            Note::OneWay { .. } => "packets pass one way only; check firewalls between the two",
            Note::RegistersFull => "too many eras or flags; restart all members to drop old names",
            Note::TooManyPeers => "more peers were discovered than this release can hold",
        }
    }
}

/// What is known of one peer, for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerView {
    /// Address frames are sent to.
    pub addr: SocketAddr,
    /// Node id and incarnation, once proven.
    pub identity: Option<(u64, u64)>,
    /// Proven and heard within the time-out.
    pub up: bool,
    /// In the peer set (else: it introduced itself).
    pub configured: bool,
    /// It acknowledges our frames.
    pub hears_us: bool,
    /// Smoothed round trip, nanoseconds; 0 = not measured.
    pub rtt_ns: u64,
    /// Its cluster clock minus ours, nanoseconds, when measured.
    pub offset_ns: Option<i64>,
    /// Time since its last frame, nanoseconds.
    pub silent_ns: u64,
    /// Age of the oldest news it has not acknowledged, nanoseconds: the live staleness bound.
    pub staleness_ns: u64,
    /// Frames in flight.
    pub in_flight: usize,
    /// Entries of the dirty log it has not been sent.
    pub backlog: u64,
    /// Which of its limiters are not as ours.
    pub differences: Differences,
}
