//! The deterministic world: clocks, network, faults, checkers.
//!
//! I own: virtual time, a network that misbehaves on purpose, and the truth to compare against. I
//! promise: the same seed gives the same byte trace; members run the very table, pump and node that
//! production runs; each checker is shown to bite by a planted fault. I never: read a real clock,
//! open a socket, or use randomness that is not from the seed.
//!
//! How to run it: `docs/sim.md`.
#![forbid(unsafe_code)]

mod bound;
mod budget;
mod check;
pub mod clock;
pub mod config;
pub mod flock;
mod forms;
mod inflict;
pub mod live;
mod load;
pub mod mem;
pub mod member;
pub mod network;
pub mod orders;
pub mod record;
pub mod rng;
pub mod run;
pub mod scenario;
pub mod shrink;
pub mod swarm;
pub mod trace;
pub mod truth;
mod watch;
mod world;

pub use check::Violation;
pub use world::{ms, Answer, Report, World};
