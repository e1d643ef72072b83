//! An upgrade in place (USR2): the new instance has new memory, and the counts come back.

use crate::peer::Gabiond;
use crate::server::{children, signal_to, udp_port, wait_for, Nginx};

fn member(own: u16, peers: &str) -> String {
    format!(
        "gabion_limit_zone zone=z:1m; gabion_limit_rule a k:$arg_k rate=100r/w domain=edge;
         gabion_gossip_bind 127.0.0.1:{own}; gabion_gossip_cluster test; {peers}
         server {{ listen 127.0.0.1:PORT; root DIR/html;
             location = /state {{ gabion off; gabion_status; }}
             location / {{ gabion_limit a; try_files /x.txt =404; }} }}"
    )
}

/// Starts the new instance beside the old one and waits until it alone takes requests; the old one
/// is not asked to quit its master. Returns the new master.
fn upgrade(nginx: &Nginx, meanwhile: impl FnOnce(u32)) -> u32 {
    let old = nginx.workers();
    signal_to(nginx.master_pid(), "USR2");
    wait_for("the new master", || nginx.workers().len() > old.len());
    let new_master = nginx.workers().into_iter().find(|pid| !old.contains(pid));
    let new_master = new_master.expect("seen just now");
    wait_for("its worker", || !children(new_master).is_empty());
    meanwhile(new_master);
    signal_to(nginx.master_pid(), "WINCH");
    wait_for("the old worker's end", || nginx.workers() == [new_master]);
    new_master
}

fn end(nginx: &Nginx, new_master: u32) {
    signal_to(new_master, "TERM");
    wait_for("its end", || !nginx.workers().contains(&new_master));
}

#[test]
fn case_34_counts_come_back_from_the_old_instance_while_it_still_runs() {
    let own = udp_port();
    let nginx = Nginx::start("daemon", &member(own, ""));
    wait_for("the socket", || nginx.log().contains("socket is bound"));
    assert_eq!(nginx.statuses("/?k=x", 60), [200; 60]);
    let new_master = upgrade(&nginx, |_| {
        wait_for("the new instance beside the old one", || {
            nginx.log().contains("gossip goes through another port")
        });
        wait_for("both to hear each other", || {
            nginx.log().matches("peer up").count() >= 2
        });
    });
    wait_for("the old instance's counts", || {
        nginx.get("/?k=x").number("X-RateLimit-Remaining") <= 39
    });
    wait_for("its own port", || {
        nginx.state()["gossip"]["bound"] == format!("127.0.0.1:{own}")
    });
    assert!(nginx.get("/?k=x").number("X-RateLimit-Remaining") <= 39);
    let mut passed = 0;
    while nginx.get("/?k=x").status == 200 {
        passed += 1;
    }
    assert!(passed <= 39, "{passed}");
    end(&nginx, new_master);
}

#[test]
fn case_34_counts_come_back_from_a_peer() {
    let (own, other) = (udp_port(), udp_port());
    let limits = "- {name: a, domain: edge, rate: 100r/w, descriptors: [{key: k}]}\n";
    let gabiond = Gabiond::start(limits, other, own);
    let peers = format!("gabion_peers 127.0.0.1:{other};");
    let nginx = Nginx::start("daemon", &member(own, &peers));
    wait_for("the peer", || {
        nginx.state()["gossip"]["peers"][0]["up"] == true
    });
    assert_eq!(nginx.statuses("/?k=x", 70), [200; 70]);
    wait_for("the counts at the peer", || {
        let cells = gabiond.snapshot()["gossip"]["node_counters"]["cells"].as_u64();
        cells.unwrap_or(0) >= 1
    });
    // The old instance is gone before the new one is asked anything.
    let new_master = upgrade(&nginx, |_| {});
    wait_for("the counts of before", || {
        nginx.get("/?k=x").number("X-RateLimit-Remaining") <= 29
    });
    end(&nginx, new_master);
}

#[test]
fn what_an_old_worker_counts_in_replaced_memory_is_told_when_it_ends() {
    use std::io::Write as _;
    let of = |size: &str| member(udp_port(), "").replace("zone=z:1m", &format!("zone=z:{size}"));
    let nginx = Nginx::start("1", &of("1m"));
    assert_eq!(nginx.statuses("/?k=x", 4), [200; 4]);
    let mut slow = std::net::TcpStream::connect(("127.0.0.1", nginx.port)).expect("connects");
    let begun = slow.write_all(b"GET /?k=x HTTP/1.1\r\nHost: x\r\n");
    begun.expect("sent");
    let old = nginx.workers();
    nginx.change(&of("2m"));
    nginx.signal(nginx.master_pid(), "HUP");
    wait_for("the new worker", || {
        nginx.workers().iter().any(|pid| !old.contains(pid))
    });
    let shut = "gracefully shutting down";
    wait_for("the old worker to leave", || nginx.log().contains(shut));
    slow.write_all(b"Connection: close\r\n\r\n").expect("sent");
    wait_for("the old worker's end", || {
        nginx.workers().iter().all(|pid| !old.contains(pid))
    });
    let said = "1 requests were counted in memory that a reload had replaced";
    wait_for("the line", || nginx.log().contains(said));
    // The counts of before the reload are there, and that one hit is not.
    assert_eq!(nginx.get("/?k=x").number("X-RateLimit-Remaining"), 95);
}
