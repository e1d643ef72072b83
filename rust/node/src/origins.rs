//! Names of origins: (node id, incarnation) to a 16-bit index and back.
//!
//! I promise: an index means one origin for as long as any shelf holds counts of it; never more
//! than the bound. I never order or relabel origins. spec: link-13

use std::collections::BTreeMap;

use gabion_wire::Origin;

/// Index of an origin in [`Origins`].
pub(crate) type OriginIdx = u16;
/// "No origin" in a chunk.
pub(crate) const NO_ORIGIN: OriginIdx = u16::MAX;

#[derive(Debug)]
pub(crate) struct Origins {
    by_name: BTreeMap<Origin, OriginIdx>,
    names: Vec<Option<Origin>>,
    /// Shelves that hold counts of it; a free slot is reused only at 0.
    shelves: Vec<u32>,
    /// Cells it created, against its share.
    created: Vec<u32>,
    free: Vec<OriginIdx>,
    max: u16,
}

impl Origins {
    pub(crate) fn new(max: u16) -> Self {
        Origins {
            by_name: BTreeMap::new(),
            names: Vec::new(),
            shelves: Vec::new(),
            created: Vec::new(),
            free: Vec::new(),
            max: max.min(NO_ORIGIN - 1),
        }
    }

    pub(crate) fn find(&self, name: Origin) -> Option<OriginIdx> {
        self.by_name.get(&name).copied()
    }

    pub(crate) fn name(&self, idx: OriginIdx) -> Option<Origin> {
        self.names.get(usize::from(idx)).copied().flatten()
    }

    /// The index of an origin, given one if need be; `None` when the bound is reached.
    pub(crate) fn intern(&mut self, name: Origin) -> Option<OriginIdx> {
        if let Some(idx) = self.find(name) {
            return Some(idx);
        }
        if self.free.is_empty() && self.names.len() >= usize::from(self.max) {
            self.collect();
        }
        let idx = match self.free.pop() {
            Some(idx) => idx,
            None if self.names.len() < usize::from(self.max) => {
                self.names.push(None);
                self.shelves.push(0);
                self.created.push(0);
                u16::try_from(self.names.len() - 1).ok()?
            }
            None => return None,
        };
        self.names[usize::from(idx)] = Some(name);
        self.created[usize::from(idx)] = 0;
        self.by_name.insert(name, idx);
        Some(idx)
    }

    /// Frees every origin that no shelf holds.
    pub(crate) fn collect(&mut self) {
        for (i, name) in self.names.iter_mut().enumerate() {
            if self.shelves[i] == 0 {
                if let Some(n) = name.take() {
                    self.by_name.remove(&n);
                    if let Ok(idx) = u16::try_from(i) {
                        self.free.push(idx);
                    }
                }
            }
        }
    }

    pub(crate) fn hold(&mut self, idx: OriginIdx) {
        self.shelves[usize::from(idx)] += 1;
    }

    pub(crate) fn release(&mut self, idx: OriginIdx, created: u32) {
        let i = usize::from(idx);
        self.shelves[i] = self.shelves[i].saturating_sub(1);
        self.created[i] = self.created[i].saturating_sub(created);
    }

    pub(crate) fn created(&self, idx: OriginIdx) -> u32 {
        self.created[usize::from(idx)]
    }

    pub(crate) fn count_created(&mut self, idx: OriginIdx) {
        self.created[usize::from(idx)] += 1;
    }

    pub(crate) fn len(&self) -> usize {
        self.by_name.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(n: u64) -> Origin {
        Origin {
            node: n,
            incarnation: n * 7,
        }
    }

    #[test]
    fn an_origin_keeps_its_index_while_held_and_the_bound_holds() {
        let mut o = Origins::new(2);
        let a = o.intern(name(1)).unwrap();
        let b = o.intern(name(2)).unwrap();
        assert_eq!(o.intern(name(1)), Some(a));
        o.hold(a);
        o.hold(b);
        assert_eq!(o.intern(name(3)), None);
        o.release(b, 0);
        let c = o.intern(name(3)).unwrap();
        assert_eq!((c, o.name(a), o.name(c)), (b, Some(name(1)), Some(name(3))));
        assert_eq!(o.find(name(2)), None);
        assert_eq!(o.len(), 2);
    }
}
