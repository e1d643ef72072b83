//! One nginx: its folder, its configuration, its processes.

use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::http::{get_with, Response};

/// Longest wait for anything that must happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

static NUMBER: AtomicU32 = AtomicU32::new(0);

/// Where cargo puts what it builds: the folder above the test's own.
fn built() -> PathBuf {
    let test = std::env::current_exe().expect("own path");
    let folder = test.parent().and_then(Path::parent);
    folder.expect("target folder").to_owned()
}

/// The module under test: `GABION_MODULE`, or that of this test's own build.
pub(crate) fn module() -> PathBuf {
    let given = std::env::var_os("GABION_MODULE").map(PathBuf::from);
    let module = given.unwrap_or_else(|| built().join("libgabion_nginx.so"));
    assert!(
        module.is_file(),
        "{} is missing: run tools/nginx-module test",
        module.display()
    );
    module
}

/// Another program of this build: in the folder `GABION_PROGRAMS`, or beside the test.
pub(crate) fn program(name: &str) -> PathBuf {
    let given = std::env::var_os("GABION_PROGRAMS").map(PathBuf::from);
    let program = given.unwrap_or_else(built).join(name);
    assert!(
        program.is_file(),
        "{} is missing: run tools/nginx-module test",
        program.display()
    );
    program
}

pub(crate) fn nginx_binary() -> PathBuf {
    let given = std::env::var_os("NGINX_BINARY").map(PathBuf::from);
    given.unwrap_or_else(|| PathBuf::from("/usr/sbin/nginx"))
}

/// A TCP port that was free a moment ago.
pub(crate) fn tcp_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("its address").port()
}

/// A UDP port that was free a moment ago.
pub(crate) fn udp_port() -> u16 {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    socket.local_addr().expect("its address").port()
}

/// Waits for `what` to become true.
pub(crate) fn wait_for(what: &str, mut is: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !is() {
        assert!(Instant::now() < until, "waited in vain for: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Tells threads of load to end, also when the test fails between.
#[derive(Default)]
pub(crate) struct Load(AtomicBool);

impl Load {
    pub(crate) fn goes_on(&self) -> bool {
        !self.0.load(Ordering::Relaxed)
    }

    /// The load goes on until the result is dropped.
    pub(crate) fn until_dropped(&self) -> impl Drop + '_ {
        EndOfLoad(&self.0)
    }
}

struct EndOfLoad<'l>(&'l AtomicBool);

impl Drop for EndOfLoad<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new() -> Folder {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("gabion-nginx-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(path.join("html")).expect("a folder");
        // Where a configuration names no log, nginx as released writes into this one.
        fs::create_dir_all(path.join("logs")).expect("a folder");
        fs::write(path.join("html/x.txt"), "x\n").expect("a file");
        Folder(path)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, text).expect("a file");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(crate) struct Nginx {
    pub(crate) folder: Folder,
    pub(crate) port: u16,
    workers: &'static str,
    more: String,
    master: Master,
}

/// What is around `http`.
#[derive(Clone, Copy, Default)]
pub(crate) struct Around<'a> {
    /// Lines above `events`.
    pub(crate) more: &'a str,
    /// The master's environment.
    pub(crate) env: &'a [(&'a str, PathBuf)],
}

/// The master process: a child of the test, or, since nginx upgrades only then, a daemon.
enum Master {
    Child(Child),
    Daemon(u32),
}

impl Master {
    fn pid(&self) -> u32 {
        match self {
            Master::Child(child) => child.id(),
            Master::Daemon(pid) => *pid,
        }
    }

    fn has_ended(&mut self) -> bool {
        match self {
            Master::Child(child) => child.try_wait().ok().flatten().is_some(),
            Master::Daemon(pid) => !Path::new(&format!("/proc/{pid}")).exists(),
        }
    }
}

/// For `http`: where nginx may write. Where a distribution has it write, a test may not.
fn temporary_folders() -> String {
    ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("  {kind}_temp_path DIR/{kind};\n"))
        .concat()
}

/// The whole configuration. In `http`, PORT and DIR stand for what they say.
fn whole(folder: &Folder, port: u16, top: &str, http: &str) -> String {
    let dir = folder.0.display().to_string();
    let temps = temporary_folders();
    let text = format!(
        "load_module {};\nuser root;\npid DIR/nginx.pid;\n{top}\n\
         error_log DIR/error.log info;\nevents {{ worker_connections 256; }}\nhttp {{\n{temps}\
         log_format told '$status $gabion_status $gabion_rule';\n\
         access_log DIR/access.log told;\n{http}\n}}\n",
        module().display()
    );
    text.replace("DIR", &dir).replace("PORT", &port.to_string())
}

