//! Which row a newcomer gets.
//!
//! Free rows first: never used, empty, dead (nothing in them counts), or a claim whose owner
//! stopped. When there is none, a newcomer must come twice (the doorkeeper), unless it brings a
//! good part of the limit at once; then the least valuable row goes. Exhausted rows are the most
//! valuable, and among them those that were asked for lately: forgetting one would let its key
//! start afresh. Among equals the highest slot goes, so that a flood of equals churns through one
//! row of a set. spec: adm-28

use crate::layout::{Sub, HEAD, REFS_A_WORD, RING, TAG_LINE};
use crate::limits::{DOORKEEPER_SHARE, FIRST_SET_FILL_WAYS, OPEN_LIMIT, WAYS};
use crate::mem::Mem;
use crate::probe::Place;
use crate::row::Spot;
use crate::types::FailOpen;
use crate::word::{
    epoch_ahead, tag_half, tagged_count, tagged_epoch, tagged_is_of, tat_ahead, HeadFormat, State,
    TAT_MASK,
};
use crate::Table;
use gabion_admit::{GcraPlan, Plan, WindowPlan};
use gabion_rule::Key;

/// Who wants a row.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Door {
    /// A request of this many hits under this limit.
    Request { hits: u32, limit: u32 },
    /// The driver, for a remote total; never at the cost of an exhausted row.
    Remote,
}

/// A row that may be taken, as it was seen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Victim {
    pub(crate) spot: Spot,
    pub(crate) own_hits: u64,
    pub(crate) exhausted: bool,
}

/// What a key without a row gets.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Choice {
    /// This row, if it is still as it was seen.
    Row(Victim),
    /// It has a row by now.
    Ours(Spot),
}

/// What a live row is worth.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Worth {
    pub(crate) dead: bool,
    pub(crate) exhausted: bool,
    pub(crate) own_hits: u64,
    /// Used, in 1024ths of the limit, at most 1023.
    share: u64,
    /// Epochs it will still count.
    life: u64,
}

/// Ranks from here on are of exhausted rows.
const RANK_EXHAUSTED: u64 = 1 << 32;
const RANK_REFERENCED: u64 = 1 << 33;
/// What an unannounced count adds to the share: a few percent.
const DIRTY_SHARE: u64 = 32;

struct Survey {
    occupied: usize,
    free: Option<Victim>,
    least: Option<(u64, Victim)>,
}

impl<M: Mem> Table<M> {
    /// Chooses a row in the two candidate sets of a key that had none when it was looked for;
    /// `None` when it has one by now.
    pub(crate) fn choose(
        &self,
        sub: &Sub,
        fmt: HeadFormat,
        place: &Place,
        key: Key,
        now_ns: u64,
        door: Door,
    ) -> Result<Choice, FailOpen> {
        if let Some(victim) = self.never_used(sub, fmt, place) {
            return Ok(Choice::Row(victim));
        }
        let mut free: Option<(usize, Victim)> = None;
        let mut least: Option<(u64, Victim)> = None;
        for &set in place.distinct() {
            let found = match self.survey(sub, fmt, set, key, now_ns) {
                Ok(found) => found,
                Err(ours) => return Ok(Choice::Ours(ours)),
            };
            if let Some(victim) = found.free {
                // The second set only when it is emptier.
                if free.is_none_or(|(occupied, _)| found.occupied < occupied) {
                    free = Some((found.occupied, victim));
                }
                if found.occupied * WAYS < FIRST_SET_FILL_WAYS * sub.ways {
                    break;
                }
            }
            if let Some((rank, victim)) = found.least {
                if least.is_none_or(|(least_rank, _)| rank <= least_rank) {
                    least = Some((rank, victim));
                }
            }
        }
        if let Some((_, victim)) = free {
            return Ok(Choice::Row(victim));
        }
        match door {
            Door::Request { hits, limit } => {
                let large = hits.saturating_mul(DOORKEEPER_SHARE) >= limit;
                if !large && !self.known_at_the_door(sub, place, now_ns) {
                    return Err(FailOpen::Doorkeeper);
                }
            }
            Door::Remote => {
                least = least.filter(|&(rank, _)| rank < RANK_EXHAUSTED);
            }
        }
        least
            .map(|(_, victim)| Choice::Row(victim))
            .ok_or(FailOpen::TableFull)
    }

