//! Who is at which address: the peer set, introductions, proofs, ups and downs.
//!
//! I promise: a session is believed only after it echoed a nonce; an unproven source is sent at
//! most [`UNPROVEN_REPLY_FACTOR`] times what it sent; one member behind two addresses is one link.
//! spec: link-2 to link-6, link-13

use std::net::{IpAddr, SocketAddr};

use gabion_wire::{Header, Hello, Origin, ReplayWindow, WireError};

use crate::api::{Effect, Note};
use crate::limits::{MAX_PEERS, MS, SECOND, UNPROVEN_REPLY_FACTOR};
use crate::link::{Link, List, Peer};
use crate::node::Node;
use crate::repair::Repair;

/// An unproven link to an address outside the peer set is forgotten after this, nanoseconds.
pub(crate) const PROVISIONAL_LIFE_NS: u64 = 5 * SECOND;
/// Bytes of the largest hello frame, signed.
const HELLO_FRAME_BYTES: u64 = 80;
/// Least time between two answers to one address, nanoseconds.
pub(crate) const REPLY_GAP_NS: u64 = 2 * MS;
/// How long both of two members with one id must be heard before it is reported, nanoseconds.
const DUPLICATE_AFTER_NS: u64 = 2 * SECOND;

/// A name for an address, for members whose node id is not known. FNV-1a; never 0. spec: link-12
pub(crate) fn address_hash(addr: SocketAddr) -> u64 {
    let mut h = 0xcbf2_9ce4_8422_2325u64;
    let mut eat = |bytes: &[u8]| {
        for b in bytes {
            h = (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3);
        }
    };
    match addr.ip() {
        IpAddr::V4(ip) => eat(&ip.octets()),
        IpAddr::V6(ip) => eat(&ip.octets()),
    }
    eat(&addr.port().to_le_bytes());
    h.max(1)
}

/// An IPv4 address in IPv6 clothes is the IPv4 address.
fn plain(addr: SocketAddr) -> SocketAddr {
    SocketAddr::new(addr.ip().to_canonical(), addr.port())
}

impl Node {
    /// Input::Peers.
    pub(crate) fn on_peers(&mut self, set: &[SocketAddr]) {
        self.stale = true;
        let mut wanted: Vec<SocketAddr> = set.iter().map(|a| plain(*a)).collect();
        wanted.sort_unstable();
        wanted.dedup();
        if wanted.len() > MAX_PEERS {
            self.stats.refused_peers += (wanted.len() - MAX_PEERS) as u64;
            wanted.truncate(MAX_PEERS);
            self.note(Note::TooManyPeers);
        }
        for at in 0..self.links.len() {
            let gone = self.links[at]
                .as_ref()
                .is_some_and(|l| l.configured && wanted.binary_search(&l.addr).is_err());
            if gone {
                self.remove_link(at);
            }
        }
        for addr in wanted {
            match self.by_addr.get(&addr) {
                Some(at) => {
                    if let Some(link) = self.links[*at].as_mut() {
                        link.configured = true;
                    }
                }
                None => {
                    self.add_link(addr, true);
                }
            }
        }
        self.count_peers();
        self.choose_dissemination();
    }

    pub(crate) fn each_link(&self) -> impl Iterator<Item = &Link> {
        self.links.iter().flatten().map(|l| &**l)
    }

    pub(crate) fn add_link(&mut self, addr: SocketAddr, configured: bool) -> usize {
        // Above every number ever used, so that a member that remembers us takes it for new.
        let seq = self.seq_max + 1;
        let link = Link::new(addr, configured, seq, self.now.mono_ns, &self.t);
        let at = match self.links.iter().position(Option::is_none) {
            Some(at) => at,
            None => {
                self.links.push(None);
                self.links.len() - 1
            }
        };
        self.links[at] = Some(Box::new(link));
        self.stale = true;
        self.by_addr.insert(addr, at);
        at
    }

    pub(crate) fn remove_link(&mut self, at: usize) {
        self.link_down(at);
        self.stale = true;
        let Some(link) = self.links[at].take() else {
            return;
        };
        self.by_addr.remove(&link.addr);
        if let Some(p) = &link.peer {
            self.by_identity.remove(&(p.origin, p.session));
        }
        self.repairs.retain(|r| r.link != at);
        self.free_aliases(at);
    }

