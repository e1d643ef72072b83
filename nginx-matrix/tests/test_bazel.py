"""What Bazel gets told: rows that cannot be had are named with the reason; the others are there."""

import tempfile
import unittest
from pathlib import Path
from unittest import mock

from matrix import bazel, rows


class TheRepository(unittest.TestCase):
    def facts(self, place):
        with tempfile.TemporaryDirectory() as scratch:
            with mock.patch.object(bazel, "place", place):
                bazel.repository(scratch)
            text = (Path(scratch) / "rows.bzl").read_text(encoding="utf-8")
            self.assertTrue((Path(scratch) / "BUILD.bazel").is_file())
        found = {}
        exec(text, found)  # Python reads these words of Starlark alike
        return found["ROWS"]

    def test_a_row_that_cannot_be_had_has_a_reason_and_so_has_what_needs_it(self):
        def place(row, _folder):
            if row.name == "debian-12":
                raise row.fail("no mirror", "ask for one")
            return {"source": f"{row.name}/x"}
        facts = self.facts(place)
        self.assertEqual(facts["debian-12"]["reason"], "no mirror; next: ask for one")
        self.assertIn("row debian-12: no mirror", facts["debian-12-lua"]["reason"])
        self.assertEqual(facts["debian-13"]["reason"], "")

    def test_a_row_that_is_left_out_says_what_lets_it_in(self):
        facts = self.facts(lambda _row, _folder: {})
        for row in rows.read().values():
            self.assertEqual(row.default, facts[row.name]["reason"] == "")
            if not row.default:
                self.assertIn("tools/verify-sources --write", facts[row.name]["reason"])

    def test_an_action_sees_its_own_row_and_the_one_whose_c_library_it_links_against(self):
        facts = self.facts(lambda _row, _folder: {})
        whole = rows.read()
        with tempfile.TemporaryDirectory() as scratch:
            path = Path(scratch) / "rows.json"
            for name, row in whole.items():
                if row.module_of:
                    continue
                path.write_text(facts[name]["list"], encoding="utf-8")
                some = rows.read(path)
                self.assertEqual(list(some), [name] + ([row.libc_of] if row.libc_of else []))
                self.assertEqual(some[name].configure, row.configure)
                self.assertEqual(some[name].packages, row.packages)
