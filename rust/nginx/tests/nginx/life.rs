//! Reloads, crashes, upgrades: counters live on.

use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::http::Connection;
use crate::server::{children, signal_to, wait_for, Load, Nginx};

fn with(zone: &str, rules: &str) -> String {
    format!(
        "gabion_limit_zone zone=z:{zone}; {rules}
         server {{ listen 127.0.0.1:PORT; root DIR/html;
             location = /state {{ gabion off; gabion_status; }}
             location / {{ gabion_limit a; try_files /x.txt =404; }} }}"
    )
}

#[test]
fn case_55_and_11_a_reload_keeps_counts_and_takes_the_new_limit() {
    for workers in ["1", "4"] {
        let rule = "gabion_limit_rule a k:$server_port rate=10r/w;";
        let nginx = Nginx::start(workers, &with("1m", rule));
        assert_eq!(nginx.statuses("/", 7), [200; 7]);
        nginx.reload(&with("1m", rule));
        assert_eq!(nginx.get("/").number("X-RateLimit-Remaining"), 2);
        nginx.reload(&with(
            "1m",
            "gabion_limit_rule a k:$server_port rate=12r/w;",
        ));
        assert_eq!(nginx.get("/").number("X-RateLimit-Remaining"), 3);
        nginx.reload(&with("1m", "gabion_limit_rule a k:$server_port rate=5r/w;"));
        assert_eq!(
            nginx.get("/").status,
            429,
            "lowered below what is used: denied at once"
        );
        nginx.reload(&with("1m", rule));
        assert_eq!(nginx.get("/").number("X-RateLimit-Remaining"), 0);
        // A reload that fails late leaves everything as it was.
        let workers = nginx.workers();
        nginx.change(&(with("1m", rule) + "server { listen 127.0.0.1:PORT; no_such_directive; }"));
        nginx.signal(nginx.master_pid(), "HUP");
        wait_for("the refusal", || nginx.log().contains("unknown directive"));
        assert_eq!((nginx.get("/").status, nginx.workers()), (429, workers));
    }
}

#[test]
fn case_34_a_zone_of_another_size_or_other_rules_takes_the_counts_along() {
    let rule = "gabion_limit_rule a k:$server_port rate=10r/w;";
    let nginx = Nginx::start("2", &with("1m", rule));
    assert_eq!(nginx.statuses("/", 4), [200; 4]);
    nginx.reload(&with("2m", rule));
    assert_eq!(nginx.get("/").number("X-RateLimit-Remaining"), 5);
    assert!(
        nginx
            .log()
            .contains("the counts of 1 keys were carried over"),
        "{}",
        nginx.log()
    );
    let more = format!("gabion_limit_rule b b:$server_port rate=5r/s; {rule}");
    nginx.reload(&with("2m", &more));
    assert_eq!(nginx.get("/").number("X-RateLimit-Remaining"), 4);
    nginx.reload(&with(
        "2m",
        "gabion_limit_rule a k:$server_port rate=10r/w window=2w;",
    ));
    assert_eq!(
        nginx.get("/").number("X-RateLimit-Remaining"),
        19,
        "other counters start afresh"
    );
}

#[test]
fn case_33_killed_workers_leave_the_counts_and_block_nobody() {
    let rule = "gabion_limit_rule a k:$server_port rate=100000000r/w;";
    let nginx = Nginx::start("4", &with("1m", rule));
    let (load, answered) = (Load::default(), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let _load = load.until_dropped();
        for _ in 0..4 {
            scope.spawn(|| {
                while load.goes_on() {
                    // The connection of a killed worker breaks: that is nginx's, not ours.
                    let Ok(mut connection) = Connection::open(nginx.port) else {
                        continue;
                    };
                    while let Ok(response) = connection.get("/") {
                        assert_eq!(response.status, 200);
                        answered.fetch_add(1, Ordering::Relaxed);
                        if !load.goes_on() {
                            break;
                        }
                    }
                }
            });
        }
        for _ in 0..10 {
            let victim = nginx.workers()[0];
            signal_to(victim, "KILL");
            wait_for("its successor", || {
                let now = nginx.workers();
                now.len() == 4 && !now.contains(&victim)
            });
        }
    });
    let answered = answered.into_inner();
    let used = 100_000_000 - nginx.get("/").number("X-RateLimit-Remaining") - 1;
    // A worker may be killed after it counted and before it answered: 4 connections, 10 kills.
    assert!(
        (answered..=answered + 40).contains(&used),
        "{answered} answered, {used} counted"
    );
}

#[test]
fn case_34_an_upgrade_in_place_serves_on() {
    let rule = "gabion_limit_rule a k:$server_port rate=10r/w;";
    let nginx = Nginx::start("daemon", &with("1m", rule));
    assert_eq!(nginx.statuses("/", 3), [200; 3]);
    let old_workers = nginx.workers();
    signal_to(nginx.master_pid(), "USR2");
    wait_for("the new master", || {
        nginx.workers().len() > old_workers.len()
    });
    let new_master = nginx
        .workers()
        .into_iter()
        .find(|pid| !old_workers.contains(pid))
        .unwrap();
    wait_for("its worker", || !children(new_master).is_empty());
    signal_to(nginx.master_pid(), "WINCH");
    wait_for("the old worker's end", || nginx.workers() == [new_master]);
    // New memory: this instance counts from nothing; peers would send their counts.
    assert_eq!(nginx.get("/").number("X-RateLimit-Remaining"), 9);
    signal_to(new_master, "TERM");
    wait_for("its end", || !nginx.workers().contains(&new_master));
}

#[test]
fn old_workers_end_in_time_though_a_client_is_slow() {
    let rule = "gabion_limit_rule a k:$server_port rate=10r/w;";
    let nginx = Nginx::start("1", &with("1m", rule));
    let mut slow = std::net::TcpStream::connect(("127.0.0.1", nginx.port)).unwrap();
    slow.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n").unwrap();
    let old = nginx.workers();
    nginx.signal(nginx.master_pid(), "HUP");
    wait_for("the new worker", || {
        nginx.workers().iter().any(|pid| !old.contains(pid))
    });
    assert_eq!(nginx.get("/").number("X-RateLimit-Remaining"), 9);
    drop(slow);
    wait_for("the old worker's end", || {
        nginx.workers().iter().all(|pid| !old.contains(pid))
    });
}
