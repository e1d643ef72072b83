//! Worlds as files: the JSON form of a [`WorldConfig`], documented in `docs/sim.md`.
//!
//! I own reading, writing and refusing them. I promise: a world that was written is read back the
//! same; a file that cannot be run is refused with the place or the name of what is wrong, before
//! anything runs. I never: run a world.

use std::path::{Path, PathBuf};

use gabion_rule::Algorithm;
use gabion_table::{RawMem, Table};

use crate::config::{Fault, Target, WorldConfig, MS, SECOND};
use crate::member::sub_specs;
use crate::orders::Order;

/// Members a scenario may have.
pub const MAX_MEMBERS: usize = 1_024;
/// Rules a scenario may have.
pub const MAX_RULES: usize = 64;
/// Longest time anything in a scenario may take, and latest time it may be at: a week.
pub const MAX_TIME_NS: u64 = 7 * 24 * 3_600 * SECOND;
/// Memory of one member's table at most: 4 GiB, or 1 GiB where addresses have 32 bits.
pub const MAX_TABLE_BYTES: usize = 1 << (28 + 2 * (usize::BITS / 32));

/// Why a scenario was not read or written. Nothing has run.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// The file cannot be read or written. Look at its name and permissions.
    #[error("{path}: {source}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is not JSON, or has a name or a value that is not known there. The place is the one to
    /// correct; `docs/sim.md` lists all names.
    #[error("{path}:{line}:{column}: {what} (docs/sim.md lists what a scenario may hold)")]
    Json {
        /// Which file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// What is wrong.
        what: String,
    },
    /// It is well formed and cannot be run: correct the named value.
    #[error("{path}: {what}")]
    Invalid {
        /// Which file.
        path: PathBuf,
        /// Which value, and what it may be.
        what: String,
    },
}

/// The JSON text of a world.
pub fn text(config: &WorldConfig) -> String {
    // Nothing in a world refuses to be written: no maps with odd keys, no floating point.
    let mut text = serde_json::to_string_pretty(config).unwrap_or_default();
    text.push('\n');
    text
}

/// Writes a world.
///
/// # Errors
/// [`ScenarioError::File`].
pub fn write(path: &Path, config: &WorldConfig) -> Result<(), ScenarioError> {
    std::fs::write(path, text(config)).map_err(|source| ScenarioError::File {
        path: path.to_owned(),
        source,
    })
}

/// Reads a world.
///
/// # Errors
/// Any [`ScenarioError`].
pub fn read(path: &Path) -> Result<WorldConfig, ScenarioError> {
    let text = std::fs::read_to_string(path).map_err(|source| ScenarioError::File {
        path: path.to_owned(),
        source,
    })?;
    parse(path, &text)
}

/// Reads a world from `text`; `path` is for messages.
///
/// # Errors
/// [`ScenarioError::Json`] and [`ScenarioError::Invalid`].
pub fn parse(path: &Path, text: &str) -> Result<WorldConfig, ScenarioError> {
    let config: WorldConfig = serde_json::from_str(text).map_err(|error| {
        let said = error.to_string();
        let place = format!(" at line {} column {}", error.line(), error.column());
        ScenarioError::Json {
            path: path.to_owned(),
            line: error.line(),
            column: error.column(),
            what: said.trim_end_matches(&place).to_owned(),
        }
    })?;
    validate(path, &config)?;
    Ok(config)
}

/// Whether a world can be run; `path` is for messages.
///
/// # Errors
/// [`ScenarioError::Invalid`].
pub fn validate(path: &Path, config: &WorldConfig) -> Result<(), ScenarioError> {
    check(config).map_err(|what| ScenarioError::Invalid {
        path: path.to_owned(),
        what,
    })
}

fn within(name: &str, value: u64, least: u64, most: u64) -> Result<(), String> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(format!("{name} is {value}; it may be {least} to {most}"))
}

fn count(name: &str, value: usize, least: usize, most: usize) -> Result<(), String> {
    let wide = |n| u64::try_from(n).unwrap_or(u64::MAX);
    within(name, wide(value), wide(least), wide(most))
}

