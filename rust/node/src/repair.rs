//! Repair by digest: asking for rows that differ, and answering.
//!
//! I promise: few repairs at a time, rows of other origins from one peer at a time, a row budget
//! per link, and an end to every wait. spec: rep-7, rep-8, rep-9

use gabion_wire::{DigestRequest, FrameWriter, NotKept, Origin, Scope, WriteError};

use crate::entropy::ALL;
use crate::limits::{MAX_JOBS_PER_LINK, MS, SECOND};
use crate::link::{Job, Link};
use crate::node::Node;

/// Partition sums in one request (4 bytes each).
pub(crate) const SUMS_PER_REQUEST: u32 = 256;
/// Rows aimed at per partition.
const ROWS_PER_PARTITION: u32 = 64;
/// One request is given this long for its first and its last row, nanoseconds.
const FIRST_ROW_NS: u64 = SECOND;
const LAST_ROW_NS: u64 = 2 * SECOND;
/// An unanswered request is repeated this many times, after this pause, doubling, nanoseconds.
const UNANSWERED_MAX: u32 = 5;
const ASK_AGAIN_NS: u64 = 50 * MS;
/// Peers a member that started asks for digests of all origins, one after the other.
const PEERS_ASKED: u32 = 3;

/// A digest that did not match, to be repaired from one peer.
#[derive(Debug)]
pub(crate) struct Repair {
    pub(crate) link: usize,
    limiter: u16,
    epoch: u64,
    origin: Origin,
    parts_log2: u8,
    /// Next partition to ask for.
    next: u32,
    active: bool,
    /// Times it was asked for from the start, without an answer; and when it may be again.
    unanswered: u32,
    rests_until_ns: u64,
    asked_ns: u64,
    /// No row came since this; the next request may leave when it is over.
    quiet_ns: u64,
    answered: bool,
    /// Counts it raised.
    pub(crate) raised: u64,
    /// The peer announced fewer rows than we hold: it has nothing more to give.
    pub(crate) less: bool,
}

impl Repair {
    pub(crate) fn new(link: usize, limiter: u16, epoch: u64, origin: Origin, rows: u32) -> Repair {
        let parts = rows.div_ceil(ROWS_PER_PARTITION).max(1);
        let bits = u32::BITS - (parts - 1).leading_zeros();
        let most = gabion_wire::limits::MAX_PARTITIONS_LOG2;
        Repair {
            link,
            limiter,
            epoch,
            origin,
            parts_log2: u8::try_from(bits).unwrap_or(most).min(most),
            next: 0,
            active: false,
            unanswered: 0,
            rests_until_ns: 0,
            asked_ns: 0,
            quiet_ns: 0,
            answered: false,
            raised: 0,
            less: false,
        }
    }

    pub(crate) fn is_of(&self, limiter: u16, epoch: u64, origin: Origin) -> bool {
        (self.limiter, self.epoch, self.origin) == (limiter, epoch, origin)
    }

    /// Was anything asked for?
    pub(crate) fn is_asked(&self) -> bool {
        self.active && self.asked_ns > 0
    }

    fn parts(&self) -> u32 {
        1 << self.parts_log2
    }

    /// Nothing came: request or answer may have been lost. It is asked for again, a few times.
    /// spec: rep-9
    fn ask_again(&mut self, now_ns: u64) -> bool {
        if self.answered || self.less || self.unanswered >= UNANSWERED_MAX {
            return false;
        }
        self.rests_until_ns = now_ns + (ASK_AGAIN_NS << self.unanswered);
        self.unanswered += 1;
        self.start_over();
        true
    }

    /// As if nothing had been asked for.
    pub(crate) fn start_over(&mut self) {
        (self.active, self.answered) = (false, false);
        self.next = 0;
        self.asked_ns = 0;
    }

    /// When it is its turn again.
    fn due_ns(&self) -> u64 {
        if self.asked_ns == 0 {
            return 0;
        }
        self.quiet_ns.min(self.asked_ns + LAST_ROW_NS)
    }
}

