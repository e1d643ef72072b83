//! The slow walk over all rows: dead ones are freed, and nothing gets so old that its short epoch
//! comes round again. Whoever runs it must visit every row within a quarter of the shortest epoch
//! period (2^20 buckets), also when there is no gossip. spec: adm-22

use crate::layout::{Sub, HEAD, RING};
use crate::limits::SCRUB_AGE_EPOCHS;
use crate::mem::Mem;
use crate::row::Spot;
use crate::stats::Stat;
use crate::types::DirtyRow;
use crate::word::{epoch_ahead, tagged_count, tagged_epoch, tagged_is_of, State};
use crate::Table;
use gabion_admit::Plan;
use gabion_rule::RuleIdx;

impl<M: Mem> Table<M> {
    /// Visits `rows` rows from `cursor` (any number; it is advanced and wraps), and calls `f` with
    /// the own counts of live ones, as [`Table::drain_dirty`] does, for the pump to compare with
    /// what it announced.
    pub fn scrub(&self, cursor: &mut u64, rows: usize, now_ns: u64, f: &mut dyn FnMut(DirtyRow)) {
        let total: usize = self.layout.subs.iter().map(Sub::row_count).sum();
        for _ in 0..rows.min(total) {
            let bit = usize::try_from(*cursor % total as u64).unwrap_or(0);
            *cursor = (bit as u64 + 1) % total as u64;
            let after = self.layout.subs.partition_point(|s| s.first_bit <= bit);
            let Some(sub) = after.checked_sub(1).and_then(|i| self.layout.subs.get(i)) else {
                continue;
            };
            let Ok(rule) = RuleIdx::try_from(after - 1) else {
                continue;
            };
            if bit % 64 == 0 {
                self.repair_mark(bit / 64);
            }
            self.scrub_row(rule, sub, bit - sub.first_bit, now_ns, f);
        }
    }

    /// A bit was set in a level-0 word, but not the one above: its decider was killed in between.
    pub(crate) fn repair_mark(&self, low: usize) {
        let at = self.layout.dirty1 + low / 64;
        if self.mem.load(self.layout.dirty0 + low) != 0 && self.mem.load(at) >> (low % 64) & 1 == 0
        {
            self.mem.fetch_or(at, 1 << (low % 64));
            self.note(Stat::Remarked, 1);
        }
    }

    fn scrub_row(
        &self,
        rule: RuleIdx,
        sub: &Sub,
        slot: usize,
        now_ns: u64,
        f: &mut dyn FnMut(DirtyRow),
    ) {
        let fmt = sub.format;
        let at = sub.row(slot) + HEAD;
        let head = self.mem.load(at);
        let empty = fmt.make(fmt.generation(head), State::Empty, 0);
        match fmt.state(head) {
            State::Empty => {}
            State::Pending => {
                if self.is_stale_claim(head, now_ns) && self.mem.cas(at, head, empty).is_ok() {
                    self.note(Stat::Takeovers, 1);
                }
            }
            State::Live => {
                let spot = Spot { slot, head };
                if self.is_long_dead(sub, spot, now_ns) {
                    if self.mem.cas(at, head, empty).is_ok() {
                        self.note(Stat::Scrubbed, 1);
                        self.note(Stat::Live, u64::MAX);
                    }
                    return;
                }
                self.clear_old(sub, spot, now_ns);
                self.export(rule, sub, slot, now_ns, f);
            }
        }
    }

    /// Dead, and nothing in it is worth exporting any more.
    fn is_long_dead(&self, sub: &Sub, spot: Spot, now_ns: u64) -> bool {
        let fmt = sub.format;
        if !self.worth(sub, fmt, spot, now_ns).dead {
            return false;
        }
        let now = sub.plan.epoch_of(now_ns);
        match &sub.plan {
            Plan::Window(plan) => {
                let age = epoch_ahead(&self.mem, now, fmt.epoch(spot.head));
                age < 0 || age > i64::from(plan.closed) + 1
            }
            // The words say how old it is and what of the remote totals was charged.
            Plan::Gcra(_) => !(RING..sub.remote_at + sub.remote).any(|i| {
                let word = self.mem.load(sub.row(spot.slot) + i);
                let age = epoch_ahead(&self.mem, now, tagged_epoch(word));
                tagged_is_of(word, fmt.generation(spot.head)) && (-2..=2).contains(&age)
            }),
        }
    }

    /// Clears words of a live row that count no more, before their epoch can come round again.
    fn clear_old(&self, sub: &Sub, spot: Spot, now_ns: u64) {
        let fmt = sub.format;
        let base = sub.row(spot.slot);
        let now = sub.plan.epoch_of(now_ns);
        for i in RING..sub.remote_at + sub.remote {
            let word = self.mem.load(base + i);
            let age = epoch_ahead(&self.mem, now, tagged_epoch(word)).abs();
            let old = age > SCRUB_AGE_EPOCHS && tagged_count(word) > 0;
            if old && tagged_is_of(word, fmt.generation(spot.head)) {
                // Loaded before the head is looked at: see `Table::raise`.
                if !fmt.same_life(self.mem.load(base + HEAD), spot.head) {
                    return;
                }
                let _ = self.mem.cas(base + i, word, 0);
            }
        }
    }
}
