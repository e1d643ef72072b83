//! The command line: arguments and commands of the `gabiond` binary.
//!
//! I own the words an operator types, and what each command prints. I promise that results go to
//! standard output and faults to standard error, that the exit code says which (0 done, 1 a fault
//! in a file or at a member, 2 a fault in the arguments), and that `--help`, the man page and shell
//! completions come from one description. I never change a configuration.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{CommandFactory as _, Parser, Subcommand};

use crate::config::{Config, LogFormat, Variables};

pub mod check;
pub mod client;
pub mod explain;
mod reference;
pub mod top;

use crate::reload::Origin;
use client::Target;

/// Version, with what it was built from.
pub const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("GABION_BUILD"), ")");

/// A rate-limit service for Envoy that decides locally against the cluster-wide count.
#[derive(Debug, Parser)]
#[command(name = "gabiond", version = VERSION, args_conflicts_with_subcommands = true)]
#[command(
    after_help = "Settings may also come from the environment: GABION_<SECTION>_<KEY>, such as \
    GABION_ENVOY_BIND or GABION_GOSSIP_BIND; lists are separated by commas.\nSIGTERM drains and \
    ends the process."
)]
pub struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: Serve,
}

/// What serving takes.
#[derive(Debug, clap::Args)]
struct Serve {
    /// The YAML file to serve.
    #[arg(required_unless_present_any = ["config_option", "reference", "reference_env"])]
    config: Option<PathBuf>,
    /// The same as an option.
    #[arg(long = "config", value_name = "FILE", conflicts_with = "config")]
    config_option: Option<PathBuf>,
    /// Serve the limits of this directory, whose files are those of Envoy's reference service.
    #[arg(long, value_name = "DIR")]
    reference: Option<PathBuf>,
    /// Serve what the environment of Envoy's reference service says: RUNTIME_ROOT,
    /// RUNTIME_SUBDIRECTORY, GRPC_PORT, PORT and others.
    #[arg(long, conflicts_with = "reference")]
    reference_env: bool,
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

#[derive(Debug, Subcommand)]
enum Command {
    /// Check a configuration: print its faults with their places, and end with 1 if it has any.
    Check(check::Check),
    /// Explain what would happen to a request, rule by rule; nothing is charged.
    Explain(explain::Explain),
    /// Print a directory of Envoy's reference service's files as native YAML.
    Import(reference::Import),
    /// Show a running member live: rules by use, keys, peers.
    Top(top::Top),
    /// Let all counters of a limiter start afresh, on every member of the cluster.
    Reset(Reset),
    /// Print a script that completes gabiond's arguments in a shell.
    Completions {
        /// Which shell.
        shell: clap_complete::Shell,
    },
    /// Print the man page, or write a page for each command into a folder.
    Man {
        /// The folder; it must be there.
        folder: Option<PathBuf>,
    },
}

/// Where the member is that a command asks.
#[derive(Clone, Debug, clap::Args)]
pub struct Member {
    /// Its admin address: HOST:PORT, http://HOST:PORT, or unix:PATH.
    #[arg(
        long = "member",
        value_name = "ADDRESS",
        env = "GABION_MEMBER",
        default_value = "127.0.0.1:9090"
    )]
    target: Target,
    /// File with the token of the admin server; only what changes something needs one.
    #[arg(long, value_name = "FILE", env = "GABION_TOKEN_FILE")]
    token_file: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
struct Reset {
    /// The limiter: a rule's `limiter`, or its name where it has none.
    limiter: String,
    /// Only in this domain, where several domains have a limiter of this name.
    #[arg(long)]
    domain: Option<String>,
    /// Only the counter of one descriptor, and only at the member that is asked; once for each of
    /// its entries.
    #[arg(long = "entry", value_name = "KEY=VALUE")]
    entries: Vec<String>,
    /// With a limiter like override:minute: the limit per unit that requests brought.
    #[arg(long, value_name = "N", requires = "entries", requires = "domain")]
    requests: Option<u32>,
    #[command(flatten)]
    member: Member,
}

/// A directory of Envoy's reference service in place of a file.
#[derive(Clone, Debug, Default, clap::Args)]
struct ReferenceArgs {
    /// Files there may add to a domain that another file began.
    #[arg(long)]
    merge_domains: bool,
    /// Skip files and directories there whose names begin with a point.
    #[arg(long)]
    ignore_dot_files: bool,
}

