//! What is special about a member that is nginx with the module.
//!
//! Owns: its configuration, its folder, and the signals of its processes. Promises: it counts by
//! the rules of the other members, under the same keys, and its workers end with it. Never: reads
//! the system's nginx configuration.
//!
//! `/R?k=KEY` charges a hit of rule `R`. `/R?k=KEY&reader=r` only reads: for readers, as a flag of
//! theirs says, each rule waits for a response with a status that nginx never gives here.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;

use gabion_loader::local::http;

use crate::limits::NGINX_WORKERS;
use crate::member::{inside, MemberSpec};
use crate::net::GOSSIP_PORT;
use crate::LabError;

/// Where clients connect.
pub(crate) const HTTP_PORT: u16 = 8080;

/// A status that no response of the lab has.
const NEVER: u16 = 599;

/// The programs that make an nginx member.
#[derive(Clone, Debug)]
pub struct NginxPrograms {
    /// `nginx`.
    pub nginx: PathBuf,
    /// The module.
    pub module: PathBuf,
}

/// The names of the rules of a `limits:` section in the lab's form, one a line.
fn rules(limits: &str) -> Vec<&str> {
    let names = limits.lines().filter_map(|line| line.split_once("name: "));
    names
        .filter_map(|(_, rest)| rest.split([',', '}']).next())
        .collect()
}

/// The rules, which readers are not charged by.
fn rules_text(limits: &str) -> String {
    let mut text = format!("flags:\n  reads: {{default: 99%, by: reader}}\n{limits}");
    for name in rules(limits) {
        let whole = format!("name: {name},");
        let reads = format!(
            "name: {name}, match: request, \
             charge: {{after: response, status: [\"{NEVER}\"], if_flag: reads}},"
        );
        text = text.replacen(&whole, &reads, 1);
    }
    text
}

/// Where a member's gossip is bound: a pod knows itself by its environment alone.
pub(crate) fn bind(index: usize, spec: &MemberSpec) -> SocketAddr {
    let ip = match spec.pod {
        None => crate::net::address(index),
        Some(_) => Ipv4Addr::UNSPECIFIED,
    };
    SocketAddr::from((ip, GOSSIP_PORT))
}

fn config_text(
    spec: &MemberSpec,
    programs: &NginxPrograms,
    (gossip, peers): (SocketAddr, &Path),
) -> String {
    let (mut binds, mut locations) = (String::new(), String::new());
    for name in rules(&spec.limits) {
        let _ = writeln!(binds, "    gabion_bind {name} $arg_k;");
        let _ = writeln!(
            locations,
            "        location = /{name} {{ gabion_limit {name}; try_files /x.txt =404; }}"
        );
    }
    let keys = spec.keys.as_ref().map_or_else(String::new, |file| {
        format!("    gabion_auth_key_file {};\n", file.display())
    });
    let discovery = match &spec.pod {
        None => format!("gabion_peers_file {};", peers.display()),
        Some(pod) => pod.directives.clone(),
    };
    format!(
        "load_module {module};
daemon off;
user root;
worker_processes {NGINX_WORKERS};
pid nginx.pid;
error_log error.log notice;
events {{ worker_connections 2048; }}
http {{
    access_log off;
    keepalive_requests 1000000000;
    client_body_temp_path body; proxy_temp_path proxy;
    fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
    gabion_limit_zone zone=lab:{bytes};
    gabion_rules_file limits.yaml;
    gabion_bind reader $arg_reader;
{binds}    gabion_log_level info;
    gabion_gossip_bind {gossip};
    gabion_gossip_cluster {cluster};
    gabion_node_id_seed {name};
    {discovery}
{keys}    server {{
        listen {HTTP_PORT};
        root html;
        location = /snapshot {{ gabion off; gabion_status; }}
{locations}    }}
}}
",
        module = programs.module.display(),
        bytes = spec.table_bytes,
        cluster = spec.cluster,
        name = spec.name,
    )
}

/// Writes its folder and gives the command that starts it in the namespace of member `index`.
///
/// # Errors
/// The system refuses.
pub(crate) fn prepare(
    index: usize,
    spec: &MemberSpec,
    programs: &NginxPrograms,
    (prefix, peers): (&Path, &Path),
) -> Result<Command, LabError> {
    std::fs::create_dir_all(prefix.join("html"))?;
    std::fs::write(prefix.join("html/x.txt"), "x\n")?;
    std::fs::write(prefix.join("limits.yaml"), rules_text(&spec.limits))?;
    let config = config_text(spec, programs, (bind(index, spec), peers));
    std::fs::write(prefix.join("nginx.conf"), config)?;
    let mut command = inside(index, spec.pod.as_ref());
    command.arg(&programs.nginx).arg("-p").arg(prefix);
    command.args(["-c", "nginx.conf", "-e", "error.log"]);
    Ok(command)
}

/// Process ids of a master's workers.
pub(crate) fn workers(master: u32) -> Vec<u32> {
    let path = format!("/proc/{master}/task/{master}/children");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect()
}

/// Sends a signal to one process.
pub(crate) fn signal(pid: u32, name: &str) {
    // one that has ended meanwhile needs no signal
    let _ = Command::new("kill").args([name, &pid.to_string()]).status();
}

/// One hit on a key; gives whether it was let through.
///
/// # Errors
/// No answer, or another one than 200 and 429.
pub(crate) async fn ask(to: SocketAddr, rule: &str, key: &str) -> Result<bool, LabError> {
    let reply = http::get(to, &format!("/{rule}?k={key}"), &[]).await?;
    match reply.status {
        200 => Ok(true),
        429 => Ok(false),
        status => Err(LabError::Odd(format!("nginx answered with {status}"))),
    }
}

/// What is left of a key's limit; charges nothing.
///
/// # Errors
/// No answer, or none that says so.
pub(crate) async fn left(to: SocketAddr, rule: &str, key: &str) -> Result<u64, LabError> {
    let reply = http::get(to, &format!("/{rule}?k={key}&reader=r"), &[]).await?;
    let said = reply.header("x-ratelimit-remaining");
    said.and_then(|text| text.parse().ok())
        .ok_or_else(|| LabError::Odd(format!("status {} says not what is left", reply.status)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::{rule, LabSpec};

    #[test]
    fn each_rule_lets_readers_read() {
        let spec = LabSpec::alike(1, &[rule("a", 20, "d", ""), rule("bc", 5, "m", "")]);
        let text = rules_text(&spec.members[0].limits);
        assert_eq!(text.lines().count(), 5, "{text}");
        let read = "name: bc, match: request, charge: {after: response, status: [\"599\"], if_flag";
        assert!(text.contains(read) && text.contains("rate: 5r/m"), "{text}");
        let programs = NginxPrograms {
            nginx: "/n".into(),
            module: "/m".into(),
        };
        let to = bind(0, &spec.members[0]);
        let config = config_text(&spec.members[0], &programs, (to, Path::new("/peers")));
        assert!(
            config.contains("location = /bc { gabion_limit bc;"),
            "{config}"
        );
        assert!(config.contains("gabion_bind a $arg_k;"), "{config}");
        let found = "gabion_gossip_bind 10.77.0.1:7946;";
        assert!(config.contains(found), "{config}");
        assert!(config.contains("gabion_peers_file /peers;"), "{config}");
    }
}
