//! The simulator's own random numbers, so that a seed means the same on every machine and version.
//!
//! SplitMix64: one 64-bit counter, stepped by the golden ratio and mixed (Steele, Lea, Flood 2014).
//! Plenty for choosing faults; nothing here is a secret.

/// A seeded generator. `Clone` gives the same future twice; use [`Rng::fork`] for another future.
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
}

/// The mixing step: a bijection of `u64`.
pub fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

impl Rng {
    /// The stream of `seed`.
    pub fn new(seed: u64) -> Self {
        Rng {
            state: mix(seed ^ 0x6a09_e667_f3bc_c908),
        }
    }

    /// An independent stream, named by `label`; does not advance this one.
    pub fn fork(&self, label: u64) -> Self {
        Rng::new(mix(self.state) ^ mix(label.wrapping_add(1)))
    }

    /// 64 uniform bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.state)
    }

    /// Uniform in `0..bound`; 0 when `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        let wide = u128::from(self.next_u64()) * u128::from(bound);
        u64::try_from(wide >> 64).unwrap_or(0)
    }

    /// Uniform in `low..=high` (`low` when the range is empty).
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low.saturating_add(self.below(high.saturating_sub(low).saturating_add(1)))
    }

    /// Uniform index in `0..len`.
    pub fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(u64::try_from(len).unwrap_or(u64::MAX))).unwrap_or(0)
    }

    /// True with a probability in parts per million.
    pub fn chance(&mut self, ppm: u32) -> bool {
        self.below(1_000_000) < u64::from(ppm)
    }

    /// One of `items` (the first, when asked of none, cannot happen: callers pass literals).
    pub fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.index(items.len())]
    }

    /// Uniform in `-most..=most`.
    pub fn signed(&mut self, most: i64) -> i64 {
        let span = most.unsigned_abs().saturating_mul(2);
        let value = i64::try_from(self.between(0, span)).unwrap_or(0);
        value.saturating_sub(most)
    }

    /// A pause with mean `mean_ns`, exponentially distributed in 64 steps of its quantile: memory-
    /// less enough for arrivals, and exact in integers.
    pub fn exponential(&mut self, mean_ns: u64) -> u64 {
        // -ln(u) by counting halvings (each ln 2) and a linear remainder: the error is below 6 %.
        let bits = self.next_u64();
        let halvings = u64::from(bits.leading_zeros());
        let rest = (bits << (halvings + 1).min(63)) >> 44;
        let ln2_millionths = 693_147u64;
        let units = halvings * ln2_millionths + ((ln2_millionths * ((1 << 20) - rest)) >> 20);
        let wide = u128::from(mean_ns) * u128::from(units) / 1_000_000;
        u64::try_from(wide).unwrap_or(u64::MAX)
    }
}

/// Zipf-like choice over `0..n` with exponent 1, by a table of cumulative integer weights.
#[derive(Clone, Debug)]
pub struct Zipf {
    cumulative: Vec<u64>,
}

impl Zipf {
    /// Weights 1/1, 1/2, .. 1/n.
    pub fn new(n: u32) -> Self {
        let mut sum = 0;
        let weights = (1..=u64::from(n.max(1))).map(|rank| {
            sum += 1_000_000_000 / rank;
            sum
        });
        Zipf {
            cumulative: weights.collect(),
        }
    }

    /// A rank, 0 the most frequent.
    pub fn draw(&self, rng: &mut Rng) -> u32 {
        let total = self.cumulative.last().copied().unwrap_or(1);
        let point = rng.below(total);
        let rank = self.cumulative.partition_point(|&edge| edge <= point);
        u32::try_from(rank).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_names_one_stream_for_ever() {
        let mut rng = Rng::new(1);
        let first: Vec<u64> = (0..3).map(|_| rng.next_u64()).collect();
        let mut again = Rng::new(1);
        assert_eq!(first, (0..3).map(|_| again.next_u64()).collect::<Vec<_>>());
        assert_eq!(
            mix(1),
            0x5692_161d_100b_05e5,
            "the mixing step is part of what a seed means"
        );
        let other = Rng::new(1).fork(7).next_u64();
        assert!(!first.contains(&other));
    }

    #[test]
    fn ranges_hold_their_ends_and_means() {
        let mut rng = Rng::new(2);
        let drawn: Vec<u64> = (0..2_000).map(|_| rng.between(3, 6)).collect();
        assert_eq!(
            (drawn.iter().min(), drawn.iter().max()),
            (Some(&3), Some(&6))
        );
        let mean = (0..20_000).map(|_| rng.exponential(1_000_000)).sum::<u64>() / 20_000;
        assert!((940_000..1_060_000).contains(&mean), "{mean}");
        assert_eq!(rng.below(0), 0);
        let hits = (0..100_000).filter(|_| rng.chance(100_000)).count();
        assert!((9_500..10_500).contains(&hits), "{hits}");
    }

    #[test]
    fn zipf_prefers_low_ranks() {
        let (zipf, mut rng) = (Zipf::new(100), Rng::new(3));
        let mut counts = [0u32; 100];
        for _ in 0..50_000 {
            counts[usize::try_from(zipf.draw(&mut rng)).unwrap()] += 1;
        }
        assert!(counts[0] > counts[9] * 7 && counts[99] > 0, "{counts:?}");
    }
}
