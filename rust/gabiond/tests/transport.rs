//! Sockets, bounds and times of connections, and reflection, as clients meet them.
#![allow(clippy::unwrap_used)] // a test fails by panicking

mod common;

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use common::{ended_with, run, text, until, Member, Scratch, PATIENCE, PORTS};
use gabion_server::config::{Config, Variables};
use gabion_server::protocol::{descriptor, request, Code, RateLimitServiceClient, SERVICE_NAME};
use serde_json::Value;
use tonic::transport::{Channel, Endpoint};

const RULES: &str = "limits:\n- {name: ip, domain: edge, rate: 3r/h, descriptors: [{key: ip}]}\n";
/// What an HTTP/2 client says first: the preface, and settings that change nothing.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

fn with(server: &str) -> Member {
    Member::start(&format!("server: {{{server}}}\n{RULES}"))
}

fn count(member: &Member, name: &str) -> u64 {
    member.snapshot()["ports"]["envoy"][name].as_u64().unwrap()
}

async fn client_of(path: &Path) -> RateLimitServiceClient<Channel> {
    let endpoint = Endpoint::from_shared(format!("unix:{}", text(path))).unwrap();
    RateLimitServiceClient::new(endpoint.connect().await.unwrap())
}

async fn is_served(client: &mut RateLimitServiceClient<Channel>, ip: &str) {
    let answer = client.should_rate_limit(request("edge", vec![descriptor(&[("ip", ip)])]));
    assert_eq!(answer.await.unwrap().into_inner().overall_code(), Code::Ok);
}

/// A connection that has said `words` and then says nothing more.
fn mute(addr: SocketAddr, words: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(words).unwrap();
    stream
}

/// Reads until the other side closes.
fn is_closed(mut stream: TcpStream) {
    let mut all = Vec::new();
    match stream.read_to_end(&mut all) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
}

