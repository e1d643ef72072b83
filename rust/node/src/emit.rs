//! When an own count is published.
//!
//! I own the two queues between an own count and the dirty log: urgent rows leave with the next
//! emission round, the others with the heartbeat. I promise: a row whose unpublished hits reach its
//! share of the error budget waits at most one round; no row waits longer than the heartbeat;
//! rounds keep their floor. spec: rep-3, rep-4

use std::collections::VecDeque;

use gabion_rule::{Key, RuleIdx};

use crate::api::LimiterSpec;
use crate::bound::share_hits;
use crate::cells::{COLD, URGENT};
use crate::limits::{COLD_EARLY_NS, MS, SECOND};
use crate::node::Node;
use crate::origins::NO_ORIGIN;

/// Rows of about one frame: fewer are not worth ordering.
const ORDER_FROM_ROWS: usize = 64;
/// Rounds that a member at rest saves up at most.
const SAVED_ROUNDS_MAX: u64 = 32;
/// All that is saved up may send this part of a second's packets at most (one in 20).
const SAVED_PACKETS_PART: u64 = 20;
/// How much closer saved rounds are than the floor.
const CLOSER: u64 = 8;
/// Live epochs looked at when a share is worked out; more are extrapolated.
const EPOCHS_READ: u32 = 8;

#[derive(Debug)]
pub(crate) struct Emitter {
    urgent: Vec<u32>,
    cold: VecDeque<(u32, u64)>,
    /// When the last round ran.
    last_ns: Option<u64>,
    /// When all rounds that ran would have, a floor apart: ahead of now, credit is in use.
    paced_ns: u64,
    /// Something was published since start.
    pub(crate) published: bool,
}

impl Emitter {
    pub(crate) fn new() -> Emitter {
        Emitter {
            urgent: Vec::new(),
            cold: VecDeque::new(),
            last_ns: None,
            paced_ns: 0,
            published: false,
        }
    }
}

/// Hits one member may hold back: its part of the error budget of what is left, at least one.
fn share(spec: &LimiterSpec, used: u64, members: u64) -> u64 {
    let left = u64::from(spec.limit).saturating_sub(used);
    share_hits(left, spec.error_budget_ppm, members)
}

impl Node {
    /// Input::Own.
    pub(crate) fn on_own(&mut self, limiter: RuleIdx, key: Key, epoch: u64, count: u32) {
        let accepted = self
            .epochs(limiter)
            .is_some_and(|(old, new)| (old..=new).contains(&epoch));
        if !accepted {
            self.stats.drop_own += 1;
            return;
        }
        if count == 0 {
            return;
        }
        let cell = self
            .cells
            .shelf_or_new(limiter, epoch)
            .and_then(|shelf| Ok((shelf, self.cells.find_or_insert(shelf, key, None)?)));
        match cell {
            Ok((shelf, id)) => {
                let cell = self.cells.cell(id);
                if self.cells.raise_own(id, count) {
                    let hits = u64::from(count.saturating_sub(cell.own));
                    let news = (hits, count.saturating_sub(cell.emitted));
                    self.note_flow(limiter, NO_ORIGIN, news);
                    self.queue(shelf, id);
                }
            }
            Err(why) => self.refused(why, None),
        }
    }

    /// Time between two rounds, in the mean. spec: rep-3
    pub(crate) fn floor_ns(&self) -> u64 {
        if self.spread.active {
            return self.spread.floor_ns().max(self.t.min_emit_interval_ns);
        }
        let peers = self.stats.peers_up;
        let paced = peers.saturating_mul(SECOND) / self.t.packets_per_second.max(1);
        self.t.min_emit_interval_ns.max(paced)
    }

    /// When the next round may run. A member at rest saves up some rounds, which leave closer to
    /// each other: a burst is told of while it lasts, and costs no packets in the mean. spec: rep-3
    fn next_round_ns(&self) -> u64 {
        let Some(last) = self.emit.last_ns else {
            return 0;
        };
        let credit_ns = (self.saved_rounds() - 1).saturating_mul(self.floor_ns());
        let paced = self.emit.paced_ns.saturating_sub(credit_ns);
        paced.max(last + self.closest_ns())
    }

