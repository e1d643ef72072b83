//! The table against a map: random sequences of charges, passing time, remote totals and scrubs,
//! for every algorithm. The map is what the semantics say, written as plainly as possible.

mod common;

use std::collections::HashMap;

use common::{bucket, charge, key, sub, window, SECOND_NS, START_NS};
use gabion_admit::{Outcome, Plan};
use gabion_rule::Sliding;
use gabion_table::{Publish, RawMem, Table};
use proptest::prelude::*;

const KEYS: u64 = 6;

/// One thing that happens.
#[derive(Clone, Debug)]
enum Event {
    /// `hits` on key `key`; 0 is a read.
    Hit { key: u64, hits: u32 },
    /// Time passes: this many 64ths of a bucket.
    Wait { parts: u64 },
    /// A remote total arrives, for the epoch this many back.
    Remote { key: u64, age: u64, total: u64 },
    /// The scrub visits some rows.
    Scrub { rows: usize },
    /// The driver takes what is dirty.
    Drain,
}

fn event(most_hits: u32, most_remote: u64, closed: u64) -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => (0..KEYS, 0..=most_hits).prop_map(|(key, hits)| Event::Hit { key, hits }),
        3 => prop_oneof![1u64..20, 20u64..200, Just(64), Just(64 * 40)]
            .prop_map(|parts| Event::Wait { parts }),
        2 => (0..KEYS, 0..=closed, 0..=most_remote)
            .prop_map(|(key, age, total)| Event::Remote { key, age, total }),
        1 => (1usize..200).prop_map(|rows| Event::Scrub { rows }),
        1 => Just(Event::Drain),
    ]
}

fn a_table(plan: Plan) -> Table<RawMem> {
    Table::private(64 << 10, &[sub(1, plan)]).expect("64 KiB hold six keys")
}

/// Counts per key and epoch: own and remote.
#[derive(Default)]
struct Counts(HashMap<(u64, u64), (u64, u64)>);

impl Counts {
    fn at(&mut self, key: u64, epoch: u64) -> &mut (u64, u64) {
        self.0.entry((key, epoch)).or_default()
    }

    fn total(&self, key: u64, epoch: u64) -> u64 {
        self.0
            .get(&(key, epoch))
            .map_or(0, |(own, remote)| own + remote)
    }
}

/// A window as the semantics say it.
struct WindowOracle {
    limit: u64,
    bucket_ns: u64,
    window_ns: u64,
    sliding: Sliding,
    counts: Counts,
}

impl WindowOracle {
    fn closed(&self) -> u64 {
        let buckets = self.window_ns.div_ceil(self.bucket_ns);
        buckets - u64::from(self.sliding == Sliding::Live)
    }

    fn used(&self, key: u64, now_ns: u64) -> u64 {
        let (epoch, into) = (now_ns / self.bucket_ns, now_ns % self.bucket_ns);
        let closed = self.closed();
        (0..=closed)
            .map(|age| {
                let total = self.counts.total(key, epoch - age);
                if age < closed || self.sliding != Sliding::Weighted {
                    return total;
                }
                // The oldest bucket reaches from closed*bucket before this one began; what of it is
                // still less than a window old counts.
                let began = closed * self.bucket_ns + into;
                let inside = (self.bucket_ns + self.window_ns).saturating_sub(began);
                total * inside.min(self.bucket_ns) / self.bucket_ns
            })
            .sum()
    }

    fn run(&mut self, events: &[Event]) -> Result<(), TestCaseError> {
        let plan = window(
            u32::try_from(self.limit).expect("small"),
            self.window_ns,
            self.bucket_ns,
            self.sliding,
        );
        let table = a_table(plan);
        let mut now_ns = START_NS + 12_345;
        let mut cursor = 0;
        for event in events {
            let epoch = now_ns / self.bucket_ns;
            match *event {
                Event::Wait { parts } => now_ns += parts * self.bucket_ns / 64,
                Event::Hit { key: n, hits } => self.hit(&table, n, hits, now_ns)?,
                Event::Remote { key: n, age, total } => {
                    let said = table.publish_remote_or_claim(0, key(n), epoch - age, total, now_ns);
                    let remote = &mut self.counts.at(n, epoch - age).1;
                    let raised = total > *remote;
                    *remote = total.max(*remote);
                    if raised {
                        prop_assert_eq!(said, Publish::Published, "{:?}", event);
                    }
                }
                Event::Scrub { rows } => table.scrub(&mut cursor, rows, now_ns, &mut |_| ()),
                Event::Drain => {
                    self.drain(&table, now_ns)?;
                }
            }
            for n in 0..KEYS {
                let reading = table.read(0, key(n), now_ns);
                let used = self.used(n, now_ns);
                prop_assert_eq!(reading.used, used, "key {} after {:?}", n, event);
                prop_assert_eq!(
                    u64::from(reading.remaining),
                    self.limit.saturating_sub(used)
                );
            }
        }
        Ok(())
    }

