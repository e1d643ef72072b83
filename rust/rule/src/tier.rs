//! Limits by the value of an attribute, and charges that wait for the response.
//!
//! I own both values and how they answer. I promise that the counters of a rule are one set,
//! whatever the tier, since only the limit that they are held to differs.

use crate::attributes::Glob;
use crate::operator::Switch;
use crate::rate::Rate;

/// The limits of a rule by the value of one attribute; for a value that is not listed, and for
/// none, the rule's own limit holds.
// spec: pol-14
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tiers {
    by: Vec<u8>,
    /// Sorted by value; values are unique.
    tiers: Vec<Tier>,
}

/// One value and its limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tier {
    /// The value, exactly.
    pub value: Vec<u8>,
    /// The rate as written.
    pub rate: Rate,
    /// Hits in the rule's window, at least 1.
    pub limit: u32,
}

impl Tiers {
    /// Tiers by the attribute `by`. Of equal values the first one counts.
    pub(crate) fn new(by: Vec<u8>, mut tiers: Vec<Tier>) -> Self {
        tiers.sort_by(|a, b| a.value.cmp(&b.value));
        tiers.dedup_by(|later, first| later.value == first.value);
        Tiers { by, tiers }
    }

    /// Name of the attribute.
    pub fn by(&self) -> &[u8] {
        &self.by
    }

    /// The tiers, sorted by value.
    pub fn all(&self) -> &[Tier] {
        &self.tiers
    }

    /// The limit for a value; `None`: the rule's own. Never allocates.
    pub fn limit_for(&self, value: &[u8]) -> Option<u32> {
        let found = self
            .tiers
            .binary_search_by(|t| t.value.as_slice().cmp(value));
        Some(self.tiers.get(found.ok()?)?.limit)
    }
}

/// A rule is read before, and charged once the response is known.
// spec: pol-16
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChargeAfter {
    /// Patterns of the statuses that are charged; none: all are.
    pub statuses: Vec<Glob>,
    /// The flag that says so; when it does not, the rule is charged when it is asked.
    // spec: pol-17
    pub switch: Option<Switch>,
}

impl ChargeAfter {
    /// Whether a response of this status is charged.
    pub fn fits(&self, status: &[u8]) -> bool {
        self.statuses.is_empty() || self.statuses.iter().any(|pattern| pattern.matches(status))
    }
}
