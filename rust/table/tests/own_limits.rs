//! Charges that bring their own limits: each key by its own, bounded, and not forgotten under a
//! flood (spec: adm-30).

mod common;

use std::collections::HashMap;

use common::{charge, fixed, key, sub, window, Random, SECOND_NS, START_NS};
use gabion_admit::{Outcome, Reading};
use gabion_rule::{Key, Mode, Sliding};
use gabion_table::limits::OPEN_LIMIT;
use gabion_table::{Charge, FailOpen, RawMem, SubSpec, Table};
use proptest::prelude::*;

const HOUR_NS: u64 = 3_600 * SECOND_NS;

/// Rule 0 is one of the configuration, rule 1 is open.
fn a_table(keys: u32) -> Table<RawMem> {
    let open = SubSpec {
        cardinality: Some(keys),
        ..sub(2, window(OPEN_LIMIT, HOUR_NS, HOUR_NS, Sliding::Live))
    };
    Table::private(1 << 20, &[sub(1, fixed(5)), open]).expect("room")
}

/// One charge alone.
fn ask(table: &Table<RawMem>, key: Key, hits: u32, limit: u32, now_ns: u64) -> Charge {
    let mut charges = [charge(1, key, hits).with_limit(limit)];
    let decision = table.decide(&mut charges, now_ns);
    let [charge] = charges;
    assert_eq!(decision.outcome, charge.verdict.outcome);
    charge
}

fn allowed(charge: &Charge) -> bool {
    charge.verdict.outcome == Outcome::Allowed
}

#[test]
fn each_key_is_held_to_the_limit_it_brings() {
    let table = a_table(1_000);
    for limit in [1, 3, 10, 200] {
        for n in 1..=limit {
            let charge = ask(&table, key(limit.into()), 1, limit, START_NS);
            assert!(allowed(&charge), "{n} of {limit}");
            let reading = charge.verdict.reading;
            assert_eq!((reading.limit, reading.remaining), (limit, limit - n));
        }
        let denied = ask(&table, key(limit.into()), 1, limit, START_NS + 1);
        assert!(!allowed(&denied), "one over {limit}");
        assert_eq!(denied.verdict.retry_after_ns, HOUR_NS - 1);
        assert_eq!(denied.verdict.reading.remaining, 0);
    }
    let next = ask(&table, key(1), 1, 1, START_NS + HOUR_NS);
    assert!(allowed(&next), "the next window");
}

#[test]
fn a_limit_of_nothing_admits_nothing_and_keeps_nothing() {
    let table = a_table(1_000);
    for hits in [1, 7, u32::MAX] {
        let charge = ask(&table, key(1), hits, 0, START_NS);
        assert!(!allowed(&charge), "{hits} hits");
        let reading = charge.verdict.reading;
        assert_eq!((reading.limit, reading.remaining), (0, 0));
    }
    assert!(allowed(&ask(&table, key(1), 0, 0, START_NS)), "a read");
    assert_eq!(table.stats().live, 0, "no row was claimed");
}

#[test]
fn case_21_more_hits_than_the_own_limit_are_denied_and_change_nothing() {
    let table = a_table(1_000);
    assert!(!allowed(&ask(&table, key(1), 11, 10, START_NS)));
    assert_eq!(table.stats().live, 0);
    assert!(allowed(&ask(&table, key(1), 10, 10, START_NS)));
    assert!(!allowed(&ask(&table, key(1), 1, 10, START_NS)));
    let largest = ask(&table, key(2), u32::MAX, u32::MAX, START_NS);
    assert!(allowed(&largest), "the largest limit there is");
    assert!(!allowed(&ask(&table, key(2), 1, u32::MAX, START_NS)));
}

#[test]
fn an_own_limit_and_a_rule_are_decided_together() {
    let table = a_table(1_000);
    let request = |own: u32| [charge(0, key(1), 1), charge(1, key(2), 1).with_limit(own)];
    assert_eq!(
        table.decide(&mut request(1), START_NS).outcome,
        Outcome::Allowed
    );
    let mut denied = request(1);
    assert_eq!(table.decide(&mut denied, START_NS).outcome, Outcome::Denied);
    let used = table.read(0, key(1), START_NS).used;
    assert_eq!(used, 1, "the rule is not charged by a denied request");
}

#[test]
fn a_dry_run_counts_past_its_own_limit() {
    let table = a_table(1_000);
    for n in 1..=5u64 {
        let mut charges = [Charge::new(1, key(1), 1, Mode::DryRun, 0).with_limit(2)];
        let decision = table.decide(&mut charges, START_NS);
        assert_eq!(decision.outcome, Outcome::Allowed);
        assert_eq!(charges[0].verdict.reading.used, n);
        assert_eq!(allowed(&charges[0]), n <= 2);
    }
}

#[test]
fn a_clock_that_cannot_be_and_a_rule_that_is_not_there_show_the_own_limit() {
    let table = a_table(1_000);
    let charge = ask(&table, key(1), 1, 7, 0);
    assert_eq!(charge.fail_open, Some(FailOpen::BadClock));
    assert_eq!(charge.verdict.reading, Reading::unused(7));
    let mut unknown = [charge_of_rule(9)];
    table.decide(&mut unknown, START_NS);
    assert_eq!(unknown[0].fail_open, Some(FailOpen::UnknownRule));
}

fn charge_of_rule(rule: u16) -> Charge {
    charge(rule, key(1), 1).with_limit(7)
}

