//! What kubelets do beside running pods: they say that their nodes live.
//!
//! Owns: the nodes of a run and their leases. Promises: a node that is cut off says nothing until
//! it is back; nodes are silent when this is dropped. Never: starts a pod.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use serde_json::json;
use tokio::task::JoinHandle;

use crate::api::Api;
use crate::limits::LEASE_EVERY;
use crate::SuiteError;

const NODES: &str = "/api/v1/nodes";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

/// Whether each node says that it lives.
type Nodes = Arc<Mutex<BTreeMap<String, bool>>>;

/// The nodes of a run.
#[derive(Debug)]
pub struct Kubelets {
    api: Api,
    nodes: Nodes,
    work: JoinHandle<()>,
}

/// The time as leases have it.
fn now() -> MicroTime {
    MicroTime(Timestamp::now())
}

async fn renew_all(api: Api, nodes: Nodes) {
    loop {
        let living: Vec<String> = {
            let nodes = nodes.lock().unwrap_or_else(PoisonError::into_inner);
            let living = nodes.iter().filter(|(_, lives)| **lives);
            living.map(|(name, _)| name.clone()).collect()
        };
        for name in living {
            let change = json!({ "spec": { "renewTime": now() } });
            // an API that is away gets the next one
            let _ = api.patch(&format!("{LEASES}/{name}"), &change).await;
        }
        tokio::time::sleep(LEASE_EVERY).await;
    }
}

impl Kubelets {
    /// Without nodes yet.
    pub fn start(api: &Api) -> Kubelets {
        let nodes = Nodes::default();
        let work = tokio::spawn(renew_all(api.clone(), nodes.clone()));
        Kubelets {
            api: api.clone(),
            nodes,
            work,
        }
    }

    fn set(&self, name: &str, lives: bool) -> Option<bool> {
        let mut nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        nodes.insert(name.to_owned(), lives)
    }

    /// Adds a node that is ready, unless it is there.
    ///
    /// # Errors
    /// The API refuses.
    pub async fn add(&self, name: &str) -> Result<(), SuiteError> {
        if self.set(name, true).is_some() {
            return Ok(());
        }
        let node = json!({ "metadata": { "name": name } });
        self.api.create(NODES, &node).await?;
        let lease = json!({
            "metadata": { "name": name },
            "spec": {
                "holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": now(),
            },
        });
        self.api.create(LEASES, &lease).await?;
        self.set_ready(name).await
    }

    /// From now on the node says nothing.
    pub fn cut_off(&self, name: &str) {
        self.set(name, false);
    }

    /// It speaks again.
    ///
    /// # Errors
    /// The API refuses.
    pub async fn heal(&self, name: &str) -> Result<(), SuiteError> {
        self.set(name, true);
        self.set_ready(name).await
    }

    async fn set_ready(&self, name: &str) -> Result<(), SuiteError> {
        let status = json!({ "status": { "conditions": [{ "type": "Ready", "status": "True" }] } });
        let path = format!("{NODES}/{name}/status");
        self.api.patch(&path, &status).await?;
        Ok(())
    }
}

impl Drop for Kubelets {
    fn drop(&mut self) {
        self.work.abort();
    }
}
