//! A real nginx with the module, as one more member of a local cluster.
//!
//! Owns: its processes and its configuration. Promises: two workers that decide by the same rules
//! file as the other members. Never: installs anything, reads the system's nginx configuration.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::process::Process;
use super::{http, LocalError};

/// How long nginx may take to start.
const START_S: u64 = 20;
const INSTALL: &str = "nginx is needed: run `./tools/nginx-module`, which installs and builds";

/// What nginx is started with.
#[derive(Clone, Debug)]
pub struct NginxSpec {
    /// Path of `nginx`.
    pub program: PathBuf,
    /// Path of the module.
    pub module: PathBuf,
    /// The `limits:` section that gabiond reads, as YAML.
    pub limits: String,
    /// Lines of `http` that bind rules (`gabion_limit_rule NAME key:$variable;`).
    pub bindings: String,
    /// Lines of `server`: the locations.
    pub locations: String,
    /// Where its gossip is bound.
    pub gossip: SocketAddr,
    /// Gossip addresses of all members; its own may be among them.
    pub peers: Vec<SocketAddr>,
}

/// A running nginx with two workers.
#[derive(Debug)]
pub struct Nginx {
    /// Its master process, which ends its workers when it is told to end.
    pub process: Process,
    /// Where clients connect; also its `/gabion` page.
    pub listener: SocketAddr,
}

impl Nginx {
    /// Starts it and waits until it answers.
    ///
    /// # Errors
    /// It does not start, or does not answer in time.
    pub async fn start(spec: &NginxSpec, dir: &Path) -> Result<Nginx, LocalError> {
        let listener = free_tcp_port()?;
        let prefix = dir.join("nginx");
        std::fs::create_dir_all(&prefix).map_err(LocalError::file(&prefix))?;
        let rules = prefix.join("limits.yaml");
        std::fs::write(&rules, &spec.limits).map_err(LocalError::file(&rules))?;
        let config = prefix.join("nginx.conf");
        std::fs::write(&config, config_text(spec, listener)).map_err(LocalError::file(&config))?;
        let mut command = Command::new(&spec.program);
        command.arg("-p").arg(&prefix).arg("-c").arg(&config);
        command.arg("-e").arg(prefix.join("error.log"));
        let process = Process::start("nginx", command, dir, INSTALL)?;
        let mut nginx = Nginx { process, listener };
        nginx.wait_until_it_answers().await?;
        Ok(nginx)
    }

    async fn wait_until_it_answers(&mut self) -> Result<(), LocalError> {
        let give_up = tokio::time::Instant::now() + Duration::from_secs(START_S);
        loop {
            self.process.check_running()?;
            match self.status().await {
                Ok(_) => return Ok(()),
                Err(error) if tokio::time::Instant::now() > give_up => {
                    return Err(self.process.failed(format!("does not answer: {error}")));
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }

    /// What its status page says.
    ///
    /// # Errors
    /// No answer, or no JSON.
    pub async fn status(&self) -> Result<serde_json::Value, LocalError> {
        http::get_json(self.listener, "/gabion").await
    }

    /// Bytes it has sent to other members so far (what UDP carries, without headers below it).
    ///
    /// # Errors
    /// No answer, or none that says so.
    pub async fn gossip_bytes(&self) -> Result<u64, LocalError> {
        let status = self.status().await?;
        let bytes = status.pointer("/gossip/driver_counters/sent_bytes");
        let bytes = bytes.and_then(serde_json::Value::as_u64);
        bytes.ok_or_else(|| LocalError::answer("/gabion", "no count of gossip bytes"))
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // A killed master cannot end its workers: it is asked first.
        self.process.end_in_order(Duration::from_secs(5));
    }
}

fn config_text(spec: &NginxSpec, listener: SocketAddr) -> String {
    let peers: Vec<String> = spec.peers.iter().map(ToString::to_string).collect();
    format!(
        "load_module {module};
daemon off;
worker_processes 2;
pid nginx.pid;
events {{}}
http {{
    access_log off;
    client_body_temp_path body; proxy_temp_path proxy;
    fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
    gabion_limit_zone zone=counters:16m;
    gabion_rules_file limits.yaml;
    {bindings}
    gabion_log_level info;
    gabion_gossip_bind {gossip};
    gabion_peers {peers};
    server {{
        listen {listener};
        location = /gabion {{ gabion off; gabion_status; }}
        {locations}
    }}
}}
",
        module = spec.module.display(),
        bindings = spec.bindings,
        gossip = spec.gossip,
        peers = peers.join(" "),
        locations = spec.locations,
    )
}

/// A TCP port that is free on loopback. It is let go of before nginx binds it: nginx takes no port
/// that the kernel chooses.
///
/// # Errors
/// The system has none.
pub fn free_tcp_port() -> Result<SocketAddr, LocalError> {
    let address = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    address.map_err(|error| LocalError::answer("loopback", error))
}
