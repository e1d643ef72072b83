//! What members may cost: frames and bytes per second, and memory. Checkers `bounds` (what one
//! frame may be) and `budget`.
//!
//! The budgets, for one member and one second, with L links, `a` hits admitted there in this and
//! the last second (where news is forwarded: anywhere), `f` frames received, R rows (rule, key,
//! epoch) that anybody may still count:
//!
//! - frames, while no fault is on: `L * (30 + min(a, 1000) + R/12) + f/2 + 10`. A hit is at most
//!   one round, a round one frame a link (two where links have delays of their own: those that
//!   overtake others look like losses, and rows are sent again); 30 are heartbeats, digests and
//!   cold rows; every other frame received may be answered; and rows are repaired.
//! - frames, always: `packets_per_second + L * (300 + R/4) + f`.
//! - bytes, while no fault is on: `70 * frames + L * (20 * a + 30 * R)`; always: as many frames of
//!   the greatest length.
//! - rows held: R, and `max_cells` in any case. Their memory: 128 bytes each (a cell, an index slot
//!   and up to 12 origins), 16 KiB for each (rule, epoch) that is kept or about to go (a segment of
//!   cells, one of origins, an index page), and 704 KiB of emptied segments kept for reuse.

use gabion_node::limits::GRACE_EPOCHS;
use gabion_node::Fanout;
use gabion_wire::MAX_FRAME_BYTES;

use crate::check::RECOVERY_NS;
use crate::config::{Plant, SECOND};
use crate::world::World;

/// Members meet in this time; until then they say more than they will.
const MEETING_NS: u64 = 4 * SECOND;
/// Rows that are over are still held for so many epochs: their memory is given back in slices.
const EXPIRY_EPOCHS: u64 = 2;
/// Worlds with more counters than this are too large to be counted each second.
const COUNTERS_MAX: usize = 50_000;
/// Length of a padded frame, when that fault is planted.
const FAT_BYTES: usize = 1_150;

/// Memory of emptied segments that a store keeps for reuse: 64 of cells, 64 of origins.
const SPARE_BYTES: u64 = 704 << 10;
/// Memory of a row at most.
const ROW_BYTES: u64 = 128;
/// Memory of a (rule, epoch), beside its rows.
const SHELF_BYTES: u64 = 16 << 10;

/// What a member sent in this second and why.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Traffic {
    pub(crate) frames: u64,
    pub(crate) bytes: u64,
    pub(crate) heard: u64,
    pub(crate) admitted: u64,
    admitted_before: u64,
}

/// Budgets of one member for one second.
struct Budget {
    frames: u64,
    bytes: u64,
    cells: u64,
    memory: u64,
}

impl World {
    /// One frame leaves a member: `bounds` looks at it, `budget` counts it.
    pub(crate) fn account(&mut self, from: usize, bytes: &[u8]) {
        self.report.checks += 1;
        let mut length = bytes.len();
        if length > MAX_FRAME_BYTES {
            self.violate("bounds", from, format!("a frame of {length} bytes"));
        }
        if self.config.plant == Plant::FatFrames {
            length = FAT_BYTES;
        }
        let traffic = &mut self.members[from].traffic;
        traffic.frames += 1;
        traffic.bytes += u64::try_from(length).unwrap_or(0);
    }

    /// `budget`: what each member sent in the last second, and what it holds.
    pub(crate) fn check_budgets(&mut self) {
        let rows = self.rows_that_may_count();
        let well_ns = self.troubled_ns.saturating_add(RECOVERY_NS);
        let met = self.now_ns > MEETING_NS;
        let calm = met && (self.troubled_ns == 0 || self.now_ns > well_ns + SECOND);
        let forwards = matches!(self.config.node.fanout, Fanout::Members(_));
        let all = |count: fn(&Traffic) -> u64| -> u64 {
            self.members
                .iter()
                .map(|member| count(&member.traffic))
                .sum()
        };
        let everywhere = (all(|held| held.admitted), all(|held| held.admitted_before));
        for member in 0..self.members.len() {
            let mut traffic = self.members[member].traffic;
            self.members[member].traffic = Traffic {
                admitted_before: traffic.admitted,
                ..Traffic::default()
            };
            if forwards {
                (traffic.admitted, traffic.admitted_before) = everywhere;
            }
            if self.members[member].driving(self.now_ns) {
                self.check_budget(member, &traffic, rows, calm);
            }
        }
    }

