//! What a world is made of, and what is done to it. As JSON this is a scenario: `docs/sim.md`.

use gabion_admit::Plan;
use gabion_node::Tunables as NodeTunables;
use gabion_pump::Tunables as PumpTunables;
use gabion_rule::{Algorithm, Pace, RuleIdx};
use serde::{Deserialize, Serialize};

use crate::clock::ClockFault;
use crate::forms;
use crate::network::{LinkDelay, NetworkFault, CALM};
use crate::orders::Order;

/// One rule of a world; all members have the same.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SimRule {
    /// What is enforced.
    #[serde(with = "forms::AlgorithmForm")]
    pub algorithm: Algorithm,
    /// Counters its sub-table is sized for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cardinality: Option<u32>,
    /// Error budget, parts per million.
    #[serde(default = "one_percent")]
    pub error_budget_ppm: u32,
    /// How members share it; a strict rule has a part for each member.
    #[serde(default, with = "forms::PaceForm", skip_serializing_if = "is_fast")]
    pub pace: Pace,
}

fn is_fast(pace: &Pace) -> bool {
    *pace == Pace::Fast
}

fn one_percent() -> u32 {
    10_000
}

impl SimRule {
    /// A rule with the default error budget and room for everything.
    pub fn new(algorithm: Algorithm) -> Self {
        SimRule {
            algorithm,
            cardinality: None,
            error_budget_ppm: one_percent(),
            pace: Pace::Fast,
        }
    }

    /// Its precomputed numbers.
    pub fn plan(&self) -> Plan {
        Plan::new(&self.algorithm)
    }
}

/// A fault that the code under test is made to have, to show that a checker finds it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
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
    /// Every driver looks at its rows every 0.4 s, and says that it does in time. Found by `bound`.
    LateTurns,
    /// A member believes that the whole limit of a strict rule is its part. Found by `strict`.
    WholePart,
    /// Every frame is sent twice. Found by `budget`.
    TwiceFrames,
    /// Every frame is padded, which the receiver skips. Found by `budget`.
    FatFrames,
    /// Each admitted hit leaves made-up counters in the node. Found by `budget`.
    Hoard,
    /// One member acknowledges eras and flags and does not take them. Found by `orders`.
    DeafToOrders,
}

impl Plant {
    fn is_none(&self) -> bool {
        *self == Plant::None
    }

