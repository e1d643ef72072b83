//! The configuration as an operator meets it: what is accepted, what is refused, with what words.
#![allow(clippy::unwrap_used)] // a test fails by panicking

mod common;

use std::time::Duration;

use gabion_admit::headers::Families;
use gabion_rule::policy::yaml;
use gabion_server::config::{Answers, Config, ConfigError, Variables, When};

const LIMITS: &str = "limits:\n- {name: ip, domain: edge, rate: 10r/s, \
                      descriptors: [{key: remote_address}]}\n";

fn load(text: &str) -> Result<Config, ConfigError> {
    load_with(text, &[])
}

fn load_with(text: &str, variables: &[(&str, &str)]) -> Result<Config, ConfigError> {
    let environment = variables
        .iter()
        .map(|(n, v)| ((*n).to_owned(), (*v).to_owned()));
    Config::parse("g.yaml", text, &Variables::new(environment))
}

fn refusal(text: &str) -> String {
    load(text).map(|_| ()).unwrap_err().to_string()
}

#[test]
fn the_smallest_file_has_defaults() {
    let config = load(LIMITS).unwrap();
    assert_eq!(config.envoy_bind.to_string(), "0.0.0.0:8081");
    assert_eq!(config.admin_bind.unwrap().to_string(), "127.0.0.1:9090");
    assert_eq!(config.drain_timeout, Duration::from_secs(5));
    assert_eq!(config.answers, Answers::default());
    assert!(config.gossip.is_none());
    assert_eq!(config.rules.rules().len(), 1);
}

#[test]
fn a_deployed_file_with_every_knob_loads_and_says_what_is_not_needed() {
    let text = format!(
        "envoy_bind: 127.0.0.1:0\nadmin_bind: off\ndrain_timeout: 2s\nresponse_headers: always\n\
         {LIMITS}\
         gossip: {{bind: ':7946', cluster_id_hash: '0x1f', tick_interval: 10ms, fanout: 3, \
         target_err_bps: 50, min_emit_interval: 2ms, max_payload_bytes: 1400, \
         max_cells_per_frame: 64, max_cells_per_tick: 256, send_queue_capacity: 256, \
         limit_queue_capacity: 1024}}\n\
         discovery: {{static: ['10.0.0.1:7946', '[::1]:7946'], dns: 'gabion.example:7946', \
         file: /etc/peers, self_addr: '10.0.0.9:7946', namespace_allow: [a], service_allow: b}}\n\
         storage: {{max_cells: 100000, rule_dictionary_capacity: 10, \
         node_dictionary_capacity: 10, local_dirty_capacity: 10, forwarded_dirty_capacity: 10, \
         peer_capacity: 10, max_descriptor_count: 8, max_descriptor_bytes: 4k, \
         max_key_bytes: 1024, table_bytes: 8m}}\n\
         runtime: {{rng_seed: 7, node_id_seed: web-1, worker_threads: 3, \
         clock_ahead: 30s}}\n"
    );
    let config = load(&text).unwrap();
    assert!(config.admin_bind.is_none());
    assert_eq!(config.drain_timeout, Duration::from_secs(2));
    assert_eq!(config.storage.max_descriptor_count, 8);
    assert_eq!(config.storage.max_descriptor_bytes, 4096);
    assert_eq!(config.storage.max_key_bytes, 1024);
    assert_eq!(config.storage.table_bytes, 8 << 20);
    assert_eq!(config.runtime.rng_seed, Some(7));
    assert_eq!(config.runtime.clock_ahead_ns, 30_000_000_000);
    let gossip = config.gossip.unwrap();
    assert_eq!(gossip.bind.to_string(), "0.0.0.0:7946");
    assert_eq!(gossip.cluster.tag(), 0x1f);
    assert_eq!(gossip.error_budget_ppm, Some(5_000));
    assert_eq!(gossip.tunables.min_emit_interval_ns, 2_000_000);
    assert_eq!(gossip.tunables.max_cells, 100_000);
    assert_eq!(gossip.tunables.fanout, gabion_node::Fanout::Members(3));
    assert_eq!(gossip.discovery.addresses.len(), 2);
    assert_eq!(
        gossip.discovery.dns,
        Some(("gabion.example".to_owned(), 7946))
    );
    let kubernetes = gossip.discovery.kubernetes.unwrap();
    assert_eq!(kubernetes.watched.namespaces, ["a"]);
    assert_eq!(kubernetes.watched.services[0].to_string(), "b");
    assert_eq!(kubernetes.watched.port.to_string(), "gossip");
    assert_eq!(kubernetes.peers_max, Some(10));
    let needed = ["peer_capacity", "service_allow", "namespace_allow"];
    assert!(
        !config
            .notices
            .iter()
            .any(|n| needed.iter().any(|key| n.contains(key))),
        "{:?}",
        config.notices
    );
}

