//! Rules that pick their keys from a request, in nginx: the policy of a file, bound to variables.

use std::io::Read as _;
use std::net::TcpListener;

use crate::http::Connection;
use crate::server::{wait_for, Folder, Nginx};

const STATE: &str = "location = /state { gabion off; gabion_status; }
    location = /metrics { gabion off; gabion_status prometheus; }";

/// An nginx with this policy, what stands in `http`, and these locations.
fn start(policy: &str, http: &str, locations: &str) -> Nginx {
    let folder = Folder::new();
    folder.write("policy.yaml", policy);
    Nginx::start_in(folder, "1", &text(http, locations))
}

fn text(http: &str, locations: &str) -> String {
    format!(
        "gabion_limit_zone zone=z:1m; gabion_rules_file DIR/policy.yaml; {http}
         server {{ listen 127.0.0.1:PORT; root DIR/html; {STATE} {locations} }}"
    )
}

const FILE: &str = "try_files /x.txt =404;";

const EDGE: &str = r#"
attributes:
  group: {lookup: {from: id, values: {"42": acme, "43": acme}}}
  id: {capture: {from: path, pattern: "/groups/{}/*"}}
limits:
- {name: health, domain: edge, match: request, descriptors: [], rate: 1000r/w,
   only_if: [{path: "/health*"}], last: true}
- name: api
  domain: edge
  match: request
  descriptors: [{key: user}]
  rate: 2r/w
  only_if: [{path: "/api/*"}]
  except_if: [{path: "/api/free/*", method: [GET, HEAD]}, {peer: {networks: ["10.0.0.0/8"]}}]
  tiers: {by: plan, rates: {gold: 4r/w, none: 20000000r/w}}
  raw_body: '{"why":"api"}'
  raw_body_type: application/json
  raw_headers: {X-Why: api limit}
- {name: by_group, domain: edge, match: request, rate: 2r/w, only_if: [{path: "/groups/*"}],
   descriptors: [{key: group, fallback: unknown}]}
- {name: all, domain: edge, match: request, descriptors: [], rate: 1000r/w}
- {name: instead, domain: edge, match: request, descriptors: [{key: user}], rate: 1r/w,
   only_if: [{user: "vip*"}], replaces: [api]}
"#;

const BINDS: &str = "gabion_bind user $http_x_user; gabion_bind plan $http_x_plan;";

fn edge() -> Nginx {
    let http = format!("{BINDS} gabion_domain edge;");
    start(EDGE, &http, &format!("location / {{ {FILE} }}"))
}

fn statuses(nginx: &Nginx, path: &str, extra: &str, n: usize) -> Vec<u16> {
    (0..n).map(|_| nginx.get_with(path, extra).status).collect()
}

