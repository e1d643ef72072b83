//! From the located tree to typed settings, section by section.
//!
//! Faults go to `Problems` and reading goes on, so that an operator sees all of them at once.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use gabion_driver::ClusterId;
use gabion_rule::policy::{read_limits, MapReader, Policy, Problems};
use gabion_rule::{Rule, RuleTable};

use super::answers::answers;
use super::discovery::discovery;
use super::{
    files, listen, observe, reference, rules_file, Bind, Config, Discovery, Gossip, Runtime,
    Storage,
};
use crate::limits;

const ENVOY_BIND: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 8081);
const ADMIN_BIND: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9090);
pub(super) const ADDRESS_ADVICE: &str = "no address with a port from 0 to 65535; write \
     127.0.0.1:8081, [::1]:8081, or :8081 for every address";
const MS_NS: u64 = 1_000_000;
const HOUR_NS: u64 = 3_600_000 * MS_NS;

/// What an unneeded setting must look like, so that a slip in it does not pass.
#[derive(Clone, Copy)]
enum Kind {
    Count,
    Time,
}

/// Settings of gossip that other limiters have and this design does not need, with why.
const UNNEEDED_GOSSIP: [(&str, Kind, &str); 6] = [
    (
        "tick_interval",
        Kind::Time,
        "the driver looks every 1 to 10 ms by itself",
    ),
    (
        "max_payload_bytes",
        Kind::Count,
        "a frame has at most 1,200 bytes",
    ),
    (
        "max_cells_per_frame",
        Kind::Count,
        "a frame is filled to its bytes",
    ),
    (
        "max_cells_per_tick",
        Kind::Count,
        "gossip is paced by error budget and packets_per_second",
    ),
    (
        "send_queue_capacity",
        Kind::Count,
        "there is no queue: dirty rows are marked in the table",
    ),
    (
        "limit_queue_capacity",
        Kind::Count,
        "there is no queue: remote totals go into the table",
    ),
];

/// The same for storage.
const UNNEEDED_STORAGE: [(&str, Kind, &str); 4] = [
    (
        "rule_dictionary_capacity",
        Kind::Count,
        "rules are indexed as they are",
    ),
    (
        "node_dictionary_capacity",
        Kind::Count,
        "the node's own bound holds 4,096 origins",
    ),
    (
        "local_dirty_capacity",
        Kind::Count,
        "dirty rows are marked in the table",
    ),
    (
        "forwarded_dirty_capacity",
        Kind::Count,
        "dirty rows are marked in the table",
    ),
];

pub(super) fn config(
    mut map: MapReader<'_, '_>,
    base: &Path,
    problems: &Problems,
    mut notices: Vec<String>,
) -> Option<Config> {
    let envoy_bind = listen::bind(&mut map, "envoy_bind").unwrap_or(ENVOY_BIND.into());
    let admin_bind = admin_bind(&mut map);
    let json_bind = listen::bind(&mut map, "json_bind");
    let server = listen::server(&mut map);
    let tls = listen::tls(&mut map, "tls");
    let admin_tls = listen::tls(&mut map, "admin_tls");
    let json_tls = listen::tls(&mut map, "json_tls");
    if json_tls.is_some() && json_bind.is_none() {
        map.problem("json_tls", "it does nothing without json_bind");
    }
    let drain_ns = map.duration_ns("drain_timeout", 0..=nanoseconds(limits::DRAIN_MAX));
    let answers = answers(&mut map);
    let (policy, mut watched) = policy(&mut map, base, problems, &mut notices);
    let storage = storage(&mut map, &mut notices);
    let runtime = runtime(&mut map);
    let (log, observe, traces) = observe::read(&mut map);
    if let Some(path) = map.text("admin_token_file") {
        watched.push(PathBuf::from(path)); // another token is taken up by itself
    }
    let admin_token = file_of(&mut map, "admin_token_file", files::admin_token);
    let discovery = discovery(&mut map, storage.peers_max);
    let gossip = gossip(&mut map, discovery, &storage, &mut notices, &mut watched);
    check_place(&policy.rules, &runtime, &map);
    let rules = match RuleTable::with_attributes(policy.rules, &policy.attributes) {
        Ok(rules) => Some(rules),
        Err(_) if !problems.is_empty() => None, // said already, with its place
        Err(errors) => {
            errors
                .iter()
                .for_each(|error| map.problem("limits", error.to_string()));
            None
        }
    };
    map.finish();
    Some(Config {
        envoy_bind,
        admin_bind,
        json_bind,
        server,
        tls,
        admin_tls,
        json_tls,
        rules: rules?,
        attributes: policy.attributes,
        flags: policy.flags,
        answers,
        drain_timeout: drain_ns.map_or(limits::DRAIN_DEFAULT, Duration::from_nanos),
        gossip,
        storage: storage.settings,
        runtime,
        log,
        observe,
        traces,
        admin_token,
        watched,
        notices,
    })
}

