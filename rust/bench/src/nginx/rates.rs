//! Requests per CPU second of the workers, location against location, in turns.

use super::server::{wrk, Server, Way};
use super::NginxOptions;
use crate::limits::{
    HOT_KEY_RATIO_MIN, HOT_KEY_WORKERS, NGINX_CONNECTIONS, NGINX_FOUR_RULES_RATIO_MIN,
    NGINX_ONE_RULE_RATIO_MIN, NGINX_REJECTION_RATIO_MIN, NGINX_TO_LIMIT_REQ_RATIO_MIN,
};
use crate::report::{percentile, Bar, Figure};
use crate::BenchError;

const RULES: &str = "
    limit_req_zone $binary_remote_addr zone=admits:10m rate=100000000r/s;
    limit_req_zone $binary_remote_addr zone=rejects:10m rate=1r/m;
    gabion_limit_zone zone=z:10m;
    gabion_limit_rule a $binary_remote_addr rate=4000000000r/w;
    gabion_limit_rule b b:$remote_addr rate=4000000000r/w;
    gabion_limit_rule c c:$host rate=4000000000r/w;
    gabion_limit_rule d d:$server_port rate=4000000000r/w;
    gabion_limit_rule burst e:$binary_remote_addr rate=1000000000r/s burst=1000000000;
    gabion_limit_rule rejects $binary_remote_addr rate=1r/w limiter=rejects;";

/// All serve one small file through `try_files`, so that each request passes the phase of limits.
pub(super) const LOCATIONS: &str = "
        location /none { gabion off; try_files /x.txt =404; }
        location /limit_req { gabion off; limit_req zone=admits burst=1000000 nodelay;
            try_files /x.txt =404; }
        location /one { gabion_headers off; gabion_limit a; try_files /x.txt =404; }
        location /burst { gabion_headers off; gabion_limit burst; try_files /x.txt =404; }
        location /four { gabion_headers off; gabion_limit a b c d; try_files /x.txt =404; }
        location /headers { gabion_limit a; try_files /x.txt =404; }
        location /core_rejects { gabion off; limit_req zone=rejects; try_files /x.txt =404; }
        location /rejects { gabion_headers off; gabion_limit rejects; try_files /x.txt =404; }
        location /tells { gabion_limit rejects; try_files /x.txt =404; }";

/// Rules and locations of all measurements of cost.
pub(super) fn rules() -> &'static str {
    RULES
}

/// The measured speeds of one location.
struct Lane {
    path: &'static str,
    /// Requests per CPU second and per second, one pair per turn.
    turns: Vec<(f64, f64)>,
}

