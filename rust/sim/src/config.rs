//! What a world is made of, and what is done to it.

use gabion_admit::Plan;
use gabion_node::Tunables as NodeTunables;
use gabion_pump::Tunables as PumpTunables;
use gabion_rule::{Algorithm, RuleIdx};

use crate::clock::ClockFault;
use crate::network::{NetworkFault, CALM};
use crate::orders::Order;

/// One rule of a world; all members have the same.
#[derive(Clone, Debug)]
pub struct SimRule {
    /// What is enforced.
    pub algorithm: Algorithm,
    /// Counters its sub-table is sized for.
    pub cardinality: Option<u32>,
    /// Error budget, parts per million.
    pub error_budget_ppm: u32,
}

impl SimRule {
    /// A rule with the default error budget and room for everything.
    pub fn new(algorithm: Algorithm) -> Self {
        SimRule {
            algorithm,
            cardinality: None,
            error_budget_ppm: 10_000,
        }
    }

    /// Its precomputed numbers.
    pub fn plan(&self) -> Plan {
        Plan::new(&self.algorithm)
    }
}

/// A fault that the code under test is made to have, to show that a checker finds it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Plant {
    /// None: the real thing.
    #[default]
    None,
    /// Own counts are announced twice over. Found by `truth`.
    DoubleAnnounce,
    /// A remote total is raised in the table beyond what the node said. Found by `truth`.
    CorruptTotals,
    /// A request that would leave little is denied. Found by `early-denial`.
    DenyEarly,
    /// Frames of one member to one other vanish although no fault is on. Found by `converge`.
    DropLink,
    /// Own counts of one key in eight are never given to the node. Found by `starve`.
    SkipKeys,
    /// Something in the order of a hash map. Found by `same-trace`.
    HashOrder,
    /// Frames grow past their budget. Found by `bounds`.
    LongFrames,
    /// The node's cell cap is not what the world was told. Found by `bounds`.
    LeakCells,
    /// The table does not mark charged rows dirty. Found by `starve`.
    Unmarked,
    /// The table drops a bucket when it closes. Found by `converge`.
    LostBuckets,
    /// One member acknowledges eras and flags and does not take them. Found by `orders`.
    DeafToOrders,
}

impl Plant {
    /// All plants with the name the command line uses and the checkers that may find them.
    pub const ALL: [(Plant, &'static str, &'static [&'static str]); 11] = [
        (Plant::DoubleAnnounce, "double-announce", &["truth"]),
        (Plant::CorruptTotals, "corrupt-totals", &["truth"]),
        (Plant::DenyEarly, "deny-early", &["early-denial"]),
        (Plant::DropLink, "drop-link", &["converge", "starve"]),
        (Plant::SkipKeys, "skip-keys", &["starve", "converge"]),
        (Plant::HashOrder, "hash-order", &["same-trace"]),
        (Plant::LongFrames, "long-frames", &["bounds"]),
        (Plant::LeakCells, "leak-cells", &["bounds"]),
        (Plant::Unmarked, "unmarked", &["starve", "converge"]),
        (Plant::LostBuckets, "lost-buckets", &["converge", "starve"]),
        (Plant::DeafToOrders, "deaf-to-orders", &["orders"]),
    ];
}

/// Which member a request goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Any, at random.
    Any,
    /// Always this one.
    One(usize),
    /// One after the other, each for this long.
    Rotating {
        /// Time spent at one member.
        stay_ns: u64,
    },
}

/// Which key a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// Always this one.
    One(u32),
    /// Any of the first n, alike.
    Uniform(u32),
    /// Any of the first n, Zipf with exponent 1.
    Zipf(u32),
    /// A new one each time.
    Fresh,
}

/// When requests come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// Evenly spaced.
    Steady {
        /// Pause between two.
        every_ns: u64,
    },
    /// At random, without memory.
    Poisson {
        /// Mean pause.
        mean_ns: u64,
    },
    /// Evenly spaced while on, none while off.
    OnOff {
        /// Pause between two while on.
        every_ns: u64,
        /// How long on.
        on_ns: u64,
        /// How long off.
        off_ns: u64,
    },
}

/// One stream of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Under which rule.
    pub rule: RuleIdx,
    /// For which keys.
    pub keys: Keys,
    /// At which members.
    pub target: Target,
    /// At what times.
    pub arrival: Arrival,
    /// Hits per request.
    pub hits: u32,
    /// First request not before this true time.
    pub from_ns: u64,
    /// No request at or after this true time.
    pub until_ns: u64,
}

