//! `gabion-sim`: runs worlds by seed, and replays the one that failed.
#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

use clap::Parser;
use gabion_sim::config::Plant;
use gabion_sim::swarm;
use gabion_sim::{Report, Violation};

/// Prints a line; a reader that went away (`| head`) is no reason to panic.
macro_rules! say {
    ($($part:tt)*) => {{
        use std::io::Write;
        let _ = writeln!(std::io::stdout(), $($part)*);
    }};
}

/// Simulates clusters by seed; a failing seed is printed with the command that replays it.
#[derive(Parser)]
struct Args {
    /// How many seeds to run.
    #[arg(long, default_value_t = 300)]
    seeds: u64,
    /// First seed.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Run this one seed, twice, and say all about it.
    #[arg(long)]
    replay: Option<u64>,
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
}

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
    match args.replay {
        Some(seed) => replay(seed, plant, args.watch.as_deref()),
        None => sweep(&args, plant),
    }
}

fn replay(seed: u64, plant: Plant, watch: Option<&str>) -> ExitCode {
    let config = swarm::world(seed, plant);
    say!("{config:#?}");
    let watch = watch.and_then(|text| {
        let (rule, key) = text.split_once(',')?;
        Some((rule.trim().parse().ok()?, key.trim().parse().ok()?))
    });
    let first = swarm::run_watched(config.clone(), watch);
    let again = swarm::run(config);
    match (&first, first == again) {
        (Ok(report), true) => {
            say!("seed {seed}: holds, twice alike\n{report:#?}");
            ExitCode::SUCCESS
        }
        (Err(violation), true) => {
            say!("seed {seed}: {violation}");
            ExitCode::FAILURE
        }
        _ => {
            say!("seed {seed}: two runs differ:\n{first:?}\n{again:?}");
            ExitCode::FAILURE
        }
    }
}

fn sweep(args: &Args, plant: Plant) -> ExitCode {
    let next = AtomicU64::new(args.from);
    let end = args.from.saturating_add(args.seeds);
    let (sender, results) = mpsc::channel::<(u64, Result<Report, Violation>)>();
    let mut failures = 0u64;
    let mut sum = Report::default();
    std::thread::scope(|scope| {
        for _ in 0..args.jobs.max(1) {
            let (sender, next) = (sender.clone(), &next);
            scope.spawn(move || loop {
                // Relaxed: the counter hands out numbers; results travel through the channel.
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= end || sender.send((seed, swarm::run_seed(seed, plant))).is_err() {
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
                }
            }
        }
    });
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
         checks, {} views compared, {} news followed",
        args.from,
        sum.longest_bytes,
        sum.views_compared,
        sum.news_followed
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
}
