//! What goes into a decision and what comes out of the table.

use gabion_admit::{Outcome, Pacing, Plan, Reading, Verdict};
use gabion_rule::{CounterIdentity, Key, Mode, Rule, RuleIdx};

/// One rule's counters, as the table needs to know them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubSpec {
    /// Names the counters; rows are bound to it across reloads.
    pub identity: CounterIdentity,
    /// How it decides.
    pub plan: Plan,
    /// Keys to hold; without it, an equal share of the bytes that are left.
    pub cardinality: Option<u32>,
}

impl SubSpec {
    /// The counters of a rule, as the table must know them. Those of a rule with tiers are open:
    /// every charge on them brings its limit. spec: adm-30
    pub fn of(rule: &Rule) -> SubSpec {
        let mut spec = SubSpec::least(rule);
        if let (true, Plan::Window(window)) = (rule.tiers.is_some(), &spec.plan) {
            spec.plan = Plan::Window(window.with_limit(crate::limits::OPEN_LIMIT));
        }
        spec
    }

    /// The same, as whoever moves counts must know them: by the smallest limit that a key may be
    /// held to, since that many hits are news.
    pub fn least(rule: &Rule) -> SubSpec {
        let plan = match (rule.tiers.is_some(), Plan::new(&rule.algorithm)) {
            (true, Plan::Window(window)) => Plan::Window(window.with_limit(rule.limit_min())),
            (_, plan) => plan,
        };
        SubSpec {
            identity: rule.identity(),
            plan: plan.paced(Pacing::of(rule.pace)),
            cardinality: rule.cardinality,
        }
    }
}

/// One descriptor's charge against one rule.
#[derive(Clone, Debug)]
pub struct Charge {
    /// Which rule.
    pub rule: RuleIdx,
    /// Which counter.
    pub key: Key,
    /// How many hits; 0 reads only.
    pub hits: u32,
    /// How many hits must have room, though they are not charged; see [`Charge::peeking`].
    pub peek: u32,
    /// The rule's mode.
    pub mode: Mode,
    /// What the window admits for this charge, in place of the rule's own limit; `None`: the
    /// rule's. Token buckets have no use for it. spec: adm-30
    pub limit: Option<u32>,
    /// The caller's mark (say, its index), by which a decision names the charge that decided.
    pub tag: u8,
    /// Out: the verdict.
    pub verdict: Verdict,
    /// Out: why it was let through uncounted, if it was.
    pub fail_open: Option<FailOpen>,
    /// Where the row was when it was read.
    pub(crate) spot: Option<crate::row::Spot>,
    /// Hits to reserve after equal keys were merged; `None` when merged into another charge.
    pub(crate) merged: Option<u32>,
}

impl Charge {
    /// A charge whose outcome is still open.
    pub fn new(rule: RuleIdx, key: Key, hits: u32, mode: Mode, tag: u8) -> Charge {
        Charge {
            rule,
            key,
            hits,
            peek: 0,
            mode,
            limit: None,
            tag,
            verdict: Verdict::allowed(Reading {
                limit: 0,
                remaining: 0,
                reset_ns: 0,
                used: 0,
            }),
            fail_open: None,
            spot: None,
            merged: Some(hits),
        }
    }

    /// The same charge, for later: denied when its hits do not fit, and never counted. spec: adm-33
    pub fn peeking(self) -> Charge {
        Charge {
            peek: self.hits.max(self.peek),
            hits: 0,
            merged: Some(0),
            ..self
        }
    }

    /// The same charge against `limit` hits per window; 0 admits none. The rule should be one made
    /// for it: a window of [`crate::limits::OPEN_LIMIT`].
    pub fn with_limit(self, limit: u32) -> Charge {
        let limit = Some(limit);
        Charge { limit, ..self }
    }
}

/// Why a charge was admitted without being counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailOpen {
    /// No row could be had.
    TableFull,
    /// A newcomer to a full sub-table; its second request gets a row.
    Doorkeeper,
    /// The table has no such rule.
    UnknownRule,
    /// The time given cannot be real.
    BadClock,
}

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Whether it may go on.
    pub outcome: Outcome,
    /// [`Charge::tag`] of the charge that denied it, or, when allowed, of the enforcing one nearest
    /// to denying; `None` when nothing was enforced.
    pub decider: Option<u8>,
    /// Hits that stay counted though the request was denied (SEMANTICS 3.3).
    pub phantom_hits: u64,
}

/// A row whose own count may not have been announced yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirtyRow {
    /// Which rule.
    pub rule: RuleIdx,
    /// Which counter.
    pub key: Key,
    /// Index of the row within its rule: below [`crate::Table::capacity`].
    pub row: u32,
    /// Raised each time the row is given to another key (modulo 2^16, or 2^8 for wide rules).
    pub generation: u16,
    /// (full epoch, own hits), newest first; own hits never shrink within a generation and epoch.
    pub counts: [(u64, u32); 2],
    /// How many of `counts` are meant: 1 or 2.
    pub n: u8,
}

