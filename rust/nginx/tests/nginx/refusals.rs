//! Every directive's wrong values, as `nginx -t` refuses them: directive, value, advice, place.

use std::collections::BTreeSet;

use gabion_nginx::{level, settings};

use crate::server::check_in;
use crate::server::Folder;

const ZONE: &str = "gabion_limit_zone zone=z:1m;";
const RULE: &str = "gabion_limit_rule a $binary_remote_addr rate=9r/w;";

/// Directive, its wrong words, what the message says beside both.
const OF_HTTP: &[(&str, &str, &str)] = &[
    ("gabion_limit_zone", "api:64m", "write zone=NAME:SIZE"),
    ("gabion_limit_zone", "zone=:64m", "write zone=NAME:SIZE"),
    ("gabion_limit_zone", "zone=y", "write zone=NAME:SIZE"),
    ("gabion_limit_zone", "zone=y:8k", "from 65536 to"),
    ("gabion_limit_zone", "zone=y:64mb", "from 65536 to"),
    ("gabion_limit_zone", "zone=y:-1", "from 65536 to"),
    (
        "gabion_limit_zone",
        "zone=y:99999999999999999999",
        "from 65536 to",
    ),
    ("gabion_limit_zone", "zone=z:1m", "exists already"),
    (
        "gabion_limit_zone",
        "zone=y:1m zone=x:1m",
        "exactly one value",
    ),
    (
        "gabion_limit_rule",
        "$uri rate=1r/s",
        "first word is the rule's name",
    ),
    ("gabion_limit_rule", "b", "not what to count by"),
    ("gabion_limit_rule", "b rate=1r/s", "not what to count by"),
    ("gabion_limit_rule", "b $uri", "rate is missing"),
    ("gabion_limit_rule", "b $uri rate=", "write rate=VALUE"),
    ("gabion_limit_rule", "b $uri rate=fast", "rate=fast"),
    ("gabion_limit_rule", "b $uri rate=0r/s", "mode=disabled"),
    ("gabion_limit_rule", "b $uri rate=-1r/s", "rate=-1r/s"),
    ("gabion_limit_rule", "b $uri rate=1r/q", "rate=1r/q"),
    (
        "gabion_limit_rule",
        "b $uri rate=1r/s rate=2r/s",
        "rate is 1r/s already",
    ),
    (
        "gabion_limit_rule",
        "b $uri rate=4294967296r/s",
        "4294967295",
    ),
    (
        "gabion_limit_rule",
        "b $uri rate=1r/m window=1s",
        "less than one hit",
    ),
    ("gabion_limit_rule", "b $uri rate=1r/s window=1", "window=1"),
    (
        "gabion_limit_rule",
        "b $uri rate=1r/s window=500d",
        "window=500d",
    ),
    (
        "gabion_limit_rule",
        "b $uri rate=1r/s window=1s bucket=2s",
        "bucket",
    ),
    (
        "gabion_limit_rule",
        "b $uri rate=1r/s bucket=0s",
        "bucket=0s",
    ),
    ("gabion_limit_rule", "b $uri rate=1r/s burst=0", "burst=0"),
    (
        "gabion_limit_rule",
        "b $uri rate=1r/s burst=4294967296",
        "burst=4294967296",
    ),
    (
        "gabion_limit_rule",
        "b $uri rate=1r/s burst=2 window=1m",
        "exclude each other",
    ),
    (
        "gabion_limit_rule",
        "b $uri rate=1r/s burst=2 sliding=live",
        "exclude each other",
    ),
    (
        "gabion_limit_rule",
        "b $uri rate=1r/s sliding=fast",
        "sliding=fast",
    ),
    ("gabion_limit_rule", "b $uri rate=1r/s mode=on", "mode=on"),
    (
        "gabion_limit_rule",
        "b $uri rate=1r/s mode=enforce dry_run",
        "mode is enforce already",
    ),
    (
        "gabion_limit_rule",
        "b $uri rate=1r/s cardinality=0",
        "cardinality=0",
    ),
    (
        "gabion_limit_rule",
        "b $uri rate=1r/s cardinality=many",
        "cardinality=many",
    ),
    (
        "gabion_limit_rule",
        "b $uri rate=1r/s cardinality=1000000",
        "\"gabion_limit_zone\" value \"z\": ",
    ),
    (
        "gabion_limit_rule",
        "b $uri rate=1r/s error_budget=200%",
        "error_budget=200%",
    ),
    (
        "gabion_limit_rule",
        "b $uri rate=1r/s pace=slow",
        "pace=slow",
    ),
    (
        "gabion_limit_rule",
        "b $uri rate=1r/s except_if=internal",
        "write except_if=$name",
    ),
    (
        "gabion_limit_rule",
        "b $uri rate=1r/s only_if=internal",
        "write only_if=$name",
    ),
    (
        "gabion_limit_rule",
        "b $uri rate=1r/s only_if=$nosuch",
        "with map, geo or set",
    ),
    (
        "gabion_limit_rule",
        "b $uri rate=1r/s fallback=$uri",
        "without variables",
    ),
    (
        "gabion_limit_rule",
        "b $uri rate=1r/s except_if=$nosuch",
        "with map, geo or set",
    ),
    (
        "gabion_limit_rule",
        "b $uri rate=1r/s zone=zz",
        "did you mean z?",
    ),
    (
        "gabion_limit_rule",
        "b $uri rte=1r/s",
        "did you mean rate=?",
    ),
    ("gabion_limit_rule", "b $uri fast", "neither a binding"),
    ("gabion_limit_rule", "b key:text rate=1r/s", "no variable"),
    (
        "gabion_limit_rule",
        "b :$uri rate=1r/s",
        "the key before the colon",
    ),
    (
        "gabion_limit_rule",
        "b $uri uri:$host rate=1r/s",
        "bound twice",
    ),
    (
        "gabion_limit_rule",
        "b $uri-x rate=1r/s",
        "it is no variable",
    ),
    ("gabion_limit_rule", "b $nosuch rate=1r/s", "is not defined"),
    (
        "gabion_limit_rule",
        "b k:$uri-$nosuch rate=1r/s",
        "is not defined",
    ),
    (
        "gabion_limit_rule",
        "a $uri rate=1r/s",
        "has the name of another rule",
    ),
    (
        "gabion_limit_rule",
        "b $binary_remote_addr rate=2r/w limiter=a",
        "same domain, limiter",
    ),
    (
        "gabion_limit_rule",
        "a $uri rate=5r/s domain=d limiter=x",
        "two domains",
    ),
    (
        "gabion_flag",
        "f default=maybe",
        "\"gabion_flag\" value \"f default=maybe\"",
    ),
    ("gabion_flag", "f on", "write gabion_flag NAME default=on"),
    ("gabion_flag", "f by=", "and by=KEY"),
    (
        "gabion_limit_rule",
        "b $uri rate=1r/s flag=f",
        "did you mean if_flag=?",
    ),
    (
        "gabion_limit_rule",
        "b $uri rate=1r/s if_flag=f unless_flag=g",
        "keep if_flag= or unless_flag=",
    ),
    (
        "gabion_limit_rule",
        "b $uri rate=1r/s unless_flag=f",
        "declare it with gabion_flag",
    ),
    ("gabion_bind", "user", "write gabion_bind KEY $variable"),
    (
        "gabion_bind",
        "$uri path",
        "the attribute's name comes first",
    ),
    (
        "gabion_rules_file",
        "DIR/undeclared.yaml",
        "undeclared.yaml:3:",
    ),
    ("gabion_rules_file", "/no/such", "it cannot be read"),
    ("gabion_rules_file", "/proc", "a directory"),
    ("gabion_rules_file", "DIR/latin.yaml", "not text in UTF-8"),
    ("gabion_rules_file", "DIR/misspelt.yaml", "misspelt.yaml:3:"),
    (
        "gabion_rules_file",
        "DIR/unbound.yaml",
        "gabion_limit_rule f user-id:$var",
    ),
    ("gabion_peers", "edge:7946", "gabion_discovery_dns"),
    ("gabion_peers", "127.0.0.1", "write 10.0.0.7:7946"),
    ("gabion_peers", "127.0.0.1:0", "write 10.0.0.7:7946"),
    ("gabion_peers", "127.0.0.1:65536", "write 10.0.0.7:7946"),
    ("gabion_peers_file", "a b", "exactly one value"),
    ("gabion_gossip_bind", "nowhere", "no address with a port"),
    ("gabion_gossip_bind", "127.0.0.1:65536", "from 0 to 65535"),
    (
        "gabion_gossip_cluster",
        "18446744073709551616",
        "is not a number",
    ),
    ("gabion_gossip_tick_interval", "fast", "duration"),
    ("gabion_gossip_fanout", "many", "is expected"),
    ("gabion_gossip_target_err_bps", "0", "from 1 to 10000"),
    ("gabion_gossip_target_err_bps", "10001", "from 1 to 10000"),
    ("gabion_gossip_min_emit_interval", "1y", "duration"),
    ("gabion_gossip_heartbeat_interval", "1ms", "not between"),
    ("gabion_gossip_packets_per_second", "1", "from 10 to"),
    ("gabion_gossip_max_payload_bytes", "big", "is expected"),
    ("gabion_gossip_max_cells_per_frame", "-1", "from 0 to"),
    ("gabion_gossip_max_cells_per_tick", "1.5", "from 0 to"),
    (
        "gabion_gossip_send_queue_capacity",
        "4294967296",
        "from 0 to 4294967295",
    ),
    (
        "gabion_gossip_limit_queue_capacity",
        "0x10",
        "from 0 to 4294967295",
    ),
    ("gabion_flag", "a default=200%", "none of: on, off"),
    ("gabion_auth_key_file", "/no/such", "No such file"),
    (
        "gabion_auth_key_file",
        "DIR/misspelt.yaml",
        "\"gabion_auth_key_file\"",
    ),
    (
        "gabion_key_secret_file",
        "DIR/misspelt.yaml",
        "32 hexadecimal digits",
    ),
    ("gabion_discovery_dns", "edge", "port"),
    (
        "gabion_discovery_self_addr",
        "edge",
        "no address with a port",
    ),
    ("gabion_discovery_kubernetes", "yes", "on or off"),
    ("gabion_discovery_namespace_allow", "Edge", "lower-case"),
    ("gabion_discovery_service_allow", "edge_", "lower-case"),
    ("gabion_discovery_gossip_port", "65536", "1 to 65535"),
    ("gabion_storage_max_cells", "1", "from 1024 to"),
    ("gabion_storage_rule_dictionary_capacity", "x", "from 0 to"),
    ("gabion_storage_node_dictionary_capacity", "x", "from 0 to"),
    ("gabion_storage_local_dirty_capacity", "x", "from 0 to"),
    ("gabion_storage_forwarded_dirty_capacity", "x", "from 0 to"),
    ("gabion_storage_peer_capacity", "x", "from 0 to"),
    ("gabion_storage_max_descriptor_count", "x", "from 0 to"),
    ("gabion_storage_max_descriptor_bytes", "0", "from 1 to"),
    ("gabion_storage_max_key_bytes", "5m", "from 1 to"),
    ("gabion_runtime_rng_seed", "+5", "a whole number"),
    ("gabion_runtime_member_place", "65535", "65534"),
    ("gabion_node_id_seed", "''", "leave it out"),
];

