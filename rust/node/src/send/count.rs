//! What a frame that was written adds to the counters, and what it passed over.

use super::Plan;
use crate::node::Node;

impl Plan {
    /// Where to go on from `from`, when the log begins at `tail`.
    pub(super) fn still_there(&mut self, from: u64, tail: u64) -> u64 {
        if from < tail {
            self.passed.push((from, None)); // spec: bnd-4
        }
        from.max(tail)
    }
}

impl Node {
    pub(super) fn count(&mut self, plan: &Plan, wants_ack: bool) {
        let s = &mut self.stats;
        let rows = plan.rows.len() as u64;
        s.rows_out += rows;
        if plan.resent {
            s.rows_resent += rows - plan.relayed - plan.repaired;
        }
        s.rows_relayed += plan.relayed;
        s.rows_repaired += plan.repaired;
        s.registers_out += (plan.eras.len() + plan.flags.len()) as u64;
        s.digests_out += plan.digests.len() as u64;
        s.heartbeats_out += u64::from(plan.beat && !wants_ack);
        s.ack_frames_out += u64::from(plan.ack && !wants_ack && !plan.beat);
    }
}