#[test]
fn conditions_and_tiers_choose_and_a_denial_is_the_rules_own() {
    let nginx = edge();
    let bob = "X-User: bob\r\n";
    assert_eq!(statuses(&nginx, "/other", bob, 3), [200, 200, 200]);
    assert_eq!(statuses(&nginx, "/api/x?y=1", bob, 2), [200, 200]);
    let denied = nginx.get_with("/api/x", bob);
    assert_eq!(
        (denied.status, denied.body.as_str()),
        (429, r#"{"why":"api"}"#)
    );
    assert_eq!(denied.header("Content-Type"), Some("application/json"));
    assert_eq!(denied.header("X-Why"), Some("api limit"));
    assert_eq!(denied.header("RateLimit-Name"), Some("api"));
    assert!(denied.number("Retry-After") >= 1);
    assert_eq!(nginx.get_with("/api/free/x", bob).status, 200);
    assert_eq!(
        nginx.get_with("/%61pi/x", bob).status,
        429,
        "however it is written"
    );
    assert_eq!(nginx.get_with("//api/./x", bob).status, 429);
    // The tier has its limit on the same counter.
    let gold = "X-User: bob\r\nX-Plan: gold\r\n";
    assert_eq!(statuses(&nginx, "/api/x", gold, 3), [200, 200, 429]);
    let none = "X-User: bob\r\nX-Plan: none\r\n";
    assert_eq!(statuses(&nginx, "/api/x", none, 5), [200; 5]);
    assert_eq!(nginx.count("api", "passed"), 2 + 2 + 5);
    let denied = nginx.get_with("/api/x", gold);
    assert_eq!(
        (denied.status, denied.number("X-RateLimit-Limit")),
        (429, 4)
    );
    assert_eq!(
        nginx
            .get_with("/api/x", "X-User: eve\r\nX-Plan: lead\r\n")
            .status,
        200
    );
    assert_eq!(
        nginx.get("/api/x").status,
        200,
        "who has no user is not counted by user"
    );
    assert_eq!(nginx.count("api", "empty_key"), 1);
    assert_eq!(nginx.count("api", "exempted"), 1);
}

#[test]
fn a_rule_can_be_the_last_or_replace_others() {
    let nginx = edge();
    assert_eq!(
        nginx.get("/health").header("RateLimit-Name"),
        Some("health")
    );
    assert_eq!(
        (
            nginx.count("all", "passed"),
            nginx.count("all", "after_last")
        ),
        (0, 1)
    );
    let vip = "X-User: vip7\r\n";
    let first = nginx.get_with("/api/x", vip);
    assert_eq!(
        (first.status, first.header("RateLimit-Name")),
        (200, Some("instead"))
    );
    assert_eq!(
        nginx.get_with("/api/x", vip).header("RateLimit-Name"),
        Some("instead")
    );
    assert_eq!(
        (nginx.count("api", "passed"), nginx.count("api", "replaced")),
        (0, 2)
    );
    assert_eq!(nginx.count("instead", "rejected"), 1);
}

#[test]
fn derived_attributes_count_and_unknown_values_share_one_counter() {
    let nginx = edge();
    assert_eq!(statuses(&nginx, "/groups/42/x", "", 1), [200]);
    assert_eq!(statuses(&nginx, "/groups/43/x", "", 2), [200, 429]);
    let spray = [1, 2, 3, 4].map(|id| nginx.get(&format!("/groups/{id}/x")).status);
    assert_eq!(spray, [200, 200, 429, 429], "spraying ids opens no counter");
}

#[test]
fn named_rules_and_a_domain_stand_together_and_off_takes_the_domain_out() {
    let nginx = start(
        EDGE,
        &format!("{BINDS} gabion_domain edge; gabion_limit_rule own k:$server_port rate=3r/w;"),
        &format!(
            "location /own {{ gabion_limit own; {FILE} }}
             location /only {{ gabion_limit own; gabion_domain off; {FILE} }}
             location /named {{ gabion_limit api; gabion_domain off; {FILE} }}
             location /api/both {{ gabion_limit api; {FILE} }}
             location /none {{ gabion_domain off; {FILE} }}"
        ),
    );
    assert_eq!(nginx.get("/own").header("RateLimit-Name"), Some("own"));
    assert_eq!(
        (nginx.count("own", "passed"), nginx.count("all", "passed")),
        (1, 1)
    );
    assert_eq!(nginx.statuses("/only", 3), [200, 200, 429]);
    assert_eq!(nginx.statuses("/own", 1), [429]);
    assert_eq!(
        nginx.count("all", "passed"),
        1,
        "what is denied charges no rule"
    );
    assert_eq!(nginx.get("/none").header("RateLimit-Name"), None);
    // Its condition holds wherever it is named, and naming it twice counts once.
    let user = "X-User: ann\r\n";
    assert_eq!(
        nginx.get_with("/named", user).header("RateLimit-Name"),
        None
    );
    assert_eq!(statuses(&nginx, "/api/both", user, 3), [200, 200, 429]);
}

const LOGIN: &str = r#"
limits:
- {name: failed, domain: d, match: request, descriptors: [{key: peer}], rate: 2r/w,
   only_if: [{path: ["/login*", "/slow*"]}],
   charge: {after: response, status: ["401", "403", "499"]}}
- {name: other, domain: d, match: request, descriptors: [], rate: 1000r/w}
"#;

#[test]
fn a_charge_after_the_response_counts_what_failed_once() {
    let folder = Folder::new();
    folder.write("policy.yaml", LOGIN);
    folder.write("users", "ann:{PLAIN}secret\n");
    let http = text(
        "gabion_domain d; error_page 401 /page;",
        &format!(
            "location = /page {{ {FILE} }}
             location /login {{ auth_basic x; auth_basic_user_file DIR/users; {FILE} }}"
        ),
    );
    let nginx = Nginx::start_in(folder, "1", &http);
    let good = "Authorization: Basic YW5uOnNlY3JldA==\r\n";
    assert_eq!(statuses(&nginx, "/login", good, 5), [200; 5]);
    assert_eq!(nginx.count("failed", "charged"), 0);
    assert_eq!(statuses(&nginx, "/login", "", 1), [401]);
    // The charge comes when the response was sent.
    wait_for("the first charge", || nginx.count("failed", "charged") == 1);
    assert_eq!(statuses(&nginx, "/login", "", 1), [401]);
    wait_for("the second charge", || {
        nginx.count("failed", "charged") == 2
    });
    let denied = nginx.get_with("/login", good);
    assert_eq!(
        (denied.status, denied.header("RateLimit-Name")),
        (429, Some("failed"))
    );
    let other = nginx.count("other", "passed");
    assert_eq!(statuses(&nginx, "/login", "", 3), [429; 3]);
    assert_eq!(
        nginx.count("failed", "charged"),
        2,
        "what is denied is not charged"
    );
    assert_eq!(nginx.count("other", "passed"), other);
}

#[test]
fn a_client_that_goes_away_is_the_status_499() {
    let upstream = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = upstream.local_addr().unwrap().port();
    let http = "gabion_domain d;";
    let slow = format!("location /slow {{ proxy_pass http://127.0.0.1:{port}; }}");
    let nginx = start(LOGIN, http, &slow);
    let mut client = Connection::open(nginx.port).unwrap();
    client.send(&["/slow"], "").unwrap();
    let (mut open, _) = upstream.accept().unwrap();
    drop(client);
    // nginx lets the upstream go as soon as it sees that nobody waits.
    let _ = open.read_to_end(&mut Vec::new());
    wait_for("the charge", || nginx.count("failed", "charged") == 1);
}

fn flagged(default: &str) -> String {
    format!(
        "flags: {{fast: {{default: {default}, by: user}}}}
limits:
- {{name: slow, domain: d, match: request, descriptors: [{{key: user}}], rate: 5r/w,
   unless_flag: fast}}
- {{name: swift, domain: d, match: request, descriptors: [{{key: user}}], rate: 50r/w,
   if_flag: fast}}
"
    )
}

#[test]
fn all_effects_of_a_flag_change_together_also_for_a_share_of_users() {
    let http = "gabion_bind user $http_x_user; gabion_domain d;";
    let locations = format!("location / {{ {FILE} }}");
    let nginx = start(&flagged("off"), http, &locations);
    let name = |nginx: &Nginx, user: usize| {
        let response = nginx.get_with("/", &format!("X-User: u{user}\r\n"));
        response.header("RateLimit-Name").map(str::to_owned)
    };
    assert_eq!(name(&nginx, 0).as_deref(), Some("slow"));
    assert_eq!(nginx.count("swift", "flag_off"), 1);
    let state = nginx.state();
    assert_eq!(state["flags"][0]["name"], "fast");
    assert_eq!(state["flags"][0]["value"], "off");
    let page = nginx.get("/metrics").body;
    assert!(
        page.contains("gabion_flag_percent{flag=\"fast\"} 0\n"),
        "{page}"
    );
    nginx.folder.write("policy.yaml", &flagged("50%"));
    nginx.reload(&text(http, &locations));
    let mut swift = 0;
    for user in 0..60 {
        let (slow, passed) = (
            nginx.count("slow", "passed"),
            nginx.count("swift", "passed"),
        );
        match name(&nginx, user).as_deref() {
            Some("swift") => swift += 1,
            Some("slow") => {}
            other => panic!("{other:?}"),
        }
        let both = nginx.count("slow", "passed") - slow + nginx.count("swift", "passed") - passed;
        assert_eq!(both, 1, "one of the two, never both and never none");
    }
    assert!((10..=50).contains(&swift), "{swift}");
    nginx.folder.write("policy.yaml", &flagged("on"));
    nginx.reload(&text(http, &locations));
    assert_eq!(name(&nginx, 0).as_deref(), Some("swift"));
}

const SHADOW: &str = r#"
limits:
- {name: old, domain: d, match: request, descriptors: [{key: user}], rate: 4r/w}
- {name: new, domain: d, match: request, descriptors: [{key: user}], rate: 2r/w, mode: dry_run}
"#;

#[test]
fn a_shadow_beside_an_enforced_rule_shows_what_it_would_deny() {
    let http = "gabion_bind user $http_x_user; gabion_domain d;";
    let nginx = start(SHADOW, http, &format!("location / {{ {FILE} }}"));
    let ask = || nginx.get_with("/", "X-User: ann\r\n");
    let said: Vec<_> = (0..5).map(|_| ask()).collect();
    assert_eq!(
        said.iter().map(|r| r.status).collect::<Vec<_>>(),
        [200, 200, 200, 200, 429]
    );
    assert_eq!(said[4].header("RateLimit-Name"), Some("old"));
    let counts = |rule: &str, what: [&str; 3]| what.map(|what| nginx.count(rule, what));
    let what = ["passed", "rejected", "rejected_dry_run"];
    assert_eq!(counts("old", what), [4, 1, 0]);
    assert_eq!(
        counts("new", what),
        [2, 0, 2],
        "and counts nothing of what the other denies"
    );
    wait_for("the log", || {
        nginx.access_log().contains("200 REJECTED_DRY_RUN new")
    });
    let page = nginx.get("/metrics").body;
    assert!(
        page.contains(r#"rule="new",result="rejected_dry_run"} 2"#),
        "{page}"
    );
}

const CLIENT: &str = r#"
attributes:
  client_ip:
    client_address: {peer: peer, forwarded: forwarded, trusted_proxies: [TRUSTED], ipv6_prefix: 64}
limits:
- {name: per_ip, domain: d, match: request, descriptors: [{key: client_ip}], rate: 2r/w}
"#;

#[test]
fn case_31_the_clients_address_is_derived_from_trusted_hops_alone() {
    let http = "gabion_domain d; log_format who $gabion_attr_client_ip;
        access_log DIR/who.log who;";
    let locations = format!("location / {{ {FILE} }}");
    let nginx = start(&CLIENT.replace("TRUSTED", "127.0.0.1"), http, &locations);
    let ask = |hops: &str| {
        nginx
            .get_with("/", &format!("X-Forwarded-For: {hops}\r\n"))
            .status
    };
    let hops = [
        "1.1.1.1, 9.9.9.9",
        "2.2.2.2, 9.9.9.9",
        "9.9.9.9",
        "2001:db8::1",
    ];
    assert_eq!(hops.map(ask), [200, 200, 429, 200]);
    assert_eq!(["2001:db8::2", "2001:db8:0:0:5::"].map(ask), [200, 429]);
    let log = || std::fs::read_to_string(nginx.folder.0.join("who.log")).unwrap_or_default();
    wait_for("the log", || log().lines().count() >= 6);
    let lines = log();
    let lines: Vec<&str> = lines.lines().collect();
    assert_eq!(
        (lines[0], lines[3], lines[4]),
        ("9.9.9.9", "2001:db8::/64", "2001:db8::/64")
    );
    assert_eq!(nginx.state()["untrusted_forwarded_requests"], 0);
}

#[test]
fn forged_hops_are_ignored_and_a_private_peer_that_sends_them_is_named_and_counted() {
    let locations = format!("location / {{ {FILE} }}");
    let nginx = start(
        &CLIENT.replace("TRUSTED", "10.0.0.0/8"),
        "gabion_domain d;",
        &locations,
    );
    let ask = |n: u8| {
        nginx
            .get_with("/", &format!("X-Forwarded-For: 9.9.9.{n}\r\n"))
            .status
    };
    assert_eq!([1, 2, 3, 4].map(ask), [200, 200, 429, 429]);
    let line = "forwarded headers from untrusted peer 127.0.0.1; add it to trusted_proxies";
    assert_eq!(nginx.log().matches(line).count(), 1, "{}", nginx.log());
    assert_eq!(nginx.state()["untrusted_forwarded_requests"], 4);
    let page = nginx.get("/state");
    assert!(page.body.contains("client_ip"), "{}", page.body);
}

const REGISTRY: &str = "[database]\nurl = \"unread\"\n\n[api.rate_limit]\nenabled = ENABLED\n\
    global_rps = 0.01\nper_ip_rps = 0.01\nburst = 3\ntrusted_proxies = [\"127.0.0.1\"]\n";

fn registry(enabled: &str) -> Nginx {
    let folder = Folder::new();
    folder.write("config.toml", &REGISTRY.replace("ENABLED", enabled));
    let http = format!(
        "gabion_limit_zone zone=z:1m; gabion_rules_file DIR/config.toml; gabion_domain registry;
         server {{ listen 127.0.0.1:PORT; root DIR/html; {STATE} location / {{ {FILE} }} }}"
    );
    Nginx::start_in(folder, "1", &http)
}

#[test]
fn the_block_of_a_registry_is_a_policy_as_it_is() {
    let nginx = registry("true");
    let ask =
        |path: &str, from: &str| nginx.get_with(path, &format!("X-Forwarded-For: {from}\r\n"));
    let statuses = |path: &str, from: &str, n: usize| -> Vec<u16> {
        (0..n).map(|_| ask(path, from).status).collect()
    };
    assert_eq!(
        statuses("/v2/myapp/manifests/latest", "9.9.9.1", 3),
        [200, 200, 200]
    );
    let denied = ask("/v2/", "9.9.9.1");
    assert_eq!(denied.status, 429);
    assert_eq!(denied.header("Content-Type"), Some("application/json"));
    let version = denied.header("Docker-Distribution-API-Version");
    assert_eq!(version, Some("registry/2.0"));
    let body = r#"{"errors":[{"code":"TOOMANYREQUESTS","message":"rate limit exceeded"}]}"#;
    assert_eq!(denied.body, body);
    assert!(denied.number("Retry-After") >= 1);
    let line = "rate limit exceeded client_ip=9.9.9.1 path=/v2/, rule \"registry_";
    assert!(nginx.log().contains(line), "{}", nginx.log());
    let odd = ask("/v2/a%0Ab", "9.9.9.1");
    assert_eq!(odd.status, 429);
    assert!(
        nginx.log().contains(r"path=/v2/a\x0ab, rule"),
        "{}",
        nginx.log()
    );
    // /auth shares the limiter with /v2, /admin has its own, and the rest has none.
    assert_eq!(ask("/auth/token", "9.9.9.2").status, 429);
    assert_eq!(statuses("/admin/x", "9.9.9.1", 4), [200, 200, 200, 429]);
    let admin = ask("/admin/x", "9.9.9.1");
    assert_eq!(admin.body, r#"{"error":"rate limit exceeded"}"#);
    assert_eq!(admin.header("Docker-Distribution-API-Version"), None);
    assert_eq!(statuses("/other", "9.9.9.1", 5), [200; 5]);
    assert_eq!(nginx.count("registry_per_ip", "passed"), 3);
}

#[test]
fn a_registry_that_is_not_enabled_counts_nothing() {
    let nginx = registry("false");
    assert_eq!(statuses(&nginx, "/v2/x", "", 9), [200; 9]);
    assert_eq!(nginx.count("registry_global", "passed"), 0);
    assert_eq!(nginx.get("/v2/x").header("RateLimit-Name"), None);
}
