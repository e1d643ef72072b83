//! The protocol machine: cells, links, emission, repair, cluster clock.
//!
//! I own replication: every count this member knows of itself and of others, what is published
//! when, the eras and flags that operators set, the links to peers and their acks, repair by
//! digests, and the offset of the cluster clock. I am sans-I/O: [`Node::handle`] takes what
//! happened, [`Node::poll_transmit`] gives frames, [`Node::poll_effect`] gives consequences,
//! [`Node::next_deadline`] says when to come back. Specified in `docs/spec/links.md`,
//! `docs/spec/repair.md`, `docs/spec/dissemination.md`, `docs/spec/time.md`,
//! `docs/spec/orders.md`.
//!
//! I promise: a count never exceeds what its origin published; counts converge once links heal;
//! everything is bounded, and what is dropped is counted under a stable name ([`NodeStats`]).
//!
//! I never read a clock, a socket or entropy, never decide a request, never know a table.
#![forbid(unsafe_code)]

mod acks;
mod api;
mod bound;
mod cells;
mod clock;
mod deadline;
mod differences;
mod digest;
mod due;
mod emit;
mod entropy;
mod flood;
mod flows;
mod index;
pub mod limits;
mod link;
mod log;
mod marks;
mod node;
mod notes;
mod orders;
mod origins;
mod packet;
mod passed;
mod peers;
mod pool;
mod recv;
mod registers;
mod relay;
mod repair;
mod send;
mod spread;
mod stalls;
mod standing;
mod stats;

pub use api::{Config, Effect, Input, LimiterSpec, Note, Now, PeerView};
pub use bound::{bound_at_rest_hits, share_hits, Bounds, RuleBound, REST_TURN_NS};
pub use cells::Refused;
pub use differences::Differences;
pub use limits::{Fanout, Tunables};
pub use node::Node;
pub use registers::{OrderError, Reach};
pub use standing::Standing;
pub use stats::NodeStats;
