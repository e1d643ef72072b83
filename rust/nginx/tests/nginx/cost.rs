//! What a decision costs: no system call.

use std::fs;
use std::process::{Command, Stdio};

use crate::http::Connection;
use crate::server::{signal_to, wait_for, Nginx};

const REQUESTS: usize = 200;

/// System calls of a worker for [`REQUESTS`] requests, as the kernel sees them.
fn system_calls(nginx: &Nginx, path: &str) -> usize {
    let trace = nginx.folder.0.join("strace.txt");
    let _ = fs::remove_file(&trace); // of an earlier call
    let mut connection = Connection::open(nginx.port).expect("nginx listens");
    // Whatever a first request opens is open now.
    connection.get(path).expect("an answer");
    let worker = nginx.workers()[0].to_string();
    let mut strace = Command::new("strace")
        .args(["-f", "-q", "-p", &worker, "-o"])
        .arg(&trace)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("strace runs");
    // A worker waits for events: the tracer shows that call as soon as it is attached.
    wait_for("strace", || {
        fs::metadata(&trace).is_ok_and(|about| about.len() > 0)
    });
    let before = lines(&trace);
    for _ in 0..REQUESTS {
        assert_eq!(connection.get(path).expect("an answer").status, 200);
    }
    signal_to(strace.id(), "INT");
    strace.wait().expect("strace ends");
    lines(&trace) - before
}

fn lines(path: &std::path::Path) -> usize {
    fs::read_to_string(path).unwrap_or_default().lines().count()
}

#[test]
fn a_decision_makes_no_system_call() {
    let http = "gabion_limit_zone zone=z:1m;
        gabion_limit_rule a $binary_remote_addr rate=1000000r/w;
        gabion_limit_rule b b:$remote_addr rate=1000000r/w burst=1000000;
        gabion_limit_rule c c:\"$host-$server_port\" rate=1000000r/w window=1w bucket=1d;
        access_log off; keepalive_requests 1000000;
        server { listen 127.0.0.1:PORT; root DIR/html;
            location / { gabion off; try_files /x.txt =404; }
            location /all { gabion_limit a b c; try_files /x.txt =404; } }";
    let nginx = Nginx::start("1", http);
    let (without, with) = (system_calls(&nginx, "/"), system_calls(&nginx, "/all"));
    assert!(without >= REQUESTS, "{without}");
    // The tracer may catch the end of a call that had begun: not one for each request.
    assert!(
        with.abs_diff(without) <= 4,
        "{without} without rules, {with} with three"
    );
}
