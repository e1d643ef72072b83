//! Decisions that look at a member's share of the limit: `pace=paced` and `pace=strict`.
//!
//! I own the two words beside the counters that shares need (since when the counters know
//! everything, and who is there), and the word of a row that says what it had when this slice of
//! time began. The arithmetic is `gabion_admit`'s. Rules without shares never come here.

use crate::charge::{Act, Ask};
use crate::layout::{Sub, AT_BORN, AT_CROWD, HEAD};
use crate::limits::CLOCK_SLACK_NS;
use crate::mem::Mem;
use crate::row::{window_reading, Spot, View};
use crate::stats::Stat;
use crate::word::{tagged, tagged_count, tagged_epoch, tagged_is_of, HeadFormat, EPOCH_MASK};
use crate::Table;
use gabion_admit::{Crowd, Pacing, Verdict, WindowPlan};

/// What stands between room in the window and admission.
pub(crate) trait Gate<M: Mem> {
    /// Why `hits` that fit must not pass here: the nanoseconds until they may. `None` lets pass.
    fn held(&self, spot: Spot, view: &View, hits: u32, act: Act) -> Option<u64>;
}

/// No shares.
#[derive(Clone, Copy)]
pub(crate) struct Open;

impl<M: Mem> Gate<M> for Open {
    #[inline(always)]
    fn held(&self, _: Spot, _: &View, _: u32, _: Act) -> Option<u64> {
        None
    }
}

/// One decision on shares.
struct Shares<'t, M: Mem> {
    table: &'t Table<M>,
    sub: &'t Sub,
    plan: &'t WindowPlan,
    fmt: HeadFormat,
    now_ns: u64,
}

impl<M: Mem> Gate<M> for Shares<'_, M> {
    fn held(&self, spot: Spot, view: &View, hits: u32, act: Act) -> Option<u64> {
        if hits == 0 {
            return None;
        }
        match self.plan.pacing {
            Pacing::Fast => None,
            Pacing::Paced => self.held_paced(spot, view, hits, act),
            Pacing::Strict { .. } => self.held_strict(spot, view, hits, act),
        }
    }
}

impl<M: Mem> Shares<'_, M> {
    /// spec: pace-5, pace-6, pace-7
    fn held_strict(&self, spot: Spot, view: &View, hits: u32, act: Act) -> Option<u64> {
        if view.void {
            if matches!(act, Act::Enforce | Act::Saturate) {
                // A clock was set back: what the head counted is not known any more. Once noted, it
                // starts again; lost to somebody else, it did.
                self.table.forget_before(self.now_ns);
                let head = self.sub.row(spot.slot) + HEAD;
                let restarted = self.fmt.with(spot.head, view.epoch, 0);
                let _ = self.table.mem.cas(head, spot.head, restarted);
            }
            return Some(self.plan.bucket_ns);
        }
        if let Some(wait) = self.table.unknown_ns(self.plan, self.now_ns) {
            return Some(wait);
        }
        let (part, now) = (
            self.plan.pacing.part_of(self.plan.limit),
            self.plan.split(self.now_ns),
        );
        let own = self
            .table
            .own_used(self.sub, self.plan, self.fmt, spot, now);
        if own.saturating_add(u64::from(hits)) <= u64::from(part) {
            return None;
        }
        Some(self.plan.bucket_ns - view.into_ns.min(self.plan.bucket_ns - 1))
    }

    /// spec: pace-2, pace-3, pace-4
    fn held_paced(&self, spot: Spot, view: &View, hits: u32, act: Act) -> Option<u64> {
        let crowd = Crowd::from_word(self.table.mem.load(AT_CROWD));
        if crowd.members <= 1 {
            return None;
        }
        let slice = crowd.slice(self.now_ns);
        let began = self.began_with(spot, view, slice, act);
        let taken = view.current.saturating_sub(began);
        let left = u64::from(self.plan.limit).saturating_sub(view.used);
        let admits = crowd.admits(taken, left, hits, slice);
        (!admits).then(|| crowd.slice_rest_ns(self.now_ns))
    }

    /// The own count of this bucket when this slice began. Whoever comes first in a slice notes it.
    fn began_with(&self, spot: Spot, view: &View, slice: u64, act: Act) -> u64 {
        let Some(offset) = self.sub.slice_at else {
            return 0;
        };
        let at = self.sub.row(spot.slot) + offset;
        let generation = self.fmt.generation(spot.head);
        let old = self.table.mem.load(at);
        let of_slice = tagged_is_of(old, generation) && tagged_epoch(old) == slice & EPOCH_MASK;
        if of_slice {
            let began = u64::from(tagged_count(old));
            // A bucket that began since then counts from 0.
            return if began > view.current { 0 } else { began };
        }
        if matches!(act, Act::Enforce | Act::Saturate) {
            let count = u32::try_from(view.current).unwrap_or(u32::MAX);
            // Lost: somebody else noted it, or the row has another key; either way the head has
            // moved, or the part is one more or less. spec: adm-24
            let _ = self
                .table
                .mem
                .cas(at, old, tagged(generation, slice, count));
        }
        view.current
    }
}

