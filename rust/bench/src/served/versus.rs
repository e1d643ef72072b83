//! gabiond against Envoy's reference rate-limit service and its Redis: same client, same rule, same
//! run.
//!
//! The reference service runs twice: as it comes, and with the pipelining that its manual advises
//! under load. The bars hold against both.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use gabion_loader::local::process::Process;
use gabion_loader::local::RunDir;

use super::ratio::one_rule;
use super::side::{in_turns, paced_in_turns, Side};
use super::{load, single, ServedOptions, START};
use crate::limits::{
    PACED_ROUNDS, RATIO_ROUND, REFERENCE_P99_MAX, REFERENCE_RATIO_MIN, REFERENCE_ROUNDS,
    REFERENCE_STARTS,
};
use crate::report::{Bar, Figure};
use crate::BenchError;

/// The rule of [`one_rule`], as the reference service writes it.
const RULES: &str = "domain: bench\ndescriptors:\n  - key: key\n    rate_limit:\n      \
                     unit: minute\n      requests_per_unit: 4000000000\n";

/// The ways in which it runs: a name, and its settings beside those of [`service`].
const WAYS: [(&str, &[(&str, &str)]); 2] = [
    ("as it comes", &[]),
    (
        "pipelined",
        &[
            ("REDIS_PIPELINE_WINDOW", "150us"),
            ("REDIS_PIPELINE_LIMIT", "8"),
        ],
    ),
];

/// What it is made of.
#[derive(Clone, Debug)]
pub struct Programs {
    /// The service.
    pub reference: PathBuf,
    /// Its store.
    pub redis: PathBuf,
}

/// TCP ports that are free on loopback. They are let go of before they are bound again: neither
/// program can be told to take any and to say which.
fn free_ports<const N: usize>() -> Result<[u16; N], BenchError> {
    let mut held = Vec::new();
    let mut ports = [0; N];
    for port in &mut ports {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        *port = listener.local_addr()?.port();
        held.push(listener);
    }
    Ok(ports)
}

async fn redis(programs: &Programs, dir: &RunDir) -> Result<(Process, u16), BenchError> {
    let [port] = free_ports()?;
    let mut command = Command::new(&programs.redis);
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1"]);
    command.args(["--save", "", "--appendonly", "no", "--dir"]);
    command.arg(dir.path());
    let fix = "install it: apt-get install redis-server";
    let mut process = Process::start("redis", command, dir.path(), fix)?;
    let addr = SocketAddr::from(([127, 0, 0, 1], port));
    let answers = || TcpStream::connect(addr).ok();
    process.wait_until(START, answers).await?;
    Ok((process, port))
}

async fn service(
    programs: &Programs,
    dir: &RunDir,
    redis: u16,
    more: &[(&str, &str)],
) -> Result<(Process, SocketAddr), BenchError> {
    let [grpc, http, debug] = free_ports()?;
    let config = dir.path().join("runtime/ratelimit/config");
    std::fs::create_dir_all(&config)?;
    std::fs::write(config.join("bench.yaml"), RULES)?;
    let mut command = Command::new(&programs.reference);
    command
        .env("RUNTIME_ROOT", dir.path().join("runtime"))
        .env("RUNTIME_SUBDIRECTORY", "ratelimit")
        .env("REDIS_SOCKET_TYPE", "tcp")
        .env("REDIS_URL", format!("127.0.0.1:{redis}"))
        .env("GRPC_HOST", "127.0.0.1")
        .env("GRPC_PORT", grpc.to_string())
        .env("HOST", "127.0.0.1")
        .env("PORT", http.to_string())
        .env("DEBUG_HOST", "127.0.0.1")
        .env("DEBUG_PORT", debug.to_string())
        .env("USE_STATSD", "false")
        .env("LOG_LEVEL", "error")
        .envs(more.iter().copied());
    let fix = "tools/bench versus builds it";
    let mut process = Process::start("reference", command, dir.path(), fix)?;
    let addr = SocketAddr::from(([127, 0, 0, 1], grpc));
    let answers = || TcpStream::connect(addr).ok();
    process.wait_until(START, answers).await?;
    Ok((process, addr))
}

/// That the rule is in force: an answer names a limit and what is left of it.
async fn counts(addr: SocketAddr) -> Result<(), BenchError> {
    let mut client = load::connect(addr).await?;
    let give_up = tokio::time::Instant::now() + START;
    loop {
        match load::remaining(&mut client, "warm").await {
            Ok(Some(left)) if left < u32::MAX => return Ok(()),
            answer if tokio::time::Instant::now() > give_up => {
                return Err(BenchError::Void(format!("it does not count: {answer:?}")));
            }
            _ => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// The store and the service, counting. Each can only be told its ports, and may lose one to
/// another program between its choice and its use: then both start again with others.
async fn both(
    programs: &Programs,
    dir: &RunDir,
    settings: &[(&str, &str)],
) -> Result<(Process, Process, SocketAddr), BenchError> {
    let mut tries = 0;
    loop {
        tries += 1;
        let started = async {
            let (redis, port) = redis(programs, dir).await?;
            let (process, addr) = service(programs, dir, port, settings).await?;
            counts(addr).await?;
            Ok((redis, process, addr))
        };
        match started.await {
            Err(why) if tries < REFERENCE_STARTS => {
                eprintln!("the reference service starts again: {why}");
            }
            ended => return ended,
        }
    }
}

/// Measures both ways of the reference service.
///
/// # Errors
/// A program does not start, answer or count.
pub async fn measure(
    options: &ServedOptions,
    programs: &Programs,
) -> Result<Vec<Figure>, BenchError> {
    let mut figures = Vec::new();
    for (way, settings) in WAYS {
        let dir = RunDir::new("gabion-versus")?;
        let (redis, process, addr) = both(programs, &dir, settings).await?;
        let gabiond = single(options, &dir, "gabiond", &one_rule()).await?;
        counts(gabiond.1).await?;
        let mut ours = Side::new(gabiond.1, vec![gabiond.0.id()]);
        let mut theirs = Side::new(addr, vec![process.id(), redis.id()]);
        let ratio = in_turns(&mut ours, &mut theirs, REFERENCE_ROUNDS, RATIO_ROUND).await?;
        let per_s = paced_in_turns(&mut ours, &mut theirs, PACED_ROUNDS).await?;
        let name = |text: &str| format!("{way}: {text}");
        let stated = |text, value, unit| Figure::stated(name(text), value, unit);
        figures.extend([
            stated(
                "reference + Redis, requests per CPU second",
                theirs.per_cpu_s(),
                "1/s",
            ),
            stated("gabiond, requests per CPU second", ours.per_cpu_s(), "1/s"),
            stated(
                "reference, requests per second, 64 open",
                theirs.per_s(),
                "1/s",
            ),
            stated("gabiond, requests per second, 64 open", ours.per_s(), "1/s"),
            Figure::barred(
                name("gabiond against it per CPU second, median of pairs"),
                ratio.median,
                "x",
                Bar::AtLeast(REFERENCE_RATIO_MIN),
            ),
            stated("worst pair of rounds", ratio.worst, "x"),
            stated("half of its saturation, both offered", per_s, "1/s"),
            stated("reference, p99 at that rate", theirs.p99_us(), "us"),
            stated("gabiond, p99 at that rate", ours.p99_us(), "us"),
            Figure::barred(
                name("gabiond's p99 against its"),
                ours.p99_us() / theirs.p99_us(),
                "x",
                Bar::AtMost(REFERENCE_P99_MAX),
            ),
        ]);
    }
    Ok(figures)
}
