"""`program`: the examples, whose processes and whose node are killed; one without marks; and an exporter in C."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import time

from bench import Bench, documents, judge, lines_of, need
from network import CheckFailed, expect, until

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples" / "programs"
COUNTED = "demo.counter"
# Prints numbers from its own file, which it moves on first: the node cannot ask for one again.
UNMARKED = """#!/bin/sh
n=$(cat unmarked.number || echo 0)
while :; do
    n=$((n + 1))
    echo $n > unmarked.new && mv unmarked.new unmarked.number
    echo "n=$n" || exit
    sleep 0.05
done
"""


def children(node_pid: int, word: str) -> list[int]:
    """The processes below a node whose command has this word."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            parent = int((path / "stat").read_text().rsplit(")", 1)[1].split()[1])
            words = (path / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if parent == node_pid and word in words:
            found.append(int(path.name))
    return found


class Program:
    """A program below the node."""

    kind = "program"
    word = ""

    def __init__(self, bench: Bench):
        self.bench, self.kills = bench, 0

    def start(self) -> None:
        pass

    finish = start
    turn = start

    def kill(self) -> None:
        for pid in children(self.bench.node.pid, self.word):
            os.kill(pid, signal.SIGKILL)
            self.kills += 1


class Counter(Program):
    """examples/programs/counter.py, which continues after its mark."""

    word = "counter.py"

    def __init__(self, bench: Bench):
        super().__init__(bench)
        shutil.copy(EXAMPLES / "counter.py", bench.folder / "wrappers")
        bench.wrapper("counter", 'kind = "program"\nprogram = ["python3", "counter.py"]\nmarks = true\n'
                      "settings = { period_s = 0.06 }\n")

    def finish(self) -> None:
        (self.bench.folder / "wrappers" / "counter.toml").unlink()
        # The stream stays; what the program printed is stored first.
        self.bench.at_rest(COUNTED)

    def judge(self) -> None:
        found = self.bench.numbers(COUNTED, "number")
        judge(f"program with marks, {self.kills} kills of it and {self.bench.node_kills} of the node", found)


class Unmarked(Program):
    """A shell script without marks."""

    word = "unmarked.sh"

    def __init__(self, bench: Bench):
        super().__init__(bench)
        (bench.folder / "wrappers" / "unmarked.sh").write_text(UNMARKED)
        bench.wrapper("unmarked", 'kind = "program"\nprogram = ["sh", "unmarked.sh"]\noutput = "elements"\n'
                      'format = "key_value"\n[[stream]]\nname = "unmarked"\n'
                      'fields = [{ name = "n", type = "integer" }]\n')

    def finish(self) -> None:
        (self.bench.folder / "wrappers" / "unmarked.toml").unlink()
        self.bench.at_rest("unmarked")

    def judge(self) -> None:
        written = int((self.bench.folder / "wrappers" / "unmarked.number").read_text())
        judge(f"program without marks, {self.kills} kills of it and {self.bench.node_kills} of the node",
              self.bench.numbers("unmarked"), gaps_max=self.kills + self.bench.node_kills + 1, last=written)


class Append(Program):
    """The exporter in C, compiled here."""

    word = "append"

    def __init__(self, bench: Bench):
        super().__init__(bench)
        need("cc")
        folder = bench.folder / "exporters"
        done = subprocess.run(["cc", "-Wall", "-Wextra", "-Werror", "-o", str(folder / "append"),
                               str(EXAMPLES / "append.c")], capture_output=True, text=True)
        expect(done.returncode == 0, f"examples/programs/append.c compiles {done.stderr}")
        # As a kill in the middle of a line leaves it.
        (folder / "elements.jsonl").write_text('{"element": {"stream": "')
        bench.exporter("append", f'kind = "program"\nprogram = ["./append"]\nstreams = ["{COUNTED}"]\n')

    def judge(self) -> None:
        wanted = {one["number"]: one["values"] for one in self.bench.node.elements(COUNTED)}
        path = self.bench.folder / "exporters" / "elements.jsonl"

        def found() -> list[dict]:
            return [one["element"] for one in documents(lines_of(path))]

        until(30, "the program of the exporter", lambda: {one["number"] for one in found()} >= set(wanted))
        again = len(found()) - len(wanted)
        same = all(one["values"] == wanted[one["number"]] for one in found())
        expect(same, f"program (exporter): {len(wanted)} elements reached it with equal values, {again} again, after "
               f"{self.kills} kills of it and {self.bench.node_kills} of the node")
