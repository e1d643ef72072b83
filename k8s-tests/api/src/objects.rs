//! The Kubernetes objects that scenarios write, as JSON, and what is read from slices.
//!
//! Owns: their form. Promises: a Service, a Role and a Pod are what the manuals of this project
//! tell a user to write. Never: asks the API.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use gabion_netlab::net::GOSSIP_PORT;
use serde_json::{json, Value};

/// The ServiceAccount, Role and RoleBinding of members.
pub const ACCOUNT: &str = "gabion";

/// The label by which a Service chooses its pods.
pub const LABEL: &str = "app";

/// A headless Service for gossip whose pods have the label [`LABEL`] with this value.
pub fn service(name: &str, app: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": { "name": name },
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": true,
            "selector": { LABEL: app },
            "ports": [{
                "name": "gossip", "port": GOSSIP_PORT, "protocol": "UDP", "targetPort": GOSSIP_PORT,
            }],
        },
    })
}

/// All that discovery needs to be allowed.
pub fn role() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": { "name": ACCOUNT },
        "rules": [{
            "apiGroups": ["discovery.k8s.io"],
            "resources": ["endpointslices"],
            "verbs": ["get", "list", "watch"],
        }],
    })
}

/// Gives the role to the account of `namespace`.
pub fn role_binding(namespace: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": { "name": ACCOUNT },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": ACCOUNT },
        "subjects": [{ "kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace }],
    })
}

/// A pod of `app` on a node.
pub fn pod(name: &str, app: &str, node: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name, "labels": { LABEL: app } },
        "spec": {
            "nodeName": node,
            "serviceAccountName": ACCOUNT,
            "terminationGracePeriodSeconds": 30,
            "containers": [{
                "name": "member",
                "image": "gabion.test/member",
                "ports": [{ "name": "gossip", "containerPort": GOSSIP_PORT, "protocol": "UDP" }],
            }],
        },
    })
}

/// What a kubelet writes of a pod that has an address.
pub fn pod_status(four: Ipv4Addr, six: Option<Ipv6Addr>, is_ready: bool) -> Value {
    let ready = if is_ready { "True" } else { "False" };
    let conditions = ["Initialized", "PodScheduled", "ContainersReady", "Ready"].map(|kind| {
        let is_of_containers = kind.ends_with("Ready");
        json!({ "type": kind, "status": if is_of_containers { ready } else { "True" } })
    });
    let addresses = [Some(IpAddr::V4(four)), six.map(IpAddr::V6)]
        .into_iter()
        .flatten();
    json!({ "status": {
        "phase": "Running",
        "podIP": four,
        "podIPs": addresses.map(|ip| json!({ "ip": ip })).collect::<Vec<_>>(),
        "hostIP": "192.0.2.1",
        "conditions": conditions,
    } })
}

/// A slice that no controller writes, of a Service that has no selector.
pub fn slice(name: &str, service: &str, addresses: &[Ipv4Addr]) -> Value {
    let endpoint = |address: &Ipv4Addr| json!({ "addresses": [address] });
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": { "name": name, "labels": { "kubernetes.io/service-name": service } },
        "addressType": "IPv4",
        "endpoints": addresses.iter().map(endpoint).collect::<Vec<_>>(),
        "ports": [{ "name": "gossip", "port": GOSSIP_PORT, "protocol": "UDP" }],
    })
}

/// The addresses in a list of slices, each with whether it is ready and whether it is ending.
pub fn endpoints(slices: &Value) -> BTreeMap<Ipv4Addr, (bool, bool)> {
    let none = Vec::new();
    let list = |value: &Value| value.as_array().unwrap_or(&none).clone();
    let mut found = BTreeMap::new();
    for slice in list(&slices["items"]) {
        for endpoint in list(&slice["endpoints"]) {
            let conditions = &endpoint["conditions"];
            let is = |name: &str| conditions[name].as_bool().unwrap_or(false);
            for address in list(&endpoint["addresses"]) {
                if let Some(address) = address.as_str().and_then(|text| text.parse().ok()) {
                    found.insert(address, (is("ready"), is("terminating")));
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_read_from_all_slices() {
        let ready = json!({ "ready": true });
        let ending = json!({ "ready": false, "terminating": true });
        let one = json!([{ "addresses": ["10.77.0.1"], "conditions": ready }]);
        let two = json!([{ "addresses": ["10.77.0.2"], "conditions": ending }]);
        let list = json!({ "items": [{ "endpoints": one }, { "endpoints": two }, {}] });
        let found = endpoints(&list);
        assert_eq!(found[&Ipv4Addr::new(10, 77, 0, 1)], (true, false));
        assert_eq!(found[&Ipv4Addr::new(10, 77, 0, 2)], (false, true));
        assert!(endpoints(&json!({})).is_empty());
    }

    #[test]
    fn a_pod_that_is_not_ready_says_so_in_both_conditions() {
        let status = pod_status(Ipv4Addr::new(10, 77, 0, 1), None, false).to_string();
        assert_eq!(status.matches("\"False\"").count(), 2, "{status}");
    }
}
