//! Forgetting one key, because an operator asked for it.

use gabion_rule::{Key, RuleIdx};

use crate::layout::HEAD;
use crate::limits::CLAIM_ATTEMPTS_MAX;
use crate::mem::Mem;
use crate::probe::Place;
use crate::stats::Stat;
use crate::types::Forget;
use crate::word::State;
use crate::Table;

impl<M: Mem> Table<M> {
    /// Frees the row of a key with everything in it; its next hit claims a row and counts from 0.
    /// What other members counted comes back with the next news of it. spec: adm-32
    pub fn forget(&self, rule: RuleIdx, key: Key) -> Forget {
        let Some(sub) = self.sub(rule) else {
            return Forget::Absent;
        };
        let fmt = sub.format;
        let place = Place::of(sub, key);
        for _ in 0..CLAIM_ATTEMPTS_MAX {
            let Some(spot) = self.find(sub, fmt, &place, key) else {
                return Forget::Absent;
            };
            // Live to empty in its generation, as the scrub does it: a decider's CAS from the old
            // head fails, and the next claim raises the generation over every word left here.
            let empty = fmt.make(fmt.generation(spot.head), State::Empty, 0);
            let at = sub.row(spot.slot) + HEAD;
            if fmt.is_live(spot.head) && self.mem.cas(at, spot.head, empty).is_ok() {
                self.note(Stat::Live, u64::MAX);
                return Forget::Forgotten;
            }
        }
        Forget::Busy
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{bucket, fixed, key, one, window, S, T0};
    use gabion_admit::Outcome;
    use gabion_rule::Sliding;

    #[test]
    fn a_forgotten_key_starts_afresh_and_no_other_does() {
        let rules = [
            fixed(1, 3, 3_600 * S),
            window(2, 3, 60 * S, S, Sliding::Live),
            bucket(3, 1, 3_600 * S, 3),
        ];
        let table = Table::private(1 << 20, &rules).unwrap();
        for rule in 0..3 {
            for of in [1, 2] {
                let mut outcome = Outcome::Allowed;
                for _ in 0..4 {
                    outcome = one(&table, rule, of, 1, T0).verdict.outcome;
                }
                assert_eq!(outcome, Outcome::Denied, "rule {rule}");
            }
            let live = table.stats().live;
            assert_eq!(table.forget(rule, key(1)), Forget::Forgotten);
            assert_eq!(table.stats().live, live - 1);
            assert_eq!(table.forget(rule, key(1)), Forget::Absent);
            let again = one(&table, rule, 1, 1, T0).verdict;
            assert_eq!(
                (again.outcome, again.reading.remaining),
                (Outcome::Allowed, 2)
            );
            let other = one(&table, rule, 2, 1, T0).verdict.outcome;
            assert_eq!(other, Outcome::Denied, "rule {rule}");
        }
        assert_eq!(table.forget(9, key(1)), Forget::Absent);
    }

    #[test]
    fn what_is_forgotten_under_load_is_never_over_admitted() {
        let table = Table::private(1 << 20, &[fixed(1, 50, 3_600 * S)]).unwrap();
        // Each thread forgets now and then, so that somebody always decides meanwhile.
        let decide = &|thread: usize| {
            let (mut admitted, mut forgotten) = (0, 0);
            for i in 0..20_000 {
                let outcome = one(&table, 0, 7, 1, T0).verdict.outcome;
                admitted += usize::from(outcome == Outcome::Allowed);
                if i % 100 == thread * 10 {
                    forgotten += usize::from(table.forget(0, key(7)) == Forget::Forgotten);
                }
            }
            (admitted, forgotten)
        };
        let (admitted, forgotten) = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..3).map(|t| scope.spawn(move || decide(t))).collect();
            threads.into_iter().fold((0, 0), |sum, thread| {
                let (admitted, forgotten) = thread.join().unwrap();
                (sum.0 + admitted, sum.1 + forgotten)
            })
        });
        assert!(forgotten > 0);
        assert!(
            admitted <= 50 * (forgotten + 1),
            "{admitted} of {forgotten}"
        );
        assert!(
            table.occupancy(0, T0, u64::MAX).live <= 1,
            "one key, one row"
        );
    }
}
