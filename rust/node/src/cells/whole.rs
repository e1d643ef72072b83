//! All origins of a cell or shelf at once.
//!
//! I promise: many counts of one key cost one walk over its origins, not one each; a whole digest
//! is equal on two members exactly when all they hold of a (limiter, epoch) is. spec: wire-82

use gabion_wire::{origin_weight, partition_of, row_digest, Origin};

use super::{Cells, Refused, CHAIN_END, CHAIN_MASK};
use crate::origins::{OriginIdx, NO_ORIGIN};

impl Cells {
    /// The counts of all remote origins of a cell, by origin.
    pub(crate) fn counts_of(&self, id: u32, out: &mut Vec<(OriginIdx, u32)>) {
        out.clear();
        self.each_origin(id, &mut |origin, count| out.push((origin, count)));
        out.sort_unstable();
    }

    /// Max-merges the counts of several origins, sorted by origin and each there once. Leaves in
    /// `counts` those that rose, each with by how much.
    ///
    /// # Errors
    /// The store is full: those already in it were raised, the others not.
    pub(crate) fn raise_many(
        &mut self,
        shelf: u32,
        id: u32,
        counts: &mut Vec<(OriginIdx, u32)>,
    ) -> Result<(), Refused> {
        let cell = self.cell(id);
        // (origin, old count, new count); an old count of 0 is not in the chain yet.
        let mut news: Vec<(OriginIdx, u32, u32)> =
            counts.iter().map(|(o, c)| (*o, 0, *c)).collect();
        let (mut at, mut gap) = (cell.chain & CHAIN_MASK, None);
        let mut found = 0;
        while at != CHAIN_END && (found < news.len() || gap.is_none()) {
            let Some(chunk) = self.chunks.get_mut(at) else {
                break;
            };
            for slot in 0..2 {
                let origin = chunk.origin[slot];
                if origin == NO_ORIGIN {
                    gap.get_or_insert((at, slot));
                } else if let Ok(i) = news.binary_search_by_key(&origin, |n| n.0) {
                    found += 1;
                    news[i].1 = chunk.count[slot];
                    chunk.count[slot] = chunk.count[slot].max(news[i].2);
                }
            }
            at = chunk.next;
        }
        counts.clear();
        let mut refused = None;
        for (origin, old, new) in news {
            if new <= old {
                continue;
            }
            if old == 0 {
                let place = gap.take();
                if let Err(why) = self.add_origin(shelf, id, place, origin, new) {
                    refused = Some(why);
                    continue;
                }
                if place.is_none() {
                    gap = Some((self.cell(id).chain & CHAIN_MASK, 1));
                }
            }
            self.account(shelf, origin, cell.key(), old, new);
            counts.push((origin, new - old));
        }
        refused.map_or(Ok(()), Err)
    }

    /// Rows and sum over all origins of a shelf, this member (`me`) included.
    pub(crate) fn whole_of(&self, shelf: u32, me: Origin) -> (u32, u64) {
        let Some(s) = self.shelf(shelf) else {
            return (0, 0);
        };
        let mut rows = s.own_rows;
        let mut sum = s.own_sum.wrapping_mul(origin_weight(me));
        for held in s.origins.iter().filter(|held| held.rows > 0) {
            if let Some(name) = self.origins.name(held.origin) {
                rows = rows.saturating_add(held.rows);
                sum = sum.wrapping_add(held.sum.wrapping_mul(origin_weight(name)));
            }
        }
        (rows, sum)
    }

    /// [`Cells::whole_of`] by partition: `first..first + n` of 2^`bits`.
    pub(crate) fn whole_sums(
        &self,
        shelf: u32,
        me: Origin,
        bits: u8,
        first: u32,
        n: usize,
    ) -> Vec<u64> {
        let mut sums = vec![0u64; n];
        let Some(s) = self.shelf(shelf) else {
            return sums;
        };
        let most = s.origins.last().map_or(0, |o| usize::from(o.origin) + 1);
        let mut weights = vec![0u64; most];
        for held in &s.origins {
            let weight = self.origins.name(held.origin).map_or(0, origin_weight);
            weights[usize::from(held.origin)] = weight;
        }
        let mine = origin_weight(me);
        s.index.visit(bits, first as usize, n, &mut |id| {
            let cell = self.cell(id);
            let key = cell.key();
            let at = partition_of(key, bits).checked_sub(first);
            let Some(sum) = at.and_then(|i| sums.get_mut(i as usize)) else {
                return;
            };
            if cell.emitted > 0 {
                *sum = sum.wrapping_add(row_digest(key, cell.emitted).wrapping_mul(mine));
            }
            self.each_origin(id, &mut |origin, count| {
                let weight = weights.get(usize::from(origin)).copied().unwrap_or(0);
                *sum = sum.wrapping_add(row_digest(key, count).wrapping_mul(weight));
            });
        });
        sums
    }

