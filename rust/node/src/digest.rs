//! Digests: what is announced, what is compared.
//!
//! I promise: a digest of own counts leaves only when everything published was sent before it or
//! with it, so on a link that loses nothing it always matches, however hot the rows are; what
//! differs is lost, late or refused, and asking costs one request. spec: rep-6, rep-8, rep-10

use gabion_wire::{Digest, Origin, Scope};

use crate::cells::{Backoff, OriginSum};
use crate::limits::{MAX_REPAIRS, SECOND};
use crate::link::Link;
use crate::node::Node;
use crate::origins::OriginIdx;
use crate::repair::Repair;

/// An announcement of the same digest by a lower peer keeps us quiet for this long, nanoseconds.
const SERVED_FOR_NS: u64 = 90 * SECOND;
/// Digests of other origins looked at per heartbeat.
const FOREIGN_STEPS: usize = 64;
/// Longest back-off of one digest: this many doublings.
const MAX_DOUBLINGS: u8 = 6;

impl Node {
    /// This member's digest of one shelf; `None` when it holds nothing of that origin.
    pub(crate) fn digest_of(&self, shelf: u32, origin: Option<OriginIdx>) -> Option<Digest> {
        let s = self.cells.shelf(shelf)?;
        let (rows, hash, name) = match origin {
            None => (s.own_rows, s.own_sum, None),
            Some(o) => {
                let sum = s.origin(o)?;
                (sum.rows, sum.sum, Some(self.cells.origins.name(o)?))
            }
        };
        let limiter = self.limiters.get(usize::from(s.limiter))?.short;
        (rows > 0).then_some(Digest {
            scope: Scope {
                limiter,
                epoch: s.epoch,
                origin: name,
            },
            rows,
            hash,
        })
    }

    /// Is the origin served by nobody itself?
    pub(crate) fn is_gone(&self, origin: Origin) -> bool {
        origin != self.me && !self.each_link().any(|l| l.up && l.origin() == Some(origin))
    }

    /// Digests for a link's list from where it has got to, at most `most`. Gives the next place;
    /// `None` = the list is complete.
    pub(crate) fn list_digests(&self, link: &mut Link, most: usize, out: &mut Vec<Digest>) {
        let Some(mut list) = link.list else { return };
        while out.len() < most {
            let Some((at, shelf)) = self.cells.shelf_after(list.after) else {
                link.list = None;
                return;
            };
            let name = (shelf.limiter, shelf.epoch);
            if self.is_lasting(shelf.limiter, shelf.epoch) {
                if list.origins == 0 {
                    out.extend(self.digest_of(at, None));
                    list.origins = 1;
                }
                while let (Some(sum), true) =
                    (shelf.origins.get(list.origins - 1), out.len() < most)
                {
                    list.origins += 1;
                    if self.cells.origins.name(sum.origin).is_some_and(|o| {
                        link.origin() == Some(o)
                            || link.relay_of.contains(&o)
                            || (list.foreign && self.is_gone(o))
                    }) {
                        out.extend(self.digest_of(at, Some(sum.origin)));
                    }
                }
                if shelf.origins.len() >= list.origins {
                    break;
                }
            }
            list.after = Some(name);
            list.origins = 0;
        }
        link.list = Some(list);
    }

    /// The next own digest of a link's slow rotation.
    pub(crate) fn rotate_digest(&self, link: &mut Link) -> Option<Digest> {
        for _ in 0..FOREIGN_STEPS {
            let Some((at, shelf)) = self.cells.shelf_after(link.rotate) else {
                link.rotate = None;
                return None;
            };
            link.rotate = Some((shelf.limiter, shelf.epoch));
            if self.is_lasting(shelf.limiter, shelf.epoch) {
                if let Some(digest) = self.digest_of(at, None) {
                    return Some(digest);
                }
            }
        }
        None
    }

    /// The next digest of an origin that is gone and that this member serves. spec: rep-10
    pub(crate) fn next_foreign(&mut self) -> Option<Digest> {
        let now = self.now.mono_ns;
        for _ in 0..FOREIGN_STEPS {
            let (after, i) = self.foreign_turn;
            let Some((at, shelf)) = self.cells.shelf_after(after) else {
                self.foreign_turn = (None, 0);
                return None;
            };
            let Some(sum) = shelf.origins.get(i).copied() else {
                self.foreign_turn = (Some((shelf.limiter, shelf.epoch)), 0);
                continue;
            };
            let lasting = self.is_lasting(shelf.limiter, shelf.epoch);
            self.foreign_turn = (after, i + 1);
            let served = now < sum.served_at_ns + SERVED_FOR_NS && self.still_serves(&sum);
            let gone = self
                .cells
                .origins
                .name(sum.origin)
                .is_some_and(|o| self.is_gone(o));
            if lasting && gone && !served {
                if let Some(digest) = self.digest_of(at, Some(sum.origin)) {
                    return Some(digest);
                }
            }
        }
        None
    }

    /// The digest of an origin that is gone for this round of heartbeats: the same for all links.
    pub(crate) fn foreign_for_beat(&mut self) {
        let now = self.now.mono_ns;
        if now >= self.foreign_now.1 {
            let active = self.spread.active; // spec: dis-10
            let digest = if active { None } else { self.next_foreign() };
            self.foreign_now = (digest, now + self.t.idle_heartbeat_ns);
        }
    }

