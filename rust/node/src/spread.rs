//! Dissemination by forwarding: what is news, whom a round tells, what a frame carries of it.
//!
//! I own the news that waits, the packets of the last rounds and who is chosen. I promise: a round
//! goes to few members whatever their number; news is encoded once per round; everything that
//! waits is bounded, and what is dropped is left to [`crate::entropy`]. spec: dis-1 to dis-5
//!
//! I never decide what is published when (that is `emit`), and never draw a random number: the
//! caller gives them.

use std::collections::{BTreeMap, VecDeque};

use gabion_wire::{Origin, Spread, FLAG_SPARSE};

use crate::cells::Refused;
use crate::entropy::{Waits, WholeList};
use crate::limits::{Fanout, AUTO_MEMBERS, MS, SECOND};
use crate::link::Link;
use crate::node::Node;
use crate::origins::OriginIdx;
use crate::packet::Packet;

/// News that waits for a round, at most. spec: dis-1
const NEWS_MAX: usize = 1 << 16;
/// Packets of one round, at most. spec: dis-3
const ROUND_PACKETS: usize = 64;
/// Packets kept for repeats and full windows, at most, and for how long. spec: dis-5
const PACKETS_MAX: usize = 1_024;
const PACKET_LIFE_NS: u64 = 4 * SECOND;
/// Packets that wait on one link, at most.
const QUEUE_MAX: usize = 256;
/// Members told beyond ln n. spec: dis-2
const BEYOND_LN: usize = 2;
/// Frames without an answer after which a member is chosen last. spec: dis-2
const UNANSWERED: u32 = 3;
/// Rows of answers that are forwarded per second. spec: dis-7
const ANSWERS_PER_SECOND: u64 = 1_000;
/// Liveness frames per second of a member that forwards. spec: dis-9
const BEATS_PER_SECOND: usize = 32;
/// A member that was forwarded to takes part in anti-entropy for this long. spec: dis-6
const TAKES_PART_NS: u64 = 10 * SECOND;

/// One count that is news: shelf, cell, origin (`NO_ORIGIN` = own).
pub(crate) type News = (u32, u32, OriginIdx);

/// The part of a link that concerns forwarding.
#[derive(Debug, Default)]
pub(crate) struct LinkSpread {
    /// Packets to be sent, by number.
    queue: VecDeque<u64>,
    /// The peer says that its liveness frames are rare. spec: dis-9
    pub(crate) sparse: bool,
    /// Whole digests to be sent.
    pub(crate) whole: Option<WholeList>,
    /// Whole digests owed as answers: (limiter, epoch).
    pub(crate) answers: VecDeque<(u16, u64)>,
}

/// What goes into a frame.
#[derive(Debug, Default)]
pub(crate) struct SpreadPlan {
    packets: Vec<u64>,
    pub(crate) wholes: Vec<gabion_wire::WholeDigest>,
}

impl SpreadPlan {
    pub(crate) fn wants_ack(&self) -> bool {
        !self.packets.is_empty()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.packets.is_empty() && self.wholes.is_empty()
    }

    /// What is sent again when the frame is lost: a run of packets.
    pub(crate) fn held(&self) -> Option<(u64, u64)> {
        Some((*self.packets.first()?, *self.packets.last()? + 1))
    }
}

#[derive(Debug, Default)]
pub(crate) struct Spreader {
    /// Own rows go by rounds. spec: dis-11
    pub(crate) active: bool,
    /// Members when that was last looked at, this one included.
    members: usize,
    news: Vec<News>,
    pub(crate) packets: VecDeque<Packet>,
    /// Number of the first packet kept.
    first: u64,
    /// The next round is not before.
    pub(crate) next_ns: u64,
    floor_ns: u64,
    heard_ns: Option<u64>,
    pub(crate) entropy_next_ns: u64,
    pub(crate) walk: Option<(u16, u64)>,
    pub(crate) waits: BTreeMap<(u16, u64), Waits>,
    answer_tokens: (u64, u64),
}

/// ceil(ln n), in integers: the same on every machine.
fn ceil_ln(n: usize) -> usize {
    // Whole parts of e^0, e^1, ...
    const POWERS: [usize; 12] = [
        1, 2, 7, 20, 54, 148, 403, 1_096, 2_980, 8_103, 22_026, 59_874,
    ];
    POWERS.iter().take_while(|power| **power < n).count()
}

