//! The cluster of the demo: three members, Envoy, an upstream.
//!
//! Owns: all of them. Promises: prints what it starts and where. Never: measures.

use std::path::{Path, PathBuf};

use gabion_loader::local::envoy::{self, Envoy, Timeouts};
use gabion_loader::local::member::{start_cluster, ClusterSpec, Member};
use gabion_loader::local::upstream::Upstream;
use gabion_loader::local::RunDir;

use crate::AnyError;

/// Members of the demo.
pub(crate) const MEMBERS: usize = 3;
/// The limit, per minute of UTC, over all members.
pub(crate) const LIMIT: u64 = 600;
/// `probe` times how one hit gets around: so few are allowed that each is worth telling at once.
const LIMITS: &str = "
limits:
  - {name: api, domain: edge, descriptors: [{key: route, value: api}], rate: 600r/m}
  - {name: probe, domain: edge, descriptors: [{key: probe}], rate: 60r/h}
";

pub(crate) struct Cluster {
    pub(crate) members: Vec<Member>,
    pub(crate) envoy: Envoy,
    upstream: Upstream,
    dir: RunDir,
}

impl Cluster {
    pub(crate) async fn start(gabiond: &Path) -> Result<Cluster, AnyError> {
        let envoy_program = envoy::find()?;
        let dir = RunDir::new("gabion-demo")?;
        println!("Starting {MEMBERS} members that share one limit of {LIMIT} requests a minute:");
        let spec = ClusterSpec {
            program: gabiond.to_owned(),
            limits: LIMITS.to_owned(),
            members: MEMBERS,
        };
        let members = start_cluster(&spec, dir.path()).await?;
        for (i, member) in members.iter().enumerate() {
            println!("  member {}  {}", i + 1, member_line(member));
        }
        let upstream = Upstream::start().await?;
        println!("  upstream  {}", upstream.address());
        let asked = [members[0].envoy, members[1].envoy];
        let envoy = envoy::start(
            &envoy_program,
            dir.path(),
            upstream.address(),
            asked,
            Timeouts::AsShipped,
        )
        .await?;
        println!("  Envoy     {}  (asks members 1 and 2)", envoy.listener);
        Ok(Cluster {
            members,
            envoy,
            upstream,
            dir,
        })
    }

    /// Bytes that all members have sent to each other so far.
    pub(crate) async fn gossip_bytes(&self) -> Result<u64, AnyError> {
        let mut total = 0;
        for member in &self.members {
            total += member.gossip_bytes().await?;
        }
        Ok(total)
    }

    /// Requests that reached the upstream so far.
    pub(crate) fn served(&self) -> u64 {
        self.upstream.served()
    }

    /// What runs where, and what to try.
    pub(crate) fn describe(&self) -> String {
        let mut text = String::from("Still running:\n");
        for (i, member) in self.members.iter().enumerate() {
            text.push_str(&format!("  member {}  {}\n", i + 1, member_line(member)));
        }
        text.push_str(&format!(
            "  Envoy     {}  admin {}\nTry:\n  curl -i http://{}/api/\n  curl http://{}/snapshot\n",
            self.envoy.listener, self.envoy.admin, self.envoy.listener, self.members[0].admin
        ));
        text
    }

    /// Leaves logs and configuration there and says where.
    pub(crate) fn keep_files(&mut self) -> PathBuf {
        self.dir.keep();
        self.dir.path().to_owned()
    }
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
