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
use gabion_netlab::lab::Programs;
use gabion_netlab::nginx::NginxPrograms;
use serde_json::json;
use tokio::signal::unix::{signal, SignalKind};

/// Runs real members as pods of a real Kubernetes API, in network namespaces.
#[derive(Parser)]
#[command(name = "gabion-k8s-tests", version)]
struct Arguments {
    /// Scenarios to run, by name; none: all.
    scenarios: Vec<String>,
    /// Only names and what happens in each.
    #[arg(long)]
    list: bool,
    /// Also write what was found to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Only let the API server judge manifests: files, or folders of them.
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with = "scenarios")]
    dry_run: Vec<PathBuf>,
    /// Seed of arrivals.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where etcd, kube-apiserver, kube-controller-manager and kubectl are.
    #[arg(long, value_name = "DIR", default_value = ".cache/k8s")]
    control_plane: PathBuf,
    /// Kinds of other projects that manifests may use.
    #[arg(long, value_name = "DIR", default_value = "k8s-tests/crds")]
    kinds: PathBuf,
    /// The program under test.
    #[arg(long, default_value = "target/release/gabiond")]
    gabiond: PathBuf,
    /// That of the release before; without it, scenarios that need it say so.
    #[arg(long, value_name = "FILE")]
    previous: Option<PathBuf>,
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

async fn start_world(arguments: &Arguments) -> Result<World, SuiteError> {
    let start = Instant::now();
    let plane = Plane::start(&std::path::absolute(&arguments.control_plane)?).await?;
    println!(
        "the control plane serves after {:.1} s",
        start.elapsed().as_secs_f64()
    );
    let programs = Programs {
        gabiond: std::path::absolute(&arguments.gabiond)?,
        nginx: NginxPrograms {
            nginx: std::path::absolute(&arguments.nginx)?,
            module: std::path::absolute(&arguments.module)?,
        },
        seed: arguments.seed,
    };
    let previous = arguments.previous.as_ref().map(std::path::absolute);
    Ok(World {
        kubelets: Kubelets::start(&plane.api),
        plane,
        programs,
        previous: previous.transpose()?,
    })
}

/// Runs the scenarios one after the other; gives how many failed.
async fn run_all(arguments: &Arguments, scenarios: &[&Scenario]) -> Result<usize, SuiteError> {
    println!("seed {}", arguments.seed);
    let mut world = start_world(arguments).await?;
    if !arguments.dry_run.is_empty() {
        let judged = dry_run::run(&world.plane, &arguments.kinds, &arguments.dry_run).await;
        return match judged {
            Err(SuiteError::Refused { refused, .. }) => Ok(refused),
            judged => judged.map(|()| 0),
        };
    }
    let (mut failed, mut found, mut rows) = (0, Vec::new(), Vec::new());
    for scenario in scenarios {
        println!("{}: {}", scenario.name, scenario.what);
        let mut checks = Checks::default();
        let outcome = scenarios::run(scenario, &mut world, &mut checks).await;
        print!("{checks}");
        let why = outcome.err().map(|error| error.to_string());
        if let Some(why) = &why {
            println!("  FAILS  it could not be carried out: {why}");
        }
        let holds = why.is_none() && checks.failures() == 0;
        failed += usize::from(!holds);
        let lines = &checks.lines;
        found.push(json!({ "scenario": scenario.name, "lines": lines, "error": why }));
        rows.push((scenario.name, checks, holds));
    }
    println!("{}", report::table(&rows));
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
            }).into()),
        }
    };
    let runtime = tokio::runtime::Runtime::new().map_err(SuiteError::from);
    match runtime.and_then(|runtime| runtime.block_on(work)) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}
