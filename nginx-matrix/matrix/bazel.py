"""What Bazel's extension and actions run: the same steps, with every path given.

Owns: the repository @nginx_matrix, and steps that write where they are told. Promises: a row whose
source cannot be had is told with its reason and gets no folder, and the others are there. Never:
fetches anything in an action.
"""

import json
import shutil
from pathlib import Path

from . import fetch, module, pack, rows, server
from .rows import MatrixError

BUILD = """# Written by tools/matrix for Bazel.
package(default_visibility = ["//nginx-matrix:__pkg__"])

exports_files(glob(["*/*"], exclude_directories = 1))
"""


def repository(folder):
    """Fills Bazel's repository: each row's source, and rows.bzl with what is known of it."""
    folder = Path(folder)
    facts = {}
    all_rows = rows.read()
    for row in all_rows.values():
        facts[row.name] = one = {
            "title": "" if row.module_of else pack.title(row), "reason": "", "source": "",
            "root": "", "module_of": row.module_of or "", "libc_of": row.libc_of or "",
            "smoke": row.smoke, "list": only(row, all_rows)}
        if not row.default:
            one["reason"] = f"{row.reason}; next: tools/verify-sources --write {row.name}"
            continue
        try:
            one |= place(row, folder / row.name)
        except MatrixError as error:
            one["reason"] = f"{error.what}; next: {error.then}"
    for name, one in facts.items():  # what a row needs of another
        for other in filter(None, (one["module_of"], one["libc_of"])):
            if facts[other]["reason"] and not one["reason"] and one["module_of"]:
                one["reason"] = f"row {other}: {facts[other]['reason']}"
    (folder / "rows.bzl").write_text(
        '"""Written by tools/matrix for Bazel."""\n\nROWS = ' + starlark(facts) + "\n",
        encoding="utf-8")
    (folder / "BUILD.bazel").write_text(BUILD, encoding="utf-8")


def only(row, all_rows):
    """The list with this row and what it needs: another row's change is none of its business."""
    needed = [row] + ([all_rows[row.libc_of]] if row.libc_of else [])
    source = {"configure": row.configure or [], "libc_of": row.libc_of}
    values = [one.values | ({"configure": []} if one is row and row.from_sources else {})
              for one in needed if not one.module_of]
    return json.dumps({"source": source, "row": values}, sort_keys=True)


def place(row, folder):
    """A row's source in the repository."""
    if row.from_packages:
        root = fetch.packages(row)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(root, folder / "root", symlinks=True)
        shutil.copyfile(root / ".versions", folder / "versions")
        return {"root": str(folder / "root"), "source": f"{row.name}/versions"}
    if row.from_sources:
        archive = fetch.source(row)
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(archive, folder / archive.name)
        return {"source": f"{row.name}/{archive.name}"}
    return {}


def starlark(value):
    """Python's own words for dicts, lists and text are Starlark's."""
    return repr(value)


def step_server(name, out):
    """Builds a row's server into a folder; objects are left out."""
    all_rows = rows.read()
    made = server.get(all_rows[name], all_rows)
    ignore = shutil.ignore_patterns("*.o", "log", ".key")
    for item in ("nginx", "tree"):
        source = made.folder / item
        if source.is_dir():
            shutil.copytree(source, Path(out) / item, ignore=ignore, dirs_exist_ok=True)
        else:
            shutil.copy2(source, Path(out) / item)


def step_module(name, server_folder, libc, out, target):
    """Builds a row's module and its SBOM into a folder."""
    row = rows.read()[name]
    made = server.Server(Path(server_folder), Path(libc) if libc else None)
    module.build(row, made, Path(out), root=rows.ROOT, target=Path(target))


def step_tarball(name, module_folder, out):
    row = rows.read()[name]
    path = Path(module_folder) / module.NAME
    made = pack.tarball(row, module.checked(row, path, None), Path(out).parent)
    if made != Path(out):
        raise row.fail(f"the tarball is called {made.name}", "bazel clean @nginx_matrix")


STEPS = {"repository": repository, "server": step_server, "module": step_module,
         "tarball": step_tarball}
