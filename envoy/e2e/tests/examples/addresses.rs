//! Who the client is: the address behind proxies, at both doors. Case 31.

use std::net::Ipv4Addr;

use gabion_envoy_e2e::doors::{until, wire, Cluster, Doors};

use crate::common::{checked, denied_by, name, policy, registry};

/// A peer whose headers are not believed: all of 127.0.0.0/8 is this host.
const STRANGER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const LINE: &str = "GET /v2/x";

/// Two requests of each address pass, and nothing comes back.
fn settings(trusted: &str) -> String {
    format!("global_rps = 100000.0\nper_ip_rps = 0.0001\nburst = 2\ntrusted_proxies = [{trusted}]")
}

/// Uses up what `client`, as the only hop of the header, has, and then asks with `forwarded`:
/// whether that is the same client.
fn is(doors: &Doors, forwarded: &str, client: &str) -> bool {
    for _ in 0..3 {
        doors.both(LINE, &[("X-Forwarded-For", client)]);
    }
    let answer = doors.both(LINE, &[("X-Forwarded-For", forwarded)]);
    assert!(matches!(answer.status, 200 | 429), "{answer:?}");
    answer.status == 429 && name(&answer) == "registry_per_ip"
}

#[test]
fn case_31_only_hops_from_trusted_proxies_are_believed_read_from_the_right() {
    let doors = registry(
        Cluster::Apart,
        &settings("\"127.0.0.1\", \"10.0.0.0/8\", \"192.0.2.7\", \"fd00::/8\", \"2001:db8:f::1\""),
    );
    // A client of its own in each line, so that a wrong one has requests left and shows.
    for (forwarded, client) in [
        // What a client writes in front is not believed.
        ("6.6.6.6, 203.0.113.1", "203.0.113.1"),
        ("10.0.0.1, 203.0.113.2", "203.0.113.2"),
        ("6.6.6.6, 10.9.9.9, 203.0.113.3, 10.1.2.3", "203.0.113.3"),
        // Trusted hops are passed, whatever their form.
        ("203.0.113.4, 10.1.2.3", "203.0.113.4"),
        ("203.0.113.5,10.1.2.3 ,  192.0.2.7", "203.0.113.5"),
        ("203.0.113.6, fd00::7", "203.0.113.6"),
        ("203.0.113.7, 2001:db8:f:0::1", "203.0.113.7"),
        ("203.0.113.8, ::ffff:10.1.2.3", "203.0.113.8"),
        ("203.0.113.9, [fd00::7]:443", "203.0.113.9"),
        ("203.0.113.10, 10.1.2.3:8080", "203.0.113.10"),
        // Ways to write one client.
        ("203.0.113.11:4711", "203.0.113.11"),
        ("::ffff:203.0.113.12", "203.0.113.12"),
        ("2001:DB8:0:0::13", "2001:db8::13"),
        ("[2001:db8::14]:443", "2001:db8::14"),
        // One that is nearly trusted is the client.
        ("203.0.113.15, 192.0.2.8, 10.1.2.3", "192.0.2.8"),
        ("203.0.113.16, 11.0.0.1", "11.0.0.1"),
        // All trusted: the leftmost.
        ("10.0.0.17, 10.1.2.3", "10.0.0.17"),
        // What is no address ends the walk; the last hop before it is the client.
        ("203.0.113.18, unknown, 10.0.0.18", "10.0.0.18"),
        ("203.0.113.19, _hidden, 10.0.0.19, 10.1.2.3", "10.0.0.19"),
        ("203.0.113.20, 10.0.0.20, 300.1.1.1", "127.0.0.1"),
    ] {
        assert!(is(&doors, forwarded, client), "{forwarded} is {client}");
    }
}

#[test]
fn several_header_lines_are_one_list() {
    let doors = registry(Cluster::Apart, &settings("\"127.0.0.1\", \"10.0.0.0/8\""));
    let lines = [
        ("X-Forwarded-For", "6.6.6.6"),
        ("X-Forwarded-For", "203.0.113.50"),
        ("X-Forwarded-For", "10.1.1.1"),
    ];
    assert_eq!(denied_by(&doors, LINE, &lines), "passed");
    assert_eq!(denied_by(&doors, LINE, &lines), "passed");
    assert_eq!(denied_by(&doors, LINE, &lines), "registry_per_ip");
    let one = [("X-Forwarded-For", "203.0.113.50")];
    assert_eq!(denied_by(&doors, LINE, &one), "registry_per_ip");
}

#[test]
fn without_trusted_proxies_the_peer_is_the_client() {
    let doors = registry(Cluster::Apart, &settings(""));
    for n in 0..2 {
        let forged = format!("203.0.113.{n}");
        let header = [("X-Forwarded-For", forged.as_str())];
        assert_eq!(denied_by(&doors, LINE, &header), "passed");
    }
    assert_eq!(
        denied_by(&doors, LINE, &[("X-Forwarded-For", "203.0.113.9")]),
        "registry_per_ip"
    );
    assert_eq!(doors.both_from(STRANGER, LINE, &[]).status, 200);
}