/// What can be done to a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Every link behaves like this from now on.
    Network(NetworkFault),
    /// Members whose bit is set in `side` and the others no longer reach each other.
    Partition {
        /// Bit per member.
        side: u64,
    },
    /// Nothing passes from one to another; the way back works.
    OneWay {
        /// Sender.
        from: usize,
        /// Receiver.
        to: usize,
    },
    /// All links carry again.
    Heal,
    /// The process ends and starts anew: rows lost, new incarnation.
    Restart {
        /// Who.
        member: usize,
        /// How long it is away.
        down_ns: u64,
        /// It comes back with another address.
        moves: bool,
        /// What its wall clock is ahead by when it comes back.
        wall_error_ns: i64,
    },
    /// Another driver takes over the member's memory: rows and incarnation kept, session + 1.
    LeaderChange {
        /// Whose.
        member: usize,
    },
    /// The driver stands still; decisions go on.
    DriverStops {
        /// Whose.
        member: usize,
        /// For how long.
        for_ns: u64,
    },
    /// The host sleeps: no decisions, no driver.
    Sleep {
        /// Who.
        member: usize,
        /// For how long.
        for_ns: u64,
        /// Its monotonic clock stands still meanwhile (suspend to memory).
        clock_stops: bool,
    },
    /// Discovery answers with an empty set (or with all again).
    Peers {
        /// Whose.
        member: usize,
        /// True: none. False: all.
        none: bool,
    },
}

/// A whole world.
#[derive(Clone, Debug)]
pub struct WorldConfig {
    /// Everything random comes from this.
    pub seed: u64,
    /// How many members.
    pub members: usize,
    /// Their rules.
    pub rules: Vec<SimRule>,
    /// Memory of each member's table, bytes.
    pub table_bytes: usize,
    /// Frames are signed.
    pub authenticated: bool,
    /// The network when no fault is on.
    pub calm: NetworkFault,
    /// Clocks by member; missing ones are right.
    pub clocks: Vec<ClockFault>,
    /// Cluster tags by member; missing ones are 1.
    pub clusters: Vec<u32>,
    /// Node ids by member; missing ones are drawn.
    pub node_ids: Vec<u64>,
    /// Which of `rules` a member has, in its own order; missing: all, in this order.
    pub rules_at: Vec<(usize, Vec<usize>)>,
    /// Members that sign with a key the others do not have.
    pub wrong_key: Vec<usize>,
    /// Members that start without peers.
    pub no_peers: Vec<usize>,
    /// Bounds and timings of every node.
    pub node: NodeTunables,
    /// Bounds and timings of every pump.
    pub pump: PumpTunables,
    /// Streams of requests.
    pub loads: Vec<Load>,
    /// Faults and their true times.
    pub faults: Vec<(u64, Fault)>,
    /// What operators order, and when (true time).
    pub orders: Vec<(u64, Order)>,
    /// Views must be equal this long after the last fault and request.
    pub settle_ns: u64,
    /// News must have reached every peer after this long while no fault is on; 0 = not checked.
    pub starve_ns: u64,
    /// The table and the cells have room for every key, so views must become *equal*.
    pub roomy: bool,
    /// The fault planted in the code under test.
    pub plant: Plant,
}

/// One second, nanoseconds.
pub const SECOND: u64 = 1_000_000_000;
/// One millisecond, nanoseconds.
pub const MS: u64 = 1_000_000;
/// Memory of a simulated table unless a world says otherwise.
pub const TABLE_BYTES: usize = 1 << 20;

impl WorldConfig {
    /// A calm world of `members` with `rules`, right clocks and no load.
    pub fn calm(seed: u64, members: usize, rules: Vec<SimRule>) -> Self {
        WorldConfig {
            seed,
            members,
            rules,
            table_bytes: TABLE_BYTES,
            authenticated: false,
            calm: CALM,
            clocks: Vec::new(),
            clusters: Vec::new(),
            node_ids: Vec::new(),
            rules_at: Vec::new(),
            wrong_key: Vec::new(),
            no_peers: Vec::new(),
            node: NodeTunables {
                // Small worlds: a node's fixed memory is what a seed costs.
                max_cells: 50_000,
                max_chunks: 200_000,
                dirty_log_entries: 1 << 14,
                cold_queue_rows: 1 << 14,
                urgent_rows: 1 << 12,
                ..NodeTunables::default()
            },
            pump: PumpTunables::default(),
            loads: Vec::new(),
            faults: Vec::new(),
            orders: Vec::new(),
            settle_ns: 10 * SECOND,
            starve_ns: 3 * SECOND,
            roomy: true,
            plant: Plant::None,
        }
    }
}
