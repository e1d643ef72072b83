//! What is measured on a running nginx: the module beside core `limit_req` and beside nothing.
//!
//! I own the servers and end them. Rates are requests per CPU second of nginx's workers, so that a
//! busy machine, which takes time from both sides, does not decide; locations take turns in one
//! nginx, and what is compared is a turn with the same turn.

mod exact;
mod instructions;
mod rates;
mod server;

use std::path::PathBuf;

use crate::report::Report;

/// What the measurements need.
#[derive(Clone, Debug)]
pub struct NginxOptions {
    /// nginx's binary.
    pub nginx: PathBuf,
    /// The module, built with `--release` for it.
    pub module: PathBuf,
    /// Only measurements whose group contains this.
    pub only: Option<String>,
    /// Turns of each location.
    pub turns: usize,
}

/// Measures; every figure goes into the report.
pub async fn run(options: &NginxOptions, report: &mut Report) {
    let only = options.only.as_deref();
    let wanted = |group: &str| only.is_none_or(|only| group.contains(only));
    if wanted("instructions") {
        report.take("instructions", instructions::measure(options).await);
    }
    if wanted("rates") {
        report.take("rates", rates::measure(options).await);
    }
    if wanted("hot") {
        report.take("hot", rates::measure_hot(options).await);
    }
    if wanted("exact") {
        report.take("exact", exact::measure(options).await);
    }
}