impl Spreader {
    fn packet(&self, number: u64) -> Option<&Packet> {
        let at = number.checked_sub(self.first)?;
        self.packets.get(usize::try_from(at).ok()?)
    }

    pub(crate) fn end(&self) -> u64 {
        self.first + self.packets.len() as u64
    }

    pub(crate) fn forget_old(&mut self, now_ns: u64) {
        while self.packets.len() > PACKETS_MAX
            || (self.packets.front()).is_some_and(|p| p.at_ns + PACKET_LIFE_NS <= now_ns)
        {
            self.packets.pop_front();
            self.first += 1;
        }
    }

    /// Takes part in anti-entropy.
    pub(crate) fn takes_part(&self, now_ns: u64) -> bool {
        self.active || self.heard_ns.is_some_and(|at| now_ns < at + TAKES_PART_NS)
    }

    /// Time between two rounds, as the last one set it.
    pub(crate) fn floor_ns(&self) -> u64 {
        self.floor_ns
    }

    /// When a round, or anti-entropy, is due.
    pub(crate) fn deadline_ns(&self, now_ns: u64) -> Option<u64> {
        let round = (!self.news.is_empty()).then_some(self.next_ns);
        let entropy = self.takes_part(now_ns).then_some(self.entropy_next_ns);
        round.into_iter().chain(entropy).min()
    }

    /// May this many rows of an answer be forwarded?
    fn may_forward(&mut self, rows: u64, now_ns: u64) -> bool {
        let (tokens, at) = self.answer_tokens;
        let gained = now_ns.saturating_sub(at) / MS * (ANSWERS_PER_SECOND / 1_000);
        let tokens = (tokens + gained).min(ANSWERS_PER_SECOND);
        let may = rows <= tokens;
        self.answer_tokens = (tokens - if may { rows } else { 0 }, now_ns);
        may
    }
}

impl Link {
    /// Has anything of forwarding to send.
    pub(crate) fn has_packets(&self) -> bool {
        !self.spread.queue.is_empty()
    }

    pub(crate) fn queued_packets(&self) -> usize {
        self.spread.queue.len()
    }

    pub(crate) fn queue_packets(&mut self, numbers: std::ops::Range<u64>) {
        self.spread.queue.extend(numbers);
    }

    /// The member is down or another: what waited is left to digests.
    pub(crate) fn forget_packets(&mut self) {
        self.spread = LinkSpread::default();
    }

    /// Digests over all origins wait.
    pub(crate) fn has_wholes(&self) -> bool {
        self.spread.whole.is_some() || !self.spread.answers.is_empty()
    }
}

impl Node {
    /// Members that are configured or up, this one included. spec: dis-11
    fn members_seen(&self) -> usize {
        let counts = |l: &&Link| (l.configured || l.up) && l.alias_of.is_none();
        self.each_link().filter(counts).count() + 1
    }

    /// Whom a round tells, at most. spec: dis-2
    fn fanout(&self, members: usize) -> usize {
        let ln = ceil_ln(members);
        match self.t.fanout {
            Fanout::Members(n) => usize::from(n).max(ln + 1),
            Fanout::Auto | Fanout::Mesh => ln + BEYOND_LN,
        }
    }

    /// Whether own rows go by rounds from now on. spec: dis-11
    pub(crate) fn choose_dissemination(&mut self) {
        let members = self.members_seen();
        self.spread.members = members;
        let active = match self.t.fanout {
            Fanout::Mesh => false,
            Fanout::Members(_) => members > self.fanout(members) + 1,
            // A quarter of slack, so that one member that comes and goes changes nothing.
            Fanout::Auto => AUTO_MEMBERS.is_some_and(|from| {
                let slack = if self.spread.active { from / 4 } else { 0 };
                members >= from - slack
            }),
        };
        if active != self.spread.active {
            self.spread.active = active;
            self.stats.forwarding = u64::from(active);
            self.stale = true;
        }
        let slow = (members.saturating_sub(1))
            .div_ceil(BEATS_PER_SECOND)
            .max(1) as u64;
        for link in self.links.iter_mut().flatten() {
            link.slow = if active || link.spread.sparse {
                slow
            } else {
                1
            };
        }
    }

    /// A frame of a peer says whether its liveness frames are rare. spec: dis-9
    pub(crate) fn heard_sparse(&mut self, at: usize, sparse: bool) {
        let changed = self.links[at]
            .as_ref()
            .is_some_and(|l| l.spread.sparse != sparse);
        if let (true, Some(link)) = (changed, self.links[at].as_mut()) {
            link.spread.sparse = sparse;
            self.choose_dissemination();
        }
    }