/// Whether a world can be run: no index beyond its list, no number out of range.
fn check(config: &WorldConfig) -> Result<(), String> {
    count("members", config.members, 1, MAX_MEMBERS)?;
    count("the number of rules", config.rules.len(), 1, MAX_RULES)?;
    for (n, rule) in config.rules.iter().enumerate() {
        check_rule(&format!("rules[{n}]"), &rule.algorithm)?;
    }
    let last_rule = config.rules.len() - 1;
    for (_, rules) in &config.rules_at {
        count("the number of rules of a member", rules.len(), 1, MAX_RULES)?;
        for &rule in rules {
            count("a rule in rules_at", rule, 0, last_rule)?;
        }
    }
    for &member in named_members(config).iter() {
        count("a member that is named", member, 0, config.members - 1)?;
    }
    for (n, load) in config.loads.iter().enumerate() {
        let name = format!("loads[{n}]");
        count(
            &format!("{name}.rule"),
            usize::from(load.rule),
            0,
            last_rule,
        )?;
        within(&format!("{name}.hits"), u64::from(load.hits), 1, 1_000_000)?;
        within(&format!("{name}.until_ns"), load.until_ns, 0, MAX_TIME_NS)?;
        within(&format!("{name}.from_ns"), load.from_ns, 0, load.until_ns)?;
    }
    let times = config.faults.iter().map(|fault| fault.0);
    for at_ns in times.chain(config.orders.iter().map(|order| order.0)) {
        within("at_ns", at_ns, 0, MAX_TIME_NS)?;
    }
    for (_, fault) in &config.faults {
        within("for_ns", fault.lasts_ns(), 0, MAX_TIME_NS)?;
    }
    for link in &config.links {
        let (least_ns, mean_ns, most_ns) = link.delay.bounds();
        within("a link's shortest delay", least_ns, 0, mean_ns)?;
        within("a link's mean delay", mean_ns, 0, most_ns)?;
        within("a link's longest delay", most_ns, 0, 60 * SECOND)?;
    }
    within("settle_ns", config.settle_ns, 0, MAX_TIME_NS)?;
    within("starve_ns", config.starve_ns, 0, MAX_TIME_NS)?;
    check_table(config)
}

fn check_table(config: &WorldConfig) -> Result<(), String> {
    count("table_bytes", config.table_bytes, 1, MAX_TABLE_BYTES)?;
    for member in config.rules_at.iter().map(|(member, _)| *member).chain([0]) {
        let memory = RawMem::private(config.table_bytes).map_err(|error| error.to_string())?;
        Table::format(memory, &sub_specs(config, member))
            .map_err(|error| format!("table_bytes is {}: {error}", config.table_bytes))?;
    }
    Ok(())
}

fn check_rule(name: &str, algorithm: &Algorithm) -> Result<(), String> {
    match *algorithm {
        Algorithm::Window {
            limit,
            window_ns,
            bucket_ns,
            ..
        } => {
            within(
                &format!("{name}.limit"),
                u64::from(limit),
                1,
                u64::from(u32::MAX),
            )?;
            within(&format!("{name}.bucket_ns"), bucket_ns, MS, window_ns)?;
            within(&format!("{name}.window_ns"), window_ns, MS, MAX_TIME_NS)?;
            within(&format!("{name}: its buckets"), algorithm.buckets(), 1, 64)
        }
        Algorithm::TokenBucket {
            hits,
            per_ns,
            burst,
            epoch_ns,
        } => {
            within(&format!("{name}.hits"), hits, 1, u64::from(u32::MAX))?;
            within(&format!("{name}.per_ns"), per_ns, 1, MAX_TIME_NS)?;
            within(
                &format!("{name}.burst"),
                u64::from(burst),
                1,
                u64::from(u32::MAX),
            )?;
            within(
                &format!("{name}.epoch_ns"),
                epoch_ns,
                SECOND,
                2 * MAX_TIME_NS,
            )
        }
    }
}

/// Every member that something names, but those of a partition: bits beyond the last are harmless.
fn named_members(config: &WorldConfig) -> Vec<usize> {
    let mut named: Vec<usize> = config.rules_at.iter().map(|(member, _)| *member).collect();
    named.extend(
        config
            .wrong_key
            .iter()
            .chain(&config.no_peers)
            .chain(&config.later)
            .chain(&config.two_addresses),
    );
    named.extend(config.links.iter().flat_map(|link| [link.from, link.to]));
    named.extend(config.loads.iter().filter_map(|load| match load.target {
        Target::One(member) => Some(member),
        _ => None,
    }));
    named.extend(config.faults.iter().flat_map(|(_, fault)| fault.members()));
    named.extend(config.orders.iter().map(|(_, order)| {
        let (Order::Raise { member, .. } | Order::Set { member, .. }) = *order;
        member
    }));
    named
}

impl Fault {
    /// The members it names; none for what is done to all.
    pub fn members(&self) -> Vec<usize> {
        match *self {
            Fault::Network(_) | Fault::Partition { .. } | Fault::Heal => Vec::new(),
            Fault::OneWay { from, to } | Fault::Clog { from, to, .. } => vec![from, to],
            Fault::Apart { one, other } | Fault::Mend { one, other } => vec![one, other],
            Fault::Restart { member, .. }
            | Fault::LeaderChange { member }
            | Fault::DriverStops { member, .. }
            | Fault::Sleep { member, .. }
            | Fault::Slow { member, .. }
            | Fault::ClockStep { member, .. }
            | Fault::Join { member }
            | Fault::Leave { member }
            | Fault::Peers { member, .. } => vec![member],
        }
    }

    /// How long it lasts by itself, nanoseconds.
    pub fn lasts_ns(&self) -> u64 {
        match *self {
            Fault::Restart { down_ns, .. } => down_ns,
            Fault::Clog { for_ns, .. }
            | Fault::DriverStops { for_ns, .. }
            | Fault::Sleep { for_ns, .. } => for_ns,
            Fault::Slow {
                pause_ns, for_ns, ..
            } => pause_ns.max(for_ns),
            Fault::ClockStep { by_ns, .. } => by_ns.unsigned_abs(),
            _ => 0,
        }
    }
}
