//! Tests of the directives of the `http` level.
use super::*;

fn apply(settings: &mut Settings, line: &str) -> Result<(), ConfError> {
    let words: Vec<&str> = line.split(' ').collect();
    settings.apply(words[0], &words[1..], Place::new("nginx.conf", 3, 0))
}

#[test]
fn a_configuration_as_deployed_loads_and_unneeded_knobs_are_noted() {
    let mut settings = Settings::default();
    for line in [
        "gabion_limit_zone zone=api:64m",
        "gabion_limit_rule ip $binary_remote_addr rate=10r/s",
        "gabion_gossip_bind 127.0.0.1:7946",
        "gabion_gossip_cluster 0x1f",
        "gabion_gossip_tick_interval 10ms",
        "gabion_gossip_fanout auto",
        "gabion_gossip_target_err_bps 100",
        "gabion_gossip_min_emit_interval 1ms",
        "gabion_gossip_max_payload_bytes 1200",
        "gabion_gossip_max_cells_per_frame 64",
        "gabion_gossip_max_cells_per_tick 1k",
        "gabion_gossip_send_queue_capacity 256",
        "gabion_gossip_limit_queue_capacity 256",
        "gabion_discovery_namespace_allow a b",
        "gabion_discovery_service_allow edge",
        "gabion_discovery_self_addr 127.0.0.1:7946",
        "gabion_storage_max_cells 1m",
        "gabion_storage_rule_dictionary_capacity 64",
        "gabion_storage_node_dictionary_capacity 64",
        "gabion_storage_local_dirty_capacity 64",
        "gabion_storage_forwarded_dirty_capacity 64",
        "gabion_storage_peer_capacity 64",
        "gabion_storage_max_descriptor_count 4",
        "gabion_storage_max_descriptor_bytes 4k",
        "gabion_storage_max_key_bytes 256",
        "gabion_runtime_rng_seed 7",
        "gabion_node_id_seed edge-1",
        "gabion_peers 127.0.0.1:1 [::1]:2",
    ] {
        apply(&mut settings, line).unwrap_or_else(|e| panic!("{line}: {e}"));
    }
    settings.finish().unwrap();
    assert_eq!(settings.zones[0].bytes, 64 << 20);
    assert_eq!(settings.cluster().tag(), 31);
    assert_eq!(settings.error_budget_ppm, Some(10_000));
    assert_eq!(settings.peers.len(), 2);
    let (watched, _, most) = settings.kubernetes.wanted().unwrap();
    assert_eq!(watched.namespaces, ["a", "b"]);
    assert_eq!(
        (watched.services[0].to_string(), most),
        ("edge".to_owned(), 64)
    );
    assert_eq!(
        (settings.key_bytes_max, settings.descriptor_bytes_max),
        (256, 4096)
    );
    assert_eq!(settings.notices.len(), 11, "{:#?}", settings.notices);
}

