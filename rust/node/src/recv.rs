//! What a datagram does.
//!
//! I promise: checks in the order length, cluster, source, signature, session, replay; whatever
//! fails one changes no count and is counted under the check's name. spec: link-4, link-6

use std::net::SocketAddr;

use gabion_rule::RuleIdx;
use gabion_wire::{
    decode, peek_header, Ack, Frame, Header, Heard, LimitsIter, Origin, Receiver, Rows, Section,
    WireError,
};

use crate::acks::Sent;
use crate::api::Note;
use crate::limits::{MAX_RELAY_ROWS, MAX_UNREACHED, MS};
use crate::link::List;
use crate::node::Node;

impl Node {
    /// Input::Datagram.
    pub(crate) fn on_datagram(&mut self, from: SocketAddr, bytes: &[u8]) {
        self.stats.frames_in += 1;
        self.stats.bytes_in += bytes.len() as u64;
        if let Err(cause) = self.take_frame(from, bytes) {
            self.stats.drop_frame(cause);
            match cause {
                WireError::WrongCluster => self.note(Note::ForeignCluster { addr: from }),
                WireError::BadMac | WireError::UnknownKey | WireError::NotSigned => {
                    self.note(Note::BadSignature { addr: from });
                }
                _ => {}
            }
        }
    }

    fn take_frame(&mut self, from: SocketAddr, bytes: &[u8]) -> Result<(), WireError> {
        let h = peek_header(bytes)?;
        h.check_cluster(self.cluster)?;
        if h.node == self.me.node && h.incarnation == self.me.incarnation {
            return Err(WireError::OwnNode);
        }
        let known = self.find_link(from, &h);
        if known.is_none() && !self.t.accept_unknown_sources {
            return Err(WireError::UnknownSource);
        }
        // what is cheap to see comes before what a stranger may cost
        match (h.is_signed(), self.keys.is_some()) {
            (false, true) => return Err(WireError::NotSigned),
            (true, false) => return Err(WireError::UnexpectedSignature),
            _ => {}
        }
        if !self.is_proven(&h) && !self.admits_stranger(from, known) {
            self.stats.refused_strangers += 1;
            return Ok(());
        }
        if let Some(keys) = &self.keys {
            let me = Receiver {
                node: self.me.node,
                session: self.session,
            };
            keys.verify(bytes, &me)?;
        }
        let frame = decode(bytes)?;
        let Some(at) = known.or_else(|| self.provisional(from)) else {
            return Ok(());
        };
        if h.is_introduction() {
            for section in frame.sections() {
                if let Section::Hello(hello) = section {
                    self.on_hello(at, &h, &hello, bytes.len());
                }
            }
            return Ok(());
        }
        let taken = self.take_sequenced(at, &h, &frame, bytes.len());
        self.touch(at);
        taken
    }

    /// Whether a frame says that it is of a session that proved itself. A signature shows whether
    /// that is true; without keys only who has seen the session's frames can say so.
    fn is_proven(&self, h: &Header) -> bool {
        let name = Origin {
            node: h.node,
            incarnation: h.incarnation,
        };
        !h.is_introduction() && self.by_identity.contains_key(&(name, h.session))
    }

    /// spec: link-15
    fn admits_stranger(&mut self, from: SocketAddr, known: Option<usize>) -> bool {
        let link = known.and_then(|at| self.links.get(at)?.as_ref());
        let listed = link.is_some_and(|link| link.configured);
        self.flood.admits(from, listed, self.now.mono_ns)
    }

