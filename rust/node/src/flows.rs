//! How fast each origin admits hits of each limiter, as seen here.
//!
//! I own, per (limiter, origin) with news in the last ten seconds, the busiest tenth of a second
//! and the largest jump of one count. I promise: one step per section of rows and per own count,
//! and a bound on what I hold; beyond it a new origin is counted with this member's own hits, so
//! that nothing is understated by more than one limit. spec: bnd-5

use std::collections::BTreeMap;

use gabion_rule::RuleIdx;

use crate::limits::{FLOWS_MAX, FLOW_SLOT_NS};
use crate::origins::{OriginIdx, NO_ORIGIN};

/// Slots in one period; the last one or two periods count.
const SLOTS: u64 = 50;
/// Slots in a second.
const SLOTS_PER_SECOND: u64 = 10;

/// One origin's hits of one limiter.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Flow {
    slot: u64,
    in_slot: u64,
    /// Hits in the busiest slot of this and of the last period.
    peak: [u64; 2],
    /// Largest rise of one count at once, in this and in the last period.
    jump: [u32; 2],
    /// First and last hit of a run without a pause as long as the heartbeat.
    run_ns: (u64, u64),
}

impl Flow {
    fn roll(&mut self, now_ns: u64) {
        let slot = now_ns / FLOW_SLOT_NS;
        if slot <= self.slot {
            return;
        }
        match (slot / SLOTS).saturating_sub(self.slot / SLOTS) {
            0 => {}
            1 => {
                self.peak = [0, self.peak[0]];
                self.jump = [0, self.jump[0]];
            }
            _ => (self.peak, self.jump) = ([0; 2], [0; 2]),
        }
        (self.slot, self.in_slot) = (slot, 0);
    }

    fn note(&mut self, now_ns: u64, hits: u64, jump: u32, pause_ns: u64) {
        self.roll(now_ns);
        self.in_slot = self.in_slot.saturating_add(hits);
        self.peak[0] = self.peak[0].max(self.in_slot);
        self.jump[0] = self.jump[0].max(jump);
        if self.run_ns.1 == 0 || now_ns > self.run_ns.1.saturating_add(pause_ns) {
            self.run_ns.0 = now_ns;
        }
        self.run_ns.1 = now_ns;
    }

    /// As it is at `now_ns`.
    pub(crate) fn at(mut self, now_ns: u64) -> Flow {
        self.roll(now_ns);
        self
    }

    /// Hits per second in the busiest slot.
    pub(crate) fn per_second(&self) -> u64 {
        let peak = self.peak[0].max(self.peak[1]);
        peak.saturating_mul(SLOTS_PER_SECOND)
    }

    /// The largest jump of one count, hits.
    pub(crate) fn jump(&self) -> u64 {
        u64::from(self.jump[0].max(self.jump[1]))
    }

    /// First and last hit of the run that the last hit is of, monotonic nanoseconds.
    pub(crate) fn run_ns(&self) -> (u64, u64) {
        self.run_ns
    }

    fn is_idle(&self) -> bool {
        self.peak == [0; 2]
    }
}

/// All flows. Own hits are those of [`NO_ORIGIN`].
#[derive(Debug, Default)]
pub(crate) struct Flows {
    flows: BTreeMap<(RuleIdx, OriginIdx), Flow>,
}

impl Flows {
    /// `hits` of `origin` became known, one count by `jump` at once.
    pub(crate) fn note(
        &mut self,
        (limiter, origin): (RuleIdx, OriginIdx),
        now_ns: u64,
        (hits, jump): (u64, u32),
        pause_ns: u64,
    ) {
        let full = self.flows.len() >= FLOWS_MAX;
        let name = match full && !self.flows.contains_key(&(limiter, origin)) {
            true => (limiter, NO_ORIGIN),
            false => (limiter, origin),
        };
        let flow = self.flows.entry(name).or_default();
        flow.note(now_ns, hits, jump, pause_ns);
    }

    /// The flows of one limiter, as they are at `now_ns`.
    pub(crate) fn of(
        &self,
        limiter: RuleIdx,
        now_ns: u64,
    ) -> impl Iterator<Item = (OriginIdx, Flow)> + '_ {
        let all = self.flows.range((limiter, 0)..=(limiter, OriginIdx::MAX));
        all.map(move |((_, origin), flow)| (*origin, flow.at(now_ns)))
    }

    /// Forgets flows without news in the last two periods.
    pub(crate) fn forget_idle(&mut self, now_ns: u64) {
        self.flows.retain(|_, flow| !flow.at(now_ns).is_idle());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOT: u64 = FLOW_SLOT_NS;

    #[test]
    fn the_busiest_slot_counts_for_one_to_two_periods() {
        let mut flow = Flow::default();
        for n in 0..20 {
            flow.note(100 * SLOT + n, 1, 3, SLOT);
        }
        flow.note(101 * SLOT, 5, 1, SLOT);
        assert_eq!((flow.per_second(), flow.jump()), (200, 3));
        let later = flow.at(150 * SLOT);
        assert_eq!((later.per_second(), later.jump()), (200, 3));
        let late = flow.at(200 * SLOT);
        assert_eq!((late.per_second(), late.jump()), (0, 0));
        assert!(late.is_idle());
    }

    #[test]
    fn a_pause_begins_a_new_run() {
        let mut flow = Flow::default();
        flow.note(1_000, 1, 1, 50);
        flow.note(1_040, 1, 1, 50);
        assert_eq!(flow.run_ns(), (1_000, 1_040));
        flow.note(1_200, 1, 1, 50);
        assert_eq!(flow.run_ns(), (1_200, 1_200));
    }

    #[test]
    fn what_is_held_is_bounded_and_nothing_is_lost() {
        let mut flows = Flows::default();
        let origins = u16::try_from(FLOWS_MAX + 100).unwrap();
        for origin in 0..origins {
            flows.note((0, origin), SLOT, (1, 1), SLOT);
        }
        assert!(flows.flows.len() <= FLOWS_MAX + 1);
        let hits: u64 = flows.of(0, SLOT).map(|(_, f)| f.per_second() / 10).sum();
        assert_eq!(hits, u64::from(origins));
        flows.forget_idle(SLOT * 1_000);
        assert!(flows.flows.is_empty());
    }
}
