//! What a table promises, on real memory.
#![allow(clippy::cast_possible_truncation)]

use crate::*;
use gabion_admit::{Outcome, Plan};
use gabion_rule::{Algorithm, CounterIdentity, Key, Mode, Sliding};

pub(crate) const S: u64 = 1_000_000_000;
/// An hour boundary, far from zero.
pub(crate) const T0: u64 = 1_800_000_000 * S;

pub(crate) fn spec(n: u8, algorithm: Algorithm) -> SubSpec {
    SubSpec {
        identity: CounterIdentity([n; 16]),
        plan: Plan::new(&algorithm),
        cardinality: None,
    }
}

pub(crate) fn fixed(n: u8, limit: u32, window_ns: u64) -> SubSpec {
    window(n, limit, window_ns, window_ns, Sliding::Live)
}

pub(crate) fn window(n: u8, limit: u32, w: u64, b: u64, sliding: Sliding) -> SubSpec {
    spec(
        n,
        Algorithm::Window {
            limit,
            window_ns: w,
            bucket_ns: b,
            sliding,
        },
    )
}

pub(crate) fn bucket(n: u8, hits: u64, per_ns: u64, burst: u32) -> SubSpec {
    spec(
        n,
        Algorithm::TokenBucket {
            hits,
            per_ns,
            burst,
            epoch_ns: 1_024 * 1_000_000 * 64,
        },
    )
}

pub(crate) fn key(n: u64) -> Key {
    Key {
        a: n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16,
        b: n,
    }
}

pub(crate) fn one<M: Mem>(t: &Table<M>, rule: u16, k: u64, hits: u32, now: u64) -> Charge {
    let mut charges = [Charge::new(rule, key(k), hits, Mode::Enforce, 0)];
    t.decide(&mut charges, now);
    let [charge] = charges;
    charge
}

pub(crate) fn admits<M: Mem>(t: &Table<M>, rule: u16, k: u64, n: u32, now: u64) -> u32 {
    let mut admitted = 0;
    for _ in 0..n {
        let c = one(t, rule, k, 1, now);
        assert_eq!(c.fail_open, None);
        admitted += u32::from(c.verdict.outcome == Outcome::Allowed);
    }
    admitted
}

#[test]
fn a_fixed_window_admits_its_limit_and_starts_afresh() {
    let t = Table::private(1 << 20, &[fixed(1, 5, 10 * S)]).unwrap();
    for k in 0..100 {
        assert_eq!(admits(&t, 0, k, 9, T0 + 3 * S), 5);
    }
    let denied = one(&t, 0, 7, 1, T0 + 3 * S).verdict;
    assert_eq!((denied.reading.remaining, denied.reading.used), (0, 5));
    assert_eq!(
        (denied.retry_after_ns, denied.reading.reset_ns),
        (7 * S, 7 * S)
    );
    assert_eq!(admits(&t, 0, 7, 9, T0 + 10 * S), 5);
    assert_eq!(t.stats().live, 100);
    assert_eq!(t.read(0, key(7), T0 + 10 * S).used, 5);
    assert_eq!(t.read(0, key(7777), T0 + 10 * S).remaining, 5);
}

#[test]
fn a_sliding_window_keeps_its_sum() {
    for (sliding, expect) in [
        (Sliding::Live, [5, 0, 0, 5]),
        (Sliding::Strict, [5, 0, 0, 0]),
        (Sliding::Weighted, [5, 0, 0, 0]),
    ] {
        let t = Table::private(1 << 20, &[window(1, 5, 3 * S, S, sliding)]).unwrap();
        let got = [0, 1, 2, 3].map(|i| admits(&t, 0, 1, 7, T0 + i * S));
        assert_eq!(got, expect, "{sliding:?}");
    }
    let t = Table::private(1 << 20, &[window(1, 6, 3 * S, S, Sliding::Live)]).unwrap();
    let got: Vec<u32> = (0..9)
        .map(|i| admits(&t, 0, 1, 1 + i % 3, T0 + u64::from(i) * S))
        .collect();
    assert_eq!(got, [1, 2, 3, 1, 2, 3, 1, 2, 3]);
}

#[test]
fn case_20_a_token_bucket_refills_exactly() {
    let t = Table::private(1 << 20, &[bucket(1, 1, S, 5)]).unwrap();
    assert_eq!(admits(&t, 0, 1, 9, T0), 5);
    assert_eq!(admits(&t, 0, 1, 9, T0 + 2 * S), 2);
    assert_eq!(admits(&t, 0, 1, 9, T0 + 500 * S), 5);
    let denied = one(&t, 0, 1, 1, T0 + 500 * S).verdict;
    assert_eq!(denied.outcome, Outcome::Denied);
    assert!((S..S + 10).contains(&denied.retry_after_ns), "{denied:?}");
}

