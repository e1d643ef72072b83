//! Answers N requests, from their bytes to the answer's bytes, without a network and with nothing
//! else that grows with N, so that the difference between two runs under
//! `valgrind --tool=callgrind` gives instructions per request:
//!
//! ```text
//! cargo build --release -p gabion-server --example callgrind_answer
//! valgrind --tool=callgrind target/release/examples/callgrind_answer 10000 descriptors
//! valgrind --tool=callgrind target/release/examples/callgrind_answer 20000 descriptors
//! ```
//!
//! Second argument: `one` (a rule, no headers), `rules` (ten that match one descriptor, headers),
//! `descriptors` (a rule on each of ten, headers). Third: `decode` stops when the request is read,
//! `decide` before the answer is encoded; without it all is done.

use std::hint::black_box;
use std::sync::Arc;

use bytes::Bytes;
use gabion_driver::ClusterClock;
use gabion_rule::policy::parse_limits;
use gabion_rule::{KeyHasher, RuleTable};
use gabion_server::config::{Answers, Observe, Storage, When};
use gabion_server::encode::Encode as _;
use gabion_server::engine::Engine;
use gabion_server::observe::Observer;
use gabion_server::policy::{Policy, PolicyParts};
use gabion_server::protocol::{descriptor, request, RateLimitRequest};
use gabion_table::{SubSpec, Table};
use prost::Message as _;

const KEYS: [&str; 10] = [
    "key", "key1", "key2", "key3", "key4", "key5", "key6", "key7", "key8", "key9",
];

const TABLE_BYTES: usize = 1 << 22;

/// An engine with `rules` rules, each on its own key or all on one.
fn engine(rules: usize, is_apart: bool, headers: When) -> Result<Engine, String> {
    let rule = |i: usize| {
        let key = if is_apart { KEYS[i] } else { KEYS[0] };
        let rate = 4_000_000_000 - i;
        format!(
            "- {{name: bench{i}, domain: bench, rate: {rate}r/m, window: 60s, \
             descriptors: [{{key: {key}}}]}}\n"
        )
    };
    let text: String = (0..rules).map(rule).collect();
    let read = parse_limits("bench", &format!("limits:\n{text}")).map_err(|e| format!("{e:?}"))?;
    let rules = RuleTable::build(read.rules).map_err(|e| format!("{e:?}"))?;
    let sub = |rule: &gabion_rule::Rule| SubSpec {
        identity: rule.identity(),
        plan: gabion_admit::Plan::new(&rule.algorithm),
        cardinality: None,
    };
    let subs: Vec<SubSpec> = rules.rules().iter().map(sub).collect();
    let counters = Table::private(TABLE_BYTES, &subs).map_err(|e| e.to_string())?;
    let parts = PolicyParts {
        rules: Arc::new(rules),
        hasher: KeyHasher::new([7; 16]),
        counters: Some(Arc::new(counters)),
        overrides: false,
        bounds: Storage {
            table_bytes: TABLE_BYTES as u64,
            override_cardinality: None,
            max_descriptor_count: 64,
            max_descriptor_bytes: 65_536,
            max_key_bytes: 4_096,
        },
        answers: Answers {
            headers,
            ..Answers::default()
        },
        flags: Vec::new(),
        orders: Arc::default(),
        value_series: 0,
    };
    let clock = Arc::new(ClusterClock::from_wall_clock());
    let observer = Arc::new(Observer::new(&Observe::default()));
    Ok(Engine::new(Policy::new(parts, None), clock).watched_by(observer))
}

fn main() -> Result<(), String> {
    let mut args = std::env::args().skip(1);
    let count: u64 = args.next().and_then(|n| n.parse().ok()).unwrap_or(10_000);
    let kind = args.next().unwrap_or_else(|| "one".to_owned());
    let until = args.next().unwrap_or_default();
    let (engine, descriptors) = match kind.as_str() {
        "rules" => (engine(10, false, When::Always)?, 1),
        "descriptors" => (engine(10, true, When::Always)?, 10),
        _ => (engine(1, true, When::Off)?, 1),
    };
    let ask = (0..descriptors).map(|i| descriptor(&[(KEYS[i], "client-3-14")]));
    let ask = request("bench", ask.collect());
    let bytes = Bytes::from(ask.encode_to_vec());
    drop(bytes.clone()); // from here on its clones share what they point to
    let mut buffer = bytes::BytesMut::with_capacity(4_096);
    for _ in 0..count {
        let request = RateLimitRequest::decode(black_box(bytes.clone()));
        let request = request.map_err(|e| e.to_string())?;
        if until == "decode" {
            black_box(&request);
            continue;
        }
        let answer = engine.answer(&request);
        if until == "decide" {
            black_box(&answer);
            continue;
        }
        buffer.clear();
        answer.encode_to(&mut buffer);
        black_box(&buffer);
    }
    Ok(())
}
