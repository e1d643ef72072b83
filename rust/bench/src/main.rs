//! The `gabion-bench` binary; `tools/bench` builds what it needs and runs it.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use gabion_bench::core::{self, keys, CoreOptions};
use gabion_bench::gossip;
use gabion_bench::nginx::{self, NginxOptions};
use gabion_bench::report::Report;
use gabion_bench::served::{self, echo, versus, ServedOptions};
use gabion_bench::{limits, BenchError};

/// Measures Gabion against its bars.
#[derive(Parser)]
#[command(name = "gabion-bench", version)]
struct Arguments {
    #[command(subcommand)]
    suite: Suite,
}

#[derive(Subcommand)]
enum Suite {
    /// Frames, decisions, ten million keys, a mesh of ten members.
    Core {
        /// Also write the figures to this file, as JSON.
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
        /// Only groups with this in their name: frames, garbage, decision, hash, rejection, keys,
        /// mesh.
        #[arg(long, value_name = "GROUP")]
        only: Option<String>,
        /// Keys of the large table.
        #[arg(long, default_value_t = limits::MANY_KEYS)]
        keys: u64,
        /// The table's example `callgrind_decide`.
        #[arg(long, default_value = "target/release/examples/callgrind_decide")]
        decide_example: PathBuf,
    },
    /// Running `gabiond` processes: exactness, cost against an echo server, a cluster.
    Gabiond {
        /// Also write the figures to this file, as JSON.
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
        /// Only groups with this in their name: exact, ratio, matched, rules, cluster.
        #[arg(long, value_name = "GROUP")]
        only: Option<String>,
        /// The program under test.
        #[arg(long, default_value = "target/release/gabiond")]
        gabiond: PathBuf,
    },
    /// gabiond against Envoy's reference rate-limit service with Redis, same client, same run.
    Versus {
        /// Also write the figures to this file, as JSON.
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
        /// The program under test.
        #[arg(long, default_value = "target/release/gabiond")]
        gabiond: PathBuf,
        /// The reference service, built from its Go module.
        #[arg(long, value_name = "PROGRAM")]
        reference: PathBuf,
        /// The Redis server.
        #[arg(long, value_name = "PROGRAM", default_value = "redis-server")]
        redis: PathBuf,
    },
    /// The nginx module: its cost beside core `limit_req` and no limiter, exactness.
    Nginx(NginxArguments),
    /// Replication: bursts, lag, loss, many keys, healing; scenarios as JSON.
    Gossip(GossipArguments),
    /// The part of a measurement that runs in a process of its own.
    #[command(hide = true)]
    WorkEcho {
        /// Where to write the address.
        file: PathBuf,
        /// Answer with headers.
        #[arg(long)]
        headers: bool,
    },
    #[command(hide = true)]
    WorkKeys {
        /// How many keys.
        keys: u64,
    },
    #[command(hide = true)]
    WorkLoop {
        /// How many times.
        n: u64,
    },
    #[command(hide = true)]
    WorkHash {
        /// How many hashes.
        n: u64,
    },
    #[command(hide = true)]
    WorkGarbage {
        /// Of what kind.
        kind: String,
        /// How many datagrams.
        n: u64,
    },
}

#[derive(Args)]
struct NginxArguments {
    /// Also write the figures to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Only groups with this in their name: instructions, rates, hot, exact.
    #[arg(long, value_name = "GROUP")]
    only: Option<String>,
    /// nginx's binary.
    #[arg(long, default_value = "/usr/sbin/nginx")]
    nginx: PathBuf,
    /// The module, built for it.
    #[arg(long, default_value = "target/nginx/ngx_http_gabion_module.so")]
    module: PathBuf,
    /// Turns of each location, one second each.
    #[arg(long, default_value_t = limits::NGINX_TURNS)]
    turns: usize,
}

