//! The `gabion-k8s-tests` binary; `k8s-tests/api/run` builds what it needs and starts it in
//! namespaces of its own.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use gabion_k8s_tests::cluster::World;
use gabion_k8s_tests::kubelet::Kubelets;
use gabion_k8s_tests::plane::Plane;
use gabion_k8s_tests::scenarios::{self, Scenario, ALL};
use gabion_k8s_tests::{dry_run, report, SuiteError};
use gabion_netlab::checks::Checks;
use gabion_netlab::command::{cannot_run, run, Common, Outcomes};

/// Runs real members as pods of a real Kubernetes API, in network namespaces.
#[derive(Parser)]
#[command(name = "gabion-k8s-tests", version)]
struct Arguments {
    #[command(flatten)]
    common: Common,
    /// Only let the API server judge manifests: files, or folders of them.
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with = "scenarios")]
    dry_run: Vec<PathBuf>,
    /// Where etcd, kube-apiserver, kube-controller-manager and kubectl are.
    #[arg(long, value_name = "DIR", default_value = ".cache/k8s")]
    control_plane: PathBuf,
    /// Kinds of other projects that manifests may use.
    #[arg(long, value_name = "DIR", default_value = "k8s-tests/crds")]
    kinds: PathBuf,
    /// The gabiond of the release before; without it, scenarios that need it say so.
    #[arg(long, value_name = "FILE")]
    previous: Option<PathBuf>,
}

async fn start_world(arguments: &Arguments) -> Result<World, SuiteError> {
    let start = Instant::now();
    let plane = Plane::start(&std::path::absolute(&arguments.control_plane)?).await?;
    println!(
        "the control plane serves after {:.1} s",
        start.elapsed().as_secs_f64()
    );
    let previous = arguments.previous.as_ref().map(std::path::absolute);
    Ok(World {
        kubelets: Kubelets::start(&plane.api),
        plane,
        programs: arguments.common.programs()?,
        previous: previous.transpose()?,
    })
}

/// Runs the scenarios one after the other; gives how many failed.
async fn run_all(arguments: &Arguments, scenarios: &[&Scenario]) -> Result<usize, SuiteError> {
    println!("seed {}", arguments.common.seed);
    let mut world = start_world(arguments).await?;
    if !arguments.dry_run.is_empty() {
        let judged = dry_run::run(&world.plane, &arguments.kinds, &arguments.dry_run).await;
        return match judged {
            Err(SuiteError::Refused { refused, .. }) => Ok(refused),
            judged => judged.map(|()| 0),
        };
    }
    let (mut outcomes, mut rows) = (Outcomes::default(), Vec::new());
    for scenario in scenarios {
        println!("{}: {}", scenario.name, scenario.what);
        let mut checks = Checks::default();
        let outcome = scenarios::run(scenario, &mut world, &mut checks).await;
        let why = outcome.err().map(|error| error.to_string());
        let end = outcomes.add(scenario.name, &checks, why.as_deref());
        rows.push((scenario.name, checks, end));
    }
    println!("{}", report::table(&rows));
    Ok(outcomes.end(&arguments.common)?)
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let scenarios = match arguments.common.chosen(ALL, |scenario| scenario.name) {
        Ok(scenarios) => scenarios,
        Err(why) => return cannot_run(&why),
    };
    if arguments.common.list {
        for scenario in ALL {
            println!("{:<16} {}", scenario.name, scenario.what);
        }
        return ExitCode::SUCCESS;
    }
    run(run_all(&arguments, &scenarios))
}
