//! Where this member is: in a pod, or outside with a kubeconfig.
//!
//! I own what the environment and the service account's files say. I promise that the environment
//! is read when it is there to be read (nginx empties it for its workers), and files whenever a
//! connection is made anew, so that rotated tokens and certificates count. I never keep a secret
//! longer than the client that uses it.

use std::net::IpAddr;
use std::path::PathBuf;

use http::uri::Authority;

use super::kubeconfig::{self, Connect};
use super::pod;
use super::space::Connection;
use super::words::is_label;
use crate::error::{deepest, shown, DiscoveryError};

/// Where a pod finds its service account.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// What the environment says of the cluster and of this pod.
#[derive(Clone, Debug)]
pub struct Place {
    /// Host and port of the API server, in a pod.
    server: Option<(String, String)>,
    account: PathBuf,
    /// `KUBECONFIG`: files that are read as one.
    kubeconfig: Vec<PathBuf>,
    /// The one in the home directory.
    at_home: Option<PathBuf>,
    /// How to connect by kubeconfigs; `None`: they are not looked at.
    outside: Option<Connect>,
    namespace: Option<String>,
    pod_ips: Vec<IpAddr>,
    notices: Vec<String>,
}

impl Place {
    /// Reads the environment of this process.
    pub fn here() -> Self {
        Place::of(|name| std::env::var(name).ok())
    }

    /// Reads an environment.
    pub fn of(variable: impl Fn(&str) -> Option<String>) -> Self {
        let variable = |name: &str| variable(name).filter(|text| !text.is_empty());
        let mut notices = Vec::new();
        let host = variable("KUBERNETES_SERVICE_HOST");
        let paths = variable("KUBECONFIG").unwrap_or_default();
        let paths = std::env::split_paths(&paths).filter(|path| !path.as_os_str().is_empty());
        let namespace = variable("POD_NAMESPACE");
        let odd = namespace.as_ref().filter(|name| !is_label(name));
        if let Some(name) = odd {
            notices.push(format!(
                "POD_NAMESPACE is {name:?}, which is no namespace; it is ignored. Set it from the \
                 field metadata.namespace"
            ));
        }
        let mut pod_ips = Vec::new();
        for name in ["POD_IP", "POD_IPS"] {
            for text in variable(name).unwrap_or_default().split(',') {
                match text.trim().parse() {
                    Ok(ip) if !pod_ips.contains(&ip) => pod_ips.push(ip),
                    Err(_) if !text.trim().is_empty() => notices.push(format!(
                        "{name} has {text:?}, which is no address; it is ignored. Set it from the \
                         field status.podIP (or podIPs)"
                    )),
                    _ => {}
                }
            }
        }
        let account = variable("KUBERNETES_SERVICE_ACCOUNT");
        let home = variable("HOME").map(PathBuf::from);
        Place {
            server: host.zip(variable("KUBERNETES_SERVICE_PORT")),
            account: PathBuf::from(account.unwrap_or(ACCOUNT.to_owned())),
            kubeconfig: paths.collect(),
            at_home: home.map(|home| home.join(".kube/config")),
            outside: None,
            namespace: namespace.filter(|name| is_label(name)),
            pod_ips,
            notices,
        }
    }

    /// Looks at kubeconfigs, too: `KUBECONFIG` before the service account, `~/.kube/config` after.
    pub fn with_kubeconfig(mut self) -> Self {
        self.outside = Some(kubeconfig::connect);
        self
    }

    /// The pod's addresses, the first being the one of its main family.
    pub fn pod_ips(&self) -> &[IpAddr] {
        &self.pod_ips
    }

    /// What an operator should know of the environment.
    pub fn notices(&self) -> &[String] {
        &self.notices
    }

    /// A client for the cluster, and the namespace that is ours.
    pub(super) async fn connect(&self) -> Result<Connection, DiscoveryError> {
        let outside = self.outside.filter(|_| !self.kubeconfig.is_empty());
        let mut connection = match (outside, &self.server) {
            (Some(connect), _) => connect(self.kubeconfig.clone()).await?,
            (None, Some((host, port))) => self.inside(host, port)?,
            (None, None) => match (self.outside, &self.at_home) {
                (Some(connect), Some(path)) if path.exists() => connect(vec![path.clone()]).await?,
                (outside, _) => return Err(access(nowhere(outside.is_some()))),
            },
        };
        if let Some(namespace) = &self.namespace {
            connection.namespace = namespace.clone();
        }
        Ok(connection)
    }

