//! When places of the dirty log were given out, coarsely.
//!
//! I promise: the age of a place is never shown younger than it is, and my memory is bounded. The
//! older a place is, the coarser its age: at most about twice what is true.
//! spec: bnd-4

/// Marks kept; a look through them for each round of emission once they are used up.
const MARKS_MAX: usize = 64;

/// Places and when they were given out, both rising.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    marks: Vec<(u64, u64)>,
}

impl Marks {
    /// Place `pos` is given out at `now_ns`.
    pub(crate) fn push(&mut self, pos: u64, now_ns: u64) {
        if self.marks.last().is_some_and(|(_, at)| *at >= now_ns) {
            return;
        }
        if self.marks.len() >= MARKS_MAX {
            self.drop_one(now_ns);
        }
        self.marks.push((pos, now_ns));
    }

    /// Drops the mark whose loss makes an age wrong by the smallest factor.
    fn drop_one(&mut self, now_ns: u64) {
        let age = |at: usize| u128::from(now_ns.saturating_sub(self.marks[at].1).max(1));
        let (mut drop, mut least) = (0, (u128::MAX, 1));
        for at in 1..self.marks.len().saturating_sub(1) {
            let factor = (age(at - 1), age(at + 1));
            if drop == 0 || factor.0 * least.1 < least.0 * factor.1 {
                (drop, least) = (at, factor);
            }
        }
        self.marks.remove(drop);
    }

    /// Age of place `pos`, nanoseconds: at least what is true.
    pub(crate) fn age_ns(&self, pos: u64, now_ns: u64) -> u64 {
        let after = self.marks.partition_point(|(place, _)| *place <= pos);
        let mark = self.marks.get(after.saturating_sub(1));
        mark.map_or(0, |(_, at)| now_ns.saturating_sub(*at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_is_never_too_young_and_the_youngest_are_exact() {
        let mut marks = Marks::default();
        for pos in 0..10_000u64 {
            marks.push(pos, 1_000 + pos * 10);
            assert!(marks.marks.len() <= MARKS_MAX);
        }
        let now = 1_000 + 10_000 * 10;
        for pos in 0..10_000u64 {
            let (told, is) = (marks.age_ns(pos, now), now - (1_000 + pos * 10));
            assert!(told >= is && told <= 2 * is, "{pos}: {told} for {is}");
        }
        assert_eq!(marks.age_ns(9_999, now), 10);
        assert_eq!(Marks::default().age_ns(5, 7), 0);
    }

    #[test]
    fn places_of_one_instant_share_a_mark() {
        let mut marks = Marks::default();
        (0..100).for_each(|pos| marks.push(pos, 5));
        assert_eq!((marks.marks.len(), marks.age_ns(99, 8)), (1, 3));
    }
}
