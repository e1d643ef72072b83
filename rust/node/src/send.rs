//! What goes into a frame.
//!
//! I promise: a frame fits the MTU; it wants an ack exactly when it holds something that must
//! arrive; a link gets its turn whatever the others have to say. spec: link-7, link-10

use std::net::SocketAddr;

use gabion_wire::{
    Auth, Digest, EraEntry, FlagEntry, FrameWriter, Header, Hello, LimitEntry, NotKept, Receiver,
    Scope, FLAG_INTRODUCTION, FLAG_WANT_ACK, MAX_FRAME_BYTES,
};

use crate::acks::{Held, Range};
use crate::api::Now;
use crate::limits::{MAX_LIMITERS, MS, REGISTERS_PER_FRAME};
use crate::link::{Link, REPAIR_BATCH_ROWS};
use crate::node::Node;
use crate::repair::Ask;
use crate::spread::SpreadPlan;

mod count;

/// Bytes of the longest header, and of the trailer.
const HEADER_BYTES: usize = 42;
const TRAILER_BYTES: usize = gabion_wire::limits::TRAILER_BYTES;
/// Upper bounds of the bytes of sections.
const ACK_BYTES: usize = 23;
const DIGEST_BYTES: usize = 46;
const LIMIT_BYTES: usize = 16;
const FLAG_BYTES: usize = 25;
/// Of a place: the section's head and a varint.
const PLACE_BYTES: usize = 5;
const REGISTERS_BYTES: usize = 6 + FLAG_BYTES * REGISTERS_PER_FRAME;
const SCOPE_BYTES: usize = 36;
const REQUEST_BYTES: usize = SCOPE_BYTES + 8 + 4 * crate::repair::SUMS_PER_REQUEST as usize;
const NOT_KEPT_BYTES: usize = SCOPE_BYTES + 5;
/// Rows sections in one frame: more shelves than this wait for the next.
const SECTIONS_MAX: usize = 60;
/// Digests in one list frame.
const LIST_DIGESTS: usize = 20;
/// Limits in one list frame.
const LIST_LIMITS: usize = 8;

/// A liveness part rides on other frames in the last quarter of its time.
const BEAT_EARLY_PART: u64 = 4;
/// Places of the dirty log looked at for one frame: most of a long stretch may be stale.
const PLACES_PER_FRAME: u64 = 16_384;

/// One row to be written.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    shelf: u32,
    origin: Option<u16>,
    order: u32,
    id: u32,
}

/// A frame before it is written.
#[derive(Default)]
struct Plan {
    room: usize,
    ack: bool,
    limits: Vec<LimitEntry>,
    digests: Vec<Digest>,
    ask: Option<Ask>,
    not_kept: Vec<NotKept>,
    eras: Vec<EraEntry>,
    flags: Vec<FlagEntry>,
    /// The registers are those that changed behind this place.
    orders: Option<u64>,
    unreached: Option<Vec<u64>>,
    place: Option<u32>,
    leave: bool,
    rows: Vec<Row>,
    /// Rows sections the rows need.
    scopes: Vec<(u32, Option<u16>)>,
    range: Option<Range>,
    /// Places passed over because their rows, if known, were published again.
    passed: Vec<(u64, Option<u32>)>,
    resent: bool,
    relayed: u64,
    repaired: u64,
    beat: bool,
    listed: bool,
    spread: SpreadPlan,
}

impl Plan {
    fn take(&mut self, bytes: usize) -> bool {
        let fits = bytes <= self.room;
        if fits {
            self.room -= bytes;
        }
        fits
    }

    /// Adds a row if it fits.
    fn row(&mut self, shelf: u32, origin: Option<u16>, id: u32, count: u32) -> bool {
        let scope = (shelf, origin);
        let new = !self.scopes.contains(&scope);
        if new && self.scopes.len() >= SECTIONS_MAX {
            return false;
        }
        let head = if new {
            SCOPE_BYTES - if origin.is_none() { 16 } else { 0 }
        } else {
            0
        };
        if !self.take(head + 12 + varint_len(count)) {
            return false;
        }
        if new {
            self.scopes.push(scope);
        }
        let order = u32::try_from(self.rows.len()).unwrap_or(u32::MAX);
        self.rows.push(Row {
            shelf,
            origin,
            order,
            id,
        });
        true
    }

