//! The log of denials: thinned per rule where it is decided, written somewhere else.

use std::sync::atomic::{AtomicU64, Ordering};

use arrayvec::ArrayString;
use crossbeam_queue::ArrayQueue;
use gabion_rule::limits::MAX_LOG_MESSAGE_BYTES;

use super::own_words::{as_json, Fields};
use super::text::{name, Shower, Text};
use super::Seen;
use crate::limits::DENIALS_QUEUED;
use crate::tally::Said;

/// Target of the lines, so that a log filter can name them.
pub(crate) const TARGET: &str = "gabion::denials";

const SECOND_NS: u64 = 1_000_000_000;

/// A rule's share of the log: so many lines in each second.
#[derive(Debug, Default)]
pub struct Gate {
    /// Second (upper 48 bits) and lines in it (lower 16).
    window: AtomicU64,
    suppressed: AtomicU64,
}

impl Gate {
    /// `None`: not now. `Some(n)`: yes, after `n` that were not. One attempt, no loop: of two
    /// threads at once, the loser's line is a suppressed one.
    fn pass(&self, now_s: u64, most: u16) -> Option<u64> {
        let old = self.window.load(Ordering::Relaxed);
        let begun = if old >> 16 == now_s { old } else { now_s << 16 };
        // Relaxed: the numbers carry no other memory.
        let passed = begun & 0xffff < u64::from(most)
            && self
                .window
                .compare_exchange(old, begun + 1, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if passed {
            return Some(self.suppressed.swap(0, Ordering::Relaxed));
        }
        self.suppressed.fetch_add(1, Ordering::Relaxed);
        None
    }
}

#[derive(Debug)]
struct Denial {
    rule: ArrayString<64>,
    domain: ArrayString<64>,
    text: Text,
    /// The rule's own message; empty: the general one.
    message: ArrayString<MAX_LOG_MESSAGE_BYTES>,
    fields: Fields,
    hits: u64,
    used: u64,
    limit: u32,
    reset_s: u64,
    enforced: bool,
    /// The limit had room, this member's share of it had not.
    on_share: bool,
    suppressed: u64,
}

#[derive(Debug)]
pub(super) struct Denials {
    /// Lines per rule and second; 0 = none.
    per_second: u16,
    queue: ArrayQueue<Denial>,
    logged: AtomicU64,
    thinned: AtomicU64,
}

impl Denials {
    pub(super) fn new(per_second: u16) -> Self {
        Self {
            per_second,
            queue: ArrayQueue::new(DENIALS_QUEUED),
            logged: AtomicU64::new(0),
            thinned: AtomicU64::new(0),
        }
    }

    /// Takes down a denial, or what a dry-run rule would have denied.
    pub(super) fn note(&self, seen: &Seen<'_>, shower: &Shower) {
        if self.per_second == 0 {
            return;
        }
        let Some(suppressed) = seen.gate.pass(seen.now_ns / SECOND_NS, self.per_second) else {
            self.thinned.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let denial = Denial {
            rule: name(seen.rule),
            domain: name(seen.domain),
            message: name(seen.log.message()),
            fields: seen.log.fields(shower),
            text: shower.entries(seen.entries.iter().copied()).0,
            hits: seen.hits,
            used: seen.reading.used,
            limit: seen.reading.limit,
            reset_s: gabion_admit::retry_after_seconds(seen.wait_ns.max(1)),
            enforced: seen.said == Said::Denied,
            on_share: seen.reading.is_share_used_up(),
            suppressed,
        };
        let counter = match self.queue.push(denial) {
            Ok(()) => &self.logged,
            Err(_full) => &self.thinned,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// (logged, thinned out)
    pub(super) fn counts(&self) -> (u64, u64) {
        (
            self.logged.load(Ordering::Relaxed),
            self.thinned.load(Ordering::Relaxed),
        )
    }

    /// Writes what is queued.
    pub(super) fn write(&self) {
        for _ in 0..DENIALS_QUEUED {
            let Some(denial) = self.queue.pop() else {
                return;
            };
            let message = match (denial.enforced, denial.message.as_str()) {
                (true, "") => "denied".to_owned(),
                (true, own) => own.to_owned(),
                (false, "") => "would be denied".to_owned(),
                (false, own) => format!("would be denied: {own}"),
            };
            tracing::info!(
                target: TARGET,
                shown = as_json(&denial.fields),
                rule = denial.rule.as_str(),
                domain = denial.domain.as_str(),
                key = denial.text.as_str(),
                hits = denial.hits,
                used = denial.used,
                limit = denial.limit,
                reset_s = denial.reset_s,
                on_share = denial.on_share.then_some(true),
                suppressed = denial.suppressed,
                "{message}",
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_pass_each_second_and_the_rest_is_told() {
        let gate = Gate::default();
        let passed = (0..100).filter(|_| gate.pass(7, 3).is_some()).count();
        assert_eq!(passed, 3);
        assert_eq!(gate.pass(8, 3), Some(97));
        assert_eq!(gate.pass(8, 3), Some(0));
        assert_eq!(gate.pass(5, 3), Some(0), "a clock set back starts afresh");
        assert_eq!(gate.pass(9, 0), None);
    }

    #[test]
    fn threads_together_get_no_more_than_their_share() {
        let gate = Gate::default();
        let passed: usize = std::thread::scope(|scope| {
            let count = || (0..10_000).filter(|_| gate.pass(1, 5).is_some()).count();
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(count)).collect();
            threads.into_iter().map(|t| t.join().unwrap()).sum()
        });
        assert_eq!(passed, 5);
        assert_eq!(gate.pass(2, 5), Some(40_000 - 5));
    }
}
