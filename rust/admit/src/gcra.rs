//! Token bucket as GCRA: one number, the theoretical arrival time (TAT), in ticks of the rule's own
//! clock. A hit is exactly 2^k ticks, so rates have no rounding error that could add up.

use crate::divide::{clamp_u32, clamp_u64, low, Divisor};
use crate::limits::{FOLD_SLACK_NS, TICK_FINEST_SHIFT, TICK_SHIFT_MAX};
use crate::Reading;

/// A token bucket, made ready to decide.
///
/// *Debt* is TAT - now in ticks, at least 0: what has been used and not yet drained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GcraPlan {
    burst: u32,
    tick_shift: u32,
    depth_ticks: u64,
    slack_ticks: u64,
    /// now in ticks = now_ns * to_ticks >> to_ticks_shift, rounded up when made.
    to_ticks: u64,
    to_ticks_shift: u32,
    /// ns = ticks * to_ns >> to_ns_shift, rounded up when made and when used.
    to_ns: u64,
    to_ns_shift: u32,
    epochs: Divisor,
}

/// Why a token bucket refuses: how many ticks of debt must drain first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Ticks, at least 1.
    pub wait_ticks: u64,
}

impl GcraPlan {
    /// `hits` per `per_ns`, `burst` deep, replicated in epochs of `epoch_ns`. Zeroes are read as 1.
    pub fn new(hits: u64, per_ns: u64, burst: u32, epoch_ns: u64) -> GcraPlan {
        let (hits, per_ns, burst) = (hits.max(1), per_ns.max(1), burst.max(1));
        // Ticks are as fine as a 1024th of the emission interval, but not finer than a quarter of a
        // nanosecond: more would only shorten the wrap. spec: adm-12
        let quarters = (per_ns / hits).saturating_mul(1 << TICK_FINEST_SHIFT);
        let tick_shift = quarters.checked_ilog2().unwrap_or(0).min(TICK_SHIFT_MAX);
        // The number of ticks in a second is hits * 2^k / per_ns.
        let (to_ticks, to_ticks_shift) = ratio(u128::from(hits) << tick_shift, u128::from(per_ns));
        let (to_ns, to_ns_shift) = ratio(u128::from(per_ns), u128::from(hits) << tick_shift);
        let mut plan = GcraPlan {
            burst,
            tick_shift,
            depth_ticks: u64::from(burst) << tick_shift,
            slack_ticks: 0,
            to_ticks,
            to_ticks_shift,
            to_ns,
            to_ns_shift,
            epochs: Divisor::new(epoch_ns),
        };
        plan.slack_ticks = plan.ticks(FOLD_SLACK_NS).clamp(1, 1 << 43);
        plan
    }

    /// Depth, hits.
    #[inline]
    pub fn burst(&self) -> u32 {
        self.burst
    }

    /// Length of a replication epoch, ns.
    #[inline]
    pub fn epoch_ns(&self) -> u64 {
        self.epochs.by()
    }

    /// One hit is 2^this ticks.
    #[inline]
    pub fn tick_shift(&self) -> u32 {
        self.tick_shift
    }

    /// Ticks per nanosecond as (m, s): m / 2^s. Counters of two plans mean the same only when it
    /// and
    /// `tick_shift` are equal.
    pub fn rate(&self) -> (u64, u32) {
        (self.to_ticks, self.to_ticks_shift)
    }

    /// The most debt that admission can leave: burst hits.
    #[inline]
    pub fn depth_ticks(&self) -> u64 {
        self.depth_ticks
    }

    /// The most debt that anything can leave: the depth and the slack of a fold.
    #[inline]
    pub fn debt_max_ticks(&self) -> u64 {
        self.depth_ticks + self.slack_ticks
    }

    /// Epoch of `now_ns`, and the ns since it began.
    #[inline]
    pub fn split(&self, now_ns: u64) -> (u64, u64) {
        self.epochs.divide(now_ns)
    }

    /// The rule's clock at `now_ns`, modulo 2^64. It never runs backwards, and over any stretch it
    /// is the exact rate to one part in 2^62, never slow. spec: adm-12
    #[inline]
    pub fn ticks(&self, now_ns: u64) -> u64 {
        low((u128::from(now_ns) * u128::from(self.to_ticks)) >> self.to_ticks_shift)
    }

    /// Nanoseconds in which `ticks` drain, rounded up.
    #[inline]
    pub fn ticks_to_ns(&self, ticks: u64) -> u64 {
        let product = u128::from(ticks) * u128::from(self.to_ns);
        let whole = product >> self.to_ns_shift;
        let rest = u128::from(whole << self.to_ns_shift != product);
        clamp_u64(whole + rest)
    }