#[test]
fn discovery_by_kubernetes_is_on_when_something_is_named_or_when_it_is_switched_on() {
    let with = |discovery: &str| {
        let text = format!("{LIMITS}gossip: {{bind: ':0'}}\ndiscovery: {{{discovery}}}\n");
        load(&text).unwrap().gossip.unwrap().discovery.kubernetes
    };
    for off in [
        "",
        "namespace_allow: []",
        "service_allow: [a], kubernetes: false",
    ] {
        assert!(with(off).is_none(), "{off}");
    }
    for on in [
        "kubernetes: true",
        "namespace_allow: a",
        "service_allow: [a/b]",
    ] {
        assert!(with(on).is_some(), "{on}");
    }
    let port = with("kubernetes: true, gossip_port: 7946").unwrap();
    assert_eq!(port.watched.port.to_string(), "7946");
    for (bad, says) in [
        (
            "namespace_allow: [Prod]",
            "discovery.namespace_allow: \"Prod\" is no namespace",
        ),
        (
            "service_allow: [a/b/c]",
            "discovery.service_allow: \"a/b/c\" is no Service",
        ),
        ("gossip_port: 0", "discovery.gossip_port: \"0\" is no port"),
        ("kubernetes: perhaps", "discovery.kubernetes"),
        (
            "namespace_allow: [a], service_allow: [b/c]",
            "namespace_allow lacks the namespace",
        ),
        ("self_addr: pod", "discovery.self_addr"),
    ] {
        let text = format!("{LIMITS}gossip: {{bind: ':0'}}\ndiscovery: {{{bad}}}\n");
        let error = refusal(&text);
        assert!(error.contains(says), "{bad}: {error}");
    }
    // A file that never had gossip loads on.
    let alone = load(&format!("{LIMITS}discovery: {{namespace_allow: [a]}}\n")).unwrap();
    assert!(alone.gossip.is_none());
}

#[test]
fn case_01_a_misspelt_key_is_refused_with_line_column_and_suggestion() {
    let error = refusal(&format!("envoy_bnd: 127.0.0.1:1\n{LIMITS}"));
    assert!(error.contains("g.yaml:1:1: envoy_bnd"), "{error}");
    assert!(error.contains("did you mean envoy_bind?"), "{error}");
    let error = refusal(&format!("{LIMITS}gossip:\n  bind: ':1'\n  fanuot: 3\n"));
    assert!(error.contains("g.yaml:5:3: gossip.fanuot"), "{error}");
    assert!(error.contains("did you mean fanout?"), "{error}");
}

#[test]
fn every_fault_is_reported_at_once_in_the_order_of_the_file() {
    let error = refusal(
        "envoy_bind: nonsense\nlimits:\n- {name: a, domain: d, rate: 0r/s, \
         descriptors: [{key: k}]}\nstorage: {table_bytes: 1}\nunknown: 1\n",
    );
    let places: Vec<&str> = error
        .lines()
        .filter_map(|line| line.split(": ").nth(1))
        .collect();
    assert_eq!(
        places,
        [
            "envoy_bind",
            "limits[0].rate",
            "storage.table_bytes",
            "unknown"
        ],
        "{error}"
    );
}

