//! What happened to requests, counted by name.
//!
//! I own the counters of decisions and of everything that was let through undecided. I promise that
//! counting is one relaxed addition. I never decide.

use std::sync::atomic::{AtomicU64, Ordering};

use gabion_rule::Dropped;
use gabion_table::FailOpen;

use crate::observe::Gate;

/// Why something was admitted undecided, or answered without a decision. Documented in
/// `docs/operating.md`, by these names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The rule's sub-table had no row to give.
    TableFull,
    /// First sight of a key in a full sub-table; its next request is counted.
    Doorkeeper,
    /// The table has no such rule.
    UnknownRule,
    /// The clock cannot be right.
    BadClock,
    /// Descriptors beyond `max_descriptor_count`.
    TooManyDescriptors,
    /// A descriptor with more entries than can match.
    TooManyEntries,
    /// A descriptor longer than `max_key_bytes`.
    KeyTooLong,
    /// Rules that matched beyond the cap per descriptor or per request.
    TooManyRules,
    /// A descriptor that asks for hits to be given back; read, not charged.
    NegativeHits,
    /// A descriptor that brings its own limit; the configured rules are used.
    OverrideIgnored,
    /// A rule that needs an attribute that could not be read; the rule was left out.
    PredicateFailed,
    /// A forwarded header from a private peer that is not among the trusted proxies; ignored.
    UntrustedForwarded,
    /// A reload that began to decide while a decision by the configuration before was still under
    /// way: its hits may be missing in the new table. And a request that did not wait for that.
    ReloadRace,
    /// A fault inside gabiond; the request was let through.
    Internal,
    /// More bytes than `max_descriptor_bytes`: answered OVER_LIMIT.
    TooLarge,
    /// A request without a domain: answered INVALID_ARGUMENT.
    NoDomain,
    /// A request without descriptors: answered INVALID_ARGUMENT.
    NoDescriptors,
}

impl Cause {
    /// Every cause.
    pub const ALL: [Cause; 17] = [
        Cause::TableFull,
        Cause::Doorkeeper,
        Cause::UnknownRule,
        Cause::BadClock,
        Cause::TooManyDescriptors,
        Cause::TooManyEntries,
        Cause::KeyTooLong,
        Cause::TooManyRules,
        Cause::NegativeHits,
        Cause::OverrideIgnored,
        Cause::PredicateFailed,
        Cause::UntrustedForwarded,
        Cause::ReloadRace,
        Cause::Internal,
        Cause::TooLarge,
        Cause::NoDomain,
        Cause::NoDescriptors,
    ];

    /// Its name in snapshots and documents.
    pub fn name(self) -> &'static str {
        match self {
            Cause::TableFull => "table_full",
            Cause::Doorkeeper => "doorkeeper",
            Cause::UnknownRule => "unknown_rule",
            Cause::BadClock => "bad_clock",
            Cause::TooManyDescriptors => "too_many_descriptors",
            Cause::TooManyEntries => "too_many_entries",
            Cause::KeyTooLong => "key_too_long",
            Cause::TooManyRules => "too_many_rules",
            Cause::NegativeHits => "negative_hits",
            Cause::OverrideIgnored => "override_ignored",
            Cause::PredicateFailed => "predicate_failed",
            Cause::UntrustedForwarded => "untrusted_forwarded",
            Cause::ReloadRace => "reload_race",
            Cause::Internal => "internal",
            Cause::TooLarge => "too_large",
            Cause::NoDomain => "no_domain",
            Cause::NoDescriptors => "no_descriptors",
        }
    }
}

impl From<FailOpen> for Cause {
    fn from(cause: FailOpen) -> Self {
        match cause {
            FailOpen::TableFull => Cause::TableFull,
            FailOpen::Doorkeeper => Cause::Doorkeeper,
            FailOpen::UnknownRule => Cause::UnknownRule,
            FailOpen::BadClock => Cause::BadClock,
        }
    }
}

/// One counter on a cache line of its own, so that threads do not slow each other down.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Count(AtomicU64);

impl Count {
    /// Adds `n`.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed); // a statistic; orders nothing
    }

    /// What was counted so far.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counters of one rule, in requests.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct RuleTally {
    allowed: AtomicU64,
    denied: AtomicU64,
    would_deny: AtomicU64,
    near_limit: AtomicU64,
    hits: AtomicU64,
    gate: Gate,
    left_out: [AtomicU64; LEFT_OUT.len()],
}

/// The ways in which a rule is left out of a request that it might have applied to, as metrics
/// name them.
pub const LEFT_OUT: [&str; 7] = [
    "flag",
    "only_if",
    "except_if",
    "absent",
    "replaced",
    "after_last",
    "predicate_failed",
];

/// What one rule said to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// It had room.
    Allowed,
    /// It had none, and denied.
    Denied,
    /// It had none, and only watches (`mode=dry_run`).
    WouldDeny,
}

