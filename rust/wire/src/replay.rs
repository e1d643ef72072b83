//! Which sequence numbers of a peer's session were already taken.

use crate::error::WireError;
use crate::header::Header;
use crate::limits::REPLAY_WINDOW_FRAMES;
use crate::section::Ack;

/// A sliding set of the newest `WIDTH` (1 to 128) sequence numbers. Takes each at most once; what
/// is older than the window is refused, because it can no longer be told from a repeat. spec:
/// wire-70
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeqWindow<const WIDTH: u32> {
    largest: u64,
    /// Bit i: `largest - i` was taken.
    taken: u128,
}

impl<const WIDTH: u32> Default for SeqWindow<WIDTH> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const WIDTH: u32> SeqWindow<WIDTH> {
    const MASK: u128 = {
        assert!(WIDTH >= 1 && WIDTH <= 128);
        u128::MAX >> (128 - WIDTH)
    };

    /// Nothing taken yet.
    pub fn new() -> Self {
        SeqWindow {
            largest: 0,
            taken: 0,
        }
    }

    /// The largest number taken; 0 when none was.
    pub fn largest(&self) -> u64 {
        self.largest
    }

    /// Would [`SeqWindow::accept`] take it? Changes nothing.
    ///
    /// # Errors
    /// [`WireError::Replayed`] or [`WireError::TooOld`].
    pub fn check(&self, seq: u64) -> Result<(), WireError> {
        if self.taken == 0 || seq > self.largest {
            return Ok(());
        }
        let back = self.largest - seq;
        if back >= u64::from(WIDTH) {
            return Err(WireError::TooOld);
        }
        if self.taken >> back & 1 == 1 {
            return Err(WireError::Replayed);
        }
        Ok(())
    }

    /// Takes a number once.
    ///
    /// # Errors
    /// [`WireError::Replayed`] or [`WireError::TooOld`]; the window is unchanged.
    pub fn accept(&mut self, seq: u64) -> Result<(), WireError> {
        self.check(seq)?;
        if self.taken == 0 {
            self.largest = seq;
            self.taken = 1;
        } else if seq > self.largest {
            let ahead = seq - self.largest;
            let shift = u32::try_from(ahead).ok().filter(|s| *s < WIDTH);
            self.taken = shift.map_or(0, |s| self.taken << s) & Self::MASK | 1;
            self.largest = seq;
        } else {
            self.taken |= 1 << (self.largest - seq);
        }
        Ok(())
    }

    /// Bit i: `largest - 1 - i` was taken. Numbers below 1 were never sent and read as taken, so
    /// that the start of a session costs no bytes in an ack. spec: wire-31
    pub fn taken_before(&self) -> u64 {
        let low = u64::MAX;
        let seen = u64::try_from(self.taken >> 1 & u128::from(low)).unwrap_or(low);
        let sent_before = self.largest.saturating_sub(1);
        let never_sent = if sent_before >= 64 {
            0
        } else {
            u64::MAX << sent_before
        };
        seen | never_sent
    }
}

/// The replay window of one peer: of one incarnation and one session.
///
/// The caller replaces it when it believes a new session (after a nonce echo when frames are
/// signed); a frame of any other session is refused here. spec: wire-71
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayWindow {
    incarnation: u64,
    session: u32,
    window: SeqWindow<REPLAY_WINDOW_FRAMES>,
}

impl ReplayWindow {
    /// A fresh window for a session.
    pub fn new(incarnation: u64, session: u32) -> Self {
        ReplayWindow {
            incarnation,
            session,
            window: SeqWindow::new(),
        }
    }

    /// Is this header of the window's incarnation and session?
    pub fn is_of(&self, header: &Header) -> bool {
        self.incarnation == header.incarnation && self.session == header.session
    }

    /// Last check of a receiver, after the MAC: takes the frame's number once.
    ///
    /// # Errors
    /// [`WireError::OtherSession`], [`WireError::Replayed`], [`WireError::TooOld`]; nothing
    /// changed.
    pub fn accept(&mut self, header: &Header) -> Result<(), WireError> {
        if !self.is_of(header) {
            return Err(WireError::OtherSession);
        }
        self.window.accept(header.seq)
    }

