//! The cell store: counts per (limiter, epoch, key) and origin.
//!
//! I own every count this member knows. Cells of one (limiter, epoch) live on one *shelf*, so
//! expiry gives its memory back segment by segment: no sweep. A cell is 25 bytes (key, own and
//! published count, place in the dirty log, chain), an index slot 7, each two remote origins 16.
//!
//! I promise: counts only rise; memory stays within the bounds given; an origin creates no more
//! cells than its share; what is refused is named. I never look at a clock. spec: rep-1, rep-2

use std::collections::{BTreeMap, VecDeque};

use gabion_rule::Key;
use gabion_wire::{partition_of, row_digest};
use thiserror::Error;

mod whole;
use crate::index::Index;
use crate::limits::Tunables;
use crate::origins::{OriginIdx, Origins, NO_ORIGIN};
use crate::pool::{Arena, Pool};

/// Chunk ids take 29 bits of a cell's chain word; three bits are flags.
const CHAIN_BITS: u32 = 29;
const CHAIN_MASK: u32 = (1 << CHAIN_BITS) - 1;
const CHAIN_END: u32 = CHAIN_MASK;

/// Waits for the heartbeat.
pub(crate) const COLD: u32 = 1 << 29;
/// Waits for the next emission round.
pub(crate) const URGENT: u32 = 1 << 30;
/// Its new total waits to be polled.
pub(crate) const TOLD: u32 = 1 << 31;

/// Why a count was not stored. Nothing changed; the count stays with its origin and is offered
/// again by repair after a back-off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Refused {
    /// The store holds `max_cells` or `max_chunks`: raise them, or shorten windows.
    #[error("cell store is full: the count was not kept; raise max_cells or max_chunks")]
    Full,
    /// The origin created its share of cells: look at what that member counts by.
    #[error("origin used its share of the cell store: the count was not kept")]
    OriginShare,
    /// More origins than `max_origins` within the live epochs.
    #[error("too many origins are alive: the count was not kept; raise max_origins")]
    Origins,
    /// More (limiter, epoch) pairs than `max_shelves`.
    #[error("too many epochs are alive: the count was not kept; raise max_shelves")]
    Shelves,
}

/// 25 bytes, packed: there may be ten million of them.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, packed)]
pub(crate) struct Cell {
    key: [u8; 12],
    /// Own count of this incarnation.
    pub(crate) own: u32,
    /// What of it was published: what links send, what the own digest covers.
    pub(crate) emitted: u32,
    /// Low byte of its latest place in the dirty log: of the stale places, one in 256 is taken for
    /// the latest, which costs a row sent twice.
    pub(crate) pos: u8,
    chain: u32,
}

impl Cell {
    pub(crate) fn key(&self) -> Key {
        Key::from_bytes(self.key)
    }

    pub(crate) fn has(&self, flag: u32) -> bool {
        self.chain & flag != 0
    }
}

/// Two remote origins' counts.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Chunk {
    origin: [OriginIdx; 2],
    count: [u32; 2],
    next: u32,
}

impl Default for Chunk {
    fn default() -> Self {
        Chunk {
            origin: [NO_ORIGIN; 2],
            count: [0; 2],
            next: CHAIN_END,
        }
    }
}

/// When a digest may be repaired again.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Backoff {
    pub(crate) next_ns: u64,
    pub(crate) doublings: u8,
}

/// What one shelf holds of one origin.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OriginSum {
    pub(crate) origin: OriginIdx,
    pub(crate) rows: u32,
    pub(crate) sum: u64,
    /// Rows of it that were refused: it is then known why digests differ. spec: rep-9
    pub(crate) refused: u32,
    created: u32,
    pub(crate) backoff: Backoff,
    /// Lowest peer that announced the same digest, and when: it serves, we stay quiet. spec: rep-10
    pub(crate) served_by: u64,
    pub(crate) served_at_ns: u64,
}

