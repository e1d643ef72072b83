//! A container registry behind both doors: settings, limiters, denials.

use std::time::{Duration, Instant};

use gabion_envoy_e2e::doors::{until, wire, Cluster, Doors};
use gabion_loader::local::source_root;

use crate::common::{checked, denied_by, name, registry, registry_at, said, statuses, OCI_BODY};

/// Rates at which nothing comes back while a test runs, and a proxy on this host.
const STILL: &str = "global_rps = 0.001\nper_ip_rps = 0.001\nburst = 5\n\
                     trusted_proxies = [\"127.0.0.1\"]";
/// The same without a global limit to speak of.
const BY_ADDRESS: &str = "global_rps = 100000.0\nper_ip_rps = 0.001\nburst = 5\n\
                          trusted_proxies = [\"127.0.0.1\"]";

const V2: &str = "GET /v2/myapp/manifests/latest";

fn from(client: &str) -> [(&str, &str); 1] {
    [("X-Forwarded-For", client)]
}

/// A.1
#[test]
fn the_settings_have_the_defaults_that_users_know() {
    let doors = registry(Cluster::Apart, "trusted_proxies = [\"127.0.0.1\"]");
    let passed = doors.both(V2, &from("203.0.113.50"));
    assert_eq!(passed.status, 200);
    assert_eq!(
        passed.header("x-ratelimit-limit"),
        Some("100"),
        "{passed:?}"
    );
    let rules = doors.json("/rules").unwrap().to_string();
    for rule in [
        "registry_global",
        "registry_per_ip",
        "admin_global",
        "admin_per_ip",
    ] {
        assert!(rules.contains(rule), "{rules}");
    }
    let written = doors
        .gabiond(&["check", "--expand", "rate-limit.toml"])
        .unwrap();
    let written = said(&written);
    for text in ["500r/s", "50r/s", "burst: 100"] {
        assert!(written.contains(text), "{text}: {written}");
    }
}

/// A.1
#[test]
fn check_takes_the_block_and_expand_prints_the_rules_it_stands_for() {
    let path = source_root().join("examples/registry");
    let doors = registry(Cluster::Apart, STILL);
    let file = path.join("rate-limit.toml");
    let file = file.to_str().unwrap();
    let check = doors.gabiond(&["check", file]).unwrap();
    assert!(check.status.success(), "{}", said(&check));
    let expanded = doors.gabiond(&["check", "--expand", file]).unwrap();
    assert!(expanded.status.success(), "{}", said(&expanded));
    let expanded = String::from_utf8(expanded.stdout).unwrap();
    // The guide shows it whole.
    let guide = std::fs::read_to_string(path.join("README.md")).unwrap();
    assert!(
        guide.contains(expanded.trim_end()),
        "not in the guide:\n{expanded}"
    );
    // What is printed is a policy file itself, and gives the same rules.
    let native = doors.folder().join("native.yaml");
    std::fs::write(&native, &expanded).unwrap();
    let native = native.to_str().unwrap();
    let again = doors.gabiond(&["check", "--expand", native]).unwrap();
    assert_eq!(
        String::from_utf8(again.stdout).unwrap(),
        expanded,
        "{}",
        said(&check)
    );
}

/// A.1: floats and whole numbers; other tables of the file are not looked at.
#[test]
fn the_block_is_found_in_a_larger_file() {
    let toml = "[server]\nport = 8080\n[api]\nname = \"x\"\n[api.rate_limit]\nglobal_rps = 10\n\
                per_ip_rps = 2.5\n[storage.s3]\nbucket = \"b\"\n";
    for (taken, said) in checked("rate-limit.toml", toml) {
        assert!(taken, "{said}");
    }
}

/// Mistakes give place and advice, at both doors.
#[test]
fn mistakes_in_the_block_give_place_and_advice() {
    for (line, advice) in [
        ("per_ip_rsp = 50.0", "per_ip_rps"),
        ("burst = -1", "burst"),
        ("global_rps = \"fast\"", "global_rps"),
        ("trusted_proxies = [\"10.0.0.0/33\"]", "10.0.0.0/33"),
        (
            "trusted_proxies = [\"10.0.0.0/8\", \"proxy.example\"]",
            "proxy.example",
        ),
        ("enabled = \"maybe\"", "enabled"),
    ] {
        let toml = format!("[api.rate_limit]\n{line}\n");
        for (taken, said) in checked("rate-limit.toml", &toml) {
            assert!(!taken, "{line}: {said}");
            assert!(said.contains("rate-limit.toml:2"), "{line}: {said}");
            assert!(said.contains(advice), "{line}: {said}");
        }
    }
}