/// A request ready to be written.
pub(crate) struct Ask {
    /// Of all origins.
    pub(crate) whole: bool,
    pub(crate) scope: Scope,
    pub(crate) parts_log2: u8,
    pub(crate) first: u32,
    pub(crate) sums: Vec<u32>,
}

impl Ask {
    pub(crate) fn write(&self, w: &mut FrameWriter<'_>) -> Result<(), WriteError> {
        match self.whole {
            true => w.whole_request(&self.scope, self.parts_log2, self.first, &self.sums),
            false => w.digest_request(&self.scope, self.parts_log2, self.first, &self.sums),
        }
    }
}

impl Node {
    /// Starts, ends and gives up repairs.
    pub(crate) fn repairs_on_time(&mut self) {
        let now = self.now.mono_ns;
        let over = |r: &Repair| r.active && r.next >= r.parts() && now >= r.due_ns();
        while let Some(i) = self.repairs.iter().position(over) {
            self.stats.repairs_timed_out += u64::from(!self.repairs[i].answered);
            if self.repairs[i].ask_again(now) {
                continue;
            }
            let ended = self.repairs.swap_remove(i);
            self.repair_ended(&ended);
        }
        self.repairs_due();
        let mut active = self.repairs.iter().filter(|r| r.active).count();
        let is_foreign = |r: &Repair, node: &Node| {
            node.links.get(r.link).and_then(|l| l.as_ref()?.origin()) != Some(r.origin)
        };
        let mut source = self
            .repairs
            .iter()
            .find(|r| r.active && is_foreign(r, self))
            .map(|r| r.link);
        for i in 0..self.repairs.len() {
            if active >= self.t.active_repairs {
                return;
            }
            let foreign = is_foreign(&self.repairs[i], self);
            let link = self.repairs[i].link;
            if self.repairs[i].active
                || now < self.repairs[i].rests_until_ns
                || (foreign && source.is_some_and(|s| s != link))
            {
                continue;
            }
            if foreign {
                source = Some(link);
            }
            self.repairs[i].active = true;
            self.stale = true;
            self.stats.repairs_started += 1;
            active += 1;
        }
    }

    /// What helped, and what went unanswered (it may have been lost), is tried again soon; only
    /// what was answered and still differs backs off further and further. spec: rep-9
    fn repair_ended(&mut self, r: &Repair) {
        if r.origin == ALL {
            return; // spec: dis-8
        }
        let (now, base) = (self.now.mono_ns, self.t.repair_backoff_ns);
        let wait = if r.raised > 0 { base / 4 } else { 2 * base };
        if r.raised == 0 && (r.answered || r.less) {
            return;
        }
        let Some(shelf) = self.cells.shelf_at(r.limiter, r.epoch) else {
            return;
        };
        if let Some(backoff) = self.backoff(shelf, r.origin) {
            backoff.doublings = backoff.doublings.min(1);
            backoff.next_ns = backoff.next_ns.min(now + wait);
        }
    }

    pub(crate) fn repairs_deadline_ns(&self) -> Option<u64> {
        let free = self.repairs.iter().filter(|r| r.active).count() < self.t.active_repairs;
        let now = self.now.mono_ns;
        // A request that is due already waits for its link, whose own deadline tells when.
        let active = self
            .repairs
            .iter()
            .filter(|r| r.active && (r.next >= r.parts() || r.due_ns() > now))
            .map(Repair::due_ns)
            .min();
        let waiting = self.repairs.iter().filter(|r| free && !r.active);
        let waiting = waiting.filter(|r| self.may_start(r));
        active
            .into_iter()
            .chain(waiting.map(|r| r.rests_until_ns))
            .min()
    }

    /// Links whose next request is due now know it.
    fn repairs_due(&mut self) {
        let now = self.now.mono_ns;
        for i in 0..self.repairs.len() {
            let r = &self.repairs[i];
            if r.active && r.next < r.parts() && now >= r.due_ns() {
                self.touch(r.link);
            }
        }
    }