/// The same for directives of a location.
const OF_LOCATION: &[(&str, &str, &str)] = &[
    ("gabion", "maybe", "write gabion on or gabion off"),
    ("gabion", "on off", "write gabion on or gabion off"),
    ("gabion_limit", "b", "there is no such rule"),
    ("gabion_limit", "aa", "did you mean a?"),
    ("gabion_limit", "a off", "off stands alone"),
    ("gabion_limit", "a a", "named twice"),
    (
        "gabion_limit",
        "r1 r2 r3 r4 r5 r6 r7 r8 r9 r10 r11 r12 r13 r14 r15 r16 r17",
        "at most 16 rules",
    ),
    (
        "gabion_domain",
        "edge",
        "no rule of this domain has match: request",
    ),
    ("gabion_domain", "a b", "exactly one value"),
    (
        "gabion_domain",
        "''",
        "a domain of the rules file is expected",
    ),
    ("gabion_reject_status", "200", "from 400 to 599"),
    ("gabion_reject_status", "399", "from 400 to 599"),
    ("gabion_reject_status", "600", "from 400 to 599"),
    ("gabion_reject_status", "0429", "from 400 to 599"),
    ("gabion_reject_status", "teapot", "from 400 to 599"),
    ("gabion_headers", "itf", "did you mean ietf?"),
    ("gabion_headers", "x off", "stands alone"),
    (
        "gabion_log_level",
        "loud",
        "none of info, notice, warn, error",
    ),
    (
        "gabion_log_level",
        "debug",
        "none of info, notice, warn, error",
    ),
    (
        "gabion_reject_body",
        "slow json",
        "such as application/json",
    ),
    (
        "gabion_reject_body",
        "$nosuch",
        "unknown \"nosuch\" variable",
    ),
    ("gabion_status", "xml", "neither json nor prometheus"),
    ("gabion_limit", "''", "there is no such rule"),
];

