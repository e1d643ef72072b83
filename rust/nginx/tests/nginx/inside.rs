//! What nginx does with a request inside: each way is charged once, by the first rules it meets.

use crate::server::{Folder, Nginx};

fn one(locations: &str) -> String {
    format!(
        "gabion_limit_zone zone=z:1m; gabion_limit_rule a k:$server_port rate=1000r/w;
         gabion_limit_rule b b:$server_port rate=1000r/w;
         gabion_limit_rule tight t:$server_port rate=1r/w;
         server {{ listen 127.0.0.1:PORT; root DIR/html; gabion_limit a;
             location = /state {{ gabion off; gabion_status; }}
             location = /plain {{ try_files /x.txt =404; }} {locations} }}"
    )
}

/// Each path answers with its status and charges rule `a` once.
fn charges_once(nginx: &Nginx, paths: &[(&str, u16)]) {
    for (charged, (path, status)) in (1u64..).zip(paths) {
        let response = nginx.get(path);
        assert_eq!(response.status, *status, "{path}: {response:?}");
        assert_eq!(nginx.count("a", "passed"), charged, "{path}");
        assert_eq!(nginx.count("b", "passed"), 0, "{path}");
    }
}

#[test]
fn case_29_every_other_way_through_nginx_charges_once() {
    let http = one("
        location = /added { add_before_body /plain; add_after_body /plain; addition_types *;
            try_files /x.txt =404; }
        location = /slice { slice 1; proxy_pass http://127.0.0.1:PORT/part;
            proxy_set_header Range $slice_range; }
        location = /part { gabion off; try_files /x.txt =404; }
        location = /accel { proxy_pass http://127.0.0.1:PORT/accel-origin; }
        location = /accel-origin { gabion off; add_header X-Accel-Redirect /behind;
            try_files /x.txt =404; }
        location = /behind { internal; gabion_limit b; try_files /x.txt =404; }
        location = /mirrors { mirror /copy; mirror /copy; try_files /x.txt =404; }
        location = /copy { internal; gabion_limit b; return 204; }
        location = /index/ { index x.html; }
        location = /index/x.html { gabion_limit b; try_files /x.txt =404; }
        location = /guarded { auth_request /guard; try_files /x.txt =404; }
        location = /guard { internal; gabion_limit b; try_files /x.txt =404; }
        location = /refused { auth_request /refuse; try_files /x.txt =404; }
        location = /refuse { internal; gabion_limit b; return 403; }
        location = /loop { recursive_error_pages on; error_page 404 = /loop2;
            try_files /none =404; }
        location = /loop2 { gabion_limit b; recursive_error_pages on;
            error_page 404 = @end; try_files /none =404; }
        location @end { gabion_limit b; try_files /x.txt =404; }
        location = /broken { rewrite ^ /broken last; }
        location = /included { ssi on; ssi_types *; try_files /ssi.txt =404; }
        location = /counted { gabion_limit b; try_files /x.txt =404; }
        location /alias/ { alias DIR/html/; }");
    let folder = Folder::new();
    std::fs::create_dir(folder.0.join("html/index")).expect("a folder");
    folder.write("html/index/x.html", "x\n");
    folder.write(
        "html/ssi.txt",
        &"<!--# include virtual=\"/counted\" -->".repeat(5),
    );
    let nginx = Nginx::start_in(folder, "1", &http);
    let paths = [
        ("/added", 200),
        ("/slice", 200),
        ("/accel", 200),
        ("/mirrors", 200),
        ("/index/", 200),
        ("/guarded", 200),
        ("/refused", 403),
        ("/loop", 200),
        ("/included", 200),
        ("/alias/x.txt", 200),
        ("/alias/none", 404),
    ];
    charges_once(&nginx, &paths);
    assert_eq!(nginx.get("/added").body, "x\nx\nx\n");
    // Rewrites that never end are answered before any limit is asked.
    let before = nginx.count("a", "passed");
    assert_eq!(nginx.get("/broken").status, 500);
    assert_eq!(nginx.count("a", "passed"), before);
}

#[test]
fn what_a_rejection_leads_to_asks_no_other_rule() {
    let http = one("
        location = /page { gabion_limit tight; error_page 429 = /shown; try_files /x.txt =404; }
        location = /shown { gabion_limit b; try_files /x.txt =404; }
        location = /named { gabion_limit tight; error_page 429 = @other; try_files /x.txt =404; }
        location @other { gabion_limit b; add_header X-Said $gabion_status always;
            try_files /x.txt =404; }
        location = /away { gabion_limit tight; error_page 429 http://localhost/away; }");
    let nginx = Nginx::start("1", &http);
    assert_eq!(nginx.get("/page").header("RateLimit-Name"), Some("tight"));
    let shown = nginx.get("/page");
    assert_eq!((shown.status, shown.body.as_str()), (200, "x\n"));
    assert_eq!(shown.header("RateLimit-Name"), Some("tight"));
    let named = nginx.get("/named");
    assert_eq!(named.header("X-Said"), Some("REJECTED"), "{named:?}");
    assert!(named.number("Retry-After") >= 1);
    assert_eq!(nginx.get("/away").status, 302);
    assert_eq!(
        (
            nginx.count("tight", "passed"),
            nginx.count("tight", "rejected")
        ),
        (1, 3)
    );
    assert_eq!(
        (nginx.count("a", "passed"), nginx.count("b", "passed")),
        (0, 0)
    );
}

#[test]
fn conditions_of_nginx_keep_the_rules_of_their_location() {
    let http = one("
        location = /x.txt { gabion_limit b; if ($arg_x) { add_header X-In yes; }
            add_header X-Out yes; }
        location = /refused { gabion_limit b; if ($arg_x) { return 403; } try_files /x.txt =404; }
        location = /moved { gabion_limit b; if ($arg_x) { rewrite ^ /plain last; }
            try_files /x.txt =404; }");
    let nginx = Nginx::start("1", &http);
    let inside = nginx.get("/x.txt?x=1");
    assert_eq!(inside.header("X-In"), Some("yes"));
    assert_eq!(inside.header("RateLimit-Name"), Some("b"));
    assert_eq!(nginx.get("/x.txt").header("X-Out"), Some("yes"));
    assert_eq!(nginx.count("b", "passed"), 2);
    assert_eq!(nginx.get("/refused?x=1").status, 403);
    assert_eq!(
        nginx.count("b", "passed"),
        2,
        "refused before limits are asked"
    );
    assert_eq!(nginx.get("/moved?x=1").header("RateLimit-Name"), Some("a"));
    assert_eq!(
        (nginx.count("a", "passed"), nginx.count("b", "passed")),
        (1, 2)
    );
}

#[test]
fn levels_nested_three_deep_inherit_and_replace_one_directive_at_a_time() {
    let http = "gabion_limit_zone zone=z:1m; gabion_limit_rule a k:$server_port rate=2r/w;
        gabion_limit_rule b b:$server_port rate=2r/w; gabion_limit a; gabion_reject_status 420;
        gabion_log_level info; gabion_headers retry_after;
        server { listen 127.0.0.1:PORT; root DIR/html; gabion_reject_status 503;
            location / { try_files /x.txt =404;
                location /deep/ { gabion_reject_body deep; try_files /x.txt =404;
                    location /deep/er { gabion_limit b; gabion_headers x;
                        try_files /x.txt =404; } } } }
        server { listen 127.0.0.1:PORT; server_name other; root DIR/html;
            location / { gabion_limit b; try_files /x.txt =404; } }";
    let nginx = Nginx::start("1", http);
    assert_eq!(nginx.statuses("/", 3), [200, 200, 503]);
    let deep = nginx.get("/deep/");
    assert_eq!((deep.status, deep.body.as_str()), (503, "deep"));
    assert!(deep.header("Retry-After").is_some());
    assert_eq!(nginx.statuses("/deep/er", 2), [200, 200]);
    let deeper = nginx.get("/deep/er");
    assert_eq!((deeper.status, deeper.body.as_str()), (503, "deep"));
    assert_eq!(deeper.header("Retry-After"), None);
    assert_eq!(deeper.header("X-RateLimit-Limit"), Some("2"));
    let mut connection = crate::http::Connection::open(nginx.port).unwrap();
    connection
        .send_raw("GET / HTTP/1.1\r\nHost: other\r\n\r\n")
        .unwrap();
    let other = connection.receive().unwrap();
    assert_eq!(other.status, 420, "from http: {other:?}");
}
