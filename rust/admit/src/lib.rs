//! Verdict arithmetic: window sums, token buckets, remaining, reset, retry-after.
//!
//! I own the numbers of a decision: which buckets count, how a token bucket drains and refills,
//! what is left, and how long to wait. I promise to be a pure function of integers: no overflow, no
//! panic, no float, the same answer on every member. I never hold a clock, memory, a thread or a
//! counter; `table` keeps the words and asks me what they mean.
//!
//! The clauses cited as `spec: adm-N` are in `docs/spec/admission.md`, those cited as
//! `spec: pace-N` in `docs/spec/pacing.md`.

#![forbid(unsafe_code)]

mod divide;
mod gcra;
pub mod headers;
pub mod limits;
mod pacing;
mod plan;
#[cfg(test)]
mod tests;
mod verdict;
mod window;

pub use gcra::{GcraPlan, Refusal};
pub use pacing::{Crowd, Pacing};
pub use plan::Plan;
pub use verdict::{retry_after_seconds, Outcome, Reading, Verdict};
pub use window::WindowPlan;
