//! News that a peer lacks although its place of the dirty log is done with.
//!
//! A row that is published again before its earlier place was acknowledged is sent from the later
//! place only. I own, per link, how old such news is. I promise: it is never shown younger than it
//! is, and my memory is bounded; exact for [`MAX_PASSED_ROWS`] rows, older than it is beyond.
//! spec: bnd-4

use crate::acks::Range;
use crate::limits::MAX_PASSED_ROWS;
use crate::link::Link;
use crate::node::Node;

/// Places looked at to find the later one of a row; beyond, it counts as not found.
const LOOKED_AT_MAX: u64 = 64;
/// Cells know the last byte of their latest place.
const STEP: u64 = 256;

/// What one link passed over.
#[derive(Debug, Default)]
pub(crate) struct Passed {
    /// The place that carries a row now, and the oldest place of its news.
    rows: Vec<(u64, u64)>,
    /// Of rows beyond: the oldest place, and before which place all must be acknowledged.
    others: Option<Range>,
}

impl Passed {
    pub(crate) fn clear(&mut self) {
        self.rows.clear();
        self.others = None;
    }

    /// Place `at` is passed over; its row is at `later` now (`None`: it was not found).
    fn pass(&mut self, at: u64, later: Option<u64>, head: u64, lacks: impl Fn(u64) -> bool) {
        if let Some(others) = self.others.as_mut().filter(|o| at < o.1) {
            others.1 = head;
        }
        let mut oldest = at;
        if let Some(known) = self.rows.iter().position(|(place, _)| *place == at) {
            oldest = self.rows.swap_remove(known).1;
        }
        if self.rows.len() >= MAX_PASSED_ROWS {
            self.rows.retain(|(place, _)| lacks(*place));
        }
        let room = self.rows.len() < MAX_PASSED_ROWS;
        let known = self.rows.iter_mut().find(|row| Some(row.0) == later);
        match (later, known) {
            (_, Some(row)) => row.1 = row.1.min(oldest),
            (Some(place), None) if room => self.rows.push((place, oldest)),
            _ => {
                let from = self.others.map_or(oldest, |o| o.0.min(oldest));
                self.others = Some((from, head));
            }
        }
    }

    /// The oldest place whose news the peer lacks, if any. `lacks`: a place is not acknowledged;
    /// `unacked`: the oldest such place.
    pub(crate) fn oldest(&self, unacked: u64, lacks: impl Fn(u64) -> bool) -> Option<u64> {
        let rows = self.rows.iter().filter(|(place, _)| lacks(*place));
        let others = self.others.iter().filter(|(_, until)| *until > unacked);
        let from = others.map(|(from, _)| *from);
        rows.map(|(_, from)| *from).chain(from).min()
    }
}

impl Node {
    /// The frame that takes `range` along passes over places; `None`: the log itself has left them
    /// behind.
    pub(crate) fn passed_over(
        &self,
        link: &mut Link,
        range: Option<Range>,
        places: &[(u64, Option<u32>)],
    ) {
        let mut passed = std::mem::take(&mut link.passed);
        let leaves = |place: u64| range.is_some_and(|(from, to)| (from..to).contains(&place));
        let lacks = |place: u64| leaves(place) || link.lacks(place);
        for (at, id) in places {
            let later = id.and_then(|id| self.later_place(*at, id));
            passed.pass(*at, later, self.log.head(), lacks);
        }
        link.passed = passed;
    }

    /// The place of the log that carries the row of place `at` now.
    fn later_place(&self, at: u64, id: u32) -> Option<u64> {
        let newest = self.log.head().checked_sub(1)?;
        let low = u64::from(self.cells.cell(id).pos);
        let first = newest.checked_sub(newest.wrapping_sub(low) % STEP)?;
        let places = (0..LOOKED_AT_MAX).map_while(|n| first.checked_sub(n * STEP));
        let mut later = places.take_while(|place| *place > at);
        later.find(|place| self.log.get(*place) == Some(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_is_as_old_as_its_first_place_until_the_last_is_acknowledged() {
        let mut passed = Passed::default();
        let all = |_: u64| true;
        passed.pass(3, Some(7), 8, all);
        passed.pass(4, Some(6), 8, all);
        assert_eq!(passed.oldest(4, all), Some(3));
        assert_eq!(passed.oldest(6, |place| place != 7), Some(4));
        // Place 7 is lost and was published again as well.
        passed.pass(7, Some(20), 21, all);
        assert_eq!(passed.oldest(8, |place| place == 20), Some(3));
        assert_eq!(passed.oldest(21, |_| false), None);
    }

    #[test]
    fn beyond_its_memory_news_is_shown_older_and_never_younger() {
        let mut passed = Passed::default();
        let rows = MAX_PASSED_ROWS as u64;
        for at in 0..2 * rows {
            passed.pass(at, Some(10_000 + at), 20_000, |_| true);
            assert!(passed.rows.len() <= MAX_PASSED_ROWS);
        }
        // Those beyond wait for all that was in the log, and for what was passed over of that.
        assert_eq!(passed.oldest(19_999, |_| false), Some(rows));
        passed.pass(15_000, Some(21_000), 22_000, |_| false);
        assert_eq!(passed.oldest(20_000, |_| false), Some(rows));
        assert_eq!(passed.oldest(22_000, |_| false), None);
        // What the log left behind is in no later place.
        passed.clear();
        passed.pass(5, None, 9, |_| true);
        assert_eq!(passed.oldest(8, |_| false), Some(5));
    }
}
