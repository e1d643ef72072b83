//! `gabiond check`: a configuration, judged without serving it.
//!
//! I own what it prints: notes and rules on standard output, faults as the error. I change nothing.

use std::path::{Path, PathBuf};

use gabion_rule::policy::{policy_to_yaml, Policy};

use super::{load, ReferenceArgs};
use crate::config::Config;
use crate::reload::{changes, Fixed};

/// Check a configuration.
#[derive(Debug, clap::Args)]
pub struct Check {
    /// The YAML file, a policy file, or a registry's TOML file.
    #[arg(required_unless_present = "reference")]
    config: Option<PathBuf>,
    /// Check the files of this directory, which are those of Envoy's reference service.
    #[arg(long, value_name = "DIR")]
    reference: Option<PathBuf>,
    #[command(flatten)]
    how: ReferenceArgs,
    /// Say what a reload from this configuration to the checked one would change. A directory is
    /// one of Envoy's reference service.
    #[arg(long, value_name = "OLD")]
    diff: Option<PathBuf>,
    /// Print the rules that it stands for, as a policy file.
    #[arg(long, conflicts_with = "diff")]
    expand: bool,
}

impl Check {
    /// Reads it and says what it holds.
    ///
    /// # Errors
    /// All faults, each with its place.
    pub fn run(self) -> Result<String, String> {
        let (file, directory) = (self.config.as_deref(), self.reference.as_deref());
        let config = load(file, directory, &self.how)?;
        if let Some(old) = self.diff.as_deref() {
            let (file, directory) = match old.is_dir() {
                true => (None, Some(old)),
                false => (Some(old), None),
            };
            return Ok(difference(&load(file, directory, &self.how)?, &config));
        }
        let rules = config.rules.rules();
        if self.expand {
            return Ok(policy_to_yaml(&Policy {
                attributes: config.attributes,
                flags: config.flags,
                rules: rules.to_vec(),
                notices: Vec::new(),
            }));
        }
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
        let checked = file.or(directory).unwrap_or(Path::new(""));
        let last = format!("{}: ok, {} rules", checked.display(), rules.len());
        let lines: Vec<String> = notes.chain(never).chain(rules_said).chain([last]).collect();
        Ok(lines.join("\n") + "\n")
    }
}

/// What a reload would change, as its log lines would say it.
fn difference(old: &Config, new: &Config) -> String {
    let mut lines: Vec<String> = changes(&old.rules, &new.rules)
        .iter()
        .map(ToString::to_string)
        .collect();
    let fixed = Fixed::of(old).differences(&Fixed::of(new));
    if !fixed.is_empty() {
        let fixed = fixed.join(", ");
        lines.push(format!("takes effect at the next start only: {fixed}"));
    }
    if lines.is_empty() {
        lines.push("no rule changes".to_owned());
    }
    lines.join("\n") + "\n"
}
