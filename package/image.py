#!/usr/bin/env python3
"""Writes a container image as an archive of the OCI layout (image-spec 1.1), without a registry.

    package/image.py PROGRAM ARCHITECTURE VERSION OUT.tar

The image has the program, a configuration, licences, and no shell. A program that is linked
dynamically brings its libraries. It runs as user 65532 with a read-only root; its data is the volume
/var/lib/chappe. The same input gives the same bytes: times are SOURCE_DATE_EPOCH.
"""

import gzip
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
from datetime import datetime, timezone
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EPOCH = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
# No user of a host has this number by default; distroless images use it as well.
USER = 65532
TYPES = "application/vnd.oci.image"


def add(tar, name, data=None, mode=0o644, owner=0):
    """Adds a file, or a directory if there is no data."""
    entry = tarfile.TarInfo(name)
    entry.mtime, entry.uid, entry.gid, entry.mode = EPOCH, owner, owner, mode
    if data is None:
        entry.type = tarfile.DIRTYPE
        tar.addfile(entry)
    else:
        entry.size = len(data)
        tar.addfile(entry, io.BytesIO(data))


def libraries(program):
    """The libraries of a program by their paths on this machine; none of a static one."""
    listing = subprocess.run(["ldd", program], capture_output=True, text=True, check=False)
    if listing.returncode:
        return []
    words = [word for line in listing.stdout.splitlines() for word in line.split()]
    return sorted({word for word in words if word.startswith("/")})


def layer(program):
    """The one layer, as an uncompressed archive."""
    files = {
        "etc/chappe/node.toml": (ROOT / "package/node.image.toml").read_bytes(),
        "etc/group": f"root:x:0:\nchappe:x:{USER}:\n".encode(),
        "etc/passwd": (
            f"root:x:0:0:root:/:/nonexistent\nchappe:x:{USER}:{USER}:Chappe node:/var/lib/chappe:/nonexistent\n"
        ).encode(),
    }
    for name in ("LICENSE-APACHE", "LICENSE-MIT", "NOTICE"):
        files[f"usr/share/doc/chappe/{name}"] = (ROOT / name).read_bytes()
    programs = {"usr/bin/chappe": Path(program).read_bytes()}
    for path in libraries(program):
        programs[path.lstrip("/")] = Path(path).read_bytes()
    directories = {"tmp": (0o1777, 0), "var/lib/chappe": (0o750, USER)}
    for name in [*files, *programs, *directories]:
        for parent in Path(name).parents:
            if str(parent) != ".":
                directories.setdefault(str(parent), (0o755, 0))
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, (mode, owner) in sorted(directories.items()):
            add(tar, name, mode=mode, owner=owner)
        for name, data in sorted(files.items()):
            add(tar, name, data)
        for name, data in sorted(programs.items()):
            add(tar, name, data, mode=0o755)
    return out.getvalue()


def main():
    program, architecture, version, out = sys.argv[1:]
    blobs = {}

    def blob(kind, data, **more):
        digest = hashlib.sha256(data).hexdigest()
        blobs[digest] = data
        return {"mediaType": f"{TYPES}.{kind}", "digest": f"sha256:{digest}", "size": len(data), **more}

    def document(kind, value, **more):
        return blob(kind, json.dumps(value, sort_keys=True).encode(), **more)

    plain = layer(program)
    packed = blob("layer.v1.tar+gzip", gzip.compress(plain, 9, mtime=0))
    created = datetime.fromtimestamp(EPOCH, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    config = document("config.v1+json", {
        "created": created,
        "architecture": architecture,
        "os": "linux",
        "config": {
            "User": f"{USER}:{USER}",
            "Entrypoint": ["/usr/bin/chappe"],
            "Cmd": ["serve", "/etc/chappe/node.toml"],
            "Env": ["PATH=/usr/bin"],
            "WorkingDir": "/var/lib/chappe",
            "Volumes": {"/var/lib/chappe": {}},
            "StopSignal": "SIGTERM",
            "Labels": {
                "org.opencontainers.image.title": "chappe",
                "org.opencontainers.image.description": "Middleware for networks of devices and sensors",
                "org.opencontainers.image.version": version,
                "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
            },
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(plain).hexdigest()}"]},
        "history": [{"created": created, "created_by": "package/image.py"}],
    })
    manifest = document("manifest.v1+json", {
        "schemaVersion": 2,
        "mediaType": f"{TYPES}.manifest.v1+json",
        "config": config,
        "layers": [packed],
    }, platform={"architecture": architecture, "os": "linux"},
       annotations={"org.opencontainers.image.ref.name": f"chappe:{version}"})
    index = {"schemaVersion": 2, "mediaType": f"{TYPES}.index.v1+json", "manifests": [manifest]}
    with tarfile.open(out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        add(tar, "oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
        add(tar, "index.json", json.dumps(index, sort_keys=True).encode())
        add(tar, "blobs", mode=0o755)
        add(tar, "blobs/sha256", mode=0o755)
        for digest, data in sorted(blobs.items()):
            add(tar, f"blobs/sha256/{digest}", data)


main()
