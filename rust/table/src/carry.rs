//! Counters that move to another table: of other rules, another order, another size.
//!
//! A new table is made the *heir* of an old one. From then on whoever gives a row to a key, a
//! request or the driver, finds the key's row in the old table and starts the new life with all
//! that counts there: own and remote hits, bucket by bucket, or the debt of a token bucket. The
//! words are written while the row is still pending, so that nobody ever sees the key without them,
//! and each row gets them once, however many want it. Meanwhile one caller walks the old table and
//! gives a row to every key that counts, the exhausted ones first; then the old table is let go.
//!
//! This is exact when nobody charges the old table any more. When somebody does (an nginx worker of
//! the configuration before), his hits since the row was taken over stay behind. spec: adm-31

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use crate::evict::Door;
use crate::layout::{Sub, HEAD, KEY_A, KEY_B, TAG_LINE};
use crate::limits::CARRY_ROWS_PER_PAUSE;
use crate::mem::Mem;
use crate::probe::Place;
use crate::row::Spot;
use crate::stats::Stat;
use crate::types::{FailOpen, SubSpec};
use crate::word::{
    epoch_ahead, key_word, tagged, tagged_count, tagged_epoch, tagged_is_of, tat_ahead, with_tat,
    HeadFormat, KEY_MASK, TAT_MASK,
};
use crate::Table;
use gabion_admit::{GcraPlan, Plan};
use gabion_rule::{CounterIdentity, Key, RuleIdx};

/// The table whose counters another one takes over, for as long as somebody else holds it.
pub(crate) type Heritage<M> = Weak<Table<M>>;

/// What became of the counters of an old table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// Keys that got a row in the new table. When it is full, one of little use may have lost it
    /// again to another: the table's `evicted_rows` and `evicted_hits` say so.
    pub rows: u64,
    /// Keys of rules that both tables have, for which the new one had no room.
    pub left_rows: u64,
    /// Of them, those that were exhausted.
    pub left_exhausted: u64,
    /// Own hits of them that are forgotten.
    pub left_hits: u64,
}

/// Carries the live rows of `old` into the fresh table `new`, which nobody else uses yet. `old` may
/// be in use; it is only read.
pub fn carry<M: Mem>(
    (old, old_rules): (&Arc<Table<M>>, &[SubSpec]),
    (new, new_rules): (&mut Table<M>, &[SubSpec]),
    now_ns: u64,
) -> Carried {
    new.inherit(new_rules, old, old_rules);
    let carried = new.take_over(old, &|| now_ns, &mut || {});
    new.heritage = None;
    carried
}

impl<M: Mem> Table<M> {
    /// Makes this fresh table the heir of `old` for the rules that both have, by counter identity.
    /// It takes over rows as they are asked for while somebody holds `old`; see
    /// [`Table::take_over`] for the rest.
    pub fn inherit(&mut self, rules: &[SubSpec], old: &Arc<Table<M>>, old_rules: &[SubSpec]) {
        let places = (0..).zip(old_rules).map(|(at, o)| (o.identity, at));
        let places: BTreeMap<CounterIdentity, RuleIdx> = places.collect();
        for (sub, rule) in self.layout.subs.iter_mut().zip(rules) {
            let of = places.get(&rule.identity).copied();
            // The identity says as much; rows are copied word by word, so it is looked at again.
            sub.heir_of = of.filter(|&at| old.sub(at).is_some_and(|o| alike(o, sub)));
        }
        self.heritage = Some(Arc::downgrade(old));
        self.inherit_shares(old);
    }

    /// Goes on with the statistics of `old`, so that what a scrape shows only grows. To be called
    /// once, when nobody charges `old` any more.
    pub fn inherit_stats(&self, old: &Table<M>) {
        // What is alive is counted as it is claimed.
        for stat in Stat::ALL.into_iter().filter(|stat| *stat != Stat::Live) {
            self.note(stat, old.stat(stat));
        }
    }

