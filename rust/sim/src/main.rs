//! `gabion-sim`: runs worlds by seed, and replays the one that failed.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

use clap::Parser;
use gabion_sim::config::{Plant, WorldConfig};
use gabion_sim::run::{run_caught, run_seed, run_watched};
use gabion_sim::shrink::{shrink, TRIES};
use gabion_sim::{scenario, swarm, Report, Violation};

/// Prints a line; a reader that went away (`| head`) is no reason to panic.
macro_rules! say {
    ($($part:tt)*) => {{
        use std::io::Write;
        let _ = writeln!(std::io::stdout(), $($part)*);
    }};
}

/// Simulates clusters by seed; a failing seed is printed with the command that replays it, made
/// smaller, and written as a scenario.
#[derive(Parser)]
struct Args {
    /// How many seeds to run.
    #[arg(long, default_value_t = 300)]
    seeds: u64,
    /// First seed.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Run this one seed, or the scenario in a JSON file, twice, and say all about it.
    #[arg(long, value_name = "SEED|FILE")]
    replay: Option<String>,
    /// Write the scenario of a seed into a JSON file, and run nothing.
    #[arg(long, num_args = 2, value_names = ["SEED", "FILE"])]
    export: Option<Vec<String>>,
    /// With --replay: follow the counter RULE,KEY (KEY = `a` of the key a violation names).
    #[arg(long)]
    watch: Option<String>,
    /// Plant a fault in the code under test (`list` names them).
    #[arg(long)]
    plant: Option<String>,
    /// Threads.
    #[arg(long, default_value_t = 2)]
    jobs: u64,
    /// Go on after a violation.
    #[arg(long)]
    keep_going: bool,
    /// Where small scenarios of failing seeds are written.
    #[arg(long, value_name = "DIR", default_value = ".")]
    shrunk: PathBuf,
    /// Do not look for a smaller scenario that fails alike.
    #[arg(long)]
    no_shrink: bool,
}

/// Failing seeds of one sweep that are made smaller; each takes some hundred runs.
const SHRINK_MOST: usize = 3;

fn plant_named(name: Option<&str>) -> Result<Plant, String> {
    let Some(name) = name else {
        return Ok(Plant::None);
    };
    let found = Plant::ALL.iter().find(|(_, named, _)| *named == name);
    let names: Vec<&str> = Plant::ALL.iter().map(|(_, named, _)| *named).collect();
    found
        .map(|(plant, _, _)| *plant)
        .ok_or_else(|| format!("--plant: one of {}", names.join(", ")))
}

fn main() -> ExitCode {
    let args = Args::parse();
    let plant = match plant_named(args.plant.as_deref()) {
        Ok(plant) => plant,
        Err(message) => {
            eprintln!("{message}");
            return ExitCode::from(2);
        }
    };
    let done = match (&args.export, &args.replay) {
        (Some(words), _) => export(words, plant),
        (None, Some(what)) => replay(what, plant, &args),
        (None, None) => Ok(sweep(&args, plant)),
    };
    done.unwrap_or_else(|message| {
        eprintln!("{message}");
        ExitCode::from(2)
    })
}

fn export(words: &[String], plant: Plant) -> Result<ExitCode, String> {
    let [seed, file] = words else {
        return Err("--export: a seed and a file".to_owned());
    };
    let seed = seed
        .parse()
        .map_err(|_| format!("--export: {seed} is no seed"))?;
    let config = swarm::world(seed, plant);
    scenario::write(Path::new(file), &config).map_err(|error| error.to_string())?;
    say!("seed {seed} is in {file}");
    Ok(ExitCode::SUCCESS)
}

fn replay(what: &str, plant: Plant, args: &Args) -> Result<ExitCode, String> {
    let seed = what.parse::<u64>().ok();
    let config = match seed {
        Some(seed) => swarm::world(seed, plant),
        None => scenario::read(Path::new(what)).map_err(|error| error.to_string())?,
    };
    say!("{}", scenario::text(&config).trim_end());
    let watch = args.watch.as_deref().and_then(|text| {
        let (rule, key) = text.split_once(',')?;
        Some((rule.trim().parse().ok()?, key.trim().parse().ok()?))
    });
    let first = match watch {
        Some(watch) => run_watched(config.clone(), Some(watch)),
        None => run_caught(config.clone()),
    };
    let again = run_caught(config.clone());
    Ok(match (first, again) {
        (Ok(report), Ok(again)) if report == again => {
            say!("{what}: holds, twice alike\n{report:#?}");
            ExitCode::SUCCESS
        }
        (Err(violation), Err(again)) if violation == again => {
            say!("{what}: {violation}");
            if let Some(seed) = seed {
                make_smaller(seed, config, violation, args);
            }
            ExitCode::FAILURE
        }
        (first, again) => {
            say!("{what}: two runs differ:\n{first:?}\n{again:?}");
            ExitCode::FAILURE
        }
    })
}

