//! Which decisions are looked at closely: about one in so many, per thread, at random distances, so
//! that a pattern in the traffic cannot hide from it.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

thread_local! {
    /// (decisions until the next sample, state of the generator; 0 = not begun)
    static STATE: Cell<(u32, u64)> = const { Cell::new((0, 0)) };
}

/// Makes each thread's generator begin elsewhere.
static THREADS: AtomicU64 = AtomicU64::new(1);

/// Whether this decision is one of about one in `every`.
#[inline]
pub(super) fn is_due(every: u32) -> bool {
    STATE.with(|state| {
        let (left, seed) = state.get();
        if left > 1 {
            state.set((left - 1, seed));
            return false;
        }
        let seed = next(seed);
        // Distances from 1 to 2 * every - 1 have `every` as their mean.
        let spread = u64::from(every.max(1)) * 2 - 1;
        let distance = u32::try_from(1 + (seed >> 32) % spread).unwrap_or(u32::MAX);
        state.set((distance, seed));
        true
    })
}

/// xorshift64; statistics need no better.
fn next(seed: u64) -> u64 {
    let mut x = match seed {
        0 => THREADS
            .fetch_add(1, Ordering::Relaxed) // only has to differ from thread to thread
            .wrapping_mul(0x9e37_79b9_7f4a_7c15),
        seed => seed,
    };
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    x.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn about_one_in_so_many_is_due_and_every_one_when_asked() {
        assert!((0..100).all(|_| is_due(1)));
        let due = (0..100_000).filter(|_| is_due(10)).count();
        assert!((9_000..11_000).contains(&due), "{due}");
        let even = (0..100_000).filter(|i| is_due(10) && i % 2 == 0).count();
        assert!((4_000..6_000).contains(&even), "no pattern hides: {even}");
    }
}
