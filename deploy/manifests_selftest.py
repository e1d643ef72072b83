#!/usr/bin/env python3
"""Plants one fault of each kind in rendered manifests: deploy/manifests.py must find each.

    manifests_selftest.py FOLDER     FOLDER as deploy/manifests.py takes it, without faults

Owns: the faults. Never: changes a file in FOLDER.
"""

import os
import sys
import tempfile

import manifests

# File, what is there, what is put in its place, and words of the fault.
PLANTED = [
    ("helm-default", "maxUnavailable: 0", "maxUnavailable: 1", "takes members away"),
    ("helm-default", "PeriodSeconds: 15", "PeriodSeconds: 9", "killed before it has drained"),
    ("helm-default", "PeriodSeconds: 15", "PeriodSeconds: 5", "before its preStop has ended"),
    ("helm-default", "runAsNonRoot: true", "runAsNonRoot: false", "may run as root"),
    ("helm-default", "type: RuntimeDefault", "type: Unconfined", "no seccomp profile"),
    ("helm-default", "- ALL", "- KILL", "keeps capabilities"),
    ("helm-default", "memory: 512Mi", "cpu: 1", "no bound on its memory"),
    ("kustomize-nginx", "readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false",
     "its root can be written"),
    ("helm-default", "publishNotReadyAddresses: true", "publishNotReadyAddresses: false",
     "members that are not ready are not peers"),
    ("helm-default", "targetPort: gossip", "targetPort: gosip", "no pod has its port gossip"),
    ("helm-default", "{port: gossip,", "{port: gosip,", "the pods have no port gosip"),
    ("helm-default", "  name: gabion-gossip", "  name: gabion-gosip", "does not select this pod"),
    ("helm-default", "[get, list, watch]", '["*"]', "does not bind exactly"),
    ("helm-default", "AccountName: gabion", "AccountName: default", "nobody runs as gabion"),
    ("helm-default", "cluster_id: gabion.gabion", "cluster_id: other", "its label is not"),
    ("helm-default", "bind: '*:9090'", "bind: '*:9091'", "is not its port admin"),
    ("helm-default", "rules_file: policy.yaml", "rules_fill: policy.yaml", "gabiond refuses"),
    ("helm-default", "limits: []", "limit: []", "gabiond refuses"),
    ("helm-mixed", "gossip.keys: ", "gossip.kees: ", "gabiond refuses"),
    ("helm-production", "kind: Deployment, name: gabion", "kind: Deployment, name: gabio",
     "scales nothing"),
    ("helm-production", "{port: admin, path", "{port: admins, path", "and wants"),
    ("kustomize-nginx", "gossip_cluster gabion;", "gossip_cluster other;", "its label is not"),
    ("kustomize-nginx-sidecar", "configMap:\n          name: sidecar-",
     "configMap:\n          name: other-", "there is no ConfigMap other-"),
    ("example-istio", "exhausted: true", "exhausted: maybe", "Envoy refuses it"),
    ("example-istio", "outbound|8081", "outbound|8080", "it is not about"),
    ("example-envoy-gateway", "remote_address: {}", "remote_adress: {}", "Envoy refuses it"),
    ("example-envoy-gateway", "gabion/edge/http", "gabion/http", "is not gabion/edge/http"),
    ("example-envoy", "LEAST_REQUEST", "LEAST", "Envoy refuses it"),
]
# Found by a program that need not be here.
WITH_NGINX = [
    ("kustomize-nginx", "gabion_domain edge;", "gabion_domane edge;", "nginx refuses nginx.conf"),
    ("kustomize-auth", "gabion_key_secret_file /etc/gabion-keys/counters",
     "gabion_key_secret_file /etc/gabion-keys/counter", "nginx refuses nginx.conf"),
]


def main():
    folder = sys.argv[1]
    planted = PLANTED + (WITH_NGINX if os.environ.get("NGINX_MODULE") else [])
    for name, there, instead, words in planted:
        with open(os.path.join(folder, name + ".yaml"), encoding="utf-8") as f:
            text = f.read()
        if there not in text:
            sys.exit(f"FAILED: {name}: `{there}` is not in it any more: plant something else")
        with tempfile.TemporaryDirectory() as scratch:
            path = os.path.join(scratch, name + ".yaml")
            with open(path, "w", encoding="utf-8") as f:
                f.write(text.replace(there, instead))
            found, _, _ = manifests.checked_file(path)
        if not any(words in fault for fault in found):
            sys.exit(f"FAILED: {name}: `{instead}` is not found ({words}); found: {found}")
    print(f"{len(planted)} planted faults: all found")


if __name__ == "__main__":
    main()