    /// The ack that this window calls for; `None` before the first frame.
    pub fn ack(&self, delay_us: u32) -> Option<Ack> {
        let largest = self.window.largest();
        (largest > 0).then(|| Ack {
            largest,
            before: self.window.taken_before(),
            delay_us,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// The definition, as a set: refused when taken before, or when `WIDTH` or more behind.
    fn oracle(taken: &mut BTreeSet<u64>, width: u64, seq: u64) -> Result<(), WireError> {
        let largest = taken.last().copied();
        match largest {
            Some(l) if seq <= l && l - seq >= width => Err(WireError::TooOld),
            _ if taken.contains(&seq) => Err(WireError::Replayed),
            _ => {
                taken.insert(seq);
                Ok(())
            }
        }
    }

    fn explore<const W: u32>(numbers: u64, depth: usize) -> u64 {
        let mut runs = 0;
        let mut stack = vec![(SeqWindow::<W>::new(), BTreeSet::new(), 0usize)];
        while let Some((window, taken, at)) = stack.pop() {
            if at == depth {
                runs += 1;
                continue;
            }
            for seq in 1..=numbers {
                let (mut w, mut t) = (window, taken.clone());
                let before = w;
                let expected = oracle(&mut t, u64::from(W), seq);
                assert_eq!(w.check(seq), expected);
                assert_eq!(w.accept(seq), expected);
                assert!(expected.is_ok() || w == before);
                check_ack::<W>(&w, &t);
                stack.push((w, t, at + 1));
            }
        }
        runs
    }

    fn check_ack<const W: u32>(w: &SeqWindow<W>, taken: &BTreeSet<u64>) {
        let largest = w.largest();
        for i in 0..u64::from(W - 1).min(64) {
            let bit = w.taken_before() >> i & 1 == 1;
            let wanted = largest <= i + 1 || taken.contains(&(largest - 1 - i));
            assert_eq!(bit, wanted, "largest {largest}, bit {i}, {taken:?}");
        }
    }

    #[test]
    fn small_windows_agree_with_a_set_on_every_order() {
        assert_eq!(explore::<1>(6, 6), 6u64.pow(6));
        assert_eq!(explore::<2>(6, 6), 6u64.pow(6));
        assert_eq!(explore::<3>(7, 6), 7u64.pow(6));
        assert_eq!(explore::<5>(8, 6), 8u64.pow(6));
    }

    #[test]
    fn the_full_width_agrees_with_a_set_at_its_edges() {
        for gap in [
            0u64,
            1,
            63,
            64,
            65,
            126,
            127,
            128,
            129,
            1 << 40,
            (1 << 48) - 2,
        ] {
            let mut w = SeqWindow::<128>::new();
            let mut t = BTreeSet::new();
            for seq in [
                1,
                1 + gap,
                1,
                2,
                1 + gap,
                gap.max(1),
                gap.saturating_sub(126).max(1),
            ] {
                assert_eq!(
                    w.accept(seq),
                    oracle(&mut t, 128, seq),
                    "gap {gap}, seq {seq}"
                );
            }
        }
        let mut w = SeqWindow::<128>::new();
        assert_eq!(w.accept(u64::MAX), Ok(()));
        assert_eq!(w.accept(u64::MAX), Err(WireError::Replayed));
        assert_eq!(w.accept(0), Err(WireError::TooOld));
    }

    #[test]
    fn case_50_a_frame_of_another_session_is_not_taken_and_changes_nothing() {
        let mut header = Header::new(7, 1, 10, 3);
        let mut w = ReplayWindow::new(10, 3);
        assert_eq!(w.accept(&header), Ok(()));
        let before = w;
        header.seq = 2;
        header.session = 4;
        assert_eq!(w.accept(&header), Err(WireError::OtherSession));
        header.session = 3;
        header.incarnation = 11;
        assert_eq!(w.accept(&header), Err(WireError::OtherSession));
        assert_eq!(w, before);
    }
}