    fn hit(
        &mut self,
        table: &Table<RawMem>,
        n: u64,
        hits: u32,
        now_ns: u64,
    ) -> Result<(), TestCaseError> {
        let mut charges = [charge(0, key(n), hits)];
        let outcome = table.decide(&mut charges, now_ns).outcome;
        let verdict = charges[0].verdict;
        let used = self.used(n, now_ns);
        let fits = used + u64::from(hits) <= self.limit;
        // Hits of 0 only look: they are denied by what is beyond the limit already.
        let expected = if fits {
            Outcome::Allowed
        } else {
            Outcome::Denied
        };
        prop_assert_eq!(outcome, expected, "key {} hits {} used {}", n, hits, used);
        prop_assert_eq!(verdict.outcome, expected);
        if outcome == Outcome::Allowed {
            self.counts.at(n, now_ns / self.bucket_ns).0 += u64::from(hits);
        } else {
            prop_assert!(verdict.retry_after_ns >= 1);
        }
        prop_assert_eq!(verdict.reading.used, self.used(n, now_ns));
        Ok(())
    }

    /// Every own count that the driver sees is the whole count of that epoch.
    fn drain(&mut self, table: &Table<RawMem>, now_ns: u64) -> Result<(), TestCaseError> {
        let mut rows = Vec::new();
        table.drain_dirty(1_000, now_ns, &mut |row| rows.push(row));
        for row in rows {
            let n = (0..KEYS)
                .find(|n| key(*n) == row.key)
                .expect("a key of ours");
            for (epoch, own) in &row.counts[..usize::from(row.n)] {
                prop_assert_eq!(u64::from(*own), self.counts.at(n, *epoch).0, "{:?}", row);
            }
        }
        Ok(())
    }
}

/// Runs events on a window.
fn check(limit: u64, window: u64, bucket: u64, s: Sliding, events: &[Event]) -> TestCaseResult {
    let mut oracle = WindowOracle {
        limit,
        bucket_ns: bucket,
        window_ns: window,
        sliding: s,
        counts: Counts::default(),
    };
    oracle.run(events)
}

type TestCaseResult = Result<(), TestCaseError>;