    /// By the service account of a pod.
    fn inside(&self, host: &str, port: &str) -> Result<Connection, DiscoveryError> {
        let host = match host.parse::<IpAddr>() {
            Ok(IpAddr::V6(ip)) => format!("[{ip}]"),
            _ => host.to_owned(),
        };
        let authority: Authority = format!("{host}:{port}").parse().map_err(|error| {
            access(format!(
                "KUBERNETES_SERVICE_HOST and _PORT, {host}:{port}: {error}"
            ))
        })?;
        for file in ["token", "ca.crt"] {
            self.read(file)?;
        }
        let namespace = match &self.namespace {
            Some(namespace) => namespace.clone(),
            None => self.read("namespace")?.trim().to_owned(),
        };
        let server = format!("https://{authority}/");
        let client = pod::client(authority, &self.account, &namespace).map_err(|error| {
            let why = deepest(error.as_ref());
            access(format!("{}: {why}", self.account.join("ca.crt").display()))
        })?;
        Ok(Connection {
            client,
            namespace,
            server,
        })
    }

    fn read(&self, name: &str) -> Result<String, DiscoveryError> {
        let file = self.account.join(name);
        std::fs::read_to_string(&file).map_err(|error| {
            access(format!(
                "{}: {error}; the pod needs automountServiceAccountToken: true, and who runs this \
                 member (the user of nginx's workers) must be able to read it \
                 (securityContext.fsGroup)",
                file.display()
            ))
        })
    }
}

fn nowhere(outside: bool) -> String {
    let (unset, set) = match outside {
        true => (
            "neither KUBERNETES_SERVICE_HOST nor KUBECONFIG",
            ", set KUBECONFIG,",
        ),
        false => ("no KUBERNETES_SERVICE_HOST", ""),
    };
    format!(
        "no cluster is known here: {unset} is set. Run in a pod{set} or take the Kubernetes \
         settings out"
    )
}

pub(super) fn access(why: String) -> DiscoveryError {
    DiscoveryError::Access { why: shown(&why) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(pairs: &[(&str, &str)]) -> Place {
        let pairs: Vec<(String, String)> = pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let found = move |name: &str| pairs.iter().find(|(own, _)| own == name).cloned();
        Place::of(move |name| found(name).map(|(_, value)| value))
    }

    #[test]
    fn the_pods_addresses_are_each_there_once_and_odd_ones_are_said() {
        let place = place(&[
            ("POD_IP", "10.0.0.7"),
            ("POD_IPS", "10.0.0.7,fd00::7"),
            ("POD_NAMESPACE", "Prod!"),
        ]);
        let ips: Vec<String> = place.pod_ips().iter().map(ToString::to_string).collect();
        assert_eq!(ips, ["10.0.0.7", "fd00::7"]);
        assert_eq!(place.namespace, None);
        assert!(place.notices()[0].contains("POD_NAMESPACE"));
        let odd = self::place(&[("POD_IP", "$(POD_IP)")]);
        assert!(odd.pod_ips().is_empty());
        assert!(odd.notices()[0].contains("status.podIP"), "{odd:?}");
    }

    #[tokio::test]
    async fn without_a_cluster_the_message_says_what_to_set() {
        let error = place(&[]).connect().await.err().unwrap().to_string();
        assert!(
            error.contains("no KUBERNETES_SERVICE_HOST is set. Run in a pod or"),
            "{error}"
        );
        let error = place(&[]).with_kubeconfig().connect().await;
        let error = error.err().unwrap().to_string();
        assert!(error.contains("set KUBECONFIG"), "{error}");
        let gone = place(&[("KUBECONFIG", "/nowhere/config")]).with_kubeconfig();
        let error = gone.connect().await.err().unwrap().to_string();
        assert!(error.contains("/nowhere/config"), "{error}");
        let pod = place(&[
            ("KUBERNETES_SERVICE_HOST", "10.0.0.1"),
            ("KUBERNETES_SERVICE_PORT", "443"),
            ("KUBERNETES_SERVICE_ACCOUNT", "/nowhere"),
        ]);
        let error = pod.connect().await.err().unwrap().to_string();
        assert!(error.contains("/nowhere/token"), "{error}");
        assert!(error.contains("automountServiceAccountToken"), "{error}");
    }
}
