//! The configurations of docs/nginx.md: nginx takes each of them, and they do what they promise.

use std::path::Path;

use crate::server::{check_in, module, tcp_port, whole_file_check, Folder, Nginx};

fn blocks() -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/nginx.md");
    let guide = std::fs::read_to_string(path).expect("the guide");
    let parts = guide.split("```nginx\n").skip(1);
    parts
        .map(|part| part.split("```").next().unwrap_or_default().to_owned())
        .collect()
}

/// The block about this.
fn block(mark: &str) -> String {
    let mut found = blocks().into_iter().filter(|block| block.contains(mark));
    let block = found
        .next()
        .unwrap_or_else(|| panic!("no block with {mark}"));
    assert!(found.next().is_none(), "several blocks with {mark}");
    block
}

/// A block as the content of `http`, for a port of this test.
fn as_http(block: &str) -> String {
    let mut http = block
        .replace("/var/log/nginx/limits.log", "DIR/limits.log")
        .replace("0.0.0.0:7946", "127.0.0.1:0")
        .replace("server {", "server { listen 127.0.0.1:PORT; root DIR/html;");
    if !http.contains("gabion_limit_zone") {
        http = format!("gabion_limit_zone zone=gabion:1m;\n{http}");
    }
    if !http.contains("server {") {
        // A part that stands beside rules and servers of one's own.
        http += "gabion_limit_rule own $uri rate=1r/s;\nserver { listen 127.0.0.1:PORT; }\n";
    }
    http
}

#[test]
fn nginx_takes_every_configuration_of_the_guide() {
    let (folder, blocks) = (Folder::new(), blocks());
    assert!(blocks.len() >= 10, "{}", blocks.len());
    for block in blocks {
        let (taken, said) = match block.contains("load_module") {
            true => {
                let module = module().display().to_string();
                let file = block
                    .replace("modules/ngx_http_gabion_module.so", &module)
                    .replace("listen 80", &format!("listen 127.0.0.1:{}", tcp_port()))
                    .replace("/var/www", "/");
                whole_file_check(&folder, &file)
            }
            false => check_in(&folder, &as_http(&block)),
        };
        assert!(taken, "{block}\n{said}");
    }
}

#[test]
fn the_first_rule_fits_into_ten_lines() {
    let first = block("load_module");
    assert!(first.lines().count() <= 10, "{first}");
}

/// An nginx with a pattern of the guide whose client addresses come from a header.
fn with_addresses(mark: &str) -> Nginx {
    let realip = "set_real_ip_from 127.0.0.1; real_ip_header X-Real-IP;";
    let locations = "location = /x.txt { } location = /state { gabion off; gabion_status; }";
    let http = as_http(&block(mark)).replace("root DIR/html;", &format!("root DIR/html; {realip}"));
    let http = http.replace(
        "location / {",
        &format!("{locations} location / {{ try_files /x.txt =404;"),
    );
    Nginx::start("2", &http)
}

fn from(nginx: &Nginx, address: &str, extra: &str) -> u16 {
    let header = format!("X-Real-IP: {address}\r\n{extra}");
    nginx.get_with("/", &header).status
}

#[test]
fn an_ipv6_client_has_one_counter_for_its_64_however_it_is_written() {
    let nginx = with_addresses("net64");
    for host in 0..100 {
        // One network in three ways of writing, with the byte of a line break in the host's part.
        let address = match host % 3 {
            0 => format!("2001:db8::a0a:{host:x}"),
            1 => format!("2001:db8:0:0:a0a::{host:x}"),
            _ => format!("2001:DB8:0000::0:0a0a:0:{host:x}"),
        };
        assert_eq!(from(&nginx, &address, ""), 200, "{host}");
    }
    assert_eq!(from(&nginx, "2001:db8::ffff", ""), 429);
    assert_eq!(from(&nginx, "2001:db8:0:1::1", ""), 200, "the next network");
    assert_eq!(from(&nginx, "10.10.10.10", ""), 200, "an IPv4 address");
    assert_eq!(
        from(&nginx, "2001:db8:a0a:a0a::1", ""),
        200,
        "line breaks in the network"
    );
}

#[test]
fn internal_traffic_and_signed_in_users_are_exempt_as_the_guide_says() {
    let nginx = with_addresses("geo $internal");
    assert!((0..30).all(|_| from(&nginx, "10.1.2.3", "") == 200));
    assert!((0..30).all(|_| from(&nginx, "fd00::1", "") == 200));
    assert!((0..200).any(|_| from(&nginx, "192.0.2.1", "") == 429));
    assert_eq!(nginx.count("outside", "exempted"), 60);
    let nginx = with_addresses("$anonymous");
    let signed_in = "Authorization: Bearer x\r\n";
    assert!((0..100).any(|_| from(&nginx, "192.0.2.1", "") == 429));
    assert!((0..100).all(|_| from(&nginx, "192.0.2.1", signed_in) == 200));
}

#[test]
fn a_tenant_has_its_own_counter_and_requests_without_one_another() {
    let nginx = with_addresses("$without_tenant");
    assert!((0..2_000).any(|_| from(&nginx, "192.0.2.1", "X-Tenant: a\r\n") == 429));
    assert_eq!(from(&nginx, "192.0.2.1", "X-Tenant: b\r\n"), 200);
    assert_eq!(nginx.count("anonymous", "passed"), 0);
    assert!((0..100).any(|_| from(&nginx, "192.0.2.1", "") == 429));
    assert!(nginx.count("anonymous", "rejected") > 0);
}
