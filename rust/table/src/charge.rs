//! Charging hits to a row: one CAS on its head.

use crate::layout::{Sub, HEAD, RING};
use crate::mem::{Fault, Mem};
use crate::row::{ring_index, window_reading, Spot, View};
use crate::share::{Gate, Open};
use crate::stats::Stat;
use crate::word::{
    epoch_ahead, tagged, tagged_count, tagged_epoch, tagged_is_of, tat_ahead, with_tat, HeadFormat,
    TAT_MASK,
};
use crate::Table;
use gabion_admit::{GcraPlan, Plan, Verdict, WindowPlan};

/// What to do to a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// Say what the counter shows; change nothing at all.
    Read,
    /// Say what a charge would meet; a denial is one (it refers to the row).
    Peek,
    /// Charge when it fits.
    Enforce,
    /// Charge in any case, as far as it goes; the verdict says what enforcing would have said.
    Saturate,
}

/// What is asked of a counter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub(crate) hits: u32,
    /// In place of the window's own.
    pub(crate) limit: Option<u32>,
    pub(crate) act: Act,
}

impl Ask {
    /// The limit that it is held to.
    #[inline(always)]
    pub(crate) fn limit_in(self, sub: &Sub) -> u32 {
        match (&sub.plan, self.limit) {
            (Plan::Window(_), Some(limit)) => limit,
            (plan, _) => plan.limit(),
        }
    }
}

impl<M: Mem> Table<M> {
    /// Applies `ask` to a live row. `None` when the row's life has ended: find it again.
    #[inline(always)]
    pub(crate) fn charge_row(
        &self,
        sub: &Sub,
        fmt: HeadFormat,
        spot: Spot,
        ask: Ask,
        now_ns: u64,
    ) -> Option<Verdict> {
        let Ask { hits, limit, act } = ask;
        match (&sub.plan, limit) {
            (Plan::Window(plan), _) if sub.shares => {
                self.charge_shared(sub, plan, fmt, spot, ask, now_ns)
            }
            (Plan::Window(plan), None) => {
                self.charge_window(sub, plan, fmt, spot, (hits, act), now_ns, Open)
            }
            (Plan::Window(plan), Some(limit)) => {
                self.charge_limited(sub, plan.with_limit(limit), fmt, spot, (hits, act), now_ns)
            }
            (Plan::Gcra(plan), _) => self.charge_bucket(sub, plan, fmt, spot, hits, act, now_ns),
        }
    }

    /// Apart, so that the way of the rules' own limits stays as short as it is.
    #[inline(never)]
    fn charge_limited(
        &self,
        sub: &Sub,
        plan: WindowPlan,
        fmt: HeadFormat,
        spot: Spot,
        (hits, act): (u32, Act),
        now_ns: u64,
    ) -> Option<Verdict> {
        self.charge_window(sub, &plan, fmt, spot, (hits, act), now_ns, Open)
    }

    #[allow(clippy::too_many_arguments)]
    #[inline(always)]
    pub(crate) fn charge_window(
        &self,
        sub: &Sub,
        plan: &WindowPlan,
        fmt: HeadFormat,
        mut spot: Spot,
        (hits, act): (u32, Act),
        now_ns: u64,
        gate: impl Gate<M>,
    ) -> Option<Verdict> {
        let now = plan.split(now_ns);
        loop {
            let view = self.view(sub, plan, fmt, spot, now);
            let within = plan.fits(view.used, hits);
            let ask = || gate.held(spot, &view, hits.max(1), act);
            let held = if within { ask() } else { None };
            if let (Some(wait), true) = (held, act != Act::Saturate || hits == 0) {
                let asked = (hits, act, wait);
                return self.refuse_share(sub, plan, fmt, spot, &view, asked, now_ns);
            }
            let fits = within && held.is_none();
            if !fits && (act != Act::Saturate || hits == 0) {
                return self.refuse_window(sub, plan, fmt, spot, &view, (hits, act), now_ns);
            }
            if hits == 0 || matches!(act, Act::Read | Act::Peek) {
                let alive = self.still_alive(sub, fmt, spot);
                return alive
                    .then(|| Verdict::allowed(window_reading(plan, now, &view, view.used)));
            }
            if view.epoch != now.0 || view.head_age != 0 || view.void {
                // Rare: once per row and epoch.
                if let Err(head) = self.close(sub, plan, fmt, spot, &view) {
                    if !fmt.same_life(head, spot.head) {
                        return None;
                    }
                    spot.head = head;
                    continue;
                }
            }
            if self.mem.planted(Fault::MarkBeforeReserve) {
                self.mark_dirty(sub, spot.slot);
            }
            let count = view
                .current
                .saturating_add(u64::from(hits))
                .min(fmt.count_max());
            // spec: adm-3. One CAS from the head that everything above was computed from.
            let new = fmt.with(spot.head, view.epoch, count);
            match self.mem.cas(sub.row(spot.slot) + HEAD, spot.head, new) {
                Ok(_) => {
                    self.mark_reserved(sub, spot.slot);
                    let used = view.used.saturating_add(u64::from(hits));
                    let mut reading = window_reading(plan, now, &view, used);
                    if fits {
                        return Some(Verdict::allowed(reading));
                    }
                    if held.is_some() {
                        reading.remaining = 0;
                    }
                    let wait = held
                        .unwrap_or_else(|| self.window_wait_ns(sub, plan, fmt, spot, now, hits));
                    return Some(Verdict::denied(reading, wait));
                }
                Err(head) if fmt.same_life(head, spot.head) => spot.head = head,
                Err(_) => return None,
            }
        }
    }

