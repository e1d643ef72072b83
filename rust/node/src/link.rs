//! One link: everything known of the member at one address.
//!
//! I own the link's state and its deadlines. Who decides what goes into a frame is `send`, what
//! comes out of one is `recv`. spec: link-1

use std::collections::VecDeque;
use std::net::SocketAddr;

use gabion_wire::{NotKept, Origin, ReplayWindow};

use crate::acks::{Range, Rx, Tx};
use crate::differences::Differences;
use crate::limits::{Tunables, MAX_RESEND_RANGES};
use crate::origins::OriginIdx;
use crate::passed::Passed;
use crate::spread::LinkSpread;

/// The member proven at an address.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) origin: Origin,
    pub(crate) session: u32,
    pub(crate) window: ReplayWindow,
    /// Its nonce when it was proven: another one means another process.
    pub(crate) nonce: Option<u64>,
    pub(crate) since_ns: u64,
}

/// A digest request of the peer, being answered.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) limiter: u16,
    pub(crate) epoch: u64,
    /// `None` = this member's own counts.
    pub(crate) origin: Option<Origin>,
    pub(crate) parts_log2: u8,
    pub(crate) first: u32,
    /// The peer's sums, from partition `first` on.
    pub(crate) sums: Vec<u32>,
    /// Partitions that differ and were not sent, once that was found out.
    pub(crate) differ: Option<Vec<u32>>,
    /// Cells of the partition being sent.
    pub(crate) ids: Vec<u32>,
}

/// Where a list of digests has got to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct List {
    pub(crate) after: Option<(u16, u64)>,
    /// On the shelf after `after`: origins already listed, the own one included.
    pub(crate) origins: usize,
    /// Also other origins than this member.
    pub(crate) foreign: bool,
    pub(crate) limits: usize,
}

#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) addr: SocketAddr,
    pub(crate) configured: bool,
    pub(crate) created_ns: u64,
    pub(crate) peer: Option<Peer>,
    pub(crate) up: bool,
    /// The peer acknowledged a frame of this process: it believes us.
    pub(crate) confirmed: bool,
    /// Nothing older than its coming up is missing on either side. spec: bnd-6
    pub(crate) caught_up: bool,
    /// This member said farewell here and says nothing more.
    pub(crate) left: bool,
    /// Another link leads to the same member; this one rests.
    pub(crate) alias_of: Option<usize>,
    pub(crate) my_nonce: u64,
    pub(crate) peer_nonce: Option<u64>,
    pub(crate) echoed: Option<u64>,
    pub(crate) hello_owed: bool,
    pub(crate) hello_next_ns: u64,
    pub(crate) hello_wait_ns: u64,
    pub(crate) replied_ns: u64,
    pub(crate) unproven_in: u64,
    pub(crate) unproven_out: u64,
    /// The next hello asks for digests of everything; it was asked once.
    pub(crate) ask_digests: bool,
    pub(crate) asked: bool,
    pub(crate) last_list_ns: u64,
    pub(crate) last_in_ns: u64,
    pub(crate) last_out_ns: u64,
    pub(crate) rx: Rx,
    pub(crate) tx: Tx,
    pub(crate) cursor: u64,
    /// Where the dirty log goes on when the same member comes back: its oldest place that was not
    /// acknowledged. `None`: by digests alone. spec: rep-12
    pub(crate) resume: Option<u64>,
    /// The head of the dirty log when the link came up.
    pub(crate) up_at: u64,
    /// Registers that changed up to this place were sent. spec: ord-10
    pub(crate) orders: u64,
    pub(crate) resend: VecDeque<Range>,
    /// What is lacked beside that. spec: bnd-4
    pub(crate) passed: Passed,
    pub(crate) list: Option<List>,
    pub(crate) jobs: VecDeque<Job>,
    tokens: u64,
    tokens_ns: u64,
    pub(crate) relay: VecDeque<(u32, OriginIdx)>,
    /// Origins we relay to this peer.
    pub(crate) relay_of: Vec<Origin>,
    /// What this peer does not reach: node ids or address hashes. spec: link-12
    pub(crate) unreached: Vec<u64>,
    pub(crate) unreached_ns: u64,
    /// Next liveness part: digests and what we do not reach.
    pub(crate) beat_next_ns: u64,
    pub(crate) rotate: Option<(u16, u64)>,
    /// The last liveness frame named somebody: an empty list must follow once.
    pub(crate) told_unreached: bool,
    /// "Not kept" answers owed.
    pub(crate) not_kept: VecDeque<NotKept>,
    /// How much longer silence is waited for: liveness frames of a side are rare. spec: dis-9
    pub(crate) slow: u64,
    pub(crate) spread: LinkSpread,
    /// Of the proven member.
    pub(crate) differences: Differences,
    /// Its place in strict rules, as it says.
    pub(crate) place: Option<u32>,
}