/// A.2
#[test]
fn v2_and_auth_share_one_limiter_and_admin_has_its_own() {
    let doors = registry(Cluster::Apart, STILL);
    // Five clients use up the global limit of /v2 and /auth together.
    for (client, line) in [
        ("203.0.113.1", V2),
        ("203.0.113.2", "GET /auth/token?service=registry"),
        ("203.0.113.3", "GET /v2/"),
        ("203.0.113.4", "PUT /v2/myapp/blobs/uploads/1"),
        ("203.0.113.5", "POST /auth/token"),
    ] {
        assert_eq!(doors.both(line, &from(client)).status, 200, "{line}");
    }
    for line in [V2, "GET /auth/token"] {
        assert_eq!(
            denied_by(&doors, line, &from("203.0.113.6")),
            "registry_global"
        );
    }
    // /admin is counted for itself.
    let admin = "GET /admin/gc";
    assert_eq!(statuses(&doors, 5, admin, &from("203.0.113.6")), [200; 5]);
    assert!(denied_by(&doors, admin, &from("203.0.113.6")).starts_with("admin_"));
    assert_eq!(
        denied_by(&doors, admin, &from("203.0.113.7")),
        "admin_global"
    );
    // Other paths are not limited.
    assert_eq!(
        statuses(&doors, 20, "GET /health", &from("203.0.113.6")),
        [200; 20]
    );
}

/// A.2
#[test]
fn both_the_global_and_the_address_limit_must_pass() {
    let doors = registry(Cluster::Apart, BY_ADDRESS);
    assert_eq!(statuses(&doors, 5, V2, &from("203.0.113.50")), [200; 5]);
    assert_eq!(
        denied_by(&doors, V2, &from("203.0.113.50")),
        "registry_per_ip"
    );
    assert_eq!(denied_by(&doors, V2, &from("203.0.113.51")), "passed");
    assert_eq!(
        denied_by(&doors, "GET /admin/", &from("203.0.113.50")),
        "passed"
    );
}

/// A.2
#[test]
fn a_denied_address_drains_neither_limiter() {
    let doors = registry(
        Cluster::Apart,
        "global_rps = 20.0\nper_ip_rps = 0.01\nburst = 10\ntrusted_proxies = [\"127.0.0.1\"]",
    );
    for door in [doors.nginx, doors.envoy] {
        let ask = |client: &str| wire::ask(door, V2, &from(client)).unwrap();
        let start = Instant::now();
        while ask("203.0.113.50").status == 200 {
            assert!(start.elapsed() < Duration::from_secs(20));
        }
        let first = ask("203.0.113.50");
        // While the global limit, all used up, fills again, the address is denied 20 times over.
        let full = Instant::now() + Duration::from_millis(600);
        let mut denied = 0;
        while Instant::now() < full || denied < 40 {
            assert_eq!(ask("203.0.113.50").status, 429);
            denied += 1;
        }
        let last = ask("203.0.113.50");
        assert_eq!(name(&last), "registry_per_ip");
        assert!(last.number("retry-after") <= first.number("retry-after"));
        for n in 0..10 {
            assert_eq!(
                ask("203.0.113.51").status,
                200,
                "{n} of another address, {denied} denied"
            );
        }
    }
}

