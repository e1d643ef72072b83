"""How a room (a crate) is built and tested. Every room has targets of the same names:

    //rust/ROOM:ROOM            the library
    //rust/ROOM:unit_test       the tests inside it
    //rust/ROOM:NAME_test       tests/NAME.rs, for every such file
    //rust/ROOM:example_NAME    examples/NAME.rs, for every such file
    //rust/ROOM:clippy          clippy over the library and its unit tests
    //rust/ROOM:srcs            its sources
"""

load("@crates//:defs.bzl", "all_crate_deps")
load("@rules_rust//cargo:defs.bzl", "cargo_build_script")
load("@rules_rust//rust:defs.bzl", "rust_binary", "rust_clippy", "rust_library", "rust_test")

# The version in the root Cargo.toml; tools/tidy sees to it that they are the same.
VERSION = "0.1.0"

# The oldest compiler, as there: clippy asks for nothing newer.
_RUST_VERSION = "1.85"

# Rooms are optimised a little even in quick builds: their tests take millions of steps. All checks
# stay on.
FLAGS = select({
    "//tools/bazel:fastbuild": [
        "-Copt-level=1",
        "-Cdebug-assertions=on",
        "-Coverflow-checks=on",
    ],
    "//conditions:default": [],
})

def _env():
    return {
        # Tests find the tree's files from here, since Bazel runs them at its root; a whole path would
        # be the sandbox's, and another one in each build.
        "CARGO_MANIFEST_DIR": native.package_name(),
        "CARGO_PKG_RUST_VERSION": _RUST_VERSION,
    }

def room(
        name,
        crate_name,
        visibility,
        deps = [],
        compile_data = [],
        build_data = None,
        exclude = [],
        test_data = [],
        test_env = {}):
    """The library of a room, its unit tests, and clippy.

    Args:
      name: the room.
      crate_name: as Rust code names it.
      visibility: which rooms may import it: a package group of //rust.
      deps: libraries of other rooms. Crates from elsewhere come from Cargo.toml.
      compile_data: files that the code includes.
      build_data: files that build.rs reads; None where there is no build.rs.
      exclude: files of src that belong to binaries.
      test_data: files that the unit tests read.
      test_env: variables that the unit tests read.
    """
    if build_data != None:
        cargo_build_script(
            name = "build_script",
            srcs = ["build.rs"],
            crate_root = "build.rs",
            data = build_data,
            version = VERSION,
            deps = all_crate_deps(build = True),
            proc_macro_deps = all_crate_deps(build_proc_macro = True),
        )

    # A guide names what these say, and the module is built once for each nginx.
    native.filegroup(
        name = "srcs",
        srcs = native.glob(["src/**/*.rs"]),
        visibility = [
            "//nginx-matrix:__subpackages__",
            "//rust:__subpackages__",
        ],
    )
    rust_library(
        name = name,
        srcs = native.glob(
            ["src/**/*.rs"],
            exclude = ["src/main.rs", "src/bin/**"] + exclude,
        ),
        compile_data = compile_data,
        crate_name = crate_name,
        proc_macro_deps = all_crate_deps(proc_macro = True),
        rustc_env = _env(),
        rustc_flags = FLAGS,
        version = VERSION,
        # directions_test asks who may see whom, for which it has to see all.
        visibility = visibility + ["//tools/bazel:__pkg__"],
        deps = deps + all_crate_deps(normal = True) +
               ([":build_script"] if build_data != None else []),
    )
    rust_test(
        name = "unit_test",
        crate = ":" + name,
        compile_data = compile_data,
        data = test_data,
        env = test_env,
        proc_macro_deps = all_crate_deps(proc_macro_dev = True),
        rustc_env = _env(),
        rustc_flags = FLAGS,
        deps = all_crate_deps(normal_dev = True),
    )
    rust_clippy(
        name = "clippy",
        testonly = True,
        deps = [":" + name, ":unit_test"],
    )

def binary(name, srcs, crate_root, deps, **kwargs):
    """A program of a room."""
    rust_binary(
        name = name,
        srcs = srcs,
        crate_root = crate_root,
        proc_macro_deps = all_crate_deps(proc_macro = True),
        rustc_env = _env(),
        rustc_flags = FLAGS,
        version = VERSION,
        deps = deps + all_crate_deps(normal = True),
        **kwargs
    )

def integration_tests(deps, data = [], env = {}, tags = {}, sizes = {}, args = {}):
    """A test for each file of tests/, and a program for each of examples/.

    Args:
      deps: libraries of rooms, this room's first.
      data: files and programs that the tests read and run.
      env: variables for all of them.
      tags: tags for a test, by the name of its file.
      sizes: Bazel's size of a test, by the name of its file.
      args: arguments for a test, by the name of its file.
    """
    shared = native.glob(["tests/*/**/*.rs"], allow_empty = True)
    for file in native.glob(["tests/*.rs"], allow_empty = True):
        stem = file[len("tests/"):-len(".rs")]
        rust_test(
            name = stem + "_test",
            size = sizes.get(stem, "medium"),
            srcs = [file] + shared,
            args = args.get(stem, []),
            crate_root = file,
            data = data,
            env = env,
            proc_macro_deps = all_crate_deps(proc_macro = True, proc_macro_dev = True),
            rustc_env = _env(),
            rustc_flags = FLAGS,
            tags = tags.get(stem, []),
            version = VERSION,
            deps = deps + all_crate_deps(normal = True, normal_dev = True),
        )
    for file in native.glob(["examples/*.rs"], allow_empty = True):
        stem = file[len("examples/"):-len(".rs")]
        rust_binary(
            name = "example_" + stem,
            testonly = True,
            srcs = [file] + shared,
            crate_root = file,
            proc_macro_deps = all_crate_deps(proc_macro = True, proc_macro_dev = True),
            rustc_env = _env(),
            rustc_flags = FLAGS,
            version = VERSION,
            deps = deps + all_crate_deps(normal = True, normal_dev = True),
        )
