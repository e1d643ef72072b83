//! The arithmetic against oracles of wide integers, and the cases that are about numbers.
#![allow(clippy::cast_possible_truncation)]

use crate::limits::{FOLD_SLACK_NS, SECOND_NS};
use crate::*;
use gabion_rule::{Algorithm, Sliding};
use proptest::prelude::*;

const S: u64 = SECOND_NS;
const DAY: u64 = 86_400 * S;
/// A time of these days, at an odd nanosecond.
const T0: u64 = 1_796_000_000 * S + 123_456_789;

fn bucket(hits: u64, per_ns: u64, burst: u32) -> GcraPlan {
    GcraPlan::new(hits, per_ns, burst, 64 * S)
}

/// A token bucket under load: keeps the debt as a table would, as a TAT on the wrapping clock.
struct Load {
    plan: GcraPlan,
    tat: u64,
}

impl Load {
    fn new(plan: GcraPlan, now: u64) -> Load {
        Load {
            plan,
            tat: plan.ticks(now),
        }
    }
    fn debt(&self, now: u64) -> u64 {
        self.plan
            .debt(self.tat.wrapping_sub(self.plan.ticks(now)) as i64)
    }
    fn hit(&mut self, now: u64, hits: u32) -> Result<(), u64> {
        match self.plan.admit(self.debt(now), hits) {
            Ok(after) => {
                self.tat = self.plan.ticks(now).wrapping_add(after);
                Ok(())
            }
            Err(refusal) => Err(self.plan.wait_ns(refusal)),
        }
    }
    fn drain(&mut self, now: u64) -> u32 {
        (0..).take_while(|_| self.hit(now, 1).is_ok()).count() as u32
    }
}

#[test]
fn case_20_drained_idle_two_seconds_is_two_and_idle_long_is_the_burst() {
    for offset in [0, 1, 999, 123_456_789, 999_999_999] {
        let mut load = Load::new(bucket(1, S, 5), T0 + offset);
        assert_eq!(load.drain(T0 + offset), 5);
        assert_eq!(load.drain(T0 + offset + 2 * S), 2);
        assert_eq!(load.drain(T0 + offset + 3_000 * S), 5);
        assert_eq!(
            load.drain(T0 + offset + 3_001 * S - S / 500),
            0,
            "two ticks early"
        );
    }
}

#[test]
fn case_22_a_fast_bucket_denies_for_milliseconds() {
    let mut load = Load::new(bucket(2_000, S, 5_000), T0);
    assert_eq!(load.drain(T0), 5_000);
    assert!(load.hit(T0, 1).unwrap_err() <= S / 2_000 + 2);
    let wait = load.hit(T0, 5_000).unwrap_err();
    assert!((2 * S..=3 * S).contains(&wait), "{wait}");
}

#[test]
fn case_21_more_than_the_limit_can_give_is_refused_unchanged() {
    let mut load = Load::new(bucket(1, S, 5), T0);
    assert!(load.hit(T0, 6).is_err());
    assert_eq!(load.drain(T0), 5);
    let w = WindowPlan::new(5, S, S, Sliding::Live);
    assert!(!w.fits(0, 6) && w.fits(0, 5) && !w.fits(u64::MAX, 1));
    assert_eq!(w.wait_ns(&[0], 250_000_000, 6), 750_000_000);
}

#[test]
fn case_10_rates_at_the_edges_are_exact_to_a_thousandth() {
    // (hits, per ns, how long to measure): 1/d, 1,000/s, 700,000/s, 0.5/s, 4,294,967,295/s.
    for (hits, per, measure) in [
        (1, DAY, 30 * DAY),
        (1_000, S, 3 * S),
        (700_000, S, S / 5),
        (1, 2 * S, 1_000 * S),
        (4_294_967_295, S, 100_000),
        (10, 7 * DAY, 100 * DAY),
    ] {
        let burst = 1_000;
        let mut load = Load::new(bucket(hits, per, burst), T0);
        assert_eq!(load.drain(T0), burst);
        // Ask for everything a hundred times; what is given is the rate.
        let mut given = 0u64;
        let step = (measure / 100).min(per.saturating_mul(900) / hits).max(1);
        let mut now = T0;
        for _ in 0..100 {
            now += step;
            given += u64::from(load.drain(now));
        }
        let exact = u128::from(now - T0) * u128::from(hits) / u128::from(per);
        let slack = exact / 1_000 + 1;
        let given = u128::from(given);
        assert!(
            given + slack >= exact && given <= exact + slack,
            "{hits}/{per}: {given} {exact}"
        );
    }
}

