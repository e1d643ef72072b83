//! The `gabion-netlab` binary; `tools/netlab` builds what it needs and starts it in namespaces of
//! its own.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use gabion_netlab::checks::Checks;
use gabion_netlab::command::{cannot_run, run, Common, Outcomes};
use gabion_netlab::scenarios::{self, Scenario, ALL};

/// Runs real members in network namespaces, with real faults between them.
#[derive(Parser)]
#[command(name = "gabion-netlab", version)]
struct Arguments {
    #[command(flatten)]
    common: Common,
}

/// Runs the scenarios one after the other; gives how many failed.
async fn run_all(common: &Common, scenarios: &[&Scenario]) -> std::io::Result<usize> {
    let programs = common.programs()?;
    println!("seed {}", common.seed);
    let mut outcomes = Outcomes::default();
    for scenario in scenarios {
        println!("{}: {}", scenario.name, scenario.what);
        let mut checks = Checks::default();
        let outcome = scenarios::run(scenario, &programs, &mut checks).await;
        let why = outcome.err().map(|error| error.to_string());
        outcomes.add(scenario.name, &checks, why.as_deref());
    }
    outcomes.end(common)
}

fn main() -> ExitCode {
    let common = Arguments::parse().common;
    let scenarios = match common.chosen(ALL, |scenario| scenario.name) {
        Ok(scenarios) => scenarios,
        Err(why) => return cannot_run(&why),
    };
    if common.list {
        for scenario in ALL {
            println!("{:<16} {}", scenario.name, scenario.what);
        }
        return ExitCode::SUCCESS;
    }
    run(run_all(&common, &scenarios))
}