    /// Links that rested because `at` led to the same member wake up.
    fn free_aliases(&mut self, at: usize) {
        let now = self.now.mono_ns;
        let seq = self.seq_max + 1;
        for link in self
            .links
            .iter_mut()
            .flatten()
            .filter(|l| l.alias_of == Some(at))
        {
            link.alias_of = None;
            link.tx.next_seq = seq;
            link.hello_next_ns = now;
        }
    }

    /// The link a frame belongs to, by address or by proven identity.
    pub(crate) fn find_link(&self, from: SocketAddr, h: &Header) -> Option<usize> {
        let name = Origin {
            node: h.node,
            incarnation: h.incarnation,
        };
        if let Some(at) = self.by_identity.get(&(name, h.session)) {
            return Some(*at);
        }
        let at = *self.by_addr.get(&plain(from))?;
        let alias = self.links[at].as_ref().and_then(|l| l.alias_of);
        Some(alias.unwrap_or(at))
    }

    /// A link for a source that is no peer, when that is allowed. spec: link-5
    pub(crate) fn provisional(&mut self, from: SocketAddr) -> Option<usize> {
        let others = self.each_link().filter(|l| !l.configured).count();
        if !self.t.accept_unknown_sources || others >= self.t.max_provisional_links {
            self.stats.refused_provisional += 1;
            self.stats.drop_frame(WireError::UnknownSource);
            return None;
        }
        Some(self.add_link(plain(from), false))
    }

    /// A hello arrived on a link from the member in the header.
    pub(crate) fn on_hello(&mut self, at: usize, h: &Header, hello: &Hello, bytes: usize) {
        self.stats.hellos_in += 1;
        self.stale = true;
        let now = self.now.mono_ns;
        // An echo of another link's nonce proves that link: the member answers from another
        // address.
        let proves = |l: &Link| l.my_nonce != 0 && hello.echo == Some(l.my_nonce);
        let proven = self
            .links
            .iter()
            .position(|l| l.as_deref().is_some_and(proves));
        let name = Origin {
            node: h.node,
            incarnation: h.incarnation,
        };
        if let Some(link) = self.links[at].as_mut() {
            link.unproven_in += bytes as u64;
            let known = link.peer_nonce == Some(hello.nonce);
            link.peer_nonce = Some(hello.nonce);
            let first = !known || link.echoed != Some(hello.nonce);
            let again = !link.confirmed && now >= link.replied_ns + self.t.hello_min_ns / 2;
            if proven.is_none() || first || again {
                link.hello_owed = true;
            }
        }
        if let Some(proved) = proven {
            self.prove(proved, name, h.session);
        }
        if let (true, Some(link)) = (hello.wants_digests, self.links[at].as_mut()) {
            if link.list_wanted(now, &self.t) && self.spread.active {
                Self::list_wholes(link);
            }
        }
    }

    /// The member at a link is proven.
    fn prove(&mut self, at: usize, name: Origin, session: u32) {
        let now = self.now.mono_ns;
        let same = self.links[at]
            .as_ref()
            .is_some_and(|l| l.is_peer(name.node, name.incarnation, session));
        if same {
            self.restarted_in_place(at);
            self.heard(at);
            return;
        }
        if let Some(other) = self.by_identity.get(&(name, session)).copied() {
            if !self.prefer(at, other) {
                return;
            }
        }
        self.link_down(at);
        if let Some(old) = self.links[at].as_ref().and_then(|l| l.peer.as_ref()) {
            self.by_identity.remove(&(old.origin, old.session));
        }
        self.repairs.retain(|r| r.link != at);
        self.doubt_others(at, name.node);
        let above = self.seq_max + 1;
        let Some(link) = self.links[at].as_mut() else {
            return;
        };
        link.tx.next_seq = link.tx.next_seq.max(above);
        if link.peer.is_some() {
            // The proof of the member before, if recorded, must not prove it again.
            link.my_nonce = 0;
        }
        link.peer = Some(Peer {
            nonce: link.peer_nonce,
            origin: name,
            session,
            window: ReplayWindow::new(name.incarnation, session),
            since_ns: now,
        });
        link.confirmed = false;
        link.resume = None;
        link.tx.restart();
        link.rx = crate::acks::Rx::default();
        link.jobs.clear();
        link.not_kept.clear();
        link.relay.clear();
        link.relay_of.clear();
        link.unreached.clear();
        link.differences = Default::default();
        link.place = None;
        self.by_identity.insert((name, session), at);
        self.heard(at);
    }

