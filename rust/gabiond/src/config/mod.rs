//! The configuration: one YAML file, and `GABION_*` environment variables on top of it.
//!
//! I own reading, checking and typing of everything an operator may set. I promise that a
//! configuration is taken whole or not at all, that every fault is reported at once with its place,
//! and that no number is ever truncated. I never open a socket.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gabion_discovery::kubernetes::Watched;
use gabion_driver::ClusterId;
use gabion_rule::attributes::Attributes;
use gabion_rule::policy::yaml;
use gabion_rule::policy::FlagSpec;
use gabion_rule::policy::{MapReader, PolicyError, Problems};
use gabion_rule::RuleTable;
use gabion_wire::KeyRing;

use crate::limits;

mod answers;
mod discovery;
mod env;
mod error;
mod files;
mod listen;
mod observe;
mod read;
mod reference;
mod rules_file;
mod schema;

pub use answers::{Answers, When};
pub use env::Variables;
pub use error::ConfigError;
pub(crate) use files::read_bounded;
pub use files::AdminToken;
pub use listen::{Bind, Server, Tls};
pub use reference::{read_directory, Directory, Reading};

/// Everything gabiond runs on.
#[derive(Debug)]
pub struct Config {
    /// Where the rate-limit service listens.
    pub envoy_bind: Bind,
    /// Where the admin server listens; `None`: nowhere.
    pub admin_bind: Option<Bind>,
    /// Where `POST /json` is answered; `None`: nowhere.
    pub json_bind: Option<Bind>,
    /// Bounds of the gRPC port.
    pub server: Server,
    /// Certificates of the gRPC port; `None`: plain text.
    pub tls: Option<Tls>,
    /// Certificates of the admin port; `None`: plain text.
    pub admin_tls: Option<Tls>,
    /// The certificates of the JSON port.
    pub json_tls: Option<Tls>,
    /// The rules.
    pub rules: RuleTable,
    /// What is derived from a request before rules look at it.
    pub attributes: Attributes,
    /// The flags that rules may name.
    pub flags: Vec<FlagSpec>,
    /// What answers carry beside the verdict.
    pub answers: Answers,
    /// Time that open calls get at shutdown.
    pub drain_timeout: Duration,
    /// Gossip; `None`: this member counts alone.
    pub gossip: Option<Gossip>,
    /// Where counters live.
    pub storage: Storage,
    /// Threads and seeds.
    pub runtime: Runtime,
    /// The log.
    pub log: Log,
    /// What is shown of single decisions.
    pub observe: Observe,
    /// Where calls are traced; `None`: nowhere.
    pub traces: Option<Traces>,
    /// What a writing admin request must bring; `None`: no token is set.
    pub admin_token: Option<AdminToken>,
    /// Files and directories whose change means another configuration.
    pub watched: Vec<PathBuf>,
    /// What an operator should know about this configuration.
    pub notices: Vec<String>,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
    /// `key=value` pairs.
    Logfmt,
}

impl LogFormat {
    /// The words by which it is set.
    pub const WORDS: [&'static str; 3] = ["text", "json", "logfmt"];

    /// The form of that word.
    pub fn of(word: &str) -> Option<Self> {
        match word {
            "text" => Some(LogFormat::Text),
            "json" => Some(LogFormat::Json),
            "logfmt" => Some(LogFormat::Logfmt),
            _ => None,
        }
    }
}

/// The log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Log {
    /// How lines look.
    pub format: LogFormat,
}

/// Where traces go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traces {
    /// An OTLP collector, `http://HOST:PORT`, spoken to by gRPC.
    pub endpoint: String,
    /// Of calls that bring no trace, one in so many is traced.
    pub sample_every: u32,
}

/// What is shown of single decisions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observe {
    /// Whether `/keys` knows any.
    pub keys: bool,
    /// One in so many decisions is looked at closely.
    pub sample: u32,
    /// Whether values of descriptors are shown; else a hash of them is.
    pub values_shown: bool,
    /// Logged denials per rule and second; 0 = none.
    pub denials_per_second: u16,
    /// Rules that get metric series of their own.
    pub rule_series: usize,
    /// Values of descriptors with metric series of their own.
    pub value_series: usize,
}

impl Default for Observe {
    fn default() -> Self {
        Self {
            keys: true,
            sample: limits::SAMPLE_DEFAULT,
            values_shown: true,
            denials_per_second: limits::DENIALS_DEFAULT,
            rule_series: limits::RULE_SERIES_DEFAULT,
            value_series: limits::VALUE_SERIES_DEFAULT,
        }
    }
}

