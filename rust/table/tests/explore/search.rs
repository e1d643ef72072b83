//! Depth-first search over every interleaving of the workers, with a set of visited states.
//!
//! A worker runs a [`Program`]: a list of operations, each a function of what memory answers. A
//! step of a worker is one memory operation. What a worker does next depends only on the program,
//! the outcomes so far and the responses within the running operation, so this is found once per
//! such history (a *node*) and kept; the search itself only looks it up.
//!
//! State = memory, node of each worker. Workers of one program are interchangeable. A visited
//! state is kept as a 128-bit hash: with 10^8 states the odds that two collide are below 10^-22.
//!
//! The one reduction: when the next step of a worker is a load of a word that no other worker can
//! write any more, only this step is explored from that state (it commutes with everything the
//! others do, and changes nothing a check can see but possibly the end of an operation). Which
//! words can be written after a history is learnt during the search. When it turns out that a
//! word was thought unwritable and is written after all, the search is done again with what was
//! learnt. In the last pass nothing was relied on wrongly: the first step that would break the
//! assumption is reachable by steps that all respect it, hence would have been met. Histories only
//! grow, so the state graph has no cycles and no step is put off for ever.

use std::fmt;

use super::hash::{mix2, MixedSet};
use super::histories::{Histories, Next};
use super::mem::{on_scratch, Op};
use super::trace::{render, Step};

/// One operation of a program: what it is called, and the code. The result is its outcome.
pub type Operation = (String, Box<dyn Fn() -> Vec<u64>>);

/// What one or more workers run.
pub struct Program {
    /// Name in reports.
    pub name: String,
    /// Run one after the other.
    pub operations: Vec<Operation>,
}

impl Program {
    /// An empty program.
    pub fn new(name: &str) -> Program {
        Program {
            name: name.to_owned(),
            operations: Vec::new(),
        }
    }

    /// Adds an operation.
    pub fn then(mut self, name: &str, op: impl Fn() -> Vec<u64> + 'static) -> Program {
        self.operations.push((name.to_owned(), Box::new(op)));
        self
    }
}

/// Bounds of a search. Meeting one is a failure.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Distinct states.
    pub states: u64,
    /// Steps of one operation, retries included: beyond it, it counts as stuck.
    pub steps_per_op: usize,
    /// Times that a worker which could go on is interrupted by another; `None`: any number. With a
    /// bound the search is not exhaustive, and says so in its name.
    pub preemptions: Option<u32>,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            states: 5_000_000,
            steps_per_op: 400,
            preemptions: None,
        }
    }
}

/// What a check sees of a state. The memory is installed: the check may call the code under test
/// directly, and whatever that writes is undone.
pub struct View<'a> {
    /// Per worker: outcomes of the operations that ended.
    pub outcomes: Vec<&'a [Vec<u64>]>,
    /// Per worker: it has run all its operations.
    pub done: Vec<bool>,
}

impl View<'_> {
    /// Every worker is done.
    pub fn all_done(&self) -> bool {
        self.done.iter().all(|d| *d)
    }
}

/// A property of a state.
pub type Check<'a> = Box<dyn Fn(&View<'_>) -> Result<(), String> + 'a>;

/// A broken property and the way to it.
pub struct Violation {
    /// Which property, and how.
    pub what: String,
    /// The steps, readable.
    pub trace: String,
    /// States visited until then.
    pub states: u64,
}

impl fmt::Debug for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} (after {} states)\n{}",
            self.what, self.states, self.trace
        )
    }
}

/// What a search without violation covered.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    /// Distinct states.
    pub states: u64,
    /// Steps taken between them.
    pub steps: u64,
    /// States in which every worker is done.
    pub ends: u64,
    /// Distinct (memory, outcomes) pairs that were checked.
    pub checked: u64,
    /// Distinct worker histories.
    pub histories: u64,
    /// Times the states were gone through until nothing new was learnt of writers.
    pub passes: u32,
    /// Longest path, in steps.
    pub depth: usize,
}

/// A search to be run.
pub struct Search<'a> {
    /// Name in reports.
    pub name: &'a str,
    /// First memory.
    pub memory: Vec<u64>,
    /// Programs.
    pub programs: Vec<Program>,
    /// Program of each worker.
    pub workers: Vec<usize>,
    /// Holds in every state.
    pub check: Check<'a>,
    /// Name of a word.
    pub word_name: Box<dyn Fn(u32) -> String + 'a>,
    /// Bounds.
    pub limits: Limits,
    /// Use the reduction (off only to test the explorer itself).
    pub reduce: bool,
}