    /// Flags of every numbered frame.
    pub(crate) fn spread_flags(&self) -> u8 {
        if self.spread.active {
            FLAG_SPARSE
        } else {
            0
        }
    }

    /// Something to be told in the next round. spec: dis-1
    pub(crate) fn is_news(&mut self, shelf: u32, id: u32, origin: OriginIdx) {
        let news = &mut self.spread.news;
        if news.len() >= NEWS_MAX {
            news.sort_unstable();
            news.dedup();
        }
        if news.len() >= NEWS_MAX {
            self.stats.news_overflow += 1;
        } else {
            news.push((shelf, id, origin));
        }
    }

    /// Packets of news, to members chosen at random. spec: dis-2, dis-3, dis-4
    pub(crate) fn spread_round(&mut self, rng: &mut dyn FnMut() -> u64) {
        let now = self.now.mono_ns;
        if self.spread.news.is_empty() || (now < self.spread.next_ns && !self.leaving) {
            return;
        }
        let k = self.fanout(self.spread.members);
        let targets = self.choose_targets(k, rng);
        self.spread.forget_old(now);
        if targets.is_empty() {
            // Nobody to tell: who comes up is told by digests.
            self.spread.news.clear();
            return;
        }
        let from = self.spread.end();
        self.build_packets();
        let end = self.spread.end();
        let frames = 2 * (end - from) * targets.len() as u64;
        let paced = frames.saturating_mul(SECOND) / self.t.packets_per_second.max(1);
        self.spread.floor_ns = paced.max(self.t.min_emit_interval_ns);
        self.spread.next_ns = now + self.spread.floor_ns;
        self.stats.spread_rounds += 1;
        self.stats.packets_built += end - from;
        for at in targets {
            if let Some(link) = self.links[at].as_mut() {
                link.spread.queue.extend(from..end);
                while link.spread.queue.len() > QUEUE_MAX {
                    link.spread.queue.pop_front();
                    self.stats.packets_given_up += 1;
                }
            }
            self.touch(at);
        }
    }

    /// Links that are up are told; those that do not answer only when others do not suffice.
    fn is_good(&self, at: usize) -> Option<bool> {
        let link = self.links.get(at)?.as_ref()?;
        let up = link.up && link.alias_of.is_none() && !link.left;
        up.then(|| link.tx.unanswered() < UNANSWERED)
    }

    /// At most `k` links that are up, those that answer first.
    fn choose_targets(&self, k: usize, rng: &mut dyn FnMut() -> u64) -> Vec<usize> {
        // In a crowd, a few tries find enough, without a look at everyone.
        let mut found = Vec::with_capacity(k);
        let crowd = self.links.len() as u64;
        for _ in 0..if crowd > 4 * k as u64 { 3 * k } else { 0 } {
            let at = usize::try_from(rng() % crowd).unwrap_or(0);
            if self.is_good(at) == Some(true) && !found.contains(&at) {
                found.push(at);
            }
            if found.len() == k {
                return found;
            }
        }
        self.choose_among_all(k, rng)
    }

    fn choose_among_all(&self, k: usize, rng: &mut dyn FnMut() -> u64) -> Vec<usize> {
        let (mut good, mut doubtful) = (Vec::new(), Vec::new());
        for at in 0..self.links.len() {
            match self.is_good(at) {
                Some(true) => good.push(at),
                Some(false) => doubtful.push(at),
                None => {}
            }
        }
        draw(&mut good, k, rng);
        draw(&mut doubtful, k - good.len(), rng);
        good.append(&mut doubtful);
        good
    }

    /// A random link that is up, for anti-entropy.
    pub(crate) fn choose_one(&self, rng: &mut dyn FnMut() -> u64) -> Option<usize> {
        self.choose_targets(1, rng).first().copied()
    }

    /// Encodes what waits, by shelf and cell.
    fn build_packets(&mut self) {
        let mut news = std::mem::take(&mut self.spread.news);
        news.sort_unstable();
        news.dedup();
        let done = self.encode(&news, ROUND_PACKETS);
        news.drain(..done);
        news.shrink_to(NEWS_MAX / 16);
        self.spread.news = news;
    }

