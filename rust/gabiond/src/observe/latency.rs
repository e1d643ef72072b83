//! How long sampled decisions took, in fixed buckets.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the buckets, nanoseconds; what is longer goes into one more.
pub const BOUNDS_NS: [u64; 16] = [
    250,
    500,
    1_000,
    2_000,
    4_000,
    8_000,
    16_000,
    32_000,
    64_000,
    128_000,
    256_000,
    512_000,
    1_000_000,
    4_000_000,
    16_000_000,
    100_000_000,
];

/// A histogram whose counting is two relaxed additions.
#[derive(Debug, Default)]
pub struct Latency {
    buckets: [AtomicU64; BOUNDS_NS.len() + 1],
    sum_ns: AtomicU64,
}

impl Latency {
    pub(super) fn note(&self, took: Duration) {
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let bucket = BOUNDS_NS.partition_point(|bound| *bound < ns);
        if let Some(count) = self.buckets.get(bucket) {
            count.fetch_add(1, Ordering::Relaxed); // statistics; they order nothing
        }
        self.sum_ns.fetch_add(ns, Ordering::Relaxed);
    }

    /// Counts per bucket (not summed up), and the sum in nanoseconds.
    pub fn read(&self) -> ([u64; BOUNDS_NS.len() + 1], u64) {
        let counts = std::array::from_fn(|i| self.buckets[i].load(Ordering::Relaxed));
        (counts, self.sum_ns.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_belongs_to_its_bucket_and_nothing_is_too_long() {
        let latency = Latency::default();
        for ns in [0, 250, 251, 100_000_000, 100_000_001, 7_000_000_000] {
            latency.note(Duration::from_nanos(ns));
        }
        let (counts, sum_ns) = latency.read();
        assert_eq!((counts[0], counts[1], counts[15], counts[16]), (2, 1, 1, 2));
        assert_eq!(sum_ns, 7_200_000_502);
    }
}
