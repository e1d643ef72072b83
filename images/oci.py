#!/usr/bin/env python3
"""Makes layers and OCI image layouts, and unpacks them again.

    oci.py layer OUT.tar [--folder PATH MODE] [--file FILE PATH] [--program FILE PATH] [--strip]
                         [--root ROOT]         ROOT: where the programs' libraries are
    oci.py image OUT_FOLDER CONFIG.json LAYER.tar...
    oci.py unpack IMAGE_FOLDER OUT_FOLDER      prints the configuration
    oci.py archive IMAGE_FOLDER NAME OUT.tar   one file that containerd imports under this name

Owns: the form of both. Promises: the same input gives the same bytes: names in order, no time of
day, everything owned by root. Never: needs more than Python's standard library, `ldd` and `strip`.
"""

import argparse
import glob
import gzip
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile

LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
CONFIG = "application/vnd.oci.image.config.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
EPOCH = "1970-01-01T00:00:00Z"


def libraries(program, root):
    """(path in the image, file) of the loader and of each shared library of `program`. With a
    `root` they are those of the system that is unpacked there, not of the one that builds."""
    command = ["ldd", program]
    if root:
        folders = [os.path.join(root, path) for path in (
            "lib/*-linux-gnu", "usr/lib/*-linux-gnu")]
        loaders = glob.glob(os.path.join(root, "lib*/ld-linux*"))
        if not loaders:
            sys.exit(f"error: {root} holds no loader: its libc6 is not unpacked there")
        paths = [path for folder in folders for path in sorted(glob.glob(folder))]
        command = [loaders[0], "--library-path", ":".join(paths), "--list", program]
        yield "/" + os.path.relpath(loaders[0], root), os.path.realpath(loaders[0])
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    if "not a dynamic executable" in said.stderr + said.stdout or "statically" in said.stdout:
        return
    if said.returncode != 0 or "not found" in said.stdout:
        sys.exit(f"error: a library of {program} is not in {root or 'this system'}:\n{said.stdout}"
                 f"{said.stderr}install it there, then build the image again")
    for line in said.stdout.splitlines():
        found = re.search(r"(/\S+) \(0x", line)
        if not found or (root and "ld-linux" in line):
            continue
        name = "/" + os.path.relpath(found[1], root) if root else found[1]
        yield name, os.path.realpath(found[1])


class Layer:
    """What a layer holds, by path; folders come into being with what is in them."""

    def __init__(self):
        self.entries = {}

    def _add(self, path, mode, data):
        parts = path.strip("/").split("/")
        for end in range(1, len(parts)):
            self.entries.setdefault("/".join(parts[:end]), (0o755, None))
        self.entries["/".join(parts)] = (mode, data)

    def folder(self, path, mode):
        self._add(path, int(mode, 8), None)

    def file(self, file, path, mode=0o644):
        with open(file, "rb") as f:
            self._add(path, mode, f.read())

    def program(self, file, path, strip, root):
        for name, library in libraries(file, root):
            self.file(library, name, 0o755)
        if not strip:
            self.file(file, path, 0o755)
            return
        with tempfile.TemporaryDirectory() as folder:
            stripped = os.path.join(folder, "program")
            subprocess.run(["strip", "-o", stripped, file], check=True)
            self.file(stripped, path, 0o755)

    def write(self, out):
        with tarfile.open(out, "w", format=tarfile.GNU_FORMAT) as tar:
            for path in sorted(self.entries):
                mode, data = self.entries[path]
                info = tarfile.TarInfo(path)
                info.mode = mode
                if data is None:
                    info.type = tarfile.DIRTYPE
                    tar.addfile(info)
                else:
                    info.size = len(data)
                    tar.addfile(info, io.BytesIO(data))


def blob(folder, data):
    digest = hashlib.sha256(data).hexdigest()
    with open(os.path.join(folder, "blobs/sha256", digest), "wb") as f:
        f.write(data)
    return {"digest": "sha256:" + digest, "size": len(data)}


