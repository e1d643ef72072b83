//! Reloads under load: no failed request, no lost count, and nothing that grows.

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::server::{udp_port, wait_for, Load, Nginx};

fn http(gossip: &str) -> String {
    format!(
        "gabion_limit_zone zone=z:1m; {gossip}
         gabion_limit_rule a k:$server_port rate=100000000r/w;
         gabion_limit_rule b k:$server_port rate=100000000r/w burst=100000000;
         gabion_limit_rule c c:$arg_c rate=1r/w dry_run; access_log off;
         server {{ listen 127.0.0.1:PORT; root DIR/html;
             location = /state {{ gabion off; gabion_status; }}
             location / {{ gabion_limit a b c; gabion_log_level info; error_log DIR/error.log warn;
                 gabion_reject_body 'no $gabion_reset'; try_files /x.txt =404; }} }}"
    )
}

/// What a process holds.
#[derive(Clone, Copy, Debug)]
struct Held {
    descriptors: usize,
    threads: usize,
    /// Shared memory, nginx's zones among it, in mappings: it never grows but by another one.
    shared: usize,
    /// Memory of its own. Pages of programs and of zones are no one's to lose, and a worker that
    /// has served for a while has touched more of them than a new one.
    resident_kib: u64,
}

fn held(pid: u32) -> Held {
    let entries =
        |what: &str| fs::read_dir(format!("/proc/{pid}/{what}")).map_or(0, Iterator::count);
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let kib = |name: &str| -> u64 {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        kib.expect("a living process")
    };
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    Held {
        descriptors: entries("fd"),
        threads: entries("task"),
        shared: maps.matches("/dev/zero").count(),
        resident_kib: kib("RssAnon:"),
    }
}

/// Descriptors that workers hold more, at most, when one of them drives gossip.
const OTHER_ROLE: usize = 3;

/// The master's, and that of all workers together: one of them drives gossip for all. Once they run
/// their threads.
fn now(nginx: &Nginx, threads: usize) -> [Held; 2] {
    wait_for("the workers' threads", || {
        let workers = nginx.workers();
        workers.len() == 2 && workers.iter().all(|pid| held(*pid).threads >= threads)
    });
    let workers = nginx.workers().into_iter().map(held);
    let workers = workers.reduce(|a, b| Held {
        descriptors: a.descriptors + b.descriptors,
        threads: a.threads + b.threads,
        shared: a.shared + b.shared,
        resident_kib: a.resident_kib + b.resident_kib,
    });
    [held(nginx.master_pid()), workers.expect("two of them")]
}

/// Four clients ask while something is done; `asked` counts what was answered.
fn under_load(nginx: &Nginx, asked: &AtomicU64, mut done: impl FnMut()) {
    let load = Load::default();
    std::thread::scope(|scope| {
        let _load = load.until_dropped();
        for client in 0..4 {
            let load = &load;
            scope.spawn(move || {
                while load.goes_on() {
                    // A connection each: nginx closes idle ones at a reload, as it may.
                    let path = format!("/?c={client}");
                    assert_eq!(nginx.get(&path).status, 200);
                    asked.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        done();
    });
}

/// Reloads so often while clients ask; compares what is held after the `first` with the end, both
/// times when nobody asks.
fn reload_under_load(nginx: &Nginx, http: &str, threads: usize, (first, all): (u32, u32)) {
    let asked = AtomicU64::new(0);
    let reloads = |count| {
        under_load(nginx, &asked, || {
            (0..count).for_each(|_| nginx.reload(http))
        })
    };
    reloads(first);
    let early = now(nginx, threads);
    reloads(all - first);
    let asked = asked.into_inner();
    assert!(asked > u64::from(all), "{asked}");
    println!("{asked} requests over {all} reloads");
    for rule in ["a", "b"] {
        assert_eq!(nginx.count(rule, "passed"), asked, "{rule}");
    }
    let dry = ["passed", "rejected_dry_run"].map(|what| nginx.count("c", what));
    assert_eq!((dry[0], dry[0] + dry[1]), (4, asked));
    let left = nginx.get("/?c=last").number("X-RateLimit-Remaining");
    assert_eq!(100_000_000 - left - 1, asked, "in the row itself");
    // A connection, or the thread of a driver, may be about to end.
    let mut late = now(nginx, threads);
    wait_for(&format!("no more than {early:?} held"), || {
        late = now(nginx, threads);
        early.iter().zip(&late).all(|(early, late)| {
            late.descriptors <= early.descriptors + OTHER_ROLE && late.threads <= early.threads
        })
    });
    println!("held early: {early:?}\nheld late:  {late:?}");
    for (early, late) in early.iter().zip(&late) {
        assert!(early.shared > 0, "{early:?}");
        assert_eq!(early.shared, late.shared, "{early:?} {late:?}");
        assert!(
            late.resident_kib <= early.resident_kib + 1_024,
            "{early:?} {late:?}"
        );
    }
    let errors = nginx.log();
    for bad in ["[alert]", "[crit]", "[emerg]", "signal 11", "signal 6"] {
        assert!(!errors.contains(bad), "{bad} in the log:\n{errors}");
    }
}

#[test]
fn reloads_under_load_lose_no_request_and_no_count() {
    let http = http("");
    let nginx = Nginx::start("2", &http);
    reload_under_load(&nginx, &http, 1, (10, 20));
}

#[test]
#[ignore = "slow: 200 reloads"]
fn two_hundred_reloads_under_load_lose_nothing_and_nothing_grows() {
    let gossip = format!(
        "gabion_gossip_bind 127.0.0.1:{}; gabion_gossip_cluster reloads;
         gabion_peers 127.0.0.1:{};",
        udp_port(),
        udp_port()
    );
    for gossip in ["", &gossip] {
        let http = http(gossip);
        let nginx = Nginx::start("2", &http);
        let threads = if gossip.is_empty() { 1 } else { 2 };
        reload_under_load(&nginx, &http, threads, (50, 200));
    }
}
