//! Runs pump and node over a UDP socket: timers, entropy, clock.
//!
//! I own the gossip thread of a member, its socket, the cluster clock and the entropy. I promise
//! that every deadline of the node is served, that neither a socket error nor a panic ends gossip
//! for good, and that deciders never wait for me: they share only the table and one atomic number.
//! I never decide a request and never read the wall clock after start.
#![forbid(unsafe_code)]

mod clock;
mod cluster;
mod driver;
mod entropy;
mod error;
pub mod limits;
mod machine;
mod orders;
mod port;
mod replace;
mod socket;
mod stats;
#[cfg(test)]
mod tests;
mod turn;
mod view;

pub use clock::{monotonic_ns, wall_clock_ns, ClusterClock};
pub use cluster::{node_id_from_seed, ClusterId};
pub use driver::{spawn, spawn_replaceable, DriverConfig, DriverHandle};
pub use entropy::{random_incarnation, random_node_id};
pub use error::{ClusterIdError, DriverError};
pub use orders::{OrderError, Registers, StandingOrders};
pub use replace::{Next, Replacer};
pub use stats::{DriverSnapshot, DriverStats};
pub use view::{bound_json, unpacked, RuleName, RuleNames};