/// All cells of one (limiter, epoch).
#[derive(Debug)]
pub(crate) struct Shelf {
    pub(crate) limiter: u16,
    pub(crate) epoch: u64,
    pub(crate) own_rows: u32,
    pub(crate) own_sum: u64,
    pub(crate) own_backoff: Backoff,
    pub(crate) origins: Vec<OriginSum>,
    index: Index,
    cells: Arena,
    chunks: Arena,
    cell_count: u32,
}

impl Shelf {
    pub(crate) fn origin(&self, origin: OriginIdx) -> Option<&OriginSum> {
        self.origins
            .binary_search_by_key(&origin, |s| s.origin)
            .ok()
            .map(|i| &self.origins[i])
    }

    pub(crate) fn origin_mut(&mut self, origin: OriginIdx) -> Option<&mut OriginSum> {
        let i = self
            .origins
            .binary_search_by_key(&origin, |s| s.origin)
            .ok()?;
        Some(&mut self.origins[i])
    }
}

#[derive(Debug)]
pub(crate) struct Cells {
    shelves: Vec<Option<Shelf>>,
    free_shelves: Vec<u32>,
    by_epoch: BTreeMap<(u16, u64), u32>,
    /// Shelves out of every index whose memory is being given back.
    /// Their slot is reused only when nothing of them is left, so that an old id names no new
    /// shelf.
    dying: VecDeque<(u32, Shelf)>,
    cells: Pool<Cell>,
    chunks: Pool<Chunk>,
    pub(crate) origins: Origins,
    count: u32,
    max_cells: u32,
    max_shelves: u32,
    share: u32,
}

impl Cells {
    pub(crate) fn new(t: &Tunables) -> Cells {
        let share =
            u64::from(t.max_cells) * u64::from(t.origin_share_ppm.min(1_000_000)) / 1_000_000;
        Cells {
            shelves: Vec::new(),
            free_shelves: Vec::new(),
            by_epoch: BTreeMap::new(),
            dying: VecDeque::new(),
            cells: Pool::new(
                t.max_cells
                    .saturating_add(t.max_shelves.saturating_mul(256)),
                32,
            ),
            chunks: Pool::new(t.max_chunks, CHAIN_BITS),
            origins: Origins::new(t.max_origins),
            count: 0,
            max_cells: t.max_cells,
            max_shelves: t.max_shelves,
            share: u32::try_from(share).unwrap_or(u32::MAX).max(1),
        }
    }

    pub(crate) fn len(&self) -> u32 {
        self.count
    }

    pub(crate) fn shelf_at(&self, limiter: u16, epoch: u64) -> Option<u32> {
        self.by_epoch.get(&(limiter, epoch)).copied()
    }

    pub(crate) fn shelf(&self, at: u32) -> Option<&Shelf> {
        self.shelves.get(at as usize)?.as_ref()
    }

    pub(crate) fn shelf_mut(&mut self, at: u32) -> Option<&mut Shelf> {
        self.shelves.get_mut(at as usize)?.as_mut()
    }

    pub(crate) fn shelf_count(&self) -> usize {
        self.by_epoch.len()
    }

    /// The first live shelf after a (limiter, epoch), for walks in turns.
    pub(crate) fn shelf_after(&self, after: Option<(u16, u64)>) -> Option<(u32, &Shelf)> {
        use std::ops::Bound::{Excluded, Unbounded};
        let low = after.map_or(Unbounded, Excluded);
        let (_, at) = self.by_epoch.range((low, Unbounded)).next()?;
        Some((*at, self.shelf(*at)?))
    }

    pub(crate) fn shelf_or_new(&mut self, limiter: u16, epoch: u64) -> Result<u32, Refused> {
        if let Some(at) = self.shelf_at(limiter, epoch) {
            return Ok(at);
        }
        if self.by_epoch.len() >= self.max_shelves as usize {
            return Err(Refused::Shelves);
        }
        let shelf = Shelf {
            limiter,
            epoch,
            own_rows: 0,
            own_sum: 0,
            own_backoff: Backoff::default(),
            origins: Vec::new(),
            index: Index::new(),
            cells: Arena::default(),
            chunks: Arena::default(),
            cell_count: 0,
        };
        let at = match self.free_shelves.pop() {
            Some(at) => at,
            None => {
                self.shelves.push(None);
                u32::try_from(self.shelves.len() - 1).map_err(|_| Refused::Shelves)?
            }
        };
        self.shelves[at as usize] = Some(shelf);
        self.by_epoch.insert((limiter, epoch), at);
        Ok(at)
    }

