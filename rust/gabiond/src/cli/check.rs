//! `gabiond check`: a configuration, judged without serving it.
//!
//! I own what it prints: notes and rules on standard output, faults as the error. I change nothing.

use std::path::PathBuf;

use crate::config::{Config, Variables};

/// Check a configuration.
#[derive(Debug, clap::Args)]
pub struct Check {
    /// The YAML file.
    config: PathBuf,
}

impl Check {
    /// Reads it and says what it holds.
    ///
    /// # Errors
    /// All faults, each with its place.
    pub fn run(self) -> Result<String, String> {
        let config =
            Config::load(&self.config, &Variables::of_process()).map_err(|e| e.to_string())?;
        let rules = config.rules.rules();
        let notes = config
            .notices
            .iter()
            .map(|notice| format!("note: {notice}"));
        let never = config.rules.never_apply();
        let never = never.iter().filter_map(|(index, why)| {
            let rule = config.rules.rule(*index)?;
            let place = rule.place.as_ref().map(|place| format!("{place}: "));
            let place = place.unwrap_or_default();
            Some(format!(
                "warning: {place}{}: never applies: {why}",
                rule.name
            ))
        });
        let rules_said = rules.iter().map(ToString::to_string);
        let last = format!("{}: ok, {} rules", self.config.display(), rules.len());
        let lines: Vec<String> = notes.chain(never).chain(rules_said).chain([last]).collect();
        Ok(lines.join("\n") + "\n")
    }
}
