#!/usr/bin/env python3
"""Checks manifests for what no API server can see: that they belong together, and that the programs
take what is in them.

    manifests.py FOLDER     FOLDER holds manifests, one file for each set of values

Owns: the list of checks below. Promises: mounts each pod's configuration as a kubelet would (in a
scratch folder), has gabiond and nginx read it, and has Envoy validate what the examples make of its
configuration. GABIOND, ENVOY_BINARY and NGINX_MODULE name the programs. Never: asks a cluster.
"""

import base64
import json
import os
import re
import subprocess
import sys
import tempfile

import yaml

MEMBER = "gabion/cluster"
CERTIFICATE = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
               "-nodes", "-days", "1", "-subj", "/CN=gabion.example", "-addext",
               "subjectAltName=DNS:gabion.example"]
# Settings by environment, and what else gabiond reads there.
READ = re.compile(r"^GABION_")
# A Secret that is made by hand, as the guide says: its files.
BY_HAND = {"gossip.keys": "1:" + "ab" * 32 + "\n", "counters.secret": "0123456789abcdef" * 2 + "\n"}
TLS_BY_HAND = ("tls.crt", "tls.key")


class Manifests:
    """The objects of one file, and the faults found in them."""

    def __init__(self, path):
        self.name = os.path.basename(path)
        with open(path, encoding="utf-8") as f:
            self.objects = [o for o in yaml.safe_load_all(f) if o]
        self.faults = []

    def of(self, *kinds):
        return [o for o in self.objects if o["kind"] in kinds]

    def named(self, kind, name):
        return next((o for o in self.of(kind) if o["metadata"]["name"] == name), None)

    def bad(self, obj, why):
        self.faults.append(f"{self.name}: {obj['kind']} {obj['metadata']['name']}: {why}")


def pod_spec(workload):
    return workload["spec"]["template"]["spec"]


def pod_labels(workload):
    return workload["spec"]["template"]["metadata"]["labels"]


def containers(workload):
    spec = pod_spec(workload)
    return spec.get("initContainers", []) + spec["containers"]


def ports(workload):
    return {p["name"]: p for c in containers(workload) for p in c.get("ports", [])}


def selects(selector, labels):
    return bool(selector) and all(labels.get(k) == v for k, v in selector.items())


def check_workloads(m):
    """A rolling update takes nobody away, and ends each pod in its own time."""
    for w in m.of("Deployment"):
        spec, rolling = pod_spec(w), w["spec"]["strategy"].get("rollingUpdate", {})
        if rolling.get("maxUnavailable") != 0:
            m.bad(w, "a rolling update takes members away (maxUnavailable)")
        if not selects(w["spec"]["selector"]["matchLabels"], pod_labels(w)):
            m.bad(w, "its selector does not select its pods")
        if spec.get("enableServiceLinks") is not False:
            m.bad(w, "variables of other Services get into its environment")
        restricted(m, w, spec)
        for c in containers(w):
            delay = c.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
            if spec["terminationGracePeriodSeconds"] <= delay:
                m.bad(w, f"{c['name']}: killed before its preStop has ended")
            if "memory" not in c.get("resources", {}).get("limits", {}):
                m.bad(w, f"{c['name']}: no bound on its memory")
        if not any("readinessProbe" in c for c in containers(w)):
            m.bad(w, "nothing says when it is ready")


def restricted(m, workload, spec):
    """The `restricted` pod security standard, and a root that is read only."""
    context = spec.get("securityContext", {})
    if not context.get("runAsNonRoot") or not context.get("runAsUser"):
        m.bad(workload, "may run as root")
    if context.get("seccompProfile", {}).get("type") != "RuntimeDefault":
        m.bad(workload, "no seccomp profile")
    for c in containers(workload):
        own = c.get("securityContext", {})
        if own.get("capabilities", {}).get("drop") != ["ALL"]:
            m.bad(workload, f"{c['name']}: keeps capabilities")
        if own.get("allowPrivilegeEscalation") is not False:
            m.bad(workload, f"{c['name']}: may escalate privileges")
        if not own.get("readOnlyRootFilesystem"):
            m.bad(workload, f"{c['name']}: its root can be written")


