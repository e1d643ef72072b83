"""Builds the module for a row's server.

Owns: the flags of a module that is shipped. Promises: the same bytes from the same sources and
toolchain wherever they lie (no path, no date in them), linked against the C library of the row's
distribution and not of the machine that builds; both are checked. Never: touches the target
folder of the workspace.
"""

import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

from . import fetch, sbom
from .rows import ROOT, own_version
from .server import run

NAME = "ngx_http_gabion_module.so"
SBOM = "sbom.cdx.json"
MAX_BYTES = 6_000_000
TARGET = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target") / "nginx-matrix"


class Module:
    """The shared object, and what it asks of a system."""

    def __init__(self, path, glibc):
        self.path, self.glibc = path, glibc
        self.bytes = path.stat().st_size


def cargo_env(server, root, target):
    """Paths are replaced by names, so that none of this machine's gets into the module."""
    home = Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo").resolve()
    names = [(root.resolve(), "gabion"), (target.resolve(), "target"), (home, "cargo")]
    # Where cargo keeps the sources of crates, and where `cargo vendor` did. The last match counts.
    names += [(path, "crates") for path in sorted(home.glob("registry/src/*"))]
    if os.environ.get("GABION_CRATES"):
        names.append((os.environ["GABION_CRATES"], "crates"))
    flags = [f"--remap-path-prefix={path}=/{name}" for path, name in names]
    return os.environ | {
        "CARGO_ENCODED_RUSTFLAGS": "\x1f".join(flags),
        "CARGO_TARGET_DIR": str(target),
        "CARGO_INCREMENTAL": "0",
        "CARGO_PROFILE_RELEASE_DEBUG": "0",
        "NGINX_BUILD_DIR": str(server.objs),
        "SOURCE_DATE_EPOCH": "0",
    }


def link_args(libc):
    """Links against another C library than this system's."""
    args = ["-Wl,--build-id=none"]
    if libc:
        args.append(f"--sysroot={libc}")
        for folder in sorted((libc / "usr/lib").glob("*-linux-gnu")):
            args += [f"-B{folder}", f"-L{folder}"]
        for folder in sorted((libc / "lib").glob("*-linux-gnu")):
            args += [f"-L{folder}"]
    return [f"-Clink-arg={arg}" for arg in args]


def key_of(server, root):
    """What a module is made of: the sources, the compiler, the server's headers, the C library."""
    key = hashlib.sha256()
    key.update(subprocess.run(["rustc", "-vV"], capture_output=True, check=True).stdout)
    names = [path for kind in ("*.rs", "Cargo.toml") for path in (root / "rust").rglob(kind)]
    for path in sorted(names) + [root / "Cargo.toml", root / "Cargo.lock", Path(__file__)]:
        key.update(f"{path.name} {fetch.sha256(path)}\n".encode())
    key.update((server.folder / ".key").read_bytes())
    key.update((server.libc / ".versions").read_bytes() if server.libc else b"")
    return key.hexdigest()


def reused(row, server, out):
    """The module in the folder `out`, built anew only when something it is made of has changed."""
    key, file = key_of(server, ROOT), out / "key"
    if file.is_file() and file.read_text(encoding="utf-8") == key and (out / NAME).is_file():
        return checked(row, out / NAME, server.libc and libc_version(server.libc))
    file.unlink(missing_ok=True)
    made = build(row, server, out)
    file.write_text(key, encoding="utf-8")
    return made


def build(row, server, out, root=ROOT, target=TARGET / "cargo"):
    """Builds into the folder `out`."""
    out.mkdir(parents=True, exist_ok=True)
    log = out / "log"
    log.unlink(missing_ok=True)
    fetch.say(f"{row.name}: building the module (a minute or two; log {log})")
    command = ["cargo", "rustc", "--profile", "module", "--locked", "-p", "gabion-nginx",
               "--features", "ngx-module", "--lib", "--crate-type", "cdylib", "--",
               *link_args(server.libc)]
    env = cargo_env(server, root, target)
    run(row, command, log, cwd=root, env=env)
    (out / SBOM).write_bytes(sbom.document(row, own_version(), env, root))
    path = out / NAME
    shutil.copyfile(target / "module" / "libgabion_nginx.so", path)
    run(row, ["strip", "--strip-unneeded", "--remove-section=.comment", str(path)], log)
    return checked(row, path, server.libc and libc_version(server.libc))


def checked(row, path, libc):
    """What it needs of the C library, and that this is not more than its distribution has."""
    if path.stat().st_size > MAX_BYTES:
        raise row.fail(f"the module has {path.stat().st_size} bytes, more than {MAX_BYTES}",
                       "find what made it grow (cargo tree, nm --size-sort)")
    needs = glibc_of(path)
    if libc and version(needs) > version(libc):
        raise row.fail(f"the module asks for glibc {needs}, and its distribution has {libc}",
                       "its link did not use the distribution's C library: see its log")
    bytes_ = path.read_bytes()
    for word in (str(ROOT), str(Path.home()), "/registry/src/"):
        if word.encode() in bytes_:
            raise row.fail(f"the module holds the path {word} of this machine",
                           "a new kind of path needs its --remap-path-prefix in module.py")
    return Module(path, needs)


def glibc_of(path):
    """The newest version of glibc that the module asks for."""
    done = subprocess.run(["objdump", "-T", path], capture_output=True, text=True, check=True)
    found = re.findall(r"GLIBC_(\d+(?:\.\d+)+)", done.stdout)
    return max(found, key=version, default="0")


def libc_version(libc):
    for line in (libc / ".versions").read_text(encoding="utf-8").split("\n"):
        if line.startswith("libc6 "):
            return re.match(r"[\d.]+", line.split(" ")[1])[0]
    return None


def version(text):
    return tuple(int(part) for part in text.split("."))
