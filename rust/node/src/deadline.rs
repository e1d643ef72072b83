//! Time: what is done when a deadline passes, and when the next one is.
//!
//! I promise: what [`Node::next_deadline`] names is served by `Tick` or `poll_transmit` at that
//! time, so a caller that waits for it never spins and never comes late.

use crate::api::Effect;
use gabion_rule::RuleIdx;

use crate::limits::{MS, SECOND};
use crate::link::{Link, REPAIR_BATCH_ROWS};
use crate::node::Node;

/// Segments of dropped shelves given back per call: bounds the time one call takes.
const SEGMENTS_PER_CALL: usize = 64;
/// Time between looks at duplicates, one-way links, skews and bounds, nanoseconds.
const UPKEEP_EVERY_NS: u64 = SECOND;
/// Cluster time that moves this far against monotonic time was set, nanoseconds.
const CLOCK_SET_NS: u64 = 50 * MS;
/// Time between looks at expired epochs: shortest and longest, nanoseconds.
const EXPIRE_MIN_NS: u64 = 50 * MS;
const EXPIRE_MAX_NS: u64 = SECOND;

impl Node {
    /// Everything that is due now.
    pub(crate) fn on_time(&mut self) {
        let now = self.now.mono_ns;
        self.emit_due();
        self.links_on_time();
        self.repairs_on_time();
        if let Some(c) = self.clock.adjust(now, self.emit.published) {
            self.stats.clock_steps += u64::from(c.step);
            self.stats.clock_slews += u64::from(!c.step);
            self.effect(Effect::ClockOffset {
                offset_ns: c.offset_ns,
                step: c.step,
            });
        }
        // Cluster time against monotonic time: a change is a clock that was set. spec: time-5
        let base = self.now.cluster_ns.wrapping_sub(now);
        let set = base
            .wrapping_sub(self.clock_base)
            .min(self.clock_base.wrapping_sub(base));
        if now >= self.expire_next_ns || set > CLOCK_SET_NS {
            self.clock_base = base;
            self.expire();
        }
        if set > CLOCK_SET_NS {
            self.ask_all(); // not when a step is asked for: by the old clock answers are refused
        }
        if self.giving_back {
            self.giving_back = self.cells.give_back(SEGMENTS_PER_CALL);
        }
        if now >= self.upkeep_next_ns {
            self.upkeep_next_ns = now + UPKEEP_EVERY_NS;
            self.find_duplicates();
            self.find_shared_places();
            self.find_one_way();
            self.find_skew();
            self.find_caught_up();
            self.flows.forget_idle(now);
            self.choose_dissemination();
            self.forget_waits();
            self.cells.origins.collect();
            self.renew_unreached();
            self.choose_relays();
            self.ask_someone();
            self.stats.cell_bytes = self.cells.bytes() as u64;
            self.stats.spread_bytes = self.spread_bytes() as u64;
            let oldest = self.each_link().map(|l| self.staleness_ns(l)).max();
            self.stats.staleness_ns = oldest.unwrap_or(0);
        }
        self.update_gauges();
    }

    fn update_gauges(&mut self) {
        let s = &mut self.stats;
        s.cells = u64::from(self.cells.len());
        s.origins = self.cells.origins.len() as u64;
        s.shelves = self.cells.shelf_count() as u64;
    }

    /// Drops what no longer counts. spec: time-5
    fn expire(&mut self) {
        let smallest = self
            .limiters
            .iter()
            .map(|l| l.epoch_ns)
            .min()
            .unwrap_or(SECOND);
        self.expire_next_ns = self.now.mono_ns + smallest.clamp(EXPIRE_MIN_NS, EXPIRE_MAX_NS);
        for i in 0..self.limiters.len() {
            let Ok(limiter) = RuleIdx::try_from(i) else {
                break;
            };
            let Some((oldest, newest)) = self.epochs(limiter) else {
                continue;
            };
            self.stats.void_cells += self.cells.expire(limiter, oldest, newest);
        }
        self.giving_back = true;
    }