/// What is found out once the whole file is read, and by nginx for us: these name no line.
const PLACELESS: [&str; 2] = ["$nosuch", "b $uri rate=1r/s cardinality=1000000"];

fn folder() -> Folder {
    let folder = Folder::new();
    std::fs::write(folder.0.join("latin.yaml"), b"limits: [{name: \xe9}]\n").expect("a file");
    let misspelt = "limits:\n- name: ip\n  rte: 5r/s\n  descriptors: [{key: remote_addr}]\n";
    folder.write("misspelt.yaml", misspelt);
    let unbound = "limits:\n- {name: f, domain: d, rate: 5r/s, descriptors: [{key: user-id}]}\n";
    folder.write("unbound.yaml", unbound);
    let undeclared = "limits:\n- {name: f, domain: d, rate: 5r/s, descriptors: [{key: k}],\n   \
                      if_flag: fast}\n";
    folder.write("undeclared.yaml", undeclared);
    folder
}

/// What is missing in what is said of one wrong line; empty when nothing is.
fn missing(folder: &Folder, http: &str, (directive, words, says): (&str, &str, &str)) -> String {
    let (taken, said) = check_in(folder, http);
    let said = said.replace(&folder.0.display().to_string(), "DIR");
    let mut parts = vec![says.to_owned()];
    if !PLACELESS.contains(&words) {
        parts.push("nginx.conf:".to_owned());
        parts.push(format!("gabion: \"{directive}\""));
    }
    parts.retain(|part| !said.contains(part));
    match taken || !parts.is_empty() {
        true => format!("\n{directive} {words}\nsays: {said}\nand not: {parts:?}\n"),
        false => String::new(),
    }
}

