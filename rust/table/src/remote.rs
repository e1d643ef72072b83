//! Showing what other members counted.

use crate::evict::Door;
use crate::layout::{Sub, HEAD, RING};
use crate::limits::{REMOTE_AHEAD_EPOCHS_GCRA_MAX, REMOTE_AHEAD_EPOCHS_MAX, REMOTE_GRACE_EPOCHS};
use crate::mem::{Fault, Mem};
use crate::probe::Place;
use crate::row::{remote_index, Spot};
use crate::types::Publish;
use crate::word::{
    epoch_ahead, tagged, tagged_count, tagged_epoch, tagged_is_of, tat_ahead, with_tat, HeadFormat,
    TAT_MASK,
};
use crate::Table;
use gabion_admit::{GcraPlan, Plan};
use gabion_rule::{Key, RuleIdx};

/// What a remote word showed before it was raised.
#[derive(Clone, Copy, Debug)]
enum Before {
    /// This much of the same epoch.
    Count(u32),
    /// Nothing of this epoch.
    Nothing,
}

impl<M: Mem> Table<M> {
    /// Shows that all other origins together counted `total` in `epoch`. Only ever raises; inserts
    /// no row. A token bucket is charged the increase. spec: adm-27
    pub fn publish_remote(
        &self,
        rule: RuleIdx,
        key: Key,
        epoch: u64,
        total: u64,
        now_ns: u64,
    ) -> Publish {
        let Some(sub) = self.accepting(rule, epoch, now_ns) else {
            return Publish::Stale;
        };
        let place = Place::of(sub, key);
        let found = self.find(sub, sub.format, &place, key);
        match found.filter(|spot| sub.format.is_live(spot.head)) {
            Some(spot) => self.raise(sub, spot, epoch, total, now_ns),
            None => Publish::Absent,
        }
    }

    /// As [`Table::publish_remote`], but claims a row for a key that has none, unless only
    /// exhausted rows could make room ([`Publish::Absent`]).
    pub fn publish_remote_or_claim(
        &self,
        rule: RuleIdx,
        key: Key,
        epoch: u64,
        total: u64,
        now_ns: u64,
    ) -> Publish {
        let Some(sub) = self.accepting(rule, epoch, now_ns) else {
            return Publish::Stale;
        };
        let place = Place::of(sub, key);
        match self.claim(sub, sub.format, &place, key, now_ns, Door::Remote) {
            Ok(spot) => self.raise(sub, spot, epoch, total, now_ns),
            Err(_) => Publish::Absent,
        }
    }

    /// The rule's sub-table when totals of `epoch` are taken now.
    fn accepting(&self, rule: RuleIdx, epoch: u64, now_ns: u64) -> Option<&Sub> {
        let sub = self.sub(rule)?;
        let ahead = epoch.wrapping_sub(sub.plan.epoch_of(now_ns)) as i64;
        let (past, coming) = match &sub.plan {
            Plan::Window(w) => (
                i64::from(w.closed) + REMOTE_GRACE_EPOCHS,
                REMOTE_AHEAD_EPOCHS_MAX,
            ),
            Plan::Gcra(_) => (1, REMOTE_AHEAD_EPOCHS_GCRA_MAX),
        };
        (-past..=coming).contains(&ahead).then_some(sub)
    }

    /// Raise-only, and only while the row lives the life that was found.
    fn raise(&self, sub: &Sub, spot: Spot, epoch: u64, total: u64, now_ns: u64) -> Publish {
        let total = u32::try_from(total).unwrap_or(u32::MAX);
        let fmt = sub.format;
        let base = sub.row(spot.slot);
        let generation = fmt.generation(spot.head);
        let at = base + sub.remote_at + remote_index(sub, epoch);
        let lived_before = self.lived_before(sub, generation, base, epoch);
        let before = loop {
            let old = self.mem.load(at);
            let ours = tagged_is_of(old, generation);
            let ahead = epoch_ahead(&self.mem, tagged_epoch(old), epoch);
            if ours && ahead == 0 {
                let lowers = self.mem.planted(Fault::RemoteLowers);
                if tagged_count(old) >= total && !(lowers && tagged_count(old) != total) {
                    return Publish::Unchanged;
                }
            } else if ours && ahead > 0 && ahead <= sub.remote as i64 {
                return Publish::Stale;
            }
            // Between the load and the CAS: while the head is of our life, the word cannot be of a
            // later one. Pairs with the CAS by which a claimer ends a life. spec: adm-24
            let alive = fmt.same_life(self.mem.load(base + HEAD), spot.head);
            if !alive && !self.mem.planted(Fault::RemoteSkipsGeneration) {
                return Publish::Absent;
            }
            let word = if self.mem.planted(Fault::RemoteSkipsGeneration) {
                // Without generations, that is: tagged like whatever is there.
                tagged(fmt.generation(self.mem.load(base + HEAD)), epoch, total)
            } else {
                tagged(generation, epoch, total)
            };
            if self.mem.cas(at, old, word).is_ok() {
                break if ours && ahead == 0 {
                    Before::Count(tagged_count(old))
                } else {
                    Before::Nothing
                };
            }
        };
        if let Plan::Gcra(plan) = &sub.plan {
            self.fold(
                sub,
                plan,
                fmt,
                spot,
                (epoch, total),
                before,
                lived_before,
                now_ns,
            )
        } else if fmt.same_life(self.mem.load(base + HEAD), spot.head) {
            Publish::Published
        } else {
            Publish::Absent
        }
    }

    /// Whether the row has lived since before `epoch` began, so that a first total of that epoch is
    /// all increase: an own count, if only of 0, names an earlier epoch. spec: adm-15
    fn lived_before(&self, sub: &Sub, generation: u64, base: usize, epoch: u64) -> bool {
        sub.gcra().is_some()
            && (RING..RING + sub.ring).any(|i| {
                let word = self.mem.load(base + i);
                tagged_is_of(word, generation)
                    && epoch_ahead(&self.mem, tagged_epoch(word), epoch) < 0
            })
    }

    /// Charges a token bucket with a remote increase. Whoever raised the word charges it, once; if
    /// killed in between, the increase is not charged here (fail open). spec: adm-14
    #[allow(clippy::too_many_arguments)]
    fn fold(
        &self,
        sub: &Sub,
        plan: &GcraPlan,
        fmt: HeadFormat,
        spot: Spot,
        (epoch, total): (u64, u32),
        before: Before,
        lived_before: bool,
        now_ns: u64,
    ) -> Publish {
        let at = sub.row(spot.slot) + HEAD;
        let now = plan.ticks(now_ns);
        loop {
            let head = self.mem.load(at);
            if !fmt.same_life(head, spot.head) {
                return Publish::Absent;
            }
            let debt = plan.debt(tat_ahead(head & TAT_MASK, now));
            let after = match before {
                Before::Count(old) => plan.fold(debt, total.saturating_sub(old)),
                Before::Nothing if lived_before => plan.fold(debt, total),
                Before::Nothing => {
                    plan.fold_ticks(debt, plan.debt_without_baseline(total, epoch, now_ns))
                }
            };
            if after == debt {
                return Publish::Published;
            }
            if self
                .mem
                .cas(at, head, with_tat(head, now.wrapping_add(after)))
                .is_ok()
            {
                return Publish::Published;
            }
        }
    }
}
