#!/usr/bin/env python3
"""The structure of the workspace in figures: lines by crate, import circles, large structs and files.

    check/structure.py              the tables
    check/structure.py --circles    each import circle with its files and the imports that close it

An import circle is a set of files of one crate, each of which reaches every other by `use`, or by a path in its
code. A re-export (`pub use`) is not an import: a path through it leads to the file that defines the name. Exit code 1 when a circle has more than five files.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CIRCLE_MAX = 5
SIDE = {"sim", "lab"}
BLOCK_COMMENT = re.compile(r"/\*.*?\*/", re.S)
LINE_COMMENT = re.compile(r"//[^\n]*")
STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.S)
ITEM = re.compile(
    r"^\s*pub(?:\([^)]*\))?\s+(?:const\s+|unsafe\s+|async\s+)*"
    r"(?:fn|struct|enum|trait|type|const|static|union)\s+(\w+)",
    re.M,
)


def code_of(text):
    """The product's part of a file: without inline tests, comments and strings."""
    text = re.split(r"^#\[cfg\(test\)\]\s*\nmod \w+ \{", text, flags=re.M)[0]
    return STRING.sub('""', LINE_COMMENT.sub("", BLOCK_COMMENT.sub("", text)))


def use_paths(code, reexports=False):
    """All paths in the code and its `use` declarations, groups expanded, as lists of names."""
    paths = []

    def expand(prefix, text):
        depth, start, parts = 0, 0, []
        for index, character in enumerate(text):
            if character == "{":
                depth += 1
            elif character == "}":
                depth -= 1
            elif character == "," and depth == 0:
                parts.append(text[start:index])
                start = index + 1
        parts.append(text[start:])
        for part in filter(None, (part.strip() for part in parts)):
            head, brace, rest = part.partition("{")
            names = [name.strip() for name in head.split("::") if name.strip()]
            if brace:
                expand(prefix + names, rest.rsplit("}", 1)[0])
            else:
                names = [name.split(" as ")[0].strip() for name in names]
                paths.append(prefix + names)

    for match in re.finditer(r"^\s*(pub(?:\([^)]*\))?\s+)?use\s+([^;]+);", code, re.M):
        if reexports or not match.group(1):
            expand([], match.group(2))
    # Neither imports, counted above, nor the module that a visibility names.
    rest = re.sub(r"\buse\s+[^;]+;|\bpub\s*\(in [^)]*\)", "", code)
    for match in re.finditer(r"\b(?:crate|super)(?:::\w+)+", rest):
        paths.append(match.group(0).split("::"))
    return paths


class Crate:
    """The modules of one crate, their definitions and their imports."""

    def __init__(self, folder):
        self.source = folder / "src"
        self.modules = {}
        for path in sorted(self.source.rglob("*.rs")):
            parts = list(path.relative_to(self.source).with_suffix("").parts)
            if parts[-1] in ("mod", "lib", "main"):
                parts.pop()
            if parts and parts[-1] == "tests":
                continue
            self.modules[tuple(parts)] = path
        self.code = {name: code_of(path.read_text()) for name, path in self.modules.items()}
        self.defined = {name: set(ITEM.findall(code)) for name, code in self.code.items()}
        self.reexports = {name: self.read_reexports(name) for name in self.modules}

    def read_reexports(self, name):
        """The names that a module re-exports: name to path."""
        found = {}
        for match in re.finditer(r"^\s*(?:pub(?:\([^)]*\))?\s+)?use\s+([^;]+);", self.code[name], re.M):
            for path in use_paths(f"use {match.group(1)};"):
                found[path[-1]] = path
        return found

    def resolve(self, module, path, depth=0):
        """The module that defines the last name of a path, if it is in this crate."""
        if not path or depth > 12:
            return None
        head, rest = path[0], path[1:]
        if head == "crate":
            at = ()
        elif head == "self":
            at = module
        elif head == "super":
            at = module[:-1]
            while rest and rest[0] == "super":
                at, rest = at[:-1], rest[1:]
        elif module + (head,) in self.modules:
            at = module + (head,)
        else:
            return None
        while rest and at + (rest[0],) in self.modules:
            at, rest = at + (rest[0],), rest[1:]
        if at not in self.modules:
            return None
        if rest and rest[0] not in self.defined[at]:
            onward = self.reexports[at].get(rest[0])
            if onward and onward[-1] == rest[0] and list(path) != onward:
                found = self.resolve(at, onward, depth + 1)
                if found is not None:
                    return found
        return at

    def imports(self):
        edges = {}
        for name, code in self.code.items():
            targets = {self.resolve(name, path) for path in use_paths(code)}
            edges[name] = {target for target in targets if target is not None and target != name}
        return edges

    def circles(self):
        edges = self.imports()
        return [circle for circle in components(edges) if len(circle) > 1], edges


