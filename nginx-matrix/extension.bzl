"""The rows of versions.toml as a repository: their sources, and rows.bzl with what is known of them.

tools/matrix gets and checks every source, here as on the command line: from a cache, upstream, apt or
cargo. A row whose source cannot be had is left out, with the reason.
"""

_VENDOR_BUILD = """# Written for the crates that cargo vendors.
package(default_visibility = ["//nginx-matrix:__pkg__"])

exports_files(["Cargo.lock"])
"""

def _rows_impl(rctx):
    python = rctx.which("python3") or fail("no python3 (3.11 or later) in PATH")
    for name in ["bazel", "fetch", "module", "pack", "rows", "sbom", "server"]:
        rctx.path(Label("//nginx-matrix:matrix/%s.py" % name))
    rctx.path(Label("//nginx-matrix:versions.toml"))
    tool = rctx.path(Label("//tools:matrix"))
    done = rctx.execute(
        [python, tool, "bazel", "repository", rctx.path(".")],
        timeout = 1800,
    )
    if done.return_code:
        fail(done.stderr)

_rows = repository_rule(
    environ = ["CARGO_HOME", "GABION_MATRIX_CACHE", "GABION_SOURCES", "PATH"],
    implementation = _rows_impl,
)

def _vendor_impl(rctx):
    cargo = rctx.which("cargo") or fail("no cargo in PATH")
    lock = rctx.path(Label("//:Cargo.lock"))
    done = rctx.execute(
        [
            cargo,
            "vendor",
            "--locked",
            "--versioned-dirs",
            "--quiet",
            "--manifest-path",
            rctx.path(Label("//:Cargo.toml")),
            rctx.path("vendor"),
        ],
        timeout = 1800,
    )
    if done.return_code:
        fail("the crates of Cargo.lock cannot be had: " + done.stderr)
    rctx.file("BUILD.bazel", _VENDOR_BUILD)
    rctx.symlink(lock, "Cargo.lock")
    rctx.file("where.bzl", '"""Written for Bazel."""\n\nVENDOR = "%s"\n' % rctx.path("vendor"))

_vendor = repository_rule(
    environ = ["CARGO_HOME", "CARGO_NET_OFFLINE", "PATH"],
    implementation = _vendor_impl,
)

def _extension_impl(_mctx):
    _rows(name = "nginx_matrix")
    _vendor(name = "nginx_matrix_crates")

nginx_matrix = module_extension(_extension_impl)
