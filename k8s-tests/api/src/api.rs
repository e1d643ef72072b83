//! Requests to the Kubernetes API as JSON, by path.
//!
//! Owns: a client. Promises: an error names the request. Never: caches, watches.

use std::path::Path;

use hyper::{Method, Request};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{json, Value};

use crate::SuiteError;

/// The API of one cluster, as its administrator sees it.
#[derive(Clone)]
pub struct Api {
    client: Client,
}

impl Api {
    /// For the cluster and the user of a kubeconfig; asks nothing yet.
    ///
    /// # Errors
    /// The file says too little.
    pub async fn new(kubeconfig: &Path) -> Result<Api, SuiteError> {
        let bad = |why: String| SuiteError::Kubeconfig {
            path: kubeconfig.to_owned(),
            why,
        };
        let file = Kubeconfig::read_from(kubeconfig).map_err(|e| bad(e.to_string()))?;
        let all = KubeConfigOptions::default();
        let config = Config::from_custom_kubeconfig(file, &all).await;
        let config = config.map_err(|e| bad(e.to_string()))?;
        let client = Client::try_from(config).map_err(|e| bad(e.to_string()))?;
        Ok(Api { client })
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        (kind, body): (&str, Vec<u8>),
    ) -> Result<Value, SuiteError> {
        let shown = format!("{method} {path}");
        let request = Request::builder().method(method).uri(path);
        let request = request.header("content-type", kind).body(body);
        let request = request.map_err(SuiteError::odd)?;
        let answer = self.client.request(request).await;
        answer.map_err(|e| SuiteError::Api {
            request: shown,
            source: Box::new(e),
        })
    }

    /// What is at `path`.
    ///
    /// # Errors
    /// Nothing, or no answer.
    pub async fn get(&self, path: &str) -> Result<Value, SuiteError> {
        let body = ("application/json", Vec::new());
        self.send(Method::GET, path, body).await
    }

    /// Makes an object in the collection `path`, or asks a subresource of that path.
    ///
    /// # Errors
    /// It is refused, or no answer.
    pub async fn create(&self, path: &str, object: &Value) -> Result<Value, SuiteError> {
        let body = ("application/json", object.to_string().into_bytes());
        self.send(Method::POST, path, body).await
    }

    /// Changes the object at `path` (RFC 7386).
    ///
    /// # Errors
    /// It is refused, or no answer.
    pub async fn patch(&self, path: &str, change: &Value) -> Result<Value, SuiteError> {
        let kind = "application/merge-patch+json";
        let body = (kind, change.to_string().into_bytes());
        self.send(Method::PATCH, path, body).await
    }

    /// Deletes the object at `path`, with this many seconds of grace where it has any.
    ///
    /// # Errors
    /// It is refused, or no answer.
    pub async fn delete(&self, path: &str, grace_s: Option<u32>) -> Result<Value, SuiteError> {
        let options = match grace_s {
            Some(seconds) => json!({ "gracePeriodSeconds": seconds }),
            None => json!({}),
        };
        let body = ("application/json", options.to_string().into_bytes());
        self.send(Method::DELETE, path, body).await
    }

    /// Whether the API serves requests.
    pub async fn is_ready(&self) -> bool {
        let request = Request::builder().uri("/readyz").body(Vec::new());
        match request {
            Ok(request) => self.client.request_text(request).await.is_ok(),
            Err(_) => false,
        }
    }
}

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Api")
    }
}
