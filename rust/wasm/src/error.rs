//! What is refused, in words for people.

use gabion_sim::live::LiveError;
use gabion_sim::scenario::ScenarioError;

/// Why something was refused. Nothing has changed.
#[derive(Debug, thiserror::Error)]
pub enum BridgeError {
    /// It is not JSON, or has a name or a value that is not known there: correct it at its place.
    #[error("{what}:{line}:{column}: {why}")]
    Json {
        /// What was read.
        what: &'static str,
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// What is wrong.
        why: String,
    },
    /// A text is longer than can be meant: give a shorter one.
    #[error("{what} has {bytes} bytes; it may have {most}")]
    Long {
        /// Which text.
        what: &'static str,
        /// Its length.
        bytes: usize,
        /// What is allowed.
        most: usize,
    },
    /// The rules cannot be read: correct the first fault, which is named with line and column.
    #[error("rules:{line}:{column}: {message}")]
    Rules {
        /// Line, from 1.
        line: u32,
        /// Column, from 1.
        column: u32,
        /// What is wrong.
        message: String,
    },
    /// There is no preset of that name; `presets` lists them.
    #[error("there is no preset {0:?}")]
    NoPreset(String),
    /// The world cannot be run: correct the named value.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// The world does not do that: the reason is named.
    #[error(transparent)]
    Live(#[from] LiveError),
}

/// Reads JSON from `text`; `what` is for messages.
///
/// # Errors
/// [`BridgeError::Json`] and [`BridgeError::Long`].
pub(crate) fn from_json<T: serde::de::DeserializeOwned>(
    what: &'static str,
    text: &str,
) -> Result<T, BridgeError> {
    let most = crate::limits::RUN_BYTES_MAX;
    if text.len() > most {
        let bytes = text.len();
        return Err(BridgeError::Long { what, bytes, most });
    }
    serde_json::from_str(text).map_err(|error| json_error(what, &error))
}

pub(crate) fn json_error(what: &'static str, error: &serde_json::Error) -> BridgeError {
    let place = format!(" at line {} column {}", error.line(), error.column());
    BridgeError::Json {
        what,
        line: error.line(),
        column: error.column(),
        why: error.to_string().trim_end_matches(&place).to_owned(),
    }
}

/// JSON of what nothing can refuse to write: no maps with odd keys.
pub(crate) fn to_json<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_default()
}