#[derive(Args)]
struct GossipArguments {
    /// A file of scenarios, as JSON; without it, those of the bars.
    #[arg(long, value_name = "FILE")]
    scenarios: Option<PathBuf>,
    /// Also write scenarios and figures to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Only scenarios with this in their kind: burst, hot_row, loss, new_keys, heal, mesh, cluster.
    #[arg(long, value_name = "KIND")]
    only: Option<String>,
    /// The program under test.
    #[arg(long, default_value = "target/release/gabiond")]
    gabiond: PathBuf,
}

fn on_gossip(arguments: GossipArguments, report: &mut Report) -> Result<(), BenchError> {
    let scenarios = gossip::scenarios(arguments.scenarios.as_deref())?;
    let (only, json) = (arguments.only.as_deref(), arguments.json.as_deref());
    let work = gossip::run(scenarios, only, arguments.gabiond, json, report);
    tokio::runtime::Runtime::new()?.block_on(work)
}

fn main() -> ExitCode {
    match run(Arguments::parse().suite) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

/// The parts that run in a process of their own.
fn work(suite: Suite) -> Result<ExitCode, BenchError> {
    match suite {
        Suite::WorkEcho { file, headers } => {
            tokio::runtime::Runtime::new()?.block_on(echo::serve(&file, headers))?;
        }
        Suite::WorkKeys { keys } => {
            let said = serde_json::to_string(&keys::work(keys)?);
            println!("{}", said.map_err(std::io::Error::other)?);
        }
        Suite::WorkLoop { n } => println!("{}", core::decision::loop_work(n)),
        Suite::WorkHash { n } => println!("{}", core::decision::hash_work(n)),
        Suite::WorkGarbage { kind, n } => println!("{}", core::garbage::work(&kind, n)?),
        Suite::Core { .. } | Suite::Gabiond { .. } | Suite::Versus { .. } => {}
        Suite::Nginx(_) | Suite::Gossip(_) => {}
    }
    Ok(ExitCode::SUCCESS)
}

fn on_nginx(arguments: NginxArguments, report: &mut Report) -> Result<Option<PathBuf>, BenchError> {
    let options = NginxOptions {
        nginx: arguments.nginx,
        // nginx looks for relative paths in its own folder.
        module: std::path::absolute(arguments.module)?,
        only: arguments.only,
        turns: arguments.turns,
    };
    tokio::runtime::Runtime::new()?.block_on(nginx::run(&options, report));
    Ok(arguments.json)
}

fn run(suite: Suite) -> Result<ExitCode, BenchError> {
    let mut report = Report::default();
    let json = match suite {
        Suite::Core {
            json,
            only,
            keys,
            decide_example,
        } => {
            core::run(
                &CoreOptions {
                    decide_example,
                    many_keys: keys,
                    only,
                },
                &mut report,
            );
            json
        }
        Suite::Gabiond {
            json,
            only,
            gabiond,
        } => {
            let runtime = tokio::runtime::Runtime::new()?;
            runtime.block_on(served::run(&ServedOptions { gabiond, only }, &mut report));
            json
        }
        Suite::Nginx(arguments) => on_nginx(arguments, &mut report)?,
        Suite::Gossip(arguments) => {
            on_gossip(arguments, &mut report)?;
            None // it writes a form of its own
        }
        Suite::Versus {
            json,
            gabiond,
            reference,
            redis,
        } => {
            let options = ServedOptions {
                gabiond,
                only: None,
            };
            let programs = versus::Programs { reference, redis };
            let runtime = tokio::runtime::Runtime::new()?;
            report.take(
                "versus",
                runtime.block_on(versus::measure(&options, &programs)),
            );
            json
        }
        Suite::WorkEcho { .. }
        | Suite::WorkKeys { .. }
        | Suite::WorkLoop { .. }
        | Suite::WorkHash { .. }
        | Suite::WorkGarbage { .. } => return work(suite),
    };
    if let Some(path) = json {
        report.write_json(&path)?;
    }
    match report.failures() {
        0 => Ok(ExitCode::SUCCESS),
        n => {
            println!("{n} bars do not hold");
            Ok(ExitCode::FAILURE)
        }
    }
}
