//! Rules, keys and tables that several measurements use.

use gabion_admit::Plan;
use gabion_node::LimiterSpec;
use gabion_rule::{Algorithm, CounterIdentity, Key, Sliding};
use gabion_table::{RawMem, SubSpec, Table};

use crate::BenchError;

/// Nanoseconds of a second.
pub(crate) const SECOND_NS: u64 = 1_000_000_000;

/// A fixed-window rule as table and node see it.
pub(crate) fn fixed_rule(name: u8, limit: u32, window_ns: u64) -> (SubSpec, LimiterSpec) {
    let sliding = Sliding::Live;
    let algorithm = Algorithm::Window {
        limit,
        window_ns,
        bucket_ns: window_ns,
        sliding,
    };
    let plan = Plan::new(&algorithm);
    let identity = CounterIdentity([name; 16]);
    let limiter = LimiterSpec {
        short: identity.short(),
        digest: u64::from(limit),
        epoch_ns: plan.epoch_ns(),
        live_epochs: plan.live_epochs(),
        limit,
        error_budget_ppm: gabion_rule::limits::DEFAULT_ERROR_BUDGET_PPM,
    };
    (
        SubSpec {
            identity,
            plan,
            cardinality: None,
        },
        limiter,
    )
}

/// The `n`th of a fixed sequence of distinct keys that look random, as hashed keys do.
pub(crate) fn key(n: u64) -> Key {
    // splitmix64's mixer: a bijection, so the 48 low bits of both halves never repeat as a pair.
    let mix = |x: u64| {
        let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    };
    let x = mix(n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    Key::new(x, x >> 48 | mix(!x) << 16)
}

/// The smallest private table with at least `rows` row slots for its one rule.
pub(crate) fn table_of(rule: &SubSpec, rows: u64) -> Result<Table<RawMem>, BenchError> {
    // Steps of 1 % of what a row of 64 bytes takes.
    let mut bytes_per_100_rows = 6_500;
    loop {
        let bytes = usize::try_from(rows * bytes_per_100_rows / 100 + 65_536).unwrap_or(usize::MAX);
        if let Ok(table) = Table::private(bytes, std::slice::from_ref(rule)) {
            if table.capacity(0) >= rows {
                return Ok(table);
            }
        }
        bytes_per_100_rows += 65;
        if bytes_per_100_rows > 50_000 {
            return Err(BenchError::Void(format!(
                "no table of {rows} rows can be had"
            )));
        }
    }
}

/// A small generator with a printed seed; good enough to pick keys.
pub(crate) struct Picker(pub(crate) u64);

impl Picker {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_distinct() {
        let mut keys: Vec<Key> = (0..100_000).map(key).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), 100_000);
    }
}
