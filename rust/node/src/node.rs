//! The node: its state, its inputs and outputs. Behaviour is in the files beside this one.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use gabion_rule::{Key, RuleIdx};
use gabion_wire::{Digest, KeyRing, Origin};

use crate::api::{Config, Effect, Input, LimiterSpec, Now, PeerView};
use crate::cells::{Cells, Refused};
use crate::clock::Clock;
use crate::due::Due;
use crate::emit::Emitter;
use crate::flood::Flood;
use crate::flows::Flows;
use crate::limits::{Tunables, FUTURE_EPOCHS_MAX, GRACE_EPOCHS, MAX_EFFECTS, MAX_LIMITERS, SECOND};
use crate::link::Link;
use crate::log::DirtyLog;
use crate::marks::Marks;
use crate::notes::Notes;
use crate::registers::Registers;
use crate::repair::Repair;
use crate::spread::Spreader;
use crate::stalls::Stalls;
use crate::stats::NodeStats;

/// Room for totals that wait to be polled is given back beyond this, entries.
const TOLD_KEPT: usize = 1 << 14;

/// The one protocol machine of a member.
pub struct Node {
    pub(crate) me: Origin,
    pub(crate) session: u32,
    pub(crate) cluster: u32,
    pub(crate) keys: Option<KeyRing>,
    pub(crate) limiters: Vec<LimiterSpec>,
    /// Which part of strict rules this member has. spec: pace-6
    pub(crate) place: Option<u32>,
    pub(crate) by_short: BTreeMap<u64, RuleIdx>,
    pub(crate) t: Tunables,
    /// The ack delay as configured; the one of `t` follows the rounds.
    pub(crate) ack_delay_ns: u64,
    pub(crate) cells: Cells,
    pub(crate) log: DirtyLog,
    pub(crate) emit: Emitter,
    /// When places of the log were given out.
    pub(crate) marks: Marks,
    /// When the driver stood still.
    pub(crate) stalls: Stalls,
    /// How fast hits are admitted, here and elsewhere.
    pub(crate) flows: Flows,
    /// Members that share an error budget, this one included.
    pub(crate) members: u64,
    pub(crate) registers: Registers,
    pub(crate) spread: Spreader,
    /// Boxed: a link is taken out while its frame is written.
    pub(crate) links: Vec<Option<Box<Link>>>,
    /// When each link is due, so that a crowd of idle links costs little. `stale` = look at all.
    pub(crate) due: Due,
    pub(crate) stale: bool,
    pub(crate) by_addr: BTreeMap<SocketAddr, usize>,
    pub(crate) flood: Flood,
    pub(crate) by_identity: BTreeMap<(Origin, u32), usize>,
    /// Next link to be asked for a frame.
    pub(crate) turn: usize,
    /// Largest sequence number used on any link: new links start above it. spec: link-3
    pub(crate) seq_max: u64,
    pub(crate) clock: Clock,
    pub(crate) repairs: Vec<Repair>,
    /// Walk over the digests of origins that are gone. spec: rep-10
    pub(crate) foreign_turn: (Option<(u16, u64)>, usize),
    /// Peers that were asked for digests of other origins since this member started, or was last
    /// without any peer.
    pub(crate) asked_peers: u32,
    pub(crate) asked_ns: u64,
    pub(crate) reply_tokens: (u64, u64),
    pub(crate) expire_next_ns: u64,
    /// Cluster time less monotonic time when epochs were last looked at.
    pub(crate) clock_base: u64,
    pub(crate) giving_back: bool,
    /// One last frame per peer, then nothing.
    pub(crate) leaving: bool,
    /// This heartbeat's digest of an origin that is gone, and until when it is the one.
    pub(crate) foreign_now: (Option<Digest>, u64),
    pub(crate) upkeep_next_ns: u64,
    /// Some link is relayed to. spec: link-12
    pub(crate) relaying: bool,
    /// Whom this member does not reach, as of the last upkeep. spec: link-12
    pub(crate) unreached_now: Vec<u64>,
    effects: VecDeque<Effect>,
    /// Cells whose new total waits to be polled; each is in it once.
    told: VecDeque<u32>,
    pub(crate) notes: Notes,
    pub(crate) stats: NodeStats,
    pub(crate) now: Now,
}

/// Where this process starts its numbers: elsewhere than its predecessors at the same address, so
/// that an ack meant for them is not taken for one of ours. spec: link-3
fn first_number(incarnation: u64, session: u32) -> u64 {
    let mixed = (incarnation ^ u64::from(session)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed >> 40
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node")
            .field("me", &self.me)
            .field("session", &self.session)
            .field("peers_up", &self.peers_up())
            .field("cells", &self.cells.len())
            .finish_non_exhaustive()
    }
}

