"""Plants one violation of each kind in a scratch tree and checks that tidy finds exactly that one.

Owns: the planted violations. Promises: a rule that stops working fails here. Never: touches the
project's own files.
"""

import os
import tempfile

BAN = "".join(f'"{b}"\n' for b in (
    "std::time::Instant::now", "std::time::SystemTime::now", "std::thread::spawn",
    "std::net::UdpSocket", "std::fs::File", "std::collections::HashMap"))
CARGO = '[package]\nname = "gabion-{}"\n[lints]\nworkspace = true\n'
LIB = "//! A module.\n#![forbid(unsafe_code)]\n"
CLEAN = {
    "rust/rule/Cargo.toml": CARGO.format("rule"),
    "rust/rule/clippy.toml": BAN,
    "rust/rule/src/lib.rs": LIB + "/// spec: abc-1, abc-2\npub fn ok() { let _ = \"unsafe\"; }\n",
    "rust/table/Cargo.toml": CARGO.format("table") + "[dev-dependencies]\nserde.workspace = true\n",
    "rust/table/src/lib.rs": "//! A module.\n// SAFETY: none needed\nunsafe impl Send for A {}\n",
    "docs/spec/abc.md": "# Abc\n\n- [abc-1] One.\n- [abc-2] Two, see\n[abc-1].\n",
    "docs/dependencies.md": "| `serde` | why |\n",
    "MODULE.bazel": '"//rust/rule:Cargo.toml" "//rust/table:Cargo.toml"\n',
    "nginx-matrix/BUILD.bazel": '"rule" "//rust/table"',
    "rust/rule/BUILD.bazel": "",
    "rust/table/BUILD.bazel": "",
    "Cargo.toml": '[workspace.package]\nversion = "1.0"\n[workspace.dependencies]\nserde = "1"\n',
    "README.md": "[spec](docs/spec/abc.md#abc) and http://127.0.0.1:1/\n",
    "tools/go": "#!/usr/bin/env bash\nset -euo pipefail\ntrue\n",
}
LONG_FN = "fn long() {\n" + "    work();\n" * 69 + "}\n"
# (file, text to append or None to delete, words the violation must have)
PLANTED = [
    ("rust/rule/src/lib.rs", LONG_FN, "`long` has 71 lines"),
    ("rust/rule/src/lib.rs", "// line\n" * 600, "a file has 600 at most"),
    ("tools/go", "true\n" * 600, "a file has 600 at most"),
    ("rust/rule/src/lib.rs", "// " + "x" * 98 + "\n", "101 columns"),
    ("rust/rule/src/lib.rs", "// x \n", "white space"),
    ("rust/wasm/web/src/a.ts", "// " + "x" * 98 + "\n", "101 columns"),
    ("rust/wasm/web/src/a.ts", "let a = 1;\n", "no comment at the head"),
    ("rust/rule/src/lib.rs", "fn f() { unsafe { g() } }\n", "`unsafe` outside rust/table"),
    ("rust/table/src/lib.rs", "fn f() { unsafe { g() } }\n", "without a `// SAFETY:`"),
    ("rust/rule/src/new.rs", "//! Fine.\n// spec: abc-3\n", "[abc-3] is in no docs/spec"),
    ("rust/rule/src/new.rs", "fn f() {}\n", "no module comment"),
    ("rust/rule/src/main.rs", "//! Fine.\n", "no `#![forbid(unsafe_code)]`"),
    ("docs/spec/abc.md", "- [abc-2] Again.\n", "[abc-2] is already at docs/spec/abc.md:4"),
    ("docs/spec/abc.md", "\nSee [abc-9].\n", "[abc-9] is in no docs/spec"),
    ("README.md", "see /wo" + "rk/main\n", "belongs to one machine"),
    ("README.md", "from py" + "pi.org\n", "belongs to one machine"),
    ("README.md", "http" + "://10.1.2.3/\n", "address `10.1.2.3`"),
    ("README.md", "[gone](docs/gone.md)\n", "link to `docs/gone.md`, which is not there"),
    ("README.md", "[gone](docs/spec/abc.md#gone)\n", "which has no such heading"),
    ("rust/rule/clippy.toml", None, "must ban std::time::Instant::now"),
    ("rust/rule/Cargo.toml", "[dependencies]\ngabion-table.workspace = true\n",
     "`rule` may not import `table`"),
    ("rust/table/Cargo.toml", "[dependencies]\ngabion-node.workspace = true\n",
     "`table` may not import `node`"),
    ("rust/rule/Cargo.toml", "[dependencies]\ntokio.workspace = true\n",
     "`tokio` in the pure room"),
    ("rust/table/Cargo.toml", '[dependencies]\nserde = "1"\n', "take it from"),
    ("rust/wire/Cargo.toml", '[package]\nname = "gabion-wire"\n', "no `[lints] workspace"),
    ("Cargo.toml", 'rand = "1"\n', "`rand` has no line in docs/dependencies.md"),
    ("Cargo.toml", 'other = "1"\n', "no room uses `other`"),
    ("tools/bazel/rust.bzl", 'VERSION = "0.9"\n', "not the version in Cargo.toml, 1.0"),
    ("MODULE.bazel", '    version = "0.9",\n', "not the version in Cargo.toml, 1.0"),
    ("deploy/helm/x/Chart.yaml", "version: 0.9\n", "not the version in Cargo.toml, 1.0"),
    ("deploy/x.yaml", "image: a/gabion/nginx:0.9\n", "not the version in Cargo.toml, 1.0"),
    ("rust/new/Cargo.toml", CARGO.format("new"), "not in the manifests of MODULE.bazel"),
    ("rust/new/Cargo.toml", CARGO.format("new"), "no BUILD.bazel beside it"),
    ("rust/new/Cargo.toml", CARGO.format("new"), "in neither list of nginx-matrix/BUILD.bazel"),
    ("tools/new", "#!/usr/bin/env bash\ntrue\n", "no `set -euo pipefail`"),
    ("tools/go", "if then\n", "syntax error"),
]


def write(root, path, text, append=False):
    full = os.path.join(root, path)
    os.makedirs(os.path.dirname(full), exist_ok=True)
    with open(full, "a" if append else "w", encoding="utf-8") as f:
        f.write(text)
    if text.startswith("#!/"):
        os.chmod(full, 0o755)


def plant(check, path, text, want):
    """What is wrong with finding this violation, or None."""
    with tempfile.TemporaryDirectory() as root:
        for name, content in CLEAN.items():
            write(root, name, content)
        clean, _ = check(root)
        if clean:
            return f"the clean tree is not clean: {clean[0]}"
        if text is None:
            os.remove(os.path.join(root, path))
        else:
            write(root, path, text, append=True)
        found, _ = check(root)
        if not any(line.startswith(path) and want in line for line in found):
            return f"planted in {path}, not found: {want}; found {found}"
    return None


def main(check):
    failed = 0
    for path, text, want in PLANTED:
        wrong = plant(check, path, text, want)
        if wrong:
            failed += 1
            print(f"tidy self-test: {wrong}")
    print(f"{len(PLANTED) - failed} passed, {failed} failed")
    return 1 if failed else 0
