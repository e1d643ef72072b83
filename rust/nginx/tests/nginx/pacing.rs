//! Rules with shares in nginx: what an instance must be told, and what it tells.

use crate::server::{check, Nginx};

const STRICT: &str = "gabion_limit_zone zone=z:1m;
    gabion_limit_rule a k:$arg_k rate=40r/w pace=strict members=4;";

const SERVER: &str = "server { listen 127.0.0.1:PORT; root DIR/html;
    location /a { gabion_limit a; try_files /x.txt =404; }
    location = /metrics { gabion off; gabion_status prometheus; } }";

#[test]
fn a_strict_rule_without_a_place_is_refused_with_what_to_write() {
    let (taken, said) = check(&format!("{STRICT} {SERVER}"));
    assert!(
        !taken && said.contains("write gabion_runtime_member_place 0 on the first"),
        "{said}"
    );
    let (taken, said) = check(&format!("{STRICT} gabion_runtime_member_place 3; {SERVER}"));
    assert!(taken, "{said}");
}

// spec: pace-7, pace-8
#[test]
fn a_denial_on_a_share_says_so_in_headers_log_and_metrics() {
    let nginx = Nginx::start(
        "1",
        &format!("{STRICT} gabion_runtime_member_place 0; {SERVER}"),
    );
    // A new zone does not know this week, so that every request is denied, though nothing is used.
    let denied = nginx.get("/a?k=x");
    assert_eq!(denied.status, 429);
    assert_eq!(denied.header("X-RateLimit-Denied-On"), Some("share"));
    assert_eq!(denied.number("X-RateLimit-Remaining"), 0);
    assert!(denied
        .header("RateLimit")
        .is_some_and(|v| v.ends_with(";share")));
    let line = "limiting requests, rule \"a\", limit 40, on this member's share, retry in";
    assert!(nginx.log().contains(line), "{}", nginx.log());
    let metrics = nginx.get("/metrics").body;
    assert!(
        metrics.contains("gabion_table_share_denials_total"),
        "{metrics}"
    );
}
