//! The explorer itself, on small protocols with a known answer: it finds what is broken, it does
//! not find what is not, it reports a worker that waits for a killed one, and its reduction loses
//! nothing.

mod explore;

use explore::mem::on_memory;
use explore::{ExploreMem, Limits, Program, Report, Search, View, Violation};

const PENDING: u64 = 1 << 8;
const LIVE: u64 = 2 << 8;

/// How a toy claim is made.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Claim {
    /// Publishes the row at once.
    Naive,
    /// Pending, rescan, lowest slot wins; but a rival that could not be removed is forgotten.
    Careless,
    /// The same, and a rival that could not be removed is looked at again.
    Right,
}

/// Claims one key in one of `slots` and takes one of one permits. Returns whether it got it.
fn claim_and_reserve(mem: ExploreMem, me: u64, slots: usize, first: usize, how: Claim) -> u64 {
    loop {
        let seen = (0..slots)
            .map(|i| (i, mem.load(i)))
            .find(|(_, v)| *v & !0xff != 0);
        match seen {
            Some((i, v)) if v & !0xff == LIVE => {
                let count = v & 0xff;
                if count >= 1 {
                    return 0;
                }
                if mem.cas(i, v, LIVE | (count + 1)).is_ok() {
                    return 1;
                }
            }
            Some((i, v)) => settle(mem, i, v, slots, how),
            None => {
                for turn in 0..slots {
                    let i = (first + turn) % slots;
                    let value = if how == Claim::Naive {
                        LIVE
                    } else {
                        PENDING | me
                    };
                    if mem.cas(i, 0, value).is_ok() {
                        if how != Claim::Naive {
                            settle(mem, i, value, slots, how);
                        }
                        break;
                    }
                }
            }
        }
    }
}

/// Completes or withdraws the pending claim `value` in slot `at`, whoever made it.
fn settle(mem: ExploreMem, at: usize, value: u64, slots: usize, how: Claim) {
    for i in (0..slots).filter(|i| *i != at) {
        loop {
            let other = mem.load(i);
            if other == 0 {
                break;
            }
            if other & !0xff == LIVE || i < at {
                let _ = mem.cas(at, value, 0);
                return;
            }
            if mem.cas(i, other, 0).is_ok() || how == Claim::Careless {
                break;
            }
        }
    }
    let _ = mem.cas(at, value, LIVE);
}

/// No two live slots, no more than one permit handed out.
fn one_live_row(mem: ExploreMem, slots: usize, view: &View<'_>) -> Result<(), String> {
    let live = (0..slots).filter(|i| mem.load(*i) & !0xff == LIVE).count();
    if live > 1 {
        return Err(format!("{live} live rows for one key"));
    }
    let admitted: u64 = view
        .outcomes
        .iter()
        .flat_map(|o| o.iter())
        .map(|o| o[0])
        .sum();
    if admitted > 1 {
        return Err(format!("admitted {admitted} of 1"));
    }
    if view.all_done() && admitted == 0 {
        return Err("nobody was admitted".to_owned());
    }
    Ok(())
}

fn claims(slots: usize, workers: usize, how: Claim, reduce: bool) -> Result<Report, Violation> {
    let mem = ExploreMem { words: slots };
    let programs = (0..workers)
        .map(|w| {
            Program::new("claimer").then("claim", move || {
                vec![claim_and_reserve(mem, w as u64, slots, w % slots, how)]
            })
        })
        .collect();
    Search {
        name: "toy claim",
        memory: vec![0; slots],
        programs,
        workers: (0..workers).collect(),
        check: Box::new(move |view| one_live_row(mem, slots, view)),
        word_name: Box::new(|word| format!("slot{word}")),
        limits: Limits::default(),
        reduce,
    }
    .run()
}

#[test]
fn a_naive_claim_is_found_to_make_two_rows() {
    for (workers, slots) in [(2, 2), (3, 2), (3, 3)] {
        let violation =
            claims(slots, workers, Claim::Naive, true).expect_err("the naive claim is broken");
        assert!(violation.what.contains("live rows"), "{violation:?}");
        assert!(violation.trace.contains("CAS  slot"), "{violation:?}");
    }
}

#[test]
fn a_careless_removal_of_a_rival_is_found_to_make_two_rows() {
    let violation = claims(2, 2, Claim::Careless, true).expect_err("a rival was forgotten");
    assert!(violation.what.contains("live rows"), "{violation:?}");
}

#[test]
fn a_pending_claim_with_rescan_makes_one_row() {
    for (workers, slots) in [(2, 2), (2, 3), (3, 2), (3, 3)] {
        let report =
            claims(slots, workers, Claim::Right, true).expect("the pending claim is right");
        println!("toy claim, {workers} workers, {slots} slots: {report:?}");
        assert!(report.states > 50, "{report:?}");
    }
}

#[test]
fn the_reduction_loses_no_violation_and_no_end() {
    for (workers, slots) in [(2, 2), (2, 3), (3, 2)] {
        assert!(claims(slots, workers, Claim::Naive, false).is_err());
        let all = claims(slots, workers, Claim::Right, false).expect("right");
        let reduced = claims(slots, workers, Claim::Right, true).expect("right");
        assert_eq!(all.ends, reduced.ends);
        assert!(reduced.states <= all.states);
    }
}

