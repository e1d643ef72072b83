//! Hashes for states: 128 bits, as sums over (place, value) pairs so that they follow a step.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

/// Hasher for keys that are already well mixed or small integers.
#[derive(Default)]
pub struct Mixed(u64);

impl Hasher for Mixed {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for b in bytes {
            self.write_u64(u64::from(*b));
        }
    }
    fn write_u32(&mut self, v: u32) {
        self.write_u64(u64::from(v));
    }
    fn write_u64(&mut self, v: u64) {
        self.0 = mix(self.0 ^ v);
    }
    fn write_u128(&mut self, v: u128) {
        #[allow(
            clippy::cast_possible_truncation,
            reason = "the low half of a hash is a hash"
        )]
        let low = v as u64;
        self.0 = low;
    }
}

pub type MixedMap<K, V> = HashMap<K, V, BuildHasherDefault<Mixed>>;
pub type MixedSet<K> = HashSet<K, BuildHasherDefault<Mixed>>;

/// The finaliser of splitmix64.
pub fn mix(v: u64) -> u64 {
    let v = v.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let v = (v ^ (v >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let v = (v ^ (v >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    v ^ (v >> 31)
}

/// 128 bits from a place and a value; sums of these identify a set of (place, value) pairs.
pub fn mix2(place: u64, value: u64) -> u128 {
    let a = mix(mix(place) ^ value);
    let b = mix(mix(place ^ 0x5555_5555_5555_5555).wrapping_add(value.rotate_left(29)) ^ a);
    (u128::from(a) << 64) | u128::from(b)
}