#[test]
fn case_61_and_11_every_wrong_value_in_http_is_refused_with_directive_advice_and_place() {
    let (folder, mut all) = (folder(), String::new());
    for &case in OF_HTTP {
        let (directive, words, _) = case;
        let line = format!("{directive} {words};").replace("DIR", &folder.0.display().to_string());
        let http = format!("{ZONE} {RULE}\n{line}\nserver {{ listen 127.0.0.1:PORT; }}");
        all += &missing(&folder, &http, case);
    }
    assert!(all.is_empty(), "{all}");
}

#[test]
fn every_wrong_value_in_a_location_is_refused_with_directive_advice_and_place() {
    let (folder, mut all) = (folder(), String::new());
    for &case in OF_LOCATION {
        let (directive, words, _) = case;
        for (before, after) in [
            ("server { listen 127.0.0.1:PORT; location / {", "} }"),
            ("server { listen 127.0.0.1:PORT;", "}"),
            ("", "server { listen 127.0.0.1:PORT; }"),
        ] {
            if directive == "gabion_status" && !before.contains("location") {
                continue;
            }
            let http = format!("{ZONE} {RULE} {before}\n{directive} {words};\n{after}");
            all += &missing(&folder, &http, case);
        }
    }
    assert!(all.is_empty(), "{all}");
}

/// A policy, lines of `http`, what is said of both.
const OF_POLICY: &[(&str, &str, &str)] = &[
    ("gabion_domain", "gabion_domain edeg;", "did you mean edge?"),
    (
        "gabion_bind",
        "gabion_domain edge;",
        "write gabion_bind user $variable",
    ),
    (
        "gabion_bind",
        "gabion_domain edge; gabion_bind user $http_x_user;",
        "write gabion_bind user-id $variable",
    ),
    (
        "gabion_limit_rule",
        "gabion_limit_rule p user:$http_x_user;",
        "with gabion_bind KEY $variable",
    ),
    (
        "gabion_limit_rule",
        "gabion_limit_rule p except_if=$http_x_free;",
        "stand in its file",
    ),
];

