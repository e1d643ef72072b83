//! Which rows changed: a bit per row, and a bit per word of those. Deciders set, the driver walks.
//!
//! A decider first changes the row and then looks at the bit; the driver first clears the bit and
//! then looks at the row. Both sides are SeqCst, so of a decider that found the bit still set and a
//! driver that cleared it, the driver sees the decider's count. spec: adm-29

use crate::layout::{Sub, AT_DRAIN, AT_SWEEP, HEAD, KEY_A, KEY_B, RING};
use crate::limits::EXPORT_LOOKBACK_NS;
use crate::mem::{Fault, Mem};
use crate::row::Spot;
use crate::types::DirtyRow;
use crate::word::{
    epoch_ahead, index, key_word, tagged_count, tagged_epoch, tagged_is_of, HeadFormat, KEY_MASK,
};
use crate::Table;
use gabion_admit::{Plan, WindowPlan};
use gabion_rule::{Key, RuleIdx};

impl<M: Mem> Table<M> {
    /// Says that the row's own count rose. One load when that is known already. (Whoever made it
    /// known may have been killed between the two levels: the driver's sweep finds it.)
    #[inline(always)]
    pub(crate) fn mark_dirty(&self, sub: &Sub, slot: usize) {
        let bit = sub.first_bit + slot;
        let (low, high) = (bit / 64, bit / 64 / 64);
        // SeqCst load after the CAS of the head; pairs with the driver's swap.
        if self.mem.load_seq(self.layout.dirty0 + low) >> (bit % 64) & 1 == 0 {
            self.mem.fetch_or(self.layout.dirty0 + low, 1 << (bit % 64));
            let at = self.layout.dirty1 + high;
            if self.mem.load_seq(at) >> (low % 64) & 1 == 0 {
                self.mem.fetch_or(at, 1 << (low % 64));
            }
        }
    }

    /// Looks at the level-0 words of one level-1 word, each call at the next, for those whose
    /// level-1 bit is missing because a decider or a driver was killed between the two.
    fn sweep(&self) {
        let words = self.layout.dirty1_words;
        let high = index(self.mem.load(AT_SWEEP)) % words;
        let lows = high * 64..((high + 1) * 64).min(self.layout.dirty0_words);
        for low in lows {
            self.repair_mark(low);
        }
        if words > 1 {
            self.mem.swap(AT_SWEEP, ((high + 1) % words) as u64);
        }
    }

    /// Whether the driver has yet to look at the row.
    pub(crate) fn is_dirty(&self, sub: &Sub, slot: usize) -> bool {
        let bit = sub.first_bit + slot;
        self.mem.load(self.layout.dirty0 + bit / 64) >> (bit % 64) & 1 == 1
    }

    /// Calls `f` with each live row that changed since it was last drained, for at most `budget`
    /// rows (the rest stays marked, and its turn comes first next time); returns how many rows. A
    /// row with short buckets may come in several calls, the newest epochs first.
    pub fn drain_dirty(&self, budget: usize, now_ns: u64, f: &mut dyn FnMut(DirtyRow)) -> usize {
        let words = self.layout.dirty1_words;
        if words == 0 || budget == 0 {
            return 0;
        }
        self.sweep();
        let start = index(self.mem.load(AT_DRAIN)) % words;
        let mut left = budget;
        for i in 0..words {
            let high = (start + i) % words;
            let at = self.layout.dirty1 + high;
            if self.mem.load(at) == 0 {
                continue;
            }
            // SeqCst; pairs with `load_seq` in `mark_dirty`.
            let mut lows = self.mem.swap(at, 0);
            while lows != 0 {
                let low = high * 64 + lows.trailing_zeros() as usize;
                if !self.drain_word(low, &mut left, now_ns, f) {
                    self.mem.fetch_or(at, lows);
                    self.mem.swap(AT_DRAIN, high as u64);
                    return budget;
                }
                lows &= lows - 1;
            }
        }
        budget - left
    }

    /// Drains the rows of one level-0 word; false when the budget ended before they did.
    fn drain_word(
        &self,
        low: usize,
        left: &mut usize,
        now_ns: u64,
        f: &mut dyn FnMut(DirtyRow),
    ) -> bool {
        let at = self.layout.dirty0 + low;
        if self.mem.planted(Fault::DrainClearsAfterRead) {
            let mut rows = self.mem.load(at);
            while rows != 0 {
                self.drain_row(low * 64 + rows.trailing_zeros() as usize, now_ns, f);
                rows &= rows - 1;
                *left = left.saturating_sub(1);
            }
            self.mem.swap(at, 0);
            return true;
        }
        if *left == 0 {
            return false;
        }
        // SeqCst; pairs with `load_seq` in `mark_dirty`.
        let mut rows = self.mem.swap(at, 0);
        while rows != 0 {
            if *left == 0 {
                self.mem.fetch_or(at, rows);
                return false;
            }
            *left -= 1;
            self.drain_row(low * 64 + rows.trailing_zeros() as usize, now_ns, f);
            rows &= rows - 1;
        }
        true
    }

    fn drain_row(&self, bit: usize, now_ns: u64, f: &mut dyn FnMut(DirtyRow)) {
        let after = self.layout.subs.partition_point(|s| s.first_bit <= bit);
        let Some(sub) = after.checked_sub(1).and_then(|i| self.layout.subs.get(i)) else {
            return;
        };
        let Ok(rule) = RuleIdx::try_from(after - 1) else {
            return;
        };
        self.export(rule, sub, bit - sub.first_bit, now_ns, f);
    }

