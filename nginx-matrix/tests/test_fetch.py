"""Sources: a wrong hash, a missing file, no network; and what comes out when all is well."""

import contextlib
import io
import os
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from matrix import fetch, rows, server

ABSENT = "http://127.0.0.1:9/nginx-9.9.9.tar.gz"


def row(**more):
    values = {"name": "nginx-9.9.9", "distribution": "nginx", "core": "9.9.9", "abi": "nginx",
              "url": ABSENT, "sha256": "a" * 64} | more
    return rows.Row(values, {"configure": ["--with-compat"]})


class Sources(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)
        for patch in (mock.patch.object(fetch, "CACHE", self.folder / "cache"),
                      mock.patch.object(fetch, "_offline", []),
                      mock.patch.dict(os.environ, {"GABION_SOURCES": str(self.folder)}),
                      contextlib.redirect_stdout(io.StringIO())):
            patch.__enter__()
            self.addCleanup(patch.__exit__, None, None, None)

    def refused(self, one, *words):
        with self.assertRaises(rows.MatrixError) as caught:
            fetch.source(one)
        for word in ("row nginx-9.9.9", "next: ", *words):
            self.assertIn(word, str(caught.exception))

    def test_no_network_and_no_other_place(self):
        self.refused(row(), "its source cannot be had", "no network", "GABION_SOURCES", ABSENT)

    def test_no_hash(self):
        self.refused(row(sha256=None), "the list has no hash")

    def test_a_file_that_is_not_what_the_list_says(self):
        (self.folder / "nginx-9.9.9.tar.gz").write_bytes(b"another")
        self.refused(row(), "wrong hash", "nginx-9.9.9.tar.gz", "tools/verify-sources")

    def test_a_download_that_is_not_what_the_list_says_is_not_kept(self):
        def another(_url, path):
            path.write_bytes(b"another")
        with mock.patch.object(fetch, "get", another):
            self.refused(row(), "wrong hash", ABSENT, "do not use that file")
        self.assertFalse((self.folder / "cache/sources/nginx-9.9.9.tar.gz").exists())

    def test_the_right_file_is_taken_from_the_folder_that_is_named(self):
        path = self.folder / "nginx-9.9.9.tar.gz"
        path.write_bytes(b"right")
        self.assertEqual(fetch.source(row(sha256=fetch.sha256(path))), path)

    def test_a_release_that_debian_does_not_have(self):
        with mock.patch.object(fetch, "in_lib") as lib:
            lib.return_value.returncode = 1
            lib.return_value.stderr = "Debian's sid has no nginx 9.9.9\n"
            self.refused(row(orig="sid"), "Debian's sid has no nginx 9.9.9")

    def test_packages_that_cannot_be_had(self):
        debian = row(name="nginx-9.9.9", url=None, sha256=None, suite="sid", packages=["nginx"])
        with mock.patch.object(fetch, "in_lib") as lib:
            lib.return_value.returncode = 1
            lib.return_value.stderr = "apt is not configured with a mirror of Debian\n"
            with self.assertRaises(rows.MatrixError) as caught:
                fetch.packages(debian)
        self.assertIn("row nginx-9.9.9", str(caught.exception))
        self.assertIn("not configured with a mirror", str(caught.exception))

    def test_a_distribution_that_moved_to_another_abi(self):
        debian = row(url=None, sha256=None, suite="sid", packages=["nginx"],
                     nginx_abi="nginx-abi-1")
        folder = self.folder / "cache" / "nginx-9.9.9"
        folder.mkdir(parents=True)
        (folder / ".versions").write_text("nginx 9 httpd, nginx-abi-2\n")
        with mock.patch.object(fetch, "in_lib") as lib:
            lib.return_value.returncode = 0
            with self.assertRaises(rows.MatrixError) as caught:
                fetch.packages(debian)
        self.assertIn("provides nginx-abi-2, not nginx-abi-1", str(caught.exception))

    def test_a_server_that_takes_no_modules(self):
        nginx = self.folder / "nginx"
        nginx.write_text("#!/bin/sh\necho 'configure arguments: --with-debug' >&2\n")
        nginx.chmod(0o755)
        with self.assertRaises(rows.MatrixError) as caught:
            server.check_compat(row(), nginx)
        self.assertIn("row nginx-9.9.9", str(caught.exception))
        self.assertIn("without --with-compat", str(caught.exception))
        nginx.write_text("#!/bin/sh\necho 'configure arguments: --with-compat' >&2\n")
        server.check_compat(row(), nginx)
