//! Words of a rule that say when it applies and how it denies.

use crate::server::{Folder, Nginx};

const STATE: &str = "location = /state { gabion off; gabion_status; }";

fn one(rules: &str, locations: &str) -> String {
    format!(
        "gabion_limit_zone zone=z:1m; {rules}
         server {{ listen 127.0.0.1:PORT; root DIR/html; {STATE} {locations} }}"
    )
}

#[test]
fn only_if_lets_a_rule_apply_and_except_if_takes_it_out_again() {
    let http = one(
        "map $http_x_kind $api { default 0; ~^api 1; }
         gabion_limit_rule r k:$server_port rate=1r/w only_if=$api except_if=$http_x_free;",
        "location / { gabion_limit r; try_files /x.txt =404; }",
    );
    let nginx = Nginx::start("1", &http);
    let ask = |extra: &str| nginx.get_with("/", extra).status;
    assert_eq!([(); 3].map(|()| ask("")), [200; 3]);
    assert_eq!(nginx.count("r", "exempted"), 3);
    let api = "X-Kind: api2\r\n";
    assert_eq!([(); 3].map(|()| ask(api)), [200, 429, 429]);
    assert_eq!(ask(&format!("{api}X-Free: 1\r\n")), 200);
    let counts = ["passed", "rejected", "exempted"].map(|what| nginx.count("r", what));
    assert_eq!(counts, [1, 2, 4]);
}

#[test]
fn an_empty_value_counts_as_the_fallback_and_all_of_them_together() {
    let http = one(
        "gabion_limit_rule r ip:$remote_addr group:$http_x_group rate=2r/w fallback=unknown;",
        "location / { gabion_limit r; try_files /x.txt =404; }",
    );
    let nginx = Nginx::start("1", &http);
    let ask = |group: &str| nginx.get_with("/", &format!("X-Group: {group}\r\n")).status;
    assert_eq!(["a", "a", "a", "b"].map(ask), [200, 200, 429, 200]);
    assert_eq!(nginx.statuses("/", 3), [200, 200, 429]);
    assert_eq!(
        ask("unknown"),
        429,
        "whoever sends the text is in the same counter"
    );
    assert_eq!(nginx.count("r", "empty_key"), 0);
}

/// Rules of a file that bring bodies of their own, and one that brings none.
const BODIES: &str = r#"
limits:
- {name: json, domain: d, rate: 1r/w, descriptors: [{key: server_port}],
   raw_body: '{"why":"$slow"}', raw_body_type: application/json}
- {name: text, domain: d, rate: 1r/w, descriptors: [{key: remote_addr}], raw_body: slow down}
- {name: none, domain: d, rate: 1r/w, descriptors: [{key: host}]}
"#;

#[test]
fn a_rules_own_body_goes_before_the_locations_and_that_before_error_page() {
    let http = one(
        "gabion_rules_file DIR/rules.yaml; error_page 429 /page;",
        "location = /page { gabion off; return 200 page; }
         location /json { gabion_limit json; gabion_reject_body mine; try_files /x.txt =404; }
         location /text { gabion_limit text; gabion_reject_status 503; try_files /x.txt =404; }
         location /none { gabion_limit none; gabion_reject_body $gabion_rule a/b;
             try_files /x.txt =404; }
         location /bare { gabion_limit none; try_files /x.txt =404; }",
    );
    let folder = Folder::new();
    folder.write("rules.yaml", BODIES);
    let nginx = Nginx::start_in(folder, "1", &http);
    for (path, status, kind, body) in [
        ("/json", 429, "application/json", r#"{"why":"$slow"}"#),
        ("/text", 503, "text/plain", "slow down"),
        ("/none", 429, "a/b", "none"),
    ] {
        assert_eq!(nginx.get(path).status, 200, "{path}");
        let denied = nginx.get(path);
        assert_eq!(
            (denied.status, denied.body.as_str()),
            (status, body),
            "{path}"
        );
        assert_eq!(denied.header("Content-Type"), Some(kind), "{path}");
        assert!(denied.number("Retry-After") >= 1, "{path}");
        let name = path.trim_start_matches('/');
        assert_eq!(denied.header("RateLimit-Name"), Some(name), "{path}");
    }
    assert_eq!(nginx.get("/bare").body, "page");
}
