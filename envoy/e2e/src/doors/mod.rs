//! Both front doors of an example, side by side: nginx with the module, and Envoy with gabiond.
//!
//! Owns: their processes and a folder with the example's files. Promises: they run what is in
//! `examples/NAME`, with other ports on the marked lines, and what a test changes in the policy;
//! everything ends with the value. Never: uses a port of its own choice.

pub mod compare;
pub mod wire;

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use gabion_loader::local::envoy::{self, render, Envoy};
use gabion_loader::local::member::{free_udp_ports, Member};
use gabion_loader::local::nginx::free_tcp_port;
use gabion_loader::local::process::{without_settings, Process};
use gabion_loader::local::upstream::Upstream;
use gabion_loader::local::{source_root, RunDir};
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::AnyError;
pub use wire::Answer;

/// Longest wait for anything that must happen.
const PATIENCE: Duration = Duration::from_secs(20);
/// Pause between two looks.
const POLL: Duration = Duration::from_millis(5);
/// How often nginx is started before its port, which another program may take, is given up.
const STARTS: usize = 3;
/// A key that signs gossip; a fresh one for each start would do as well.
const KEYS: &str = "1:00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\n";

/// The programs that the doors are made of.
#[derive(Clone, Debug)]
pub struct Programs {
    /// Path of `gabiond`.
    pub gabiond: PathBuf,
    /// Path of `nginx`.
    pub nginx: PathBuf,
    /// Path of the module for that nginx.
    pub module: PathBuf,
    /// Path of Envoy.
    pub envoy: PathBuf,
}

impl Programs {
    /// Those that the environment names: `NGINX_MODULE`, `NGINX_BINARY`, `GABIOND`, `ENVOY_BINARY`.
    ///
    /// # Errors
    /// One is not there.
    pub fn find() -> Result<Programs, AnyError> {
        let module = std::env::var_os("NGINX_MODULE");
        let module = module.ok_or("NGINX_MODULE is not set: run ./tools/examples")?;
        let nginx = std::env::var_os("NGINX_BINARY").unwrap_or_else(|| "/usr/sbin/nginx".into());
        Ok(Programs {
            gabiond: crate::gabiond()?,
            nginx: nginx.into(),
            module: module.into(),
            envoy: envoy::find()?,
        })
    }
}

/// Whether the doors are members of one cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cluster {
    /// As shipped: one count for both.
    Joined,
    /// Each counts alone, so that both must give the same answers to the same requests.
    Apart,
}

/// The two doors of an example. Everything ends when this is dropped.
#[derive(Debug)]
pub struct Doors {
    /// nginx's listener.
    pub nginx: SocketAddr,
    /// Envoy's listener.
    pub envoy: SocketAddr,
    /// gabiond's admin address.
    pub admin: SocketAddr,
    /// What both protect.
    pub upstream: Upstream,
    master: Process,
    /// The gabiond that Envoy asks.
    pub member: Member,
    _envoy: Envoy,
    _nobody: Option<UdpSocket>,
    programs: Programs,
    policy: &'static str,
    turn: AtomicUsize,
    dir: RunDir,
    _runtime: Runtime,
}

/// What a test changes in a file of an example: its name and content. Under `gabiond.arguments` it
/// is asked for further words for gabiond.
pub type Change<'c> = &'c dyn Fn(&str, String) -> String;

impl Doors {
    /// Starts the doors of `examples/NAME`, each file of it as `change` makes it, and waits until
    /// both serve (and, when joined, hear each other).
    ///
    /// # Errors
    /// A part is missing or does not start; the error says what to do.
    pub fn start(
        programs: Programs,
        example: &'static str,
        cluster: Cluster,
        change: Change<'_>,
    ) -> Result<Doors, AnyError> {
        let runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = { runtime }.worker_threads(2).enable_all().build()?;
        let dir = RunDir::new("gabion-example")?;
        let folder = source_root().join("examples").join(example);
        let read = |name: &str| -> Result<String, AnyError> {
            let path = folder.join(name);
            let text = std::fs::read_to_string(&path);
            let text = text.map_err(|error| format!("{}: {error}", path.display()))?;
            Ok(change(name, text))
        };
        let policy = ["rate-limit.toml", "policy.yaml"]
            .into_iter()
            .find(|name| folder.join(name).is_file())
            .ok_or("the example has no policy")?;
        std::fs::write(dir.path().join(policy), read(policy)?)?;
        std::fs::write(dir.path().join("gossip.keys"), KEYS)?;
        let (gossip, nobody) = gossip_ports(cluster)?;
        let upstream = runtime.block_on(Upstream::start())?;
        let up = upstream.address().port();
        std::fs::write(
            dir.path().join("gabiond.yaml"),
            render(&read("gabiond.yaml")?, &gossip.of_gabiond())?,
        )?;
        let more = change("gabiond.arguments", String::new());
        let member = runtime.block_on(start_member(&programs, dir.path(), &more, &gossip))?;
        let conf = read("nginx.conf")?;
        let (master, nginx) = start_nginx(&programs, dir.path(), &conf, &gossip, up)?;
        let ports = [
            ("envoy-admin", 0),
            ("envoy", 0),
            ("upstream", up),
            ("gabiond", member.envoy.port()),
        ];
        let text = envoy::patient(&read("envoy.yaml")?);
        let envoy = envoy::start_text(&programs.envoy, dir.path(), &text, &ports);
        let envoy = runtime.block_on(envoy)?;
        if cluster == Cluster::Joined {
            runtime.block_on(member.wait_connected(1))?;
        }
        Ok(Doors {
            nginx,
            envoy: envoy.listener,
            admin: member.admin,
            upstream,
            master,
            member,
            _envoy: envoy,
            _nobody: nobody,
            programs,
            policy,
            turn: AtomicUsize::new(0),
            dir,
            _runtime: runtime,
        })
    }

