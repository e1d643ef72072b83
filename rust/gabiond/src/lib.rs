//! gabiond: an `envoy.service.ratelimit.v3` server that decides locally against the cluster-wide
//! count.
//!
//! I own the configuration file, the gRPC service, the admin HTTP server and the life of the
//! process. I promise that a request is answered OVER_LIMIT only on a measured overflow (or when it
//! is larger than `max_descriptor_bytes`); everything else is answered OK and counted by cause. I
//! never take a lock, and never call the system, between a request and its verdict.
#![forbid(unsafe_code)]

pub mod protocol;
