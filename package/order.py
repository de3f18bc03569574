#!/usr/bin/env python3
"""Puts the functions that a node runs next to each other in its program. Linux maps the pages around each one that is
used, so a program whose functions lie anywhere has twice as much of its file in memory.

    package/order.py ARGUMENT...      the linker of package/program: gcc with lld, in the order of startup.order
    package/order.py trace PROGRAM    writes startup.order: the functions that a program with its symbols runs, as an
                                      idle node and then as the demonstration, under valgrind

A line of startup.order is the CRC-32 of a function's demangled name without the hashes of crates: so it holds for all
targets and most changes. Functions that it does not list follow in the linker's order. A program with its symbols is
built with CARGO_PROFILE_DIST_STRIP=none.
"""

import os
import re
import subprocess
import sys
import tempfile
import threading
import zlib
from pathlib import Path

LIST = Path(__file__).parent / "startup.order"
# cargo's name of the program; tests and build scripts are linked without an order.
PROGRAM = re.compile(r"chappe-[0-9a-f]{16}")
# A start takes some ten times as long under valgrind.
PATIENCE_S = 600
IDLE_S = 15


def crcs(symbols):
    """The CRC-32 of each symbol's name, without what differs between builds."""
    # A suffix marks a copy or a part of a function that the compiler made.
    plain = "\n".join(re.sub(r"\.(llvm|cold|part|constprop|isra)\.?[0-9.]*$", "", symbol) for symbol in symbols)
    names = subprocess.run(["c++filt"], input=plain, capture_output=True, text=True, check=True).stdout
    names = re.sub(r"(?<=\w)\[[0-9a-f]+\]|::h[0-9a-f]{16}$", "", names, flags=re.MULTILINE)
    return [f"{zlib.crc32(name.encode()):08x}" for name in names.splitlines()]


def functions(*files):
    """The symbols of the code in programs, objects and archives."""
    # A member of an archive that is no object makes nm fail, after it has listed the others.
    table = subprocess.run(["nm", "--defined-only", *files], capture_output=True, text=True, check=False).stdout
    rows = (line.split() for line in table.splitlines())
    return sorted({row[2] for row in rows if len(row) == 3 and row[1] in "tTwW"})


def link(arguments):
    output = Path(arguments[arguments.index("-o") + 1]) if "-o" in arguments else Path()
    if not PROGRAM.fullmatch(output.name):
        os.execvp("gcc", ["gcc", *arguments])
    symbols = functions(*(it for it in arguments if it.endswith((".o", ".a", ".rlib")) and Path(it).exists()))
    by_crc = {}
    for symbol, crc in zip(symbols, crcs(symbols), strict=True):
        by_crc.setdefault(crc, []).append(symbol)
    listed = LIST.read_text().split()
    found = [crc for crc in listed if crc in by_crc]
    order = output.parent / "symbols.order"
    order.write_text("".join(f"{symbol}\n" for crc in found for symbol in by_crc[crc]))
    (output.parent / "order.txt").write_text(f"{len(found)} of {len(listed)} listed functions found\n")
    script = f"-Wl,--symbol-ordering-file={order},--no-warn-symbol-ordering"
    os.execvp("gcc", ["gcc", "-fuse-ld=lld", *arguments, script])


def trace(program):
    known = functions(program)
    if not known:
        sys.exit(f"{program} has no symbols: build it with CARGO_PROFILE_DIST_STRIP=none")
    order = {}
    with tempfile.TemporaryDirectory() as place:
        node = Path(place) / "node.toml"
        node.write_text(f'data_directory = "{place}/data"\n[http]\nlisten = "127.0.0.1:0"\n[discovery]\nenabled = false\n')
        for arguments, event in ([["serve", node], "ready"], [["demo", "--listen", "127.0.0.1:0"], "first_element"]):
            ran = executed(program, [*arguments, "--json"], event, Path(place)).intersection(known)
            print(f"{arguments[0]}: {len(ran)} functions")
            order |= dict.fromkeys(crcs(sorted(ran)))
    LIST.write_text("".join(f"{crc}\n" for crc in order))


def executed(program, arguments, event, place):
    """The functions that a run executes until some time after an event, and until its end."""
    command = ["valgrind", "--tool=callgrind", "--trace-children=yes", "--demangle=no",
               f"--callgrind-out-file={place}/calls.%p", program, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        timer = threading.Timer(PATIENCE_S, process.kill)
        timer.start()
        happened = any(f'"{event}"' in line for line in process.stdout)
        try:
            process.wait(IDLE_S if happened else 0)
        except subprocess.TimeoutExpired:
            process.terminate()
        process.stdout.read()
        process.wait()
        timer.cancel()
    if not happened:
        sys.exit(f"{arguments[0]} did not say {event}")
    names = set()
    for file in place.glob("calls.*"):
        names |= set(re.findall(r"^c?fn=\(\d+\) (\S+?)(?:'\d+)?$", file.read_text(errors="replace"), re.MULTILINE))
        file.unlink()
    return names


if sys.argv[1:2] == ["trace"]:
    trace(Path(sys.argv[2]).resolve())
else:
    link(sys.argv[1:])