#[test]
fn case_12_one_over_its_limit_leaves_the_other_uncharged() {
    let t = Table::private(1 << 20, &[fixed(1, 60, 60 * S), fixed(2, 1, 3600 * S)]).unwrap();
    let ask = |hits| {
        let mut c = [
            Charge::new(0, key(1), hits, Mode::Enforce, 7),
            Charge::new(1, key(1), 1, Mode::Enforce, 8),
        ];
        t.decide(&mut c, T0)
    };
    assert_eq!(ask(4).decider, Some(8));
    let denied = ask(1);
    assert_eq!((denied.outcome, denied.decider), (Outcome::Denied, Some(8)));
    assert_eq!(t.read(0, key(1), T0).used, 4);
}

#[test]
fn dirty_rows_and_remote_totals_meet() {
    let t = Table::private(1 << 20, &[fixed(1, 10, S), bucket(2, 1, S, 10)]).unwrap();
    for rule in 0..2 {
        assert_eq!(admits(&t, rule, 5, 3, T0), 3);
        let mut rows = vec![];
        assert_eq!(t.drain_dirty(10, T0, &mut |r| rows.push(r)), 1);
        assert_eq!(rows.len(), 1);
        let (r, epoch) = (rows[0], t.layout.subs[usize::from(rule)].plan.epoch_of(T0));
        assert_eq!(
            (r.rule, r.key, r.n, r.counts[0]),
            (rule, key(5), 1, (epoch, 3))
        );
        assert_eq!(t.drain_dirty(10, T0, &mut |_| panic!("drained")), 0);
        assert_eq!(
            t.publish_remote(rule, key(6), epoch, 3, T0),
            Publish::Absent
        );
        assert_eq!(
            t.publish_remote(rule, key(5), epoch, 3, T0),
            Publish::Published
        );
        assert_eq!(
            t.publish_remote(rule, key(5), epoch, 2, T0),
            Publish::Unchanged
        );
        assert_eq!(
            t.publish_remote(rule, key(5), epoch + 9, 2, T0),
            Publish::Stale
        );
    }
    assert_eq!(admits(&t, 0, 5, 9, T0), 4);
}

fn ask<M: Mem>(t: &Table<M>, charges: &[(u16, u64, u32, Mode)]) -> (Decision, Vec<Charge>) {
    let mut c: Vec<Charge> = (0u8..)
        .zip(charges)
        .map(|(tag, &(rule, k, hits, mode))| Charge::new(rule, key(k), hits, mode, tag))
        .collect();
    let decision = t.decide(&mut c, T0);
    c.sort_by_key(|c| c.tag);
    (decision, c)
}

#[test]
fn case_9_a_budget_too_small_is_refused() {
    let rules = [fixed(1, 5, S), window(2, 5, 64 * S, S, Sliding::Strict)];
    let error = Table::private(4096, &rules).unwrap_err();
    let TableError::TooSmall {
        need_bytes,
        rules: 2,
        ..
    } = error
    else {
        panic!("{error}")
    };
    let t = Table::private(need_bytes as usize, &rules).unwrap();
    assert_eq!((t.capacity(0), t.capacity(1), t.capacity(2)), (16, 16, 0));
    assert!(Table::private(need_bytes as usize - 8, &rules).is_err());
    assert_eq!(
        Table::private(1 << 20, &[]).unwrap_err(),
        TableError::NoRules
    );
    let mut large = fixed(1, 5, S);
    large.cardinality = Some(1_000_000);
    let error = Table::private(1 << 20, &[large]).unwrap_err();
    assert!(
        matches!(error, TableError::CardinalityTooLarge { .. }),
        "{error}"
    );
}

#[test]
fn case_56_the_bytes_are_used() {
    let mut declared = fixed(1, 5, S);
    declared.cardinality = Some(10_000);
    let t = Table::private(64 << 20, &[declared, fixed(2, 5, S), fixed(3, 5, S)]).unwrap();
    assert_eq!(t.capacity(0), 12_512);
    assert!(t.capacity(1).abs_diff(t.capacity(2)) <= 16);
    let bytes_a_slot = (64 << 20) as f64 / t.stats().rows as f64;
    assert!((69.0..70.5).contains(&bytes_a_slot), "{bytes_a_slot}");
}

