//! The bits of every word, and comparison of numbers that wrap.
//!
//! ```text
//! key     gen16                | key48            two of them
//! head    gen16 | state2 | epoch22 | count24      limit < 2^23
//! head    gen8  | state2 | epoch22 | count32      any limit
//! head    gen16 | state2 | tat46                  token bucket
//! head    gen   | pending  | stamp46              claim under way
//! tagged  gen10 | epoch22 | count32               closed bucket, remote total, own count
//! tag     gen8  | fp24                            two to a word, low half first
//! ```

use crate::mem::{Fault, Mem};

pub(crate) const EPOCH_BITS: u32 = 22;
pub(crate) const EPOCH_MASK: u64 = (1 << EPOCH_BITS) - 1;
pub(crate) const KEY_MASK: u64 = (1 << 48) - 1;
pub(crate) const TAT_BITS: u32 = 46;
pub(crate) const TAT_MASK: u64 = (1 << TAT_BITS) - 1;
pub(crate) const TAG_GEN_MASK: u64 = 0x3ff;
pub(crate) const FP_MASK: u64 = 0x00ff_ffff;

/// A number that is known to be below the number of rows, or of words, as an index.
#[inline(always)]
#[allow(clippy::cast_possible_truncation)] // memory that is addressed by usize has no more words
pub(crate) const fn index(n: u64) -> usize {
    n as usize
}

/// What a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum State {
    /// Nothing, or what it was is over.
    Empty = 0,
    /// Being claimed; whole once both key words carry its generation.
    Pending = 1,
    /// Counting for its key.
    Live = 2,
}

/// Where the fields of a head are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeadFormat {
    count_bits: u32,
}

/// Limits below 2^23, and token buckets.
pub(crate) const NARROW: HeadFormat = HeadFormat { count_bits: 24 };
/// Any limit; generations of 8 bits.
pub(crate) const WIDE: HeadFormat = HeadFormat { count_bits: 32 };

impl HeadFormat {
    #[inline(always)]
    pub(crate) fn generation_mask(self) -> u64 {
        (1 << (64 - 24 - self.count_bits)) - 1
    }
    #[inline(always)]
    pub(crate) fn generation(self, head: u64) -> u64 {
        head >> (self.count_bits + 24)
    }
    #[inline(always)]
    pub(crate) fn next_generation(self, head: u64) -> u64 {
        (self.generation(head) + 1) & self.generation_mask()
    }
    #[inline(always)]
    pub(crate) fn state(self, head: u64) -> State {
        match head >> (self.count_bits + EPOCH_BITS) & 3 {
            1 => State::Pending,
            2 => State::Live,
            _ => State::Empty,
        }
    }
    /// Pending or live.
    #[inline(always)]
    pub(crate) fn is_taken(self, head: u64) -> bool {
        head >> (self.count_bits + EPOCH_BITS) & 3 != State::Empty as u64
    }
    /// Live and of this very epoch: one comparison of the two fields.
    #[inline(always)]
    pub(crate) fn is_live_in(self, head: u64, epoch: u64) -> bool {
        let fields = (1 << (EPOCH_BITS + 2)) - 1;
        let wanted = (State::Live as u64) << EPOCH_BITS | epoch & EPOCH_MASK;
        (head >> self.count_bits ^ wanted) & fields == 0
    }
    #[inline(always)]
    pub(crate) fn is_live(self, head: u64) -> bool {
        head >> (self.count_bits + EPOCH_BITS) & 3 == State::Live as u64
    }
    #[inline(always)]
    pub(crate) fn epoch(self, head: u64) -> u64 {
        head >> self.count_bits & EPOCH_MASK
    }
    #[inline(always)]
    pub(crate) fn count(self, head: u64) -> u64 {
        head & self.count_max()
    }
    /// The largest own count; counts saturate at it.
    #[inline(always)]
    pub(crate) fn count_max(self) -> u64 {
        (1 << self.count_bits) - 1
    }
    /// A head of this generation and state, with `payload` in the 46 bits that all formats have.
    #[inline(always)]
    pub(crate) fn make(self, generation: u64, state: State, payload: u64) -> u64 {
        (generation << 2 | state as u64) << (self.count_bits + EPOCH_BITS) | payload
    }
    /// A live head of the same generation.
    #[inline(always)]
    pub(crate) fn with(self, head: u64, epoch: u64, count: u64) -> u64 {
        let keep = !((1 << (self.count_bits + EPOCH_BITS)) - 1);
        head & keep | (epoch & EPOCH_MASK) << self.count_bits | count
    }
    /// The part of a head that must stay while the row serves its key: generation and state.
    #[inline(always)]
    pub(crate) fn same_life(self, a: u64, b: u64) -> bool {
        (a ^ b) >> (self.count_bits + EPOCH_BITS) == 0
    }
}

