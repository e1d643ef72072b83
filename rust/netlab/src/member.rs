//! One member of a lab: a real `gabiond`, or nginx with the module, in its own network namespace.
//!
//! Owns: its files and its process. Promises: its address stays the same over restarts. Never: has
//! settings of the shell that a person works in.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;

use gabion_loader::local::http;
use gabion_loader::local::process::Process;
use gabion_loader::local::LocalError;
use gabion_loader::rls::{self, Descriptor, Entry, RateLimitRequest, UInt64Value};
use serde_json::Value;
use tonic::transport::{Channel, Endpoint};

use crate::lab::{until, Programs};
use crate::limits::{CALL_TIMEOUT, NGINX_WORKERS, PATIENCE};
use crate::net::{address, namespace};
use crate::nginx::{self, NginxPrograms, HTTP_PORT};
use crate::LabError;

const ENVOY_PORT: u16 = 8081;
const ADMIN_PORT: u16 = 9090;

/// Descriptors of a call on many keys; `storage.max_descriptor_count` is as many by default.
const DESCRIPTORS_PER_CALL: usize = 64;

/// The domain of all rules.
pub const DOMAIN: &str = "lab";

/// What program a member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// `gabiond`, asked over gRPC.
    Gabiond,
    /// nginx with the module, asked over HTTP.
    Nginx,
}

/// What one member has that others need not have.
#[derive(Clone, Debug)]
pub struct MemberSpec {
    /// What program it is.
    pub door: Door,
    /// The `limits:` section.
    pub limits: String,
    /// Its name, from which the node id follows.
    pub name: String,
    /// Memory of its counters, as a configuration says it.
    pub table_bytes: &'static str,
    /// The cluster it is in.
    pub cluster: String,
    /// How far its clock is ahead, seconds.
    pub clock_ahead_s: u64,
    /// The file of gossip keys; `None`: not authenticated.
    pub keys: Option<PathBuf>,
    /// Another build of `gabiond` than the one under test, such as that of a release before it.
    pub gabiond: Option<PathBuf>,
    /// What it has as a pod; `None`: it is none, and reads its peers from a file.
    pub pod: Option<Pod>,
}

/// What a kubelet gives to a member that is a pod, and how that finds its peers.
#[derive(Clone, Debug, Default)]
pub struct Pod {
    /// The `discovery:` section, as one line.
    pub discovery: String,
    /// The same as directives of nginx.
    pub directives: String,
    /// Its environment, beside that of this program.
    pub env: Vec<(String, String)>,
    /// A folder, and where it is to be seen by this member alone.
    pub mount: Option<(PathBuf, PathBuf)>,
}

/// Variables that would make a member something else than what it is meant to be.
fn is_foreign(variable: &str) -> bool {
    let of_a_cluster = variable.starts_with("KUBE") || variable.starts_with("POD_");
    of_a_cluster || variable.starts_with("GABION_") || variable == "HOME"
}

/// The beginning of a command that runs in the namespace of member `i`; the program comes next.
pub(crate) fn inside(i: usize, pod: Option<&Pod>) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &namespace(i)]);
    for (variable, _) in std::env::vars_os() {
        if is_foreign(&variable.to_string_lossy()) {
            command.env_remove(variable);
        }
    }
    let Some(pod) = pod else { return command };
    for (name, value) in &pod.env {
        command.env(name, value);
    }
    if let Some((from, to)) = &pod.mount {
        // `ip netns exec` has made a mount namespace of its own
        let text = "mkdir -p \"$2\"; mount --bind \"$1\" \"$2\"; shift 2; exec \"$@\"";
        command.args(["sh", "-euc", text, "sh"]).arg(from).arg(to);
    }
    command
}

/// A member that runs, or that is down between two starts.
#[derive(Debug)]
pub struct Member {
    index: usize,
    /// What it is started with.
    pub spec: MemberSpec,
    process: Option<Process>,
    starts: usize,
    channel: Channel,
}

/// Where load on member `i` is sent, as the load generator writes it.
pub fn target(door: Door, i: usize) -> String {
    let port = match door {
        Door::Gabiond => ENVOY_PORT,
        Door::Nginx => HTTP_PORT,
    };
    format!("http://{}:{port}", address(i))
}

