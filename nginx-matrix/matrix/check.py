"""Checks of what is shipped: the same bytes twice, and that it installs into Debian's nginx.

Owns: scratch folders, which are removed. Promises: an installation is tried in a root of its own,
with the distribution's own files. Never: installs into this system.
"""

import os
import shutil
import socket
import subprocess
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

from . import fetch, module, pack, server
from .rows import ROOT

CONF = """gabion_limit_zone zone=gabion:1m;
gabion_limit_rule a $binary_remote_addr rate=3r/h;
server {{ listen 127.0.0.1:{port} default_server; root /usr/share/nginx/html;
    location / {{ gabion_limit a; try_files /index.html =404; }} }}
"""


def copy_of_sources(to):
    """The files that git would keep, as they are now."""
    names = subprocess.run(["git", "-C", ROOT, "ls-files", "-z", "-co", "--exclude-standard"],
                           capture_output=True, check=True).stdout.decode().split("\0")
    for name in filter(None, names):
        if (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)


def reproduce(row, all_rows):
    """Builds a row's tarball here, and from a copy elsewhere with nothing built before."""
    made = server.get(row, all_rows)
    first = module.reused(row, made, module.TARGET / "modules" / row.name)
    with tempfile.TemporaryDirectory(prefix="gabion-elsewhere-") as scratch:
        other = Path(scratch) / "some where" / "else"
        copy_of_sources(other)
        again = module.build(row, made, Path(scratch) / "out", root=other,
                             target=Path(scratch) / "target")
        files = [pack.tarball(row, so, Path(scratch) / folder)
                 for so, folder in ((first, "one"), (again, "two"))]
        if row.from_packages:
            files += [pack.deb(row, so, Path(scratch) / folder)
                      for so, folder in ((first, "one"), (again, "two"))]
        hashes = [fetch.sha256(path) for path in files]
        for n in range(0, len(files), 2):
            if hashes[n] != hashes[n + 1]:
                keep = module.TARGET / "differs"
                shutil.rmtree(keep, ignore_errors=True)
                shutil.copytree(scratch, keep,
                                ignore=shutil.ignore_patterns("target", "some where"))
                raise row.fail(f"two builds of {files[n].name} differ",
                               f"compare the two under {keep} (cmp, diffoscope)")
            print(f"{row.name}: twice the same: {hashes[n]}  {files[n].name}")
    return 0


def root_of(row, folder):
    """The distribution in a root of its own: its nginx, its libraries, its /etc/nginx."""
    unpacked = fetch.packages(row)
    shutil.copytree(unpacked, folder, symlinks=True, ignore=shutil.ignore_patterns(
        "doc", "include", "linux", "src", "locale", "*.a"))
    release = {"bookworm": "12", "trixie": "13"}[row.suite]
    (folder / "etc/os-release").write_text(f'ID=debian\nVERSION_ID="{release}"\n', encoding="utf-8")
    (folder / "etc/passwd").write_text(
        "root:x:0:0::/:/bin/sh\nwww-data:x:33:33::/:/bin/sh\n", encoding="utf-8")
    (folder / "etc/group").write_text("root:x:0:\nwww-data:x:33:\n", encoding="utf-8")
    # The module reads the binary that it is loaded into.
    (folder / "proc/self").mkdir(parents=True)
    (folder / "proc/self/exe").symlink_to("/usr/sbin/nginx")
    for name in ("dev", "run", "var/log/nginx", "var/lib/nginx", "etc/nginx/modules-enabled"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "dev/null").touch()
    for name in (folder / "etc/nginx/sites-enabled").glob("*"):
        name.unlink()  # it listens on a port that is not ours
    return folder


def installer(*args):
    return subprocess.run([ROOT / "tools/install-module", *map(str, args)],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)


def install(all_rows):
    """tools/install-module puts each Debian's tarball into its nginx, which then limits."""
    if os.geteuid() != 0:
        print("NOT TESTED: installation into roots of their own (chroot needs root)")
        return 0
    for row in all_rows.values():
        if not row.from_packages:
            continue
        with tempfile.TemporaryDirectory(prefix="gabion-root-") as scratch:
            root = root_of(row, Path(scratch) / "root")
            done = installer("--root", root, "--from", module.TARGET)
            if done.returncode:
                raise row.fail(f"tools/install-module failed:\n{done.stderr}", "see above")
            if pack.title(row) not in done.stderr:
                raise row.fail(f"another tarball was taken:\n{done.stderr}", "see choices()")
            refused(row, root, all_rows)
            statuses = serve(row, root)
            if statuses != [200, 200, 200, 429]:
                raise row.fail(f"the installed module answered {statuses}", "see docs/nginx.md")
            package(row, root)
        print(f"{row.name}: tarball installed, accepted by nginx -t, limits; a wrong one was taken "
              "back; the package's files load too")
    return 0


def refused(row, root, all_rows):
    """A module of other structures under this one's name: refused, and all is as it was."""
    # The released version of the same number, where its structures differ: only the module knows.
    others = [r for r in all_rows.values()
              if r.default and not r.module_of and (r.core, r.abi) != (row.core, row.abi)]
    other = min(others, key=lambda r: r.core != row.core)
    disguised = disguise(other, row, root.parent)
    installed = root / "usr/lib/nginx/modules" / module.NAME
    before = fetch.sha256(installed)
    done = installer("--root", root, "--from", disguised)
    if done.returncode != 1 or "as it was before" not in done.stderr:
        raise row.fail(f"a module for {other.name} was not refused:\n{done.stderr}", "see above")
    if fetch.sha256(installed) != before:
        raise row.fail("a refused installation was not taken back", "see install_it()")


def disguise(other, row, folder):
    """Another row's module in this row's tarball."""
    path = module.TARGET / "modules" / other.name / module.NAME
    return pack.tarball(row, module.checked(row, path, None), folder)


def package(row, root):
    """The Debian package: it asks for this nginx's ABI, and its files load as it places them."""
    deb = pack.deb_path(row, module.TARGET)
    asked = subprocess.run(["dpkg-deb", "-f", deb, "Depends"], capture_output=True, text=True,
                           check=True).stdout
    if row.nginx_abi not in asked:
        raise row.fail(f"{deb.name} depends on {asked.strip()}", "see control()")
    link = root / "etc/nginx/modules-enabled/50-mod-http-gabion.conf"
    link.unlink()
    (root / "usr/lib/nginx/modules" / module.NAME).unlink()
    subprocess.run(["dpkg-deb", "-x", deb, root], check=True)
    link.symlink_to("/usr/share/nginx/modules-available/mod-http-gabion.conf")
    done = subprocess.run(["chroot", root, "/usr/sbin/nginx", "-t"], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, check=False)
    if done.returncode:
        raise row.fail(f"{deb.name} does not load: {done.stderr}", "see deb()")


def serve(row, root):
    """Starts the nginx of the root with a limit of three, and asks it four times."""
    port = free_port()
    (root / "etc/nginx/conf.d").mkdir(exist_ok=True)
    (root / "etc/nginx/conf.d/gabion.conf").write_text(CONF.format(port=port), encoding="utf-8")
    process = subprocess.Popen(["chroot", root, "/usr/sbin/nginx", "-g", "daemon off;"],
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True)
    try:
        while process.poll() is None:
            try:
                return [status(port) for _ in range(4)]
            except ConnectionRefusedError:
                continue
        raise row.fail(f"the installed nginx ended: {process.stdout.read()}", "see above")
    finally:
        process.terminate()
        process.wait()


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def status(port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=20) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code
    except urllib.error.URLError as error:
        raise error.reason