#[test]
fn case_61_numbers_out_of_range_are_refused_and_never_truncated() {
    for (text, key) in [
        ("envoy_bind: 127.0.0.1:65536\n", "envoy_bind"),
        (
            "storage: {max_descriptor_count: 4294967297}\n",
            "storage.max_descriptor_count",
        ),
        ("storage: {max_cells: 4294967296}\n", "storage.max_cells"),
        (
            "storage: {table_bytes: 99999999999999999999}\n",
            "storage.table_bytes",
        ),
        ("runtime: {worker_threads: 0}\n", "runtime.worker_threads"),
        (
            "runtime: {rng_seed: 18446744073709551616}\n",
            "runtime.rng_seed",
        ),
        ("drain_timeout: 5\n", "drain_timeout"),
        ("drain_timeout: 2h\n", "drain_timeout"),
        (
            "gossip: {bind: ':1', cluster_id_hash: 18446744073709551616}\n",
            "cluster_id_hash",
        ),
        (
            "gossip: {bind: ':1', cluster_id_hash: -1}\n",
            "cluster_id_hash",
        ),
        (
            "gossip: {bind: ':1', target_err_bps: 10001}\n",
            "target_err_bps",
        ),
        (
            "gossip: {bind: ':1', send_queue_capacity: 4294967296}\n",
            "send_queue_capacity",
        ),
        ("gossip: {bind: ':1', fanout: some}\n", "fanout"),
        ("gossip: {bind: ':1', tick_interval: 10}\n", "tick_interval"),
        ("gossip: {bind: ':1'}\ndiscovery: {dns: 'a b:1'}\n", "dns"),
        (
            "gossip: {bind: ':1'}\ndiscovery: {static: ['10.0.0.1:0']}\n",
            "static",
        ),
    ] {
        let error = refusal(&format!("{LIMITS}{text}"));
        assert_eq!(error.lines().count(), 1, "{error}");
        assert!(error.contains(key), "{error}");
    }
}

#[test]
fn case_61_cluster_ids_in_hexadecimal_and_decimal_are_the_same() {
    let tag = |id: &str| {
        load(&format!("{LIMITS}gossip: {{bind: ':1', {id}}}\n"))
            .unwrap()
            .gossip
            .unwrap()
            .cluster
    };
    assert_eq!(
        tag("cluster_id_hash: 0xDEADBEEF"),
        tag("cluster_id_hash: 3735928559")
    );
    assert_eq!(tag("cluster_id: '31'"), tag("cluster_id_hash: 0x1f"));
    let both = format!("{LIMITS}gossip: {{bind: ':1', cluster_id: a, cluster_id_hash: 1}}\n");
    assert!(refusal(&both).contains("keep one of them"));
}

#[test]
fn environment_variables_win_over_the_file_and_are_checked_alike() {
    let text = format!("envoy_bind: 127.0.0.1:1\n{LIMITS}");
    let config = load_with(
        &text,
        &[
            ("GABION_ENVOY_BIND", "127.0.0.1:2"),
            ("GABION_GOSSIP_BIND", "127.0.0.1:3"),
            ("GABION_GOSSIP_CLUSTER_ID", "edge"),
            ("GABION_DISCOVERY_STATIC", "127.0.0.1:4, 127.0.0.1:5"),
            ("GABION_STORAGE_TABLE_BYTES", "1m"),
            ("PATH", "/bin"),
        ],
    )
    .unwrap();
    assert_eq!(config.envoy_bind.tcp().unwrap().port(), 2);
    assert_eq!(config.storage.table_bytes, 1 << 20);
    let gossip = config.gossip.unwrap();
    assert_eq!(gossip.bind.port(), 3);
    assert_eq!(gossip.discovery.addresses.len(), 2);
    let error = load_with(&text, &[("GABION_STORAGE_MAX_CELLS", "many")])
        .unwrap_err()
        .to_string();
    assert!(error.starts_with("environment variable GABION_STORAGE_MAX_CELLS: storage.max_cells"));
}

#[test]
fn a_variable_that_is_nearly_a_setting_is_refused_and_a_strange_one_is_noted() {
    let error = load_with(LIMITS, &[("GABION_GOSIP_BIND", ":1")])
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("did you mean GABION_GOSSIP_BIND?"),
        "{error}"
    );
    let config = load_with(LIMITS, &[("GABION_SOMETHING_ELSE_ENTIRELY", "1")]).unwrap();
    assert!(config
        .notices
        .iter()
        .any(|n| n.contains("GABION_SOMETHING_ELSE_ENTIRELY")));
    let config = load_with(LIMITS, &[("GABION_PORT_8081_TCP_ADDR", "10.0.0.1")]).unwrap();
    assert!(!config.notices.iter().any(|n| n.contains("GABION_PORT")));
}

#[test]
fn case_06_what_is_no_configuration_is_refused_with_a_clear_word() {
    assert!(refusal("").contains("empty"), "{}", refusal(""));
    assert!(refusal("- a\n- b\n").contains("a list stands here"));
    assert!(refusal("a: [").contains("not YAML"));
    assert!(refusal("{}").contains("limits"), "{}", refusal("{}"));
    assert!(load("limits: []\n").is_ok());
    let latin1 = yaml::parse_bytes("g.yaml", b"a: 1\nb: \xe9\n").unwrap_err();
    assert!(
        latin1[0].to_string().starts_with("g.yaml:2:4: "),
        "{}",
        latin1[0]
    );
}

