//! Giving a row to a key.
//!
//! A claim moves a row's head from what was seen to *pending* with the next generation, clears what
//! could be mistaken for the new life's, writes the key and the tag, and then, after a SeqCst
//! fence, looks at both candidate sets again. Two claimers of one key cannot both miss each other:
//! each has published before its fence and looks after it. The lowest slot wins, the others
//! withdraw, and whoever meets a complete pending row of its key finishes it. So a claimer may stop
//! at any step. spec: adm-25

use crate::evict::{Choice, Door, Victim};
use crate::layout::{Sub, HEAD, KEY_A, KEY_B, RING, TAG_LINE};
use crate::limits::{CLAIM_ATTEMPTS_MAX, CLAIM_STALE_NS, STAMP_SHIFT};
use crate::mem::{Fault, Mem};
use crate::probe::Place;
use crate::row::{ring_index, Spot};
use crate::stats::Stat;
use crate::types::FailOpen;
use crate::word::{
    key_word, sign_extend, tagged, tagged_is_of, with_tag_half, with_tat, HeadFormat, State,
    TAT_BITS, TAT_MASK,
};
use crate::Table;
use gabion_admit::Plan;
use gabion_rule::Key;

impl<M: Mem> Table<M> {
    /// A live row for `key`, found or claimed.
    #[cold]
    #[inline(never)]
    pub(crate) fn claim(
        &self,
        sub: &Sub,
        fmt: HeadFormat,
        place: &Place,
        key: Key,
        now_ns: u64,
        door: Door,
    ) -> Result<Spot, FailOpen> {
        let door = self.door_of_heir(sub, key, now_ns).unwrap_or(door);
        for _ in 0..CLAIM_ATTEMPTS_MAX {
            let choice = match self.find(sub, fmt, place, key) {
                Some(spot) => Choice::Ours(spot),
                None => self.choose(sub, fmt, place, key, now_ns, door)?,
            };
            let victim = match choice {
                Choice::Ours(spot) if fmt.is_live(spot.head) => return Ok(spot),
                Choice::Ours(spot) => {
                    if !self.mem.planted(Fault::LostTakeover) {
                        self.settle(sub, fmt, place, key, spot, now_ns);
                    }
                    continue;
                }
                Choice::Row(victim) => victim,
            };
            let Some(spot) = self.seize(sub, fmt, victim, now_ns) else {
                continue;
            };
            if self.fill(sub, fmt, place, key, spot, now_ns) {
                self.settle(sub, fmt, place, key, spot, now_ns);
            }
        }
        Err(FailOpen::TableFull)
    }

    /// Makes the chosen row pending in its next generation.
    fn seize(&self, sub: &Sub, fmt: HeadFormat, victim: Victim, now_ns: u64) -> Option<Spot> {
        let Victim {
            spot: Spot { slot, head: old },
            own_hits,
            exhausted,
        } = victim;
        let was = fmt.state(old);
        let keeps = match was {
            State::Pending => self.mem.planted(Fault::TakeoverKeepsGeneration),
            _ => self.mem.planted(Fault::ClaimKeepsGeneration),
        };
        let generation = if keeps {
            fmt.generation(old)
        } else {
            fmt.next_generation(old)
        };
        let head = fmt.make(generation, State::Pending, stamp(now_ns));
        self.mem.cas(sub.row(slot) + HEAD, old, head).ok()?;
        match was {
            State::Empty => {}
            State::Pending => self.note(Stat::Takeovers, 1),
            State::Live => {
                self.note(Stat::Live, u64::MAX);
                if own_hits > 0 || exhausted {
                    self.note(Stat::EvictedRows, 1);
                    self.note(Stat::EvictedHits, own_hits);
                    self.note(Stat::EvictedExhausted, u64::from(exhausted));
                }
            }
        }
        Some(Spot { slot, head })
    }

    /// Writes what the new life starts with, the key last, then the tag. False when the claim was
    /// taken over meanwhile.
    fn fill(
        &self,
        sub: &Sub,
        fmt: HeadFormat,
        place: &Place,
        key: Key,
        spot: Spot,
        now_ns: u64,
    ) -> bool {
        let base = sub.row(spot.slot);
        let generation = fmt.generation(spot.head);
        let ancestor = self.ancestor(sub, key);
        let words = RING..sub.slice_at.map_or(sub.remote_at + sub.remote, |at| at + 1);
        let cleared = { words }.all(|i| {
            let inherited = ancestor.as_ref().and_then(|a| a.word(i, generation));
            self.put(base, spot, base + i, |old| match inherited {
                Some(word) => word,
                // Only a word whose short generation has come round again could be taken for ours.
                None if tagged_is_of(old, generation) => 0,
                None => old,
            })
        });
        let born = match (&sub.plan, &ancestor) {
            (Plan::Window(_), None) => true,
            (Plan::Window(w), Some(ancestor)) => {
                let (epoch, word) = ancestor.head_as_word(w.split(now_ns).0, generation);
                let at = base + RING + ring_index(sub, epoch);
                self.put(base, spot, at, |_| word)
            }
            (Plan::Gcra(_), Some(_)) => true, // its words say since when it lives
            // An own count of 0 says in which epoch the row was born. spec: adm-15
            (Plan::Gcra(g), None) => {
                let epoch = g.split(now_ns).0;
                let at = base + RING + (epoch & 1) as usize;
                self.put(base, spot, at, |_| tagged(generation, epoch, 0))
            }
        };
        cleared
            && born
            && self.put(base, spot, base + KEY_A, |_| key_word(generation, key.a))
            && self.put(base, spot, base + KEY_B, |_| key_word(generation, key.b))
            && (self.mem.planted(Fault::TagAfterLive) || self.put_tag(sub, fmt, place, spot))
    }

