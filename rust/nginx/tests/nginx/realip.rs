//! Case 31: client addresses are those that nginx's realip module gives, and nobody forges them.

use crate::server::Nginx;

fn one(realip: &str) -> Nginx {
    let http = format!(
        "gabion_limit_zone zone=z:1m; gabion_limit_rule ip $binary_remote_addr rate=2r/w;
         server {{ listen 127.0.0.1:PORT; root DIR/html; {realip}
             location / {{ gabion_limit ip; gabion_log_level info; try_files /x.txt =404; }} }}"
    );
    Nginx::start("2", &http)
}

fn ask(nginx: &Nginx, lines: &[&str]) -> u16 {
    let header: String = lines
        .iter()
        .map(|line| format!("X-Forwarded-For: {line}\r\n"))
        .collect();
    nginx.get_with("/", &header).status
}

#[test]
fn case_31_without_trusted_proxies_no_header_is_believed() {
    for realip in [
        "",
        "real_ip_header X-Forwarded-For; real_ip_recursive on;",
        "set_real_ip_from 192.0.2.0/24; real_ip_header X-Forwarded-For; real_ip_recursive on;",
    ] {
        let nginx = one(realip);
        let statuses = ["1.1.1.1", "2.2.2.2", "3.3.3.3"].map(|hop| ask(&nginx, &[hop]));
        assert_eq!(statuses, [200, 200, 429], "{realip}");
    }
}

#[test]
fn case_31_hops_are_read_from_the_right_over_several_lines_and_address_families() {
    let nginx = one(
        "set_real_ip_from 127.0.0.1; set_real_ip_from 10.0.0.0/8; set_real_ip_from fd00::/8;
         real_ip_header X-Forwarded-For; real_ip_recursive on;",
    );
    // One client behind two trusted proxies, whatever it writes in front.
    let forged: [&[&str]; 3] = [
        &["198.51.100.7, 10.0.0.1, fd00::2"],
        &["203.0.113.1", "198.51.100.7, 10.0.0.1", "10.0.0.9"],
        &["2001:db8::1, 127.0.0.1, 198.51.100.7", "fd00::3"],
    ];
    assert_eq!(forged.map(|lines| ask(&nginx, lines)), [200, 200, 429]);
    // What stands in front of the client's address does not matter, not even when it is no address.
    assert_eq!(ask(&nginx, &["nonsense, 198.51.100.7"]), 429);
    let other = ["198.51.100.8", "198.51.100.8:4711", "::ffff:198.51.100.8"];
    assert_eq!(other.map(|hop| ask(&nginx, &[hop])), [200, 200, 200]);
    assert_eq!(
        ask(&nginx, &["198.51.100.8"]),
        429,
        "with its port or not; mapped is another"
    );
    // Written in three ways, one IPv6 address is one client; a zone of port is cut off.
    let six = [
        "2001:db8::7",
        "[2001:db8::7]:443",
        "2001:DB8:0:0::7",
        "2001:db8::8",
    ];
    assert_eq!(six.map(|hop| ask(&nginx, &[hop])), [200, 200, 429, 200]);
}

#[test]
fn case_31_without_recursion_the_last_hop_is_the_client() {
    let nginx = one("set_real_ip_from 127.0.0.1; real_ip_header X-Forwarded-For;");
    let hops = [
        "1.1.1.1, 10.0.0.1",
        "2.2.2.2, 10.0.0.1",
        "3.3.3.3, 10.0.0.1",
        "10.0.0.2",
    ];
    assert_eq!(hops.map(|hop| ask(&nginx, &[hop])), [200, 200, 429, 200]);
}

#[test]
fn an_ipv6_client_and_a_unix_socket_have_counters_of_their_own() {
    use std::io::{Read as _, Write as _};
    let http = "gabion_limit_zone zone=z:1m; gabion_limit_rule ip $binary_remote_addr rate=2r/w;
         server { listen 127.0.0.1:PORT; listen unix:DIR/socket; root DIR/html;
             location / { gabion_limit ip; gabion_log_level info; try_files /x.txt =404; } }";
    let nginx = Nginx::start("2", http);
    assert_eq!(nginx.statuses("/", 3), [200, 200, 429]);
    let over_socket = || {
        let path = nginx.folder.0.join("socket");
        let mut stream = std::os::unix::net::UnixStream::connect(path).expect("a socket");
        let request = b"GET / HTTP/1.0\r\n\r\n";
        stream.write_all(request).expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer.split(' ').nth(1).expect("a status").to_owned()
    };
    let statuses = [over_socket(), over_socket(), over_socket()];
    assert_eq!(
        statuses,
        ["200", "200", "429"],
        "clients of a socket share one counter"
    );
}
