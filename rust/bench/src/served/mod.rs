//! What is measured on running `gabiond` processes.
//!
//! I own the children and end them. I never talk to anything but loopback.

pub mod cluster;
pub mod echo;
pub mod exact;
mod load;
pub mod ratio;
pub mod reload;
mod side;
pub mod versus;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use gabion_loader::local::member::{start_cluster, ClusterSpec, Member};
use gabion_loader::local::process::Process;
use gabion_loader::local::RunDir;

use crate::report::Report;
use crate::BenchError;

/// How long a server may take to start.
const START: Duration = Duration::from_secs(20);

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
        report.take("ratio", ratio::one(options).await);
    }
    if wanted("matched") {
        report.take("matched", ratio::matched(options).await);
    }
    if wanted("rules") {
        report.take("rules", ratio::many(options).await);
    }
    if wanted("reload") {
        report.take("reload", reload::measure(options).await);
    }
    if wanted("cluster") {
        report.take("cluster", cluster::measure(options).await);
    }
}

/// One member that gossips with nobody, with `config` as its rules and settings; where it answers.
async fn single(
    options: &ServedOptions,
    dir: &RunDir,
    name: &str,
    config: &str,
) -> Result<(Process, SocketAddr), BenchError> {
    let file = dir.path().join(format!("{name}.yaml"));
    let ports = dir.path().join(format!("{name}.ports.json"));
    let text = format!(
        "envoy_bind: 127.0.0.1:0\nadmin_bind: 127.0.0.1:0\n\
         gossip: {{bind: '127.0.0.1:0', cluster_id: {name}}}\n{config}"
    );
    std::fs::write(&file, text)?;
    let mut command = Command::new(&options.gabiond);
    command.arg(&file).arg("--ports-file").arg(&ports);
    let fix = "build it: cargo build --release -p gabion-server";
    let mut process = Process::start(name, command, dir.path(), fix)?;
    let text = process
        .wait_until(START, || std::fs::read_to_string(&ports).ok())
        .await?;
    let said: serde_json::Value = serde_json::from_str(&text).map_err(std::io::Error::other)?;
    let addr = said["envoy"].as_str().and_then(|text| text.parse().ok());
    let addr = addr.ok_or_else(|| BenchError::Void(format!("no address in {text}")))?;
    Ok((process, addr))
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
