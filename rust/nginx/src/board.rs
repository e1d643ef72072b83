//! A board in a zone: one worker posts the state of gossip, every worker may read it.
//!
//! I own two halves of memory and the word that says which one holds the last text. I promise that
//! neither side waits for the other, and that a text which was overwritten while it was read, or
//! left half-written by a killed worker, is never taken for one. I never judge what is posted.

use gabion_table::Mem;

/// Readings before a torn text is reported.
const READS: usize = 4;

/// What a look at the board gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Posted {
    /// Nothing was ever posted.
    Nothing,
    /// Posts came too fast to be read; look again.
    Torn,
    /// The last post.
    Text(String),
}

/// A board: `pointer` is the word that names the last post, words `start..end` hold it.
#[derive(Clone, Copy, Debug)]
pub struct Board {
    /// Index of the word with version and length.
    pub pointer: usize,
    /// First word.
    pub start: usize,
    /// Word after the last.
    pub end: usize,
}

impl Board {
    fn half(&self, version: u64) -> (usize, usize) {
        let words = self.end.saturating_sub(self.start) / 2;
        let odd = usize::from(version % 2 == 1);
        (self.start + odd * words, words)
    }

    /// Bytes of the longest text.
    pub fn room_bytes(&self) -> usize {
        self.half(0).1.saturating_sub(1) * 8
    }

    /// Posts a text instead of the last one. False when it is too long: nothing was changed.
    /// For one worker at a time; if two post at once, readers find neither.
    pub fn post<M: Mem>(&self, mem: &M, text: &str) -> bool {
        let bytes = text.as_bytes();
        let Ok(length) = u32::try_from(bytes.len()) else {
            return false;
        };
        if bytes.len() > self.room_bytes() {
            return false;
        }
        let version = (mem.load(self.pointer) >> 32).wrapping_add(1) & u64::from(u32::MAX);
        let (start, _) = self.half(version);
        mem.swap(start, sum(bytes));
        for (at, chunk) in bytes.chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            mem.swap(start + 1 + at, u64::from_le_bytes(word));
        }
        // Last; the load in `read` pairs with it.
        mem.swap(self.pointer, version << 32 | u64::from(length));
        true
    }

    /// The last text.
    pub fn read<M: Mem>(&self, mem: &M) -> Posted {
        for _ in 0..READS {
            let pointer = mem.load(self.pointer);
            if pointer == 0 {
                return Posted::Nothing;
            }
            let (start, words) = self.half(pointer >> 32);
            let length = usize::try_from(pointer & u64::from(u32::MAX)).unwrap_or(usize::MAX);
            if length > words.saturating_sub(1) * 8 {
                continue;
            }
            let mut bytes: Vec<u8> = (0..length.div_ceil(8))
                .flat_map(|at| mem.load(start + 1 + at).to_le_bytes())
                .collect();
            bytes.truncate(length);
            if mem.load(start) != sum(&bytes) {
                continue;
            }
            if let Ok(text) = String::from_utf8(bytes) {
                return Posted::Text(text);
            }
        }
        Posted::Torn
    }
}

/// FNV-1a: tells a torn text from a whole one. Nobody who can write here is an enemy.
fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_table::RawMem;
    use std::sync::atomic::{AtomicBool, Ordering};

    const BOARD: Board = Board {
        pointer: 0,
        start: 1,
        end: 1 + 2 * 9,
    };

    #[test]
    fn a_text_is_read_as_it_was_posted_and_one_too_long_changes_nothing() {
        let mem = RawMem::private(19 * 8).unwrap();
        assert_eq!(BOARD.read(&mem), Posted::Nothing);
        for text in ["", "a", "12345678", "ü and 123456789"] {
            assert!(BOARD.post(&mem, text));
            assert_eq!(BOARD.read(&mem), Posted::Text(text.to_owned()));
        }
        assert!(BOARD.post(&mem, &"x".repeat(64)));
        assert!(!BOARD.post(&mem, &"y".repeat(65)));
        assert_eq!(BOARD.read(&mem), Posted::Text("x".repeat(64)));
    }

    #[test]
    fn a_post_that_was_never_finished_is_not_seen() {
        let mem = RawMem::private(19 * 8).unwrap();
        assert!(BOARD.post(&mem, "first"));
        assert!(BOARD.post(&mem, "second"));
        // A worker died while it wrote the third, over the first.
        mem.swap(BOARD.start + BOARD.room_bytes() / 8 + 2, 77);
        assert_eq!(BOARD.read(&mem), Posted::Text("second".to_owned()));
        // Memory that was written over is no text.
        mem.swap(BOARD.start + 1, 78);
        assert_eq!(BOARD.read(&mem), Posted::Torn);
    }

    #[test]
    fn a_reader_beside_a_writer_sees_whole_texts_only() {
        let mem = RawMem::private(19 * 8).unwrap();
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for i in 0..20_000 {
                    let digit = char::from(b"abcdefghijklmnopqrstuvwxyz"[i % 26]);
                    let text = digit.to_string().repeat(1 + i % 64);
                    assert!(BOARD.post(&mem, &text));
                }
                ended.store(true, Ordering::SeqCst);
            });
            while !ended.load(Ordering::SeqCst) {
                if let Posted::Text(text) = BOARD.read(&mem) {
                    let first = text.chars().next();
                    assert!(text.chars().all(|c| Some(c) == first), "{text}");
                }
            }
        });
        assert_ne!(BOARD.read(&mem), Posted::Torn);
    }
}
