"""GSN's REST interface: a real GSN server reads a node with its wrapper `remote-api`, and Chappe's wrapper reads a node.

The server that answers these calls in GSN is a module that no registry has, so that the second direction runs against
the calls as a node answers them. What GSN's wrapper sends and stores is what both follow.
"""

import argparse
import datetime
import os
import pathlib
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "write"))
from network import PATIENCE, expect  # noqa: E402
from node import Node  # noqa: E402
from server import Server, until  # noqa: E402

ADDRESS = "127.0.0.1:8470"
ACCOUNT = "gsn"
STREAM = "plant.line"
FIELDS = {"number": "integer", "level": "double", "note": "text"}
COLUMNS = {"number": "bigint", "level": "double", "note": "varchar(64)"}
MORE = "[limits]\nelements = 1000000\nfuture_s = 100000\n[access]\nread = \"token\"\n"
# Elements of one request.
TOGETHER = 5_000
# GSN's wrapper asks every ten seconds.
PERIOD_S = 10


class Source:
    """A node that serves GSN's interface, and numbered elements in it, one for each millisecond."""

    def __init__(self, folder: pathlib.Path, chappe: str):
        os.environ |= {"CHAPPE_HTTP_LISTEN": ADDRESS, "CHAPPE_HTTP_GSN": "true"}
        self.node = Node(chappe, folder, MORE)
        self.node.create(STREAM, level="power", **FIELDS)
        status, answer = self.node.ask("POST", "/api/v1/accounts", {"name": ACCOUNT, "roles": [f"read={STREAM}"]})
        expect(status == 201, "an account of the server is made")
        self.secret = answer["token"]
        # The time of each number, in milliseconds.
        self.times: list[int] = []

    def write(self, count: int, begin_ms: int) -> None:
        """Writes elements; returns once each is acknowledged."""
        begin = max(begin_ms, self.times[-1] + 1 if self.times else 0)
        for first in range(0, count, TOGETHER):
            lines = []
            for offset in range(first, min(first + TOGETHER, count)):
                number, time_ms = len(self.times) + 1, begin + offset
                at = datetime.datetime.fromtimestamp(time_ms / 1000, datetime.timezone.utc)
                at = f"{at:%Y-%m-%dT%H:%M:%S}.{time_ms % 1000:03}Z"
                lines.append(f'{{"source_time":"{at}","number":{2**53 + number},"level":{number / 8},'
                             f'"note":"größe {number}"}}')
                self.times.append(time_ms)
            status, answer = self.node.ask("POST", f"/api/v1/streams/{STREAM}/elements",
                                           "\n".join(lines).encode(), Content_Type="application/x-ndjson")
            expect(status == 200 and answer["stored"] == len(lines), f"{len(lines)} elements are acknowledged")


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def to_gsn(args: argparse.Namespace, work: pathlib.Path) -> None:
    """GSN reads a node, through kills of both sides."""
    work.mkdir()
    source = Source(work / "node", args.chappe)
    source.write(1, now_ms() - 60_000)
    server = Server(work / "gsn", args.libraries)
    server.sensor("consumer", "remote-api", COLUMNS, url=f"http://{ADDRESS}/gsn", client_id=ACCOUNT,
                  client_secret=source.secret, vs_name=STREAM)
    consumed = lambda: server.counters().get("consumer", -1)  # noqa: E731
    half = max(args.elements // 2, 2)
    try:
        server.start()
        until("GSN has loaded its sensor", lambda: consumed() == 0, 60 * PATIENCE)
        # GSN asks for what is younger than the start of its wrapper.
        source.write(half // 2, now_ms())
        until("GSN reads", lambda: consumed() > 0, 60 * PATIENCE)
        begin = time.monotonic()
        until("GSN has what was written", lambda: consumed() >= half // 2, 120 * PATIENCE)
        print(f"   rate: Chappe to GSN, remote-api: {half // 2 / max(time.monotonic() - begin, 0.2):.0f}/s "
              f"within an answer; GSN asks every {PERIOD_S} s", flush=True)
        # A call that fails ends GSN's wrapper, so that the node is away between two calls.
        source.node.kill()
        source.node.start()
        source.write(half - half // 2, now_ms())
        until("GSN goes on after the node was killed", lambda: consumed() >= half, 120 * PATIENCE)
        server.stop(signal.SIGKILL)
        server.start()
        until("GSN has loaded its sensor again", lambda: consumed() == 0, 60 * PATIENCE)
        source.write(args.elements - half, now_ms())
        until("GSN has all", lambda: consumed() >= args.elements - half, 120 * PATIENCE)
    finally:
        server.stop(signal.SIGTERM)
        source.node.kill()
    rows = server.table("consumer", "timed, number, level, note")
    expected = [[str(time_ms), str(2**53 + n), str(n / 8), f"größe {n}"]
                for n, time_ms in enumerate(source.times, 1)][1:]
    expect(rows == expected, f"GSN has all {args.elements} elements once, with exact values ({len(rows)} rows)")


def from_server(args: argparse.Namespace, work: pathlib.Path) -> None:
    """Chappe's wrapper reads the interface of a node, through kills of both sides."""
    from run import Peer, stored
    work.mkdir()
    source = Source(work / "node", args.chappe)
    (work / "secret").write_text(source.secret)
    (work / "wrapper.toml").write_text(
        f'kind = "gsn-remote-api"\naddress = "http://{ADDRESS}/gsn"\nsensor = "{STREAM}"\nclient_id = "{ACCOUNT}"\n'
        'client_secret_file = "secret"\nperiod_s = 1\n')
    output = work / "stored"
    peer = Peer(work, args.peer, "wrap", str(work / "wrapper.toml"), str(output))
    count = lambda: len(stored(output))  # noqa: E731
    part = max(args.elements // 5, 1)
    try:
        source.write(part, now_ms())
        begin = time.monotonic()
        peer.start()
        until("the first part", lambda: count() >= part, 60 * PATIENCE)
        print(f"   rate: a node to Chappe, remote-api: {part / (time.monotonic() - begin):.0f}/s", flush=True)
        for kill in range(3):
            source.write(part, now_ms())
            before = count()
            until("more elements", lambda: count() > before, 60 * PATIENCE)
            if kill < 2:
                peer.kill()
                peer.start()
            else:
                source.node.kill()
                source.node.start()
        source.write(args.elements - 4 * part, now_ms())
        until("all elements", lambda: count() >= args.elements, 120 * PATIENCE)
    finally:
        peer.kill()
        source.node.kill()
    expect(stored(output) == source.times, f"all {args.elements} elements are stored once, in order")