impl Link {
    pub(crate) fn new(
        addr: SocketAddr,
        configured: bool,
        seq: u64,
        now: u64,
        t: &Tunables,
    ) -> Link {
        Link {
            addr,
            configured,
            created_ns: now,
            peer: None,
            up: false,
            confirmed: false,
            caught_up: false,
            left: false,
            alias_of: None,
            my_nonce: 0,
            peer_nonce: None,
            echoed: None,
            hello_owed: false,
            hello_next_ns: now,
            hello_wait_ns: t.hello_min_ns,
            replied_ns: 0,
            unproven_in: 0,
            unproven_out: 0,
            ask_digests: false,
            asked: false,
            last_list_ns: 0,
            last_in_ns: now,
            last_out_ns: now,
            rx: Rx::default(),
            tx: Tx::new(seq),
            cursor: 0,
            resume: None,
            up_at: 0,
            orders: 0,
            resend: VecDeque::new(),
            passed: Passed::default(),
            list: None,
            jobs: VecDeque::new(),
            tokens: 0,
            tokens_ns: now,
            relay: VecDeque::new(),
            relay_of: Vec::new(),
            unreached: Vec::new(),
            unreached_ns: 0,
            beat_next_ns: now,
            rotate: None,
            told_unreached: false,
            not_kept: VecDeque::new(),
            slow: 1,
            spread: LinkSpread::default(),
            differences: Differences::default(),
            place: None,
        }
    }

    /// Is this the proven member of the link?
    pub(crate) fn is_peer(&self, node: u64, incarnation: u64, session: u32) -> bool {
        self.peer
            .as_ref()
            .is_some_and(|p| p.origin == Origin { node, incarnation } && p.session == session)
    }

    pub(crate) fn origin(&self) -> Option<Origin> {
        self.peer.as_ref().map(|p| p.origin)
    }

    /// Does the peer acknowledge what we send? Judged over two heartbeats and a half.
    pub(crate) fn hears_us(&self, now_ns: u64, t: &Tunables) -> bool {
        let since = self
            .tx
            .acked_at_ns
            .max(self.peer.as_ref().map_or(0, |p| p.since_ns));
        now_ns.saturating_sub(since) < t.idle_heartbeat_ns * self.slow * 5 / 2 + t.rto_max_ns
    }

    /// The peer asks for digests of everything, also of other origins.
    /// False: it was told just now, or is not up.
    pub(crate) fn list_wanted(&mut self, now_ns: u64, t: &Tunables) -> bool {
        let recently = self.last_list_ns > 0 && now_ns < self.last_list_ns + t.idle_heartbeat_ns;
        let wanted = self.up && !recently;
        if wanted {
            self.last_list_ns = now_ns.max(1);
            self.list = Some(List {
                foreign: true,
                ..List::default()
            });
        }
        wanted
    }

    /// Remembers a lost range; false when too many are remembered (then: repair by digest).
    pub(crate) fn lost(&mut self, range: Range) -> bool {
        if range.0 >= range.1 {
            return true;
        }
        if self.resend.len() >= MAX_RESEND_RANGES {
            return false;
        }
        self.resend.push_back(range);
        true
    }

    /// Timer hellos run while the member is not up or did not prove that it believes us.
    pub(crate) fn wants_hello(&self) -> bool {
        self.configured && self.alias_of.is_none() && (!self.up || !self.confirmed)
    }

    /// The oldest place of the dirty log that the peer may lack.
    pub(crate) fn oldest_unacked(&self) -> u64 {
        let waiting = self.resend.iter().map(|r| r.0);
        let oldest = self.tx.oldest_range().into_iter().chain(waiting).min();
        oldest.map_or(self.cursor, |at| at.min(self.cursor))
    }

    /// The peer did not acknowledge what is at that place of the dirty log.
    pub(crate) fn lacks(&self, place: u64) -> bool {
        let within = |range: &Range| (range.0..range.1).contains(&place);
        place >= self.cursor || self.resend.iter().any(within) || self.tx.holds(place)
    }

    /// The oldest place whose news the peer may lack; `None`: none. spec: bnd-4
    pub(crate) fn oldest_lacked(&self, head: u64) -> Option<u64> {
        let unacked = self.oldest_unacked();
        let passed = self.passed.oldest(unacked, |place| self.lacks(place));
        let waiting = (unacked < head).then_some(unacked);
        passed.into_iter().chain(waiting).min()
    }

    /// The link comes up: what was before is repaired by digest.
    pub(crate) fn forget_lost(&mut self) {
        self.resend.clear();
        self.passed.clear();
    }

    /// A list of digests waits and may leave: what was published before the link came up is
    /// acknowledged, so a list that overtakes rows on the way asks for nothing that is coming.
    pub(crate) fn list_due(&self) -> bool {
        self.list.is_some() && self.oldest_unacked() >= self.up_at
    }

    /// All log entries were sent, so a digest in the next frame is exact. spec: rep-6
    pub(crate) fn drained(&self, head: u64) -> bool {
        self.cursor >= head && self.resend.is_empty()
    }

    /// Rows that may be sent for repair now.
    pub(crate) fn repair_tokens(&mut self, now_ns: u64, per_second: u64) -> u64 {
        let per_second = per_second.max(1);
        let gained = u128::from(now_ns.saturating_sub(self.tokens_ns)) * u128::from(per_second);
        let whole = u64::try_from(gained / 1_000_000_000).unwrap_or(u64::MAX);
        if whole > 0 {
            self.tokens = (self.tokens.saturating_add(whole)).min(per_second / 20 + 256);
            self.tokens_ns = now_ns;
        }
        self.tokens
    }

    pub(crate) fn spend_tokens(&mut self, rows: u64) {
        self.tokens = self.tokens.saturating_sub(rows);
    }

    /// When a frame's worth of repair rows may be sent.
    pub(crate) fn tokens_at_ns(&self, per_second: u64, rows: u64) -> u64 {
        let lacking = rows.saturating_sub(self.tokens);
        self.tokens_ns + (lacking * 1_000_000_000).div_ceil(per_second.max(1))
    }
}

/// Repair rows are sent when at least this many are allowed: a frame's worth.
pub(crate) const REPAIR_BATCH_ROWS: u64 = 64;
