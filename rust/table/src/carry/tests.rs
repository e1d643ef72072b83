//! Nothing is lost, doubled or re-opened on the way from one table to another.
#![allow(clippy::cast_possible_truncation)] // small numbers

use super::*;
use crate::types::Charge;
use crate::RawMem;
use gabion_admit::Outcome;
use gabion_rule::{Algorithm, CounterIdentity, Mode, Sliding};

const SECOND_NS: u64 = 1_000_000_000;
const NOW_NS: u64 = 1_700_000_000 * SECOND_NS;

fn sub(name: u8, algorithm: Algorithm) -> SubSpec {
    SubSpec {
        identity: CounterIdentity([name; 16]),
        plan: Plan::new(&algorithm),
        cardinality: None,
    }
}

fn window(name: u8, limit: u32, buckets: u64) -> SubSpec {
    let algorithm = Algorithm::Window {
        limit,
        window_ns: 60 * SECOND_NS,
        bucket_ns: 60 * SECOND_NS / buckets,
        sliding: Sliding::Live,
    };
    sub(name, algorithm)
}

fn bucket(name: u8, hits: u64, burst: u32) -> SubSpec {
    let (per_ns, epoch_ns) = (60 * SECOND_NS, 10 * SECOND_NS);
    sub(
        name,
        Algorithm::TokenBucket {
            hits,
            per_ns,
            burst,
            epoch_ns,
        },
    )
}

fn key(i: u64) -> Key {
    Key::new(i + 1, i.wrapping_mul(0x9e37_79b9) + 7)
}

fn hit(table: &Table<RawMem>, rule: RuleIdx, key: Key, hits: u32, at_ns: u64) -> Outcome {
    let mut one = [Charge::new(rule, key, hits, Mode::Enforce, 0)];
    let decided = table.decide(&mut one, at_ns).outcome;
    assert_eq!(one[0].fail_open, None);
    decided
}

/// Hits of 1 that still pass.
fn room(table: &Table<RawMem>, rule: RuleIdx, key: Key, at_ns: u64) -> u32 {
    (0..1_000)
        .take_while(|_| hit(table, rule, key, 1, at_ns) == Outcome::Allowed)
        .count() as u32
}

fn tables(old: &[SubSpec], new: &[SubSpec], bytes: usize) -> (Arc<Table<RawMem>>, Table<RawMem>) {
    (
        Arc::new(Table::private(1 << 20, old).unwrap()),
        Table::private(bytes, new).unwrap(),
    )
}

#[test]
fn case_34_counts_follow_their_rule_into_a_table_of_another_size_and_order() {
    let old_rules = [window(1, 100, 60), bucket(2, 1, 10), window(3, 50, 1)];
    let new_rules = [bucket(2, 1, 10), window(9, 7, 1), window(1, 100, 60)];
    let (old, mut new) = tables(&old_rules, &new_rules, 1 << 17);
    for (seconds, hits) in [(0u64, 5), (1, 7), (3, 11)] {
        hit(&old, 0, key(1), hits, NOW_NS + seconds * SECOND_NS);
    }
    hit(&old, 1, key(2), 4, NOW_NS + 3 * SECOND_NS);
    hit(&old, 2, key(3), 1, NOW_NS + 3 * SECOND_NS);
    let now_ns = NOW_NS + 3 * SECOND_NS + 5;
    let carried = carry((&old, &old_rules), (&mut new, &new_rules), now_ns);
    assert_eq!(carried.rows, 2, "the rule that is gone is not carried");
    assert_eq!(carried.left_rows, 0);
    for second in [0, 57, 58, 60, 63] {
        let at_ns = now_ns + second * SECOND_NS;
        let (there, here) = (old.read(0, key(1), at_ns), new.read(2, key(1), at_ns));
        assert_eq!(
            here, there,
            "the buckets leave the window as they would have"
        );
        assert_eq!(new.read(0, key(2), at_ns), old.read(1, key(2), at_ns));
    }
    assert_eq!(new.read(1, key(3), now_ns).used, 0);
    assert_eq!(
        old.read(2, key(3), now_ns).used,
        1,
        "the old table is only read"
    );
}

