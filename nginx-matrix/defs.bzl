"""The targets of each row of versions.toml.

    //nginx-matrix:server_ROW     the server and its configured headers
    //nginx-matrix:module_ROW     the module, built by cargo against them
    //nginx-matrix:smoke_ROW      the module's behaviour tests on that server
    //nginx-matrix:tarball_ROW    what is shipped

cargo builds the module, and not rules_rust: it is built once for each server, and only the two crates
that see nginx's headers differ. The crates from elsewhere are compiled once for all rows.
"""

load("@nginx_matrix//:rows.bzl", "ROWS")
load("@nginx_matrix_crates//:where.bzl", "VENDOR")

# One fixed place, so that neither cargo's fingerprints nor the module depend on the sandbox.
_PREPARE = """set -euo pipefail
here=$PWD
work=/tmp/gabion-nginx-matrix
exec 9>/tmp/gabion-nginx-matrix.lock
flock 9
rm -rf $work
mkdir -p $work/src $work/home/.cargo $work/target $work/cache/sources
export HOME=$work/home CARGO_HOME=$work/home/.cargo CARGO_TERM_COLOR=never CARGO_NET_OFFLINE=true
export GABION_MATRIX_LIST=$here/{rows} GABION_CRATES={vendor} PYTHONDONTWRITEBYTECODE=1 GABION_MATRIX_CACHE=$work/cache
export PATH=$(dirname "$(readlink -f {cargo})"):/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin
printf '[source.crates-io]\\nreplace-with = "vendored"\\n[source.vendored]\\ndirectory = "%s"\\n' \\
    {vendor} >$CARGO_HOME/config.toml
for file in {files}; do
    mkdir -p $work/src/$(dirname $file)
    cp -L $file $work/src/$file
done
for file in {stubs}; do
    mkdir -p $work/src/$(dirname $file)
    echo 'fn main() {{}}' >$work/src/$file
done
cd $work/src
"""

_TOOLS = {
    "_cargo": attr.label(allow_single_file = True, default = "@host_rust//:cargo"),
    "_crates": attr.label(allow_single_file = True, default = "@nginx_matrix_crates//:Cargo.lock"),
    "_steps": attr.label(default = "//nginx-matrix:steps"),
    "_version": attr.label(allow_single_file = True, default = "@host_rust//:version.txt"),
}

_CARGO = _TOOLS | {
    "manifests": attr.label_list(allow_files = True),
    "others": attr.label_list(allow_files = True),
    "srcs": attr.label_list(allow_files = True),
}

def _paths(files):
    return " ".join(["'%s'" % file.path for file in files])

def _run(ctx, mnemonic, message, inputs, outputs, command, files = [], stubs = []):
    """An action in the fixed place; `files` are copied there, `stubs` are there by name only."""
    files = ctx.files._steps + files

    # Only this row: a change of another builds nothing here again.
    rows = ctx.actions.declare_file(ctx.label.name + ".rows.json")
    ctx.actions.write(rows, ROWS[ctx.attr.row]["list"])
    ctx.actions.run_shell(
        command = _PREPARE.format(
            cargo = ctx.file._cargo.path,
            files = _paths(files),
            rows = rows.path,
            stubs = _paths(stubs),
            vendor = VENDOR,
        ) + command,
        inputs = depset(
            inputs + files + [rows, ctx.file._cargo, ctx.file._crates, ctx.file._version],
        ),
        mnemonic = mnemonic,
        outputs = outputs,
        progress_message = message,
    )

def _server_impl(ctx):
    out = ctx.actions.declare_directory(ctx.label.name)
    if ctx.attr.root:
        place = "ln -s '%s' $work/cache/%s\n" % (ctx.attr.root, ctx.attr.row)
    else:
        place = "cp -L $here/%s $work/cache/sources/\n" % ctx.file.source.path
    libc = ROWS[ctx.attr.row]["libc_of"]
    if libc and ROWS[libc]["root"]:
        place += "ln -s '%s' $work/cache/%s\n" % (ROWS[libc]["root"], libc)
    _run(
        ctx,
        command = place + "python3 tools/matrix bazel server %s $here/%s" % (
            ctx.attr.row,
            out.path,
        ),
        inputs = [ctx.file.source],
        message = "Building the server of %{label}",
        mnemonic = "NginxServer",
        outputs = [out],
    )
    return [DefaultInfo(files = depset([out]))]

