//! What nginx takes, and which builds of it the module refuses.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use crate::server::{check, check_preloading, check_with, library, nginx_binary, Folder, Nginx};

const ZONE: &str =
    "gabion_limit_zone zone=z:1m; gabion_limit_rule a $binary_remote_addr rate=9r/w;";

fn server(inside: &str) -> String {
    format!("{ZONE} server {{ listen 127.0.0.1:PORT; location / {{ {inside} }} }}")
}

#[test]
fn a_configuration_as_deployed_loads() {
    let http = "
        gabion_limit_zone zone=api:4m;
        gabion_limit_rule per_ip $binary_remote_addr rate=100r/m window=1m bucket=1s;
        gabion_limit_rule tenant tenant:$http_x_tenant rate=10r/s burst=20 cardinality=1000;
        gabion_limit_rule both \"pair:$host-$remote_addr\" rate=5r/s mode=dry_run;
        gabion_limit_rule quoted path:\"v1-$uri\" rate=5r/s dry_run except_if=$http_x_internal;
        gabion_limit_rule edge $binary_remote_addr rate=3r/w mode=enforce domain=edge;
        gabion_limit_rule idle $binary_remote_addr rate=1r/w mode=disabled;
        gabion_gossip_bind 127.0.0.1:0; gabion_gossip_cluster 31;
        gabion_gossip_tick_interval 10ms; gabion_gossip_fanout 3;
        gabion_gossip_target_err_bps 100; gabion_gossip_min_emit_interval 1ms;
        gabion_gossip_max_payload_bytes 1200; gabion_gossip_max_cells_per_frame 64;
        gabion_gossip_max_cells_per_tick 64; gabion_gossip_send_queue_capacity 64;
        gabion_gossip_limit_queue_capacity 64; gabion_discovery_namespace_allow default;
        gabion_discovery_service_allow edge; gabion_discovery_self_addr 127.0.0.1:7946;
        gabion_storage_max_cells 65536; gabion_storage_rule_dictionary_capacity 64;
        gabion_storage_node_dictionary_capacity 64; gabion_storage_local_dirty_capacity 64;
        gabion_storage_forwarded_dirty_capacity 64; gabion_storage_peer_capacity 64;
        gabion_storage_max_descriptor_count 16; gabion_storage_max_descriptor_bytes 4096;
        gabion_storage_max_key_bytes 256; gabion_runtime_rng_seed 1; gabion_node_id_seed n1;
        gabion on;
        server { listen 127.0.0.1:PORT; gabion_limit per_ip tenant;
            location / { gabion_limit both quoted; gabion_reject_status 503; gabion_headers x; }
            location /open { gabion_limit off; }
            location /off { gabion off; }
            location = /state { gabion off; gabion_status; }
            location = /x.txt { root DIR/html; gabion_limit edge idle; } }";
    let (taken, said) = check(http);
    assert!(taken, "{said}");
    // What is not needed is noted, by name, and nothing else is complained of.
    let notes: std::collections::BTreeSet<&str> = said
        .lines()
        .filter(|line| line.contains("is accepted and not needed"))
        .filter_map(|line| line.split('"').nth(1))
        .collect();
    assert_eq!(notes.len(), 11, "{notes:?}");
    assert!(
        !said.contains("[warn]") && !said.contains("[error]"),
        "{said}"
    );
    let nginx = Nginx::start("2", http);
    assert_eq!(nginx.statuses("/x.txt", 4), [200, 200, 200, 429]);
    assert_eq!(nginx.get("/x.txt").header("RateLimit-Name"), Some("edge"));
    assert_eq!(nginx.state()["gossip"]["cluster"], "0x1f");
}

#[test]
fn case_35_another_build_of_the_same_version_is_refused() {
    let (taken, said) = check(&server("gabion_limit a;"));
    assert!(taken, "{said}");
    let from = b"--http-client-body-temp-path=/var/lib/nginx/body";
    let to = b"--http-client-body-temp-path=/var/lib/other/body";
    let mut binary = fs::read(nginx_binary()).unwrap();
    let places: Vec<usize> = binary
        .windows(from.len())
        .enumerate()
        .filter_map(|(at, window)| (window == from).then_some(at))
        .collect();
    if places.is_empty() {
        eprintln!("NOT TESTED: a disguise of Debian's nginx; this server is not Debian's");
        return;
    }
    for at in places {
        binary[at..at + to.len()].copy_from_slice(to);
    }
    let folder = Folder::new();
    let path = folder.0.join("nginx-as-released");
    fs::write(&path, binary).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    let (taken, said) = check_with(&path, &server("gabion_limit a;"));
    // Only in 1.22.1 do Debian's structures differ from those of the release.
    if version() == "1.22.1" {
        assert!(!taken, "{said}");
        assert!(said.contains("take the artefact named nginx"), "{said}");
    } else {
        assert!(taken, "{said}");
    }
}

#[test]
fn case_35_openresty_is_known_by_a_symbol_of_its_own_and_refused() {
    let folder = Folder::new();
    let library = library(&folder, "openresty", "int ngx_is_privileged_agent;\n");
    let http = server("gabion_limit a;");
    let (taken, said) = check_preloading(&nginx_binary(), &library, &http);
    assert!(!taken, "{said}");
    assert!(said.contains("take the artefact named openresty"), "{said}");
}

fn version() -> String {
    let output = Command::new(nginx_binary())
        .arg("-v")
        .output()
        .expect("nginx runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    said.trim()
        .rsplit('/')
        .next()
        .unwrap_or_default()
        .to_owned()
}