    fn wants_ack(&self) -> bool {
        !self.rows.is_empty()
            || self.spread.wants_ack()
            || self.ask.is_some()
            || !self.not_kept.is_empty()
            || !self.limits.is_empty()
            || !self.eras.is_empty()
            || !self.flags.is_empty()
    }

    fn is_empty(&self) -> bool {
        !self.wants_ack()
            && !self.ack
            && !self.beat
            && !self.leave
            && self.digests.is_empty()
            && self.spread.is_empty()
    }
}

fn varint_len(count: u32) -> usize {
    (u32::BITS - (count | 1).leading_zeros()).div_ceil(7) as usize
}

impl Node {
    /// The next frame to be sent, written into `buf` (at least [`MAX_FRAME_BYTES`] long): where to,
    /// and its length. Call until `None` after each input. `rng` gives random 64-bit numbers.
    pub fn poll_transmit(
        &mut self,
        now: Now,
        buf: &mut [u8],
        rng: &mut dyn FnMut() -> u64,
    ) -> Option<(SocketAddr, usize)> {
        let turned = now.mono_ns >= self.now.mono_ns + MS;
        self.told(now);
        if turned {
            self.on_time();
        } else {
            self.emit_due();
            self.repairs_on_time();
        }
        self.spread_round(rng);
        self.entropy_round(rng);
        self.foreign_for_beat();
        self.refresh();
        let n = self.links.len();
        let turn = self.turn.min(n);
        for (mut from, end) in [(turn, n), (0, turn)] {
            while let Some(at) = self.due.next(from, end, now.mono_ns) {
                from = at + 1;
                let Some(mut link) = self.links[at].take() else {
                    continue;
                };
                let sent = self.frame_for(at, &mut link, buf, rng);
                let addr = link.addr;
                self.seq_max = self.seq_max.max(link.tx.next_seq.saturating_sub(1));
                self.links[at] = Some(link);
                self.touch(at);
                if let Some(len) = sent {
                    self.turn = (at + 1) % n;
                    self.stats.frames_out += 1;
                    self.stats.bytes_out += len as u64;
                    return Some((addr, len));
                }
            }
        }
        None
    }

    fn frame_for(
        &mut self,
        at: usize,
        link: &mut Link,
        buf: &mut [u8],
        rng: &mut dyn FnMut() -> u64,
    ) -> Option<usize> {
        let now = self.now.mono_ns;
        if link.alias_of.is_some() || link.left {
            return None;
        }
        let timed = link.wants_hello() && now >= link.hello_next_ns && !self.leaving;
        if timed || (link.hello_owed && self.may_reply(link)) {
            return self.write_hello(link, timed, buf, rng);
        }
        if !link.up {
            return None;
        }
        let plan = self.plan(at, link, buf.len().min(MAX_FRAME_BYTES));
        if plan.is_empty() {
            return None;
        }
        self.write(link, &plan, buf)
    }

    fn header(&self, seq: u64, flags: u8) -> Header {
        let sent_at_us = self.now.cluster_ns / 1_000;
        let base = Header::new(
            self.cluster,
            self.me.node,
            self.me.incarnation,
            self.session,
        );
        Header {
            flags,
            seq,
            sent_at_us,
            ..base
        }
    }

    /// Introduction, and proof of the peer's nonce. Carries no number of the link. spec: link-2
    fn write_hello(
        &mut self,
        link: &mut Link,
        timed: bool,
        buf: &mut [u8],
        rng: &mut dyn FnMut() -> u64,
    ) -> Option<usize> {
        let now = self.now.mono_ns;
        while link.my_nonce == 0 {
            link.my_nonce = rng();
        }
        if timed {
            link.hello_next_ns = now + link.hello_wait_ns;
            link.hello_wait_ns = (link.hello_wait_ns * 2).min(self.t.hello_max_ns);
        }
        link.hello_owed = false;
        link.replied_ns = now;
        link.echoed = link.peer_nonce;
        let header = self.header(1, FLAG_INTRODUCTION);
        let auth = self.keys.as_ref().map(|ring| Auth {
            ring,
            receiver: Receiver::UNKNOWN,
        });
        let mut w = FrameWriter::new(buf, &header, auth).ok()?;
        let hello = Hello {
            nonce: link.my_nonce,
            echo: link.peer_nonce,
            wants_digests: std::mem::take(&mut link.ask_digests),
        };
        w.hello(&hello).ok()?;
        let len = w.finish();
        if !link.up {
            link.unproven_out += len as u64;
        }
        self.stats.hellos_out += 1;
        Some(len)
    }

