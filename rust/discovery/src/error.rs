//! What can go wrong while peers are looked for, and how it is reported.
//!
//! I own the room's error enum and its thinning. I promise that no error ends a stream of peer
//! sets: the last good set stays in force. I never report the same problem over and over.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tokio::time::Instant;

use crate::limits::{MAX_FILE_BYTES, MAX_PEERS, REPORT_AGAIN_MS};

/// Why a look for peers gave nothing new. The last good peer set stays in force.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DiscoveryError {
    /// The peer file cannot be read.
    #[error(
        "peer file {}: {why}; the last peers stay; it is tried again every second",
        path.display()
    )]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        why: String,
    },
    /// A line of the peer file is no address.
    #[error(
        "peer file {}:{line}: {text:?} is no address with a port, write 10.0.0.7:7946 or \
         [::1]:7946 ({others} more such lines); the last peers stay until the file is right",
        path.display()
    )]
    Line {
        /// The file.
        path: PathBuf,
        /// First bad line, from 1.
        line: usize,
        /// Its text, shortened.
        text: String,
        /// Bad lines after it.
        others: usize,
    },
    /// The peer file is not text, or too large.
    #[error(
        "peer file {}: it is not UTF-8 text of at most {MAX_FILE_BYTES} bytes; the last peers stay",
        path.display()
    )]
    NotText {
        /// The file.
        path: PathBuf,
    },
    /// The text is no `name:port`.
    #[error("{text:?} is no name with a port, write gabion.example:7946")]
    NoName {
        /// The text.
        text: String,
    },
    /// A name could not be resolved, or only in part.
    #[error("name {name}: {why}; the last peers stay; it is tried again within seconds")]
    Resolve {
        /// The name.
        name: String,
        /// What the resolver said.
        why: String,
    },
    /// A name that had addresses has none any more.
    #[error("name {name}: the answer is that it has no address; check the name or its service")]
    NoAddress {
        /// The name.
        name: String,
    },
    /// More peers than a set may hold.
    #[error("{found} peers are more than {MAX_PEERS}; the highest addresses are left out")]
    TooMany {
        /// Peers found.
        found: usize,
    },
}

/// Where problems go. Called at most once a minute for the same problem of one source.
pub type Report = Arc<dyn Fn(&DiscoveryError) + Send + Sync>;

/// The default: a line in the log.
pub(crate) fn to_log() -> Report {
    Arc::new(|error| tracing::warn!(target: "gabion::discovery", "{error}"))
}

/// Reports a problem when it is new, or when it has lasted for another minute.
pub(crate) struct Thinned {
    report: Report,
    last: Option<(DiscoveryError, Instant)>,
}

impl Thinned {
    pub(crate) fn new(report: Report) -> Self {
        Thinned { report, last: None }
    }

    pub(crate) fn report(&mut self, error: DiscoveryError) {
        let now = Instant::now();
        let again = Duration::from_millis(REPORT_AGAIN_MS);
        match &self.last {
            Some((last, at)) if *last == error && now.duration_since(*at) < again => {}
            _ => {
                (self.report)(&error);
                self.last = Some((error, now));
            }
        }
    }

    /// All is well: the next problem is new, whatever it is.
    pub(crate) fn clear(&mut self) {
        self.last = None;
    }
}