    /// Packets that fit what is left of a frame. spec: dis-5
    pub(crate) fn plan_packets(&mut self, link: &mut Link, room: &mut usize) -> SpreadPlan {
        let mut plan = SpreadPlan::default();
        while let Some(number) = link.spread.queue.front().copied() {
            let run = plan.packets.last().is_none_or(|last| last + 1 == number);
            let Some(packet) = self.spread.packet(number) else {
                link.spread.queue.pop_front();
                self.stats.packets_given_up += 1;
                continue;
            };
            if packet.bytes.len() > *room || !run {
                break;
            }
            *room -= packet.bytes.len();
            plan.packets.push(number);
            link.spread.queue.pop_front();
        }
        plan
    }

    pub(crate) fn write_packets(
        &self,
        w: &mut gabion_wire::FrameWriter<'_>,
        plan: &SpreadPlan,
    ) -> bool {
        let packets = plan.packets.iter().filter_map(|n| self.spread.packet(*n));
        let mut whole = true;
        for packet in packets {
            whole &= w.encoded(packet.sections, &packet.bytes).is_ok();
        }
        whole && plan.wholes.iter().all(|d| w.whole_digest(d).is_ok())
    }

    /// A frame with packets was lost. spec: dis-5
    pub(crate) fn packets_lost(&mut self, at: usize, lost: (u64, u64)) {
        let Some(link) = self.links[at].as_mut() else {
            return;
        };
        if link.tx.unanswered() >= UNANSWERED {
            self.stats.packets_given_up += lost.1 - lost.0;
            return;
        }
        for number in (lost.0..lost.1).rev() {
            link.spread.queue.push_front(number);
        }
    }

    /// Rows of many origins arrived. spec: dis-1, dis-12, dis-13
    pub(crate) fn on_spread(&mut self, at: usize, spread: &Spread<'_>) {
        let now = self.now.mono_ns;
        let rows = spread.rows().count() as u64;
        self.stats.rows_in += rows;
        let Some(limiter) = self.accept_scope(spread.limiter, spread.epoch, rows) else {
            return;
        };
        let Some(sender) = self.links[at].as_ref().and_then(|l| l.origin()) else {
            return;
        };
        let shelf = match self.cells.shelf_or_new(limiter, spread.epoch) {
            Ok(shelf) => shelf,
            Err(why) => return self.refused(why, Some(sender)),
        };
        let names: Vec<Origin> = std::iter::once(sender).chain(spread.origins()).collect();
        let before = self.stats.rows_raised;
        let answer = self.is_answer(at, limiter, spread.epoch);
        if !answer {
            self.spread.heard_ns = Some(now);
        }
        let forward = !answer || self.spread.may_forward(rows, now);
        let mut rises = self.take_spread(shelf, spread, &names, forward);
        // What is caught up with was not under way. spec: bnd-5
        rises.sort_unstable();
        for run in rises.chunk_by(|a, b| a.0 == b.0).filter(|_| !answer) {
            let hits = run.iter().map(|(_, rise)| u64::from(*rise)).sum();
            let jump = run.last().map_or(0, |(_, rise)| *rise);
            self.note_flow(limiter, run[0].0, (hits, jump));
        }
        let raised = self.stats.rows_raised - before;
        self.whole_progressed(at, limiter, spread.epoch, raised);
    }

    /// Gives what rose: origin and by how much.
    fn take_spread(
        &mut self,
        shelf: u32,
        spread: &Spread<'_>,
        names: &[Origin],
        forward: bool,
    ) -> Vec<(OriginIdx, u32)> {
        let mut rises = Vec::new();
        let index: Vec<Option<OriginIdx>> = names
            .iter()
            .map(|name| {
                let mine = *name == self.me;
                (!mine).then(|| self.cells.origins.intern(*name)).flatten()
            })
            .collect();
        let mut counts: Vec<(OriginIdx, u32)> = Vec::new();
        for (key, each) in spread.keys() {
            counts.clear();
            let mut own = 0;
            for (number, count) in each {
                let at = usize::from(number);
                match (index.get(at).copied().flatten(), names.get(at)) {
                    (Some(origin), _) => counts.push((origin, count)),
                    (None, Some(name)) if *name == self.me => own = own.max(count),
                    (None, name) => self.refused(Refused::Origins, name.copied()),
                }
            }
            // Each origin once, with its largest count.
            counts.sort_unstable_by_key(|(origin, count)| (*origin, std::cmp::Reverse(*count)));
            counts.dedup_by_key(|(origin, _)| *origin);
            self.take_key(shelf, key, own, &mut counts, forward);
            rises.append(&mut counts);
        }
        rises
    }

