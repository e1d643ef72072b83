//! The module's part of a zone: a header and statistics before the table.
//!
//! I own the words that outlive workers and configurations: incarnation, node id, clock offset,
//! lease, session, secret, statistics, orders, and the board on which the state of gossip is
//! posted. I promise that memory of another release is refused and left alone, and that every word
//! is one atomic, so that a worker killed at any step blocks nobody. I never hold a pointer:
//! whoever maps the zone hands me words.

use std::sync::Arc;

use gabion_rule::Orders;
use gabion_table::{Mem, Table, TableStats};

use crate::board::Board;
use crate::lease::{release, step, Lease, Step};
use crate::limits::{BOARD_BYTES_MAX, BOARD_BYTES_MIN, STAT_SLOTS};

const MAGIC: u64 = u64::from_le_bytes(*b"gabionzn");
/// Raise it when the meaning of any word changes.
const VERSION: u64 = 4;
/// Words before the statistics.
pub const HEADER_WORDS: usize = 64;
const AT_MAGIC: usize = 0;
const AT_VERSION: usize = 1;
const AT_INCARNATION: usize = 2;
const AT_NODE: usize = 3;
const AT_OFFSET: usize = 4;
const AT_LEASE: usize = 5;
const AT_SESSION: usize = 6;
const AT_SECRET: usize = 7; // and 8
const AT_LEADER_PID: usize = 9;
const AT_TAKEOVERS: usize = 10;
const AT_TABLE_WORDS: usize = 11;
const AT_BOARD: usize = 12;
const AT_RETIRED: usize = 13;
const AT_UNTRUSTED: usize = 14;

/// Flags that one rule may name: its own, and that of its charge.
pub const FLAGS_OF_RULE: usize = 2;
/// Words of one rule's orders: for each flag what is in force, and the flag that it was said of.
/// The first holds the era, too.
const ORDER_WORDS: usize = 2 * FLAGS_OF_RULE;
/// Words of one rule's statistics in one slot: two cache lines, what is usual in the first.
const STAT_WORDS: usize = 16;

/// What happened to a rule in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stat {
    /// Counted and admitted.
    Passed,
    /// Denied the request.
    Rejected,
    /// Would have denied it.
    RejectedDryRun,
    /// Left out by its condition.
    Exempted,
    /// Left out, since a value was empty.
    EmptyKey,
    /// Left out, since a value was too long.
    KeyTooLong,
    /// Admitted uncounted: no room, or no clock.
    FailOpen,
    /// Left out: its flag is off, or on where the rule wants it off.
    FlagOff,
    /// Left out, since its condition could not be evaluated.
    PredicateFailed,
    /// Left out, since another rule of the request replaces its limiter.
    Replaced,
    /// Left out: a rule before it was the request's last.
    AfterLast,
    /// Left out: the request had as many rules as one may have.
    Skipped,
    /// Counted once the response was known.
    Charged,
}

/// All of them with their names, in the order of their words.
pub const STATS: [(Stat, &str); 13] = [
    (Stat::Passed, "passed"),
    (Stat::Rejected, "rejected"),
    (Stat::RejectedDryRun, "rejected_dry_run"),
    (Stat::Exempted, "exempted"),
    (Stat::EmptyKey, "empty_key"),
    (Stat::KeyTooLong, "key_too_long"),
    (Stat::FailOpen, "fail_open"),
    (Stat::FlagOff, "flag_off"),
    (Stat::PredicateFailed, "predicate_failed"),
    (Stat::Replaced, "replaced"),
    (Stat::AfterLast, "after_last"),
    (Stat::Skipped, "skipped"),
    (Stat::Charged, "charged"),
];

/// What a zone keeps beside its counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Names the counts; changes only when rows are lost.
    pub incarnation: u64,
    /// Node id, when the configuration gives none.
    pub node: u64,
    /// Cluster time less monotonic time, ns.
    pub offset_ns: i64,
    /// Secret of the keys when nobody else needs it.
    pub secret: [u8; 16],
    /// Of the last driver.
    pub session: u32,
}

/// Why a zone's memory was not taken. It was not touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ZoneError {
    /// Somebody else's memory.
    #[error("the zone's memory is not this module's; it is untouched; restart nginx")]
    NotAZone,
    /// Made by another release.
    #[error("the zone has layout {found}, this release has {ours}; untouched; restart nginx")]
    OtherVersion {
        /// What it says.
        found: u64,
        /// What this release writes.
        ours: u64,
    },
}

