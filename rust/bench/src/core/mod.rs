//! What needs no server: frames, decisions, many keys, a mesh of drivers.
//!
//! I own the order of the measurements. I never run two at once: they would measure each other.

pub mod decision;
pub mod frames;
pub mod garbage;
pub mod keys;
pub mod mesh;
mod peer;

use std::path::PathBuf;

use crate::report::Report;

/// What the core measurements need.
#[derive(Clone, Debug)]
pub struct CoreOptions {
    /// The example `callgrind_decide` of the table, built with `--release`.
    pub decide_example: PathBuf,
    /// Keys of the large table.
    pub many_keys: u64,
    /// Only measurements whose group contains this.
    pub only: Option<String>,
}

/// Measures everything that needs no server.
pub fn run(options: &CoreOptions, report: &mut Report) {
    let wanted = |group: &str| {
        options
            .only
            .as_deref()
            .is_none_or(|only| group.contains(only))
    };
    if wanted("frames") {
        report.take("frames", frames::measure());
        report.take("frames", frames::measure_times());
    }
    if wanted("garbage") {
        report.take("garbage", garbage::measure());
    }
    if wanted("decision") {
        report.take("decision", decision::measure(&options.decide_example));
    }
    if wanted("hash") {
        report.take("hash", decision::measure_hash());
    }
    if wanted("rejection") {
        report.take("rejection", decision::measure_rejection());
    }
    if wanted("keys") {
        report.take("keys", keys::measure(options.many_keys));
    }
    if wanted("mesh") {
        report.take("mesh", mesh::measure());
    }
}
