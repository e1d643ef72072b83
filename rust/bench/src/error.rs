//! Why a figure could not be measured.

use thiserror::Error;

/// Why a measurement did not come about. Nothing outlives it: children are ended, folders removed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BenchError {
    /// A program that is needed is not there, or failed.
    #[error("{program}: {what}")]
    Tool {
        /// Which one.
        program: String,
        /// What happened, and what to do.
        what: String,
    },
    /// A part of the product refused to start.
    #[error("{part} did not start: {why}")]
    Start {
        /// Which part.
        part: &'static str,
        /// Its own words.
        why: String,
    },
    /// Something that must hold for the measurement to mean anything does not.
    #[error("the measurement is void: {0}")]
    Void(String),
    /// A member or another child.
    #[error(transparent)]
    Local(#[from] gabion_loader::local::LocalError),
    /// The system.
    #[error("the system: {0}")]
    Io(#[from] std::io::Error),
    /// gRPC.
    #[error("gRPC: {0}")]
    Status(#[from] tonic::Status),
    /// A gRPC connection.
    #[error("gRPC connection: {0}")]
    Transport(#[from] tonic::transport::Error),
}

impl BenchError {
    /// For `map_err` on a part of the product.
    pub(crate) fn start<E: std::fmt::Display>(part: &'static str) -> impl FnOnce(E) -> BenchError {
        move |e| BenchError::Start {
            part,
            why: e.to_string(),
        }
    }
}