/// Counters of one rule at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuleCounts {
    /// Requests it let pass.
    pub allowed: u64,
    /// Requests it denied.
    pub denied: u64,
    /// Requests it would have denied, were it enforced.
    pub would_deny: u64,
    /// Requests it let pass with [`NEAR_LIMIT_PERCENT`] of its limit used, or more.
    pub near_limit: u64,
    /// Hits of the requests it let pass.
    pub hits: u64,
    /// Requests that it was left out of, by the way of [`LEFT_OUT`].
    pub left_out: [u64; LEFT_OUT.len()],
}

impl RuleCounts {
    /// Adds other counts to these.
    pub fn add(&mut self, other: RuleCounts) {
        self.allowed += other.allowed;
        self.denied += other.denied;
        self.would_deny += other.would_deny;
        self.near_limit += other.near_limit;
        self.hits += other.hits;
        let ways = self.left_out.iter_mut().zip(other.left_out);
        ways.for_each(|(mine, theirs)| *mine += theirs);
    }
}

impl RuleTally {
    /// Counts what the rule said to a request of `hits`, which found it `near` its limit or not.
    pub fn add(&self, said: Said, near: bool, hits: u32) {
        let which = match said {
            Said::Allowed => &self.allowed,
            Said::Denied => &self.denied,
            Said::WouldDeny => &self.would_deny,
        };
        which.fetch_add(1, Ordering::Relaxed); // statistics; they order nothing
        if near && said == Said::Allowed {
            self.near_limit.fetch_add(1, Ordering::Relaxed);
        }
        if said != Said::Denied {
            self.hits.fetch_add(u64::from(hits), Ordering::Relaxed);
        }
    }

    /// Counts hits of a request that was counted when it was asked.
    pub fn add_late(&self, hits: u32) {
        self.hits.fetch_add(u64::from(hits), Ordering::Relaxed); // a statistic
    }

    /// Counts that the rule was left out. What is not asked in this phase is not counted, and what
    /// there was no room for has a cause of its own.
    pub fn left_out(&self, why: Dropped) {
        let way = match why {
            Dropped::Flag => 0,
            Dropped::OnlyIf => 1,
            Dropped::ExceptIf => 2,
            Dropped::Absent | Dropped::Value => 3,
            Dropped::Replaced(_) => 4,
            Dropped::AfterLast(_) => 5,
            Dropped::Unreadable => 6,
            _ => return,
        };
        self.left_out[way].fetch_add(1, Ordering::Relaxed); // a statistic
    }

    /// The rule's share of the denial log.
    pub fn gate(&self) -> &Gate {
        &self.gate
    }

    /// What was counted so far.
    pub fn counts(&self) -> RuleCounts {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        RuleCounts {
            allowed: read(&self.allowed),
            denied: read(&self.denied),
            would_deny: read(&self.would_deny),
            near_limit: read(&self.near_limit),
            hits: read(&self.hits),
            left_out: std::array::from_fn(|way| read(&self.left_out[way])),
        }
    }
}

/// From this share of its limit on, a rule counts what it lets pass as near the limit.
pub const NEAR_LIMIT_PERCENT: u64 = 80;

/// Whether `used` hits of `limit` are near it.
#[inline]
pub fn is_near(used: u64, limit: u32) -> bool {
    limit > 0 && used.saturating_mul(100) >= u64::from(limit) * NEAR_LIMIT_PERCENT
}

/// The counters of this process that belong to no rule; they outlive reloads.
#[derive(Debug, Default)]
pub struct Tally {
    /// Requests answered OK.
    pub allowed: Count,
    /// Requests answered OVER_LIMIT.
    pub denied: Count,
    /// Descriptors looked at.
    pub descriptors: Count,
    /// Descriptors that matched no rule.
    pub unmatched: Count,
    causes: [Count; Cause::ALL.len()],
}

impl Tally {
    /// Counts a cause `n` times.
    pub fn cause(&self, cause: Cause, n: u64) {
        if let Some(count) = self.causes.get(cause as usize) {
            count.add(n);
        }
    }

    /// How often a cause was counted.
    pub fn of_cause(&self, cause: Cause) -> u64 {
        self.causes.get(cause as usize).map_or(0, Count::get)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cause_has_its_own_place_and_name() {
        let tally = Tally::default();
        for (index, cause) in Cause::ALL.into_iter().enumerate() {
            assert_eq!(cause as usize, index);
            tally.cause(cause, index as u64 + 1);
        }
        for (index, cause) in Cause::ALL.into_iter().enumerate() {
            assert_eq!(tally.of_cause(cause), index as u64 + 1, "{}", cause.name());
        }
        let names: std::collections::BTreeSet<_> = Cause::ALL.iter().map(|c| c.name()).collect();
        assert_eq!(names.len(), Cause::ALL.len());
    }

    #[test]
    fn near_begins_at_four_fifths_of_a_limit() {
        assert!(is_near(8, 10) && is_near(11, 10) && is_near(u64::MAX, u32::MAX));
        assert!(!is_near(7, 10) && !is_near(0, 10) && !is_near(0, 0));
    }
}