#[test]
fn case_03_two_rules_with_the_same_counters_name_both_places() {
    let error = refusal(
        "limits:\n- {name: a, domain: d, limiter: l, rate: 1r/s, descriptors: [{key: k}]}\n\
         - {name: b, domain: d, limiter: l, rate: 2r/s, descriptors: [{key: k}]}\n",
    );
    assert!(
        error.contains("g.yaml:3:3") && error.contains("g.yaml:2:3"),
        "{error}"
    );
    assert_eq!(error.lines().count(), 1, "{error}");
}

#[test]
fn gossip_needs_an_address_and_discovery_needs_gossip() {
    assert!(refusal(&format!("{LIMITS}gossip: {{cluster_id: a}}\n")).contains("gossip.bind"));
    let lonely = format!("{LIMITS}discovery: {{static: ['10.0.0.1:1']}}\n");
    assert!(refusal(&lonely).contains("without a gossip section"));
}

#[test]
fn unauthenticated_gossip_outside_loopback_is_said() {
    let config = load(&format!(
        "{LIMITS}gossip: {{bind: '0.0.0.0:1', cluster_id: a}}\n"
    ))
    .unwrap();
    assert!(config
        .notices
        .iter()
        .any(|n| n.contains("not authenticated")));
    assert!(config.notices.iter().any(|n| n.contains("collisions")));
    let config = load(&format!(
        "{LIMITS}gossip: {{bind: '127.0.0.1:1', cluster_id: a}}\n"
    ))
    .unwrap();
    assert!(!config
        .notices
        .iter()
        .any(|n| n.contains("not authenticated")));
}