fn counters(workers: usize, with_cas: bool, reduce: bool) -> Result<Report, Violation> {
    let mem = ExploreMem { words: 2 };
    let program = Program::new("adder").then("add", move || loop {
        let seen = mem.load(0);
        let _never_written = mem.load(1);
        if !with_cas {
            mem.swap(0, seen + 1);
            return vec![];
        }
        if mem.cas(0, seen, seen + 1).is_ok() {
            return vec![];
        }
    });
    Search {
        name: "toy counter",
        memory: vec![0; 2],
        programs: vec![program],
        workers: vec![0; workers],
        check: Box::new(move |view| {
            let total = mem.load(0);
            if view.all_done() && total != view.done.len() as u64 {
                return Err(format!("lost update: {total}"));
            }
            Ok(())
        }),
        word_name: Box::new(|word| format!("word{word}")),
        limits: Limits::default(),
        reduce,
    }
    .run()
}

#[test]
fn a_lost_update_is_found_and_a_cas_loop_is_not_accused() {
    for workers in [2, 3, 4] {
        let violation = counters(workers, false, true).expect_err("swap loses updates");
        assert!(violation.what.contains("lost update"), "{violation:?}");
        assert!(counters(workers, false, false).is_err());
        let reduced = counters(workers, true, true).expect("a CAS loop loses nothing");
        let all = counters(workers, true, false).expect("a CAS loop loses nothing");
        assert!(
            reduced.states < all.states,
            "the load of an unshared word is not interleaved"
        );
    }
}

#[test]
fn a_reduction_that_relied_on_a_late_writer_starts_again() {
    // The reader's first load is met before any writer of word 0 is known.
    let mem = ExploreMem { words: 2 };
    let reader = Program::new("reader").then("read", move || vec![mem.load(0), mem.load(0)]);
    let writer = Program::new("writer")
        .then("look", move || vec![mem.load(1)])
        .then("write", move || vec![mem.swap(0, 7)]);
    let search = Search {
        name: "toy late writer",
        memory: vec![0; 2],
        programs: vec![reader, writer],
        workers: vec![0, 1],
        check: Box::new(|view| match view.outcomes[0] {
            [pair] if pair[0] == 0 && pair[1] == 7 => Err("changed between".to_owned()),
            _ => Ok(()),
        }),
        word_name: Box::new(|word| format!("word{word}")),
        limits: Limits::default(),
        reduce: true,
    };
    let violation = search
        .run()
        .expect_err("the value may change between two loads");
    assert!(violation.what.contains("changed between"));
}

#[test]
fn a_worker_that_waits_for_a_killed_one_is_found() {
    let mem = ExploreMem { words: 2 };
    let program = Program::new("locker").then("lock and add", move || {
        while mem.cas(0, 0, 1).is_err() {}
        let seen = mem.load(1);
        mem.swap(1, seen + 1);
        mem.swap(0, 0);
        vec![]
    });
    let search = Search {
        name: "toy lock",
        memory: vec![0; 2],
        programs: vec![program],
        workers: vec![0, 0],
        check: Box::new(|_| Ok(())),
        word_name: Box::new(|word| format!("word{word}")),
        limits: Limits::default(),
        reduce: true,
    };
    let violation = search.run().expect_err("a spin lock waits for its holder");
    assert!(violation.what.contains("does not finish"), "{violation:?}");
}

#[test]
fn a_bound_that_is_met_fails() {
    let mem = ExploreMem { words: 4 };
    let program = Program::new("busy").then("swaps", move || {
        (0..4).for_each(|i| {
            mem.fetch_or(i, 1 << i);
        });
        vec![]
    });
    let search = Search {
        name: "toy bound",
        memory: vec![0; 4],
        programs: vec![program],
        workers: vec![0, 0, 0],
        check: Box::new(|_| Ok(())),
        word_name: Box::new(|word| format!("word{word}")),
        limits: Limits {
            states: 10,
            steps_per_op: 100,
            preemptions: None,
        },
        reduce: true,
    };
    let violation = search.run().expect_err("10 states are not enough");
    assert!(violation.what.contains("bound of 10 states exceeded"));
}

#[test]
fn a_panic_in_a_worker_is_reported_with_its_trace() {
    let mem = ExploreMem { words: 1 };
    let program = Program::new("asserting").then("assert", move || {
        // Unwinds like a failed assertion, without the panic hook's noise in the test log.
        if mem.fetch_or(0, 1) == 1 {
            std::panic::resume_unwind(Box::new("second comer"));
        }
        vec![]
    });
    let search = Search {
        name: "toy panic",
        memory: vec![0],
        programs: vec![program],
        workers: vec![0, 0],
        check: Box::new(|_| Ok(())),
        word_name: Box::new(|word| format!("word{word}")),
        limits: Limits::default(),
        reduce: true,
    };
    let violation = search.run().expect_err("the second worker panics");
    assert!(violation.what.contains("second comer"), "{violation:?}");
}

#[test]
fn a_check_sees_memory_and_its_own_writes_are_undone() {
    let mem = ExploreMem { words: 1 };
    let program = Program::new("setter").then("set", move || vec![mem.fetch_or(0, 1)]);
    let search = Search {
        name: "toy check",
        memory: vec![0],
        programs: vec![program],
        workers: vec![0, 0],
        check: Box::new(move |view| {
            let was = mem.swap(0, 99);
            if was == 99 || (view.all_done() && was != 1) {
                return Err(format!("saw {was}"));
            }
            Ok(())
        }),
        word_name: Box::new(|word| format!("word{word}")),
        limits: Limits::default(),
        reduce: true,
    };
    search.run().expect("a check leaves no trace");
    let mut memory = vec![5];
    assert_eq!(on_memory(&mut memory, || mem.load(0)), Ok(5));
}
