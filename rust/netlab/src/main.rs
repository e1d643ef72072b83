//! The `gabion-netlab` binary; `tools/netlab` builds what it needs and starts it in namespaces of
//! its own.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use gabion_netlab::checks::Checks;
use gabion_netlab::lab::Programs;
use gabion_netlab::nginx::NginxPrograms;
use gabion_netlab::scenarios::{self, Scenario, ALL};
use serde_json::json;
use tokio::signal::unix::{signal, SignalKind};

/// Runs real members in network namespaces, with real faults between them.
#[derive(Parser)]
#[command(name = "gabion-netlab", version)]
struct Arguments {
    /// Scenarios to run, by name; none: all.
    scenarios: Vec<String>,
    /// Only names and what happens in each.
    #[arg(long)]
    list: bool,
    /// Also write what was found to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Seed of arrivals, keys and faults of links.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The program under test.
    #[arg(long, default_value = "target/release/gabiond")]
    gabiond: PathBuf,
    /// The nginx of members that are nginx.
    #[arg(long, default_value = "/usr/sbin/nginx")]
    nginx: PathBuf,
    /// Its module, under test too.
    #[arg(long, default_value = "target/nginx/ngx_http_gabion_module.so")]
    module: PathBuf,
}

fn chosen(names: &[String]) -> Result<Vec<&'static Scenario>, String> {
    if names.is_empty() {
        return Ok(ALL.iter().collect());
    }
    let find = |name: &String| {
        let found = ALL.iter().find(|scenario| scenario.name == name);
        found.ok_or_else(|| format!("no scenario is called `{name}`; --list names them"))
    };
    names.iter().map(find).collect()
}

/// Runs the scenarios one after the other; gives how many failed.
async fn run_all(arguments: &Arguments, scenarios: &[&Scenario]) -> std::io::Result<usize> {
    let programs = Programs {
        gabiond: std::path::absolute(&arguments.gabiond)?,
        nginx: NginxPrograms {
            nginx: std::path::absolute(&arguments.nginx)?,
            module: std::path::absolute(&arguments.module)?,
        },
        seed: arguments.seed,
    };
    println!("seed {}", arguments.seed);
    let (mut failed, mut found) = (0, Vec::new());
    for scenario in scenarios {
        println!("{}: {}", scenario.name, scenario.what);
        let mut checks = Checks::default();
        let outcome = scenarios::run(scenario, &programs, &mut checks).await;
        print!("{checks}");
        let why = outcome.err().map(|error| error.to_string());
        if let Some(why) = &why {
            println!("  FAILS  it could not be carried out: {why}");
        }
        failed += usize::from(why.is_some() || checks.failures() > 0);
        let lines = &checks.lines;
        found.push(json!({ "scenario": scenario.name, "lines": lines, "error": why }));
    }
    if let Some(path) = &arguments.json {
        let text = json!({ "seed": arguments.seed, "scenarios": found }).to_string();
        std::fs::write(path, text)?;
    }
    let passed = scenarios.len() - failed;
    println!("{passed} passed, {failed} failed");
    Ok(failed)
}

/// The first process of its namespace is not ended by signals unless it asks for them.
async fn ended_by_a_signal() -> std::io::Result<()> {
    let mut term = signal(SignalKind::terminate())?;
    tokio::select! {
        _ = term.recv() => Ok(()),
        ended = tokio::signal::ctrl_c() => ended,
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let scenarios = match chosen(&arguments.scenarios) {
        Ok(scenarios) => scenarios,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::from(2);
        }
    };
    if arguments.list {
        for scenario in ALL {
            println!("{:<16} {}", scenario.name, scenario.what);
        }
        return ExitCode::SUCCESS;
    }
    let work = async {
        tokio::select! {
            failed = run_all(&arguments, &scenarios) => failed,
            ended = ended_by_a_signal() => Err(ended.err().unwrap_or_else(|| {
                std::io::Error::other("ended by a signal; everything is taken down")
            })),
        }
    };
    let outcome = tokio::runtime::Runtime::new().and_then(|runtime| runtime.block_on(work));
    match outcome {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}
