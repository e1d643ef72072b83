//! The names of all single settings, so that environment variables can be matched to them.
//!
//! A test checks that the reader knows exactly these.

/// A section with its keys; the section "" is the top of the file.
pub(super) const SECTIONS: [(&str, &[&str]); 5] = [
    (
        "",
        &[
            "envoy_bind",
            "admin_bind",
            "drain_timeout",
            "response_headers",
        ],
    ),
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
            "namespace_allow",
            "service_allow",
        ],
    ),
    (
        "storage",
        &[
            "table_bytes",
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
    ("runtime", &["worker_threads", "rng_seed", "node_id_seed"]),
];

/// Settings that hold several values; an environment variable separates them by commas.
pub(super) const LISTS: [(&str, &str); 3] = [
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
