//! A running 64-bit digest of all that happened, to compare two runs of a seed.

use crate::rng::mix;

/// Digest of every datagram and verdict, in order. Not cryptographic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    state: u64,
    /// How many values went in.
    pub values: u64,
}

impl Trace {
    /// Adds one value.
    pub fn add(&mut self, value: u64) {
        self.state = mix(self.state.rotate_left(5) ^ value.wrapping_add(0x9e37_79b9_7f4a_7c15));
        self.values += 1;
    }

    /// Adds bytes and their length.
    pub fn add_bytes(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0u8; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.add(u64::from_le_bytes(word));
        }
        self.add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
    }

    /// The digest so far.
    pub fn digest(&self) -> u64 {
        mix(self.state ^ self.values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_and_lengths_matter() {
        let digest = |parts: &[&[u8]]| {
            let mut trace = Trace::default();
            parts.iter().for_each(|part| trace.add_bytes(part));
            trace.digest()
        };
        assert_ne!(digest(&[b"a", b"b"]), digest(&[b"b", b"a"]));
        assert_ne!(digest(&[b"ab", b""]), digest(&[b"a", b"b"]));
        assert_ne!(digest(&[b"a"]), digest(&[b"a\0"]));
        assert_eq!(digest(&[b"same"]), digest(&[b"same"]));
    }
}