#[test]
fn mistakes_between_a_policy_and_its_nginx_name_the_line_to_write() {
    let (folder, mut all) = (folder(), String::new());
    let policy = "limits:\n- {name: p, domain: edge, match: request, rate: 5r/s, \
                  descriptors: [{key: user}]}\n";
    let odd = "- {name: q, domain: edge, match: request, rate: 5r/s, \
               descriptors: [{key: user-id}]}\n";
    for &(directive, lines, says) in OF_POLICY {
        let more = if lines.contains("gabion_bind") {
            odd
        } else {
            ""
        };
        folder.write("policy.yaml", &format!("{policy}{more}"));
        let http = format!(
            "{ZONE} gabion_rules_file DIR/policy.yaml; {lines} server {{ listen 127.0.0.1:PORT; }}"
        );
        let (taken, said) = check_in(&folder, &http);
        let told = said.contains(&format!("gabion: \"{directive}\"")) && said.contains(says);
        if taken || !told {
            all += &format!("\n{lines}\nsays: {said}\nand not: {says}\n");
        }
    }
    // What nobody asks needs no variable.
    folder.write("policy.yaml", policy);
    let http = format!("{ZONE} gabion_rules_file DIR/policy.yaml; gabion_bind usr $uri;");
    let (taken, said) = check_in(&folder, &http);
    assert!(
        taken && said.contains("no rule asks for this attribute"),
        "{said}"
    );
    let http = format!("{http} log_format who $gabion_attr_usr; access_log off;");
    let (taken, said) = check_in(&folder, &http);
    assert!(
        taken && said.contains("did you mean gabion_attr_user?"),
        "{said}"
    );
    assert!(all.is_empty(), "{all}");
}

#[test]
fn every_directive_has_a_wrong_value_above() {
    let tried: BTreeSet<&str> = OF_HTTP
        .iter()
        .chain(OF_LOCATION)
        .map(|(directive, ..)| *directive)
        .collect();
    let known = settings::DIRECTIVES.iter().chain(&level::DIRECTIVES);
    let untried: Vec<&&str> = known.filter(|name| !tried.contains(*name)).collect();
    assert!(untried.is_empty(), "{untried:?}");
}

#[test]
fn a_directive_at_the_wrong_place_or_twice_at_one_level_is_refused() {
    let folder = folder();
    let in_location = |line: &str| {
        format!("{ZONE} {RULE} server {{ listen 127.0.0.1:PORT; location / {{\n{line}\n}} }}")
    };
    for name in settings::DIRECTIVES {
        let (taken, said) = check_in(&folder, &in_location(&format!("{name} x;")));
        assert!(
            !taken && said.contains("is not allowed here"),
            "{name}: {said}"
        );
    }
    let own = ["gabion_reject_body", "gabion_status"];
    for name in level::DIRECTIVES.iter().chain(&own) {
        let line = format!("if ($uri) {{ {name} x; }}");
        let (taken, said) = check_in(&folder, &in_location(&line));
        assert!(
            !taken && said.contains("is not allowed here"),
            "{name}: {said}"
        );
    }
    for (line, says) in [
        ("gabion on; gabion off;", "given at this level already"),
        (
            "gabion_reject_status 429; gabion_reject_status 503;",
            "given at this level already",
        ),
        (
            "gabion_headers x; gabion_headers off;",
            "given at this level already",
        ),
        (
            "gabion_log_level info; gabion_log_level warn;",
            "given at this level already",
        ),
        (
            "gabion_reject_body a; gabion_reject_body b;",
            "given at this level already",
        ),
        ("gabion_limit a; gabion_limit off;", "off stands alone"),
        ("gabion_limit a; gabion_limit a;", "named twice"),
        (
            "gabion_limit;",
            "invalid number of arguments in \"gabion_limit\"",
        ),
        (
            "gabion_status json x;",
            "invalid number of arguments in \"gabion_status\"",
        ),
    ] {
        let (taken, said) = check_in(&folder, &in_location(line));
        assert!(!taken && said.contains(says), "{line}: {said}");
    }
}

#[test]
fn a_setting_given_twice_or_without_what_it_needs_is_refused() {
    let folder = folder();
    for once in [
        "gabion_gossip_bind 127.0.0.1:0;",
        "gabion_gossip_cluster a;",
        "gabion_node_id_seed a;",
        "gabion_storage_max_cells 2048;",
    ] {
        let http = format!("{ZONE} {RULE} {once} {once} server {{ listen 127.0.0.1:PORT; }}");
        let (taken, said) = check_in(&folder, &http);
        assert!(!taken && said.contains("given already"), "{once}: {said}");
    }
    for (http, says) in [
        (RULE.to_owned(), "write gabion_limit_zone zone=gabion:16m"),
        (
            format!("{ZONE} {RULE} gabion_peers 127.0.0.1:1;"),
            "write gabion_gossip_bind",
        ),
    ] {
        let (taken, said) = check_in(&folder, &http);
        assert!(!taken && said.contains(says), "{http}: {said}");
    }
}