    /// A rejection: a pure read of the row, re-checked. spec: adm-26
    #[allow(clippy::too_many_arguments)]
    #[inline(never)]
    fn refuse_window(
        &self,
        sub: &Sub,
        plan: &WindowPlan,
        fmt: HeadFormat,
        spot: Spot,
        view: &View,
        (hits, act): (u32, Act),
        now_ns: u64,
    ) -> Option<Verdict> {
        let now = plan.split(now_ns);
        let wait = self.window_wait_ns(sub, plan, fmt, spot, now, hits);
        if !self.still_alive(sub, fmt, spot) {
            return None;
        }
        if act != Act::Read {
            self.refer(sub, spot.slot, now.0);
        }
        let reading = window_reading(plan, now, view, view.used);
        Some(Verdict::denied(reading, wait))
    }

    /// Before the head moves to another epoch: puts its closing bucket into the ring. `Err` with
    /// the head as it is now, when it is no longer what the caller saw. spec: adm-6
    #[cold]
    #[inline(never)]
    fn close(
        &self,
        sub: &Sub,
        plan: &WindowPlan,
        fmt: HeadFormat,
        spot: Spot,
        view: &View,
    ) -> Result<(), u64> {
        if view.void {
            self.note(Stat::VoidEpochs, 1);
            return self.forget_from(sub, fmt, spot, view.epoch);
        }
        let count = fmt.count(spot.head);
        // Older than anything that counts or is exported: nothing to keep.
        let kept = view.head_age <= u64::from(plan.closed) + 1;
        if view.head_age == 0 || count == 0 || !kept || self.mem.planted(Fault::RingNotPublished) {
            return Ok(());
        }
        let base = sub.row(spot.slot);
        let epoch = view.epoch.wrapping_sub(view.head_age);
        let at = base + RING + ring_index(sub, epoch);
        let generation = fmt.generation(spot.head);
        let closing = tagged(generation, epoch, u32::try_from(count).unwrap_or(u32::MAX));
        loop {
            let old = self.mem.load(at);
            if tagged_is_of(old, generation) {
                let ahead = epoch_ahead(&self.mem, tagged_epoch(old), epoch);
                if ahead > 0 || ahead == 0 && tagged_count(old) >= tagged_count(closing) {
                    return Ok(());
                }
            }
            // Between the load and the CAS: if the head is still ours, the word we saw is of this
            // life or an earlier one, never a later one. spec: adm-24
            let head = self.mem.load(base + HEAD);
            if head != spot.head && !self.mem.planted(Fault::RingSkipsGeneration) {
                return Err(head);
            }
            if self.mem.cas(at, old, closing).is_ok() {
                return Ok(());
            }
        }
    }

    /// A void head starts again at `epoch`, from nothing. What the ring holds of that epoch and of
    /// later ones goes with it: else it would come back, in the place of fewer hits, once the new
    /// head has gone by, and be counted twice by whoever saw the row start again (pmp-12). `Err` as
    /// in `close`. spec: adm-23
    fn forget_from(&self, sub: &Sub, fmt: HeadFormat, spot: Spot, epoch: u64) -> Result<(), u64> {
        let base = sub.row(spot.slot);
        for at in base + RING..base + RING + sub.ring {
            let word = self.mem.load(at);
            let later = epoch_ahead(&self.mem, tagged_epoch(word), epoch) >= 0;
            if !later || !tagged_is_of(word, fmt.generation(spot.head)) {
                continue;
            }
            // As in `close`. A lost CAS: somebody else saw the same head, or has moved it.
            let head = self.mem.load(base + HEAD);
            if head != spot.head {
                return Err(head);
            }
            let _ = self.mem.cas(at, word, 0);
        }
        Ok(())
    }