    /// The same request to nginx and then to Envoy, whose answers must be the same; returns them.
    ///
    /// # Panics
    /// No answer, or the doors differ.
    pub fn both(&self, line: &str, headers: &[(&str, &str)]) -> Answer {
        self.both_from(Ipv4Addr::LOCALHOST, line, headers)
    }

    /// The same from another address of loopback.
    ///
    /// # Panics
    /// No answer, or the doors differ.
    pub fn both_from(&self, from: Ipv4Addr, line: &str, headers: &[(&str, &str)]) -> Answer {
        let ask = |door| wire::ask_from(from, door, line, headers);
        let (nginx, envoy) = (ask(self.nginx), ask(self.envoy));
        let (nginx, envoy) = match (nginx, envoy) {
            (Ok(nginx), Ok(envoy)) => (nginx, envoy),
            (nginx, envoy) => panic!("nginx: {nginx:?}\nEnvoy: {envoy:?}"),
        };
        if let Err(difference) = compare::same(&nginx, &envoy) {
            panic!("{line} {headers:?}: {difference}\nnginx: {nginx:?}\nEnvoy: {envoy:?}");
        }
        nginx
    }

    /// The request to one door after the other, in turn from call to call.
    ///
    /// # Panics
    /// No answer.
    pub fn either(&self, line: &str, headers: &[(&str, &str)]) -> Answer {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let door = [self.nginx, self.envoy][turn % 2];
        wire::ask(door, line, headers).unwrap_or_else(|error| panic!("{error}"))
    }

    /// One request to gabiond's admin address.
    ///
    /// # Errors
    /// No answer.
    pub fn admin(&self, line: &str) -> Result<Answer, AnyError> {
        wire::ask(self.admin, line, &[])
    }

    /// JSON of gabiond's admin address.
    ///
    /// # Errors
    /// No answer, or no JSON.
    pub fn json(&self, path: &str) -> Result<Value, AnyError> {
        Ok(serde_json::from_str(
            &self.admin(&format!("GET {path}"))?.body,
        )?)
    }

    /// What nginx says of itself.
    ///
    /// # Errors
    /// No answer, or no JSON.
    pub fn nginx_status(&self) -> Result<Value, AnyError> {
        let answer = wire::ask(self.nginx, "GET /gabion", &[])?;
        Ok(serde_json::from_str(&answer.body)?)
    }

    /// Runs `gabiond` with these words, in the folder of the doors.
    ///
    /// # Errors
    /// It cannot be run.
    pub fn gabiond(&self, words: &[&str]) -> Result<Output, AnyError> {
        let mut command = without_settings(&self.programs.gabiond);
        command.args(words).current_dir(self.dir.path());
        command.env("GABION_MEMBER", self.admin.to_string());
        Ok(command.stdin(Stdio::null()).output()?)
    }

    /// Puts another policy in force at both doors, by a reload of each, and waits until it is.
    ///
    /// # Errors
    /// It is refused, or not in force in time.
    pub fn reload(&mut self, change: &dyn Fn(String) -> String) -> Result<(), AnyError> {
        let path = self.dir.path().join(self.policy);
        let text = change(std::fs::read_to_string(&path)?);
        let part = path.with_extension("part");
        std::fs::write(&part, text)?;
        std::fs::rename(&part, &path)?;
        let answer = self.admin("POST /reload")?;
        if answer.status != 200 {
            return Err(format!("gabiond: {}", answer.body).into());
        }
        let old = children(self.master.id());
        self.master.hang_up();
        until("nginx's new workers", || {
            let now = children(self.master.id());
            let new = !now.is_empty() && now.iter().all(|pid| !old.contains(pid));
            Ok(new.then_some(()))
        })
    }

    /// The log of a program: `gabiond`, `nginx` or `envoy`.
    pub fn log(&self, program: &str) -> String {
        let name = match program {
            "nginx" => "error.log".to_owned(),
            other => format!("{other}.log"),
        };
        std::fs::read_to_string(self.dir.path().join(name)).unwrap_or_default()
    }

    /// The folder that all files of the doors are in.
    pub fn folder(&self) -> &Path {
        self.dir.path()
    }

