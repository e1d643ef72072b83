//! What shares promise, on real memory.

use super::*;
use crate::tests::{admits, key, one, window, S, T0};
use crate::{Charge, SubSpec};
use gabion_admit::Outcome;
use gabion_rule::{Mode, Sliding};
use std::sync::Arc;

/// A window of 10 s in `buckets`, shared like this.
fn shared(limit: u32, buckets: u64, sliding: Sliding, pacing: Pacing) -> SubSpec {
    let spec = window(1, limit, 10 * S, 10 * S / buckets, sliding);
    SubSpec {
        plan: spec.plan.paced(pacing),
        ..spec
    }
}

fn strict(limit: u32, members: u32, place: u32) -> SubSpec {
    shared(limit, 1, Sliding::Live, Pacing::strict(members, place))
}

fn table(spec: SubSpec) -> Table<crate::RawMem> {
    Table::private(1 << 18, &[spec]).unwrap()
}

/// The start of a window that counters which are first asked at `T0` know wholly.
const KNOWN: u64 = T0 + 10 * S;

#[test]
fn new_counters_admit_nothing_before_a_window_that_they_know_wholly() {
    let t = table(strict(40, 4, 0));
    let first = one(&t, 0, 7, 1, T0 + S).verdict;
    assert_eq!(
        (first.outcome, first.retry_after_ns),
        (Outcome::Denied, 9 * S)
    );
    assert!(first.is_on_share());
    assert_eq!(admits(&t, 0, 7, 3, KNOWN - 1), 0);
    assert_eq!(admits(&t, 0, 7, 40, KNOWN), 10);
    assert_eq!(admits(&t, 0, 7, 40, KNOWN + 10 * S), 10);
    assert_eq!(t.stats().share_denials, 1 + 3 + 30 + 30);
}

#[test]
fn a_part_is_what_a_member_admits_whatever_it_hears_of_the_others() {
    for heard in [None, Some(5), Some(40), Some(4_000_000_000)] {
        let t = table(strict(43, 4, 3));
        assert_eq!(admits(&t, 0, 7, 1, T0), 0);
        if let Some(total) = heard {
            t.publish_remote(0, key(7), KNOWN / (10 * S), total, KNOWN);
        }
        let admitted = admits(&t, 0, 7, 50, KNOWN);
        let expected = if heard.is_some_and(|total| total >= 40) {
            0..=3
        } else {
            10..=10
        };
        assert!(expected.contains(&admitted), "{heard:?}: {admitted}");
    }
    let surplus = table(strict(43, 4, 4));
    assert_eq!(
        admits(&surplus, 0, 7, 1, T0) + admits(&surplus, 0, 7, 50, KNOWN),
        0
    );
}

#[test]
fn sliding_parts_count_own_hits_of_closed_buckets() {
    for sliding in [Sliding::Live, Sliding::Strict] {
        let t = table(shared(40, 5, sliding, Pacing::strict(4, 0)));
        assert_eq!(admits(&t, 0, 7, 1, T0), 0);
        let known = T0 + 14 * S;
        assert_eq!(admits(&t, 0, 7, 6, known), 6, "{sliding:?}");
        assert_eq!(admits(&t, 0, 7, 6, known + 2 * S), 4);
        assert_eq!(admits(&t, 0, 7, 6, known + 8 * S), 0);
        let gone = known + if sliding == Sliding::Live { 10 } else { 12 } * S;
        assert_eq!(admits(&t, 0, 7, 6, gone), 6);
    }
}

#[test]
fn a_limit_of_its_own_is_divided_and_several_rules_are_decided_alike() {
    let t = table(strict(40, 4, 0));
    assert_eq!(admits(&t, 0, 7, 1, T0), 0);
    let two = || {
        let charge = Charge::new(0, key(7), 1, Mode::Enforce, 0).with_limit(80);
        let mut both = [charge.clone(), Charge::new(0, key(8), 0, Mode::DryRun, 1)];
        t.decide(&mut both, KNOWN).outcome == Outcome::Allowed
    };
    assert_eq!((0..50).filter(|_| two()).count(), 20);
    assert_eq!(t.read(0, key(7), KNOWN).remaining, 0);
}

#[test]
fn a_clock_that_is_set_back_far_forgets_and_a_successor_does_not() {
    let t = Arc::new(table(strict(40, 4, 0)));
    assert_eq!(admits(&t, 0, 7, 1, T0), 0);
    assert_eq!(admits(&t, 0, 7, 4, KNOWN), 4);
    let mut next = table(strict(48, 4, 0));
    next.inherit(&[strict(48, 4, 0)], &t, &[strict(40, 4, 0)]);
    assert_eq!(
        admits(&next, 0, 7, 20, KNOWN),
        8,
        "it knows what was admitted before"
    );
    let before = KNOWN - 40 * S;
    assert_eq!(admits(&t, 0, 7, 20, before + S), 0);
    assert_eq!(
        admits(&t, 0, 7, 20, before + 10 * S),
        10,
        "once a window began since then"
    );
    t.forget_before(before + 11 * S);
    assert_eq!(admits(&t, 0, 7, 20, before + 19 * S), 0);
}

#[test]
fn paced_is_fast_when_alone_and_takes_parts_when_not() {
    let t = table(shared(1_000, 1, Sliding::Live, Pacing::Paced));
    assert_eq!(
        admits(&t, 0, 1, 1_500, T0),
        1_000,
        "nobody said that there is somebody"
    );
    t.set_crowd(Crowd::new(16, 3, 10_000_000));
    let slice = 1u64 << t.crowd().slice_shift;
    let start = T0.next_multiple_of(slice) + 10 * S;
    let start = start.next_multiple_of(slice * 32);
    let mut left = 1_000;
    for n in 1..6 {
        // An odd slice is nobody's turn.
        let admitted = admits(&t, 0, 2, 1_000, start + (2 * n + 1) * slice);
        assert_eq!(admitted, left / 32, "slice {n}");
        left -= admitted;
    }
    let last = one(&t, 0, 2, 1, start + 11 * slice).verdict;
    assert!(last.is_on_share() && last.retry_after_ns <= slice);
    assert_eq!(
        (last.reading.remaining, last.reading.used),
        (0, u64::from(1_000 - left))
    );
    // What is left at last goes to who has the turn.
    let epoch = (start + 20 * slice) / (10 * S);
    t.publish_remote(0, key(2), epoch, u64::from(left) - 9, start + 20 * slice);
    let mine = start + 6 * slice + 32 * slice;
    assert_eq!(admits(&t, 0, 2, 20, mine + slice), 0);
    assert_eq!(admits(&t, 0, 2, 20, mine + 2 * slice), 0);
    assert_eq!(admits(&t, 0, 2, 20, mine), 9);
}

#[test]
fn a_paced_row_starts_with_no_memory_of_the_key_before() {
    let spec = shared(100, 1, Sliding::Live, Pacing::Paced);
    let geometry = crate::Geometry { ways: 1, sets: 1 };
    let words = Table::<crate::RawMem>::words_needed(std::slice::from_ref(&spec), geometry);
    let mem = crate::RawMem::private(words * 8).unwrap();
    let t = Table::format_with(mem, &[spec], geometry).unwrap();
    t.set_crowd(Crowd::new(2, 0, 10_000_000));
    let odd = (T0 >> 25 << 25) + (1 << 24) + 1;
    for k in 0..3_000 {
        // Every key takes the row of the last one, through all short generations.
        let at = odd + k * 20 * S;
        let odd = (at >> 25 << 25) + (1 << 24) + 1;
        assert_eq!(admits(&t, 0, k, 60, odd), 25, "key {k}");
    }
}