impl<M: Mem> Table<M> {
    /// [`Table::charge_window`] for rules with shares.
    #[inline(never)]
    pub(crate) fn charge_shared(
        &self,
        sub: &Sub,
        plan: &WindowPlan,
        fmt: HeadFormat,
        spot: Spot,
        ask: Ask,
        now_ns: u64,
    ) -> Option<Verdict> {
        let plan = &ask.limit.map_or(*plan, |limit| plan.with_limit(limit));
        let shares = Shares {
            table: self,
            sub,
            plan,
            fmt,
            now_ns,
        };
        let mut verdict =
            self.charge_window(sub, plan, fmt, spot, (ask.hits, ask.act), now_ns, shares)?;
        if let Pacing::Strict { .. } = plan.pacing {
            let head = self.mem.load(sub.row(spot.slot) + HEAD);
            if fmt.same_life(head, spot.head) {
                let spot = Spot { head, ..spot };
                let own = self.own_used(sub, plan, fmt, spot, plan.split(now_ns));
                let part = u64::from(plan.pacing.part_of(plan.limit)).saturating_sub(own);
                let left = u64::from(verdict.reading.remaining).min(part);
                verdict.reading.remaining = u32::try_from(left).unwrap_or(u32::MAX);
            }
        }
        Some(verdict)
    }

    /// A denial though the limit has room: the reading says that nothing is left here now.
    /// spec: pace-8
    #[cold]
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn refuse_share(
        &self,
        sub: &Sub,
        plan: &WindowPlan,
        fmt: HeadFormat,
        spot: Spot,
        view: &View,
        (hits, act, wait_ns): (u32, Act, u64),
        now_ns: u64,
    ) -> Option<Verdict> {
        if !self.still_alive(sub, fmt, spot) {
            return None;
        }
        if act != Act::Read && hits > 0 {
            self.refer(sub, spot.slot, plan.split(now_ns).0);
        }
        if act == Act::Enforce && hits > 0 {
            self.note(Stat::ShareDenials, 1);
        }
        let mut reading = window_reading(plan, plan.split(now_ns), view, view.used);
        reading.remaining = 0;
        reading.reset_ns = wait_ns;
        if hits == 0 {
            return Some(Verdict::allowed(reading));
        }
        Some(Verdict::denied(reading, wait_ns))
    }

    /// Says who is there, for rules that are `paced`. For the one driver of these counters.
    pub fn set_crowd(&self, crowd: Crowd) {
        let word = crowd.to_word();
        if self.mem.load(AT_CROWD) != word {
            self.mem.swap(AT_CROWD, word);
        }
    }

    /// Who is there, as far as it was said.
    pub fn crowd(&self) -> Crowd {
        Crowd::from_word(self.mem.load(AT_CROWD))
    }

    /// What was admitted before `now_ns` is not known here any more, or was counted by another
    /// clock: rules that are `strict` wait for a window that begins after it. spec: pace-7
    pub fn forget_before(&self, now_ns: u64) {
        self.mem
            .swap(AT_BORN, now_ns.saturating_add(CLOCK_SLACK_NS).max(1));
    }

    /// Nanoseconds until a window that these counters know wholly; `None` when it is this one. The
    /// first to ask of new counters finds out that they are new.
    fn unknown_ns(&self, plan: &WindowPlan, now_ns: u64) -> Option<u64> {
        let mut born_ns = self.mem.load(AT_BORN);
        if born_ns == 0 {
            let fresh = now_ns.saturating_add(CLOCK_SLACK_NS).max(1);
            born_ns = match self.mem.cas(AT_BORN, 0, fresh) {
                Ok(_) => fresh,
                Err(other) => other,
            };
        }
        plan.unknown_ns(born_ns, now_ns)
    }

    /// Counters that take over those of `old` know what `old` does.
    pub(crate) fn inherit_shares(&self, old: &Table<M>) {
        self.mem.swap(AT_BORN, old.mem.load(AT_BORN));
        self.mem.swap(AT_CROWD, old.mem.load(AT_CROWD));
    }
}

#[cfg(test)]
mod tests;
