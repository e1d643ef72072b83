//! Where the two servers listen, within which bounds, and behind which certificates.
//!
//! I own the sections `server`, `tls` and `admin_tls` and the form of an address. I promise that
//! certificate files are read and found to fit together before a configuration is taken.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use gabion_rule::policy::MapReader;
use serde::{Serialize, Serializer};

use super::read::{parse_address, ADDRESS_ADVICE};
use crate::limits;
use crate::tls::{self, TlsFile};

/// An address that can be listened on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bind {
    /// TCP.
    Tcp(SocketAddr),
    /// A Unix socket: an absolute path of at most 107 bytes.
    Unix(PathBuf),
}

impl Bind {
    /// The TCP address; `None` for a Unix socket.
    pub fn tcp(&self) -> Option<SocketAddr> {
        match self {
            Bind::Tcp(addr) => Some(*addr),
            Bind::Unix(_) => None,
        }
    }
}

impl fmt::Display for Bind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bind::Tcp(addr) => addr.fmt(f),
            Bind::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl Serialize for Bind {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl From<SocketAddr> for Bind {
    fn from(addr: SocketAddr) -> Self {
        Bind::Tcp(addr)
    }
}

/// Bounds of the gRPC port (and the mode of both ports' socket files).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Connections at once; more wait in the kernel's queue.
    pub max_connections: usize,
    /// Calls that one connection may have open.
    pub max_streams: u32,
    /// Largest request message, bytes.
    pub max_request_bytes: usize,
    /// Largest set of request headers, bytes.
    pub max_header_bytes: u32,
    /// How often a quiet client is asked whether it lives; `None`: never.
    pub keepalive_interval: Option<Duration>,
    /// How long it may take to answer.
    pub keepalive_timeout: Duration,
    /// How long a connection may take for its handshake and first word.
    pub handshake_timeout: Duration,
    /// How long a connection may say nothing, later on; `None`: for ever.
    pub idle_timeout: Option<Duration>,
    /// How long a connection may take no byte of what is to be sent to it.
    pub write_timeout: Duration,
    /// Age at which a connection is told to go, once its open calls are done; `None`: never.
    pub max_connection_age: Option<Duration>,
    /// Whether gRPC reflection answers.
    pub reflection: bool,
    /// Permissions of socket files.
    pub socket_mode: u32,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            max_connections: limits::CONNECTIONS_DEFAULT,
            max_streams: limits::STREAMS_DEFAULT,
            max_request_bytes: limits::REQUEST_BYTES_DEFAULT,
            max_header_bytes: limits::HEADER_BYTES_DEFAULT,
            keepalive_interval: Some(limits::KEEPALIVE_EVERY),
            keepalive_timeout: limits::KEEPALIVE_ANSWER,
            handshake_timeout: limits::FIRST_WORD,
            idle_timeout: Some(limits::ENVOY_IDLE),
            write_timeout: limits::WRITE_TIMEOUT,
            max_connection_age: None,
            reflection: true,
            socket_mode: limits::SOCKET_MODE_DEFAULT,
        }
    }
}

/// Certificates of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// The certificate and those that it was signed with, PEM.
    pub cert_file: PathBuf,
    /// Its private key, PEM.
    pub key_file: PathBuf,
    /// Authorities of client certificates, PEM; `None`: clients show none.
    pub client_ca_file: Option<PathBuf>,
    /// Nothing older than TLS 1.3.
    pub only_tls13: bool,
}

/// `None` when the key is absent or was reported.
pub(super) fn bind(map: &mut MapReader<'_, '_>, key: &'static str) -> Option<Bind> {
    let text = map.text(key)?;
    let parsed = match text.strip_prefix("unix:") {
        Some(path) => socket_path(path),
        None => match parse_address(text) {
            Some(addr) => Ok(Bind::Tcp(addr)),
            None => Err(format!(
                "`{text}` is {ADDRESS_ADVICE}, or unix:/path/of/socket"
            )),
        },
    };
    parsed.map_err(|message| map.problem(key, message)).ok()
}

fn socket_path(text: &str) -> Result<Bind, String> {
    if !text.starts_with('/') {
        return Err(format!(
            "`unix:{text}` has no absolute path; write unix:/run/gabion/gabiond.sock"
        ));
    }
    // unix:///run/x, as some write it, is unix:/run/x.
    let path = format!("/{}", text.trim_start_matches('/'));
    if path.ends_with('/') {
        return Err(format!(
            "`unix:{text}` is a directory; name the socket in it"
        ));
    }
    if path.len() > limits::SOCKET_PATH_BYTES {
        return Err(format!(
            "the path has {} bytes; the system takes at most {} for a socket",
            path.len(),
            limits::SOCKET_PATH_BYTES
        ));
    }
    Ok(Bind::Unix(PathBuf::from(path)))
}

