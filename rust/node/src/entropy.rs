//! Anti-entropy: digests over all origins between random pairs, and the rows that differ.
//!
//! I promise: whatever forwarding missed is found within a few exchanges; a difference that stays
//! costs little. spec: dis-6, dis-7, dis-8

use gabion_rule::RuleIdx;
use gabion_wire::{Digest, DigestRequest, Origin, Scope, WholeDigest};

use crate::cells::{low_half, Backoff};
use crate::limits::{MAX_JOBS_PER_LINK, MAX_REPAIRS};
use crate::link::{Job, Link, REPAIR_BATCH_ROWS};
use crate::node::Node;
use crate::origins::NO_ORIGIN;
use crate::repair::Repair;

/// Stands for "all origins" where repairs and jobs name one: no node has the id 0.
pub(crate) const ALL: Origin = Origin {
    node: 0,
    incarnation: 0,
};
/// Whole digests of one exchange, and in one frame. spec: dis-6
const PER_EXCHANGE: usize = 16;
/// Bytes of one in a frame, at most.
const WHOLE_BYTES: usize = 3 + 1 + 1 + 8 + 7 + 5 + 8;
/// Packets of answers that wait on one link at a time.
const ANSWER_QUEUE: usize = 32;
/// Answers one link owes at a time.
const ANSWERS_MAX: usize = 32;
/// Doublings of the wait of half a second: to 1 s, and to 128 s for what is refused. spec: dis-8
const DOUBLINGS: u8 = 1;
const DOUBLINGS_REFUSED: u8 = 8;

/// Whole digests to be sent on one link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WholeList {
    after: Option<(u16, u64)>,
    left: usize,
}

/// When a shelf is repaired as a whole again.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Waits {
    backoff: Backoff,
    /// What this member held at the last repair.
    held: (u32, u64),
}

impl Job {
    /// Does it ask for all origins?
    pub(crate) fn is_whole(&self) -> bool {
        self.origin == Some(ALL)
    }
}

impl Node {
    /// A random member is told whole digests. spec: dis-6
    pub(crate) fn entropy_round(&mut self, rng: &mut dyn FnMut() -> u64) {
        let now = self.now.mono_ns;
        if !self.spread.takes_part(now) || now < self.spread.entropy_next_ns || self.leaving {
            return;
        }
        self.spread.entropy_next_ns = now + self.t.idle_heartbeat_ns / 2;
        if self.cells.shelf_count() == 0 {
            return;
        }
        let Some(at) = self.choose_one(rng) else {
            return;
        };
        let after = self.spread.walk;
        if let Some(link) = self.links[at].as_mut() {
            link.spread.whole.get_or_insert(WholeList {
                after,
                left: PER_EXCHANGE,
            });
        }
        self.touch(at);
    }

    /// All whole digests, for a member that asks for everything. spec: dis-8
    pub(crate) fn list_wholes(link: &mut Link) {
        link.spread.whole = Some(WholeList {
            after: None,
            left: usize::MAX,
        });
    }

    /// Whole digests for a frame.
    pub(crate) fn plan_wholes(&mut self, link: &mut Link, room: &mut usize) -> Vec<WholeDigest> {
        let mut out = Vec::new();
        while *room >= WHOLE_BYTES && out.len() < PER_EXCHANGE {
            let Some((limiter, epoch)) = link.spread.answers.pop_front() else {
                break;
            };
            if let Some(digest) = self.whole_digest(limiter, epoch) {
                *room -= WHOLE_BYTES;
                out.push(WholeDigest {
                    answer: true,
                    digest,
                });
            }
        }
        while *room >= WHOLE_BYTES && out.len() < PER_EXCHANGE {
            let Some(mut list) = link.spread.whole.take().filter(|list| list.left > 0) else {
                break;
            };
            let next = self.cells.shelf_after(list.after);
            list.after = next.map(|(_, shelf)| (shelf.limiter, shelf.epoch));
            if list.left <= PER_EXCHANGE {
                self.spread.walk = list.after; // the next exchange goes on there
            }
            let Some((limiter, epoch)) = list.after else {
                break;
            };
            if let Some(digest) = self.whole_digest(limiter, epoch) {
                list.left -= 1;
                *room -= WHOLE_BYTES;
                out.push(WholeDigest {
                    answer: false,
                    digest,
                });
            }
            link.spread.whole = Some(list);
        }
        self.stats.digests_out += out.len() as u64;
        out
    }

