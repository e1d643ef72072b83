//! A whole run as one JSON document: what a permalink, a preset and an export carry.
//!
//! I own its form. I promise: what is written is read back the same; unknown names are refused; a
//! scenario file of `./tools/sim` is a run, too. I never: run anything.

use gabion_sim::config::{SimRule, WorldConfig};
use gabion_sim::scenario;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::{from_json, json_error, BridgeError};
use crate::limits::TABLE_BYTES;
use crate::rules::{self, Understood};

/// A run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// The form's name and number.
    pub format: Format,
    /// A preset's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Its title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// A sentence or two for newcomers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tells: Option<String>,
    /// Text of the rules; unused when the scenario has its own.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub rules: String,
    /// From when on there is something to see, nanoseconds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub start_ns: u64,
    /// Where it ends, or where it was looked at, nanoseconds.
    pub end_ns: u64,
    /// Virtual seconds in one second.
    #[serde(default = "real_time")]
    pub speed: f64,
    /// Which counter to show.
    #[serde(default)]
    pub focus: Focus,
    /// Rules to show side by side.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<Group>,
    /// What holds at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends: Option<Ends>,
    /// The world, as `docs/sim.md` has it.
    pub scenario: Value,
}

/// The form's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Format {
    /// The first.
    #[serde(rename = "gabion-run-1")]
    One,
}

/// A counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Focus {
    /// Of which rule.
    pub rule: u16,
    /// For which key.
    pub key: u32,
}

/// A rule to show beside others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// Above it.
    pub title: String,
    /// Which.
    pub rule: u16,
}

/// What holds at the end of a run, of the counter in focus.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ends {
    /// Hits that really count.
    pub truth: u64,
    /// Over-admitted.
    pub over: u64,
    /// Greatest less smallest view.
    pub disagreement: u64,
    /// Requests admitted, of all rules.
    pub admitted: u64,
    /// Denied.
    pub denied: u64,
    /// Frames sent.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Digest of every datagram and verdict.
    pub trace: String,
}

fn is_zero(ns: &u64) -> bool {
    *ns == 0
}

fn real_time() -> f64 {
    1.0
}

/// A run with its rules understood.
pub struct Read {
    /// As it was written.
    pub run: Run,
    /// Its rules, at least one.
    pub rules: Vec<Understood>,
    /// The world to run.
    pub config: WorldConfig,
}

/// Reads a run, or a scenario file.
///
/// # Errors
/// [`BridgeError`]: what is wrong, and where.
pub fn read(text: &str) -> Result<Read, BridgeError> {
    let value: Value = from_json("run", text)?;
    let is_run = value.get("format").is_some() || value.get("scenario").is_some();
    if !is_run {
        return of_scenario(text);
    }
    // From the text: a value has no places to point at.
    let mut run: Run = from_json("run", text)?;
    let mut config = world(&run.scenario)?;
    let rules = if config.rules.is_empty() {
        let read = rules::read(&run.rules, config.members);
        read.map_err(|mut faults| {
            let first = faults.swap_remove(0);
            BridgeError::Rules {
                line: first.line,
                column: first.column,
                message: first.message,
            }
        })?
    } else {
        run.rules.clear();
        named(&config.rules, config.members)
    };
    config.rules = rules.iter().map(|held| held.rule.clone()).collect();
    if !run.speed.is_finite() || run.speed <= 0.0 {
        run.speed = real_time();
    }
    Ok(Read { run, rules, config })
}

fn named(rules: &[SimRule], members: usize) -> Vec<Understood> {
    let numbered = rules.iter().enumerate();
    numbered
        .map(|(number, rule)| rules::of_scenario(number, rule, members))
        .collect()
}

/// The world of a run: tables are small unless it says otherwise.
fn world(scenario: &Value) -> Result<WorldConfig, BridgeError> {
    let mut scenario = scenario.clone();
    if let Some(map) = scenario.as_object_mut() {
        map.entry("table_bytes").or_insert(TABLE_BYTES.into());
    }
    serde_json::from_value(scenario).map_err(|error| json_error("scenario", &error))
}

fn of_scenario(text: &str) -> Result<Read, BridgeError> {
    let config = scenario::parse("scenario".as_ref(), text)?;
    let loads = config.loads.iter().map(|load| load.until_ns);
    let faults = config.faults.iter().map(|fault| fault.0);
    let last_ns = loads.chain(faults).max().unwrap_or(0);
    let run = Run {
        format: Format::One,
        id: None,
        title: None,
        tells: None,
        rules: String::new(),
        start_ns: 0,
        end_ns: last_ns.saturating_add(config.settle_ns),
        speed: real_time(),
        focus: Focus::default(),
        groups: Vec::new(),
        ends: None,
        scenario: Value::Null,
    };
    let rules = named(&config.rules, config.members);
    Ok(Read { run, rules, config })
}

impl Run {
    /// The same run with `config` as it is now, looked at at `now_ns`.
    pub fn with(&self, config: &WorldConfig, now_ns: u64, focus: Focus) -> Run {
        let mut scenario = serde_json::to_value(config).unwrap_or_default();
        if !self.rules.is_empty() {
            if let Some(map) = scenario.as_object_mut() {
                map.remove("rules");
            }
        }
        Run {
            end_ns: now_ns,
            focus,
            ends: None,
            scenario,
            ..self.clone()
        }
    }
}
