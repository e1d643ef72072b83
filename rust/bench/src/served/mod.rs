//! What is measured on running `gabiond` processes.
//!
//! I own the children and end them. I never talk to anything but loopback.

pub mod cluster;
pub mod echo;
pub mod exact;
mod load;
pub mod ratio;

use std::path::PathBuf;

use gabion_loader::local::member::{start_cluster, ClusterSpec, Member};
use gabion_loader::local::RunDir;

use crate::report::Report;
use crate::BenchError;

/// What the measurements on processes need.
#[derive(Clone, Debug)]
pub struct ServedOptions {
    /// Path of `gabiond`, built with `--release`.
    pub gabiond: PathBuf,
    /// Only measurements whose group contains this.
    pub only: Option<String>,
}

/// Measures everything that needs `gabiond`.
pub async fn run(options: &ServedOptions, report: &mut Report) {
    let wanted = |group: &str| {
        options
            .only
            .as_deref()
            .is_none_or(|only| group.contains(only))
    };
    if wanted("exact") {
        report.take("exact", exact::measure(options).await);
    }
    if wanted("ratio") {
        report.take("ratio", ratio::measure(options).await);
    }
    if wanted("cluster") {
        report.take("cluster", cluster::measure(options).await);
    }
}

/// A limit of the domain `bench` on the descriptor key `key`.
fn limit(count: u64) -> String {
    format!(
        "limits:\n  - name: bench\n    domain: bench\n    descriptors:\n      - key: key\n    \
         rate: {count}r/m\n    window: 60s\n"
    )
}

/// Members with one limit; the folder holds their files.
async fn members(
    options: &ServedOptions,
    n: usize,
    count: u64,
) -> Result<(RunDir, Vec<Member>), BenchError> {
    let dir = RunDir::new("gabion-bench")?;
    let spec = ClusterSpec {
        program: options.gabiond.clone(),
        limits: limit(count),
        members: n,
    };
    let members = start_cluster(&spec, dir.path()).await?;
    Ok((dir, members))
}
