//! Limits as clients see them.

use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::http::Connection;
use crate::server::{wait_for, Folder, Nginx};

const STATE: &str = "location = /state { gabion off; gabion_status; }";

fn one(rules: &str, locations: &str) -> String {
    format!(
        "gabion_limit_zone zone=z:1m; {rules}
         server {{ listen 127.0.0.1:PORT; root DIR/html; {STATE} {locations} }}"
    )
}

#[test]
fn a_limit_holds_and_is_shown() {
    for workers in ["1", "4"] {
        let http = one(
            "gabion_limit_rule ip $binary_remote_addr rate=10r/w;",
            "location / { gabion_limit ip; try_files /x.txt =404; }",
        );
        let nginx = Nginx::start(workers, &http);
        for left in (0..10).rev() {
            let response = nginx.get("/");
            assert_eq!((response.status, response.body.as_str()), (200, "x\n"));
            assert_eq!(response.header("X-RateLimit-Limit"), Some("10"));
            assert_eq!(response.number("X-RateLimit-Remaining"), left);
            assert_eq!(
                response.header("RateLimit-Policy"),
                Some("\"ip\";q=10;w=604800")
            );
            assert_eq!(response.header("RateLimit-Name"), Some("ip"));
            assert_eq!(response.header("Retry-After"), None);
        }
        let denied = nginx.get("/");
        assert_eq!(denied.status, 429);
        assert_eq!(denied.number("X-RateLimit-Remaining"), 0);
        let wait_s = denied.number("Retry-After");
        assert!((1..=604_800).contains(&wait_s), "{wait_s}");
        assert!(denied
            .header("RateLimit")
            .unwrap()
            .starts_with("\"ip\";r=0;t="));
        let log = nginx.log();
        assert!(
            log.contains("limiting requests, rule \"ip\", limit 10"),
            "{log}"
        );
        assert!(log.contains("client: 127.0.0.1"), "{log}");
        assert_eq!(
            (nginx.count("ip", "passed"), nginx.count("ip", "rejected")),
            (10, 1)
        );
        // The line is written after the response.
        wait_for("the access log", || {
            nginx.access_log().contains("429 REJECTED ip")
        });
    }
}

#[test]
fn four_workers_admit_exactly_the_limit() {
    let http = one(
        "gabion_limit_rule ip $binary_remote_addr rate=1000r/w;",
        "location / { gabion_limit ip; gabion_log_level info; try_files /x.txt =404; }",
    );
    for workers in ["2", "4"] {
        let nginx = Nginx::start(workers, &http);
        let (admitted, denied) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..10 {
                scope.spawn(|| {
                    let mut connection = Connection::open(nginx.port).unwrap();
                    for _ in 0..500 {
                        match connection.get("/").unwrap().status {
                            200 => admitted.fetch_add(1, Ordering::Relaxed),
                            429 => denied.fetch_add(1, Ordering::Relaxed),
                            other => panic!("{other}"),
                        };
                    }
                });
            }
        });
        let sums = (admitted.into_inner(), denied.into_inner());
        assert_eq!(sums, (1000, 4000), "workers: {workers}");
    }
}

#[test]
fn a_burst_passes_at_once_and_sustains_its_rate() {
    let http = one(
        "gabion_limit_rule ip $binary_remote_addr rate=1r/h burst=5;",
        "location / { gabion_limit ip; try_files /x.txt =404; }",
    );
    let nginx = Nginx::start("1", &http);
    assert_eq!(nginx.statuses("/", 7), [200, 200, 200, 200, 200, 429, 429]);
    let wait_s = nginx.get("/").number("Retry-After");
    assert!((3590..=3600).contains(&wait_s), "{wait_s}");
}

#[test]
fn a_level_replaces_the_rules_of_the_one_above_it() {
    let http = one(
        "gabion_limit_rule a a:$server_port rate=2r/w; gabion_limit_rule b b:$server_port rate=1r/w;
         gabion_limit a;",
        "location / { try_files /x.txt =404; }
         location /b { gabion_limit b; try_files /x.txt =404; }
         location /both { gabion_limit a b; try_files /x.txt =404; }
         location /none { gabion_limit off; try_files /x.txt =404; }
         location /off { gabion off; try_files /x.txt =404;
             location /off/on { gabion on; gabion_limit b; try_files /x.txt =404; } }",
    );
    let nginx = Nginx::start("1", &http);
    assert_eq!(nginx.statuses("/b", 2), [200, 429]);
    assert_eq!(nginx.statuses("/both", 2), [429, 429]);
    assert_eq!(
        nginx.statuses("/", 3),
        [200, 200, 429],
        "/both charged nothing"
    );
    assert_eq!(nginx.statuses("/none", 2), [200, 200]);
    assert_eq!(nginx.get("/none").header("X-RateLimit-Limit"), None);
    assert_eq!(nginx.statuses("/off", 2), [200, 200]);
    assert_eq!(nginx.statuses("/off/on", 1), [429]);
}