pub(super) fn server(map: &mut MapReader<'_, '_>) -> Server {
    let mut server = Server::default();
    let Some(mut map) = map.map("server") else {
        return server;
    };
    let count = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
    let number = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    if let Some(n) = map.u64_in("max_connections", 1..=limits::CONNECTIONS_MAX) {
        server.max_connections = count(n);
    }
    if let Some(n) = map.u64_in("max_streams_per_connection", 1..=limits::STREAMS_MAX) {
        server.max_streams = number(n);
    }
    if let Some(n) = map.size_bytes("max_request_bytes", 1_024..=limits::REQUEST_BYTES_MAX) {
        server.max_request_bytes = count(n);
    }
    if let Some(n) = map.size_bytes("max_header_bytes", 1_024..=limits::HEADER_BYTES_MAX) {
        server.max_header_bytes = number(n);
    }
    times(&mut map, &mut server);
    if let Some(reflection) = map.bool("reflection") {
        server.reflection = reflection;
    }
    if let Some(mode) = socket_mode(&mut map) {
        server.socket_mode = mode;
    }
    map.finish();
    server
}

fn times(map: &mut MapReader<'_, '_>, server: &mut Server) {
    if let Some(interval) = time_or_off(map, "keepalive_interval") {
        server.keepalive_interval = interval;
    }
    if let Some(time) = time(map, "keepalive_timeout") {
        server.keepalive_timeout = time;
    }
    if let Some(time) = time(map, "handshake_timeout") {
        server.handshake_timeout = time;
    }
    if let Some(idle) = time_or_off(map, "idle_timeout") {
        server.idle_timeout = idle;
    }
    if let Some(time) = time(map, "write_timeout") {
        server.write_timeout = time;
    }
    if let Some(age) = time_or_off(map, "max_connection_age") {
        server.max_connection_age = age;
    }
    let (idle, every) = (server.idle_timeout, server.keepalive_interval);
    if let (Some(idle), Some(every)) = (idle, every) {
        if idle < every {
            map.problem(
                "idle_timeout",
                format!(
                    "{idle:?} is less than keepalive_interval ({every:?}): clients that live would \
                     be closed before they are asked. Raise it, or lower keepalive_interval"
                ),
            );
        }
    }
}

fn time(map: &mut MapReader<'_, '_>, key: &'static str) -> Option<Duration> {
    let range = limits::CONNECTION_TIME_MIN_NS..=limits::CONNECTION_TIME_MAX_NS;
    map.duration_ns(key, range).map(Duration::from_nanos)
}

/// `Some(None)` for `off`.
fn time_or_off(map: &mut MapReader<'_, '_>, key: &'static str) -> Option<Option<Duration>> {
    if map.node(key).and_then(|node| node.as_text()) == Some("off") {
        return Some(None);
    }
    time(map, key).map(Some)
}

/// Octal, as `chmod` takes it.
fn socket_mode(map: &mut MapReader<'_, '_>) -> Option<u32> {
    let text = map.text("socket_mode")?;
    let digits = text.strip_prefix("0o").unwrap_or(text);
    match u32::from_str_radix(digits, 8) {
        Ok(mode) if mode <= 0o777 && !digits.starts_with('+') => Some(mode),
        _ => {
            let message = format!("`{text}` is no mode; write three octal digits, such as 0660");
            map.problem("socket_mode", message);
            None
        }
    }
}

/// A section with certificates; they are loaded once, so that a fault is found now.
pub(super) fn tls(map: &mut MapReader<'_, '_>, section: &'static str) -> Option<Tls> {
    let mut map = map.map(section)?;
    let cert_file = map.required_text("cert_file").map(PathBuf::from);
    let key_file = map.required_text("key_file").map(PathBuf::from);
    let client_ca_file = map.text("client_ca_file").map(PathBuf::from);
    let only_tls13 = map.word("min_version", &["1.2", "1.3"]) == Some("1.3");
    let tls = cert_file.zip(key_file).map(|(cert_file, key_file)| Tls {
        cert_file,
        key_file,
        client_ca_file,
        only_tls13,
    });
    if let Some(Err(error)) = tls.as_ref().map(tls::check) {
        let key = match error.file {
            TlsFile::Certificate => "cert_file",
            TlsFile::Key => "key_file",
            TlsFile::ClientAuthority => "client_ca_file",
        };
        map.problem(key, error.to_string());
    }
    map.finish();
    tls
}