#[test]
fn case_7_and_55_counts_survive_a_change_of_limit() {
    let mem = std::sync::Arc::new(RawMem::private(1 << 20).unwrap());
    let old = Table::format(mem.clone(), &[fixed(1, 10, 3_600 * S)]).unwrap();
    assert_eq!(admits(&old, 0, 1, 99, T0), 10);
    let new = Table::attach(mem.clone(), &[fixed(1, 20, 3_600 * S)]).unwrap();
    assert_eq!(admits(&new, 0, 1, 99, T0), 10);
    let low = Table::attach(mem.clone(), &[fixed(1, 7, 3_600 * S)]).unwrap();
    let reading = one(&low, 0, 1, 1, T0).verdict.reading;
    assert_eq!((reading.remaining, reading.used), (0, 20), "case 8");
    let other = Table::attach(mem.clone(), &[fixed(1, 10, S)]).unwrap_err();
    assert_eq!(other, TableError::OtherLayout);
    assert_eq!(
        Table::attach(mem, &[fixed(2, 10, 3_600 * S)]).unwrap_err(),
        TableError::OtherLayout
    );
    let blank = RawMem::private(1 << 20).unwrap();
    assert_eq!(
        Table::attach(blank, &[fixed(1, 9, S)]).unwrap_err(),
        TableError::NotATable
    );
}

#[test]
fn case_10_the_largest_limit_is_exact() {
    let t = Table::private(1 << 20, &[fixed(1, u32::MAX, S)]).unwrap();
    assert_eq!(
        one(&t, 0, 1, u32::MAX - 1, T0).verdict.outcome,
        Outcome::Allowed
    );
    assert_eq!(one(&t, 0, 1, 2, T0).verdict.outcome, Outcome::Denied);
    assert_eq!(one(&t, 0, 1, 1, T0).verdict.outcome, Outcome::Allowed);
    assert_eq!(one(&t, 0, 1, 1, T0).verdict.outcome, Outcome::Denied);
}

#[test]
fn case_13_and_21_reads_and_impossible_charges_change_nothing() {
    for spec in [
        fixed(1, 5, S),
        window(1, 5, 4 * S, S, Sliding::Live),
        bucket(1, 1, S, 5),
    ] {
        let t = Table::private(1 << 20, &[spec]).unwrap();
        assert_eq!(one(&t, 0, 1, 0, T0).verdict.reading.remaining, 5);
        assert_eq!(one(&t, 0, 1, 6, T0).verdict.outcome, Outcome::Denied);
        assert_eq!(t.stats().live, 0, "no row for either");
        assert_eq!(admits(&t, 0, 1, 3, T0), 3);
        assert_eq!(one(&t, 0, 1, 6, T0).verdict.outcome, Outcome::Denied);
        let read = one(&t, 0, 1, 0, T0).verdict;
        assert_eq!(
            (read.outcome, read.reading.remaining),
            (Outcome::Allowed, 2)
        );
        assert_eq!(t.read(0, key(1), T0).remaining, 2);
    }
}

#[test]
fn a_peek_is_denied_as_a_charge_would_be_and_counts_nothing() {
    for spec in [
        fixed(1, 2, S),
        window(1, 2, 4 * S, S, Sliding::Live),
        bucket(1, 1, S, 2),
    ] {
        let t = Table::private(1 << 20, &[spec, fixed(2, 9, S)]).unwrap();
        let charge = |rule, tag| Charge::new(rule, key(1), 1, Mode::Enforce, tag);
        let ask = |more: bool| {
            let mut both = vec![charge(0, 0).peeking()];
            both.extend(more.then(|| charge(1, 1)));
            let decision = t.decide(&mut both, T0);
            (decision.outcome, both[0].verdict)
        };
        assert_eq!(ask(false).1.reading.remaining, 2);
        assert_eq!(t.stats().live, 0, "a peek takes no row");
        assert_eq!(admits(&t, 0, 1, 1, T0), 1);
        for _ in 0..3 {
            let (outcome, verdict) = ask(true);
            assert_eq!((outcome, verdict.reading.remaining), (Outcome::Allowed, 1));
        }
        assert_eq!(admits(&t, 0, 1, 1, T0), 1);
        for more in [false, true] {
            let (outcome, verdict) = ask(more);
            assert_eq!(outcome, Outcome::Denied);
            assert_eq!(
                verdict.retry_after_ns,
                one(&t, 0, 1, 1, T0).verdict.retry_after_ns
            );
        }
        assert_eq!(
            t.read(1, key(1), T0).used,
            3,
            "the other is charged for what passed"
        );
    }
    let t = Table::private(1 << 20, &[fixed(1, 2, S)]).unwrap();
    assert_eq!(admits(&t, 0, 1, 2, T0), 2);
    for (limit, outcome) in [(3, Outcome::Allowed), (2, Outcome::Denied)] {
        let charge = Charge::new(0, key(1), 1, Mode::Enforce, 0).with_limit(limit);
        assert_eq!(t.decide(&mut [charge.peeking()], T0).outcome, outcome);
    }
}

