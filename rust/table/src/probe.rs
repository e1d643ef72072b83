//! Finding a key: two candidate sets, a line of tags each.

use crate::layout::{Sub, HEAD, KEY_A, KEY_B, TAG_LINE};
use crate::mem::Mem;
use crate::row::Spot;
use crate::word::{index, key_word, tag_hits, HeadFormat, FP_MASK};
use crate::Table;
use gabion_rule::Key;

/// Where a key may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) sets: [usize; 2],
    /// The fingerprint in both halves of a word; never 0 in either, so that a tag that was never
    /// set does not match.
    pub(crate) fp_twice: u64,
}

/// A key, mixed. Keys are outputs of a PRF; the mixing is for callers (tests, mostly) whose are
/// not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mix {
    once: u64,
}

impl Mix {
    #[inline(always)]
    pub(crate) fn of(key: Key) -> Mix {
        Mix {
            once: (key.a ^ key.b.rotate_left(24)).wrapping_mul(0x9e37_79b9_7f4a_7c15),
        }
    }

    #[inline(always)]
    pub(crate) fn first(self, sub: &Sub) -> usize {
        index((self.once >> 32).wrapping_mul(sub.sets) >> 32)
    }

    /// Another set than the first, unless there is only one.
    #[inline(always)]
    pub(crate) fn second(self, sub: &Sub) -> usize {
        let twice = (self.once ^ self.once >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
        let second = index((twice >> 32).wrapping_mul(sub.sets) >> 32);
        let first = self.first(sub);
        match second == first {
            false => second,
            true if (first as u64) + 1 < sub.sets => first + 1,
            true => 0,
        }
    }

    #[inline(always)]
    pub(crate) fn fp_twice(self) -> u64 {
        // Never 0, so that a tag that was never set does not match.
        let fp = self.once & FP_MASK | 1;
        fp << 32 | fp
    }
}

impl Place {
    #[inline(always)]
    pub(crate) fn of(sub: &Sub, key: Key) -> Place {
        let mix = Mix::of(key);
        let fp_twice = mix.fp_twice();
        Place {
            sets: [mix.first(sub), mix.second(sub)],
            fp_twice,
        }
    }

    #[inline(always)]
    pub(crate) fn fp(self) -> u64 {
        self.fp_twice & FP_MASK
    }

    /// The sets to look at: one, when there is only one.
    #[inline(always)]
    pub(crate) fn distinct(&self) -> &[usize] {
        if self.sets[0] == self.sets[1] {
            &self.sets[..1]
        } else {
            &self.sets
        }
    }
}

impl<M: Mem> Table<M> {
    /// The row of `key`: live, or being claimed for it and complete.
    #[inline(always)]
    pub(crate) fn find(&self, sub: &Sub, fmt: HeadFormat, place: &Place, key: Key) -> Option<Spot> {
        match self.find_in(sub, fmt, place.sets[0], place.fp_twice, key, usize::MAX) {
            Some(spot) => Some(spot),
            None => self.find_in(sub, fmt, place.sets[1], place.fp_twice, key, usize::MAX),
        }
    }

    /// The row of `key`; one that the old table has for it, when this one has none yet.
    #[inline(always)]
    pub(crate) fn find_or_inherit(
        &self,
        sub: &Sub,
        fmt: HeadFormat,
        place: &Place,
        key: Key,
        now_ns: u64,
    ) -> Option<Spot> {
        let found = self.find(sub, fmt, place, key);
        match (&found, &self.heritage) {
            (None, Some(_)) => self.inherit_row(sub, key, now_ns).and_then(Result::ok),
            _ => found,
        }
    }

    /// The first row of `key` in one set, other than `except`.
    #[inline(always)]
    pub(crate) fn find_in(
        &self,
        sub: &Sub,
        fmt: HeadFormat,
        set: usize,
        fp_twice: u64,
        key: Key,
        except: usize,
    ) -> Option<Spot> {
        let line = sub.tags + set * TAG_LINE;
        for i in 0..sub.tag_words {
            let mut hits = tag_hits(self.mem.load(line + i), fp_twice);
            while hits != 0 {
                // Bits 31 and 63 stand for the low and the high half.
                let way = i * 2 + (hits.trailing_zeros() >> 5) as usize;
                let slot = set * sub.ways + way;
                if slot != except {
                    if let Some(head) = self.row_of(sub, fmt, slot, key) {
                        return Some(Spot { slot, head });
                    }
                }
                hits &= hits - 1;
            }
        }
        None
    }

    /// The head of row `slot` when it is live or pending for `key`.
    ///
    /// The head is loaded before the key words. Key words that carry its generation were written by
    /// the claim that began this life, and no other key is ever written with that generation, so
    /// the head belongs to `key`, and so does every later head of the same life. spec: adm-24
    #[inline(always)]
    pub(crate) fn row_of(&self, sub: &Sub, fmt: HeadFormat, slot: usize, key: Key) -> Option<u64> {
        const { assert!(KEY_A == 0 && KEY_B == 1 && HEAD == 2) };
        let [a, b, head] = self.mem.load3(sub.row(slot));
        let generation = fmt.generation(head);
        let ours = a == key_word(generation, key.a)
            && b == key_word(generation, key.b)
            && fmt.is_taken(head);
        ours.then_some(head)
    }
}
