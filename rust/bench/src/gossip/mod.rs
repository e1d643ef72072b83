//! The bars of replication: scenarios as JSON in, figures as JSON out.
//!
//! I own the form of a scenario. Most run in the simulator: there is the production table, with its
//! pump and node, in virtual time, so that a figure is not of this machine. The others run
//! on loopback, and say so. I never fill in a default that a scenario leaves out.

mod curves;
mod fanout;
mod full_mesh;
mod scale;
mod skew;
mod worlds;

use std::path::{Path, PathBuf};

use gabion_rule::Pace;
use serde::{Deserialize, Serialize};

use crate::core::mesh;
use crate::limits::CLUSTER_LOADS;
use crate::report::{Figure, Report};
use crate::served::{cluster, ServedOptions};
use crate::BenchError;

/// The scenarios of the bars.
const STANDARD: &str = include_str!("../../scenarios/gossip.json");

/// One measurement. Delays are one-way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Scenario {
    /// A limit meets a burst on all members; how much is admitted. Simulated.
    Burst {
        /// Members.
        members: usize,
        /// Hits per window.
        limit: u32,
        /// How members share it; of a strict one each has a part.
        pace: PaceWord,
        /// How many times the limit is offered.
        offered: u64,
        /// In what time.
        length_ms: u64,
        /// One-way delay of every link.
        delay_us: u64,
        /// How many seeds; the worst one counts.
        seeds: u64,
        /// The bar, in percent of the limit.
        most_percent: Option<f64>,
    },
    /// How long a hit on a row that all use takes to be everywhere. Simulated.
    HotRow {
        /// Members.
        members: usize,
        /// One-way delay of every link.
        delay_us: u64,
        /// Hits that are followed.
        hits: usize,
        /// The bar on the 99th percentile.
        p99_most_ms: f64,
    },
    /// Datagrams are lost; in every seed all views are equal in the end. Simulated.
    Loss {
        /// Members.
        members: usize,
        /// Datagrams lost.
        percent: u32,
        /// How many seeds.
        seeds: u64,
        /// How long requests come.
        load_s: u64,
    },
    /// New keys at one member: when all have them, and what the silence after costs. Simulated.
    NewKeys {
        /// Members.
        members: usize,
        /// Keys.
        keys: u32,
        /// One-way delay of every link.
        delay_us: u64,
        /// The bar, from the last request.
        most_ms: u64,
        /// The bar on a link's bytes per second and direction, afterwards.
        idle_most_bytes_per_s: f64,
    },
    /// A cut heals while many rows are live. Simulated.
    Heal {
        /// Members; the last one is cut off.
        members: usize,
        /// Live rows that all know.
        rows: u32,
        /// Rows that change on each side of the cut.
        changed: u32,
        /// One-way delay of every link.
        delay_us: u64,
        /// The bar, from the end of the cut.
        most_ms: u64,
    },
    /// How soon a hit is everywhere, and what that costs. Simulated.
    Converge {
        /// Members.
        members: usize,
        /// Hits per hour: with few, each hit is urgent; with many, it can wait.
        limit: u32,
        /// One-way delay of every link.
        delay_us: u64,
        /// Datagrams lost.
        loss_percent: u32,
        /// Hits that are followed.
        hits: usize,
        /// Time from one to the next.
        every_ms: u64,
    },
    /// A limit per hour while the members are in parts. Simulated.
    Cut {
        /// Members.
        members: usize,
        /// Parts that do not hear each other.
        parts: usize,
        /// Hits per hour.
        limit: u32,
        /// How many times the limit is offered, within 10 s.
        offered: u64,
        /// One-way delay of every link.
        delay_us: u64,
    },
    /// A limit per hour that is offered twice, with an error budget. Simulated.
    Budget {
        /// Members.
        members: usize,
        /// Hits per hour.
        limit: u32,
        /// The error budget, parts per million.
        budget_ppm: u32,
        /// In what time it is offered.
        length_s: u64,
        /// How many seeds; the worst one counts.
        seeds: u64,
        /// One-way delay of every link.
        delay_us: u64,
    },
    /// What rows that change cost a member, many keys under a wide limit. Simulated.
    Sizing {
        /// Members.
        members: usize,
        /// Hits in a second, over all members, each on any of as many keys.
        per_s: u64,
        /// Hits per hour and key.
        limit: u32,
        /// For how long.
        length_s: u64,
        /// One-way delay of every link.
        delay_us: u64,
    },
    /// A member joins others that hold rows, and leaves. Simulated.
    Join {
        /// Members, with the one that joins.
        members: usize,
        /// Live rows.
        rows: u32,
        /// One-way delay of every link.
        delay_us: u64,
    },
    /// Bytes that a key takes when all members count it. Simulated.
    Memory {
        /// Members.
        members: usize,
        /// Keys.
        keys: u32,
    },
    /// The mesh and forwarding side by side, without tables. Simulated.
    Fanout {
        /// Members.
        members: usize,
        /// How long each load lasts.
        length_ms: u64,
        /// The bar on frames per second of the busiest member that forwards, all being hot.
        packets_most: Option<f64>,
    },
    /// A burst and a steady load, with right clocks, with clocks that are off, and with members
    /// that start in any order, too. Simulated.
    Skew {
        /// Members.
        members: usize,
        /// Hits per window.
        limit: u32,
        /// How many times the limit the burst offers.
        offered: u64,
        /// In what time.
        length_ms: u64,
        /// One-way delay of every link.
        delay_us: u64,
        /// What a clock is off by at most, either way.
        skew_ms: u64,
        /// How many seeds; the worst one counts.
        seeds: u64,
        /// The bar of the burst, in percent of the limit.
        most_percent: Option<f64>,
    },
    /// A full mesh of very many members, each with a hot row of its own. Simulated.
    FullMesh {
        /// Members.
        members: usize,
        /// Hits per window.
        limit: u32,
        /// One-way delay of every link.
        delay_us: u64,
        /// The bar on a member's packets per second, sent and received.
        packets_most_per_s: f64,
    },
    /// Very many live keys: memory, and whether anything stops. Simulated.
    Scale {
        /// Members.
        members: usize,
        /// Keys.
        keys: u32,
        /// At how many members each key is hit.
        hitters: usize,
        /// One-way delay of every link.
        delay_us: u64,
    },
    /// Ten drivers in this process, real sockets on loopback: hot row, cold row, idle link.
    Mesh,
    /// Running `gabiond` processes: one window of 60 s, several loads.
    Cluster {
        /// Members.
        members: usize,
    },
}

