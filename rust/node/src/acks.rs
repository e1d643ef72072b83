//! Sequence numbers, acks, round trips and loss on one link.
//!
//! I promise: at most [`MAX_IN_FLIGHT`] frames that want an ack are out; a frame is found lost by a
//! gap in later acks or by a time-out that backs off; an ack is owed only to frames that want one,
//! so acks never answer acks. spec: link-7, link-8, link-9

use std::collections::VecDeque;

use gabion_wire::Ack;

use crate::limits::{Tunables, ACK_EVERY_FRAMES, LOSS_GAP_FRAMES, MAX_IN_FLIGHT, MS};

/// A range of the dirty log, `from..to`.
pub(crate) type Range = (u64, u64);

/// A frame that wants an ack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) seq: u64,
    pub(crate) at_ns: u64,
    pub(crate) held: Held,
}

/// What a frame held, to be sent again when it is lost.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Held {
    /// Rows of the dirty log.
    pub(crate) range: Option<Range>,
    /// A part of a list of digests, or rows that were relayed or asked for: lost ones are announced
    /// by digest again.
    pub(crate) relist: bool,
    /// Packets of forwarding, by number. spec: dis-5
    pub(crate) packets: Option<Range>,
    /// Registers changed behind this place. spec: ord-10
    pub(crate) orders: Option<u64>,
}

const RING: usize = 8;

/// The sending half.
#[derive(Debug)]
pub(crate) struct Tx {
    pub(crate) next_seq: u64,
    /// Numbers below were sent to nobody, or to another member: an ack of them is not meant for us.
    first_seq: u64,
    in_flight: VecDeque<Sent>,
    /// When the latest sequence numbers left, wanting an ack or not: round trips come from them.
    ring: [(u64, u64); RING],
    /// Largest sequence number acknowledged.
    pub(crate) acked: u64,
    /// When that last rose.
    pub(crate) acked_at_ns: u64,
    pub(crate) srtt_ns: u64,
    rttvar_ns: u64,
    backoff: u32,
}

/// What an ack told.
#[derive(Debug, Default)]
pub(crate) struct Acked {
    /// A round trip, when the ack gave one.
    pub(crate) rtt_ns: Option<u64>,
    /// It is about frames sent to this member by this process.
    pub(crate) ours: bool,
    /// Frames now known to be lost.
    pub(crate) lost: Vec<Sent>,
}

impl Tx {
    pub(crate) fn new(next_seq: u64) -> Tx {
        Tx {
            next_seq: next_seq.max(1),
            first_seq: next_seq.max(1),
            in_flight: VecDeque::new(),
            ring: [(0, 0); RING],
            acked: 0,
            acked_at_ns: 0,
            srtt_ns: 0,
            rttvar_ns: 0,
            backoff: 0,
        }
    }

