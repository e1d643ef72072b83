//! The memory a table lives in, as a trait, so that an explorer can run the real code.

/// 64-bit words shared by threads or processes. Word `i` of a table is a 64-bit atomic.
///
/// Every implementation gives at least the orderings named on each method; the comments in the code
/// that calls them name the partner. An index past [`Mem::len`] is a bug of the table; the
/// implementation may panic on it, and must not touch other memory.
pub trait Mem: Sync {
    /// Acquire load.
    fn load(&self, i: usize) -> u64;

    /// Sequentially consistent load: ordered after this thread's earlier `cas`, `swap`, `fetch_or`
    /// and `fence`. (A model checker without SeqCst loads does `fence` and `load`.)
    fn load_seq(&self, i: usize) -> u64;

    /// SeqCst compare-and-exchange; on failure an Acquire load of what was there. Never spurious.
    ///
    /// # Errors
    /// The value found, when it was not `old`; nothing was written.
    fn cas(&self, i: usize, old: u64, new: u64) -> Result<u64, u64>;

    /// SeqCst; returns the earlier value.
    fn fetch_or(&self, i: usize, bits: u64) -> u64;

    /// SeqCst; returns the earlier value.
    fn swap(&self, i: usize, v: u64) -> u64;

    /// Relaxed, wrapping: statistics only, the table never decides on it.
    fn fetch_add(&self, i: usize, v: u64) -> u64;

    /// SeqCst fence.
    fn fence(&self);

    /// A hint; does nothing by default.
    #[inline(always)]
    fn prefetch(&self, _i: usize) {}

    /// Number of words.
    fn len(&self) -> usize;

    /// Whether there is not one word.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Three Acquire loads of words `i..i + 3`, the *last first* (a row's head before its key).
    #[inline(always)]
    fn load3(&self, i: usize) -> [u64; 3] {
        let last = self.load(i + 2);
        [self.load(i), self.load(i + 1), last]
    }

    /// Whether a fault is planted: constant false in production, so that the branch is compiled
    /// away. The explorer plants one at a time and must then find a counter-example.
    #[doc(hidden)]
    #[inline(always)]
    fn planted(&self, _fault: Fault) -> bool {
        false
    }
}

impl<M: Mem + Send> Mem for std::sync::Arc<M> {
    #[inline(always)]
    fn load(&self, i: usize) -> u64 {
        (**self).load(i)
    }
    #[inline(always)]
    fn load_seq(&self, i: usize) -> u64 {
        (**self).load_seq(i)
    }
    #[inline(always)]
    fn cas(&self, i: usize, old: u64, new: u64) -> Result<u64, u64> {
        (**self).cas(i, old, new)
    }
    #[inline(always)]
    fn fetch_or(&self, i: usize, bits: u64) -> u64 {
        (**self).fetch_or(i, bits)
    }
    #[inline(always)]
    fn swap(&self, i: usize, v: u64) -> u64 {
        (**self).swap(i, v)
    }
    #[inline(always)]
    fn fetch_add(&self, i: usize, v: u64) -> u64 {
        (**self).fetch_add(i, v)
    }
    #[inline(always)]
    fn fence(&self) {
        (**self).fence();
    }
    #[inline(always)]
    fn prefetch(&self, i: usize) {
        (**self).prefetch(i);
    }
    #[inline(always)]
    fn len(&self) -> usize {
        (**self).len()
    }
    #[inline(always)]
    fn load3(&self, i: usize) -> [u64; 3] {
        (**self).load3(i)
    }
    #[inline(always)]
    fn planted(&self, fault: Fault) -> bool {
        (**self).planted(fault)
    }
}

/// One omission per property the table promises. Planting it must break that property.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// A claim goes live without looking whether the key is claimed elsewhere.
    SkipRescan,
    /// No fence between publishing a claim and the rescan (weak memory only).
    SkipClaimFence,
    /// The rescan goes on to the next slot when killing a rival claim failed.
    IgnoreFailedKill,
    /// The tag is set after the row went live, so that a rescan may not see the row.
    TagAfterLive,
    /// A claim (eviction, reuse) keeps the row's generation.
    ClaimKeepsGeneration,
    /// Taking over a stale claim keeps its generation.
    TakeoverKeepsGeneration,
    /// A stale claim is never taken over nor completed by others.
    LostTakeover,
    /// A remote total is published without checking the row's generation between load and CAS.
    RemoteSkipsGeneration,
    /// A closing bucket is published without checking the head between load and CAS.
    RingSkipsGeneration,
    /// A rejection is not re-checked against reuse of the row, and generations of the words it
    /// summed are not looked at.
    RejectSkipsRecheck,
    /// Epochs are compared as plain numbers.
    PlainEpochCompare,
    /// A closing bucket is dropped instead of published.
    RingNotPublished,
    /// A remote total is stored even when it is lower.
    RemoteLowers,
    /// A reserve does not mark its row dirty.
    SkipDirtyMark,
    /// A reserve marks its row dirty before the count is there.
    MarkBeforeReserve,
    /// The driver reads the row before it clears the bit.
    DrainClearsAfterRead,
    /// Several rules are reserved in the order given.
    FixedOrderReserve,
}
