//! A real Envoy with the project's own example configuration.
//!
//! Owns: its process and its rendered configuration. Promises: only the ports marked in
//! `envoy/envoy.yaml` differ from the file in the repository, and the timeouts where a caller asks
//! for patience. Never: installs anything.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::process::Process;
use super::{http, source_root, LocalError};

/// How long Envoy may take to start.
const START_S: u64 = 30;
const INSTALL: &str = "Envoy is needed: run `./tools/test --install`, or set ENVOY_BINARY to one";

/// Which timeouts Envoy gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timeouts {
    /// Those of the example configuration: a call that takes longer than 0.25 s is let through.
    AsShipped,
    /// Half a minute each, for tests of what members answer: on a machine that is busy with other
    /// things, too, an answer that comes late is not one that failed.
    Patient,
}

/// A running Envoy.
#[derive(Debug)]
pub struct Envoy {
    /// Its process.
    pub process: Process,
    /// Where clients connect.
    pub listener: SocketAddr,
    /// Its admin page.
    pub admin: SocketAddr,
}

/// Finds Envoy: `ENVOY_BINARY`, or what `tools/lib` has installed into `.cache`.
///
/// # Errors
/// There is none; the error says how to install it.
pub fn find() -> Result<PathBuf, LocalError> {
    if let Some(path) = std::env::var_os("ENVOY_BINARY") {
        return Ok(PathBuf::from(path));
    }
    let cache = source_root().join(".cache");
    let folders = |path: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect()
    };
    let venvs = folders(&cache).into_iter().filter(|path| {
        path.file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with("envoy-"))
    });
    let pythons = venvs.flat_map(|venv| folders(&venv.join("lib")));
    let mut found = pythons.map(|python| python.join("site-packages/envoy/_bin/envoy"));
    found
        .find(|path| path.is_file())
        .ok_or_else(|| LocalError::answer("Envoy", INSTALL))
}

/// Starts `program` in front of `upstream`, asking `members`, and waits until it serves.
///
/// # Errors
/// The configuration has lost its marks, or Envoy does not start in time.
pub async fn start(
    program: &Path,
    dir: &Path,
    upstream: SocketAddr,
    members: [SocketAddr; 2],
    timeouts: Timeouts,
) -> Result<Envoy, LocalError> {
    let example = source_root().join("envoy/envoy.yaml");
    let text = std::fs::read_to_string(&example).map_err(LocalError::file(&example))?;
    let ports = [
        ("admin", 0),
        ("listener", 0),
        ("upstream", upstream.port()),
        ("member-1", members[0].port()),
        ("member-2", members[1].port()),
    ];
    let text = match timeouts {
        Timeouts::AsShipped => text,
        Timeouts::Patient => patient(&text),
    };
    start_text(program, dir, &text, &ports).await
}

/// Starts `program` with another configuration, whose lines `# port: NAME` get these ports, and
/// waits until it serves.
///
/// # Errors
/// A mark is not there once, or Envoy does not start in time.
pub async fn start_text(
    program: &Path,
    dir: &Path,
    text: &str,
    ports: &[(&str, u16)],
) -> Result<Envoy, LocalError> {
    let config = dir.join("envoy.yaml");
    std::fs::write(&config, render(text, ports)?).map_err(LocalError::file(&config))?;
    let admin_file = dir.join("envoy.admin");
    let mut command = Command::new(program);
    command
        .arg("-c")
        .arg(&config)
        .arg("--admin-address-path")
        .arg(&admin_file)
        .args([
            "--concurrency",
            "1",
            "--disable-hot-restart",
            "--log-level",
            "warning",
            // Access log lines come at once, not after ten seconds.
            "--file-flush-interval-msec",
            "50",
        ]);
    let mut process = Process::start("envoy", command, dir, INSTALL)?;
    let patience = Duration::from_secs(START_S);
    let read = || {
        std::fs::read_to_string(&admin_file)
            .ok()
            .and_then(|t| t.trim().parse().ok())
    };
    let admin: SocketAddr = process.wait_until(patience, read).await?;
    let listener = wait_live(&process, admin, patience).await?;
    Ok(Envoy {
        process,
        listener,
        admin,
    })
}