fn words_before_board(rules: usize) -> usize {
    HEADER_WORDS + STAT_SLOTS * rules * STAT_WORDS + (rules * ORDER_WORDS).next_multiple_of(8)
}

/// Words before the table of a zone of `bytes` bytes with `rules` rules: whole cache lines.
pub fn words_before_table(rules: usize, bytes: u64) -> usize {
    let board_bytes = (bytes / 8).clamp(BOARD_BYTES_MIN, BOARD_BYTES_MAX);
    let board = usize::try_from(board_bytes / 64).unwrap_or(0) * 8;
    words_before_board(rules) + board
}

/// The header and statistics of a zone, and its table.
#[derive(Debug)]
pub struct Zone<M: Mem> {
    head: M,
    rules: usize,
    /// The counters.
    pub table: Arc<Table<M>>,
}

impl<M: Mem> Zone<M> {
    /// Makes a zone of zeroed memory. `head` is the words before the table, `table` is formatted.
    pub fn format(head: M, table: Table<M>, rules: usize, kept: &Kept) -> Self {
        let table = Arc::new(table);
        for word in 0..HEADER_WORDS {
            head.swap(word, 0);
        }
        for rule in 0..rules {
            let at = orders_at(rules, rule);
            for word in at..at + ORDER_WORDS {
                head.swap(word, 0);
            }
        }
        let zone = Zone { head, rules, table };
        zone.store(AT_TABLE_WORDS, zone.table.mem().len() as u64);
        zone.store(AT_VERSION, VERSION);
        zone.store(AT_INCARNATION, kept.incarnation);
        zone.store(AT_NODE, kept.node);
        zone.set_offset(kept.offset_ns);
        let secret = u128::from_be_bytes(kept.secret).to_be_bytes();
        let (a, b) = secret.split_at(8);
        zone.store(AT_SECRET, be(a));
        zone.store(AT_SECRET + 1, be(b));
        zone.store(AT_SESSION, u64::from(kept.session));
        zone.store(AT_MAGIC, MAGIC); // last, so that a half-made zone is none
        zone
    }

    /// Looks whether `head` begins a zone of this release.
    ///
    /// # Errors
    /// [`ZoneError`]; the memory was not touched.
    pub fn check(head: &M) -> Result<(), ZoneError> {
        if head.load(AT_MAGIC) != MAGIC {
            return Err(ZoneError::NotAZone);
        }
        match head.load(AT_VERSION) {
            VERSION => Ok(()),
            found => Err(ZoneError::OtherVersion {
                found,
                ours: VERSION,
            }),
        }
    }

    /// Words of the table of a zone that exists, after [`Zone::check`].
    pub fn table_words(head: &M) -> usize {
        usize::try_from(head.load(AT_TABLE_WORDS)).unwrap_or(usize::MAX)
    }

    /// A zone that exists, after [`Zone::check`].
    pub fn attach(head: M, table: Table<M>, rules: usize) -> Self {
        let table = Arc::new(table);
        Zone { head, rules, table }
    }

    fn store(&self, at: usize, value: u64) {
        self.head.swap(at, value);
    }

    /// What lives as long as the memory.
    pub fn kept(&self) -> Kept {
        let (a, b) = (self.head.load(AT_SECRET), self.head.load(AT_SECRET + 1));
        Kept {
            incarnation: self.head.load(AT_INCARNATION),
            node: self.head.load(AT_NODE),
            offset_ns: self.offset_ns(),
            secret: (u128::from(a) << 64 | u128::from(b)).to_be_bytes(),
            session: u32::try_from(self.head.load(AT_SESSION)).unwrap_or(u32::MAX),
        }
    }

    /// Cluster time less monotonic time, ns.
    pub fn offset_ns(&self) -> i64 {
        i64::from_ne_bytes(self.head.load(AT_OFFSET).to_ne_bytes())
    }

    /// Written by the driver.
    pub fn set_offset(&self, offset_ns: i64) {
        self.store(AT_OFFSET, u64::from_ne_bytes(offset_ns.to_ne_bytes()));
    }

    /// Takes, renews or leaves the lease; returns whether it is `me` who holds it, and whether it
    /// was taken just now.
    pub fn look_at_lease(&self, me: u32, pid: u32, now_tick: u32) -> (bool, bool) {
        let word = self.head.load(AT_LEASE);
        match step(word, me, now_tick) {
            Step::Wait => (false, false),
            Step::Renew(next) => (self.head.cas(AT_LEASE, word, next).is_ok(), false),
            Step::Take(next) => {
                let taken = self.head.cas(AT_LEASE, word, next).is_ok();
                if taken {
                    self.store(AT_LEADER_PID, u64::from(pid));
                    self.head.fetch_add(AT_TAKEOVERS, 1);
                }
                (taken, taken)
            }
        }
    }

