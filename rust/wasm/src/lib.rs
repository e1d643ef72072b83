//! The browser's face of the simulator.
//!
//! I own what a page may ask of a world: runs as JSON, rules as text, commands, records as flat
//! arrays of numbers. I promise: the same run gives the same numbers here and natively, since all
//! of it is `gabion-sim`'s; bad input is refused with what is wrong and where, and changes nothing.
//! I never: decide anything about counters, read a clock, or draw random numbers.
//!
//! [`session`] and what is beside it are plain Rust, used and tested natively; [`face`] alone knows
//! that there is a browser. `docs/simulator.md` says how it is built; the meaning of each record is
//! in `web/src/bridge.d.ts`.
#![forbid(unsafe_code)]

pub mod error;
pub mod face;
pub mod limits;
pub mod presets;
pub mod rules;
pub mod run;
pub mod session;
pub mod snapshot;