def check_selectors(m):
    """Each selector finds pods, and each port of a Service is a port of them."""
    workloads = m.of("Deployment")
    for service in m.of("Service"):
        found = [w for w in workloads if selects(service["spec"].get("selector"), pod_labels(w))]
        if not found:
            m.bad(service, "selects no pod")
        for port in service["spec"]["ports"]:
            have = [ports(w).get(port["targetPort"]) for w in found]
            if not any(p and p["protocol"] == port["protocol"] for p in have):
                m.bad(service, f"no pod has its port {port['name']}")
    for obj in m.of("PodDisruptionBudget", "NetworkPolicy"):
        spec = obj["spec"]
        selector = spec.get("selector", spec.get("podSelector"))["matchLabels"]
        found = [w for w in workloads if selects(selector, pod_labels(w))]
        if len(found) != 1:
            m.bad(obj, f"selects the pods of {len(found)} workloads")
        rules = spec.get("ingress", [])
        for name in (p["port"] for rule in rules for p in rule["ports"]):
            if found and name not in ports(found[0]):
                m.bad(obj, f"the pods have no port {name}")
    for hpa in m.of("HorizontalPodAutoscaler"):
        target = m.named("Deployment", hpa["spec"]["scaleTargetRef"]["name"])
        if target is None or "replicas" in target["spec"]:
            m.bad(hpa, "scales nothing, or something that sets its own number")


def check_access(m):
    """The members' account may do what discovery asks for, and nothing else."""
    for binding in m.of("RoleBinding"):
        where = binding["metadata"]["namespace"]
        roles = [r for r in m.of("Role") if r["metadata"]["name"] == binding["roleRef"]["name"]
                 and r["metadata"]["namespace"] == where]
        wanted = [{"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"],
                   "verbs": ["get", "list", "watch"]}]
        if len(roles) != 1 or roles[0]["rules"] != wanted:
            m.bad(binding, f"does not bind exactly {wanted} in {where}")
        for subject in binding["subjects"]:
            account = m.named("ServiceAccount", subject["name"])
            users = [w for w in m.of("Deployment")
                     if pod_spec(w).get("serviceAccountName") == subject["name"]
                     and w["metadata"]["namespace"] == subject["namespace"]]
            if account is None or not users:
                m.bad(binding, f"nobody runs as {subject['name']}")
    if m.of("ClusterRole", "ClusterRoleBinding"):
        m.bad(m.of("ClusterRole", "ClusterRoleBinding")[0], "reaches beyond namespaces")


def check_monitors(m):
    """What Prometheus is told to scrape is there."""
    for monitor in m.of("ServiceMonitor", "PodMonitor"):
        selector = monitor["spec"]["selector"]["matchLabels"]
        if monitor["kind"] == "PodMonitor":
            found = [set(ports(w)) for w in m.of("Deployment") if selects(selector, pod_labels(w))]
            wanted = {e["port"] for e in monitor["spec"]["podMetricsEndpoints"]}
        else:
            found = [{p["name"] for p in s["spec"]["ports"]} for s in m.of("Service")
                     if selects(selector, s["metadata"]["labels"])]
            wanted = {e["port"] for e in monitor["spec"]["endpoints"]}
        if len(found) != 1 or not wanted <= found[0]:
            m.bad(monitor, f"finds {found}, and wants {wanted}")


