//! Real gabiond processes on loopback, with ports from the kernel.
#![allow(dead_code, missing_docs, unreachable_pub, clippy::unwrap_used)]

pub mod kubernetes;
pub mod prometheus;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use gabion_server::protocol::{Code, RateLimitRequest, RateLimitResponse, RateLimitServiceClient};
use serde_json::Value;
use tonic::transport::Channel;

/// Longest wait for anything that must happen.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A directory that is gone with its owner.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::SeqCst);
        let path = std::env::temp_dir().join(format!("gabiond-{}-{n}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    pub fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, content).unwrap();
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A volume as Kubernetes mounts a ConfigMap.
pub fn mounted(files: &[(&str, &str)], version: &str) -> Scratch {
    let scratch = Scratch::new();
    remount(&scratch, files, version);
    for (name, _) in files {
        symlink(Path::new("..data").join(name), scratch.0.join(name)).unwrap();
    }
    scratch
}

/// Swaps the files of a mounted ConfigMap, all at once.
pub fn remount(scratch: &Scratch, files: &[(&str, &str)], version: &str) {
    let name = format!("..2026_{version}");
    let hidden = scratch.0.join(&name);
    std::fs::create_dir_all(&hidden).unwrap();
    for (name, text) in files {
        std::fs::write(hidden.join(name), text).unwrap();
    }
    let link = scratch.0.join("..data_tmp");
    symlink(&name, &link).unwrap();
    std::fs::rename(link, scratch.0.join("..data")).unwrap();
}

/// The binary, with an environment that holds no setting by accident.
pub fn gabiond() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gabiond"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("GABION_")) {
        command.env_remove(name);
    }
    command
}