matrix_server = rule(
    attrs = _TOOLS | {
        "root": attr.string(doc = "Where a distribution's packages are unpacked."),
        "row": attr.string(mandatory = True),
        "source": attr.label(allow_single_file = True, mandatory = True),
    },
    doc = "A row's server: built from its source, or the distribution's own.",
    implementation = _server_impl,
)

def _crates_impl(ctx):
    out = ctx.actions.declare_file(ctx.label.name + ".tar")
    server = ctx.files.server[0]
    _run(
        ctx,
        command = """cp -rL $here/{server} $work/server
python3 tools/matrix bazel module {row} $work/server '' $work/out $work/target
cd $work/target
# What is of the members and of one nginx is not shared.
find . \\( -name '*gabion[-_]*' -o -name '*nginx[-_]sys-*' \\) -prune -exec rm -rf {{}} +
tar --sort=name --mtime=@1 --owner=0 --group=0 -cf $here/{out} .
""".format(out = out.path, row = ctx.attr.row, server = server.path),
        files = ctx.files.manifests,
        inputs = [server],
        message = "Compiling the crates that all modules share",
        mnemonic = "NginxModuleCrates",
        outputs = [out],
        stubs = ctx.files.srcs + ctx.files.others,
    )
    return [DefaultInfo(files = depset([out]))]

module_crates = rule(
    attrs = _CARGO | {
        "row": attr.string(mandatory = True),
        "server": attr.label(mandatory = True),
    },
    doc = "What cargo makes of the crates from elsewhere: the same for each row.",
    implementation = _crates_impl,
)

def _module_impl(ctx):
    out = ctx.actions.declare_directory(ctx.label.name)
    server = ctx.files.server[0]
    row = ROWS[ctx.attr.row]
    root = row["root"] or (ROWS[row["libc_of"]]["root"] if row["libc_of"] else "")
    _run(
        ctx,
        command = """tar -xf $here/{crates} -C $work/target
# cargo compares times: what is unpacked is newer than every source.
find $work/target -exec touch -h -d "$(date -d '1 minute' +@%s)" {{}} +
cp -rL $here/{server} $work/server-{row}
python3 tools/matrix bazel module {row} $work/server-{row} '{root}' $here/{out} $work/target
rm -f $here/{out}/log
""".format(
            crates = ctx.file.crates.path,
            out = out.path,
            root = root,
            row = ctx.attr.row,
            server = server.path,
        ),
        files = ctx.files.manifests + ctx.files.srcs,
        inputs = [server, ctx.file.crates],
        message = "Building the module of %{label}",
        mnemonic = "NginxModule",
        outputs = [out],
        stubs = ctx.files.others,
    )
    return [DefaultInfo(files = depset([out]))]

matrix_module = rule(
    attrs = _CARGO | {
        "crates": attr.label(allow_single_file = True, mandatory = True),
        "row": attr.string(mandatory = True),
        "server": attr.label(mandatory = True),
    },
    doc = "The module for a row's server, linked against its distribution's C library.",
    implementation = _module_impl,
)

def _tarball_impl(ctx):
    out = ctx.actions.declare_file(ROWS[ctx.attr.row]["title"] + ".tar.gz")
    module = ctx.files.module[0]
    _run(
        ctx,
        command = "python3 tools/matrix bazel tarball %s $here/%s $here/%s" % (
            ctx.attr.row,
            module.path,
            out.path,
        ),
        inputs = [module],
        message = "Packing %{label}",
        mnemonic = "NginxTarball",
        outputs = [out],
    )
    return [DefaultInfo(files = depset([out]))]

matrix_tarball = rule(
    attrs = _TOOLS | {
        "module": attr.label(mandatory = True),
        "row": attr.string(mandatory = True),
    },
    doc = "A row's tarball.",
    implementation = _tarball_impl,
)

