//! The decision path allocates nothing: warm rows, new rows, denials, several rules, reads.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use common::{bucket, charge, fixed, key, strict, sub, SECOND_NS, START_NS};
use gabion_admit::Outcome;
use gabion_table::Table;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, counting per thread.
struct Counting;

// SAFETY: every call is handed to the system's allocator unchanged; counting touches only a
// `const`-initialised thread-local without destructor, which itself never allocates.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promises are those of `System::alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: `at` came from `System::alloc` with this layout.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn allocations(f: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    f();
    ALLOCATIONS.get() - before
}

#[test]
fn the_counter_counts() {
    let seen = allocations(|| {
        std::hint::black_box(Box::new(1));
    });
    assert_eq!(seen, 1);
}

#[test]
fn a_decision_allocates_nothing() {
    let rules = [
        sub(1, fixed(100)),
        sub(2, strict(100, 6)),
        sub(3, bucket(100, SECOND_NS, 50)),
    ];
    let table = Table::private(4 << 20, &rules).expect("4 MiB hold three rules");
    let mut outcomes = [0u64; 2];
    let seen = allocations(|| {
        for n in 0..200_000u64 {
            // Few keys first (warm rows, denials), then ever new ones until the table is full.
            let k = if n < 50_000 { key(n % 50) } else { key(n) };
            let mut charges = [charge(0, k, 1), charge(1, k, 1), charge(2, k, 1)];
            let now_ns = START_NS + n * 20_000;
            let denied = table.decide(&mut charges, now_ns).outcome == Outcome::Denied;
            outcomes[usize::from(denied)] += 1;
            std::hint::black_box(table.read(1, k, now_ns));
        }
    });
    assert!(
        outcomes.iter().all(|n| *n > 1_000),
        "both outcomes happen: {outcomes:?}"
    );
    assert_eq!(seen, 0);
}

#[test]
fn the_driver_side_allocates_nothing() {
    let rules = [sub(1, fixed(100))];
    let table = Table::private(1 << 20, &rules).expect("1 MiB holds a rule");
    let mut cursor = 0;
    let mut rows = 0u64;
    let seen = allocations(|| {
        for n in 0..1_000u64 {
            common::hit(&table, key(n), 1, START_NS);
        }
        table.drain_dirty(10_000, START_NS, &mut |_| rows += 1);
        table.scrub(&mut cursor, 10_000, START_NS, &mut |_| rows += 1);
        let epoch = START_NS / SECOND_NS;
        table.publish_remote(0, key(1), epoch, 5, START_NS);
        table.publish_remote_or_claim(0, key(5_000), epoch, 5, START_NS);
    });
    assert!(rows >= 1_000, "{rows} rows");
    assert_eq!(seen, 0);
}