    /// Walks `old`, of which this table is the heir, and gives a row to every key that counts
    /// there. `now` says the cluster time, nanoseconds; `pause` is called now and then.
    pub fn take_over(
        &self,
        old: &Table<M>,
        now: &dyn Fn() -> u64,
        pause: &mut dyn FnMut(),
    ) -> Carried {
        let mut carried = Carried::default();
        // The exhausted first: when there is little room, it is theirs.
        for exhausted in [true, false] {
            for sub in &self.layout.subs {
                let Some(from) = sub.heir_of.and_then(|at| old.sub(at)) else {
                    continue;
                };
                let mut seen = 0usize;
                for slot in old.used_slots(from) {
                    seen += 1;
                    if seen % CARRY_ROWS_PER_PAUSE == 0 {
                        pause();
                    }
                    self.take_over_row(sub, (old, from, slot), exhausted, now, &mut carried);
                }
            }
        }
        carried
    }

    /// Slots whose tag was ever set, without touching the rows of empty sets.
    fn used_slots<'s>(&'s self, sub: &'s Sub) -> impl Iterator<Item = usize> + 's {
        let sets = sub.row_count() / sub.ways;
        let used = move |set: &usize| {
            let line = sub.tags + set * TAG_LINE;
            (line..line + sub.tag_words).any(|at| self.mem.load(at) != 0)
        };
        (0..sets)
            .filter(used)
            .flat_map(move |set| set * sub.ways..(set + 1) * sub.ways)
    }

    fn take_over_row(
        &self,
        sub: &Sub,
        (old, from, slot): (&Table<M>, &Sub, usize),
        exhausted: bool,
        now: &dyn Fn() -> u64,
        carried: &mut Carried,
    ) {
        let Some((key, spot)) = old.key_of(from, slot) else {
            return;
        };
        let now_ns = now();
        let worth = old.worth(from, from.format, spot, now_ns);
        if worth.dead || worth.exhausted != exhausted {
            return;
        }
        match self.inherit_row(sub, key, now_ns) {
            Some(Ok(spot)) => {
                carried.rows += 1;
                if exhausted {
                    self.refer(sub, spot.slot, sub.plan.epoch_of(now_ns));
                }
            }
            Some(Err(_)) => {
                carried.left_rows += 1;
                carried.left_exhausted += u64::from(exhausted);
                carried.left_hits = carried.left_hits.saturating_add(worth.own_hits);
            }
            None => {} // it died on the way
        }
    }

    /// The key of a live row.
    fn key_of(&self, sub: &Sub, slot: usize) -> Option<(Key, Spot)> {
        let base = sub.row(slot);
        let head = self.mem.load(base + HEAD);
        let generation = sub.format.generation(head);
        let (a, b) = (self.mem.load(base + KEY_A), self.mem.load(base + KEY_B));
        let key = Key {
            a: a & KEY_MASK,
            b: b & KEY_MASK,
        };
        let whole = a == key_word(generation, key.a) && b == key_word(generation, key.b);
        (sub.format.is_live(head) && whole).then_some((key, Spot { slot, head }))
    }

    /// A row for a key that counts in the old table: found here, or claimed with what counts there.
    /// `None` when nothing of it counts there.
    #[cold]
    #[inline(never)]
    pub(crate) fn inherit_row(
        &self,
        sub: &Sub,
        key: Key,
        now_ns: u64,
    ) -> Option<Result<Spot, FailOpen>> {
        let ancestor = self.ancestor(sub, key)?;
        if ancestor.worth(now_ns).dead {
            return None;
        }
        let place = Place::of(sub, key);
        Some(self.claim(sub, sub.format, &place, key, now_ns, Door::Remote))
    }

    /// An exhausted heir comes in as a request that brings the whole limit would: it must not be
    /// told to come twice.
    pub(crate) fn door_of_heir(&self, sub: &Sub, key: Key, now_ns: u64) -> Option<Door> {
        let worth = self.ancestor(sub, key)?.worth(now_ns);
        (worth.exhausted && !worth.dead).then_some(Door::Request {
            hits: u32::MAX,
            limit: sub.plan.limit(),
        })
    }

    /// The key's live row in the old table.
    #[inline(always)]
    pub(crate) fn ancestor(&self, sub: &Sub, key: Key) -> Option<Ancestor<M>> {
        match &self.heritage {
            Some(old) => Ancestor::find(old.upgrade()?, sub.heir_of?, key),
            None => None,
        }
    }
}

