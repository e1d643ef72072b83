"""What rules_rust fetches in its module file, from the environment instead."""

load("@bazel_tools//tools/build_defs/repo:http.bzl", "http_archive")

# It is put into rules_rust itself.
load("//rust/private:repository_utils.bzl", "TINYJSON_KWARGS")  # buildifier: disable=bzl-visibility

def _host_tools_impl(rctx):
    rustc = rctx.which("rustc")
    if not rustc:
        fail("no rustc in PATH")
    sysroot = rctx.execute([rustc, "--print", "sysroot"]).stdout.strip()
    for tool in ["cargo", "rustc"]:
        rctx.symlink(sysroot + "/bin/" + tool, "bin/" + tool)
    rctx.file("BUILD.bazel", 'exports_files(["bin/cargo", "bin/rustc"])\n')

_host_tools = repository_rule(
    environ = ["PATH", "RUSTUP_TOOLCHAIN"],
    implementation = _host_tools_impl,
    local = True,
)

def _empty_impl(rctx):
    rctx.file("BUILD.bazel", "")

_empty = repository_rule(implementation = _empty_impl)

def _offline_impl(_mctx):
    http_archive(**TINYJSON_KWARGS)
    _host_tools(name = "rust_host_tools")
    _empty(name = "cargo_bazel_bootstrap")

offline = module_extension(implementation = _offline_impl)
