//! Limits that requests bring along: where they are counted.
//!
//! I own one sub-table for each unit, behind those of the rules, and how table, pump and protocol
//! know it. I promise that every member that accepts such limits counts them in the same place,
//! and that their number is bounded. I never decide.

use gabion_admit::{Plan, WindowPlan};
use gabion_node::LimiterSpec;
use gabion_rule::{OverrideUnit, RuleIdx, Sliding};
use gabion_table::limits::OPEN_LIMIT;
use gabion_table::SubSpec;

use crate::config::Storage;
use crate::limits::{OVERRIDES_DEFAULT, OVERRIDE_BYTES, OVERRIDE_TABLE_PART};
use crate::protocol::{RateLimitOverride, RateLimitUnit};

/// How many rules there are besides, once limits that requests bring are accepted.
pub const UNITS: usize = OverrideUnit::ALL.len();

/// Keys that each unit holds; 0: limits that requests bring are not accepted.
///
/// Without a setting they are the default number, but take no more than their part of the table.
pub fn cardinality(storage: &Storage) -> u32 {
    storage.override_cardinality.unwrap_or_else(|| {
        let part = storage.table_bytes / OVERRIDE_TABLE_PART;
        let keys = part / (UNITS as u64 * OVERRIDE_BYTES);
        u32::try_from(keys).map_or(OVERRIDES_DEFAULT, |keys| keys.min(OVERRIDES_DEFAULT))
    })
}

fn sub_spec(unit: OverrideUnit, limit: u32, keys: u32) -> SubSpec {
    let window_ns = unit.window_ns();
    let plan = WindowPlan::new(limit, window_ns, window_ns, Sliding::Live);
    SubSpec {
        identity: unit.identity(),
        plan: Plan::Window(plan),
        cardinality: Some(keys),
    }
}

/// The sub-tables, as the table must know them: their charges bring the limits.
pub fn table_specs(keys: u32) -> impl Iterator<Item = SubSpec> {
    let units = OverrideUnit::ALL.into_iter();
    units.map(move |unit| sub_spec(unit, OPEN_LIMIT, keys))
}

/// The same as the pump must know them: any count of the others may matter, so a row is claimed for
/// it.
pub fn pump_specs(keys: u32) -> impl Iterator<Item = SubSpec> {
    let units = OverrideUnit::ALL.into_iter();
    units.map(move |unit| sub_spec(unit, 1, keys))
}

/// The same as the protocol must know them: every hit is news, as under the smallest limit.
pub fn limiter_specs() -> impl Iterator<Item = LimiterSpec> {
    OverrideUnit::ALL.into_iter().map(|unit| {
        let sub = sub_spec(unit, 1, 1);
        LimiterSpec {
            short: unit.identity().short(),
            digest: unit.identity().short(),
            epoch_ns: sub.plan.epoch_ns(),
            live_epochs: sub.plan.live_epochs(),
            limit: sub.plan.limit(),
            error_budget_ppm: 0,
        }
    })
}

/// What operators see of a unit, in logs and documents.
pub fn name(unit: OverrideUnit) -> String {
    format!("override:{}", unit.word())
}

/// Stands for the domain where all limits of a unit are shown together.
pub const DOMAIN: &str = "(overrides)";

/// The unit that operators mean by a name of [`name`].
pub fn unit_named(of: &str) -> Option<OverrideUnit> {
    OverrideUnit::ALL.into_iter().find(|unit| name(*unit) == of)
}

/// The unit of a limit that a request brings; `None` when it names none.
pub(crate) fn unit_of(brought: &RateLimitOverride) -> Option<OverrideUnit> {
    match brought.unit() {
        RateLimitUnit::Unknown => None,
        RateLimitUnit::Second => Some(OverrideUnit::Second),
        RateLimitUnit::Minute => Some(OverrideUnit::Minute),
        RateLimitUnit::Hour => Some(OverrideUnit::Hour),
        RateLimitUnit::Day => Some(OverrideUnit::Day),
        RateLimitUnit::Month => Some(OverrideUnit::Month),
        RateLimitUnit::Year => Some(OverrideUnit::Year),
    }
}

/// The sub-table of `unit` behind those of `rules` rules.
pub(crate) fn index(rules: usize, unit: OverrideUnit) -> RuleIdx {
    RuleIdx::try_from(rules + unit.index()).unwrap_or(RuleIdx::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn storage(table_bytes: u64, override_cardinality: Option<u32>) -> Storage {
        Storage {
            table_bytes,
            override_cardinality,
            max_descriptor_count: 1,
            max_descriptor_bytes: 1,
            max_key_bytes: 1,
        }
    }

    #[test]
    fn a_small_table_gives_an_eighth_of_itself_and_a_large_one_the_default() {
        assert_eq!(cardinality(&storage(1 << 30, None)), OVERRIDES_DEFAULT);
        let small = cardinality(&storage(64 << 10, None));
        assert!((10..100).contains(&small), "{small}");
        assert_eq!(cardinality(&storage(64 << 10, Some(0))), 0);
        assert_eq!(cardinality(&storage(64 << 10, Some(7))), 7);
    }

    #[test]
    fn all_rooms_agree_on_the_order_and_the_epochs() {
        let limiters: Vec<LimiterSpec> = limiter_specs().collect();
        for (at, (table, pump)) in table_specs(9).zip(pump_specs(9)).enumerate() {
            assert_eq!(table.identity, pump.identity);
            assert_eq!(table.identity.short(), limiters[at].short);
            assert_eq!(table.plan.epoch_ns(), limiters[at].epoch_ns);
            assert_eq!(pump.plan.epoch_ns(), limiters[at].epoch_ns);
            let behind = index(3, OverrideUnit::ALL[at]);
            assert_eq!(usize::from(behind), 3 + at);
        }
        assert_eq!(limiters.len(), UNITS);
    }
}
