//! The memory under exploration. One per thread; `ExploreMem` is only a handle.
//!
//! Two modes. *Direct*: an operation takes effect at once and can be undone (building the first
//! state, checking a state). *Replay*: an operation returns the recorded response; the first
//! operation without one stops the code by unwinding, and is what the worker wants to do next.

use std::cell::RefCell;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};

/// One step on the shared memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// Read a word.
    Load { word: u32 },
    /// Compare and swap; succeeds when the word holds `old`.
    Cas { word: u32, old: u64, new: u64 },
    /// Set bits.
    Or { word: u32, bits: u64 },
    /// Replace a word.
    Swap { word: u32, value: u64 },
}

impl Op {
    /// The word it touches.
    pub fn word(&self) -> u32 {
        match *self {
            Op::Load { word } | Op::Cas { word, .. } | Op::Or { word, .. } => word,
            Op::Swap { word, .. } => word,
        }
    }

    /// Whether it may change memory.
    pub fn writes(&self) -> bool {
        !matches!(self, Op::Load { .. })
    }

    /// What the word holds afterwards, given what it holds now.
    pub fn after(&self, now: u64) -> u64 {
        match *self {
            Op::Load { .. } => now,
            Op::Cas { old, new, .. } => {
                if now == old {
                    new
                } else {
                    now
                }
            }
            Op::Or { bits, .. } => now | bits,
            Op::Swap { value, .. } => value,
        }
    }
}

/// A write that took effect: word, value before, value after.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Write {
    /// Index of the word.
    pub word: u32,
    /// Value before.
    pub old: u64,
    /// Value after.
    pub new: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Off,
    Direct,
    Replay,
}

struct Context {
    mode: Mode,
    memory: Vec<u64>,
    undo: Vec<(u32, u64)>,
    budget: u64,
    responses: Vec<u64>,
    at: usize,
    pending: Option<Op>,
    writes: Vec<Write>,
    fault: u32,
}

thread_local! {
    static CONTEXT: RefCell<Context> = const {
        RefCell::new(Context {
            mode: Mode::Off,
            memory: Vec::new(),
            undo: Vec::new(),
            budget: 0,
            responses: Vec::new(),
            at: 0,
            pending: None,
            writes: Vec::new(),
            fault: 0,
        })
    };
}

/// Payload of the unwinding that stops a worker at its next operation.
struct Stop;

/// Payload of the unwinding that stops a direct call which does not come to an end.
struct Endless;

/// Operations that a direct call may take before it counts as endless.
const DIRECT_BUDGET: u64 = 1_000_000;

/// Handle to this thread's memory under exploration.
#[derive(Clone, Copy, Debug)]
pub struct ExploreMem {
    /// Number of words.
    pub words: usize,
}

fn perform(op: Op) -> u64 {
    let answer = CONTEXT.with_borrow_mut(|c| match c.mode {
        Mode::Off => panic!("an operation outside of exploration: {op:?}"),
        Mode::Direct => {
            if c.budget == 0 {
                return Err(true);
            }
            c.budget -= 1;
            let word = op.word();
            let now = c.memory[word as usize];
            let after = op.after(now);
            if after != now {
                c.undo.push((word, now));
                c.memory[word as usize] = after;
                c.writes.push(Write {
                    word,
                    old: now,
                    new: after,
                });
            }
            Ok(now)
        }
        Mode::Replay => {
            if let Some(&now) = c.responses.get(c.at) {
                c.at += 1;
                let after = op.after(now);
                if after != now {
                    c.writes.push(Write {
                        word: op.word(),
                        old: now,
                        new: after,
                    });
                }
                return Ok(now);
            }
            c.pending = Some(op);
            Err(false)
        }
    });
    match answer {
        Ok(value) => value,
        Err(true) => resume_unwind(Box::new(Endless)),
        Err(false) => resume_unwind(Box::new(Stop)),
    }
}

fn index(word: usize) -> u32 {
    u32::try_from(word).expect("a word index fits 32 bits")
}

impl ExploreMem {
    /// See [`Op::Load`].
    pub fn load(&self, word: usize) -> u64 {
        perform(Op::Load { word: index(word) })
    }

    /// See [`Op::Cas`]. Returns what the word held.
    pub fn cas(&self, word: usize, old: u64, new: u64) -> Result<u64, u64> {
        let now = perform(Op::Cas {
            word: index(word),
            old,
            new,
        });
        if now == old {
            Ok(now)
        } else {
            Err(now)
        }
    }

