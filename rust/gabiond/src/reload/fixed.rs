//! Settings that are taken at the start only.
//!
//! I own which these are. I promise that a reload which changes one of them says so. I never show
//! a secret: it is compared by a hash.

use std::hash::{DefaultHasher, Hash, Hasher as _};

use crate::config::{Config, Gossip, Runtime};

/// Each such setting with its value in words, to be compared.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fixed(Vec<(&'static str, String)>);

impl Fixed {
    /// Those of a configuration.
    pub(crate) fn of(config: &Config) -> Self {
        let gossip = config.gossip.as_ref();
        let of_gossip = |value: &dyn Fn(&Gossip) -> String| gossip.map_or(String::new(), value);
        let secret = |gossip: &Gossip| mark(&gossip.key_secret);
        Self(vec![
            ("envoy_bind", format!("{:?}", config.envoy_bind)),
            ("json_bind", format!("{:?}", config.json_bind)),
            ("json_tls", format!("{:?}", config.json_tls)),
            ("admin_bind", format!("{:?}", config.admin_bind)),
            ("server", format!("{:?}", config.server)),
            ("tls", format!("{:?}", config.tls)),
            ("admin_tls", format!("{:?}", config.admin_tls)),
            ("drain_timeout", format!("{:?}", config.drain_timeout)),
            (
                "runtime",
                format!(
                    "{:?}",
                    Runtime {
                        member_place: None, // taken over by a reload
                        ..config.runtime.clone()
                    }
                ),
            ),
            ("log", format!("{:?}", config.log)),
            ("observe", format!("{:?}", config.observe)),
            ("traces", format!("{:?}", config.traces)),
            ("gossip", format!("{:?}", gossip.is_some())),
            ("gossip.bind", of_gossip(&|g| g.bind.to_string())),
            (
                "gossip.cluster_id",
                of_gossip(&|g| format!("{:?}", g.cluster)),
            ),
            ("gossip.key_secret_file", of_gossip(&secret)),
            (
                "discovery.self_addr",
                of_gossip(&|g| format!("{:?}", g.discovery.self_addr)),
            ),
        ])
    }

    /// The settings that differ.
    pub(crate) fn differences(&self, other: &Self) -> Vec<&'static str> {
        let pairs = self.0.iter().zip(&other.0);
        let mut names: Vec<_> = pairs
            .filter(|((_, was), (_, is))| was != is)
            .map(|((name, _), _)| *name)
            .collect();
        if names.contains(&"gossip") {
            // With it, all that is in it differs.
            names.retain(|name| !name.starts_with("gossip.") && !name.starts_with("discovery."));
        }
        names
    }
}

/// Tells secrets apart; it is never shown.
fn mark(secret: &impl Hash) -> String {
    let mut hash = DefaultHasher::new();
    secret.hash(&mut hash);
    hash.finish().to_string()
}