    fn plan(&mut self, at: usize, link: &mut Link, len: usize) -> Plan {
        let now = self.now.mono_ns;
        let trailer = if self.keys.is_some() {
            TRAILER_BYTES
        } else {
            0
        };
        let room = len.saturating_sub(HEADER_BYTES + trailer + ACK_BYTES);
        let mut plan = Plan {
            room,
            ..Plan::default()
        };
        let may_send = link.tx.may_send();
        if may_send {
            self.plan_orders(link, &mut plan);
            self.feed_whole_jobs(link);
            plan.spread = self.plan_packets(link, &mut plan.room);
            self.plan_answers(at, link, &mut plan);
            self.plan_log(link, &mut plan);
            self.passed_over(link, plan.range, &plan.passed);
            self.plan_relays(link, &mut plan);
            self.plan_jobs(link, &mut plan);
        }
        plan.spread.wholes = self.plan_wholes(link, &mut plan.room);
        let drained = link.drained(self.log.head()) && !link.has_packets();
        if may_send && drained && link.list_due() {
            self.plan_list(link, &mut plan);
        }
        // What leaves anyway takes a liveness part along that is soon due. spec: link-11
        let early = if plan.wants_ack() {
            self.t.idle_heartbeat_ns / BEAT_EARLY_PART
        } else {
            0
        };
        if now + early >= link.beat_next_ns {
            self.plan_beat(link, drained, &mut plan);
        }
        if self.leaving && (drained || !may_send) {
            plan.leave = true;
        }
        // What wants no ack is acknowledged by the next liveness frame, for round trips.
        let rides = if plan.beat {
            link.rx.fresh
        } else {
            link.rx.is_owed()
        };
        plan.ack = link.rx.is_due(now) || (rides && !plan.is_empty());
        plan
    }

    /// Registers that changed since this link was told last. spec: ord-10
    fn plan_orders(&self, link: &mut Link, plan: &mut Plan) {
        if !self.registers.is_behind(link.orders) || !plan.take(REGISTERS_BYTES) {
            return;
        }
        let (eras, mut flags, end) = self.registers.behind(link.orders);
        if self.keys.is_none() {
            flags.clear(); // spec: ord-8
        }
        plan.room += REGISTERS_BYTES - 6 - 12 * eras.len() - FLAG_BYTES * flags.len();
        plan.orders = Some(std::mem::replace(&mut link.orders, end));
        (plan.eras, plan.flags) = (eras, flags);
    }

    fn plan_answers(&mut self, at: usize, link: &mut Link, plan: &mut Plan) {
        while !link.not_kept.is_empty() && plan.take(NOT_KEPT_BYTES) {
            plan.not_kept.extend(link.not_kept.pop_front());
            self.stats.not_kept_out += 1;
        }
        if self.has_ask(at) && plan.take(REQUEST_BYTES) {
            plan.ask = self.next_ask(at, link);
        }
    }

    /// Published rows: first those of lost frames, then the new ones. spec: rep-5, link-9
    fn plan_log(&mut self, link: &mut Link, plan: &mut Plan) {
        while let Some((from, to)) = link.resend.pop_front() {
            let from = plan.still_there(from, self.log.tail());
            let end = self.plan_range(from, to, plan);
            if end < to {
                link.resend.push_front((end.max(from), to));
            }
            if !plan.rows.is_empty() {
                plan.range = Some((from, end));
                plan.resent = true;
                return;
            }
            if end < to {
                return;
            }
        }
        let head = self.log.head();
        if link.cursor < self.log.tail() {
            self.stats.log_overruns += 1;
            link.cursor = self.log.tail();
            link.caught_up = false;
            link.list.get_or_insert_with(Default::default);
        }
        if link.cursor < head {
            let end = self.plan_range(link.cursor, head, plan);
            if !plan.rows.is_empty() {
                plan.range = Some((link.cursor, end));
            }
            link.cursor = end;
        }
    }