    /// May it start, as far as "from one peer at a time" goes?
    fn may_start(&self, r: &Repair) -> bool {
        let of_peer = |r: &Repair| {
            self.links.get(r.link).and_then(|l| l.as_ref()?.origin()) == Some(r.origin)
        };
        of_peer(r)
            || !self
                .repairs
                .iter()
                .any(|a| a.active && !of_peer(a) && a.link != r.link)
    }

    /// Has a link a request to send now?
    pub(crate) fn has_ask(&self, at: usize) -> bool {
        let now = self.now.mono_ns;
        self.repairs
            .iter()
            .any(|r| r.active && r.link == at && r.next < r.parts() && now >= r.due_ns())
    }

    /// The next request for a link, with this member's own sums.
    pub(crate) fn next_ask(&mut self, at: usize, link: &Link) -> Option<Ask> {
        let now = self.now.mono_ns;
        let i = self
            .repairs
            .iter()
            .position(|r| r.active && r.link == at && r.next < r.parts() && now >= r.due_ns())?;
        let (peer, srtt_ns) = (link.origin(), link.tx.srtt_ns);
        let r = &mut self.repairs[i];
        let n = SUMS_PER_REQUEST.min(r.parts() - r.next);
        let first = r.next;
        r.next += n;
        r.asked_ns = now.max(1);
        r.quiet_ns = now + FIRST_ROW_NS.min((8 * srtt_ns).max(200 * MS));
        let (limiter, epoch, origin, bits) = (r.limiter, r.epoch, r.origin, r.parts_log2);
        let own = origin == self.me;
        let idx = self.cells.origins.find(origin);
        let whole = origin == ALL;
        let sums = match self.cells.shelf_at(limiter, epoch) {
            _ if whole => self.whole_ask((limiter, epoch), bits, first, n as usize),
            Some(shelf) if own || idx.is_some() => {
                let which = if own { None } else { idx };
                self.cells
                    .partition_sums(shelf, which, bits, first, n as usize)
            }
            _ => vec![0; n as usize],
        };
        let short = self.limiters.get(usize::from(limiter))?.short;
        let named = (!whole && (peer != Some(origin) || own)).then_some(origin);
        self.stats.requests_out += 1;
        Some(Ask {
            whole,
            scope: Scope {
                limiter: short,
                epoch,
                origin: named,
            },
            parts_log2: bits,
            first,
            sums: sums.into_iter().map(low_bits).collect(),
        })
    }

    /// Rows of a scope arrived: a repair of it is being answered.
    pub(crate) fn repair_progressed(
        &mut self,
        at: usize,
        limiter: u16,
        epoch: u64,
        origin: Origin,
        raised: u64,
    ) {
        let now = self.now.mono_ns;
        let srtt = self.links[at].as_ref().map_or(0, |l| l.tx.srtt_ns);
        for r in self.repairs.iter_mut().filter(|r| r.active && r.link == at) {
            if r.is_of(limiter, epoch, origin) {
                r.answered = true;
                r.raised += raised;
                r.quiet_ns = now + (4 * srtt).max(20 * MS);
            }
        }
    }

    /// A peer asks for rows that differ.
    pub(crate) fn on_request(&mut self, at: usize, request: &DigestRequest<'_>) {
        self.stats.requests_in += 1;
        let DigestRequest {
            scope,
            parts_log2,
            first,
            sums,
        } = *request;
        let limiter = self.accept_scope(scope.limiter, scope.epoch, 0);
        let own = scope.origin.is_none_or(|o| o == self.me);
        let origin = if own { None } else { scope.origin };
        let kept = limiter
            .and_then(|l| self.cells.shelf_at(l, scope.epoch))
            .is_some_and(|shelf| {
                let idx = origin.and_then(|o| self.cells.origins.find(o));
                (own || idx.is_some()) && self.digest_of(shelf, idx).is_some()
            });
        let Some(link) = self.links[at].as_mut() else {
            return;
        };
        if !kept {
            if link.not_kept.len() < MAX_JOBS_PER_LINK {
                link.not_kept.push_back(NotKept {
                    scope,
                    backoff_ms: 60_000,
                });
            }
            return;
        }
        if link.jobs.len() >= MAX_JOBS_PER_LINK {
            self.stats.requests_refused += 1;
            return;
        }
        link.jobs.push_back(Job {
            limiter: limiter.unwrap_or(0),
            epoch: scope.epoch,
            origin,
            parts_log2,
            first,
            sums: sums.collect(),
            differ: None,
            ids: Vec::new(),
        });
    }