/// Waits until Envoy is live and has bound its listener; returns where.
async fn wait_live(
    process: &Process,
    admin: SocketAddr,
    patience: Duration,
) -> Result<SocketAddr, LocalError> {
    let give_up = tokio::time::Instant::now() + patience;
    loop {
        let ready = http::get(admin, "/ready", &[]).await;
        if ready.as_ref().is_ok_and(|reply| reply.status == 200) {
            let listeners = http::get_json(admin, "/listeners?format=json").await?;
            if let Some(address) = listener_address(&listeners) {
                return Ok(address);
            }
        }
        if tokio::time::Instant::now() > give_up {
            return Err(process.failed(format!("is not ready: {ready:?}")));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn listener_address(listeners: &serde_json::Value) -> Option<SocketAddr> {
    let address = listeners.pointer("/listener_statuses/0/local_address/socket_address")?;
    let ip = address.get("address")?.as_str()?;
    let port = address.get("port_value")?.as_u64()?;
    Some(SocketAddr::new(ip.parse().ok()?, u16::try_from(port).ok()?))
}

/// Replaces the value of each `timeout` and `connect_timeout`, for [`Timeouts::Patient`].
pub fn patient(text: &str) -> String {
    let line = |line: &str| match line.split_once("timeout: ") {
        Some((before, _)) if matches!(before.trim(), "" | "connect_") => {
            format!("{before}timeout: 30s\n")
        }
        _ => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

/// Replaces the last number before each `# port: NAME` that ends a line, in the configuration of
/// any program; every name must be there once.
///
/// # Errors
/// A name is not there, or more than once, or has no number before it.
pub fn render(text: &str, ports: &[(&str, u16)]) -> Result<String, LocalError> {
    let mut seen = vec![0u32; ports.len()];
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        let marked = line.split_once("# port: ").and_then(|(before, name)| {
            let i = ports.iter().position(|(known, _)| *known == name.trim())?;
            Some((with_port(before, ports[i].1)?, i))
        });
        match marked {
            Some((line, i)) => {
                seen[i] += 1;
                out.push_str(&line);
            }
            None => out.push_str(line),
        }
        out.push('\n');
    }
    match seen.iter().position(|count| *count != 1) {
        None => Ok(out),
        Some(i) => Err(LocalError::answer(
            "the configuration",
            format!(
                "`# port: {}` must mark one line, not {}",
                ports[i].0, seen[i]
            ),
        )),
    }
}

/// The line with its last number replaced and without what is behind that, but for a semicolon.
fn with_port(line: &str, port: u16) -> Option<String> {
    let end = line.rfind(|c: char| c.is_ascii_digit())? + 1;
    let start = line[..end].rfind(|c: char| !c.is_ascii_digit())? + 1;
    Some(format!(
        "{}{port}{}",
        &line[..start],
        line[end..].trim_end()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_marked_ports_are_replaced() {
        let text = "a:\n  port_value: 1 # port: x\n  port_value: 2\n  port_value: 3 # port: y\n";
        let want = "a:\n  port_value: 7\n  port_value: 2\n  port_value: 8\n";
        assert_eq!(render(text, &[("x", 7), ("y", 8)]).unwrap(), want);
        assert!(render(text, &[("x", 7), ("z", 8)]).is_err());
        let nginx = "listen 127.0.0.1:8000; # port: n\nlisten 127.0.0.1:80;\n";
        let want = "listen 127.0.0.1:9;\nlisten 127.0.0.1:80;\n";
        assert_eq!(render(nginx, &[("n", 9)]).unwrap(), want);
    }

    #[test]
    fn patience_is_for_timeouts_alone() {
        let text = "# timeout: 1s\n  timeout: 0.25s\nconnect_timeout: 1s\nidle_timeout: 9s\n";
        let want = "# timeout: 1s\n  timeout: 30s\nconnect_timeout: 30s\nidle_timeout: 9s\n";
        assert_eq!(patient(text), want);
    }

    #[test]
    fn the_listener_is_read_from_envoys_own_answer() {
        let address = serde_json::json!({ "address": "127.0.0.1", "port_value": 41 });
        let status = serde_json::json!({ "local_address": { "socket_address": address } });
        let answer = serde_json::json!({ "listener_statuses": [status] });
        let want = "127.0.0.1:41".parse().unwrap();
        assert_eq!(listener_address(&answer), Some(want));
        assert_eq!(listener_address(&serde_json::json!({})), None);
    }
}
