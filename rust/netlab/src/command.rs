//! What the programs that run scenarios share: arguments, the choice, what was found, the end.
//!
//! Owns: the command line and the exit code. Promises: 0 when all held, 1 when a scenario failed, 2
//! when it could not be run; a signal ends the work, and takes everything down. Never: knows what a
//! scenario does.

use std::fmt::Display;
use std::future::Future;
use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::{json, Value};
use tokio::signal::unix::{signal, SignalKind};

use crate::checks::{Checks, End};
use crate::lab::Programs;
use crate::nginx::NginxPrograms;

/// Arguments of every such program.
#[derive(clap::Args)]
pub struct Common {
    /// Scenarios to run, by name; none: all.
    pub scenarios: Vec<String>,
    /// Only names and what happens in each.
    #[arg(long)]
    pub list: bool,
    /// Also write what was found to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Seed of arrivals, keys and faults of links.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// The program under test.
    #[arg(long, default_value = "target/release/gabiond")]
    pub gabiond: PathBuf,
    /// The nginx of members that are nginx.
    #[arg(long, default_value = "/usr/sbin/nginx")]
    pub nginx: PathBuf,
    /// Its module, under test too.
    #[arg(long, default_value = "target/nginx/ngx_http_gabion_module.so")]
    pub module: PathBuf,
}

impl Common {
    /// The programs under test.
    ///
    /// # Errors
    ///
    /// The current directory is gone.
    pub fn programs(&self) -> std::io::Result<Programs> {
        Ok(Programs {
            gabiond: std::path::absolute(&self.gabiond)?,
            nginx: NginxPrograms {
                nginx: std::path::absolute(&self.nginx)?,
                module: std::path::absolute(&self.module)?,
            },
            seed: self.seed,
        })
    }

    /// The scenarios that were asked for, of `all`.
    ///
    /// # Errors
    ///
    /// Words about a name that none has.
    pub fn chosen<'a, S>(&self, all: &'a [S], name: fn(&S) -> &str) -> Result<Vec<&'a S>, String> {
        if self.scenarios.is_empty() {
            return Ok(all.iter().collect());
        }
        let find = |asked: &String| {
            let found = all.iter().find(|scenario| name(scenario) == asked);
            found.ok_or_else(|| format!("no scenario is called `{asked}`; --list names them"))
        };
        self.scenarios.iter().map(find).collect()
    }
}

/// What was found so far.
#[derive(Default)]
pub struct Outcomes {
    found: Vec<Value>,
    ends: Vec<End>,
}

impl Outcomes {
    /// Shows what a scenario found; `why` it could not be carried out. Gives how it ended.
    pub fn add(&mut self, scenario: &str, checks: &Checks, why: Option<&str>) -> End {
        print!("{checks}");
        if let Some(why) = why {
            println!("  FAILS  it could not be carried out: {why}");
        }
        let end = why.map_or_else(|| checks.end(), |_| End::Fails);
        self.ends.push(end);
        let (lines, not_run) = (&checks.lines, &checks.not_run);
        let found =
            json!({ "scenario": scenario, "lines": lines, "error": why, "not_run": not_run });
        self.found.push(found);
        end
    }

    /// Writes the file that was asked for, and says how many passed. Gives how many failed.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn end(self, common: &Common) -> std::io::Result<usize> {
        let count = |of| self.ends.iter().filter(|end| **end == of).count();
        let (passed, failed, not_run) = (count(End::Holds), count(End::Fails), count(End::NotRun));
        if let Some(path) = &common.json {
            let text = json!({ "seed": common.seed, "scenarios": self.found }).to_string();
            std::fs::write(path, text)?;
        }
        let not_run = match not_run {
            0 => String::new(),
            some => format!(", {some} not run"),
        };
        println!("{passed} passed, {failed} failed{not_run}");
        Ok(failed)
    }
}

/// The first process of its namespace is not ended by signals unless it asks for them.
async fn ended_by_a_signal() -> std::io::Result<()> {
    let mut term = signal(SignalKind::terminate())?;
    tokio::select! {
        _ = term.recv() => Ok(()),
        ended = tokio::signal::ctrl_c() => ended,
    }
}

/// Does the work, which gives how many scenarios failed, unless a signal ends it.
pub fn run<E>(work: impl Future<Output = Result<usize, E>>) -> ExitCode
where
    E: Display + From<std::io::Error>,
{
    let work = async {
        tokio::select! {
            failed = work => failed,
            ended = ended_by_a_signal() => Err(ended.err().unwrap_or_else(|| {
                std::io::Error::other("ended by a signal; everything is taken down")
            }).into()),
        }
    };
    let runtime = tokio::runtime::Runtime::new().map_err(E::from);
    match runtime.and_then(|runtime| runtime.block_on(work)) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => cannot_run(&error),
    }
}

/// Says why nothing was run.
pub fn cannot_run(why: &impl Display) -> ExitCode {
    eprintln!("{why}");
    ExitCode::from(2)
}
