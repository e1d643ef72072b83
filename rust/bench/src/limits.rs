//! The bars and the sizes of the runs, with their units in their names.

use std::time::Duration;

/// Instructions of one warm decision, one fixed rule, key already hashed.
pub const DECISION_INSTRUCTIONS_MAX: f64 = 250.0;
/// Decisions of the shorter of two counted runs.
pub const COUNTED_DECISIONS: u64 = 20_000;

/// Keys of the large table.
pub const MANY_KEYS: u64 = 10_000_000;
/// Keys of the small table.
pub const FEW_KEYS: u64 = 10_000;
/// Rows of a table per hundred keys: 0.8 full.
pub const ROWS_PER_100_KEYS: u64 = 125;
/// Resident memory of table and node with the large table's keys, bytes.
pub const MANY_KEYS_RSS_BYTES_MAX: f64 = 1.4e9;
/// How many times slower the 99th percentile may be with the large table's keys.
pub const MANY_KEYS_P99_RATIO_MAX: f64 = 2.0;
/// Timed decisions of one block, for percentiles.
pub const BLOCK_DECISIONS: usize = 50_000;
/// Blocks of each kind, in turns.
pub const BLOCKS: usize = 30;

/// A frame with one row and an ack, bytes, not signed.
pub const LONE_ROW_BYTES_MAX: f64 = 80.0;
/// Bytes per row of a full frame.
pub const ROW_BYTES_MAX: f64 = 16.0;
/// Bytes per second and direction of a link that has nothing to say.
pub const IDLE_BYTES_PER_S_MAX: f64 = 200.0;
/// How long an idle mesh is watched.
pub const IDLE_WATCH: Duration = Duration::from_secs(12);

/// Members of the mesh.
pub const MESH_MEMBERS: usize = 10;
/// Hits on the hot row.
pub const HOT_HITS: usize = 900;
/// Pause between two hits on the hot row.
pub const HOT_PAUSE: Duration = Duration::from_millis(5);
/// 99th percentile until all members show a hit on a hot row, milliseconds.
pub const HOT_P99_MS_MAX: f64 = 10.0;
/// Hits on cold rows, each on its own.
pub const COLD_HITS: usize = 40;
/// One heartbeat, milliseconds.
pub const COLD_MS_MAX: f64 = 500.0;
/// How long a hit may take before it counts as never arrived.
pub const ARRIVAL_PATIENCE: Duration = Duration::from_secs(5);

/// Requests per CPU second of gabiond with one rule, as a share of the echo server's.
pub const ECHO_RATIO_MIN: f64 = 0.9;
/// The same with ten rules that match, and headers.
pub const ECHO_RATIO_MANY_MIN: f64 = 0.8;
/// Rules of one domain.
pub const MANY_RULES: u64 = 1_000;
/// Cost of a request among them, as a multiple of its cost with one rule.
pub const MANY_RULES_COST_MAX: f64 = 1.2;
/// 99th percentile at half of saturation, as a multiple of the echo server's.
pub const P99_RATIO_MAX: f64 = 2.0;
/// Rounds of each server at half of saturation, taken in turns.
pub const PACED_ROUNDS: usize = 5;
/// Length of one of them.
pub const PACED_ROUND: Duration = Duration::from_secs(3);
/// Keys of them, all equally likely.
pub const PACED_KEYS: u64 = 10_000;
/// Most calls of them that are open at once; more wait, and their wait counts.
pub const PACED_CONCURRENCY: usize = 1_024;
/// Requests per CPU second of gabiond, as a multiple of the reference service's with its Redis.
pub const REFERENCE_RATIO_MIN: f64 = 5.0;
/// Rounds of each against the reference service, taken in turns.
pub const REFERENCE_ROUNDS: usize = 4;
/// How often the reference service may start before it is given up.
pub const REFERENCE_STARTS: usize = 3;
/// 99th percentile of gabiond, as a multiple of the reference service's.
pub const REFERENCE_P99_MAX: f64 = 1.0;
/// Rounds of each server, taken in turns.
pub const RATIO_ROUNDS: usize = 6;
/// Length of one round.
pub const RATIO_ROUND: Duration = Duration::from_secs(3);
/// Connections of the load, each with [`RATIO_STREAMS`] calls open.
pub const RATIO_CONNECTIONS: usize = 4;
/// Open calls per connection.
pub const RATIO_STREAMS: usize = 16;

