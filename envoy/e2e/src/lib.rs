//! The fixture of the end-to-end tests: real Envoy, two real members, one upstream.
//!
//! Owns: one edge for each test. Promises: the server under test is built from the present sources;
//! ports come from the kernel; everything ends with the test. Never: skips (without Envoy a test
//! fails and says how to install it).
#![forbid(unsafe_code)]

pub mod doors;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use gabion_loader::local::envoy::{self, Envoy, Timeouts};
use gabion_loader::local::http::{self, Reply};
use gabion_loader::local::member::{start_cluster, ClusterSpec, Member};
use gabion_loader::local::process::{without_settings, Process};
use gabion_loader::local::upstream::Upstream;
use gabion_loader::local::RunDir;
use gabion_loader::rls::{
    should_rate_limit, Descriptor, DescriptorStatus, Entry, RateLimitRequest, UInt64Value,
};
use tonic::transport::Endpoint;

/// What a test fails with.
pub type AnyError = Box<dyn std::error::Error + Send + Sync>;

/// How long members may take to agree on a count on loopback.
const AGREE_S: u64 = 5;

/// How long a line of Envoy's access log may take.
const LOGGED_S: u64 = 20;

/// Envoy, two members and an upstream. Everything ends when this is dropped.
#[derive(Debug)]
pub struct Edge {
    /// The members, in the order of Envoy's configuration.
    pub members: Vec<Member>,
    /// Envoy.
    pub envoy: Envoy,
    /// What Envoy protects.
    pub upstream: Upstream,
    dir: RunDir,
}

impl Edge {
    /// Starts an edge whose members have these `limits` (YAML, domain `edge`) and whose Envoy waits
    /// for their answers however busy the machine is: statuses are what members said.
    ///
    /// # Errors
    /// A part is missing or does not start; the error says what to do.
    pub async fn start(limits: &str) -> Result<Edge, AnyError> {
        Edge::start_with(limits, Timeouts::Patient).await
    }

    /// Like [`Edge::start`], with the timeouts of the example configuration: what Envoy does when
    /// members do not answer. A busy machine may let a request through that way, too.
    ///
    /// # Errors
    /// A part is missing or does not start; the error says what to do.
    pub async fn start_as_shipped(limits: &str) -> Result<Edge, AnyError> {
        Edge::start_with(limits, Timeouts::AsShipped).await
    }

    async fn start_with(limits: &str, timeouts: Timeouts) -> Result<Edge, AnyError> {
        let program = gabiond()?;
        let envoy_program = envoy::find()?;
        let dir = RunDir::new("gabion-envoy-e2e")?;
        let spec = ClusterSpec {
            program,
            limits: limits.to_owned(),
            members: 2,
        };
        let members = start_cluster(&spec, dir.path()).await?;
        let upstream = Upstream::start().await?;
        let asked = [members[0].envoy, members[1].envoy];
        let envoy = envoy::start(
            &envoy_program,
            dir.path(),
            upstream.address(),
            asked,
            timeouts,
        )
        .await?;
        println!("files of this edge: {}", dir.path().display());
        Ok(Edge {
            members,
            envoy,
            upstream,
            dir,
        })
    }

    /// Leaves logs and configuration behind.
    pub fn keep_files(&mut self) {
        self.dir.keep();
    }

    /// One request through Envoy.
    ///
    /// # Errors
    /// No whole answer.
    pub async fn get(&self, path: &str, headers: &[(&str, &str)]) -> Result<Reply, AnyError> {
        Ok(http::get(self.envoy.listener, path, headers).await?)
    }