    /// Rounds a member at rest saves up, at least one.
    fn saved_rounds(&self) -> u64 {
        let peers = self.stats.peers_up.max(1);
        let most = self.t.packets_per_second / SAVED_PACKETS_PART / peers;
        most.clamp(1, SAVED_ROUNDS_MAX)
    }

    /// The shortest time between two rounds, where one is saved.
    fn closest_ns(&self) -> u64 {
        match self.saved_rounds() {
            1 => self.floor_ns(),
            _ => self.floor_ns() / CLOSER,
        }
    }

    /// Urgent news was published a moment ago, and rounds are saved up: how soon the next one may
    /// run, so that whoever feeds this node looks for more by then. spec: rep-3, pmp-8
    pub fn hurries_ns(&self) -> Option<u64> {
        let now = self.now.mono_ns;
        let lately = self.emit.last_ns.is_some_and(|l| now < l + 2 * MS);
        let next = self.next_round_ns();
        let saved = self
            .emit
            .last_ns
            .is_some_and(|l| next < l + self.floor_ns());
        (lately && saved).then(|| next.saturating_sub(now))
    }

    /// Puts a cell with unpublished hits where it belongs.
    pub(crate) fn queue(&mut self, shelf: u32, id: u32) {
        let cell = self.cells.cell(id);
        let pending = u64::from(cell.own.saturating_sub(cell.emitted));
        if pending == 0 || cell.has(URGENT) {
            return;
        }
        if self.is_urgent(shelf, id, pending) {
            if self.emit.urgent.len() >= self.t.urgent_rows {
                self.publish(shelf, id);
                return;
            }
            self.cells.set_flag(id, URGENT);
            self.emit.urgent.push(id);
        } else if !cell.has(COLD) {
            self.cells.set_flag(id, COLD);
            // The turns of two resting pumps and the way there fit into the rest. spec: rep-3
            let early_ns = COLD_EARLY_NS.min(self.t.heartbeat_ns / 4);
            let leaves_ns = self.now.mono_ns + self.t.heartbeat_ns - early_ns;
            self.emit.cold.push_back((id, leaves_ns));
            if self.emit.cold.len() > self.t.cold_queue_rows {
                self.stats.cold_overflow += 1;
                self.publish_oldest_cold();
            }
        }
    }

    fn is_urgent(&self, shelf: u32, id: u32, pending: u64) -> bool {
        let Some(s) = self.cells.shelf(shelf) else {
            return false;
        };
        let Some(spec) = self.limiters.get(usize::from(s.limiter)) else {
            return false;
        };
        let members = self.members;
        let here = u64::from(self.cells.cell(id).own) + self.cells.remote_total(id);
        let most = share(spec, here, members);
        if most <= 1 || pending >= most {
            return pending >= most;
        }
        pending >= share(spec, here + self.used_before(shelf, id, spec), members)
    }

    /// Hits of the same key in the other live epochs.
    fn used_before(&self, shelf: u32, id: u32, spec: &LimiterSpec) -> u64 {
        let Some(s) = self.cells.shelf(shelf) else {
            return 0;
        };
        let key = self.cells.cell(id).key();
        let others = spec.live_epochs.saturating_sub(1);
        let read = others.min(EPOCHS_READ);
        let mut used = 0u64;
        for back in 1..=u64::from(read) {
            let Some(epoch) = s.epoch.checked_sub(back) else {
                break;
            };
            let Some(at) = self.cells.shelf_at(s.limiter, epoch) else {
                continue;
            };
            if let Some(other) = self.cells.find(at, key) {
                used += u64::from(self.cells.cell(other).own) + self.cells.remote_total(other);
            }
        }
        if read == 0 {
            0
        } else {
            used.saturating_mul(u64::from(others)) / u64::from(read)
        }
    }

    /// A remote count rose, so less is left: a row that waits may be urgent now.
    pub(crate) fn requeue(&mut self, shelf: u32, id: u32) {
        let cell = self.cells.cell(id);
        if cell.has(COLD) && !cell.has(URGENT) {
            self.queue(shelf, id);
        }
    }

