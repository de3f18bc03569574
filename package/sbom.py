#!/usr/bin/env python3
"""Writes the bill of materials of a program as CycloneDX 1.5 JSON, from `cargo metadata` and Cargo.lock.

    package/sbom.py CRATE FEATURES OUT.json

It lists the crates that the program is built from on Linux, with licence, checksum and what each
depends on, and the C sources that they bring. Crates that run only while building are in scope
`excluded`; crates of tests are left out.
"""

import json
import os
import subprocess
import sys
import tomllib
import uuid
from datetime import datetime, timezone
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# C sources within crates, as NOTICE lists them: crate, component, licence.
BUNDLED = {
    "cyclonedds-src": ("Eclipse Cyclone DDS", "BSD-3-Clause"),
    "libsqlite3-sys": ("SQLite", "blessing"),
    "zstd-sys": ("Zstandard", "BSD-3-Clause"),
}


def metadata(crate, features):
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--no-default-features",
               "--features", ",".join(f"{crate}/{it}" for it in features.split(",")),
               "--filter-platform", "x86_64-unknown-linux-gnu"]
    return json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout)


def reached(nodes, packages, start):
    """The packages that the program needs, and whether each is part of it or only builds it."""
    macros = {ident for ident, package in packages.items()
              if any("proc-macro" in target["kind"] for target in package["targets"])}
    part = {start: True}
    waiting = [start]
    while waiting:
        ident = waiting.pop()
        for dependency in nodes[ident]["deps"]:
            kinds = {kind["kind"] for kind in dependency["dep_kinds"]} - {"dev"}
            if not kinds:
                continue
            is_part = part[ident] and None in kinds and dependency["pkg"] not in macros
            # A package that was taken for a tool alone may be part by another way.
            if dependency["pkg"] not in part or is_part > part[dependency["pkg"]]:
                part[dependency["pkg"]] = is_part
                waiting.append(dependency["pkg"])
    return part


def component(package, is_part, checksums):
    name, version = package["name"], package["version"]
    entry = {
        "type": "library",
        "bom-ref": f"pkg:cargo/{name}@{version}",
        "name": name,
        "version": version,
        "purl": f"pkg:cargo/{name}@{version}",
        "scope": "required" if is_part else "excluded",
    }
    if package["license"]:
        entry["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
    if checksum := checksums.get((name, version)):
        entry["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    if package["repository"]:
        entry["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
    if bundled := BUNDLED.get(name):
        title, licence = bundled
        entry["components"] = [{"type": "library", "name": title, "licenses": [{"license": {"id": licence}}]}]
    return entry


def main():
    crate, features, out = sys.argv[1:]
    data = metadata(crate, features)
    packages = {package["id"]: package for package in data["packages"]}
    nodes = {node["id"]: node for node in data["resolve"]["nodes"]}
    start = next(ident for ident, package in packages.items()
                 if package["name"] == crate and ident in data["workspace_members"])
    part = reached(nodes, packages, start)
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())
    checksums = {(it["name"], it["version"]): it.get("checksum") for it in lock["package"]}

    def reference(ident):
        return f"pkg:cargo/{packages[ident]['name']}@{packages[ident]['version']}"

    components = sorted((component(packages[it], is_part, checksums) for it, is_part in part.items() if it != start),
                        key=lambda it: it["bom-ref"])
    dependencies = [{"ref": reference(ident),
                     "dependsOn": sorted({reference(it) for it in nodes[ident]["dependencies"] if it in part})}
                    for ident in part]
    time = datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), timezone.utc)
    main_component = component(packages[start], True, checksums)
    main_component["type"] = "application"
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ"), "component": main_component},
        "components": components,
        "dependencies": sorted(dependencies, key=lambda it: it["ref"]),
    }
    text = json.dumps(document, sort_keys=True)
    document["serialNumber"] = f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, text)}"
    Path(out).write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")


main()