impl Nginx {
    /// Starts one with this content of `http`.
    pub(crate) fn start(workers: &'static str, http: &str) -> Nginx {
        Nginx::start_in(Folder::new(), workers, http)
    }

    pub(crate) fn start_in(folder: Folder, workers: &'static str, http: &str) -> Nginx {
        Nginx::start_with(folder, workers, &Around::default(), http)
    }

    pub(crate) fn start_with(
        folder: Folder,
        workers: &'static str,
        around: &Around<'_>,
        http: &str,
    ) -> Nginx {
        let Around { more, env } = *around;
        let binary = nginx_binary();
        // Another process may take the port before nginx does; then the next one is tried.
        for _ in 0..5 {
            let port = tcp_port();
            let top = top(workers, more);
            let conf = folder.write("nginx.conf", &whole(&folder, port, &top, http));
            let first = Command::new(&binary)
                .args(["-e", "error.log", "-p"])
                .arg(&folder.0)
                .arg("-c")
                .arg(&conf)
                .envs(env.iter().cloned())
                .stdin(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("nginx starts");
            if let Some(master) = started(first, &folder, workers) {
                return Nginx {
                    folder,
                    port,
                    workers,
                    more: more.to_owned(),
                    master,
                };
            }
            let log = fs::read_to_string(folder.0.join("error.log")).unwrap_or_default();
            assert!(log.contains("bind() to"), "nginx does not start:\n{log}");
        }
        panic!("no port could be had");
    }

    pub(crate) fn get(&self, path: &str) -> Response {
        get_with(self.port, path, "")
    }

    pub(crate) fn get_with(&self, path: &str, extra: &str) -> Response {
        get_with(self.port, path, extra)
    }

    /// Statuses of `count` requests, each on a connection of its own.
    pub(crate) fn statuses(&self, path: &str, count: usize) -> Vec<u16> {
        (0..count).map(|_| self.get(path).status).collect()
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.0.join("error.log")).unwrap_or_default()
    }

    pub(crate) fn access_log(&self) -> String {
        fs::read_to_string(self.folder.0.join("access.log")).unwrap_or_default()
    }

    /// The answer of `location = /state { gabion_status; }`.
    pub(crate) fn state(&self) -> serde_json::Value {
        serde_json::from_str(&self.get("/state").body).expect("JSON")
    }

    /// A rule's counts in the state.
    pub(crate) fn count(&self, rule: &str, what: &str) -> u64 {
        let state = self.state();
        let zones = state["zones"].as_array().expect("zones").iter();
        let mut rules = zones.flat_map(|zone| zone["rules"].as_array().expect("rules"));
        let rule = rules.find(|r| r["name"] == rule).expect("the rule");
        rule["counts"][what].as_u64().expect("a count")
    }

    pub(crate) fn master_pid(&self) -> u32 {
        self.master.pid()
    }

    pub(crate) fn workers(&self) -> Vec<u32> {
        children(self.master.pid())
    }

    pub(crate) fn signal(&self, pid: u32, signal: &str) {
        signal_to(pid, signal);
    }

    /// Puts another content of `http` in force and waits until only new workers are left.
    pub(crate) fn reload(&self, http: &str) {
        let old = self.workers();
        self.change(http);
        self.signal(self.master_pid(), "HUP");
        wait_for("the old workers' end", || {
            let now = self.workers();
            !now.is_empty() && now.iter().all(|pid| !old.contains(pid))
        });
    }

    /// Writes another content of `http`; what runs does not change.
    pub(crate) fn change(&self, http: &str) {
        let text = whole(
            &self.folder,
            self.port,
            &top(self.workers, &self.more),
            http,
        );
        self.folder.write("nginx.conf", &text);
    }
}

fn top(workers: &str, more: &str) -> String {
    let processes = match workers {
        "single" => "daemon off; master_process off;".to_owned(),
        "daemon" => "worker_processes 1;".to_owned(),
        _ => format!("daemon off; worker_processes {workers};"),
    };
    format!("{processes} {more}")
}

