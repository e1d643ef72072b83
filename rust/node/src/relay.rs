//! Pairs that cannot hear each other: who says so, and who relays.
//!
//! I promise: a member announces whom it does not reach; for each such pair exactly the lowest
//! member that reaches both relays, with explicit origins; relays end when the announcement does.
//! spec: link-12

use crate::api::Note;
use crate::limits::{MAX_UNREACHED, SECOND};
use crate::link::{Link, List};
use crate::node::Node;
use crate::peers::address_hash;

/// A peer that was never reached is announced after this, nanoseconds.
const UNREACHED_AFTER_NS: u64 = 2 * SECOND;
/// A peer that acknowledges nothing in this many time-outs in a row is announced, too: what is sent
/// to it does not arrive, or its acks do not.
const UNREACHED_TIME_OUTS: u32 = 4;
/// An announcement that is not repeated is over after this, nanoseconds.
const ANNOUNCED_FOR_NS: u64 = 4 * SECOND;

/// Does an announced name mean this link's member?
fn means(link: &Link, name: u64) -> bool {
    name == address_hash(link.addr) || link.origin().is_some_and(|o| o.node == name)
}

impl Node {
    /// Whom this member does not reach both ways.
    pub(crate) fn unreached(&self) -> Vec<u64> {
        let now = self.now.mono_ns;
        if self.spread.active {
            return Vec::new(); // spec: dis-10
        }
        self.each_link()
            .filter(|l| l.configured && l.alias_of.is_none())
            .filter(|l| now >= l.created_ns + UNREACHED_AFTER_NS)
            .filter(|l| {
                let timed_out = l.tx.time_outs() >= UNREACHED_TIME_OUTS;
                !l.up || timed_out || !l.hears_us(now, &self.t)
            })
            .map(|l| l.origin().map_or_else(|| address_hash(l.addr), |o| o.node))
            .take(MAX_UNREACHED)
            .collect()
    }

    /// Looks at once whom this member does not reach when a peer stops to acknowledge.
    pub(crate) fn look_soon(&mut self, at: usize) {
        let time_outs = self.links[at].as_ref().map_or(0, |l| l.tx.time_outs());
        if time_outs == UNREACHED_TIME_OUTS {
            self.upkeep_next_ns = self.now.mono_ns;
        }
    }

    /// Whom this member does not reach, now; what is news is announced at once.
    pub(crate) fn renew_unreached(&mut self) {
        let unreached = self.unreached();
        let news = unreached.iter().any(|n| !self.unreached_now.contains(n));
        self.unreached_now = unreached;
        if news {
            let now = self.now.mono_ns;
            self.stale = true;
            for link in self.links.iter_mut().flatten().filter(|l| l.up) {
                link.beat_next_ns = now;
            }
        }
    }

    /// Works out anew whom this member relays to whom.
    pub(crate) fn choose_relays(&mut self) {
        let now = self.now.mono_ns;
        let fresh =
            |l: &Link| l.up && !l.unreached.is_empty() && now < l.unreached_ns + ANNOUNCED_FOR_NS;
        let telling = self.each_link().any(fresh);
        let relaying = self.each_link().any(|l| !l.relay_of.is_empty());
        if !telling && !relaying {
            return;
        }
        for to in 0..self.links.len() {
            let Some(target) = self.links[to].as_ref() else {
                continue;
            };
            if !target.up || target.alias_of.is_some() {
                continue;
            }
            // `l` says that it does not reach the other.
            let says = |l: &Link, other: &Link| {
                fresh(l) && l.unreached.iter().any(|name| means(other, *name))
            };
            let reaches_target = |l: &&Link| !std::ptr::eq(*l, &**target) && !says(l, target);
            // A member that reaches both, and is asked before this one; the others stay quiet.
            let lower = |origin: &Link| {
                self.each_link()
                    .filter(|l| l.up && l.hears_us(now, &self.t))
                    .filter(|l| l.origin().is_some_and(|o| o.node < self.me.node))
                    .filter(reaches_target)
                    .any(|l| !std::ptr::eq(l, origin) && !says(l, origin) && !says(origin, l))
            };
            let wanted: Vec<_> = self
                .each_link()
                .filter(|l| says(l, target) && !lower(l))
                .filter_map(Link::origin)
                .collect();
            let Some(link) = self.links[to].as_mut() else {
                continue;
            };
            if link.relay_of != wanted {
                self.stale = true;
                let more = wanted.iter().any(|o| !link.relay_of.contains(o));
                link.relay_of = wanted;
                if more {
                    link.list = Some(List::default());
                }
            }
        }
        let relaying = self.each_link().any(|l| !l.relay_of.is_empty());
        self.relaying = relaying;
    }

    /// Tells the operator of one-way links.
    pub(crate) fn find_one_way(&mut self) {
        let now = self.now.mono_ns;
        let notes: Vec<Note> = self
            .each_link()
            .filter(|l| l.up && l.configured && !l.hears_us(now, &self.t))
            .map(|l| Note::OneWay { addr: l.addr })
            .collect();
        notes.into_iter().for_each(|n| self.note(n));
    }
}
