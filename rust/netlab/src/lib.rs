//! Real members in network namespaces, with real faults between them.
//!
//! Owns: a bridge, one namespace per member, the packet filter on the bridge, the relay, and the
//! members it starts. Promises: nothing of a scenario outlives it; every wait has a deadline; what
//! is sent goes to addresses of namespaces that this program made. Never: runs in the namespaces of
//! the machine ([`net::Net::new`] refuses), installs anything.
#![forbid(unsafe_code)]
// figures for people: nothing is decided on the last bits of a double
#![allow(clippy::cast_precision_loss)]

pub mod checks;
pub mod command;
pub mod error;
pub mod lab;
pub mod limits;
pub mod member;
pub mod net;
pub mod nginx;
pub mod relay;
pub mod scenarios;
pub mod storm;

pub use error::LabError;