    pub(crate) fn may_send(&self) -> bool {
        self.in_flight.len() < MAX_IN_FLIGHT
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Part of a list of digests, or relayed rows, are in flight.
    pub(crate) fn relists(&self) -> bool {
        self.in_flight.iter().any(|s| s.held.relist)
    }

    pub(crate) fn rttvar_ns(&self) -> u64 {
        self.rttvar_ns
    }

    /// A frame that arrived is acknowledged within this, nanoseconds.
    pub(crate) fn ack_within_ns(&self, t: &Tunables) -> u64 {
        self.srtt_ns + 4 * self.rttvar_ns + t.ack_delay_ns + MS
    }

    /// Time-outs in a row since an ack told something new.
    pub(crate) fn time_outs(&self) -> u32 {
        self.backoff
    }

    /// The oldest place of the dirty log in flight.
    pub(crate) fn oldest_range(&self) -> Option<u64> {
        let ranges = self.in_flight.iter().filter_map(|s| s.held.range);
        ranges.map(|r| r.0).min()
    }

    /// Is that place of the dirty log in flight?
    pub(crate) fn holds(&self, place: u64) -> bool {
        let mut ranges = self.in_flight.iter().filter_map(|s| s.held.range);
        ranges.any(|(from, to)| (from..to).contains(&place))
    }

    /// Records a frame just written under `next_seq`.
    pub(crate) fn sent(&mut self, now_ns: u64, wants_ack: bool, held: Held) {
        let seq = self.next_seq;
        self.next_seq += 1;
        self.ring[ring_slot(seq)] = (seq, now_ns);
        if wants_ack {
            self.in_flight.push_back(Sent {
                seq,
                at_ns: now_ns,
                held,
            });
        }
    }

    pub(crate) fn on_ack(&mut self, ack: &Ack, now_ns: u64) -> Acked {
        let mut out = Acked::default();
        if ack.largest >= self.next_seq || ack.largest < self.first_seq {
            return out;
        }
        out.ours = true;
        if ack.largest > self.acked {
            self.acked = ack.largest;
            self.acked_at_ns = now_ns;
            self.backoff = 0;
            if let Some(at) = self.sent_at(ack.largest) {
                let held = u64::from(ack.delay_us) * 1_000;
                let rtt = now_ns.saturating_sub(at).saturating_sub(held).max(1);
                self.measure(rtt);
                out.rtt_ns = Some(rtt);
            }
        }
        self.in_flight.retain(|s| {
            let there = s.seq == ack.largest || covered(ack, s.seq);
            let lost = !there && s.seq + LOSS_GAP_FRAMES <= ack.largest;
            if lost {
                out.lost.push(*s);
            }
            !there && !lost
        });
        out
    }

    /// When a frame left, if that is still known.
    fn sent_at(&self, seq: u64) -> Option<u64> {
        let (latest, at) = self.ring[ring_slot(seq)];
        if latest == seq {
            return Some(at);
        }
        self.in_flight
            .binary_search_by_key(&seq, |s| s.seq)
            .ok()
            .map(|i| self.in_flight[i].at_ns)
    }

    fn measure(&mut self, rtt: u64) {
        if self.srtt_ns == 0 {
            self.srtt_ns = rtt;
            self.rttvar_ns = rtt / 2;
        } else {
            self.rttvar_ns = (3 * self.rttvar_ns + self.srtt_ns.abs_diff(rtt)) / 4;
            self.srtt_ns = (7 * self.srtt_ns + rtt) / 8;
        }
    }

    pub(crate) fn rto_ns(&self, t: &Tunables) -> u64 {
        let base = match self.srtt_ns {
            0 => 4 * t.rto_min_ns,
            _ => self.ack_within_ns(t).max(t.rto_min_ns),
        };
        base.saturating_mul(1 << self.backoff.min(16))
            .min(t.rto_max_ns)
    }

    /// Time-outs since the last ack.
    pub(crate) fn unanswered(&self) -> u32 {
        self.backoff
    }

    /// When the oldest frame in flight counts as lost.
    pub(crate) fn deadline_ns(&self, t: &Tunables) -> Option<u64> {
        self.in_flight.front().map(|s| s.at_ns + self.rto_ns(t))
    }

    /// Frames lost by time-out.
    pub(crate) fn on_time(&mut self, t: &Tunables, now_ns: u64) -> Vec<Sent> {
        let rto = self.rto_ns(t);
        let mut lost = Vec::new();
        while self
            .in_flight
            .front()
            .is_some_and(|s| s.at_ns + rto <= now_ns)
        {
            lost.extend(self.in_flight.pop_front());
        }
        if !lost.is_empty() {
            self.backoff = (self.backoff + 1).min(16);
        }
        lost
    }

    /// Forgets what is in flight: the peer is another, or is down and will be repaired by digest.
    pub(crate) fn forget(&mut self) {
        self.in_flight.clear();
        self.backoff = 0;
    }

    /// The peer is another member: nothing is acknowledged by it yet.
    pub(crate) fn restart(&mut self) {
        self.forget();
        self.first_seq = self.next_seq;
        self.acked = 0;
        self.acked_at_ns = 0;
    }
}

fn ring_slot(seq: u64) -> usize {
    usize::try_from(seq % RING as u64).unwrap_or(0)
}

fn covered(ack: &Ack, seq: u64) -> bool {
    match ack.largest.checked_sub(seq + 1) {
        Some(i) if i < 64 => ack.before >> i & 1 == 1,
        _ => false,
    }
}

/// The receiving half: what is owed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rx {
    /// Frames that want an ack and have none yet.
    pending: u32,
    due_ns: Option<u64>,
    /// Anything arrived since the last ack.
    pub(crate) fresh: bool,
    largest_at_ns: u64,
    largest: u64,
    /// When a number was last passed over, or came late.
    gap_at_ns: Option<u64>,
}