    /// The next cell of a job; `None` when the job is done. The flag says whose count is meant.
    pub(crate) fn job_next(&self, job: &mut Job) -> Option<(u32, u32, Option<u16>)> {
        let shelf = self.cells.shelf_at(job.limiter, job.epoch)?;
        let origin = match job.origin {
            None => None,
            Some(name) => Some(self.cells.origins.find(name)?),
        };
        if job.differ.is_none() {
            let n = job.sums.len();
            let mine = self
                .cells
                .partition_sums(shelf, origin, job.parts_log2, job.first, n);
            let differ = (job.first..).zip(mine.into_iter().zip(&job.sums));
            let mut parts: Vec<u32> = differ
                .filter(|(_, (m, t))| low_bits(*m) != **t)
                .map(|(p, _)| p)
                .collect();
            parts.reverse();
            job.differ = Some(parts);
        }
        loop {
            if let Some(id) = job.ids.pop() {
                return Some((shelf, id, origin));
            }
            let part = job.differ.as_mut()?.pop()?;
            job.ids = self
                .cells
                .partition_ids(shelf, origin, job.parts_log2, part);
        }
    }

    /// The peer has nothing of what we asked for: do not ask again soon. spec: rep-9
    pub(crate) fn on_not_kept(&mut self, at: usize, not_kept: &NotKept) {
        self.stats.not_kept_in += 1;
        self.stale = true;
        let Some(limiter) = self.by_short.get(&not_kept.scope.limiter).copied() else {
            return;
        };
        let me = self.me;
        let peer = self.links[at].as_ref().and_then(|l| l.origin());
        let epoch = not_kept.scope.epoch;
        let named = not_kept.scope.origin;
        self.repairs.retain(|r| {
            let origin = named.or(peer).unwrap_or(me);
            !(r.link == at && r.is_of(limiter, epoch, origin))
        });
    }

    /// The clock was stepped: what was refused as too old or too new may count now.
    pub(crate) fn ask_all(&mut self) {
        self.stale = true;
        for link in self.links.iter_mut().flatten().filter(|l| l.up) {
            link.ask_digests = true;
            link.hello_owed = true;
        }
    }

    /// A member that started, or heard nobody for a while, asks a few peers, one after the other,
    /// for the digests of everything they hold. spec: rep-8
    pub(crate) fn ask_someone(&mut self) {
        let now = self.now.mono_ns;
        if self.asked_peers >= PEERS_ASKED || (self.asked_peers > 0 && now < self.asked_ns + SECOND)
        {
            return;
        }
        let next = self
            .links
            .iter_mut()
            .flatten()
            .filter(|l| l.up && !l.asked)
            .min_by_key(|l| l.origin().map(|o| o.node));
        if let Some(link) = next {
            link.asked = true;
            self.stale = true;
            link.ask_digests = true;
            link.hello_owed = true;
            self.asked_peers += 1;
            self.asked_ns = now;
        }
    }
}

/// The low 32 bits of a sum, as requests carry them.
fn low_bits(sum: u64) -> u32 {
    crate::cells::low_half(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repair_splits_into_about_64_rows() {
        let o = Origin {
            node: 1,
            incarnation: 1,
        };
        for (rows, bits) in [(0, 0), (1, 0), (64, 0), (65, 1), (129, 2), (10_000_000, 18)] {
            assert_eq!(
                Repair::new(0, 0, 0, o, rows).parts_log2,
                bits,
                "{rows} rows"
            );
        }
        assert_eq!(Repair::new(0, 0, 0, o, u32::MAX).parts_log2, 20);
    }
}
