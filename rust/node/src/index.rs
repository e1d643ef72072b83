//! Where a key is: extendible hashing from keys to cell ids, one index per (limiter, epoch).
//!
//! I promise: growth splits one page at a time, so there is no doubling spike and no long stop; a
//! run of partitions ([`gabion_wire::partition_of`]) is a run of pages. Keys are already the output
//! of a keyed hash; should they not be (many with the same leading bits), pages grow instead of
//! splitting without end.

use gabion_rule::Key;

use crate::limits::{INDEX_DEPTH_MAX, PAGE_SLOTS_MIN, PAGE_SLOTS_SPLIT};

const EMPTY: u32 = u32::MAX;

#[derive(Debug)]
struct Page {
    depth: u8,
    used: u32,
    slots: Box<[u32]>,
}

impl Page {
    fn new(depth: u8, slots: usize) -> Page {
        Page {
            depth,
            used: 0,
            slots: vec![EMPTY; slots].into_boxed_slice(),
        }
    }

    fn put(&mut self, key: Key, id: u32) {
        let slots = self.slots.len();
        let mut at = home(key, slots);
        while self.slots[at] != EMPTY {
            at = if at + 1 == slots { 0 } else { at + 1 };
        }
        self.slots[at] = id;
        self.used += 1;
    }
}

#[derive(Debug)]
pub(crate) struct Index {
    depth: u8,
    directory: Vec<u32>,
    pages: Vec<Page>,
}

/// Where in a page of `slots` slots a key is looked for first.
fn home(key: Key, slots: usize) -> usize {
    let h = (key.b ^ key.a.rotate_left(17)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    usize::try_from(((h >> 32) * slots as u64) >> 32).unwrap_or(0)
}

/// The next size of a page.
fn bigger(slots: usize) -> usize {
    if slots < PAGE_SLOTS_SPLIT {
        (slots * 2).min(PAGE_SLOTS_SPLIT)
    } else {
        slots * 2
    }
}

/// Top `bits` bits of the key's first half.
fn prefix(key: Key, bits: u8) -> usize {
    usize::try_from((key.a & ((1 << 48) - 1)) >> (48 - u32::from(bits))).unwrap_or(0)
}

impl Index {
    pub(crate) fn new() -> Index {
        Index {
            depth: 0,
            directory: vec![0],
            pages: vec![Page::new(0, PAGE_SLOTS_MIN)],
        }
    }

    /// The id whose key is `key`; `key_of` reads the key of an id.
    pub(crate) fn find(&self, key: Key, key_of: &impl Fn(u32) -> Key) -> Option<u32> {
        let page = &self.pages[self.directory[prefix(key, self.depth)] as usize];
        let slots = page.slots.len();
        let mut at = home(key, slots);
        loop {
            let id = page.slots[at];
            if id == EMPTY {
                return None;
            }
            if key_of(id) == key {
                return Some(id);
            }
            at = if at + 1 == slots { 0 } else { at + 1 };
        }
    }

    /// Adds an id that [`Index::find`] did not find.
    pub(crate) fn insert(&mut self, key: Key, id: u32, key_of: &impl Fn(u32) -> Key) {
        loop {
            let at = self.directory[prefix(key, self.depth)] as usize;
            let page = &mut self.pages[at];
            let slots = page.slots.len();
            if (page.used as usize + 1) * 5 <= slots * 4 {
                page.put(key, id);
                return;
            }
            if slots < PAGE_SLOTS_SPLIT || !self.split(at, key_of) {
                self.grow(at, key_of);
            }
        }
    }

    fn grow(&mut self, at: usize, key_of: &impl Fn(u32) -> Key) {
        let old = &self.pages[at];
        let mut page = Page::new(old.depth, bigger(old.slots.len()));
        for id in old.slots.iter().copied().filter(|id| *id != EMPTY) {
            page.put(key_of(id), id);
        }
        self.pages[at] = page;
    }

    /// Splits a page by its next bit; false (nothing changed) when that would not help.
    fn split(&mut self, at: usize, key_of: &impl Fn(u32) -> Key) -> bool {
        let depth = self.pages[at].depth;
        if depth >= INDEX_DEPTH_MAX {
            return false;
        }
        let old = &self.pages[at];
        let one = |id: u32| prefix(key_of(id), depth + 1) & 1 == 1;
        let ids = || old.slots.iter().copied().filter(|id| *id != EMPTY);
        let ones = ids().filter(|id| one(*id)).count();
        let used = old.used as usize;
        if ones.min(used - ones) < used / 8 {
            return false;
        }
        let Ok(new_page) = u32::try_from(self.pages.len()) else {
            return false;
        };
        let (mut low, mut high) = (
            Page::new(depth + 1, PAGE_SLOTS_SPLIT),
            Page::new(depth + 1, PAGE_SLOTS_SPLIT),
        );
        for id in ids() {
            let side = if one(id) { &mut high } else { &mut low };
            while (side.used as usize + 1) * 5 > side.slots.len() * 4 {
                let mut wide = Page::new(depth + 1, bigger(side.slots.len()));
                side.slots
                    .iter()
                    .filter(|i| **i != EMPTY)
                    .for_each(|i| wide.put(key_of(*i), *i));
                *side = wide;
            }
            side.put(key_of(id), id);
        }
        if depth == self.depth {
            self.directory = self.directory.iter().flat_map(|p| [*p, *p]).collect();
            self.depth += 1;
        }
        self.pages[at] = low;
        self.pages.push(high);
        let old_page = u32::try_from(at).unwrap_or(EMPTY);
        let shift = self.depth - depth - 1;
        for (i, entry) in self.directory.iter_mut().enumerate() {
            if *entry == old_page && (i >> shift) & 1 == 1 {
                *entry = new_page;
            }
        }
        true
    }

    /// Calls back with every id whose key may be in one of the partitions `first..first + n` of a
    /// split into 2^`bits`. The caller checks each key's partition.
    pub(crate) fn visit(&self, bits: u8, first: usize, n: usize, f: &mut dyn FnMut(u32)) {
        let (from, to) = if bits <= self.depth {
            let shift = self.depth - bits;
            (first << shift, (first + n) << shift)
        } else {
            let shift = bits - self.depth;
            (first >> shift, ((first + n - 1) >> shift) + 1)
        };
        let mut last = EMPTY;
        for entry in &self.directory[from.min(self.directory.len())..to.min(self.directory.len())] {
            if *entry != last {
                last = *entry;
                let page = &self.pages[*entry as usize];
                page.slots
                    .iter()
                    .copied()
                    .filter(|id| *id != EMPTY)
                    .for_each(&mut *f);
            }
        }
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        let slots: usize = self.pages.iter().map(|p| p.slots.len() * 4).sum();
        slots
            + self.pages.capacity() * std::mem::size_of::<Page>()
            + self.directory.capacity() * std::mem::size_of::<u32>()
    }
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation)]
mod tests {
    use super::*;
    use gabion_wire::partition_of;