/// What became of a remote total.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Publish {
    /// The row now shows it.
    Published,
    /// The row already showed as much.
    Unchanged,
    /// No row holds the key; nothing was changed.
    Absent,
    /// The epoch counts no longer, or not yet, or the rule is unknown; nothing was changed.
    Stale,
}

/// Counters of the table: all but the first two only ever grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableStats {
    /// Row slots.
    pub rows: u64,
    /// Rows that hold a key (dead ones included until they are reused or scrubbed).
    pub live: u64,
    /// Claims of a row that went live.
    pub claims: u64,
    /// Hits admitted uncounted because no row could be had.
    pub full_admits: u64,
    /// Hits admitted uncounted because the key was new to a full sub-table.
    pub doorkeeper_hits: u64,
    /// Rows taken from a key that still counted.
    pub evicted_rows: u64,
    /// Own hits that were forgotten with them.
    pub evicted_hits: u64,
    /// Rows taken that were exhausted.
    pub evicted_exhausted: u64,
    /// Hits that stayed counted on a denied request.
    pub phantom_hits: u64,
    /// Claims left by somebody who stopped halfway, taken over.
    pub takeovers: u64,
    /// Claims withdrawn because another had the key.
    pub withdrawals: u64,
    /// Heads, or remote totals, further ahead of now than any clock should be; read as nothing.
    pub void_epochs: u64,
    /// Charges for a rule the table does not have.
    pub unknown_rules: u64,
    /// Charges at a time that cannot be real.
    pub bad_clock: u64,
    /// Dead rows cleared by the scrub.
    pub scrubbed: u64,
    /// Denials on a member's share, though the limit had room.
    pub share_denials: u64,
    /// Dirty marks that somebody who was killed left half set, repaired by the scrub.
    pub remarked: u64,
}

/// What became of a key that was to be forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forget {
    /// Its row is free.
    Forgotten,
    /// It had no row; nothing was changed.
    Absent,
    /// It was charged at every attempt; nothing was changed.
    Busy,
}

/// What [`crate::Table::occupancy`] found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Occupancy {
    /// Rows that count something.
    pub live: u64,
    /// Rows that were looked at.
    pub looked_at: u64,
}

impl Occupancy {
    /// Rows of `capacity` that count something: exact when all were looked at.
    pub fn estimate(&self, capacity: u64) -> u64 {
        let looked_at = u128::from(self.looked_at.max(1));
        let rows = u128::from(self.live) * u128::from(capacity) / looked_at;
        u64::try_from(rows).unwrap_or(u64::MAX)
    }
}

/// Why a table could not be made. Nothing was changed unless the variant says so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// Nothing to hold.
    #[error("no rules: a table needs at least one; memory is untouched")]
    NoRules,
    /// More rules than an index can name.
    #[error("{rules} rules are more than the {max} a table can hold; memory is untouched")]
    TooManyRules {
        /// How many were given.
        rules: usize,
        /// How many fit.
        max: usize,
    },
    /// The memory cannot hold one set of rows per rule.
    #[error(
        "{have_bytes} bytes are too small: {rules} rules need at least {need_bytes}; memory is \
         untouched; enlarge it, or give fewer rules or longer buckets"
    )]
    TooSmall {
        /// What was given.
        have_bytes: u64,
        /// The least that works.
        need_bytes: u64,
        /// For how many rules.
        rules: usize,
    },
    /// The declared cardinalities need more than there is.
    #[error(
        "{have_bytes} bytes are too small: the declared cardinalities need {need_bytes}; memory is \
         untouched; enlarge it or lower them"
    )]
    CardinalityTooLarge {
        /// What was given.
        have_bytes: u64,
        /// What the declared cardinalities and one set for each other rule need.
        need_bytes: u64,
    },
    /// The operating system gave no memory.
    #[error("{bytes} bytes could not be allocated; nothing was changed; lower the budget")]
    NoMemory {
        /// What was asked for.
        bytes: usize,
    },
    /// The memory holds something else.
    #[error("the memory holds no table; it is untouched; format it")]
    NotATable,
    /// The memory holds a table of another release.
    #[error(
        "the memory holds layout version {found}, this release reads {ours}; it is untouched; \
         format new memory"
    )]
    OtherVersion {
        /// What it says.
        found: u64,
        /// What this release writes.
        ours: u64,
    },
    /// The memory holds a table of other rules or of another shape.
    #[error("the memory holds counters of other rules or sizes; untouched; format new memory")]
    OtherLayout,
}