#[test]
fn case_18_three_per_second_never_doubles() {
    let mut load = Load::new(bucket(3, S, 3), T0);
    let times: Vec<u64> = (0..600).map(|i| T0 + i * S / 10).collect();
    let passed: Vec<u64> = times
        .into_iter()
        .filter(|&now| load.hit(now, 1).is_ok())
        .collect();
    for (i, &from) in passed.iter().enumerate() {
        let n = passed[i..].iter().take_while(|&&t| t < from + S).count();
        // A full bucket once, then the rate: 3 + 3 at the start, 3 or 4 in any later second.
        assert!(n <= if i < 3 { 6 } else { 4 }, "{n} within a second");
    }
    let w = WindowPlan::new(3, S, S / 10, Sliding::Strict);
    let mut counts = vec![0u64; 700];
    for now in 20..620 {
        let ages: Vec<u64> = (0..=usize::from(w.closed))
            .map(|a| counts[now - a])
            .collect();
        counts[now] += u64::from(w.fits(w.sum(&ages, 0), 1));
        assert!(counts[now - 10..=now].iter().sum::<u64>() <= 3);
    }
}

#[test]
fn case_23_a_clock_that_jumps_back_neither_locks_out_nor_refills() {
    let plan = bucket(1, S, 5);
    let mut load = Load::new(plan, T0);
    assert_eq!(load.drain(T0), 5);
    let debt = load.debt(T0 - 11 * S);
    assert_eq!(
        debt,
        plan.debt_max_ticks(),
        "not the 16 s that the TAT is ahead"
    );
    assert_eq!(load.drain(T0 - 11 * S), 0);
    // An hour forward: full again, never more.
    assert_eq!(load.drain(T0 + 3_600 * S), 5);
}

#[test]
fn case_8_remaining_saturates() {
    let w = WindowPlan::new(10, S, S, Sliding::Live);
    let r = w.reading(50, 0);
    assert_eq!((r.limit, r.remaining, r.used, r.reset_ns), (10, 0, 50, S));
    assert_eq!(w.reading(0, 17).reset_ns, 0);
    let g = bucket(1, S, 5);
    let r = g.reading(g.debt_max_ticks());
    assert_eq!((r.remaining, r.limit), (0, 5));
    assert!(r.reset_ns >= S && r.reset_ns <= S + FOLD_SLACK_NS + 2);
    assert_eq!(g.reading(0), Reading::unused(5));
}

#[test]
fn folds_are_capped_and_dry_runs_saturate() {
    let g = bucket(100, S, 20);
    let full = g.depth_ticks();
    assert_eq!(g.fold(0, 5), 5 << g.tick_shift());
    assert_eq!(g.fold(0, u32::MAX), g.debt_max_ticks());
    assert_eq!(g.fold(g.debt_max_ticks(), 1), g.debt_max_ticks());
    // The slack is 20 ms of drain: two hits of 100/s.
    let slack_hits = (g.debt_max_ticks() - full) >> g.tick_shift();
    assert!((1..=2).contains(&slack_hits));
    assert_eq!(g.saturate(full - 1, 9), full);
    assert_eq!(g.saturate(full + 3, 9), full + 3, "never lowers");
    assert_eq!(g.fold_ticks(0, 7), 7);
    assert_eq!(g.fold_ticks(7, u64::MAX), g.debt_max_ticks());
}

#[test]
fn without_a_baseline_a_total_is_charged_as_if_it_came_when_its_epoch_began() {
    let g = bucket(1, S, 50);
    let epoch = g.split(T0).0;
    let start = epoch * g.epoch_ns();
    let hit = 1u64 << g.tick_shift();
    assert_eq!(g.debt_without_baseline(10, epoch, start), 10 * hit);
    let later = g.debt_without_baseline(10, epoch, start + 4 * S);
    assert!(later.abs_diff(6 * hit) <= 1, "{later}");
    assert_eq!(g.debt_without_baseline(10, epoch, start + 11 * S), 0);
    // Its clock is ahead of ours: nothing has drained, nothing underflows.
    assert_eq!(g.debt_without_baseline(10, epoch + 1, start), 10 * hit);
    assert_eq!(
        g.debt_without_baseline(u32::MAX, u64::MAX, 0),
        g.debt_max_ticks()
    );
}