    fn take_sequenced(
        &mut self,
        at: usize,
        h: &Header,
        frame: &Frame<'_>,
        len: usize,
    ) -> Result<(), WireError> {
        let now = self.now.mono_ns;
        let Some(link) = self.links[at].as_mut() else {
            return Ok(());
        };
        if !link.is_peer(h.node, h.incarnation, h.session) {
            // It believes us and we do not know it (we restarted, or it did): ask for a proof.
            link.unproven_in += len as u64;
            if now >= link.replied_ns + self.t.hello_min_ns / 2 {
                link.hello_owed = true;
            }
            self.stats.drop_unproven += 1;
            return Ok(());
        }
        let Some(peer) = link.peer.as_mut() else {
            return Ok(());
        };
        peer.window.accept(h)?;
        link.rx.received(h.seq, h.wants_ack(), now, &self.t);
        self.heard(at);
        self.heard_sparse(at, h.is_sparse());
        self.stats.sections_unknown += frame.unknown_sections() as u64;
        for section in frame.sections() {
            match section {
                Section::Ack(ack) => self.on_ack(at, h, &ack),
                Section::Rows(rows) => self.on_rows(at, &rows),
                Section::Hello(hello) => self.on_hello(at, h, &hello, len),
                Section::Digest(digest) => self.on_digest(at, &digest),
                Section::DigestRequest(request) => self.on_request(at, &request),
                Section::NotKept(scope) => self.on_not_kept(at, &scope),
                Section::Heard(heard) => self.on_heard(at, &heard),
                Section::Limits(limits) => self.on_limits(at, limits),
                Section::Leave => self.link_down(at),
                Section::Eras(eras) => self.on_eras(at, eras),
                Section::Flags(flags) => self.on_flags(at, flags),
                Section::Place(place) => self.on_place(at, place),
                Section::Spread(spread) => self.on_spread(at, &spread),
                Section::WholeDigest(whole) => self.on_whole_digest(at, &whole),
                Section::WholeRequest(request) => self.on_whole_request(at, &request),
                Section::Unknown { .. } => {}
            }
        }
        Ok(())
    }

    fn on_ack(&mut self, at: usize, h: &Header, ack: &Ack) {
        let now = self.now;
        let Some(link) = self.links[at].as_mut() else {
            return;
        };
        let acked = link.tx.on_ack(ack, now.mono_ns);
        link.confirmed |= acked.ours;
        let node = link.origin().map(|o| o.node);
        if let (Some(rtt), Some(node)) = (acked.rtt_ns, node) {
            // The peer's clock when it wrote this frame, plus half the way, against ours. spec:
            // time-1
            let theirs = i128::from(h.sent_at_us) * 1_000 + i128::from(rtt / 2);
            let offset = theirs - i128::from(now.cluster_ns);
            let offset =
                i64::try_from(offset).unwrap_or(if offset < 0 { i64::MIN } else { i64::MAX });
            self.clock.sample(node, offset, rtt, now.mono_ns);
        }
        self.on_lost(at, &acked.lost);
    }

    /// Frames were lost: their rows are sent again with their current counts. spec: link-9
    pub(crate) fn on_lost(&mut self, at: usize, lost: &[Sent]) {
        let Some(link) = self.links[at].as_mut() else {
            return;
        };
        for sent in lost {
            self.stats.frames_lost += 1;
            let fits = sent.held.range.is_none_or(|r| link.lost(r));
            link.caught_up &= fits;
            if sent.held.relist || !fits {
                link.list.get_or_insert_with(List::default);
            }
            // Everything from there on again: rare, absolute, and at most some frames.
            link.orders = link.orders.min(sent.held.orders.unwrap_or(u64::MAX));
        }
        for packets in lost.iter().rev().filter_map(|sent| sent.held.packets) {
            self.packets_lost(at, packets);
        }
    }

    /// Which limiter a wire name means, if this member has it and the epoch counts.
    pub(crate) fn accept_scope(&mut self, short: u64, epoch: u64, rows: u64) -> Option<RuleIdx> {
        let Some(limiter) = self.by_short.get(&short).copied() else {
            self.stats.drop_unknown_limiter += rows;
            return None;
        };
        let (oldest, newest) = self.epochs(limiter)?;
        if epoch < oldest {
            self.stats.drop_old_epoch += rows;
        } else if epoch > newest {
            self.stats.drop_future_epoch += rows;
        } else {
            return Some(limiter);
        }
        None
    }

    fn on_rows(&mut self, at: usize, rows: &Rows<'_>) {
        let count = rows.rows.count() as u64;
        self.stats.rows_in += count;
        let Some(limiter) = self.accept_scope(rows.scope.limiter, rows.scope.epoch, count) else {
            return;
        };
        let Some(peer) = self.links[at].as_ref().and_then(|l| l.origin()) else {
            return;
        };
        let origin = rows.scope.origin.unwrap_or(peer);
        let before = self.stats.rows_raised;
        self.take_rows(at, limiter, origin, rows);
        let raised = self.stats.rows_raised - before;
        self.repair_progressed(at, limiter, rows.scope.epoch, origin, raised);
    }