/// Brings the limiters into their bounds and finds the first of each wire name.
fn name_limiters(limiters: &mut [LimiterSpec]) -> BTreeMap<u64, RuleIdx> {
    let mut by_short = BTreeMap::new();
    for (i, spec) in limiters.iter_mut().enumerate() {
        spec.epoch_ns = spec.epoch_ns.max(1);
        spec.live_epochs = spec.live_epochs.max(1);
        by_short
            .entry(spec.short)
            .or_insert(RuleIdx::try_from(i).unwrap_or(RuleIdx::MAX));
    }
    by_short
}

impl Node {
    /// A node without peers. Limiters beyond [`MAX_LIMITERS`] are ignored, and so is one with the
    /// wire name of an earlier one; an epoch length of 0 is taken as 1 ns, a node id of 0 as 1.
    pub fn new(config: Config, now_ns: u64) -> Self {
        let Config {
            node,
            incarnation,
            session,
            cluster,
            keys,
            mut limiters,
            tunables,
        } = config;
        limiters.truncate(MAX_LIMITERS);
        let by_short = name_limiters(&mut limiters);
        let smallest = limiters.iter().map(|l| l.epoch_ns).min().unwrap_or(SECOND);
        Node {
            me: Origin {
                node: node.max(1),
                incarnation,
            },
            session,
            cluster,
            keys,
            by_short,
            place: None,
            cells: Cells::new(&tunables),
            log: DirtyLog::new(tunables.dirty_log_entries),
            emit: Emitter::new(),
            marks: Marks::default(),
            stalls: Stalls::default(),
            flows: Flows::default(),
            members: 1,
            registers: Registers::default(),
            spread: Spreader::default(),
            links: Vec::new(),
            due: Due::default(),
            stale: false,
            by_addr: BTreeMap::new(),
            flood: Flood::new(),
            by_identity: BTreeMap::new(),
            turn: 0,
            seq_max: first_number(incarnation, session),
            clock: Clock::new(&tunables, smallest),
            repairs: Vec::new(),
            foreign_turn: (None, 0),
            asked_peers: 0,
            asked_ns: 0,
            reply_tokens: (tunables.unproven_replies_per_second, now_ns),
            expire_next_ns: now_ns,
            clock_base: 0,
            giving_back: false,
            leaving: false,
            foreign_now: (None, 0),
            upkeep_next_ns: now_ns,
            relaying: false,
            unreached_now: Vec::new(),
            effects: VecDeque::new(),
            told: VecDeque::new(),
            notes: Notes::default(),
            stats: NodeStats::default(),
            now: Now {
                mono_ns: now_ns,
                cluster_ns: now_ns,
            },
            limiters,
            ack_delay_ns: tunables.ack_delay_ns,
            t: tunables,
        }
    }

    /// Goes on under a higher session and from another address, as a restarted member does, but
    /// with all counts kept. The peer set is to be given again. For after [`Input::Leave`].
    // spec: link-14
    pub fn rejoin(&mut self, session: u32, now: Now) {
        self.told(now);
        for at in 0..self.links.len() {
            self.remove_link(at);
        }
        self.session = session;
        self.seq_max = self.seq_max.max(first_number(self.me.incarnation, session));
        self.asked_peers = 0;
        self.leaving = false;
    }

    /// Takes one input.
    pub fn handle(&mut self, input: Input<'_>, now: Now) {
        self.told(now);
        match input {
            Input::Datagram { from, bytes } => self.on_datagram(from, bytes),
            Input::Own {
                limiter,
                key,
                epoch,
                count,
            } => self.on_own(limiter, key, epoch, count),
            Input::Peers(set) => self.on_peers(set),
            Input::Leave => self.leave(),
            Input::Tick => self.on_time(),
        }
        self.stats.cells = u64::from(self.cells.len());
        self.stats.cells_max = self.stats.cells_max.max(self.stats.cells);
    }

