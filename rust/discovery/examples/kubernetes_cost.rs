//! What discovery through Kubernetes costs: memory and CPU of one member that watches slices.
//!
//! ```text
//! cargo run --release -p gabion-discovery --example kubernetes_cost -- [ENDPOINTS] [SECONDS]
//! ```
//!
//! It serves a list and a watch over loopback from a second process, with a bookmark each second
//! (a real server sends one a minute), discovers that many endpoints (1,000), and prints what
//! memory they took and what share of a core the rest (20 s) took. It ends with 1 beyond the
//! bounds: 20 MB, 1 % of a core. Numbers are of Linux (`/proc`).

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use gabion_discovery::kubernetes::{Place, Watched};
use gabion_discovery::{KubernetesPeers, PeerDiscovery};
use serde_json::json;

const MEMORY_BOUND_BYTES: u64 = 20_000_000;
const CPU_BOUND: f64 = 0.01;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number =
        |at: usize, other: u64| words.get(at).and_then(|w| w.parse().ok()).unwrap_or(other);
    if words.first().is_some_and(|word| word == "serve") {
        return match serve(number(1, 0)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("server: {error}");
                ExitCode::FAILURE
            }
        };
    }
    match measure(number(0, 1_000), number(1, 20)) {
        Ok((bytes, cpu)) if bytes <= MEMORY_BOUND_BYTES && cpu < CPU_BOUND => ExitCode::SUCCESS,
        Ok(_) => {
            eprintln!("beyond the bounds");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// The slices, as a real server would list them: a hundred endpoints in each.
fn list(endpoints: u64) -> String {
    let end = |n: u64| {
        json!({
            "addresses": [format!("10.1.{}.{}", n / 250, n % 250 + 1)],
            "conditions": { "ready": true, "serving": true, "terminating": false },
            "nodeName": format!("node-{}", n % 40),
            "zone": "z",
            "targetRef": {
                "kind": "Pod", "namespace": "here", "name": format!("gabion-{n}"),
                "uid": format!("00000000-0000-4000-8000-{n:012}"),
            },
        })
    };
    let slice = |at: u64| {
        let ends = at * 100..endpoints.min(at * 100 + 100);
        json!({
            "metadata": {
                "name": format!("gabion-{at}"), "namespace": "here", "uid": format!("u{at}"),
                "resourceVersion": "5", "generation": 1,
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "labels": { "kubernetes.io/service-name": "gabion" },
                "managedFields": [{
                    "manager": "kube-controller-manager", "operation": "Update",
                    "apiVersion": "discovery.k8s.io/v1", "time": "2026-01-01T00:00:00Z",
                    "fieldsType": "FieldsV1",
                    "fieldsV1": { "f:addressType": {}, "f:endpoints": {}, "f:ports": {} },
                }],
            },
            "addressType": "IPv4",
            "endpoints": ends.map(end).collect::<Vec<_>>(),
            "ports": [{ "name": "gossip", "protocol": "UDP", "port": 7_946 }],
        })
    };
    let slices: Vec<_> = (0..endpoints.div_ceil(100)).map(slice).collect();
    let list = json!({
        "kind": "EndpointSliceList", "apiVersion": "discovery.k8s.io/v1",
        "metadata": { "resourceVersion": "5" }, "items": slices,
    });
    list.to_string()
}

/// Prints its port, and serves until it is killed or its parent goes.
fn serve(endpoints: u64) -> std::io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?);
    let list = list(endpoints);
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    for stream in listener.incoming() {
        let (stream, list) = (stream?, list.clone());
        // A client that goes ends its thread.
        std::thread::spawn(move || answer(stream, &list));
    }
    Ok(())
}

fn answer(mut stream: TcpStream, list: &str) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?);
    loop {
        let mut request = String::new();
        if lines.read_line(&mut request)? == 0 {
            return Ok(());
        }
        let mut header = String::from("-");
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
        let line = "{\"type\":\"BOOKMARK\",\"object\":{\"kind\":\"EndpointSlice\",\"apiVersion\":\
                    \"discovery.k8s.io/v1\",\"metadata\":{\"resourceVersion\":\"5\"}}}\n";
        loop {
            write!(stream, "{:x}\r\n{line}\r\n", line.len())?;
            std::thread::sleep(Duration::from_secs(1));
        }
    }
}

