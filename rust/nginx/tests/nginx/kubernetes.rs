//! Instances that find each other by the EndpointSlices of Kubernetes.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{json, Value};
use tokio_rustls::rustls;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::server::{udp_port, wait_for, Around, Folder, Nginx};

const RULE: &str = "gabion_limit_rule shared k:$arg_k rate=100r/w domain=edge;";

type Stream = rustls::StreamOwned<rustls::ServerConnection, TcpStream>;

/// An API server whose slices never change: endpoints on loopback with these ports. Gives its port
/// and its certificate.
fn api_server(ports: &[u16]) -> (u16, String) {
    let cert = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]);
    let cert = cert.expect("a certificate");
    let key = PrivateKeyDer::try_from(cert.signing_key.serialize_der()).expect("a key");
    let chain = vec![CertificateDer::from(cert.cert.der().to_vec())];
    let ring = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ServerConfig::builder_with_provider(ring)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(chain, key);
    let tls = Arc::new(tls.expect("a key that fits"));
    let pem = cert.cert.pem();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let slices = ports.iter().map(|port| {
        json!({
            "metadata": {
                "name": format!("edge-{port}"), "namespace": "here", "resourceVersion": "1",
                "labels": { "kubernetes.io/service-name": "edge" },
            },
            "addressType": "IPv4",
            "endpoints": [{ "addresses": ["127.0.0.1"], "conditions": { "ready": false } }],
            "ports": [{ "name": "gossip", "protocol": "UDP", "port": port }],
        })
    });
    let list = json!({
        "kind": "EndpointSliceList", "apiVersion": "discovery.k8s.io/v1",
        "metadata": { "resourceVersion": "1" }, "items": slices.collect::<Vec<_>>(),
    });
    let list = list.to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (list, tls) = (list.clone(), Arc::clone(&tls));
            // Whoever goes away ends the thread.
            std::thread::spawn(move || {
                let tls = rustls::ServerConnection::new(tls).expect("TLS");
                serve(rustls::StreamOwned::new(tls, stream), &list)
            });
        }
    });
    (port, pem)
}

fn serve(stream: Stream, list: &str) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream);
    loop {
        let mut request = String::new();
        if lines.read_line(&mut request)? == 0 {
            return Ok(());
        }
        let (mut header, mut token) = ("-".to_owned(), false);
        while !header.trim().is_empty() {
            header.clear();
            lines.read_line(&mut header)?;
            token |= header
                .trim_end()
                .eq_ignore_ascii_case("authorization: Bearer pod");
        }
        assert!(token, "no token");
        let stream = lines.get_mut();
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n";
        if !request.contains("watch=") {
            write!(stream, "{head}content-length: {}\r\n\r\n{list}", list.len())?;
            continue;
        }
        write!(stream, "{head}transfer-encoding: chunked\r\n\r\n")?;
        let line =
            "{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"1\"}}}\n";
        loop {
            write!(stream, "{:x}\r\n{line}\r\n", line.len())?;
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

fn instance(server: (u16, &str), own: u16, discovery: &str) -> Nginx {
    let folder = Folder::new();
    let (port, ca) = server;
    let account = folder.0.join("account");
    std::fs::create_dir(&account).expect("a folder");
    for (name, text) in [("token", "pod"), ("namespace", "here"), ("ca.crt", ca)] {
        folder.write(&format!("account/{name}"), text);
    }
    // As the kubelet sets them; the workers have no environment.
    let env = [
        ("KUBERNETES_SERVICE_HOST", PathBuf::from("127.0.0.1")),
        ("KUBERNETES_SERVICE_PORT", PathBuf::from(port.to_string())),
        ("KUBERNETES_SERVICE_ACCOUNT", account),
    ];
    let around = Around {
        env: &env,
        ..Around::default()
    };
    let http = format!(
        "gabion_limit_zone zone=z:1m; {RULE} {discovery}
         gabion_gossip_bind 127.0.0.1:{own}; gabion_gossip_cluster test;
         server {{ listen 127.0.0.1:PORT; root DIR/html;
             location = /state {{ gabion off; gabion_status; }}
             location = /metrics {{ gabion off; gabion_status prometheus; }}
             location / {{ gabion_limit shared; try_files /x.txt =404; }} }}"
    );
    Nginx::start_with(folder, "2", &around, &http)
}

fn source(nginx: &Nginx) -> Value {
    nginx.state()["gossip"]["discovery"][0].clone()
}

#[test]
fn instances_find_each_other_by_endpoint_slices_on_the_drivers_thread() {
    let (a, b) = (udp_port(), udp_port());
    let (port, ca) = api_server(&[a, b]);
    let server = (port, ca.as_str());
    let one = instance(server, a, "gabion_discovery_service_allow edge;");
    let two = instance(server, b, "gabion_discovery_namespace_allow here;");
    wait_for("peers", || {
        one.log().contains("peer up") && two.log().contains("peer up")
    });
    assert_eq!(one.statuses("/?k=x", 100), [200; 100]);
    wait_for("the counts at the other", || two.get("/?k=x").status == 429);
    for nginx in [&one, &two] {
        wait_for("the state", || source(nginx)["peers"] == 1);
        assert_eq!(source(nginx)["source"], "kubernetes");
        let metrics = nginx.get("/metrics").body;
        let line = r#"gabion_discovery_peers{source="kubernetes"} 1"#;
        assert!(metrics.contains(line), "{metrics}");
        // The workers have no environment, and tokio no threads of its own.
        let leader = nginx.state()["gossip"]["leader_pid"]
            .as_u64()
            .expect("a pid");
        let threads = std::fs::read_dir(format!("/proc/{leader}/task")).expect("threads");
        let names = threads.flatten().map(|thread| {
            let name = std::fs::read_to_string(thread.path().join("comm"));
            name.unwrap_or_default()
        });
        let names: Vec<String> = names.collect();
        assert!(
            !names.iter().any(|name| name.contains("tokio")),
            "{names:?}"
        );
    }
}

#[test]
fn case_45_without_a_cluster_an_instance_serves_and_says_what_to_set() {
    let (_, ca) = api_server(&[]);
    let one = instance((1, &ca), udp_port(), "gabion_discovery_service_allow edge;");
    assert_eq!(one.statuses("/?k=x", 3), [200; 3]);
    wait_for("the message", || {
        one.log()
            .contains("Kubernetes API server https://127.0.0.1:1/, namespace here: no answer")
    });
    wait_for("the count", || {
        source(&one)["errors"]["unreachable"].as_u64() > Some(0)
    });
}
