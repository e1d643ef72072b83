//! The directives of the `http` level: what the whole instance is.
//!
//! I own names, ranges and defaults of all directives but those of a location. I promise that a
//! wrong value is refused with directive, value and fix, that a directive written twice is, too,
//! and that a setting which other limiters have and this design does not need is accepted once it
//! is well-formed, with a notice. I read the files that directives name; nothing else.

mod kubernetes;
mod unneeded;
mod values;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;

use gabion_discovery::DnsPeers;
use gabion_driver::ClusterId;
use gabion_node::Fanout;
use gabion_rule::attributes::Attributes;
use gabion_rule::limits::MAX_FLAGS;
use gabion_rule::policy::FlagSpec;
use gabion_rule::{policy, Place, Rule, Share};
use gabion_wire::KeyRing;

use crate::error::ConfError;
use crate::files;
use crate::limits::{
    BINDS_MAX, DESCRIPTOR_BYTES_DEFAULT, DESCRIPTOR_BYTES_MAX, KEY_BYTES_DEFAULT, RULES_MAX,
    ZONES_MAX, ZONE_BYTES_MAX, ZONE_BYTES_MIN,
};
use crate::words::{rule_words, RuleWords};

use kubernetes::is_kubernetes;
pub use kubernetes::Kubernetes;
use unneeded::is_unneeded;
use values::{address, duration, number, one, size_of};

const MS_NS: u64 = 1_000_000;
const HOUR_NS: u64 = 3_600_000 * MS_NS;

/// One `gabion_limit_zone`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneWords {
    /// Name.
    pub name: String,
    /// Size of the shared memory.
    pub bytes: u64,
}

/// One `gabion_bind`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bind {
    /// The attribute.
    pub key: String,
    /// nginx text with variables.
    pub template: String,
    /// Where it was written.
    pub place: Place,
}

/// What levels name, before there are rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Named {
    /// `gabion_domain`.
    pub domains: BTreeSet<String>,
    /// `gabion_limit`.
    pub rules: BTreeSet<String>,
}

/// The settings of one configuration.
#[derive(Debug)]
pub struct Settings {
    /// In the order of the file; the first is the default.
    pub zones: Vec<ZoneWords>,
    /// In the order of the file.
    pub rules: Vec<RuleWords>,
    /// Rules of `gabion_rules_file`.
    pub file_rules: Vec<Rule>,
    /// Flags that rules may name: of `gabion_flag` and of the file.
    pub flags: Vec<FlagSpec>,
    /// Attributes that the file derives.
    pub attributes: Attributes,
    /// Where attributes come from, in the order of the file.
    pub binds: Vec<Bind>,
    /// Rules and domains that levels name, to know whose attributes are asked for.
    pub named: Named,
    /// Where gossip listens; without it the instance counts alone.
    pub bind: Option<SocketAddr>,
    /// Cluster the instance belongs to.
    pub cluster: Option<ClusterId>,
    /// Keys that sign frames.
    pub keys: Option<KeyRing>,
    /// Secret of the counters' keys.
    pub key_secret: Option<[u8; 16]>,
    /// Error budget for rules that name none, in parts per million.
    pub error_budget_ppm: Option<u32>,
    /// The node's tunables.
    pub tunables: gabion_node::Tunables,
    /// `gabion_peers`.
    pub peers: Vec<SocketAddr>,
    /// `gabion_peers_file`.
    pub peers_file: Option<PathBuf>,
    /// `gabion_discovery_dns`.
    pub dns: Option<(String, u16)>,
    /// `gabion_discovery_kubernetes` and its kin.
    pub kubernetes: Kubernetes,
    /// `gabion_discovery_self_addr`.
    pub self_addr: Option<SocketAddr>,
    /// `gabion_node_id_seed`.
    pub node_id_seed: Option<String>,
    /// `gabion_runtime_member_place`: which part of strict rules this member has.
    pub member_place: Option<u32>,
    /// `gabion_runtime_rng_seed`.
    pub rng_seed: Option<u64>,
    /// Longest value that is counted, bytes.
    pub key_bytes_max: u64,
    /// Longest descriptors of one request, bytes.
    pub descriptor_bytes_max: u64,
    /// What the operator should know.
    pub notices: Vec<String>,
    seen: BTreeSet<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            zones: Vec::new(),
            rules: Vec::new(),
            file_rules: Vec::new(),
            flags: Vec::new(),
            attributes: Attributes::default(),
            binds: Vec::new(),
            named: Named::default(),
            bind: None,
            cluster: None,
            keys: None,
            key_secret: None,
            error_budget_ppm: None,
            tunables: gabion_node::Tunables::default(),
            peers: Vec::new(),
            peers_file: None,
            dns: None,
            kubernetes: Kubernetes::default(),
            self_addr: None,
            node_id_seed: None,
            member_place: None,
            rng_seed: None,
            key_bytes_max: KEY_BYTES_DEFAULT,
            descriptor_bytes_max: DESCRIPTOR_BYTES_DEFAULT,
            notices: Vec::new(),
            seen: BTreeSet::new(),
        }
    }
}

