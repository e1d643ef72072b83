"""Gets a row's source or a distribution's packages, and checks what it got.

Owns: the cache of sources, and where else a source may be. Promises: what it hands out has the
hash of the list, or comes from a distribution's signed lists; a wrong file is never kept. Never:
names a registry's address: apt and cargo use what they are configured with.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

from .rows import ROOT

CACHE = Path(os.environ.get("GABION_MATRIX_CACHE") or ROOT / ".cache" / "nginx-matrix")
PATIENCE_S = 60
# Set by the first download that fails for want of a network: the others are not tried.
_offline = []


def say(text):
    print(text, flush=True)


def sha256(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_it(path, hash_):
    return path.is_file() and sha256(path) == hash_


def folders():
    """Where sources are looked for: the cache, and a folder that the user names."""
    given = os.environ.get("GABION_SOURCES")
    return [CACHE / "sources"] + ([Path(given)] if given else [])


def source(row):
    """The path of the row's archive: upstream's, or the crate that holds the same release."""
    wrong = []
    for folder in folders():
        for name, hash_ in wanted(row):
            path = folder / name
            if is_it(path, hash_):
                return path
            if path.is_file():
                wrong.append(f"{path} has the hash {sha256(path)}, not {hash_}")
    if wrong:
        raise row.fail("wrong hash: " + "; ".join(wrong),
                       "remove that file; if upstream renewed it, tools/verify-sources "
                       f"{row.name} says what the list should have")
    tried = []
    for way in (download, from_debian, from_crate):
        found = way(row, tried)
        if found:
            return found
    then = (f"download {row.url} on another machine and put it into a folder named by "
            "GABION_SOURCES, or run this where there is a network")
    raise row.fail("its source cannot be had: " + "; ".join(tried), then)


def wanted(row):
    pairs = [(row.archive, row.sha256)] if row.sha256 else []
    if row.crate:
        pairs.append((crate_name(row), row.crate["sha256"]))
    return pairs


def crate_name(row):
    return f"nginx-src-{row.crate['version']}.crate"


def keep(row, path, hash_, name, whence):
    """Moves a fetched file into the cache if it is what the list says."""
    got = sha256(path)
    if got != hash_:
        raise row.fail(f"wrong hash: {whence} has {got}, not {hash_}",
                       "do not use that file; compare both with what upstream signs, and "
                       "correct the list if upstream renewed it")
    target = CACHE / "sources" / name
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f"{name}.{os.getpid()}.part")
    shutil.copyfile(path, part)
    part.replace(target)
    say(f"{row.name}: source from {whence}, sha256 as listed")
    return target


def download(row, tried):
    if not row.sha256:
        tried.append("the list has no hash for it")
        return None
    if _offline:
        tried.append(f"no network ({_offline[0]})")
        return None
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / row.archive
        error = get(row.url, path)
        if error:
            tried.append(f"no network ({error})")
            _offline.append(error)
            return None
        return keep(row, path, row.sha256, row.archive, row.url)


def get(url, path):
    """Downloads; returns what went wrong."""
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer, open(path, "wb") as file:
            shutil.copyfileobj(answer, file)
    except (urllib.error.URLError, OSError) as error:
        return f"{url.split('/')[2]}: {getattr(error, 'reason', error)}"
    return None


def in_lib(script, *args):
    """Runs a line of shell with the functions of tools/lib."""
    return subprocess.run(
        ["bash", "-c", f'set -euo pipefail; . "{ROOT}/tools/lib"; {script}', "matrix", *args],
        stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)


def last_line(text):
    lines = [line for line in text.strip().split("\n") if line.strip()]
    return lines[-1].strip() if lines else "no message"


def from_debian(row, tried):
    if not row.orig:
        return None
    folder = CACHE / "orig" / row.orig
    run = in_lib('orig_source "$1" "$2" nginx "$3"', str(folder), row.orig, row.core)
    path = folder / f"nginx_{row.core}.orig.tar.gz"
    if run.returncode or not path.is_file():
        tried.append(f"Debian's {row.orig}: {last_line(run.stderr)}")
        return None
    return keep(row, path, row.sha256, row.archive, f"Debian's {row.orig}")


def from_crate(row, tried):
    """The crate nginx-src, fetched by cargo as a dependency of nothing."""
    if not row.crate:
        return None
    exact = row.crate["version"].split("+")[0]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "src").mkdir()
        (folder / "src" / "lib.rs").write_text("", encoding="utf-8")
        (folder / "Cargo.toml").write_text(
            '[package]\nname = "source"\nversion = "0.0.0"\nedition = "2021"\n[workspace]\n'
            f'[dependencies]\nnginx-src = "={exact}"\n', encoding="utf-8")
        run = subprocess.run(["cargo", "fetch", "--quiet"], cwd=folder, check=False, text=True,
                             stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    if run.returncode:
        tried.append(f"the crate nginx-src {exact}: {last_line(run.stderr)}")
        return None
    home = Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo")
    for path in sorted(home.glob(f"registry/cache/*/nginx-src-{exact}*.crate")):
        return keep(row, path, row.crate["sha256"], crate_name(row), "the crate nginx-src")
    tried.append(f"the crate nginx-src {exact}: cargo did not keep it")
    return None


def packages(row):
    """The folder that a distribution's packages are unpacked in: its C library, server, headers."""
    folder = CACHE / row.name
    run = in_lib('folder="$1"; shift; unpack_debs "$folder" "$@"', str(folder), row.suite,
                 *row.packages)
    if run.returncode:
        raise row.fail(f"Debian's packages cannot be had: {last_line(run.stderr)}",
                       "run this on a system with apt that is configured with a mirror of Debian")
    for link in ("lib", "lib64"):
        if not (folder / link).exists():
            (folder / link).symlink_to(f"usr/{link}")
    inward(folder)
    provides = (folder / ".versions").read_text(encoding="utf-8")
    if row.nginx_abi not in provides.replace(",", " ").split():
        got = [w for w in provides.replace(",", " ").split() if w.startswith("nginx-abi")]
        raise row.fail(f"Debian's nginx provides {' '.join(got) or 'no ABI'}, not {row.nginx_abi}",
                       "correct `core` and `nginx_abi` in the list")
    return folder


def inward(folder):
    """Makes absolute links relative: a loader or library of the folder must be the folder's own."""
    for path in folder.rglob("*"):
        if path.is_symlink():
            target = os.readlink(path)
            inside = folder / target.lstrip("/")
            if target.startswith("/") and inside.exists():
                path.unlink()
                path.symlink_to(os.path.relpath(inside, path.parent))


def package_version(row):
    for line in (CACHE / row.name / ".versions").read_text(encoding="utf-8").split("\n"):
        if line.startswith("nginx "):
            return line.split(" ")[1]
    return "?"
