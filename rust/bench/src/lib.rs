//! Benchmarks against the bars: a table for people, JSON for machines.
//!
//! I own the measurements, the bars they are held against and their report. I promise: every figure
//! is measured in this run, on this machine, and says its unit; what is compared is measured
//! interleaved in one run; a figure that could not be measured is said to be missing, never filled
//! in. I never change what I measure: every subject is the production code with production
//! settings, and a setting that differs is named in the figure.
#![forbid(unsafe_code)]
// Figures for people: nothing is decided on the last bits of a double.
#![allow(clippy::cast_precision_loss)]

pub mod core;
mod error;
pub mod gossip;
pub mod limits;
pub mod nginx;
pub mod report;
mod rig;
pub mod served;
mod system;

pub use error::BenchError;