    /// The next consequence, if any. Poll until `None` after each input.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        if let Some(effect) = self.effects.pop_front() {
            return Some(effect);
        }
        if self.told.is_empty() && self.told.capacity() > TOLD_KEPT {
            self.told.shrink_to(TOLD_KEPT);
        }
        while let Some(id) = self.told.pop_front() {
            self.cells.clear_flag(id, crate::cells::TOLD);
            let Some(shelf) = self.cells.shelf_of(id) else {
                continue;
            };
            let Some(s) = self.cells.shelf(shelf) else {
                continue;
            };
            let (limiter, epoch, total) = (s.limiter, s.epoch, self.cells.remote_total(id));
            if total > 0 {
                let key = self.cells.cell(id).key();
                return Some(Effect::RemoteTotal {
                    limiter,
                    key,
                    epoch,
                    total,
                });
            }
        }
        None
    }

    /// Sum over all origins but this incarnation; 0 when nothing is known.
    pub fn remote_total(&self, limiter: RuleIdx, key: Key, epoch: u64) -> u64 {
        self.cell_of(limiter, key, epoch)
            .map_or(0, |id| self.cells.remote_total(id))
    }

    /// What this incarnation was told by [`Input::Own`] (or by a peer that kept it); 0 when
    /// unknown.
    pub fn own_count(&self, limiter: RuleIdx, key: Key, epoch: u64) -> u32 {
        self.cell_of(limiter, key, epoch)
            .map_or(0, |id| self.cells.cell(id).own)
    }

    fn cell_of(&self, limiter: RuleIdx, key: Key, epoch: u64) -> Option<u32> {
        self.cells.find(self.cells.shelf_at(limiter, epoch)?, key)
    }

    /// Every link, configured or not, for operators.
    pub fn peers(&self) -> impl Iterator<Item = PeerView> + '_ {
        let now = self.now.mono_ns;
        self.each_link()
            .filter(|l| l.alias_of.is_none())
            .map(move |l| PeerView {
                addr: l.addr,
                identity: l.origin().map(|o| (o.node, o.incarnation)),
                up: l.up,
                configured: l.configured,
                hears_us: l.up && l.hears_us(now, &self.t),
                rtt_ns: l.tx.srtt_ns,
                offset_ns: l
                    .origin()
                    .and_then(|o| self.clock.peer(o.node))
                    .map(|(o, _)| o),
                silent_ns: now.saturating_sub(l.last_in_ns),
                staleness_ns: self.staleness_ns(l),
                in_flight: l.tx.in_flight(),
                backlog: self.log.head().saturating_sub(l.cursor),
                differences: l.differences.clone(),
            })
    }

    /// How many links [`Node::peers`] would show.
    pub fn peer_count(&self) -> usize {
        self.each_link().filter(|l| l.alias_of.is_none()).count()
    }

    pub(crate) fn staleness_ns(&self, link: &Link) -> u64 {
        match link.up {
            true => self.unacknowledged_ns(link, self.now.mono_ns),
            false => 0,
        }
    }

    /// Counters since start.
    pub fn stats(&self) -> &NodeStats {
        &self.stats
    }

    /// Peers proven and heard within the time-out.
    pub fn peers_up(&self) -> usize {
        self.each_link()
            .filter(|l| l.up && l.alias_of.is_none())
            .count()
    }

    pub(crate) fn effect(&mut self, effect: Effect) {
        if self.effects.len() >= MAX_EFFECTS {
            self.stats.effects_dropped += 1;
        } else {
            self.effects.push_back(effect);
        }
    }

    /// A remote count of a cell rose: its total is told once, when polled.
    pub(crate) fn tell(&mut self, id: u32) {
        if !self.cells.cell(id).has(crate::cells::TOLD) {
            self.cells.set_flag(id, crate::cells::TOLD);
            self.told.push_back(id);
        }
    }

    pub(crate) fn refused(&mut self, why: Refused, origin: Option<Origin>) {
        match why {
            Refused::Full => {
                self.stats.refused_full += 1;
                self.note(crate::api::Note::CellsFull);
            }
            Refused::OriginShare => {
                self.stats.refused_origin_share += 1;
                if let Some(o) = origin {
                    self.note(crate::api::Note::OriginShareFull { node: o.node });
                }
            }
            Refused::Origins => self.stats.refused_origins += 1,
            Refused::Shelves => self.stats.refused_shelves += 1,
        }
    }

    /// Epochs of a limiter that are kept and accepted now. spec: time-5
    pub(crate) fn epochs(&self, limiter: RuleIdx) -> Option<(u64, u64)> {
        let spec = self.limiters.get(usize::from(limiter))?;
        let now = self.now.cluster_ns / spec.epoch_ns;
        let back = u64::from(spec.live_epochs) - 1 + GRACE_EPOCHS;
        let ahead = self
            .t
            .max_skew_ns
            .div_ceil(spec.epoch_ns)
            .min(FUTURE_EPOCHS_MAX);
        Some((now.saturating_sub(back), now.saturating_add(ahead)))
    }

    /// Does a shelf live long enough to be worth a digest? spec: rep-6
    pub(crate) fn is_lasting(&self, limiter: RuleIdx, epoch: u64) -> bool {
        let Some(spec) = self.limiters.get(usize::from(limiter)) else {
            return false;
        };
        let end = epoch
            .saturating_add(u64::from(spec.live_epochs))
            .saturating_mul(spec.epoch_ns);
        end > self.now.cluster_ns.saturating_add(self.t.idle_heartbeat_ns)
    }
}
