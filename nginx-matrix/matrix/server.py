"""Builds a row's server, or takes the distribution's, with headers configured as it was.

Owns: what a server folder holds: `nginx` (the binary), `tree` (sources or headers, with `objs`).
Promises: a folder is used again only for the same source and options; a server that takes no
modules built apart is refused. Never: changes the system's own nginx.
"""

import os
import shutil
import subprocess
import tarfile
from pathlib import Path

from . import fetch
from .rows import COMPAT, ROOT, MatrixError


class Server:
    """A row's server: its folder, and the C library its module is linked against."""

    def __init__(self, folder, libc):
        self.folder, self.libc = folder, libc
        self.nginx = folder / "nginx"
        self.objs = folder / "tree" / "objs"


def run(row, command, log, **more):
    """Runs a command; its output goes to a log that a failure names and ends with."""
    with open(log, "a", encoding="utf-8") as out:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=out,
                              stderr=subprocess.STDOUT, check=False, **more)
    if done.returncode:
        tail = Path(log).read_text(encoding="utf-8", errors="replace").split("\n")[-15:]
        raise row.fail(f"`{Path(str(command[0])).name}` failed:\n" + "\n".join(tail),
                       f"the whole log is {log}")


def flags(text):
    """What `nginx -V` says it was configured with."""
    return text.partition("configure arguments:")[2]


def check_compat(row, nginx):
    """The server's own word, whatever the list says."""
    done = subprocess.run([nginx, "-V"], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          check=False)
    if done.returncode:
        raise row.fail(f"{nginx} does not run: {fetch.last_line(done.stderr)}",
                       "run the matrix on a system with the libraries it names")
    if COMPAT not in flags(done.stderr):
        raise row.fail(f"{nginx} is configured without {COMPAT}: no module built apart fits it",
                       f"configure it with {COMPAT}")
    return done.stderr


def get(row, rows):
    """The row's server, built if it is not there."""
    if row.module_of:
        return get(rows[row.module_of], rows)
    libc = rows[row.libc_of] if row.from_sources and row.libc_of else row
    folder = fetch.CACHE / "servers" / row.name
    if row.from_packages:
        root = fetch.packages(row)
        key = (root / ".versions").read_text(encoding="utf-8")
    else:
        archive = fetch.source(row)
        key = fetch.sha256(archive) + "\n" + "\n".join(row.configure) + "\n"
    # A server names its C library by its place: in a clone that was moved it is made anew.
    key += f"{folder}\n"
    if not is_ready(folder, key):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        if row.from_packages:
            from_packages(row, root, folder)
        else:
            from_source(row, archive, folder)
        (folder / ".key").write_text(key, encoding="utf-8")
    check_compat(row, folder / "nginx")
    return Server(folder, root if row.from_packages else c_library(libc))


def is_ready(folder, key):
    try:
        return (folder / ".key").read_text(encoding="utf-8") == key
    except OSError:
        return False


def c_library(row):
    """The folder with the row's C library, or None where only this system's can be had."""
    try:
        return fetch.packages(row)
    except MatrixError as error:
        fetch.say(f"this system's C library is linked against instead ({error.what})")
        return None


def unpack(row, archive, tree):
    """The archive without its top folder; of the crate, the folder with nginx's own tree."""
    inside = "nginx/" if archive.suffix == ".crate" else ""
    with tarfile.open(archive) as tar:
        members = []
        for member in tar.getmembers():
            name = member.name.partition("/")[2]
            if name.startswith(inside) and name != inside:
                member.name = name[len(inside):]
                members.append(member)
        tar.extractall(tree, members, filter="data")
    if not members:
        raise row.fail(f"{archive} does not hold nginx's sources", "compare it with upstream's")


def from_source(row, archive, folder):
    tree, log = folder / "tree", folder / "log"
    unpack(row, archive, tree)
    configure = "./configure" if (tree / "configure").is_file() else "auto/configure"
    fetch.say(f"{row.name}: configuring and compiling the server (minutes; log {log})")
    run(row, ["sh", configure, *row.configure], log, cwd=tree)
    jobs = str(os.cpu_count() or 1)
    run(row, ["make", "-j", jobs], log, cwd=tree)
    binary = next((p for p in (tree / "objs" / "nginx", tree / "build") if p.is_file()), None)
    if row.abi == "openresty":
        binary, tree = openresty_tree(row, tree)
        (folder / "tree").rename(folder / "bundle")
        (folder / "tree").symlink_to(Path("bundle") / tree)
        binary = folder / "tree" / "objs" / "nginx"
    if not binary or not binary.is_file():
        raise row.fail("the build made no nginx", f"see the log {log}")
    shutil.copy2(binary, folder / "nginx")


def openresty_tree(row, tree):
    """OpenResty configures its own copy of nginx, patched, under build/."""
    for inner in sorted((tree / "build").glob("nginx-*/objs/nginx")):
        return inner, inner.parent.parent.relative_to(tree)
    raise row.fail("OpenResty's build has no build/nginx-*/objs/nginx", "see its log")


def from_packages(row, root, folder):
    """A copy of the headers, configured with the distribution's flags; no nginx is compiled. The
    binary is told to use the distribution's own C library and libraries, beside the system's."""
    tree, log = folder / "tree", folder / "log"
    root = root.resolve()  # the binary keeps these paths
    shutil.copytree(root / "usr/share/nginx/src", tree)
    fetch.say(f"{row.name}: configuring its headers (a minute; log {log})")
    run(row, ["bash", "-c", '. ./conf_flags; exec ./configure "${NGX_CONF_FLAGS[@]}"'], log,
        cwd=tree)
    shutil.copy2(root / "usr/sbin/nginx", folder / "nginx")
    loader = next((root / "lib64").glob("ld-linux-*.so.*"), None)
    if loader is None:
        raise row.fail(f"{root} holds no loader", "libc6 must be among its packages")
    run(row, ["patchelf", "--set-interpreter", str(loader), "--force-rpath", "--set-rpath",
              ":".join(str(p) for p in library_folders(root)), str(folder / "nginx")], log)


def library_folders(root):
    """Where the distribution's libraries are."""
    found = {p.parent.resolve() for top in ("lib", "usr/lib")
             for p in (root / top).glob("*-linux-gnu/*.so*")}
    return sorted(found)


def where(path):
    """A path as people read it: from the repository where it is in it."""
    path = Path(path)
    return path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