#[test]
fn case_15_16_and_30_several_rules() {
    let t = Table::private(
        1 << 20,
        &[
            fixed(1, 60, 60 * S),
            fixed(2, 3, 3_600 * S),
            fixed(3, 1, 60 * S),
        ],
    )
    .unwrap();
    use Mode::{DenyAll, Disabled, DryRun, Enforce};
    let all = |k| [(0, k, 1, Enforce), (1, k, 1, Enforce), (2, k, 1, DryRun)];
    for i in 0..3 {
        let (decision, charges) = ask(&t, &all(1));
        assert_eq!(
            decision,
            Decision {
                outcome: Outcome::Allowed,
                decider: Some(1),
                phantom_hits: 0,
            }
        );
        let dry = charges[2].verdict.outcome;
        assert_eq!(
            dry == Outcome::Denied,
            i > 0,
            "the dry run says what it would"
        );
    }
    let (decision, charges) = ask(&t, &all(1));
    assert_eq!(
        (decision.outcome, decision.decider),
        (Outcome::Denied, Some(1))
    );
    assert_eq!(
        charges[1].verdict.retry_after_ns,
        3_600 * S - T0 % (3_600 * S)
    );
    assert_eq!(t.read(0, key(1), T0).used, 3, "the first is not charged");
    assert_eq!(
        t.read(2, key(1), T0).used,
        3,
        "the dry run counts beyond its limit"
    );
    // Equal keys merge: two with one left are one charge of two.
    let (decision, charges) = ask(&t, &[(1, 2, 2, Enforce), (1, 2, 2, Enforce)]);
    assert_eq!(decision.outcome, Outcome::Denied);
    assert_eq!(charges[0].verdict, charges[1].verdict);
    let (decision, _) = ask(&t, &[(1, 2, 1, Enforce), (1, 2, 2, Enforce)]);
    assert_eq!(
        (decision.outcome, t.read(1, key(2), T0).used),
        (Outcome::Allowed, 3)
    );
    let (decision, _) = ask(&t, &[(0, 3, 1, Disabled), (1, 3, 1, Disabled)]);
    assert_eq!(
        (decision.outcome, decision.decider),
        (Outcome::Allowed, None)
    );
    let (decision, charges) = ask(&t, &[(0, 3, 1, DenyAll), (1, 3, 1, Enforce)]);
    assert_eq!(
        (decision.outcome, decision.decider),
        (Outcome::Denied, Some(0))
    );
    assert!(charges[0].verdict.retry_after_ns >= 1);
    assert_eq!(t.read(1, key(3), T0).used, 0);
}

#[test]
fn what_cannot_be_decided_is_admitted_and_counted() {
    let t = Table::private(1 << 20, &[fixed(1, 1, S)]).unwrap();
    assert_eq!(one(&t, 9, 1, 1, T0).fail_open, Some(FailOpen::UnknownRule));
    assert_eq!(one(&t, 0, 1, 1, 0).fail_open, Some(FailOpen::BadClock));
    assert_eq!(
        one(&t, 0, 1, 1, u64::MAX).fail_open,
        Some(FailOpen::BadClock)
    );
    assert_eq!(one(&t, 0, 1, 1, u64::MAX).verdict.outcome, Outcome::Allowed);
    let stats = t.stats();
    assert_eq!(
        (stats.unknown_rules, stats.bad_clock, stats.live),
        (1, 3, 0)
    );
}

