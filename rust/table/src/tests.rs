//! What a table promises, on real memory.

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
