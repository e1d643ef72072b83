"""The rows of versions.toml, read and checked.

Owns: what a row may say. Promises: a row that cannot work is refused with its name and the next
step, before anything is fetched. Never: touches the network or writes a file.
"""

import json
import os
import re
import tomllib
from pathlib import Path

# Not resolved: a build tool may show the sources through links, and means what it shows.
ROOT = Path(os.path.abspath(__file__)).parent.parent.parent
LIST = Path(os.environ.get("GABION_MATRIX_LIST") or ROOT / "nginx-matrix" / "versions.toml")

# As rust/nginx/src/flavour.rs names them.
ABIS = ("nginx", "debian12", "openresty")
COMPAT = "--with-compat"
# Options that change structures which modules are built for.
OTHER_STRUCTURES = ("--without-http_rewrite_module", "--without-pcre", "--without-http")

KEYS = {
    "name": str, "distribution": str, "core": str, "abi": str, "note": str, "default": bool,
    "reason": str, "url": str, "sha256": str, "checked": str, "orig": str, "crate": dict,
    "configure": list, "suite": str, "nginx_abi": str, "glibc": str, "packages": list,
    "module_of": str, "smoke": list, "libc_of": str,
}


class MatrixError(Exception):
    """What went wrong with one row, and what to do next."""

    def __init__(self, row, what, then):
        super().__init__(f"row {row}: {what}; next: {then}")
        self.row, self.what, self.then = row, what, then


class Row:
    """One row: its keys are attributes, absent ones are None."""

    def __init__(self, values, source):
        self.values = values
        for key in KEYS:
            setattr(self, key, values.get(key))
        self.default = values.get("default", True)
        self.crate = values.get("crate", {})
        self.smoke = values.get("smoke", [])
        if self.from_sources:
            self.configure = source.get("configure", []) + (self.configure or [])
            self.libc_of = self.libc_of or source.get("libc_of")

    @property
    def from_sources(self):
        return self.url is not None

    @property
    def from_packages(self):
        return self.suite is not None

    @property
    def archive(self):
        """The file's name at upstream."""
        return self.url.rsplit("/", 1)[1]

    def fail(self, what, then):
        return MatrixError(self.name, what, then)


def check(row):
    """Raises what is wrong with a row."""
    edit = "correct it in nginx-matrix/versions.toml"
    for key, value in row.values.items():
        if key not in KEYS:
            raise row.fail(f"`{key}` is not a key", edit + ", whose head lists the keys")
        if not isinstance(value, KEYS[key]):
            raise row.fail(f"`{key}` must be a {KEYS[key].__name__}", edit)
    for key in ("distribution", "core", "abi"):
        if not getattr(row, key):
            raise row.fail(f"`{key}` is missing", edit)
    if row.abi not in ABIS:
        raise row.fail(f"abi `{row.abi}` is none of {', '.join(ABIS)}", edit)
    kinds = [row.from_sources, row.from_packages, row.module_of is not None]
    if sum(kinds) != 1:
        raise row.fail("needs one of `url`, `suite`, `module_of`", edit)
    if not row.default and not row.reason:
        raise row.fail("is left out without a `reason`", edit)
    if row.from_sources:
        check_source(row, edit)
    if row.from_packages and not (row.packages and row.nginx_abi and row.glibc):
        raise row.fail("`packages`, `nginx_abi` and `glibc` go with `suite`", edit)


def check_source(row, edit):
    for where, hash_ in (("sha256", row.sha256), ("crate.sha256", row.crate.get("sha256"))):
        if hash_ is None and (where != "sha256" or not row.default):
            continue
        if not re.fullmatch("[0-9a-f]{64}", hash_ or ""):
            raise row.fail(f"`{where}` is not a SHA-256 of 64 small hexadecimal digits",
                           "tools/verify-sources prints that of the file it downloads")
    if COMPAT not in row.configure:
        raise row.fail(f"is configured without {COMPAT}, so that no module built apart fits it",
                       f"add \"{COMPAT}\" to its `configure`")
    for option in OTHER_STRUCTURES:
        if option in row.configure:
            raise row.fail(f"{option} changes the structures modules are built for",
                           "take it out of its `configure`")


def read(path=LIST):
    """All rows by name, in the file's order."""
    try:
        text = Path(path).read_text(encoding="utf-8")
        # Bazel's actions get the rows they need, and no others, as JSON.
        text = json.loads(text) if Path(path).suffix == ".json" else tomllib.loads(text)
    except (OSError, ValueError) as error:
        raise MatrixError("-", f"{path} cannot be read: {error}", "correct it") from error
    rows = {}
    for number, values in enumerate(text.get("row", []), 1):
        row = Row(values, text.get("source", {}))
        if not re.fullmatch(r"[a-z][a-z0-9.-]*", str(row.name)):
            raise MatrixError(f"number {number}", f"`name` {row.name!r} is no name",
                              "small letters, digits, dots and dashes make a label")
        if row.name in rows:
            raise row.fail("stands twice in the list", "rename or remove one")
        check(row)
        rows[row.name] = row
    for row in rows.values():
        for key in ("module_of", "libc_of"):
            other = rows.get(getattr(row, key)) if getattr(row, key) else None
            if getattr(row, key) and (other is None or other.module_of):
                raise row.fail(f"`{key}` names `{getattr(row, key)}`, which has no module or libc",
                               "name a row of the list that is built itself")
    return rows


def own_version():
    """Gabion's own version."""
    manifest = tomllib.loads((ROOT / "Cargo.toml").read_text(encoding="utf-8"))
    return manifest["workspace"]["package"]["version"]


def chosen(rows, names):
    """The rows that were asked for: those named, or those that are not left out."""
    if not names:
        return [row for row in rows.values() if row.default]
    for name in names:
        if name not in rows:
            raise MatrixError(name, "is not in the list", f"one of: {', '.join(rows)}")
    return [rows[name] for name in names]