    /// Leaves it there.
    pub fn keep_files(&mut self) {
        self.dir.keep();
    }
}

impl Drop for Doors {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for program in ["gabiond", "nginx", "envoy"] {
                eprintln!("log of {program}:\n{}", self.log(program));
            }
        }
        // A killed master cannot end its workers: it is asked first.
        self.master.end_in_order(PATIENCE);
    }
}

/// Looks until there is an answer.
///
/// # Errors
/// A look fails, or there is none in 20 s.
pub fn until<T>(
    what: &str,
    mut look: impl FnMut() -> Result<Option<T>, AnyError>,
) -> Result<T, AnyError> {
    let give_up = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        if Instant::now() > give_up {
            return Err(format!("waited in vain for: {what}").into());
        }
        std::thread::sleep(POLL);
    }
}

/// The gossip addresses of nginx and gabiond, and of the peer that each has.
#[derive(Debug)]
struct Gossip {
    nginx: u16,
    gabiond: u16,
    peer_of_nginx: u16,
    peer_of_gabiond: u16,
}

impl Gossip {
    fn of_gabiond(&self) -> [(&'static str, u16); 4] {
        [
            ("gabiond", 0),
            ("admin", 0),
            ("gossip-gabiond", self.gabiond),
            ("gossip-nginx", self.peer_of_gabiond),
        ]
    }
}

/// Doors that count apart have a peer that never speaks.
fn gossip_ports(cluster: Cluster) -> Result<(Gossip, Option<UdpSocket>), AnyError> {
    let free = free_udp_ports(2)?;
    let (nginx, gabiond) = (free[0].port(), free[1].port());
    let nobody = match cluster {
        Cluster::Joined => None,
        Cluster::Apart => Some(UdpSocket::bind("127.0.0.1:0")?),
    };
    let silent = nobody.as_ref().map(UdpSocket::local_addr).transpose()?;
    let silent = silent.map(|address| address.port());
    let gossip = Gossip {
        nginx,
        gabiond,
        peer_of_nginx: silent.unwrap_or(gabiond),
        peer_of_gabiond: silent.unwrap_or(nginx),
    };
    Ok((gossip, nobody))
}

async fn start_member(
    programs: &Programs,
    dir: &Path,
    more: &str,
    gossip: &Gossip,
) -> Result<Member, AnyError> {
    let mut command = without_settings(&programs.gabiond);
    command.current_dir(dir);
    command.args(["gabiond.yaml", "--ports-file", "ports.json"]);
    command.args(more.split_whitespace());
    let mut process = Process::start("gabiond", command, dir, "build it: ./tools/examples")?;
    let file = dir.join("ports.json");
    let text = process
        .wait_until(PATIENCE, || std::fs::read_to_string(&file).ok())
        .await?;
    let bound: Value = serde_json::from_str(&text)?;
    let port = |what: &str| -> Result<SocketAddr, AnyError> {
        let address = bound[what].as_str().and_then(|text| text.parse().ok());
        address.ok_or_else(|| format!("no {what} in {text}").into())
    };
    Ok(Member {
        envoy: port("envoy")?,
        admin: port("admin")?,
        gossip: SocketAddr::from((Ipv4Addr::LOCALHOST, gossip.gabiond)),
        process,
    })
}

fn start_nginx(
    programs: &Programs,
    dir: &Path,
    config: &str,
    gossip: &Gossip,
    upstream: u16,
) -> Result<(Process, SocketAddr), AnyError> {
    let modules = dir.join("modules");
    std::fs::create_dir_all(&modules)?;
    std::fs::copy(&programs.module, modules.join("ngx_http_gabion_module.so"))?;
    let mut last: AnyError = "nginx was not started".into();
    for _ in 0..STARTS {
        let address = free_tcp_port()?;
        let ports = [
            ("nginx", address.port()),
            ("gossip-nginx", gossip.nginx),
            ("gossip-gabiond", gossip.peer_of_nginx),
            ("upstream", upstream),
        ];
        std::fs::write(dir.join("nginx.conf"), render(config, &ports)?)?;
        let mut command = Command::new(&programs.nginx);
        command
            .arg("-p")
            .arg(dir)
            .arg("-c")
            .arg(dir.join("nginx.conf"));
        command.arg("-e").arg(dir.join("error.log"));
        let mut process = Process::start("nginx", command, dir, "install it: ./tools/examples")?;
        let answers = until("nginx to answer", || {
            process.check_running()?;
            let answer = wire::ask(address, "GET /gabion", &[]);
            Ok(answer.ok().filter(|answer| answer.status == 200))
        });
        match answers {
            Ok(_) => return Ok((process, address)),
            Err(error) => last = error,
        }
        if !last.to_string().contains("bind() to") {
            break;
        }
    }
    Err(last)
}

/// The processes that a process has started.
fn children(of: u32) -> Vec<u32> {
    let list = std::fs::read_to_string(format!("/proc/{of}/task/{of}/children"));
    let list = list.unwrap_or_default();
    list.split_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .collect()
}
