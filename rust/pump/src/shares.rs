//! What rules with shares must know: who is there, and that a clock was set. spec: pace-3, pace-7

use gabion_admit::Crowd;
use gabion_node::{Node, Now};

use crate::counters::Counters;
use crate::limits::{CLOCK_JUMP_NS, CROWD_EVERY_NS};

#[derive(Debug)]
pub(crate) struct Shares {
    /// A resting driver looks at its rows this much later.
    rest_ns: u64,
    due_ns: u64,
    /// Cluster time ahead of monotonic time at the last turn.
    offset_ns: Option<i128>,
}

impl Shares {
    pub(crate) fn new(rest_ns: u64) -> Self {
        Shares {
            rest_ns,
            due_ns: 0,
            offset_ns: None,
        }
    }

    pub(crate) fn turn<T: Counters + ?Sized>(&mut self, table: &T, node: &Node, now: Now) {
        let offset_ns = i128::from(now.cluster_ns) - i128::from(now.mono_ns);
        let before_ns = self.offset_ns.replace(offset_ns).unwrap_or(offset_ns);
        if (offset_ns - before_ns).unsigned_abs() > u128::from(CLOCK_JUMP_NS) {
            table.forget_before(now.cluster_ns);
        }
        if now.mono_ns < self.due_ns {
            return;
        }
        self.due_ns = now.mono_ns.saturating_add(CROWD_EVERY_NS);
        let standing = node.standing();
        let lag_ns = standing.news_ns.saturating_add(self.rest_ns);
        table.set_crowd(Crowd::new(standing.members, standing.place, lag_ns));
    }
}