class Mounted:
    """The volumes of a pod in a scratch folder, in the form in which a kubelet writes them."""

    def __init__(self, m, workload, root):
        self.root = root
        self.paths = {}
        volumes = {v["name"]: v for v in pod_spec(workload).get("volumes", [])}
        for mount in (x for c in containers(workload) for x in c.get("volumeMounts", [])):
            files = self.content(m, workload, volumes.get(mount["name"], {}))
            if files is not None and mount["mountPath"] not in self.paths:
                self.paths[mount["mountPath"]] = self.write(mount["mountPath"], files)

    def content(self, m, workload, volume):
        if "configMap" in volume:
            name = volume["configMap"]["name"]
            found = m.named("ConfigMap", name)
            if found is None:
                m.bad(workload, f"there is no ConfigMap {name}")
            return found and found["data"]
        if "secret" in volume:
            found = m.named("Secret", volume["secret"]["secretName"])
            if found is not None:
                return found["stringData"]
            return tls_files() if "tls" in volume["name"] else BY_HAND
        return None

    def write(self, path, files):
        folder = os.path.join(self.root, path.strip("/"))
        version = os.path.join(folder, "..2026_11_30")
        os.makedirs(version)
        for name, text in files.items():
            with open(os.path.join(version, name), "w", encoding="utf-8") as f:
                f.write(text)
            os.symlink(os.path.join("..data", name), os.path.join(folder, name))
        os.symlink("..2026_11_30", os.path.join(folder, "..data"))
        for name in files:
            os.chmod(os.path.join(version, name), 0o640)
        return folder

    def text(self, text):
        """`text` with the pod's paths replaced by those of the scratch folder."""
        paths = sorted(self.paths, key=len, reverse=True)
        known = "|".join(map(re.escape, paths))
        return re.sub(rf"(?<![\w/])({known})(?=[/;\s]|$)", lambda m: self.paths[m[1]], text)


def tls_files(made={}):  # pylint: disable=dangerous-default-value  # made once
    if not made:
        with tempfile.TemporaryDirectory() as folder:
            files = [os.path.join(folder, name) for name in TLS_BY_HAND]
            subprocess.run(CERTIFICATE + ["-out", files[0], "-keyout", files[1]], check=True,
                           capture_output=True)
            for name, path in zip(TLS_BY_HAND, files):
                with open(path, encoding="utf-8") as f:
                    made[name] = f.read()
    return made


def rewrite(mounted, folder, name):
    """Replaces the pod's paths in a mounted file by those of the scratch folder."""
    path = os.path.join(folder, "..data", name)
    with open(path, encoding="utf-8") as f:
        text = f.read()
    with open(path, "w", encoding="utf-8") as f:
        f.write(mounted.text(text))
    return text


def check_gabiond(m, workload, container, mounted):
    """gabiond takes its configuration, and it is of the cluster that the pods are of."""
    path = container["args"][-1]
    folder = mounted.paths.get(os.path.dirname(path))
    if folder is None:
        m.bad(workload, f"{path} is in no volume")
        return
    config = yaml.safe_load(rewrite(mounted, folder, os.path.basename(path)))
    env = {k: v for k, v in os.environ.items() if not READ.match(k)}
    env |= {e["name"]: mounted.text(e["value"]) for e in container["env"] if "value" in e}
    checked = subprocess.run([os.environ["GABIOND"], "check", mounted.text(path)], env=env,
                             capture_output=True, text=True, check=False)
    if checked.returncode != 0:
        m.bad(workload, f"gabiond refuses its configuration: {checked.stdout}{checked.stderr}")
    if "not needed" in checked.stderr:
        m.bad(workload, f"a setting of it does nothing: {checked.stderr}")
    if config["gossip"]["cluster_id"] != pod_labels(workload).get(MEMBER):
        m.bad(workload, f"it is of cluster {config['gossip']['cluster_id']}, its label is not")
    budget = pod_spec(workload)["terminationGracePeriodSeconds"]
    budget -= container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
    if budget <= int(config["drain_timeout"].removesuffix("s")):
        m.bad(workload, "killed before it has drained")
    for key in ("envoy_bind", "admin_bind"):
        port = {"envoy_bind": "grpc", "admin_bind": "admin"}[key]
        if int(config[key].rsplit(":", 1)[1]) != ports(workload)[port]["containerPort"]:
            m.bad(workload, f"{key} is not its port {port}")
    discovered(m, workload, config["discovery"])


def discovered(m, workload, discovery):
    """Discovery asks for a Service that is there and selects this pod, by a port that it has."""
    if "dns" in discovery:
        names = [discovery["dns"].split(".")[0]]
    else:
        names = [n for n in discovery["service_allow"] if "/" not in n]
    for name in names:
        service = m.named("Service", name)
        if service is None or not selects(service["spec"]["selector"], pod_labels(workload)):
            m.bad(workload, f"discovery asks for {name}, which does not select this pod")
            continue
        wanted = discovery.get("gossip_port", "gossip")
        if not any(p["name"] == wanted and p["protocol"] == "UDP"
                   for p in service["spec"]["ports"]):
            m.bad(service, f"it has no UDP port {wanted}")
        if not service["spec"].get("publishNotReadyAddresses"):
            m.bad(service, "members that are not ready are not peers")