    /// All plants with the name the command line uses and the checkers that may find them.
    pub const ALL: [(Plant, &'static str, &'static [&'static str]); 16] = [
        (Plant::DoubleAnnounce, "double-announce", &["truth"]),
        (Plant::CorruptTotals, "corrupt-totals", &["truth"]),
        (Plant::DenyEarly, "deny-early", &["early-denial"]),
        (Plant::DropLink, "drop-link", &["converge", "starve"]),
        (
            Plant::SkipKeys,
            "skip-keys",
            &["starve", "converge", "bound"],
        ),
        (Plant::HashOrder, "hash-order", &["same-trace"]),
        (Plant::LongFrames, "long-frames", &["bounds"]),
        (Plant::LeakCells, "leak-cells", &["bounds"]),
        (
            Plant::Unmarked,
            "unmarked",
            &["starve", "converge", "bound"],
        ),
        (Plant::LostBuckets, "lost-buckets", &["converge", "starve"]),
        (Plant::LateTurns, "late-turns", &["bound"]),
        (Plant::WholePart, "whole-part", &["strict"]),
        (Plant::TwiceFrames, "twice-frames", &["budget"]),
        (Plant::FatFrames, "fat-frames", &["budget"]),
        (Plant::Hoard, "hoard", &["budget"]),
        (Plant::DeafToOrders, "deaf-to-orders", &["orders"]),
    ];
}

/// Which member a request goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Fault {
    /// Every link behaves like this from now on.
    Network(NetworkFault),
    /// Members whose bit is set in `side` and the others no longer reach each other.
    Partition {
        /// Bit per member.
        #[serde(with = "forms::side")]
        side: u64,
    },
    /// Nothing passes from one to another; the way back works.
    OneWay {
        /// Sender.
        from: usize,
        /// Receiver.
        to: usize,
    },
    /// Nothing passes between two members, either way; others still reach both.
    Apart {
        /// One.
        one: usize,
        /// The other.
        other: usize,
    },
    /// What was cut between two members, either way, carries again.
    Mend {
        /// One.
        one: usize,
        /// The other.
        other: usize,
    },
    /// What is sent on one link waits until the clog dissolves, then arrives all at once.
    Clog {
        /// Sender.
        from: usize,
        /// Receiver.
        to: usize,
        /// For how long.
        for_ns: u64,
    },
    /// All links carry again; clogs dissolve in their own time.
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
    /// The driver runs seldom: each round comes this much later, and its socket waits as long.
    Slow {
        /// Whose.
        member: usize,
        /// Pause before each round.
        pause_ns: u64,
        /// For how long.
        for_ns: u64,
    },
    /// The member's clock jumps: forward as after a move of its virtual machine, back as after a
    /// wrong correction.
    ClockStep {
        /// Whose.
        member: usize,
        /// By how much, nanoseconds.
        by_ns: i64,
    },
    /// A member that was not there at the start ([`WorldConfig::later`]) starts.
    Join {
        /// Who.
        member: usize,
    },
    /// A member says farewell and is gone for good; discovery forgets it a second later.
    Leave {
        /// Who.
        member: usize,
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
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
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
    /// Links with a delay of their own, whatever `calm` and network faults say.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<LinkDelay>,
    /// Damaged datagrams arrive although nothing is signed (one in 65,536 passes the UDP checksum).
    /// Counts may then be anything: only panics, bounds and budgets are looked at.
    #[serde(skip_serializing_if = "is_false")]
    pub damage_passes: bool,
    /// Clocks by member; missing ones are right.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub clocks: Vec<ClockFault>,
    /// Cluster tags by member; missing ones are 1.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub clusters: Vec<u32>,
    /// Node ids by member; missing ones are drawn.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub node_ids: Vec<u64>,
    /// Which of `rules` a member has, in its own order; missing: all, in this order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules_at: Vec<(usize, Vec<usize>)>,
    /// Members that sign with a key the others do not have.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub wrong_key: Vec<usize>,
    /// Members that start without peers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub no_peers: Vec<usize>,
    /// Members that discovery lists twice, under two addresses (dual stack, two slices).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub two_addresses: Vec<usize>,
    /// Members that are not there before a `join`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub later: Vec<usize>,
    /// Bounds and timings of every node.
    #[serde(with = "forms::node", skip_serializing_if = "forms::node::is_usual")]
    pub node: NodeTunables,
    /// Bounds and timings of every pump.
    #[serde(with = "forms::pump", skip_serializing_if = "forms::pump::is_usual")]
    pub pump: PumpTunables,
    /// Streams of requests.
    pub loads: Vec<Load>,
    /// Faults and their true times.
    #[serde(with = "forms::timed", skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<(u64, Fault)>,
    /// What operators order, and when (true time).
    #[serde(with = "forms::timed", skip_serializing_if = "Vec::is_empty")]
    pub orders: Vec<(u64, Order)>,
    /// Views must be equal this long after the last fault and request.
    pub settle_ns: u64,
    /// News must have reached every peer after this long while no fault is on; 0 = not checked.
    pub starve_ns: u64,
    /// The table and the cells have room for every key, so views must become *equal*.
    pub roomy: bool,
    /// The fault planted in the code under test.
    #[serde(skip_serializing_if = "Plant::is_none")]
    pub plant: Plant,
}

/// One second, nanoseconds.
pub const SECOND: u64 = 1_000_000_000;
/// One millisecond, nanoseconds.
pub const MS: u64 = 1_000_000;
/// Memory of a simulated table unless a world says otherwise.
pub const TABLE_BYTES: usize = 1 << 20;

impl WorldConfig {
    /// Whether some member starts, or starts again, with a clock that is off by more than strict
    /// rules allow for.
    pub fn has_wrong_clocks(&self) -> bool {
        let slack_ns = gabion_table::limits::CLOCK_SLACK_NS;
        let clocks = self.clocks.iter().map(|clock| clock.wall_error_ns);
        let restarts = self.faults.iter().filter_map(|(_, fault)| match fault {
            Fault::Restart { wall_error_ns, .. } => Some(*wall_error_ns),
            Fault::ClockStep { by_ns, .. } => Some(*by_ns),
            _ => None,
        });
        clocks
            .chain(restarts)
            .any(|off_ns| off_ns.unsigned_abs() * 2 > slack_ns)
    }

    /// A calm world of `members` with `rules`, right clocks and no load.
    pub fn calm(seed: u64, members: usize, rules: Vec<SimRule>) -> Self {
        WorldConfig {
            seed,
            members,
            rules,
            table_bytes: TABLE_BYTES,
            authenticated: false,
            calm: CALM,
            links: Vec::new(),
            damage_passes: false,
            clocks: Vec::new(),
            clusters: Vec::new(),
            node_ids: Vec::new(),
            rules_at: Vec::new(),
            wrong_key: Vec::new(),
            no_peers: Vec::new(),
            two_addresses: Vec::new(),
            later: Vec::new(),
            node: small_node(),
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

fn is_false(flag: &bool) -> bool {
    !flag
}

impl Default for WorldConfig {
    fn default() -> Self {
        WorldConfig::calm(1, 3, Vec::new())
    }
}

/// Small worlds: a node's fixed memory is what a seed costs.
pub(crate) fn small_node() -> NodeTunables {
    NodeTunables {
        max_cells: 50_000,
        max_chunks: 200_000,
        dirty_log_entries: 1 << 14,
        cold_queue_rows: 1 << 14,
        urgent_rows: 1 << 12,
        ..NodeTunables::default()
    }
}
