//! When a request is made again.
//!
//! I own the pauses between failures. I promise that they grow up to a bound, and that many members
//! which failed in one moment do not come back in one. I never count what failed.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

use crate::limits::{KUBE_MAX_RETRY_MS, KUBE_MIN_RETRY_MS};

/// Lots; the same seed draws the same.
#[derive(Debug)]
pub(super) struct Jitter(u64);

/// A seed that no other member has.
pub(super) fn any_seed() -> u64 {
    RandomState::new().build_hasher().finish()
}

impl Jitter {
    pub(super) fn new(seed: u64) -> Self {
        Jitter(seed)
    }

    /// 0 to 1 (SplitMix64: lots, not secrets).
    fn draw(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// The pause after so many failures in a row, the first being 1: doubled with each, and between
    /// half of that and the whole.
    pub(super) fn pause(&mut self, failures: u32) -> Duration {
        let doubled = KUBE_MIN_RETRY_MS.saturating_mul(1 << failures.saturating_sub(1).min(16));
        let most = Duration::from_millis(doubled.min(KUBE_MAX_RETRY_MS));
        most.mul_f64(0.5 + self.draw() / 2.0)
    }

    /// A whole number below `below`, which is at least 1.
    pub(super) fn below(&mut self, below: u32) -> u32 {
        let lot = self.draw() * f64::from(below);
        // The product is below `below`.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let lot = lot as u32;
        lot
    }

    /// `least`, and up to a tenth more.
    pub(super) fn beyond(&mut self, least: Duration) -> Duration {
        least + least.mul_f64(self.draw() / 10.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound_and_scatter() {
        let mut jitter = Jitter::new(7);
        let (least, most) = (KUBE_MIN_RETRY_MS / 2, KUBE_MAX_RETRY_MS);
        for failures in 1..=100 {
            let ms = jitter.pause(failures).as_millis();
            assert!((u128::from(least)..=u128::from(most)).contains(&ms), "{ms}");
            assert!(failures < 7 || ms >= u128::from(most) / 2, "{ms}");
        }
        let firsts: std::collections::BTreeSet<_> =
            (0..50).map(|seed| Jitter::new(seed).pause(9)).collect();
        assert!(firsts.len() > 45, "{}", firsts.len());
    }

    #[test]
    fn the_same_seed_draws_the_same() {
        let draws = |seed| {
            let mut jitter = Jitter::new(seed);
            (0..8).map(|_| jitter.pause(3)).collect::<Vec<_>>()
        };
        assert_eq!(draws(5), draws(5));
        assert_ne!(draws(5), draws(6));
    }
}