/// A request of some hits on one key of a rule; 0 hits only read.
fn request(rule: &str, key: &str, hits: u64) -> RateLimitRequest {
    let entry = Entry {
        key: rule.to_owned(),
        value: key.to_owned(),
    };
    let descriptor = Descriptor {
        entries: vec![entry],
        hits_addend: Some(UInt64Value { value: hits }),
    };
    RateLimitRequest {
        domain: DOMAIN.to_owned(),
        descriptors: vec![descriptor],
        hits_addend: 0,
    }
}

/// What the processes of a member use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Resident memory now, bytes; what processes share counts for each.
    pub resident_bytes: u64,
    /// Processor time since they started, in the kernel's ticks of 10 ms.
    pub ticks: u64,
}

/// A line of what the kernel says of a process, in bytes: `VmHWM` is the most that was resident.
fn memory_bytes(pid: u32, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    let number = rest.trim_start_matches(':').split_ascii_whitespace().next();
    let kib: u64 = number?.parse().ok()?;
    Some(kib * 1_024)
}

/// Processor time that a process has used, ticks.
fn ticks(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // behind the name, which may have spaces, comes the third field; 14 and 15 are the times
    let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<u64>().ok();
    Some(next()? + next()?)
}

impl Member {
    /// One that is not started yet.
    ///
    /// # Errors
    /// Its address is no address.
    pub fn new(index: usize, spec: MemberSpec) -> Result<Member, LabError> {
        let endpoint = Endpoint::from_shared(target(spec.door, index)).map_err(LabError::odd)?;
        let endpoint = endpoint.timeout(CALL_TIMEOUT).connect_timeout(CALL_TIMEOUT);
        Ok(Member {
            index,
            spec,
            process: None,
            starts: 0,
            channel: endpoint.connect_lazy(),
        })
    }

    /// Its address.
    pub fn address(&self) -> Ipv4Addr {
        address(self.index)
    }

    /// What program it is.
    pub fn door(&self) -> Door {
        self.spec.door
    }

    /// Where it shows its state.
    pub fn admin(&self) -> SocketAddr {
        let port = match self.spec.door {
            Door::Gabiond => ADMIN_PORT,
            Door::Nginx => HTTP_PORT,
        };
        SocketAddr::from((self.address(), port))
    }

    fn config_text(&self, peers: &Path) -> String {
        let spec = &self.spec;
        let mut text = format!(
            "envoy_bind: 0.0.0.0:{ENVOY_PORT}\nadmin_bind: 0.0.0.0:{ADMIN_PORT}\n\
             response_headers: off\ndrain_timeout: 2s\nstorage: {{table_bytes: {}}}\n",
            spec.table_bytes,
        );
        let bind = nginx::bind(self.index, spec);
        let _ = writeln!(
            text,
            "gossip:\n  bind: {bind}\n  cluster_id: {}",
            spec.cluster
        );
        if let Some(keys) = &spec.keys {
            let _ = writeln!(text, "  auth_key_file: {}", keys.display());
        }
        let discovery = match &spec.pod {
            None => format!("{{file: {}}}", peers.display()),
            Some(pod) => pod.discovery.clone(),
        };
        let _ = writeln!(text, "discovery: {discovery}");
        let _ = writeln!(
            text,
            "runtime:\n  worker_threads: 1\n  node_id_seed: {}",
            spec.name
        );
        // Which part of strict rules it has.
        let _ = writeln!(text, "  member_place: {}", self.index);
        if spec.clock_ahead_s > 0 {
            let _ = writeln!(text, "  clock_ahead: {}s", spec.clock_ahead_s);
        }
        text.push_str(&spec.limits);
        text
    }

    /// Writes the file of peers, by rename, so that it is never read half.
    ///
    /// # Errors
    /// The system refuses.
    pub fn set_peers(&self, dir: &Path, peers: &[SocketAddr]) -> Result<(), LabError> {
        let lines: String = peers.iter().map(|peer| format!("{peer}\n")).collect();
        let part = dir.join(format!("peers-{}.part", self.index + 1));
        std::fs::write(&part, lines)?;
        std::fs::rename(part, self.peers_file(dir))?;
        Ok(())
    }

    /// Where it reads its peers, unless it is a pod.
    pub fn peers_file(&self, dir: &Path) -> PathBuf {
        dir.join(format!("peers-{}", self.index + 1))
    }

