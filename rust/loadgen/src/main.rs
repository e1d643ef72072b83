//! `gabion-loader`: open-loop load for gRPC and HTTP, with reports.
#![forbid(unsafe_code)]

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use gabion_loader::cli::Cli;
use gabion_loader::progress;
use gabion_loader::report::Report;
use gabion_loader::run::{run, Live};

#[tokio::main]
async fn main() -> ExitCode {
    match load(Cli::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("gabion-loader: {e}");
            ExitCode::FAILURE
        }
    }
}

async fn load(cli: Cli) -> Result<(), Box<dyn std::error::Error>> {
    let (plan, common) = cli.into_plan()?;
    let live = Arc::new(Live::default());
    let on_signal = Arc::clone(&live);
    tokio::spawn(async move {
        // one interrupt ends the schedule and reports; a second one ends the process
        if tokio::signal::ctrl_c().await.is_ok() {
            on_signal.stop();
            let _ = tokio::signal::ctrl_c().await;
            std::process::exit(130);
        }
    });
    let shown = (!common.quiet).then(|| progress::show(Arc::clone(&live), plan.schedule.count()));
    let report = run(plan, live).await?;
    drop(shown);
    write_report(&report, common.json.as_deref())?;
    Ok(())
}

fn write_report(report: &Report, json: Option<&Path>) -> std::io::Result<()> {
    let text = serde_json::to_string_pretty(report)? + "\n";
    match json {
        Some(path) if path == Path::new("-") => std::io::stdout().write_all(text.as_bytes()),
        Some(path) => {
            std::fs::write(path, text)?;
            std::io::stdout().write_all(report.text().as_bytes())
        }
        None => std::io::stdout().write_all(report.text().as_bytes()),
    }
}