    fn take_rows(&mut self, at: usize, limiter: RuleIdx, origin: Origin, rows: &Rows<'_>) {
        let shelf = match self.cells.shelf_or_new(limiter, rows.scope.epoch) {
            Ok(shelf) => shelf,
            Err(why) => return self.refused(why, Some(origin)),
        };
        if origin == self.me {
            self.on_own_echo(shelf, rows);
            return;
        }
        let Some(idx) = self.cells.origins.intern(origin) else {
            return self.refused(crate::cells::Refused::Origins, Some(origin));
        };
        let links = if self.relaying { self.links.len() } else { 0 };
        let relays: Vec<usize> = (0..links)
            .filter(|i| *i != at)
            .filter(|i| {
                self.links[*i]
                    .as_ref()
                    .is_some_and(|l| l.relay_of.contains(&origin))
            })
            .collect();
        let (mut hits, mut jump) = (0u64, 0u32);
        for row in rows.rows {
            let raised = self
                .cells
                .find_or_insert(shelf, row.key, Some(idx))
                .and_then(|id| Ok((id, self.cells.raise_remote(shelf, id, idx, row.count)?)));
            match raised {
                Ok((_, 0)) => {}
                Ok((id, rise)) => {
                    (hits, jump) = (hits + u64::from(rise), jump.max(rise));
                    self.stats.rows_raised += 1;
                    self.tell(id);
                    self.requeue(shelf, id);
                    relays.iter().for_each(|to| self.relay(*to, id, idx));
                }
                Err(why) => {
                    if let Some(sum) = self.cells.sum_of(shelf, idx) {
                        sum.refused = sum.refused.saturating_add(1);
                    }
                    self.refused(why, Some(origin));
                }
            }
        }
        // What is caught up with was not under way. spec: bnd-5
        if hits > 0 && self.links[at].as_ref().is_some_and(|l| l.caught_up) {
            self.note_flow(limiter, idx, (hits, jump));
        }
    }

    fn relay(&mut self, to: usize, id: u32, origin: u16) {
        self.stale = true;
        let Some(link) = self.links[to].as_mut() else {
            return;
        };
        if link.relay.len() < MAX_RELAY_ROWS {
            link.relay.push_back((id, origin));
        } else {
            link.list.get_or_insert_with(List::default);
        }
    }

    /// A peer kept counts of this very incarnation that this driver does not know (it took over, or
    /// the table evicted the row): they are ours and are published as ours. spec: rep-11
    fn on_own_echo(&mut self, shelf: u32, rows: &Rows<'_>) {
        for row in rows.rows {
            match self.cells.find_or_insert(shelf, row.key, None) {
                Ok(id) => {
                    if self.cells.raise_own(id, row.count) {
                        self.stats.rows_raised += 1;
                        self.queue(shelf, id);
                    }
                }
                Err(why) => self.refused(why, Some(self.me)),
            }
        }
    }

    fn on_heard(&mut self, at: usize, heard: &Heard<'_>) {
        let now = self.now.mono_ns;
        if let (true, Some(link)) = (heard.silent, self.links[at].as_mut()) {
            link.unreached = heard.ids.take(MAX_UNREACHED).collect();
            link.unreached_ns = now;
        }
        self.choose_relays();
    }

    fn on_limits(&mut self, at: usize, limits: LimitsIter<'_>) {
        let Some(Origin { node, .. }) = self.links[at].as_ref().and_then(|l| l.origin()) else {
            return;
        };
        for entry in limits {
            let ours = self.by_short.get(&entry.limiter).copied();
            let Some(link) = self.links[at].as_mut() else {
                return;
            };
            let (Some(limiter), theirs) = (ours, entry.digest) else {
                link.differences.heard_unknown(entry.limiter, entry.digest);
                continue;
            };
            let digest = self.limiters[usize::from(limiter)].digest;
            link.differences.heard(limiter, digest, theirs);
            if digest != theirs {
                self.note(Note::LimitDiffers {
                    node,
                    limiter,
                    theirs,
                });
            }
        }
    }

    /// A peer's clock that is in another epoch although things had time to settle. spec: time-4
    pub(crate) fn find_skew(&mut self) {
        let now = self.now.mono_ns;
        if now < self.clock.settled_ns() + 10_000 * MS {
            return;
        }
        let epoch = self
            .limiters
            .iter()
            .map(|l| l.epoch_ns)
            .min()
            .unwrap_or(u64::MAX);
        let nodes: Vec<u64> = self
            .each_link()
            .filter(|l| l.up)
            .filter_map(|l| Some(l.origin()?.node))
            .collect();
        for node in nodes {
            let Some((offset, rtt)) = self.clock.peer(node) else {
                continue;
            };
            if offset.unsigned_abs() > epoch.max(2 * rtt).max(10 * MS) {
                let skew_ms = offset / 1_000_000;
                self.note(Note::ClockSkew { node, skew_ms });
            }
        }
    }
}
