//! What can go wrong while peers are looked for, and how it is reported.
//!
//! I own the room's error enum and its thinning. I promise that no error ends a stream of peer
//! sets: the last good set stays in force. I never report the same problem over and over.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tokio::time::Instant;

use crate::health::Health;
use crate::limits::{
    MAX_FILE_BYTES, MAX_PEERS, MAX_TEXT_CHARS, REPORT_ADVICE_AGAIN_MS, REPORT_AGAIN_MS,
};

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
    /// A word is no name that Kubernetes would take.
    #[error("{text:?} is no {what}: {advice}")]
    NotAName {
        /// What it should name.
        what: &'static str,
        /// The word, shortened.
        text: String,
        /// How to write one.
        advice: &'static str,
    },
    /// Settings of Kubernetes that do not fit together.
    #[error("{why}")]
    Watched {
        /// What does not fit, and what to do.
        why: String,
    },
    /// It is not known where the API server is, or how to speak to it.
    #[error("Kubernetes: {why}; the last peers stay; it is tried again within seconds")]
    Access {
        /// What is missing, and what to do.
        why: String,
    },
    /// The API server gives no answer that can be used.
    #[error(
        "Kubernetes API server {server}, namespace {namespace}: {why}; the last peers stay; it is \
         tried again within seconds"
    )]
    Server {
        /// What kind of failure, as in the metrics.
        kind: &'static str,
        /// Its address.
        server: String,
        /// Whose slices were asked for.
        namespace: String,
        /// What happened.
        why: String,
    },
    /// The API server knows this member and lets it see nothing.
    #[error(
        "Kubernetes lets this member watch no EndpointSlices in namespace {namespace} ({why}); the \
         last peers stay; it is tried again within seconds. Give this to kubectl apply -f - \
         (if the namespace is the right one)\n{role}"
    )]
    Forbidden {
        /// The namespace.
        namespace: String,
        /// What the server said.
        why: String,
        /// The Role and the RoleBinding that are missing, as YAML.
        role: String,
    },
    /// Services that have no EndpointSlice.
    #[error(
        "Kubernetes: no EndpointSlice of {services} in {namespaces}; check these names (kubectl \
         get endpointslices -n NAMESPACE), that the namespace exists, and that the Service selects \
         the members' pods"
    )]
    NoService {
        /// The Services.
        services: String,
        /// Where they were looked for.
        namespaces: String,
    },
    /// Services whose slices lack the port of gossip.
    #[error(
        "Kubernetes: {services} lacks the port {port} and has {found}; add {{name: gossip, port: \
         7946, protocol: UDP}} to spec.ports of the members' Service, or name another port \
         (gossip_port)"
    )]
    NoPort {
        /// The Services.
        services: String,
        /// The port that is looked for.
        port: String,
        /// The ports of the first of them.
        found: String,
    },
    /// More endpoints than there is room for peers.
    #[error(
        "Kubernetes: {found} endpoints are more than the {capacity} peers that have room; the \
         highest addresses are left out. Most are of {largest}: name the members' Services \
         (service_allow), so that no others are taken for members"
    )]
    TooManyEndpoints {
        /// Endpoints found.
        found: usize,
        /// Peers that have room.
        capacity: usize,
        /// The Service that most of them belong to.
        largest: String,
    },
    /// More peers than a set may hold.
    #[error("{found} peers are more than {MAX_PEERS}; the highest addresses are left out")]
    TooMany {
        /// Peers found.
        found: usize,
    },
}

impl DiscoveryError {
    /// The kind, as metrics name it.
    pub fn kind(&self) -> &'static str {
        match self {
            DiscoveryError::File { .. } => "file",
            DiscoveryError::Line { .. } => "line",
            DiscoveryError::NotText { .. } => "not_text",
            DiscoveryError::NoName { .. }
            | DiscoveryError::NotAName { .. }
            | DiscoveryError::Watched { .. } => "name",
            DiscoveryError::Resolve { .. } => "resolve",
            DiscoveryError::NoAddress { .. } => "no_address",
            DiscoveryError::Access { .. } => "access",
            DiscoveryError::Server { kind, .. } => kind,
            DiscoveryError::Forbidden { .. } => "forbidden",
            DiscoveryError::NoService { .. } => "no_service",
            DiscoveryError::NoPort { .. } => "no_port",
            DiscoveryError::TooManyEndpoints { .. } | DiscoveryError::TooMany { .. } => "too_many",
        }
    }

    /// How long the same problem is not told again; a long text of advice is worth reading once.
    fn again(&self) -> Duration {
        Duration::from_millis(match self {
            DiscoveryError::Forbidden { .. } => REPORT_ADVICE_AGAIN_MS,
            _ => REPORT_AGAIN_MS,
        })
    }
}

/// A text from outside as it may stand in a message: on one line, and not for ever.
pub(crate) fn shown(text: &str) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    text.trim()
        .chars()
        .map(plain)
        .take(MAX_TEXT_CHARS)
        .collect()
}

/// The cause at the bottom of an error, and what stands above it: the layers on top say less.
pub(crate) fn deepest(error: &(dyn std::error::Error + 'static)) -> String {
    let mut texts = vec![error.to_string()];
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if texts.last() != Some(&text) {
            texts.push(text);
        }
        cause = error.source();
    }
    let last = texts.len().saturating_sub(2);
    // The upper one often repeats the lower one.
    match &texts[last..] {
        [upper, lower] if !upper.contains(lower.as_str()) => shown(&format!("{upper}: {lower}")),
        rest => shown(rest.first().map_or("", String::as_str)),
    }
}

/// Where problems go. Called at most once a minute for the same problem of one source.
pub type Report = Arc<dyn Fn(&DiscoveryError) + Send + Sync>;

/// The default: a line in the log.
pub(crate) fn to_log() -> Report {
    Arc::new(|error| tracing::warn!(target: "gabion::discovery", "{error}"))
}

/// Counts each problem, and reports it when it is new, or when it has lasted for another minute.
pub(crate) struct Thinned {
    report: Report,
    health: Health,
    last: Option<(DiscoveryError, Instant)>,
}

impl Thinned {
    pub(crate) fn new(report: Report, health: Health) -> Self {
        Thinned {
            report,
            health,
            last: None,
        }
    }

    pub(crate) fn report(&mut self, error: DiscoveryError) {
        self.health.failed(error.kind());
        let now = Instant::now();
        let again = error.again();
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