def check_nginx(m, workload, container, mounted):
    """nginx takes its configuration, with the module where there is one to try it with."""
    args = container["args"]
    path = args[args.index("-c") + 1]
    folder = mounted.paths.get(os.path.dirname(path))
    if folder is None:
        m.bad(workload, f"{path} is in no volume")
        return
    name = os.path.basename(path)
    text = rewrite(mounted, folder, name)
    # What it includes.
    for other in mounted.paths.values():
        for file in (f for f in os.listdir(other) if f.endswith(".conf") and other != folder):
            rewrite(mounted, other, file)
    cluster = re.search(r"gabion_gossip_cluster (\S+);", text)
    if cluster and cluster[1] != pod_labels(workload).get(MEMBER):
        m.bad(workload, f"{name} is of cluster {cluster[1]}, its label is not")
    allowed = re.search(r"gabion_discovery_service_allow (\S+);", text)
    if cluster:
        discovered(m, workload, {"service_allow": [allowed[1]]})
    module = os.environ.get("NGINX_MODULE")
    if not module:
        return
    with open(os.path.join(folder, "..data", name), encoding="utf-8") as f:
        text = f.read().replace("/usr/lib/nginx/modules/ngx_http_gabion_module.so", module)
    # The image's account is not here, and what it may write to is.
    text = re.sub(r"\b(pid|\w+_temp_path) /tmp/", rf"\1 {mounted.root}/tmp/", text)
    os.makedirs(os.path.join(mounted.root, "tmp"), exist_ok=True)
    with open(os.path.join(folder, "..data", name), "w", encoding="utf-8") as f:
        f.write(text)
    checked = subprocess.run(["nginx", "-t", "-e", "stderr", "-c", mounted.text(path)],
                             capture_output=True, text=True, check=False)
    if checked.returncode != 0:
        m.bad(workload, f"nginx refuses {name}: {checked.stderr}")
    if "not needed" in checked.stderr:
        m.bad(workload, f"a setting of {name} does nothing: {checked.stderr}")


def check_programs(m):
    """How many configurations were read."""
    count = 0
    for workload in m.of("Deployment"):
        with tempfile.TemporaryDirectory() as root:
            mounted = Mounted(m, workload, root)
            for c in containers(workload):
                if "/gabiond" in c["image"]:
                    check_gabiond(m, workload, c, mounted)
                elif "/nginx" in c["image"]:
                    check_nginx(m, workload, c, mounted)
                else:
                    continue
                count += 1
    return count


HCM = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3." \
      "HttpConnectionManager"
ROUTER = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"


def bare_envoy():
    """What Istio and Envoy Gateway have without the patches: a listener with a route."""
    router = {"name": "envoy.filters.http.router", "typed_config": {"@type": ROUTER}}
    host = {"name": "all", "domains": ["*"],
            "routes": [{"match": {"prefix": "/"}, "direct_response": {"status": 200}}]}
    manager = {"@type": HCM, "stat_prefix": "edge", "http_filters": [router],
               "route_config": {"name": "edge", "virtual_hosts": [host]}}
    filters = [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]
    listener = {"name": "edge", "default_filter_chain": {"filters": filters},
                "address": {"socket_address": {"address": "127.0.0.1", "port_value": 10000}}}
    return {"static_resources": {"listeners": [listener], "clusters": []}}, manager


def istio_envoy(m):
    """An Envoy with the patches of the EnvoyFilter, and the cluster that Istio makes itself."""
    envoy, manager = bare_envoy()
    for patch in (p for f in m.of("EnvoyFilter") for p in f["spec"]["configPatches"]):
        value, done = patch["patch"]["value"], (patch["applyTo"], patch["patch"]["operation"])
        if done == ("HTTP_FILTER", "INSERT_BEFORE"):
            manager["http_filters"].insert(0, value)
        elif done == ("VIRTUAL_HOST", "MERGE"):
            manager["route_config"]["virtual_hosts"][0].update(value)
        else:
            sys.exit(f"{m.name}: say in manifests.py where Istio puts {done}")
    cluster = manager["http_filters"][0]["typed_config"]["rate_limit_service"]["grpc_service"][
        "envoy_grpc"]["cluster_name"]
    _, port, _, host = cluster.split("|")
    rule = m.of("DestinationRule")[0]
    if rule["spec"]["host"] != host or port != "8081":
        m.bad(rule, f"it is not about {cluster}")
    envoy["static_resources"]["clusters"].append(
        {"name": cluster, "type": "STATIC", "connect_timeout": "1s",
         "load_assignment": {"cluster_name": cluster}})
    return envoy


