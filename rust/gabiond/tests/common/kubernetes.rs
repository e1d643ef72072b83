//! An API server that knows one EndpointSlice, for members that discover their peers by it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{json, Value};

use super::Scratch;

/// Version of the slice, and its endpoints.
type World = Arc<Mutex<(u64, Vec<SocketAddr>)>>;

/// A running server; its threads end with the process.
pub struct ApiServer {
    world: World,
    addr: SocketAddr,
}

impl ApiServer {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let world = World::default();
        let served = Arc::clone(&world);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let world = Arc::clone(&served);
                // Whoever goes away ends the thread.
                std::thread::spawn(move || serve(stream, &world));
            }
        });
        ApiServer { world, addr }
    }

    /// The endpoints of Service `edge` in namespace `here`, all with their own port.
    pub fn endpoints(&self, all: &[SocketAddr]) {
        let mut world = self.world.lock().unwrap();
        *world = (world.0 + 1, all.to_vec());
    }

    /// A kubeconfig for it.
    pub fn kubeconfig(&self, scratch: &Scratch) -> PathBuf {
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: c, cluster: \
             {{server: \"http://{}\"}}}}]\nusers: [{{name: u, user: {{token: t}}}}]\ncontexts: \
             [{{name: c, context: {{cluster: c, user: u, namespace: here}}}}]\n",
            self.addr
        );
        scratch.file("kubeconfig", &text)
    }
}

fn serve(mut stream: TcpStream, world: &World) -> std::io::Result<()> {
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
        let right = "/apis/discovery.k8s.io/v1/namespaces/here/endpointslices?";
        assert!(request.starts_with(&format!("GET {right}")), "{request}");
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n";
        let mut seen = world.lock().unwrap().0;
        if !request.contains("watch=") {
            let body = json!({
                "kind": "EndpointSliceList", "apiVersion": "discovery.k8s.io/v1",
                "metadata": { "resourceVersion": seen.to_string() }, "items": slices(world),
            });
            let body = body.to_string();
            let length = body.len();
            write!(stream, "{head}content-length: {length}\r\n\r\n{body}")?;
            continue;
        }
        let from = request.split("resourceVersion=").nth(1).unwrap_or("0");
        seen = from
            .split(['&', ' '])
            .next()
            .unwrap()
            .parse()
            .unwrap_or(seen);
        write!(stream, "{head}transfer-encoding: chunked\r\n\r\n")?;
        loop {
            let now = world.lock().unwrap().0;
            if now != seen {
                seen = now;
                for slice in slices(world) {
                    let line = format!("{}\n", json!({ "type": "MODIFIED", "object": slice }));
                    write!(stream, "{:x}\r\n{line}\r\n", line.len())?;
                }
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// One slice for each endpoint, since each has its own port.
fn slices(world: &World) -> Vec<Value> {
    let (version, ends) = world.lock().unwrap().clone();
    let slice = |at: usize, end: &SocketAddr| {
        json!({
            "metadata": {
                "name": format!("edge-{at}"), "namespace": "here",
                "resourceVersion": version.to_string(),
                "labels": { "kubernetes.io/service-name": "edge" },
            },
            "addressType": "IPv4",
            "endpoints": [{ "addresses": [end.ip()], "conditions": { "ready": false } }],
            "ports": [{ "name": "gossip", "protocol": "UDP", "port": end.port() }],
        })
    };
    let ends = ends.iter().enumerate();
    ends.map(|(at, end)| slice(at, end)).collect()
}
