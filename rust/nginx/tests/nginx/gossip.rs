//! Instances and members that share one limit.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::server::{program, signal_to, udp_port, wait_for, Folder, Nginx};

const RULE: &str = "gabion_limit_rule shared k:$arg_k rate=100r/w domain=edge;";

fn member(own: u16, peers: &[u16], more: &str) -> String {
    let peers: String = peers
        .iter()
        .map(|port| format!(" 127.0.0.1:{port}"))
        .collect();
    format!(
        "gabion_limit_zone zone=z:1m; {RULE} {more}
         gabion_gossip_bind 127.0.0.1:{own}; gabion_gossip_cluster test; gabion_peers{peers};
         server {{ listen 127.0.0.1:PORT; root DIR/html;
             location = /state {{ gabion off; gabion_status; }}
             location / {{ gabion_limit shared; gabion_log_level info; try_files /x.txt =404; }} }}"
    )
}

fn leader(nginx: &Nginx) -> u64 {
    let pid = &nginx.state()["gossip"]["leader_pid"];
    pid.as_u64().expect("a number")
}

/// Waits until what one counts is seen by the other.
fn wait_until_they_hear_each_other(a: &Nginx, b: &Nginx) {
    wait_for("peers", || {
        a.log().contains("peer up") && b.log().contains("peer up")
    });
}

#[test]
fn two_instances_share_one_limit_and_outlive_the_leader() {
    let (a, b) = (udp_port(), udp_port());
    let (one, two) = (
        Nginx::start("2", &member(a, &[b], "")),
        Nginx::start("2", &member(b, &[a], "")),
    );
    wait_until_they_hear_each_other(&one, &two);
    assert_eq!(one.statuses("/?k=x", 40), [200; 40]);
    wait_for("the counts at the other", || {
        // Reading costs a hit, so that the sum is checked below and not here.
        two.get("/?k=probe").status == 200 && {
            let left = two.get("/?k=x").number("X-RateLimit-Remaining");
            left <= 60
        }
    });
    // Case 54: the worker that gossips is killed; another takes over and says so.
    let first = leader(&one);
    assert!(one.workers().contains(&u32::try_from(first).unwrap()));
    let takeovers = one.state()["gossip"]["takeovers"].as_u64().unwrap();
    signal_to(u32::try_from(first).unwrap(), "KILL");
    let killed = Instant::now();
    wait_for("another leader", || {
        let state = one.state();
        state["gossip"]["takeovers"].as_u64().unwrap() > takeovers
    });
    let gap = killed.elapsed();
    assert!(gap < Duration::from_secs(2), "{gap:?}");
    assert_ne!(leader(&one), first);
    assert!(
        one.log()
            .matches("this worker runs gossip from now on")
            .count()
            >= 2
    );
    assert_eq!(one.statuses("/?k=y", 30), [200; 30]);
    wait_for("counts after the hand-over", || {
        two.get("/?k=y").number("X-RateLimit-Remaining") <= 70
    });
}

#[test]
fn a_reload_hands_gossip_over_though_a_client_is_slow() {
    use std::io::Write as _;
    let (a, b) = (udp_port(), udp_port());
    // The cache's helper processes have worker number 0, too, and must not gossip.
    let cache = "proxy_cache_path DIR/cache keys_zone=c:1m;";
    let one = Nginx::start("1", &member(a, &[b], cache));
    wait_for("a leader", || leader(&one) != 0);
    let first = u32::try_from(leader(&one)).unwrap();
    let mut slow = std::net::TcpStream::connect(("127.0.0.1", one.port)).unwrap();
    slow.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n").unwrap();
    wait_for("the slow client's worker", || {
        std::fs::read_to_string(format!("/proc/{first}/cmdline"))
            .unwrap_or_default()
            .contains("worker process")
    });
    one.signal(one.master_pid(), "HUP");
    wait_for("another leader", || {
        ![0, first].contains(&u32::try_from(leader(&one)).unwrap())
    });
    assert_eq!(one.state()["zones"][0]["session"], 2);
    drop(slow);
}

