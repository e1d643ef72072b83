//! How full the rows of a rule are, for people. Loads only.

use gabion_rule::RuleIdx;

use crate::layout::{HEAD, TAG_LINE};
use crate::mem::Mem;
use crate::row::Spot;
use crate::types::Occupancy;
use crate::word::{tag_half, State};
use crate::Table;

impl<M: Mem> Table<M> {
    /// Counts rows of a rule that still count something at `now_ns`, in whole sets spread evenly
    /// over its rows, at most `rows_max` rows (but at least one set). Exact when
    /// [`Occupancy::looked_at`] is the rule's capacity; all zero for a rule that is not there.
    pub fn occupancy(&self, rule: RuleIdx, now_ns: u64, rows_max: u64) -> Occupancy {
        let Some(sub) = self.sub(rule) else {
            return Occupancy::default();
        };
        let sets = sub.row_count() / sub.ways;
        let wanted = usize::try_from(rows_max).unwrap_or(usize::MAX) / sub.ways;
        let looks = wanted.clamp(1, sets.max(1)).min(sets);
        let mut found = Occupancy::default();
        for look in 0..looks {
            let set = look * sets / looks;
            let line = sub.tags + set * TAG_LINE;
            for way in 0..sub.ways {
                found.looked_at += 1;
                // A row without a tag was never used: its line is not touched.
                if tag_half(self.mem.load(line + way / 2), way) == 0 {
                    continue;
                }
                let slot = set * sub.ways + way;
                let head = self.mem.load(sub.row(slot) + HEAD);
                let spot = Spot { slot, head };
                let live = sub.format.state(head) == State::Live
                    && !self.worth(sub, sub.format, spot, now_ns).dead;
                found.live += u64::from(live);
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{fixed, one, S, T0};

    #[test]
    fn a_rule_is_as_full_as_its_keys_that_still_count() {
        let rules = [fixed(1, 10, S), fixed(2, 10, 3_600 * S)];
        let table = Table::private(1 << 20, &rules).unwrap();
        let rows = table.capacity(0);
        for key in 0..1_000 {
            one(&table, 0, key, 1, T0);
        }
        let exact = table.occupancy(0, T0, u64::MAX);
        assert_eq!((exact.live, exact.looked_at), (1_000, rows));
        assert_eq!(
            table.occupancy(1, T0, u64::MAX).live,
            0,
            "another rule's rows"
        );
        let part = table.occupancy(0, T0, rows / 4);
        assert_eq!(part.looked_at, rows / 4 / 16 * 16);
        let estimate = part.estimate(rows);
        assert!((700..1_300).contains(&estimate), "{estimate}");
        assert!(table.occupancy(0, T0, 0).looked_at > 0, "at least one set");
        assert_eq!(
            table.occupancy(0, T0 + 10 * S, u64::MAX).live,
            0,
            "all over"
        );
        assert_eq!(table.occupancy(9, T0, 10), Occupancy::default());
    }
}