#[test]
fn case_28_a_full_table_admits_and_counts_and_a_newcomer_must_come_twice() {
    let g = Geometry { ways: 16, sets: 1 };
    let rules = [fixed(1, 100, 60 * S)];
    let words = Table::<RawMem>::words_needed(&rules, g);
    let t = Table::format_with(RawMem::private(words * 8).unwrap(), &rules, g).unwrap();
    for k in 0..16 {
        assert_eq!(admits(&t, 0, k, 1 + k as u32, T0), 1 + k as u32);
    }
    assert_eq!(one(&t, 0, 99, 1, T0).fail_open, Some(FailOpen::Doorkeeper));
    assert_eq!(t.stats().doorkeeper_hits, 1);
    assert_eq!(one(&t, 0, 99, 1, T0).fail_open, None, "known at the door");
    assert_eq!(t.read(0, key(0), T0).used, 0, "the least used row went");
    assert_eq!((t.stats().evicted_rows, t.stats().evicted_hits), (1, 1));
    // An eighth of the limit goes straight in.
    assert_eq!(one(&t, 0, 98, 13, T0).fail_open, None);
    // Exhausted rows stay, and the driver never evicts one.
    for k in 200..400 {
        one(&t, 0, k, 100, T0);
    }
    let epoch = T0 / (60 * S);
    let full = (0..1_000)
        .filter(|&k| t.read(0, key(k), T0).remaining == 0)
        .count();
    assert_eq!(full, 16);
    assert_eq!(
        t.publish_remote_or_claim(0, key(7_777), epoch, 5, T0),
        Publish::Absent
    );
    // The next window finds all of them dead.
    assert_eq!(admits(&t, 0, 5_000, 200, T0 + 60 * S), 100);
}

#[test]
fn remote_totals_count_and_only_rise() {
    let t = Table::private(1 << 20, &[window(1, 10, 3 * S, S, Sliding::Live)]).unwrap();
    let e = T0 / S;
    assert_eq!(t.publish_remote(0, key(1), e, 4, T0), Publish::Absent);
    assert_eq!(
        t.publish_remote_or_claim(0, key(1), e, 4, T0),
        Publish::Published
    );
    assert_eq!(
        t.publish_remote(0, key(1), e - 2, 3, T0),
        Publish::Published
    );
    assert_eq!(
        t.publish_remote(0, key(1), e + 1, 9, T0),
        Publish::Published,
        "not yet counted"
    );
    assert_eq!(t.read(0, key(1), T0).used, 7);
    assert_eq!(admits(&t, 0, 1, 9, T0), 3);
    assert_eq!(t.publish_remote(0, key(1), e, 3, T0), Publish::Unchanged);
    assert_eq!(t.publish_remote(0, key(1), e - 4, 3, T0), Publish::Stale);
    assert_eq!(t.publish_remote(0, key(1), e + 3, 3, T0), Publish::Stale);
    assert_eq!(
        t.read(0, key(1), T0 + S).used,
        4 + 3 + 9,
        "e - 2 is over, e + 1 began"
    );
    assert_eq!(
        t.publish_remote(0, key(1), e, u64::MAX, T0),
        Publish::Published
    );
}

#[test]
fn a_token_bucket_folds_remote_increases_capped() {
    let t = Table::private(1 << 20, &[bucket(1, 100, S, 20)]).unwrap();
    let epoch = t.layout.subs[0].plan.epoch_of(T0);
    assert_eq!(admits(&t, 0, 1, 1, T0), 1);
    // Born in this epoch: what others did before cannot be told from what has drained.
    assert_eq!(
        t.publish_remote(0, key(1), epoch, 3, T0),
        Publish::Published
    );
    assert_eq!(t.read(0, key(1), T0).remaining, 19);
    assert_eq!(
        t.publish_remote(0, key(1), epoch, 8, T0),
        Publish::Published
    );
    assert_eq!(t.read(0, key(1), T0).remaining, 14, "five more");
    assert_eq!(
        t.publish_remote(0, key(1), epoch, 8_000, T0),
        Publish::Published
    );
    let wait = one(&t, 0, 1, 1, T0).verdict.retry_after_ns;
    assert!(
        wait <= 32_000_000,
        "a healed partition is paid for with {wait} ns, not with 80 s"
    );
    // In the next epoch the row is old enough to know that a first total is all increase.
    let later = (epoch + 1) * t.layout.subs[0].plan.epoch_ns() + S;
    assert_eq!(t.read(0, key(1), later).remaining, 20);
    assert_eq!(
        t.publish_remote(0, key(1), epoch + 1, 6, later),
        Publish::Published
    );
    assert_eq!(t.read(0, key(1), later).remaining, 14);
}

