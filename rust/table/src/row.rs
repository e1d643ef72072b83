//! Reading a row: which of its words count, and for how much.
//!
//! Everything here is loads only. A word counts only when it carries the generation of the head
//! that the reader started from, so words of an earlier or a later life of the row read as nothing.

use crate::layout::{Sub, HEAD, RING};
use crate::mem::{Fault, Mem};
use crate::word::{
    epoch_ahead, index, tagged, tagged_count, tagged_epoch, tagged_is_of, HeadFormat,
};
use crate::Table;
use gabion_admit::limits::CLOSED_BUCKETS_MAX;
use gabion_admit::{Reading, WindowPlan};

/// Where a row is, and its head when it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spot {
    pub(crate) slot: usize,
    pub(crate) head: u64,
}

/// What a window's row shows at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    /// The epoch that is current: now's, or the head's when its writer's clock is ahead.
    pub(crate) epoch: u64,
    /// ns since it began; 0 when it has not begun here.
    pub(crate) into_ns: u64,
    /// Own count in it.
    pub(crate) current: u64,
    /// The head's age in epochs; 0 when it is current, ahead or void.
    pub(crate) head_age: u64,
    /// The head is further ahead than any clock should be.
    pub(crate) void: bool,
    /// Own and remote hits that count.
    pub(crate) used: u64,
}

/// How a head stands to the epoch of now.
#[derive(Clone, Copy, Debug)]
struct Stand {
    epoch: u64,
    into_ns: u64,
    head_age: u64,
    void: bool,
}

impl<M: Mem> Table<M> {
    #[inline(always)]
    fn stand(&self, sub: &Sub, fmt: HeadFormat, head: u64, now: (u64, u64)) -> Stand {
        let (epoch, into_ns) = now;
        let ahead = epoch_ahead(&self.mem, fmt.epoch(head), epoch);
        if ahead <= 0 {
            return Stand {
                epoch,
                into_ns,
                head_age: ahead.unsigned_abs(),
                void: false,
            };
        }
        if ahead <= sub.ahead_max {
            let epoch = epoch.wrapping_add_signed(ahead);
            return Stand {
                epoch,
                into_ns: 0,
                head_age: 0,
                void: false,
            };
        }
        Stand {
            epoch,
            into_ns,
            head_age: 0,
            void: true,
        }
    }

    /// Reads a window's row. `now` is (epoch, ns into it). spec: adm-4, adm-23
    #[inline(always)]
    pub(crate) fn view(
        &self,
        sub: &Sub,
        plan: &WindowPlan,
        fmt: HeadFormat,
        spot: Spot,
        now: (u64, u64),
    ) -> View {
        let stand = self.stand(sub, fmt, spot.head, now);
        let count = if stand.void { 0 } else { fmt.count(spot.head) };
        let current = if stand.head_age == 0 { count } else { 0 };
        let used = if plan.closed == 0 {
            let at = sub.row(spot.slot) + sub.remote_at + remote_index(sub, stand.epoch);
            let word = self.mem.load(at);
            let of_now = tagged(fmt.generation(spot.head), stand.epoch, 0) >> 32;
            let counts = word >> 32 == of_now || self.mem.planted(Fault::RejectSkipsRecheck);
            current
                + if counts {
                    u64::from(tagged_count(word))
                } else {
                    0
                }
        } else {
            self.sum(sub, plan, fmt, spot, stand, count)
        };
        View {
            epoch: stand.epoch,
            into_ns: stand.into_ns,
            current,
            head_age: stand.head_age,
            void: stand.void,
            used,
        }
    }

    fn sum(
        &self,
        sub: &Sub,
        plan: &WindowPlan,
        fmt: HeadFormat,
        spot: Spot,
        stand: Stand,
        count: u64,
    ) -> u64 {
        let closed = u64::from(plan.closed);
        let (mut younger, mut oldest) = (0u64, 0u64);
        self.each_counted(sub, plan, fmt, spot, stand, count, |age, hits| {
            if age == closed {
                oldest += hits;
            } else {
                younger += hits;
            }
        });
        younger.saturating_add(plan.oldest_share(oldest, stand.into_ns))
    }

    /// Calls `f(age, hits)` for every word that counts in a sliding window.
    #[allow(clippy::too_many_arguments)]
    #[inline(always)]
    fn each_counted(
        &self,
        sub: &Sub,
        plan: &WindowPlan,
        fmt: HeadFormat,
        spot: Spot,
        stand: Stand,
        count: u64,
        mut f: impl FnMut(u64, u64),
    ) {
        let closed = i64::from(plan.closed);
        let generation = fmt.generation(spot.head);
        let head_age = i64::try_from(stand.head_age).unwrap_or(i64::MAX);
        let any = self.mem.planted(Fault::RejectSkipsRecheck);
        if head_age <= closed {
            f(stand.head_age, count);
        }
        let base = sub.row(spot.slot);
        // Closed buckets: only those older than the head. One of the head's own epoch was put there
        // by somebody who is about to roll it, and is already counted in the head.
        for i in RING..RING + sub.ring {
            let word = self.mem.load(base + i);
            let age = epoch_ahead(&self.mem, stand.epoch, tagged_epoch(word));
            if age > head_age && age <= closed && (any || tagged_is_of(word, generation)) {
                f(age.unsigned_abs(), u64::from(tagged_count(word)));
            }
        }
        for i in sub.remote_at..sub.remote_at + sub.remote {
            let word = self.mem.load(base + i);
            let age = epoch_ahead(&self.mem, stand.epoch, tagged_epoch(word));
            if age >= 0 && age <= closed && (any || tagged_is_of(word, generation)) {
                f(age.unsigned_abs(), u64::from(tagged_count(word)));
            }
        }
    }

