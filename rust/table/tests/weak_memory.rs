//! The table under weak memory: small races in loom, which also tries the stale values that an
//! Acquire load may return on real processors.
//!
//! Loom takes SeqCst reads and writes as AcqRel, and models SeqCst *fences* fully. So the two
//! set-then-look places of the table (claim, then look for rivals; clear a dirty bit, then read the
//! row) are given here as write, fence, read: what the standard guarantees for SeqCst accesses to
//! two words is what these fences give. All other orderings are as in production.

mod common;
mod explore;

use std::cell::Cell;
use std::sync::Arc;

use common::{fixed, key, sub, SECOND_NS, START_NS};
use explore::mem::on_memory;
use explore::ExploreMem;
use gabion_admit::Outcome;
use gabion_rule::{Key, Mode};
use gabion_table::{Charge, Fault, Geometry, Mem, SubSpec, Table};
use loom::sync::atomic::{fence, AtomicU64, Ordering};

/// Words as loom's atomics.
struct LoomMem {
    words: Vec<AtomicU64>,
    fault: Option<Fault>,
    /// Gives `load_seq` no more than `load`: the table must notice.
    plain_loads: bool,
}

impl Mem for LoomMem {
    fn load(&self, i: usize) -> u64 {
        self.words[i].load(Ordering::Acquire)
    }
    fn load_seq(&self, i: usize) -> u64 {
        // See the module comment: stands for a SeqCst load.
        if !self.plain_loads {
            fence(Ordering::SeqCst);
        }
        self.words[i].load(Ordering::Acquire)
    }
    fn cas(&self, i: usize, old: u64, new: u64) -> Result<u64, u64> {
        self.words[i].compare_exchange(old, new, Ordering::SeqCst, Ordering::Acquire)
    }
    fn fetch_or(&self, i: usize, bits: u64) -> u64 {
        self.words[i].fetch_or(bits, Ordering::SeqCst)
    }
    fn swap(&self, i: usize, v: u64) -> u64 {
        self.words[i].swap(v, Ordering::SeqCst)
    }
    /// Statistics decide nothing: left out, they need not be interleaved.
    fn fetch_add(&self, _i: usize, _v: u64) -> u64 {
        0
    }
    fn fence(&self) {
        fence(Ordering::SeqCst);
    }
    fn len(&self) -> usize {
        self.words.len()
    }
    fn planted(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }
}

const NOW_NS: u64 = START_NS + 1;
/// Two slots in two sets, so that their tags are in two words.
const GEOMETRY: Geometry = Geometry { ways: 1, sets: 2 };

thread_local! {
    /// Whether this thread's models get plain loads for SeqCst ones.
    static PLAIN_LOADS: Cell<bool> = const { Cell::new(false) };
}

/// A table's words after some preparation.
fn image(rules: &[SubSpec], before: impl Fn(&Table<ExploreMem>)) -> Vec<u64> {
    let words = Table::<ExploreMem>::words_needed(rules, GEOMETRY);
    let mut memory = vec![0; words];
    on_memory(&mut memory, || {
        let mem = ExploreMem { words };
        before(&Table::format_with(mem, rules, GEOMETRY).expect("it fits"));
    })
    .expect("the preparation ends");
    memory
}

/// The same memory, as loom sees it.
fn attach(image: &[u64], rules: &[SubSpec], fault: Option<Fault>) -> Arc<Table<LoomMem>> {
    let words = image.iter().map(|word| AtomicU64::new(*word)).collect();
    let plain_loads = PLAIN_LOADS.get();
    let mem = LoomMem {
        words,
        fault,
        plain_loads,
    };
    Arc::new(Table::attach_with(mem, rules, GEOMETRY).expect("the image is a table"))
}

fn hit<M: Mem>(table: &Table<M>, k: Key, now_ns: u64) -> bool {
    let mut charges = [Charge::new(0, k, 1, Mode::Enforce, 0)];
    table.decide(&mut charges, now_ns).outcome == Outcome::Allowed
}

fn model(preemptions: usize, f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 100_000;
    builder.check(f);
}

/// Two workers claim one key of limit 1: one of them is admitted, in one row.
fn two_claimers(fault: Option<Fault>, preemptions: usize) {
    let rules = [sub(1, fixed(1))];
    let words = image(&rules, |_| ());
    model(preemptions, move || {
        let table = attach(&words, &rules, fault);
        let other = Arc::clone(&table);
        let rival = loom::thread::spawn(move || hit(&*other, key(1), NOW_NS));
        let mine = hit(&*table, key(1), NOW_NS);
        let theirs = rival.join().expect("the rival ends");
        assert!(mine != theirs, "admitted: {mine} and {theirs}, of 1");
        assert!(!hit(&*table, key(1), NOW_NS), "used up");
    });
}

#[test]
fn two_claimers_share_a_row() {
    two_claimers(None, 2);
}

#[test]
#[ignore = "slow tier"]
fn two_claimers_share_a_row_with_more_preemptions() {
    two_claimers(None, 4);
}

#[test]
#[should_panic(expected = "of 1")]
fn planted_skip_claim_fence_is_found() {
    two_claimers(Some(Fault::SkipClaimFence), 2);
}

/// A worker reserves while the driver drains: the hit is shown now or is still marked.
fn dirty_against_drain(fault: Option<Fault>, preemptions: usize) {
    let rules = [sub(1, fixed(9))];
    let words = image(&rules, |table| assert!(hit(table, key(1), NOW_NS)));
    model(preemptions, move || {
        let table = attach(&words, &rules, fault);
        let worker = Arc::clone(&table);
        let worker = loom::thread::spawn(move || hit(&*worker, key(1), NOW_NS));
        let mut shown = 0;
        let mut drain = || {
            table.drain_dirty(4, NOW_NS, &mut |row| shown = row.counts[0].1.max(shown));
        };
        drain();
        assert!(worker.join().expect("the worker ends"));
        drain();
        assert_eq!(shown, 2, "the driver is not shown every hit");
    });
}

#[test]
fn a_dirty_mark_is_never_lost() {
    dirty_against_drain(None, 3);
}

#[test]
#[should_panic(expected = "not shown")]
fn planted_drain_clears_after_read_is_found() {
    dirty_against_drain(Some(Fault::DrainClearsAfterRead), 3);
}

#[test]
#[should_panic(expected = "not shown")]
fn acquire_loads_where_seq_cst_is_asked_for_are_found() {
    PLAIN_LOADS.set(true);
    dirty_against_drain(None, 3);
}

/// A reader of an exhausted key loses its row to another key, which must not be denied.
fn rejection_against_reuse(fault: Option<Fault>, preemptions: usize) {
    let rules = [sub(1, fixed(1))];
    // Both ways hold exhausted keys that are dead when the new keys come.
    let words = image(&rules, |table| {
        assert!(hit(table, key(1), NOW_NS) && hit(table, key(2), NOW_NS));
    });
    let later_ns = NOW_NS + SECOND_NS;
    model(preemptions, move || {
        let table = attach(&words, &rules, fault);
        let slow = Arc::clone(&table);
        // The slow one still lives in the old window, where its key is used up.
        let slow = loom::thread::spawn(move || hit(&*slow, key(1), NOW_NS));
        assert!(hit(&*table, key(3), later_ns), "a new key is denied");
        slow.join().expect("the slow one ends");
        assert!(
            !hit(&*table, key(3), later_ns),
            "the new key's hit is forgotten"
        );
    });
}

#[test]
fn a_rejection_is_never_a_strangers() {
    rejection_against_reuse(None, 2);
}