    /// Debt of a TAT that is `ahead` ticks after now (negative: before). A TAT further ahead than
    /// anything could have put it comes from a clock that was set back: full debt, no lock-out, no
    /// free refill. spec: adm-13
    #[inline]
    pub fn debt(&self, ahead: i64) -> u64 {
        u64::try_from(ahead).unwrap_or(0).min(self.debt_max_ticks())
    }

    /// Adds `hits` to `debt`, or says how much must drain first. spec: adm-10
    #[inline]
    pub fn admit(&self, debt: u64, hits: u32) -> Result<u64, Refusal> {
        let after = debt.saturating_add(u64::from(hits) << self.tick_shift);
        if after <= self.depth_ticks {
            Ok(after)
        } else {
            Err(Refusal {
                wait_ticks: after - self.depth_ticks,
            })
        }
    }

    /// Adds `hits` without refusing, up to the depth: what a dry run does. Never lowers the debt.
    #[inline]
    pub fn saturate(&self, debt: u64, hits: u32) -> u64 {
        let after = debt.saturating_add(u64::from(hits) << self.tick_shift);
        after.min(self.depth_ticks).max(debt)
    }

    /// Adds `increase` remote hits, capped at the depth and the slack; never lowers the debt.
    /// spec: adm-14
    #[inline]
    pub fn fold(&self, debt: u64, increase: u32) -> u64 {
        let after = debt.saturating_add(u64::from(increase) << self.tick_shift);
        after.min(self.debt_max_ticks()).max(debt)
    }

    /// Remote hits to charge for a first `total` of an epoch when nobody knows what of it was
    /// charged before: as if all had come when the epoch began. In ticks of debt. spec: adm-15
    pub fn debt_without_baseline(&self, total: u32, epoch: u64, now_ns: u64) -> u64 {
        let start_ns = epoch.saturating_mul(self.epochs.by());
        let drained = self.ticks(now_ns).wrapping_sub(self.ticks(start_ns));
        // An epoch that has not begun here has drained nothing.
        let drained = if now_ns >= start_ns { drained } else { 0 };
        (u64::from(total) << self.tick_shift)
            .saturating_sub(drained)
            .min(self.debt_max_ticks())
    }

    /// Like [`GcraPlan::fold`], for debt in ticks: the larger of the two, capped.
    #[inline]
    pub fn fold_ticks(&self, debt: u64, ticks: u64) -> u64 {
        debt.saturating_add(ticks)
            .min(self.debt_max_ticks())
            .max(debt)
    }

    /// What a bucket with `debt` shows; `reset_ns` is until the next hit is given back.
    #[inline]
    pub fn reading(&self, debt: u64) -> Reading {
        let left = self.depth_ticks.saturating_sub(debt);
        let hit = 1u64 << self.tick_shift;
        let reset_ns = if debt == 0 {
            0
        } else {
            // To the next whole hit, from what is left, or from below when the slack is in use.
            let short = if debt > self.depth_ticks {
                debt - self.depth_ticks + hit
            } else {
                hit - (left & (hit - 1))
            };
            self.ticks_to_ns(short.min(debt))
        };
        Reading {
            limit: self.burst,
            remaining: clamp_u32(left >> self.tick_shift),
            reset_ns,
            used: debt.div_ceil(hit),
        }
    }

    /// Nanoseconds until `refusal` no longer holds; at least 1. spec: adm-8
    #[inline]
    pub fn wait_ns(&self, refusal: Refusal) -> u64 {
        self.ticks_to_ns(refusal.wait_ticks).max(1)
    }
}

/// (m, s) with m / 2^s just at or above `over` / `under`, m as large as 64 bits allow.
fn ratio(over: u128, under: u128) -> (u64, u32) {
    // Largest s with ceil(over * 2^s / under) < 2^64. over * 2^s < under * 2^64 <= 2^128 / 1 holds
    // for the s that are tried because `under` is below 2^74 and the loop stops at the first hit.
    let mut whole = over / under;
    let mut rest = over % under;
    let mut shift = 0u32;
    // Long division, one bit at a time, until the quotient fills 64 bits.
    while whole < 1 << 63 && shift < 127 {
        rest <<= 1;
        let bit = u128::from(rest >= under);
        whole = (whole << 1) | bit;
        rest -= bit * under;
        shift += 1;
    }
    let rounded = whole + u128::from(rest != 0);
    if rounded > u128::from(u64::MAX) {
        // Only when the quotient was all ones, or the rate is beyond any clock: one bit less.
        return (clamp_u64(rounded.div_ceil(2)), shift.saturating_sub(1));
    }
    (low(rounded), shift)
}
