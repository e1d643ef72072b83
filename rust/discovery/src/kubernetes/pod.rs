//! The way from a pod to its API server.
//!
//! I own the connection that a service account gives: TLS to the cluster's own authority, and the
//! token. I promise that the token is read for each request, so that a rotated one counts at once,
//! and that nothing else is linked for it: no kubeconfig, no plugin. I never keep a token.

use std::error::Error;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::{HeaderValue, AUTHORIZATION};
use http::uri::Authority;
use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::rt::TokioExecutor;
use kube::client::Body;
use kube::Client;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tower_service::Service;

use crate::limits::{KUBE_CONNECT_MS, KUBE_KEEPALIVE_MS};

type Fault = Box<dyn Error + Send + Sync>;

/// A client of the server at `authority` by the service account in `account`.
///
/// # Errors
/// What is wrong with the cluster's certificates.
pub(super) fn client(
    authority: Authority,
    account: &Path,
    namespace: &str,
) -> Result<Client, Fault> {
    let pem = std::fs::read(account.join("ca.crt"))?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        roots.add(certificate?)?;
    }
    if roots.is_empty() {
        return Err("ca.crt has no certificate".into());
    }
    let tls = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(Duration::from_millis(KUBE_CONNECT_MS)));
    tcp.set_keepalive(Some(Duration::from_millis(KUBE_KEEPALIVE_MS)));
    let https = HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_only()
        .enable_http1()
        .wrap_connector(tcp);
    let pod = Pod {
        http: HttpClient::builder(TokioExecutor::new()).build(https),
        authority,
        token: account.join("token"),
    };
    Ok(Client::new(pod, namespace))
}

/// Sends requests to the server, with the token of the moment.
struct Pod {
    http: HttpClient<HttpsConnector<HttpConnector>, Body>,
    authority: Authority,
    token: PathBuf,
}

impl Pod {
    fn addressed(&self, mut request: Request<Body>) -> Result<Request<Body>, Fault> {
        let path = request.uri().path_and_query().cloned();
        let uri = Uri::builder()
            .scheme("https")
            .authority(self.authority.clone())
            .path_and_query(path.ok_or("no path")?);
        *request.uri_mut() = uri.build()?;
        let token = std::fs::read_to_string(&self.token)
            .map_err(|error| format!("{}: {error}", self.token.display()))?;
        let mut header = HeaderValue::try_from(format!("Bearer {}", token.trim()))?;
        header.set_sensitive(true);
        request.headers_mut().insert(AUTHORIZATION, header);
        Ok(request)
    }
}

impl Service<Request<Body>> for Pod {
    type Response = Response<Incoming>;
    type Error = Fault;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Fault>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let sent = self
            .addressed(request)
            .map(|request| self.http.request(request));
        Box::pin(async move { Ok(sent?.await?) })
    }
}