/// The master once it serves with all its workers, or `None` if it ended before.
///
/// nginx writes its pid file after it has bound its port, so the file says that the port is its
/// own: one that answers may be another's. A daemon is one only when the first process has gone:
/// until then nginx takes its parent for an old master and ignores USR2.
fn started(mut first: Child, folder: &Folder, workers: &str) -> Option<Master> {
    let daemon = workers == "daemon";
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        let end = first.try_wait().expect("its state");
        if end.is_some_and(|status| !daemon || !status.success()) {
            return None;
        }
        let pid = pid_file(folder).filter(|pid| match daemon {
            true => end.is_some(),
            false => *pid == first.id(),
        });
        if let Some(pid) = pid.filter(|pid| children(*pid).len() >= count(workers)) {
            return Some(match daemon {
                true => Master::Daemon(pid),
                false => Master::Child(first),
            });
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let _ = first.kill();
    let _ = first.wait();
    None
}

/// How many workers there are at least.
fn count(workers: &str) -> usize {
    match workers {
        "single" => 0,
        "auto" | "daemon" => 1,
        number => number.parse().expect("a number of workers"),
    }
}

/// Compiles C into a library of a folder.
pub(crate) fn library(folder: &Folder, name: &str, source: &str) -> PathBuf {
    let source = folder.write(&format!("{name}.c"), source);
    let library = folder.0.join(format!("{name}.so"));
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg(&source);
    assert!(cc.status().expect("cc runs").success());
    library
}

pub(crate) fn children(pid: u32) -> Vec<u32> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let text = fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .collect()
}

pub(crate) fn signal_to(pid: u32, signal: &str) {
    let done = Command::new("kill")
        .arg(format!("-{signal}"))
        .arg(pid.to_string())
        .status();
    assert!(done.expect("kill runs").success(), "kill -{signal} {pid}");
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let workers = self.workers();
        if std::thread::panicking() {
            eprintln!("error log of nginx:\n{}", self.log());
        }
        if !self.master.has_ended() {
            kill(self.master.pid(), "TERM");
        }
        let until = Instant::now() + Duration::from_secs(5);
        while !self.master.has_ended() {
            if Instant::now() > until {
                workers.iter().for_each(|pid| kill(*pid, "KILL"));
                kill(self.master.pid(), "KILL");
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn kill(pid: u32, signal: &str) {
    let _ = Command::new("kill")
        .arg(format!("-{signal}"))
        .arg(pid.to_string())
        .status();
}

fn pid_file(folder: &Folder) -> Option<u32> {
    let text = fs::read_to_string(folder.0.join("nginx.pid"));
    text.ok()?.trim().parse().ok()
}

/// What `nginx -t` says of this content of `http`, and whether it takes it.
pub(crate) fn check_with(binary: &Path, http: &str) -> (bool, String) {
    check_preloading(binary, Path::new(""), http)
}

/// As [`check_with`], with a library loaded before all others.
pub(crate) fn check_preloading(binary: &Path, library: &Path, http: &str) -> (bool, String) {
    let mut command = Command::new(binary);
    command.env("LD_PRELOAD", library);
    test_by(command, &Folder::new(), http)
}

/// As [`check`], in a folder that holds more.
pub(crate) fn check_in(folder: &Folder, http: &str) -> (bool, String) {
    test_by(Command::new(nginx_binary()), folder, http)
}

/// As [`check_in`], of a whole file.
pub(crate) fn whole_file_check(folder: &Folder, file: &str) -> (bool, String) {
    let dir = folder.0.display().to_string();
    let own = temporary_folders() + "  access_log DIR/access.log;\n";
    let file = file.replacen(
        "http {",
        &format!("http {{\n{}", own.replace("DIR", &dir)),
        1,
    );
    let file = format!("pid {dir}/nginx.pid;\n{file}");
    test_file(Command::new(nginx_binary()), folder, &file)
}

fn test_by(command: Command, folder: &Folder, http: &str) -> (bool, String) {
    test_file(command, folder, &whole(folder, tcp_port(), "", http))
}

fn test_file(mut command: Command, folder: &Folder, file: &str) -> (bool, String) {
    let conf = folder.write("nginx.conf", file);
    let _ = fs::remove_file(folder.0.join("error.log")); // of an earlier test
    let Output { status, stderr, .. } = command
        .args(["-t", "-e", "error.log", "-p"])
        .arg(&folder.0)
        .arg("-c")
        .arg(&conf)
        .stdin(Stdio::null())
        .output()
        .expect("nginx runs");
    let mut said = String::from_utf8_lossy(&stderr).into_owned();
    said += &fs::read_to_string(folder.0.join("error.log")).unwrap_or_default();
    (status.success(), said)
}

pub(crate) fn check(http: &str) -> (bool, String) {
    check_with(&nginx_binary(), http)
}
