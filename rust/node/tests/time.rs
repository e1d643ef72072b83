//! The cluster clock, end to end.
#![allow(clippy::cast_possible_truncation, clippy::unwrap_used)]

mod net;

use gabion_node::{LimiterSpec, Note};
use net::{config, key, minute, Net, MS, SECOND};

fn second() -> LimiterSpec {
    LimiterSpec {
        epoch_ns: SECOND,
        ..minute()
    }
}

fn with_errors(errors_ms: &[i64]) -> Net {
    let mut net = Net::new(23);
    for (i, error) in errors_ms.iter().enumerate() {
        let at = net.add(config(i as u64 + 1, i as u64 + 1, &[second()]));
        net.members[at].error_ns = error * MS as i64;
    }
    net.introduce();
    net
}

fn spread_ns(net: &Net) -> u64 {
    let times: Vec<u64> = (0..net.members.len())
        .map(|i| net.clock(i).cluster_ns)
        .collect();
    times.iter().max().unwrap() - times.iter().min().unwrap()
}

#[test]
fn clocks_that_are_20_s_apart_meet_within_seconds() {
    for errors in [
        vec![0, 20_000],
        vec![0, 0, 20_000, 20_000],
        vec![0, 0, 0, -20_000],
        vec![0; 3],
    ] {
        let mut net = with_errors(&errors);
        net.run(15 * SECOND);
        assert!(
            spread_ns(&net) < 3 * MS,
            "{errors:?}: {} ns apart",
            spread_ns(&net)
        );
        let ends: Vec<i64> = net
            .members
            .iter()
            .map(|m| m.error_ns + m.offset_ns)
            .collect();
        let (low, high) = (errors.iter().min().unwrap(), errors.iter().max().unwrap());
        let within = |e: &i64| (low - 1..=high + 1).contains(&(e / MS as i64));
        assert!(ends.iter().all(within), "{ends:?}");
    }
}

#[test]
fn a_newcomer_with_a_wrong_clock_counts_with_the_others_at_once() {
    let mut net = with_errors(&[0, 0, 0]);
    net.run(10 * SECOND);
    let late = net.add(config(9, 9, &[second()]));
    net.members[late].error_ns = 3_600 * SECOND as i64;
    net.introduce();
    net.run(2 * SECOND);
    assert!(spread_ns(&net) < 2 * MS, "{}", spread_ns(&net));
    assert!(net.members[..3]
        .iter()
        .all(|m| (m.error_ns + m.offset_ns).unsigned_abs() < MS));
}

#[test]
fn case_23_a_clock_that_jumps_back_11_s_voids_the_future_and_comes_back() {
    let mut net = with_errors(&[0, 0, 0]);
    net.run(10 * SECOND);
    let e = net.epoch(&second());
    (0..3).for_each(|i| net.own(i, 0, key(1), e, 20));
    net.run(20 * MS);
    assert!(net.all_see(0, key(1), e, 60));
    net.members[0].error_ns -= 11 * SECOND as i64;
    net.run(100 * MS);
    assert_eq!(net.total(0, 0, key(1), e), 0, "eleven epochs ahead: void");
    assert!(net.members[0].node.stats().void_cells > 0);
    net.run(3 * SECOND);
    assert!(
        spread_ns(&net) < 3 * MS,
        "it follows the others: {}",
        spread_ns(&net)
    );
    let e = net.epoch(&second());
    (0..3).for_each(|i| net.own(i, 0, key(1), e, 20));
    net.run(20 * MS);
    assert!(net.all_see(0, key(1), e, 60), "and counts with them again");
}

#[test]
fn case_23_an_hour_ahead_gives_no_refill_to_the_others() {
    let mut net = with_errors(&[0, 0, 0, 0]);
    net.run(10 * SECOND);
    let steps: u32 = net.members[1..].iter().map(|m| m.steps).sum();
    net.members[0].error_ns += 3_600 * SECOND as i64;
    net.run(3 * SECOND);
    assert_eq!(net.members[1..].iter().map(|m| m.steps).sum::<u32>(), steps);
    assert!(spread_ns(&net) < 3 * MS);
}

#[test]
fn case_39_rows_of_epochs_that_are_over_or_far_ahead_are_dropped_and_counted() {
    let mut net = with_errors(&[0, 0]);
    net.members[1].stubborn = true;
    net.members[1].error_ns = 60 * SECOND as i64;
    net.members[0].stubborn = true;
    net.run(SECOND);
    let e = net.epoch(&second());
    net.own(0, 0, key(1), e, 20);
    net.own(1, 0, key(1), e + 60, 20);
    net.run(100 * MS);
    assert_eq!(net.members[0].node.stats().drop_future_epoch, 1);
    assert_eq!(net.members[1].node.stats().drop_old_epoch, 1);
    assert_eq!(net.members[0].node.remote_total(0, key(1), e + 60), 0);
    assert_eq!(net.members[1].node.remote_total(0, key(1), e), 0);
}

#[test]
fn a_clock_that_cannot_be_set_is_reported() {
    let mut net = with_errors(&[0, 0, 0]);
    net.run(5 * SECOND);
    net.members[2].stubborn = true;
    net.members[2].error_ns = 5 * SECOND as i64;
    net.run(40 * SECOND);
    let about = 4_900..5_100;
    let told =
        |n: &Note| matches!(n, Note::ClockSkew { node: 3, skew_ms } if about.contains(skew_ms));
    assert!(
        net.members[0].notes.iter().any(told),
        "{:?}",
        net.members[0].notes
    );
    assert!(
        net.members[0].offset_ns.unsigned_abs() < 5 * MS,
        "the majority stays"
    );
}
