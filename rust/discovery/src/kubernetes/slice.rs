//! An EndpointSlice: the few fields that are read, and the fewer that are kept.
//!
//! I own what of a slice counts. I promise that a slice without the port of gossip keeps no
//! endpoint, so that strangers cost next to nothing. I never look at conditions: an endpoint that
//! is not ready, or terminating, is a member as long as its slice names it.

use std::borrow::Cow;
use std::net::IpAddr;

use kube::api::ObjectMeta;
use kube::core::NamespaceResourceScope;
use serde::Deserialize;

use super::words::GossipPort;

/// The label that names a slice's Service.
pub(super) const SERVICE_LABEL: &str = "kubernetes.io/service-name";

/// `discovery.k8s.io/v1` EndpointSlice, without what nobody here reads.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Slice {
    metadata: ObjectMeta,
    #[serde(default)]
    endpoints: Option<Vec<Endpoint>>,
    #[serde(default)]
    ports: Option<Vec<Port>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Endpoint {
    #[serde(default)]
    addresses: Option<Vec<String>>,
    #[serde(default)]
    target_ref: Option<Target>,
}

#[derive(Clone, Debug, Deserialize)]
struct Target {
    #[serde(default)]
    uid: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
struct Port {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    port: Option<i32>,
    #[serde(default)]
    protocol: Option<String>,
}

impl kube::Resource for Slice {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "EndpointSlice".into()
    }
    fn group((): &()) -> Cow<'_, str> {
        "discovery.k8s.io".into()
    }
    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }
    fn plural((): &()) -> Cow<'_, str> {
        "endpointslices".into()
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// One address of one endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct End {
    pub(super) ip: IpAddr,
    /// Whose it is; `None` where nobody said.
    pub(super) pod: Option<Box<str>>,
}

/// What is kept of a slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kept {
    /// Its Service; empty where it has none.
    pub(super) service: Box<str>,
    /// The port of gossip, or the ports that there are instead.
    pub(super) port: Result<u16, Box<str>>,
    /// Empty without the port.
    pub(super) ends: Box<[End]>,
}

impl Slice {
    /// The slice's name, by which it is replaced and removed.
    pub(super) fn name(&self) -> Box<str> {
        self.metadata.name.as_deref().unwrap_or_default().into()
    }

    /// What is kept of it. `named`: its Service was asked for by name, so a port that is given by
    /// number need not be one of the Service's.
    pub(super) fn keep(self, wanted: &GossipPort, named: bool) -> Kept {
        let labels = self.metadata.labels.unwrap_or_default();
        let ports = self.ports.unwrap_or_default();
        let port = find(&ports, wanted, named);
        let ends = match port {
            Ok(_) => self.endpoints.unwrap_or_default(),
            Err(_) => Vec::new(),
        };
        let ends = ends.into_iter().flat_map(|endpoint| {
            let pod = endpoint.target_ref.and_then(|target| target.uid);
            let pod: Option<Box<str>> = pod.filter(|uid| !uid.is_empty()).map(Into::into);
            // Names (addressType FQDN) are no addresses; several of one endpoint are one pod's.
            let addresses = endpoint.addresses.unwrap_or_default().into_iter();
            addresses.filter_map(move |text| {
                let ip = text.parse().ok()?;
                let pod = pod.clone();
                Some(End { ip, pod })
            })
        });
        Kept {
            service: labels
                .get(SERVICE_LABEL)
                .cloned()
                .unwrap_or_default()
                .into(),
            port,
            ends: ends.collect(),
        }
    }
}

/// The port of gossip among those of a slice, or their list for a message.
fn find(ports: &[Port], wanted: &GossipPort, named: bool) -> Result<u16, Box<str>> {
    let number = |port: &Port| {
        port.port
            .and_then(|n| u16::try_from(n).ok())
            .filter(|n| *n != 0)
    };
    let found = match wanted {
        GossipPort::Named(name) => {
            let mut fits: Vec<&Port> = ports
                .iter()
                .filter(|port| port.name.as_deref() == Some(name) && number(port).is_some())
                .collect();
            fits.sort_by_key(|port| port.protocol.as_deref() != Some("UDP"));
            fits.first().and_then(|port| number(port))
        }
        // A Service without ports, or with one that stands for all, has this one too.
        GossipPort::Number(wanted) => {
            let all = ports.is_empty() || ports.iter().any(|port| port.port.is_none());
            let has = || ports.iter().any(|port| number(port) == Some(*wanted));
            (named || all || has()).then_some(*wanted)
        }
    };
    found.ok_or_else(|| list(ports))
}

fn list(ports: &[Port]) -> Box<str> {
    if ports.is_empty() {
        return "none at all".into();
    }
    let shown = ports.iter().take(8).map(|port| {
        let name = port.name.as_deref().unwrap_or_default();
        let protocol = port.protocol.as_deref().unwrap_or("TCP");
        let name = if name.is_empty() {
            "without a name"
        } else {
            name
        };
        format!("{name} ({} {protocol})", port.port.unwrap_or(0))
    });
    shown.collect::<Vec<_>>().join(", ").into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{json, Value};

    fn kept(ports: Value, wanted: &str, named: bool) -> Kept {
        let slice = json!({
            "metadata": { "name": "a", "labels": { SERVICE_LABEL: "edge" } },
            "addressType": "IPv4",
            "ports": ports,
            "endpoints": [
                { "addresses": ["10.0.0.1"], "targetRef": { "kind": "Pod", "uid": "u1" } },
                { "addresses": ["10.0.0.2"], "conditions": { "ready": false } },
                { "addresses": ["host.example", "10.0.0.3"] },
                { "addresses": null },
            ],
        });
        let slice: Slice = serde_json::from_value(slice).unwrap();
        assert_eq!(&*slice.name(), "a");
        slice.keep(&wanted.parse().unwrap(), named)
    }

    #[test]
    fn the_port_is_found_by_name_and_prefers_udp() {
        let ports = json!([
            { "name": "http", "port": 80, "protocol": "TCP" },
            { "name": "gossip", "port": 7946, "protocol": "TCP" },
            { "name": "gossip", "port": 7947, "protocol": "UDP" },
        ]);
        let found = kept(ports.clone(), "gossip", false);
        assert_eq!(found.port, Ok(7947));
        assert_eq!(&*found.service, "edge");
        let ips: Vec<String> = found.ends.iter().map(|end| end.ip.to_string()).collect();
        assert_eq!(ips, ["10.0.0.1", "10.0.0.2", "10.0.0.3"]);
        let other = kept(ports, "raft", false);
        let listed = "http (80 TCP), gossip (7946 TCP), gossip (7947 UDP)";
        assert_eq!(other.port, Err(listed.into()));
        assert!(other.ends.is_empty(), "strangers are not kept");
    }

    #[test]
    fn a_number_is_a_port_that_is_listed_or_of_a_service_that_was_named() {
        let web = || json!([{ "name": "http", "port": 80 }]);
        assert_eq!(kept(web(), "80", false).port, Ok(80));
        assert!(kept(web(), "7946", false).port.is_err());
        assert_eq!(kept(web(), "7946", true).port, Ok(7946));
        for all in [json!(null), json!([]), json!([{ "port": null }])] {
            assert_eq!(kept(all, "7946", false).port, Ok(7946));
        }
        for none in [json!(null), json!([{ "name": "gossip", "port": 0 }])] {
            assert!(kept(none, "gossip", true).port.is_err());
        }
    }
}