/// A.2: 100 at once at 50 a second, then about two seconds to the next 100.
#[test]
fn a_full_burst_is_back_after_two_seconds() {
    let doors = registry(Cluster::Apart, "trusted_proxies = [\"127.0.0.1\"]");
    for (door, client) in [(doors.nginx, "203.0.113.50"), (doors.envoy, "203.0.113.51")] {
        let mut connection = wire::Connection::open(door, [127, 0, 0, 1].into()).unwrap();
        let mut ask = || connection.ask(V2, &from(client)).unwrap();
        let start = Instant::now();
        for n in 0..100 {
            assert_eq!(ask().status, 200, "{n}");
        }
        let mut passed = 100;
        let denied = loop {
            let answer = ask();
            match answer.status {
                429 => break answer,
                _ => passed += 1,
            }
            assert!(passed < 5_000, "nothing is denied");
        };
        let took = start.elapsed();
        let most = 101 + took.as_millis() / 20;
        assert!(passed <= most, "{passed} in {took:?}");
        assert_eq!(denied.number("retry-after"), 1);
        // The passing of time is what is tested.
        std::thread::sleep(Duration::from_millis(2_000));
        for n in 0..100 {
            assert_eq!(ask().status, 200, "{n} after two seconds");
        }
    }
}

/// A.4
#[test]
fn a_denial_is_what_registry_clients_understand() {
    let doors = registry(Cluster::Apart, BY_ADDRESS);
    for (line, body, version) in [
        (V2, OCI_BODY, Some("registry/2.0")),
        ("GET /auth/token", OCI_BODY, Some("registry/2.0")),
        ("GET /admin/gc", r#"{"error":"rate limit exceeded"}"#, None),
    ] {
        let client = from("203.0.113.50");
        let answer = (0..12).map(|_| doors.both(line, &client));
        let answer = answer.last().unwrap();
        assert_eq!(answer.status, 429, "{line}");
        assert_eq!(answer.header("content-type"), Some("application/json"));
        assert_eq!(answer.header("docker-distribution-api-version"), version);
        assert_eq!(answer.body, body);
        // One request at 0.001 a second takes 1,000 s to come back.
        let wait = answer.number("retry-after");
        assert!((990..=1_000).contains(&wait), "{answer:?}");
    }
}

/// A.4
#[test]
fn a_denial_is_one_line_of_logfmt_and_a_flood_is_thinned() {
    let doors = registry(Cluster::Apart, BY_ADDRESS);
    for _ in 0..500 {
        let answer = wire::ask(doors.envoy, V2, &from("203.0.113.50"));
        answer.unwrap();
    }
    let line = "level=info msg=\"rate limit exceeded\" client_ip=203.0.113.50 \
                path=/v2/myapp/manifests/latest";
    until("the line", || {
        Ok(doors.log("gabiond").contains(line).then_some(()))
    })
    .unwrap();
    let lines = doors.log("gabiond").matches("rate limit exceeded").count();
    assert!(lines <= 20, "{lines} lines of 495 denials");
}

/// A.4
#[test]
fn at_debug_each_decision_is_shown() {
    let doors = registry_at(Cluster::Apart, "debug", BY_ADDRESS);
    for _ in 0..3 {
        wire::ask(doors.envoy, V2, &from("203.0.113.50")).unwrap();
    }
    until("the decisions", || {
        let log = doors.log("gabiond");
        let lines = log
            .lines()
            .filter(|line| line.contains("level=debug") && line.contains("client_ip=203.0.113.50"));
        Ok((lines.count() >= 3).then_some(()))
    })
    .unwrap();
}

/// A.5
#[test]
fn disabled_passes_everything_and_counts_nothing() {
    let doors = registry(Cluster::Apart, &format!("enabled = false\n{STILL}"));
    for line in [V2, "GET /auth/token", "GET /admin/gc"] {
        assert_eq!(statuses(&doors, 20, line, &from("203.0.113.50")), [200; 20]);
    }
    let rules = doors.json("/rules").unwrap();
    for rule in rules.as_array().unwrap() {
        assert_eq!(rule["live_keys"], 0, "{rule}");
    }
    let page = doors.admin("GET /metrics").unwrap().body;
    for line in page
        .lines()
        .filter(|line| line.starts_with("gabion_rule_hits_total"))
    {
        assert!(line.ends_with(" 0"), "{line}");
    }
    let zones = doors.nginx_status().unwrap()["zones"].clone();
    for rule in zones[0]["rules"].as_array().unwrap() {
        assert_eq!(
            (&rule["counts"]["charged"], &rule["counts"]["passed"]),
            (&0.into(), &0.into())
        );
    }
}

/// Both doors are members of one cluster and share each count.
#[test]
fn both_doors_share_one_count() {
    let doors = registry(
        Cluster::Joined,
        "global_rps = 100000.0\nper_ip_rps = 0.001\nburst = 50\ntrusted_proxies = [\"127.0.0.1\"]",
    );
    let client = from("203.0.113.50");
    let statuses: Vec<u16> = (0..200).map(|_| doors.either(V2, &client).status).collect();
    let passed = statuses.iter().filter(|status| **status == 200).count();
    // What either admits before it has heard of the other's last hits.
    assert!((50..=55).contains(&passed), "{passed}");
    assert_eq!(statuses[150..], [429; 50]);
}

/// Paths that mean the same to a registry are the same to both doors.
#[test]
fn no_way_of_writing_a_path_goes_around_the_limit() {
    let doors = registry(Cluster::Apart, BY_ADDRESS);
    let client = from("203.0.113.50");
    assert_eq!(statuses(&doors, 5, V2, &client), [200; 5]);
    for line in [
        "GET /v2/x",
        "GET //v2/x",
        "GET /v2//x",
        "GET /./v2/x",
        "GET /admin/../v2/x",
        "GET /admin/%2e%2e/v2/x",
        "GET /%76%32/x",
        "GET /v2%2fx",
        "GET /v2/x?n=100&last=/admin/",
        "GET /v2/%2576",
        "GET /v2/a%20b",
        "GET /v2/a%3Fb",
        "GET /v2/;admin",
        "GET http://registry.example/v2/x",
    ] {
        assert_eq!(
            denied_by(&doors, line, &client),
            "registry_per_ip",
            "{line}"
        );
    }
    // ... and these are not under /v2 at all.
    for line in [
        "GET /v2?x",
        "GET /v2",
        "GET /V2/x",
        "GET /x/v2/",
        "GET /v2/../x",
        "GET /x?/v2/",
        "GET /v2x",
    ] {
        assert_eq!(denied_by(&doors, line, &client), "passed", "{line}");
    }
    // The same, the other way round.
    assert_eq!(statuses(&doors, 5, "GET /v2/../admin/x", &client), [200; 5]);
    assert_eq!(denied_by(&doors, "GET /admin/x", &client), "admin_per_ip");
}

/// A change of the one file changes both doors, and what was counted stays.
#[test]
fn a_reload_of_the_one_file_changes_both_doors() {
    let mut doors: Doors = registry(Cluster::Apart, BY_ADDRESS);
    let client = from("203.0.113.50");
    assert_eq!(statuses(&doors, 5, V2, &client), [200; 5]);
    assert_eq!(denied_by(&doors, V2, &client), "registry_per_ip");
    doors
        .reload(&|text| text.replace("burst = 5", "burst = 8"))
        .unwrap();
    let left = statuses(&doors, 5, V2, &client);
    assert_eq!(left, [200, 200, 200, 429, 429]);
    doors
        .reload(&|text| format!("{text}enabled = false\n"))
        .unwrap();
    assert_eq!(statuses(&doors, 20, V2, &client), [200; 20]);
}

/// A.4, and acceptance: why a request is denied, or left alone.
#[test]
fn explain_says_what_each_rule_decides_and_why() {
    let doors = registry(Cluster::Apart, BY_ADDRESS);
    for _ in 0..6 {
        wire::ask(doors.envoy, V2, &from("203.0.113.50")).unwrap();
    }
    let explain = |request: &str| {
        let output = doors.gabiond(&["explain", "registry", request]).unwrap();
        let text = said(&output);
        println!("explain {request}:\n{text}");
        text
    };
    let peer = "peer=127.0.0.1,forwarded=203.0.113.50";
    let denied = explain(&format!("path=/v2/x,{peer}"));
    for text in [
        "registry_per_ip: denies",
        "answer: OVER_LIMIT",
        "admin_global: does not apply: only_if",
    ] {
        assert!(denied.contains(text), "{text}: {denied}");
    }
    let skipped = explain(&format!("path=/health,{peer}"));
    assert!(skipped.contains("only_if"), "{skipped}");
    assert!(!skipped.contains("denies"), "{skipped}");
}
