//! The way most requests go: one fixed window, its row is there and of the current epoch, nobody
//! interferes. The same steps as `charge.rs` takes for a fixed window, without what those
//! cases do not need. Anything else is left, untouched, to the general way.

use crate::layout::{Sub, HEAD, TAG_LINE};
use crate::mem::{Fault, Mem};
use crate::probe::Mix;
use crate::row::Spot;
use crate::types::Charge;
use crate::word::{tagged, tagged_count, tagged_epoch, HeadFormat, NARROW, WIDE};
use crate::Table;
use gabion_admit::{Outcome, Verdict, WindowPlan};

impl<M: Mem> Table<M> {
    /// Answers an enforcing charge, or does nothing and says `None`.
    #[inline(always)]
    pub(crate) fn decide_fast(
        &self,
        sub: &Sub,
        charge: &mut Charge,
        now_ns: u64,
    ) -> Option<Outcome> {
        let plan = sub.fast.as_ref()?;
        // Constant formats, so that shifts are constants.
        if sub.format == NARROW {
            self.decide_fixed(sub, plan, NARROW, charge, now_ns)
        } else {
            self.decide_fixed(sub, plan, WIDE, charge, now_ns)
        }
    }

    #[inline(always)]
    fn decide_fixed(
        &self,
        sub: &Sub,
        plan: &WindowPlan,
        fmt: HeadFormat,
        charge: &mut Charge,
        now_ns: u64,
    ) -> Option<Outcome> {
        let mix = Mix::of(charge.key);
        if sub.large {
            // Its line may be needed, and would come after that of the first.
            self.mem.prefetch(sub.tags + mix.second(sub) * TAG_LINE);
        }
        let fp_twice = mix.fp_twice();
        let found = match self.find_in(sub, fmt, mix.first(sub), fp_twice, charge.key, usize::MAX) {
            Some(spot) => Some(spot),
            None => self.find_in(sub, fmt, mix.second(sub), fp_twice, charge.key, usize::MAX),
        };
        let Spot { slot, head } = found?;
        let base = sub.row(slot);
        let (epoch, into_ns) = plan.split(now_ns);
        if !fmt.is_live_in(head, epoch) || charge.hits == 0 {
            return None;
        }
        // A fixed window has four remote words.
        let remote = self.mem.load(base + sub.remote_at + (epoch & 3) as usize);
        let of_now = tagged(fmt.generation(head), epoch, 0) >> 32;
        let counts = remote >> 32 == of_now
            || self.mem.planted(Fault::RejectSkipsRecheck)
                && tagged_epoch(remote) == tagged_epoch(of_now << 32);
        let remote = if counts {
            u64::from(tagged_count(remote))
        } else {
            0
        };
        let hits = u64::from(charge.hits);
        let before = fmt.count(head) + remote;
        let used = before + hits;
        charge.fail_open = None;
        if used > u64::from(plan.limit) {
            // spec: adm-26. When the row ended meanwhile, the general way looks for another.
            if !self.still_alive(sub, fmt, Spot { slot, head }) {
                return None;
            }
            self.refer(sub, slot, epoch);
            let reading = plan.reading_within(before, into_ns);
            charge.verdict = Verdict::denied(reading, plan.bucket_ns - into_ns);
            return Some(Outcome::Denied);
        }
        if self.mem.planted(Fault::MarkBeforeReserve) {
            self.mark_dirty(sub, slot);
        }
        // spec: adm-3. The count has room: it is at most the limit, and that fits.
        if self.mem.cas(base + HEAD, head, head + hits).is_err() {
            return None;
        }
        self.mark_reserved(sub, slot);
        charge.verdict = Verdict::allowed(plan.reading_within(used, into_ns));
        Some(Outcome::Allowed)
    }
}
