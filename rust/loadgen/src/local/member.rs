//! Members (`gabiond`) of a local cluster.
//!
//! Owns: their configuration files and processes. Promises: all members of one cluster have the
//! same limits and know each other; a member is ready when its `start` returns. Never: shares a
//! port between two members.

use std::fmt::Write as _;
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::process::{without_settings, Process};
use super::{http, LocalError};

/// How long a member may take to start.
const START_S: u64 = 20;
/// How long members may take to find each other.
const CONNECT_S: u64 = 10;

/// What a cluster is made of.
#[derive(Clone, Debug)]
pub struct ClusterSpec {
    /// Path of `gabiond`.
    pub program: PathBuf,
    /// The `limits:` section, as YAML.
    pub limits: String,
    /// How many members.
    pub members: usize,
}

/// One running member.
#[derive(Debug)]
pub struct Member {
    /// Its process.
    pub process: Process,
    /// Where it answers rate-limit calls.
    pub envoy: SocketAddr,
    /// Where it answers people.
    pub admin: SocketAddr,
    /// Where it gossips.
    pub gossip: SocketAddr,
}

/// Starts all members and waits until each serves and hears all the others.
///
/// # Errors
/// One does not start, or stays deaf; those started before it are ended.
pub async fn start_cluster(spec: &ClusterSpec, dir: &Path) -> Result<Vec<Member>, LocalError> {
    let gossip = free_udp_ports(spec.members)?;
    let mut members = Vec::new();
    for i in 0..spec.members {
        members.push(start_member(spec, dir, i, &gossip).await?);
    }
    // a member is not ready before it has looked for its peers: so all are started before any wait
    for member in &members {
        member.wait_ready().await?;
        member
            .wait_connected(spec.members.saturating_sub(1))
            .await?;
    }
    Ok(members)
}

/// Starts member `i` (again) with the gossip addresses of all members; it listens on return.
///
/// # Errors
/// It does not start, or does not listen in time.
pub async fn start_member(
    spec: &ClusterSpec,
    dir: &Path,
    i: usize,
    gossip: &[SocketAddr],
) -> Result<Member, LocalError> {
    let name = format!("member-{}", i + 1);
    let config = dir.join(format!("{name}.yaml"));
    let ports = dir.join(format!("{name}.ports.json"));
    let text = config_text(&spec.limits, &name, i, gossip);
    std::fs::write(&config, text).map_err(LocalError::file(&config))?;
    let _ = std::fs::remove_file(&ports);
    let mut command = without_settings(&spec.program);
    command.arg(&config).arg("--ports-file").arg(&ports);
    let mut process = Process::start(
        &name,
        command,
        dir,
        "build it: cargo build -p gabion-server",
    )?;
    let patience = Duration::from_secs(START_S);
    let text = process
        .wait_until(patience, || std::fs::read_to_string(&ports).ok())
        .await?;
    let parsed: serde_json::Value =
        serde_json::from_str(&text).map_err(|e| LocalError::answer(&name, e))?;
    let port = |what: &str| -> Result<SocketAddr, LocalError> {
        let address = parsed.get(what).and_then(serde_json::Value::as_str);
        let address = address.and_then(|text| text.parse().ok());
        address.ok_or_else(|| LocalError::answer(&name, format!("no `{what}` in {text}")))
    };
    let (envoy, admin, gossip) = (port("envoy")?, port("admin")?, port("gossip")?);
    Ok(Member {
        process,
        envoy,
        admin,
        gossip,
    })
}

impl Member {
    /// Asks `/readyz` until it says 200.
    ///
    /// # Errors
    /// It did not within 20 s.
    pub async fn wait_ready(&self) -> Result<(), LocalError> {
        let give_up = tokio::time::Instant::now() + Duration::from_secs(START_S);
        loop {
            let reply = http::get(self.admin, "/readyz", &[]).await;
            match reply {
                Ok(reply) if reply.status == 200 => return Ok(()),
                _ if tokio::time::Instant::now() > give_up => {
                    return Err(self.process.failed(format!("is not ready: {reply:?}")));
                }
                _ => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }

    /// Waits until `peers` others are up and hear this one.
    ///
    /// # Errors
    /// They are not within 10 s.
    pub async fn wait_connected(&self, peers: usize) -> Result<(), LocalError> {
        let give_up = tokio::time::Instant::now() + Duration::from_secs(CONNECT_S);
        loop {
            let snapshot = self.snapshot().await?;
            if peers_up(&snapshot) >= peers {
                return Ok(());
            }
            if tokio::time::Instant::now() > give_up {
                let found = snapshot.pointer("/gossip/peers").map(ToString::to_string);
                let what = format!("has not found {peers} peers: {}", found.unwrap_or_default());
                return Err(self.process.failed(what));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Its `/snapshot`.
    ///
    /// # Errors
    /// No answer, or no JSON.
    pub async fn snapshot(&self) -> Result<serde_json::Value, LocalError> {
        http::get_json(self.admin, "/snapshot").await
    }

    /// Bytes it has sent to other members so far (what UDP carries, without headers below it).
    ///
    /// # Errors
    /// No answer, or none that says so.
    pub async fn gossip_bytes(&self) -> Result<u64, LocalError> {
        let snapshot = self.snapshot().await?;
        let bytes = snapshot.pointer("/gossip/driver_counters/sent_bytes");
        let bytes = bytes.and_then(serde_json::Value::as_u64);
        bytes.ok_or_else(|| LocalError::answer("/snapshot", "no count of gossip bytes"))
    }
}

/// Peers in a snapshot with which frames pass in both directions.
fn peers_up(snapshot: &serde_json::Value) -> usize {
    let peers = snapshot
        .pointer("/gossip/peers")
        .and_then(serde_json::Value::as_array);
    let yes = |peer: &serde_json::Value, what: &str| peer[what].as_bool() == Some(true);
    let both = |peer: &&serde_json::Value| yes(peer, "up") && yes(peer, "hears_us");
    peers.map_or(0, |peers| peers.iter().filter(both).count())
}

fn config_text(limits: &str, name: &str, i: usize, gossip: &[SocketAddr]) -> String {
    let mut text = String::from("envoy_bind: 127.0.0.1:0\nadmin_bind: 127.0.0.1:0\n");
    if !limits.contains("response_headers:") {
        // as in envoy/gabiond.yaml: Envoy writes the headers
        text.push_str("response_headers: off\n");
    }
    let _ = writeln!(
        text,
        "gossip:\n  bind: {}\ndiscovery:\n  static:",
        gossip[i]
    );
    for address in gossip {
        let _ = writeln!(text, "    - {address}");
    }
    let _ = writeln!(
        text,
        "runtime:\n  node_id_seed: {name}-{}",
        gossip[i].port()
    );
    text.push_str(limits);
    text
}

/// UDP ports that are free on loopback. They are let go of before the members bind them: members
/// must know each other's addresses before they start.
///
/// # Errors
/// The system has none.
pub fn free_udp_ports(n: usize) -> Result<Vec<SocketAddr>, LocalError> {
    let fail = |e| LocalError::answer("loopback", e);
    let sockets: Result<Vec<UdpSocket>, std::io::Error> =
        (0..n).map(|_| UdpSocket::bind("127.0.0.1:0")).collect();
    let sockets = sockets.map_err(fail)?;
    sockets
        .iter()
        .map(|s| s.local_addr().map_err(fail))
        .collect()
}
