"""Consecutive nodes on the same data, with devices that keep sending and a client that records all received elements."""

import contextlib
import http.client
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from model import Ledger, Lost  # noqa: E402
from network import CheckFailed, Process, until  # noqa: E402

DEVICE = """
name = "Counter {n}"
manufacturer = "Loss Works"
model = "C"
serial_number = "C-{n}"
namespace = "http://example.com/chappe/counter"
types = ["Counter"]

[[event]]
name = "Count"
period_ms = 20
recording = "counter.csv"

[[event.field]]
name = "value"
type = "double"
unit = "1"

[[event.field]]
name = "padding"
type = "string"
"""

CONFIG = """
name = "loss"
data_directory = "{folder}/data"
sensors_directory = "{folder}/sensors"
[http]
listen = "127.0.0.1:0"
[discovery]
interfaces = ["lo"]
[log]
segment_bytes = {segment_bytes}
min_free_bytes = 0
"""
# Files of a log that a trace is restricted to, from the newest segment on.
SEGMENTS_AHEAD = 24
# The smallest that a node takes: with the padding a device fills one in some seconds.
SMALLEST_SEGMENT = 64 * 1024
PADDING = "x" * 400


def devices(chappe: str, work: pathlib.Path, count: int) -> list[Process]:
    """Devices on separate loopback addresses that send every 20 ms."""
    work.mkdir(parents=True, exist_ok=True)
    (work / "counter.csv").write_text("value,padding\n" + "".join(f"{n},{PADDING}\n" for n in range(1, 1000)))
    started = []
    for n in range(1, count + 1):
        (work / f"counter-{n}.toml").write_text(DEVICE.format(n=n))
        device = Process([chappe, "device", "run", str(work / f"counter-{n}.toml"), "--address",
                          f"127.0.1.{n}", "--announce-within", "0ms", "--json"], work / f"device-{n}.log")
        started.append(device)
        device.wait_event("ready", 20)
    return started


class Live(threading.Thread):
    """A client of all live data; records the received elements and its position."""

    def __init__(self, address: str, last_id: str | None):
        super().__init__(daemon=True)
        host = address.removeprefix("http://")
        self.connection = http.client.HTTPConnection(host, timeout=120)
        headers = {"Last-Event-ID": last_id} if last_id else {}
        self.connection.request("GET", "/api/v1/live?streams=*", headers=headers)
        self.response = self.connection.getresponse()
        self.last_id = last_id
        self.elements: list[dict] = []
        self.rollbacks: list[dict] = []
        self.start()

    def run(self) -> None:
        event, identity = "", None
        # The node is killed while it sends: any end is one.
        with contextlib.suppress(OSError, http.client.HTTPException, ValueError, AttributeError):
            while line := self.response.readline():
                name, _, value = line.decode().rstrip("\n").partition(": ")
                if not line.endswith(b"\n"):
                    return
                if name == "event":
                    event = value
                elif name == "id":
                    identity = value
                elif name == "data":
                    self._take(event, json.loads(value), identity)
                    event, identity = "", None

    def _take(self, event: str, data: dict, identity: str | None) -> None:
        if event == "elements":
            self.elements.extend(data["elements"])
            self.last_id = identity or self.last_id
        elif event == "rollback":
            self.rollbacks.append(data)

    def end(self) -> None:
        with contextlib.suppress(OSError):
            if self.connection.sock:
                self.connection.sock.shutdown(2)
        self.join(20)
        self.connection.close()


def content(element: dict) -> str:
    kept = {key: value for key, value in element.items() if key not in ("stream", "epoch", "number")}
    return json.dumps(kept, sort_keys=True)


