//! Why a scenario could not be carried out.

use std::path::PathBuf;

use gabion_loader::local::LocalError;
use gabion_netlab::LabError;

/// What kept a scenario, or the control plane, from its end. What was started is ended then.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SuiteError {
    /// The network, a member, or load on it.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// A program of the control plane did not start, or ended.
    #[error(transparent)]
    Local(#[from] LocalError),
    /// The API refused a request, or could not be reached.
    #[error("{request}: {source}")]
    Api {
        /// Method and path.
        request: String,
        /// What the client said.
        source: Box<kube::Error>,
    },
    /// A kubeconfig that says too little. Correct the file that is named.
    #[error("{path}: {why}")]
    Kubeconfig {
        /// Which one.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Certificates could not be made. Nothing was started.
    #[error("certificates: {0}")]
    Certificates(#[from] rcgen::Error),
    /// kubectl refused a manifest; what the server said is in the text.
    #[error("{refused} of {all} files were refused")]
    Refused {
        /// How many.
        refused: usize,
        /// Of how many.
        all: usize,
    },
    /// Something that must be so is not.
    #[error("{0}")]
    Odd(String),
    /// The system.
    #[error("the system: {0}")]
    Io(#[from] std::io::Error),
}

impl SuiteError {
    /// For `map_err` on whatever says why it refuses.
    pub(crate) fn odd(why: impl std::fmt::Display) -> SuiteError {
        SuiteError::Odd(why.to_string())
    }

    /// Whether the API answered with this status.
    pub fn is_status(&self, code: u16) -> bool {
        match self {
            SuiteError::Api { source, .. } => {
                matches!(source.as_ref(), kube::Error::Api(status) if status.code == code)
            }
            _ => false,
        }
    }
}
