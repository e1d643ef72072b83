//! gabiond: an `envoy.service.ratelimit.v3` server that decides locally against the cluster-wide
//! count.
//!
//! I own the configuration file, the gRPC service, the admin HTTP server and the life of the
//! process. I promise that a request is answered OVER_LIMIT only on a measured overflow (or when it
//! is larger than `max_descriptor_bytes`); everything else is answered OK and counted by cause. I
//! never take a lock, and never call the system, between a request and its verdict.
#![forbid(unsafe_code)]

pub mod admin;
mod answer;
mod bound;
pub mod cli;
pub mod codec;
pub mod config;
mod discovery;
pub mod encode;
pub mod engine;
pub mod json;
pub mod limits;
pub mod logging;
pub mod member;
mod metadata;
mod metrics;
pub mod net;
pub mod observe;
pub mod orders;
pub mod overrides;
pub mod policy;
pub mod protocol;
pub mod reload;
pub mod server;
pub mod service;
mod shown;
pub mod snapshot;
mod specs;
pub mod systemd;
pub mod tally;
pub mod tls;

/// The counter table as gabiond uses it: private memory of this process.
pub type Counters = gabion_table::Table<gabion_table::RawMem>;