/// How a scenario's rule is paced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PaceWord {
    /// `pace=fast`.
    Fast,
    /// `pace=paced`.
    Paced,
    /// `pace=strict` with as many parts as members.
    Strict,
}

impl PaceWord {
    fn of(self, members: usize) -> Pace {
        match self {
            PaceWord::Fast => Pace::Fast,
            PaceWord::Paced => Pace::Paced,
            PaceWord::Strict => Pace::Strict {
                members: u32::try_from(members).unwrap_or(u32::MAX),
                place: None, // the simulator's members have their numbers as places
            },
        }
    }
}

/// What a run of one scenario came to.
#[derive(Debug, Serialize)]
struct Done {
    scenario: Scenario,
    figures: Vec<Figure>,
}

/// Scenarios of a file, or those of the bars.
///
/// # Errors
/// The file cannot be read, or is no list of scenarios.
pub fn scenarios(file: Option<&Path>) -> Result<Vec<Scenario>, BenchError> {
    let text = match file {
        Some(file) => std::fs::read_to_string(file)?,
        None => STANDARD.to_owned(),
    };
    let parsed = serde_json::from_str(&text).map_err(std::io::Error::other)?;
    Ok(parsed)
}

/// Runs the scenarios one after the other and writes what they came to.
///
/// # Errors
/// The results cannot be written; a scenario that fails is part of the report.
pub async fn run(
    scenarios: Vec<Scenario>,
    only: Option<&str>,
    gabiond: PathBuf,
    json: Option<&Path>,
    report: &mut Report,
) -> Result<(), BenchError> {
    let mut all = Vec::new();
    let options = ServedOptions {
        gabiond,
        only: None,
    };
    for scenario in scenarios {
        let name = scenario.name();
        if only.is_some_and(|only| !name.contains(only)) {
            continue;
        }
        let figures = match &scenario {
            Scenario::Mesh => mesh::measure(),
            Scenario::Fanout {
                members,
                length_ms,
                packets_most,
            } => fanout::measure(*members, *length_ms, *packets_most),
            Scenario::Cluster { members } => {
                cluster::measure_of(&options, *members, &CLUSTER_LOADS[..2]).await
            }
            simulated => worlds::measure(simulated),
        };
        let figures = figures.unwrap_or_else(|why| vec![Figure::missing(name.clone(), &why)]);
        for figure in &figures {
            report.add(figure.clone());
        }
        all.push(Done { scenario, figures });
    }
    if let Some(path) = json {
        let text = serde_json::to_string_pretty(&all).map_err(std::io::Error::other)?;
        std::fs::write(path, text + "\n")?;
    }
    Ok(())
}

impl Scenario {
    /// Its kind, as the file says it.
    fn name(&self) -> String {
        let value = serde_json::to_value(self).unwrap_or_default();
        value["kind"].as_str().unwrap_or_default().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_standard_scenarios_can_be_read() {
        let all = scenarios(None).unwrap();
        assert!(all.len() >= 9);
        assert_eq!(all[0].name(), "burst");
    }

    #[test]
    fn a_misspelt_field_is_refused() {
        let text = r#"[{"kind": "cluster", "member": 3}]"#;
        assert!(serde_json::from_str::<Vec<Scenario>>(text).is_err());
        let text = r#"[{"kind": "clutser", "members": 3}]"#;
        assert!(serde_json::from_str::<Vec<Scenario>>(text).is_err());
    }
}
