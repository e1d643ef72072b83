//! `ngx_http_gabion_module`: the limit decided inside the nginx worker.
//!
//! I own the words of nginx's configuration, the zone that workers share, the answer to a request
//! and the lease by which one worker gossips. I promise that no panic crosses the border to nginx,
//! that every failure but a measured overflow admits, and that a configuration is taken whole or
//! not at all. I never decide by anything but the zone's rows; `unsafe` is in [`ffi`] alone.
//!
//! Without the feature `ngx-module` only the pure parts are built, and no nginx is needed.
#![deny(unsafe_code)]

pub mod answer;
pub mod board;
pub mod catalog;
pub mod error;
#[cfg(feature = "ngx-module")]
#[allow(unsafe_code)] // the border to nginx
pub mod ffi;
mod files;
pub mod flavour;
pub mod gossip;
pub mod lease;
pub mod level;
pub mod limits;
pub mod lines;
pub mod orders;
pub mod prometheus;
pub mod report;
pub mod settings;
pub mod truth;
pub mod words;
pub mod zone;