    /// A row whose tag was never set, found without touching other rows.
    fn never_used(&self, sub: &Sub, fmt: HeadFormat, place: &Place) -> Option<Victim> {
        let mut best: Option<(usize, usize)> = None;
        for &set in place.distinct() {
            let line = sub.tags + set * TAG_LINE;
            let (mut used, mut first_unused) = (0, None);
            for way in 0..sub.ways {
                if tag_half(self.mem.load(line + way / 2), way) != 0 {
                    used += 1;
                } else if first_unused.is_none() {
                    first_unused = Some(set * sub.ways + way);
                }
            }
            if let Some(slot) = first_unused {
                if best.is_none_or(|(least, _)| used < least) {
                    best = Some((used, slot));
                }
                if used * WAYS < FIRST_SET_FILL_WAYS * sub.ways {
                    break;
                }
            }
        }
        let (_, slot) = best?;
        let head = self.mem.load(sub.row(slot) + HEAD);
        let empty = fmt.state(head) == State::Empty;
        let spot = Spot { slot, head };
        empty.then_some(Victim {
            spot,
            own_hits: 0,
            exhausted: false,
        })
    }

    /// `Err` when a live row of the set is `key`'s own by now: it must not become its victim.
    fn survey(
        &self,
        sub: &Sub,
        fmt: HeadFormat,
        set: usize,
        key: Key,
        now_ns: u64,
    ) -> Result<Survey, Spot> {
        let mut found = Survey {
            occupied: 0,
            free: None,
            least: None,
        };
        let mut free_is_empty = false;
        let slots = set * sub.ways..(set + 1) * sub.ways;
        slots
            .clone()
            .for_each(|slot| self.mem.prefetch(sub.row(slot)));
        for slot in slots {
            let head = self.mem.load(sub.row(slot) + HEAD);
            let spot = Spot { slot, head };
            let mut victim = Victim {
                spot,
                own_hits: 0,
                exhausted: false,
            };
            // A row that turns into the key's own after this is not taken: the CAS is from `head`.
            // A pending one is left alone: it may have no tag yet, and must not go live without.
            if fmt.is_live(head) {
                let ours = self.row_of(sub, fmt, slot, key);
                if let Some(head) = ours.filter(|&head| fmt.is_live(head)) {
                    return Err(Spot { slot, head });
                }
            }
            match fmt.state(head) {
                State::Empty => {
                    if !free_is_empty {
                        (found.free, free_is_empty) = (Some(victim), true);
                    }
                }
                State::Pending => {
                    found.occupied += 1;
                    if self.is_stale_claim(head, now_ns) {
                        found.free = found.free.or(Some(victim));
                    }
                }
                State::Live => {
                    let worth = self.worth(sub, fmt, spot, now_ns);
                    if worth.dead {
                        found.free = found.free.or(Some(victim));
                        continue;
                    }
                    found.occupied += 1;
                    (victim.own_hits, victim.exhausted) = (worth.own_hits, worth.exhausted);
                    let rank = self.rank(sub, &worth, slot, now_ns);
                    if found.least.as_ref().is_none_or(|(least, _)| rank <= *least) {
                        found.least = Some((rank, victim));
                    }
                }
            }
        }
        Ok(found)
    }

    fn rank(&self, sub: &Sub, worth: &Worth, slot: usize, now_ns: u64) -> u64 {
        let dirty = if self.is_dirty(sub, slot) {
            DIRTY_SHARE
        } else {
            0
        };
        let mut rank = (worth.share + dirty) << 8 | worth.life.min(255);
        if worth.exhausted {
            rank += RANK_EXHAUSTED;
            if self.is_referenced(sub, slot, now_ns) {
                rank += RANK_REFERENCED;
            }
        }
        rank
    }

    /// What a live row is worth; own and remote hits count alike.
    pub(crate) fn worth(&self, sub: &Sub, fmt: HeadFormat, spot: Spot, now_ns: u64) -> Worth {
        match &sub.plan {
            Plan::Window(plan) => self.window_worth(sub, plan, fmt, spot, now_ns),
            Plan::Gcra(plan) => self.gcra_worth(sub, plan, fmt, spot, now_ns),
        }
    }

