//! The commands of the binary, against real members.
#![allow(clippy::unwrap_used)] // a test fails by panicking

mod common;

use common::{ended_with, run, text, Member, Scratch};
use gabion_server::protocol::{descriptor, request, Code};

const RULES: &str = "limits:\n- {name: ip, domain: edge, rate: 3r/h, descriptors: [{key: ip}]}\n";

fn stdout(arguments: &[&str]) -> String {
    let output = run(arguments);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn top_shows_a_member_s_rules_and_ends_after_its_pages() {
    let member = Member::start(RULES);
    let admin = member.admin.to_string();
    let call = request("edge", vec![descriptor(&[("ip", "1.2.3.4")])]);
    for _ in 0..4 {
        member.ask(call.clone()).await;
    }
    let page = stdout(&["top", "--member", &admin, "-n", "1", "-d", "0.1"]);
    for word in ["gabiond 0.1.0", "ready", "NAME", "\nip ", "counts alone"] {
        assert!(page.contains(word), "{word}: {page}");
    }
    let admin = format!("http://{admin}/");
    let two = stdout(&["top", "--member", &admin, "-n", "2", "-d", "0.1"]);
    assert_eq!(two.matches("DENIED/s").count(), 2, "{two}");
}

const LAYERS: &str = "limits:
- {name: ip, domain: edge, rate: 3r/h, descriptors: [{key: ip}]}
- {name: route, domain: edge, rate: 9r/h, descriptors: [{key: route, value: api}, {key: ip}]}
- {name: watched, domain: edge, rate: 2r/h, mode: dry_run, descriptors: [{key: ip}, {key: ip}]}
- {name: free, domain: edge, mode: unlimited, descriptors: [{key: tier, value: gold}]}
- {name: tier, domain: edge, rate: 1r/h, descriptors: [{key: tier}]}
- {name: other, domain: else, rate: 1r/h, descriptors: [{key: ip}]}
response_headers: always
";

#[tokio::test]
async fn explain_says_what_would_happen_and_charges_nothing() {
    let member = Member::start(LAYERS);
    let admin = member.admin.to_string();
    let explain = |more: &[&str]| {
        let first = ["explain", "--member", &admin, "edge", "ip=1.2.3.4"];
        let all: Vec<&str> = first.iter().chain(more).copied().collect();
        stdout(&all)
    };
    for _ in 0..3 {
        let fresh = explain(&[]);
        assert!(fresh.contains("ip: allows (0 of 3 used, 3 left"), "{fresh}");
        assert!(
            fresh.contains("route: does not apply: the descriptor lacks route"),
            "{fresh}"
        );
        assert!(fresh.contains("answer: OK"), "{fresh}");
        assert!(!fresh.contains("other"), "{fresh}");
    }
    let call = request("edge", vec![descriptor(&[("ip", "1.2.3.4")])]);
    for _ in 0..3 {
        assert_eq!(
            member.ask(call.clone()).await.overall_code,
            i32::from(Code::Ok)
        );
    }
    let used = explain(&["ip=1.2.3.4,ip=5"]);
    assert!(used.contains("ip: denies (3 of 3 used, 0 left"), "{used}");
    assert!(used.contains("watched: allows (0 of 2"), "{used}");
    assert!(
        used.contains("answer: OVER_LIMIT") && used.contains("retry-after: "),
        "{used}"
    );
    let many = explain(&["ip=1,ip=2", "--hits", "3"]);
    assert!(many.contains("watched: would deny: dry run"), "{many}");
    let gold = explain(&["tier=gold"]);
    assert!(gold.contains("free: allows: unlimited"), "{gold}");
    assert!(
        gold.contains("tier: does not apply: the unlimited rule free shields"),
        "{gold}"
    );
    let json: serde_json::Value = serde_json::from_str(&explain(&["--json"])).unwrap();
    assert_eq!(json["answer"]["code"], "OVER_LIMIT");
    let counts = &member.snapshot()["decisions"];
    assert_eq!(
        (&counts["allowed"], &counts["denied"]),
        (&3.into(), &0.into()),
        "{counts}"
    );
    let wrong = run(&["explain", "--member", &admin, "edge", "ip"]);
    assert!(ended_with(&wrong, 1).contains("write key=value,key=value"));
}

#[test]
fn explain_reads_a_configuration_without_a_member() {
    let scratch = Scratch::new();
    let file = scratch.file("dry.yaml", LAYERS);
    let said = stdout(&["explain", "--config", text(&file), "edge", "route=api,ip=1"]);
    assert!(
        said.contains("route: allows (0 of 9 used, 9 left"),
        "{said}"
    );
    assert!(!said.contains("over-admission"), "it counts alone: {said}");
    let shared = "gossip: {bind: '127.0.0.1:7946', cluster_id: x}\n\
                  discovery: {static: ['10.0.0.2:7946', '10.0.0.3:7946']}\n";
    let both = scratch.file("both.yaml", &format!("{LAYERS}{shared}"));
    let said = stdout(&["explain", "--config", text(&both), "edge", "route=api,ip=1"]);
    let law = "over-admission: at most 2 hits while all 3 members reach each other, 18 when none";
    assert!(said.contains(law), "{said}");
    let none = stdout(&["explain", "--config", text(&file), "nowhere", "a=b"]);
    assert!(none.contains("no rule is of this domain"), "{none}");
}

const REGISTRY: &str = "[api.rate_limit]
global_rps = 9
per_ip_rps = 2
burst = 3
trusted_proxies = ['127.0.0.1']
";

const BESIDE: &str = "flags: {strict: {default: off}}
attributes:
  team: {lookup: {from: user, values: {ann: core}}}
limits:
- {name: pulls, domain: registry, match: request, descriptors: [{key: client_ip}], rate: 5r/h,
   only_if: [{path: '/v2/*'}], except_if: [{client_ip: {networks: [10.0.0.0/8]}}]}
- {name: strict, domain: registry, match: request, descriptors: [{key: team, fallback: none}],
   rate: 1r/h, if_flag: strict}
- {name: teams, domain: registry, match: request, descriptors: [{key: client_ip}], rate: 5r/h,
   tiers: {by: team, rates: {core: 50r/h}}}
- {name: failed, domain: registry, match: request, descriptors: [{key: client_ip}], rate: 5r/h,
   charge: {after: response, status: ['401']}}
";

#[test]
fn explain_reads_policy_files_without_a_member() {
    let scratch = Scratch::new();
    scratch.file("registry.toml", REGISTRY);
    scratch.file("beside.yaml", BESIDE);
    let file = scratch.file("g.yaml", "rules_file: [registry.toml, beside.yaml]\n");
    let explain = |more: &[&str]| {
        let first = ["explain", "--config", text(&file), "registry"];
        stdout(&[&first, more].concat())
    };
    let has = |said: &str, parts: &[&str]| {
        for part in parts {
            assert!(said.contains(part), "{part}: {said}");
        }
    };
    let pull = "path=/v2/a/manifests/x?y=1,peer=192.0.2.7,user=ann";
    let denied = explain(&[pull, "--hits", "4"]);
    has(
        &denied,
        &[
            "registry_global: denies (0 of 3 used, 3 left, reset in 0 s; the request \
             brings 4 hits)",
            "one counter for all, key ",
            "counter of client_ip=192.0.2.7, key ",
            "admin_global: does not apply: only_if does not hold: path=/admin/* (path is \
             \"/v2/a/manifests/x\")",
            "strict: does not apply: if_flag: the flag strict is off for this request",
            "teams: allows (0 of 50 used",
            "counter of client_ip=192.0.2.7, limit by team, key ",
            "failed: allows; charged when the response is known",
            "answer: OVER_LIMIT",
            "docker-distribution-api-version: registry/2.0",
        ],
    );
    assert!(explain(&[pull]).contains("answer: OK"));
    let exempt = explain(&["path=/v2/a,peer=127.0.0.1,forwarded=10.1.2.3"]);
    has(
        &exempt,
        &[
            "pulls: does not apply: except_if holds: client_ip in 10.0.0.0/8",
            "counter of client_ip=10.1.2.3, key ",
            "teams: allows (0 of 5 used",
            "answer: OK",
        ],
    );
    let late = explain(&["path=/v2/a,peer=192.0.2.7,status=401"]);
    has(
        &late,
        &[
            "pulls: does not apply: the response is known, and the rule was charged before it",
            "failed: charged: the response is known (0 of 5 used",
        ],
    );
    let unknown = explain(&["user=bob"]);
    has(
        &unknown,
        &[
            "pulls: does not apply: only_if does not hold: path=/v2/* (path is absent)",
            "teams: does not apply: the request has no client_ip",
        ],
    );
}

#[test]
fn check_says_what_a_reload_would_change() {
    let scratch = Scratch::new();
    let old = scratch.file("old.yaml", LAYERS);
    let changed = LAYERS.replace("rate: 3r/h", "rate: 5r/h").replace(
        "- {name: other, domain: else, rate: 1r/h, descriptors: [{key: ip}]}\n",
        "",
    );
    let new = scratch.file("new.yaml", &format!("drain_timeout: 9s\n{changed}"));
    let said = stdout(&["check", text(&new), "--diff", text(&old)]);
    for word in [
        "rule ip of domain edge: ",
        "; its counts are kept",
        "rule other of domain else: removed",
        "takes effect at the next start only: drain_timeout",
    ] {
        assert!(said.contains(word), "{word}: {said}");
    }
    assert_eq!(said.lines().count(), 3, "{said}");
    let same = stdout(&["check", text(&old), "--diff", text(&old)]);
    assert_eq!(same, "no rule changes\n");
    let bad = scratch.file("bad.yaml", "limits: 7\n");
    assert!(ended_with(&run(&["check", text(&old), "--diff", text(&bad)]), 1).contains("bad.yaml"));
}

const MAIL: &str = "domain: mail
descriptors:
- {key: to, rate_limit: {unit: day, requests_per_unit: 3}}
- {key: kind, value: a*, rate_limit: {unit: day, requests_per_unit: 3}}
- {key: kind, value: ab*, rate_limit: {unit: day, requests_per_unit: 9}}
";

#[test]
fn check_and_import_read_a_directory_of_the_reference_service() {
    let good = Scratch::new();
    good.file("mail.yaml", MAIL);
    let wider = Scratch::new();
    wider.file(
        "mail.yaml",
        &MAIL.replace("requests_per_unit: 3", "requests_per_unit: 4"),
    );
    let said = stdout(&["check", "--reference", text(&good.0)]);
    assert!(said.ends_with(": ok, 2 rules\n"), "{said}");
    let hidden = "mail.yaml:5:3: rule kind_ab*: it never matches";
    assert!(said.contains(hidden), "{said}");
    let native = stdout(&["import", text(&good.0)]);
    assert!(native.contains(hidden), "{native}");
    let diff = |old: &str| stdout(&["check", "--reference", text(&good.0), "--diff", old]);
    assert_eq!(diff(text(&good.0)), "no rule changes\n");
    assert_eq!(
        diff(text(&good.file("native.conf", &native))),
        "no rule changes\n"
    );
    let changed = diff(text(&wider.0));
    assert!(
        changed.contains("rule to of domain mail: rate 4r/d -> 3r/d"),
        "{changed}"
    );
    let dry = stdout(&["explain", "--reference", text(&good.0), "mail", "to=x"]);
    assert!(dry.contains("to: allows (0 of 3 used"), "{dry}");
}

#[test]
fn all_faults_of_all_files_of_a_directory_are_said_at_once() {
    let bad = Scratch::new();
    bad.file(
        "one.yaml",
        "domain: a\ndescriptors:\n- {kee: x}\n- {key: y, share_threshold: true}\n",
    );
    bad.file(
        "two.yaml",
        "domain: b\ndescriptors:\n- {key: z, rate_limit: {unit: fortnight}}\n",
    );
    for command in [&["check", "--reference"][..], &["import"]] {
        let all: Vec<&str> = command.iter().copied().chain([text(&bad.0)]).collect();
        let stderr = ended_with(&run(&all), 1);
        for fault in [
            "one.yaml:3:4: descriptors[0].kee: this key is not known; did you mean key?",
            "one.yaml:4:29: descriptors[1].share_threshold: ",
            "two.yaml:3:31: descriptors[0].rate_limit.unit: fortnight is none of",
            "requests_per_unit: this key is required",
        ] {
            assert!(stderr.contains(fault), "{fault}: {stderr}");
        }
    }
}

#[test]
fn check_warns_of_rules_that_never_apply() {
    let scratch = Scratch::new();
    let rules = "limits:
- {name: all, domain: d, mode: unlimited, descriptors: [{key: k}]}
- {name: lost, domain: d, rate: 1r/s, descriptors: [{key: k}]}
";
    let file = scratch.file("never.yaml", rules);
    let said = stdout(&["check", text(&file)]);
    let want = "never.yaml:3:3: lost: never applies: the unlimited rule all shields from it";
    assert!(said.contains("warning: ") && said.contains(want), "{said}");
}

#[test]
fn a_member_that_is_not_there_is_said_with_what_to_try() {
    // The port was free a moment ago, and nobody is told of it.
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap().to_string();
    drop(socket);
    for command in [&["top", "-n", "1"][..], &["reset", "x"]] {
        let arguments: Vec<&str> = command
            .iter()
            .copied()
            .chain(["--member", &address])
            .collect();
        let stderr = ended_with(&run(&arguments), 1);
        assert!(stderr.contains("Is the member running"), "{stderr}");
    }
    let stderr = ended_with(&run(&["top", "--member", "nowhere"]), 2);
    assert!(stderr.contains("write HOST:PORT"), "{stderr}");
    let missing = run(&[
        "reset",
        "x",
        "--token-file",
        "/no/such",
        "--member",
        &address,
    ]);
    assert!(ended_with(&missing, 1).contains("the token cannot be read"));
}

#[test]
fn completions_and_man_pages_know_every_command() {
    let help = stdout(&["--help"]);
    let scratch = Scratch::new();
    stdout(&["man", text(&scratch.0)]);
    let page = stdout(&["man"]);
    for command in ["check", "explain", "top", "reset", "completions", "man"] {
        assert!(help.contains(command), "{help}");
        for shell in ["bash", "zsh", "fish"] {
            let script = stdout(&["completions", shell]);
            assert!(script.contains(command), "{shell}: {command}");
        }
        assert!(page.contains(command), "{command}");
        let own = scratch.0.join(format!("gabiond-{command}.1"));
        assert!(std::fs::read_to_string(own).unwrap().contains(command));
    }
    assert!(ended_with(&run(&["man", "/no/such/folder"]), 1).contains("/no/such/folder"));
}

#[test]
fn the_version_says_what_it_was_built_from() {
    let version = stdout(&["--version"]);
    let target = std::env::consts::ARCH;
    assert!(
        version.contains(target) && version.contains("0.1.0 ("),
        "{version}"
    );
}
