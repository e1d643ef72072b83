#!/usr/bin/env python3
"""What k8s-tests/kind/run reads and judges.

    members.py list                       pods as JSON on standard input: pod, node, address, kind
    members.py up N MEMBERS STATES        ends with 0 when N members all hear each other
    members.py container NAME ARGUMENT... a container that loads, as JSON
    members.py judge WHAT LEAST MOST ERROR_PERCENT REPORT...

Owns: what counts as converged, and as right. Never: asks anything of a cluster.
"""

import json
import os
import sys


def listed():
    for pod in json.load(sys.stdin)["items"]:
        status, meta = pod["status"], pod["metadata"]
        if "deletionTimestamp" in meta or not status.get("podIP"):
            continue
        kind = "gabiond" if meta["labels"]["app.kubernetes.io/name"] == "gabion" else "nginx"
        print(meta["name"], pod["spec"]["nodeName"], status["podIP"], kind)


def up(count, members, states):
    with open(members, encoding="utf-8") as f:
        rows = [line.split() for line in f]
    if len(rows) != count:
        sys.exit(f"{len(rows)} members, {count} are wanted")
    addresses = {row[2] for row in rows}
    for pod, _, own, _ in rows:
        with open(os.path.join(states, pod), encoding="utf-8") as f:
            gossip = json.load(f)["gossip"]
        heard = {peer["address"].rsplit(":", 1)[0].strip("[]") for peer in gossip["peers"]
                 if peer["up"] and peer["hears_us"]}
        lacking = addresses - heard - {own}
        if lacking:
            sys.exit(f"{pod} does not hear {sorted(lacking)}")


def container(name, arguments):
    return {
        "name": name, "image": "localhost/gabion/loader:kind", "imagePullPolicy": "Never",
        "args": arguments,
        "env": [{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
        "resources": {"limits": {"memory": "256Mi"}},
        "securityContext": {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
                            "capabilities": {"drop": ["ALL"]}},
    }


def judge(what, least, most, error_percent, paths):
    reports = []
    for path in paths:
        with open(path, encoding="utf-8") as f:
            reports.append(json.load(f))
    offered, admitted, denied, errors = (
        sum(report[key] for report in reports)
        for key in ("offered", "admitted", "denied", "error_count"))
    faults = []
    if admitted + errors < least:
        faults.append(f"{least - admitted - errors} requests were denied wrongly")
    if admitted > most:
        faults.append(f"{admitted - most} requests more than {most} were admitted")
    if errors * 100 > error_percent * offered:
        faults.append(f"{errors} errors: " + ", ".join(
            f"{kind} {n}" for report in reports for kind, n in report["errors"].items()))
    if offered < 2 * least:
        faults.append(f"only {offered} requests were offered, which shows nothing")
    print(f"{what:<22} offered {offered}, admitted {admitted}, denied {denied}, errors {errors}: "
          + ("; ".join(faults) or "right"))
    if faults:
        sys.exit("; ".join(faults))


def main():
    command, *rest = sys.argv[1:]
    if command == "list":
        listed()
    elif command == "up":
        up(int(rest[0]), rest[1], rest[2])
    elif command == "container":
        print(json.dumps(container(rest[0], rest[1:])))
    elif command == "judge":
        judge(rest[0], int(rest[1]), int(rest[2]), float(rest[3]), rest[4:])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
