//! The counter table on the memory under exploration: how one is set up, what workers do to it,
//! and the properties that hold in every state.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::rc::Rc;

use gabion_admit::Outcome;
use gabion_rule::{Key, Mode, RuleIdx};
use gabion_table::{Charge, Fault, Geometry, Mem, RowState, RowView, SubSpec, Table};

use super::mem::{on_memory, plant, writes, ExploreMem};
use super::search::{Check, Limits, Program, Report, Search, View, Violation};

/// Where a head (of limits below 2^23) says what its row is, and what *pending* is called there.
const HEAD_STATE_SHIFT: u32 = 46;
const HEAD_PENDING: u64 = 1;

thread_local! {
    /// Head words that the running operation must not claim once they were used.
    static STOP_AT_CLAIM: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// Payload of the unwinding that stops a worker about to claim a row.
struct Stopped;

/// The head words of a table.
pub fn heads(table: &TestTable) -> Vec<usize> {
    (0..table.mem().words)
        .filter(|i| table.describe(*i).ends_with("head"))
        .collect()
}

/// Runs `f`; `None` when it was about to take one of the rows whose heads are given from whoever
/// had it, and was killed there.
pub fn killed_at_claim<T>(heads: &[usize], f: impl FnOnce() -> T) -> Option<T> {
    STOP_AT_CLAIM.set(heads.to_vec());
    let result = catch_unwind(AssertUnwindSafe(f));
    STOP_AT_CLAIM.set(Vec::new());
    match result {
        Ok(value) => Some(value),
        Err(payload) if payload.is::<Stopped>() => None,
        Err(payload) => resume_unwind(payload),
    }
}

impl Mem for ExploreMem {
    fn load(&self, i: usize) -> u64 {
        ExploreMem::load(self, i)
    }
    fn load_seq(&self, i: usize) -> u64 {
        ExploreMem::load(self, i)
    }
    fn cas(&self, i: usize, old: u64, new: u64) -> Result<u64, u64> {
        let pending = new >> HEAD_STATE_SHIFT & 3 == HEAD_PENDING;
        if pending && old != 0 && STOP_AT_CLAIM.with_borrow(|heads| heads.contains(&i)) {
            resume_unwind(Box::new(Stopped));
        }
        ExploreMem::cas(self, i, old, new)
    }
    fn fetch_or(&self, i: usize, bits: u64) -> u64 {
        ExploreMem::fetch_or(self, i, bits)
    }
    fn swap(&self, i: usize, v: u64) -> u64 {
        ExploreMem::swap(self, i, v)
    }
    /// Statistics decide nothing, so they are no steps.
    fn fetch_add(&self, _i: usize, _v: u64) -> u64 {
        0
    }
    fn fence(&self) {}
    fn len(&self) -> usize {
        ExploreMem::len(self)
    }
    fn planted(&self, fault: Fault) -> bool {
        self.fault() == 1 + fault as u32
    }
}

/// The table under exploration.
pub type TestTable = Table<ExploreMem>;

/// Codes in outcomes.
pub const DENIED: u64 = 0;
/// Admitted and counted.
pub const ADMITTED: u64 = 1;
/// Killed by the test before it could claim a row.
pub const KILLED: u64 = 3;
/// Admitted uncounted.
pub const FAILED_OPEN: u64 = 2;

/// A table, its first memory, and the workers that will run on it.
pub struct World {
    /// Name in reports.
    pub name: String,
    /// The table; clones of the handle go into the workers.
    pub table: Rc<TestTable>,
    /// The memory the search starts with.
    pub memory: Vec<u64>,
    programs: Vec<Program>,
    workers: Vec<usize>,
    limits: Limits,
}

impl World {
    /// Formats a small table.
    pub fn new(name: &str, rules: &[SubSpec], geometry: Geometry) -> World {
        let words = 4_096;
        let mut memory = vec![0; words];
        let table = on_memory(&mut memory, || {
            Table::format_with(ExploreMem { words }, rules, geometry).expect("it fits")
        });
        World {
            name: name.to_owned(),
            table: Rc::new(table.expect("formatting ends")),
            memory,
            programs: Vec::new(),
            workers: Vec::new(),
            limits: Limits::default(),
        }
    }

    /// What happens before the workers start.
    pub fn before(mut self, f: impl FnOnce(&TestTable)) -> World {
        let table = Rc::clone(&self.table);
        on_memory(&mut self.memory, || f(&table)).expect("the preparation ends");
        self
    }

    /// Adds `count` workers that run the same program.
    pub fn workers(mut self, count: usize, program: Program) -> World {
        self.workers
            .extend(std::iter::repeat_n(self.programs.len(), count));
        self.programs.push(program);
        self
    }

    /// Sets the bound on states.
    pub fn states(mut self, states: u64) -> World {
        self.limits.states = states;
        self
    }

    /// Bounds how often a worker that could go on is interrupted: no longer exhaustive then.
    pub fn preemptions(mut self, most: u32) -> World {
        self.limits.preemptions = Some(most);
        self
    }

    /// Sets the bound on steps of one operation.
    pub fn steps_per_op(mut self, steps: usize) -> World {
        self.limits.steps_per_op = steps;
        self
    }

    /// A handle for workers.
    pub fn handle(&self) -> Rc<TestTable> {
        Rc::clone(&self.table)
    }

    /// Searches with `check` as the property.
    pub fn search(self, check: impl Fn(&TestTable, &View<'_>) -> Result<(), String>) -> Found {
        let World {
            name,
            table,
            memory,
            programs,
            workers,
            limits,
        } = self;
        let checked = Rc::clone(&table);
        let named = Rc::clone(&table);
        let check: Check<'_> = Box::new(move |view| check(&checked, view));
        let word_name = Box::new(move |word: u32| named.describe(word as usize));
        let search = Search {
            name: &name,
            memory,
            programs,
            workers,
            check,
            word_name,
            limits,
            reduce: true,
        };
        let result = search.run();
        Found {
            name: name.clone(),
            result,
        }
    }
}

/// What a search came to.
pub struct Found {
    name: String,
    result: Result<Report, Violation>,
}

impl Found {
    /// Prints the counts; panics with the trace of a violation.
    pub fn holds(self) -> Report {
        match self.result {
            Ok(report) => {
                println!("explored {}: {report:?}", self.name);
                report
            }
            Err(violation) => panic!("{}: {violation:?}", self.name),
        }
    }

    /// Panics unless a violation was found whose text contains `part`.
    pub fn fails_with(self, part: &str) -> Violation {
        match self.result {
            Ok(report) => panic!("{}: the planted fault was not found: {report:?}", self.name),
            Err(violation) => {
                let what = &violation.what;
                assert!(
                    what.contains(part),
                    "{}: found another: {violation:?}",
                    self.name
                );
                println!(
                    "found in {}: {what} after {} states",
                    self.name, violation.states
                );
                violation
            }
        }
    }
}

/// Runs `f` with a fault planted in this thread.
pub fn with_fault<T>(fault: Fault, f: impl FnOnce() -> T) -> T {
    plant(1 + fault as u32);
    let result = f();
    plant(0);
    result
}

/// Charges one rule. [`DENIED`], [`ADMITTED`] or [`FAILED_OPEN`].
pub fn charge_one(table: &TestTable, rule: RuleIdx, key: Key, hits: u32, now_ns: u64) -> u64 {
    let mut charges = [Charge::new(rule, key, hits, Mode::Enforce, 0)];
    let outcome = table.decide(&mut charges, now_ns).outcome;
    match (outcome, charges[0].fail_open) {
        (Outcome::Denied, _) => DENIED,
        (Outcome::Allowed, None) => ADMITTED,
        (Outcome::Allowed, Some(_)) => FAILED_OPEN,
    }
}

/// Charges one hit; outcome: code, hits.
pub fn hit(program: Program, world: &World, rule: RuleIdx, key: Key, now_ns: u64) -> Program {
    let table = world.handle();
    program.then("decide", move || {
        vec![charge_one(&table, rule, key, 1, now_ns)]
    })
}

/// Live rows.
pub fn live_rows(table: &TestTable) -> Vec<RowView> {
    let mut rows = Vec::new();
    table.inspect(&mut |row| {
        if row.state == RowState::Live {
            rows.push(row);
        }
    });
    rows
}

/// No key has two live rows.
pub fn one_row_per_key(table: &TestTable) -> Result<(), String> {
    let mut seen = BTreeMap::new();
    for row in live_rows(table) {
        if let Some(other) = seen.insert((row.rule, row.key), row.row) {
            return Err(format!(
                "two live rows for one key: row {other} and {row:?}"
            ));
        }
    }
    Ok(())
}

/// Hits `key` until it is denied (or fails open); how many were admitted.
pub fn use_up(table: &TestTable, rule: RuleIdx, key: Key, now_ns: u64) -> Result<u64, String> {
    for n in 0..1_000 {
        match charge_one(table, rule, key, 1, now_ns) {
            ADMITTED => {}
            DENIED => return Ok(n),
            _ => return Err(format!("failed open after {n} hits")),
        }
    }
    Err("never denied".to_owned())
}

/// Epochs that admissions were charged to, and what was counted before the workers started.
pub struct Ledger {
    /// Closed buckets that count beside the current one.
    pub closed: u64,
    /// Limit.
    pub limit: u64,
    /// (epoch, hits) from before.
    pub before: Vec<(u64, u64)>,
}

impl Ledger {
    /// Hits per epoch, from before and from outcomes `[code, epoch]`.
    pub fn admitted(&self, view: &View<'_>) -> BTreeMap<u64, u64> {
        let mut by_epoch = BTreeMap::new();
        for (epoch, hits) in &self.before {
            *by_epoch.entry(*epoch).or_insert(0) += hits;
        }
        for outcome in view.outcomes.iter().flat_map(|o| o.iter()) {
            if outcome[0] == ADMITTED {
                *by_epoch.entry(outcome[1]).or_insert(0) += 1;
            }
        }
        by_epoch
    }

    /// The hits of the window that ends with `epoch`.
    pub fn window(&self, by_epoch: &BTreeMap<u64, u64>, epoch: u64) -> u64 {
        by_epoch
            .range(epoch.saturating_sub(self.closed)..=epoch)
            .map(|(_, hits)| hits)
            .sum()
    }

    /// No window holds more than the limit.
    pub fn within_limit(&self, view: &View<'_>) -> Result<(), String> {
        let by_epoch = self.admitted(view);
        for epoch in by_epoch.keys().flat_map(|e| *e..=e + self.closed) {
            let sum = self.window(&by_epoch, epoch);
            if sum > self.limit {
                return Err(format!("{sum} of {} in a window: {by_epoch:?}", self.limit));
            }
        }
        Ok(())
    }

    /// A denial at `epoch` needs a full window that ends then or later.
    pub fn full_since(&self, view: &View<'_>, epoch: u64) -> Result<(), String> {
        let by_epoch = self.admitted(view);
        let last = by_epoch
            .keys()
            .next_back()
            .copied()
            .unwrap_or(epoch)
            .max(epoch);
        if (epoch..=last).any(|e| self.window(&by_epoch, e) >= self.limit) {
            return Ok(());
        }
        Err(format!(
            "denied in epoch {epoch} though no window was full: {by_epoch:?}"
        ))
    }
}

/// Workers that are in the middle of something.
pub fn busy(view: &View<'_>) -> u64 {
    view.done.iter().filter(|done| !**done).count() as u64
}

/// The epoch, low 22 bits, that the last charge of this operation went to: what its last write of
/// a live head holds.
pub fn charged_epoch(table: &TestTable) -> Option<u64> {
    let writes = writes();
    let head = writes
        .iter()
        .rev()
        .find(|w| table.describe(w.word as usize).ends_with("head"))?;
    Some(head.new >> 24 & ((1 << 22) - 1))
}
