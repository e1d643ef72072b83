//! What was really admitted, by whom and in which epoch: the yardstick of the checkers.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use gabion_rule::{Key, RuleIdx};

/// One life of one member: rows live as long as it.
pub type Life = u32;

/// Hits of one (rule, key, epoch), by life.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EpochTruth {
    by_life: BTreeMap<Life, u64>,
    /// Some hit might belong to a neighbouring epoch (a clock had gone back), so it is credited to
    /// both; or it was void when the clock went back. Totals are upper bounds.
    pub ambiguous: bool,
}

impl EpochTruth {
    /// All hits.
    pub fn total(&self) -> u64 {
        self.by_life.values().sum()
    }

    /// Hits of one life.
    pub fn of(&self, life: Life) -> u64 {
        self.by_life.get(&life).copied().unwrap_or(0)
    }

    /// Hits of all other lives.
    pub fn others(&self, life: Life) -> u64 {
        self.total() - self.of(life)
    }
}

/// Everything admitted in a world.
#[derive(Clone, Debug, Default)]
pub struct Truth {
    counters: BTreeMap<(RuleIdx, Key), BTreeMap<u64, EpochTruth>>,
}

impl Truth {
    /// Notes `hits` admitted and counted in `epoch` by `life`; `maybe` names other epochs that
    /// the table may have charged instead.
    pub fn admit(
        &mut self,
        rule: RuleIdx,
        key: Key,
        epoch: u64,
        maybe: &[u64],
        life: Life,
        hits: u64,
    ) {
        let epochs = self.counters.entry((rule, key)).or_default();
        *epochs
            .entry(epoch)
            .or_default()
            .by_life
            .entry(life)
            .or_default() += hits;
        for &other in maybe {
            epochs.entry(epoch).or_default().ambiguous = true;
            let other = epochs.entry(other).or_default();
            other.ambiguous = true;
            *other.by_life.entry(life).or_default() += hits;
        }
    }

    /// All hits of (rule, key) in `epochs`.
    pub fn window(&self, rule: RuleIdx, key: Key, epochs: RangeInclusive<u64>) -> u64 {
        self.counters.get(&(rule, key)).map_or(0, |held| {
            held.range(epochs).map(|(_, epoch)| epoch.total()).sum()
        })
    }

    /// Hits of (rule, key) in `epoch`.
    pub fn epoch(&self, rule: RuleIdx, key: Key, epoch: u64) -> EpochTruth {
        let held = self
            .counters
            .get(&(rule, key))
            .and_then(|epochs| epochs.get(&epoch));
        held.cloned().unwrap_or_default()
    }

    /// Every (rule, key) ever admitted.
    pub fn counters(&self) -> impl Iterator<Item = (RuleIdx, Key)> + '_ {
        self.counters.keys().copied()
    }

    /// Epochs of (rule, key) with hits, within `epochs`.
    pub fn epochs(
        &self,
        rule: RuleIdx,
        key: Key,
        epochs: RangeInclusive<u64>,
    ) -> impl Iterator<Item = (u64, &EpochTruth)> + '_ {
        let held = self
            .counters
            .get(&(rule, key))
            .filter(|_| !epochs.is_empty())
            .into_iter();
        held.flat_map(move |held| {
            held.range(epochs.clone())
                .map(|(&epoch, truth)| (epoch, truth))
        })
    }

    /// Epochs after `epoch` in which `life` was charged.
    pub fn later(&self, rule: RuleIdx, key: Key, epoch: u64, life: Life) -> Vec<u64> {
        let held = self.counters.get(&(rule, key)).into_iter();
        let after = held.flat_map(|held| held.range(epoch.saturating_add(1)..));
        after
            .filter(|(_, truth)| truth.of(life) > 0)
            .map(|(&later, _)| later)
            .collect()
    }

    /// The clock of `life` went back: what it counted in epochs from `firsts[rule]` on is void to
    /// all, itself included, so that totals there are upper bounds.
    pub fn void_from(&mut self, firsts: &[u64], life: Life) {
        for ((rule, _), epochs) in &mut self.counters {
            let first = firsts.get(usize::from(*rule)).copied().unwrap_or(0);
            let void = epochs.range_mut(first..).map(|(_, truth)| truth);
            void.filter(|truth| truth.of(life) > 0)
                .for_each(|truth| truth.ambiguous = true);
        }
    }

    /// How many (rule, key, epoch) there are, from `floors[rule]` on.
    pub fn rows_from(&self, floors: &[u64]) -> u64 {
        let rows = self.counters.iter().map(|((rule, _), epochs)| {
            let floor = floors.get(usize::from(*rule)).copied().unwrap_or(0);
            epochs.range(floor..).count()
        });
        u64::try_from(rows.sum::<usize>()).unwrap_or(u64::MAX)
    }

    /// How many (rule, key).
    pub fn len(&self) -> usize {
        self.counters.len()
    }

    /// Nothing was admitted.
    pub fn is_empty(&self) -> bool {
        self.counters.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_by_life_epoch_and_window() {
        let (mut truth, key) = (Truth::default(), Key { a: 1, b: 2 });
        truth.admit(0, key, 10, &[], 1, 40);
        truth.admit(0, key, 10, &[], 2, 5);
        truth.admit(0, key, 11, &[], 2, 1);
        assert_eq!(truth.window(0, key, 10..=11), 46);
        assert_eq!(truth.window(0, key, 11..=11), 1);
        assert_eq!(truth.window(1, key, 10..=11), 0);
        let epoch = truth.epoch(0, key, 10);
        assert_eq!((epoch.of(1), epoch.others(1), epoch.total()), (40, 5, 45));
        assert_eq!(truth.epochs(0, key, 0..=99).count(), 2);
        truth.void_from(&[11], 1);
        assert!(!truth.epoch(0, key, 10).ambiguous && !truth.epoch(0, key, 11).ambiguous);
        truth.void_from(&[11], 2);
        assert!(!truth.epoch(0, key, 10).ambiguous && truth.epoch(0, key, 11).ambiguous);
        assert_eq!((truth.rows_from(&[0]), truth.rows_from(&[11])), (2, 1));
        assert_eq!(
            (truth.later(0, key, 9, 1), truth.later(0, key, 10, 2)),
            (vec![10], vec![11])
        );
    }

    #[test]
    fn an_ambiguous_hit_is_credited_to_both_epochs() {
        let (mut truth, key) = (Truth::default(), Key { a: 1, b: 2 });
        truth.admit(0, key, 12, &[10], 1, 3);
        assert_eq!(
            (
                truth.epoch(0, key, 10).total(),
                truth.epoch(0, key, 12).total()
            ),
            (3, 3)
        );
        assert!(truth.epoch(0, key, 10).ambiguous && truth.epoch(0, key, 12).ambiguous);
    }
}