    fn whole_digest(&self, limiter: RuleIdx, epoch: u64) -> Option<Digest> {
        if !self.is_lasting(limiter, epoch) {
            return None;
        }
        let shelf = self.cells.shelf_at(limiter, epoch)?;
        let (rows, hash) = self.cells.whole_of(shelf, self.me);
        let limiter = self.limiters.get(usize::from(limiter))?.short;
        let scope = Scope {
            limiter,
            epoch,
            origin: None,
        };
        (rows > 0).then_some(Digest { scope, rows, hash })
    }

    /// A peer's digest over all origins arrived.
    pub(crate) fn on_whole_digest(&mut self, at: usize, whole: &WholeDigest) {
        self.stats.digests_in += 1;
        let Digest { scope, rows, hash } = whole.digest;
        let Some(limiter) = self.accept_scope(scope.limiter, scope.epoch, 0) else {
            return;
        };
        if !self.is_lasting(limiter, scope.epoch) {
            return;
        }
        let Ok(shelf) = self.cells.shelf_or_new(limiter, scope.epoch) else {
            return;
        };
        let held = self.cells.whole_of(shelf, self.me);
        let name = (limiter, scope.epoch);
        if held == (rows, hash) {
            self.stats.digests_matched += 1;
            self.spread.waits.remove(&name);
            return;
        }
        self.stats.digests_mismatched += 1;
        if let (false, true, Some(link)) = (whole.answer, held.0 > 0, self.links[at].as_mut()) {
            if link.spread.answers.len() < ANSWERS_MAX && !link.spread.answers.contains(&name) {
                link.spread.answers.push_back(name);
            }
        }
        if rows > 0 {
            self.want_whole(at, shelf, name, held, rows.max(held.0));
        }
    }

    /// Queues a repair of all origins unless it waits. spec: dis-8
    fn want_whole(&mut self, at: usize, shelf: u32, name: (u16, u64), held: (u32, u64), rows: u32) {
        let now = self.now.mono_ns;
        let queued = self.repairs.iter().any(|r| r.is_of(name.0, name.1, ALL));
        let refused = self.cells.any_refused(shelf);
        let wait = self.spread.waits.entry(name).or_default();
        let full = self.repairs.len() >= MAX_REPAIRS;
        if now < wait.backoff.next_ns || queued || full {
            self.stats.repairs_backed_off += 1;
            return;
        }
        let most = if refused {
            DOUBLINGS_REFUSED
        } else {
            DOUBLINGS
        };
        let fruitless = wait.held == held;
        wait.backoff.doublings = if fruitless {
            (wait.backoff.doublings + 1).min(most)
        } else {
            0
        };
        wait.held = held;
        let base = self.t.repair_backoff_ns / 4;
        wait.backoff.next_ns = now + (base << wait.backoff.doublings);
        self.repairs
            .push(Repair::new(at, name.0, name.1, ALL, rows));
    }

    /// This member's whole sums for a request.
    pub(crate) fn whole_ask(&self, name: (u16, u64), bits: u8, first: u32, n: usize) -> Vec<u64> {
        match self.cells.shelf_at(name.0, name.1) {
            Some(shelf) => self.cells.whole_sums(shelf, self.me, bits, first, n),
            None => vec![0; n],
        }
    }