    fn check_budget(&mut self, member: usize, traffic: &Traffic, rows: Option<u64>, calm: bool) {
        let budget = self.budget(member, traffic, rows, calm);
        let stats = self.members[member].node.stats();
        let (cells, memory) = (stats.cells, stats.cell_bytes);
        self.report.checks += 4;
        let used = [
            (traffic.frames, budget.frames, "frames sent in a second"),
            (traffic.bytes, budget.bytes, "bytes sent in a second"),
            (cells, budget.cells, "rows held"),
            (memory, budget.memory, "bytes of rows held"),
        ];
        for (n, (used, most, what)) in used.into_iter().enumerate() {
            // The shares of `cells` and of their bytes are one figure.
            let share = &mut self.report.budget_permille[n.min(2)];
            *share = (*share).max(used * 1_000 / most.max(1));
            if used > most {
                let detail = format!("{used} {what}, budget {most}, rows {rows:?}, {traffic:?}");
                self.violate("budget", member, detail);
            }
        }
    }

    fn budget(&self, member: usize, traffic: &Traffic, rows: Option<u64>, calm: bool) -> Budget {
        let stats = self.members[member].node.stats();
        let links = u64::try_from(self.members.len()).unwrap_or(u64::MAX) - 1;
        let (heard, tunables) = (traffic.heard, &self.config.node);
        let max_cells = u64::from(tunables.max_cells);
        // What is known of a forged world is what it is bounded by.
        let forged = !self.config.authenticated && self.network.stats.damaged > 0;
        let counted = rows.filter(|_| !forged);
        let rows = counted.unwrap_or(max_cells).min(max_cells);
        let admitted = traffic.admitted + traffic.admitted_before;
        let always = tunables.packets_per_second + links * (300 + rows / 4) + heard;
        let longest = u64::try_from(MAX_FRAME_BYTES).unwrap_or(u64::MAX);
        let (frames, bytes) = if calm {
            let rounds = admitted.min(1_000) * self.sent_for_a_round();
            let frames = links * (30 + rounds + rows / 12) + heard / 2 + 10;
            (frames, 70 * frames + links * (20 * admitted + 30 * rows))
        } else {
            (always, always * longest)
        };
        Budget {
            frames: frames.min(always),
            bytes,
            cells: rows,
            memory: SPARE_BYTES + rows * ROW_BYTES + (stats.shelves + 4) * SHELF_BYTES,
        }
    }

    /// Frames a link may need for one round: what is overtaken is taken for lost. spec: link-9
    fn sent_for_a_round(&self) -> u64 {
        if self.config.links.is_empty() {
            1
        } else {
            2
        }
    }

    /// Rows that some member may still hold, or `None` when they cannot be counted.
    fn rows_that_may_count(&self) -> Option<u64> {
        if self.hit_from_outside || self.truth.len() > COUNTERS_MAX {
            return None;
        }
        let there = || self.members.iter().filter(|member| !member.gone);
        let floor = |rule| {
            let plan = self.plan(rule);
            let now_of = |ns| plan.epoch_of(ns);
            // A driver that stood still has not looked yet: that is its second of grace.
            let clock = |m: &crate::member::Member| {
                m.clock.cluster_ns(self.now_ns).saturating_sub(2 * SECOND)
            };
            let oldest = there()
                .map(|member| now_of(clock(member)))
                .min()
                .unwrap_or(0);
            oldest.saturating_sub(u64::from(plan.live_epochs()) + GRACE_EPOCHS + EXPIRY_EPOCHS)
        };
        let mut floors = Vec::new();
        for rule in 0..self.config.rules.len() {
            floors.push(floor(gabion_rule::RuleIdx::try_from(rule).unwrap_or(0)));
        }
        Some(self.truth.rows_from(&floors))
    }
}