#[test]
fn case_61_numbers_beyond_their_range_are_refused_not_truncated() {
    for (line, says) in [
        ("gabion_limit_zone api:64m", "write zone=NAME:SIZE"),
        ("gabion_limit_zone zone=api:", "from 65536 to"),
        ("gabion_limit_zone zone=api:8k", "from 65536 to"),
        ("gabion_limit_zone zone=api:99999999999g", "from 65536 to"),
        ("gabion_gossip_bind nowhere", "no address with a port"),
        (
            "gabion_gossip_bind 127.0.0.1:65536",
            "no address with a port",
        ),
        (
            "gabion_gossip_cluster 18446744073709551616",
            "is not a number",
        ),
        ("gabion_gossip_target_err_bps 0", "from 1 to 10000"),
        ("gabion_gossip_target_err_bps 10001", "from 1 to 10000"),
        ("gabion_gossip_min_emit_interval 1y", "duration"),
        ("gabion_gossip_heartbeat_interval 1ms", "not between"),
        (
            "gabion_gossip_send_queue_capacity 4294967296",
            "from 0 to 4294967295",
        ),
        ("gabion_gossip_tick_interval fast", "duration"),
        ("gabion_storage_max_cells 1", "from 1024 to"),
        ("gabion_storage_max_key_bytes -1", "from 1 to"),
        ("gabion_runtime_rng_seed +5", "a whole number"),
        ("gabion_node_id_seed ", "leave it out"),
        ("gabion_peers edge:1", "gabion_discovery_dns"),
        ("gabion_peers 127.0.0.1:0", "no address with a port"),
        ("gabion_discovery_dns edge", "port"),
        ("gabion_discovery_self_addr a b", "exactly one value"),
        ("gabion_discovery_namespace_allow a A", "lower-case"),
        ("gabion_discovery_service_allow a b/c/d", "lower-case"),
        ("gabion_discovery_gossip_port 65536", "1 to 65535"),
        ("gabion_discovery_kubernetes yes", "on or off"),
        ("gabion_storage_peer_capacity -1", "from 0 to"),
        ("gabion_auth_key_file /no/such/file", "No such file"),
        ("gabion_rules_file /", "a directory"),
        ("gabion_flag a b", "write gabion_flag NAME default=on"),
        ("gabion_flag default=on", "write gabion_flag NAME"),
        ("gabion_flag a default=101%", "none of: on, off"),
        ("gabion_flag a default=on x", "write gabion_flag NAME"),
    ] {
        let error = apply(&mut Settings::default(), line)
            .unwrap_err()
            .to_string();
        let name = line.split(' ').next().unwrap();
        assert!(error.starts_with(&format!("\"{name}\"")), "{error}");
        assert!(error.contains(says), "{line}: {error}");
    }
}

#[test]
fn a_key_file_that_everybody_can_read_is_said() {
    use std::os::unix::fs::PermissionsExt as _;
    let file = std::env::temp_dir().join(format!("gabion-nginx-keys-{}", std::process::id()));
    std::fs::write(&file, format!("1:{}\n", "5a".repeat(32))).unwrap();
    for (mode, said) in [(0o644, 1), (0o640, 0)] {
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        let mut settings = Settings::default();
        let line = format!("gabion_auth_key_file {}", file.display());
        apply(&mut settings, &line).unwrap();
        let open = |notice: &&String| notice.contains("everybody on this machine can read");
        assert_eq!(
            settings.notices.iter().filter(open).count(),
            said,
            "{mode:o}"
        );
        assert!(!settings.notices.concat().contains("5a5a"));
    }
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn what_only_the_whole_shows_is_refused_too() {
    let mut settings = Settings::default();
    apply(&mut settings, "gabion_limit_rule ip $a rate=1r/s").unwrap();
    let error = settings.finish().unwrap_err().to_string();
    assert!(error.contains("zone=gabion:16m"), "{error}");
    let mut settings = Settings::default();
    apply(&mut settings, "gabion_peers 127.0.0.1:1").unwrap();
    let error = settings.finish().unwrap_err().to_string();
    assert!(error.contains("gabion_gossip_bind 0.0.0.0:7946"), "{error}");
    let mut settings = Settings::default();
    apply(&mut settings, "gabion_gossip_bind :0").unwrap();
    let error = apply(&mut settings, "gabion_gossip_bind :1")
        .unwrap_err()
        .to_string();
    assert!(error.contains("given already"), "{error}");
    let mut settings = Settings::default();
    apply(&mut settings, "gabion_limit_zone zone=a:1m").unwrap();
    let error = apply(&mut settings, "gabion_limit_zone zone=a:2m")
        .unwrap_err()
        .to_string();
    assert!(error.contains("exists already"), "{error}");
    let mut settings = Settings::default();
    apply(&mut settings, "gabion_flag a default=30%").unwrap();
    apply(&mut settings, "gabion_flag b").unwrap();
    let error = apply(&mut settings, "gabion_flag a").unwrap_err();
    assert!(error.to_string().contains("declared already"), "{error}");
    let shares = settings.flags.iter().map(|flag| flag.default.get());
    assert_eq!(shares.collect::<Vec<_>>(), [30, 100]);
}

#[test]
fn every_directive_of_the_table_is_known() {
    for name in DIRECTIVES {
        let error = Settings::default().apply(name, &["\u{1}"], Place::new("f", 1, 0));
        let text = error.err().map(|e| e.to_string()).unwrap_or_default();
        assert!(
            !text.contains("no directive of this version"),
            "{name}: {text}"
        );
    }
}
