//! The only unsafe code of the table: real memory as [`Mem`].

use crate::limits::HUGE_FROM_BYTES;
use crate::mem::Mem;
use crate::TableError;
use std::alloc::{alloc_zeroed, dealloc, Layout};
use std::ptr::NonNull;
use std::sync::atomic::{fence, AtomicU64, Ordering};
use std::sync::Arc;

const LINE_BYTES: usize = 64;
const ALLOCATION_ALIGN: usize = 16;
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Words at an address: private memory of this process, or memory shared with others. A clone is
/// the same memory; private memory is given back with the last clone.
#[derive(Clone, Debug)]
pub struct RawMem {
    words: NonNull<AtomicU64>,
    len: usize,
    /// What to give back at the end; `None` when the memory is somebody else's.
    _owned: Option<Arc<Allocation>>,
}

/// Memory of the system allocator, given back on drop.
#[derive(Debug)]
struct Allocation {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: it is an address that is used once, to give the memory back, which any thread may do.
unsafe impl Send for Allocation {}
// SAFETY: as above; a shared one is never looked into.
unsafe impl Sync for Allocation {}

impl Drop for Allocation {
    fn drop(&mut self) {
        // SAFETY: made only in `RawMem::private`, from an allocation at this address with this
        // layout, and dropped once, after the last `RawMem` that points into it.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}

// SAFETY: `words` points to `len` atomics that outlive the value (they are owned, or the caller of
// `from_raw` vouches for them) and are only reached as shared atomics, which any thread may use.
unsafe impl Send for RawMem {}
// SAFETY: as above; no method takes `&mut`.
unsafe impl Sync for RawMem {}

impl RawMem {
    /// Zeroed private memory of `bytes` (rounded down to whole words), 64-byte aligned. Pages that
    /// are never touched cost nothing; from `HUGE_FROM_BYTES` on the system is asked for pages of
    /// 2 MiB, without which most of a cold decision is spent on finding pages.
    ///
    /// # Errors
    /// [`TableError::NoMemory`]; nothing was changed.
    pub fn private(bytes: usize) -> Result<RawMem, TableError> {
        let len = bytes / 8;
        let failed = TableError::NoMemory { bytes };
        let align = if bytes < HUGE_FROM_BYTES {
            LINE_BYTES
        } else {
            HUGE_PAGE_BYTES
        };
        // The system allocator hands out untouched zero pages only for its own alignment (it clears
        // by hand for a larger one), so we align within as many bytes more.
        let size = (len * 8).checked_add(align).ok_or_else(|| failed.clone())?;
        let layout = Layout::from_size_align(size, ALLOCATION_ALIGN).map_err(|_| failed.clone())?;
        if len == 0 {
            return Err(failed);
        }
        // SAFETY: the size is not 0.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(failed)?;
        let shift = start
            .as_ptr()
            .align_offset(align)
            .min(align - ALLOCATION_ALIGN);
        // SAFETY: `shift` is below the `align` that was added to the size. The result is aligned
        // for AtomicU64: `start` is to 16 bytes, and `shift` keeps at least that.
        let words = unsafe { start.add(shift) }.cast::<AtomicU64>();
        if align == HUGE_PAGE_BYTES {
            ask_for_huge_pages(words, len * 8);
        }
        Ok(RawMem {
            words,
            len,
            _owned: Some(Arc::new(Allocation { start, layout })),
        })
    }

    /// Memory that somebody else owns, such as a zone shared by processes.
    ///
    /// # Safety
    /// `start` is 8-byte aligned (64 for speed) and valid for reads and writes of `words` 64-bit
    /// words for as long as the value or anything made from it lives; while it lives the memory is
    /// accessed, by whatever thread or process, only as 64-bit atomics.
    pub unsafe fn from_raw(start: NonNull<u64>, words: usize) -> RawMem {
        RawMem {
            words: start.cast(),
            len: words,
            _owned: None,
        }
    }

    #[inline(always)]
    fn words(&self) -> &[AtomicU64] {
        // SAFETY: `words` points to `len` initialised, aligned atomics that live at least as long
        // as `self` (see `Send`); all-zero and all other bit patterns are valid.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr(), self.len) }
    }
}

/// A hint; refused or unknown, everything works as before.
fn ask_for_huge_pages(start: NonNull<AtomicU64>, bytes: usize) {
    let bytes = bytes / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
    #[cfg(target_os = "linux")]
    // SAFETY: the range is within our own fresh allocation, starts at a page and has whole pages;
    // the advice changes no content and no address.
    unsafe {
        libc::madvise(start.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (start, bytes);
}

impl Mem for RawMem {
    #[inline(always)]
    fn load(&self, i: usize) -> u64 {
        // Acquire: pairs with the release half of every `cas` that wrote the word.
        self.words()[i].load(Ordering::Acquire)
    }
    #[inline(always)]
    fn load_seq(&self, i: usize) -> u64 {
        // SeqCst: in one order with `cas` and `swap`, for set-then-look on two words.
        self.words()[i].load(Ordering::SeqCst)
    }
    #[inline(always)]
    fn cas(&self, i: usize, old: u64, new: u64) -> Result<u64, u64> {
        // SeqCst: its release half pairs with `load`; the order is shared with `load_seq`, `swap`.
        self.words()[i].compare_exchange(old, new, Ordering::SeqCst, Ordering::Acquire)
    }
    #[inline(always)]
    fn fetch_or(&self, i: usize, bits: u64) -> u64 {
        // SeqCst: one order with `swap` and `load_seq` of the dirty words.
        self.words()[i].fetch_or(bits, Ordering::SeqCst)
    }
    #[inline(always)]
    fn swap(&self, i: usize, v: u64) -> u64 {
        // SeqCst: one order with `cas` of a head and `load_seq` of a dirty word.
        self.words()[i].swap(v, Ordering::SeqCst)
    }
    #[inline(always)]
    fn fetch_add(&self, i: usize, v: u64) -> u64 {
        // Relaxed: statistics, nothing is read because of them.
        self.words()[i].fetch_add(v, Ordering::Relaxed)
    }
    #[inline(always)]
    fn fence(&self) {
        // SeqCst: pairs with the fences of other claimers (store, fence, look).
        fence(Ordering::SeqCst);
    }
    #[inline(always)]
    fn prefetch(&self, i: usize) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_mm_prefetch, _MM_HINT_T0};
            let at = self.words.as_ptr().wrapping_add(i);
            // SAFETY: a prefetch never faults, whatever the address.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = i;
    }
    #[inline(always)]
    fn len(&self) -> usize {
        self.len
    }
    #[inline(always)]
    fn load3(&self, i: usize) -> [u64; 3] {
        // One bounds check; the order of the loads is the trait's.
        let words = &self.words()[i..i + 3];
        let last = words[2].load(Ordering::Acquire);
        [
            words[0].load(Ordering::Acquire),
            words[1].load(Ordering::Acquire),
            last,
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_memory_is_zero_aligned_and_shared() {
        let large = RawMem::private(HUGE_FROM_BYTES).unwrap();
        assert_eq!(large.words.as_ptr() as usize % HUGE_PAGE_BYTES, 0);
        assert_eq!(large.swap(large.len() - 1, 3), 0);
        let mem = RawMem::private(4096 + 7).unwrap();
        assert_eq!(mem.len(), 512);
        assert_eq!(mem.words.as_ptr() as usize % LINE_BYTES, 0);
        assert_eq!((0..512).map(|i| mem.load(i)).sum::<u64>(), 0);
        assert_eq!(mem.cas(511, 0, 7), Ok(0));
        assert_eq!(mem.cas(511, 0, 8), Err(7));
        assert_eq!(
            (
                mem.fetch_or(511, 8),
                mem.swap(511, 1),
                mem.fetch_add(511, 2)
            ),
            (7, 15, 1)
        );
        assert_eq!((mem.load_seq(511), mem.load3(509)[2]), (3, 3));
        mem.prefetch(usize::MAX);
    }

    #[test]
    fn a_clone_is_the_same_memory_and_keeps_it() {
        let mem = RawMem::private(4096).unwrap();
        let clone = mem.clone();
        assert_eq!(mem.swap(9, 5), 0);
        drop(mem);
        assert_eq!(clone.load(9), 5);
    }

    #[test]
    fn untouched_pages_cost_nothing() {
        let resident_kib = || {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap();
            line.split_whitespace()
                .nth(1)
                .unwrap()
                .parse::<u64>()
                .unwrap()
        };
        let before = resident_kib();
        let mem = RawMem::private(1 << 30).unwrap();
        assert_eq!(mem.load(mem.len() / 2), 0);
        let grown = resident_kib().saturating_sub(before);
        assert!(grown < 200 << 10, "{grown} KiB for one word of a GiB");
    }

    #[test]
    fn foreign_memory_is_not_freed() {
        let mut words = vec![5u64; 8];
        let start = NonNull::new(words.as_mut_ptr()).unwrap();
        // SAFETY: the vector outlives the value and is not touched meanwhile.
        let mem = unsafe { RawMem::from_raw(start, 8) };
        assert_eq!(mem.swap(3, 9), 5);
        drop(mem);
        assert_eq!(words[3], 9);
    }

    #[test]
    fn no_memory_is_an_error() {
        assert!(RawMem::private(7).is_err());
        assert!(RawMem::private(usize::MAX).is_err());
    }
}
