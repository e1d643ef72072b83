//! Settings of other limiters that this one does without: checked, accepted, noted.

use super::values::{duration, one, size_of};
use super::{Settings, HOUR_NS};
use crate::error::ConfError;

/// Why a directive is accepted and does nothing.
const UNNEEDED: [(&str, Kind, &str); 11] = [
    (
        "gabion_gossip_tick_interval",
        Kind::Time,
        "the driver looks every 1 to 10 ms by itself",
    ),
    (
        "gabion_gossip_max_payload_bytes",
        Kind::Count,
        "a frame has at most 1,200 bytes",
    ),
    (
        "gabion_gossip_max_cells_per_frame",
        Kind::Count,
        "a frame is filled to its bytes",
    ),
    (
        "gabion_gossip_max_cells_per_tick",
        Kind::Count,
        "gossip is paced by the error budget",
    ),
    (
        "gabion_gossip_send_queue_capacity",
        Kind::Count,
        "there is no queue: rows are marked",
    ),
    (
        "gabion_gossip_limit_queue_capacity",
        Kind::Count,
        "there is no queue: totals go to the zone",
    ),
    (
        "gabion_storage_rule_dictionary_capacity",
        Kind::Count,
        "rules are indexed as they are",
    ),
    (
        "gabion_storage_node_dictionary_capacity",
        Kind::Count,
        "4,096 origins have room",
    ),
    (
        "gabion_storage_local_dirty_capacity",
        Kind::Count,
        "dirty rows are marked in the zone",
    ),
    (
        "gabion_storage_forwarded_dirty_capacity",
        Kind::Count,
        "dirty rows are marked in the zone",
    ),
    (
        "gabion_storage_max_descriptor_count",
        Kind::Count,
        "a request has as many as it has rules",
    ),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Count,
    Time,
}

/// Whether a directive is one of them.
pub(super) fn is_unneeded(name: &str) -> bool {
    UNNEEDED.iter().any(|(known, ..)| *known == name)
}

impl Settings {
    pub(super) fn unneeded(&mut self, name: &str, args: &[&str]) -> Result<(), ConfError> {
        let Some((_, kind, why)) = UNNEEDED.iter().find(|(known, ..)| *known == name) else {
            return Ok(());
        };
        let most = u64::from(u32::MAX);
        match kind {
            Kind::Count => {
                size_of(name, one(name, args)?, 0..=most)?;
            }
            Kind::Time => {
                duration(name, one(name, args)?, 0..=HOUR_NS)?;
            }
        }
        self.notices
            .push(format!("\"{name}\" is accepted and not needed: {why}"));
        Ok(())
    }
}