/// How this member talks to the others.
#[derive(Debug)]
pub struct Gossip {
    /// Where the one UDP socket is bound.
    pub bind: SocketAddr,
    /// The cluster.
    pub cluster: ClusterId,
    /// Keys that sign frames; `None`: frames are not signed.
    pub keys: Option<KeyRing>,
    /// Secret of the counters' keys; `None`: derived from the cluster id.
    pub key_secret: Option<[u8; 16]>,
    /// What the protocol machine runs on.
    pub tunables: gabion_node::Tunables,
    /// Error budget of rules that name none, parts per million.
    pub error_budget_ppm: Option<u32>,
    /// Who the peers are.
    pub discovery: Discovery,
}

/// Who the peers are. Several sources are united.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Discovery {
    /// Addresses.
    pub addresses: Vec<SocketAddr>,
    /// `name:port` to be resolved again and again.
    pub dns: Option<(String, u16)>,
    /// A file with one address per line.
    pub file: Option<PathBuf>,
    /// What to watch in Kubernetes.
    pub kubernetes: Option<Kubernetes>,
    /// This member's own address as the others see it.
    pub self_addr: Option<SocketAddr>,
}

/// Discovery by the EndpointSlices of Kubernetes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kubernetes {
    /// Namespaces, Services and the port.
    pub watched: Watched,
    /// Endpoints that are taken for peers at most; `None`: as many as the node has room for.
    pub peers_max: Option<usize>,
}

/// Where counters live, and what one request may carry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Storage {
    /// Memory of the counter table, bytes.
    pub table_bytes: u64,
    /// Counters of each unit for limits that requests bring; 0: such limits are ignored; `None`: as
    /// many as fit well.
    pub override_cardinality: Option<u32>,
    /// Descriptors of one request that are looked at.
    pub max_descriptor_count: usize,
    /// Bytes of keys and values that one request may carry; more is answered OVER_LIMIT.
    pub max_descriptor_bytes: u64,
    /// Bytes of keys and values of one descriptor; a longer one is skipped.
    pub max_key_bytes: u64,
}

/// Threads and seeds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Runtime {
    /// Threads that serve gRPC; `None`: one per core.
    pub worker_threads: Option<usize>,
    /// Seed of gossip's random choices; `None`: the system's entropy.
    pub rng_seed: Option<u64>,
    /// Seed of the node id; `None`: random at every start.
    pub node_id_seed: Option<String>,
    /// For tests: how far this host's clock is ahead at the start, nanoseconds, at most an hour.
    pub clock_ahead_ns: u64,
    /// Which part of strict rules this member has, from 0; `None`: none.
    pub member_place: Option<u32>,
}

impl Config {
    /// Reads a configuration file and lays the environment over it. A registry's TOML file stands
    /// for a configuration that has no more than its rules.
    ///
    /// # Errors
    /// [`ConfigError`] with every fault that can be found at once. Nothing has changed then.
    pub fn load(path: &Path, variables: &Variables) -> Result<Config, ConfigError> {
        let bytes = files::read_config(path)?;
        let name = path.display().to_string();
        let root = match rules_file::is_alone(path) {
            Some(named) => yaml::parse(&name, &named),
            None => yaml::parse_bytes(&name, &bytes),
        };
        let root = root.map_err(ConfigError::Faults)?;
        let base = path.parent().unwrap_or(Path::new(""));
        let mut config = Self::from_tree(&name, base, root, variables)?;
        config.watched.push(path.to_owned());
        Ok(config)
    }

    /// A configuration that has no file: the environment says all, such as where the files of the
    /// reference service are.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn without_file(variables: &Variables) -> Result<Config, ConfigError> {
        Self::parse("no configuration file", "", variables)
    }

    /// Reads a configuration from text, as [`Config::load`] does from a file.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn parse(name: &str, text: &str, variables: &Variables) -> Result<Config, ConfigError> {
        let root = yaml::parse(name, text).map_err(ConfigError::Faults)?;
        Self::from_tree(name, Path::new(""), root, variables)
    }

    fn from_tree(
        name: &str,
        base: &Path,
        mut root: yaml::Node,
        variables: &Variables,
    ) -> Result<Config, ConfigError> {
        let notices = variables.lay_over(&mut root).map_err(ConfigError::Faults)?;
        let problems = Problems::new(name);
        let read = MapReader::new(&root, "", &problems)
            .and_then(|map| read::config(map, base, &problems, notices));
        match read {
            Some(config) if problems.is_empty() => Ok(config),
            _ => Err(ConfigError::Faults(
                variables.name_origins(problems.into_errors()),
            )),
        }
    }
}

/// The faults as an operator reads them, one per line.
pub(crate) fn lines(faults: &[PolicyError]) -> String {
    faults
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("\n")
}