    pub(crate) fn find(&self, shelf: u32, key: Key) -> Option<u32> {
        self.shelf(shelf)?
            .index
            .find(key, &|id| self.cells.get(id).key())
    }

    /// The cell of a key, created if need be on account of `creator` (`None` = this member, which
    /// has no share but the cap).
    pub(crate) fn find_or_insert(
        &mut self,
        shelf: u32,
        key: Key,
        creator: Option<OriginIdx>,
    ) -> Result<u32, Refused> {
        if let Some(id) = self.find(shelf, key) {
            return Ok(id);
        }
        if self.count >= self.max_cells {
            return Err(Refused::Full);
        }
        if creator.is_some_and(|o| self.origins.created(o) >= self.share) {
            return Err(Refused::OriginShare);
        }
        let Some(Some(s)) = self.shelves.get_mut(shelf as usize) else {
            return Err(Refused::Shelves);
        };
        let id = s.cells.alloc(&mut self.cells, shelf).ok_or(Refused::Full)?;
        if let Some(cell) = self.cells.get_mut(id) {
            *cell = Cell {
                key: key.to_bytes(),
                chain: CHAIN_END,
                ..Cell::default()
            };
        }
        let cells = &self.cells;
        s.index.insert(key, id, &|id| cells.get(id).key());
        s.cell_count += 1;
        self.count += 1;
        if let Some(origin) = creator {
            self.origins.count_created(origin);
            if let Some(sum) = self.sum_of(shelf, origin) {
                sum.created += 1;
            }
        }
        Ok(id)
    }

    /// The shelf of a cell; `None` when its shelf was dropped.
    pub(crate) fn shelf_of(&self, id: u32) -> Option<u32> {
        self.cells.owner(id).filter(|at| self.shelf(*at).is_some())
    }

    pub(crate) fn cell(&self, id: u32) -> Cell {
        self.cells.get(id)
    }

    pub(crate) fn set_flag(&mut self, id: u32, flag: u32) {
        if let Some(c) = self.cells.get_mut(id) {
            c.chain |= flag;
        }
    }

    pub(crate) fn clear_flag(&mut self, id: u32, flag: u32) {
        if let Some(c) = self.cells.get_mut(id) {
            c.chain &= !flag;
        }
    }

    pub(crate) fn raise_own(&mut self, id: u32, count: u32) -> bool {
        match self.cells.get_mut(id) {
            Some(c) if c.own < count => {
                c.own = count;
                true
            }
            _ => false,
        }
    }

    /// Publishes the own count at a place in the dirty log. spec: rep-4
    pub(crate) fn publish(&mut self, shelf: u32, id: u32, pos: u64) {
        let Some(c) = self.cells.get_mut(id) else {
            return;
        };
        let (key, old, new) = (c.key(), c.emitted, c.own);
        c.emitted = new;
        c.pos = low_byte(pos);
        if let Some(s) = self.shelf_mut(shelf) {
            s.own_sum = move_sum(s.own_sum, key, old, new);
            s.own_rows += u32::from(old == 0 && new > 0);
        }
    }

    /// Max-merges one origin's count; by how much it rose, 0 when it did not. spec: rep-1
    pub(crate) fn raise_remote(
        &mut self,
        shelf: u32,
        id: u32,
        origin: OriginIdx,
        count: u32,
    ) -> Result<u32, Refused> {
        let cell = self.cells.get(id);
        let (mut at, mut gap) = (cell.chain & CHAIN_MASK, None);
        while at != CHAIN_END {
            let Some(chunk) = self.chunks.get_mut(at) else {
                break;
            };
            for slot in 0..2 {
                if chunk.origin[slot] == origin {
                    let old = chunk.count[slot];
                    if count <= old {
                        return Ok(0);
                    }
                    chunk.count[slot] = count;
                    self.account(shelf, origin, cell.key(), old, count);
                    return Ok(count - old);
                }
                if chunk.origin[slot] == NO_ORIGIN && gap.is_none() {
                    gap = Some((at, slot));
                }
            }
            at = chunk.next;
        }
        self.add_origin(shelf, id, gap, origin, count)?;
        self.account(shelf, origin, cell.key(), 0, count);
        Ok(count)
    }

