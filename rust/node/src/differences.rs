//! What a peer enforces otherwise than this member, rule by rule, for operators.
//!
//! I own the bounded list of one link: limiters both have with other numbers, and limiters that
//! only the peer has. I never change what is enforced: each member enforces its own.

use gabion_rule::RuleIdx;

use crate::limits::MAX_DIFFERENCES;

/// How one peer's limiters differ from this member's. Each list has at most
/// [`MAX_DIFFERENCES`] entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Differences {
    /// Limiters both have, with the digest of the peer's numbers.
    pub differing: Vec<(RuleIdx, u64)>,
    /// Limiters that only the peer has: name on the wire and digest.
    pub not_here: Vec<(u64, u64)>,
    /// Entries that found their list full.
    pub left_off: u64,
}

impl Differences {
    /// The peer said what its numbers of a limiter of ours are.
    pub(crate) fn heard(&mut self, limiter: RuleIdx, ours: u64, theirs: u64) {
        self.differing.retain(|(known, _)| *known != limiter);
        if ours != theirs {
            self.left_off += u64::from(!push(&mut self.differing, (limiter, theirs)));
        }
    }

    /// The peer has a limiter that we have not.
    pub(crate) fn heard_unknown(&mut self, short: u64, digest: u64) {
        self.not_here.retain(|(known, _)| *known != short);
        self.left_off += u64::from(!push(&mut self.not_here, (short, digest)));
    }
}

fn push<T>(list: &mut Vec<T>, entry: T) -> bool {
    let room = list.len() < MAX_DIFFERENCES;
    if room {
        list.push(entry);
    }
    room
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_kept_once_renewed_and_forgotten() {
        let mut d = Differences::default();
        d.heard(3, 7, 8);
        d.heard(3, 7, 9);
        assert_eq!(d.differing, [(3, 9)]);
        d.heard(3, 7, 7);
        assert_eq!(d, Differences::default());
        d.heard_unknown(5, 1);
        d.heard_unknown(5, 2);
        assert_eq!(d.not_here, [(5, 2)]);
    }

    #[test]
    fn a_peer_of_very_many_rules_stays_bounded() {
        let mut d = Differences::default();
        for i in 0..1_000u16 {
            d.heard(i, 0, 1);
            d.heard_unknown(u64::from(i), 1);
        }
        assert_eq!(d.differing.len(), MAX_DIFFERENCES);
        assert_eq!(d.not_here.len(), MAX_DIFFERENCES);
        assert_eq!(d.left_off, 2 * (1_000 - MAX_DIFFERENCES as u64));
    }
}
