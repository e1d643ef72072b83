//! What the pump needs of counters: one table, or several behind one numbering of rules.
//!
//! I own the joint numbering: rules and rows of the tables, one table after the other. I promise
//! that no table starves another of a turn's budget. I never hold a count.

use std::sync::Arc;

use gabion_admit::Crowd;
use gabion_rule::{Key, RuleIdx};
use gabion_table::{DirtyRow, Mem, Publish, Table};

/// Counters that a pump can serve. The methods mean what they mean of a [`Table`].
pub trait Counters {
    /// Row slots of a rule; 0 when there is no such rule.
    fn capacity(&self, rule: RuleIdx) -> u64;

    /// Calls `f` with rows that changed; at most `budget`. Returns how many rows.
    fn drain_dirty(&self, budget: usize, now_ns: u64, f: &mut dyn FnMut(DirtyRow)) -> usize;

    /// Visits `rows` rows from `cursor`, which is advanced and wraps.
    fn scrub(&self, cursor: &mut u64, rows: usize, now_ns: u64, f: &mut dyn FnMut(DirtyRow));

    /// Shows what all other origins counted, if the key has a row.
    fn publish_remote(
        &self,
        rule: RuleIdx,
        key: Key,
        epoch: u64,
        total: u64,
        now_ns: u64,
    ) -> Publish;

    /// As `publish_remote`, but claims a row for a key that has none.
    fn publish_remote_or_claim(
        &self,
        rule: RuleIdx,
        key: Key,
        epoch: u64,
        total: u64,
        now_ns: u64,
    ) -> Publish;

    /// Says who is there, for rules that are paced.
    fn set_crowd(&self, crowd: Crowd);

    /// What was admitted before is not known, or was counted by another clock.
    fn forget_before(&self, now_ns: u64);
}

impl<M: Mem> Counters for Table<M> {
    fn capacity(&self, rule: RuleIdx) -> u64 {
        Table::capacity(self, rule)
    }

    fn drain_dirty(&self, budget: usize, now_ns: u64, f: &mut dyn FnMut(DirtyRow)) -> usize {
        Table::drain_dirty(self, budget, now_ns, f)
    }

    fn scrub(&self, cursor: &mut u64, rows: usize, now_ns: u64, f: &mut dyn FnMut(DirtyRow)) {
        Table::scrub(self, cursor, rows, now_ns, f);
    }

    fn publish_remote(
        &self,
        rule: RuleIdx,
        key: Key,
        epoch: u64,
        total: u64,
        now_ns: u64,
    ) -> Publish {
        Table::publish_remote(self, rule, key, epoch, total, now_ns)
    }

    fn publish_remote_or_claim(
        &self,
        rule: RuleIdx,
        key: Key,
        epoch: u64,
        total: u64,
        now_ns: u64,
    ) -> Publish {
        Table::publish_remote_or_claim(self, rule, key, epoch, total, now_ns)
    }

    fn set_crowd(&self, crowd: Crowd) {
        Table::set_crowd(self, crowd);
    }

    fn forget_before(&self, now_ns: u64) {
        Table::forget_before(self, now_ns);
    }
}

/// Tables that are joined; nginx has at most as many zones.
const PARTS_MAX: usize = 64;

struct Part<M: Mem> {
    table: Arc<Table<M>>,
    /// Number of its first rule.
    first: RuleIdx,
    rules: RuleIdx,
    rows: u64,
}

/// Several tables as one. Rules are numbered through: those of the first table, then those of the
/// second, and so on. spec: pmp-13
pub struct Joined<M: Mem> {
    parts: Vec<Part<M>>,
}

impl<M: Mem> Joined<M> {
    /// Joins tables, each with its number of rules; those without rules, rules beyond 65,535 and
    /// tables beyond 64 are left out.
    pub fn new(tables: impl IntoIterator<Item = (Arc<Table<M>>, usize)>) -> Self {
        let mut parts = Vec::new();
        let mut first: RuleIdx = 0;
        for (table, rules) in tables {
            let room = RuleIdx::MAX - first;
            let rules = RuleIdx::try_from(rules).unwrap_or(RuleIdx::MAX).min(room);
            if rules == 0 || parts.len() == PARTS_MAX {
                continue;
            }
            let rows = (0..rules).map(|rule| table.capacity(rule)).sum();
            parts.push(Part {
                table,
                first,
                rules,
                rows,
            });
            first += rules;
        }
        Joined { parts }
    }