    /// See [`Op::Or`]. Returns what the word held.
    pub fn fetch_or(&self, word: usize, bits: u64) -> u64 {
        perform(Op::Or {
            word: index(word),
            bits,
        })
    }

    /// See [`Op::Swap`]. Returns what the word held.
    pub fn swap(&self, word: usize, value: u64) -> u64 {
        perform(Op::Swap {
            word: index(word),
            value,
        })
    }

    /// Number of words.
    pub fn len(&self) -> usize {
        self.words
    }

    /// The planted fault of this thread (0: none).
    pub fn fault(&self) -> u32 {
        CONTEXT.with_borrow(|c| c.fault)
    }
}

/// Plants a fault for this thread; 0 removes it.
pub fn plant(fault: u32) {
    CONTEXT.with_borrow_mut(|c| c.fault = fault);
}

/// The last write of the running operation that took effect, chosen by `which`.
pub fn last_write(which: impl Fn(u32) -> bool) -> Option<Write> {
    CONTEXT.with_borrow(|c| c.writes.iter().rev().copied().find(|w| which(w.word)))
}

/// All writes of the running operation that took effect, in order.
pub fn writes() -> Vec<Write> {
    CONTEXT.with_borrow(|c| c.writes.clone())
}

/// How a replayed operation went on.
pub enum Replayed {
    /// It wants to do this next.
    Wants(Op),
    /// It came to its end with this outcome.
    Done(Vec<u64>),
    /// It panicked.
    Panicked(String),
}

/// Runs `op` from its start with recorded responses.
pub fn replay(responses: &[u64], op: &dyn Fn() -> Vec<u64>) -> Replayed {
    CONTEXT.with_borrow_mut(|c| {
        c.mode = Mode::Replay;
        c.responses.clear();
        c.responses.extend_from_slice(responses);
        c.at = 0;
        c.pending = None;
        c.writes.clear();
    });
    let result = catch_unwind(AssertUnwindSafe(op));
    let (used, pending) = CONTEXT.with_borrow_mut(|c| {
        c.mode = Mode::Off;
        (c.at, c.pending.take())
    });
    match result {
        Ok(outcome) => {
            assert_eq!(
                used,
                responses.len(),
                "an operation is not a function of its responses"
            );
            Replayed::Done(outcome)
        }
        Err(payload) if payload.is::<Stop>() => {
            assert_eq!(
                used,
                responses.len(),
                "an operation is not a function of its responses"
            );
            Replayed::Wants(pending.expect("a stopped worker has a next operation"))
        }
        Err(payload) => Replayed::Panicked(panic_text(payload.as_ref())),
    }
}

/// Runs `f` directly on `memory`; what it wrote stays.
pub fn on_memory<T>(memory: &mut Vec<u64>, f: impl FnOnce() -> T) -> Result<T, String> {
    direct(memory, false, f)
}

/// Runs `f` directly on `memory`; what it wrote is undone.
pub fn on_scratch<T>(memory: &mut Vec<u64>, f: impl FnOnce() -> T) -> Result<T, String> {
    direct(memory, true, f)
}

fn direct<T>(memory: &mut Vec<u64>, undo: bool, f: impl FnOnce() -> T) -> Result<T, String> {
    CONTEXT.with_borrow_mut(|c| {
        c.mode = Mode::Direct;
        c.memory = std::mem::take(memory);
        c.undo.clear();
        c.writes.clear();
        c.budget = DIRECT_BUDGET;
    });
    let result = catch_unwind(AssertUnwindSafe(f));
    CONTEXT.with_borrow_mut(|c| {
        c.mode = Mode::Off;
        if undo {
            while let Some((word, value)) = c.undo.pop() {
                c.memory[word as usize] = value;
            }
        }
        *memory = std::mem::take(&mut c.memory);
    });
    result.map_err(|payload| {
        if payload.is::<Endless>() {
            format!("a call did not end within {DIRECT_BUDGET} operations")
        } else {
            panic_text(payload.as_ref())
        }
    })
}

fn panic_text(payload: &(dyn std::any::Any + Send)) -> String {
    if let Some(text) = payload.downcast_ref::<&str>() {
        format!("panicked: {text}")
    } else if let Some(text) = payload.downcast_ref::<String>() {
        format!("panicked: {text}")
    } else {
        "panicked".to_owned()
    }
}
