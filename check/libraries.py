#!/usr/bin/env python3
"""The libraries that others can use alone: their README files, and their packages.

    check/libraries.py              README files, then the packages (some seconds each, without compiling)
    check/libraries.py --readmes    README files only

A README opens with an example, says what the crate is not, lists exactly the features of Cargo.toml, and names the minimum
Rust version of the workspace and how stable the crate is. It is part of the crate's documentation, so the example is a test.
The packages are made with everything of the workspace that they need, in one call, so that each finds the others.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIBRARIES = ["exi", "soap", "dpws", "device", "kad", "notification-tree", "flow", "log", "zmtp"]
SECTIONS = ["What it is not", "Features", "Minimum Rust version and stability"]
# Lines before the example; reason: a title and at most two sentences.
OPENING_LINES_MAX = 6


def packages():
    """The packages of the workspace, by name."""
    command = ["cargo", "metadata", "--no-deps", "--format-version", "1", "--offline"]
    output = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return {package["name"]: package for package in json.loads(output)["packages"]}


def section(readme, title):
    """The text below a heading, up to the next one."""
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", readme, re.M | re.S)
    return found and found.group(1)


def faults(package):
    """What a library's README and manifest lack."""
    directory = Path(package["manifest_path"]).parent
    path = directory / "README.md"
    if not path.exists():
        return ["there is no README.md"]
    readme, found = path.read_text(), []
    before, example, _ = readme.partition("```rust\n")
    if not example or before.count("\n") > OPENING_LINES_MAX or "\n## " in before:
        found.append("README.md does not open with an example")
    if 'include_str!("../README.md")' not in (directory / "src/lib.rs").read_text():
        found.append("src/lib.rs does not include README.md, so the example is no test")
    for title in SECTIONS:
        if section(readme, title) is None:
            found.append(f"README.md has no section {title!r}")
    listed = set(re.findall(r"^\| `([a-z-]+)` \| (?:on|off) \|", section(readme, "Features") or "", re.M))
    features = set(package["features"]) - {"default"}
    if listed != features:
        found.append(f"README.md lists the features {sorted(listed)}, Cargo.toml has {sorted(features)}")
    stability = section(readme, "Minimum Rust version and stability") or ""
    if f"Rust {package['rust_version']} " not in stability:
        found.append(f"README.md does not name Rust {package['rust_version']}")
    if f"version is {'.'.join(package['version'].split('.')[:2])}," not in stability:
        found.append(f"README.md does not name the version {package['version']}")
    if re.search(r"\]\(\.\./", readme):
        found.append("README.md has a link that leads out of the package")
    for key in ["description", "license", "keywords", "categories"]:
        if not package[key]:
            found.append(f"Cargo.toml has no {key}")
    for licence in ["LICENSE-MIT", "LICENSE-APACHE"]:
        if not (directory / licence).exists():
            found.append(f"there is no {licence}")
    return found


def needed(workspace):
    """The libraries and the packages of the workspace that they need, tests apart."""
    names, todo = set(), [f"chappe-{name}" for name in LIBRARIES]
    while todo:
        name = todo.pop()
        if name in workspace and name not in names:
            names.add(name)
            dependencies = workspace[name]["dependencies"]
            todo += [it["name"] for it in dependencies if it["kind"] != "dev"]
    return sorted(names)


def main():
    workspace = packages()
    count = 0
    for name in LIBRARIES:
        for fault in faults(workspace[f"chappe-{name}"]):
            print(f"crates/{name}: {fault}", file=sys.stderr)
            count += 1
    if count:
        return 1
    print(f"{len(LIBRARIES)} README files are complete")
    if "--readmes" in sys.argv:
        return 0
    names = needed(workspace)
    command = ["cargo", "package", "--no-verify", "--locked", "--offline", "--allow-dirty", "--quiet"]
    command += [argument for name in names for argument in ("-p", name)]
    if subprocess.run(command, cwd=ROOT).returncode:
        print("error: a library cannot be packaged (hint: each dependency of the workspace needs a version "
              "in Cargo.toml, and no `publish = false`)", file=sys.stderr)
        return 1
    print(f"{len(names)} packages are in target/package")
    return 0


if __name__ == "__main__":
    sys.exit(main())