def gateway_envoy(m):
    """An Envoy with the patches of the EnvoyPatchPolicy."""
    envoy, manager = bare_envoy()
    resources = envoy["static_resources"]
    roots = {"Listener": resources["listeners"][0],
             "RouteConfiguration": manager["route_config"]}
    gateway = m.of("Gateway")[0]
    for policy in m.of("EnvoyPatchPolicy"):
        if policy["spec"]["targetRef"]["name"] != gateway["metadata"]["name"]:
            m.bad(policy, "its target is not there")
        for patch in policy["spec"]["jsonPatches"]:
            kind, operation = patch["type"].rsplit(".", 1)[1], patch["operation"]
            if kind == "Cluster":
                resources["clusters"].append(operation["value"])
                continue
            wanted = "/".join((gateway["metadata"]["namespace"], gateway["metadata"]["name"],
                               gateway["spec"]["listeners"][0]["name"]))
            if patch["name"] != wanted:
                m.bad(policy, f"{patch['name']} is not {wanted}")
            add(roots[kind], operation)
    return envoy


def add(root, operation):
    """RFC 6902's `add`."""
    *way, last = operation["path"].strip("/").split("/")
    for step in way:
        root = root[int(step)] if isinstance(root, list) else root[step]
    if isinstance(root, list):
        root.insert(int(last), operation["value"])
    else:
        root[last] = operation["value"]


def check_envoy(m):
    """How many configurations Envoy has validated."""
    found = []
    for config in m.of("ConfigMap"):
        if "envoy.yaml" in config["data"]:
            found.append(yaml.safe_load(config["data"]["envoy.yaml"]))
    if m.of("EnvoyFilter"):
        found.append(istio_envoy(m))
    if m.of("EnvoyPatchPolicy"):
        found.append(gateway_envoy(m))
    for envoy in found:
        with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
            json.dump(envoy, f)
            f.flush()
            # Ids of its own, so that it meets no other Envoy of this machine.
            checked = subprocess.run(
                [os.environ["ENVOY_BINARY"], "--mode", "validate", "-c", f.name,
                 "--disable-hot-restart", "-l", "error"],
                capture_output=True, text=True, check=False)
        if checked.returncode != 0:
            m.faults.append(f"{m.name}: Envoy refuses it: {checked.stdout}{checked.stderr}")
    return len(found)


def check_secrets(m):
    """Keys of a Secret are what gabiond reads, and no placeholder in base64."""
    for secret in m.of("Secret"):
        for name, value in secret.get("data", {}).items():
            base64.b64decode(value, validate=True)
            m.bad(secret, f"{name}: a key is in the manifests")


def checked_file(path):
    """The faults of a file, and how many configurations in it members and Envoy have read."""
    m = Manifests(path)
    if not m.objects:
        sys.exit(f"{m.name}: it holds nothing")
    for check in (check_workloads, check_selectors, check_access, check_monitors, check_secrets):
        check(m)
    read, validated = check_programs(m), check_envoy(m)
    return m.faults, read, validated


def main():
    folder = sys.argv[1]
    faults, read, validated = [], 0, 0
    names = sorted(os.listdir(folder))
    for name in names:
        found, members, envoys = checked_file(os.path.join(folder, name))
        faults, read, validated = faults + found, read + members, validated + envoys
    for fault in faults:
        print(fault, file=sys.stderr)
    nginx = "" if os.environ.get("NGINX_MODULE") else " (no nginx here: its files were not tried)"
    print(f"{len(names)} files, {read} configurations of members{nginx}, "
          f"{validated} of Envoy: {len(faults)} faults")
    if faults or read < 5 or validated < 3:
        sys.exit(1)


if __name__ == "__main__":
    main()