    /// Starts it in its namespace; it listens on return.
    ///
    /// # Errors
    /// It does not start.
    pub async fn start(&mut self, programs: &Programs, dir: &Path) -> Result<(), LabError> {
        self.starts += 1;
        let name = self.start_name(self.starts);
        match self.spec.door {
            Door::Gabiond => self.start_gabiond(&programs.gabiond, dir, &name).await,
            Door::Nginx => self.start_nginx(&programs.nginx, dir, &name).await,
        }
    }

    fn start_name(&self, start: usize) -> String {
        format!("member-{}-start-{start}", self.index + 1)
    }

    async fn start_gabiond(
        &mut self,
        program: &Path,
        dir: &Path,
        name: &str,
    ) -> Result<(), LabError> {
        let config = dir.join(format!("{name}.yaml"));
        let ports = dir.join(format!("{name}.ports.json"));
        std::fs::write(&config, self.config_text(&self.peers_file(dir)))?;
        let mut command = inside(self.index, self.spec.pod.as_ref());
        let program = self.spec.gabiond.as_deref().unwrap_or(program);
        command.arg(program).arg(&config);
        command.arg("--ports-file").arg(&ports);
        let fix = "build it: cargo build -p gabion-server; `ip` is in the package iproute2";
        let mut process = Process::start(name, command, dir, fix)?;
        process
            .wait_until(PATIENCE, || std::fs::read(&ports).ok())
            .await?;
        self.process = Some(process);
        Ok(())
    }

    async fn start_nginx(
        &mut self,
        programs: &NginxPrograms,
        dir: &Path,
        name: &str,
    ) -> Result<(), LabError> {
        let (prefix, peers) = (dir.join(name), self.peers_file(dir));
        let command = nginx::prepare(self.index, &self.spec, programs, (&prefix, &peers))?;
        let fix = "build the module: tools/nginx-module; `ip` is in the package iproute2";
        let mut process = Process::start(name, command, dir, fix)?;
        let (master, to) = (process.id(), self.admin());
        let ready = || {
            let up = nginx::workers(master).len() >= NGINX_WORKERS;
            (up && std::net::TcpStream::connect(to).is_ok()).then_some(())
        };
        process.wait_until(PATIENCE, ready).await?;
        self.process = Some(process);
        Ok(())
    }

    /// All its processes.
    fn pids(&self) -> Vec<u32> {
        let master = self.process.as_ref().map(Process::id);
        let workers = master.map(nginx::workers).unwrap_or_default();
        master.into_iter().chain(workers).collect()
    }

    /// How often it has taken a configuration, from any number on.
    async fn reloads(&self) -> Result<i64, LabError> {
        let pointer = match self.door() {
            Door::Gabiond => "/config/reloads/done",
            Door::Nginx => "/zones/0/session",
        };
        self.number(pointer).await
    }

    /// Lets it read its configuration again, and waits until it has.
    ///
    /// # Errors
    /// It has not in time.
    pub async fn reload(&self) -> Result<(), LabError> {
        let before = self.reloads().await?;
        if let Some(process) = &self.process {
            process.hang_up();
        }
        until("the configuration is taken", PATIENCE, || async {
            let now = self.reloads().await?;
            Ok(if now > before {
                Ok(())
            } else {
                Err(format!("{now} reloads"))
            })
        })
        .await
    }

    /// Ends it as a crash would.
    pub fn kill(&mut self) {
        let pids = self.pids();
        if let Some(mut process) = self.process.take() {
            process.kill();
            // workers outlive a master that is killed
            for pid in &pids[1..] {
                nginx::signal(*pid, "-KILL");
            }
        }
    }

    /// Ends it in order, as its packages do; gives whether it ended with 0.
    ///
    /// # Errors
    /// It does not end in time, or does not run.
    pub async fn stop(&mut self) -> Result<bool, LabError> {
        let process = self.process.take();
        let mut process = process.ok_or_else(|| LabError::odd("a member that is down"))?;
        let ended = match self.spec.door {
            Door::Gabiond => process.stop(PATIENCE).await?,
            Door::Nginx => process.quit(PATIENCE).await?,
        };
        Ok(ended.success())
    }

    /// Whether it is meant to run and does not; says how it ended.
    pub fn crash(&mut self) -> Option<LocalError> {
        let process = self.process.as_mut()?;
        process.check_running().err()
    }

    /// Whether it was started and not ended since.
    pub fn is_up(&self) -> bool {
        self.process.is_some()
    }

    /// The most resident memory that it ever had, bytes: of its largest process.
    pub fn resident_most_bytes(&self) -> Option<u64> {
        let each = self.pids().into_iter();
        each.map(|pid| memory_bytes(pid, "VmHWM")).max()?
    }

