//! Own counts that left the table, and the memory of which row held which key.

use std::collections::{BTreeMap, BTreeSet};

use gabion_rule::{Key, RuleIdx};

/// Own counts per (rule, epoch, key) that are announced but no longer in a row.
///
/// Bounded: beyond its cap a new base is refused ([pmp-9]). Ordered by epoch within a rule, so that
/// expiry takes from the front.
#[derive(Debug)]
pub(crate) struct Bases {
    map: BTreeMap<(RuleIdx, u64, Key), u32>,
    max: usize,
}

impl Bases {
    pub(crate) fn new(max: usize) -> Self {
        Bases {
            map: BTreeMap::new(),
            max,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.map.len()
    }

    /// The base of (rule, epoch, key), 0 when there is none.
    pub(crate) fn get(&self, rule: RuleIdx, epoch: u64, key: Key) -> u32 {
        if self.map.is_empty() {
            return 0;
        }
        self.map.get(&(rule, epoch, key)).copied().unwrap_or(0)
    }

    /// Sets a base; false when the map is full and holds none for it.
    pub(crate) fn set(&mut self, rule: RuleIdx, epoch: u64, key: Key, base: u32) -> bool {
        let full = self.map.len() >= self.max;
        match self.map.entry((rule, epoch, key)) {
            std::collections::btree_map::Entry::Occupied(mut held) => {
                held.insert(base);
                true
            }
            std::collections::btree_map::Entry::Vacant(_) if full => false,
            std::collections::btree_map::Entry::Vacant(free) => {
                free.insert(base);
                true
            }
        }
    }

    /// Drops at most `budget` bases of `rule` older than `oldest` (an epoch).
    pub(crate) fn expire(&mut self, rule: RuleIdx, oldest: u64, budget: usize) {
        let low = (rule, 0, Key { a: 0, b: 0 });
        let high = (rule, oldest, Key { a: 0, b: 0 });
        for _ in 0..budget {
            let Some((&dead, _)) = self.map.range(low..high).next() else {
                return;
            };
            self.map.remove(&dead);
        }
    }
}

/// Counters whose remote total came before their epoch began here. Bounded.
#[derive(Debug)]
pub(crate) struct Early {
    set: BTreeSet<(RuleIdx, u64, Key)>,
    max: usize,
}

impl Early {
    pub(crate) fn new(max: usize) -> Self {
        Early {
            set: BTreeSet::new(),
            max,
        }
    }

    /// Keeps (rule, epoch, key); false when there is no room.
    pub(crate) fn keep(&mut self, rule: RuleIdx, epoch: u64, key: Key) -> bool {
        if self.set.len() >= self.max && !self.set.contains(&(rule, epoch, key)) {
            return false;
        }
        self.set.insert((rule, epoch, key));
        true
    }

    /// Takes one of `rule` whose epoch is `epoch_now` or older.
    pub(crate) fn take(&mut self, rule: RuleIdx, epoch_now: u64) -> Option<(u64, Key)> {
        let low = (rule, 0, Key { a: 0, b: 0 });
        let high = (
            rule,
            epoch_now,
            Key {
                a: u64::MAX,
                b: u64::MAX,
            },
        );
        let &first = self.set.range(low..=high).next()?;
        self.set.remove(&first);
        Some((first.1, first.2))
    }
}

/// How a row stands to the last visit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sight {
    /// The same (generation, key).
    Same,
    /// This pump never saw the row in use.
    First,
    /// It held something else.
    Changed,
}

/// Which (generation, key) the pump last saw in each row: 4 bytes per row.
///
/// A wrong "changed" would announce a count twice, a wrong "same" only delays a base until the
/// count is found lower than announced. So an index out of range answers "same".
#[derive(Debug, Default)]
pub(crate) struct Seen {
    rules: Vec<Vec<u32>>,
}

impl Seen {
    /// Gives rule number `rules.len()` room for `rows` rows. Pages are touched when used.
    pub(crate) fn push_rule(&mut self, rows: usize) {
        self.rules.push(vec![0; rows]);
    }

    pub(crate) fn ready(&self) -> bool {
        !self.rules.is_empty()
    }

    /// Notes what `row` holds now.
    pub(crate) fn visit(&mut self, rule: RuleIdx, row: u32, generation: u16, key: Key) -> Sight {
        // 15 bits of the key beside the generation: a generation that wrapped between two visits
        // (a driver that stood still) is still told apart. Never 0, which means "never seen".
        let [a, ..] = key.a.to_le_bytes();
        let [b, ..] = key.b.to_le_bytes();
        let tag = u32::from(generation) << 16 | u32::from(a) << 8 | u32::from(b) | 1;
        let slot = usize::try_from(row)
            .ok()
            .and_then(|row| self.rules.get_mut(usize::from(rule))?.get_mut(row));
        match slot.map(|slot| std::mem::replace(slot, tag)) {
            Some(0) => Sight::First,
            Some(held) if held != tag => Sight::Changed,
            _ => Sight::Same,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u64) -> Key {
        Key { a: n, b: n }
    }

    #[test]
    fn bases_are_bounded_and_expire_by_epoch() {
        let mut bases = Bases::new(2);
        assert!(bases.set(0, 7, key(1), 10));
        assert!(bases.set(0, 8, key(1), 11));
        assert!(!bases.set(0, 8, key(2), 12), "full");
        assert!(
            bases.set(0, 8, key(1), 13),
            "an entry that is there can be raised when full"
        );
        bases.expire(0, 8, 10);
        assert_eq!((bases.get(0, 7, key(1)), bases.get(0, 8, key(1))), (0, 13));
        assert_eq!(bases.len(), 1);
    }

    #[test]
    fn expiry_keeps_other_rules_and_its_budget() {
        let mut bases = Bases::new(10);
        for n in 0..4 {
            assert!(bases.set(1, n, key(n), 1));
            assert!(bases.set(2, n, key(n), 1));
        }
        bases.expire(1, 4, 3);
        assert_eq!(bases.len(), 5);
        bases.expire(1, 4, 3);
        assert_eq!(bases.len(), 4);
        assert_eq!(bases.get(2, 0, key(0)), 1);
    }

    #[test]
    fn early_totals_wait_for_their_epoch_and_are_bounded() {
        let mut early = Early::new(2);
        assert!(early.keep(0, 11, key(1)) && early.keep(0, 12, key(1)));
        assert!(!early.keep(0, 12, key(2)), "full");
        assert!(early.keep(0, 11, key(1)), "already there");
        assert_eq!(early.take(0, 10), None);
        assert_eq!(early.take(1, 20), None);
        assert_eq!(early.take(0, 11), Some((11, key(1))));
        assert_eq!(early.take(0, 11), None);
        assert_eq!(early.take(0, 13), Some((12, key(1))));
    }

    #[test]
    fn a_row_is_new_once_per_generation_or_key() {
        let mut seen = Seen::default();
        assert!(!seen.ready());
        seen.push_rule(4);
        assert_eq!(
            seen.visit(0, 3, 0, key(0)),
            Sight::First,
            "also generation 0 of key 0"
        );
        assert_eq!(seen.visit(0, 3, 0, key(0)), Sight::Same);
        assert_eq!(seen.visit(0, 3, 1, key(0)), Sight::Changed);
        assert_eq!(
            seen.visit(0, 3, 1, key(2)),
            Sight::Changed,
            "a wrapped generation"
        );
        assert_eq!(seen.visit(0, 4, 1, key(2)), Sight::Same, "out of range");
        assert_eq!(seen.visit(1, 0, 1, key(2)), Sight::Same, "no such rule");
    }
}
