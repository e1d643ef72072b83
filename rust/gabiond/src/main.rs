//! The `gabiond` binary: reads its arguments, checks or serves a configuration.
#![forbid(unsafe_code)]

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use gabion_server::config::{Config, LogFormat, Variables};

/// A rate-limit service for Envoy that decides locally against the cluster-wide count.
#[derive(Parser)]
#[command(name = "gabiond", version, args_conflicts_with_subcommands = true)]
#[command(
    after_help = "Settings may also come from the environment: GABION_<SECTION>_<KEY>, such as \
    GABION_ENVOY_BIND or GABION_GOSSIP_BIND; lists are separated by commas.\nSIGTERM drains and \
    ends the process."
)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// The YAML file to serve.
    #[arg(required_unless_present = "config_option")]
    config: Option<PathBuf>,
    /// The same as an option.
    #[arg(long = "config", value_name = "FILE", conflicts_with = "config")]
    config_option: Option<PathBuf>,
    /// Write the bound addresses to this file, as JSON, once all are bound.
    #[arg(long, value_name = "FILE")]
    ports_file: Option<PathBuf>,
    /// What to log: error, warn, info, debug, trace, or a tracing filter.
    #[arg(long, value_name = "LEVEL", env = "GABION_LOG", default_value = "info")]
    log: String,
    /// How log lines look: text, json or logfmt; before the setting log.format.
    #[arg(long, value_name = "FORM", value_parser = LogFormat::WORDS)]
    log_format: Option<String>,
}

#[derive(Subcommand)]
enum Command {
    /// Check a configuration: print its faults with their places, and end with 1 if it has any.
    Check {
        /// The YAML file.
        config: PathBuf,
    },
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(Command::Check { config }) = arguments.command {
        return check(&config);
    }
    let Some(path) = arguments.config.or(arguments.config_option) else {
        return ExitCode::from(2);
    };
    let config = match Config::load(&path, &Variables::of_process()) {
        Ok(config) => config,
        Err(error) => {
            say(&error);
            return ExitCode::FAILURE;
        }
    };
    let form = arguments.log_format.as_deref().and_then(LogFormat::of);
    let form = form.unwrap_or(config.log.format);
    if let Err(error) = gabion_server::logging::start(&arguments.log, form) {
        say(&error);
        return ExitCode::from(2);
    }
    match gabion_server::server::run(config, arguments.ports_file.as_deref()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&error);
            ExitCode::FAILURE
        }
    }
}

fn check(path: &std::path::Path) -> ExitCode {
    match Config::load(path, &Variables::of_process()) {
        Ok(config) => {
            let rules = config.rules.rules();
            let notes = config
                .notices
                .iter()
                .map(|notice| format!("note: {notice}"));
            let rules_said = rules.iter().map(ToString::to_string);
            let last = format!("{}: ok, {} rules", path.display(), rules.len());
            let lines: Vec<String> = notes.chain(rules_said).chain([last]).collect();
            let _ = writeln!(std::io::stdout(), "{}", lines.join("\n"));
            ExitCode::SUCCESS
        }
        Err(error) => {
            say(&error);
            ExitCode::FAILURE
        }
    }
}

/// Prints to standard error; a reader that has gone away is no reason to panic.
fn say(error: &dyn std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "{error}");
}
