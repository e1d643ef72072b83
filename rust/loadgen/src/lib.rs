//! Open-loop load for gRPC and HTTP, with reports.
//!
//! Owns: the load generator, and the local cluster (members, Envoy, upstream as child processes)
//! that the demo and the end-to-end tests run it against. Promises: the offered rate never follows
//! the answers; memory is bounded ([`limits`]); no request disappears from the report; no child
//! outlives its owner. Never: shares code with the server that it measures.
#![forbid(unsafe_code)]
// figures for people: nothing is decided on the last bits of a double
#![allow(clippy::cast_precision_loss)]

pub mod cli;
pub mod client;
pub mod limits;
pub mod local;
pub mod mix;
pub mod progress;
pub mod report;
pub mod rls;
pub mod run;
pub mod schedule;
pub mod target;
pub mod template;