#[test]
fn remote_totals_are_carried_too() {
    let rules = [window(1, 100, 1), window(2, 100, 60), bucket(3, 1, 10)];
    let (old, mut new) = tables(&rules, &rules, 1 << 18);
    for rule in 0..3 {
        hit(&old, rule, key(1), 2, NOW_NS);
        let epoch = rules[usize::from(rule)].plan.epoch_of(NOW_NS);
        old.publish_remote(rule, key(1), epoch, 5, NOW_NS);
    }
    carry((&old, &rules), (&mut new, &rules), NOW_NS);
    for rule in 0..3 {
        assert_eq!(new.read(rule, key(1), NOW_NS).used, 7, "rule {rule}");
        // What was charged stays charged: the same total again changes nothing.
        let epoch = rules[usize::from(rule)].plan.epoch_of(NOW_NS);
        new.publish_remote(rule, key(1), epoch, 5, NOW_NS);
        assert_eq!(new.read(rule, key(1), NOW_NS).used, 7, "rule {rule}");
        new.publish_remote(rule, key(1), epoch, 6, NOW_NS);
        assert_eq!(new.read(rule, key(1), NOW_NS).used, 8, "rule {rule}");
    }
}

#[test]
fn case_7_another_limit_keeps_what_was_used_whatever_the_layout() {
    // From narrow heads to wide ones and back, and to another rate of a token bucket.
    let narrow = [window(1, 10, 1), bucket(2, 6, 10)];
    let wide = [bucket(2, 600, 20), window(1, 1 << 24, 1)];
    let (old, mut new) = tables(&narrow, &wide, 1 << 18);
    assert_eq!(room(&old, 0, key(1), NOW_NS), 10);
    assert_eq!(room(&old, 1, key(1), NOW_NS), 10);
    carry((&old, &narrow), (&mut new, &wide), NOW_NS);
    assert_eq!(new.read(1, key(1), NOW_NS).used, 10);
    assert_eq!(room(&new, 0, key(1), NOW_NS), 10, "20 deep, 10 used");
    let (new, mut back) = (Arc::new(new), Table::private(1 << 18, &narrow).unwrap());
    carry((&new, &wide), (&mut back, &narrow), NOW_NS);
    assert_eq!(room(&back, 0, key(1), NOW_NS), 0);
    assert_eq!(room(&back, 1, key(1), NOW_NS), 0);
}

#[test]
fn the_same_rules_share_the_memory_under_other_limits() {
    let ten = [window(1, 10, 1), window(2, 10, 60)];
    let table = Table::private(1 << 18, &ten).unwrap();
    assert_eq!(room(&table, 0, key(1), NOW_NS), 10);
    let twenty = [window(1, 20, 1), window(2, 5, 60)];
    let other = table.share(&twenty).unwrap();
    assert_eq!(room(&other, 0, key(1), NOW_NS), 10);
    assert_eq!(hit(&table, 0, key(1), 1, NOW_NS), Outcome::Denied);
    assert!(table.share(&[window(2, 5, 60), window(1, 20, 1)]).is_err());
}

#[test]
fn dead_counts_are_left_behind() {
    let rules = [window(1, 100, 4)];
    let (old, mut new) = tables(&rules, &rules, 1 << 18);
    hit(&old, 0, key(1), 1, NOW_NS);
    let later_ns = NOW_NS + 100 * SECOND_NS;
    let carried = carry((&old, &rules), (&mut new, &rules), later_ns);
    assert_eq!(carried, Carried::default());
    assert_eq!(new.stats().live, 0);
}

#[test]
fn an_heir_has_its_counts_from_the_first_look_on() {
    let rules = [window(1, 10, 1), window(2, 10, 60), bucket(3, 1, 10)];
    let (old, mut new) = tables(&rules, &rules, 1 << 18);
    for rule in 0..3 {
        assert_eq!(room(&old, rule, key(1), NOW_NS), 10);
        assert_eq!(hit(&old, rule, key(2), 3, NOW_NS), Outcome::Allowed);
    }
    new.inherit(&rules, &old, &rules);
    for rule in 0..3 {
        assert_eq!(hit(&new, rule, key(1), 1, NOW_NS), Outcome::Denied);
        assert_eq!(room(&new, rule, key(2), NOW_NS), 7);
    }
    let carried = new.take_over(&old, &|| NOW_NS, &mut || {});
    assert_eq!((carried.rows, carried.left_rows), (6, 0));
    drop(old);
    for rule in 0..3 {
        assert_eq!(room(&new, rule, key(1), NOW_NS), 0, "taken over once");
        assert_eq!(room(&new, rule, key(2), NOW_NS), 0);
        assert_eq!(room(&new, rule, key(3), NOW_NS), 10);
    }
}

