//! Counter-examples as text: one line per step, in the order they were taken.

use std::fmt::Write;

use super::mem::Op;

/// One step of a trace.
pub struct Step<'a> {
    /// Which worker.
    pub worker: usize,
    /// Its program.
    pub program: &'a str,
    /// The running operation.
    pub operation: &'a str,
    /// What it did.
    pub op: Op,
    /// What the word held.
    pub now: u64,
    /// Outcome, when this step ended the operation.
    pub outcome: Option<Vec<u64>>,
}

/// Renders steps; the operation is named when a worker takes over from another.
pub fn render(steps: &[Step<'_>], word_name: &dyn Fn(u32) -> String) -> String {
    let mut text = String::new();
    let mut running = None;
    for (at, step) in steps.iter().enumerate() {
        if running != Some((step.worker, step.operation)) {
            running = Some((step.worker, step.operation));
            let _ = writeln!(
                text,
                "  worker {} ({}) in {}:",
                step.worker, step.program, step.operation
            );
        }
        let name = word_name(step.op.word());
        let now = step.now;
        let _ = match step.op {
            Op::Load { .. } => writeln!(text, "{at:5}   load {name} = {now:#x}"),
            Op::Cas { old, new, .. } if old == now => {
                writeln!(text, "{at:5}   CAS  {name}: {old:#x} -> {new:#x}")
            }
            Op::Cas { old, .. } => {
                writeln!(
                    text,
                    "{at:5}   CAS  {name} fails: holds {now:#x}, not {old:#x}"
                )
            }
            Op::Or { bits, .. } => {
                writeln!(text, "{at:5}   OR   {name}: {now:#x} -> {:#x}", now | bits)
            }
            Op::Swap { value, .. } => {
                writeln!(text, "{at:5}   SWAP {name}: {now:#x} -> {value:#x}")
            }
        };
        if let Some(outcome) = &step.outcome {
            let _ = writeln!(text, "        ends with {outcome:?}");
        }
    }
    text
}