/// One level of the search: what was done to get there and what is left to try.
struct Level {
    worker: usize,
    node_before: u32,
    undo: Option<(u32, u64)>,
    op: Option<(Op, u64)>,
    /// Who ran last (a step that is not interleaved does not count), and interruptions so far.
    last: usize,
    preemptions: u32,
    /// The next step is not interleaved.
    lone: bool,
    /// Next worker to try, and one past the last.
    next: usize,
    end: usize,
}

struct Run<'s, 'a> {
    search: &'s mut Search<'a>,
    histories: Histories,
    workers: Vec<u32>,
    memory_hash: u128,
    seen: MixedSet<u128>,
    checked: MixedSet<u128>,
    levels: Vec<Level>,
    report: Report,
}

impl Search<'_> {
    /// Visits every state.
    pub fn run(mut self) -> Result<Report, Violation> {
        let mut histories = Histories::new();
        let mut passes = 0;
        loop {
            passes += 1;
            let mut run = Run::new(&mut self, histories);
            let found = run.walk();
            let again = run.histories.relied_wrongly;
            let mut report = run.report;
            report.passes = passes;
            report.histories = run.histories.nodes.len() as u64;
            // A violation is real whatever was relied on: its steps can all be taken.
            if found.is_err() || !again {
                return found.map(|()| report);
            }
            histories = run.histories;
            histories.rely_on_nothing();
        }
    }

    /// Runs, prints the counts, and panics with the trace of a violation.
    pub fn holds(self) -> Report {
        let name = self.name.to_owned();
        match self.run() {
            Ok(report) => {
                println!(
                    "explored {name}: {} states, {} steps, {} ends, {} checked, {} histories, \
                     depth {}, {} passes",
                    report.states,
                    report.steps,
                    report.ends,
                    report.checked,
                    report.histories,
                    report.depth,
                    report.passes
                );
                report
            }
            Err(violation) => panic!("{name}: {violation:?}"),
        }
    }

    /// Runs and panics unless a violation is found whose text contains `part`.
    pub fn fails_with(self, part: &str) -> Violation {
        let name = self.name.to_owned();
        match self.run() {
            Ok(report) => panic!("{name}: the planted fault was not found in {report:?}"),
            Err(violation) => {
                assert!(
                    violation.what.contains(part),
                    "{name}: found another: {violation:?}"
                );
                println!(
                    "found {name}: {} after {} states",
                    violation.what, violation.states
                );
                violation
            }
        }
    }
}

impl<'s, 'a> Run<'s, 'a> {
    fn new(search: &'s mut Search<'a>, mut histories: Histories) -> Run<'s, 'a> {
        let programs = &search.programs;
        let index = |v: usize| u32::try_from(v).expect("few programs");
        let workers = search
            .workers
            .iter()
            .map(|p| histories.start(programs, index(*p), 0, 0))
            .collect();
        let memory_hash = search
            .memory
            .iter()
            .enumerate()
            .fold(0u128, |sum, (i, v)| sum.wrapping_add(mix2(i as u64, *v)));
        Run {
            search,
            histories,
            workers,
            memory_hash,
            seen: MixedSet::default(),
            checked: MixedSet::default(),
            levels: Vec::new(),
            report: Report::default(),
        }
    }

    fn walk(&mut self) -> Result<(), Violation> {
        let root = Level {
            worker: 0,
            node_before: 0,
            undo: None,
            op: None,
            last: 0,
            preemptions: 0,
            lone: false,
            next: 0,
            end: 0,
        };
        self.enter(root)?;
        while let Some(level) = self.levels.last_mut() {
            if level.next == level.end {
                self.leave();
                continue;
            }
            let worker = level.next;
            level.next += 1;
            let (mut last, mut preemptions) = (level.last, level.preemptions);
            if !level.lone && worker != last {
                preemptions += u32::from(self.wants(last).is_some());
                last = worker;
            }
            if self
                .search
                .limits
                .preemptions
                .is_some_and(|most| preemptions > most)
            {
                continue;
            }
            if let Some(op) = self.wants(worker) {
                self.step(worker, op, last, preemptions)?;
            }
        }
        Ok(())
    }

    fn wants(&self, worker: usize) -> Option<Op> {
        match self.histories.nodes[self.workers[worker] as usize].next {
            Next::Wants(op) => Some(op),
            _ => None,
        }
    }

    fn step(&mut self, worker: usize, op: Op, last: usize, n: u32) -> Result<(), Violation> {
        let word = op.word();
        let now = self.search.memory[word as usize];
        let after = op.after(now);
        let mut undo = None;
        if after != now {
            self.search.memory[word as usize] = after;
            self.memory_hash = self
                .memory_hash
                .wrapping_sub(mix2(u64::from(word), now))
                .wrapping_add(mix2(u64::from(word), after));
            undo = Some((word, now));
        }
        let node_before = self.workers[worker];
        self.workers[worker] = self
            .histories
            .child(&self.search.programs, node_before, now);
        self.report.steps += 1;
        self.enter(Level {
            worker,
            node_before,
            undo,
            op: Some((op, now)),
            last,
            preemptions: n,
            lone: false,
            next: 0,
            end: 0,
        })
    }

