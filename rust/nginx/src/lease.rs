//! The lease by which one worker runs gossip: arithmetic only.
//!
//! I own the word in the zone: who holds the lease (32 random bits, not a process id, which may be
//! used again) and until when (a monotonic tick). I promise that at any moment at most one worker
//! believes itself the holder for longer than a lease's term, and that a lease whose holder is gone
//! can be taken after its term. I never read a clock: ticks are passed in, and compared as serial
//! numbers, so that their wrap is none.

use crate::limits::{LEASE_TERM_TICKS, LEASE_TICK_MS};

/// The tick of a monotonic time in nanoseconds.
pub fn tick_of(mono_ns: u64) -> u32 {
    // The low 32 bits are meant: ticks are serial numbers with a period of 497 days.
    u32::try_from((mono_ns / (LEASE_TICK_MS * 1_000_000)) & u64::from(u32::MAX)).unwrap_or(0)
}

/// A lease word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Who holds it; 0: nobody.
    pub holder: u32,
    /// Until when, as a tick.
    pub until: u32,
}

impl Lease {
    /// From the zone's word.
    pub fn from_word(word: u64) -> Self {
        let [a, b, c, d, e, f, g, h] = word.to_be_bytes();
        Lease {
            holder: u32::from_be_bytes([a, b, c, d]),
            until: u32::from_be_bytes([e, f, g, h]),
        }
    }

    /// The zone's word.
    pub fn word(self) -> u64 {
        u64::from(self.holder) << 32 | u64::from(self.until)
    }

    fn has_ended(self, now: u32) -> bool {
        // Serial comparison: `now` is past `until` when it is less than half a period ahead.
        self.holder == 0 || now.wrapping_sub(self.until) < u32::MAX / 2
    }
}

/// What a worker does when it has looked at the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Another holds it.
    Wait,
    /// It is mine: write this word instead of the one I saw, by compare-and-swap.
    Renew(u64),
    /// It has ended: try to write this word instead of the one I saw; it is mine when that works.
    Take(u64),
}

/// The next step of worker `me` (not 0), who saw `word` at tick `now`.
pub fn step(word: u64, me: u32, now: u32) -> Step {
    let lease = Lease::from_word(word);
    let mine = Lease {
        holder: me,
        until: now.wrapping_add(LEASE_TERM_TICKS),
    };
    if lease.holder == me {
        Step::Renew(mine.word())
    } else if lease.has_ended(now) {
        Step::Take(mine.word())
    } else {
        Step::Wait
    }
}

/// The word that gives the lease up, if `word` says that it is `me` who holds it.
pub fn release(word: u64, me: u32) -> Option<u64> {
    (Lease::from_word(word).holder == me).then_some(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_free_lease_is_taken_held_renewed_and_given_up() {
        let Step::Take(word) = step(0, 7, 1_000) else {
            panic!("free")
        };
        assert_eq!(step(word, 8, 1_001), Step::Wait);
        assert!(matches!(step(word, 7, 1_001), Step::Renew(next) if next != word));
        assert_eq!(release(word, 8), None);
        assert_eq!(release(word, 7), Some(0));
    }

    #[test]
    fn case_54_a_killed_holder_is_followed_after_its_term() {
        let Step::Take(word) = step(0, 7, 1_000) else {
            panic!("free")
        };
        assert_eq!(step(word, 8, 1_000 + LEASE_TERM_TICKS - 1), Step::Wait);
        assert!(matches!(
            step(word, 8, 1_000 + LEASE_TERM_TICKS),
            Step::Take(_)
        ));
    }

    #[test]
    fn the_wrap_of_ticks_is_none() {
        let now = u32::MAX - 10;
        let Step::Take(word) = step(0, 7, now) else {
            panic!("free")
        };
        assert_eq!(step(word, 8, now.wrapping_add(20)), Step::Wait);
        let after = now.wrapping_add(LEASE_TERM_TICKS);
        assert!(matches!(step(word, 8, after), Step::Take(_)));
        assert_eq!(tick_of(u64::MAX), tick_of(u64::MAX), "no overflow");
        let period_ns = (1u64 << 32) * LEASE_TICK_MS * 1_000_000;
        assert_eq!(tick_of(period_ns + LEASE_TICK_MS * 1_000_000), 1);
    }
}