    /// A peer asks for rows of all origins.
    pub(crate) fn on_whole_request(&mut self, at: usize, request: &DigestRequest<'_>) {
        self.stats.requests_in += 1;
        let DigestRequest {
            scope,
            parts_log2,
            first,
            sums,
        } = *request;
        let Some(limiter) = self.accept_scope(scope.limiter, scope.epoch, 0) else {
            return;
        };
        let kept = self.cells.shelf_at(limiter, scope.epoch).is_some();
        let Some(link) = self.links[at].as_mut() else {
            return;
        };
        if !kept || link.jobs.len() >= MAX_JOBS_PER_LINK {
            self.stats.requests_refused += 1;
            return;
        }
        link.jobs.push_back(Job {
            limiter,
            epoch: scope.epoch,
            origin: Some(ALL),
            parts_log2,
            first,
            sums: sums.collect(),
            differ: None,
            ids: Vec::new(),
        });
    }

    /// Turns the request at the head of a link's jobs into packets, a few frames' worth at a time.
    pub(crate) fn feed_whole_jobs(&mut self, link: &mut Link) {
        while link.jobs.front().is_some_and(Job::is_whole) && link.queued_packets() < ANSWER_QUEUE {
            let tokens = link.repair_tokens(self.now.mono_ns, self.t.repair_rows_per_second);
            let Some(mut job) = link.jobs.pop_front().filter(|_| tokens > 0) else {
                return;
            };
            let (packets, rows, done) = self.whole_packets(&mut job);
            link.spend_tokens(rows);
            self.stats.rows_repaired += rows;
            link.queue_packets(packets);
            if done {
                continue;
            }
            link.jobs.push_front(job);
            if tokens < rows + REPAIR_BATCH_ROWS {
                return;
            }
        }
    }

    /// Packets of the next cells of a job: their numbers, their rows, and whether it is done.
    fn whole_packets(&mut self, job: &mut Job) -> (std::ops::Range<u64>, u64, bool) {
        let mut news = Vec::new();
        let mut counts = Vec::new();
        while (news.len() as u64) < REPAIR_BATCH_ROWS {
            let Some((shelf, id)) = self.whole_next(job) else {
                break;
            };
            if self.cells.cell(id).emitted > 0 {
                news.push((shelf, id, NO_ORIGIN));
            }
            self.cells.counts_of(id, &mut counts);
            news.extend(counts.iter().map(|(origin, _)| (shelf, id, *origin)));
        }
        let done = (news.len() as u64) < REPAIR_BATCH_ROWS;
        let rows = news.len() as u64;
        (self.packets_of(&news), rows, done)
    }

    fn whole_next(&self, job: &mut Job) -> Option<(u32, u32)> {
        let shelf = self.cells.shelf_at(job.limiter, job.epoch)?;
        if job.differ.is_none() {
            let (bits, first, n) = (job.parts_log2, job.first, job.sums.len());
            let mine = self.cells.whole_sums(shelf, self.me, bits, first, n);
            let parts = (first..).zip(mine.into_iter().zip(&job.sums));
            let differ = parts.filter(|(_, (mine, theirs))| low_half(*mine) != **theirs);
            job.differ = Some(differ.map(|(part, _)| part).collect());
        }
        loop {
            if let Some(id) = job.ids.pop() {
                return Some((shelf, id));
            }
            let part = job.differ.as_mut()?.pop()?;
            job.ids = self.cells.whole_ids(shelf, job.parts_log2, part);
        }
    }

    /// Is what comes from a link on a shelf (also) the answer to a request?
    pub(crate) fn is_answer(&self, at: usize, limiter: u16, epoch: u64) -> bool {
        let asked = |r: &Repair| r.link == at && r.is_asked() && r.is_of(limiter, epoch, ALL);
        self.repairs.iter().any(asked)
    }

    /// Rows of all origins arrived: a repair is being answered.
    pub(crate) fn whole_progressed(&mut self, at: usize, limiter: u16, epoch: u64, raised: u64) {
        self.repair_progressed(at, limiter, epoch, ALL, raised);
    }

    /// Waits of epochs that are over are forgotten. spec: dis-13
    pub(crate) fn forget_waits(&mut self) {
        let cells = &self.cells;
        let alive = |name: &(u16, u64)| cells.shelf_at(name.0, name.1).is_some();
        self.spread.waits.retain(|name, _| alive(name));
    }
}