    /// Ids in one partition that hold any count.
    pub(crate) fn whole_ids(&self, shelf: u32, bits: u8, partition: u32) -> Vec<u32> {
        let mut ids = Vec::new();
        if let Some(s) = self.shelf(shelf) {
            s.index.visit(bits, partition as usize, 1, &mut |id| {
                if partition_of(self.cell(id).key(), bits) == partition {
                    ids.push(id);
                }
            });
        }
        ids
    }

    /// Were rows of any origin refused on a shelf?
    pub(crate) fn any_refused(&self, shelf: u32) -> bool {
        let held = self.shelf(shelf);
        held.is_some_and(|s| s.origins.iter().any(|o| o.refused > 0))
    }
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation)]
mod tests {
    use super::*;
    use crate::limits::Tunables;
    use gabion_rule::Key;

    fn name(n: u64) -> Origin {
        Origin {
            node: n,
            incarnation: n ^ 99,
        }
    }

    #[test]
    fn many_counts_at_once_are_what_they_are_one_by_one() {
        let t = Tunables::default();
        let (mut many, mut each) = (Cells::new(&t), Cells::new(&t));
        for cells in [&mut many, &mut each] {
            (1..60).for_each(|n| assert!(cells.origins.intern(name(n)).is_some()));
            cells.shelf_or_new(0, 1).unwrap();
        }
        let mut x = 5u64;
        let mut draw = |n: u64| {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (x >> 33) % n
        };
        for _ in 0..300 {
            let key = Key::new(draw(5) << 45, 3);
            let mut counts: Vec<(OriginIdx, u32)> = (0..draw(50))
                .map(|_| (draw(59) as u16, draw(40) as u32 + 1))
                .collect();
            counts.sort_unstable();
            counts.dedup_by_key(|c| c.0);
            let a = many.find_or_insert(0, key, Some(0)).unwrap();
            let b = each.find_or_insert(0, key, Some(0)).unwrap();
            let mut rose = Vec::new();
            for (origin, count) in &counts {
                let rise = each.raise_remote(0, b, *origin, *count).unwrap();
                if rise > 0 {
                    rose.push((*origin, rise));
                }
            }
            many.raise_many(0, a, &mut counts).unwrap();
            assert_eq!(counts, rose);
            let (mut held, mut known) = (Vec::new(), Vec::new());
            many.counts_of(a, &mut held);
            each.counts_of(b, &mut known);
            assert_eq!(held, known);
            assert_eq!(many.remote_total(a), each.remote_total(b));
        }
        let me = name(1_000);
        assert_eq!(many.whole_of(0, me), each.whole_of(0, me));
        let parts = many.whole_sums(0, me, 3, 0, 8);
        let sum = parts.iter().fold(0u64, |s, p| s.wrapping_add(*p));
        assert_eq!(sum, many.whole_of(0, me).1);
        let ids: usize = (0..8).map(|p| many.whole_ids(0, 3, p).len()).sum();
        assert_eq!(ids, 5);
    }

    #[test]
    fn a_count_under_another_origin_changes_the_whole_digest() {
        let t = Tunables::default();
        let whole = |origin: u64| {
            let mut cells = Cells::new(&t);
            let idx = cells.origins.intern(name(origin)).unwrap();
            let shelf = cells.shelf_or_new(0, 1).unwrap();
            let id = cells.find_or_insert(shelf, Key::new(1, 2), None).unwrap();
            cells.raise_many(shelf, id, &mut vec![(idx, 4)]).unwrap();
            cells.whole_of(shelf, name(9))
        };
        assert_eq!(whole(3), whole(3));
        assert_ne!(whole(3), whole(4));
    }
}