    /// Adds the rows of a log range until the frame is full; gives where it stopped.
    fn plan_range(&self, from: u64, to: u64, plan: &mut Plan) -> u64 {
        for pos in from..to.min(from.saturating_add(PLACES_PER_FRAME)) {
            let Some(id) = self.log.get(pos) else {
                continue;
            };
            let cell = self.cells.cell(id);
            // Published again since: the later place carries it. spec: rep-5
            if cell.pos != crate::cells::low_byte(pos) || cell.emitted == 0 {
                plan.passed.push((pos, Some(id)));
                continue;
            }
            let Some(shelf) = self.cells.shelf_of(id) else {
                continue;
            };
            if !plan.row(shelf, None, id, cell.emitted) {
                return pos;
            }
        }
        to.min(from.saturating_add(PLACES_PER_FRAME))
    }

    fn plan_relays(&mut self, link: &mut Link, plan: &mut Plan) {
        while let Some((id, origin)) = link.relay.front().copied() {
            let count = self.cells.count_of(id, origin);
            if let (Some(shelf), true) = (self.cells.shelf_of(id), count > 0) {
                if !plan.row(shelf, Some(origin), id, count) {
                    return;
                }
                plan.relayed += 1;
            }
            link.relay.pop_front();
        }
    }

    fn plan_jobs(&mut self, link: &mut Link, plan: &mut Plan) {
        let tokens = link.repair_tokens(self.now.mono_ns, self.t.repair_rows_per_second);
        if tokens < REPAIR_BATCH_ROWS {
            return;
        }
        while let Some(mut job) = link.jobs.pop_front() {
            if job.is_whole() {
                link.jobs.push_front(job); // its turn is before packets
                break;
            }
            while let Some((shelf, id, origin)) = self.job_next(&mut job) {
                let count = self.cells.announced(id, origin);
                if count == 0 {
                    continue;
                }
                if plan.repaired >= tokens || !plan.row(shelf, origin, id, count) {
                    job.ids.push(id);
                    link.jobs.push_front(job);
                    link.spend_tokens(plan.repaired);
                    return;
                }
                plan.repaired += 1;
            }
        }
        link.spend_tokens(plan.repaired);
    }

    /// Limits and digests of everything, after a link came up. spec: rep-8
    fn plan_list(&mut self, link: &mut Link, plan: &mut Plan) {
        let Some(list) = link.list.as_mut() else {
            return;
        };
        let from = list.limits.min(MAX_LIMITERS);
        for spec in self.limiters.iter().skip(from).take(LIST_LIMITS) {
            if !plan.take(LIMIT_BYTES + 3) {
                return;
            }
            plan.limits.push(LimitEntry {
                limiter: spec.short,
                digest: spec.digest,
            });
            list.limits += 1;
        }
        if list.limits < self.limiters.len() {
            return;
        }
        if self.spread.active {
            link.list = None; // spec: dis-10
            return;
        }
        let most = LIST_DIGESTS.min(plan.room / DIGEST_BYTES);
        if most == 0 {
            return;
        }
        self.list_digests(link, most, &mut plan.digests);
        plan.room -= plan.digests.len() * DIGEST_BYTES;
        plan.listed = !plan.digests.is_empty();
        // A list frame must arrive: it always carries a limit, which wants an ack.
        if let (true, Some(spec)) = (plan.limits.is_empty() && plan.listed, self.limiters.first()) {
            if plan.take(LIMIT_BYTES + 3) {
                plan.limits.push(LimitEntry {
                    limiter: spec.short,
                    digest: spec.digest,
                });
            }
        }
    }

