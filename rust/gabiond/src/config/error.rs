//! Why a configuration was refused. Nothing changed: what was in force stays in force.

use std::io;

use gabion_rule::policy::PolicyError;
use thiserror::Error;

use super::lines;

/// Why a configuration was refused; each message is complete, with what to do next.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{path}: the file cannot be read: {error}. Check that it exists and who may read it")]
    Unreadable {
        /// The file.
        path: String,
        /// What the system says.
        error: io::Error,
    },
    /// It is not a file.
    #[error("{path}: this is {what}, not a file; name the YAML file in it")]
    NotAFile {
        /// The path.
        path: String,
        /// What it is.
        what: &'static str,
    },
    /// It is too large to be a configuration.
    #[error("{path}: {bytes} bytes are more than the {most} a configuration may have")]
    TooLarge {
        /// The path.
        path: String,
        /// Its size.
        bytes: u64,
        /// The most that is read.
        most: u64,
    },
    /// Faults inside, each with its place, in order.
    #[error("{}", lines(.0))]
    Faults(Vec<PolicyError>),
}
