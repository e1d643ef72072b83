//! Requests per CPU second of the server process, gabiond against the echo server, in turns.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use gabion_loader::local::process::Process;

use super::{load, members, ServedOptions};
use crate::limits::{ECHO_RATIO_MIN, RATIO_ROUND, RATIO_ROUNDS};
use crate::report::{percentile, Bar, Figure};
use crate::{system, BenchError};

/// So high that all is admitted: the echo server admits all, too.
const LIMIT: u64 = 4_000_000_000;

/// One server under load.
struct Side {
    addr: SocketAddr,
    pid: u32,
    /// Requests per CPU second, one per round, times 1,000 (for exact ordering).
    rounds: Vec<u64>,
    per_s: Vec<u64>,
}

impl Side {
    fn new(addr: SocketAddr, pid: u32) -> Side {
        Side {
            addr,
            pid,
            rounds: Vec::new(),
            per_s: Vec::new(),
        }
    }

    async fn round(&mut self, length: Duration) -> Result<(), BenchError> {
        let before = system::cpu_seconds(self.pid)?;
        let answered = load::closed_loops(self.addr, length).await? as f64;
        let used = system::cpu_seconds(self.pid)? - before;
        if used <= 0.0 || answered == 0.0 {
            return Err(BenchError::Void(format!(
                "{answered} answers in {used} CPU seconds"
            )));
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // positive, small
        {
            self.rounds.push((answered / used * 1e3) as u64);
            self.per_s.push((answered / length.as_secs_f64()) as u64);
        }
        Ok(())
    }

    fn median(&self) -> f64 {
        percentile(&mut self.rounds.clone(), 0.5).unwrap_or(0) as f64 / 1e3
    }

    fn median_per_s(&self) -> f64 {
        percentile(&mut self.per_s.clone(), 0.5).unwrap_or(0) as f64
    }
}

/// Runs both, round by round.
///
/// # Errors
/// One does not start or does not answer.
pub async fn measure(options: &ServedOptions) -> Result<Vec<Figure>, BenchError> {
    let (dir, gabiond) = members(options, 1, LIMIT).await?;
    let file = dir.path().join("echo.addr");
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("work-echo").arg(&file);
    let mut process = Process::start("echo", command, dir.path(), "it is this very program")?;
    let address = || {
        std::fs::read_to_string(&file)
            .ok()
            .and_then(|text| text.parse().ok())
    };
    let addr = process.wait_until(Duration::from_secs(10), address).await?;
    let mut echo = Side::new(addr, process.id());
    let mut limiter = Side::new(gabiond[0].envoy, gabiond[0].process.id());
    // One round each to warm up, not counted.
    echo.round(Duration::from_secs(1)).await?;
    limiter.round(Duration::from_secs(1)).await?;
    (echo.rounds, limiter.rounds) = (Vec::new(), Vec::new());
    let mut ratios = Vec::new();
    for n in 0..RATIO_ROUNDS {
        let order = if n % 2 == 0 {
            [true, false]
        } else {
            [false, true]
        };
        for is_echo in order {
            let side = if is_echo { &mut echo } else { &mut limiter };
            side.round(RATIO_ROUND).await?;
        }
        ratios.push(limiter.rounds[n] * 10_000 / echo.rounds[n].max(1));
    }
    let at = |ratios: &mut [u64], share| percentile(ratios, share).unwrap_or(0) as f64 / 1e4;
    let ratio = at(&mut ratios, 0.5);
    Ok(vec![
        Figure::stated("echo server, requests per CPU second", echo.median(), "1/s"),
        Figure::stated("gabiond, requests per CPU second", limiter.median(), "1/s"),
        Figure::stated(
            "echo server, requests per second, 64 open",
            echo.median_per_s(),
            "1/s",
        ),
        Figure::stated(
            "gabiond, requests per second, 64 open",
            limiter.median_per_s(),
            "1/s",
        ),
        Figure::stated(
            "gabiond against echo, worst pair of rounds",
            at(&mut ratios, 0.0),
            "x",
        ),
        Figure::barred(
            "gabiond against echo, requests per CPU second, median of pairs",
            ratio,
            "x",
            Bar::AtLeast(ECHO_RATIO_MIN),
        ),
    ])
}
