//! The room's error: a directive that cannot be taken.
//!
//! I own the form of every message of `nginx -t`: directive, value, what is wrong, what to write.
//! I never hold state: a configuration is taken whole or not at all, and the one in force stays.

use thiserror::Error;

/// Why a configuration was refused. What is in force stays in force.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("\"{directive}\"{}: {why}", shown(value))]
pub struct ConfError {
    /// The directive.
    pub directive: String,
    /// The value that is wrong; empty when the directive as a whole is.
    pub value: String,
    /// What is wrong, and what to write instead.
    pub why: String,
}

fn shown(value: &str) -> String {
    match value {
        "" => String::new(),
        _ => format!(" value \"{value}\""),
    }
}

impl ConfError {
    /// An error about one value.
    pub fn new(directive: &str, value: impl Into<String>, why: impl Into<String>) -> Self {
        ConfError {
            directive: directive.to_owned(),
            value: value.into(),
            why: why.into(),
        }
    }
}
