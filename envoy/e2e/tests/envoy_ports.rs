//! Real Envoy asks gabiond over a Unix socket and over mTLS, as docs/envoy.md says.
#![allow(clippy::unwrap_used)] // a test fails by panicking

use std::path::Path;
use std::time::{Duration, Instant};

use gabion_envoy_e2e::start_alone;
use gabion_loader::local::envoy::{self, Envoy};
use gabion_loader::local::upstream::Upstream;
use gabion_loader::local::{http, source_root, RunDir};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

const LIMITS: &str = "limits:\n- {name: api, domain: edge, rate: 2r/d, \
                      descriptors: [{key: route, value: api}]}\n";

/// The blocks of YAML in docs/envoy.md that belong into the cluster `gabion`.
fn blocks() -> Vec<String> {
    let manual = std::fs::read_to_string(source_root().join("docs/envoy.md")).unwrap();
    let blocks = manual.split("```yaml\n").skip(1);
    let blocks = blocks.map(|rest| rest.split("```").next().unwrap().to_owned());
    blocks.filter(|block| block.starts_with("      ")).collect()
}

/// The example configuration with another end of its last cluster, and with patience.
fn example(end: &str) -> String {
    let example = std::fs::read_to_string(source_root().join("envoy/envoy.yaml")).unwrap();
    let at = example.find("      load_assignment:\n        cluster_name: gabion\n");
    let head = &example[..at.unwrap()];
    let patient = head
        .replace("timeout: 0.25s", "timeout: 30s")
        .replace("timeout: 0.5s", "timeout: 30s");
    format!("{patient}{end}")
}

async fn start_envoy(dir: &Path, upstream: &Upstream, end: &str) -> Envoy {
    let ports = [
        ("admin", 0),
        ("listener", 0),
        ("upstream", upstream.address().port()),
    ];
    let program = envoy::find().unwrap();
    envoy::start_text(&program, dir, &example(end), &ports)
        .await
        .unwrap()
}

/// Two pass, the others are denied: so gabiond was asked.
async fn limits_hold(envoy: &Envoy) {
    let give_up = Instant::now() + Duration::from_secs(30);
    let mut passed = 0;
    loop {
        let reply = http::get(envoy.listener, "/api/", &[]).await.unwrap();
        if reply.status == 429 {
            break;
        }
        // What passes without the header passes because no member was there to ask yet.
        passed += u32::from(reply.header("x-ratelimit-limit").is_some());
        if Instant::now() > give_up {
            let stats = http::get(envoy.admin, "/stats?filter=cluster.gabion", &[]).await;
            panic!("never denied: {}", stats.unwrap().body);
        }
    }
    assert_eq!(passed, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn envoy_asks_over_a_unix_socket() {
    let dir = RunDir::new("gabion-envoy-pipe").unwrap();
    let socket = dir.path().join("gabiond.sock");
    let socket = socket.to_str().unwrap();
    let config = format!("envoy_bind: unix:{socket}\nadmin_bind: off\nresponse_headers: off\n");
    let _gabiond = start_alone(dir.path(), &format!("{config}{LIMITS}"))
        .await
        .unwrap();
    let upstream = Upstream::start().await.unwrap();
    let block = blocks().into_iter().find(|block| block.contains("pipe:"));
    let end = block.unwrap().replace("/run/gabion/gabiond.sock", socket);
    limits_hold(&start_envoy(dir.path(), &upstream, &end).await).await;
}

/// A certificate for `name` and its key, PEM.
fn signed(authority: &CertifiedIssuer<'_, KeyPair>, name: &str) -> (String, String) {
    let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, authority).unwrap();
    (certificate.pem(), key.serialize_pem())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn envoy_asks_over_mutual_tls() {
    let dir = RunDir::new("gabion-envoy-tls").unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    // Or it would have the same name as those it signs, which Envoy takes for signed by themselves.
    let name = &mut params.distinguished_name;
    name.push(DnType::CommonName, "authority");
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let folder = dir.path().to_str().unwrap();
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    write("ca.crt", &authority.pem());
    for (name, file) in [("gabion.example", "server"), ("envoy.example", "tls")] {
        let (certificate, key) = signed(&authority, name);
        write(&format!("{file}.crt"), &certificate);
        write(&format!("{file}.key"), &key);
    }
    let config = format!(
        "envoy_bind: 127.0.0.1:0\nadmin_bind: off\nresponse_headers: off\ntls: {{cert_file: \
         '{folder}/server.crt', key_file: '{folder}/server.key', client_ca_file: \
         '{folder}/ca.crt'}}\n{LIMITS}"
    );
    let _gabiond = start_alone(dir.path(), &config).await.unwrap();
    let ports = std::fs::read_to_string(dir.path().join("ports.json")).unwrap();
    let ports: serde_json::Value = serde_json::from_str(&ports).unwrap();
    let port = ports["envoy"].as_str().unwrap().rsplit(':').next().unwrap();
    let upstream = Upstream::start().await.unwrap();
    let all = blocks();
    let tls = all
        .iter()
        .find(|block| block.contains("UpstreamTlsContext"));
    let tls = tls.unwrap().replace("/etc/envoy/gabion", folder);
    let endpoint = all.iter().find(|block| block.contains("pipe:")).unwrap();
    let tcp = format!("socket_address: {{ address: 127.0.0.1, port_value: {port} }}");
    let endpoint = endpoint.replace("pipe: { path: /run/gabion/gabiond.sock }", &tcp);
    let end = format!("{tls}{endpoint}");
    limits_hold(&start_envoy(dir.path(), &upstream, &end).await).await;
}
