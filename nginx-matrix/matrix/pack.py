"""Packs a module: a tarball for any system, and a Debian package for Debian's own nginx.

Owns: what they hold. Promises: the same bytes from the same module, whenever and wherever they are
packed. Never: holds a time, a user or a path of the machine that packs.
"""

import gzip
import hashlib
import io
import json
import os
import platform
import shutil
import subprocess
import tarfile

from .module import NAME, SBOM
from .rows import ROOT, own_version

LIBC = "gnu"
MODULE_DEB = "libnginx-mod-http-gabion"


def title(row):
    """The tarball's name without its ending."""
    return (f"gabion-nginx-{own_version()}-{row.distribution}-{row.core}-linux-"
            f"{platform.machine()}-{LIBC}")


def readme(row, module):
    return f"""# The Gabion module for {row.distribution}, core {row.core}

Loads only into this build of nginx. Needs Linux on {platform.machine()} with glibc {module.glibc}
or newer.

1. `sha256sum -c SHA256SUMS`
2. Copy `{NAME}` to nginx's folder of modules (`nginx -V` names it: `--modules-path`).
3. Put the line of `load_module.conf` at the top of nginx.conf.
4. `nginx -t`, then reload. A build of another nginx is refused there, with a message that names
   the right one.

`tools/install-module` of the sources does all that, and takes it back when `nginx -t` fails.
What to write next: docs/nginx.md. What it is made of: sbom.cdx.json (CycloneDX).
"""


def contents(row, module):
    """Name and bytes of each file."""
    about = {"abi": row.abi, "arch": platform.machine(), "core": row.core,
             "distribution": row.distribution, "glibc": module.glibc, "libc": LIBC,
             "row": row.name, "version": own_version()}
    files = {
        NAME: module.path.read_bytes(),
        "load_module.conf": f"load_module modules/{NAME};\n".encode(),
        "README.md": readme(row, module).encode(),
        "LICENSE": (ROOT / "LICENSE").read_bytes(),
        "artefact.json": (json.dumps(about, indent=1, sort_keys=True) + "\n").encode(),
        SBOM: module.path.with_name(SBOM).read_bytes(),
    }
    sums = "".join(f"{hashlib.sha256(data).hexdigest()}  {name}\n"
                   for name, data in sorted(files.items()))
    files["SHA256SUMS"] = sums.encode()
    return files


def tarball(row, module, folder):
    """Writes the tarball into a folder and returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    top = title(row)
    path = folder / f"{top}.tar.gz"
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, bytes_ in sorted(contents(row, module).items()):
            entry = tarfile.TarInfo(f"{top}/{name}")
            entry.size, entry.mode, entry.mtime = len(bytes_), 0o644, 0
            entry.uname = entry.gname = "root"
            tar.addfile(entry, io.BytesIO(bytes_))
    with open(path, "wb") as file:
        with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as zipped:
            zipped.write(data.getvalue())
    return path


POSTINST = """#!/bin/sh
set -e
link=/etc/nginx/modules-enabled/50-mod-http-gabion.conf
if [ "$1" = configure ] && [ -z "$2" ] && [ -d /etc/nginx/modules-enabled ] && [ ! -e $link ]
then
    ln -s /usr/share/nginx/modules-available/mod-http-gabion.conf "$link"
fi
exit 0
"""
# nginx would not start with a link to a file that is gone.
PRERM = """#!/bin/sh
set -e
link=/etc/nginx/modules-enabled/50-mod-http-gabion.conf
if [ "$1" = remove ] && [ -L "$link" ]; then
    rm -f "$link"
fi
exit 0
"""


def control(row, module, kilobytes):
    return f"""Package: {MODULE_DEB}
Version: {deb_version(row)}
Architecture: {control_arch()}
Maintainer: The Gabion maintainers <gabion@localhost>
Depends: {row.nginx_abi}, libc6 (>= {module.glibc}), libgcc-s1
Installed-Size: {kilobytes}
Section: httpd
Priority: optional
Description: distributed rate limits decided inside nginx's workers
 The module counts each request against limits that hold over all members of a
 cluster, nginx and Envoy alike, without a central store.
"""


def deb_version(row):
    return f"{own_version()}+{row.distribution}"


def deb_path(row, folder):
    return folder / f"{MODULE_DEB}_{deb_version(row)}_{control_arch()}.deb"


def deb(row, module, folder):
    """Writes the Debian package into a folder and returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    root = folder / f".{row.name}.root"
    shutil.rmtree(root, ignore_errors=True)
    available = root / "usr/share/nginx/modules-available"
    doc = root / "usr/share/doc" / MODULE_DEB
    modules = root / "usr/lib/nginx/modules"
    for made in (available, doc, modules, root / "DEBIAN"):
        made.mkdir(parents=True)
    shutil.copyfile(module.path, modules / NAME)
    shutil.copyfile(ROOT / "LICENSE", doc / "copyright")
    shutil.copyfile(ROOT / "docs" / "nginx.md", doc / "nginx.md")
    (available / "mod-http-gabion.conf").write_text(f"load_module modules/{NAME};\n",
                                                    encoding="utf-8")
    sizes = sum(path.stat().st_size for path in root.rglob("*") if path.is_file())
    (root / "DEBIAN/control").write_text(control(row, module, sizes // 1024 + 1), encoding="utf-8")
    for name, text in (("postinst", POSTINST), ("prerm", PRERM)):
        (root / "DEBIAN" / name).write_text(text, encoding="utf-8")
    for path in root.rglob("*"):
        script = path.parent.name == "DEBIAN" and path.name != "control"
        path.chmod(0o755 if path.is_dir() or script else 0o644)
    root.chmod(0o755)
    path = deb_path(row, folder)
    done = subprocess.run(["dpkg-deb", "--root-owner-group", "-Zxz", "--build", root, path],
                          env=os.environ | {"SOURCE_DATE_EPOCH": "0"}, capture_output=True,
                          text=True, check=False)
    shutil.rmtree(root)
    if done.returncode:
        raise row.fail(f"dpkg-deb failed: {done.stderr.strip()}", "see what it says")
    return path


def control_arch():
    return {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
