//! The dirty log: one ring of cell ids in order of publication; each link keeps a cursor.
//!
//! I promise: a place is a 64-bit number that is never reused; places older than the ring are known
//! to be gone, so a link that fell behind notices. spec: rep-5

/// A log of up to this many places is told whole to a new peer: about a window of frames.
const TOLD_WHOLE: u64 = 4_096;

#[derive(Debug)]
pub(crate) struct DirtyLog {
    ring: Vec<u32>,
    cap: usize,
    head: u64,
}

impl DirtyLog {
    pub(crate) fn new(entries: u32) -> DirtyLog {
        DirtyLog {
            ring: Vec::new(),
            cap: entries.clamp(1, 1 << 30).next_power_of_two() as usize,
            head: 0,
        }
    }

    /// The place the next entry gets.
    pub(crate) fn head(&self) -> u64 {
        self.head
    }

    /// The oldest place still there.
    pub(crate) fn tail(&self) -> u64 {
        self.head - self.ring.len() as u64
    }

    /// Where a link to a new peer starts: a log that is still short is told whole, which survives
    /// loss better than a repair; of a long one the peer asks for what it lacks. spec: rep-12
    pub(crate) fn start(&self) -> u64 {
        if self.head <= TOLD_WHOLE {
            self.tail()
        } else {
            self.head
        }
    }

    fn slot(&self, pos: u64) -> usize {
        usize::try_from(pos & (self.cap as u64 - 1)).unwrap_or(0)
    }

    pub(crate) fn push(&mut self, id: u32) {
        let slot = self.slot(self.head);
        if self.ring.len() < self.cap {
            self.ring.push(id);
        } else {
            self.ring[slot] = id;
        }
        self.head += 1;
    }

    /// The entry at a place; `None` when it is gone or not yet there.
    pub(crate) fn get(&self, pos: u64) -> Option<u32> {
        if pos >= self.head || pos < self.tail() {
            return None;
        }
        self.ring.get(self.slot(pos)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_there_until_the_ring_overran_them() {
        let mut log = DirtyLog::new(4);
        for i in 0..11u32 {
            log.push(i * 10);
            assert_eq!(log.head(), u64::from(i) + 1);
            for pos in 0..13u64 {
                let there = pos <= u64::from(i) && pos + 4 > u64::from(i);
                assert_eq!(log.get(pos).is_some(), there, "{pos} of {i}");
                if there {
                    assert_eq!(u64::from(log.get(pos).unwrap()), pos * 10);
                }
            }
        }
    }
}
