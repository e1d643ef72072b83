//! Policy files beside the configuration: the files that nginx reads as `gabion_rules_file`.
//!
//! I own the setting `rules_file` and the union of what several files declare. I promise that each
//! file is watched, also one that cannot be read now, and that a flag or an attribute that two
//! files declare is the same in both. I never judge a rule: that is for `gabion_rule`.

use std::path::{Path, PathBuf};

use gabion_rule::policy::{parse_file, FlagSpec, MapReader, Policy, PolicyError, Problems};
use gabion_rule::Place;

use super::files::read_config;

/// What the files hold, as far as they could be read.
pub(super) struct Files {
    pub(super) policy: Policy,
    /// The files: a change of one is another configuration.
    pub(super) watched: Vec<PathBuf>,
}

/// The setting `rules_file`, one path or a list; paths start at the folder of the configuration.
pub(super) fn section(map: &mut MapReader<'_, '_>, base: &Path, problems: &Problems) -> Files {
    let mut files = Files {
        policy: Policy::default(),
        watched: Vec::new(),
    };
    for text in map.texts("rules_file").unwrap_or_default() {
        let path = base.join(text);
        match read(&path) {
            Ok(policy) => {
                for message in join(&mut files.policy, policy) {
                    map.problem("rules_file", format!("{}: {message}", path.display()));
                }
            }
            Err(Fault::Unreadable(message)) => map.problem("rules_file", message),
            Err(Fault::Wrong(errors)) => errors.into_iter().for_each(|error| problems.add(error)),
        }
        files.watched.push(path);
    }
    files
}

/// The configuration that a registry's TOML file stands for: it names the file and nothing else.
pub(super) fn is_alone(path: &Path) -> Option<String> {
    let is_toml = path.extension()?.eq_ignore_ascii_case("toml");
    let name = path.file_name()?.to_str()?;
    is_toml.then(|| format!("rules_file: '{}'\n", name.replace('\'', "''")))
}

enum Fault {
    Unreadable(String),
    Wrong(Vec<PolicyError>),
}

fn read(path: &Path) -> Result<Policy, Fault> {
    let bytes = read_config(path).map_err(|error| Fault::Unreadable(error.to_string()))?;
    let name = path.display().to_string();
    let text = std::str::from_utf8(&bytes).map_err(|error| {
        Fault::Wrong(vec![PolicyError {
            place: Place::new(name.clone(), 0, 0),
            key: String::new(),
            message: format!(
                "byte {} is not UTF-8; save it as UTF-8",
                error.valid_up_to()
            ),
            suggestion: None,
        }])
    })?;
    parse_file(&name, text).map_err(Fault::Wrong)
}

/// Adds what another file declares; returns what does not go together. Rules that do not are found
/// when all are there.
pub(super) fn join(all: &mut Policy, more: Policy) -> Vec<String> {
    let mut faults = Vec::new();
    match all.attributes.merge(&more.attributes) {
        Ok(attributes) => all.attributes = attributes,
        Err(errors) => faults.extend(errors.into_iter().map(|(_, error)| error.to_string())),
    }
    for flag in more.flags {
        match all.flags.iter().find(|known| known.name == flag.name) {
            None => all.flags.push(flag),
            Some(known) if is_same(known, &flag) => {}
            Some(known) => {
                let place = known.place.as_ref().map(|place| format!(" at {place}"));
                faults.push(format!(
                    "flag {} is declared otherwise{}; declare it alike",
                    flag.name,
                    place.unwrap_or_default()
                ));
            }
        }
    }
    all.rules.extend(more.rules);
    all.notices.extend(more.notices);
    faults
}

/// Declared alike, wherever that is.
fn is_same(one: &FlagSpec, other: &FlagSpec) -> bool {
    let nowhere = |flag: &FlagSpec| FlagSpec {
        place: None,
        ..flag.clone()
    };
    nowhere(one) == nowhere(other)
}