    #[allow(clippy::too_many_arguments)]
    #[inline]
    fn charge_bucket(
        &self,
        sub: &Sub,
        plan: &GcraPlan,
        fmt: HeadFormat,
        mut spot: Spot,
        hits: u32,
        act: Act,
        now_ns: u64,
    ) -> Option<Verdict> {
        let now = plan.ticks(now_ns);
        let at = sub.row(spot.slot) + HEAD;
        loop {
            let ahead = tat_ahead(spot.head & TAT_MASK, now);
            let debt = plan.debt(ahead);
            let admitted = plan.admit(debt, hits);
            let after = match admitted {
                Ok(after) => after,
                Err(_) if act == Act::Saturate && hits > 0 => plan.saturate(debt, hits),
                Err(refusal) => {
                    if !self.still_alive(sub, fmt, spot) {
                        return None;
                    }
                    if act == Act::Read {
                        return Some(Verdict::denied(plan.reading(debt), plan.wait_ns(refusal)));
                    }
                    if ahead > sub.ahead_max {
                        // A clock was set back: without this the bucket would not drain until the
                        // clock is there again. Less ahead, it is we who stood still. spec: adm-13
                        self.note(Stat::VoidEpochs, 1);
                        let _ = self.mem.cas(
                            at,
                            spot.head,
                            with_tat(spot.head, now.wrapping_add(debt)),
                        );
                    }
                    self.refer(sub, spot.slot, plan.split(now_ns).0);
                    return Some(Verdict::denied(plan.reading(debt), plan.wait_ns(refusal)));
                }
            };
            if hits == 0 || matches!(act, Act::Read | Act::Peek) {
                let alive = self.still_alive(sub, fmt, spot);
                return alive.then(|| Verdict::allowed(plan.reading(debt)));
            }
            if self.mem.planted(Fault::MarkBeforeReserve) {
                self.mark_dirty(sub, spot.slot);
            }
            // A dry run by somebody who stood still must not lower what others wrote meanwhile.
            let stays = after == debt && ahead > 0 && ahead <= sub.ahead_max;
            let tat = if stays {
                spot.head
            } else {
                now.wrapping_add(after)
            };
            match self.mem.cas(at, spot.head, with_tat(spot.head, tat)) {
                Ok(_) => {
                    self.add_own(sub, plan, fmt, spot, hits, now_ns);
                    self.mark_reserved(sub, spot.slot);
                    let reading = plan.reading(after);
                    return Some(match admitted {
                        Ok(_) => Verdict::allowed(reading),
                        Err(refusal) => Verdict::denied(reading, plan.wait_ns(refusal)),
                    });
                }
                Err(head) if fmt.same_life(head, spot.head) => spot.head = head,
                Err(_) => return None,
            }
        }
    }

    /// Adds to the own count that is announced; the TAT has the hits already, so somebody killed in
    /// between leaves one request unannounced, never uncounted here. spec: adm-16
    fn add_own(
        &self,
        sub: &Sub,
        plan: &GcraPlan,
        fmt: HeadFormat,
        spot: Spot,
        hits: u32,
        now_ns: u64,
    ) {
        let base = sub.row(spot.slot);
        let generation = fmt.generation(spot.head);
        let epoch = plan.split(now_ns).0;
        let at = base + RING + (epoch & 1) as usize;
        loop {
            let old = self.mem.load(at);
            let ahead = epoch_ahead(&self.mem, tagged_epoch(old), epoch);
            let ours = tagged_is_of(old, generation);
            let count = if ours && ahead >= 0 {
                tagged_count(old)
            } else {
                0
            };
            let of = if ours && ahead == 2 { epoch + 2 } else { epoch };
            let count = if ours && ahead > 2 { 0 } else { count };
            let new = tagged(generation, of, count.saturating_add(hits));
            if !fmt.same_life(self.mem.load(base + HEAD), spot.head) {
                return;
            }
            if self.mem.cas(at, old, new).is_ok() {
                if !ours || ahead != 0 {
                    self.keep_birth(sub, fmt, spot, epoch);
                }
                return;
            }
        }
    }

    /// The word that said since when the row lives was overwritten by this epoch: the other one
    /// must say that it lived before. spec: adm-15
    #[cold]
    fn keep_birth(&self, sub: &Sub, fmt: HeadFormat, spot: Spot, epoch: u64) {
        let base = sub.row(spot.slot);
        let generation = fmt.generation(spot.head);
        let before = epoch.wrapping_sub(1);
        let at = base + RING + (before & 1) as usize;
        let old = self.mem.load(at);
        let newer = epoch_ahead(&self.mem, tagged_epoch(old), before) >= 0;
        if tagged_is_of(old, generation) && newer {
            return;
        }
        if fmt.same_life(self.mem.load(base + HEAD), spot.head) {
            // Lost: somebody else wrote a newer one, which says as much.
            let _ = self.mem.cas(at, old, tagged(generation, before, 0));
        }
    }

    #[inline(always)]
    pub(crate) fn mark_reserved(&self, sub: &Sub, slot: usize) {
        let skip =
            self.mem.planted(Fault::SkipDirtyMark) || self.mem.planted(Fault::MarkBeforeReserve);
        if !skip {
            self.mark_dirty(sub, slot);
        }
    }
}
