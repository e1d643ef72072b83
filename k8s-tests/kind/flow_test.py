#!/usr/bin/env python3
"""The flow of k8s-tests/kind/run, with stand-ins for docker, kind, kubectl and helm on its path.

    flow_test.py                    the test
    flow_test.py --manifests FILE   writes the manifests that it gives to kubectl by itself

It shows that every scenario runs to its end, that a fault is told and fails the run, that what was
made is removed however it ends, and what is said where a program is missing. It shows nothing of
Kubernetes: that is k8s-tests/api's part, and that of a machine with Docker.

Owns: the stand-ins. Promises: needs Python and bash only, and takes seconds. Never: calls the real
programs.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
RUN = os.path.join(HERE, "run")
PROGRAMS = ("docker", "kind", "kubectl", "helm", "sleep", "bazel")
# What the scripts need of a system.
SYSTEM = ("bash", "cat", "date", "dirname", "env", "grep", "head", "id", "mkdir", "mktemp", "mv",
          "python3", "realpath", "rm", "sed", "tail", "tr")


class World:
    """The state of the pretended cluster: a file, since each call is a process of its own."""

    def __init__(self, folder):
        self.path = os.path.join(folder, "world.json")

    def read(self):
        with open(self.path, encoding="utf-8") as f:
            return json.load(f)

    def write(self, state):
        with open(self.path, "w", encoding="utf-8") as f:
            json.dump(state, f)

    def set(self, **changes):
        self.write(self.read() | changes)


def pods(state):
    count = state["gabiond"]
    names = [f"gabion-{n}" for n in range(count)] + ["nginx-0", "nginx-1"]
    return [{"metadata": {"name": name, "labels": {"app.kubernetes.io/name": name.split("-")[0]}},
             "spec": {"nodeName": f"gabion-worker{'2' * (n % 2)}"},
             "status": {"podIP": f"10.244.0.{n + 1}"}} for n, name in enumerate(names)]


def kubectl(world, words):
    state, said = world.read(), " ".join(words)
    if "--raw" in words:
        return 1 if state["api_gone"] else 0
    if "scale" in words:
        world.set(gabiond=int(words[-1].split("=")[1]))
    elif "can-i" in words:
        print("no")
        return 1
    elif words[-2:] == ["-o", "json"]:
        print(json.dumps({"items": pods(state)}))
    elif "-o yaml" in said:
        print("kind: RoleBinding\nmetadata:\n  uid: 1")
    elif "-o name" in said:
        print("pod/gabion-0")
    elif "jsonpath={.status.phase}" in said:
        print("Succeeded", end="")
    elif "containers[*]" in said:
        both = "load-" in said and not any(n in said for n in ("near", "far", "after"))
        print("grpc http" if both else "grpc", end="")
    elif "InternalIP" in said:
        print("172.18.0.4", end="")
    elif "logs" in words and "load-" in said:
        print(json.dumps(report(state, said)))
    elif "apply" in words and words[-1] == "-":
        with open(world.path + ".applied", "a", encoding="utf-8") as f:
            f.write("---\n" + sys.stdin.read())
    return 0


def report(state, said):
    """What a load came to: all of the limit together, or what the test wants."""
    name = said.split("load-")[1].split()[0]
    admitted = {"near": 550, "far": 560, "after": 0}.get(name, 300)
    if state["wrong"] == name:
        admitted -= 10
    if state["excess"] == name:
        admitted += 100
    return {"offered": 1600, "admitted": admitted, "denied": 1600 - admitted, "error_count": 0,
            "errors": {}}


def docker(world, words):
    state, said = world.read(), " ".join(words)
    if words[0] == "info":
        return 1 if state["docker_gone"] else 0
    if "curl" in words:
        address = said.split("http://")[1].split(":")[0]
        peers = [{"address": f"{p['status']['podIP']}:7946", "up": True, "hears_us": True}
                 for p in pods(state) if p["status"]["podIP"] != address]
        print(json.dumps({"gossip": {"peers": peers}}))
    elif "hostname" in words:
        print("172.18.0.4 fc00::4")
    elif "mv" in words:
        world.set(api_gone=words[-1] == "/kube-apiserver.yaml")
    return 0


def kind(world, words):
    state = world.read()
    if words[:2] == ["get", "clusters"]:
        print("\n".join(state["clusters"]))
    elif words[:2] == ["create", "cluster"]:
        world.set(clusters=["gabion"])
    elif words[:2] == ["delete", "cluster"]:
        world.set(clusters=[])
    return 0


def stand_in(name, words):
    world = World(os.path.dirname(sys.argv[0]))
    with open(os.path.join(os.path.dirname(sys.argv[0]), "calls"), "a", encoding="utf-8") as f:
        f.write(f"{name} {' '.join(words)}\n")
    # kubectl's own options come first, as the scripts write them.
    act = {"kubectl": kubectl, "docker": docker, "kind": kind}.get(name)
    return act(world, words) if act else 0


class Try:
    """One run in a scratch folder."""

    runs = 0

    def __init__(self, *arguments, without=(), **state):
        Try.runs += 1
        with tempfile.TemporaryDirectory() as folder:
            for name in PROGRAMS:
                if name not in without:
                    path = os.path.join(folder, name)
                    shutil.copy(os.path.abspath(__file__), path)
                    os.chmod(path, 0o755)
            for name in SYSTEM:
                # Not a wrapper that looks for more of the system.
                program = sys.executable if name == "python3" else shutil.which(name)
                os.symlink(program, os.path.join(folder, name))
            world = World(folder)
            world.write({"gabiond": 3, "clusters": [], "api_gone": False, "docker_gone": False,
                         "wrong": "", "excess": ""} | state)
            cache = os.path.join(HERE, "../../.cache/kind")
            os.makedirs(cache, exist_ok=True)
            made = []
            for image in ("gabiond", "nginx", "loader"):
                path = os.path.join(cache, image + ".tar")
                if not os.path.exists(path):
                    made.append(path)
                    open(path, "w", encoding="utf-8").close()
            done = subprocess.run([RUN, "--skip-build", *arguments], capture_output=True,
                                  text=True, check=False, timeout=60,
                                  env={"PATH": folder, "TMPDIR": folder, "LANG": "C"})
            for path in made:
                os.remove(path)
            self.code, self.out, self.err = done.returncode, done.stdout, done.stderr
            self.clusters = world.read()["clusters"]
            self.applied = ""
            if os.path.exists(world.path + ".applied"):
                with open(world.path + ".applied", encoding="utf-8") as f:
                    self.applied = f.read()
            calls = os.path.join(folder, "calls")
            self.calls = ""
            if os.path.exists(calls):
                with open(calls, encoding="utf-8") as f:
                    self.calls = f.read()

    def must(self, holds, why):
        if not holds:
            sys.exit(f"FAILED: {why}\n--- code {self.code}\n{self.out}\n{self.err}\n{self.calls}")


def main():
    if sys.argv[1:2] == ["--manifests"]:
        with open(sys.argv[2], "w", encoding="utf-8") as f:
            f.write(Try("mixed", "cut").applied)
        return
    listed = subprocess.run([RUN, "--list"], capture_output=True, text=True, check=True)
    scenarios = listed.stdout.split()

    run = Try()
    run.must(run.code == 0, "it fails though nothing is wrong")
    run.must(run.clusters == [], "it leaves its cluster behind")
    for scenario in ("mixed", "scale", "rolling", "delete", "cut, one side", "cut, both sides",
                     "after the cut", "without rights", "api"):
        run.must(any(line.startswith(scenario) and line.endswith("right")
                     for line in run.out.splitlines()), f"no verdict on: {scenario}")
    run.must("network disconnect kind gabion-worker2" in run.calls, "no node was cut off")

    run = Try("scale", wrong="scale")
    run.must(run.code == 1 and "20 requests were denied wrongly" in run.out,
             "a wrong denial passes")
    run.must(run.clusters == [], "after a failure it leaves its cluster behind")

    run = Try("mixed", "delete", excess="mixed")
    run.must(run.code == 1 and "were admitted" in run.out, "an excess passes")
    run.must(any(line.startswith("delete") and line.endswith("right")
                 for line in run.out.splitlines()), "one failure ends the other scenarios")

    run = Try("--keep", "mixed")
    run.must(run.code == 0 and run.clusters == ["gabion"], "--keep keeps nothing")
    run = Try("mixed", clusters=["gabion"])
    run.must(run.clusters == ["gabion"], "it removes a cluster that was there before")

    for program in ("kind", "docker", "kubectl"):
        run = Try(without=(program,))
        run.must(run.code == 1 and f"missing: {program}" in run.err, f"{program} is not named")
        run.must("create" not in run.calls, "it starts something though a program is missing")
    run = Try(docker_gone=True)
    run.must(run.code == 1 and "daemon" in run.err, "the daemon is not named")
    run = Try("nonsense")
    run.must(run.code == 1 and "no scenario nonsense" in run.err, "a slip in a name passes")
    print(f"{len(scenarios)} scenarios, {Try.runs} runs with stand-ins: 1 passed, 0 failed")


if __name__ == "__main__":
    NAME = os.path.basename(sys.argv[0])
    if NAME in PROGRAMS:
        sys.exit(stand_in(NAME, sys.argv[1:]))
    main()
