//! What several test binaries of this room share: rules, keys, charges, a seeded generator.
#![allow(dead_code, reason = "each test binary uses its own part")]
#![allow(unreachable_pub, reason = "shared by several test binaries")]

use gabion_admit::{Outcome, Plan};
use gabion_rule::{Algorithm, CounterIdentity, Key, Mode, RuleIdx, Sliding};
use gabion_table::{Charge, Mem, SubSpec, Table};

/// One second, ns.
pub const SECOND_NS: u64 = 1_000_000_000;

/// A moment far from zero, at the start of a bucket of any length used in these tests.
pub const START_NS: u64 = 1_000_000 * 3_600 * SECOND_NS;

/// A window of `window_ns` in buckets of `bucket_ns`.
pub fn window(limit: u32, window_ns: u64, bucket_ns: u64, sliding: Sliding) -> Plan {
    Plan::new(&Algorithm::Window {
        limit,
        window_ns,
        bucket_ns,
        sliding,
    })
}

/// A fixed window of one second.
pub fn fixed(limit: u32) -> Plan {
    window(limit, SECOND_NS, SECOND_NS, Sliding::Live)
}

/// A window of `closed` whole seconds and the current one, the oldest counted whole.
pub fn strict(limit: u32, closed: u64) -> Plan {
    window(limit, closed * SECOND_NS, SECOND_NS, Sliding::Strict)
}

/// A token bucket.
pub fn bucket(hits: u64, per_ns: u64, burst: u32) -> Plan {
    let drain_ms = (u128::from(burst) * u128::from(per_ns) / u128::from(hits)) / 1_000_000;
    let epoch_ms = drain_ms.max(1_000).next_power_of_two();
    let epoch_ns = u64::try_from(epoch_ms * 1_000_000).expect("a short epoch");
    Plan::new(&Algorithm::TokenBucket {
        hits,
        per_ns,
        burst,
        epoch_ns,
    })
}

/// Rule number `n` with this plan.
pub fn sub(n: u8, plan: Plan) -> SubSpec {
    SubSpec {
        identity: CounterIdentity([n; 16]),
        plan,
        cardinality: None,
    }
}

/// Key number `n`: 96 well-mixed bits, as a key hash gives.
pub fn key(n: u64) -> Key {
    let half = (1 << 48) - 1;
    Key {
        a: mix(n) & half,
        b: mix(n ^ 0x5bd1_e995_0000_0000) & half,
    }
}

/// The finaliser of splitmix64.
pub fn mix(v: u64) -> u64 {
    let v = v.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let v = (v ^ (v >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let v = (v ^ (v >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    v ^ (v >> 31)
}

/// A seeded generator.
pub struct Random(pub u64);

impl Random {
    /// The next 64 bits.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }
}

/// An enforcing charge.
pub fn charge(rule: RuleIdx, key: Key, hits: u32) -> Charge {
    Charge::new(rule, key, hits, Mode::Enforce, 0)
}

/// Charges one rule; whether that was allowed.
pub fn hit<M: Mem>(table: &Table<M>, key: Key, hits: u32, now_ns: u64) -> bool {
    let mut charges = [charge(0, key, hits)];
    table.decide(&mut charges, now_ns).outcome == Outcome::Allowed
}