#[test]
fn case_49_a_taken_port_is_said_and_limits_hold_alone() {
    let taken = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let nginx = Nginx::start("2", &member(port, &[], "").replace("gabion_peers;", ""));
    wait_for("the complaint", || {
        nginx.log().contains("the gossip port cannot be bound")
    });
    let statuses = nginx.statuses("/?k=z", 101);
    assert_eq!(
        statuses.iter().filter(|status| **status == 200).count(),
        100
    );
    drop(taken);
    wait_for("the socket", || {
        nginx.log().contains("the gossip socket is bound")
    });
}

struct Gabiond(Child);

impl Drop for Gabiond {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn case_52_the_same_rule_in_nginx_and_in_gabiond_is_one_set_of_counters() {
    let (a, b) = (udp_port(), udp_port());
    let folder = Folder::new();
    let yaml = folder.write(
        "gabiond.yaml",
        &format!(
            "envoy_bind: 127.0.0.1:0\nadmin_bind: 127.0.0.1:0\nlimits:\n\
             - {{name: other, limiter: shared, domain: edge, rate: 100r/w,\n   \
             descriptors: [{{key: k}}]}}\n\
             gossip: {{bind: '127.0.0.1:{b}', cluster_id: test}}\n\
             discovery: {{static: ['127.0.0.1:{a}']}}\n"
        ),
    );
    let ports = folder.0.join("ports.json");
    let child = Command::new(program("gabiond"))
        .arg(&yaml)
        .arg("--ports-file")
        .arg(&ports)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("gabiond starts");
    let _gabiond = Gabiond(child);
    wait_for("gabiond", || ports.is_file());
    let text = std::fs::read_to_string(&ports).unwrap();
    let bound: serde_json::Value = serde_json::from_str(&text).unwrap();
    let admin = bound["admin"].as_str().unwrap();
    let admin = admin.rsplit_once(':').unwrap().1.parse().unwrap();
    let envoy = format!("http://{}", bound["envoy"].as_str().unwrap());
    let nginx = Nginx::start("2", &member(a, &[b], ""));
    wait_for("the peer", || nginx.log().contains("peer up"));
    assert_eq!(nginx.statuses("/?k=x", 40), [200; 40]);
    wait_for("nginx's counter at gabiond", || {
        let body = crate::http::get_with(admin, "/snapshot", "").body;
        let snapshot: serde_json::Value = serde_json::from_str(&body).unwrap_or_default();
        let cells = &snapshot["gossip"]["node_counters"]["cells"];
        cells.as_u64().unwrap_or(0) >= 1
    });
    // 60 are left. The error budget is 1 hit a member.
    let through_gabiond = load(&folder, &envoy, 80);
    assert!((60..=62).contains(&through_gabiond), "{through_gabiond}");
    let mut more = 0;
    wait_for("nginx to reject", || {
        let status = nginx.get("/?k=x").status;
        more += u64::from(status == 200);
        status == 429
    });
    assert!(more <= 2, "{more} of nginx, {through_gabiond} of gabiond");
    assert_eq!(load(&folder, &envoy, 10), 0);
}

/// Asks gabiond so often in a second; returns how often it admitted.
fn load(folder: &Folder, target: &str, count: u32) -> u64 {
    let report = folder.0.join("load.json");
    let done = Command::new(program("gabion-loader"))
        .args(["grpc", "--quiet", "--domain", "edge", "--descriptor", "k=x"])
        .args(["--arrivals", "even", "--duration", "1", "--rate"])
        .arg(count.to_string())
        .args(["--target", target, "--json"])
        .arg(&report)
        .stdout(Stdio::null())
        .status();
    assert!(done.expect("gabion-loader runs").success());
    let text = std::fs::read_to_string(&report).expect("a report");
    let report: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(report["error_count"], 0, "{report}");
    report["admitted"].as_u64().expect("a number")
}