/// Limit of the exactness run, per minute.
pub const EXACT_LIMIT: u64 = 1_000;
/// Calls of the exactness run.
pub const EXACT_CALLS: u64 = 5_000;
/// Clients of the exactness run.
pub const EXACT_CLIENTS: u64 = 64;
/// How often it is repeated, each time with a fresh key.
pub const EXACT_TIMES: u64 = 5;
/// Rest of a window that a run must find before it starts, seconds.
pub const EXACT_ROOM_S: u64 = 15;

/// Members of the cluster run.
pub const CLUSTER_MEMBERS: usize = 3;
/// Limit of the cluster run, per 60 s window.
pub const CLUSTER_LIMIT: u64 = 6_000;
/// Load of the cluster run: limits offered, seconds, and the bar on over-admission in percent.
pub const CLUSTER_LOADS: [(u64, u64, Option<f64>); 3] = [
    (4, CLUSTER_LOAD_S, Some(1.0)),
    (10, CLUSTER_LOAD_S, Some(3.0)),
    (10, 5, None), // a burst: no bar, but worth knowing
];
/// Share of the limit that must be admitted, percent.
pub const CLUSTER_ADMITTED_MIN_PERCENT: f64 = 99.0;
/// Part of the 60 s window that is used; the rest keeps the load off the window's edges.
pub const CLUSTER_LOAD_S: u64 = 56;

/// Requests per CPU second with one admitting rule, headers off, as a share of core `limit_req`'s.
pub const NGINX_TO_LIMIT_REQ_RATIO_MIN: f64 = 1.0;
/// The same as a share of those without a limiter.
pub const NGINX_ONE_RULE_RATIO_MIN: f64 = 0.97;
/// The same with four rules.
pub const NGINX_FOUR_RULES_RATIO_MIN: f64 = 0.93;
/// Rejections per CPU second as a share of `limit_req`'s.
pub const NGINX_REJECTION_RATIO_MIN: f64 = 1.0;
/// One key on [`HOT_KEY_WORKERS`] workers, as a share of `limit_req`'s.
pub const HOT_KEY_RATIO_MIN: f64 = 1.0;
/// Workers that ask for one key.
pub const HOT_KEY_WORKERS: usize = 4;
/// Connections of wrk to one worker.
pub const NGINX_CONNECTIONS: usize = 8;
/// Turns of each location, one second each.
pub const NGINX_TURNS: usize = 11;
/// Requests of the run within one minute.
pub const NGINX_EXACT_REQUESTS: u64 = 20_000;
/// Length of the run over whole seconds.
pub const NGINX_EXACT_SECONDS: u64 = 4;
/// Instructions that one admitting rule adds to a request.
pub const NGINX_REQUEST_INSTRUCTIONS_MAX: f64 = 3_000.0;
/// Requests of the shorter of two counted runs.
pub const NGINX_COUNTED_REQUESTS: u64 = 1_000;

/// Reloads of each kind that are measured.
pub const RELOADS: u64 = 10;
/// Clients that ask meanwhile.
pub const RELOAD_CLIENTS: u64 = 8;
/// Pause after each reload.
pub const RELOAD_PAUSE: Duration = Duration::from_millis(100);
/// Longest reload of [`MANY_RULES`] rules.
pub const RELOAD_MS_MAX: f64 = 50.0;
/// Envoy gives up an answer after this, as it is shipped.
pub const RELOAD_ANSWER_MS_MAX: f64 = 20.0;