#[test]
fn plans_say_which_epochs_live() {
    let plan = |w, b, sliding| {
        Plan::new(&Algorithm::Window {
            limit: 9,
            window_ns: w,
            bucket_ns: b,
            sliding,
        })
    };
    assert_eq!(plan(60 * S, 60 * S, Sliding::Live).live_epochs(), 1);
    assert_eq!(plan(60 * S, 7 * S, Sliding::Live).live_epochs(), 9);
    assert_eq!(plan(60 * S, 7 * S, Sliding::Strict).live_epochs(), 10);
    assert_eq!(plan(64 * S, S, Sliding::Weighted).live_epochs(), 65);
    let p = plan(60 * S, 7 * S, Sliding::Live);
    assert_eq!(
        (p.limit(), p.epoch_ns(), p.epoch_of(70 * S - 1)),
        (9, 7 * S, 9)
    );
    assert_eq!(
        (p.epoch_rest_ns(70 * S - 1), p.epoch_rest_ns(70 * S)),
        (1, 7 * S)
    );
    let g = Plan::new(&Algorithm::TokenBucket {
        hits: 1,
        per_ns: S,
        burst: 3,
        epoch_ns: 4 * S,
    });
    assert_eq!((g.live_epochs(), g.limit(), g.epoch_of(9 * S)), (2, 3, 2));
    assert_eq!(g.epoch_rest_ns(9 * S), 3 * S);
    // More buckets than the bound: coarser ones.
    assert_eq!(plan(640 * S, S, Sliding::Live).epoch_ns(), 10 * S);
    // Nonsense is read as the least that means something.
    assert_eq!(plan(0, 0, Sliding::Live).epoch_of(5), 5);
    GcraPlan::new(0, 0, 0, 0);
    GcraPlan::new(u64::MAX, 1, u32::MAX, 1);
    GcraPlan::new(1, u64::MAX, u32::MAX, u64::MAX);
}

#[test]
fn the_oldest_bucket_fades_when_weighted() {
    let w = WindowPlan::new(100, 60 * S, 60 * S, Sliding::Weighted);
    assert_eq!(w.closed, 1);
    assert_eq!(w.sum(&[10, 60], 0), 70);
    assert_eq!(w.sum(&[10, 60], 15 * S), 55);
    assert_eq!(w.sum(&[10, 60], 60 * S - 1), 10);
    assert_eq!(w.sum(&[10, 60, 999], 0), 70, "older ones do not count");
    // 7 s buckets of a minute: nine, the ninth sticks out by 3 s.
    let w = WindowPlan::new(100, 60 * S, 7 * S, Sliding::Weighted);
    let mut ages = [0u64; 10];
    ages[9] = 70;
    assert_eq!(w.sum(&ages, 0), 40);
    assert_eq!(w.sum(&ages, 2 * S), 20);
    assert_eq!(w.sum(&ages, 5 * S), 0);
}

/// By definition: the least wait after which `hits` fit, looked for nanosecond by nanosecond.
fn wait_by_trial(w: &WindowPlan, by_age: &[u64], into: u64, hits: u32) -> u64 {
    for wait in 1.. {
        let at = into + wait;
        let (steps, into) = ((at / w.bucket_ns) as usize, at % w.bucket_ns);
        let mut ages = vec![0u64; steps];
        ages.extend_from_slice(by_age);
        if w.fits(w.sum(&ages, into), hits) {
            return wait;
        }
    }
    unreachable!()
}