    /// When to call again with [`crate::Input::Tick`], on the monotonic clock; `None` = only when
    /// something happens.
    pub fn next_deadline(&self) -> Option<u64> {
        let links = match self.stale {
            true => (0..self.links.len()).map(|at| self.due_ns(at)).min(),
            false => self.due.soonest(),
        };
        debug_assert!(
            self.stale || self.due_is_right(),
            "a link's deadline was not kept"
        );
        let links = links.filter(|d| *d < u64::MAX);
        let cells = (self.cells.len() > 0 || self.stats.shelves > 0).then_some(self.expire_next_ns);
        let giving = self.giving_back.then_some(self.now.mono_ns + MS);
        let upkeep = (!self.links.is_empty()).then_some(self.upkeep_next_ns);
        links
            .into_iter()
            .chain(cells)
            .chain(giving)
            .chain(upkeep)
            .chain(self.emit_deadline_ns())
            .chain(self.clock.deadline_ns())
            .chain(self.repairs_deadline_ns())
            .chain(self.spread_deadline_ns())
            .min()
            .map(|d| d.max(self.now.mono_ns))
    }

    /// When a link is due; the end of time when never.
    fn due_ns(&self, at: usize) -> u64 {
        let link = self.links[at].as_ref();
        link.and_then(|l| self.link_deadline_ns(at, l))
            .unwrap_or(u64::MAX)
    }

    /// Is what was kept what a look at all links gives? Asked in one of 16 calls: it is dear.
    fn due_is_right(&self) -> bool {
        let now = self.now.mono_ns;
        self.stats.frames_in % 16 != 0
            || (0..self.links.len()).all(|at| self.due.at(at).max(now) == self.due_ns(at).max(now))
    }

    /// A link changed.
    pub(crate) fn touch(&mut self, at: usize) {
        if !self.stale && at < self.due.len() {
            self.due.set(at, self.due_ns(at));
        }
    }

    /// Looks at every link again when something changed that concerns them all.
    pub(crate) fn refresh(&mut self) {
        if self.stale {
            let mut due = std::mem::take(&mut self.due);
            due.set_all((0..self.links.len()).map(|at| self.due_ns(at)));
            self.due = due;
            self.stale = false;
        }
    }

    fn link_deadline_ns(&self, at: usize, l: &Link) -> Option<u64> {
        if l.alias_of.is_some() || l.left {
            return None;
        }
        let now = self.now.mono_ns;
        let mut soonest = u64::MAX;
        let mut by = |ns: u64| soonest = soonest.min(ns);
        if l.hello_owed {
            by(now.max(l.replied_ns + crate::peers::REPLY_GAP_NS));
        }
        if l.wants_hello() && !self.leaving {
            by(l.hello_next_ns);
        }
        if !l.configured && !l.up {
            by(l.last_in_ns + crate::peers::PROVISIONAL_LIFE_NS);
        }
        if l.up {
            by(l.last_in_ns + self.t.peer_timeout_ns * l.slow);
            by(l.beat_next_ns);
            if l.has_wholes() {
                by(now);
            }
            if self.leaving {
                by(now);
            }
            l.rx.deadline_ns().into_iter().for_each(&mut by);
            l.tx.deadline_ns(&self.t).into_iter().for_each(&mut by);
            if l.tx.may_send() {
                if self.has_rows(l)
                    || self.registers.is_behind(l.orders)
                    || l.list_due()
                    || self.has_ask(at)
                    || !l.not_kept.is_empty()
                {
                    by(now);
                }
                if !l.jobs.is_empty() {
                    by(l.tokens_at_ns(self.t.repair_rows_per_second, REPAIR_BATCH_ROWS));
                }
            }
        }
        (soonest < u64::MAX).then_some(soonest)
    }

    /// Rows of the log or of a relay wait to be sent.
    pub(crate) fn has_rows(&self, l: &Link) -> bool {
        !l.drained(self.log.head()) || !l.relay.is_empty() || l.has_packets()
    }
}
