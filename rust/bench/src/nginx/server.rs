//! One nginx of a measurement: its folder, its processes, and wrk against it.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use gabion_loader::local::process::Process;
use gabion_loader::local::{http, RunDir};

use super::NginxOptions;
use crate::BenchError;

const PATIENCE: Duration = Duration::from_secs(30);
const ENDING: Duration = Duration::from_secs(5);

/// A running nginx. Its master and workers end with it.
pub(super) struct Server {
    pub(super) addr: SocketAddr,
    pub(super) dir: RunDir,
    process: Process,
}

/// How it runs.
#[derive(Clone, Copy)]
pub(super) enum Way<'a> {
    /// As a master with so many workers.
    Workers(usize),
    /// As one process, under a program with these arguments.
    Under(&'a [&'a str]),
}

impl Server {
    /// Starts one with these rules in `http` and these locations.
    pub(super) async fn start(
        options: &NginxOptions,
        way: Way<'_>,
        rules: &str,
        locations: &str,
    ) -> Result<Server, BenchError> {
        let dir = RunDir::new("gabion-bench-nginx")?;
        let path = dir.path();
        let addr = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let conf = conf(options, way, path, addr)
            .replace("RULES", rules)
            .replace("LOCATIONS", locations);
        std::fs::write(path.join("nginx.conf"), conf)?;
        std::fs::write(path.join("x.txt"), "hello\n")?;
        let mut command = match way {
            Way::Workers(_) => Command::new(&options.nginx),
            Way::Under(words) => {
                let (program, args) = words.split_first().ok_or_else(|| void("no program"))?;
                let mut command = Command::new(program);
                command.args(args).arg(&options.nginx);
                command
            }
        };
        command.arg("-p").arg(path).arg("-c").arg("nginx.conf");
        let fix = "install nginx, or name it with --nginx";
        let mut process = Process::start("nginx", command, path, fix)?;
        let answers = || TcpStream::connect(addr).ok();
        process.wait_until(PATIENCE, answers).await?;
        let server = Server { addr, dir, process };
        if let Way::Workers(count) = way {
            let until = Instant::now() + PATIENCE;
            while server.workers().len() < count {
                if Instant::now() > until {
                    return Err(void("the workers do not come up"));
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        Ok(server)
    }

    /// Process ids of its workers.
    pub(super) fn workers(&self) -> Vec<u32> {
        let master = self.process.id();
        let path = format!("/proc/{master}/task/{master}/children");
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.split_whitespace()
            .filter_map(|word| word.parse().ok())
            .collect()
    }

    /// What its workers have spent on the processor, ns.
    pub(super) fn cpu_ns(&self) -> Result<u64, BenchError> {
        let of = |pid: &u32| {
            let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat"))?;
            let first = text.split_whitespace().next();
            first
                .and_then(|word| word.parse::<u64>().ok())
                .ok_or_else(|| void("/proc/PID/schedstat has another form than expected"))
        };
        self.workers().iter().map(of).sum()
    }

    /// The status of one request.
    pub(super) async fn status(&self, path: &str) -> Result<u16, BenchError> {
        Ok(http::get(self.addr, path, &[]).await?.status)
    }

    /// What `gabion_status` says at `/state`.
    pub(super) async fn state(&self) -> Result<serde_json::Value, BenchError> {
        let reply = http::get(self.addr, "/state", &[]).await?;
        Ok(serde_json::from_str(&reply.body).map_err(std::io::Error::other)?)
    }

    /// How many requests passed a rule of the first zone.
    pub(super) async fn passed(&self, rule: &str) -> Result<u64, BenchError> {
        let state = self.state().await?;
        let mut rules = state["zones"][0]["rules"].as_array().into_iter().flatten();
        let found = rules.find(|entry| entry["name"] == rule);
        let passed = found.and_then(|entry| entry["counts"]["passed"].as_u64());
        passed.ok_or_else(|| void("gabion_status does not count the rule"))
    }

    /// Ends it, and gives what stands in a file then.
    ///
    /// # Errors
    /// It did not end by itself, or there is no such file.
    pub(super) async fn stop_and_read(mut self, file: &Path) -> Result<String, BenchError> {
        // Under valgrind a signal may come just before nginx waits for events, which then goes on
        // until there is one.
        let addr = self.addr;
        let events = tokio::spawn(async move {
            loop {
                let _ = tokio::net::TcpStream::connect(addr).await;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
        let ended = self.process.stop(PATIENCE).await;
        events.abort();
        ended?;
        Ok(std::fs::read_to_string(file)?)
    }

    /// Ends it and waits for it.
    ///
    /// # Errors
    /// It did not end by itself.
    pub(super) async fn stop(mut self) -> Result<(), BenchError> {
        self.process.stop(PATIENCE).await?;
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Workers outlive a master that is killed: it is asked first, and they are then gone.
        let (master, workers) = (self.process.id(), self.workers());
        if workers.is_empty() {
            return;
        }
        let signal = |pid: u32, name: &str| {
            let _ = Command::new("kill").args([name, &pid.to_string()]).status();
        };
        signal(master, "-TERM");
        let until = Instant::now() + ENDING;
        while !self.workers().is_empty() {
            if Instant::now() > until {
                self.workers()
                    .into_iter()
                    .for_each(|pid| signal(pid, "-KILL"));
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn void(why: &str) -> BenchError {
    BenchError::Void(why.to_owned())
}

fn conf(options: &NginxOptions, way: Way<'_>, dir: &Path, addr: SocketAddr) -> String {
    let processes = match way {
        Way::Workers(count) => format!("worker_processes {count};"),
        Way::Under(_) => "master_process off;".to_owned(),
    };
    let module = options.module.display();
    let dir = dir.display();
    let temps: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|kind| format!("    {kind}_temp_path {dir}/{kind};\n"))
        .collect();
    format!(
        "load_module {module};\ndaemon off;\n{processes}\nuser root;\npid {dir}/nginx.pid;\n\
         error_log {dir}/error.log crit;\nevents {{ worker_connections 1024; }}\nhttp {{\n{temps}\
         access_log off;\n    keepalive_requests 1000000000;\n    limit_req_status 429;\n    \
         limit_req_log_level info;\n    gabion_log_level info;\nRULES\n    server {{\n        \
         listen {addr};\n        root {dir};\n        \
         location = /state {{ gabion off; gabion_status; }}\nLOCATIONS\n    }}\n}}\n"
    )
}

/// What wrk counted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counted {
    /// Requests that were answered.
    pub(super) requests: u64,
    /// Those of them that were not answered with 2xx or 3xx.
    pub(super) denied: u64,
}

/// Runs wrk for whole seconds.
pub(super) fn wrk(
    addr: SocketAddr,
    path: &str,
    connections: usize,
    seconds: u64,
) -> Result<Counted, BenchError> {
    let fail = |what: String| BenchError::Tool {
        program: "wrk".to_owned(),
        what,
    };
    let output = Command::new("wrk")
        .args(["-t1", &format!("-c{connections}"), &format!("-d{seconds}s")])
        .arg(format!("http://{addr}{path}"))
        .output()
        .map_err(|e| fail(format!("{e}; install it (`apt-get install wrk`)")))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    match counted(&said) {
        Some(counted) if !said.contains("Socket errors") => Ok(counted),
        _ => Err(fail(format!("it said: {said}"))),
    }
}

fn counted(said: &str) -> Option<Counted> {
    let number = |mark: &str| {
        let line = said.lines().find(|line| line.contains(mark))?;
        line.split_whitespace().find_map(|word| word.parse().ok())
    };
    Some(Counted {
        requests: number(" requests in ")?,
        denied: number("Non-2xx").unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_wrk_says_is_read() {
        let said = "Running 1s test @ http://x/\n  1 threads and 8 connections\n  Thread Stats\n  \
                    43029 requests in 1.10s, 10.01MB read\n  Non-2xx or 3xx responses: 17\n\
                    Requests/sec:  39117.01\n";
        let counted = counted(said).unwrap();
        assert_eq!((counted.requests, counted.denied), (43_029, 17));
        assert!(super::counted("nothing").is_none());
    }
}
