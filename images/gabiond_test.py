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
import time
import urllib.request

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import oci  # noqa: E402  (beside this file)

DEADLINE_S = 60
SYSTEM = "/usr/sbin:/usr/bin:/sbin:/bin"
# The bar is for what is shipped, which is optimised; quick builds are larger.
MAX_BYTES = 25 << 20


def check(holds, why):
    if not holds:
        sys.exit(f"FAILED: {why}")


def entered(root, arguments, **options):
    """A process with `root` as its root; who is not root gets a user namespace for it."""
    enter = [shutil.which("chroot", path=SYSTEM), root]
    if os.geteuid() != 0:
        enter = [shutil.which("unshare", path=SYSTEM), "--user", "--map-root-user"] + enter
    return subprocess.Popen(enter + arguments, **options)


def until(what, ask):
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        value = ask()
        if value is not None:
            return value
        time.sleep(0.02)
    sys.exit(f"FAILED: {what}: not within {DEADLINE_S} s")


def main():
    image = sys.argv[1]
    root = os.path.join(os.environ["TEST_TMPDIR"], "root")
    os.makedirs(root)
    said = oci.unpack(image, root)
    config = said["config"]
    user, group = config["User"].split(":")
    check(int(user) > 0 and int(group) > 0, f"it runs as root: {config['User']}")
    for label in ("title", "description", "licenses", "version"):
        check(config["Labels"].get("org.opencontainers.image." + label), f"no label {label}")
    check(said["created"] == oci.EPOCH, "it says when it was made, so two builds differ")
    check(not os.path.exists(os.path.join(root, "bin/sh")), "there is a shell in it")
    for folder, _, files in os.walk(root):
        for name in files:
            mode = os.stat(os.path.join(folder, name)).st_mode
            check(mode & 0o004, f"{folder}/{name} cannot be read by its account")
            check(not mode & 0o6022, f"{folder}/{name} has mode {mode:o}")

    size = sum(os.path.getsize(os.path.join(folder, name))
               for folder, _, files in os.walk(os.path.join(image, "blobs")) for name in files)
    print(f"image: {size / (1 << 20):.1f} MiB")
    if os.environ.get("COMPILATION_MODE") == "opt":
        check(size <= MAX_BYTES, f"the image is {size} bytes, more than {MAX_BYTES}")

    version = entered(root, config["Entrypoint"] + ["--version"], stdout=subprocess.PIPE)
    told = version.communicate()[0].decode()
    wanted = config["Labels"]["org.opencontainers.image.version"]
    check(version.returncode == 0 and f" {wanted} " in told, f"--version said {told!r}")

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