/// A live token bucket head of the same generation.
#[inline(always)]
pub(crate) fn with_tat(head: u64, tat: u64) -> u64 {
    head & !TAT_MASK | tat & TAT_MASK
}

/// `a - b` of 46-bit tick clocks.
#[inline(always)]
pub(crate) fn tat_ahead(a: u64, b: u64) -> i64 {
    sign_extend(a.wrapping_sub(b), TAT_BITS)
}

#[inline(always)]
pub(crate) fn sign_extend(value: u64, bits: u32) -> i64 {
    ((value << (64 - bits)) as i64) >> (64 - bits)
}

/// `a - b` of epochs whose low 22 bits are known: serial arithmetic, right while they are less than
/// 2^21 apart. spec: adm-22
#[inline(always)]
pub(crate) fn epoch_ahead<M: Mem>(mem: &M, a: u64, b: u64) -> i64 {
    if mem.planted(Fault::PlainEpochCompare) {
        return (a & EPOCH_MASK) as i64 - (b & EPOCH_MASK) as i64;
    }
    sign_extend(a.wrapping_sub(b), EPOCH_BITS)
}

/// A word of a closed bucket, a remote total or a token bucket's own count.
#[inline(always)]
pub(crate) fn tagged(generation: u64, epoch: u64, count: u32) -> u64 {
    (generation & TAG_GEN_MASK) << 54 | (epoch & EPOCH_MASK) << 32 | u64::from(count)
}
#[inline(always)]
pub(crate) fn tagged_is_of(word: u64, generation: u64) -> bool {
    word >> 54 == generation & TAG_GEN_MASK
}
#[inline(always)]
pub(crate) fn tagged_epoch(word: u64) -> u64 {
    word >> 32 & EPOCH_MASK
}
#[inline(always)]
#[allow(clippy::cast_possible_truncation)] // the low half is the count
pub(crate) fn tagged_count(word: u64) -> u32 {
    word as u32
}

#[inline(always)]
pub(crate) fn key_word(generation: u64, half: u64) -> u64 {
    generation << 48 | half & KEY_MASK
}

/// Half `way & 1` of a tag word.
#[inline(always)]
pub(crate) fn tag_half(word: u64, way: usize) -> u64 {
    word >> ((way & 1) * 32) & 0xffff_ffff
}
#[inline(always)]
pub(crate) fn with_tag_half(word: u64, way: usize, generation: u64, fp: u64) -> u64 {
    let shift = (way & 1) * 32;
    let half = (generation & 0xff) << 24 | fp & FP_MASK;
    word & !(0xffff_ffff << shift) | half << shift
}

/// Bits 31 and 63: whether the low and the high half of `word` carry the fingerprint.
#[inline(always)]
pub(crate) fn tag_hits(word: u64, fp_twice: u64) -> u64 {
    const FPS: u64 = FP_MASK << 32 | FP_MASK;
    const TOP: u64 = 1 << 63 | 1 << 31;
    let differs = (word ^ fp_twice) & FPS;
    // A half that is not 0 carries into its top bit; halves are below 2^24, so none spills over.
    !(differs + (!TOP)) & TOP
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn heads_keep_their_fields() {
        for f in [NARROW, WIDE] {
            let g = f.generation_mask();
            let h = f.with(f.make(g, State::Live, 0), EPOCH_MASK, f.count_max());
            assert_eq!(h, !(1 << (f.count_bits + EPOCH_BITS)));
            assert_eq!((f.generation(h), f.state(h)), (g, State::Live));
            assert_eq!((f.epoch(h), f.count(h)), (EPOCH_MASK, f.count_max()));
            assert_eq!(f.next_generation(h), 0);
            assert!(!f.is_live(f.make(g, State::Pending, TAT_MASK)));
        }
    }

    proptest! {
        #[test]
        fn tags_are_found_in_their_half(a in 0u64..1 << 24, b in 0u64..1 << 24, ga: u8, gb: u8,
                                        fp in 0u64..1 << 24) {
            let w = with_tag_half(with_tag_half(0, 0, ga.into(), a), 1, gb.into(), b);
            for (x, y) in [(fp, fp), (a, a), (b, b)] {
                let hits = tag_hits(w, x << 32 | y);
                prop_assert_eq!(hits >> 31 & 1 == 1, a == x);
                prop_assert_eq!(hits >> 63 & 1 == 1, b == x);
            }
            prop_assert_eq!(tag_half(w, 1) & FP_MASK, b);
        }

        #[test]
        fn serial_epochs_survive_a_wrap(a: u64, ahead in -(1i64 << 21)..1 << 21) {
            let b = a.wrapping_add_signed(ahead);
            prop_assert_eq!(sign_extend((b & EPOCH_MASK).wrapping_sub(a & EPOCH_MASK), 22), ahead);
        }
    }
}
