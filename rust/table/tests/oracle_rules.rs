//! Whole requests against a map: several charges, equal ones among them, enforced or dry run
//! (cases 12, 13, 16, 21, 30).

mod common;

use std::collections::BTreeMap;

use common::{fixed, key, strict, sub, SECOND_NS, START_NS};
use gabion_admit::Outcome;
use gabion_rule::Mode;
use gabion_table::{Charge, RawMem, Table};
use proptest::prelude::*;

const KEYS: u64 = 3;
/// Rule 0: a fixed window. Rule 1: two closed buckets, the oldest whole. Rule 2: a dry run.
const LIMITS: [u32; 3] = [7, 12, 4];
const CLOSED: [u64; 3] = [0, 2, 0];
const MODES: [Mode; 3] = [Mode::Enforce, Mode::Enforce, Mode::DryRun];

/// (rule, key, hits) of each charge, and how long to wait before: tenths of a bucket.
type Request = (Vec<(u16, u64, u32)>, u64);

fn request() -> impl Strategy<Value = Request> {
    let hits = prop_oneof![4 => Just(1u32), 2 => 0u32..5, 1 => Just(100)];
    let charge = (0u16..3, 0..KEYS, hits);
    (
        proptest::collection::vec(charge, 1..6),
        prop_oneof![4 => Just(0u64), 2 => 1u64..15],
    )
}

/// Hits per (rule, key) and epoch.
#[derive(Default)]
struct Oracle(BTreeMap<(u16, u64, u64), u64>);

impl Oracle {
    fn used(&self, rule: u16, n: u64, epoch: u64) -> u64 {
        let first = epoch - CLOSED[usize::from(rule)];
        (first..=epoch)
            .map(|e| self.0.get(&(rule, n, e)).copied().unwrap_or(0))
            .sum()
    }

    fn fits(&self, rule: u16, n: u64, hits: u64, epoch: u64) -> bool {
        self.used(rule, n, epoch) + hits <= u64::from(LIMITS[usize::from(rule)])
    }

    fn check(&mut self, table: &Table<RawMem>, request: &Request, now_ns: u64) -> TestCaseResult {
        let epoch = now_ns / SECOND_NS;
        let mut merged: BTreeMap<(u16, u64), u64> = BTreeMap::new();
        let mut charges = Vec::new();
        for (tag, (rule, n, hits)) in (0u8..).zip(&request.0) {
            *merged.entry((*rule, *n)).or_insert(0) += u64::from(*hits);
            charges.push(Charge::new(
                *rule,
                key(*n),
                *hits,
                MODES[usize::from(*rule)],
                tag,
            ));
        }
        let over = |rule: u16, n: u64| !self.fits(rule, n, merged[&(rule, n)], epoch);
        let denied = merged
            .keys()
            .any(|(r, n)| MODES[usize::from(*r)] == Mode::Enforce && over(*r, *n));

        let decision = table.decide(&mut charges, now_ns);
        prop_assert_eq!(decision.outcome == Outcome::Denied, denied, "{:?}", request);
        prop_assert_eq!(decision.phantom_hits, 0);
        let mut longest = 0;
        for charge in &charges {
            let (rule, n, _) = request.0[usize::from(charge.tag)];
            prop_assert_eq!(charge.fail_open, None);
            // What a dry run says to a mere look is left open.
            if merged[&(rule, n)] == 0 && charge.mode == Mode::DryRun {
                continue;
            }
            prop_assert_eq!(charge.verdict.outcome == Outcome::Denied, over(rule, n));
            prop_assert_eq!(
                charge.verdict.outcome == Outcome::Denied,
                charge.verdict.retry_after_ns > 0
            );
            if charge.mode == Mode::Enforce {
                longest = longest.max(charge.verdict.retry_after_ns);
            }
        }
        if denied {
            let decider = charges.iter().find(|c| Some(c.tag) == decision.decider);
            let decider = decider.expect("a denial names a charge");
            prop_assert_eq!(decider.mode, Mode::Enforce);
            prop_assert_eq!(decider.verdict.retry_after_ns, longest);
        } else {
            for ((rule, n), hits) in merged {
                *self.0.entry((rule, n, epoch)).or_insert(0) += hits;
            }
        }
        for rule in 0..3 {
            for n in 0..KEYS {
                let reading = table.read(rule, key(n), now_ns);
                prop_assert_eq!(
                    reading.used,
                    self.used(rule, n, epoch),
                    "rule {} {:?}",
                    rule,
                    request
                );
            }
        }
        Ok(())
    }
}

type TestCaseResult = Result<(), TestCaseError>;

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_request_charges_all_or_nothing(requests in proptest::collection::vec(request(), 1..60)) {
        let plans = [fixed(LIMITS[0]), strict(LIMITS[1], 2), fixed(LIMITS[2])];
        let rules = [sub(1, plans[0]), sub(2, plans[1]), sub(3, plans[2])];
        let table = Table::private(64 << 10, &rules).expect("room for nine keys");
        let mut oracle = Oracle::default();
        let mut now_ns = START_NS;
        for request in &requests {
            now_ns += request.1 * SECOND_NS / 10;
            oracle.check(&table, request, now_ns)?;
        }
    }
}
