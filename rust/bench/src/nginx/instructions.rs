//! Instructions that a request costs more, counted by callgrind: the same whatever else runs.
//!
//! nginx runs as one process. A location's cost is the difference of two runs of different length,
//! so that start and end are not in it; a rule's cost is what its location has more than the one
//! without a limiter.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::rates::{rules, LOCATIONS};
use super::server::{Server, Way};
use super::NginxOptions;
use crate::limits::{NGINX_COUNTED_REQUESTS, NGINX_REQUEST_INSTRUCTIONS_MAX};
use crate::report::{Bar, Figure};
use crate::BenchError;

const PATIENCE: Duration = Duration::from_secs(60);
const CALLGRIND: [&str; 3] = [
    "valgrind",
    "--tool=callgrind",
    "--callgrind-out-file=/dev/null",
];

/// Asks so often on one connection, one request after the other.
fn ask(addr: SocketAddr, path: &str, count: u64) -> Result<(), BenchError> {
    let mut stream = TcpStream::connect(addr)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let mut buffer = Vec::new();
    for _ in 0..count {
        stream.write_all(request.as_bytes())?;
        buffer.clear();
        // Every answer of these locations ends with its body, whose length is given.
        while !is_whole(&buffer) {
            let mut piece = [0; 4_096];
            let read = stream.read(&mut piece)?;
            if read == 0 {
                return Err(BenchError::Void(format!("{path}: the connection ended")));
            }
            buffer.extend_from_slice(&piece[..read]);
        }
    }
    Ok(())
}

fn is_whole(answer: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(answer) else {
        return false;
    };
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let mut lines = head.lines();
    let length = lines.find_map(|line| line.strip_prefix("Content-Length: "));
    length.and_then(|text| text.parse().ok()) == Some(body.len())
}

/// Instructions of a whole run with so many requests.
async fn run(options: &NginxOptions, path: &str, count: u64) -> Result<f64, BenchError> {
    let way = Way::Under(&CALLGRIND);
    let server = Server::start(options, way, rules(), LOCATIONS).await?;
    ask(server.addr, path, count)?;
    let out = server.dir.path().join("nginx.log");
    let said = server.stop_and_read(&out).await?;
    let collected = said.rsplit_once("Collected :").map(|(_, rest)| rest);
    let number = collected.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    number.ok_or_else(|| BenchError::Void(format!("callgrind's answer is not understood: {said}")))
}

/// Instructions of one request to a location.
async fn cost(options: &NginxOptions, path: &str) -> Result<f64, BenchError> {
    let few = run(options, path, NGINX_COUNTED_REQUESTS).await?;
    let many = run(options, path, 2 * NGINX_COUNTED_REQUESTS).await?;
    Ok((many - few) / NGINX_COUNTED_REQUESTS as f64)
}

/// Counts.
///
/// # Errors
/// valgrind or nginx does not run.
pub(super) async fn measure(options: &NginxOptions) -> Result<Vec<Figure>, BenchError> {
    let none = cost(options, "/none").await?;
    let mut figures = vec![Figure::stated(
        "a request without a limiter",
        none,
        "instructions",
    )];
    for (name, path, most) in [
        ("added by core limit_req, admitted", "/limit_req", None),
        (
            "added by one rule, admitted",
            "/one",
            Some(NGINX_REQUEST_INSTRUCTIONS_MAX),
        ),
        ("added by one token bucket, admitted", "/burst", None),
        ("added by four rules, admitted", "/four", None),
        ("added by one rule and all headers", "/headers", None),
    ] {
        let added = cost(options, path).await? - none;
        figures.push(match most {
            Some(most) => Figure::barred(name, added, "instructions", Bar::AtMost(most)),
            None => Figure::stated(name, added, "instructions"),
        });
    }
    let core = cost(options, "/core_rejects").await?;
    let ours = cost(options, "/rejects").await? - core;
    let name = "a rejection, more than limit_req's";
    figures.push(Figure::stated(name, ours, "instructions"));
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_whole_with_its_body() {
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n";
        assert!(!is_whole(head.as_bytes()));
        assert!(!is_whole(format!("{head}ab").as_bytes()));
        assert!(is_whole(format!("{head}abc").as_bytes()));
        assert!(!is_whole(b"HTTP/1.1 200 OK\r\n\r\n"));
    }
}
