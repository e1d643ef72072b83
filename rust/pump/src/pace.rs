//! The pace of the scrub: how many rows are due. spec: pmp-7

/// Where the scrub is, and what it owes.
#[derive(Debug, Default)]
pub(crate) struct Scrub {
    pub(crate) cursor: u64,
    pub(crate) rows_total: u64,
    period_ns: u64,
    /// Time for which rows are due but not yet visited.
    owed_ns: u64,
    last_ns: Option<u64>,
    visited: u64,
    pub(crate) first_pass_done: bool,
}

impl Scrub {
    pub(crate) fn new(period_ns: u64) -> Self {
        Scrub {
            period_ns,
            ..Scrub::default()
        }
    }

    /// How many rows are due at `now_ns`, at most `most`.
    pub(crate) fn due(&mut self, now_ns: u64, most: usize) -> usize {
        if self.rows_total == 0 {
            return 0;
        }
        let last = self.last_ns.replace(now_ns).unwrap_or(now_ns);
        if !self.first_pass_done {
            return most;
        }
        self.owed_ns = self.owed_ns.saturating_add(now_ns.saturating_sub(last));
        let rows =
            u128::from(self.owed_ns) * u128::from(self.rows_total) / u128::from(self.period_ns);
        let rows = usize::try_from(rows).unwrap_or(usize::MAX);
        if rows >= most {
            // Behind (the driver stood still): full speed, and the debt is not carried further
            // than one period.
            self.owed_ns = self.owed_ns.min(self.period_ns);
        }
        let rows = rows.min(most);
        let paid = u128::try_from(rows).unwrap_or(0) * u128::from(self.period_ns)
            / u128::from(self.rows_total);
        self.owed_ns = self
            .owed_ns
            .saturating_sub(u64::try_from(paid).unwrap_or(u64::MAX));
        rows
    }

    /// Notes `rows` visited rows; returns how many passes that completed.
    pub(crate) fn advance(&mut self, rows: usize) -> u64 {
        self.visited = self
            .visited
            .saturating_add(u64::try_from(rows).unwrap_or(u64::MAX));
        if self.visited < self.rows_total {
            return 0;
        }
        self.first_pass_done = true;
        let passes = self.visited / self.rows_total.max(1);
        self.visited %= self.rows_total.max(1);
        passes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scrub(rows_total: u64, period_ns: u64) -> Scrub {
        Scrub {
            rows_total,
            period_ns,
            ..Scrub::default()
        }
    }

    #[test]
    fn the_first_pass_runs_at_full_speed_and_later_ones_take_a_period() {
        let mut scrub = scrub(1_000, 1_000_000);
        assert_eq!(scrub.due(0, 600), 600);
        assert_eq!(scrub.advance(600), 0);
        assert_eq!(scrub.due(10, 600), 600);
        assert_eq!(scrub.advance(600), 1);
        let mut visited = 0;
        for step in 1..=100u64 {
            visited += scrub.due(10 + step * 10_000, 600);
        }
        assert!(
            (990..=1_000).contains(&visited),
            "one period visits the table once: {visited}"
        );
    }

    #[test]
    fn slow_small_tables_lose_no_fraction_of_a_row() {
        let mut scrub = scrub(3, 60_000_000_000);
        scrub.due(0, 100);
        scrub.advance(100);
        let visited: usize = (1..=120_000u64)
            .map(|ms| scrub.due(ms * 1_000_000, 100))
            .sum();
        assert!(
            (5..=6).contains(&visited),
            "2 passes of 3 rows in 120 s: {visited}"
        );
    }

    #[test]
    fn a_driver_that_stood_still_catches_up_in_bounded_slices() {
        let mut scrub = scrub(1_000, 1_000);
        scrub.due(0, 100);
        scrub.advance(1_000);
        assert_eq!(scrub.due(1_000_000, 100), 100);
        let mut slices = 1;
        while scrub.due(1_000_000, 100) > 0 {
            slices += 1;
            assert!(slices < 20, "the debt is capped at one pass");
        }
    }
}
