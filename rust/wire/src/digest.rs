//! What a digest is made of, so that every member and release computes the same.

use std::hash::Hasher;

use gabion_rule::Key;
use siphasher::sip::SipHasher13;

use crate::limits::MAX_PARTITIONS_LOG2;
use crate::section::Origin;

/// The contribution of one row to a digest. A digest is the wrapping sum over its rows, so it can
/// be kept up to date row by row: subtract the old contribution, add the new one. spec: wire-41
///
/// Not secret: it guards against loss, not against forgery (the MAC does that).
pub fn row_digest(key: Key, count: u32) -> u64 {
    let mut h = SipHasher13::new_with_keys(0x6761_6269_6f6e_2e64, 0x6967_6573_742e_7631);
    h.write(&key.to_bytes());
    h.write(&count.to_le_bytes());
    h.finish()
}

/// What the digest of an origin is multiplied with in a digest over all origins. spec: wire-82,
/// wire-83
pub fn origin_weight(origin: Origin) -> u64 {
    let mut h = SipHasher13::new_with_keys(0x6761_6269_6f6e_2e6f, 0x7269_6769_6e2e_7631);
    h.write(&origin.node.to_le_bytes());
    h.write(&origin.incarnation.to_le_bytes());
    h.finish() | 1
}

/// Which of `2^parts_log2` partitions a key is in: the top bits of its first half. `parts_log2` is
/// capped at [`MAX_PARTITIONS_LOG2`]. spec: wire-42
pub fn partition_of(key: Key, parts_log2: u8) -> u32 {
    let bits = u32::from(parts_log2.min(MAX_PARTITIONS_LOG2));
    // `a` holds 48 bits.
    let part = (key.a & ((1 << 48) - 1)) >> (48 - bits);
    u32::try_from(part).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_does_not_depend_on_the_order_of_its_rows_but_on_each_of_them() {
        let rows: Vec<(Key, u32)> = (1..50u64)
            .map(|i| {
                (
                    Key {
                        a: i << 30,
                        b: i * 7,
                    },
                    u32::try_from(i * i).unwrap(),
                )
            })
            .collect();
        let sum = |it: &mut dyn Iterator<Item = &(Key, u32)>| {
            it.fold(0u64, |s, (k, c)| s.wrapping_add(row_digest(*k, *c)))
        };
        assert_eq!(sum(&mut rows.iter()), sum(&mut rows.iter().rev()));
        for skip in 0..rows.len() {
            let mut others = rows
                .iter()
                .enumerate()
                .filter(|(i, _)| *i != skip)
                .map(|(_, r)| r);
            assert_ne!(sum(&mut others), sum(&mut rows.iter()));
        }
    }

    #[test]
    fn a_digest_is_the_same_in_every_release() {
        // Pinned: changing it makes adjacent releases repair for ever.
        assert_eq!(row_digest(Key { a: 1, b: 2 }, 3), PINNED);
    }

    #[test]
    fn weights_are_odd_and_the_same_in_every_release() {
        let origin = |node, incarnation| Origin { node, incarnation };
        assert_eq!(origin_weight(origin(1, 2)), WEIGHT);
        assert_ne!(origin_weight(origin(2, 1)), WEIGHT);
        assert!((1..100).all(|n| origin_weight(origin(n, 7)) & 1 == 1));
    }
    const WEIGHT: u64 = 14_270_775_482_939_142_249;
    const PINNED: u64 = 9_400_573_721_522_006_532;

    #[test]
    fn partitions_cover_the_keys_evenly_and_stay_in_range() {
        let top = (1u64 << 48) - 1;
        assert_eq!(partition_of(Key { a: top, b: 0 }, 0), 0);
        assert_eq!(partition_of(Key { a: top, b: 0 }, 8), 255);
        assert_eq!(partition_of(Key { a: top, b: 0 }, 20), (1 << 20) - 1);
        assert_eq!(partition_of(Key { a: top, b: 0 }, 200), (1 << 20) - 1);
        assert_eq!(partition_of(Key { a: 0, b: top }, 8), 0);
        assert_eq!(partition_of(Key { a: 1 << 47, b: 0 }, 1), 1);
    }
}