    /// What all its processes use.
    pub fn usage(&self) -> Usage {
        let mut all = Usage::default();
        for pid in self.pids() {
            all.resident_bytes += memory_bytes(pid, "VmRSS").unwrap_or_default();
            all.ticks += ticks(pid).unwrap_or_default();
        }
        all
    }

    /// Everything it has logged, over all starts.
    pub fn log(&self, dir: &Path) -> String {
        let names = (1..=self.starts).map(|start| self.start_name(start));
        let files = names.flat_map(|name| {
            [
                dir.join(format!("{name}.log")),
                dir.join(name).join("error.log"), // of nginx
            ]
        });
        files
            .map(|file| std::fs::read_to_string(file).unwrap_or_default())
            .collect()
    }

    /// Asks for some hits on a key; gives whether they were let through.
    ///
    /// # Errors
    /// No answer.
    pub async fn ask(&self, rule: &str, key: &str, hits: u64) -> Result<bool, LabError> {
        if self.spec.door == Door::Nginx {
            let mut all = true;
            for _ in 0..hits {
                all &= nginx::ask(self.admin(), rule, key).await?;
            }
            return Ok(all);
        }
        let answer = rls::should_rate_limit(self.channel.clone(), request(rule, key, hits)).await?;
        Ok(answer.overall_code == rls::CODE_OK)
    }

    /// One hit on each of many keys, as few calls as that takes.
    ///
    /// # Errors
    /// No answer, or a key is denied.
    pub async fn ask_each(&self, rule: &str, keys: &[String]) -> Result<(), LabError> {
        if self.spec.door == Door::Nginx {
            return Err(LabError::odd("many keys are asked of gabiond only"));
        }
        for some in keys.chunks(DESCRIPTORS_PER_CALL) {
            let mut whole = request(rule, "", 1);
            let descriptors = some
                .iter()
                .flat_map(|key| request(rule, key, 1).descriptors);
            whole.descriptors = descriptors.collect();
            let answer = rls::should_rate_limit(self.channel.clone(), whole).await?;
            if answer.overall_code != rls::CODE_OK {
                return Err(LabError::odd("a fresh key is denied"));
            }
        }
        Ok(())
    }

    /// What this member thinks is left of a key's limit; charges nothing.
    ///
    /// # Errors
    /// No answer, or none that says so.
    pub async fn left(&self, rule: &str, key: &str) -> Result<u64, LabError> {
        if self.spec.door == Door::Nginx {
            return nginx::left(self.admin(), rule, key).await;
        }
        let answer = rls::should_rate_limit(self.channel.clone(), request(rule, key, 0)).await?;
        let status = answer.statuses.first();
        let status = status.ok_or_else(|| LabError::odd("an answer without a status"))?;
        Ok(u64::from(status.limit_remaining))
    }

    /// Its `/snapshot`.
    ///
    /// # Errors
    /// No answer.
    pub async fn snapshot(&self) -> Result<Value, LabError> {
        Ok(http::get_json(self.admin(), "/snapshot").await?)
    }

    /// A number in its `/snapshot`, by JSON pointer.
    ///
    /// # Errors
    /// No answer, or no such number.
    pub async fn number(&self, pointer: &str) -> Result<i64, LabError> {
        let snapshot = self.snapshot().await?;
        let number = snapshot.pointer(pointer).and_then(Value::as_i64);
        number.ok_or_else(|| LabError::Odd(format!("no number {pointer} in a snapshot")))
    }

    /// A counter of the protocol (`node_counters`).
    ///
    /// # Errors
    /// No answer, or no such counter.
    pub async fn counter(&self, name: &str) -> Result<u64, LabError> {
        let number = self
            .number(&format!("/gossip/node_counters/{name}"))
            .await?;
        u64::try_from(number).map_err(LabError::odd)
    }

    /// Peers with which frames pass both ways.
    ///
    /// # Errors
    /// No answer.
    pub async fn peers_up(&self) -> Result<usize, LabError> {
        let snapshot = self.snapshot().await?;
        let peers = snapshot.pointer("/gossip/peers").and_then(Value::as_array);
        let both = |peer: &&Value| peer["up"] == true && peer["hears_us"] == true;
        Ok(peers.map_or(0, |peers| peers.iter().filter(both).count()))
    }
}
