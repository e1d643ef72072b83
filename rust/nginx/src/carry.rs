//! Counts carried from one table to another of other rules or another size.
//!
//! I own what survives a reload that changes a zone: own counts of every live row whose rule is in
//! both tables, by counter identity. I promise that no count grows on the way, and that the old
//! table is only read. Remote totals are not carried; peers send them again.

use gabion_admit::Plan;
use gabion_rule::{Key, Mode, RuleIdx};
use gabion_table::{Charge, Mem, RowState, RowView, SubSpec, Table};

/// Bits of an epoch in a row.
const EPOCH_MASK: u64 = (1 << 22) - 1;

/// Copies the live rows; returns how many.
pub fn carry<M: Mem>(
    (old, old_rules): (&Table<M>, &[SubSpec]),
    (new, new_rules): (&Table<M>, &[SubSpec]),
    now_ns: u64,
) -> u64 {
    let place_of = |rule: RuleIdx| -> Option<(RuleIdx, &SubSpec)> {
        let identity = old_rules.get(usize::from(rule))?.identity;
        let at = new_rules.iter().position(|sub| sub.identity == identity)?;
        Some((u16::try_from(at).ok()?, &new_rules[at]))
    };
    let mut carried = 0;
    old.inspect(&mut |row: RowView| {
        let place = (row.state == RowState::Live)
            .then(|| place_of(row.rule))
            .flatten();
        let Some((rule, sub)) = place else { return };
        let counts = match &sub.plan {
            Plan::Window(_) => window_counts(&row, &sub.plan, now_ns),
            Plan::Gcra(_) => {
                let used = old.read(row.rule, row.key, now_ns).used;
                vec![(now_ns, u32::try_from(used).unwrap_or(u32::MAX))]
            }
        };
        let mut any = false;
        for (at_ns, hits) in counts {
            any |= charge(new, rule, row.key, hits, at_ns);
        }
        carried += u64::from(any);
    });
    carried
}

fn charge<M: Mem>(table: &Table<M>, rule: RuleIdx, key: Key, hits: u32, at_ns: u64) -> bool {
    // As a dry run: also an overshoot is carried.
    let mut one = [Charge::new(rule, key, hits, Mode::DryRun, 0)];
    hits > 0 && {
        table.decide(&mut one, at_ns);
        one[0].fail_open.is_none()
    }
}

/// The counts that still count, oldest first, each with a time in its epoch.
fn window_counts(row: &RowView, plan: &Plan, now_ns: u64) -> Vec<(u64, u32)> {
    let now = plan.epoch_of(now_ns);
    let head = u32::try_from(row.count).unwrap_or(u32::MAX);
    let all = row.ring.iter().copied().chain([(row.epoch, head)]);
    let mut counts: Vec<(u64, u32)> = all
        .filter_map(|(stored, count)| {
            let age = now.wrapping_sub(stored) & EPOCH_MASK;
            let live = age < u64::from(plan.live_epochs()) && count > 0;
            live.then(|| (now.saturating_sub(age), count))
        })
        .collect();
    counts.sort_unstable();
    // The ring may still hold the bucket that is the head's: the larger is the true one.
    counts.dedup_by(|later, first| {
        let same = later.0 == first.0;
        if same {
            first.1 = first.1.max(later.1);
        }
        same
    });
    let time = |epoch: u64| match epoch == now {
        true => now_ns,
        false => epoch.saturating_mul(plan.epoch_ns()),
    };
    counts
        .into_iter()
        .map(|(epoch, count)| (time(epoch), count))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_rule::{Algorithm, CounterIdentity, Rate, Sliding};
    use gabion_table::RawMem;

    const SECOND_NS: u64 = 1_000_000_000;
    const NOW_NS: u64 = 1_700_000_000 * SECOND_NS;

    fn sub(name: u8, algorithm: Algorithm) -> SubSpec {
        SubSpec {
            identity: CounterIdentity([name; 16]),
            plan: Plan::new(&algorithm),
            cardinality: None,
        }
    }

    fn sliding(name: u8, limit: u32) -> SubSpec {
        let (window_ns, bucket_ns, sliding) = (4 * SECOND_NS, SECOND_NS, Sliding::Live);
        let algorithm = Algorithm::Window {
            limit,
            window_ns,
            bucket_ns,
            sliding,
        };
        sub(name, algorithm)
    }

    fn bucket(name: u8) -> SubSpec {
        let rate = Rate {
            hits: 1,
            per_ns: 60 * SECOND_NS,
        };
        sub(name, Algorithm::token_bucket(rate, 10).unwrap())
    }

    fn hit(table: &Table<RawMem>, rule: RuleIdx, key: Key, at_ns: u64) -> u32 {
        let mut one = [Charge::new(rule, key, 1, Mode::Enforce, 0)];
        table.decide(&mut one, at_ns);
        one[0].verdict.reading.remaining
    }

    #[test]
    fn case_34_counts_follow_their_rule_into_a_table_of_another_size_and_order() {
        let old_rules = [sliding(1, 100), bucket(2), sliding(3, 50)];
        let new_rules = [bucket(2), sliding(9, 7), sliding(1, 100)];
        let old = Table::private(1 << 20, &old_rules).unwrap();
        let new = Table::private(1 << 17, &new_rules).unwrap();
        let key = |i: u64| Key::new(i + 1, i * 77);
        for (seconds, hits) in [(0u64, 5), (1, 7), (3, 11)] {
            for _ in 0..hits {
                hit(&old, 0, key(1), NOW_NS + seconds * SECOND_NS);
            }
        }
        for _ in 0..4 {
            hit(&old, 1, key(2), NOW_NS + 3 * SECOND_NS);
        }
        hit(&old, 2, key(3), NOW_NS + 3 * SECOND_NS);
        let now_ns = NOW_NS + 3 * SECOND_NS + 5;
        let carried = carry((&old, &old_rules), (&new, &new_rules), now_ns);
        assert_eq!(carried, 2, "the rule that is gone is not carried");
        assert_eq!(new.read(2, key(1), now_ns).used, 23);
        // The oldest bucket leaves the window as it would have left the old table.
        assert_eq!(new.read(2, key(1), now_ns + SECOND_NS).used, 18);
        assert_eq!(old.read(0, key(1), now_ns + SECOND_NS).used, 18);
        assert_eq!(new.read(0, key(2), now_ns).remaining, 6);
        assert_eq!(new.read(1, key(3), now_ns).used, 0);
    }

    #[test]
    fn dead_counts_are_left_behind() {
        let rules = [sliding(1, 100)];
        let old = Table::private(1 << 18, &rules).unwrap();
        let new = Table::private(1 << 18, &rules).unwrap();
        hit(&old, 0, Key::new(1, 1), NOW_NS);
        let later_ns = NOW_NS + 10 * SECOND_NS;
        assert_eq!(carry((&old, &rules), (&new, &rules), later_ns), 0);
        assert_eq!(new.read(0, Key::new(1, 1), later_ns).used, 0);
    }
}
