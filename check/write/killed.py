"""SIGKILL while clients write: what is sent again until it is acknowledged is stored exactly once, and in order."""

import collections
import json
import random
import subprocess
import threading
import time

from network import CheckFailed, expect
from node import Node

KILLS = 12
ATOMIC = 500
AGAIN = (429, 500, 503, 507)


class Writers:
    """Clients that send each request until it is acknowledged."""

    def __init__(self, node: Node, seed: int):
        self.node, self.seed, self.is_over = node, seed, threading.Event()
        self.written: dict[str, int] = {}
        self.acknowledged: set[int] = set()
        self.faults: list[str] = []
        work = [(self.number, "ann", "numbered", 1), (self.number, "bob", "numbered", 2),
                (self.number, "both", "shared", 3), (self.number, "both", "shared", 3), (self.keys,), (self.groups,)]
        self.threads = [threading.Thread(target=self.guarded, args=one) for one in work]

    def guarded(self, task, *arguments) -> None:
        try:
            task(*arguments)
        except Exception as fault:  # noqa: BLE001: each is a finding
            self.faults.append(repr(fault))

    def send(self, path: str, body: str, kind: str, count: int, **headers: str) -> None:
        """Sends a request again until it is acknowledged."""
        while True:
            try:
                status, answer = self.node.ask("POST", path, body, timeout_s=20, Content_Type=kind, **headers)
            except OSError:
                time.sleep(0.02)
                continue
            except Exception:  # noqa: BLE001: an answer that the kill cut off
                continue
            if status == 200 and answer["stored"] + answer["duplicates"] == count:
                return
            if status not in AGAIN:
                raise CheckFailed(f"{path}: {status} {answer}")
            time.sleep(0.05)

    def number(self, producer: str, stream: str, salt: int) -> None:
        """A producer that numbers its elements; two with one name and seed send the same."""
        chance, at = random.Random(self.seed + salt), 0
        while not self.is_over.is_set():
            numbers = range(at, at + chance.randint(1, 80))
            if chance.random() < 0.5:
                kind, body = "application/x-ndjson", "\n".join(
                    json.dumps({"producer": producer, "n": n}) for n in numbers)
            else:
                kind, body = "text/csv", "producer,n\n" + "".join(f"{producer},{n}\n" for n in numbers)
            atomic = chance.choice(["", "&atomic=true"])
            path = f"/api/v1/streams/{stream}/elements?producer={producer}&first={at + 1}{atomic}"
            self.send(path, body, kind, len(numbers))
            at += len(numbers)
            self.written[stream + producer] = max(at, self.written.get(stream + producer, 0))

    def keys(self) -> None:
        """Requests that are named by an idempotency key."""
        at = 0
        while not self.is_over.is_set():
            body = json.dumps([{"n": at * 10 + offset} for offset in range(10)])
            self.send("/api/v1/streams/keyed/elements", body, "application/json", 10, Idempotency_Key=f"request {at}")
            at += 1
            self.written["keyed"] = at * 10

    def groups(self) -> None:
        """Atomic requests that are sent once only."""
        group = 0
        while not self.is_over.is_set():
            body = [{"grouping": group, "n": n} for n in range(ATOMIC)]
            try:
                status, _ = self.node.ask("POST", "/api/v1/streams/grouped/elements?atomic=true", body, timeout_s=20)
            except Exception:  # noqa: BLE001: the kill came first
                status = 0
            if status == 200:
                self.acknowledged.add(group)
            group += 1
            time.sleep(0.02)


def once(what: str, numbers: list[int], count: int, ordered: bool = True) -> None:
    """Each number below `count` is there once, and later ones at most once."""
    found = collections.Counter(numbers)
    missing = [n for n in range(count) if not found[n]]
    twice = [n for n, times in found.items() if times > 1]
    right = not missing and not twice and (not ordered or numbers == sorted(numbers))
    expect(right, f"{what}: {count} acknowledged elements are stored once"
           + ("" if right else f"; missing {missing[:5]}, twice {twice[:5]}, sorted {numbers == sorted(numbers)}"))


def check(node: Node, seed: int) -> None:
    chance = random.Random(seed)
    node.create("numbered", producer="text", n="integer")
    node.create("shared", producer="text", n="integer")
    node.create("keyed", n="integer")
    node.create("grouped", grouping="integer", n="integer")
    writers = Writers(node, seed)
    for thread in writers.threads:
        thread.start()
    for _ in range(KILLS):
        time.sleep(chance.uniform(0.05, 1.0))
        node.kill()
        node.start()
    writers.is_over.set()
    for thread in writers.threads:
        thread.join()
    expect(not writers.faults, f"{KILLS} kills while six clients wrote; no request was refused: {writers.faults[:3]}")
    numbered = [one["values"] for one in node.elements("numbered")]
    for producer in ("ann", "bob"):
        own = [values["n"] for values in numbered if values["producer"] == producer]
        once(producer, own, writers.written["numbered" + producer])
    both = [one["values"]["n"] for one in node.elements("shared")]
    once("two clients of one producer", both, writers.written["sharedboth"])
    once("requests with a key", [one["values"]["n"] for one in node.elements("keyed")], writers.written["keyed"])
    groups = collections.Counter(one["values"]["grouping"] for one in node.elements("grouped"))
    torn = [group for group, count in groups.items() if count != ATOMIC]
    lost = writers.acknowledged - set(groups)
    expect(not torn and not lost, f"{len(groups)} atomic requests are stored whole: torn {torn[:3]}, lost {sorted(lost)[:3]}")
    node.stop()
    done = subprocess.run([node.chappe, "data", "check", str(node.folder / "data")], capture_output=True, text=True)
    expect(done.returncode == 0, "the log is sound" + (done.stdout + done.stderr if done.returncode else ""))
