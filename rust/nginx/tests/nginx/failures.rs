//! Panics that a test plants in a debug build: requests are admitted, decisions go on.

use crate::server::{udp_port, wait_for, Around, Folder, Nginx};

fn http(gossip: &str) -> String {
    format!(
        "gabion_limit_zone zone=z:1m; gabion_limit_rule a k:$arg_k rate=5r/w; {gossip}
         server {{ listen 127.0.0.1:PORT; root DIR/html;
             location = /state {{ gabion off; gabion_status; }}
             location / {{ gabion_limit a; gabion_log_level info; try_files /x.txt =404; }} }}"
    )
}

fn planted(place: &str, gossip: &str) -> Nginx {
    let more = format!("env GABION_PLANT={place};");
    let around = Around {
        more: &more,
        env: &[],
    };
    Nginx::start_with(Folder::new(), "2", &around, &http(gossip))
}

#[test]
fn case_56_a_panic_in_a_decision_ends_at_the_border_and_the_request_is_admitted() {
    let nginx = planted("decision", "");
    let workers = nginx.workers();
    assert_eq!(nginx.statuses("/?k=x", 20), [200; 20]);
    assert!(nginx.log().contains("gabion failed inside"), "it is said");
    assert_eq!(nginx.workers(), workers, "no worker died");
    assert_eq!(nginx.count("a", "passed"), 0);
}

#[test]
fn case_49_gossip_that_fails_inside_never_stops_decisions() {
    let gossip = format!("gabion_gossip_bind 127.0.0.1:{};", udp_port());
    let nginx = planted("gossip", &gossip);
    let workers = nginx.workers();
    wait_for("the complaint of several attempts", || {
        nginx
            .log()
            .matches("gossip failed inside this worker")
            .count()
            >= 3
    });
    let statuses = nginx.statuses("/?k=x", 8);
    let admitted = statuses.iter().filter(|status| **status == 200).count();
    assert_eq!(admitted, 5, "{statuses:?}");
    assert_eq!(nginx.workers(), workers, "no worker died");
    let state = nginx.state();
    assert_eq!(
        state["gossip"]["state"], "nothing was posted yet",
        "{state}"
    );
}
