"""A soak test: four origins and four subscribers under faults, every copy judged by the logs alone.

    python3 check/soak/run.py CHAPPE WORK [--minutes N] [--seed N]

Each subscriber reads every origin over a link of another kind, so that each origin serves all four kinds. Streams
and copies are kept for seconds only. Until the time is up, bits are flipped in older files of the logs, nodes are
killed with SIGKILL and started again, at once or after their copies have run empty, syncs are slowed by strace, and
disks are full for a while: each node's data lies in a tmpfs of its own.
Then the copies catch up without faults, and the nodes end in order.

The judge (judge.py) reads the segment files of all nodes while they are written, and the losses that subscribers
named from their process logs, which outlive SIGKILL. For each copy: every element of the origin is stored once, in
order, with its content, or named lost, with the true number. Limits: a loss that a node named shortly before it was
killed, or while its disk was full before that, may be named again; losses are compared by their sum over a copy and
not range by range; of best_effort links the elements behind the newest stored one are not judged. In the end `chappe data check` has to name exactly the
records that were stored and are not readable any more.
Runs as root on Linux, in namespaces of its own: what it started ends with it.
"""

import argparse
import contextlib
import datetime
import http.client
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import threading
import time

for folder in ("", "loss", "links", "soak"):
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / folder))
import judge  # noqa: E402
import life  # noqa: E402
import pair  # noqa: E402
from frames import Log, Unreadable  # noqa: E402
from judge import Named, Verdict  # noqa: E402
from model import Lost  # noqa: E402
from network import CheckFailed, Process, enter, expect, run_in, until  # noqa: E402
from node import attach, tail  # noqa: E402
from pair import Node  # noqa: E402

INSIDE = "CHAPPE_SOAK_INSIDE"
NODES, DEVICES = 4, 2
KINDS = ("zeromq", "http_pull", "http_push", "zeromq_best_effort")
# In a network namespace of its own every port is free.
HTTP_PORT, ZEROMQ_PORT = 18470, 22000
# Elements come every 50 ms. Of one stream an origin keeps 1.2 MB, twenty seconds; a subscriber keeps what is younger
# than eight seconds when it looks, once a minute. So a subscriber that catches up takes more than its log's queue
# holds (4 MiB), and an origin's absence leaves its copies empty.
PERIOD_MS, PADDING, ORIGIN_KEEPS, SUBSCRIBER_KEEPS_S = 50, "x" * 3000, 400, 8
ABSENT_S = (10, 40), (70, 100)
SEGMENT_BYTES = 256 * 1024
ORIGIN = """keep_elements = {keeps}
[exchange]
listen = "127.0.0.1:{port}"
publish = "127.0.0.1:{publish}"
directory = "127.0.0.1:{directory}"
contact = ["127.0.0.0/8"]
"""
SUBSCRIBER = "keep_age_s = {keeps}\n"
LINK = """
[[links]]
name = "o{n}"
kind = "{kind}"
address = "{address}"
as_prefix = "o{n}"
streams = ["*"]
{more}
[links.limits]
directory_s = 1
"""
LOST = re.compile(r"^(\S+Z) .*?: (\d+) elements of (\S+) are lost: (\w+)", re.MULTILINE)
# Syncs that are slowed, in milliseconds, and how many nodes at once have them.
SLOW_MS, SLOW_MAX = (30, 200, 1000), 2
PAUSE_S, POLL_S, CALM_S, CATCH_UP_S = (0.3, 3.0), 0.3, 10, 30
# A disk has room for a subscriber's copies of two minutes.
DISK_BYTES = 96 << 20
# How often each fault is chosen, in parts.
FAULTS = {"flips": 10, "kills": 4, "slow times": 4, "full disks": 3, "absences": 1}