    /// ns until `hits` fit into a window that has no room for them now. spec: adm-8
    pub(crate) fn window_wait_ns(
        &self,
        sub: &Sub,
        plan: &WindowPlan,
        fmt: HeadFormat,
        spot: Spot,
        now: (u64, u64),
        hits: u32,
    ) -> u64 {
        let stand = self.stand(sub, fmt, spot.head, now);
        let count = if stand.void { 0 } else { fmt.count(spot.head) };
        if plan.closed == 0 {
            // Nothing of a fixed window outlives its end.
            let full = [u64::MAX];
            return plan.wait_ns(&full, stand.into_ns, hits) + lag_ns(plan, now, stand.epoch);
        }
        let mut by_age = [0u64; CLOSED_BUCKETS_MAX + 1];
        self.each_counted(sub, plan, fmt, spot, stand, count, |age, hits| {
            if let Some(sum) = usize::try_from(age).ok().and_then(|a| by_age.get_mut(a)) {
                *sum = sum.saturating_add(hits);
            }
        });
        plan.wait_ns(&by_age, stand.into_ns, hits) + lag_ns(plan, now, stand.epoch)
    }

    /// Own hits that count in a window: the head's and those of closed buckets, without remote
    /// totals.
    pub(crate) fn own_used(
        &self,
        sub: &Sub,
        plan: &WindowPlan,
        fmt: HeadFormat,
        spot: Spot,
        now: (u64, u64),
    ) -> u64 {
        let stand = self.stand(sub, fmt, spot.head, now);
        let count = if stand.void { 0 } else { fmt.count(spot.head) };
        let closed = u64::from(plan.closed);
        let counted = |age: u64, hits: u64| match age.cmp(&closed) {
            std::cmp::Ordering::Less => hits,
            std::cmp::Ordering::Equal if closed > 0 => plan.oldest_share(hits, stand.into_ns),
            std::cmp::Ordering::Equal => hits,
            std::cmp::Ordering::Greater => 0,
        };
        let mut own = counted(stand.head_age, count);
        let (base, generation) = (sub.row(spot.slot), fmt.generation(spot.head));
        for i in RING..RING + sub.ring {
            let word = self.mem.load(base + i);
            let age = epoch_ahead(&self.mem, stand.epoch, tagged_epoch(word));
            let younger = u64::try_from(age).is_ok_and(|age| age > stand.head_age);
            if younger && tagged_is_of(word, generation) {
                own =
                    own.saturating_add(counted(age.unsigned_abs(), u64::from(tagged_count(word))));
            }
        }
        own
    }

    /// Whether the row still lives the life that `head` was part of.
    ///
    /// The load is an acquire load after acquire loads of what was summed, so it is not older than
    /// they are; it pairs with the CAS by which a claimer ends a life. spec: adm-26
    #[inline(always)]
    pub(crate) fn still_alive(&self, sub: &Sub, fmt: HeadFormat, spot: Spot) -> bool {
        self.mem.planted(Fault::RejectSkipsRecheck)
            || fmt.same_life(self.mem.load(sub.row(spot.slot) + HEAD), spot.head)
    }
}

/// What a view shows.
#[inline(always)]
pub(crate) fn window_reading(
    plan: &WindowPlan,
    now: (u64, u64),
    view: &View,
    used: u64,
) -> Reading {
    let mut reading = plan.reading(used, view.into_ns);
    if view.epoch != now.0 && reading.reset_ns != 0 {
        reading.reset_ns += lag_ns(plan, now, view.epoch);
    }
    reading
}

/// ns from now to the beginning of `epoch`, when it has not begun here.
fn lag_ns(plan: &WindowPlan, (now_epoch, into_ns): (u64, u64), epoch: u64) -> u64 {
    if epoch <= now_epoch {
        return 0;
    }
    (epoch - now_epoch)
        .saturating_mul(plan.bucket_ns)
        .saturating_sub(into_ns)
}

/// Which remote word an epoch uses. Of the epochs that are accepted at one time no two share one.
#[inline(always)]
pub(crate) fn remote_index(sub: &Sub, epoch: u64) -> usize {
    let n = sub.remote as u64;
    let at = if n == 4 { epoch & 3 } else { epoch % n };
    index(at)
}

/// Which ring word an epoch uses once it is closed.
#[inline(always)]
pub(crate) fn ring_index(sub: &Sub, epoch: u64) -> usize {
    index(epoch % sub.ring as u64)
}
