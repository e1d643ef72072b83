//! A flood of unique keys: memory stays flat, no exhausted key re-opens (cases 26, 27).

mod common;

use common::{fixed, hit, key, sub, Random, SECOND_NS, START_NS};
use gabion_table::{RawMem, Table};

const TABLE_BYTES: usize = 16 << 20;
const EXHAUSTED: u64 = 1_000;
const LIMIT: u32 = 10;

/// Resident memory of this process, bytes.
fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages: u64 = text
        .split(' ')
        .nth(1)
        .expect("a field")
        .parse()
        .expect("a number");
    // SAFETY: sysconf takes a name and touches no memory of ours.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    pages * u64::try_from(page).expect("a page size")
}

fn exhausted_table() -> Table<RawMem> {
    let table = Table::private(TABLE_BYTES, &[sub(1, fixed(LIMIT))]).expect("room");
    for n in 0..EXHAUSTED {
        for _ in 0..LIMIT {
            assert!(hit(&table, key(n), 1, START_NS), "key {n} has hits left");
        }
        assert!(!hit(&table, key(n), 1, START_NS), "key {n} is exhausted");
    }
    table
}

/// Passes `keys` unique keys by, each coming `times` times in a row, looking at an exhausted key
/// every 1,000; none may re-open.
fn flood(keys: u64, times: u32) {
    let seed = 0x00f1_00d5;
    println!("seed {seed:#x}");
    let mut random = Random(seed);
    let table = exhausted_table();
    let salt = random.next() | 1 << 63;
    let mut warm_bytes = 0;
    for n in 0..keys {
        // All within one window; a fail-open admission is what a full table gives.
        for _ in 0..times {
            assert!(
                hit(&table, key(salt ^ n), 1, START_NS + 1),
                "a new key is admitted"
            );
        }
        if n % 1_000 == 0 {
            let old = random.below(EXHAUSTED);
            assert!(
                !hit(&table, key(old), 1, START_NS + 2),
                "key {old} re-opened after {n}"
            );
        }
        if n == keys / 4 {
            warm_bytes = resident_bytes();
        }
    }
    let end_bytes = resident_bytes();
    for old in 0..EXHAUSTED {
        assert!(
            !hit(&table, key(old), 1, START_NS + 3),
            "key {old} re-opened"
        );
    }
    println!(
        "flood of {keys}: resident {warm_bytes} -> {end_bytes} bytes, {:?}",
        table.stats()
    );
    // The other tests of this binary have a table each; nothing else may grow.
    let other_tables = 3 * TABLE_BYTES as u64;
    assert!(
        end_bytes < warm_bytes + other_tables + (1 << 20),
        "memory grew"
    );
}

#[test]
fn case_27_no_exhausted_key_reopens_while_two_million_keys_pass() {
    flood(2_000_000, 1);
}

/// The doorkeeper lets a key in that comes twice, so these take rows from one another.
#[test]
fn case_27_no_exhausted_key_reopens_while_a_million_keys_come_twice() {
    flood(1_000_000, 2);
}

#[test]
#[ignore = "slow tier: minutes"]
fn case_27_no_exhausted_key_reopens_while_a_hundred_million_keys_pass() {
    flood(100_000_000, 1);
}

#[test]
fn case_26_rows_of_a_million_silent_keys_are_reusable_at_once() {
    let table = Table::private(TABLE_BYTES, &[sub(1, fixed(LIMIT))]).expect("room");
    for n in 0..1_000_000 {
        assert!(hit(&table, key(n), 1, START_NS), "a new key is admitted");
    }
    let before = table.stats();
    // Silence: one window later every row is dead, without a sweep. Half the table fits exactly.
    let later_ns = START_NS + SECOND_NS;
    let fresh = table.capacity(0) / 2;
    for n in 0..fresh {
        for _ in 0..LIMIT {
            assert!(hit(&table, key(1 << 40 | n), 1, later_ns), "hits left");
        }
    }
    let reopened = (0..fresh)
        .filter(|n| hit(&table, key(1 << 40 | n), 1, later_ns))
        .count();
    let after = table.stats();
    assert_eq!(reopened, 0, "every fresh key has a row and counts exactly");
    assert_eq!(
        after.evicted_hits, before.evicted_hits,
        "dead rows cost no hits"
    );
    assert_eq!(
        after.full_admits, before.full_admits,
        "nobody was turned away"
    );
    assert_eq!(
        after.doorkeeper_hits, before.doorkeeper_hits,
        "nobody was kept at the door"
    );
}