    /// Goes on from the present state unless it was seen.
    fn enter(&mut self, level: Level) -> Result<(), Violation> {
        let mut key = self.memory_hash;
        for id in &self.workers {
            key = key.wrapping_add(mix2(1 << 40, u64::from(*id)));
        }
        if self.search.limits.preemptions.is_some() {
            let past = (level.last as u64) << 32 | u64::from(level.preemptions);
            key = key.wrapping_add(mix2(3 << 40, past));
        }
        let fresh = self.seen.insert(key);
        self.levels.push(level);
        self.report.depth = self.report.depth.max(self.levels.len());
        if !fresh {
            self.leave();
            return Ok(());
        }
        self.report.states += 1;
        if self.report.states > self.search.limits.states {
            let text = format!("bound of {} states exceeded", self.search.limits.states);
            return Err(self.violation(text));
        }
        self.check_state()?;
        let many = self.workers.len();
        let reduce = self.search.reduce;
        let lone = reduce
            .then(|| self.histories.lone_step(&self.workers))
            .flatten();
        let (next, end) = lone.map_or((0, many), |worker| (worker, worker + 1));
        let level = self.levels.last_mut().expect("a level was pushed");
        level.lone = lone.is_some();
        level.next = next;
        level.end = end;
        Ok(())
    }

    fn leave(&mut self) {
        let Some(level) = self.levels.pop() else {
            return;
        };
        if level.op.is_none() {
            return;
        }
        self.workers[level.worker] = level.node_before;
        if let Some((word, value)) = level.undo {
            let now = self.search.memory[word as usize];
            self.search.memory[word as usize] = value;
            self.memory_hash = self
                .memory_hash
                .wrapping_sub(mix2(u64::from(word), now))
                .wrapping_add(mix2(u64::from(word), value));
        }
    }

    fn check_state(&mut self) -> Result<(), Violation> {
        let mut key = self.memory_hash;
        for (worker, id) in self.workers.iter().enumerate() {
            let node = &self.histories.nodes[*id as usize];
            if let Next::Panicked(text) = &node.next {
                let text = text.clone();
                return Err(self.violation(text));
            }
            if node.length as usize > self.search.limits.steps_per_op {
                let text = format!("worker {worker} does not finish: {} steps", node.length);
                return Err(self.violation(text));
            }
            key = key.wrapping_add(mix2((2 << 40) + worker as u64, u64::from(node.outcomes)));
        }
        let done: Vec<bool> = self.workers.iter().map(|id| self.is_done(*id)).collect();
        if done.iter().all(|d| *d) {
            self.report.ends += 1;
        }
        if !self.checked.insert(key) {
            return Ok(());
        }
        self.report.checked += 1;
        let histories = &self.histories;
        let outcomes = self
            .workers
            .iter()
            .map(|id| {
                let outcomes = histories.nodes[*id as usize].outcomes;
                histories.outcomes[outcomes as usize].as_slice()
            })
            .collect();
        let view = View { outcomes, done };
        let check = &self.search.check;
        let result = on_scratch(&mut self.search.memory, || check(&view));
        match result {
            Ok(Ok(())) => Ok(()),
            Ok(Err(text)) | Err(text) => Err(self.violation(text)),
        }
    }

    fn is_done(&self, id: u32) -> bool {
        matches!(self.histories.nodes[id as usize].next, Next::Done)
    }

    fn violation(&self, what: String) -> Violation {
        let mut steps = Vec::new();
        for (at, level) in self.levels.iter().enumerate() {
            let Some((op, now)) = level.op else { continue };
            let before = &self.histories.nodes[level.node_before as usize];
            let program = &self.search.programs[before.program as usize];
            let later = self.levels[at + 1..]
                .iter()
                .find(|l| l.op.is_some() && l.worker == level.worker);
            let after = later.map_or(self.workers[level.worker], |l| l.node_before);
            let after = &self.histories.nodes[after as usize];
            let outcome = (after.operation != before.operation)
                .then(|| {
                    self.histories.outcomes[after.outcomes as usize]
                        .last()
                        .cloned()
                })
                .flatten();
            steps.push(Step {
                worker: level.worker,
                program: &program.name,
                operation: &program.operations[before.operation as usize].0,
                op,
                now,
                outcome,
            });
        }
        let trace = render(&steps, self.search.word_name.as_ref());
        Violation {
            what,
            trace,
            states: self.report.states,
        }
    }
}