def components(edges):
    """Strongly connected components (Tarjan), without recursion."""
    index, low, stack, on_stack, found, counter = {}, {}, [], set(), [], 0
    for root in edges:
        if root in index:
            continue
        work = [(root, iter(edges[root]))]
        index[root] = low[root] = counter
        counter += 1
        stack.append(root)
        on_stack.add(root)
        while work:
            node, targets = work[-1]
            for target in targets:
                if target not in index:
                    index[target] = low[target] = counter
                    counter += 1
                    stack.append(target)
                    on_stack.add(target)
                    work.append((target, iter(edges.get(target, ()))))
                    break
                if target in on_stack:
                    low[node] = min(low[node], index[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    component = []
                    while True:
                        member = stack.pop()
                        on_stack.discard(member)
                        component.append(member)
                        if member == node:
                            break
                    found.append(sorted(component))
    return found


def fields(code):
    """Structs with named fields: name and number of fields."""
    for match in re.finditer(r"\bstruct\s+(\w+)[^{;(]*\{([^}]*)\}", code):
        yield match.group(1), len(re.findall(r"^\s*(?:pub(?:\([^)]*\))?\s+)?\w+\s*:", match.group(2), re.M))


def lines(path):
    return sum(1 for _ in path.open())


def test_lines(path):
    """Number of lines from the first inline test module to the end."""
    text = path.read_text()
    parts = re.split(r"^#\[cfg\(test\)\]\s*\nmod \w+ \{", text, maxsplit=1, flags=re.M)
    return parts[1].count("\n") if len(parts) == 2 else 0


def packages(arguments):
    output = subprocess.run(
        ["cargo", "tree", "--locked", "--prefix", "none", "--edges", "normal,build", *arguments],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout
    return len({line.split(" (")[0] for line in output.splitlines() if line})


def main():
    folders = sorted(path for path in (ROOT / "crates").iterdir() if (path / "src").is_dir())
    totals, structs, files, circles = {"product": 0, "tests": 0, "lab": 0}, [], [], []
    print(f"{'crate':20} {'product':>8} {'tests':>8} {'files':>6} {'median':>7} {'largest':>8}")
    for folder in folders:
        sources = sorted((folder / "src").rglob("*.rs")) + sorted((folder / "console").glob("*.rs"))
        inline = sum(lines(p) if p.name == "tests.rs" else test_lines(p) for p in sources)
        own = sum(map(lines, sources)) - inline
        tests = inline + sum(
            lines(p) for d in ("tests", "examples", "benches") for p in (folder / d).rglob("*.rs")
        )
        sizes = sorted(map(lines, sources))
        totals["lab" if folder.name in SIDE else "product"] += own
        totals["tests"] += tests
        print(f"{folder.name:20} {own:8} {tests:8} {len(sizes):6} {sizes[len(sizes) // 2]:7} {sizes[-1]:8}")
        files += [(size, path) for size, path in zip(map(lines, sources), sources)]
        crate = Crate(folder)
        for code in crate.code.values():
            structs += [(count, folder.name, name) for name, count in fields(code)]
        found, edges = crate.circles()
        circles += [(len(circle), folder.name, circle, edges) for circle in found]
    totals["fuzz"] = sum(lines(p) for p in (ROOT / "fuzz").rglob("*.rs") if "target" not in p.parts)
    print("\nlines: " + ", ".join(f"{name} {count:,}" for name, count in totals.items())
          + f", all {sum(totals.values()):,}")
    sizes = sorted(size for size, _ in files)
    largest = max(files)
    print(f"files: {len(sizes)}, median {sizes[len(sizes) // 2]} lines, largest {largest[0]}"
          f" ({largest[1].relative_to(ROOT)})")
    print("structs with most fields: "
          + ", ".join(f"{crate}::{name} {count}" for count, crate, name in sorted(structs, reverse=True)[:10]))
    print(f"packages of the default build: {packages(['-p', 'chappe'])},"
          f" without default features: {packages(['-p', 'chappe', '--no-default-features'])}")
    program = ROOT / "target/release/chappe"
    if program.exists():
        print(f"program: {program.stat().st_size / 1e6:.1f} MB")
    circles.sort(key=lambda circle: (-circle[0], circle[1]))
    print("import circles: " + (", ".join(f"{crate} {count}" for count, crate, _, _ in circles) or "none"))
    if "--circles" in sys.argv:
        for count, crate, members, edges in circles:
            print(f"\n{crate}: {count} files")
            for member in members:
                targets = sorted("::".join(t) or "lib" for t in edges[member] if t in members)
                print(f"  {'::'.join(member) or 'lib'} -> {', '.join(targets)}")
    return 1 if circles and circles[0][0] > CIRCLE_MAX else 0


if __name__ == "__main__":
    sys.exit(main())
