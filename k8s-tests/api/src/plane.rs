//! The control plane: etcd, kube-apiserver and kube-controller-manager as plain processes.
//!
//! Owns: these processes, their certificates, keys and data. Promises: they are in this program's
//! own network namespace, RBAC is on, tokens of service accounts are signed, slices are written by
//! Kubernetes' own controller; all end on drop, the API server first to start and last to end.
//! Never: keeps data from one run to the next.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use gabion_loader::local::process::Process;
use gabion_loader::local::RunDir;
use gabion_netlab::net::LAB_ADDRESS;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SanType};

use crate::api::Api;
use crate::limits::{LOOK_EVERY, NODE_GRACE_S, PLANE_START, WATCHES_CUT};
use crate::SuiteError;

/// Where the API is, on loopback and on the lab's own address.
pub const API_PORT: u16 = 6443;
const ETCD_PORT: u16 = 2379;
const ETCD_PEER_PORT: u16 = 2380;

/// The administrator's token; only processes in this network can reach the API.
const ADMIN: &str = "administrator-of-the-lab";

/// The controllers that pods, slices and accounts need.
const CONTROLLERS: &str = "endpointslice-controller,garbage-collector-controller,\
                           serviceaccount-controller,node-lifecycle-controller";

const FIX: &str = "build it: k8s-tests/controlplane/build";

/// A running control plane.
#[derive(Debug)]
pub struct Plane {
    // in this order they end
    manager: Option<Process>,
    server: Option<Process>,
    _etcd: Process,
    dir: RunDir,
    programs: PathBuf,
    starts: usize,
    /// Requests as its administrator.
    pub api: Api,
}

impl Plane {
    /// Starts all of it from the programs in a folder; the API serves on return.
    ///
    /// # Errors
    /// A program is not there, or does not start.
    pub async fn start(programs: &Path) -> Result<Plane, SuiteError> {
        let dir = RunDir::new("gabion-k8s")?;
        write_certificates(dir.path())?;
        std::fs::write(
            dir.path().join("tokens.csv"),
            format!("{ADMIN},admin,1,\"system:masters\"\n"),
        )?;
        let kubeconfig = dir.path().join("kubeconfig");
        std::fs::write(&kubeconfig, kubeconfig_text(dir.path(), ADMIN))?;
        let etcd = Process::start("etcd", etcd(programs, dir.path()), dir.path(), FIX)?;
        let api = Api::new(&kubeconfig).await?;
        let mut plane = Plane {
            manager: None,
            server: None,
            _etcd: etcd,
            dir,
            programs: programs.to_owned(),
            starts: 0,
            api,
        };
        plane.start_api().await?;
        Ok(plane)
    }

    /// The kubeconfig of its administrator.
    pub fn kubeconfig(&self) -> PathBuf {
        self.dir.path().join("kubeconfig")
    }

    /// Writes a kubeconfig for somebody who has this token.
    ///
    /// # Errors
    /// The system refuses.
    pub fn kubeconfig_of(&self, token: &str) -> Result<PathBuf, SuiteError> {
        let path = self.dir.path().join("kubeconfig-of-a-token");
        std::fs::write(&path, kubeconfig_text(self.dir.path(), token))?;
        Ok(path)
    }

    /// The certificate by which pods know the API, PEM.
    pub fn authority(&self) -> PathBuf {
        self.dir.path().join("ca.crt")
    }

    /// Where its programs are.
    pub fn programs(&self) -> &Path {
        &self.programs
    }

