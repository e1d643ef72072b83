//! Case 29: whatever nginx does with a request inside, its client is charged once.

use crate::server::Nginx;

#[test]
fn case_29_redirects_subrequests_and_error_pages_charge_once() {
    let http = "gabion_limit_zone zone=z:1m; gabion_limit_rule a k:$server_port rate=1000r/w;
        gabion_limit_rule b b:$server_port rate=1000r/w;
        server { listen 127.0.0.1:PORT; root DIR/html; gabion_limit a;
            location = /state { gabion off; gabion_status; }
            location /plain { try_files /x.txt =404; }
            location /rewrite { rewrite ^ /plain last; }
            location /named { try_files /none @named; }
            location @named { try_files /x.txt =404; }
            location /page { error_page 404 = /plain; try_files /none =404; }
            location /auth { auth_request /check; try_files /x.txt =404; }
            location = /check { return 204; }
            location /mirror { mirror /plain; try_files /x.txt =404; }
            location /ssi { ssi on; ssi_types text/plain; try_files /ssi.txt =404; }
            location /proxy { proxy_pass http://127.0.0.1:PORT/inner; }
            location /inner { gabion_limit off; try_files /x.txt =404; }
            location /other { gabion_limit b; error_page 404 = /plain; try_files /none =404; } }";
    let folder = crate::server::Folder::new();
    let ssi = "<!--# include virtual=\"/plain\" -->".repeat(3);
    folder.write("html/ssi.txt", &ssi);
    let nginx = Nginx::start_in(folder, "1", http);
    let paths = [
        "/plain", "/rewrite", "/named", "/page", "/auth", "/mirror", "/ssi", "/proxy",
    ];
    for (charged, path) in (1u64..).zip(paths) {
        let response = nginx.get(path);
        assert_eq!(response.status, 200, "{path}: {response:?}");
        assert_eq!(
            response.number("X-RateLimit-Remaining"),
            1000 - charged,
            "{path}"
        );
        assert_eq!(nginx.count("a", "passed"), charged, "{path}");
    }
    assert_eq!(nginx.get("/ssi").body, "x\nx\nx\n");
    // A redirect to a location of other rules: the first ones stand, and are charged alone.
    let before = nginx.count("a", "passed");
    assert_eq!(nginx.get("/other").header("RateLimit-Name"), Some("b"));
    assert_eq!(
        (nginx.count("b", "passed"), nginx.count("a", "passed")),
        (1, before)
    );
}