proptest! {
    #[test]
    fn waits_are_the_shortest_that_help(
        bucket_ns in 1u64..20, window in 1u64..60, kind in 0..3u8, share in 1u64..110,
        counts in proptest::collection::vec(0u64..12, 65), into in 0u64..20, hits in 1u32..12,
    ) {
        let sliding = [Sliding::Live, Sliding::Strict, Sliding::Weighted][usize::from(kind)];
        let w = WindowPlan::new(1, window.max(bucket_ns), bucket_ns, sliding);
        let into = into % w.bucket_ns;
        let by_age = &counts[..=usize::from(w.closed)];
        let limit = (w.sum(by_age, into) * share / 100) as u32;
        let w = WindowPlan::new(limit.max(hits), w.window_ns, w.bucket_ns, sliding);
        if w.fits(w.sum(by_age, into), hits) {
            return Ok(());
        }
        prop_assert_eq!(w.wait_ns(by_age, into, hits), wait_by_trial(&w, by_age, into, hits));
    }

    #[test]
    fn windows_agree_with_wide_integers(
        limit in 1u32.., window in 1u64..1 << 62, bucket_ns in 1u64..1 << 62,
        counts in proptest::collection::vec(any::<u32>(), 65), into: u64, hits: u32, now: u64,
    ) {
        let w = WindowPlan::new(limit, window, bucket_ns, Sliding::Weighted);
        prop_assert!(w.closed <= 64 && u128::from(w.bucket_ns) * 64 >= u128::from(w.window_ns));
        let into = into % w.bucket_ns;
        let counts: Vec<u64> = counts.into_iter().map(u64::from).collect();
        let b = usize::from(w.closed);
        // The window's far end, seen from the start of the oldest bucket that counts.
        let outside = u128::from(into) + (b as u128) * u128::from(w.bucket_ns)
            - u128::from(w.window_ns);
        let inside = u128::from(w.bucket_ns).saturating_sub(outside);
        let oldest = u128::from(counts[b]) * inside / u128::from(w.bucket_ns);
        let exact = counts[..b].iter().map(|&c| u128::from(c)).sum::<u128>() + oldest;
        let used = w.sum(&counts, into);
        prop_assert_eq!(u128::from(used), exact);
        prop_assert_eq!(w.fits(used, hits), exact + u128::from(hits) <= u128::from(limit));
        let r = w.reading(used, into);
        prop_assert_eq!(u128::from(r.remaining), u128::from(limit).saturating_sub(exact));
        prop_assert!(r.remaining <= r.limit && r.reset_ns <= w.bucket_ns);
        prop_assert!(w.wait_ns(&counts, into, hits) >= 1);
        prop_assert_eq!(w.split(now), (now / w.bucket_ns, now % w.bucket_ns));
    }

    #[test]
    fn tick_clocks_keep_the_rate(
        hits in 1u64..=u64::from(u32::MAX), per in 1u64..=7 * DAY, now in 0u64..1 << 62,
        ahead in 0u64..1 << 50,
    ) {
        let g = bucket(hits, per, 1);
        let (m, s) = g.rate();
        // m / 2^s is the rate, rounded up by less than one in 2^62.
        let exact_over = u128::from(hits) << g.tick_shift();
        prop_assert!(m >= 1 << 62);
        let (m, per_wide) = (u128::from(m), u128::from(per));
        // exact_over / per <= m / 2^s < exact_over / per * (1 + 2^-62), without overflow: compare
        // m * per with exact_over * 2^s through quotient and rest.
        let (q, r) = (exact_over / per_wide, exact_over % per_wide);
        let mut floor = q;
        let mut rest = r;
        for _ in 0..s {
            rest *= 2;
            floor = floor * 2 + rest / per_wide;
            rest %= per_wide;
        }
        let up = floor + u128::from(rest != 0);
        prop_assert!(m == up || 2 * m >= up && m <= up, "{} {}", m, up);
        // Never backwards, never slow: k emission intervals drain at least k hits.
        let later = now + ahead;
        let moved = g.ticks(later).wrapping_sub(g.ticks(now));
        let due = u128::from(ahead) * exact_over / per_wide;
        if due < 1 << 63 {
            prop_assert!(u128::from(moved) >= due && u128::from(moved) <= due + 2 + (due >> 30));
        }
    }

    #[test]
    fn buckets_agree_with_wide_integers(
        hits in 1u64..=5_000_000_000, per in 1u64..=7 * DAY, burst in 1u32.., debt: u64, n: u32,
        ahead: i64, total: u32, now in 0u64..1 << 62, epoch: u64,
    ) {
        let g = bucket(hits, per, burst);
        let hit = 1u128 << g.tick_shift();
        prop_assert_eq!(u128::from(g.depth_ticks()), u128::from(burst) * hit);
        prop_assert!(g.debt_max_ticks() < 1 << 45);
        let debt = debt % (g.debt_max_ticks() + 1);
        let after = u128::from(debt) + u128::from(n) * hit;
        match g.admit(debt, n) {
            Ok(x) => prop_assert!(u128::from(x) == after && x <= g.depth_ticks()),
            Err(r) => {
                prop_assert_eq!(u128::from(r.wait_ticks), after - u128::from(g.depth_ticks()));
                // Waiting as told is enough.
                let wait = g.wait_ns(r);
                prop_assert!(wait >= 1);
                if wait < 1 << 61 {
                    let drained = g.ticks(now + wait).wrapping_sub(g.ticks(now));
                    prop_assert!(drained >= r.wait_ticks, "{} {}", drained, r.wait_ticks);
                }
            }
        }
        for x in [g.fold(debt, n), g.saturate(debt, n), g.fold_ticks(debt, u64::from(n))] {
            prop_assert!(x >= debt && x <= g.debt_max_ticks());
        }
        prop_assert!(g.debt(ahead) <= g.debt_max_ticks());
        prop_assert!(g.debt_without_baseline(total, epoch, now) <= g.debt_max_ticks());
        let r = g.reading(debt);
        let left = u128::from(g.depth_ticks().saturating_sub(debt));
        prop_assert_eq!(u128::from(r.remaining), left / hit);
        prop_assert_eq!(r.reset_ns == 0, debt == 0);
    }
}
