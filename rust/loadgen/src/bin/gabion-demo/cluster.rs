//! The cluster of the demo: two gabiond, nginx, Envoy, and an upstream behind each proxy.
//!
//! Owns: all of them. Promises: prints what it starts and where. Never: measures.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use gabion_loader::local::envoy::{self, Envoy, Timeouts};
use gabion_loader::local::member::{free_udp_ports, start_member, ClusterSpec, Member};
use gabion_loader::local::nginx::{Nginx, NginxSpec};
use gabion_loader::local::upstream::Upstream;
use gabion_loader::local::RunDir;

use crate::{AnyError, Programs};

/// Members of the demo: two gabiond, and nginx.
pub(crate) const MEMBERS: usize = 3;
/// Of them, those that are gabiond.
const SERVICES: usize = 2;
/// The limit, per minute of UTC, over all members.
pub(crate) const LIMIT: u64 = 600;
/// `probe` times how one hit gets around: so few are allowed that each is worth telling at once.
const LIMITS: &str = "
limits:
  - {name: api, domain: edge, descriptors: [{key: route, value: api}], rate: 600r/m}
  - {name: probe, domain: edge, descriptors: [{key: probe}], rate: 60r/h}
";
/// nginx reads the same rules; these lines say where it takes their values from.
const BINDINGS: &str = "gabion_limit_rule api route:\"api\";
    gabion_limit_rule probe probe:$arg_value;";

pub(crate) struct Cluster {
    pub(crate) members: Vec<Member>,
    pub(crate) nginx: Nginx,
    pub(crate) envoy: Envoy,
    behind_envoy: Upstream,
    behind_nginx: Upstream,
    dir: RunDir,
}

/// Requests that reached the upstreams, by the door they came through.
#[derive(Clone, Copy)]
pub(crate) struct Served {
    pub(crate) envoy: u64,
    pub(crate) nginx: u64,
}

impl Cluster {
    pub(crate) async fn start(programs: &Programs) -> Result<Cluster, AnyError> {
        let envoy_program = envoy::find()?;
        let mut dir = RunDir::new("gabion-demo")?;
        println!("Starting {MEMBERS} members that share one limit of {LIMIT} requests a minute:");
        let gossip = free_udp_ports(MEMBERS)?;
        let behind_envoy = Upstream::start().await?;
        let behind_nginx = Upstream::start().await?;
        let started = async {
            let members = start_services(programs, dir.path(), &gossip).await?;
            let spec = nginx_spec(programs, &gossip, behind_nginx.address());
            let nginx = Nginx::start(&spec, dir.path()).await?;
            for (i, member) in members.iter().enumerate() {
                member.wait_ready().await?;
                member.wait_connected(MEMBERS - 1).await?;
                println!("  gabiond {}  {}", i + 1, member_line(member));
            }
            println!("  nginx      {}", nginx_line(&nginx, gossip[SERVICES]));
            let asked = [members[0].envoy, members[1].envoy];
            let (upstream, timeouts) = (behind_envoy.address(), Timeouts::AsShipped);
            let envoy = envoy::start(&envoy_program, dir.path(), upstream, asked, timeouts).await?;
            println!("  Envoy      {}  (asks both gabiond)", envoy.listener);
            Ok::<_, AnyError>((members, nginx, envoy))
        };
        let (members, nginx, envoy) = match started.await {
            Ok(started) => started,
            Err(error) => {
                dir.keep();
                let files = dir.path().display();
                return Err(format!("{error}\n(configuration and logs: {files})").into());
            }
        };
        Ok(Cluster {
            members,
            nginx,
            envoy,
            behind_envoy,
            behind_nginx,
            dir,
        })
    }

    /// Bytes that the members, nginx among them, have sent to each other so far.
    pub(crate) async fn gossip_bytes(&self) -> Result<u64, AnyError> {
        let mut total = self.nginx.gossip_bytes().await?;
        for member in &self.members {
            total += member.gossip_bytes().await?;
        }
        Ok(total)
    }

    /// Requests that reached the upstreams so far.
    pub(crate) fn served(&self) -> Served {
        Served {
            envoy: self.behind_envoy.served(),
            nginx: self.behind_nginx.served(),
        }
    }

    /// What runs where, and what to try.
    pub(crate) fn describe(&self) -> String {
        let mut text = String::from("Still running:\n");
        for (i, member) in self.members.iter().enumerate() {
            text.push_str(&format!("  gabiond {}  {}\n", i + 1, member_line(member)));
        }
        let (nginx, envoy) = (self.nginx.listener, self.envoy.listener);
        text.push_str(&format!(
            "  nginx      {nginx}  (pid {})\n  Envoy      {envoy}  admin {}\nTry:\n  \
             curl -i http://{nginx}/api/\n  curl -i http://{envoy}/api/\n  \
             curl http://{nginx}/gabion\n  curl http://{}/snapshot\n",
            self.nginx.process.id(),
            self.envoy.admin,
            self.members[0].admin
        ));
        text
    }

    /// Leaves logs and configuration there and says where.
    pub(crate) fn keep_files(&mut self) -> PathBuf {
        self.dir.keep();
        self.dir.path().to_owned()
    }
}

async fn start_services(
    programs: &Programs,
    dir: &Path,
    gossip: &[SocketAddr],
) -> Result<Vec<Member>, AnyError> {
    let spec = ClusterSpec {
        program: programs.gabiond.clone(),
        limits: LIMITS.to_owned(),
        members: SERVICES,
    };
    let mut members = Vec::new();
    for i in 0..SERVICES {
        members.push(start_member(&spec, dir, i, gossip).await?);
    }
    Ok(members)
}

fn nginx_spec(programs: &Programs, gossip: &[SocketAddr], upstream: SocketAddr) -> NginxSpec {
    let locations = format!(
        "location /api/ {{ gabion_limit api; proxy_pass http://{upstream}; }}
        location = /probe {{ gabion_limit probe; proxy_pass http://{upstream}; }}"
    );
    NginxSpec {
        program: programs.nginx.clone(),
        module: programs.nginx_module.clone(),
        limits: LIMITS.to_owned(),
        bindings: BINDINGS.to_owned(),
        locations,
        gossip: gossip[SERVICES],
        peers: gossip.to_owned(),
    }
}

fn nginx_line(nginx: &Nginx, gossip: SocketAddr) -> String {
    let (listener, pid) = (nginx.listener, nginx.process.id());
    format!("{listener}  2 workers that decide themselves  gossip {gossip}  (pid {pid})")
}

fn member_line(member: &Member) -> String {
    format!(
        "rate-limit calls {}  admin {}  gossip {}  (pid {})",
        member.envoy,
        member.admin,
        member.gossip,
        member.process.id()
    )
}
