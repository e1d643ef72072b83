//! Fixed-size records in segments: ids stay valid while a store grows, and a whole shelf's memory
//! goes back segment by segment.

/// Items in a segment, as a power of two.
const SHIFT: u32 = 8;
const MASK: u32 = (1 << SHIFT) - 1;
/// Emptied segments kept for reuse; more go back to the allocator.
const SPARE_SEGMENTS: usize = 64;

#[derive(Debug)]
struct Segment<T> {
    owner: u32,
    items: Box<[T]>,
}

/// Segments of `1 << 8` items, each owned by one shelf.
#[derive(Debug)]
pub(crate) struct Pool<T> {
    segments: Vec<Option<Segment<T>>>,
    free: Vec<u32>,
    spare: Vec<Box<[T]>>,
    in_use: u32,
    max: u32,
}

impl<T: Copy + Default> Pool<T> {
    /// A pool of at most `max_items` (rounded up to a segment), and at most `id_bits` of ids.
    pub(crate) fn new(max_items: u32, id_bits: u32) -> Self {
        debug_assert_eq!(crate::limits::SEGMENT_CELLS, 1 << SHIFT);
        debug_assert_eq!(crate::limits::SEGMENT_CHUNKS, 1 << SHIFT);
        let most = (1u32 << (id_bits - SHIFT)) - 1;
        let max = max_items.div_ceil(1 << SHIFT).clamp(1, most);
        Pool {
            segments: Vec::new(),
            free: Vec::new(),
            spare: Vec::new(),
            in_use: 0,
            max,
        }
    }

    /// A segment for `owner`; `None` at the bound.
    pub(crate) fn take(&mut self, owner: u32) -> Option<u32> {
        if self.in_use >= self.max {
            return None;
        }
        let fresh = || vec![T::default(); 1 << SHIFT].into_boxed_slice();
        let items = self.spare.pop().unwrap_or_else(fresh);
        let segment = Some(Segment { owner, items });
        self.in_use += 1;
        if let Some(at) = self.free.pop() {
            self.segments[at as usize] = segment;
            return Some(at);
        }
        self.segments.push(segment);
        u32::try_from(self.segments.len() - 1).ok()
    }

    /// Gives a segment back; its items are cleared when it is used again.
    pub(crate) fn give(&mut self, at: u32) {
        if let Some(mut segment) = self.segments[at as usize].take() {
            self.in_use -= 1;
            self.free.push(at);
            if self.spare.len() < SPARE_SEGMENTS {
                segment.items.fill(T::default());
                self.spare.push(segment.items);
            }
        }
    }

    /// Who owns the segment of an id; `None` when it is free.
    pub(crate) fn owner(&self, id: u32) -> Option<u32> {
        Some(self.segments.get((id >> SHIFT) as usize)?.as_ref()?.owner)
    }

    pub(crate) fn get(&self, id: u32) -> T {
        match self.segments.get((id >> SHIFT) as usize) {
            Some(Some(s)) => s.items[(id & MASK) as usize],
            _ => T::default(),
        }
    }

    /// `None` when the segment is free; then nothing is to be changed.
    pub(crate) fn get_mut(&mut self, id: u32) -> Option<&mut T> {
        let segment = self.segments.get_mut((id >> SHIFT) as usize)?.as_mut()?;
        Some(&mut segment.items[(id & MASK) as usize])
    }

    /// Id of an item of a segment.
    pub(crate) fn id(segment: u32, offset: u32) -> u32 {
        segment << SHIFT | offset
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        let segment = std::mem::size_of::<T>() << SHIFT;
        (self.in_use as usize + self.spare.len()) * segment
            + self.segments.capacity() * std::mem::size_of::<Option<Segment<T>>>()
            + self.free.capacity() * 4
    }
}

/// Takes items for one shelf, one after the other.
#[derive(Debug, Default)]
pub(crate) struct Arena {
    segments: Vec<u32>,
    used_of_last: u32,
}

impl Arena {
    /// The next id; `None` at the pool's bound.
    pub(crate) fn alloc<T: Copy + Default>(
        &mut self,
        pool: &mut Pool<T>,
        owner: u32,
    ) -> Option<u32> {
        if self.segments.is_empty() || self.used_of_last == 1 << SHIFT {
            self.segments.push(pool.take(owner)?);
            self.used_of_last = 0;
        }
        let id = Pool::<T>::id(*self.segments.last()?, self.used_of_last);
        self.used_of_last += 1;
        Some(id)
    }

    /// Gives one segment back; false when none is left.
    pub(crate) fn free_one<T: Copy + Default>(&mut self, pool: &mut Pool<T>) -> bool {
        match self.segments.pop() {
            Some(s) => {
                pool.give(s);
                true
            }
            None => false,
        }
    }
}