    fn put_tag(&self, sub: &Sub, fmt: HeadFormat, place: &Place, spot: Spot) -> bool {
        let way = spot.slot % sub.ways;
        let at = sub.tags + spot.slot / sub.ways * TAG_LINE + way / 2;
        let generation = fmt.generation(spot.head);
        self.put(sub.row(spot.slot), spot, at, |old| {
            with_tag_half(old, way, generation, place.fp())
        })
    }

    /// Changes the word `at` from whatever it is, as long as the row's head is still `spot.head`.
    ///
    /// The head is looked at *between* the load of the word and its CAS: somebody whose claim was
    /// taken over can succeed once at most, and only before the new claimer has written the word.
    #[inline(always)]
    fn put(&self, base: usize, spot: Spot, at: usize, new: impl Fn(u64) -> u64) -> bool {
        loop {
            let old = self.mem.load(at);
            if self.mem.load(base + HEAD) != spot.head {
                return false;
            }
            let wanted = new(old);
            if old == wanted || self.mem.cas(at, old, wanted).is_ok() {
                return true;
            }
        }
    }

    /// Finishes the complete pending row `spot` of `key`, by its claimer or anybody who meets it:
    /// live, unless the key is elsewhere.
    pub(crate) fn settle(
        &self,
        sub: &Sub,
        fmt: HeadFormat,
        place: &Place,
        key: Key,
        spot: Spot,
        now_ns: u64,
    ) {
        if !self.mem.planted(Fault::SkipClaimFence) {
            // SeqCst: pairs with the same fence of every other claimer of this key. Of two, the one
            // whose fence is later sees the key and tag that the other published before its own.
            self.mem.fence();
        }
        let base = sub.row(spot.slot);
        let empty = fmt.make(fmt.generation(spot.head), State::Empty, 0);
        if !self.mem.planted(Fault::SkipRescan) && !self.wins(sub, fmt, place, key, spot) {
            if self.mem.cas(base + HEAD, spot.head, empty).is_ok() {
                self.note(Stat::Withdrawals, 1);
            }
            return;
        }
        let fresh = fmt.make(fmt.generation(spot.head), State::Live, 0);
        let ancestor = self.ancestor(sub, key);
        let live = match (&sub.plan, &ancestor) {
            (_, Some(ancestor)) => ancestor.head(sub, fmt, fresh, now_ns),
            (Plan::Window(w), None) => fmt.with(fresh, w.split(now_ns).0, 0),
            (Plan::Gcra(g), None) => with_tat(fresh, g.ticks(now_ns)),
        };
        if self.mem.cas(base + HEAD, spot.head, live).is_ok() {
            if ancestor.is_some() {
                self.mark_dirty(sub, spot.slot);
            }
            self.note(Stat::Live, 1);
            self.note(Stat::Claims, 1);
            if self.mem.planted(Fault::TagAfterLive) {
                self.put_tag(
                    sub,
                    fmt,
                    place,
                    Spot {
                        slot: spot.slot,
                        head: live,
                    },
                );
            }
        }
    }

    /// Looks for rows of the same key: false when one is live, or pending at a lower slot; pending
    /// ones at higher slots are killed.
    fn wins(&self, sub: &Sub, fmt: HeadFormat, place: &Place, key: Key, spot: Spot) -> bool {
        for &set in place.distinct() {
            // After a kill, or when one failed because the rival moved on, the set is read again.
            while let Some(rival) = self.find_in(sub, fmt, set, place.fp_twice, key, spot.slot) {
                if fmt.is_live(rival.head) || rival.slot < spot.slot {
                    return false;
                }
                let empty = fmt.make(fmt.generation(rival.head), State::Empty, 0);
                let killed = self
                    .mem
                    .cas(sub.row(rival.slot) + HEAD, rival.head, empty)
                    .is_ok();
                if !killed && self.mem.planted(Fault::IgnoreFailedKill) {
                    break;
                }
            }
        }
        true
    }

    /// Whether the claim in this pending head is so old that its owner must have stopped.
    pub(crate) fn is_stale_claim(&self, head: u64, now_ns: u64) -> bool {
        let age = sign_extend(stamp(now_ns).wrapping_sub(head & TAT_MASK), TAT_BITS);
        // A clock that was set back makes it look as if from the future: stale as well.
        age.unsigned_abs() > CLAIM_STALE_NS >> STAMP_SHIFT && !self.mem.planted(Fault::LostTakeover)
    }
}

/// Coarse time in the 46 bits that every head has beside generation and state.
fn stamp(now_ns: u64) -> u64 {
    now_ns >> STAMP_SHIFT & TAT_MASK
}