#[test]
fn case_30_and_15_the_rule_that_denies_is_shown_and_the_others_are_not_charged() {
    let http = one(
        "gabion_limit_rule m k:$server_port rate=60r/w;
         gabion_limit_rule n n:$server_port rate=50r/w;
         gabion_limit_rule h h:$server_port rate=1r/w;",
        "location / { gabion_limit m n h; try_files /x.txt =404; }",
    );
    let nginx = Nginx::start("4", &http);
    assert_eq!(nginx.statuses("/", 4), [200, 429, 429, 429]);
    assert_eq!(nginx.get("/").header("RateLimit-Name"), Some("h"));
    for rule in ["m", "n", "h"] {
        assert_eq!(nginx.count(rule, "passed"), 1, "{rule}");
    }
}

#[test]
fn case_31_only_trusted_hops_are_believed() {
    let http = one(
        "gabion_limit_rule ip $binary_remote_addr rate=2r/w;
         set_real_ip_from 127.0.0.1; set_real_ip_from 10.0.0.0/8;
         real_ip_header X-Forwarded-For; real_ip_recursive on;",
        "location / { gabion_limit ip; try_files /x.txt =404; }",
    );
    let nginx = Nginx::start("1", &http);
    let ask = |hops: &str| {
        let header = format!("X-Forwarded-For: {hops}\r\n");
        nginx.get_with("/", &header).status
    };
    let hops = ["1.1.1.1, 9.9.9.9", "2.2.2.2, 9.9.9.9, 10.1.2.3", "9.9.9.9"];
    assert_eq!(
        hops.map(ask),
        [200, 200, 429],
        "what a client writes in front is not believed"
    );
    assert_eq!(ask("9.9.9.9, 8.8.8.8"), 200);
    let six = [
        "2001:db8::1",
        "2001:db8::1",
        "2001:0db8:0::0001",
        "2001:db8::2",
    ];
    assert_eq!(six.map(ask), [200, 200, 429, 200]);
}

#[test]
fn case_32_empty_keys_and_conditions_exempt() {
    let http = one(
        "map $http_authorization $anonymous { '' $binary_remote_addr; default ''; }
         gabion_limit_rule anon ip:$anonymous rate=1r/w;
         gabion_limit_rule all $binary_remote_addr rate=2r/w except_if=$http_x_internal;",
        "location / { gabion_limit anon; try_files /x.txt =404; }
         location /all { gabion_limit all; try_files /x.txt =404; }",
    );
    let nginx = Nginx::start("1", &http);
    let signed_in = "Authorization: Bearer x\r\n";
    assert_eq!(nginx.statuses("/", 2), [200, 429]);
    assert!(nginx.get("/").header("X-RateLimit-Limit").is_some());
    assert_eq!(nginx.get_with("/", signed_in).status, 200);
    assert_eq!(
        nginx.get_with("/", signed_in).header("X-RateLimit-Limit"),
        None
    );
    for word in ["1", "yes", "TRUE"] {
        let header = format!("X-Internal: {word}\r\n");
        assert_eq!(nginx.get_with("/all", &header).status, 200);
    }
    let no = ["0", "OFF", "False"].map(|word| format!("X-Internal: {word}\r\n"));
    assert_eq!(
        no.map(|header| nginx.get_with("/all", &header).status),
        [200, 200, 429]
    );
    assert_eq!(nginx.count("all", "exempted"), 3);
    assert_eq!(nginx.count("anon", "empty_key"), 2);
    assert!(
        nginx.access_log().contains("200 EXEMPTED -"),
        "{}",
        nginx.access_log()
    );
}

