"""What the checks of wrappers share: a namespace behind a cable for the peers, a node, and programs that are fed."""

import collections
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable

from network import PATIENCE, CheckFailed, expect, until
from write.node import Node

HERE, THERE = "10.79.0.1", "10.79.0.2"
REST = 8470
CONFIGURATION = f"""
name = "wrapped"
data_directory = "data"
sensors_directory = "sensors"
[http]
listen = "0.0.0.0:{REST}"
[access]
insecure = true
[log]
segment_bytes = 1048576
min_free_bytes = 65536
[discovery]
enabled = false
"""


class Skipped(Exception):
    """A peer is not installed."""


def need(*programs: str) -> None:
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        raise Skipped(f"not installed: {' '.join(missing)}")


class Far:
    """A namespace at the other end of a cable that can be cut."""

    def __init__(self) -> None:
        self.name = "far"
        self.cuts = 0
        self.before_cut: list[Callable[[], None]] = []
        # Names of this mount namespace alone.
        pathlib.Path("/run/netns").mkdir(exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "netns", "/run/netns"], check=True)
        self.ip("netns", "add", self.name)
        self.ip("link", "add", "near0", "type", "veth", "peer", "name", "far0", "netns", self.name)
        self.ip("addr", "add", f"{HERE}/24", "dev", "near0")
        self.ip("link", "set", "near0", "up")
        for words in (("addr", "add", f"{THERE}/24", "dev", "far0"), ("link", "set", "far0", "up"),
                      ("link", "set", "lo", "up")):
            self.ip("-n", self.name, *words)

    @staticmethod
    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True)

    def command(self, *arguments: str) -> list[str]:
        return ["ip", "netns", "exec", self.name, *arguments]

    def cut(self, seconds: float) -> None:
        for note in self.before_cut:
            note()
        self.cuts += 1
        self.ip("-n", self.name, "link", "set", "far0", "down")
        time.sleep(seconds)
        self.ip("-n", self.name, "link", "set", "far0", "up")


    def end(self) -> None:
        running = subprocess.run(["ip", "netns", "pids", self.name], capture_output=True, text=True).stdout
        for pid in running.split():
            os.kill(int(pid), signal.SIGKILL)
        # It goes with its namespace, but later.
        self.ip("link", "del", "near0")
        self.ip("netns", "del", self.name)
        subprocess.run(["umount", "/run/netns"], check=False)


class Bench:
    """A node, the cable, and how often each was disturbed."""

    def __init__(self, chappe: str, work: pathlib.Path, seed: int, data_bytes: int = 0):
        self.far, self.work = Far(), work
        self.chance = random.Random(seed)
        self.node_kills = self.fills = 0
        work.mkdir(parents=True)
        for name in ("wrappers", "exporters"):
            (work / "node" / name).mkdir(parents=True)
        if data_bytes:
            data = work / "node" / "data"
            data.mkdir(mode=0o700)
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={data_bytes},mode=0700", "data", str(data)], check=True)
        self.node = Node(chappe, work / "node", configuration=CONFIGURATION)
        (self.folder / "token").write_text(self.node.token)

    def end(self) -> None:
        """Ends the node and what runs at the other end of the cable."""
        if self.node.process.process.poll() is None:
            self.node.process.stop()
        self.far.end()
        subprocess.run(["umount", "--lazy", str(self.work / "node" / "data")], capture_output=True)

    @property
    def folder(self) -> pathlib.Path:
        return self.node.folder

    def wrapper(self, name: str, text: str) -> None:
        (self.folder / "wrappers" / f"{name}.toml").write_text(text)

    def exporter(self, name: str, text: str) -> None:
        (self.folder / "exporters" / f"{name}.toml").write_text(text)

    def kill_node(self, pause_s: float = 0.0) -> None:
        self.node.kill()
        self.node_kills += 1
        time.sleep(pause_s)
        self.node.start()

    def row(self, name: str, table: str = "wrappers") -> dict:
        """What the node shows of a wrapper; only nulls before it knows it."""
        status, row = self.node.ask("GET", f"/api/v1/{table}/{name}")
        if status == 404:
            return collections.defaultdict(lambda: None)
        if status != 200:
            raise CheckFailed(f"{table}/{name}: {status} {row}")
        return row

    def letters(self, name: str) -> list[dict]:
        found, cursor = [], ""
        while True:
            status, page = self.node.ask("GET", f"/api/v1/wrappers/{name}/dead-letters?limit=100{cursor}")
            if status != 200:
                raise CheckFailed(f"dead letters of {name}: {status} {page}")
            found += page["dead_letters"]
            if not page.get("next"):
                return found
            cursor = f"&cursor={page['next']}"

    def last(self, stream: str) -> int:
        """The number of the last element of a stream; 0 without one."""
        status, answer = self.node.ask("GET", f"/api/v1/streams/{stream}")
        return answer["last"] or 0 if status == 200 else 0

    def numbers(self, stream: str, field: str = "n") -> list:
        return [one["values"][field] for one in self.node.elements(stream)]

    def at_rest(self, stream: str, quiet_s: float = 2.0) -> None:
        """Waits until a stream does not grow any more."""
        last, since = self.last(stream), time.monotonic()
        end = since + 30 * PATIENCE
        while time.monotonic() < since + quiet_s:
            if time.monotonic() > end:
                raise CheckFailed(f"{stream} grows without end")
            time.sleep(0.2)
            if (now := self.last(stream)) != last:
                last, since = now, time.monotonic()


