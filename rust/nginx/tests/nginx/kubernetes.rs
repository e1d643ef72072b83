//! Instances that find each other by the EndpointSlices of Kubernetes.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use serde_json::{json, Value};

use crate::server::{udp_port, wait_for, Around, Folder, Nginx};

const RULE: &str = "gabion_limit_rule shared k:$arg_k rate=100r/w domain=edge;";

/// An API server whose slices never change: endpoints on loopback with these ports.
fn api_server(ports: &[u16]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let addr = listener.local_addr().expect("bound");
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
            let list = list.clone();
            // Whoever goes away ends the thread.
            std::thread::spawn(move || serve(stream, &list));
        }
    });
    addr
}

fn serve(mut stream: TcpStream, list: &str) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?);
    loop {
        let mut request = String::new();
        if lines.read_line(&mut request)? == 0 {
            return Ok(());
        }
        let mut header = "-".to_owned();
        while !header.trim().is_empty() {
            header.clear();
            lines.read_line(&mut header)?;
        }
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

fn instance(server: SocketAddr, own: u16, discovery: &str) -> Nginx {
    let folder = Folder::new();
    let kubeconfig = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: c, cluster: \
         {{server: \"http://{server}\"}}}}]\nusers: [{{name: u, user: {{token: t}}}}]\ncontexts: \
         [{{name: c, context: {{cluster: c, user: u, namespace: here}}}}]\n"
    );
    let path = folder
        .write("kubeconfig", &kubeconfig)
        .display()
        .to_string();
    let env = [("KUBECONFIG".to_owned(), path)];
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
    let server = api_server(&[a, b]);
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
    let nowhere = "127.0.0.1:1".parse().expect("an address");
    let one = instance(nowhere, udp_port(), "gabion_discovery_service_allow edge;");
    assert_eq!(one.statuses("/?k=x", 3), [200; 3]);
    wait_for("the message", || {
        one.log()
            .contains("Kubernetes API server http://127.0.0.1:1/, namespace here: no answer")
    });
    wait_for("the count", || {
        source(&one)["errors"]["unreachable"].as_u64() > Some(0)
    });
}
