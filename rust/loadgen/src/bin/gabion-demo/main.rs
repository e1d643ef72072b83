//! `gabion-demo`: one limit over nginx, Envoy and gabiond, through three doors, in under a minute.
//!
//! Owns: the whole local cluster while it runs. Promises: exits 0 only when the limit held within
//! the stated bound and nearly all of it was admitted; ends its children whatever happens. Never:
//! needs a port of its own choice, or anything but loopback.
#![forbid(unsafe_code)]
// figures for people: nothing is decided on the last bits of a double
#![allow(clippy::cast_precision_loss)]

mod cluster;
mod measure;
mod outcome;
mod window;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

type AnyError = Box<dyn std::error::Error + Send + Sync>;

/// nginx, two gabiond, Envoy, one limit of 600 per minute, 2,400 requests in 10 seconds.
#[derive(Debug, Parser)]
#[command(name = "gabion-demo", version)]
struct Cli {
    #[command(flatten)]
    programs: Programs,
    /// Write the figures as JSON to this file.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Seed of the moments at which requests are sent.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Leave everything running afterwards, until interrupted.
    #[arg(long)]
    keep: bool,
}

/// What the cluster is made of, besides Envoy.
#[derive(Debug, clap::Args)]
struct Programs {
    /// Path of `gabiond`.
    #[arg(long)]
    gabiond: PathBuf,
    /// Path of `nginx`.
    #[arg(long)]
    nginx: PathBuf,
    /// Path of the module for that nginx.
    #[arg(long)]
    nginx_module: PathBuf,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(e) => return failed(&e),
    };
    match runtime.block_on(show(&cli)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => failed(&*e),
    }
}

/// Returns whether the limit held. An interrupt drops the cluster, and with it every child.
async fn show(cli: &Cli) -> Result<bool, AnyError> {
    let (cluster, held) = tokio::select! {
        ended = demo(cli) => ended?,
        () = interrupt() => return Err("interrupted".into()),
    };
    if cli.keep {
        println!("\n{}", cluster.describe());
        println!("Running until Ctrl-C, or: kill {}", std::process::id());
        interrupt().await;
    }
    Ok(held)
}

fn failed(error: &dyn std::error::Error) -> ExitCode {
    eprintln!("demo: {error}");
    ExitCode::FAILURE
}

async fn demo(cli: &Cli) -> Result<(cluster::Cluster, bool), AnyError> {
    let mut cluster = cluster::Cluster::start(&cli.programs).await?;
    let news = measure::convergence(&cluster).await?;
    window::wait_for_room().await;
    let load = measure::load(&cluster, cli.seed).await?;
    let outcome = outcome::Outcome::new(&load, &news);
    print!("\n{}", outcome.table());
    if let Some(path) = &cli.json {
        std::fs::write(path, outcome.json()).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    let wrong = outcome.wrong();
    for reason in &wrong {
        eprintln!("demo: {reason}");
    }
    if !wrong.is_empty() {
        let files = cluster.keep_files();
        eprintln!(
            "demo: logs and configuration are left in {}",
            files.display()
        );
    }
    Ok((cluster, wrong.is_empty()))
}

/// Waits for SIGINT or SIGTERM.
async fn interrupt() {
    use tokio::signal::unix::{signal, SignalKind};
    match signal(SignalKind::terminate()) {
        Ok(mut terminate) => {
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                _ = terminate.recv() => {}
            }
        }
        // no handler to be had: the default action ends the process, and only waiting is left
        Err(_) => std::future::pending().await,
    }
}