/// Requests per CPU second and per second, in turns over the paths.
async fn turns(
    server: &Server,
    paths: &[&'static str],
    connections: usize,
    count: usize,
) -> Result<Vec<Lane>, BenchError> {
    let mut lanes: Vec<Lane> = paths
        .iter()
        .map(|path| Lane {
            path,
            turns: Vec::new(),
        })
        .collect();
    for path in paths {
        // Each is asked before it is measured, so that rows and file are warm.
        for _ in 0..3 {
            server.status(path).await?;
        }
    }
    for turn in 0..count {
        // Back and forth, so that a drift of the machine meets all alike.
        let order: Vec<usize> = match turn % 2 {
            0 => (0..lanes.len()).collect(),
            _ => (0..lanes.len()).rev().collect(),
        };
        for at in order {
            let (before, began) = (server.cpu_ns()?, std::time::Instant::now());
            let counted = wrk(server.addr, lanes[at].path, connections, 1)?;
            let cpu_s = (server.cpu_ns()? - before) as f64 / 1e9;
            let requests = counted.requests as f64;
            if requests < 1_000.0 || cpu_s <= 0.0 {
                let path = lanes[at].path;
                return Err(BenchError::Void(format!("{path}: only {requests} answers")));
            }
            let lasted_s = began.elapsed().as_secs_f64();
            lanes[at]
                .turns
                .push((requests / cpu_s, requests / lasted_s));
        }
    }
    Ok(lanes)
}

fn median(values: impl Iterator<Item = f64>, unit: f64) -> f64 {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // positive
    let mut whole: Vec<u64> = values.map(|value| (value * unit) as u64).collect();
    percentile(&mut whole, 0.5).unwrap_or(0) as f64 / unit
}

/// Lanes with what is asked of them.
struct Lanes(Vec<Lane>);

impl Lanes {
    fn of(&self, path: &str) -> &[(f64, f64)] {
        let lane = self.0.iter().find(|lane| lane.path == path);
        lane.map_or(&[], |lane| &lane.turns)
    }

    /// The median of the turns' ratios, by CPU time and by the clock.
    fn ratio(&self, path: &str, to: &str) -> (f64, f64) {
        let pairs = || self.of(path).iter().zip(self.of(to));
        let cpu = median(pairs().map(|(a, b)| a.0 / b.0), 1e4);
        (cpu, median(pairs().map(|(a, b)| a.1 / b.1), 1e4))
    }

    fn barred(&self, name: &str, path: &str, to: &str, least: Option<f64>) -> [Figure; 2] {
        let (cpu, clock) = self.ratio(path, to);
        let by_cpu = format!("{name}, per CPU second");
        let by_clock = format!("{name}, by the clock");
        let first = match least {
            Some(least) => Figure::barred(by_cpu, cpu, "x", Bar::AtLeast(least)),
            None => Figure::stated(by_cpu, cpu, "x"),
        };
        [first, Figure::stated(by_clock, clock, "x")]
    }
}

/// What is compared: name, location, the one it is held against, and the least ratio.
const COMPARED: [(&str, &str, &str, Option<f64>); 8] = [
    ("limit_req against no limiter", "/limit_req", "/none", None),
    (
        "one rule against limit_req",
        "/one",
        "/limit_req",
        Some(NGINX_TO_LIMIT_REQ_RATIO_MIN),
    ),
    (
        "one rule against no limiter",
        "/one",
        "/none",
        Some(NGINX_ONE_RULE_RATIO_MIN),
    ),
    (
        "one token bucket against limit_req",
        "/burst",
        "/limit_req",
        None,
    ),
    (
        "four rules against no limiter",
        "/four",
        "/none",
        Some(NGINX_FOUR_RULES_RATIO_MIN),
    ),
    (
        "one rule, all headers, against no limiter",
        "/headers",
        "/none",
        None,
    ),
    (
        "rejections against limit_req's",
        "/rejects",
        "/core_rejects",
        Some(NGINX_REJECTION_RATIO_MIN),
    ),
    (
        "rejections with headers against limit_req's",
        "/tells",
        "/core_rejects",
        None,
    ),
];

/// One worker, one key.
///
/// # Errors
/// nginx or wrk does not run.
pub(super) async fn measure(options: &NginxOptions) -> Result<Vec<Figure>, BenchError> {
    let server = Server::start(options, Way::Workers(1), RULES, LOCATIONS).await?;
    let paths = [
        "/none",
        "/limit_req",
        "/one",
        "/burst",
        "/four",
        "/headers",
        "/core_rejects",
        "/rejects",
        "/tells",
    ];
    let lanes = turns(&server, &paths, NGINX_CONNECTIONS, options.turns).await;
    server.stop().await?;
    let lanes = Lanes(lanes?);
    let mut figures: Vec<Figure> = paths
        .iter()
        .map(|path| {
            let rate = median(lanes.of(path).iter().map(|turn| turn.0), 1.0);
            Figure::stated(format!("{path}: requests per CPU second"), rate, "1/s")
        })
        .collect();
    for (name, path, to, least) in COMPARED {
        figures.extend(lanes.barred(name, path, to, least));
    }
    Ok(figures)
}

/// Four workers, one key.
///
/// # Errors
/// nginx or wrk does not run.
pub(super) async fn measure_hot(options: &NginxOptions) -> Result<Vec<Figure>, BenchError> {
    let way = Way::Workers(HOT_KEY_WORKERS);
    let server = Server::start(options, way, RULES, LOCATIONS).await?;
    let paths = ["/none", "/limit_req", "/one"];
    let lanes = turns(&server, &paths, 4 * NGINX_CONNECTIONS, options.turns).await;
    server.stop().await?;
    let lanes = Lanes(lanes?);
    let (name, least) = (
        "hot key, 4 workers: one rule against limit_req",
        HOT_KEY_RATIO_MIN,
    );
    let mut figures = Vec::from(lanes.barred(name, "/one", "/limit_req", Some(least)));
    let name = "hot key, 4 workers: one rule against no limiter";
    figures.extend(lanes.barred(name, "/one", "/none", None));
    Ok(figures)
}
