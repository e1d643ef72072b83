//! Counter keys: 96 keyed bits over a counter identity and descriptor values.
//!
//! I own the key type, its wire form and the keyed hash. I promise that the order of entries and
//! the bytes inside values never make two descriptors collide other than by chance against the
//! secret, and that hashing never allocates. I never print or hand out the secret.

use std::fmt;
use std::hash::Hasher;

use siphasher::sip128::{Hasher128, SipHasher24};

use crate::canonical::Sorted;
use crate::identity::CounterIdentity;
use crate::override_unit::OverrideUnit;

const HALF: u64 = (1 << 48) - 1;
/// Fixed key of the derivation from a cluster id: the derived secret is computable by design.
const CLUSTER_KEY: &[u8; 16] = b"gabion cluster 1";

/// 96-bit keyed counter key: two 48-bit halves (upper 16 bits zero). Also its 12-byte wire form.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key {
    /// First half; bits 48 to 63 are zero.
    pub a: u64,
    /// Second half; bits 48 to 63 are zero.
    pub b: u64,
}

impl Key {
    /// A key from two halves; bits above the 48th are dropped.
    pub fn new(a: u64, b: u64) -> Key {
        Key {
            a: a & HALF,
            b: b & HALF,
        }
    }

    /// The wire form: both halves, little endian, six bytes each.
    pub fn to_bytes(self) -> [u8; 12] {
        let [a0, a1, a2, a3, a4, a5, _, _] = self.a.to_le_bytes();
        let [b0, b1, b2, b3, b4, b5, _, _] = self.b.to_le_bytes();
        [a0, a1, a2, a3, a4, a5, b0, b1, b2, b3, b4, b5]
    }

    /// A key from its wire form. Every 12 bytes are a key.
    pub fn from_bytes(bytes: [u8; 12]) -> Key {
        let [a0, a1, a2, a3, a4, a5, b0, b1, b2, b3, b4, b5] = bytes;
        Key {
            a: u64::from_le_bytes([a0, a1, a2, a3, a4, a5, 0, 0]),
            b: u64::from_le_bytes([b0, b1, b2, b3, b4, b5, 0, 0]),
        }
    }
}

/// SipHash-2-4-128 under the cluster's secret.
// spec: rule-14
#[derive(Clone)]
pub struct KeyHasher {
    secret: [u8; 16],
}

impl KeyHasher {
    /// Hashes under a configured secret. All members of a cluster need the same one.
    pub fn new(secret: [u8; 16]) -> Self {
        KeyHasher { secret }
    }

    /// Hashes under a secret derived from the cluster id. Whoever knows the id can then compute
    /// keys that collide; the caller warns about it.
    pub fn derived_from_cluster(cluster_id: &str) -> Self {
        let mut hasher = SipHasher24::new_with_key(CLUSTER_KEY);
        hasher.write(cluster_id.as_bytes());
        KeyHasher {
            secret: hasher.finish128().as_bytes(),
        }
    }

    /// The key of one descriptor in one limiter and one reset era. Entries may come in any order.
    /// Keys of entries are part of the identity, so only values are hashed, each with its length.
    /// Never allocates. Beyond [`crate::limits::MAX_DESCRIPTOR_ENTRIES`] entries the order counts;
    /// such a descriptor matches no rule.
    // spec: rule-14, rule-15
    pub fn key(&self, identity: &CounterIdentity, entries: &[(&[u8], &[u8])], era: u32) -> Key {
        self.key_sharing(identity, entries, era, 0)
    }

    /// As [`KeyHasher::key`], where the values at the positions of `shared` (bit `i` is position
    /// `i` in canonical order) count as empty, so that all of them have one counter.
    // spec: rule-22
    pub fn key_sharing(
        &self,
        identity: &CounterIdentity,
        entries: &[(&[u8], &[u8])],
        era: u32,
        shared: u32,
    ) -> Key {
        let hasher = SipHasher24::new_with_key(&self.secret);
        let mut text = Gathered::new(hasher);
        text.write(&identity.0);
        text.write(&(u64::from(era) << 32 | (entries.len() as u64 & 0xFFFF_FFFF)).to_le_bytes());
        let mut left = shared;
        let mut write = |value: &[u8]| {
            let value = if left & 1 == 1 { &[] } else { value };
            left >>= 1;
            text.write(&(value.len() as u64).to_le_bytes());
            text.write(value);
        };
        let sorted = match entries {
            // One entry is the common case, and is in order.
            [] | [_] => None,
            _ => Sorted::new(entries),
        };
        match sorted {
            Some(sorted) => sorted.iter().for_each(|(_, value)| write(value)),
            None => entries.iter().for_each(|(_, value)| write(value)),
        }
        text.finish()
    }