    /// Another process of a node is proven: the one before may be gone, and its address may lead to
    /// the new one, which would take the numbers of both links for one row. So those links are
    /// down until who is there has answered; a living twin does at once. spec: link-16
    fn doubt_others(&mut self, at: usize, node: u64) {
        for other in (0..self.links.len()).filter(|other| *other != at) {
            let link = self.links[other].as_ref();
            if link.is_some_and(|l| l.up && l.origin().is_some_and(|o| o.node == node)) {
                self.link_down(other);
            }
        }
    }

    /// A process with the same incarnation and session but another nonce is a new one all the same
    /// (its session was not raised): its numbers start again.
    fn restarted_in_place(&mut self, at: usize) {
        let Some(link) = self.links[at].as_mut() else {
            return;
        };
        let nonce = link.peer_nonce;
        let Some(peer) = link.peer.as_mut().filter(|p| p.nonce != nonce) else {
            return;
        };
        peer.nonce = nonce;
        link.differences = Default::default();
        link.place = None;
        peer.window = ReplayWindow::new(peer.origin.incarnation, peer.session);
        link.rx = crate::acks::Rx::default();
        link.tx.restart();
        link.confirmed = false;
        // It may as well be the same process, which took another nonce when it proved this one. It
        // does not list its digests again then, so what they asked for stays to be asked for.
        let all = std::mem::take(&mut self.repairs);
        let (mut kept, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|r| r.link == at);
        self.repairs = others;
        self.link_down(at);
        kept.iter_mut().for_each(Repair::start_over);
        self.repairs.append(&mut kept);
        if let Some(link) = self.links[at].as_mut() {
            link.resume = None; // it knows nothing of what was sent
        }
    }

    /// Two links lead to one member. True when `new` is to take over from `old`.
    fn prefer(&mut self, new: usize, old: usize) -> bool {
        let configured = |at: usize| self.links[at].as_ref().is_some_and(|l| l.configured);
        let up = self.links[old].as_ref().is_some_and(|l| l.up);
        if (configured(new) && !configured(old)) || !up {
            if configured(old) {
                if let Some(p) = self.links[old].as_mut().and_then(|l| l.peer.take()) {
                    self.by_identity.remove(&(p.origin, p.session));
                }
            } else {
                self.remove_link(old);
            }
            return true;
        }
        if configured(new) {
            if let Some(link) = self.links[new].as_mut() {
                link.alias_of = Some(old);
                link.hello_owed = false;
            }
        } else {
            self.remove_link(new);
        }
        false
    }

    /// A valid frame of the proven member: it is alive.
    pub(crate) fn heard(&mut self, at: usize) {
        let now = self.now.mono_ns;
        let (head, fresh) = (self.log.head(), self.log.start());
        let Some(link) = self.links[at].as_mut() else {
            return;
        };
        link.last_in_ns = now;
        if link.up {
            return;
        }
        self.stale = true;
        link.up = true;
        // spec: rep-12
        link.cursor = link.resume.take().unwrap_or(fresh);
        link.up_at = head;
        link.orders = 0;
        link.forget_lost();
        link.list = Some(List::default());
        link.caught_up = false;
        link.hello_wait_ns = self.t.hello_min_ns;
        link.hello_next_ns = now + self.t.hello_min_ns;
        let (addr, Some(name)) = (link.addr, link.origin()) else {
            return;
        };
        link.beat_next_ns = now + self.t.idle_heartbeat_ns * (1 + at as u64 % link.slow);
        if let Some(peer) = link.peer.as_mut() {
            peer.since_ns = now;
        }
        self.count_peers();
        self.effect(Effect::PeerUp {
            addr,
            node: name.node,
            incarnation: name.incarnation,
        });
        self.forget_backoff(name);
        self.ask_someone();
    }