/// The directives that [`Settings::apply`] knows, for nginx's table of commands.
pub const DIRECTIVES: [&str; 40] = [
    "gabion_limit_zone",
    "gabion_limit_rule",
    "gabion_rules_file",
    "gabion_flag",
    "gabion_bind",
    "gabion_peers",
    "gabion_peers_file",
    "gabion_gossip_bind",
    "gabion_gossip_cluster",
    "gabion_gossip_tick_interval",
    "gabion_gossip_fanout",
    "gabion_gossip_target_err_bps",
    "gabion_gossip_min_emit_interval",
    "gabion_gossip_heartbeat_interval",
    "gabion_gossip_packets_per_second",
    "gabion_gossip_max_payload_bytes",
    "gabion_gossip_max_cells_per_frame",
    "gabion_gossip_max_cells_per_tick",
    "gabion_gossip_send_queue_capacity",
    "gabion_gossip_limit_queue_capacity",
    "gabion_auth_key_file",
    "gabion_key_secret_file",
    "gabion_discovery_dns",
    "gabion_discovery_self_addr",
    "gabion_discovery_kubernetes",
    "gabion_discovery_gossip_port",
    "gabion_discovery_namespace_allow",
    "gabion_discovery_service_allow",
    "gabion_storage_max_cells",
    "gabion_storage_rule_dictionary_capacity",
    "gabion_storage_node_dictionary_capacity",
    "gabion_storage_local_dirty_capacity",
    "gabion_storage_forwarded_dirty_capacity",
    "gabion_storage_peer_capacity",
    "gabion_storage_max_descriptor_count",
    "gabion_storage_max_descriptor_bytes",
    "gabion_storage_max_key_bytes",
    "gabion_runtime_rng_seed",
    "gabion_node_id_seed",
    "gabion_runtime_member_place",
];

impl Settings {
    /// Takes one directive.
    ///
    /// # Errors
    /// What is wrong with it; nothing was taken.
    pub fn apply(&mut self, name: &str, args: &[&str], place: Place) -> Result<(), ConfError> {
        let many = matches!(
            name,
            "gabion_limit_zone"
                | "gabion_limit_rule"
                | "gabion_peers"
                | "gabion_flag"
                | "gabion_bind"
        );
        if !many && !self.seen.insert(name.to_owned()) {
            let why = "it was given already; keep one of the two";
            return Err(ConfError::new(name, args.join(" "), why));
        }
        match name {
            "gabion_limit_zone" => self.zone(args),
            "gabion_limit_rule" => self.rule(args, place),
            "gabion_peers" => self.add_peers(args),
            "gabion_flag" => self.flag(args, place),
            "gabion_bind" => self.bind_key(args, place),
            "gabion_gossip_cluster" | "gabion_node_id_seed" | "gabion_runtime_rng_seed" => {
                self.identity(name, one(name, args)?)
            }
            _ if is_kubernetes(name) => self.kubernetes(name, args),
            _ if is_unneeded(name) => self.unneeded(name, args),
            _ if name.ends_with("_file") => self.file(name, one(name, args)?),
            _ => self.single(name, one(name, args)?),
        }
    }

    fn zone(&mut self, args: &[&str]) -> Result<(), ConfError> {
        let directive = "gabion_limit_zone";
        let bad = |value: &str, why: String| Err(ConfError::new(directive, value, why));
        let text = one(directive, args)?;
        let words = text.strip_prefix("zone=").and_then(|t| t.rsplit_once(':'));
        let Some((name, size)) = words.filter(|(name, _)| !name.is_empty()) else {
            return bad(text, "write zone=NAME:SIZE, such as zone=api:64m".into());
        };
        let bytes = size_of(directive, size, ZONE_BYTES_MIN..=ZONE_BYTES_MAX)?;
        if self.zones.iter().any(|zone| zone.name == name) {
            return bad(
                text,
                format!("the zone \"{name}\" exists already; rename one of them"),
            );
        }
        if self.zones.len() >= ZONES_MAX {
            return bad(
                text,
                format!("more than {ZONES_MAX} zones; put rules together in one"),
            );
        }
        let name = name.to_owned();
        self.zones.push(ZoneWords { name, bytes });
        Ok(())
    }

    fn rule(&mut self, args: &[&str], place: Place) -> Result<(), ConfError> {
        let words = rule_words(args, place)?;
        if self.rules.len() >= RULES_MAX {
            let why = format!("more than {RULES_MAX} rules");
            return Err(ConfError::new("gabion_limit_rule", &words.spec.name, why));
        }
        self.rules.push(words);
        Ok(())
    }