/// Seeds of failures are printed, not kept in files.
fn config() -> ProptestConfig {
    ProptestConfig {
        cases: 300,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

fn events(most_hits: u32, most_remote: u64, closed: u64) -> impl Strategy<Value = Vec<Event>> {
    proptest::collection::vec(event(most_hits, most_remote, closed), 1..120)
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_fixed_window_is_what_the_map_says(limit in 1u64..30, events in events(12, 40, 0)) {
        check(limit, SECOND_NS, SECOND_NS, Sliding::Live, &events)?;
    }

    #[test]
    fn a_sliding_window_is_what_the_map_says(
        limit in 1u64..30, buckets in 2u64..9, events in events(12, 40, 1),
    ) {
        check(limit, buckets * SECOND_NS, SECOND_NS, Sliding::Live, &events)?;
    }

    #[test]
    fn a_strict_window_is_what_the_map_says(
        limit in 1u64..30, buckets in 1u64..9, events in events(12, 40, 1),
    ) {
        check(limit, buckets * SECOND_NS, SECOND_NS, Sliding::Strict, &events)?;
    }

    #[test]
    fn a_weighted_window_is_what_the_map_says(
        limit in 1u64..30, window in 1u64..40, bucket in 1u64..10, events in events(12, 40, 1),
    ) {
        let bucket = bucket.min(window) * 100_000_000;
        check(limit, window * 100_000_000, bucket, Sliding::Weighted, &events)?;
    }

    #[test]
    fn a_large_limit_is_exact(events in events(1 << 30, 1 << 31, 0)) {
        check(u64::from(u32::MAX), SECOND_NS, SECOND_NS, Sliding::Live, &events)?;
    }

    #[test]
    fn a_token_bucket_is_what_exact_arithmetic_says(
        hits in 1u64..2_000,
        per in prop_oneof![Just(SECOND_NS), Just(60 * SECOND_NS), 1u64..1 << 40],
        burst in 1u32..50,
        steps in proptest::collection::vec((0..KEYS, 0u32..60, 0u64..300), 1..150),
    ) {
        token_bucket(hits, per, burst, &steps)?;
    }
}

/// Exact arrival times in units of 1 / hits ns. Where exact and table differ by less than a tick,
/// the table may round either way, so close calls follow the table.
fn token_bucket(hits: u64, per_ns: u64, burst: u32, steps: &[(u64, u32, u64)]) -> TestCaseResult {
    let table = a_table(bucket(hits, per_ns, burst));
    let (rate, per) = (u128::from(hits), u128::from(per_ns));
    let mut arrival: HashMap<u64, u128> = HashMap::new();
    let mut now_ns = START_NS + 777;
    for &(n, want, wait_parts) in steps {
        // Waits in hundredths of the time one hit takes, some long.
        let wait = per * u128::from(wait_parts.saturating_sub(100)) / rate / 50;
        now_ns += u64::try_from(wait).expect("a short wait");
        let now = u128::from(now_ns) * rate;
        let tat = arrival.get(&n).copied().unwrap_or(0).max(now);
        let after = tat + per * u128::from(want);
        let edge = now + per * u128::from(burst);
        let close = after.abs_diff(edge) <= per / 512 + 2 * rate;
        let outcome = {
            let mut charges = [charge(0, key(n), want)];
            table.decide(&mut charges, now_ns).outcome
        };
        if !close && want > 0 {
            let expected = if after <= edge {
                Outcome::Allowed
            } else {
                Outcome::Denied
            };
            prop_assert_eq!(outcome, expected, "key {} hits {} at {}", n, want, now_ns);
        }
        if outcome == Outcome::Allowed && want > 0 {
            arrival.insert(n, after);
        }
    }
    Ok(())
}

/// A remote total counts in a token bucket, only once, and never denies longer than the slack.
#[test]
fn a_token_bucket_charges_the_increase_of_a_remote_total_once() {
    let table = a_table(bucket(10, SECOND_NS, 20));
    let now_ns = START_NS;
    let Plan::Gcra(plan) = bucket(10, SECOND_NS, 20) else {
        panic!("a token bucket")
    };
    let epoch = plan.split(now_ns).0;
    assert!(common::hit(&table, key(1), 1, now_ns));
    assert_eq!(
        table.publish_remote(0, key(1), epoch, 4, now_ns),
        Publish::Published
    );
    let used = table.read(0, key(1), now_ns).used;
    assert!(
        used <= 5,
        "one own hit and at most four remote ones: {used}"
    );
    assert_eq!(
        table.publish_remote(0, key(1), epoch, 4, now_ns),
        Publish::Unchanged
    );
    assert_eq!(
        table.publish_remote(0, key(1), epoch, 3, now_ns),
        Publish::Unchanged
    );
    assert_eq!(table.read(0, key(1), now_ns).used, used);
    assert_eq!(
        table.publish_remote(0, key(1), epoch, 7, now_ns),
        Publish::Published
    );
    assert_eq!(table.read(0, key(1), now_ns).used, used + 3);
    // A flood of remote hits is capped: after the slack and one hit's time, one hit passes.
    assert_eq!(
        table.publish_remote(0, key(1), epoch, 100_000, now_ns),
        Publish::Published
    );
    assert!(!common::hit(&table, key(1), 1, now_ns));
    assert!(common::hit(&table, key(1), 1, now_ns + 121_000_000));
    assert!(!common::hit(&table, key(1), 1, now_ns + 121_000_000));
}
