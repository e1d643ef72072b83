"""What the images' tests share: an image unpacked, looked at, and run as a container runs it."""

import os
import shutil
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import oci  # noqa: E402  (beside this file)

DEADLINE_S = 60
SYSTEM = "/usr/sbin:/usr/bin:/sbin:/bin"


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
    return sys.exit(f"FAILED: {what}: not within {DEADLINE_S} s")


def unpacked(image, most_bytes):
    """The image's root and configuration, once they are as every image's are."""
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
    check(size <= most_bytes, f"the image is {size} bytes, more than {most_bytes}")
    return root, config
