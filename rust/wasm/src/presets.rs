//! Runs to begin with, as data: the files of `presets/`, built in.

use serde::Serialize;

use crate::error::BridgeError;
use crate::run;

macro_rules! presets {
    ($($id:literal,)*) => {
        /// Every preset: its name and its run, in the order to show.
        pub const PRESETS: &[(&str, &str)] =
            &[$(($id, include_str!(concat!("../presets/", $id, ".json"))),)*];
    };
}

presets! {
    "first-steps",
    "burst",
    "cut-in-half",
    "one-alone",
    "loss-30",
    "rolling-restart",
    "skewed-clocks",
    "paces",
    "members-64",
}

/// What a list shows of a preset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PresetInfo {
    /// Its name.
    pub id: String,
    /// Its title.
    pub title: String,
    /// A sentence or two.
    pub tells: String,
    /// How many members.
    pub members: usize,
    /// Where it ends, nanoseconds.
    pub end_ns: u64,
}

/// All presets, to list them.
///
/// # Errors
/// When one cannot be read, which a test rules out.
pub fn list() -> Result<Vec<PresetInfo>, BridgeError> {
    let all = PRESETS.iter().map(|(id, text)| {
        let read = run::read(text)?;
        Ok(PresetInfo {
            id: (*id).to_owned(),
            title: read.run.title.unwrap_or_default(),
            tells: read.run.tells.unwrap_or_default(),
            members: read.config.members,
            end_ns: read.run.end_ns,
        })
    });
    all.collect()
}

/// The run of a preset.
///
/// # Errors
/// [`BridgeError::NoPreset`].
pub fn text(id: &str) -> Result<&'static str, BridgeError> {
    let found = PRESETS.iter().find(|(name, _)| *name == id);
    found
        .map(|(_, text)| *text)
        .ok_or_else(|| BridgeError::NoPreset(id.to_owned()))
}