#[test]
fn a_key_file_that_everybody_can_read_is_said_and_never_quoted() {
    use std::os::unix::fs::PermissionsExt as _;
    let file = std::env::temp_dir().join(format!("gabion-open-keys-{}", std::process::id()));
    std::fs::write(&file, format!("1:{}\n", "5a".repeat(32))).unwrap();
    for (mode, said) in [(0o644, 1), (0o604, 1), (0o640, 0), (0o600, 0)] {
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        let keys = file.display();
        let text = format!("{LIMITS}gossip: {{bind: '0.0.0.0:1', auth_key_file: '{keys}'}}\n");
        let config = load(&text).unwrap();
        let open = |notice: &&String| notice.contains("everybody on this machine can read");
        let notices: Vec<_> = config.notices.iter().filter(open).collect();
        assert_eq!(notices.len(), said, "{mode:o}: {:?}", config.notices);
        let all = format!("{config:?}");
        assert!(
            !all.contains("5a5a5a") && !all.contains("90, 90, 90"),
            "{all}"
        );
    }
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn response_headers_take_a_word_or_a_list_and_refuse_the_rest() {
    let read = |text: &str| {
        let config = load(&format!("{LIMITS}response_headers: {text}\n"));
        config.map(|config| (config.answers.headers, config.answers.families))
    };
    let basic = Answers::default().families;
    assert_eq!(read("off").unwrap(), (When::Off, basic));
    assert_eq!(read("[always]").unwrap(), (When::Always, basic));
    assert_eq!(read("all").unwrap(), (When::Denied, Families::ALL));
    let ietf = Families {
        ietf: true,
        name: true,
        ..Families::NONE
    };
    assert_eq!(read("[ietf, always, name]").unwrap(), (When::Always, ietf));
    for (text, said) in [
        ("alwys", "did you mean always?"),
        ("[x, iets]", "did you mean ietf?"),
        ("[denied, off]", "keep one"),
        ("[off, x]", "off sends none"),
    ] {
        let error = read(text).unwrap_err().to_string();
        assert!(
            error.contains(said) && error.contains("response_headers"),
            "{error}"
        );
    }
    let config = load_with(LIMITS, &[("GABION_RESPONSE_HEADERS", "always, ietf, name")]);
    assert_eq!(config.unwrap().answers.families, ietf);
    let config = load(&format!("{LIMITS}dynamic_metadata: always\n")).unwrap();
    assert_eq!(config.answers.metadata, When::Always);
}

/// A configuration with these policy files beside it, in a folder that is not the current one.
fn load_beside(config: &str, files: &[(&str, &str)]) -> Result<Config, ConfigError> {
    let scratch = common::Scratch::new();
    for (name, text) in files {
        scratch.file(name, text);
    }
    let path = scratch.file("gabiond.yaml", config);
    Config::load(&path, &Variables::default())
}

const SHARED: &str = "flags: {new: {default: off}}\nattributes:\n  client_ip: {client_address: \
    {peer: peer, forwarded: forwarded, trusted_proxies: [127.0.0.1]}}\nlimits:\n- {name: per, \
    domain: edge, match: request, descriptors: [{key: client_ip}], rate: 5r/m, if_flag: new}\n";

#[test]
fn policy_files_are_taken_beside_the_limits_and_start_at_its_folder() {
    let more = SHARED.replace("name: per", "name: other");
    let files = [("a.yaml", SHARED), ("b.yaml", more.as_str())];
    let config = load_beside(
        "rules_file: [a.yaml, b.yaml]\nlimits:\n- {name: own, domain: edge, rate: 1r/m, \
         descriptors: [{key: k}]}\n",
        &files,
    )
    .unwrap();
    let names: Vec<&str> = config
        .rules
        .rules()
        .iter()
        .map(|r| r.name.as_str())
        .collect();
    assert_eq!(names, ["own", "per", "other"]);
    // Declared alike twice, it is one flag and one attribute.
    assert_eq!(config.flags.len(), 1);
    assert_eq!(config.watched.len(), 3);
    let one = load_beside("rules_file: a.yaml\n", &files).unwrap();
    assert_eq!(one.rules.rules().len(), 1);
}

#[test]
fn what_policy_files_declare_otherwise_or_wrongly_is_refused_with_its_place() {
    let refusal = |other: &str| {
        let files = [("a.yaml", SHARED), ("b.yaml", other)];
        let refused = load_beside("rules_file: [a.yaml, b.yaml]\n", &files);
        refused.unwrap_err().to_string()
    };
    for (change, advice) in [
        (
            ("default: off", "default: on"),
            "flag new is declared otherwise at",
        ),
        (("[127.0.0.1]", "[127.0.0.2]"), "client_ip"),
        (("name: per", "name: per, limiter: other"), "a.yaml:"),
        (("5r/m", "fast"), "b.yaml:5:"),
        (("if_flag: new", "if_flag: nwe"), "did you mean new"),
    ] {
        let said = refusal(&SHARED.replace(change.0, change.1));
        assert!(said.contains(advice), "{advice}: {said}");
    }
    let missing = load_beside("rules_file: gone.yaml\n", &[]);
    let missing = missing.unwrap_err().to_string();
    assert!(
        missing.contains("gabiond.yaml:1:") && missing.contains("gone.yaml"),
        "{missing}"
    );
}

#[test]
fn a_registrys_block_is_checked_and_expanded_to_a_policy_that_gives_the_same_rules() {
    let scratch = common::Scratch::new();
    let toml = "[storage]\nx = 1\n[api.rate_limit]\nglobal_rps = 1000.5\ntrusted_proxies = \
                [\"10.0.0.0/8\"]\n";
    let path = scratch.file("registry.toml", toml);
    let expand = |path: &std::path::Path| {
        let output = common::run(&["check", "--expand", common::text(path)]);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let written = expand(&path);
    for text in ["registry_global", "10.0.0.0/8", "TOOMANYREQUESTS"] {
        assert!(written.contains(text), "{text}: {written}");
    }
    let native = scratch.file("native.yaml", &written);
    assert_eq!(expand(&native), written);
    let (one, other) = (
        Config::load(&path, &Variables::default()).unwrap(),
        Config::load(&native, &Variables::default()).unwrap(),
    );
    let digests = |config: &Config| -> Vec<_> {
        let rules = config.rules.rules().iter();
        rules.map(|rule| (rule.identity(), rule.digest())).collect()
    };
    assert_eq!(digests(&one), digests(&other));
    let bad = scratch.file("bad.toml", "[api.rate_limit]\nper_ip_rsp = 5\n");
    let said = common::ended_with(&common::run(&["check", common::text(&bad)]), 1);
    assert!(
        said.contains("bad.toml:2:1:") && said.contains("per_ip_rps"),
        "{said}"
    );
}