def as_json(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def image(out, config_file, layers):
    with open(config_file, encoding="utf-8") as f:
        config = json.load(f)
    # What is not set is left out, as the specification asks.
    config["config"] = {k: v for k, v in config["config"].items() if v}
    os.makedirs(os.path.join(out, "blobs/sha256"), exist_ok=True)
    diffs, described = [], []
    for layer in layers:
        with open(layer, "rb") as f:
            data = f.read()
        diffs.append("sha256:" + hashlib.sha256(data).hexdigest())
        packed = io.BytesIO()
        with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0, filename="") as f:
            f.write(data)
        described.append({"mediaType": LAYER, **blob(out, packed.getvalue())})
    config |= {"created": EPOCH, "os": "linux", "rootfs": {"type": "layers", "diff_ids": diffs},
               "history": [{"created": EPOCH, "created_by": "bazel"} for _ in layers]}
    manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "layers": described,
                "config": {"mediaType": CONFIG, **blob(out, as_json(config))},
                "annotations": config["config"].get("Labels", {})}
    entry = {"mediaType": MANIFEST, **blob(out, as_json(manifest)),
             "platform": {"architecture": config["architecture"], "os": "linux"},
             "annotations": {"org.opencontainers.image.ref.name": "latest"}}
    index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [entry]}
    for name, data in (("index.json", index), ("oci-layout", {"imageLayoutVersion": "1.0.0"})):
        with open(os.path.join(out, name), "wb") as f:
            f.write(as_json(data))


def read_blob(folder, descriptor):
    with open(os.path.join(folder, "blobs", *descriptor["digest"].split(":")), "rb") as f:
        data = f.read()
    if "sha256:" + hashlib.sha256(data).hexdigest() != descriptor["digest"]:
        sys.exit(f"error: {folder}: {descriptor['digest']} is damaged")
    return data


def unpack(folder, out):
    """Unpacks the image's layers into `out`; gives its configuration."""
    with open(os.path.join(folder, "index.json"), encoding="utf-8") as f:
        index = json.load(f)
    manifest = json.loads(read_blob(folder, index["manifests"][0]))
    config = json.loads(read_blob(folder, manifest["config"]))
    for layer, diff in zip(manifest["layers"], config["rootfs"]["diff_ids"], strict=True):
        data = gzip.decompress(read_blob(folder, layer))
        if "sha256:" + hashlib.sha256(data).hexdigest() != diff:
            sys.exit(f"error: {folder}: a layer is not the one that the configuration names")
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            tar.extractall(out, filter="tar")
    return config


def archive(folder, name, out):
    """The image as one file; containerd, and so `kind load image-archive`, calls it `name`."""
    with open(os.path.join(folder, "index.json"), encoding="utf-8") as f:
        index = json.load(f)
    index["manifests"][0]["annotations"] = {
        "io.containerd.image.name": name,
        "org.opencontainers.image.ref.name": name.rsplit(":", 1)[1],
    }
    files = {"index.json": as_json(index)}
    blobs = [os.path.join("blobs/sha256", name) for name in os.listdir(folder + "/blobs/sha256")]
    for path in ["oci-layout", *blobs]:
        with open(os.path.join(folder, path), "rb") as f:
            files[path] = f.read()
    with tarfile.open(out, "w", format=tarfile.GNU_FORMAT) as tar:
        for path in sorted(files):
            info = tarfile.TarInfo(path)
            info.size = len(files[path])
            tar.addfile(info, io.BytesIO(files[path]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    make = commands.add_parser("layer")
    make.add_argument("out")
    make.add_argument("--folder", nargs=2, action="append", default=[])
    make.add_argument("--file", nargs=2, action="append", default=[])
    make.add_argument("--program", nargs=2, action="append", default=[])
    make.add_argument("--strip", action="store_true")
    make.add_argument("--root", help="where the programs' libraries are")
    make = commands.add_parser("image")
    make.add_argument("out")
    make.add_argument("config")
    make.add_argument("layers", nargs="+")
    make = commands.add_parser("unpack")
    make.add_argument("image")
    make.add_argument("out")
    make = commands.add_parser("archive")
    make.add_argument("image")
    make.add_argument("name")
    make.add_argument("out")
    arguments = parser.parse_args()
    if arguments.command == "layer":
        layer = Layer()
        for path, mode in arguments.folder:
            layer.folder(path, mode)
        for file, path in arguments.file:
            layer.file(file, path)
        for file, path in arguments.program:
            layer.program(file, path, arguments.strip, arguments.root)
        layer.write(arguments.out)
    elif arguments.command == "image":
        image(arguments.out, arguments.config, arguments.layers)
    elif arguments.command == "archive":
        archive(arguments.image, arguments.name, arguments.out)
    else:
        print(json.dumps(unpack(arguments.image, arguments.out), indent=1))


if __name__ == "__main__":
    main()