#[test]
fn the_drain_keeps_to_its_budget_and_the_scrub_frees_the_dead() {
    let t = Table::private(1 << 20, &[fixed(1, 9, S)]).unwrap();
    for k in 0..500 {
        admits(&t, 0, k, 1, T0);
    }
    let mut seen = std::collections::BTreeSet::new();
    let mut turns = 0;
    while t.drain_dirty(30, T0, &mut |r| assert!(seen.insert(r.key))) > 0 {
        turns += 1;
    }
    assert_eq!((seen.len(), turns), (500, 17));
    let (mut cursor, rows) = (7, t.stats().rows as usize);
    let mut live = 0;
    t.scrub(&mut cursor, rows, T0, &mut |_| live += 1);
    assert_eq!((live, cursor, t.stats().scrubbed), (500, 7, 0));
    t.scrub(&mut cursor, rows, T0 + 3 * S, &mut |_| panic!("dead"));
    assert_eq!((t.stats().scrubbed, t.stats().live), (500, 0));
}

#[test]
fn a_mark_that_was_left_half_set_is_found() {
    let t = Table::private(1 << 20, &[fixed(1, 9, S)]).unwrap();
    admits(&t, 0, 1, 1, T0);
    // As if the decider had been killed after level 0.
    for i in 0..t.layout.dirty1_words {
        t.mem.swap(t.layout.dirty1 + i, 0);
    }
    let calls = 1 + t.layout.dirty1_words;
    let found: usize = (0..calls).map(|_| t.drain_dirty(9, T0, &mut |_| ())).sum();
    assert_eq!((found, t.stats().remarked), (1, 1));
}

#[test]
fn case_23_clocks_that_jump() {
    let t = Table::private(1 << 20, &[fixed(1, 5, 60 * S), bucket(2, 1, S, 5)]).unwrap();
    for rule in 0..2 {
        assert_eq!(admits(&t, rule, 1, 9, T0 + S), 5);
        assert_eq!(admits(&t, rule, 1, 9, T0 + S - 11 * S), 0, "no free refill");
    }
    // The bucket drains from where the clock is now; the window from its end.
    assert!(admits(&t, 1, 1, 9, T0 - 4 * S) >= 5);
    assert_eq!(admits(&t, 0, 1, 9, T0 + 3_600 * S), 5);
    assert_eq!(admits(&t, 1, 1, 9, T0 + 3_600 * S), 5);
}

#[test]
fn a_row_that_a_clock_set_back_started_again_does_not_remember_what_it_forgot() {
    let t = Table::private(1 << 20, &[window(1, 100, 10 * S, S, Sliding::Live)]).unwrap();
    let counts = |now| {
        let mut seen = Vec::new();
        t.drain_dirty(9, now, &mut |row| {
            let held = row.counts.iter().take(usize::from(row.n));
            seen.extend(held.map(|&(epoch, count)| (epoch - T0 / S, count)));
        });
        seen
    };
    for (second, hits) in [(6, 2), (7, 18), (9, 8), (10, 6)] {
        admits(&t, 0, 1, hits, T0 + second * S);
    }
    admits(&t, 0, 1, 2, T0 + 7 * S);
    assert_eq!(counts(T0 + 7 * S), [(7, 2), (6, 2)], "the head was void");
    admits(&t, 0, 1, 1, T0 + 8 * S);
    assert_eq!(counts(T0 + 8 * S), [(8, 1), (7, 2)], "not 18");
    (9..=10).for_each(|second| assert_eq!(admits(&t, 0, 1, 3, T0 + second * S), 3));
    assert_eq!(counts(T0 + 10 * S), [(10, 3), (9, 3)], "not 8");
    assert_eq!(t.read(0, key(1), T0 + 10 * S).used, 2 + 2 + 1 + 3 + 3);
}

#[test]
fn threads_admit_exactly_the_limit_and_make_one_row_a_key() {
    let rules = [fixed(1, 1_000, 3_600 * S), bucket(2, 1, 3_600 * S, 1_000)];
    let t = Table::private(1 << 20, &rules).unwrap();
    let admitted: u32 = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|_| {
                let t = &t;
                scope.spawn(move || {
                    let mut sum = 0;
                    for i in 0..40_000u64 {
                        let c = one(t, (i & 1) as u16, i / 2 % 7, 1, T0);
                        assert_eq!(c.fail_open, None);
                        sum += u32::from(c.verdict.outcome == Outcome::Allowed);
                    }
                    sum
                })
            })
            .collect();
        workers.into_iter().map(|w| w.join().unwrap()).sum()
    });
    assert_eq!(admitted, 2 * 7 * 1_000);
    assert_eq!((t.stats().live, t.stats().claims), (14, 14));
}
