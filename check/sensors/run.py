"""Virtual sensors: every element is evaluated once, whatever happens to the node.

    python3 check/sensors/run.py CHAPPE WORK [--rounds N] [--seed N]

A node with a device that sends every 20 ms, and sensors over its stream: one that copies, the same with an output of
level `process`, a sum of ten elements each ten, and a count over a window of two seconds each half second. A second
node reads all of it over `zeromq` and `http_push`. In each round the node is killed with SIGKILL while its syncs are
slow, while its disk is full, or at any time. In the end outputs are compared with what the statements say of the
stored elements, and the copies with the originals.
Runs as root on Linux, in namespaces of its own: what it started ends with it.
"""

import argparse
import contextlib
import datetime
import http.client
import json
import pathlib
import random
import subprocess
import sys
import threading
import time

for folder in ("", "loss", "links"):
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / folder))
import life  # noqa: E402
from model import Lost  # noqa: E402
from network import CheckFailed, enter, expect, run_in, until  # noqa: E402
from node import attach  # noqa: E402
from pair import Node, content, place  # noqa: E402

INSIDE = "CHAPPE_SENSORS_INSIDE"
SOURCE = "counter-1.count"
WINDOW, LENGTH_NS = 10, 2_000_000_000
# In a network namespace of its own every port is free.
EXCHANGE = """
[exchange]
listen = "127.0.0.1:22022"
contact = ["127.0.0.0/8"]
"""
LINK = """
[[links]]
name = "{kind}"
kind = "{kind}"
address = "{address}"
as_prefix = "{kind}"
streams = ["*"]
[links.limits]
directory_s = 1
"""
LINKS = {"zeromq": "tcp://127.0.0.1:22022", "http_push": "http://127.0.0.1:18470"}
NEWEST = "select value as v, sequence as n from s order by sequence desc limit 1"
# Window, level of the output, statement; each says the newest number that it has seen.
SENSORS = {
    "copy": ("", "power", NEWEST),
    "copy-process": ("", "process", NEWEST),
    "sum": (f"window = {WINDOW}\nslide = {WINDOW}", "power", "select sum(value) as v, max(sequence) as n from s"),
    "count": ('window = "2s"\nslide = "500ms"', "power", "select count(*) as v, max(sequence) as n from s"),
}
SENSOR = """
name = "{name}"
[[source]]
alias = "s"
stream = "{source}"
{window}
[output]
level = "{level}"
sql = "{sql}"
[[output.field]]
name = "v"
type = "double"
[[output.field]]
name = "n"
type = "integer"
"""
DISK_BYTES = 64 << 20
SLOW_MS = (30, 200, 1000)


