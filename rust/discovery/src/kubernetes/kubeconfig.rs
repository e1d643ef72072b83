//! The way to an API server from outside of its cluster.
//!
//! I own the connection by kubeconfig files, with whatever way of authentication they name. I
//! promise that a program which does not ask for me is not linked with me: the reader, and the
//! plugins for authentication, are larger than all the rest of discovery. I never write a file.

use std::path::PathBuf;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use super::place::access;
use super::space::Connection;
use crate::error::{deepest, DiscoveryError};
use crate::limits::KUBE_CONNECT_MS;

/// Connects by these files, which are read as one.
pub(super) type Connect =
    fn(Vec<PathBuf>) -> BoxFuture<'static, Result<Connection, DiscoveryError>>;

pub(super) fn connect(
    paths: Vec<PathBuf>,
) -> BoxFuture<'static, Result<Connection, DiscoveryError>> {
    by(paths).boxed()
}

async fn by(paths: Vec<PathBuf>) -> Result<Connection, DiscoveryError> {
    let mut all = Kubeconfig::default();
    for path in &paths {
        let bad = |error| {
            access(format!(
                "kubeconfig {}: {}",
                path.display(),
                deepest(&error)
            ))
        };
        let read = Kubeconfig::read_from(path).map_err(bad)?;
        all = all.merge(read).map_err(bad)?;
    }
    let config = Config::from_custom_kubeconfig(all, &KubeConfigOptions::default()).await;
    let mut config = config.map_err(|error| {
        let paths: Vec<String> = paths.iter().map(|p| p.display().to_string()).collect();
        access(format!(
            "kubeconfig {}: {}",
            paths.join(", "),
            deepest(&error)
        ))
    })?;
    config.connect_timeout = Some(Duration::from_millis(KUBE_CONNECT_MS));
    // Retries are ours: they know Retry-After, and are counted.
    config.default_retry = false;
    let (namespace, server) = (
        config.default_namespace.clone(),
        config.cluster_url.to_string(),
    );
    let client = Client::try_from(config).map_err(|error| {
        let why = deepest(&error);
        access(format!("no connection to {server} can be set up: {why}"))
    })?;
    Ok(Connection {
        client,
        namespace,
        server,
    })
}