    /// Calls `f` with the own counts of row `slot`, if it is live. A row that gets another key
    /// meanwhile is read again or left to its next mark.
    pub(crate) fn export(
        &self,
        rule: RuleIdx,
        sub: &Sub,
        slot: usize,
        now_ns: u64,
        f: &mut dyn FnMut(DirtyRow),
    ) {
        let fmt = sub.format;
        let base = sub.row(slot);
        // SeqCst: after the swap of the dirty word; pairs with the decider's CAS of the head.
        let mut head = self.mem.load_seq(base + HEAD);
        while fmt.is_live(head) {
            let spot = Spot { slot, head };
            let generation = fmt.generation(head);
            let (a, b) = (self.mem.load(base + KEY_A), self.mem.load(base + KEY_B));
            let key = Key {
                a: a & KEY_MASK,
                b: b & KEY_MASK,
            };
            let whole = a == key_word(generation, key.a) && b == key_word(generation, key.b);
            let mut counts = Counts {
                row: blank(rule, key, slot, generation),
                f: &mut *f,
            };
            if whole {
                match &sub.plan {
                    Plan::Window(plan) => {
                        if let Err(newer) =
                            self.export_window(sub, plan, fmt, spot, now_ns, &mut counts)
                        {
                            head = newer;
                            continue;
                        }
                    }
                    Plan::Gcra(plan) => {
                        let epoch = plan.split(now_ns).0;
                        self.export_bucket(sub, spot, generation, epoch, &mut counts);
                    }
                }
                counts.flush();
                return;
            }
            // Not this life's key: the row changed hands under us.
            let newer = self.mem.load(base + HEAD);
            if newer == head {
                return;
            }
            head = newer;
        }
    }

    /// `Err` with a newer head when the row was rolled while its ring was read: the bucket that the
    /// old head was counting must be taken from the ring then.
    fn export_window(
        &self,
        sub: &Sub,
        plan: &WindowPlan,
        fmt: HeadFormat,
        spot: Spot,
        now_ns: u64,
        out: &mut Counts<'_>,
    ) -> Result<(), u64> {
        let base = sub.row(spot.slot);
        let now = plan.split(now_ns).0;
        let ahead = epoch_ahead(&self.mem, fmt.epoch(spot.head), now);
        let epoch = now.wrapping_add_signed(ahead);
        let lookback = EXPORT_LOOKBACK_NS
            .div_ceil(plan.bucket_ns)
            .clamp(1, u64::from(plan.closed) + 1);
        let lookback = i64::try_from(lookback).unwrap_or(i64::MAX);
        let count = u32::try_from(fmt.count(spot.head)).unwrap_or(u32::MAX);
        let mut closed = [(0u64, 0u32); 8];
        let mut n = 0;
        for i in RING..RING + sub.ring {
            let word = self.mem.load(base + i);
            let age = epoch_ahead(&self.mem, epoch, tagged_epoch(word));
            let counts = tagged_is_of(word, fmt.generation(spot.head)) && tagged_count(word) > 0;
            if counts && age >= 1 && age <= lookback {
                if let Some(place) = closed.get_mut(n) {
                    *place = (epoch.wrapping_sub(age.unsigned_abs()), tagged_count(word));
                    n += 1;
                }
            }
        }
        let head = self.mem.load(base + HEAD);
        if !fmt.same_life(head, spot.head) || fmt.epoch(head) != fmt.epoch(spot.head) {
            return Err(head);
        }
        if count > 0 {
            out.push(epoch, count);
        }
        closed[..n].sort_unstable_by_key(|&(epoch, _)| std::cmp::Reverse(epoch));
        closed[..n]
            .iter()
            .for_each(|&(epoch, count)| out.push(epoch, count));
        Ok(())
    }

    fn export_bucket(
        &self,
        sub: &Sub,
        spot: Spot,
        generation: u64,
        now: u64,
        out: &mut Counts<'_>,
    ) {
        let base = sub.row(spot.slot);
        let mut found = [(0u64, 0u32); 2];
        for (i, place) in found.iter_mut().enumerate() {
            // SeqCst: after the swap; pairs with the decider's CAS of this word.
            let word = self.mem.load_seq(base + RING + i);
            let ahead = epoch_ahead(&self.mem, tagged_epoch(word), now);
            if tagged_is_of(word, generation) && (-1..=2).contains(&ahead) {
                *place = (now.wrapping_add_signed(ahead), tagged_count(word));
            }
        }
        found.sort_unstable_by_key(|&(epoch, _)| std::cmp::Reverse(epoch));
        for (epoch, count) in found {
            if count > 0 {
                out.push(epoch, count);
            }
        }
    }
}

fn blank(rule: RuleIdx, key: Key, slot: usize, generation: u64) -> DirtyRow {
    DirtyRow {
        rule,
        key,
        row: u32::try_from(slot).unwrap_or(u32::MAX),
        generation: u16::try_from(generation).unwrap_or(u16::MAX),
        counts: [(0, 0); 2],
        n: 0,
    }
}

/// Hands counts on, two to a call.
struct Counts<'f> {
    row: DirtyRow,
    f: &'f mut dyn FnMut(DirtyRow),
}

impl Counts<'_> {
    fn push(&mut self, epoch: u64, count: u32) {
        self.row.counts[usize::from(self.row.n)] = (epoch, count);
        self.row.n += 1;
        if self.row.n == 2 {
            self.flush();
        }
    }

    fn flush(&mut self) {
        if self.row.n > 0 {
            (self.f)(self.row);
            (self.row.n, self.row.counts) = (0, [(0, 0); 2]);
        }
    }
}