    /// Gives the lease up, if `me` holds it.
    pub fn give_lease_up(&self, me: u32) {
        let word = self.head.load(AT_LEASE);
        if let Some(next) = release(word, me) {
            // Lost: it was taken meanwhile, which is as good.
            let _ = self.head.cas(AT_LEASE, word, next);
        }
    }

    /// Who holds the lease: (process id, 0 if nobody; times it was taken).
    pub fn leader(&self) -> (u64, u64) {
        let held = Lease::from_word(self.head.load(AT_LEASE)).holder != 0;
        let pid = if held {
            self.head.load(AT_LEADER_PID)
        } else {
            0
        };
        (pid, self.head.load(AT_TAKEOVERS))
    }

    /// Raises the session of the last driver to `session`.
    pub fn raise_session(&self, session: u32) {
        let mut seen = self.head.load(AT_SESSION);
        while seen < u64::from(session) {
            match self.head.cas(AT_SESSION, seen, u64::from(session)) {
                Ok(_) => return,
                Err(found) => seen = found,
            }
        }
    }

    /// Marks that another configuration is in force, which has other memory in its place.
    pub fn retire(&self) {
        self.store(AT_RETIRED, 1);
    }

    /// Whether what is counted here is not seen by new workers any more.
    #[inline]
    pub fn is_retired(&self) -> bool {
        self.head.load(AT_RETIRED) != 0
    }

    /// Where the state of gossip is posted.
    pub fn board(&self) -> Board {
        Board {
            pointer: AT_BOARD,
            start: words_before_board(self.rules),
            end: self.head.len(),
        }
    }

    /// The header, the statistics and the board.
    pub fn head(&self) -> &M {
        &self.head
    }

    /// The era of rule `rule`: one load.
    #[inline]
    pub fn era(&self, rule: usize) -> u32 {
        self.orders(rule, 0, None).era()
    }

    /// The orders in slot `slot` of rule `rule`, whose flag is called `flag` now: one load, two
    /// with a flag.
    #[inline]
    pub fn orders(&self, rule: usize, slot: usize, flag: Option<u64>) -> Orders {
        if rule >= self.rules || slot >= FLAGS_OF_RULE {
            return Orders::default();
        }
        let at = orders_at(self.rules, rule) + 2 * slot;
        let orders = Orders::from_word(self.head.load(at));
        match flag {
            // Said of the flag that the rule had in an earlier configuration.
            Some(flag) if self.head.load(at + 1) != flag => orders.with_share(None),
            _ => orders,
        }
    }

    /// Changes them. Called by the one driver, and while a zone is made; a former driver that
    /// still runs may come between, so eras only rise.
    pub fn change_orders(
        &self,
        rule: usize,
        slot: usize,
        flag: Option<u64>,
        change: &dyn Fn(Orders) -> Orders,
    ) {
        if rule >= self.rules || slot >= FLAGS_OF_RULE {
            return;
        }
        let at = orders_at(self.rules, rule) + 2 * slot;
        loop {
            let before = self.head.load(at);
            let after = change(self.orders(rule, slot, flag)).word();
            if self.head.cas(at, before, after).is_ok() {
                break;
            }
        }
        // A decision between the two may take the old flag's setting for the default once.
        self.store(at + 1, flag.unwrap_or(0));
    }

    /// Counts a request whose forwarded addresses came from a private peer that is not trusted.
    pub fn note_untrusted_peer(&self) {
        self.head.fetch_add(AT_UNTRUSTED, 1);
    }

    /// How many there were.
    pub fn untrusted_peers(&self) -> u64 {
        self.head.load(AT_UNTRUSTED)
    }

    /// Counts what happened to rule `rule` in a worker's slot.
    #[inline]
    pub fn note(&self, slot: usize, rule: usize, stat: Stat) {
        let slot = slot % STAT_SLOTS;
        if rule < self.rules {
            let line = HEADER_WORDS + (slot * self.rules + rule) * STAT_WORDS;
            self.head.fetch_add(line + stat as usize, 1);
        }
    }

    /// How often it happened, over all workers.
    pub fn count(&self, rule: usize, stat: Stat) -> u64 {
        let at = |slot| HEADER_WORDS + (slot * self.rules + rule) * STAT_WORDS + stat as usize;
        match rule < self.rules {
            true => (0..STAT_SLOTS).map(|slot| self.head.load(at(slot))).sum(),
            false => 0,
        }
    }

