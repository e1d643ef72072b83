"""tools/install-module: which tarball it takes, what it refuses, and that it takes things back."""

import hashlib
import io
import json
import platform
import subprocess
import tarfile
import tempfile
import unittest
from pathlib import Path

from matrix import pack, rows

TOOL = rows.ROOT / "tools" / "install-module"
SYSTEM = f"linux-{platform.machine()}-gnu.tar.gz"
DEBIAN = "--http-client-body-temp-path=/var/lib/nginx/body"
# Says what it is told to say, and refuses modules that hold the word "bad".
NGINX = """#!/bin/sh
case "$*" in
    -V) echo "nginx version: {name}" >&2
        echo "configure arguments: --prefix={prefix} {arguments}" >&2 ;;
    *) ! grep -qs bad {prefix}/modules/*.so ||
        {{ echo "nginx: [emerg] bad module" >&2; exit 1; }} ;;
esac
"""


class Installing(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)
        (self.folder / "tarballs").mkdir()
        self.module = self.folder / "prefix/modules/ngx_http_gabion_module.so"

    def nginx(self, name="nginx/1.26.3", arguments="--with-compat"):
        path = self.folder / "nginx"
        path.write_text(NGINX.format(name=name, arguments=arguments, prefix=self.folder / "prefix"))
        path.chmod(0o755)
        return path

    def tarball(self, build, module=b"good", glibc="2.0", spoil=False, abi=None):
        """One like those that are shipped, as far as the installer looks."""
        top = f"gabion-nginx-0.1.0-{build}-{SYSTEM.removesuffix('.tar.gz')}"
        files = {"ngx_http_gabion_module.so": module,
                 "artefact.json": (json.dumps({
                     "abi": abi or build.partition("-")[0], "core": build.partition("-")[2],
                     "glibc": glibc}, indent=1, sort_keys=True) + "\n").encode()}
        sums = "".join(f"{hashlib.sha256(data).hexdigest()}  {name}\n"
                       for name, data in files.items())
        files["SHA256SUMS"] = sums.encode()
        if spoil:
            files["ngx_http_gabion_module.so"] = b"spoiled"
        path = self.folder / "tarballs" / f"{top}.tar.gz"
        with tarfile.open(path, "w:gz") as tar:
            for name, data in files.items():
                entry = tarfile.TarInfo(f"{top}/{name}")
                entry.size = len(data)
                tar.addfile(entry, io.BytesIO(data))
        return path

    def install(self, nginx, source=None):
        return subprocess.run(
            [TOOL, "--nginx", nginx, "--from", source or self.folder / "tarballs"],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)

    def refused(self, done, *words):
        self.assertEqual(done.returncode, 1, done.stderr)
        for word in ("error: ", "next: ", *words):
            self.assertIn(word, done.stderr)

    def test_takes_the_one_for_this_version(self):
        self.tarball("nginx-1.22.1", b"other")
        self.tarball("nginx-1.26.3")
        done = self.install(self.nginx())
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.module.read_bytes(), b"good")
        self.assertIn("load_module", done.stderr)

    def test_debian_12_never_gets_the_one_of_the_released_version(self):
        self.tarball("nginx-1.22.1")
        nginx = self.nginx("nginx/1.22.1", f"--with-compat {DEBIAN}")
        self.refused(self.install(nginx), f"debian12-1.22.1-{SYSTEM}")
        self.tarball("debian12-1.22.1")
        self.assertEqual(self.install(nginx).returncode, 0)

    def test_a_later_debian_may_get_the_one_of_the_released_version(self):
        self.tarball("nginx-1.26.3")
        nginx = self.nginx(arguments=f"--with-compat {DEBIAN}")
        self.assertEqual(self.install(nginx).returncode, 0)

    def test_openresty_gets_its_own_only(self):
        self.tarball("nginx-1.27.1.2")
        nginx = self.nginx("openresty/1.27.1.2")
        self.refused(self.install(nginx), f"openresty-1.27.1.2-{SYSTEM}")
        self.tarball("openresty-1.27.1.2")
        self.assertEqual(self.install(nginx).returncode, 0)

    def test_an_nginx_without_compat(self):
        self.tarball("nginx-1.26.3")
        self.refused(self.install(self.nginx(arguments="")), "without --with-compat")

    def test_a_tarball_for_another_nginx(self):
        other = self.tarball("nginx-1.22.1")
        self.refused(self.install(self.nginx(), other), other.name, "another nginx",
                     f"nginx-1.26.3-{SYSTEM}")

    def test_a_tarball_that_was_renamed(self):
        self.tarball("nginx-1.26.3", abi="debian12")
        self.refused(self.install(self.nginx()), "1.26.3 debian12", "1.26.3 nginx")
        self.assertFalse(self.module.exists())

    def test_no_tarball_at_all(self):
        self.refused(self.install(self.nginx()), "no tarball", f"nginx-1.26.3-{SYSTEM}")
        self.refused(self.install(self.nginx(), self.folder / "x.tar.gz"), "is not there")

    def test_no_network(self):
        self.refused(self.install(self.nginx(), "http://127.0.0.1:9/"), "could be fetched",
                     "--from FILE")

    def test_a_spoiled_tarball(self):
        self.tarball("nginx-1.26.3", spoil=True)
        self.refused(self.install(self.nginx()), "hashes")
        self.assertFalse(self.module.exists())

    def test_a_newer_c_library_than_the_system_has(self):
        self.tarball("nginx-1.26.3", glibc="2.99")
        self.refused(self.install(self.nginx()), "needs glibc 2.99", "tools/nginx-module install")

    def test_what_nginx_refuses_is_taken_back(self):
        path = self.tarball("nginx-1.26.3", b"bad")
        self.refused(self.install(self.nginx(), path), "bad module", "as it was before")
        self.assertFalse(self.module.exists())
        self.tarball("nginx-1.26.3", b"good")
        self.assertEqual(self.install(self.nginx()).returncode, 0)
        self.tarball("nginx-1.26.3", b"bad")
        self.refused(self.install(self.nginx()), "as it was before")
        self.assertEqual(self.module.read_bytes(), b"good")

    def test_no_nginx(self):
        self.refused(self.install(self.folder / "nowhere"), "does not run", "--nginx")

    def test_names_are_those_that_are_packed(self):
        row = rows.read()["debian-12"]
        self.assertTrue(f"{pack.title(row)}.tar.gz".endswith(f"debian12-1.22.1-{SYSTEM}"))