    fn flag(&mut self, args: &[&str], place: Place) -> Result<(), ConfError> {
        let bad = |why: String| ConfError::new("gabion_flag", args.join(" "), why);
        let form = "write gabion_flag NAME default=on, default=off or default=25%, and by=KEY \
                    for a share of that attribute's values";
        let form = || bad(form.to_owned());
        let (name, words) = args.split_first().ok_or_else(form)?;
        let (mut default, mut by) = (None, None);
        for word in words {
            match word.split_once('=') {
                Some(("default", text)) if default.is_none() => {
                    default = Some(text.parse().map_err(|e| bad(format!("{e}")))?);
                }
                Some(("by", key)) if by.is_none() && !key.is_empty() => by = Some(key.to_owned()),
                _ => return Err(form()),
            }
        }
        if name.contains('=') || name.is_empty() {
            return Err(form());
        }
        let flag = FlagSpec {
            name: (*name).to_owned(),
            default: default.unwrap_or(Share::ON),
            by,
            place: Some(place),
        };
        self.declare(flag).map_err(bad)
    }

    fn bind_key(&mut self, args: &[&str], place: Place) -> Result<(), ConfError> {
        let bad = |why: String| Err(ConfError::new("gabion_bind", args.join(" "), why));
        let [key, template] = args else {
            return bad(
                "write gabion_bind KEY $variable, or a text with variables in quotes".into(),
            );
        };
        if key.is_empty() || key.contains('$') {
            return bad("the attribute's name comes first: gabion_bind KEY $variable".into());
        }
        if self.binds.iter().any(|bind| bind.key == *key) {
            return bad(format!("\"{key}\" is bound already; keep one of the two"));
        }
        if self.binds.len() >= BINDS_MAX {
            return bad(format!("more than {BINDS_MAX} attributes"));
        }
        self.binds.push(Bind {
            key: (*key).to_owned(),
            template: (*template).to_owned(),
            place,
        });
        Ok(())
    }

    fn declare(&mut self, flag: FlagSpec) -> Result<(), String> {
        let name = &flag.name;
        if self.flags.iter().any(|other| other.name == *name) {
            return Err(format!(
                "the flag \"{name}\" is declared already; keep one of the two"
            ));
        }
        if self.flags.len() >= MAX_FLAGS {
            return Err(format!("more than {MAX_FLAGS} flags"));
        }
        self.flags.push(flag);
        Ok(())
    }

    fn add_peers(&mut self, args: &[&str]) -> Result<(), ConfError> {
        for text in args {
            match text.parse::<SocketAddr>() {
                Ok(addr) if addr.port() != 0 => self.peers.push(addr),
                _ => {
                    let why = "it is no address with a port; write 10.0.0.7:7946 or [::1]:7946 \
                               (for names: gabion_discovery_dns)";
                    return Err(ConfError::new("gabion_peers", *text, why));
                }
            }
        }
        Ok(())
    }

    fn identity(&mut self, name: &str, text: &str) -> Result<(), ConfError> {
        let bad = |why: String| ConfError::new(name, text, why);
        match name {
            "gabion_gossip_cluster" => {
                let id = ClusterId::parse(text).map_err(|e| bad(e.to_string()))?;
                self.cluster = Some(id);
            }
            "gabion_runtime_rng_seed" => {
                self.rng_seed = Some(number(name, text, 0..=u64::MAX)?);
            }
            _ if text.is_empty() => {
                return Err(bad("it is empty; leave it out for a random node id".into()))
            }
            _ => self.node_id_seed = Some(text.to_owned()),
        }
        Ok(())
    }

    fn file(&mut self, name: &str, path: &str) -> Result<(), ConfError> {
        let bad = |why: String| ConfError::new(name, path, why);
        match name {
            "gabion_auth_key_file" => {
                self.keys = Some(files::key_ring(path).map_err(bad)?);
                self.notices.extend(files::open_to_all(path));
            }
            "gabion_key_secret_file" => {
                self.key_secret = Some(files::key_secret(path).map_err(bad)?);
                self.notices.extend(files::open_to_all(path));
            }
            "gabion_peers_file" => self.peers_file = Some(PathBuf::from(path)),
            _ => {
                let text = files::rules_text(path).map_err(bad)?;
                let read = policy::parse_file(path, &text).map_err(|errors| {
                    let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
                    bad(lines.join("; "))
                })?;
                self.notices
                    .extend(read.notices.iter().map(ToString::to_string));
                for flag in read.flags {
                    self.declare(flag).map_err(bad)?;
                }
                self.attributes = read.attributes;
                self.file_rules = read.rules;
            }
        }
        Ok(())
    }