    /// The table's own counters.
    pub fn table_stats(&self) -> TableStats {
        self.table.stats()
    }
}

/// First word of a rule's orders.
fn orders_at(rules: usize, rule: usize) -> usize {
    HEADER_WORDS + STAT_SLOTS * rules * STAT_WORDS + rule * ORDER_WORDS
}

fn be(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |word, b| word << 8 | u64::from(*b))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use gabion_admit::Plan;
    use gabion_rule::{Algorithm, CounterIdentity, Sliding};
    use gabion_table::{RawMem, SubSpec};

    const KEPT: Kept = Kept {
        incarnation: 11,
        node: 12,
        offset_ns: -5,
        secret: *b"0123456789abcdef",
        session: 3,
    };

    fn zone() -> (Arc<RawMem>, Zone<Arc<RawMem>>) {
        let words = words_before_table(2, 0);
        let head = Arc::new(RawMem::private(words * 8).unwrap());
        (Arc::clone(&head), Zone::format(head, table(), 2, &KEPT))
    }

    /// A zone for so many rules.
    pub(crate) fn small(rules: usize) -> Zone<Arc<RawMem>> {
        let words = words_before_table(rules, 0);
        let head = Arc::new(RawMem::private(words * 8).unwrap());
        Zone::format(head, table(), rules, &KEPT)
    }

    fn table() -> Table<Arc<RawMem>> {
        let sub = SubSpec {
            identity: CounterIdentity([1; 16]),
            plan: Plan::new(&Algorithm::Window {
                limit: 5,
                window_ns: 1_000_000_000,
                bucket_ns: 1_000_000_000,
                sliding: Sliding::Live,
            }),
            cardinality: None,
        };
        let memory = Arc::new(RawMem::private(1 << 16).unwrap());
        Table::format(memory, &[sub]).unwrap()
    }

    #[test]
    fn what_is_kept_is_read_again() {
        let (head, zone) = zone();
        assert_eq!(Zone::check(&head), Ok(()));
        assert_eq!(zone.kept(), KEPT);
        zone.raise_session(4);
        zone.raise_session(2);
        assert_eq!(zone.kept().session, 4);
        zone.set_offset(i64::MIN);
        assert_eq!(zone.offset_ns(), i64::MIN);
    }

    #[test]
    fn memory_of_somebody_else_or_another_release_is_refused() {
        let blank = RawMem::private(words_before_table(2, 0) * 8).unwrap();
        assert_eq!(Zone::check(&blank), Err(ZoneError::NotAZone));
        let (head, _zone) = zone();
        head.swap(AT_VERSION, 9);
        let error = Zone::check(&head).unwrap_err();
        assert_eq!(error, ZoneError::OtherVersion { found: 9, ours: 4 });
    }

    #[test]
    fn one_worker_holds_the_lease() {
        let (_, zone) = zone();
        assert_eq!(zone.leader(), (0, 0));
        assert_eq!(zone.look_at_lease(7, 100, 50), (true, true));
        assert_eq!(zone.look_at_lease(8, 101, 51), (false, false));
        assert_eq!(zone.look_at_lease(7, 100, 52), (true, false));
        assert_eq!(zone.leader(), (100, 1));
        zone.give_lease_up(8);
        assert_eq!(zone.leader(), (100, 1));
        zone.give_lease_up(7);
        assert_eq!(zone.leader(), (0, 1));
        assert_eq!(zone.look_at_lease(8, 101, 53), (true, true));
    }

    #[test]
    fn statistics_add_up_over_slots_and_stay_in_their_rule() {
        let (_, zone) = zone();
        for slot in 0..20 {
            zone.note(slot, 1, Stat::Rejected);
        }
        zone.note(0, 9, Stat::Rejected);
        assert_eq!(zone.count(1, Stat::Rejected), 20);
        assert_eq!(zone.count(0, Stat::Rejected), 0);
        assert_eq!(zone.count(1, Stat::FailOpen), 0);
        assert_eq!(zone.count(9, Stat::FailOpen), 0);
        // What is posted touches no statistics, and the other way round.
        assert!(zone
            .board()
            .post(zone.head(), &"x".repeat(zone.board().room_bytes())));
        assert_eq!(zone.count(1, Stat::Rejected), 20);
        let words = STATS.map(|(stat, _)| stat as usize);
        assert!(words.iter().copied().eq(0..STATS.len()) && words.len() <= STAT_WORDS);
    }
}
