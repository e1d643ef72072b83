"""The list of what a module is made of: CycloneDX 1.5, from Cargo.lock and cargo's own tree.

Owns: its form. Promises: the same bytes for the same Cargo.lock; each crate that is linked in, its
licence, and the hash that Cargo.lock pins. Never: the crates of other programs of the workspace.
"""

import json
import re
import subprocess
import tomllib


def crates(row, env, root):
    """(name, version, licence) of each crate that is linked into the module."""
    done = subprocess.run(
        ["cargo", "tree", "--locked", "-p", "gabion-nginx", "--features", "ngx-module",
         "--edges", "normal,no-proc-macro", "--prefix", "none", "--format", "{p}|{l}"],
        cwd=root, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise row.fail(f"cargo tree failed: {done.stderr.strip()}", "see what cargo says")
    found = set()
    for line in done.stdout.split("\n"):
        match = re.match(r"(\S+) v(\S+)[^|]*\|([^(]*)", line)
        if match:
            found.add((match[1], match[2], match[3].strip()))
    return sorted(found)


def document(row, version, env, root):
    """The document, as bytes."""
    lock = tomllib.loads((root / "Cargo.lock").read_text(encoding="utf-8"))
    pinned = {(p["name"], p["version"]): p.get("checksum") for p in lock["package"]}
    components = []
    for name, number, licence in crates(row, env, root):
        one = {"type": "library", "name": name, "version": number,
               "purl": f"pkg:cargo/{name}@{number}"}
        if licence:
            one["licenses"] = [{"expression": licence.replace("/", " OR ")}]
        if pinned.get((name, number)):
            one["hashes"] = [{"alg": "SHA-256", "content": pinned[name, number]}]
        components.append(one)
    whole = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {
            "type": "library", "name": "ngx_http_gabion_module", "version": version,
            "description": f"for {row.distribution}, core {row.core}",
            "licenses": [{"license": {"id": "MIT"}}]}},
        "components": components,
    }
    return (json.dumps(whole, indent=1, sort_keys=True) + "\n").encode()
