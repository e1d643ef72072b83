//! How members share what a window has left, for rules that ask for it.
//!
//! `fast` knows no shares: whoever sees room admits. `paced` lets each member take, in one slice
//! of time, a part of what is left that is small enough for the parts of all to fit; when less is
//! left than parts, members take turns. `strict` gives each member a fixed part, by a fixed place,
//! so that what members know of each other does not matter. spec: pace-1

use crate::WindowPlan;
use gabion_rule::Pace;

/// How the members share a window's limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pacing {
    /// Nobody denies on a share.
    #[default]
    Fast,
    /// Parts of what is left.
    Paced,
    /// A fixed part.
    Strict {
        /// Parts of the limit; at least 1.
        members: u32,
        /// Which of them this member has, from 0; beyond them: none.
        place: u32,
    },
}

impl Pacing {
    /// `strict` for the member of this place (from 0): one beyond the parts has none. spec: pace-6
    pub fn strict(members: u32, place: u32) -> Pacing {
        Pacing::Strict {
            members: members.max(1),
            place,
        }
    }

    /// How a rule of this pace is decided on this member.
    pub fn of(pace: Pace) -> Pacing {
        match pace {
            Pace::Fast => Pacing::Fast,
            Pace::Paced => Pacing::Paced,
            Pace::Strict { members, place } => Pacing::strict(members, place.unwrap_or(u32::MAX)),
        }
    }

    /// What this member alone may admit of `limit` under `strict`; else the limit. spec: pace-5
    #[inline]
    pub fn part_of(self, limit: u32) -> u32 {
        match self {
            Pacing::Fast | Pacing::Paced => limit,
            Pacing::Strict { members, place } if place >= members => 0,
            Pacing::Strict { members, .. } => limit / members.max(1),
        }
    }

    /// This member's place under `strict`.
    pub fn place(self) -> Option<u32> {
        match self {
            Pacing::Fast | Pacing::Paced => None,
            Pacing::Strict { place, .. } => Some(place),
        }
    }

    /// Whether decisions look at shares.
    #[inline]
    pub fn shares(self) -> bool {
        self != Pacing::Fast
    }
}

/// What `paced` must know of the cluster, kept in one word beside the counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Crowd {
    /// Live members, this one included; 0 and 1: alone.
    pub members: u16,
    /// This member's place among them, from 0; all members sort alike.
    pub place: u16,
    /// A slice is 2^this nanoseconds: longer than news takes to reach every live member.
    pub slice_shift: u8,
}

impl Crowd {
    /// The crowd for links on which news takes at most `lag_ns`. spec: pace-3
    pub fn new(members: usize, place: usize, lag_ns: u64) -> Crowd {
        let (least, most) = (
            crate::limits::SLICE_SHIFT_MIN,
            crate::limits::SLICE_SHIFT_MAX,
        );
        let shift = 64 - lag_ns.max(1).saturating_sub(1).leading_zeros();
        Crowd {
            members: u16::try_from(members).unwrap_or(u16::MAX),
            place: u16::try_from(place).unwrap_or(u16::MAX),
            slice_shift: u8::try_from(shift).unwrap_or(most).clamp(least, most),
        }
    }

    /// As one word; 0 is [`Crowd::default`], and nobody else.
    pub fn to_word(self) -> u64 {
        u64::from(self.members) | u64::from(self.place) << 16 | u64::from(self.slice_shift) << 32
    }

    /// The crowd of such a word.
    #[allow(clippy::cast_possible_truncation)] // the fields are those bits
    #[inline]
    pub fn from_word(word: u64) -> Crowd {
        Crowd {
            members: word as u16,
            place: (word >> 16) as u16,
            slice_shift: (word >> 32) as u8 & 63,
        }
    }

    /// The slice of `now_ns`, by cluster time.
    #[inline]
    pub fn slice(self, now_ns: u64) -> u64 {
        now_ns >> self.slice_shift
    }

    /// Whether the slice is this member's turn: every other one is somebody's, so that what was
    /// admitted in one turn is known everywhere before the next begins. spec: pace-4
    #[inline]
    pub fn has_turn(self, slice: u64) -> bool {
        slice & 1 == 0 && (slice >> 1) % u64::from(self.members.max(1)) == u64::from(self.place)
    }

    /// Whether `hits` more are within this member's part. `taken`: its hits of this slice; `left`:
    /// what the window has left as seen here, without them. spec: pace-2, pace-4
    #[inline]
    pub fn admits(self, taken: u64, left: u64, hits: u32, slice: u64) -> bool {
        let members = u64::from(self.members);
        if members <= 1 {
            return true;
        }
        let parts = 2 * members;
        let start = left.saturating_add(taken);
        let wanted = taken.saturating_add(u64::from(hits));
        if wanted.saturating_mul(parts) <= start {
            return true;
        }
        // The others may take half of what is left at the same time, unless it is less than parts.
        self.has_turn(slice) && (start < parts || wanted <= start / 2)
    }

