//! Many streams, clients that do not read, many keys, many rules, and an hour if it is given one.
#![allow(clippy::unwrap_used)] // a test fails by panicking

mod common;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{codes, introduce, until, Member, PATIENCE};
use gabion_server::protocol::{
    descriptor, request, Code, RateLimitRequest, RateLimitServiceClient, SERVICE_NAME,
};
use prost::Message as _;
use tonic::transport::Channel;

const RULES: &str = "limits:\n- {name: ip, domain: edge, rate: 4000000000r/h, \
                     descriptors: [{key: ip}]}\n";
const MIB: u64 = 1 << 20;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const END_STREAM: u8 = 1;

/// Resident memory of a process, bytes.
fn resident(pid: u32) -> u64 {
    status(pid, "VmRSS:") * 1_024
}

/// A number of `/proc/PID/status`.
fn status(pid: u32, name: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// One HTTP/2 frame.
fn frame(kind: u8, flags: u8, stream: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(body.len()).unwrap().to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(body);
    bytes
}

/// What begins a connection: preface, settings, and room for all answers.
fn preface() -> Vec<u8> {
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend(frame(4, 0, 0, &[]));
    bytes.extend(frame(8, 0, 0, &(1u32 << 24).to_be_bytes()));
    bytes
}

/// The headers of a call, its body still to come.
fn open(stream: u32) -> Vec<u8> {
    let mut block = vec![0x83, 0x86]; // POST, http
    let mut text = |head: &[u8], value: &str| {
        block.extend(head);
        block.push(u8::try_from(value.len()).unwrap());
        block.extend(value.as_bytes());
    };
    text(&[0x04], &format!("/{SERVICE_NAME}/ShouldRateLimit"));
    text(&[0x01], "gabiond");
    text(&[0x0f, 0x10], "application/grpc"); // content-type
    text(b"\x00\x02te", "trailers");
    frame(HEADERS, 4, stream, &block)
}

/// The body of a call, and its end.
fn ask(stream: u32, request: &RateLimitRequest) -> Vec<u8> {
    let message = request.encode_to_vec();
    let mut body = vec![0];
    body.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
    body.extend(message);
    frame(DATA, END_STREAM, stream, &body)
}

fn one() -> RateLimitRequest {
    request("edge", vec![descriptor(&[("ip", "a")])])
}

/// The odd numbers that a client gives its streams.
fn streams(count: u32) -> impl Iterator<Item = u32> {
    (0..count).map(|i| 2 * i + 1)
}

fn dial(addr: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Reads frames until `enough` says so of (kind, flags).
fn read_until(stream: &mut TcpStream, mut enough: impl FnMut(u8, u8) -> bool) {
    let mut head = [0; 9];
    loop {
        stream.read_exact(&mut head).unwrap();
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut body = vec![0; usize::try_from(length).unwrap()];
        stream.read_exact(&mut body).unwrap();
        if enough(head[3], head[4]) {
            return;
        }
    }
}

async fn is_served(member: &Member) {
    let answer = tokio::time::timeout(PATIENCE, member.ask(one()))
        .await
        .unwrap();
    assert_eq!(answer.overall_code(), Code::Ok);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_24_ten_thousand_open_streams_cost_bounded_memory_and_are_all_answered() {
    const CONNECTIONS: usize = 10;
    const STREAMS: u32 = 1_000;
    let member = Member::start(RULES);
    is_served(&member).await;
    let before = resident(member.child.id());
    let mut connections: Vec<TcpStream> = (0..CONNECTIONS).map(|_| dial(member.envoy)).collect();
    for connection in &mut connections {
        let mut bytes = preface();
        streams(STREAMS).for_each(|stream| bytes.extend(open(stream)));
        connection.write_all(&bytes).unwrap();
    }
    is_served(&member).await;
    for connection in &mut connections {
        let bytes: Vec<u8> = streams(STREAMS)
            .flat_map(|stream| ask(stream, &one()))
            .collect();
        connection.write_all(&bytes).unwrap();
        let mut ended = 0;
        read_until(connection, |kind, flags| {
            assert_ne!(kind, RESET);
            ended += u32::from(kind == HEADERS && flags & END_STREAM != 0);
            ended == STREAMS
        });
    }
    let grown = resident(member.child.id()).saturating_sub(before);
    assert!(grown < 128 * MIB, "{grown} bytes for 10,000 streams");
    assert_eq!(member.snapshot()["decisions"]["allowed"], 10_002);
}

#[tokio::test]
async fn case_24_streams_beyond_the_bound_of_a_connection_are_refused_alone() {
    let member = Member::start(&format!(
        "server: {{max_streams_per_connection: 50}}\n{RULES}"
    ));
    let mut connection = dial(member.envoy);
    let mut bytes = preface();
    streams(80).for_each(|stream| bytes.extend(open(stream)));
    connection.write_all(&bytes).unwrap();
    let mut refused = 0;
    read_until(&mut connection, |kind, _| {
        refused += u32::from(kind == RESET);
        refused == 30
    });
    is_served(&member).await;
    // Those that are open go on.
    let bytes: Vec<u8> = streams(50).flat_map(|stream| ask(stream, &one())).collect();
    connection.write_all(&bytes).unwrap();
    let mut ended = 0;
    read_until(&mut connection, |kind, flags| {
        ended += u32::from(kind == HEADERS && flags & END_STREAM != 0);
        ended == 50
    });
}

/// Sends what `next` gives, without end, and never reads, until it is thrown out.
fn send_and_never_read(addr: SocketAddr, mut next: impl FnMut() -> Vec<u8>) {
    // Little room for answers, so that the server feels it soon.
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(4_096).unwrap();
    socket.connect(&addr.into()).unwrap();
    let mut connection = TcpStream::from(socket);
    connection.set_write_timeout(Some(PATIENCE)).unwrap();
    connection.write_all(&preface()).unwrap();
    let mut written = 0;
    loop {
        let bytes = next();
        written += bytes.len();
        if let Err(error) = connection.write_all(&bytes) {
            let stuck = error.kind() == std::io::ErrorKind::WouldBlock;
            assert!(
                !stuck,
                "still connected after {PATIENCE:?}, {written} bytes"
            );
            return;
        }
    }
}

/// Lets four clients do as `rude` does until all are thrown out, while others are served; gives the
/// bytes that the member grew by.
async fn growth_under(member: &Member, rude: fn(SocketAddr)) -> u64 {
    is_served(member).await;
    let before = resident(member.child.id());
    let addr = member.envoy;
    let clients: Vec<_> = (0..4)
        .map(|_| tokio::task::spawn_blocking(move || rude(addr)))
        .collect();
    let mut most = 0;
    for client in clients {
        while !client.is_finished() {
            is_served(member).await;
            most = most.max(resident(member.child.id()));
        }
        client.await.unwrap();
    }
    most.saturating_sub(before)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn case_24_clients_that_stop_reading_are_thrown_out_and_cost_bounded_memory() {
    let member = Member::start(&format!("server: {{write_timeout: 200ms}}\n{RULES}"));
    // Within the rules of HTTP/2: each ping is to be answered.
    let grown = growth_under(&member, |addr| {
        let pings = frame(6, 0, 0, &[0; 8]).repeat(1_000);
        send_and_never_read(addr, || pings.clone());
    });
    let grown = grown.await;
    assert!(grown < 32 * MIB, "{grown} bytes for 4 clients");
    let port = &member.snapshot()["ports"]["envoy"];
    assert_eq!(port["closed_stuck"], 4, "{port}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn case_24_clients_that_ask_more_than_they_may_and_never_read_cost_bounded_memory() {
    // Large answers, so that what the system holds for a client is full soon. What a client can
    // hold until it is thrown out is so many calls and so many refusals.
    let rules = RULES.replace("name: ip", &format!("name: {}", "n".repeat(100)));
    let server = "server: {write_timeout: 30s, max_streams_per_connection: 128}\n\
                  response_headers: always\n";
    let member = Member::start(&format!("{server}{rules}"));
    let grown = growth_under(&member, |addr| {
        let mut ids = streams(u32::MAX / 4);
        send_and_never_read(addr, || {
            let stream = ids.next().unwrap();
            let mut bytes = open(stream);
            bytes.extend(ask(stream, &one()));
            bytes
        });
    });
    let grown = grown.await;
    assert!(grown < 32 * MIB, "{grown} bytes for 4 clients");
}

/// Clients whose answers are stuck on their way, at the end of the process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_60_clients_that_never_read_do_not_hold_the_end_of_the_process() {
    let mut member = Member::start(&format!(
        "drain_timeout: 1s\nserver: {{write_timeout: 10m, keepalive_interval: off}}\n{RULES}"
    ));
    let sent: Arc<AtomicU64> = Arc::default();
    let (addr, counted) = (member.envoy, Arc::clone(&sent));
    let rude = tokio::task::spawn_blocking(move || {
        let mut ids = streams(u32::MAX / 4);
        send_and_never_read(addr, || {
            counted.fetch_add(1, Ordering::Relaxed);
            let stream = ids.next().unwrap();
            [
                open(stream),
                ask(stream, &one()),
                frame(6, 0, 0, &[0; 8]).repeat(100),
            ]
            .concat()
        });
    });
    // Stuck: it could write all the time, and did not for a while.
    let (mut before, mut same) = (0, 0);
    until("nothing moves any more", || {
        let now = sent.load(Ordering::Relaxed);
        same = if now == before && now > 0 {
            same + 1
        } else {
            0
        };
        before = now;
        (same > 100).then_some(())
    });
    is_served(&member).await;
    let start = Instant::now();
    member.terminate();
    assert_eq!(member.wait().code(), Some(0), "{}", member.log());
    assert!(
        start.elapsed() < Duration::from_secs(5),
        "{:?}",
        start.elapsed()
    );
    rude.await.unwrap();
}

/// Asks about keys `from..to` of `name`, 64 a request; gives how many were let through.
async fn sweep(mut client: RateLimitServiceClient<Channel>, from: u32, to: u32) -> u64 {
    let mut allowed = 0;
    let keys: Vec<u32> = (from..to).collect();
    for chunk in keys.chunks(64) {
        let key = |n: &u32| descriptor(&[("ip", &format!("k{n}"))]);
        let all = request("edge", chunk.iter().map(key).collect());
        let answer = client.should_rate_limit(all).await.unwrap().into_inner();
        allowed += codes(&answer)
            .iter()
            .filter(|code| **code == Code::Ok)
            .count() as u64;
    }
    allowed
}

async fn sweep_by(member: &Member, workers: u32, from: u32, to: u32) -> u64 {
    let share = (to - from) / workers;
    let mut running = Vec::new();
    for worker in 0..workers {
        let start = from + worker * share;
        let client = member.client().await;
        running.push(tokio::spawn(sweep(client, start, start + share)));
    }
    let mut allowed = 0;
    for worker in running {
        allowed += worker.await.unwrap();
    }
    allowed
}

/// Memory is what it was after a tenth of the keys, but for the table's own rows; none is lost.
async fn keys_pass_without_growth(keys: u32) {
    let rules = RULES.replace("4000000000r/h", "1000000r/s");
    let member = Member::start(&format!("storage: {{table_bytes: 64m}}\n{rules}"));
    let tenth = u64::from(keys / 10);
    assert_eq!(sweep_by(&member, 4, 0, keys / 10).await, tenth);
    let early = resident(member.child.id());
    assert_eq!(sweep_by(&member, 4, keys / 10, keys).await, 9 * tenth);
    let grown = resident(member.child.id()).saturating_sub(early);
    // The table is touched row by row, 64 bytes and a tag each; beyond that nothing may grow.
    let rows = 72 * 9 * tenth;
    assert!(grown < rows + 16 * MIB, "{grown} bytes for {keys} keys");
    let table = &member.snapshot()["table"];
    for lost in ["full_admits", "doorkeeper_hits", "evicted_rows"] {
        assert_eq!(table[lost], 0, "{table}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn case_26_two_hundred_thousand_keys_pass_without_growth_and_none_is_lost() {
    keys_pass_without_growth(200_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "20 s without optimisation"]
async fn case_26_a_million_keys_pass_without_growth_and_none_is_lost() {
    keys_pass_without_growth(1_000_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn case_27_an_exhausted_key_stays_denied_while_many_others_pass() {
    // Far fewer rows than keys.
    let rules = RULES.replace("4000000000r/h", "20r/h");
    let member = Member::start(&format!("storage: {{table_bytes: 1m}}\n{rules}"));
    let mut client = member.client().await;
    let mut hit = one();
    hit.hits_addend = 20;
    let first = client.should_rate_limit(hit).await.unwrap().into_inner();
    assert_eq!(first.overall_code(), Code::Ok);
    for round in 0..10 {
        sweep_by(&member, 2, round * 10_000, (round + 1) * 10_000).await;
        let answer = client.should_rate_limit(one()).await.unwrap().into_inner();
        assert_eq!(answer.overall_code(), Code::OverLimit, "round {round}");
    }
}

#[tokio::test]
async fn a_thousand_rules_of_one_domain_count_apart() {
    let rules: String = (0..1_000)
        .map(|i| {
            format!("- {{name: r{i}, domain: edge, rate: 1r/h, descriptors: [{{key: k{i}}}]}}\n")
        })
        .collect();
    let member = Member::start(&format!("limits:\n{rules}"));
    let mut client = member.client().await;
    let names: Vec<String> = (0..1_000).map(|i| format!("k{i}")).collect();
    for want in [Code::Ok, Code::OverLimit] {
        for (n, chunk) in names.chunks(50).enumerate() {
            let all = chunk.iter().map(|key| descriptor(&[(key, "x")])).collect();
            let answer = client
                .should_rate_limit(request("edge", all))
                .await
                .unwrap();
            for (i, status) in answer.into_inner().statuses.iter().enumerate() {
                assert_eq!(status.code(), want, "{i}");
                let limit = status.current_limit.as_ref().unwrap();
                assert_eq!(limit.name, format!("r{}", n * 50 + i));
            }
        }
    }
}

/// One second of a soak.
#[derive(Clone, Copy, Debug)]
struct Sample {
    resident: u64,
    files: u64,
    threads: u64,
    p50_us: u64,
    p99_us: u64,
    /// CPU time per call, all threads; the system counts it in steps of 10 ms.
    cpu_us: u64,
}

/// CPU time of a process so far, user and system, microseconds.
fn cpu_us(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let behind_name = &text[text.rfind(')').unwrap() + 1..];
    let times = behind_name.split_ascii_whitespace().skip(11).take(2);
    times
        .map(|ticks| ticks.parse::<u64>().unwrap())
        .sum::<u64>()
        * 10_000
}

/// One second of load: calls at a steady pace, connections that come and go, people that look.
async fn second(member: &Member, second: u32) -> Sample {
    let pid = member.child.id();
    let (end, cpu) = (Instant::now() + Duration::from_secs(1), cpu_us(pid));
    let mut pace = tokio::time::interval(Duration::from_millis(2));
    let mut late = Vec::new();
    let (mut client, silent) = (member.client().await, dial(member.envoy));
    for n in 0.. {
        pace.tick().await;
        let started = Instant::now();
        if started >= end {
            break;
        }
        // One hot key, many that come once, and some denials.
        let ip = if n % 4 == 0 {
            "hot".to_owned()
        } else {
            format!("{second}-{n}")
        };
        let tight = descriptor(&[("tight", "x")]);
        let both = request("edge", vec![descriptor(&[("ip", &ip)]), tight]);
        client.should_rate_limit(both).await.unwrap();
        late.push(u64::try_from(started.elapsed().as_micros()).unwrap());
    }
    drop(silent);
    assert_eq!(member.get("/readyz").0, 200);
    assert_eq!(member.get("/metrics").0, 200);
    member.snapshot();
    late.sort_unstable();
    Sample {
        resident: resident(pid),
        files: std::fs::read_dir(format!("/proc/{pid}/fd"))
            .unwrap()
            .count() as u64,
        threads: status(pid, "Threads:"),
        p50_us: late[late.len() / 2],
        p99_us: late[late.len() * 99 / 100],
        cpu_us: (cpu_us(pid) - cpu) / late.len() as u64,
    }
}

/// The median of what `of` says in each quarter of the soak, printed.
fn quarters(what: &str, all: &[Sample], of: fn(&Sample) -> u64) -> [u64; 4] {
    let medians = [0, 1, 2, 3].map(|quarter| {
        let length = all.len() / 4;
        let samples = &all[quarter * length..(quarter + 1) * length];
        let mut values: Vec<u64> = samples.iter().map(of).collect();
        values.sort_unstable();
        values[values.len() / 2]
    });
    println!("{what}, by quarter: {medians:?}");
    medians
}

/// Replaces the rate of a rule that nobody asks for: the rules that count stay as they are.
fn reload(member: &Member, rules: &str, round: u32) {
    let path = member.scratch.0.join("gabiond.yaml");
    let before = std::fs::read_to_string(&path).unwrap();
    let settings = &before[..before.find("limits:").unwrap()];
    let rate = 10 + round % 2;
    let text = format!(
        "{settings}{rules}- {{name: idle, domain: edge, rate: {rate}r/h, \
         descriptors: [{{key: idle}}]}}\n"
    );
    std::fs::write(path.with_extension("part"), text).unwrap();
    std::fs::rename(path.with_extension("part"), &path).unwrap();
    let (status, _, said) = member.send("POST", "/reload", "");
    assert_eq!(status, 200, "{said}");
}

/// A minute by default; `GABION_SOAK_SECONDS=3600` for an hour.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a minute"]
async fn a_soak_leaves_memory_files_threads_and_latency_flat() {
    let seconds = std::env::var("GABION_SOAK_SECONDS").ok();
    let seconds: u32 = seconds.map_or(60, |text| text.parse().unwrap()).max(20);
    let rules = format!(
        "{}- {{name: tight, domain: edge, rate: 50r/s, descriptors: [{{key: tight}}]}}\n",
        RULES.replace("4000000000r/h", "1000r/s")
    );
    let members = [
        Member::start_gossiping(&rules),
        Member::start_gossiping(&rules),
    ];
    introduce(&[&members[0], &members[1]]);
    let mut all = Vec::new();
    for n in 0..seconds {
        if n % 10 == 5 {
            reload(&members[0], &rules, n / 10);
        }
        // The second member is loaded now and then; it hears of everything.
        if n % 10 == 9 {
            second(&members[1], n).await;
            continue;
        }
        let sample = second(&members[0], n).await;
        if n % 60 == 30 {
            println!("second {n}: {sample:?}");
        }
        all.push(sample);
    }
    let [_, early_rss, _, last_rss] = quarters("resident bytes", &all, |s| s.resident);
    let [_, early_files, _, last_files] = quarters("open files", &all, |s| s.files);
    let [_, early_threads, _, last_threads] = quarters("threads", &all, |s| s.threads);
    let [_, early_p50, _, last_p50] = quarters("p50 of a second, us", &all, |s| s.p50_us);
    let [_, early_p99, _, last_p99] = quarters("p99 of a second, us", &all, |s| s.p99_us);
    quarters("CPU time per call, us", &all, |s| s.cpu_us);
    assert!(last_rss <= early_rss + early_rss / 20 + 4 * MIB);
    assert!(last_files <= early_files + 4);
    assert!(last_threads <= early_threads);
    assert!(last_p50 <= 2 * early_p50 + 1_000);
    assert!(last_p99 <= 3 * early_p99 + 10_000);
    for member in &members {
        let internal = &member.snapshot()["fail_open"]["internal"];
        assert_eq!(*internal, 0);
    }
    until("its connections are gone", || {
        (members[0].snapshot()["ports"]["envoy"]["open"] == 0).then_some(())
    });
}
