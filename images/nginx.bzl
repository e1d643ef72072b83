"""The layer of nginx: a server of //nginx-matrix, its distribution's libraries, and the module."""

load("@nginx_matrix//:rows.bzl", "ROWS")

# Whose nginx the image holds.
ROW = "debian-12"

# Empty where the row's packages cannot be had.
ROOT = ROWS[ROW]["root"]

def _nginx_layer_impl(ctx):
    out = ctx.actions.declare_file(ctx.label.name + ".tar")
    server, module = ctx.files.server[0], ctx.files.module[0]
    arguments = ctx.actions.args()
    arguments.add_all([ctx.file._tool, "layer", out, "--strip", "--root", ROOT])

    # The server of the matrix is told where ROOT's libraries are on this machine; the image gets the
    # distribution's own.
    arguments.add_all(["--program", ROOT + "/usr/sbin/nginx", "/usr/sbin/nginx"])
    arguments.add_all([
        "--program",
        module.path + "/ngx_http_gabion_module.so",
        "/usr/lib/nginx/modules/ngx_http_gabion_module.so",
    ])
    arguments.add_all(["--file", ROOT + "/etc/nginx/mime.types", "/etc/nginx/mime.types"])
    arguments.add_all(["--file", ctx.file.configuration, "/etc/nginx/nginx.conf"])
    arguments.add_all(["--file", ctx.file.page, "/usr/share/nginx/html/index.html"])
    arguments.add_all(["--file", ctx.file.licence, "/usr/share/doc/gabion/copyright"])
    ctx.actions.run(
        arguments = [arguments],
        executable = "python3",
        inputs = [
            ctx.file._tool,
            ctx.file.configuration,
            ctx.file.licence,
            ctx.file.page,
            module,
            server,
        ],
        mnemonic = "OciLayer",
        outputs = [out],
        progress_message = "Layer %{label}",
        use_default_shell_env = True,
    )
    return [DefaultInfo(files = depset([out]))]

nginx_layer = rule(
    attrs = {
        "configuration": attr.label(
            allow_single_file = True,
            mandatory = True,
        ),
        "licence": attr.label(
            allow_single_file = True,
            mandatory = True,
        ),
        "module": attr.label(mandatory = True),
        "page": attr.label(
            allow_single_file = True,
            mandatory = True,
        ),
        "server": attr.label(mandatory = True),
        "_tool": attr.label(
            allow_single_file = True,
            default = "//images:oci.py",
        ),
    },
    doc = "A layer: a tar file.",
    implementation = _nginx_layer_impl,
)