def _smoke_impl(ctx):
    row = ROWS[ctx.attr.row]
    root = row["root"] or (ROWS[row["module_of"]]["root"] if row["module_of"] else "")
    script = ctx.actions.declare_file(ctx.label.name + ".sh")
    server, module = ctx.files.server[0], ctx.files.module[0]
    ctx.actions.write(script, """#!/usr/bin/env bash
# The behaviour tests, on one server with one module.
set -euo pipefail
programs=$(mktemp -d)
for program in {programs}; do ln -s "$PWD/$program" "$programs/"; done
export NGINX_BINARY=$PWD/{server}/nginx GABION_MODULE=$PWD/{module}/ngx_http_gabion_module.so
export GABION_PROGRAMS=$programs GABION_LUA={root} PATH=$PATH:/usr/sbin:/sbin
[ -n "$GABION_LUA" ] || unset GABION_LUA
# Those that are skipped need a module with debug assertions (matrix/smoke.py).
{test} {filters} --skip failures:: | tee "$programs/log"
grep -q 'test result: ok. [1-9]' "$programs/log" || {{ echo 'no test ran' >&2; exit 1; }}
""".format(
        filters = " ".join(row["smoke"]),
        module = module.short_path,
        programs = " ".join([file.short_path for file in ctx.files.programs]),
        root = root,
        server = server.short_path,
        test = ctx.executable.tests.short_path,
    ), is_executable = True)
    files = [server, module, ctx.executable.tests] + ctx.files.programs + ctx.files.data
    runfiles = ctx.runfiles(files = files).merge(ctx.attr.tests[DefaultInfo].default_runfiles)
    return [DefaultInfo(executable = script, runfiles = runfiles)]

matrix_smoke_test = rule(
    attrs = {
        "data": attr.label_list(allow_files = True),
        "module": attr.label(mandatory = True),
        "programs": attr.label_list(allow_files = True),
        "row": attr.string(mandatory = True),
        "server": attr.label(mandatory = True),
        "tests": attr.label(cfg = "target", executable = True, mandatory = True),
    },
    doc = "The module's behaviour tests on a row's server.",
    implementation = _smoke_impl,
    test = True,
)

def _left_out_impl(ctx):
    out = ctx.actions.declare_file(ctx.label.name)
    ctx.actions.run_shell(
        arguments = ["row %s is left out: %s" % (ctx.attr.row, ctx.attr.reason)],
        command = 'echo "error: $1" >&2; exit 1',
        mnemonic = "NginxLeftOut",
        outputs = [out],
    )
    return [DefaultInfo(files = depset([out]))]

left_out = rule(
    attrs = {
        "reason": attr.string(mandatory = True),
        "row": attr.string(mandatory = True),
    },
    doc = "A row that cannot be built here: says why when it is asked for by name.",
    implementation = _left_out_impl,
)

def matrix(name, srcs, manifests, others, tests, programs, data):
    """All rows' targets.

    Args:
      name: of the crates that all rows share; a row's targets are named after the row.
      srcs: the sources of the module and of the rooms it is made of.
      manifests: every Cargo.toml, and Cargo.lock.
      others: sources of rooms that are only named in Cargo.toml.
      tests: the program of behaviour tests.
      programs: those that the tests start.
      data: files that the tests read.
    """
    crates = name
    cargo = {"manifests": manifests, "others": others, "srcs": srcs}
    built = [name for name in ROWS if not ROWS[name]["reason"] and not ROWS[name]["module_of"]]
    if built:
        module_crates(
            name = name,
            row = built[0],
            server = ":server_" + built[0],
            tags = ["manual"],
            **cargo
        )
    for name, row in ROWS.items():
        if row["reason"]:
            for kind in ["server", "module", "smoke", "tarball"]:
                left_out(
                    name = "%s_%s" % (kind, name),
                    reason = row["reason"],
                    row = name,
                    tags = ["manual"],
                )
            continue
        origin = row["module_of"] or name
        if row["module_of"]:
            for kind in ["server", "module"]:
                native.alias(
                    name = "%s_%s" % (kind, name),
                    actual = ":%s_%s" % (kind, origin),
                )
        else:
            matrix_server(
                name = "server_" + name,
                root = row["root"],
                row = name,
                source = "@nginx_matrix//:" + row["source"],
            )
            matrix_module(
                name = "module_" + name,
                crates = ":" + crates,
                row = name,
                server = ":server_" + name,
                **cargo
            )
            matrix_tarball(
                name = "tarball_" + name,
                module = ":module_" + name,
                row = name,
            )
        matrix_smoke_test(
            name = "smoke_" + name,
            size = "large",
            data = data,
            module = ":module_" + name,
            programs = programs,
            row = name,
            server = ":server_" + name,
            # nginx changes its user, which the sandbox's user namespace does not let it.
            tags = [
                "exclusive-if-local",
                "no-sandbox",
            ],
            tests = tests,
        )
