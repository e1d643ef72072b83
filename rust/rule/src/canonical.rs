//! The canonical order of a descriptor's entries.
//!
//! I own the one place that sorts entries. I promise a stable sort by key, without allocation. I
//! never look at values.

use crate::limits::MAX_DESCRIPTOR_ENTRIES;

/// Entries in canonical order: sorted by key, equal keys in the order given.
// spec: rule-8
pub(crate) struct Sorted<'s, 'e> {
    entries: &'s [(&'e [u8], &'e [u8])],
    order: [u8; MAX_DESCRIPTOR_ENTRIES],
}

impl<'s, 'e> Sorted<'s, 'e> {
    /// `None` when there are more entries than the bound.
    pub(crate) fn new(entries: &'s [(&'e [u8], &'e [u8])]) -> Option<Self> {
        if entries.len() > MAX_DESCRIPTOR_ENTRIES {
            return None;
        }
        let mut order = [0u8; MAX_DESCRIPTOR_ENTRIES];
        for (position, place) in (0u8..).zip(0..entries.len()) {
            // Insertion sort: few entries, mostly sorted already, stable, in place.
            let mut slot = place;
            while slot > 0 && entries[usize::from(order[slot - 1])].0 > entries[place].0 {
                order[slot] = order[slot - 1];
                slot -= 1;
            }
            order[slot] = position;
        }
        Some(Sorted { entries, order })
    }

    /// The keys in canonical order.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &'e [u8]> + '_ {
        self.iter().map(|(key, _)| key)
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn at(&self, position: usize) -> (&'e [u8], &'e [u8]) {
        self.entries[usize::from(self.order[position])]
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&'e [u8], &'e [u8])> + '_ {
        (0..self.len()).map(|position| self.at(position))
    }
}