    /// The member at a link is silent, replaced or removed.
    pub(crate) fn link_down(&mut self, at: usize) {
        let Some(link) = self.links[at].as_mut() else {
            return;
        };
        if !link.up {
            return;
        }
        self.stale = true;
        link.up = false;
        link.confirmed = false;
        link.resume = Some(link.oldest_unacked());
        link.hello_next_ns = self.now.mono_ns;
        link.hello_wait_ns = self.t.hello_min_ns;
        link.tx.forget();
        link.forget_lost();
        link.list = None;
        link.jobs.clear();
        link.forget_packets();
        link.relay.clear();
        let (addr, node) = (link.addr, link.origin().map_or(0, |o| o.node));
        self.repairs.retain(|r| r.link != at);
        self.clock.forget(node);
        self.free_aliases(at);
        self.count_peers();
        if self.each_link().all(|l| !l.up) {
            // Who died meanwhile is not told of when links come up again.
            self.asked_peers = 0;
            self.links
                .iter_mut()
                .flatten()
                .for_each(|l| l.asked = false);
        }
        self.effect(Effect::PeerDown { addr, node });
    }

    /// Rounds and acks follow the number of peers: where rounds are far apart, an ack waits for the
    /// next one, so that acks cost no frames of their own. spec: link-7, rep-3
    pub(crate) fn pace_acks(&mut self) {
        let next_round_ns = (self.floor_ns().saturating_mul(5) / 4).min(self.t.rto_max_ns / 4);
        self.t.ack_delay_ns = self.ack_delay_ns.max(next_round_ns);
    }

    /// May this link's hello leave? Answers to unproven sources are bounded by bytes and by rate.
    /// spec: link-4
    pub(crate) fn may_reply(&mut self, link: &mut Link) -> bool {
        let (per_second, now) = (self.t.unproven_replies_per_second, self.now.mono_ns);
        let gained = now
            .saturating_sub(self.reply_tokens.1)
            .saturating_mul(per_second)
            / SECOND;
        if gained > 0 {
            self.reply_tokens = ((self.reply_tokens.0 + gained).min(per_second), now);
        }
        if link.replied_ns > 0 && now < link.replied_ns + REPLY_GAP_NS {
            return false;
        }
        if link.up {
            return true;
        }
        let within =
            link.unproven_out + HELLO_FRAME_BYTES <= UNPROVEN_REPLY_FACTOR * link.unproven_in;
        let free = link.configured;
        if !within || (!free && self.reply_tokens.0 == 0) {
            link.hello_owed = false;
            self.stats.refused_replies += 1;
            return false;
        }
        if !free {
            self.reply_tokens.0 -= 1;
        }
        true
    }

    /// Timers of links: silence, hellos, lost frames, forgotten introductions.
    pub(crate) fn links_on_time(&mut self) {
        let now = self.now.mono_ns;
        self.refresh();
        let mut from = 0;
        while let Some(at) = self.due.next(from, self.links.len(), now) {
            from = at + 1;
            let Some(link) = self.links[at].as_mut() else {
                continue;
            };
            let silent = now.saturating_sub(link.last_in_ns);
            if !link.configured && !link.up && silent >= PROVISIONAL_LIFE_NS {
                self.remove_link(at);
                continue;
            }
            if link.up && silent >= self.t.peer_timeout_ns * link.slow {
                self.link_down(at);
                continue;
            }
            let lost = link.tx.on_time(&self.t, now);
            if !lost.is_empty() {
                self.stats.rto_expired += 1;
                self.on_lost(at, &lost);
                self.look_soon(at);
                self.touch(at);
            }
        }
    }

    /// Whether somebody is there, and not just seen in passing.
    pub(crate) fn is_settled(&self, link: &Link) -> bool {
        let now = self.now.mono_ns;
        let since = link.peer.as_ref().map_or(now, |p| p.since_ns);
        link.up
            && now.saturating_sub(link.last_in_ns) < DUPLICATE_AFTER_NS
            && now.saturating_sub(since) >= DUPLICATE_AFTER_NS
    }

    /// Two members that are both alive and share a node id. spec: link-13, case 38
    pub(crate) fn find_duplicates(&mut self) {
        let mut seen: std::collections::BTreeMap<u64, u64> =
            [(self.me.node, self.me.incarnation)].into();
        let mut found = Vec::new();
        for link in self.each_link().filter(|l| self.is_settled(l)) {
            let Some(o) = link.origin() else { continue };
            if *seen.entry(o.node).or_insert(o.incarnation) != o.incarnation {
                found.push(Note::DuplicateNode {
                    node: o.node,
                    addr: link.addr,
                });
            }
        }
        found.into_iter().for_each(|n| self.note(n));
    }
}