    /// Liveness: one own digest, one of an origin that is gone, whom we do not reach. spec: link-11
    fn plan_beat(&mut self, link: &mut Link, drained: bool, plan: &mut Plan) {
        let slow = if self.spread.active { link.slow } else { 1 };
        link.beat_next_ns = self.now.mono_ns + self.t.idle_heartbeat_ns * slow;
        plan.beat = true;
        if self.spread.active {
            return; // spec: dis-10
        }
        if drained && plan.take(DIGEST_BYTES) {
            plan.digests.extend(self.rotate_digest(link));
        }
        if let Some(digest) = self.foreign_now.0 {
            if plan.take(DIGEST_BYTES) {
                plan.digests.push(digest);
            }
        }
        let names = self.unreached_now.clone();
        let told = std::mem::replace(&mut link.told_unreached, !names.is_empty());
        if (told || !names.is_empty()) && plan.take(4 + 8 * names.len()) {
            plan.unreached = Some(names);
        }
        if self.place.is_some() && plan.take(PLACE_BYTES) {
            plan.place = self.place;
        }
    }

    fn write(&mut self, link: &mut Link, plan: &Plan, buf: &mut [u8]) -> Option<usize> {
        let now = self.now.mono_ns;
        let wants_ack = plan.wants_ack();
        let flags = if wants_ack { FLAG_WANT_ACK } else { 0 } | self.spread_flags();
        let header = self.header(link.tx.next_seq, flags);
        let peer = link.peer.as_ref()?;
        let receiver = Receiver {
            node: peer.origin.node,
            session: peer.session,
        };
        let auth = self.keys.as_ref().map(|ring| Auth { ring, receiver });
        let mut w = FrameWriter::new(buf, &header, auth).ok()?;
        let ack = if plan.ack {
            peer.window.ack(link.rx.delay_us(now))
        } else {
            None
        };
        let mut whole = ack.is_none_or(|a| w.ack(&a).is_ok());
        if !plan.limits.is_empty() {
            whole &= w.limits(&plan.limits).is_ok();
        }
        whole &= plan.not_kept.iter().all(|n| w.not_kept(n).is_ok());
        if let Some(a) = &plan.ask {
            whole &= a.write(&mut w).is_ok();
        }
        if !plan.eras.is_empty() {
            whole &= w.eras(&plan.eras).is_ok();
        }
        if !plan.flags.is_empty() {
            whole &= w.flags(&plan.flags).is_ok();
        }
        if let Some(names) = &plan.unreached {
            whole &= w.heard(true, names).is_ok();
        }
        whole &= plan.place.is_none_or(|place| w.place(place).is_ok());
        whole &= self.write_packets(&mut w, &plan.spread);
        whole &= self.write_rows(&mut w, &plan.rows);
        // After the rows: a receiver compares what it then holds.
        whole &= plan.digests.iter().all(|d| w.digest(d).is_ok());
        if plan.leave {
            whole &= w.leave().is_ok();
        }
        debug_assert!(whole, "a plan fits its frame");
        let len = w.finish();
        if plan.ack {
            link.rx.acked();
        }
        let held = Held {
            range: plan.range,
            relist: plan.relayed + plan.repaired > 0 || plan.listed || !whole,
            orders: plan.orders,
            packets: plan.spread.held(),
        };
        link.tx.sent(now, wants_ack, held);
        link.last_out_ns = now;
        if plan.leave {
            link.left = true;
        }
        self.count(plan, wants_ack);
        Some(len)
    }

    fn write_rows(&self, w: &mut FrameWriter<'_>, rows: &[Row]) -> bool {
        let mut rows = rows.to_vec();
        rows.sort_unstable();
        rows.chunk_by(|a, b| (a.shelf, a.origin) == (b.shelf, b.origin))
            .all(|run| {
                let Some(s) = self.cells.shelf(run[0].shelf) else {
                    return true;
                };
                let Some(spec) = self.limiters.get(usize::from(s.limiter)) else {
                    return true;
                };
                let origin = run[0].origin.and_then(|o| self.cells.origins.name(o));
                let scope = Scope {
                    limiter: spec.short,
                    epoch: s.epoch,
                    origin,
                };
                let Ok(mut section) = w.rows(&scope) else {
                    return false;
                };
                let all = run.iter().all(|row| {
                    let count = self.cells.announced(row.id, row.origin);
                    section.push(self.cells.cell(row.id).key(), count).is_ok()
                });
                section.finish().is_ok() && all
            })
    }
}