    fn window_worth(
        &self,
        sub: &Sub,
        plan: &WindowPlan,
        fmt: HeadFormat,
        spot: Spot,
        now_ns: u64,
    ) -> Worth {
        let view = self.view(sub, plan, fmt, spot, plan.split(now_ns));
        let closed = u64::from(plan.closed);
        let counts = view.head_age <= closed && !view.void;
        let mut own_hits = if counts { fmt.count(spot.head) } else { 0 };
        if closed > 0 {
            let generation = fmt.generation(spot.head);
            for i in RING..RING + sub.ring {
                let word = self.mem.load(sub.row(spot.slot) + i);
                let age = epoch_ahead(&self.mem, view.epoch, tagged_epoch(word)).unsigned_abs();
                if tagged_is_of(word, generation) && age > view.head_age && age <= closed {
                    own_hits += u64::from(tagged_count(word));
                }
            }
        }
        let (exhausted, share) = if plan.limit == OPEN_LIMIT {
            // spec: adm-30. The row does not say its limit: who was denied lately is exhausted, and
            // many hits are worth more than few.
            let denied = view.used > 0 && self.is_referenced(sub, spot.slot, now_ns);
            let bits = u64::from(u64::BITS - view.used.leading_zeros());
            (denied, (bits * 31).min(1023))
        } else {
            let share = (view.used.saturating_mul(1024) / u64::from(plan.limit)).min(1023);
            // A strict rule loses more with a row whose part is used up than with one at its limit.
            let part = u64::from(plan.pacing.part_of(plan.limit));
            let spent = sub.shares && own_hits >= part;
            (spent || !plan.fits(view.used, 1), share)
        };
        Worth {
            dead: view.used == 0 && !counts,
            exhausted,
            own_hits,
            share,
            life: closed.saturating_sub(view.head_age),
        }
    }

    fn gcra_worth(
        &self,
        sub: &Sub,
        plan: &GcraPlan,
        fmt: HeadFormat,
        spot: Spot,
        now_ns: u64,
    ) -> Worth {
        let ahead = tat_ahead(spot.head & TAT_MASK, plan.ticks(now_ns));
        let debt = plan.debt(ahead);
        let reading = plan.reading(debt);
        let generation = fmt.generation(spot.head);
        let own: u64 = (RING..RING + sub.ring)
            .map(|i| self.mem.load(sub.row(spot.slot) + i))
            .filter(|&word| tagged_is_of(word, generation))
            .map(|word| u64::from(tagged_count(word)))
            .sum();
        Worth {
            // A row just claimed has no debt either: it gets as long as a remote total may be late.
            dead: ahead < 0 && ahead.unsigned_abs() > plan.debt_max_ticks() - plan.depth_ticks(),
            exhausted: reading.remaining == 0,
            own_hits: own.min(reading.used),
            share: (reading.used.saturating_mul(1024) / u64::from(reading.limit)).min(1023),
            life: 0,
        }
    }

    /// Whether this newcomer was here before, lately; remembers it if not. Two fingerprints a set:
    /// `fp24 | epoch8` each, the newer in the low half.
    fn known_at_the_door(&self, sub: &Sub, place: &Place, now_ns: u64) -> bool {
        let at = sub.door + place.sets[0];
        let epoch = sub.plan.epoch_of(now_ns) & 0xff;
        let old = self.mem.load(at);
        let known = |half: u64| half >> 8 == place.fp() && epoch.wrapping_sub(half) & 0xff <= 1;
        if known(old & 0xffff_ffff) || known(old >> 32) {
            return true;
        }
        // Lost to somebody else's fingerprint: then it is not remembered, which costs one more try.
        let _ = self.mem.cas(at, old, old << 32 | place.fp() << 8 | epoch);
        false
    }

    /// Remembers that somebody was denied on this row in this epoch: at most one CAS per row and
    /// epoch, outside the row. `epoch32 | rows asked for in the epoch before | rows asked for in
    /// it`.
    #[inline(always)]
    pub(crate) fn refer(&self, sub: &Sub, slot: usize, epoch: u64) {
        let at = sub.refs + slot / REFS_A_WORD;
        let bit = 1u64 << (slot % REFS_A_WORD);
        let old = self.mem.load(at);
        let epoch = epoch & 0xffff_ffff;
        let new = match epoch.wrapping_sub(old >> 32) & 0xffff_ffff {
            0 if old & bit != 0 => return,
            0 => old | bit,
            1 => epoch << 32 | (old & 0xffff) << 16 | bit,
            _ => epoch << 32 | bit,
        };
        // Lost to a neighbour: the next denial sets it.
        let _ = self.mem.cas(at, old, new);
    }

    fn is_referenced(&self, sub: &Sub, slot: usize, now_ns: u64) -> bool {
        let word = self.mem.load(sub.refs + slot / REFS_A_WORD);
        let way = slot % REFS_A_WORD;
        let (now, before) = (word >> way & 1 == 1, word >> (way + 16) & 1 == 1);
        match sub.plan.epoch_of(now_ns).wrapping_sub(word >> 32) & 0xffff_ffff {
            0 => now || before,
            1 => now,
            _ => false,
        }
    }
}