    /// Publishes what is due.
    pub(crate) fn emit_due(&mut self) {
        let now = self.now.mono_ns;
        while self.emit.cold.front().is_some_and(|(_, due)| *due <= now) {
            self.publish_oldest_cold();
        }
        if self.emit.urgent.is_empty() || now < self.next_round_ns() {
            return;
        }
        self.emit.paced_ns = self.emit.paced_ns.max(now) + self.floor_ns();
        self.emit.last_ns = Some(now);
        self.stats.rounds += 1;
        let mut rows = std::mem::take(&mut self.emit.urgent);
        if rows.len() > ORDER_FROM_ROWS {
            rows.sort_by_cached_key(|id| std::cmp::Reverse(self.fullness(*id)));
        }
        for id in &rows {
            if self.cells.cell(*id).has(URGENT) {
                self.cells.clear_flag(*id, URGENT);
                if let Some(shelf) = self.cells.shelf_of(*id) {
                    self.publish(shelf, *id);
                }
            }
        }
        rows.clear();
        self.emit.urgent = rows;
    }

    /// count / limit in millionths.
    fn fullness(&self, id: u32) -> u64 {
        let limit = self
            .cells
            .shelf_of(id)
            .and_then(|s| self.cells.shelf(s))
            .and_then(|s| self.limiters.get(usize::from(s.limiter)))
            .map_or(1, |l| u64::from(l.limit.max(1)));
        let count = u64::from(self.cells.cell(id).own) + self.cells.remote_total(id);
        count.saturating_mul(1_000_000) / limit
    }

    fn publish_oldest_cold(&mut self) {
        let Some((id, _)) = self.emit.cold.pop_front() else {
            return;
        };
        // An id may have been given to another cell since: only a flagged one is meant.
        let cell = self.cells.cell(id);
        if cell.has(COLD) {
            self.cells.clear_flag(id, COLD);
            if let (Some(shelf), true) = (self.cells.shelf_of(id), cell.own > cell.emitted) {
                self.publish(shelf, id);
            }
        }
    }

    /// Appends a cell to the dirty log with its current own count.
    pub(crate) fn publish(&mut self, shelf: u32, id: u32) {
        let cell = self.cells.cell(id);
        if cell.own > cell.emitted {
            self.cells.publish(shelf, id, self.log.head());
            self.emit.published = true;
            if self.spread.active {
                self.is_news(shelf, id, crate::origins::NO_ORIGIN);
            } else {
                self.marks.push(self.log.head(), self.now.mono_ns);
                self.log.push(id);
                self.stale = true;
            }
            self.stats.rows_published += 1;
        }
    }

    /// Input::Leave: publishes everything that waits.
    pub(crate) fn leave(&mut self) {
        self.leaving = true;
        self.stale = true;
        while !self.emit.cold.is_empty() {
            self.publish_oldest_cold();
        }
        self.emit.last_ns = None;
        self.emit_due();
    }

    /// When something is to be published.
    pub(crate) fn emit_deadline_ns(&self) -> Option<u64> {
        let round = (!self.emit.urgent.is_empty()).then(|| self.next_round_ns());
        let cold = self.emit.cold.front().map(|(_, due)| *due);
        round.into_iter().chain(cold).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(limit: u32, error_budget_ppm: u32) -> LimiterSpec {
        LimiterSpec {
            short: 1,
            digest: 1,
            epoch_ns: 1,
            live_epochs: 1,
            limit,
            error_budget_ppm,
        }
    }

    #[test]
    fn the_share_is_a_part_of_what_is_left_and_never_below_one_hit() {
        // 1 % of 100,000 among 10 members.
        assert_eq!(share(&spec(100_000, 10_000), 0, 10), 100);
        assert_eq!(share(&spec(100_000, 10_000), 90_000, 10), 10);
        assert_eq!(share(&spec(100_000, 10_000), 200_000, 10), 1);
        assert_eq!(share(&spec(5, 10_000), 0, 10), 1);
        assert_eq!(share(&spec(u32::MAX, 1_000_000), 0, 0), u64::from(u32::MAX));
    }
}
