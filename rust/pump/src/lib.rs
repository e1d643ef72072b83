//! Moves dirty rows, remote totals and evicted counts between table and node.
//!
//! I own: which own counts left the table while they still count (bases), the pace of draining and
//! scrubbing. I promise: a count given to the node never exceeds what this incarnation admitted;
//! what was announced once is never forgotten while its epoch lives, within my bounds; each turn's
//! work is bounded. I never: decide a request, touch a socket, read a clock, or know a peer.
//!
//! Driver, simulator and browser all run this, so what is simulated is what runs.
//! Clauses: `docs/spec/pump.md`.
#![forbid(unsafe_code)]

mod bases;
mod counters;
pub mod limits;
mod pace;
mod pump;
mod shares;

pub use counters::{Counters, Joined};
pub use limits::Tunables;
pub use pump::{Pump, PumpStats, Turn};
