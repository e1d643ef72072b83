//! Over real connections: with a kubeconfig, and as a pod does by its service account.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::{rustls, TlsAcceptor};

use super::*;

/// Serves the fake on a port of the kernel's choice, under TLS where there is an acceptor.
async fn serve(fake: Fake, tls: Option<TlsAcceptor>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let bound = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                return;
            };
            let (fake, tls) = (fake.clone(), tls.clone());
            tokio::spawn(async move {
                let service = hyper::service::service_fn(move |request| {
                    std::future::ready(fake.handle::<hyper::body::Incoming>(&request))
                });
                let http = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                // Clients go as they please.
                match tls {
                    Some(tls) => match tls.accept(stream).await {
                        Ok(stream) => {
                            let _ = http.serve_connection(TokioIo::new(stream), service).await;
                        }
                        Err(error) => eprintln!("no TLS: {error}"),
                    },
                    None => {
                        let _ = http.serve_connection(TokioIo::new(stream), service).await;
                    }
                }
            });
        }
    });
    bound
}

/// A directory that goes with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let name = format!("gabion-kubernetes-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        let fresh = self.0.join(format!("{name}.fresh"));
        std::fs::write(&fresh, text).unwrap();
        std::fs::rename(&fresh, &path).unwrap();
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn member(place: Place, watched: Watched) -> Member {
    let said = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&said);
    let source = KubernetesPeers::new(watched, place, addr("127.0.0.1:7946"), None).reporting(
        Arc::new(move |error| heard.lock().unwrap().push(error.clone())),
    );
    let health = source.health.clone();
    Member {
        peers: Box::new(source).peers(),
        health,
        said,
    }
}

fn kubeconfig(server: SocketAddr, token: &Path) -> String {
    format!(
        "apiVersion: v1
kind: Config
current-context: here
clusters: [{{name: c, cluster: {{server: \"http://{server}\"}}}}]
users: [{{name: u, user: {{tokenFile: {}}}}}]
contexts: [{{name: here, context: {{cluster: c, user: u, namespace: here}}}}]
",
        token.display()
    )
}

fn place(pairs: &[(&'static str, String)]) -> Place {
    let pairs = pairs.to_vec();
    Place::of(move |name| {
        let found = pairs.iter().find(|(own, _)| *own == name);
        found.map(|(_, value)| value.clone())
    })
}

#[tokio::test]
async fn a_rotated_token_is_taken_up_and_an_old_one_is_named() {
    let fake = Fake::default();
    fake.put(
        "here",
        "edge-1",
        slice("edge", "gossip", 7946, &[("10.0.0.2", "b")]),
    );
    fake.world().token = Some("second".into());
    let server = serve(fake.clone(), None).await;
    let scratch = Scratch::new("token");
    let token = scratch.write("token", "first");
    let config = scratch.write("config", &kubeconfig(server, &token));
    let place = place(&[("KUBECONFIG", config.display().to_string())]).with_kubeconfig();
    let mut member = member(place, services(&["edge"]));
    let first = tokio::time::timeout(3 * SECOND, member.peers.next()).await;
    assert!(first.is_err(), "{first:?}");
    assert!(member.errors("unauthorized") >= 2);
    let said = member.said();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(
        said[0].contains(&format!("http://{server}/")),
        "{}",
        said[0]
    );
    assert!(said[0].contains("the token is not accepted"), "{}", said[0]);
    scratch.write("token", "second");
    assert_eq!(member.set().await, ["10.0.0.2:7946"]);
    // Rotated while a watch is open: the watch goes on, and the next one has the new token.
    fake.put(
        "here",
        "edge-2",
        slice("edge", "gossip", 7946, &[("10.0.0.3", "c")]),
    );
    assert_eq!(member.set().await.len(), 2);
    fake.world().token = Some("third".into());
    scratch.write("token", "third");
    fake.cut(Some(std::io::ErrorKind::ConnectionReset));
    fake.put(
        "here",
        "edge-3",
        slice("edge", "gossip", 7946, &[("10.0.0.4", "d")]),
    );
    assert_eq!(member.set().await.len(), 3);
}

#[tokio::test]
async fn a_pod_finds_its_peers_by_its_service_account() {
    let fake = Fake::default();
    let pods = [("10.0.0.2", "b"), ("127.0.0.1", "me")];
    fake.put("shop", "edge-1", slice("edge", "gossip", 7946, &pods));
    fake.world().token = Some("pod's".into());
    let cert = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(cert.signing_key.serialize_der()).unwrap();
    let chain = vec![CertificateDer::from(cert.cert.der().to_vec())];
    let config = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    let server = serve(fake.clone(), Some(TlsAcceptor::from(Arc::new(config)))).await;
    let scratch = Scratch::new("account");
    scratch.write("token", "pod's");
    scratch.write("namespace", "shop\n");
    scratch.write("ca.crt", &cert.cert.pem());
    let place = place(&[
        ("KUBERNETES_SERVICE_HOST", "127.0.0.1".to_owned()),
        ("KUBERNETES_SERVICE_PORT", server.port().to_string()),
        (
            "KUBERNETES_SERVICE_ACCOUNT",
            scratch.0.display().to_string(),
        ),
    ]);
    let again = place.clone();
    let mut member = member(place, Watched::default());
    assert_eq!(member.set().await, ["10.0.0.2:7946"], "{:?}", member.said());
    assert!(member.said().is_empty(), "{:?}", member.said());
    fake.remove("shop", "edge-1");
    assert!(member.set().await.is_empty());
    // The kubelet renews the token, with or without a newline at its end.
    fake.world().token = Some("renewed".into());
    scratch.write("token", "renewed\n");
    fake.cut(Some(std::io::ErrorKind::ConnectionReset));
    fake.put(
        "shop",
        "edge-2",
        slice("edge", "gossip", 7946, &[("10.0.0.3", "c")]),
    );
    assert_eq!(member.set().await, ["10.0.0.3:7946"]);
    assert_eq!(member.errors("unauthorized"), 0);
    // Another server under the same address is not believed.
    let stranger = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    scratch.write("ca.crt", &stranger.cert.pem());
    let mut deceived = self::member(again, Watched::default());
    let none = tokio::time::timeout(2 * SECOND, deceived.peers.next()).await;
    assert!(none.is_err(), "{none:?}");
    assert!(
        deceived.said()[0].contains("certificate"),
        "{:?}",
        deceived.said()
    );
}