/// Case 25, as far as the table goes: keys beyond the cardinality take no memory, and one that is
/// being denied stays denied while they pass.
#[test]
fn case_25_a_flood_of_own_limits_stays_in_its_rows() {
    let table = a_table(200);
    let rows = table.capacity(1);
    let held: Vec<Key> = (0..20).map(key).collect();
    for &key in &held {
        assert!(allowed(&ask(&table, key, 1, 1, START_NS)));
    }
    for n in 0..100_000u64 {
        if n % 500 == 0 {
            for &key in &held {
                assert!(!allowed(&ask(&table, key, 1, 1, START_NS)), "after {n}");
            }
        }
        let limit = u32::try_from(n % 1_000 + 1).expect("small");
        let _ = ask(&table, key(1 << 32 | n), 1, limit, START_NS);
    }
    let stats = table.stats();
    assert!(stats.live <= rows + table.capacity(0), "{stats:?}");
    assert!(rows <= 256, "{rows} rows");
    assert!(stats.doorkeeper_hits + stats.evicted_hits > 0, "{stats:?}");
}

proptest! {
    /// Against a map: what each key used, and one limit per key.
    #[test]
    fn own_limits_are_exact(seed: u64) {
        let table = a_table(1_000);
        let mut random = Random(seed);
        let mut used: HashMap<u64, u64> = HashMap::new();
        for _ in 0..300 {
            let n = random.below(8);
            let limit = u32::try_from(n * n * n).expect("small");
            let hits = u32::try_from(random.below(u64::from(limit) / 3 + 3)).expect("small");
            let before = used.entry(n).or_default();
            let fits = *before + u64::from(hits) <= u64::from(limit);
            let charge = ask(&table, key(n), hits, limit, START_NS + random.below(HOUR_NS));
            prop_assert_eq!(allowed(&charge), fits, "key {} at {}: {} hits", n, before, hits);
            if fits {
                *before += u64::from(hits);
            }
            let left = u64::from(limit) - *before;
            prop_assert_eq!(u64::from(charge.verdict.reading.remaining), left);
        }
    }
}

#[test]
fn one_key_is_held_to_the_limit_of_each_charge_whatever_the_others_brought() {
    let table = a_table(1_000);
    for n in 1..=3u32 {
        let small = ask(&table, key(1), 1, 3, START_NS);
        assert!(allowed(&small), "{n} of 3");
    }
    assert!(!allowed(&ask(&table, key(1), 1, 3, START_NS)));
    let large = ask(&table, key(1), 1, 10, START_NS);
    assert_eq!(
        (allowed(&large), large.verdict.reading.remaining),
        (true, 6)
    );
    assert!(
        !allowed(&ask(&table, key(1), 1, 3, START_NS)),
        "back to the small one"
    );
    for _ in 0..6 {
        assert!(allowed(&ask(&table, key(1), 1, 10, START_NS)));
    }
    assert!(!allowed(&ask(&table, key(1), 1, 10, START_NS)));
    assert_eq!(table.read(1, key(1), START_NS).used, 10);
}

/// A sliding window against the hits of each bucket: what still counts is what is left, whatever
/// the limit that a charge brings.
fn sliding_is_exact(seed: u64, sliding: Sliding, live_buckets: u64) -> Result<(), TestCaseError> {
    const BUCKET_NS: u64 = 10 * SECOND_NS;
    let open = SubSpec {
        cardinality: Some(1_000),
        ..sub(2, window(OPEN_LIMIT, 6 * BUCKET_NS, BUCKET_NS, sliding))
    };
    let table = Table::private(1 << 20, &[sub(1, fixed(5)), open]).expect("room");
    let mut random = Random(seed);
    let mut hits_at: HashMap<(u64, u64), u64> = HashMap::new();
    let mut now_ns = START_NS;
    for _ in 0..400 {
        // Mostly inside a bucket, at times over several, seldom over all of the window.
        now_ns += match random.below(10) {
            0 => BUCKET_NS * random.below(9),
            _ => random.below(BUCKET_NS / 3),
        };
        let bucket = now_ns / BUCKET_NS;
        let (n, tier) = (
            random.below(3),
            [3, 20, 100][usize::try_from(random.below(3)).expect("3")],
        );
        let hits = random.below(6);
        let live = bucket + 1 - live_buckets..=bucket;
        let used: u64 = live.filter_map(|at| hits_at.get(&(n, at))).sum();
        let fits = used + hits <= tier;
        let limit = u32::try_from(tier).expect("small");
        let charge = ask(
            &table,
            key(n),
            u32::try_from(hits).expect("small"),
            limit,
            now_ns,
        );
        // A read of what is used up says so, and takes nothing.
        prop_assert_eq!(
            allowed(&charge),
            fits || hits == 0 && used <= tier,
            "{} of {}",
            used,
            tier
        );
        let after = if fits { used + hits } else { used };
        if fits {
            *hits_at.entry((n, bucket)).or_default() += hits;
        }
        let reading = charge.verdict.reading;
        prop_assert_eq!(u64::from(reading.remaining), tier.saturating_sub(after));
        prop_assert_eq!(reading.limit, limit);
    }
    Ok(())
}

proptest! {
    #[test]
    fn own_limits_over_a_sliding_window_are_exact(seed: u64) {
        sliding_is_exact(seed, Sliding::Live, 6)?;
        sliding_is_exact(seed, Sliding::Strict, 7)?;
    }
}