    fn add_origin(
        &mut self,
        shelf: u32,
        id: u32,
        gap: Option<(u32, usize)>,
        origin: OriginIdx,
        count: u32,
    ) -> Result<(), Refused> {
        let (at, slot) = match gap {
            Some(place) => place,
            None => {
                let Some(Some(s)) = self.shelves.get_mut(shelf as usize) else {
                    return Err(Refused::Shelves);
                };
                let new = s
                    .chunks
                    .alloc(&mut self.chunks, shelf)
                    .ok_or(Refused::Full)?;
                let Some(cell) = self.cells.get_mut(id) else {
                    return Err(Refused::Full);
                };
                let next = cell.chain & CHAIN_MASK;
                cell.chain = cell.chain & !CHAIN_MASK | new;
                if let Some(chunk) = self.chunks.get_mut(new) {
                    *chunk = Chunk {
                        next,
                        ..Chunk::default()
                    };
                }
                (new, 0)
            }
        };
        if let Some(chunk) = self.chunks.get_mut(at) {
            chunk.origin[slot] = origin;
            chunk.count[slot] = count;
        }
        Ok(())
    }

    fn account(&mut self, shelf: u32, origin: OriginIdx, key: Key, old: u32, new: u32) {
        if let Some(s) = self.sum_of(shelf, origin) {
            s.sum = move_sum(s.sum, key, old, new);
            s.rows += u32::from(old == 0);
        }
    }

    /// The sum of an origin on a live shelf, made if need be.
    pub(crate) fn sum_of(&mut self, shelf: u32, origin: OriginIdx) -> Option<&mut OriginSum> {
        let s = self.shelves.get_mut(shelf as usize)?.as_mut()?;
        let i = match s.origins.binary_search_by_key(&origin, |o| o.origin) {
            Ok(i) => i,
            Err(i) => {
                self.origins.hold(origin);
                s.origins.insert(
                    i,
                    OriginSum {
                        origin,
                        ..OriginSum::default()
                    },
                );
                i
            }
        };
        s.origins.get_mut(i)
    }

    /// Every live shelf's sum of one origin.
    pub(crate) fn each_sum(&mut self, origin: OriginIdx, f: &mut dyn FnMut(&mut OriginSum)) {
        for s in self.shelves.iter_mut().flatten() {
            s.origin_mut(origin).into_iter().for_each(&mut *f);
        }
    }

    /// Sum of all origins but this incarnation.
    pub(crate) fn remote_total(&self, id: u32) -> u64 {
        let mut total = 0u64;
        self.each_origin(id, &mut |_, count| total += u64::from(count));
        total
    }

    pub(crate) fn count_of(&self, id: u32, origin: OriginIdx) -> u32 {
        let mut found = 0;
        self.each_origin(id, &mut |o, count| {
            if o == origin {
                found = count;
            }
        });
        found
    }

    fn each_origin(&self, id: u32, f: &mut dyn FnMut(OriginIdx, u32)) {
        let mut at = self.cells.get(id).chain & CHAIN_MASK;
        while at != CHAIN_END {
            let chunk = self.chunks.get(at);
            for slot in 0..2 {
                if chunk.origin[slot] != NO_ORIGIN {
                    f(chunk.origin[slot], chunk.count[slot]);
                }
            }
            at = chunk.next;
        }
    }

    /// The count that is announced for `origin` (`None` = this incarnation's published one).
    pub(crate) fn announced(&self, id: u32, origin: Option<OriginIdx>) -> u32 {
        match origin {
            None => self.cells.get(id).emitted,
            Some(o) => self.count_of(id, o),
        }
    }