    /// The key of one descriptor under a limit of `hits` per `unit` that its caller brought.
    /// Domain, keys, values and the limit are all in it, so each distinct one has its own counter.
    /// Entries may come in any order. Never allocates.
    // spec: rule-30
    pub fn override_key(
        &self,
        unit: OverrideUnit,
        hits: u32,
        domain: &[u8],
        entries: &[(&[u8], &[u8])],
    ) -> Key {
        let mut hasher = SipHasher24::new_with_key(&self.secret);
        hasher.write(&unit.identity().0);
        hasher.write(&u64::from(hits).to_le_bytes());
        hasher.write(&(entries.len() as u64).to_le_bytes());
        let mut write = |text: &[u8]| {
            hasher.write(&(text.len() as u64).to_le_bytes());
            hasher.write(text);
        };
        write(domain);
        let mut both = |key: &[u8], value: &[u8]| {
            write(key);
            write(value);
        };
        match Sorted::new(entries) {
            Some(sorted) => sorted.iter().for_each(|(key, value)| both(key, value)),
            None => entries.iter().for_each(|(key, value)| both(key, value)),
        }
        let hash = hasher.finish128();
        Key::new(hash.h1, hash.h2)
    }
}

/// Collects short text and hashes it in one go: a hash that is fed in many small pieces spends half
/// of its time on their seams. Long text passes through. The hash is the same.
struct Gathered {
    hasher: SipHasher24,
    held: [u8; GATHERED_BYTES],
    length: usize,
}

/// What is held: the identity, the era, and values of an address and a path.
const GATHERED_BYTES: usize = 128;

impl Gathered {
    fn new(hasher: SipHasher24) -> Self {
        Self {
            hasher,
            held: [0; GATHERED_BYTES],
            length: 0,
        }
    }

    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let end = self.length + bytes.len();
        if let Some(place) = self.held.get_mut(self.length..end) {
            place.copy_from_slice(bytes);
            self.length = end;
        } else {
            self.hasher.write(&self.held[..self.length]);
            self.hasher.write(bytes);
            self.length = 0;
        }
    }

    fn finish(self) -> Key {
        // One call when nothing passed through.
        let mut hasher = self.hasher;
        hasher.write(&self.held[..self.length]);
        let hash = hasher.finish128();
        Key::new(hash.h1, hash.h2)
    }
}

impl fmt::Debug for KeyHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyHasher(secret hidden)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_any_length_hashes_as_in_one_piece() {
        let secret = [7; 16];
        let hasher = KeyHasher::new(secret);
        let identity = CounterIdentity([9; 16]);
        let mut seen = std::collections::BTreeSet::new();
        for length in 0..400 {
            let value: Vec<u8> = (0..length).map(|i| (i % 251) as u8).collect();
            let entries: [(&[u8], &[u8]); 2] = [(b"a", &value), (b"b", b"x")];
            let mut whole = [9; 16].to_vec();
            whole.extend((3u64 << 32 | 2).to_le_bytes());
            whole.extend((value.len() as u64).to_le_bytes());
            whole.extend(&value);
            whole.extend(1u64.to_le_bytes());
            whole.push(b'x');
            let mut plain = SipHasher24::new_with_key(&secret);
            plain.write(&whole);
            let hash = plain.finish128();
            let key = hasher.key(&identity, &entries, 3);
            assert_eq!(key, Key::new(hash.h1, hash.h2), "{length}");
            assert!(seen.insert(key));
        }
    }
    use crate::override_unit::OverrideUnit::{Hour, Minute};

    #[test]
    fn every_part_of_a_caller_s_limit_is_in_its_key() {
        let hasher = KeyHasher::new([7; 16]);
        let one: [(&[u8], &[u8]); 2] = [(b"a", b"x"), (b"b", b"y")];
        let key = hasher.override_key(Minute, 10, b"d", &one);
        let turned = [one[1], one[0]];
        assert_eq!(hasher.override_key(Minute, 10, b"d", &turned), key);
        let others = [
            hasher.override_key(Hour, 10, b"d", &one),
            hasher.override_key(Minute, 11, b"d", &one),
            hasher.override_key(Minute, 10, b"e", &one),
            hasher.override_key(Minute, 10, b"d", &one[..1]),
            hasher.override_key(Minute, 10, b"d", &[(b"a", b"x"), (b"c", b"y")]),
            hasher.override_key(Minute, 10, b"d", &[(b"a", b"x"), (b"b", b"z")]),
            hasher.override_key(Minute, 10, b"da", &[(b"", b"x"), (b"b", b"y")]),
            KeyHasher::new([8; 16]).override_key(Minute, 10, b"d", &one),
        ];
        assert!(!others.contains(&key));
    }
}
