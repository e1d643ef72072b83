//! One key, several workers, more requests than the limit: exactly the limit is admitted.

use std::time::Duration;

use gabion_driver::monotonic_ns;

use super::server::{wrk, Server, Way};
use super::NginxOptions;
use crate::limits::{NGINX_CONNECTIONS, NGINX_EXACT_REQUESTS, NGINX_EXACT_SECONDS};
use crate::report::{Bar, Figure};
use crate::BenchError;

const SECOND_NS: u64 = 1_000_000_000;
const MINUTE_NS: u64 = 60 * SECOND_NS;
/// Rest of a minute that a run must find, so that it does not meet the end of the window.
const ROOM_NS: u64 = 20 * SECOND_NS;
const ATTEMPTS: u64 = 5;
const PER_MINUTE: u64 = 1_000;
const PER_SECOND: u64 = 3_000;
/// A load that uses a window up well before its middle.
const LEAST_TIMES: f64 = 3.0;

const RULES: &str = "
    gabion_limit_zone zone=z:10m;
    gabion_limit_rule minute m:$arg_k rate=1000r/m;
    gabion_limit_rule second s:$arg_k rate=3000r/s;";
const LOCATIONS: &str = "
        location /minute { gabion_limit minute; try_files /x.txt =404; }
        location /second { gabion_limit second; try_files /x.txt =404; }";

/// The instance's own clock: its windows begin at whole multiples of their length.
struct Clock {
    offset_ns: i64,
}

impl Clock {
    async fn of(server: &Server) -> Result<Clock, BenchError> {
        let state = server.state().await?;
        let offset_ns = state["zones"][0]["clock_offset_ns"].as_i64();
        let why = || BenchError::Void("gabion_status tells no clock".to_owned());
        Ok(Clock {
            offset_ns: offset_ns.ok_or_else(why)?,
        })
    }

    fn now_ns(&self) -> u64 {
        monotonic_ns().saturating_add_signed(self.offset_ns)
    }

    async fn wait_until(&self, time_ns: u64) {
        while let Some(left) = time_ns.checked_sub(self.now_ns()).filter(|left| *left > 0) {
            tokio::time::sleep(Duration::from_nanos(left)).await;
        }
    }
}

/// Admissions of at least so many requests in one minute; `None` when they met its end.
async fn in_a_minute(
    server: &Server,
    clock: &Clock,
    path: &str,
) -> Result<Option<(u64, u64)>, BenchError> {
    let left_ns = MINUTE_NS - clock.now_ns() % MINUTE_NS;
    if left_ns < ROOM_NS {
        clock.wait_until(clock.now_ns() + left_ns).await;
    }
    let window = clock.now_ns() / MINUTE_NS;
    let (mut requests, mut denied) = (0, 0);
    while requests < NGINX_EXACT_REQUESTS && clock.now_ns() / MINUTE_NS == window {
        let more = wrk(server.addr, path, 4 * NGINX_CONNECTIONS, 1)?;
        (requests, denied) = (requests + more.requests, denied + more.denied);
    }
    // What wrk broke off at its end is not in its sums: it was denied, if the first run denied.
    let whole = clock.now_ns() / MINUTE_NS == window && requests >= NGINX_EXACT_REQUESTS;
    Ok(whole.then_some((requests, requests - denied)))
}

/// Admissions over several windows of a second: how many times the limit was offered, and
/// admissions a second. Counted from the middle of one window to the middle of another: by then a
/// load of several times the limit has used a window up, so that no part of one is counted.
async fn in_seconds(server: &Server, clock: &Clock, path: &str) -> Result<(f64, f64), BenchError> {
    let (addr, path) = (server.addr, path.to_owned());
    let seconds = NGINX_EXACT_SECONDS + 3;
    let load =
        tokio::task::spawn_blocking(move || wrk(addr, &path, 4 * NGINX_CONNECTIONS, seconds));
    // The load has begun in the window after the next.
    let first = (clock.now_ns() / SECOND_NS + 2) * SECOND_NS + SECOND_NS / 2;
    clock.wait_until(first).await;
    let before = server.passed("second").await?;
    clock
        .wait_until(first + NGINX_EXACT_SECONDS * SECOND_NS)
        .await;
    let admitted = server.passed("second").await? - before;
    let counted = load.await.map_err(|e| BenchError::Void(e.to_string()))??;
    let times = counted.requests as f64 / (PER_SECOND * seconds) as f64;
    Ok((times, admitted as f64 / NGINX_EXACT_SECONDS as f64))
}

/// Runs both on 2 and 4 workers.
///
/// # Errors
/// nginx or wrk does not run, or the machine is too slow.
pub(super) async fn measure(options: &NginxOptions) -> Result<Vec<Figure>, BenchError> {
    let mut figures = Vec::new();
    for workers in [2, 4] {
        let server = Server::start(options, Way::Workers(workers), RULES, LOCATIONS).await?;
        let clock = Clock::of(&server).await?;
        let mut found = None;
        for attempt in 0..ATTEMPTS {
            let path = format!("/minute?k={attempt}");
            found = in_a_minute(&server, &clock, &path).await?;
            if found.is_some() {
                break;
            }
        }
        let Some((requests, admitted)) = found else {
            let why = format!("each of {ATTEMPTS} runs met the end of a minute");
            return Err(BenchError::Void(why));
        };
        let name = format!("{workers} workers, 1000r/m: admitted of {requests} in one minute");
        let bar = Bar::Exactly(PER_MINUTE as f64);
        figures.push(Figure::barred(name, admitted as f64, "hits", bar));
        let (times, per_second) = in_seconds(&server, &clock, "/second?k=x").await?;
        if times < LEAST_TIMES {
            let why = format!("only {times:.1} times the limit could be offered");
            return Err(BenchError::Void(why));
        }
        let name = format!("{workers} workers, 3000r/s, {times:.1} x offered: admitted a second");
        let bar = Bar::Exactly(PER_SECOND as f64);
        figures.push(Figure::barred(name, per_second, "hits", bar));
        server.stop().await?;
    }
    Ok(figures)
}