/// Whether rows of both can be copied word by word.
fn alike(old: &Sub, new: &Sub) -> bool {
    let same_kind = match (&old.plan, &new.plan) {
        (Plan::Window(a), Plan::Window(b)) => (a.bucket_ns, a.closed) == (b.bucket_ns, b.closed),
        (Plan::Gcra(a), Plan::Gcra(b)) => a.epoch_ns() == b.epoch_ns(),
        _ => false,
    };
    same_kind && (old.ring, old.remote) == (new.ring, new.remote)
}

/// A live row of the old table.
pub(crate) struct Ancestor<M: Mem> {
    old: Arc<Table<M>>,
    rule: RuleIdx,
    spot: Spot,
}

impl<M: Mem> Ancestor<M> {
    #[cold]
    fn find(old: Arc<Table<M>>, rule: RuleIdx, key: Key) -> Option<Self> {
        let sub = old.sub(rule)?;
        let place = Place::of(sub, key);
        let spot = old.find(sub, sub.format, &place, key);
        let spot = spot.filter(|spot| sub.format.is_live(spot.head))?;
        Some(Self { old, rule, spot })
    }

    fn sub(&self) -> &Sub {
        &self.old.layout.subs[usize::from(self.rule)]
    }

    fn worth(&self, now_ns: u64) -> crate::evict::Worth {
        let sub = self.sub();
        self.old.worth(sub, sub.format, self.spot, now_ns)
    }

    /// Word `i` of the row, a closed bucket, remote total or own count, for another generation;
    /// `None` when it is not of this life.
    pub(crate) fn word(&self, i: usize, generation: u64) -> Option<u64> {
        let sub = self.sub();
        let word = self.old.mem.load(sub.row(self.spot.slot) + i);
        tagged_is_of(word, sub.format.generation(self.spot.head))
            .then(|| tagged(generation, tagged_epoch(word), tagged_count(word)))
    }

    /// The bucket that the head counts, as it will be once it is closed, with its full epoch: if
    /// the old row is rolled between the copy of its words and that of its head, it is there.
    pub(crate) fn head_as_word(&self, now_epoch: u64, generation: u64) -> (u64, u64) {
        let (epoch, count) = self.head_fields();
        let ahead = epoch_ahead(&self.old.mem, epoch, now_epoch);
        let epoch = now_epoch.wrapping_add_signed(ahead);
        (epoch, tagged(generation, epoch, count))
    }

    fn head_fields(&self) -> (u64, u32) {
        let fmt = self.sub().format;
        let count = u32::try_from(fmt.count(self.spot.head)).unwrap_or(u32::MAX);
        (fmt.epoch(self.spot.head), count)
    }

    /// `fresh`, a live head of the new table, with what the old one says.
    pub(crate) fn head(&self, sub: &Sub, fmt: HeadFormat, fresh: u64, now_ns: u64) -> u64 {
        match (&self.sub().plan, &sub.plan) {
            (Plan::Gcra(from), Plan::Gcra(to)) => {
                let tat = self.spot.head & TAT_MASK;
                with_tat(fresh, tat_between(from, to, tat, now_ns))
            }
            _ => {
                let (epoch, count) = self.head_fields();
                // A smaller head holds less, but more than any limit of its rule.
                fmt.with(fresh, epoch, u64::from(count).min(fmt.count_max()))
            }
        }
    }
}

/// A TAT in the ticks of another rate: the same hits are owed, rounded up.
fn tat_between(from: &GcraPlan, to: &GcraPlan, tat: u64, now_ns: u64) -> u64 {
    if (from.rate(), from.tick_shift()) == (to.rate(), to.tick_shift()) {
        return tat;
    }
    let debt = from.debt(tat_ahead(tat, from.ticks(now_ns)));
    let owed = (u128::from(debt) << to.tick_shift()).div_ceil(1u128 << from.tick_shift());
    let owed = u64::try_from(owed).unwrap_or(u64::MAX);
    to.ticks(now_ns).wrapping_add(owed.min(to.debt_max_ticks()))
}

#[cfg(test)]
mod tests;