/// Looks for a smaller world that fails alike, and writes it.
fn make_smaller(seed: u64, config: WorldConfig, violation: Violation, args: &Args) {
    if args.no_shrink {
        return;
    }
    let small = shrink(config, violation, TRIES);
    let file = args.shrunk.join(format!("sim-seed-{seed}.json"));
    let made = std::fs::create_dir_all(&args.shrunk);
    if let Err(error) = made {
        say!("  {}: {error}", args.shrunk.display());
        return;
    }
    if let Err(error) = scenario::write(&file, &small.config) {
        say!("  {error}");
        return;
    }
    say!(
        "  smaller, after {} runs: {} members, {} rules, {} streams, {} faults: {}",
        small.tries,
        small.config.members,
        small.config.rules.len(),
        small.config.loads.len(),
        small.config.faults.len(),
        small.violation
    );
    say!("  replay: ./tools/sim --replay {}", file.display());
}

fn sweep(args: &Args, plant: Plant) -> ExitCode {
    let next = AtomicU64::new(args.from);
    let end = args.from.saturating_add(args.seeds);
    let (sender, results) = mpsc::channel::<(u64, Result<Report, Violation>)>();
    let mut failures = 0u64;
    let mut failed = Vec::new();
    let mut sum = Report::default();
    std::thread::scope(|scope| {
        for _ in 0..args.jobs.max(1) {
            let (sender, next) = (sender.clone(), &next);
            scope.spawn(move || loop {
                // Relaxed: the counter hands out numbers; results travel through the channel.
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= end || sender.send((seed, run_seed(seed, plant))).is_err() {
                    return;
                }
            });
        }
        drop(sender);
        for (seed, result) in results {
            match result {
                Ok(report) => add(&mut sum, &report),
                Err(violation) => {
                    failures += 1;
                    let planted = args.plant.as_ref().map(|name| format!(" --plant {name}"));
                    say!("seed {seed} FAILS: {violation}");
                    say!(
                        "  replay: ./tools/sim --replay {seed}{}",
                        planted.unwrap_or_default()
                    );
                    if !args.keep_going {
                        next.store(end, Ordering::Relaxed);
                    }
                    failed.push((seed, violation));
                }
            }
        }
    });
    for (seed, violation) in failed.into_iter().take(SHRINK_MOST) {
        say!("seed {seed} is made smaller ..");
        make_smaller(seed, swarm::world(seed, plant), violation, args);
    }
    let Report {
        requests,
        admitted,
        denied,
        failed_open,
        datagrams,
        checks,
        ..
    } = sum;
    say!(
        "seeds {}..{end}: {failures} failed; {requests} requests ({admitted} admitted, {denied} \
         denied, {failed_open} failed open), {datagrams} datagrams, longest {} bytes, {checks} \
         checks, {} views compared, {} news followed; budgets used at most: frames {} %, bytes \
         {} %, memory {} %",
        args.from,
        sum.longest_bytes,
        sum.views_compared,
        sum.news_followed,
        sum.budget_permille[0] / 10,
        sum.budget_permille[1] / 10,
        sum.budget_permille[2] / 10,
    );
    if failures == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn add(sum: &mut Report, report: &Report) {
    sum.requests += report.requests;
    sum.admitted += report.admitted;
    sum.denied += report.denied;
    sum.failed_open += report.failed_open;
    sum.datagrams += report.datagrams;
    sum.bytes += report.bytes;
    sum.longest_bytes = sum.longest_bytes.max(report.longest_bytes);
    sum.checks += report.checks;
    sum.views_compared += report.views_compared;
    sum.news_followed += report.news_followed;
    for (most, used) in sum.budget_permille.iter_mut().zip(report.budget_permille) {
        *most = (*most).max(used);
    }
}
