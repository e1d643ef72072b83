//! What a decision says.

use crate::limits::SECOND_NS;

/// Whether the hits may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// They may.
    Allowed,
    /// They would pass the limit.
    Denied,
}

/// What a counter shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The window's limit, or a token bucket's depth, in hits.
    pub limit: u32,
    /// Hits that would be admitted now; never more than `limit`.
    pub remaining: u32,
    /// Nanoseconds until the answer can change; 0 = now.
    pub reset_ns: u64,
    /// Hits that count now, own and remote; may exceed `limit` after an overshoot.
    pub used: u64,
}

impl Reading {
    /// A counter nobody has hit.
    #[inline]
    pub fn unused(limit: u32) -> Reading {
        Reading {
            limit,
            remaining: limit,
            reset_ns: 0,
            used: 0,
        }
    }

    /// Whether nothing is left here though the limit has room: this member's part of it is used up.
    /// spec: pace-8
    #[inline]
    pub fn is_share_used_up(&self) -> bool {
        self.remaining == 0 && self.used < u64::from(self.limit)
    }
}

/// The answer to one charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Whether the hits may go on.
    pub outcome: Outcome,
    /// The counter after the charge; as it stood when denied.
    pub reading: Reading,
    /// Nanoseconds until the same hits can pass; at least 1 when denied, 0 when allowed.
    pub retry_after_ns: u64,
}

impl Verdict {
    /// Allowed, showing `reading`.
    #[inline]
    pub fn allowed(reading: Reading) -> Verdict {
        Verdict {
            outcome: Outcome::Allowed,
            reading,
            retry_after_ns: 0,
        }
    }

    /// Denied for at least 1 ns, showing `reading`.
    #[inline]
    pub fn denied(reading: Reading, wait_ns: u64) -> Verdict {
        Verdict {
            outcome: Outcome::Denied,
            reading,
            retry_after_ns: wait_ns.max(1),
        }
    }

    /// Whether it was denied though the limit had room: on this member's part of it. spec: pace-8
    #[inline]
    pub fn is_on_share(&self) -> bool {
        self.outcome == Outcome::Denied && self.reading.is_share_used_up()
    }
}

/// Whole seconds for a `Retry-After` field: rounded up, at least 1. spec: adm-9
pub fn retry_after_seconds(ns: u64) -> u64 {
    ns.div_ceil(SECOND_NS).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_19_retry_after_is_never_zero_and_rounds_up() {
        assert_eq!(retry_after_seconds(0), 1);
        assert_eq!(retry_after_seconds(1), 1);
        assert_eq!(retry_after_seconds(SECOND_NS), 1);
        assert_eq!(retry_after_seconds(SECOND_NS + 1), 2);
        assert_eq!(retry_after_seconds(u64::MAX), u64::MAX.div_ceil(SECOND_NS));
        assert_eq!(Verdict::denied(Reading::unused(1), 0).retry_after_ns, 1);
    }
}