    fn single(&mut self, name: &str, text: &str) -> Result<(), ConfError> {
        let bytes = 1..=DESCRIPTOR_BYTES_MAX;
        match name {
            "gabion_gossip_bind" => self.bind = Some(address(name, text)?),
            "gabion_discovery_self_addr" => self.self_addr = Some(address(name, text)?),
            "gabion_discovery_dns" => {
                DnsPeers::parse(text).map_err(|e| ConfError::new(name, text, e.to_string()))?;
                let parts = text.rsplit_once(':');
                self.dns = parts.and_then(|(host, port)| Some((host.into(), port.parse().ok()?)));
            }
            "gabion_gossip_target_err_bps" => {
                let bps = u32::try_from(number(name, text, 1..=10_000)?).unwrap_or(10_000);
                self.error_budget_ppm = Some(bps * 100);
            }
            "gabion_gossip_min_emit_interval" => {
                let range = MS_NS / 10..=HOUR_NS;
                self.tunables.min_emit_interval_ns = duration(name, text, range)?;
            }
            "gabion_gossip_heartbeat_interval" => {
                let range = 10 * MS_NS..=60_000 * MS_NS;
                self.tunables.heartbeat_ns = duration(name, text, range)?;
            }
            "gabion_gossip_fanout" => {
                self.tunables.fanout = match text {
                    "auto" => Fanout::Auto,
                    "mesh" => Fanout::Mesh,
                    _ => Fanout::of_number(size_of(name, text, 0..=u64::from(u32::MAX))?),
                };
            }
            "gabion_gossip_packets_per_second" => {
                self.tunables.packets_per_second = number(name, text, 10..=1_000_000)?;
            }
            "gabion_storage_max_cells" => {
                let cells = size_of(name, text, 1_024..=1 << 31)?;
                let cells = u32::try_from(cells).unwrap_or(1 << 31);
                self.tunables.max_cells = cells;
                self.tunables.max_chunks = cells.saturating_mul(2);
            }
            "gabion_storage_max_descriptor_bytes" => {
                self.descriptor_bytes_max = size_of(name, text, bytes)?;
            }
            "gabion_runtime_member_place" => {
                let place = number(name, text, 0..=65_534)?;
                self.member_place = u32::try_from(place).ok();
            }
            "gabion_storage_max_key_bytes" => self.key_bytes_max = size_of(name, text, bytes)?,
            _ => {
                return Err(ConfError::new(
                    name,
                    text,
                    "it is no directive of this version",
                ));
            }
        }
        Ok(())
    }

    /// Checks what only the whole shows, and says what an operator should know.
    ///
    /// # Errors
    /// A combination that cannot work.
    pub fn finish(&mut self) -> Result<(), ConfError> {
        if self.zones.is_empty() && !(self.rules.is_empty() && self.file_rules.is_empty()) {
            let why = "there are rules and no zone that holds their counters; write \
                       gabion_limit_zone zone=gabion:16m";
            return Err(ConfError::new("gabion_limit_zone", "", why));
        }
        self.finish_kubernetes()?;
        let discovers = !self.peers.is_empty() || self.dns.is_some() || self.peers_file.is_some();
        let Some(bind) = self.bind else {
            if discovers {
                let why = "peers are named and gossip has no address of its own; write \
                           gabion_gossip_bind 0.0.0.0:7946";
                return Err(ConfError::new("gabion_gossip_bind", "", why));
            }
            return Ok(());
        };
        let mut say = |text: &str| self.notices.push(text.to_owned());
        if self.cluster.is_none() {
            say(
                "gabion_gossip_cluster is not set; \"gabion\" is used. Give each cluster its own, \
                 so that two of them never share counters",
            );
        }
        if !discovers && !self.kubernetes.is_on() {
            say(
                "no peers are configured (gabion_peers, gabion_peers_file, gabion_discovery_dns \
                 or gabion_discovery_kubernetes); others are known only when they send",
            );
        }
        if !bind.ip().is_loopback() && self.keys.is_none() {
            say(
                "gossip is not authenticated: whoever can send UDP to its port can raise counts. \
                 Set gabion_auth_key_file on all members, or keep the port in a trusted network",
            );
        }
        if !bind.ip().is_loopback() && self.key_secret.is_none() {
            say(
                "counter keys are hashed under a secret that follows from the cluster id, so \
                 collisions are computable. Set gabion_key_secret_file on all members",
            );
        }
        Ok(())
    }

    /// The cluster, or the default one.
    pub fn cluster(&self) -> ClusterId {
        match &self.cluster {
            Some(id) => id.clone(),
            None => ClusterId::parse("gabion").unwrap_or_else(|_| ClusterId::from_hash(0)),
        }
    }
}

#[cfg(test)]
mod tests;
