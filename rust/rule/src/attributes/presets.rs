//! Networks that have a name: those of this machine and of private networks, and those from which
//! known front proxies reach an origin.
//!
//! I own a dated copy of what the owners publish. I never change by myself: somebody refreshes the
//! table as `docs/spec/attributes.md` says, and a test holds it to the form that loads.

/// A named list of networks.
pub(crate) struct Preset {
    /// What is written after `preset:`.
    pub(crate) name: &'static str,
    /// The day on which the owner published these networks; empty where a standard fixes them.
    pub(crate) as_of: &'static str,
    /// The networks.
    pub(crate) networks: &'static [&'static str],
}

/// All presets.
// spec: attr-4
pub(crate) const PRESETS: [Preset; 4] = [
    Preset {
        name: "private",
        as_of: "",
        networks: &["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"],
    },
    Preset {
        name: "loopback",
        as_of: "",
        networks: &["127.0.0.0/8", "::1"],
    },
    Preset {
        name: "link-local",
        as_of: "",
        networks: &["169.254.0.0/16", "fe80::/10"],
    },
    Preset {
        name: "cloudflare",
        as_of: "2026-01-18",
        networks: &[
            "173.245.48.0/20",
            "103.21.244.0/22",
            "103.22.200.0/22",
            "103.31.4.0/22",
            "141.101.64.0/18",
            "108.162.192.0/18",
            "190.93.240.0/20",
            "188.114.96.0/20",
            "197.234.240.0/22",
            "198.41.128.0/17",
            "162.158.0.0/15",
            "104.16.0.0/13",
            "104.24.0.0/14",
            "172.64.0.0/13",
            "131.0.72.0/22",
            "2400:cb00::/32",
            "2606:4700::/32",
            "2803:f800::/32",
            "2405:b500::/32",
            "2405:8100::/32",
            "2a06:98c0::/29",
            "2c0f:f248::/32",
        ],
    },
];

/// The preset of a name.
pub(crate) fn preset(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name == name)
}