    fn keys(n: u64, spread: bool) -> Vec<Key> {
        let mut x = 88_172_645_463_325_252u64;
        (0..n)
            .map(|i| {
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
                if spread {
                    Key::new(x, x.rotate_left(31) ^ i)
                } else {
                    Key::new(i, 0)
                }
            })
            .collect()
    }

    #[test]
    fn every_key_is_found_and_no_other_also_when_keys_share_their_leading_bits() {
        for spread in [true, false] {
            let all = keys(40_000, spread);
            let (mine, others) = all.split_at(30_000);
            let mut index = Index::new();
            let key_of = |id: u32| all[id as usize];
            for (id, key) in mine.iter().enumerate() {
                assert_eq!(index.find(*key, &key_of), None);
                index.insert(*key, id as u32, &key_of);
            }
            for (id, key) in mine.iter().enumerate() {
                assert_eq!(index.find(*key, &key_of), Some(id as u32));
            }
            assert!(others.iter().all(|k| index.find(*k, &key_of).is_none()));
            // Sequential keys share all leading bits: pages grow, the directory must not.
            assert!(
                index.directory.len() <= if spread { 128 } else { 1 },
                "{}",
                index.depth
            );
        }
    }

    #[test]
    fn a_visit_of_partitions_sees_each_of_their_keys_once() {
        let all = keys(20_000, true);
        let mut index = Index::new();
        let key_of = |id: u32| all[id as usize];
        all.iter()
            .enumerate()
            .for_each(|(id, k)| index.insert(*k, id as u32, &key_of));
        for bits in [0u8, 1, 3, 8] {
            let mut seen = vec![0u32; all.len()];
            for part in 0..1usize << bits {
                index.visit(bits, part, 1, &mut |id| {
                    if partition_of(all[id as usize], bits) as usize == part {
                        seen[id as usize] += 1;
                    }
                });
            }
            assert!(seen.iter().all(|n| *n == 1), "bits {bits}");
        }
    }
}