    /// Is the member that announced the same digest still there, and the same process?
    fn still_serves(&self, sum: &OriginSum) -> bool {
        self.each_link().filter(|l| l.up).any(|l| {
            let peer = l.peer.as_ref().filter(|p| p.origin.node == sum.served_by);
            peer.is_some_and(|p| p.since_ns <= sum.served_at_ns)
        })
    }

    /// A peer's digest arrived.
    pub(crate) fn on_digest(&mut self, at: usize, digest: &Digest) {
        self.stats.digests_in += 1;
        let Digest { scope, rows, hash } = *digest;
        let Some(limiter) = self.accept_scope(scope.limiter, scope.epoch, 0) else {
            return;
        };
        let Some(peer) = self.links[at].as_ref().and_then(|l| l.peer.as_ref()) else {
            return;
        };
        let (sender, direct) = (peer.origin, scope.origin.is_none());
        if !self.is_lasting(limiter, scope.epoch) {
            return;
        }
        let origin = scope.origin.unwrap_or(sender);
        let Ok(shelf) = self.cells.shelf_or_new(limiter, scope.epoch) else {
            return;
        };
        let now = self.now.mono_ns;
        if self.compare(shelf, origin, rows, hash) {
            self.stats.digests_matched += 1;
            if let Some(backoff) = self.backoff(shelf, origin) {
                *backoff = Backoff::default();
            }
            // What was asked for has come, by whatever way.
            self.repairs
                .retain(|r| r.link != at || !r.is_of(limiter, scope.epoch, origin));
            if !direct && sender.node < self.me.node {
                self.mark_served(shelf, origin, sender.node, now);
            }
            return;
        }
        self.stats.digests_mismatched += 1;
        if !direct {
            self.mark_served(shelf, origin, 0, now);
        }
        if rows > 0 {
            self.want_repair(at, shelf, origin, rows);
        }
    }

    /// Do our counts of `origin` agree?
    fn compare(&self, shelf: u32, origin: Origin, rows: u32, hash: u64) -> bool {
        let Some(s) = self.cells.shelf(shelf) else {
            return false;
        };
        if origin == self.me {
            return (s.own_rows, s.own_sum) == (rows, hash);
        }
        let mine = self.cells.origins.find(origin).and_then(|o| s.origin(o));
        mine.map_or((0, 0), |m| (m.rows, m.sum)) == (rows, hash)
    }

    /// A member is back: what differed before may have been lost on the way. spec: rep-9
    pub(crate) fn forget_backoff(&mut self, origin: Origin) {
        let Some(idx) = self.cells.origins.find(origin) else {
            return;
        };
        self.cells.each_sum(idx, &mut |sum| {
            if sum.refused == 0 {
                sum.backoff = Backoff::default();
            }
        });
    }

    /// Rows we hold of an origin on a shelf.
    fn rows_of(&self, shelf: u32, origin: Origin) -> u32 {
        let Some(s) = self.cells.shelf(shelf) else {
            return 0;
        };
        if origin == self.me {
            return s.own_rows;
        }
        let idx = self.cells.origins.find(origin);
        idx.and_then(|o| s.origin(o)).map_or(0, |sum| sum.rows)
    }

    fn mark_served(&mut self, shelf: u32, origin: Origin, by: u64, now: u64) {
        let Some(idx) = self.cells.origins.find(origin) else {
            return;
        };
        if let Some(sum) = self.cells.shelf_mut(shelf).and_then(|s| s.origin_mut(idx)) {
            sum.served_by = by;
            sum.served_at_ns = now;
        }
    }

    pub(crate) fn backoff(&mut self, shelf: u32, origin: Origin) -> Option<&mut Backoff> {
        if origin == self.me {
            return Some(&mut self.cells.shelf_mut(shelf)?.own_backoff);
        }
        let idx = self.cells.origins.intern(origin)?;
        Some(&mut self.cells.sum_of(shelf, idx)?.backoff)
    }

    /// Queues a repair unless the same digest is backed off. What was refused is not asked for
    /// again soon: it would be refused again. spec: rep-9
    fn want_repair(&mut self, at: usize, shelf: u32, origin: Origin, rows: u32) {
        let (now, base) = (self.now.mono_ns, self.t.repair_backoff_ns);
        let refused = self
            .cells
            .origins
            .find(origin)
            .and_then(|o| self.cells.shelf(shelf)?.origin(o))
            .is_some_and(|s| s.refused > 0);
        let full = self.repairs.len() >= MAX_REPAIRS;
        let Some(s) = self.cells.shelf(shelf) else {
            return;
        };
        let (limiter, epoch) = (s.limiter, s.epoch);
        let queued = self.repairs.iter().any(|r| r.is_of(limiter, epoch, origin));
        let Some(backoff) = self.backoff(shelf, origin) else {
            return;
        };
        if refused && backoff.next_ns == 0 {
            backoff.next_ns = now + (base << MAX_DOUBLINGS);
        }
        if now < backoff.next_ns || full || queued {
            self.stats.repairs_backed_off += 1;
            return;
        }
        let doublings = if refused {
            MAX_DOUBLINGS
        } else {
            backoff.doublings
        };
        backoff.next_ns = now + (base << doublings);
        backoff.doublings = (backoff.doublings + 1).min(MAX_DOUBLINGS);
        let mut repair = Repair::new(at, limiter, epoch, origin, rows);
        repair.less = rows < self.rows_of(shelf, origin);
        self.repairs.push(repair);
    }
}
