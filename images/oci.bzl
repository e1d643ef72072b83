"""OCI images without a daemon: layers that are plain tar files, and a layout folder around them.

Both are made by images/oci.py (Python's standard library) and hold no time of day, user or path of
the machine, so that two builds give the same bytes.
"""

def _layer_impl(ctx):
    out = ctx.actions.declare_file(ctx.label.name + ".tar")
    arguments = ctx.actions.args()
    arguments.add(ctx.file._tool)
    arguments.add("layer")
    arguments.add(out)
    for folder, mode in ctx.attr.folders.items():
        arguments.add_all("--folder", [folder, mode])
    inputs = []
    for attribute, option in [(ctx.attr.files, "--file"), (ctx.attr.programs, "--program")]:
        for target, path in attribute.items():
            files = target.files.to_list()
            if len(files) != 1:
                fail("%s: a layer takes targets of one file" % target.label)
            inputs.append(files[0])
            arguments.add_all(option, [files[0], path])
    if ctx.attr.strip:
        arguments.add("--strip")
    ctx.actions.run(
        arguments = [arguments],
        executable = "python3",
        inputs = inputs + [ctx.file._tool],
        mnemonic = "OciLayer",
        outputs = [out],
        progress_message = "Layer %{label}",
        use_default_shell_env = True,
    )
    return [DefaultInfo(files = depset([out]))]

oci_layer = rule(
    attrs = {
        "files": attr.label_keyed_string_dict(
            allow_files = True,
            doc = "Files, and where they are in the image; readable by everyone.",
        ),
        "folders": attr.string_dict(doc = "Empty folders, and their modes in octal."),
        "programs": attr.label_keyed_string_dict(
            allow_files = True,
            doc = "Programs and where they are. The shared libraries that they need, and their " +
                  "loader, come with them, from the system that builds.",
        ),
        "strip": attr.bool(
            default = True,
            doc = "Leaves symbols and debug information out of programs.",
        ),
        "_tool": attr.label(
            allow_single_file = True,
            default = "//images:oci.py",
        ),
    },
    doc = "A layer: a tar file.",
    implementation = _layer_impl,
)

def _image_impl(ctx):
    out = ctx.actions.declare_directory(ctx.label.name)
    config = ctx.actions.declare_file(ctx.label.name + ".json")
    ctx.actions.write(config, json.encode({
        "architecture": ctx.attr.architecture,
        "config": {
            "Cmd": ctx.attr.cmd,
            "Entrypoint": ctx.attr.entrypoint,
            "ExposedPorts": {port: {} for port in ctx.attr.ports},
            "Labels": ctx.attr.labels,
            "StopSignal": ctx.attr.stop_signal,
            "User": ctx.attr.user,
            "WorkingDir": "/",
        },
    }))
    arguments = ctx.actions.args()
    arguments.add(ctx.file._tool)
    arguments.add("image")
    arguments.add(out.path)
    arguments.add(config)
    arguments.add_all(ctx.files.layers)
    ctx.actions.run(
        arguments = [arguments],
        executable = "python3",
        inputs = ctx.files.layers + [config, ctx.file._tool],
        mnemonic = "OciImage",
        outputs = [out],
        progress_message = "Image %{label}",
        use_default_shell_env = True,
    )
    return [DefaultInfo(
        files = depset([out]),
        runfiles = ctx.runfiles([out]),
    )]

oci_image = rule(
    attrs = {
        "architecture": attr.string(mandatory = True),
        "cmd": attr.string_list(doc = "Arguments, when whoever runs it gives none."),
        "entrypoint": attr.string_list(mandatory = True),
        "labels": attr.string_dict(mandatory = True),
        "layers": attr.label_list(
            allow_files = [".tar"],
            mandatory = True,
        ),
        "ports": attr.string_list(doc = "Such as 8081/tcp."),
        "stop_signal": attr.string(default = "SIGTERM"),
        "user": attr.string(
            doc = "UID:GID, in numbers: so that a cluster can see that it is not root.",
            mandatory = True,
        ),
        "_tool": attr.label(
            allow_single_file = True,
            default = "//images:oci.py",
        ),
    },
    doc = "An OCI image layout: a folder that skopeo, podman and others read.",
    implementation = _image_impl,
)
