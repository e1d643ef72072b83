//! The words of a configuration: namespaces, Services, the port.
//!
//! I own their grammar, which is Kubernetes'. I promise that what passes can stand in a request's
//! path and selector as it is. I never ask whether the things exist.

use std::fmt;
use std::str::FromStr;

use crate::error::DiscoveryError;

const LABEL: &str =
    "use lower-case letters, digits and `-`, at most 63, with a letter or digit at \
                     both ends";

/// A Service, in one namespace or in every one that is watched.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServiceName {
    pub(super) namespace: Option<String>,
    pub(super) name: String,
}

impl ServiceName {
    /// Its namespace, where one is named.
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }
}

impl FromStr for ServiceName {
    type Err = DiscoveryError;

    /// `name` or `namespace/name`.
    fn from_str(text: &str) -> Result<Self, DiscoveryError> {
        let (space, name) = match text.split_once('/') {
            Some((space, name)) => (Some(namespace(space)?), name),
            None => (None, text),
        };
        if !is_label(name) {
            return Err(not("Service", text, LABEL));
        }
        Ok(ServiceName {
            namespace: space,
            name: name.to_owned(),
        })
    }
}

impl fmt::Display for ServiceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{namespace}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// Which port of an endpoint is gossip's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GossipPort {
    /// The port with this name in the Service.
    Named(String),
    /// This port of the pod.
    Number(u16),
}

impl Default for GossipPort {
    fn default() -> Self {
        GossipPort::Named("gossip".to_owned())
    }
}

impl FromStr for GossipPort {
    type Err = DiscoveryError;

    fn from_str(text: &str) -> Result<Self, DiscoveryError> {
        let bad = || {
            not(
                "port",
                text,
                "write the name of the Service's port, such as gossip (at most 15 lower-case \
                 letters, digits and `-`), or its number, 1 to 65535",
            )
        };
        if text.bytes().all(|b| b.is_ascii_digit()) {
            let number = text.parse().ok().filter(|number| *number != 0);
            return number.map(GossipPort::Number).ok_or_else(bad);
        }
        if text.len() > 15 || !is_label(text) {
            return Err(bad());
        }
        Ok(GossipPort::Named(text.to_owned()))
    }
}

impl fmt::Display for GossipPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GossipPort::Named(name) => f.write_str(name),
            GossipPort::Number(number) => write!(f, "{number}"),
        }
    }
}

/// A namespace's name.
///
/// # Errors
/// [`DiscoveryError::NotAName`] when it can be none.
pub fn namespace(text: &str) -> Result<String, DiscoveryError> {
    if is_label(text) {
        return Ok(text.to_owned());
    }
    Err(not("namespace", text, LABEL))
}

/// The Services that are wanted in a namespace.
pub(super) fn within(services: &[ServiceName], namespace: &str) -> Vec<ServiceName> {
    let here = |service: &&ServiceName| service.namespace().is_none_or(|own| own == namespace);
    services.iter().filter(here).cloned().collect()
}

fn not(what: &'static str, text: &str, advice: &'static str) -> DiscoveryError {
    DiscoveryError::NotAName {
        what,
        text: text.chars().take(64).collect(),
        advice,
    }
}

/// A DNS label, as names of namespaces and Services are.
pub(super) fn is_label(text: &str) -> bool {
    let end = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    (1..=63).contains(&bytes.len())
        && end(bytes.first())
        && end(bytes.last())
        && bytes
            .iter()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_are_written_with_or_without_a_namespace() {
        let edge: ServiceName = "edge".parse().unwrap();
        assert_eq!(
            (edge.namespace(), edge.to_string().as_str()),
            (None, "edge")
        );
        let far: ServiceName = "prod/edge".parse().unwrap();
        assert_eq!(far.namespace(), Some("prod"));
        assert_eq!(within(&[edge.clone(), far.clone()], "prod").len(), 2);
        assert_eq!(within(&[edge, far], "test").len(), 1);
    }

    #[test]
    fn what_kubernetes_would_refuse_is_refused_with_advice() {
        for bad in [
            "", "Edge", "-edge", "edge-", "a b", "a/b/c", "a,b", "*", "é", "a/",
        ] {
            let error = bad.parse::<ServiceName>().unwrap_err().to_string();
            assert!(error.contains("lower-case"), "{bad}: {error}");
        }
        assert!(namespace(&"a".repeat(64)).is_err());
        for bad in ["", "0", "65536", "a_b", "sixteen-letters-x", "99999999999"] {
            assert!(bad.parse::<GossipPort>().is_err(), "{bad}");
        }
        assert_eq!("7946".parse(), Ok(GossipPort::Number(7946)));
        assert_eq!("gossip".parse(), Ok(GossipPort::default()));
    }
}
