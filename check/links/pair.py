"""An origin node with devices, a subscriber linked to it through a relay, and the judge of both."""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "loss"))
from model import Lost  # noqa: E402
from network import CheckFailed, Process, until  # noqa: E402
from relay import Relay  # noqa: E402

NODE = """
name = "{name}"
data_directory = "{folder}/data"
sensors_directory = "{folder}/sensors"
[http]
listen = "127.0.0.1:{port}"
[discovery]
enabled = {discovery}
interfaces = ["lo"]
[log]
segment_bytes = {segment_bytes}
min_free_bytes = 0
{more}
"""


class Node:
    """A node of one data directory, started repeatedly."""

    def __init__(self, chappe: str, folder: pathlib.Path, name: str, port: int, discovery: bool, more: str,
                 segment_bytes: int = 65_536):
        self.chappe, self.folder, self.name = chappe, folder, name
        (folder / "sensors").mkdir(parents=True, exist_ok=True)
        (folder / "node.toml").write_text(NODE.format(
            name=name, folder=folder, port=port, discovery=str(discovery).lower(), more=more,
            segment_bytes=segment_bytes))
        self.lives = 0
        self.process: Process | None = None
        self.pid, self.address = 0, ""

    def start(self, *before: str) -> "Node":
        self.lives += 1
        log = self.folder / f"{self.name}-{self.lives % 8}.log"
        self.process = Process([*before, self.chappe, "serve", str(self.folder / "node.toml"), "--json"], log)
        self.pid = 0
        return self

    def ready(self) -> "Node":
        event = self.process.wait_event("ready", 30)
        self.pid, self.address = event["pid"], event["address"]
        return self

    def running(self) -> bool:
        return self.process is not None and self.process.process.poll() is None

    def kill(self) -> None:
        """Sends SIGKILL at any time."""
        if self.running():
            with contextlib.suppress(ProcessLookupError):
                if self.pid:
                    os.kill(self.pid, signal.SIGKILL)
                else:
                    os.killpg(self.process.process.pid, signal.SIGKILL)
            self.process.process.wait(60)
        self.process.log.close()

    def wait_death(self, timeout_s: float) -> bool:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.process.wait(timeout_s)
        return not self.running()

    def stop(self) -> None:
        os.kill(self.pid, signal.SIGTERM)
        code = self.process.process.wait(120)
        self.process.log.close()
        if code:
            raise CheckFailed(f"{self.name} ended with {code}, see {self.process.log.name}")

    def get(self, path: str) -> dict:
        try:
            with urllib.request.urlopen(f"{self.address}{path}", timeout=60) as answer:
                return {**json.loads(answer.read()), "code": answer.status}
        except urllib.error.HTTPError as error:
            return {**json.loads(error.read()), "code": error.code}

    def command(self, *arguments: str) -> dict:
        """Runs a command of the program against this node."""
        done = subprocess.run([self.chappe, *arguments, "--node", self.address, "--json"],
                              capture_output=True, text=True, timeout=240)
        if done.returncode == 2:
            raise CheckFailed(f"{arguments}: {done.stderr}")
        return json.loads(done.stdout)

    def streams(self) -> dict[str, dict]:
        return {stream["name"]: stream for stream in self.get("/api/v1/streams")["streams"]}

    def elements(self, stream: str) -> list[dict]:
        """All stored elements, in order."""
        after, elements, more = "0000000000000000:0", [], True
        while more:
            page = self.get(f"/api/v1/streams/{stream}/elements?after={after}&limit=10000")
            if "elements" not in page:
                raise Lost(f"{self.name}, {stream}: {page}")
            elements += page["elements"]
            after, more = page["next_after"], page["truncated"]
        return elements


def place(element: dict) -> tuple[str, int] | None:
    """The position of an element at its origin."""
    if "origin" not in element:
        return None
    epoch, _, number = element["origin"].partition(":")
    return epoch, int(number)


def content(element: dict) -> str:
    """The content that must be equal at both ends."""
    kept = ("source_time", "key", "values", "quality")
    return json.dumps({name: element.get(name) for name in kept}, sort_keys=True)