#[test]
fn case_57_keys_are_bytes_and_too_long_ones_are_left_out() {
    let http = one(
        "gabion_storage_max_key_bytes 16; gabion_storage_max_descriptor_bytes 64;
         gabion_limit_rule k k:$arg_k rate=1r/w; gabion_limit_rule l l:$arg_l rate=1r/w;
         gabion_limit_rule m m:$arg_m rate=1r/w;",
        "location / { gabion_limit k l m; try_files /x.txt =404; }",
    );
    let nginx = Nginx::start("1", &http);
    assert_eq!(nginx.statuses("/?k=%ff%fe", 2), [200, 429]);
    assert_eq!(nginx.statuses("/?k=%ff%fd", 2), [200, 429]);
    let long = format!("/?k={}", "a".repeat(17));
    assert_eq!(nginx.statuses(&long, 3), [200, 200, 200]);
    assert_eq!(nginx.count("k", "key_too_long"), 3);
    assert!(nginx
        .log()
        .contains("longer than gabion_storage_max_key_bytes"));
    assert!(nginx.access_log().contains("200 BYPASSED"));
    assert_eq!(nginx.get(&format!("/?k={}", "a".repeat(65))).status, 400);
}

#[test]
fn a_dry_run_counts_marks_and_never_denies() {
    let http = one(
        "gabion_limit_rule d k:$server_port rate=2r/w dry_run;",
        "location / { gabion_limit d; try_files /x.txt =404; add_header X-Said $gabion_status; }",
    );
    let nginx = Nginx::start("1", &http);
    let said: Vec<String> = (0..4)
        .map(|_| nginx.get("/"))
        .map(|r| format!("{} {}", r.status, r.header("X-Said").unwrap()))
        .collect();
    let dry = "200 REJECTED_DRY_RUN";
    assert_eq!(said, ["200 PASSED", "200 PASSED", dry, dry]);
    assert_eq!(nginx.count("d", "rejected_dry_run"), 2);
    assert!(
        nginx
            .log()
            .contains("limiting requests, dry run, rule \"d\""),
        "{}",
        nginx.log()
    );
}

#[test]
fn status_body_and_headers_of_a_rejection() {
    let http = one(
        "gabion_limit_rule a k:$server_port rate=1r/w; gabion_limit a; gabion_reject_status 503;",
        "location / { try_files /x.txt =404; gabion_headers retry_after; }
         location /j { gabion_reject_status 420; try_files /x.txt =404;
             gabion_reject_body '{\"rule\":\"$gabion_rule\",\"in\":$gabion_reset}'
                 application/json; }
         location /p { error_page 503 =200 /x.txt; try_files /x.txt =404; }
         location /h { gabion_headers off; try_files /x.txt =404; }",
    );
    let nginx = Nginx::start("1", &http);
    let first = nginx.get("/");
    assert_eq!((first.status, first.header("Retry-After")), (200, None));
    let plain = nginx.get("/");
    assert_eq!(
        (plain.status, plain.header("X-RateLimit-Limit")),
        (503, None)
    );
    assert!(plain.number("Retry-After") >= 1);
    let json = nginx.get("/j");
    assert_eq!(
        (json.status, json.header("Content-Type")),
        (420, Some("application/json"))
    );
    assert!(
        json.body.starts_with("{\"rule\":\"a\",\"in\":"),
        "{}",
        json.body
    );
    let page = nginx.get("/p");
    assert_eq!((page.status, page.body.as_str()), (200, "x\n"));
    assert!(
        page.header("X-RateLimit-Limit").is_some(),
        "also on an error page"
    );
    let bare = nginx.get("/h");
    assert_eq!((bare.status, bare.header("Retry-After")), (503, None));
}

#[test]
fn requests_in_one_connection_count_one_by_one() {
    let http = one(
        "gabion_limit_rule a k:$server_port rate=3r/w;",
        "location / { gabion_limit a; try_files /x.txt =404; }
         location /j { gabion_limit a; gabion_reject_body no; try_files /x.txt =404; }",
    );
    let nginx = Nginx::start("1", &http);
    let mut connection = Connection::open(nginx.port).unwrap();
    connection
        .send(&["/", "/", "/j", "/j", "/", "/j"], "")
        .unwrap();
    let statuses: Vec<u16> = (0..6)
        .map(|_| connection.receive().unwrap().status)
        .collect();
    assert_eq!(statuses, [200, 200, 200, 429, 429, 429]);
}

