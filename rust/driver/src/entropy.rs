//! Random numbers for the protocol machine.
//!
//! I own the only entropy of the cluster path. I promise unpredictable numbers while the system has
//! them, and numbers that still differ when it has not. A fixed seed is for reproducing a run.

/// Numbers drawn per call of the system.
const BATCH: usize = 64;

/// A random 64-bit incarnation, to be kept with the counters' memory. Never 0.
pub fn random_incarnation() -> u64 {
    Entropy::from_system().next().max(1)
}

/// A random node id, for members without a seed. Never 0.
pub fn random_node_id() -> u64 {
    Entropy::from_system().next().max(1)
}

pub(crate) struct Entropy {
    batch: [u8; BATCH * 8],
    used: usize,
    /// `Some`: no system entropy is asked for.
    state: Option<u64>,
}

impl Entropy {
    pub(crate) fn from_system() -> Self {
        Self {
            batch: [0; BATCH * 8],
            used: BATCH,
            state: None,
        }
    }

    pub(crate) fn from_seed(seed: u64) -> Self {
        Self {
            state: Some(seed),
            ..Self::from_system()
        }
    }

    pub(crate) fn next(&mut self) -> u64 {
        if let Some(state) = &mut self.state {
            return split_mix(state);
        }
        if self.used >= BATCH {
            if getrandom::fill(&mut self.batch).is_err() {
                let seed = crate::wall_clock_ns() ^ u64::from(std::process::id()).rotate_left(32);
                self.state = Some(seed);
                return self.next();
            }
            self.used = 0;
        }
        let at = self.used * 8;
        self.used += 1;
        let bytes = self
            .batch
            .get(at..at + 8)
            .and_then(|bytes| bytes.try_into().ok());
        u64::from_le_bytes(bytes.unwrap_or_default())
    }
}

/// SplitMix64: every seed gives another full-period sequence.
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn case_37_incarnations_differ_even_within_one_instant() {
        let all: BTreeSet<u64> = (0..1_000).map(|_| random_incarnation()).collect();
        assert_eq!(all.len(), 1_000);
    }

    #[test]
    fn batches_do_not_repeat() {
        let mut entropy = Entropy::from_system();
        let all: BTreeSet<u64> = (0..10 * BATCH).map(|_| entropy.next()).collect();
        assert_eq!(all.len(), 10 * BATCH);
    }

    #[test]
    fn a_seed_reproduces_its_numbers() {
        let (mut a, mut b) = (Entropy::from_seed(7), Entropy::from_seed(7));
        assert!((0..100).all(|_| a.next() == b.next()));
    }
}
