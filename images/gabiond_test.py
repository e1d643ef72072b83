#!/usr/bin/env python3
"""Unpacks the image of gabiond and runs it as a container would: in its own root, by its own
libraries, started as the image says.

    gabiond_test.py IMAGE_FOLDER
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import urllib.request

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from image_test import DEADLINE_S, check, entered, oci, unpacked, until  # noqa: E402

MAX_BYTES = 25 << 20


def main():
    root, config = unpacked(sys.argv[1], MAX_BYTES)
    version = entered(root, config["Entrypoint"] + ["--version"], stdout=subprocess.PIPE)
    told = version.communicate()[0].decode()
    wanted = config["Labels"]["org.opencontainers.image.version"]
    check(version.returncode == 0 and f" {wanted} " in told, f"--version said {told!r}")

    # As one file, it has the name that a cluster's manifests call it by.
    name, archive = "localhost/gabion/gabiond:kind", os.path.join(root, "tmp/gabiond.tar")
    oci.archive(sys.argv[1], name, archive)
    with tarfile.open(archive) as tar:
        index = json.load(tar.extractfile("index.json"))
        files = tar.getnames()
    named = index["manifests"][0]["annotations"]["io.containerd.image.name"]
    check(named == name and len(files) > 4, f"the archive of {named} holds {files}")

    # The example's files are mounted over the image's own.
    for name in ("gabiond.yaml", "policy.yaml"):
        shutil.copy(os.path.join("examples/compose", name), os.path.join(root, "etc/gabion"))
    checked = entered(root, config["Entrypoint"] + ["check"] + config["Cmd"])
    check(checked.wait(timeout=DEADLINE_S) == 0, "it refuses examples/compose/gabiond.yaml")

    environment = {"GABION_ENVOY_BIND": "127.0.0.1:0", "GABION_ADMIN_BIND": "127.0.0.1:0",
                   "GABION_GOSSIP_BIND": "127.0.0.1:0"}
    member = entered(root, config["Entrypoint"] + config["Cmd"] + ["--ports-file", "/tmp/ports"],
                     env=environment)
    ports_file = os.path.join(root, "tmp/ports")

    def ports():
        check(member.poll() is None, f"it ended with {member.returncode}")
        if os.path.exists(ports_file):
            with open(ports_file, encoding="utf-8") as f:
                return json.load(f)
        return None

    admin = until("it binds its ports", ports)["admin"]

    def ready():
        try:
            with urllib.request.urlopen(f"http://{admin}/readyz") as answer:
                return answer.status == 200 or None
        except OSError:
            return None

    until("it is ready", ready)
    member.send_signal(signal.SIGTERM)
    check(member.wait(timeout=DEADLINE_S) == 0, f"on SIGTERM it ended with {member.returncode}")
    print("1 passed, 0 failed")


if __name__ == "__main__":
    main()