class Watched(Node):
    """The node with the sensors; its data is on a small disk."""

    def prepare(self) -> None:
        disk = self.folder / "data"
        disk.mkdir(mode=0o700)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES},mode=0700", "sensors", str(disk)], check=True)
        for name, (window, level, sql) in SENSORS.items():
            text = SENSOR.format(name=name, source=SOURCE, window=window, level=level, sql=sql)
            (self.folder / "sensors" / f"{name}.toml").write_text(text)

    @contextlib.contextmanager
    def full_disk(self):
        filler = self.folder / "data" / "filler"
        with contextlib.suppress(OSError), open(filler, "wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        yield
        filler.unlink()

    @contextlib.contextmanager
    def slow_syncs(self, delay_ms: int):
        tracer = attach(["strace", "-f", "-o", "/dev/null", "-e", "trace=fdatasync", "-e",
                         f"inject=fdatasync:delay_enter={delay_ms * 1000}"], self.pid)
        threading.Thread(target=tracer.stderr.read, daemon=True).start()
        yield
        tracer.terminate()
        tracer.wait(60)

    def last(self, stream: str) -> int:
        return self.streams().get(stream, {"last": 0})["last"]


def nanoseconds(text: str) -> int:
    second, _, fraction = text.rstrip("Z").partition(".")
    whole = datetime.datetime.fromisoformat(second + "+00:00").timestamp()
    return int(whole) * 1_000_000_000 + int(fraction.ljust(9, "0") or 0)


def judge(node: Watched) -> dict[str, int]:
    """Compares each output with the result of its statement on the stored elements; returns their number."""
    source = {one["number"]: one for one in node.elements(SOURCE)}
    values = {number: one["values"]["value"] for number, one in source.items()}
    times = {number: nanoseconds(one["source_time"]) for number, one in source.items()}
    last = max(source)
    if sorted(source) != list(range(1, last + 1)):
        raise Lost(f"{SOURCE} has holes")

    def said(name: str) -> list[tuple[int, float]]:
        return [(one["values"]["n"], one["values"]["v"]) for one in node.elements(name)]

    def compare(name: str, expected: list[tuple[int, float]]) -> int:
        found = said(name)
        expected = [one for one in expected if one[0] >= found[0][0]]
        if found != expected:
            at = next((n for n, pair in enumerate(zip(found, expected)) if pair[0] != pair[1]), None)
            where = f"{found[at]} for {expected[at]}" if at is not None else f"{len(found)} for {len(expected)}"
            raise Lost(f"the output of {name} is another than its statement says: {where}")
        return len(found)
    counts = {SOURCE: last}
    for name in ("copy", "copy-process"):
        counts[name] = compare(name, [(number, values[number]) for number in sorted(values)])
    # A sensor is evaluated at its first element; its windows do not reach behind it.
    begin = said("sum")[0][0]
    ends = range(begin, last + 1, WINDOW)
    counts["sum"] = compare("sum", [(end, sum(values[n] for n in range(max(begin, end - WINDOW + 1), end + 1)))
                                    for end in ends])
    begin = said("count")[0][0]
    for number, count in said("count"):
        held = sum(times[n] > times[number] - LENGTH_NS for n in range(begin, number + 1))
        if held != count:
            raise Lost(f"count says {count} at {number} and had {held} in its window")
    counts["count"] = len(said("count"))
    return counts


def compare_copies(node: Watched, reader: Node, stream: str) -> None:
    own = {(one["epoch"], one["number"]): content(one) for one in node.elements(stream)}
    for kind in LINKS:
        copies = reader.elements(f"{kind}.{stream}")
        if [place(one) for one in copies] != list(own):
            raise Lost(f"{kind} {stream}: {len(copies)} elements for {len(own)}, or in another order")
        for one in copies:
            if content(one) != own[place(one)]:
                raise Lost(f"{kind} {stream}: {place(one)} is another")


def check(chappe: str, work: pathlib.Path, rounds: int, chance: random.Random) -> None:
    life.PADDING = "x" * 100
    node = Watched(chappe, work / "node", "node", 18470, True, EXCHANGE)
    node.prepare()
    links = "".join(LINK.format(kind=kind, address=address) for kind, address in LINKS.items())
    reader = Node(chappe, work / "reader", "reader", 18471, False, links)
    devices = life.devices(chappe, work / "devices", 1)
    try:
        node.start().ready()
        reader.start().ready()
        until(30, "the sensors run", lambda: all(node.last(name) for name in SENSORS))
        for turn in range(rounds):
            with contextlib.ExitStack() as faults:
                if turn % 3 == 1:
                    faults.enter_context(node.slow_syncs(chance.choice(SLOW_MS)))
                elif turn % 3 == 2:
                    faults.enter_context(node.full_disk())
                time.sleep(chance.uniform(0.5, 4))
                if chance.random() < 0.7:
                    node.kill()
            if not node.running():
                node.start().ready()
            time.sleep(chance.uniform(0.5, 2))
        for device in devices:
            device.stop()
        ends, copied = {}, {}

        def settled() -> bool:
            """Waits until no more elements arrive at either node."""
            before = dict(ends)
            ends.update({name: node.last(name) for name in (SOURCE, *SENSORS)})
            there = reader.streams()
            copied.update({f"{kind}.{name}": there.get(f"{kind}.{name}", {"last": 0})["last"] for kind in LINKS
                           for name in ends})
            same = all(copied[f"{kind}.{name}"] >= end for kind in LINKS for name, end in ends.items())
            time.sleep(1.5)
            return same and before == ends and ends["copy"] >= ends[SOURCE] - 1
        try:
            until(20, "everything is evaluated and copied", settled)
        except CheckFailed as failure:
            links = reader.get("/api/v1/links")
            raise Lost(f"{failure}: stored {ends}, copied {copied}, links {links}") from failure
        counts = judge(node)
        for stream in (SOURCE, *SENSORS):
            compare_copies(node, reader, stream)
        shown = ", ".join(f"{count} of {name}" for name, count in counts.items())
        expect(True, f"{rounds} rounds, {node.lives} lives: each element evaluated once, stored and copied once: {shown}")
    finally:
        for one in (node, reader):
            if one.process:
                one.kill()
        for device in devices:
            device.stop()
        subprocess.run(["umount", str(node.folder / "data")], check=False)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("chappe", type=pathlib.Path)
    parser.add_argument("work", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 31))
    options = parser.parse_args()
    enter(INSIDE, [sys.argv[0], str(options.chappe), str(options.work), "--rounds", str(options.rounds),
                   "--seed", str(options.seed)])
    chappe, work = options.chappe.resolve(), options.work.resolve()
    run_in(work, lambda: check(str(chappe), work, options.rounds, random.Random(options.seed)),
           (Lost, http.client.HTTPException), f", seed {options.seed}")


if __name__ == "__main__":
    main()