    fn part_of(&self, rule: RuleIdx) -> Option<(&Table<M>, RuleIdx)> {
        let after = self.parts.partition_point(|part| part.first <= rule);
        let part = self.parts.get(after.checked_sub(1)?)?;
        let within = rule.checked_sub(part.first).filter(|r| *r < part.rules)?;
        Some((&part.table, within))
    }
}

/// The row of a part, as the whole numbers it.
fn numbered(first: RuleIdx, mut row: DirtyRow) -> DirtyRow {
    row.rule = row.rule.saturating_add(first);
    row
}

impl<M: Mem> Counters for Joined<M> {
    fn capacity(&self, rule: RuleIdx) -> u64 {
        self.part_of(rule).map_or(0, |(table, r)| table.capacity(r))
    }

    fn drain_dirty(&self, budget: usize, now_ns: u64, f: &mut dyn FnMut(DirtyRow)) -> usize {
        let share = (budget / self.parts.len().max(1)).max(1);
        let mut left = budget;
        // First each has its share; then what is left goes to those that used theirs up.
        let mut hungry = u64::MAX;
        for most in [share, budget] {
            for (at, part) in self.parts.iter().enumerate() {
                let most = most.min(left);
                if most == 0 || hungry >> at & 1 == 0 {
                    continue;
                }
                let first = part.first;
                let taken = part
                    .table
                    .drain_dirty(most, now_ns, &mut |row| f(numbered(first, row)));
                left = left.saturating_sub(taken);
                if taken < most {
                    hungry &= !(1 << at);
                }
            }
        }
        budget - left
    }

    fn scrub(&self, cursor: &mut u64, rows: usize, now_ns: u64, f: &mut dyn FnMut(DirtyRow)) {
        let total: u64 = self.parts.iter().map(|part| part.rows).sum();
        if total == 0 {
            return;
        }
        let mut left = u64::try_from(rows).unwrap_or(u64::MAX).min(total);
        *cursor %= total;
        while left > 0 {
            let mut within = *cursor;
            let part = self.parts.iter().find(|part| {
                let here = within < part.rows;
                if !here {
                    within -= part.rows;
                }
                here
            });
            let Some(part) = part else { return };
            let count = left.min(part.rows - within);
            let first = part.first;
            let rows = usize::try_from(count).unwrap_or(usize::MAX);
            part.table.scrub(&mut within, rows, now_ns, &mut |row| {
                f(numbered(first, row))
            });
            *cursor = (*cursor + count) % total;
            left -= count;
        }
    }

    fn publish_remote(
        &self,
        rule: RuleIdx,
        key: Key,
        epoch: u64,
        total: u64,
        now_ns: u64,
    ) -> Publish {
        let part = self.part_of(rule);
        part.map_or(Publish::Stale, |(table, rule)| {
            table.publish_remote(rule, key, epoch, total, now_ns)
        })
    }

    fn publish_remote_or_claim(
        &self,
        rule: RuleIdx,
        key: Key,
        epoch: u64,
        total: u64,
        now_ns: u64,
    ) -> Publish {
        let part = self.part_of(rule);
        part.map_or(Publish::Stale, |(table, rule)| {
            table.publish_remote_or_claim(rule, key, epoch, total, now_ns)
        })
    }

    fn set_crowd(&self, crowd: Crowd) {
        self.parts.iter().for_each(|p| p.table.set_crowd(crowd));
    }

