//! Connections: pipelines, bodies, HTTP/1.0 and HTTP/2.

use crate::http::Connection;
use crate::http2::Http2;
use crate::server::Nginx;

fn one(listen: &str, rules: &str, locations: &str) -> String {
    format!(
        "gabion_limit_zone zone=z:1m; {rules} keepalive_requests 1000000;
         server {{ listen 127.0.0.1:PORT {listen}; root DIR/html;
             location = /state {{ gabion off; gabion_status; }} {locations} }}"
    )
}

#[test]
fn a_hundred_pipelined_requests_are_a_hundred_hits() {
    let http = one(
        "",
        "gabion_limit_rule a k:$server_port rate=60r/w;",
        "location / { gabion_limit a; gabion_log_level info; try_files /x.txt =404; }",
    );
    for workers in ["1", "4"] {
        let nginx = Nginx::start(workers, &http);
        let mut connection = Connection::open(nginx.port).unwrap();
        connection.send(&["/"; 100], "").unwrap();
        let statuses: Vec<u16> = (0..100)
            .map(|_| connection.receive().unwrap().status)
            .collect();
        assert_eq!(statuses[..60], [200; 60]);
        assert_eq!(statuses[60..], [429; 40]);
        assert_eq!(nginx.count("a", "passed"), 60);
        assert_eq!(nginx.count("a", "rejected"), 40);
    }
}

#[test]
fn a_rejected_body_is_read_away_and_the_connection_goes_on() {
    let http = one(
        "",
        "gabion_limit_rule a k:$server_port rate=1r/w;",
        "location / { gabion_limit a; try_files /x.txt =404; }
         location /own { gabion_limit a; gabion_reject_body 'no $gabion_reset' text/x; }
         location /free { gabion off; try_files /x.txt =404; }",
    );
    let nginx = Nginx::start("1", &http);
    assert_eq!(nginx.get("/").status, 200);
    let mut connection = Connection::open(nginx.port).unwrap();
    // Longer than what nginx reads with the headers.
    let body = "b".repeat(50_000);
    for path in ["/", "/own", "/"] {
        let length = body.len();
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        connection.send_raw(&request).unwrap();
        let response = connection.receive().unwrap();
        assert_eq!(response.status, 429, "{path}: {response:?}");
        assert_eq!(connection.get("/free").unwrap().status, 200, "{path}");
    }
    // A body in chunks, and one that is promised.
    connection
        .send_raw(
            "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        )
        .unwrap();
    assert_eq!(connection.receive().unwrap().status, 429);
    assert_eq!(connection.get("/free").unwrap().status, 200);
}

#[test]
fn other_methods_and_http_1_0_count_and_malformed_requests_do_not() {
    let http = one(
        "",
        "gabion_limit_rule a k:$server_port rate=100r/w;",
        "location / { gabion_limit a; try_files /x.txt =404; }
         location /except { gabion_limit a; limit_except GET { allow all; }
             try_files /x.txt =404; }
         location /denied { gabion_limit a; deny all; }
         location /returned { gabion_limit a; return 204; }",
    );
    let nginx = Nginx::start("1", &http);
    let status = |request: &str| {
        let mut connection = Connection::open(nginx.port).unwrap();
        connection.send_raw(request).unwrap();
        connection.receive_head().unwrap().status
    };
    for (charged, (request, expected)) in (1..).zip([
        ("GET / HTTP/1.0\r\n\r\n", 200),
        ("HEAD / HTTP/1.1\r\nHost: x\r\n\r\n", 200),
        ("OPTIONS / HTTP/1.1\r\nHost: x\r\n\r\n", 405),
        ("GET /except HTTP/1.1\r\nHost: x\r\n\r\n", 200),
        ("DELETE /except HTTP/1.1\r\nHost: x\r\n\r\n", 405),
        ("GET /denied HTTP/1.1\r\nHost: x\r\n\r\n", 403),
        ("GET /nothing/here HTTP/1.1\r\nHost: x\r\n\r\n", 200),
    ]) {
        assert_eq!(status(request), expected, "{request}");
        assert_eq!(nginx.count("a", "passed"), charged, "{request}");
    }
    for (request, expected) in [
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("nonsense\r\n\r\n", 400),
        // `return` answers before the phase of limits, as it does for limit_req.
        ("GET /returned HTTP/1.1\r\nHost: x\r\n\r\n", 204),
    ] {
        assert_eq!(status(request), expected, "{request}");
        assert_eq!(nginx.count("a", "passed"), 7, "{request}");
    }
}

#[test]
fn streams_of_one_http_2_connection_are_hits_of_their_own() {
    let http = one(
        "http2",
        "gabion_limit_rule a k:$server_port rate=25r/w;",
        "location / { gabion_limit a; gabion_log_level info; try_files /x.txt =404; }
         location /own { gabion_limit a; gabion_reject_body no; try_files /x.txt =404; }",
    );
    for workers in ["1", "2"] {
        let nginx = Nginx::start(workers, &http);
        let mut connection = Http2::open(nginx.port);
        let mut paths = vec!["/"; 60];
        paths.extend(["/own"; 20]);
        let statuses = connection.get_all(&paths);
        let of = |status: u16| statuses.iter().filter(|found| **found == status).count();
        assert_eq!((of(200), of(429)), (25, 55), "{statuses:?}");
    }
}
