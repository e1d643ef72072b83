//! Where this member is: in a pod, or outside with a kubeconfig.
//!
//! I own what the environment and the service account's files say. I promise that the environment
//! is read when it is there to be read (nginx empties it for its workers), and files whenever a
//! connection is made anew, so that rotated tokens and certificates count. I never keep a secret
//! longer than the client that uses it.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use http::Uri;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use super::space::Connection;
use super::words::is_label;
use crate::error::{deepest, shown, DiscoveryError};
use crate::limits::{KUBE_CONNECT_MS, KUBE_SILENCE_MS};

/// Where a pod finds its service account.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// What the environment says of the cluster and of this pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Host and port of the API server, in a pod.
    server: Option<(String, String)>,
    account: PathBuf,
    /// `KUBECONFIG`: files that are read as one.
    kubeconfig: Vec<PathBuf>,
    /// The one in the home directory.
    at_home: Option<PathBuf>,
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
        let home = variable("HOME").map(PathBuf::from);
        Place {
            server: host.zip(variable("KUBERNETES_SERVICE_PORT")),
            account: PathBuf::from(ACCOUNT),
            kubeconfig: paths.collect(),
            at_home: home.map(|home| home.join(".kube/config")),
            namespace: namespace.filter(|name| is_label(name)),
            pod_ips,
            notices,
        }
    }

    /// Takes another directory for the service account's.
    pub fn with_account(mut self, directory: impl Into<PathBuf>) -> Self {
        self.account = directory.into();
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
        let (mut config, namespace) =
            match &self.server {
                _ if !self.kubeconfig.is_empty() => self.outside(&self.kubeconfig).await?,
                Some((host, port)) => self.inside(host, port)?,
                None => match &self.at_home {
                    Some(path) if path.exists() => self.outside(std::slice::from_ref(path)).await?,
                    _ => return Err(access(
                        "no cluster is known here: neither KUBERNETES_SERVICE_HOST nor KUBECONFIG \
                         is set. Run in a pod, set KUBECONFIG, or take the Kubernetes settings out"
                            .to_owned(),
                    )),
                },
            };
        config.connect_timeout = Some(std::time::Duration::from_millis(KUBE_CONNECT_MS));
        config.read_timeout = Some(std::time::Duration::from_millis(KUBE_SILENCE_MS));
        config.reset_reader_on_write = true;
        // Retries are ours: they know Retry-After, and are counted.
        config.default_retry = false;
        let server = config.cluster_url.to_string();
        let client = Client::try_from(config).map_err(|error| {
            access(format!(
                "no connection to {server} can be set up: {}",
                deepest(&error)
            ))
        })?;
        Ok(Connection {
            client,
            namespace,
            server,
        })
    }

    /// By the service account of a pod.
    fn inside(&self, host: &str, port: &str) -> Result<(Config, String), DiscoveryError> {
        let host = match host.parse::<IpAddr>() {
            Ok(IpAddr::V6(ip)) => format!("[{ip}]"),
            _ => host.to_owned(),
        };
        let uri: Uri = format!("https://{host}:{port}").parse().map_err(|error| {
            access(format!(
                "KUBERNETES_SERVICE_HOST and _PORT, {host}:{port}: {error}"
            ))
        })?;
        let [token, ca, space] = ["token", "ca.crt", "namespace"].map(|f| self.account.join(f));
        for file in [&token, &ca] {
            self.read(file)?;
        }
        let namespace = match &self.namespace {
            Some(namespace) => namespace.clone(),
            None => self.read(&space)?.trim().to_owned(),
        };
        let mut config = Config::new(uri);
        config.auth_info.token_file = Some(token.display().to_string());
        config.root_cert_file = Some(ca);
        Ok((config, namespace))
    }

    fn read(&self, file: &Path) -> Result<String, DiscoveryError> {
        std::fs::read_to_string(file).map_err(|error| {
            access(format!(
                "{}: {error}; the pod needs automountServiceAccountToken: true, and who runs this \
                 member (the user of nginx's workers) must be able to read it \
                 (securityContext.fsGroup)",
                file.display()
            ))
        })
    }

    /// By kubeconfig files.
    async fn outside(&self, paths: &[PathBuf]) -> Result<(Config, String), DiscoveryError> {
        let mut all = Kubeconfig::default();
        for path in paths {
            let bad = |error| {
                access(format!(
                    "kubeconfig {}: {}",
                    path.display(),
                    deepest(&error)
                ))
            };
            all = all
                .merge(Kubeconfig::read_from(path).map_err(bad)?)
                .map_err(bad)?;
        }
        let config = Config::from_custom_kubeconfig(all, &KubeConfigOptions::default()).await;
        let config = config.map_err(|error| {
            let paths: Vec<String> = paths.iter().map(|p| p.display().to_string()).collect();
            access(format!(
                "kubeconfig {}: {}",
                paths.join(", "),
                deepest(&error)
            ))
        })?;
        let of_context = || config.default_namespace.clone();
        let namespace = self.namespace.clone().unwrap_or_else(of_context);
        Ok((config, namespace))
    }
}

fn access(why: String) -> DiscoveryError {
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
        assert!(error.contains("KUBECONFIG"), "{error}");
        let gone = place(&[("KUBECONFIG", "/nowhere/config")]);
        let error = gone.connect().await.err().unwrap().to_string();
        assert!(error.contains("/nowhere/config"), "{error}");
        let pod = [
            ("KUBERNETES_SERVICE_HOST", "10.0.0.1"),
            ("KUBERNETES_SERVICE_PORT", "443"),
        ];
        let pod = place(&pod).with_account("/nowhere");
        let error = pod.connect().await.err().unwrap().to_string();
        assert!(error.contains("/nowhere/token"), "{error}");
        assert!(error.contains("automountServiceAccountToken"), "{error}");
    }
}