/// Runs the binary to its end.
pub fn run(arguments: &[&str]) -> Output {
    gabiond()
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// A running member; killed when dropped.
pub struct Member {
    pub child: Child,
    pub envoy: SocketAddr,
    pub admin: SocketAddr,
    pub gossip: Option<SocketAddr>,
    pub scratch: Scratch,
}

/// Configuration lines that give every port to the kernel.
pub const PORTS: &str = "envoy_bind: 127.0.0.1:0\nadmin_bind: 127.0.0.1:0\n";
/// Gossip with peers from the file `peers` beside the configuration.
pub const GOSSIP: &str = "gossip: {bind: '127.0.0.1:0', cluster_id: test}\n";

impl Member {
    /// Starts one with `config` and no gossip.
    pub fn start(config: &str) -> Self {
        Self::start_with(&format!("{PORTS}{config}"), &[])
    }

    /// Starts one that reads its peers from a file which [`introduce`] fills.
    pub fn start_gossiping(config: &str) -> Self {
        Self::start_gossiping_in("test", config)
    }

    /// The same in a cluster of that name.
    pub fn start_gossiping_in(cluster: &str, config: &str) -> Self {
        let scratch = Scratch::new();
        let peers = scratch.file("peers", "");
        let discovery = format!("discovery: {{file: '{}'}}\n", peers.display());
        let gossip = GOSSIP.replace("test", cluster);
        Self::launch(scratch, &format!("{PORTS}{gossip}{discovery}{config}"), &[])
    }

    pub fn start_with(config: &str, environment: &[(&str, &str)]) -> Self {
        Self::launch(Scratch::new(), config, environment)
    }

    fn launch(scratch: Scratch, config: &str, environment: &[(&str, &str)]) -> Self {
        let config = scratch.file("gabiond.yaml", config);
        let ports = scratch.0.join("ports.json");
        let log = std::fs::File::create(scratch.0.join("log")).unwrap();
        let child = gabiond()
            .arg(&config)
            .arg("--ports-file")
            .arg(&ports)
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut member = Member {
            child,
            envoy: SocketAddr::from(([0; 4], 0)),
            admin: SocketAddr::from(([0; 4], 0)),
            gossip: None,
            scratch,
        };
        let text = until("the ports file", || {
            let ended = member.child.try_wait().unwrap();
            assert!(
                ended.is_none(),
                "gabiond ended: {ended:?}\n{}",
                member.log()
            );
            std::fs::read_to_string(&ports).ok()
        });
        let ports: Value = serde_json::from_str(&text).unwrap();
        let addr = |name: &str| ports[name].as_str().and_then(|text| text.parse().ok());
        member.envoy = addr("envoy").unwrap_or(member.envoy);
        member.admin = addr("admin").unwrap_or(member.admin);
        member.gossip = addr("gossip");
        assert_eq!(ports["pid"], member.child.id());
        member
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.scratch.0.join("log")).unwrap_or_default()
    }

    pub async fn client(&self) -> RateLimitServiceClient<Channel> {
        let endpoint = tonic::transport::Endpoint::new(format!("http://{}", self.envoy)).unwrap();
        RateLimitServiceClient::new(endpoint.connect().await.unwrap())
    }

    pub async fn ask(&self, request: RateLimitRequest) -> RateLimitResponse {
        self.client()
            .await
            .should_rate_limit(request)
            .await
            .unwrap()
            .into_inner()
    }

    /// `GET path` on the admin port: status and body.
    pub fn get(&self, path: &str) -> (u16, String) {
        http_get(self.admin, path)
    }

    /// A request with header lines on the admin port: status, head and body.
    pub fn send(&self, method: &str, path: &str, headers: &str) -> (u16, String, String) {
        http(self.admin, method, path, headers)
    }

    pub fn snapshot(&self) -> Value {
        let (status, body) = self.get("/snapshot");
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    }

    pub fn terminate(&self) {
        signal(&self.child, "TERM");
    }

    /// How the process ended.
    pub fn wait(&mut self) -> ExitStatus {
        until("the process ends", || self.child.try_wait().unwrap())
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("log of gabiond {}:\n{}", self.child.id(), self.log());
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client over a connection.
pub fn client_of(channel: Channel) -> RateLimitServiceClient<Channel> {
    RateLimitServiceClient::new(channel)
}

/// Sends a signal to one process.
pub fn signal(child: &Child, name: &str) {
    let pid = child.id().to_string();
    assert!(Command::new("kill")
        .args([&format!("-{name}"), &pid])
        .status()
        .unwrap()
        .success());
}

/// Tells each member the gossip addresses of all, and waits until they have met.
pub fn introduce(members: &[&Member]) {
    let all: Vec<String> = members
        .iter()
        .map(|m| m.gossip.unwrap().to_string())
        .collect();
    for member in members {
        // By rename, so that a half-written file is never read.
        let part = member.scratch.file("peers.part", &(all.join("\n") + "\n"));
        std::fs::rename(part, member.scratch.0.join("peers")).unwrap();
    }
    for member in members {
        until("all peers are up", || {
            let peers = member.snapshot()["gossip"]["peers"]
                .as_array()
                .unwrap()
                .clone();
            let up = peers
                .iter()
                .filter(|peer| peer["up"] == true && peer["hears_us"] == true);
            (up.count() == members.len() - 1).then_some(())
        });
    }
}

pub fn http_get(addr: SocketAddr, path: &str) -> (u16, String) {
    let (status, _, body) = http(addr, "GET", path, "");
    (status, body)
}

/// One request, with header lines that end in CR LF: status, head and body.
pub fn http(addr: SocketAddr, method: &str, path: &str, headers: &str) -> (u16, String, String) {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let host = if headers.contains("Host:") {
        String::new()
    } else {
        format!("Host: {addr}\r\n")
    };
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\n{host}{headers}Connection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(!head.contains("transfer-encoding"), "{head}");
    (status, head.to_owned(), body.to_owned())
}

/// `POST path` with a body: status and body.
pub fn http_post(addr: SocketAddr, path: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let length = body.len();
    let head = format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n");
    write!(stream, "{head}Connection: close\r\n\r\n{body}").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    (status, answer.split_once("\r\n\r\n").unwrap().1.to_owned())
}

/// Looks until there is an answer; the sleep only spares the processor.
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(
            start.elapsed() < PATIENCE,
            "not within {PATIENCE:?}: {what}"
        );
        std::thread::sleep(Duration::from_millis(2));
    }
}

pub fn codes(response: &RateLimitResponse) -> Vec<Code> {
    response
        .statuses
        .iter()
        .map(|status| status.code())
        .collect()
}

pub fn ended_with(output: &Output, code: i32) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    stderr
}

pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