#[test]
fn forged_headers_from_others_are_ignored_and_take_no_memory() {
    let doors = registry(Cluster::Apart, &settings("\"127.0.0.1\""));
    let mut passed = 0;
    for n in 0..400 {
        let forged = format!("198.51.{}.{}, 127.0.0.1", n / 200, n % 200);
        let answer = doors.both_from(STRANGER, LINE, &[("X-Forwarded-For", &forged)]);
        passed += u32::from(answer.status == 200);
    }
    assert_eq!(passed, 2);
    for rule in doors
        .json("/rules?rule=registry_per_ip")
        .unwrap()
        .as_array()
        .unwrap()
    {
        assert_eq!(rule["live_keys"], 1, "{rule}");
    }
}

#[test]
fn a_warning_names_the_untrusted_private_peer_once_in_a_while() {
    let doors = registry(Cluster::Apart, &settings("\"127.0.0.1\""));
    for _ in 0..50 {
        doors.both_from(STRANGER, LINE, &[("X-Forwarded-For", "203.0.113.50")]);
    }
    let advice = "forwarded headers from untrusted peer 127.0.0.2; add it to trusted_proxies if \
                  it is your proxy";
    for program in ["gabiond", "nginx"] {
        let lines = until("the warning", || {
            let count = doors.log(program).matches(advice).count();
            Ok((count > 0).then_some(count))
        });
        assert!(lines.unwrap() <= 10, "{program}");
    }
    // A trusted peer, and a peer without the header, are nothing to warn of.
    let calm = registry(Cluster::Apart, &settings("\"127.0.0.1\""));
    calm.both(LINE, &[("X-Forwarded-For", "203.0.113.50")]);
    calm.both_from(STRANGER, LINE, &[]);
    for program in ["gabiond", "nginx"] {
        assert!(!calm.log(program).contains("untrusted peer"), "{program}");
    }
}

#[test]
fn a_chain_of_very_many_hops_is_bounded() {
    let doors = registry(Cluster::Apart, &settings("\"127.0.0.1\", \"10.0.0.0/8\""));
    let long: Vec<String> = (0..300)
        .map(|n| format!("10.1.{}.{}", n / 100, n % 100))
        .collect();
    let long = long.join(", ");
    let statuses: Vec<u16> = (0..3)
        .map(|_| doors.both(LINE, &[("X-Forwarded-For", &long)]).status)
        .collect();
    assert_eq!(statuses, [200, 200, 429]);
    // What stands further left than the bound changes nothing.
    let longer = format!("10.99.99.99, {long}");
    assert_eq!(
        doors.both(LINE, &[("X-Forwarded-For", &longer)]).status,
        429
    );
}

#[test]
fn a_preset_is_a_list_of_networks_with_a_date() {
    let doors = registry(
        Cluster::Apart,
        &settings("\"127.0.0.1\", \"preset:cloudflare\""),
    );
    for edge in [
        "173.245.48.5",
        "131.0.75.255",
        "2606:4700::1111",
        "2a06:98c7:ffff::1",
    ] {
        let forwarded = format!("203.0.113.70, {edge}");
        assert!(is(&doors, &forwarded, "203.0.113.70"), "{edge}");
    }
    // Beside the networks: the last hop is the client.
    assert!(is(&doors, "203.0.113.71, 131.0.76.0", "131.0.76.0"));
    let unknown = "[api.rate_limit]\ntrusted_proxies = [\"preset:cloudfare\"]\n";
    for (taken, said) in checked("rate-limit.toml", unknown) {
        assert!(!taken && said.contains("cloudflare"), "{said}");
    }
}

#[test]
fn a_group_of_64_bits_is_one_client_of_ipv6_and_an_address_one_of_ipv4() {
    let doors = policy(
        Cluster::Apart,
        "attributes:
  client_ip:
    client_address: {peer: peer, forwarded: forwarded, trusted_proxies: [127.0.0.1], \
         ipv6_prefix: 64}
limits:
- {name: per, domain: edge, match: request, descriptors: [{key: client_ip}], rate: 1r/d, \
         raw_body: later}
",
    );
    let ask = |client: &str| denied_by(&doors, LINE, &[("X-Forwarded-For", client)]);
    assert_eq!(ask("2001:db8:1:2::1"), "passed");
    assert_eq!(ask("2001:db8:1:2:ffff:ffff:ffff:ffff"), "per");
    assert_eq!(ask("2001:db8:1:3::1"), "passed");
    assert_eq!(ask("203.0.113.50"), "passed");
    assert_eq!(ask("203.0.113.51"), "passed");
    assert_eq!(ask("::ffff:203.0.113.50"), "per");
}

/// The whole address is the default.
#[test]
fn without_ipv6_prefix_the_whole_address_is_the_key() {
    let doors = registry(Cluster::Apart, &settings("\"127.0.0.1\""));
    for client in ["2001:db8:1:2::1", "2001:db8:1:2::2"] {
        for _ in 0..2 {
            let answer = wire::ask(doors.envoy, LINE, &[("X-Forwarded-For", client)]).unwrap();
            assert_eq!(answer.status, 200);
            let answer = wire::ask(doors.nginx, LINE, &[("X-Forwarded-For", client)]).unwrap();
            assert_eq!(answer.status, 200);
        }
    }
    let third = [("X-Forwarded-For", "2001:db8:1:2:0::2")];
    assert_eq!(denied_by(&doors, LINE, &third), "registry_per_ip");
}