class Data:
    """A data directory and all elements ever seen of it."""

    def __init__(self, chappe: str, work: pathlib.Path, segment_bytes: int = SMALLEST_SEGMENT):
        self.chappe, self.folder = chappe, work
        (work / "sensors").mkdir(parents=True)
        (work / "node.toml").write_text(CONFIG.format(folder=work, segment_bytes=segment_bytes))
        self.ledger = Ledger()
        self.last_id: str | None = None
        self.numbers: dict[str, int] = {}
        self.lives = 0

    def paths(self, part: str) -> list[str]:
        """The paths to which a trace of the log or of the registry's journal is restricted."""
        folder = self.folder / "data" / part
        known = sorted(folder.glob("*.segment"))
        newest = int(known[-1].name.split(".")[0]) if known else 0
        segments = [f"{n:010}.segment" for n in range(max(1, newest - 1), newest + SEGMENTS_AHEAD)]
        names = ["marker", "marker.new", *segments, *(f"{name}.new" for name in segments[:3])]
        return [f"-P{folder}", *(f"-P{folder}/{name}" for name in names)]

    def start(self, *before: str) -> "Life":
        self.lives += 1
        return Life(self, list(before))

    def check(self) -> dict:
        """The output of the program's own check of the data."""
        result = subprocess.run([self.chappe, "data", "check", str(self.folder / "data"), "--json"],
                                capture_output=True, text=True, timeout=300)
        report = json.loads(result.stdout or "{}")
        if result.returncode or not report.get("healthy"):
            raise Lost(f"data check: {result.stdout[-400:]}{result.stderr[-400:]}")
        return report

    def note(self, live: Live, resumed: bool) -> int:
        """Records the elements received by a client; after a resume they must be in order and without a gap."""
        for element in live.elements:
            stream, number = element["stream"], element["number"]
            self.ledger.shown(stream, element["epoch"], number, content(element))
            before = self.numbers.get(stream)
            if resumed and before is not None and number != before + 1:
                raise Lost(f"a client that resumed at {before} of {stream} was shown {number} next")
            self.numbers[stream] = number
        self.last_id = live.last_id
        return len(live.elements)


class Life:
    """A node from its start to its end."""

    def __init__(self, data: Data, before: list[str]):
        self.data = data
        log = data.folder / f"node-{data.lives % 8}.log"
        command = [data.chappe, "serve", str(data.folder / "node.toml"), "--json"]
        self.node = Process([*before, *command], log)
        self.address = ""
        self.pid = 0
        self.live: Live | None = None

    def ready(self) -> "Life":
        event = self.node.wait_event("ready", 30)
        self.address, self.pid = event["address"], event["pid"]
        return self

    def get(self, path: str) -> dict:
        request = urllib.request.Request(f"{self.address}{path}")
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return {**json.loads(answer.read()), "code": answer.status}
        except urllib.error.HTTPError as error:
            return {**json.loads(error.read()), "code": error.code}

    def judge(self) -> dict[str, str]:
        """Compares all stored elements with those received; returns the streams' epochs."""
        streams = self.get("/api/v1/streams")["streams"]
        for stream in streams:
            after, elements, more = "0000000000000000:0", [], True
            while more:
                url = f"/api/v1/streams/{stream['name']}/elements?after={after}&limit=10000"
                page = self.get(url)
                if "elements" not in page:
                    raise Lost(f"{url}: {page}")
                elements += [(e["epoch"], e["number"], content(e)) for e in page["elements"]]
                after, more = page["next_after"], page["truncated"]
            self.data.ledger.holds(stream["name"], elements)
        known = {key[0] for key in self.data.ledger.acknowledged}
        missing = known - {stream["name"] for stream in streams}
        if missing:
            raise Lost(f"streams are lost: {missing}")
        return {stream["name"]: stream["epoch"] for stream in streams}

    def registered(self, devices: int) -> None:
        """The registry is complete again: every device and every stream of it is an entity."""
        def whole() -> bool:
            entities = self.get("/api/v1/entities?limit=1000")["entities"]
            kinds = {kind: {e["key"] for e in entities if e["kind"] == kind} for kind in ("device", "stream")}
            streams = self.get("/api/v1/streams")["streams"]
            return len(kinds["device"]) == devices and len(streams) >= devices and \
                kinds["stream"] == {stream["entity"] for stream in streams}
        until(20, "every device and stream is an entity of the registry", whole)

    def follow(self) -> Live:
        self.live = Live(self.address, self.data.last_id)
        return self.live

    def shows(self, count: int, timeout_s: float = 20) -> None:
        until(timeout_s, f"{count} elements are shown", lambda: len(self.live.elements) >= count)

    def wait_death(self, timeout_s: float) -> bool:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.node.process.wait(timeout_s)
        return self.node.process.poll() is not None

    def kill(self) -> None:
        if self.node.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                if self.pid:
                    os.kill(self.pid, signal.SIGKILL)
                else:
                    os.killpg(self.node.process.pid, signal.SIGKILL)
            self.node.process.wait(60)
        self.node.log.close()

    def stop(self) -> None:
        """Shuts it down in an orderly way."""
        if self.pid:
            os.kill(self.pid, signal.SIGTERM)
        code = self.node.process.wait(120)
        self.node.log.close()
        if code:
            raise CheckFailed(f"the node ended with {code}, see {self.node.log.name}")

    def took(self, resumed: bool = True) -> int:
        """Records the elements received by its client, after it has ended."""
        shown = 0
        if self.live:
            self.live.end()
            shown = self.data.note(self.live, resumed)
            self.live = None
        return shown