def judge(origin: list[dict], subscriber: list[dict], stream: str) -> int:
    """The subscriber has every element of the origin exactly once, in order, and nothing else."""
    held: dict[tuple[str, int], str] = {}
    last = None
    for element in subscriber:
        identity = place(element)
        if not identity:
            raise Lost(f"{stream}: number {element['number']} does not say where it came from")
        if identity in held:
            raise Lost(f"{stream}: {identity} is there twice")
        if last and last[0] == identity[0] and identity[1] <= last[1]:
            raise Lost(f"{stream}: {identity} comes after {last}")
        last = identity
        held[identity] = content(element)
    for element in origin:
        identity = (element["epoch"], element["number"])
        found = held.pop(identity, None)
        if found is None:
            raise Lost(f"{stream}: {identity} is not at the subscriber")
        if found != content(element):
            raise Lost(f"{stream}: {identity} was {content(element)} and is {found}")
    if held:
        raise Lost(f"{stream}: the subscriber has {len(held)} that the origin never had: {list(held)[:3]}")
    return len(origin)


def prove_yourself() -> int:
    """Shows that the judge finds each kind of loss; returns how many were tried."""
    def element(number: int, value: int, at: int | None = None, epoch: str = "e") -> dict:
        one = {"epoch": epoch, "number": number, "source_time": f"t{value}", "values": {"v": value}}
        if at is not None:
            one["origin"] = f"{epoch}:{at}"
        return one
    origin = [element(n, n) for n in (1, 2, 3)]
    whole = [element(n, n, n) for n in (1, 2, 3)]
    judge(origin, whole, "s")
    planted = {
        "lost at the end": whole[:2],
        "lost in the middle": [whole[0], whole[2]],
        "doubled": [*whole, whole[2]],
        "of another content": [*whole[:2], element(3, 4, 3)],
        "in another order": [whole[1], whole[0], whole[2]],
        "of another epoch": [*whole[:2], element(3, 3, 3, "f")],
        "invented": [*whole, element(4, 4, 4)],
        "without its origin": [*whole[:2], element(3, 3)],
    }
    for name, elements in planted.items():
        try:
            judge(origin, elements, "s")
        except Lost:
            continue
        raise AssertionError(f"the judge does not see an element {name}")
    return len(planted)


class Pair:
    """Origin, relay, subscriber; recreated at intervals to keep judging fast."""

    def __init__(self, chappe: str, work: pathlib.Path, link: str, exchange: str, port: int,
                 http_ports: tuple[int, int]):
        work.mkdir(parents=True)
        self.work = work
        # One toward the origin, one toward the subscriber for what the origin pushes.
        self.relays = [Relay(("127.0.0.1", port)), Relay(("127.0.0.1", http_ports[1]))]
        address, contact = (f"127.0.0.1:{relay.address[1]}" for relay in self.relays)
        self.origin = Node(chappe, work / "origin", "origin", http_ports[0], True, exchange)
        self.subscriber = Node(chappe, work / "subscriber", "subscriber", http_ports[1], False,
                               link.format(address=address, contact=contact))

    def start(self) -> "Pair":
        self.origin.start().ready()
        self.subscriber.start().ready()
        return self

    def stored(self) -> int:
        """Number of elements at the subscriber, from its streams' last numbers."""
        return sum(stream["last"] for stream in self.subscriber.streams().values())

    def moves(self, more: int = 5, timeout_s: float = 20) -> None:
        """Waits until elements arrive at the subscriber."""
        begin = self.stored()
        until(timeout_s, f"{more} more elements at the subscriber", lambda: self.stored() >= begin + more)

    def judge(self, timeout_s: float = 30) -> int:
        """Stops the origin's intake, waits until the subscriber has everything, and compares both."""
        ends = {name: stream["last"] for name, stream in self.origin.streams().items() if stream["last"]}
        if not ends:
            raise CheckFailed("the origin has no elements")

        def arrived() -> bool:
            have = self.subscriber.streams()
            return all(name in have and self._reached(name, end) for name, end in ends.items())
        until(timeout_s, "everything that the origin had is at the subscriber", arrived)
        judged = 0
        for name, end in ends.items():
            origin = [one for one in self.origin.elements(name) if one["number"] <= end]
            subscriber = [one for one in self.subscriber.elements(name)
                          if (place(one) or ("", 0))[1] <= end]
            judged += judge(origin, subscriber, name)
        return judged

    def _reached(self, name: str, end: int) -> bool:
        newest = self.subscriber.get(f"/api/v1/streams/{name}/elements?newest=1")["elements"]
        return bool(newest) and (place(newest[-1]) or ("", 0))[1] >= end

    def end(self) -> None:
        for node in (self.subscriber, self.origin):
            if node.process:
                node.kill()
        for relay in self.relays:
            relay.stop()
        shutil.rmtree(self.work, ignore_errors=True)
