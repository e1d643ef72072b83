"""The Rust toolchain of the environment: the one whose `rustc` is in PATH. Nothing is downloaded."""

_BUILD = """
load("@rules_rust//rust:toolchain.bzl", "rust_stdlib_filegroup", "rust_toolchain", "rustfmt_toolchain")

package(default_visibility = ["//visibility:public"])

exports_files(["version.txt"])

filegroup(name = "rustc", srcs = ["bin/rustc"])

filegroup(name = "cargo", srcs = ["bin/cargo"])

filegroup(name = "rustdoc", srcs = ["bin/rustdoc"])

filegroup(
    name = "rustc_lib",
    srcs = glob(
        ["lib/*.so*", "lib/rustlib/{triple}/bin/**", "lib/rustlib/{triple}/lib/*.so*"],
        allow_empty = True,
    ),
)

rust_stdlib_filegroup(
    name = "rust_std",
    srcs = glob(
        [
            "lib/rustlib/{triple}/lib/*.a",
            "lib/rustlib/{triple}/lib/*.rlib",
            # From 1.95 on, a library's metadata is in a file of its own.
            "lib/rustlib/{triple}/lib/*.rmeta",
            "lib/rustlib/{triple}/lib/*.so*",
            "lib/rustlib/{triple}/lib/self-contained/**",
        ],
        allow_empty = True,
    ),
)

rust_toolchain(
    name = "rust_toolchain",
    binary_ext = "",
    cargo = ":cargo",
    default_edition = "2021",
    dylib_ext = ".so",
    exec_triple = "{triple}",
    rust_doc = ":rustdoc",
    rust_std = ":rust_std",
    rustc = ":rustc",
    rustc_lib = ":rustc_lib",
    staticlib_ext = ".a",
    stdlib_linkflags = ["-lpthread", "-ldl"],
    target_triple = "{triple}",
    {attributes}
)

toolchain(
    name = "toolchain",
    exec_compatible_with = ["@platforms//os:linux", "@platforms//cpu:{cpu}"],
    target_compatible_with = ["@platforms//os:linux", "@platforms//cpu:{cpu}"],
    toolchain = ":rust_toolchain",
    toolchain_type = "@rules_rust//rust:toolchain_type",
)
"""

_CLIPPY = """
filegroup(name = "clippy_driver", srcs = ["bin/clippy-driver"])

filegroup(name = "cargo_clippy", srcs = ["bin/cargo-clippy"])
"""

_RUSTFMT = """
filegroup(name = "rustfmt", srcs = ["bin/rustfmt"])

rustfmt_toolchain(
    name = "rustfmt_toolchain_of_host",
    rustfmt = ":rustfmt",
)

toolchain(
    name = "rustfmt_toolchain",
    exec_compatible_with = ["@platforms//os:linux", "@platforms//cpu:{cpu}"],
    toolchain = ":rustfmt_toolchain_of_host",
    toolchain_type = "@rules_rust//rust/rustfmt:toolchain_type",
)
"""

# Bazel's names of the processors; any other is called as Rust calls it.
_CPUS = {"x86_64": "x86_64", "aarch64": "aarch64"}

def _host_rust_impl(rctx):
    rustc = rctx.which("rustc")
    if not rustc:
        fail("no rustc in PATH: enter `nix develop`, or install Rust with rustup, then try again")
    asked = rctx.execute([rustc, "--print", "sysroot"])
    if asked.return_code:
        fail("rustc --print sysroot failed; does `rustc -vV` work here?\n" + asked.stderr)
    sysroot = asked.stdout.strip()
    version = rctx.execute([rustc, "-vV"]).stdout
    triple = [line[len("host: "):] for line in version.splitlines() if line.startswith("host: ")][0]
    cpu = triple.split("-")[0]
    for folder in ["bin", "lib"]:
        rctx.symlink(sysroot + "/" + folder, folder)
    values = {"attributes": "", "cpu": _CPUS.get(cpu, cpu), "triple": triple}
    build = _BUILD
    if rctx.path(sysroot + "/bin/clippy-driver").exists:
        build += _CLIPPY
        values["attributes"] = 'clippy_driver = ":clippy_driver", cargo_clippy = ":cargo_clippy",'
    if rctx.path(sysroot + "/bin/rustfmt").exists:
        build += _RUSTFMT

    # Another compiler is another repository: what was built with the old one is built again.
    rctx.file("version.txt", version)
    rctx.file("BUILD.bazel", build.format(**values))

_host_rust = repository_rule(
    configure = True,
    environ = ["PATH", "RUSTUP_TOOLCHAIN"],
    implementation = _host_rust_impl,
    local = True,
)

def _extension_impl(_mctx):
    _host_rust(name = "host_rust")

host_rust = module_extension(_extension_impl)