    /// Nanoseconds from `now_ns` until its next slice; at least 1.
    #[inline]
    pub fn slice_rest_ns(self, now_ns: u64) -> u64 {
        let length = 1u64 << self.slice_shift;
        length - (now_ns & (length - 1))
    }
}

impl WindowPlan {
    /// Nanoseconds from `now_ns` until the oldest epoch that counts began after `born_ns`; `None`
    /// when it did. Counters that are younger do not know what was admitted before. spec: pace-7
    #[inline]
    pub fn unknown_ns(&self, born_ns: u64, now_ns: u64) -> Option<u64> {
        let (epoch, into_ns) = self.split(now_ns);
        let first = born_ns.div_ceil(self.bucket_ns) + u64::from(self.closed);
        let missing = first.checked_sub(epoch).filter(|epochs| *epochs > 0)?;
        Some(missing.saturating_mul(self.bucket_ns) - into_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_rule::Sliding;

    fn crowd(members: usize, place: usize) -> Crowd {
        Crowd::new(members, place, 10_000_000)
    }

    #[test]
    fn a_crowd_fits_a_word_and_a_slice_is_longer_than_the_lag() {
        for (members, place, lag_ns) in [(0, 0, 0), (1, 0, 1), (16, 15, 12_000_000)] {
            let crowd = Crowd::new(members, place, lag_ns);
            assert_eq!(Crowd::from_word(crowd.to_word()), crowd);
            assert!(1u64 << crowd.slice_shift >= lag_ns);
            assert!(1u64 << crowd.slice_shift < 2 * lag_ns.max(1 << 21));
        }
        let far = Crowd::new(1_000_000, 1_000_000, u64::MAX);
        assert_eq!(Crowd::from_word(far.to_word()), far);
        assert_eq!(Crowd::from_word(0), Crowd::default());
    }

    #[test]
    fn the_parts_of_all_members_fit_over_two_slices() {
        for members in [2usize, 3, 16, 200] {
            for left in [0u64, 1, 5, 31, 32, 33, 1_000, 40_000] {
                let mut all = 0;
                for place in 0..members {
                    for slice in [2 * place as u64, 2 * place as u64 + 1] {
                        let (mut taken, crowd) = (0, crowd(members, place));
                        let most = left / (2 * members as u64) + 2;
                        while taken < most && crowd.admits(taken, left - taken, 1, slice | 1) {
                            taken += 1;
                        }
                        all += taken;
                    }
                }
                assert!(all <= left, "{members} members take {all} of {left}");
            }
        }
    }

    #[test]
    fn when_less_is_left_than_parts_one_member_after_the_other_has_a_turn() {
        let members = 5;
        for slice in 0..40u64 {
            let on_turn = (0..members).filter(|&place| crowd(members, place).has_turn(slice));
            assert_eq!(
                on_turn.count(),
                usize::from(slice % 2 == 0),
                "slice {slice}"
            );
            let who = usize::try_from(slice / 2).unwrap() % members;
            for place in 0..members {
                let admitted = crowd(members, place).admits(0, 9, 9, slice);
                assert_eq!(admitted, slice % 2 == 0 && place == who);
            }
        }
        // Many hits at once come through in a turn, up to half of what is left.
        assert!(crowd(5, 0).admits(0, 100, 50, 0) && !crowd(5, 0).admits(0, 100, 51, 0));
        assert!(!crowd(5, 0).admits(0, 100, 50, 1) && crowd(5, 0).admits(0, 100, 10, 1));
        assert!(
            crowd(1, 0).admits(0, 100, 100, 1),
            "alone there is nobody to share with"
        );
    }

    #[test]
    fn strict_parts_never_add_up_to_more_than_the_limit() {
        for limit in [0u32, 1, 7, 8, 1_000, u32::MAX] {
            for members in [1u32, 2, 3, 7, 1_000] {
                let part = |place| u64::from(Pacing::strict(members, place).part_of(limit));
                let all: u64 = (0..members + 3).map(part).sum();
                assert!(all <= u64::from(limit));
                assert!(
                    u64::from(limit) - all < u64::from(members),
                    "{limit} / {members}"
                );
                assert_eq!(part(members), 0, "a surplus member");
            }
        }
    }

    #[test]
    fn counters_know_a_window_that_began_after_them() {
        let fixed = WindowPlan::new(10, 100, 100, Sliding::Live);
        let cases = [
            (200, 250, None),
            (201, 250, Some(50)),
            (201, 300, None),
            (0, 5, None),
        ];
        for (born_ns, now_ns, unknown) in cases {
            assert_eq!(
                fixed.unknown_ns(born_ns, now_ns),
                unknown,
                "{born_ns} {now_ns}"
            );
        }
        let sliding = WindowPlan::new(10, 100, 25, Sliding::Strict);
        assert_eq!(sliding.unknown_ns(201, 230), Some(95));
        assert_eq!(sliding.unknown_ns(201, 325), None);
    }
}
