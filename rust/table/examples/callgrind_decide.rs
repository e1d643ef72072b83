//! Makes N warm decisions and nothing else that grows with N, so that the difference between two
//! runs under `valgrind --tool=callgrind` gives instructions per decision:
//!
//! ```text
//! cargo build --release -p gabion-table --example callgrind_decide
//! valgrind --tool=callgrind target/release/examples/callgrind_decide 100000 admit
//! valgrind --tool=callgrind target/release/examples/callgrind_decide 200000 admit
//! ```
//!
//! Second argument: `admit` (fixed window), `deny`, `sliding` (6 closed buckets), `bucket` (token
//! bucket), `own` (a charge that brings its own limit). The key is hashed already, as the bar says.

use gabion_admit::{Outcome, Plan};
use gabion_rule::{Algorithm, CounterIdentity, Key, Mode, Sliding};
use gabion_table::limits::OPEN_LIMIT;
use gabion_table::{Charge, SubSpec, Table};

const SECOND_NS: u64 = 1_000_000_000;
const START_NS: u64 = 1_000_000 * 3_600 * SECOND_NS;

fn plan(kind: &str) -> Plan {
    let limit = match kind {
        "deny" => 1,
        "own" => OPEN_LIMIT,
        _ => u32::MAX >> 8,
    };
    let (bucket_ns, sliding) = match kind {
        "sliding" => (10 * SECOND_NS, Sliding::Strict),
        _ => (60 * SECOND_NS, Sliding::Live),
    };
    Plan::new(&match kind {
        "bucket" => Algorithm::TokenBucket {
            hits: 1_000_000,
            per_ns: SECOND_NS,
            burst: 1_000_000,
            epoch_ns: 1 << 30,
        },
        _ => Algorithm::Window {
            limit,
            window_ns: 60 * SECOND_NS,
            bucket_ns,
            sliding,
        },
    })
}

fn main() {
    let mut args = std::env::args().skip(1);
    let count: u64 = args.next().and_then(|n| n.parse().ok()).unwrap_or(100_000);
    let kind = args.next().unwrap_or_else(|| "admit".to_owned());
    let identity = CounterIdentity([7; 16]);
    let rules = [SubSpec {
        identity,
        plan: plan(&kind),
        cardinality: None,
    }];
    let table = match Table::private(1 << 20, &rules) {
        Ok(table) => table,
        Err(e) => {
            eprintln!("{e}");
            std::process::exit(1);
        }
    };
    let key = Key {
        a: 0x1234_5678_9abc,
        b: 0xfedc_ba98_7654,
    };
    let own = kind == "own";
    let mut allowed = 0u64;
    for n in 0..count {
        let mut charges = [Charge::new(0, key, 1, Mode::Enforce, 0)];
        if own {
            charges[0].limit = Some(u32::MAX >> 8);
        }
        let decision = table.decide(std::hint::black_box(&mut charges), START_NS + n * 1_000);
        allowed += u64::from(decision.outcome == Outcome::Allowed);
    }
    println!("{kind}: {allowed} of {count} allowed");
}