    fn forget_before(&self, now_ns: u64) {
        self.parts
            .iter()
            .for_each(|p| p.table.forget_before(now_ns));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_admit::Plan;
    use gabion_rule::{Algorithm, CounterIdentity, Mode, Sliding};
    use gabion_table::{Charge, RawMem, SubSpec};
    use std::collections::BTreeMap;

    const HOUR_NS: u64 = 3_600_000_000_000;
    const NOW_NS: u64 = 1_700_000_000_000_000_000;

    fn sub(name: u8) -> SubSpec {
        SubSpec {
            identity: CounterIdentity([name; 16]),
            plan: Plan::new(&Algorithm::Window {
                limit: 1_000,
                window_ns: HOUR_NS,
                bucket_ns: HOUR_NS,
                sliding: Sliding::Live,
            }),
            cardinality: None,
        }
    }

    /// Tables of two, none and one rule.
    fn tables() -> (Vec<Arc<Table<RawMem>>>, Joined<RawMem>) {
        let rules = [vec![sub(1), sub(2)], vec![sub(3)]];
        let tables: Vec<_> = rules
            .iter()
            .map(|rules| Arc::new(Table::private(1 << 17, rules).unwrap()))
            .collect();
        let joined = Joined::new([
            (Arc::clone(&tables[0]), 2),
            (Arc::clone(&tables[0]), 0),
            (Arc::clone(&tables[1]), 1),
        ]);
        (tables, joined)
    }

    fn hit(table: &Table<RawMem>, rule: RuleIdx, key: u64) {
        let mut one = [Charge::new(rule, Key::new(key, key), 1, Mode::Enforce, 0)];
        table.decide(&mut one, NOW_NS);
    }

    #[test]
    fn rules_are_numbered_through_and_each_total_goes_to_its_table() {
        let (tables, joined) = tables();
        hit(&tables[0], 1, 7);
        hit(&tables[1], 0, 8);
        let mut seen = BTreeMap::new();
        joined.drain_dirty(10, NOW_NS, &mut |row| {
            seen.insert(row.rule, row.key);
        });
        assert_eq!(seen, [(1, Key::new(7, 7)), (2, Key::new(8, 8))].into());
        assert_eq!(joined.capacity(2), tables[1].capacity(0));
        assert_eq!(joined.capacity(3), 0);
        let epoch = NOW_NS / HOUR_NS;
        let key = Key::new(8, 8);
        let done = joined.publish_remote(2, key, epoch, 40, NOW_NS);
        assert_eq!(done, Publish::Published);
        assert_eq!(tables[1].read(0, key, NOW_NS).used, 41);
        let gone = joined.publish_remote_or_claim(3, key, epoch, 40, NOW_NS);
        assert_eq!(gone, Publish::Stale);
    }

    #[test]
    fn a_flooded_table_leaves_the_other_its_share_and_the_budget_is_kept() {
        let (tables, joined) = tables();
        (1..=400).for_each(|key| hit(&tables[0], 0, key));
        (1..=20).for_each(|key| hit(&tables[1], 0, key));
        let mut by_rule: BTreeMap<RuleIdx, usize> = BTreeMap::new();
        let taken = joined.drain_dirty(90, NOW_NS, &mut |row| {
            *by_rule.entry(row.rule).or_default() += 1;
        });
        assert_eq!((taken, by_rule[&2]), (90, 20));
        let mut rest = 0;
        while joined.drain_dirty(90, NOW_NS, &mut |_| rest += 1) > 0 {}
        assert_eq!(rest, 400 - 70, "what was left over stays marked");
    }

    #[test]
    fn the_scrub_visits_every_row_of_every_table_once_a_pass() {
        let (tables, joined) = tables();
        for key in 1..=50 {
            hit(&tables[0], 0, key);
            hit(&tables[0], 1, key);
            hit(&tables[1], 0, key);
        }
        let total: u64 = (0..3).map(|rule| joined.capacity(rule)).sum();
        for step in [1, 17, 100_000] {
            let (mut cursor, mut seen, mut visited) = (total - 3, BTreeMap::new(), 0);
            while visited < total {
                let rows = usize::try_from(total - visited).unwrap().min(step);
                joined.scrub(&mut cursor, rows, NOW_NS, &mut |row| {
                    *seen.entry((row.rule, row.key.a)).or_insert(0) += 1;
                });
                visited += rows as u64;
            }
            assert_eq!(cursor, total - 3);
            assert_eq!(seen.len(), 150, "step {step}");
            assert!(seen.values().all(|times| *times == 1), "step {step}");
        }
    }
}