    /// Waits until Envoy has logged `lines` lines of its access log; returns them.
    ///
    /// # Errors
    /// They do not come in time, or are no JSON.
    pub async fn access_log(&self, lines: usize) -> Result<Vec<serde_json::Value>, AnyError> {
        let give_up = Instant::now() + Duration::from_secs(LOGGED_S);
        loop {
            let log = std::fs::read_to_string(self.dir.path().join("envoy.log"))?;
            let whole = log.rsplit_once('\n').map_or("", |(whole, _)| whole);
            let found: Vec<&str> = whole.lines().filter(|line| line.starts_with('{')).collect();
            if found.len() >= lines {
                let parse = |line: &&str| Ok(serde_json::from_str(line)?);
                return found.iter().map(parse).collect();
            }
            if Instant::now() > give_up {
                return Err(format!("{} lines of {lines}: {log}", found.len()).into());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// The value of one of Envoy's counters.
    ///
    /// # Errors
    /// Envoy does not answer, or has no such counter.
    pub async fn envoy_counter(&self, name: &str) -> Result<u64, AnyError> {
        let reply = http::get(self.envoy.admin, "/stats", &[]).await?;
        let line = reply.body.lines().find_map(|line| line.strip_prefix(name));
        let value = line.and_then(|rest| rest.strip_prefix(": "));
        let value = value.ok_or_else(|| format!("Envoy has no counter {name}"))?;
        Ok(value.trim().parse()?)
    }

    /// Charges one hit of the descriptor `entries` at each member. From then on each has a row for
    /// it and shows every change; before, a count of the others is shown only once it matters
    /// (past limit / 2n).
    ///
    /// # Errors
    /// A member does not answer.
    pub async fn prime(&self, entries: &[(&str, &str)]) -> Result<(), AnyError> {
        for member in &self.members {
            ask(member, entries, 1).await?;
        }
        Ok(())
    }

    /// Waits until every member reads `remaining` for the descriptor `entries`; charges nothing.
    ///
    /// # Errors
    /// A member does not answer, or they do not agree in time.
    pub async fn agree(&self, entries: &[(&str, &str)], remaining: u32) -> Result<(), AnyError> {
        let give_up = Instant::now() + Duration::from_secs(AGREE_S);
        for member in &self.members {
            loop {
                let status = ask(member, entries, 0).await?;
                if status.limit_remaining == remaining {
                    break;
                }
                if Instant::now() > give_up {
                    let got = status.limit_remaining;
                    let at = member.envoy;
                    return Err(format!("{at}: {got} remaining, not {remaining}").into());
                }
            }
        }
        Ok(())
    }
}

/// Asks `member` for `hits` of one descriptor; 0 only reads.
///
/// # Errors
/// No answer, or no status in it.
pub async fn ask(
    member: &Member,
    entries: &[(&str, &str)],
    hits: u64,
) -> Result<DescriptorStatus, AnyError> {
    let entry = |(key, value): &(&str, &str)| Entry {
        key: (*key).to_owned(),
        value: (*value).to_owned(),
    };
    let request = RateLimitRequest {
        domain: "edge".to_owned(),
        descriptors: vec![Descriptor {
            entries: entries.iter().map(entry).collect(),
            hits_addend: Some(UInt64Value { value: hits }),
        }],
        hits_addend: 0,
    };
    let channel = Endpoint::from_shared(format!("http://{}", member.envoy))?
        .connect()
        .await?;
    let answer = should_rate_limit(channel, request).await?;
    answer
        .statuses
        .into_iter()
        .next()
        .ok_or_else(|| "an answer without a status".into())
}

/// Starts one member with a configuration of its own; it listens on return.
///
/// # Errors
/// There is no `gabiond`, or it does not start.
pub async fn start_alone(dir: &Path, config: &str) -> Result<Process, AnyError> {
    let (file, ports) = (dir.join("gabiond.yaml"), dir.join("ports.json"));
    std::fs::write(&file, config)?;
    let mut command = without_settings(gabiond()?);
    command.arg(&file).arg("--ports-file").arg(&ports);
    let mut process = Process::start("gabiond", command, dir, "build it")?;
    let patience = Duration::from_secs(20);
    process
        .wait_until(patience, || ports.exists().then_some(()))
        .await?;
    Ok(process)
}

/// Whether `gabiond check` accepts a file of the source tree, and what it says.
///
/// # Errors
/// There is no `gabiond`.
pub fn check_config(path: &str) -> Result<(bool, String), AnyError> {
    let root = gabion_loader::local::source_root();
    let run = without_settings(gabiond()?)
        .arg("check")
        .arg(root.join(path))
        .output()?;
    let said = [run.stdout, run.stderr].concat();
    Ok((
        run.status.success(),
        String::from_utf8_lossy(&said).into_owned(),
    ))
}

/// `gabiond`: `GABIOND`, or the one built from the present sources beside this test.
fn gabiond() -> Result<PathBuf, AnyError> {
    if let Some(path) = std::env::var_os("GABIOND") {
        return Ok(PathBuf::from(path));
    }
    // target/PROFILE/deps/this-test
    let test = std::env::current_exe()?;
    let profile_dir = test.ancestors().nth(2).ok_or("an odd place for a test")?;
    build(profile_dir)?;
    Ok(profile_dir.join("gabiond"))
}

/// Cargo knows whether anything has changed; when nothing has, this takes a moment.
fn build(profile_dir: &Path) -> Result<(), AnyError> {
    let profile = match profile_dir.file_name().and_then(|name| name.to_str()) {
        Some("debug") => "dev",
        Some(name) => name,
        None => return Err("an odd place for a test".into()),
    };
    let target_dir = profile_dir.parent().ok_or("an odd place for a test")?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args([
            "build",
            "--quiet",
            "-p",
            "gabion-server",
            "--bin",
            "gabiond",
        ])
        .args(["--profile", profile, "--target-dir"])
        .arg(target_dir)
        .current_dir(gabion_loader::local::source_root())
        .stdin(Stdio::null())
        .status()?;
    if status.success() {
        Ok(())
    } else {
        Err("gabiond does not build: cargo build -p gabion-server".into())
    }
}