#[test]
fn several_rules_of_one_request_are_all_or_nothing_while_rows_are_taken_over() {
    let rules = [window(1, 10, 1), window(2, 5, 1)];
    let (old, mut new) = tables(&rules, &rules, 1 << 18);
    assert_eq!(room(&old, 1, key(1), NOW_NS), 5);
    new.inherit(&rules, &old, &rules);
    let mut both = [0, 1].map(|rule| Charge::new(rule, key(1), 1, Mode::Enforce, 0));
    assert_eq!(new.decide(&mut both, NOW_NS).outcome, Outcome::Denied);
    assert_eq!(new.stats().phantom_hits, 0);
    assert_eq!(new.read(0, key(1), NOW_NS).used, 0);
}

#[test]
fn exhausted_keys_come_first_into_a_table_that_is_too_small() {
    let rules = [window(1, 10, 1)];
    let old = Arc::new(Table::private(1 << 20, &rules).unwrap());
    let mut new = Table::private(1 << 14, &rules).unwrap();
    let (room_for, exhausted) = (new.capacity(0), new.capacity(0) / 3);
    for i in 0..4 * room_for {
        hit(&old, 0, key(i), 1, NOW_NS);
    }
    for i in 0..exhausted {
        room(&old, 0, key(i * 7 % (4 * room_for)), NOW_NS);
    }
    let carried = carry((&old, &rules), (&mut new, &rules), NOW_NS);
    assert_eq!(carried.left_exhausted, 0, "{carried:?}");
    let lost = carried.left_rows + new.stats().evicted_rows;
    assert!(
        lost >= 3 * room_for,
        "each key without a row is told: {carried:?}"
    );
    assert_eq!(carried.rows + carried.left_rows, 4 * room_for);
    for i in 0..exhausted {
        let reading = new.read(0, key(i * 7 % (4 * room_for)), NOW_NS);
        assert_eq!(reading.remaining, 0, "key {i} was re-opened");
    }
}

/// Threads that charge while rows are taken over: what is admitted before and after is the limit,
/// for every key.
#[test]
fn nothing_is_admitted_twice_while_threads_charge_and_one_walks() {
    const KEYS: u64 = 400;
    const LIMIT: u32 = 40;
    let rules = [
        window(1, LIMIT, 1),
        window(2, LIMIT, 60),
        bucket(3, 1, LIMIT),
    ];
    let turned = [rules[2].clone(), rules[0].clone(), rules[1].clone()];
    for round in 0..8u32 {
        let old = Arc::new(Table::private(1 << 22, &rules).unwrap());
        let mut new = Table::private(1 << 22, &turned).unwrap();
        let mut admitted = vec![0u32; 3 * KEYS as usize];
        for (i, sum) in (0u32..).zip(admitted.iter_mut()) {
            let (rule, of) = ((i % 3) as RuleIdx, key(u64::from(i / 3)));
            let used = (i * 7 + round) % (LIMIT + 3);
            *sum += (0..used)
                .filter(|_| hit(&old, rule, of, 1, NOW_NS) == Outcome::Allowed)
                .count() as u32;
        }
        new.inherit(&turned, &old, &rules);
        let charge = |seed: u64| {
            let mut sums = vec![0u32; 3 * KEYS as usize];
            for step in 0..3 * KEYS * u64::from(LIMIT) {
                let i = step.wrapping_mul(7_919).wrapping_add(seed * 131) % (3 * KEYS);
                let rule = ((i % 3 + 1) % 3) as RuleIdx;
                let allowed = hit(&new, rule, key(i / 3), 1, NOW_NS) == Outcome::Allowed;
                sums[i as usize] += u32::from(allowed);
            }
            sums
        };
        let after: Vec<Vec<u32>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..3)
                .map(|seed| scope.spawn(move || charge(seed)))
                .collect();
            let carried = new.take_over(&old, &|| NOW_NS, &mut std::thread::yield_now);
            assert_eq!(carried.left_rows, 0);
            drop(old);
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        for (i, before) in admitted.iter().enumerate() {
            let sum = before + after.iter().map(|sums| sums[i]).sum::<u32>();
            assert_eq!(sum, LIMIT, "round {round}, counter {i}, {before} before");
        }
    }
}
