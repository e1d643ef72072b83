//! The command line of `gabion-loader`.
//!
//! Owns: arguments and their defaults. Promises: everything is checked before anything is sent.
//! Never: sends.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::limits::{DEFAULT_CONCURRENCY, DEFAULT_TIMEOUT_MS};
use crate::mix::MixSpec;
use crate::run::Plan;
use crate::schedule::{Arrivals, Schedule, ScheduleError};
use crate::target::Target;
use crate::template::{HitsField, Shape, TemplateError};

/// Open-loop load: requests are sent on schedule whatever the answers, and latency counts from the
/// scheduled time.
#[derive(Debug, Parser)]
#[command(name = "gabion-loader", version)]
pub struct Cli {
    /// What to load.
    #[command(subcommand)]
    pub command: Command,
}

/// The protocol.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Rate-limit calls over gRPC (envoy.service.ratelimit.v3), as Envoy sends them.
    Grpc {
        /// What both protocols share.
        #[command(flatten)]
        common: Common,
        /// Domain of the rules.
        #[arg(long, default_value = "demo")]
        domain: String,
        /// A descriptor, such as `tenant={key},path=/`; repeat for more than one.
        #[arg(long = "descriptor", default_value = "key={key}")]
        descriptors: Vec<String>,
        /// Where the hits of a tenant go.
        #[arg(long, value_enum, default_value = "request")]
        hits_on: HitsOn,
        /// HTTP/2 connections for each target.
        #[arg(long, default_value_t = 1)]
        connections: usize,
    },
    /// GET requests over HTTP/1.1; 429 counts as denied.
    Http {
        /// What both protocols share.
        #[command(flatten)]
        common: Common,
        /// Path and query; `{key}`, `{n}` and `{hits}` are filled in.
        #[arg(long, default_value = "/")]
        path: String,
        /// A header, such as `x-tenant: {key}`; repeat for more than one.
        #[arg(long = "header")]
        headers: Vec<String>,
    },
}

/// Where hits go.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum HitsOn {
    /// On the request.
    Request,
    /// On each descriptor.
    Descriptor,
}

/// How requests are spread.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum ArrivalsWord {
    /// Each at a moment of its own, as those of many clients.
    Independent,
    /// At equal distances.
    Even,
}

/// Arguments of both protocols.
#[derive(Debug, Args)]
pub struct Common {
    /// A target, http://HOST:PORT[@WEIGHT]; repeat for more than one.
    #[arg(long = "target", required = true)]
    pub targets: Vec<Target>,
    /// Offered requests per second.
    #[arg(long, default_value_t = 100.0)]
    pub rate: f64,
    /// Seconds to offer them for.
    #[arg(long, default_value_t = 10.0)]
    pub duration: f64,
    /// How the requests are spread over that time.
    #[arg(long, value_enum, default_value = "independent")]
    pub arrivals: ArrivalsWord,
    /// Most requests in flight; more wait, and their wait is in their latency.
    #[arg(long, default_value_t = DEFAULT_CONCURRENCY)]
    pub concurrency: usize,
    /// single[:KEY], uniform:N, zipf:S:N or tenants:NAME=WEIGHT[xHITS],...
    #[arg(long, default_value = "single")]
    pub mix: MixSpec,
    /// Seed of the key mix and of independent arrivals.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Milliseconds until a request counts as timed out.
    #[arg(long, default_value_t = DEFAULT_TIMEOUT_MS)]
    pub timeout_ms: u64,
    /// Write the report as JSON to this file (`-`: standard output, in place of the text).
    #[arg(long)]
    pub json: Option<PathBuf>,
    /// No progress lines.
    #[arg(long)]
    pub quiet: bool,
}

/// What is wrong with the arguments. Nothing was sent.
#[derive(Debug, thiserror::Error)]
pub enum ArgumentError {
    /// Rate or duration.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// Descriptor, path or header.
    #[error(transparent)]
    Template(#[from] TemplateError),
}

impl Cli {
    /// The plan of these arguments, and the ones that concern the output.
    ///
    /// # Errors
    /// An argument that no run can be made of.
    pub fn into_plan(self) -> Result<(Plan, Common), ArgumentError> {
        let (common, shape, connections) = match self.command {
            Command::Grpc {
                common,
                domain,
                descriptors,
                hits_on,
                connections,
            } => {
                let hits = match hits_on {
                    HitsOn::Request => HitsField::Request,
                    HitsOn::Descriptor => HitsField::Descriptor,
                };
                (
                    common,
                    Shape::grpc(&domain, &descriptors, hits)?,
                    connections,
                )
            }
            Command::Http {
                common,
                path,
                headers,
            } => (common, Shape::http(&path, &headers)?, 1),
        };
        let arrivals = match common.arrivals {
            ArrivalsWord::Independent => Arrivals::Independent,
            ArrivalsWord::Even => Arrivals::Even,
        };
        let plan = Plan {
            schedule: Schedule::constant(common.rate, common.duration)?.spread(arrivals),
            targets: common.targets.clone(),
            mix: common.mix.clone(),
            seed: common.seed,
            shape,
            concurrency: common.concurrency,
            connections,
            timeout: Duration::from_millis(common.timeout_ms.max(1)),
        };
        Ok((plan, common))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_become_a_plan() {
        let cli = Cli::try_parse_from([
            "gabion-loader",
            "grpc",
            "--target=127.0.0.1:1@2",
            "--target=127.0.0.1:2",
            "--rate=0.5",
            "--duration=10",
            "--mix=zipf:1.1:100",
            "--descriptor=a={key}",
        ]);
        let (plan, _) = cli.unwrap().into_plan().unwrap();
        assert_eq!((plan.targets.len(), plan.schedule.count()), (2, 5));
        assert_eq!(plan.mix, MixSpec::Zipf { s: 1.1, n: 100 });
    }

    #[test]
    fn bad_arguments_are_refused() {
        assert!(Cli::try_parse_from(["gabion-loader", "grpc"]).is_err());
        assert!(Cli::try_parse_from(["gabion-loader", "http", "--target=nowhere"]).is_err());
        let cli = Cli::try_parse_from(["gabion-loader", "http", "--target=h:1", "--rate=0"]);
        assert!(cli.unwrap().into_plan().is_err());
    }
}