fn measure(endpoints: u64, seconds: u64) -> Result<(u64, f64), String> {
    let failed = |what: &str| {
        let what = what.to_owned();
        move |error: std::io::Error| format!("{what}: {error}")
    };
    let own = std::env::current_exe().map_err(failed("own path"))?;
    let mut server = Command::new(own)
        .args(["serve", &endpoints.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed("server"))?;
    let mut address = String::new();
    let out = server.stdout.take().ok_or("no output")?;
    BufReader::new(out)
        .read_line(&mut address)
        .map_err(failed("its address"))?;
    let result = discover(address.trim(), endpoints, seconds);
    let _ = server.kill();
    let _ = server.wait();
    result
}

fn discover(server: &str, endpoints: u64, seconds: u64) -> Result<(u64, f64), String> {
    let folder = std::env::temp_dir().join(format!("gabion-cost-{}", std::process::id()));
    std::fs::create_dir_all(&folder).map_err(|e| e.to_string())?;
    let config = folder.join("config");
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: c, cluster: \
         {{server: \"http://{server}\"}}}}]\nusers: [{{name: u, user: {{token: t}}}}]\ncontexts: \
         [{{name: c, context: {{cluster: c, user: u, namespace: here}}}}]\n"
    );
    std::fs::write(&config, text).map_err(|e| e.to_string())?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| e.to_string())?;
    let before = resident_bytes()?;
    let path = config.display().to_string();
    let place = Place::of(|name| (name == "KUBECONFIG").then(|| path.clone())).with_kubeconfig();
    let bind: SocketAddr = ([127, 0, 0, 1], 7_946).into();
    let source = KubernetesPeers::new(Watched::default(), place, bind, None);
    let (first, cpu) = runtime.block_on(async {
        let began = Instant::now();
        let mut peers = Box::new(source).peers();
        let set = tokio::time::timeout(Duration::from_secs(30), peers.next()).await;
        let set = set.ok().flatten().ok_or("nothing was found in 30 s")?;
        if set.len() as u64 != endpoints {
            return Err(format!("{} peers instead of {endpoints}", set.len()));
        }
        let first = began.elapsed();
        let (ran_ns, since) = (ran_ns()?, Instant::now());
        let rest = tokio::time::timeout(Duration::from_secs(seconds), peers.next()).await;
        if rest.is_ok() {
            return Err("a set came though nothing changed".to_owned());
        }
        let ran = self::ran_ns()? - ran_ns;
        Ok((first, ran as f64 / since.elapsed().as_nanos() as f64))
    })?;
    let bytes = peak_bytes()?.saturating_sub(before);
    let _ = std::fs::remove_dir_all(&folder);
    println!(
        "endpoints {endpoints}  found in {} ms  memory at most {:.1} MB  at rest {:.3} % of a core",
        first.as_millis(),
        bytes as f64 / 1e6,
        cpu * 100.0
    );
    Ok((bytes, cpu))
}

/// A line of `/proc/self/status`, in bytes.
fn status_bytes(name: &str) -> Result<u64, String> {
    let status = std::fs::read_to_string("/proc/self/status").map_err(|e| e.to_string())?;
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|rest| rest.trim_start_matches(':').trim().strip_suffix(" kB"));
    let kib: u64 = kib.and_then(|kib| kib.parse().ok()).ok_or("no such line")?;
    Ok(kib * 1_024)
}

fn resident_bytes() -> Result<u64, String> {
    status_bytes("VmRSS")
}

fn peak_bytes() -> Result<u64, String> {
    status_bytes("VmHWM")
}

/// Nanoseconds that this thread, which runs everything, was on a core.
fn ran_ns() -> Result<u64, String> {
    let text = std::fs::read_to_string("/proc/self/schedstat").map_err(|e| e.to_string())?;
    let first = text.split(' ').next().and_then(|ns| ns.parse().ok());
    first.ok_or_else(|| "schedstat has no time".to_owned())
}
