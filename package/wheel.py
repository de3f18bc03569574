#!/usr/bin/env python3
"""Writes a Python wheel that carries the program: `pip install` puts `chappe` next to `python`.

    package/wheel.py PROGRAM MACHINE VERSION DIRECTORY     prints the file's path

A static program suits glibc and musl. One that is linked dynamically needs the newest version of
glibc that its symbols name. The same input gives the same bytes.
"""

import base64
import hashlib
import os
import re
import sys
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# A zip archive cannot store earlier times.
EPOCH = max(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), 315532800)


def tag(program, machine):
    """The platform of the wheel, from the versions of symbols in the program."""
    # Names of versions follow each other: the end of one is the beginning of the next.
    found = re.findall(rb"\0GLIBC_2\.(\d+)(?=\0)", program)
    is_dynamic = re.search(rb"/ld-linux[-a-z0-9_]*\.so", program[:4096])
    if not is_dynamic:
        return f"manylinux2014_{machine}.manylinux_2_17_{machine}.musllinux_1_1_{machine}"
    return f"manylinux_2_{max(map(int, found))}_{machine}"


def main():
    path, machine, version, directory = sys.argv[1:]
    program = Path(path).read_bytes()
    platform = tag(program, machine)
    info = f"chappe-{version}.dist-info"
    licences = ["LICENSE-APACHE", "LICENSE-MIT", "NOTICE"]
    metadata = [
        "Metadata-Version: 2.4",
        "Name: chappe",
        f"Version: {version}",
        "Summary: Middleware for networks of devices and sensors: the program `chappe`",
        "License-Expression: MIT OR Apache-2.0",
        *(f"License-File: {name}" for name in licences),
        "Requires-Python: >=3.8",
        "Description-Content-Type: text/markdown",
        "",
        "Chappe finds devices and sensors, makes their data durable, queryable streams, computes on the",
        "streams, and exchanges them with other nodes. This package carries the program; `chappe demo`",
        "shows it with devices of its own.",
        "",
    ]
    wheel = ["Wheel-Version: 1.0", "Generator: chappe package/wheel.py", "Root-Is-Purelib: false"]
    wheel += [f"Tag: py3-none-{each}" for each in platform.split(".")]
    files = {f"chappe-{version}.data/scripts/chappe": program}
    for name in licences:
        files[f"{info}/licenses/{name}"] = (ROOT / name).read_bytes()
    files[f"{info}/METADATA"] = "\n".join(metadata).encode()
    files[f"{info}/WHEEL"] = ("\n".join(wheel) + "\n").encode()
    record = []
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record.append(f"{name},sha256={digest},{len(data)}\n")
    files[f"{info}/RECORD"] = ("".join(record) + f"{info}/RECORD,,\n").encode()
    out = Path(directory) / f"chappe-{version}-py3-none-{platform}.whl"
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, time.gmtime(EPOCH)[:6])
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3
            entry.external_attr = (0o100755 if name.endswith("/scripts/chappe") else 0o100644) << 16
            archive.writestr(entry, data)
    print(out)


main()