class Fed:
    """A program of others whose standard input is fed with numbered lines; it is started again when it ends."""

    def __init__(self, command: Callable[[], list[str]], line: Callable[[int], str], log: pathlib.Path,
                 period_s: float = 0.02):
        self.command, self.line, self.period_s = command, line, period_s
        self.log, self.written, self.starts = open(log, "ab"), 0, 0
        self.process: subprocess.Popen | None = None
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self._feed, daemon=True)
        self.thread.start()

    def _feed(self) -> None:
        while not self.is_over.is_set():
            if self.process is None or self.process.poll() is not None:
                if self.starts:
                    time.sleep(0.2)
                self.starts += 1
                self.process = subprocess.Popen(self.command(), stdin=subprocess.PIPE, stdout=self.log,
                                                stderr=self.log, start_new_session=True)
            try:
                # One write a line: a program that reads pipes passes it on as it comes.
                os.write(self.process.stdin.fileno(), self.line(self.written + 1).encode())
                self.written += 1
            except OSError:
                continue
            time.sleep(self.period_s)

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)

    def finish(self, patience_s: float = 20) -> None:
        """Ends its input and waits until it has passed on what it has; one that cannot is killed."""
        self.is_over.set()
        self.thread.join(2)
        if self.process is None:
            return
        if self.thread.is_alive():
            self.kill()
        self.thread.join()
        self.process.stdin.close()
        try:
            self.process.wait(patience_s)
        except subprocess.TimeoutExpired:
            self.kill()
            self.process.wait()


def judge(what: str, found: list[int], gaps_max: int = 0, doubles_max: int = 0, ordered: bool = True,
          first: int = 1, last: int | None = None) -> None:
    """Numbers that were stored: missing ones form at most so many gaps, and at most so many are there again."""
    if not found:
        raise CheckFailed(f"{what}: nothing is stored")
    counts = collections.Counter(found)
    doubles = sum(count - 1 for count in counts.values())
    have = sorted(counts)
    edges = [first - 1, *have] + ([last + 1] if last is not None else [])
    gaps = [(before + 1, after - 1) for before, after in zip(edges, edges[1:]) if after - before > 1]
    missing = sum(after - before + 1 for before, after in gaps)
    is_sorted = not ordered or all(one <= next_one for one, next_one in zip(found, found[1:]))
    beyond = [number for number in have if number < first or (last is not None and number > last)]
    right = len(gaps) <= gaps_max and doubles <= doubles_max and is_sorted and not beyond
    allowed = "" if right else (f" (allowed: {gaps_max} gaps, {doubles_max} again; gaps {gaps[:5]}, again "
                                f"{[n for n, c in counts.items() if c > 1][:5]}, in order {is_sorted}, never sent {beyond[:3]})")
    expect(right, f"{what}: {len(have)} numbers stored, {missing} missing in {len(gaps)} gaps, {doubles} stored again{allowed}")


def lines_of(path: pathlib.Path) -> list[str]:
    return path.read_text(errors="replace").splitlines() if path.exists() else []


def documents(lines: list[str]) -> list[dict]:
    """The lines that are JSON objects."""
    found = []
    for line in lines:
        try:
            document = json.loads(line)
        except ValueError:
            continue
        if isinstance(document, dict):
            found.append(document)
    return found


def wait_rows(bench: Bench, names: list[str], table: str = "wrappers") -> None:
    """Waits until wrappers or exporters are there."""
    def has_all() -> bool:
        _, answer = bench.node.ask("GET", f"/api/v1/{table}")
        return set(names) <= {one["name"] for one in answer[table]}
    until(20, f"{table} {' '.join(names)}", has_all)
