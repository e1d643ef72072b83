//! The names of all single settings, so that environment variables can be matched to them.
//!
//! A test checks that the reader knows exactly these.

/// A section with its keys; the section "" is the top of the file.
pub(super) const SECTIONS: [(&str, &[&str]); 13] = [
    (
        "",
        &[
            "envoy_bind",
            "admin_bind",
            "json_bind",
            "admin_token_file",
            "rules_file",
            "drain_timeout",
            "response_headers",
            "dynamic_metadata",
        ],
    ),
    (
        "server",
        &[
            "max_connections",
            "max_streams_per_connection",
            "max_request_bytes",
            "max_header_bytes",
            "keepalive_interval",
            "keepalive_timeout",
            "handshake_timeout",
            "idle_timeout",
            "write_timeout",
            "max_connection_age",
            "reflection",
            "socket_mode",
        ],
    ),
    (
        "reference",
        &[
            "directory",
            "ignore_dot_files",
            "merge_domains",
            "shadow_mode",
            "quota_mode",
        ],
    ),
    ("tls", &TLS),
    ("admin_tls", &TLS),
    ("json_tls", &TLS),
    (
        "gossip",
        &[
            "bind",
            "cluster_id",
            "cluster_id_hash",
            "auth_key_file",
            "key_secret_file",
            "tick_interval",
            "heartbeat_interval",
            "fanout",
            "target_err_bps",
            "min_emit_interval",
            "packets_per_second",
            "max_payload_bytes",
            "max_cells_per_frame",
            "max_cells_per_tick",
            "send_queue_capacity",
            "limit_queue_capacity",
        ],
    ),
    (
        "discovery",
        &[
            "static",
            "dns",
            "file",
            "self_addr",
            "kubernetes",
            "namespace_allow",
            "service_allow",
            "gossip_port",
        ],
    ),
    (
        "storage",
        &[
            "table_bytes",
            "override_cardinality",
            "max_cells",
            "rule_dictionary_capacity",
            "node_dictionary_capacity",
            "local_dirty_capacity",
            "forwarded_dirty_capacity",
            "peer_capacity",
            "max_descriptor_count",
            "max_descriptor_bytes",
            "max_key_bytes",
        ],
    ),
    (
        "runtime",
        &[
            "worker_threads",
            "rng_seed",
            "node_id_seed",
            "clock_ahead",
            "member_place",
        ],
    ),
    ("log", &["format", "denials"]),
    ("traces", &["endpoint", "sample_every"]),
    (
        "observe",
        &["keys", "sample", "values", "rule_series", "value_series"],
    ),
];

/// The keys of a port's certificates.
const TLS: [&str; 4] = ["cert_file", "key_file", "client_ca_file", "min_version"];

/// Settings that hold several values; an environment variable separates them by commas.
pub(super) const LISTS: [(&str, &str); 6] = [
    ("", "rules_file"),
    ("", "response_headers"),
    ("", "dynamic_metadata"),
    ("discovery", "static"),
    ("discovery", "namespace_allow"),
    ("discovery", "service_allow"),
];

/// The environment variable of a setting.
pub(super) fn variable(section: &str, key: &str) -> String {
    let joined = if section.is_empty() {
        key.to_owned()
    } else {
        format!("{section}_{key}")
    };
    format!("GABION_{}", joined.to_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Variables};

    const RULES: &str = "limits: []\n";

    /// What the reader says about one key of a section.
    fn complaint(section: &str, key: &str) -> String {
        let line = match section {
            "" => format!("{key}: []\n"),
            _ => format!("{section}: {{{key}: [[]]}}\n"),
        };
        let config = Config::parse("g", &format!("{RULES}{line}"), &Variables::default());
        config
            .map(|_| String::new())
            .unwrap_or_else(|error| error.to_string())
    }

    #[test]
    fn the_reader_knows_every_setting() {
        for (section, keys) in SECTIONS {
            for key in keys {
                let said = complaint(section, key);
                assert!(!said.contains("is not known"), "{section}.{key}: {said}");
            }
        }
    }

    #[test]
    fn the_reader_knows_no_setting_beside_these() {
        for (section, keys) in SECTIONS {
            let said = complaint(section, "qqqqqqqq");
            let known = said
                .split("known are: ")
                .nth(1)
                .map(|rest| rest.lines().next());
            let known = known.flatten().unwrap_or_default();
            assert!(!known.is_empty(), "{section}: {said}");
            let structured = [
                "limits",
                "flags",
                "attributes",
                "reference",
                "server",
                "tls",
                "admin_tls",
                "json_tls",
                "gossip",
                "discovery",
                "storage",
                "runtime",
                "log",
                "observe",
                "traces",
            ];
            for key in known.split(", ").filter(|key| !structured.contains(key)) {
                assert!(keys.contains(&key), "{section}.{key} is missing here");
            }
        }
    }

    #[test]
    fn the_manual_names_every_setting() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operating.md");
        let manual = std::fs::read_to_string(path).expect("the manual is part of the tree");
        for (section, keys) in SECTIONS {
            for key in keys {
                let dot = if section.is_empty() { "" } else { "." };
                assert!(
                    manual.contains(&format!("`{section}{dot}{key}`")),
                    "{section}{dot}{key}"
                );
            }
        }
    }
}
