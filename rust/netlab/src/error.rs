//! Why a scenario could not be carried out.

/// What kept a scenario from its end. Namespaces and processes of it are gone when this is shown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// The program is in the machine's own network. Nothing was changed; start it by
    /// `tools/netlab`.
    #[error(
        "this is not a network of its own (it has the interface {0}); run ./tools/netlab, which \
         makes one"
    )]
    Outside(String),
    /// A tool that sets up the network failed, or is not there.
    #[error("`{command}` failed: {what}")]
    Tool {
        /// The whole command.
        command: String,
        /// What it said, and what to do.
        what: String,
    },
    /// Something that must come did not come in time.
    #[error("not within {seconds} s: {what}")]
    Late {
        /// What was waited for, and how far it came.
        what: String,
        /// For how long.
        seconds: u64,
    },
    /// An answer that says too little, or a plan that the load generator refuses.
    #[error("{0}")]
    Odd(String),
    /// A member did not start, or ended.
    #[error(transparent)]
    Local(#[from] gabion_loader::local::LocalError),
    /// The system.
    #[error("the system: {0}")]
    Io(#[from] std::io::Error),
    /// gRPC.
    #[error("gRPC: {0}")]
    Status(Box<tonic::Status>),
}

impl From<tonic::Status> for LabError {
    fn from(status: tonic::Status) -> LabError {
        LabError::Status(Box::new(status))
    }
}

impl LabError {
    /// For `map_err` on whatever says why it refuses.
    pub(crate) fn odd(why: impl std::fmt::Display) -> LabError {
        LabError::Odd(why.to_string())
    }
}