class Soaked(Node):
    """A node whose log is archived, and whose process logs are read at the end of each run."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.archive = Log(self.folder / "data" / "log")
        self.named: dict[str, list[tuple[float, Named]]] = {}
        self.down_until: float | None = None
        self.tracer: tuple[subprocess.Popen, float] | None = None
        self.full_until: float | None = None
        # The times in which the disk was full, by the clock of the process logs.
        self.full_since, self.full = 0.0, []
        disk = self.folder / "data"
        disk.mkdir(mode=0o700)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES},mode=0700", "soak", str(disk)], check=True)

    def begin(self) -> None:
        self.down_until = None
        self.start().ready()

    def crash(self, down_s: float) -> None:
        self.kill()
        self.unslow()
        self.free()
        self.read_named(time.time())
        self.down_until = time.monotonic() + down_s

    def read_named(self, killed_at: float | None) -> None:
        """The losses named in this run."""
        for at, elements, stream, reason in LOST.findall(pathlib.Path(self.process.log.name).read_text()):
            when = datetime.datetime.fromisoformat(at).timestamp()
            repeatable = judge.is_repeatable(when, killed_at, self.full)
            self.named.setdefault(stream, []).append((when, Named(int(elements), reason, repeatable)))

    def slow(self, delay_ms: int, seconds: float) -> None:
        tracer = attach(["strace", "-f", "-o", "/dev/null", "-e", "trace=fdatasync", "-e",
                         f"inject=fdatasync:delay_enter={delay_ms * 1000}"], self.pid)
        # Its other lines, one for each thread, must not fill the pipe.
        threading.Thread(target=tracer.stderr.read, daemon=True).start()
        self.tracer = (tracer, time.monotonic() + seconds)

    def unslow(self) -> None:
        if self.tracer:
            self.tracer[0].terminate()
            self.tracer[0].wait(60)
            self.tracer = None

    def fill(self, seconds: float) -> None:
        """Leaves no room on the disk for a while."""
        self.full_until, self.full_since = time.monotonic() + seconds, time.time()
        with contextlib.suppress(OSError), open(self.folder / "data" / "filler", "wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))

    def unmount(self, keeps: bool) -> None:
        """Unmounts the disk; if its content is to be inspected, it stays in the folder."""
        disk = self.folder / "data"
        if keeps:
            shutil.copytree(disk, self.folder / "data-in-the-end")
        # Files that the archive has read may still be open.
        subprocess.run(["umount", "--lazy", str(disk)], check=True)

    def free(self) -> None:
        if self.full_until is not None:
            self.full_until = None
            (self.folder / "data" / "filler").unlink()
            self.full.append((self.full_since, time.time()))

    def closed_segments(self) -> list[pathlib.Path]:
        """The segments that are no longer written, all of them read by the archive."""
        closed = sorted(self.archive.folder.glob("*.segment"))[:-1]
        self.archive.poll()
        return closed

    @staticmethod
    def flip(path: pathlib.Path, chance: random.Random) -> bool:
        """Flips a bit of a segment."""
        try:
            with open(path, "r+b") as file:
                at = chance.randrange(os.fstat(file.fileno()).st_size)
                file.seek(at)
                byte = file.read(1)[0]
                file.seek(at)
                file.write(bytes([byte ^ (1 << chance.randrange(8))]))
        except FileNotFoundError:
            # Retention was faster.
            return False
        return True


class Soak:
    """All nodes, and the faults applied to them."""

    def __init__(self, chappe: str, work: pathlib.Path, seed: int):
        self.chappe, self.work = chappe, work
        self.chance = random.Random(seed)
        self.origins = [self.node("origin", n, True, ORIGIN.format(
            keeps=ORIGIN_KEEPS, port=ZEROMQ_PORT + 10 * n, publish=ZEROMQ_PORT + 10 * n + 1,
            directory=ZEROMQ_PORT + 10 * n + 2)) for n in range(NODES)]
        self.subscribers = [self.node("subscriber", n, False, SUBSCRIBER.format(keeps=SUBSCRIBER_KEEPS_S)
                                      + "".join(self.link(origin, self.kind(n, origin)) for origin in range(NODES)))
                            for n in range(NODES)]
        self.nodes = [*self.origins, *self.subscribers]
        self.done = dict.fromkeys(FAULTS, 0)
        self.lock, self.ended, self.failure = threading.Lock(), threading.Event(), None

    def node(self, what: str, n: int, discovers: bool, more: str) -> Soaked:
        port = HTTP_PORT + n + (0 if discovers else NODES)
        return Soaked(self.chappe, self.work / f"{what}-{n}", f"{what}-{n}", port, discovers, more)

    @staticmethod
    def kind(subscriber: int, origin: int) -> str:
        return KINDS[(subscriber + origin) % len(KINDS)]

    @staticmethod
    def link(origin: int, kind: str) -> str:
        port, more = ZEROMQ_PORT + 10 * origin, ""
        address = f"http://127.0.0.1:{HTTP_PORT + origin}" if kind.startswith("http") else f"tcp://127.0.0.1:{port}"
        if kind == "zeromq_best_effort":
            address, more = f"tcp://127.0.0.1:{port + 1}", f'directory = "tcp://127.0.0.1:{port + 2}"'
        return LINK.format(n=origin, kind=kind, address=address, more=more)

    def archive(self) -> None:
        """Reads all logs continuously."""
        while not self.ended.wait(POLL_S):
            with self.lock:
                try:
                    for node in self.nodes:
                        node.archive.poll()
                except (Unreadable, OSError, ValueError, IndexError) as failure:
                    self.failure = failure
                    return

    def copies(self):
        """Subscriber, origin, name of the stream at the origin, name of the copy."""
        for number, subscriber in enumerate(self.subscribers):
            for at, origin in enumerate(self.origins):
                for stream in sorted(self.streams(origin)):
                    yield subscriber, origin, self.kind(number, at), stream, f"o{at}.{stream}"

    @staticmethod
    def streams(origin: Soaked) -> set[str]:
        # The node's own records have a slash in their names, which streams cannot have.
        return {name for name in origin.archive.last if "/" not in name}

    def reached(self, subscriber: Soaked, copy: str) -> int:
        """The newest number of the origin that a copy has."""
        last = subscriber.archive.last.get(copy)
        return last.origin_number if last else 0

    def warm(self) -> dict[tuple[str, str], int]:
        """Waits until every copy has started; returns their positions."""
        def begun() -> bool:
            return all(len(self.streams(origin)) == DEVICES for origin in self.origins) and all(
                self.reached(subscriber, copy) for subscriber, _, _, _, copy in self.copies())
        self.until(60, "every copy has begun", begun)
        return {(one.name, copy): self.reached(one, copy) for one, _, _, _, copy in self.copies()}

    def until(self, timeout_s: float, what: str, question) -> None:
        def asked() -> bool:
            self.look()
            with self.lock:
                return question()
        until(timeout_s, what, asked)

    def look(self) -> None:
        """Starts nodes that are due, ends slow phases; a node that stopped unexpectedly is a failure."""
        if self.failure:
            raise CheckFailed(f"the logs could not be read: {self.failure!r}")
        now = time.monotonic()
        for node in self.nodes:
            if node.down_until is not None and node.down_until <= now:
                node.begin()
            elif node.down_until is None and not node.running():
                raise CheckFailed(f"{node.name} ended by itself: {tail(pathlib.Path(node.process.log.name))}")
            if node.tracer and node.tracer[1] <= now:
                node.unslow()
            if node.full_until is not None and node.full_until <= now:
                node.free()

    def fault(self) -> None:
        node = self.chance.choice(self.nodes)
        up = node.down_until is None
        what = self.chance.choices(list(FAULTS), list(FAULTS.values()))[0]
        seconds, delay_ms = self.chance.uniform(2, 15), self.chance.choice(SLOW_MS)
        absent_s = self.chance.uniform(*self.chance.choice(ABSENT_S))
        if what == "flips":
            with self.lock:
                segments, bits = node.closed_segments(), self.chance.randrange(1, 5)
                hit = self.chance.choices(segments, k=bits) if segments else []
                self.done[what] += sum(node.flip(segment, self.chance) for segment in hit)
        elif what == "slow times" and up and sum(one.tracer is not None for one in self.nodes) < SLOW_MAX:
            if not node.tracer:
                node.slow(delay_ms, seconds)
                self.done[what] += 1
        elif what == "full disks" and up and node.full_until is None:
            node.fill(seconds)
            self.done[what] += 1
        elif what in ("kills", "absences") and up:
            node.crash(0 if what == "kills" else absent_s)
            self.done[what] += 1

    def run(self, minutes: float) -> dict[tuple[str, str], int]:
        for node in self.nodes:
            node.begin()
        begins = self.warm()
        self.began_at = time.time()
        end, told = time.monotonic() + 60 * minutes, time.monotonic()
        # Also in a short run the copies of one origin run empty.
        self.chance.choice(self.origins).crash(ABSENT_S[1][1])
        self.done["absences"] += 1
        while time.monotonic() < end:
            time.sleep(self.chance.uniform(*PAUSE_S))
            self.look()
            self.fault()
            if time.monotonic() - told > 300:
                told = time.monotonic()
                print(f"   -- {(end - told) / 60:.0f} minutes left: {self.faults()}", flush=True)
        return begins

    def faults(self) -> str:
        return ", ".join(f"{count} {name}" for name, count in self.done.items())

    def calm(self, devices: list[Process]) -> None:
        """Starts every node, waits until the copies have caught up, and shuts all nodes down."""
        for node in self.nodes:
            node.unslow()
            node.free()
            if node.down_until is not None:
                node.begin()
        time.sleep(CALM_S)
        for device in devices:
            device.stop()
        with self.lock:
            for origin in self.origins:
                origin.archive.poll()

        def behind() -> list[str]:
            return [f"{subscriber.name} {copy}" for subscriber, origin, kind, stream, copy in self.copies()
                    if kind != "zeromq_best_effort"
                    and self.reached(subscriber, copy) < origin.archive.last[stream].number]
        try:
            self.until(CATCH_UP_S, "all have caught up", lambda: not behind())
        except CheckFailed:
            # The judge says of which copy it is not so.
            print(f"   -- behind for {CATCH_UP_S * 8} s: {behind()}")
        for node in self.subscribers + self.origins:
            node.stop()
            node.read_named(None)
        self.ended.set()
        with self.lock:
            for node in self.nodes:
                node.archive.poll()

    def verdicts(self, begins: dict[tuple[str, str], int]) -> int:
        """Judges every copy; returns the number of faulty ones."""
        faulty = 0
        for subscriber, origin, kind, stream, copy in self.copies():
            named = [one for when, one in subscriber.named.get(copy, []) if when >= self.began_at]
            verdict = judge.judge(origin.archive.records(stream), subscriber.archive.records(copy), named,
                                  begins[subscriber.name, copy], kind != "zeromq_best_effort")
            faulty += self.say(f"{subscriber.name} {kind} {copy}", verdict)
        return faulty

    def damage(self, node: Soaked) -> int:
        """`data check` names exactly the archived records that are no longer readable."""
        done = subprocess.run([self.chappe, "data", "check", str(node.folder / "data"), "--json"],
                              capture_output=True, text=True, timeout=300)
        report = {stream["name"]: stream for stream in json.loads(done.stdout)["streams"]}
        now, verdict = Log(node.archive.folder, node.archive.store).poll(), Verdict()
        for name, stream in report.items():
            readable = {one.number for one in now.records(name)}
            stored = {one.number for one in node.archive.records(name) if one.number >= stream["first"]}
            named = {number for kind in ("gaps", "given_up") for first, last in stream[kind]
                     for number in range(first, last + 1)}
            verdict.stored += len(stored)
            verdict.missing += len(stored - readable)
            verdict.named["damaged"] += len(named)
            if unnamed := sorted(stored - readable - named):
                verdict.fault(f"{name}: not readable and not named: {judge.ranges(unnamed)}")
            if wrong := sorted(named & readable):
                verdict.fault(f"{name}: named damaged and readable: {judge.ranges(wrong)}")
        for name in set(node.archive.streams) - set(report):
            verdict.fault(f"{name}: the stream is not in the log any more")
        return self.say(f"{node.name} own log", verdict)

    @staticmethod
    def say(what: str, verdict: Verdict) -> bool:
        print(f"   {'FAULT' if verdict.faults else 'ok'}: {what}: {verdict.text()}", flush=True)
        for fault in verdict.faults[:5]:
            print(f"      {fault}")
        if len(verdict.faults) > 5:
            print(f"      and {len(verdict.faults) - 5} more")
        return bool(verdict.faults)


def check(chappe: str, work: pathlib.Path, options: argparse.Namespace) -> None:
    expect(True, f"the judge finds {judge.prove_yourself()} planted faults of as many")
    life.DEVICE = life.DEVICE.replace("period_ms = 20", f"period_ms = {PERIOD_MS}")
    life.PADDING = PADDING
    pair.NODE = pair.NODE.replace("segment_bytes = 65536", f"segment_bytes = {SEGMENT_BYTES}")
    soak = Soak(chappe, work, options.seed)
    devices = life.devices(chappe, work / "devices", DEVICES)
    reader = threading.Thread(target=soak.archive, daemon=True)
    reader.start()
    faulty = True
    try:
        begins = soak.run(options.minutes)
        print(f"   -- {soak.faults()}; seed {options.seed}", flush=True)
        soak.calm(devices)
        faulty = soak.verdicts(begins) + sum(soak.damage(node) for node in soak.nodes)
        expect(not faulty, f"{options.minutes:g} minutes, {soak.faults()}: every element of every copy is stored "
               "once or named lost" if not faulty else f"{faulty} copies or logs have a fault (seed {options.seed})")
    finally:
        soak.ended.set()
        for node in soak.nodes:
            node.unslow()
            node.free()
            if node.process:
                node.kill()
            node.unmount(keeps=bool(faulty))
        for device in devices:
            device.stop()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("chappe", type=pathlib.Path)
    parser.add_argument("work", type=pathlib.Path)
    parser.add_argument("--minutes", type=float, default=float(os.environ.get("SOAK_MINUTES") or 60))
    parser.add_argument("--seed", type=int, default=int(os.environ.get("SOAK_SEED") or random.randrange(1 << 31)))
    options = parser.parse_args()
    enter(INSIDE, [sys.argv[0], str(options.chappe), str(options.work), "--minutes", str(options.minutes),
                   "--seed", str(options.seed)])
    # Losses are read from the process logs.
    os.environ.update(CHAPPE_LOG="warn,chappe_node::notices=info", NO_COLOR="1")
    print(f"   -- {options.minutes:g} minutes, seed {options.seed}", flush=True)
    chappe, work = options.chappe.resolve(), options.work.resolve()
    run_in(work, lambda: check(str(chappe), work, options), (Lost, http.client.HTTPException),
           f", seed {options.seed}")


if __name__ == "__main__":
    main()