/// Every rule, flag and attribute, wherever it is written, and the files to watch for changes.
fn policy(
    map: &mut MapReader<'_, '_>,
    base: &Path,
    problems: &Problems,
    notices: &mut Vec<String>,
) -> (Policy, Vec<PathBuf>) {
    let has_reference = map.node("reference").is_some();
    let elsewhere = has_reference || map.node("rules_file").is_some();
    if !elsewhere && map.node("limits").is_none() && !map.has("limits") {
        map.problem(
            "limits",
            "this key is required; write limits: [] for no rules, or name a rules_file",
        );
    }
    let mut policy = read_limits(map, problems);
    let files = rules_file::section(map, base, problems);
    for fault in rules_file::join(&mut policy, files.policy) {
        map.problem("rules_file", fault);
    }
    let mut watched = files.watched;
    let reference = reference::section(map, problems);
    if let Some(found) = reference {
        notices.extend(found.notices);
        policy.rules.extend(found.policy.rules);
        policy.notices.extend(found.policy.notices);
        watched.extend(found.watched);
    }
    notices.extend(policy.notices.iter().map(ToString::to_string));
    (policy, watched)
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn admin_bind(map: &mut MapReader<'_, '_>) -> Option<Bind> {
    let off = map.node("admin_bind").and_then(|node| node.as_text()) == Some("off");
    if off {
        return None;
    }
    Some(listen::bind(map, "admin_bind").unwrap_or(ADMIN_BIND.into()))
}

/// `127.0.0.1:8081`, `[::1]:8081`, `localhost:8081`, or `:8081` for every address.
pub(super) fn address(map: &mut MapReader<'_, '_>, key: &'static str) -> Option<SocketAddr> {
    let text = map.text(key)?;
    let parsed = parse_address(text);
    if parsed.is_none() {
        map.problem(key, format!("`{text}` is {ADDRESS_ADVICE}"));
    }
    parsed
}

pub(super) fn parse_address(text: &str) -> Option<SocketAddr> {
    if let Some(port) = text.strip_prefix(':') {
        return Some(SocketAddr::new(
            Ipv4Addr::UNSPECIFIED.into(),
            port.parse().ok()?,
        ));
    }
    if let Some(port) = text.strip_prefix("localhost:") {
        return Some(SocketAddr::new(
            Ipv4Addr::LOCALHOST.into(),
            port.parse().ok()?,
        ));
    }
    if let Some(port) = text.strip_prefix("*:") {
        return Some(SocketAddr::new(
            Ipv6Addr::UNSPECIFIED.into(),
            port.parse().ok()?,
        ));
    }
    text.parse().ok()
}

struct StorageRead {
    settings: Storage,
    max_cells: Option<u32>,
    peers_max: Option<usize>,
}

fn storage(map: &mut MapReader<'_, '_>, notices: &mut Vec<String>) -> StorageRead {
    let mut read = StorageRead {
        settings: Storage {
            table_bytes: limits::TABLE_BYTES_DEFAULT,
            override_cardinality: None,
            max_descriptor_count: limits::DESCRIPTORS_DEFAULT as usize,
            max_descriptor_bytes: limits::DESCRIPTOR_BYTES_DEFAULT,
            max_key_bytes: limits::KEY_BYTES_DEFAULT,
        },
        max_cells: None,
        peers_max: None,
    };
    let Some(mut map) = map.map("storage") else {
        return read;
    };
    let settings = &mut read.settings;
    let table = limits::TABLE_BYTES_MIN..=limits::TABLE_BYTES_MAX;
    if let Some(bytes) = map.size_bytes("table_bytes", table) {
        settings.table_bytes = bytes;
    }
    settings.override_cardinality = map
        .u64_in("override_cardinality", 0..=limits::OVERRIDES_MAX)
        .and_then(|keys| u32::try_from(keys).ok());
    let count = 1..=u64::from(limits::DESCRIPTORS_MAX);
    if let Some(count) = map.u64_in("max_descriptor_count", count) {
        settings.max_descriptor_count = usize::try_from(count).unwrap_or(usize::MAX);
    }
    let bytes = 1..=limits::DESCRIPTOR_BYTES_MAX;
    if let Some(bytes) = map.size_bytes("max_descriptor_bytes", bytes.clone()) {
        settings.max_descriptor_bytes = bytes;
    }
    if let Some(bytes) = map.size_bytes("max_key_bytes", bytes) {
        settings.max_key_bytes = bytes;
    }
    read.max_cells = map
        .u64_in("max_cells", 1_024..=1 << 31)
        .and_then(|cells| u32::try_from(cells).ok());
    read.peers_max = peers_max(&mut map, notices);
    unneeded(&mut map, &UNNEEDED_STORAGE, notices);
    map.finish();
    read
}

/// 0 is what files for other limiters may say for "no bound".
fn peers_max(map: &mut MapReader<'_, '_>, notices: &mut Vec<String>) -> Option<usize> {
    let count = map.size_bytes("peer_capacity", 0..=u64::from(u32::MAX))?;
    let room = gabion_node::limits::MAX_PEERS;
    let count = usize::try_from(count).ok().filter(|count| *count > 0)?;
    if count > room {
        notices.push(format!(
            "{}: {count} is more than the {room} peers that have room; {room} is used",
            map.path_of("peer_capacity")
        ));
    }
    Some(count.min(room))
}

/// Accepts settings that the design does not need, once they are what they should be.
fn unneeded(
    map: &mut MapReader<'_, '_>,
    settings: &[(&'static str, Kind, &str)],
    notices: &mut Vec<String>,
) {
    for (key, kind, why) in settings {
        let good = match kind {
            Kind::Count => map.size_bytes(key, 0..=u64::from(u32::MAX)).is_some(),
            Kind::Time => map.duration_ns(key, 0..=HOUR_NS).is_some(),
        };
        if good {
            notices.push(format!(
                "{}: accepted and not needed: {why}",
                map.path_of(key)
            ));
        }
    }
}

fn runtime(map: &mut MapReader<'_, '_>) -> Runtime {
    let Some(mut map) = map.map("runtime") else {
        return Runtime::default();
    };
    let runtime = Runtime {
        worker_threads: map
            .u64_in("worker_threads", 1..=1_024)
            .and_then(|threads| usize::try_from(threads).ok()),
        rng_seed: map.u64_in("rng_seed", 0..=u64::MAX),
        node_id_seed: map.text("node_id_seed").map(str::to_owned),
        clock_ahead_ns: map.duration_ns("clock_ahead", 0..=HOUR_NS).unwrap_or(0),
        member_place: map
            .u64_in("member_place", 0..=65_534)
            .and_then(|place| u32::try_from(place).ok()),
    };
    if runtime.node_id_seed.as_deref() == Some("") {
        map.problem(
            "node_id_seed",
            "it is empty; leave it out for a random node id",
        );
    }
    map.finish();
    runtime
}

/// A strict rule has parts, and the member must say which of them is its own.
fn check_place(rules: &[Rule], runtime: &Runtime, map: &MapReader<'_, '_>) {
    let strict = rules.iter().find(|rule| rule.pace.members().is_some());
    if let (Some(rule), None) = (strict, runtime.member_place) {
        let text = format!(
            "rule {} is pace=strict, so each member has one part of its limit, and this one does \
             not say which; set runtime.member_place to 0 on the first member, 1 on the next, and \
             so on",
            rule.name
        );
        map.problem("runtime", text);
    }
}

fn gossip(
    map: &mut MapReader<'_, '_>,
    discovery: Option<Discovery>,
    storage: &StorageRead,
    notices: &mut Vec<String>,
    watched: &mut Vec<PathBuf>,
) -> Option<Gossip> {
    let Some(mut map) = map.map("gossip") else {
        let asked = discovery.is_some_and(|found| {
            Discovery {
                kubernetes: None,
                ..found
            } != Discovery::default()
        });
        if asked {
            map.problem(
                "discovery",
                "it does nothing without a gossip section; add gossip: {bind: ...} or remove it",
            );
        }
        return None;
    };
    if map.node("bind").is_none() {
        map.problem(
            "bind",
            "this key is required; write the UDP address, such as 0.0.0.0:7946",
        );
    }
    let bind = address(&mut map, "bind").unwrap_or(ADMIN_BIND);
    let cluster = cluster(&mut map, notices);
    for key in ["auth_key_file", "key_secret_file"] {
        notices.extend(map.text(key).and_then(files::open_to_all));
    }
    if let Some(path) = map.text("auth_key_file") {
        watched.push(PathBuf::from(path)); // keys are rotated by changing the file
    }
    let keys = file_of(&mut map, "auth_key_file", files::key_ring);
    let key_secret = file_of(&mut map, "key_secret_file", files::key_secret);
    let tunables = tunables(&mut map, storage);
    let error_budget_ppm = map
        .u64_in("target_err_bps", 1..=10_000)
        .and_then(|bps| u32::try_from(bps.saturating_mul(100)).ok());
    unneeded(&mut map, &UNNEEDED_GOSSIP, notices);
    map.finish();
    let discovery = discovery.unwrap_or_default();
    warnings(&keys, &key_secret, &discovery, bind, notices);
    Some(Gossip {
        bind,
        cluster,
        keys,
        key_secret,
        tunables,
        error_budget_ppm,
        discovery,
    })
}

fn cluster(map: &mut MapReader<'_, '_>, notices: &mut Vec<String>) -> ClusterId {
    let fallback = ClusterId::from_hash(0);
    let (name, hash) = (map.text("cluster_id"), map.text("cluster_id_hash"));
    let (key, text) = match (name, hash) {
        (Some(_), Some(_)) => {
            map.problem(
                "cluster_id_hash",
                "cluster_id names the cluster already; keep one of them",
            );
            return fallback;
        }
        (Some(text), None) => ("cluster_id", text),
        (None, Some(text)) => ("cluster_id_hash", text),
        (None, None) => {
            notices.push(
                "gossip.cluster_id is not set; `gabion` is used. Give each cluster its own, so \
                 that two of them never share counters"
                    .to_owned(),
            );
            ("cluster_id", "gabion")
        }
    };
    if key == "cluster_id_hash" && !text.starts_with(|c: char| c.is_ascii_digit()) {
        map.problem(
            key,
            format!("`{text}` is not a number; write cluster_id: {text} for a name"),
        );
        return fallback;
    }
    ClusterId::parse(text).unwrap_or_else(|error| {
        map.problem(key, error.to_string());
        fallback
    })
}

fn file_of<T>(
    map: &mut MapReader<'_, '_>,
    key: &'static str,
    read: impl FnOnce(&str) -> Result<T, String>,
) -> Option<T> {
    let path = map.text(key)?;
    match read(path) {
        Ok(content) => Some(content),
        Err(error) => {
            map.problem(key, error);
            None
        }
    }
}

fn tunables(map: &mut MapReader<'_, '_>, storage: &StorageRead) -> gabion_node::Tunables {
    let mut tunables = gabion_node::Tunables::default();
    if let Some(ns) = map.duration_ns("min_emit_interval", 100_000..=HOUR_NS) {
        tunables.min_emit_interval_ns = ns;
    }
    if let Some(ns) = map.duration_ns("heartbeat_interval", 10 * MS_NS..=60_000 * MS_NS) {
        tunables.heartbeat_ns = ns;
    }
    if let Some(rate) = map.u64_in("packets_per_second", 10..=1_000_000) {
        tunables.packets_per_second = rate;
    }
    match map.node("fanout").and_then(|node| node.as_text()) {
        Some("auto") => tunables.fanout = gabion_node::Fanout::Auto,
        Some("mesh") => tunables.fanout = gabion_node::Fanout::Mesh,
        _ => {
            if let Some(members) = map.size_bytes("fanout", 0..=u64::from(u32::MAX)) {
                tunables.fanout = gabion_node::Fanout::of_number(members);
            }
        }
    }
    if let Some(cells) = storage.max_cells {
        tunables.max_cells = cells;
        tunables.max_chunks = cells.saturating_mul(2);
    }
    tunables
}

fn warnings(
    keys: &Option<gabion_wire::KeyRing>,
    key_secret: &Option<[u8; 16]>,
    discovery: &Discovery,
    bind: SocketAddr,
    notices: &mut Vec<String>,
) {
    let local = bind.ip().is_loopback();
    if keys.is_none() && !local {
        notices.push(
            "gossip is not authenticated: whoever can send UDP to this port can raise counts. Set \
             gossip.auth_key_file on all members, or keep the port inside a trusted network"
                .to_owned(),
        );
    }
    if key_secret.is_none() && !local {
        notices.push(
            "counter keys are hashed under a secret that follows from the cluster id, so \
             collisions are computable by who knows it. Set gossip.key_secret_file, the same on \
             all members"
                .to_owned(),
        );
    }
    let none = discovery.addresses.is_empty()
        && discovery.dns.is_none()
        && discovery.file.is_none()
        && discovery.kubernetes.is_none();
    if none {
        notices.push(
            "no peers are configured (discovery.static, dns, file or kubernetes); this member \
             learns of others only when they send to it"
                .to_owned(),
        );
    }
}