    /// Starts the API server (again); it serves on return. The controllers are started with it:
    /// those that run already may wait a minute before they try an API that was away again.
    ///
    /// # Errors
    /// It does not.
    pub async fn start_api(&mut self) -> Result<(), SuiteError> {
        self.starts += 1;
        let name = format!("kube-apiserver-start-{}", self.starts);
        let command = api_server(&self.programs, self.dir.path());
        let mut server = Process::start(&name, command, self.dir.path(), FIX)?;
        let start = Instant::now();
        while !self.api.is_ready().await {
            server.check_running()?;
            if start.elapsed() > PLANE_START {
                let what = format!("was not ready within {PLANE_START:?}");
                return Err(server.failed(what).into());
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        self.server = Some(server);
        self.manager = None;
        let name = format!("kube-controller-manager-start-{}", self.starts);
        let command = manager(&self.programs, self.dir.path());
        let manager = Process::start(&name, command, self.dir.path(), FIX)?;
        self.manager = Some(manager);
        Ok(())
    }

    /// Ends the API server in order, as an upgrade does: it no longer listens, and a while later
    /// the watches that are open are cut.
    pub async fn stop_api(&mut self) {
        if let Some(mut server) = self.server.take() {
            // it would wait a minute for clients that watch; then it is killed, which is meant
            let _ = server.stop(WATCHES_CUT).await;
        }
    }

    /// Starts the API server where a scenario that failed has left it away.
    ///
    /// # Errors
    /// It does not start.
    pub async fn revive(&mut self) -> Result<(), SuiteError> {
        match self.server {
            Some(_) => Ok(()),
            None => self.start_api().await,
        }
    }

    /// Ends the API server as a crash would.
    pub fn kill_api(&mut self) {
        self.server = None; // a process is killed on drop
    }

    /// Whether each of its processes still runs.
    ///
    /// # Errors
    /// One has ended; its last words are in the error.
    pub fn check(&mut self) -> Result<(), SuiteError> {
        let processes = [self.manager.as_mut(), self.server.as_mut()];
        for process in processes.into_iter().flatten() {
            process.check_running()?;
        }
        Ok(())
    }
}

/// An authority, a certificate for the API server, and the keys of tokens.
fn write_certificates(dir: &Path) -> Result<(), SuiteError> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
    let mut params = CertificateParams::new(vec!["kubernetes.default.svc".to_owned()])?;
    for address in [Ipv4Addr::LOCALHOST, LAB_ADDRESS] {
        let name = SanType::IpAddress(address.into());
        params.subject_alt_names.push(name);
    }
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, &authority)?;
    let tokens = KeyPair::generate()?;
    for (name, text) in [
        ("ca.crt", authority.pem()),
        ("api.crt", certificate.pem()),
        ("api.key", key.serialize_pem()),
        ("tokens.key", tokens.serialize_pem()),
        ("tokens.pub", tokens.public_key_pem()),
    ] {
        std::fs::write(dir.join(name), text)?;
    }
    Ok(())
}

fn kubeconfig_text(dir: &Path, token: &str) -> String {
    let authority = dir.join("ca.crt");
    format!(
        "apiVersion: v1
kind: Config
clusters:
- name: lab
  cluster:
    server: https://127.0.0.1:{API_PORT}
    certificate-authority: {}
users:
- name: admin
  user:
    token: {token}
contexts:
- name: lab
  context: {{cluster: lab, user: admin}}
current-context: lab
",
        authority.display()
    )
}

fn etcd(programs: &Path, dir: &Path) -> Command {
    let clients = format!("http://127.0.0.1:{ETCD_PORT}");
    let peers = format!("http://127.0.0.1:{ETCD_PEER_PORT}");
    let mut command = Command::new(programs.join("etcd"));
    command.arg("--data-dir").arg(dir.join("etcd"));
    command.args(["--listen-client-urls", &clients]);
    command.args(["--advertise-client-urls", &clients]);
    command.args(["--listen-peer-urls", &peers]);
    command.args(["--initial-advertise-peer-urls", &peers]);
    command.args(["--initial-cluster", &format!("default={peers}")]);
    // nothing is kept beyond the run
    command.args(["--unsafe-no-fsync", "--log-level", "warn"]);
    command
}

fn api_server(programs: &Path, dir: &Path) -> Command {
    let mut command = Command::new(programs.join("kube-apiserver"));
    let file = |name: &str| dir.join(name).display().to_string();
    let flags = [
        ("etcd-servers", format!("http://127.0.0.1:{ETCD_PORT}")),
        ("bind-address", "0.0.0.0".to_owned()),
        ("advertise-address", LAB_ADDRESS.to_string()),
        ("secure-port", API_PORT.to_string()),
        ("tls-cert-file", file("api.crt")),
        ("tls-private-key-file", file("api.key")),
        ("token-auth-file", file("tokens.csv")),
        ("authorization-mode", "RBAC".to_owned()),
        (
            "service-account-issuer",
            "https://kubernetes.svc".to_owned(),
        ),
        ("service-account-signing-key-file", file("tokens.key")),
        ("service-account-key-file", file("tokens.pub")),
        (
            "service-cluster-ip-range",
            "10.96.0.0/16,fd00:96::/112".to_owned(),
        ),
        ("endpoint-reconciler-type", "none".to_owned()),
        ("profiling", "false".to_owned()),
    ];
    command.args(flags.map(|(name, value)| format!("--{name}={value}")));
    command
}

fn manager(programs: &Path, dir: &Path) -> Command {
    let mut command = Command::new(programs.join("kube-controller-manager"));
    let flags = [
        ("kubeconfig", dir.join("kubeconfig").display().to_string()),
        ("controllers", CONTROLLERS.to_owned()),
        ("leader-elect", "false".to_owned()),
        ("bind-address", "127.0.0.1".to_owned()),
        ("cert-dir", dir.display().to_string()),
        ("node-monitor-grace-period", format!("{NODE_GRACE_S}s")),
        ("node-monitor-period", "1s".to_owned()),
        ("kube-api-qps", "200".to_owned()),
        ("kube-api-burst", "400".to_owned()),
        ("profiling", "false".to_owned()),
    ];
    command.args(flags.map(|(name, value)| format!("--{name}={value}")));
    command
}