fn get_over(path: &Path, what: &str) -> String {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(
        stream,
        "GET {what} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[tokio::test]
async fn both_ports_can_be_unix_sockets_which_go_with_the_process() {
    let files = Scratch::new();
    let (envoy, admin) = (files.0.join("e.sock"), files.0.join("a.sock"));
    let config = format!(
        "envoy_bind: unix:{}\nadmin_bind: unix://{}\nserver: {{socket_mode: 0600}}\n{RULES}",
        text(&envoy),
        text(&admin)
    );
    let mut member = Member::start_with(&config, &[]);
    for path in [&envoy, &admin] {
        let about = std::fs::metadata(path).unwrap();
        assert!(about.file_type().is_socket());
        assert_eq!(about.permissions().mode() & 0o777, 0o600, "{path:?}");
    }
    let ports = std::fs::read_to_string(member.scratch.0.join("ports.json")).unwrap();
    let ports: Value = serde_json::from_str(&ports).unwrap();
    assert_eq!(ports["envoy"], format!("unix:{}", text(&envoy)));
    assert_eq!(ports["admin"], format!("unix:{}", text(&admin)));
    is_served(&mut client_of(&envoy).await, "a").await;
    assert!(get_over(&admin, "/readyz").contains("ready"));
    assert!(get_over(&admin, "/snapshot").contains("\"allowed\":1"));
    member.terminate();
    assert_eq!(member.wait().code(), Some(0), "{}", member.log());
    assert!(!envoy.exists() && !admin.exists());
}

#[tokio::test]
async fn the_socket_of_a_dead_process_is_replaced_and_that_of_a_living_one_refused() {
    let files = Scratch::new();
    let path = files.0.join("e.sock");
    let config = format!("envoy_bind: unix:{}\nadmin_bind: off\n{RULES}", text(&path));
    let mut first = Member::start_with(&config, &[]);
    let file = files.file("second.yaml", &config);
    let stderr = ended_with(&run(&[text(&file)]), 1);
    assert!(
        stderr.contains("another process listens on this socket"),
        "{stderr}"
    );
    assert!(stderr.contains("envoy_bind"), "{stderr}");
    is_served(&mut client_of(&path).await, "a").await;
    first.child.kill().unwrap(); // it cannot tidy up
    first.wait();
    assert!(path.exists());
    let second = Member::start_with(&config, &[]);
    assert!(
        second.log().contains("nobody listens on it any more"),
        "{}",
        second.log()
    );
    is_served(&mut client_of(&path).await, "a").await;
}

#[test]
fn a_file_that_is_no_socket_is_left_alone_and_an_errand_socket_is_not_removed() {
    let files = Scratch::new();
    let path = files.file("precious", "data");
    let config = format!("envoy_bind: unix:{}\nadmin_bind: off\n{RULES}", text(&path));
    let file = files.file("g.yaml", &config);
    let stderr = ended_with(&run(&[text(&file)]), 1);
    assert!(stderr.contains("no socket"), "{stderr}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "data");
    // Somebody else has put a socket of his own in the place of ours.
    let path = files.0.join("e.sock");
    let config = format!("envoy_bind: unix:{}\nadmin_bind: off\n{RULES}", text(&path));
    let mut member = Member::start_with(&config, &[]);
    std::fs::remove_file(&path).unwrap();
    let _other = UnixListener::bind(&path).unwrap();
    member.terminate();
    assert_eq!(member.wait().code(), Some(0));
    assert!(path.exists());
}

#[tokio::test]
async fn a_client_that_answers_no_ping_is_closed_and_one_that_does_is_kept() {
    let member = with("keepalive_interval: 50ms, keepalive_timeout: 50ms, idle_timeout: off");
    let mut living = member.client().await;
    is_served(&mut living, "a").await;
    let dead = mute(member.envoy, PREFACE);
    tokio::task::spawn_blocking(move || is_closed(dead))
        .await
        .unwrap();
    is_served(&mut living, "a").await;
    assert_eq!(
        count(&member, "accepted"),
        2,
        "the living one did not have to come back"
    );
    assert_eq!(count(&member, "closed_silent"), 0);
}

#[test]
fn silent_connections_are_closed_before_and_after_their_first_word() {
    let member = with("handshake_timeout: 100ms, keepalive_interval: off, idle_timeout: off");
    is_closed(mute(member.envoy, b""));
    assert_eq!(count(&member, "closed_silent"), 1);
    let member = with("keepalive_interval: off, idle_timeout: 100ms, handshake_timeout: 200ms");
    is_closed(mute(member.envoy, PREFACE));
    assert_eq!(count(&member, "closed_silent"), 1);
    until("its place is free", || {
        (count(&member, "open") == 0).then_some(())
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_24_a_connection_beyond_the_bound_waits_for_a_place() {
    let member = with("max_connections: 2, handshake_timeout: 1h, keepalive_interval: off");
    let held = [mute(member.envoy, PREFACE), mute(member.envoy, PREFACE)];
    until("both are in", || {
        (count(&member, "open") == 2).then_some(())
    });
    assert_eq!(count(&member, "open_most"), 2);
    let addr = format!("http://{}", member.envoy);
    let waiting = tokio::spawn(async move {
        let channel = Endpoint::new(addr).unwrap().connect().await.unwrap();
        is_served(&mut RateLimitServiceClient::new(channel), "a").await;
    });
    assert_eq!(member.snapshot()["decisions"]["allowed"], 0);
    drop(held);
    waiting.await.unwrap();
    assert_eq!(count(&member, "accepted"), 3);
}

/// The settings in the server's first frame: identifier and value.
fn announced(member: &Member) -> Vec<(u16, u32)> {
    let mut stream = mute(member.envoy, PREFACE);
    let mut head = [0; 9];
    stream.read_exact(&mut head).unwrap();
    assert_eq!(head[3], 4, "the first frame is SETTINGS");
    let mut body = vec![0; usize::from(head[1]) << 8 | usize::from(head[2])];
    stream.read_exact(&mut body).unwrap();
    let setting = |chunk: &[u8]| {
        let value = u32::from_be_bytes([chunk[2], chunk[3], chunk[4], chunk[5]]);
        (u16::from_be_bytes([chunk[0], chunk[1]]), value)
    };
    body.chunks_exact(6).map(setting).collect()
}

#[test]
fn case_24_bounds_on_streams_and_headers_are_announced() {
    const MAX_STREAMS: u16 = 3;
    const MAX_HEADERS: u16 = 6;
    let member = with("max_streams_per_connection: 7, max_header_bytes: 2k");
    let settings = announced(&member);
    assert!(settings.contains(&(MAX_STREAMS, 7)), "{settings:?}");
    assert!(settings.contains(&(MAX_HEADERS, 2_048)), "{settings:?}");
    let settings = announced(&Member::start(RULES));
    assert!(settings.contains(&(MAX_STREAMS, 1_024)), "{settings:?}");
    assert!(settings.contains(&(MAX_HEADERS, 16_384)), "{settings:?}");
}

#[tokio::test]
async fn a_request_larger_than_the_bound_is_refused_alone() {
    let member = with("max_request_bytes: 2k");
    let mut client = member.client().await;
    let long = "x".repeat(3_000);
    let large = request("edge", vec![descriptor(&[("ip", &long)])]);
    let status = client.should_rate_limit(large).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::OutOfRange, "{status}");
    is_served(&mut client, &"x".repeat(1_000)).await;
}

#[test]
fn an_aged_connection_is_told_to_go() {
    const GOAWAY: u8 = 7;
    let member = with("max_connection_age: 50ms");
    let mut stream = mute(member.envoy, PREFACE);
    let mut head = [0; 9];
    while head[3] != GOAWAY {
        stream.read_exact(&mut head).unwrap(); // or not in time
        let length = usize::from(head[1]) << 8 | usize::from(head[2]);
        stream.read_exact(&mut vec![0; length]).unwrap();
    }
}

#[tokio::test]
async fn reflection_names_the_services_and_shows_their_files() {
    use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
    use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
    use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
    use tonic_reflection::pb::v1::ServerReflectionRequest;
    let member = Member::start(RULES);
    let endpoint = || Endpoint::new(format!("http://{}", member.envoy)).unwrap();
    let mut client = ServerReflectionClient::new(endpoint().connect().await.unwrap());
    let ask = |message| ServerReflectionRequest {
        host: String::new(),
        message_request: Some(message),
    };
    let symbol = format!("{SERVICE_NAME}.ShouldRateLimit");
    let questions = tokio_stream::iter([
        ask(MessageRequest::ListServices(String::new())),
        ask(MessageRequest::FileContainingSymbol(symbol)),
    ]);
    let mut answers = client
        .server_reflection_info(questions)
        .await
        .unwrap()
        .into_inner();
    let listed = answers
        .message()
        .await
        .unwrap()
        .unwrap()
        .message_response
        .unwrap();
    let MessageResponse::ListServicesResponse(listed) = listed else {
        panic!("{listed:?}");
    };
    let names: Vec<&str> = listed.service.iter().map(|s| s.name.as_str()).collect();
    assert!(names.contains(&SERVICE_NAME), "{names:?}");
    assert!(names.contains(&"grpc.health.v1.Health"), "{names:?}");
    let file = answers
        .message()
        .await
        .unwrap()
        .unwrap()
        .message_response
        .unwrap();
    let MessageResponse::FileDescriptorResponse(file) = file else {
        panic!("{file:?}");
    };
    let file: prost_types::FileDescriptorProto =
        prost::Message::decode(file.file_descriptor_proto[0].as_slice()).unwrap();
    assert_eq!(file.name(), "envoy/service/ratelimit/v3/rls.proto");
    assert_eq!(file.service[0].method[0].name(), "ShouldRateLimit");
}

#[tokio::test]
async fn reflection_answers_older_clients_too_and_can_be_turned_off() {
    use tonic_reflection::pb::v1alpha::server_reflection_client::ServerReflectionClient;
    use tonic_reflection::pb::v1alpha::server_reflection_request::MessageRequest;
    use tonic_reflection::pb::v1alpha::ServerReflectionRequest;
    let question = || {
        tokio_stream::iter([ServerReflectionRequest {
            host: String::new(),
            message_request: Some(MessageRequest::ListServices(String::new())),
        }])
    };
    for (member, is_on) in [
        (Member::start(RULES), true),
        (with("reflection: false"), false),
    ] {
        let endpoint = Endpoint::new(format!("http://{}", member.envoy)).unwrap();
        let mut client = ServerReflectionClient::new(endpoint.connect().await.unwrap());
        match client.server_reflection_info(question()).await {
            Ok(answers) => {
                let answer = answers.into_inner().message().await.unwrap().unwrap();
                assert!(
                    is_on && format!("{answer:?}").contains(SERVICE_NAME),
                    "{answer:?}"
                );
            }
            Err(status) => {
                assert!(!is_on, "{status}");
                assert_eq!(status.code(), tonic::Code::Unimplemented);
            }
        }
    }
}

/// A fault, its place and a word of the advice.
const FAULTS: &[(&str, &str, &str)] = &[
    (
        "envoy_bind: unix:run/x",
        "g.yaml:1:13: envoy_bind",
        "absolute path",
    ),
    ("envoy_bind: unix:/run/", "envoy_bind", "is a directory"),
    ("envoy_bind: nowhere", "envoy_bind", "unix:/path/of/socket"),
    (
        "server: {max_connections: 0}",
        "server.max_connections",
        "1",
    ),
    (
        "server: {max_conections: 5}",
        "server.max_conections",
        "did you mean max_connections?",
    ),
    ("server: {socket_mode: 0888}", "server.socket_mode", "0660"),
    ("server: {socket_mode: 1777}", "server.socket_mode", "0660"),
    (
        "server: {keepalive_timeout: off}",
        "server.keepalive_timeout",
        "off",
    ),
    (
        "server: {keepalive_interval: 1ms}",
        "server.keepalive_interval",
        "10ms",
    ),
    (
        "server: {idle_timeout: 30s}",
        "server.idle_timeout",
        "keepalive_interval",
    ),
    (
        "server: {max_request_bytes: 1g}",
        "server.max_request_bytes",
        "64",
    ),
    ("server: {reflection: maybe}", "server.reflection", "true"),
    ("tls: {cert_file: /a}", "tls.key_file", "required"),
    (
        "tls: {cert_file: /a, key_file: /b}",
        "tls.cert_file",
        "cannot be read",
    ),
    (
        "admin_tls: {key_fil: /b}",
        "admin_tls.key_fil",
        "did you mean key_file?",
    ),
];

#[test]
fn case_61_bad_values_are_refused_with_advice() {
    let long = format!("admin_bind: unix:/{}", "x".repeat(200));
    let too_long = (long.as_str(), "admin_bind", "at most 107");
    for (lines, place, word) in FAULTS.iter().chain([&too_long]) {
        let text = format!("{lines}\n{RULES}");
        let said = Config::parse("g.yaml", &text, &Variables::default())
            .map(|_| ())
            .unwrap_err()
            .to_string();
        assert!(
            said.contains(place) && said.contains(word),
            "{lines}: {said}"
        );
    }
    let good = format!(
        "{PORTS}server: {{keepalive_interval: off, idle_timeout: off, max_connection_age: 1h, \
         socket_mode: 0o666}}\n{RULES}"
    );
    let server = Config::parse("g.yaml", &good, &Variables::default())
        .unwrap()
        .server;
    assert_eq!(
        (server.keepalive_interval, server.socket_mode),
        (None, 0o666)
    );
}