impl Rx {
    pub(crate) fn received(&mut self, seq: u64, wants_ack: bool, now_ns: u64, t: &Tunables) {
        let gap = self.largest > 0 && seq != self.largest + 1;
        if gap {
            self.gap_at_ns = Some(now_ns);
        }
        if seq > self.largest {
            self.largest = seq;
            self.largest_at_ns = now_ns;
        }
        self.fresh = true;
        if wants_ack {
            self.pending += 1;
            // A gap is reported sooner, so that a lost frame is repeated sooner.
            let wait = if gap {
                t.ack_delay_ns / 8
            } else {
                t.ack_delay_ns
            };
            let due = now_ns + wait;
            self.due_ns = Some(self.due_ns.map_or(due, |d| d.min(due)));
        }
    }

    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        if self.pending >= ACK_EVERY_FRAMES {
            return Some(0);
        }
        self.due_ns
    }

    /// Was a number passed over in the last `within_ns`?
    pub(crate) fn gap_within(&self, now_ns: u64, within_ns: u64) -> bool {
        self.gap_at_ns
            .is_some_and(|at| now_ns.saturating_sub(at) <= within_ns)
    }

    /// Does any frame want an ack?
    pub(crate) fn is_owed(&self) -> bool {
        self.pending > 0
    }

    pub(crate) fn is_due(&self, now_ns: u64) -> bool {
        self.deadline_ns().is_some_and(|d| d <= now_ns)
    }

    /// Time since the largest arrived, microseconds.
    pub(crate) fn delay_us(&self, now_ns: u64) -> u32 {
        let us = now_ns.saturating_sub(self.largest_at_ns) / 1_000;
        u32::try_from(us).unwrap_or(u32::MAX)
    }

    /// An ack was written.
    pub(crate) fn acked(&mut self) {
        self.pending = 0;
        self.due_ns = None;
        self.fresh = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ack(largest: u64, missing: &[u64]) -> Ack {
        let mut before = u64::MAX;
        missing
            .iter()
            .for_each(|m| before &= !(1 << (largest - 1 - m)));
        Ack {
            largest,
            before,
            delay_us: 0,
        }
    }

    #[test]
    fn a_gap_of_three_is_a_loss_and_a_reordering_is_not() {
        let mut tx = Tx::new(1);
        for i in 0..6u64 {
            let range = Some((i, i + 1));
            let held = Held {
                range,
                ..Held::default()
            };
            tx.sent(i, true, held);
        }
        assert!(tx.on_ack(&ack(4, &[2, 3]), 10).lost.is_empty());
        assert_eq!(tx.in_flight(), 4);
        let lost = tx.on_ack(&ack(5, &[2]), 11).lost;
        assert_eq!(
            lost.iter()
                .map(|s| (s.seq, s.held.range))
                .collect::<Vec<_>>(),
            [(2, Some((1, 2)))]
        );
        assert_eq!(tx.in_flight(), 1);
    }

    #[test]
    fn an_ack_of_what_was_never_sent_changes_nothing() {
        let mut tx = Tx::new(1);
        tx.sent(0, true, Held::default());
        assert!(tx.on_ack(&ack(9, &[]), 5).rtt_ns.is_none());
        assert_eq!((tx.in_flight(), tx.acked), (1, 0));
    }

    #[test]
    fn time_outs_back_off_and_an_ack_ends_the_back_off() {
        let t = Tunables::default();
        let mut tx = Tx::new(1);
        let mut now = 0;
        let mut waits = Vec::new();
        for _ in 0..5 {
            tx.sent(now, true, Held::default());
            let due = tx.deadline_ns(&t).unwrap();
            assert!(tx.on_time(&t, due - 1).is_empty());
            assert_eq!(tx.on_time(&t, due).len(), 1);
            waits.push(due - now);
            now = due;
        }
        assert!(
            waits
                .windows(2)
                .all(|w| w[1] == (2 * w[0]).min(t.rto_max_ns)),
            "{waits:?}"
        );
        tx.sent(now, true, Held::default());
        assert_eq!(tx.on_ack(&ack(6, &[]), now + 40_000).rtt_ns, Some(40_000));
        tx.sent(now, true, Held::default());
        assert_eq!(tx.deadline_ns(&t).unwrap() - now, t.rto_min_ns);
    }

    #[test]
    fn acks_are_owed_to_frames_that_want_one_only() {
        let t = Tunables::default();
        let mut rx = Rx::default();
        rx.received(1, false, 5, &t);
        assert_eq!(rx.deadline_ns(), None);
        rx.received(2, true, 5, &t);
        assert_eq!(rx.deadline_ns(), Some(5 + t.ack_delay_ns));
        (3..34).for_each(|seq| rx.received(seq, true, 5, &t));
        assert!(rx.is_due(5));
        rx.acked();
        assert_eq!(rx.deadline_ns(), None);
        rx.received(36, true, 5, &t);
        assert_eq!(rx.deadline_ns(), Some(5 + t.ack_delay_ns / 8));
    }
}
