//! What a decision costs: no system call, and no memory from the system.

use std::fs;
use std::process::{Command, Stdio};

use crate::http::Connection;
use crate::server::{library, signal_to, wait_for, Around, Folder, Nginx};

const REQUESTS: usize = 200;

/// System calls of a worker for [`REQUESTS`] requests, as the kernel sees them.
fn system_calls(nginx: &Nginx, path: &str, status: u16) -> usize {
    let trace = nginx.folder.0.join("strace.txt");
    let _ = fs::remove_file(&trace); // of an earlier call
    let mut connection = Connection::open(nginx.port).expect("nginx listens");
    // Whatever first requests open is open now.
    for _ in 0..3 {
        connection.get(path).expect("an answer");
    }
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
        assert_eq!(connection.get(path).expect("an answer").status, status);
    }
    signal_to(strace.id(), "INT");
    strace.wait().expect("strace ends");
    lines(&trace) - before
}

fn lines(path: &std::path::Path) -> usize {
    fs::read_to_string(path).unwrap_or_default().lines().count()
}

/// The same file behind no rule, behind rules of each kind, and behind rules that deny.
const HTTP: &str = "error_log DIR/error.log error; access_log off; keepalive_requests 1000000;
    gabion_limit_zone zone=z:1m; limit_req_zone $binary_remote_addr zone=core:1m rate=1r/m;
    gabion_limit_rule a $binary_remote_addr rate=1000000r/w;
    gabion_limit_rule b b:$remote_addr rate=1000000r/w burst=1000000;
    gabion_limit_rule c c:\"$host-$server_port\" rate=1000000r/w window=1w bucket=1d;
    gabion_limit_rule dry d:$server_port rate=1r/w dry_run;
    gabion_limit_rule no n:$server_port rate=1r/w;
    gabion_rules_file DIR/policy.yaml;
    gabion_log_level info; limit_req_log_level info; limit_req_status 429;
    server { listen 127.0.0.1:PORT; root DIR/html;
        location / { gabion off; try_files /x.txt =404; }
        location /all { gabion_limit a b c; gabion_headers off; try_files /x.txt =404; }
        location /headers { gabion_limit a b c; try_files /x.txt =404; }
        location /dry { gabion_limit dry; try_files /x.txt =404; }
        location /policy { gabion_domain d; gabion_headers off; try_files /x.txt =404; }
        location /core { limit_req zone=core; gabion off; try_files /x.txt =404; }
        location /no { gabion_limit a b c no; gabion_headers off; try_files /x.txt =404; } }";

/// Every kind of thing that a policy may ask, by rules that admit. What is charged late is charged
/// by the log phase.
const POLICY: &str = r#"
attributes:
  ip: {client_address: {peer: peer, forwarded: forwarded, trusted_proxies: [127.0.0.1]}}
  first: {capture: {from: path, pattern: "/{}"}}
  named: {lookup: {from: first, values: {policy: x}}}
flags: {f: {default: 50%, by: ip}}
limits:
- {name: p, domain: d, match: request, rate: 1000000r/w, if_flag: f,
   descriptors: [{key: ip}, {key: named, fallback: none}]}
- {name: q, domain: d, match: request, rate: 1000000r/w, unless_flag: f, replaces: [s],
   descriptors: [{key: ip}], tiers: {by: method, rates: {GET: 900000r/w}}}
- {name: r, domain: d, match: request, rate: 1000000r/w, descriptors: [],
   only_if: [{path: "/pol*"}], except_if: [{ip: {networks: [10.0.0.0/8]}}],
   charge: {after: response, status: ["2*"]}}
- {name: s, domain: d, match: request, rate: 1000000r/w, descriptors: [{key: host}], last: true}
- {name: t, domain: d, match: request, rate: 1000000r/w, descriptors: []}
"#;

fn folder() -> Folder {
    let folder = Folder::new();
    folder.write("policy.yaml", POLICY);
    folder
}

/// What admits is compared with what has no rule, and what denies with what `limit_req` denies.
const PAIRS: [(&str, &str, u16); 5] = [
    ("/policy", "/", 200),
    ("/all", "/", 200),
    ("/headers", "/", 200),
    ("/dry", "/", 200),
    ("/no", "/core", 429),
];

#[test]
fn a_decision_makes_no_system_call() {
    let nginx = Nginx::start_in(folder(), "1", HTTP);
    for (path, other, status) in PAIRS {
        let (with, without) = (
            system_calls(&nginx, path, status),
            system_calls(&nginx, other, status),
        );
        assert!(without >= REQUESTS, "{without}");
        // The tracer may catch the end of a call that had begun: not one for each request.
        assert!(
            with.abs_diff(without) <= 4,
            "{with} of {path}, {without} of {other}"
        );
    }
}

/// Counts what is asked of the system's heap, in all processes of one nginx together.
const COUNTING: &str = r#"
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t), *__libc_memalign(size_t, size_t);
static unsigned long alone, *count = &alone;
#define COUNT() ((void) __atomic_fetch_add(count, 1, __ATOMIC_RELAXED))
__attribute__((constructor)) static void begin(void) {
    const char *name = getenv("GABION_COUNT");
    void *page = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, open(name, O_RDWR), 0);
    if (page == MAP_FAILED) abort();
    count = page;
}
void *malloc(size_t n) { COUNT(); return __libc_malloc(n); }
void *calloc(size_t m, size_t n) { COUNT(); return __libc_calloc(m, n); }
void *realloc(void *p, size_t n) { COUNT(); return __libc_realloc(p, n); }
void *memalign(size_t a, size_t n) { COUNT(); return __libc_memalign(a, n); }
void *aligned_alloc(size_t a, size_t n) { COUNT(); return __libc_memalign(a, n); }
int posix_memalign(void **p, size_t a, size_t n) {
    COUNT();
    *p = __libc_memalign(a, n);
    return *p ? 0 : ENOMEM;
}
"#;

#[test]
fn a_decision_takes_no_memory_from_the_system() {
    let folder = folder();
    let counting = library(&folder, "counting", COUNTING);
    let count = folder.0.join("count");
    fs::write(&count, [0; 4096]).expect("a file");
    let env = [("LD_PRELOAD", counting), ("GABION_COUNT", count.clone())];
    let around = Around {
        env: &env,
        ..Around::default()
    };
    let nginx = Nginx::start_with(folder, "1", &around, HTTP);
    let taken = || {
        let bytes = fs::read(&count).expect("the count");
        u64::from_ne_bytes(bytes[..8].try_into().expect("8 bytes"))
    };
    let mut connection = Connection::open(nginx.port).expect("nginx listens");
    let mut of = |path: &str, status: u16| {
        // The first ones make what lasts: the connection's buffers, the rule's row.
        for _ in 0..3 {
            connection.get(path).expect("an answer");
        }
        let before = taken();
        for _ in 0..REQUESTS {
            assert_eq!(connection.get(path).expect("an answer").status, status);
        }
        taken() - before
    };
    for (path, other, status) in PAIRS {
        let (with, without) = (of(path, status), of(other, status));
        // nginx itself takes memory for each request: the shim counts.
        assert!(without >= REQUESTS as u64, "{without}");
        assert_eq!(with, without, "{path} and {other}");
    }
}