    fn take_key(
        &mut self,
        shelf: u32,
        key: gabion_rule::Key,
        own: u32,
        counts: &mut Vec<(OriginIdx, u32)>,
        forward: bool,
    ) {
        let creator = counts.first().map(|(origin, _)| *origin);
        let creator = if own > 0 { None } else { creator };
        let all = counts.clone();
        let id = match self.cells.find_or_insert(shelf, key, creator) {
            Ok(id) => id,
            Err(why) => {
                counts.clear();
                return self.refused_all(shelf, why, &all);
            }
        };
        // A peer kept counts of this very incarnation: they are ours. spec: rep-11
        if own > 0 && self.cells.raise_own(id, own) {
            self.stats.rows_raised += 1;
            self.queue(shelf, id);
        }
        if let Err(why) = self.cells.raise_many(shelf, id, counts) {
            let refused: Vec<_> = all
                .iter()
                .filter(|(origin, _)| self.cells.count_of(id, *origin) == 0)
                .copied()
                .collect();
            self.refused_all(shelf, why, &refused);
        }
        if counts.is_empty() {
            return;
        }
        self.stats.rows_raised += counts.len() as u64;
        self.tell(id);
        self.requeue(shelf, id);
        if forward {
            for (origin, _) in counts.iter() {
                self.is_news(shelf, id, *origin);
            }
        }
    }

    fn refused_all(&mut self, shelf: u32, why: Refused, counts: &[(OriginIdx, u32)]) {
        for (origin, _) in counts {
            if let Some(sum) = self.cells.sum_of(shelf, *origin) {
                sum.refused = sum.refused.saturating_add(1);
            }
            let name = self.cells.origins.name(*origin);
            self.refused(why, name);
        }
    }

    /// When a round or anti-entropy is due.
    pub(crate) fn spread_deadline_ns(&self) -> Option<u64> {
        let someone = self.stats.peers_up > 0 && !self.leaving;
        self.spread
            .deadline_ns(self.now.mono_ns)
            .filter(|_| someone)
    }

    /// Rounds until news is everywhere: the first way, forwards, and one for who was missed.
    pub(crate) fn hops(&self) -> u64 {
        if !self.spread.active {
            return 1;
        }
        let (members, k) = (self.spread.members, self.fanout(self.spread.members));
        let (mut reached, mut hops) = (1usize, 1);
        while reached < members {
            reached = reached.saturating_mul(k.max(2));
            hops += 1;
        }
        hops
    }

    /// Bytes that forwarding holds: news, packets, queues.
    pub(crate) fn spread_bytes(&self) -> usize {
        let packets: usize = self.spread.packets.iter().map(|p| p.bytes.len() + 32).sum();
        let queues: usize = self
            .each_link()
            .map(|l| l.spread.queue.capacity() * 8 + l.spread.answers.capacity() * 16)
            .sum();
        packets + queues + self.spread.news.capacity() * std::mem::size_of::<News>()
    }
}

/// Leaves `k` of `from`, chosen at random.
fn draw(from: &mut Vec<usize>, k: usize, rng: &mut dyn FnMut() -> u64) {
    let k = k.min(from.len());
    for i in 0..k {
        let left = (from.len() - i) as u64;
        let j = usize::try_from(rng() % left).unwrap_or(0);
        from.swap(i, i + j);
    }
    from.truncate(k);
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation)]
mod tests {
    use super::*;

    #[test]
    fn the_logarithm_is_rounded_up() {
        for n in 1..=2_000usize {
            let exact = (n as f64).ln().ceil() as usize;
            assert_eq!(ceil_ln(n), exact, "{n}");
        }
    }

    #[test]
    fn a_draw_is_fair_and_takes_each_at_most_once() {
        let mut x = 3u64;
        let mut rng = move || {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            x >> 11
        };
        let mut seen = [0u32; 20];
        for _ in 0..10_000 {
            let mut from: Vec<usize> = (0..20).collect();
            draw(&mut from, 5, &mut rng);
            from.sort_unstable();
            from.dedup();
            assert_eq!(from.len(), 5);
            from.iter().for_each(|i| seen[*i] += 1);
        }
        assert!(seen.iter().all(|n| (2_200..2_800).contains(n)), "{seen:?}");
    }
}
