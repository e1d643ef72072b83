"""The list: what it may not say."""

import tempfile
import unittest
from pathlib import Path

from matrix import rows

GOOD = """
[source]
configure = ["--with-compat"]
[[row]]
name = "nginx-9.9.9"
distribution = "nginx"
core = "9.9.9"
abi = "nginx"
url = "https://nginx.org/download/nginx-9.9.9.tar.gz"
sha256 = "%s"
""" % ("a" * 64)


def read(text):
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "versions.toml"
        path.write_text(text, encoding="utf-8")
        return rows.read(path)


class TheList(unittest.TestCase):
    def refused(self, text, *words):
        with self.assertRaises(rows.MatrixError) as caught:
            read(text)
        for word in ("next: ", *words):
            self.assertIn(word, str(caught.exception))

    def test_a_good_row_is_read(self):
        self.assertEqual(read(GOOD)["nginx-9.9.9"].archive, "nginx-9.9.9.tar.gz")

    def test_the_list_of_the_tree_is_good(self):
        self.assertIn("debian-12", rows.read())

    def test_no_compat(self):
        self.refused(GOOD.replace("--with-compat", "--with-debug"), "row nginx-9.9.9",
                     "without --with-compat")

    def test_other_structures(self):
        for option in rows.OTHER_STRUCTURES:
            self.refused(GOOD + f'configure = ["{option}"]\n', "row nginx-9.9.9", option)

    def test_no_hash_or_half_a_hash(self):
        self.refused(GOOD.replace("a" * 64, "a" * 63), "row nginx-9.9.9", "SHA-256")
        self.refused(GOOD.replace("sha256", "# sha256"), "row nginx-9.9.9", "SHA-256")

    def test_a_row_without_a_hash_must_be_left_out_with_a_reason(self):
        left_out = GOOD.replace("sha256", "# sha256") + "default = false\n"
        self.refused(left_out, "row nginx-9.9.9", "without a `reason`")
        self.assertFalse(read(left_out + 'reason = "no hash"\n')["nginx-9.9.9"].default)

    def test_words_that_are_no_keys_or_of_another_kind(self):
        self.refused(GOOD + 'flags = "x"\n', "row nginx-9.9.9", "`flags` is not a key")
        self.refused(GOOD + "orig = 12\n", "row nginx-9.9.9", "must be a str")

    def test_names(self):
        self.refused(GOOD.replace("nginx-9.9.9", "Nginx 9", 1), "number 1", "no name")
        self.refused(GOOD + GOOD.partition("[[row]]")[1] + GOOD.partition("[[row]]")[2],
                     "row nginx-9.9.9", "twice")
        self.refused(GOOD + 'libc_of = "debian-1"\n', "row nginx-9.9.9", "debian-1")

    def test_no_list_at_all(self):
        self.refused("[[row]", "cannot be read")

    def test_asking_for_a_row_that_is_not_there(self):
        with self.assertRaises(rows.MatrixError) as caught:
            rows.chosen(read(GOOD), ["nginx-1.2.3"])
        self.assertIn("row nginx-1.2.3", str(caught.exception))
        self.assertIn("nginx-9.9.9", str(caught.exception))