/// The configuration of a file, of a directory of Envoy's reference service, or of both.
fn load(
    file: Option<&Path>,
    directory: Option<&Path>,
    how: &ReferenceArgs,
) -> Result<Config, String> {
    let mut variables = Variables::of_process();
    if let Some(directory) = directory {
        variables.set("GABION_REFERENCE_DIRECTORY", &directory.to_string_lossy());
        for (name, wanted) in [
            ("GABION_REFERENCE_MERGE_DOMAINS", how.merge_domains),
            ("GABION_REFERENCE_IGNORE_DOT_FILES", how.ignore_dot_files),
        ] {
            if wanted {
                variables.set(name, "true");
            }
        }
    }
    let loaded = match file {
        Some(path) => Config::load(path, &variables),
        None => Config::without_file(&variables),
    };
    loaded.map_err(|error| error.to_string())
}

/// Does what the arguments of this process say.
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match arguments.command {
        None => return serve(arguments.serve),
        Some(Command::Check(check)) => check.run(),
        Some(Command::Explain(explain)) => explain.run(),
        Some(Command::Import(import)) => import.run(),
        Some(Command::Top(top)) => top.run(),
        Some(Command::Reset(reset)) => reset.run(),
        Some(Command::Completions { shell }) => {
            let mut script = Vec::new();
            let mut command = Arguments::command();
            clap_complete::generate(shell, &mut command, "gabiond", &mut script);
            Ok(String::from_utf8_lossy(&script).into_owned())
        }
        Some(Command::Man { folder }) => man(folder),
    };
    match done {
        Ok(text) => {
            // A reader that has gone away is no reason to fail.
            let _ = std::io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(text) => {
            say(&text);
            ExitCode::FAILURE
        }
    }
}

impl Serve {
    /// The configuration that the arguments, the file and the environment give.
    fn load(&self) -> Result<Config, String> {
        let mut variables = Variables::of_process();
        let mut notes = Vec::new();
        if let Some(directory) = &self.reference {
            let directory = directory.to_string_lossy();
            variables.set("GABION_REFERENCE_DIRECTORY", &directory);
        }
        if self.reference_env {
            let (settings, said) = reference::settings_of_process()?;
            for (name, value) in settings {
                variables.set_default(&name, &value);
            }
            notes = said;
        }
        let loaded = match self.config.as_ref().or(self.config_option.as_ref()) {
            Some(path) => Config::load(path, &variables),
            None => Config::without_file(&variables),
        };
        let mut config = loaded.map_err(|error| error.to_string())?;
        config.notices.extend(notes);
        Ok(config)
    }
}

fn serve(arguments: Serve) -> ExitCode {
    let arguments = Arc::new(arguments);
    let known = arguments.config.iter().chain(&arguments.config_option);
    let known = known.cloned().collect();
    let load = {
        let arguments = Arc::clone(&arguments);
        move || arguments.load()
    };
    let mut origin = Origin::new(known, Box::new(load));
    let config = match origin.load() {
        Ok(config) => config,
        Err(error) => {
            say(&error);
            return ExitCode::FAILURE;
        }
    };
    let form = arguments.log_format.as_deref().and_then(LogFormat::of);
    let form = form.unwrap_or(config.log.format);
    if let Err(error) = crate::logging::start(&arguments.log, form) {
        say(&error);
        return ExitCode::from(2);
    }
    match crate::server::run(config, origin, arguments.ports_file.as_deref()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&error);
            ExitCode::FAILURE
        }
    }
}

fn man(folder: Option<PathBuf>) -> Result<String, String> {
    if let Some(folder) = folder {
        let written = clap_mangen::generate_to(Arguments::command(), &folder);
        return written
            .map(|()| String::new())
            .map_err(|error| format!("{}: {error}", folder.display()));
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(Arguments::command())
        .render(&mut page)
        .map_err(|error| error.to_string())?;
    Ok(String::from_utf8_lossy(&page).into_owned())
}

impl Reset {
    fn run(self) -> Result<String, String> {
        let mut path = format!("/reset?limiter={}", client::escaped(&self.limiter));
        if let Some(domain) = &self.domain {
            path.push_str(&format!("&domain={}", client::escaped(domain)));
        }
        for entry in &self.entries {
            path.push_str(&format!("&entry={}", client::escaped(entry)));
        }
        if let Some(requests) = self.requests {
            path.push_str(&format!("&requests={requests}"));
        }
        let reply = self.member.post(&path).map_err(|e| e.to_string())?;
        let json: Option<serde_json::Value> = serde_json::from_str(&reply).ok();
        let message = json.as_ref().and_then(|json| json["message"].as_str());
        let mut text = String::new();
        let counters = json.as_ref().and_then(|json| json["counters"].as_array());
        for counter in counters.into_iter().flatten() {
            let word = |name: &str| counter[name].as_str().unwrap_or("?").to_owned();
            let (domain, rule) = (word("domain"), word("rule"));
            let _ = writeln!(text, "{rule} of domain {domain}: {}", word("result"));
        }
        Ok(text + message.unwrap_or(&reply).trim_end() + "\n")
    }
}

/// Prints to standard error; a reader that has gone away is no reason to panic.
fn say(error: &dyn std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "{error}");
}