    /// Sums of the partitions `first..first + n` of a split into 2^`bits`. spec: rep-7
    pub(crate) fn partition_sums(
        &self,
        shelf: u32,
        origin: Option<OriginIdx>,
        bits: u8,
        first: u32,
        n: usize,
    ) -> Vec<u64> {
        let mut sums = vec![0u64; n];
        let Some(s) = self.shelf(shelf) else {
            return sums;
        };
        s.index.visit(bits, first as usize, n, &mut |id| {
            let key = self.cells.get(id).key();
            let at = partition_of(key, bits)
                .checked_sub(first)
                .map(|i| i as usize);
            let count = self.announced(id, origin);
            if let (Some(sum), true) = (at.and_then(|i| sums.get_mut(i)), count > 0) {
                *sum = sum.wrapping_add(row_digest(key, count));
            }
        });
        sums
    }

    /// Ids in one partition that hold a count of `origin`.
    pub(crate) fn partition_ids(
        &self,
        shelf: u32,
        origin: Option<OriginIdx>,
        bits: u8,
        partition: u32,
    ) -> Vec<u32> {
        let mut ids = Vec::new();
        let Some(s) = self.shelf(shelf) else {
            return ids;
        };
        s.index.visit(bits, partition as usize, 1, &mut |id| {
            let key = self.cells.get(id).key();
            if partition_of(key, bits) == partition && self.announced(id, origin) > 0 {
                ids.push(id);
            }
        });
        ids
    }

    /// Drops the shelves of `limiter` outside `oldest..=newest`; gives how many rows of remote
    /// origins lay in the future (void heads). Their memory follows in [`Cells::give_back`].
    pub(crate) fn expire(&mut self, limiter: u16, oldest: u64, newest: u64) -> u64 {
        let mut void = 0;
        loop {
            let range = (limiter, 0)..=(limiter, u64::MAX);
            let dead = self
                .by_epoch
                .range(range)
                .find(|((_, e), _)| *e < oldest || *e > newest);
            let Some((name, at)) = dead.map(|(n, at)| (*n, *at)) else {
                return void;
            };
            self.by_epoch.remove(&name);
            if let Some(shelf) = self.shelves[at as usize].take() {
                if name.1 > newest {
                    void += u64::from(shelf.cell_count);
                }
                for sum in &shelf.origins {
                    self.origins.release(sum.origin, sum.created);
                }
                self.count -= shelf.cell_count;
                self.dying.push_back((at, shelf));
            }
        }
    }

    /// Gives at most `segments` segments of dropped shelves back; true when more are left.
    pub(crate) fn give_back(&mut self, segments: usize) -> bool {
        for _ in 0..segments {
            let Some((at, shelf)) = self.dying.front_mut() else {
                return false;
            };
            let chunk = shelf.chunks.free_one(&mut self.chunks);
            let cell = shelf.cells.free_one(&mut self.cells);
            if !chunk && !cell {
                self.free_shelves.push(*at);
                self.dying.pop_front();
            }
        }
        !self.dying.is_empty()
    }

    /// Bytes held by cells, chunks and indexes.
    pub(crate) fn bytes(&self) -> usize {
        let index = |s: &Shelf| s.index.bytes();
        let live: usize = self.shelves.iter().flatten().map(index).sum();
        let dying: usize = self.dying.iter().map(|(_, s)| index(s)).sum();
        live + dying + self.cells.bytes() + self.chunks.bytes()
    }
}

/// The low byte of a place in the dirty log.
pub(crate) fn low_byte(pos: u64) -> u8 {
    u8::try_from(pos & 0xff).unwrap_or(0)
}

/// The low 32 bits.
pub(crate) fn low_half(pos: u64) -> u32 {
    u32::try_from(pos & u64::from(u32::MAX)).unwrap_or(0)
}

fn move_sum(sum: u64, key: Key, old: u32, new: u32) -> u64 {
    let was = if old > 0 { row_digest(key, old) } else { 0 };
    sum.wrapping_sub(was).wrapping_add(row_digest(key, new))
}