#[test]
fn case_28_26_and_56_a_full_zone_admits_and_shows_it() {
    let http = "gabion_limit_zone zone=z:128k; gabion_limit_rule k k:$arg_k rate=5r/w;
         keepalive_requests 1000000;
         server { listen 127.0.0.1:PORT; root DIR/html; access_log off;
             location = /state { gabion_status; }
             location / { gabion_limit k; gabion_log_level info; try_files /x.txt =404; } }";
    let nginx = Nginx::start("1", http);
    let capacity = nginx.state()["zones"][0]["rules"][0]["capacity"]
        .as_u64()
        .unwrap();
    assert!((600..2048).contains(&capacity), "128k hold {capacity} keys");
    let mut connection = Connection::open(nginx.port).unwrap();
    for i in 0..capacity * 5 {
        assert_eq!(connection.get(&format!("/?k={i}")).unwrap().status, 200);
    }
    let table = &nginx.state()["zones"][0]["table"];
    assert!(table["live"].as_u64().unwrap() <= capacity, "{table}");
    let excess = ["doorkeeper_hits", "full_admits", "evicted_hits"];
    let excess: u64 = excess
        .iter()
        .map(|name| table[*name].as_u64().unwrap())
        .sum();
    assert!(excess > 0, "the fill is visible: {table}");
}

#[test]
fn a_single_process_and_worker_numbers_work() {
    let http = one(
        "gabion_limit_rule a k:$server_port rate=3r/w;",
        "location / { gabion_limit a; try_files /x.txt =404; }",
    );
    for workers in ["single", "auto"] {
        let nginx = Nginx::start(workers, &http);
        assert_eq!(nginx.statuses("/", 4), [200, 200, 200, 429], "{workers}");
    }
}

#[test]
fn rules_of_several_zones_are_decided_together() {
    let http = one(
        "gabion_limit_zone zone=y:1m; gabion_limit_rule a k:$server_port rate=9r/w;
         gabion_limit_rule b k:$server_port rate=2r/w zone=y;",
        "location / { gabion_limit a b; try_files /x.txt =404; }",
    );
    let nginx = Nginx::start("4", &http);
    assert_eq!(nginx.statuses("/", 4), [200, 200, 429, 429]);
    assert_eq!(nginx.count("a", "passed"), 2);
}

#[test]
fn the_report_reads_as_json_and_as_metrics() {
    let http = one(
        "gabion_limit_rule a k:$server_port rate=3r/w;",
        "location / { gabion_limit a; try_files /x.txt =404; }
         location = /metrics { gabion off; gabion_status prometheus; }",
    );
    let nginx = Nginx::start("4", &http);
    assert_eq!(nginx.statuses("/", 4), [200, 200, 200, 429]);
    let text = nginx.get("/metrics").body;
    let line = "gabion_rule_requests_total{domain=\"nginx\",rule=\"a\",result=\"passed\"} 3";
    assert!(text.contains(line), "{text}");
    assert_eq!(nginx.state()["zones"][0]["rules"][0]["limit"], 3);
    drop(TcpStream::connect(("127.0.0.1", nginx.port)).unwrap());
}

#[test]
fn requests_over_http_2_count() {
    let http = "gabion_limit_zone zone=z:1m; gabion_limit_rule a k:$server_port rate=2r/w;
         server { listen 127.0.0.1:PORT http2; root DIR/html;
             location / { gabion_limit a; try_files /x.txt =404; } }";
    let nginx = Nginx::start("1", http);
    // A connection each: curl 7.88 ends early when it uses one again that it did not upgrade.
    let answers: Vec<String> = (0..3).map(|_| over_http_2(nginx.port)).collect();
    assert_eq!(answers, ["200 over 2", "200 over 2", "429 over 2"]);
}

fn over_http_2(port: u16) -> String {
    let output = std::process::Command::new("curl")
        .args([
            "-s",
            "--http2-prior-knowledge",
            "-w",
            "%{http_code} over %{http_version}",
        ])
        .args(["-o", "/dev/null"])
        .arg(format!("http://127.0.0.1:{port}/"))
        .output()
        .expect("curl runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn rules_of_a_file_apply_by_name() {
    let folder = Folder::new();
    folder.write(
        "limits.yaml",
        "limits:\n- {name: ip, domain: edge, descriptors: [{key: remote_addr}], rate: 2r/w}\n\
         - {name: free, domain: edge, rate: 1r/w,\n   \
         descriptors: [{key: tier, value: free}, {key: user}]}\n",
    );
    let http = one(
        "gabion_rules_file limits.yaml;
         gabion_limit_rule free tier:$arg_tier user:$arg_user;",
        "location / { gabion_limit ip; try_files /x.txt =404; }
         location /free { gabion_limit free; try_files /x.txt =404; }",
    );
    let nginx = Nginx::start_in(folder, "1", &http);
    assert_eq!(nginx.statuses("/", 3), [200, 200, 429]);
    assert_eq!(nginx.statuses("/free?tier=free&user=u", 2), [200, 429]);
    assert_eq!(nginx.statuses("/free?tier=gold&user=u", 3), [200, 200, 200]);
}
