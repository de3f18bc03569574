"""Exchange with a real GSN 2.0.1 server: nothing that was answered is lost, whichever side is killed.

    python3 check/gsn/run.py GSN_PEER CHAPPE LIBRARIES WORK [--elements N] [--only NAME]

GSN_PEER is the example of chappe-wrappers, CHAPPE the program, LIBRARIES the folder with GSN's jars
(check/exchange/install). In each synchronous direction N elements are exchanged, and Chappe's side and the server are
killed with SIGKILL. The judge compares the server's database with the file of the example. Asynchronous exchange loses
elements by design: its rates are reported. The part `rates` measures each path next to GSN with itself, on the same
server: Chappe is not slower.
Runs as root on Linux, in namespaces of its own: what it started ends with it.
"""

import argparse
import pathlib
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from network import PATIENCE, CheckFailed, Process, enter, expect, run_in  # noqa: E402
import remote  # noqa: E402
from server import DIRECTORY, PROXY, SIMULATED, Server, until  # noqa: E402

INSIDE = "CHAPPE_GSN_INSIDE"
WRITTEN = {"number": "bigint", "level": "double", "note": "varchar(64)"}
BEGIN_MS = 1_700_000_000_000
HERE = "tcp://127.0.0.1"
# After so many elements the example writes how far it is.
WRITTEN_STEP = 500
# How long a rate is measured.
RATE_S = 10


class Peer:
    """The example, which can be killed and started again."""

    def __init__(self, work: pathlib.Path, peer: str, *arguments: str):
        self.arguments = [peer, *arguments]
        self.log = work
        self.runs = 0
        self.process: Process | None = None

    def start(self) -> None:
        self.runs += 1
        self.process = Process(self.arguments, self.log / f"peer{self.runs}.log")
        self.process.wait_line("ready", 30)

    def kill(self) -> None:
        if self.process is not None:
            self.process.stop(signal.SIGKILL)
            self.process = None


def stored(path: pathlib.Path) -> list[int]:
    """The times of the elements in the file of a wrapper, in order."""
    if not path.exists():
        return []
    words = (line.split(" ")[1:] for line in path.read_text().splitlines())
    flat = [word for line in words for word in line]
    if "undecodable" in flat:
        raise CheckFailed("an element cannot be decoded")
    return [int(word) for word in flat]


def from_gsn(args: argparse.Namespace, work: pathlib.Path) -> None:
    """Synchronous delivery from a sensor, through kills of both sides."""
    work.mkdir()
    server = Server(work / "gsn", args.libraries)
    server.sensor("producer", "multiformat", SIMULATED, rate=1)
    (work / "wrapper.toml").write_text(
        f'kind = "gsn-zeromq-sync"\nlisten = "{HERE}:24000"\ndirectory = "{HERE}:{DIRECTORY}"\nsensor = "producer"\n'
        'silence_s = 5\n')
    output = work / "stored"
    peer = Peer(work, args.peer, "wrap", str(work / "wrapper.toml"), str(output))
    try:
        server.start()
        until("GSN starts", lambda: server.counters().get("producer", 0) > 0, 60 * PATIENCE)
        peer.start()
        count = lambda: len(stored(output))  # noqa: E731
        third = args.elements // 3
        took = until("a third of the elements", lambda: count() >= third, 60 * PATIENCE)
        print(f"   rate: GSN to Chappe, synchronous: {third / took:.0f}/s (the producer made "
              f"{server.counters().get('producer', 0)})", flush=True)
        for kill in range(5):
            peer.kill()
            before = count()
            peer.start()
            took = until("the server goes on after Chappe was killed", lambda: count() > before, 60 * PATIENCE)
            print(f"   kill {kill + 1} of Chappe: elements again after {took:.1f} s", flush=True)
        until("two thirds", lambda: count() >= 2 * third, 60 * PATIENCE)
        server.stop(signal.SIGKILL)
        before = count()
        server.start()
        took = until("Chappe goes on after GSN was killed", lambda: count() > before, 60 * PATIENCE)
        print(f"   GSN killed: elements again after {took:.1f} s", flush=True)
        until("all elements", lambda: count() >= args.elements, 120 * PATIENCE)
    finally:
        server.stop(signal.SIGTERM)
        peer.kill()
    times = stored(output)
    expect(len(times) == len(set(times)), f"no element is stored twice ({len(times)} stored)")
    table = {int(row[0]) for row in server.table("producer", "timed")}
    missing = sorted(time for time in table if time <= max(times) and time not in set(times))
    expect(not missing, f"every element of GSN's database up to the newest stored one is stored ({len(table)} there)")


def to_gsn(args: argparse.Namespace, work: pathlib.Path, kind: str) -> None:
    """Synchronous delivery to a sensor, through kills of both sides."""
    work.mkdir()
    server = Server(work / "gsn", args.libraries)
    predicates = {"local_address": "127.0.0.1", "local_port": 25_000}
    if kind == "sync":
        predicates |= {"address": HERE, "meta_port": 26_023, "vsensor": "plant.line"}
    server.sensor("consumer", f"zeromq-{kind}", WRITTEN, **predicates)
    text = f'kind = "gsn-zeromq-{kind}"\nstreams = ["plant.line"]\nendpoint = "{HERE}:25000"\n'
    if kind == "sync":
        text += f'directory = "{HERE}:26023"\n'
    (work / "exporter.toml").write_text(text)
    output = work / "written"
    peer = Peer(work, args.peer, "export", str(work / "exporter.toml"), "plant.line", str(args.elements), str(output), "0")
    consumed = lambda: server.counters().get("consumer", 0)  # noqa: E731
    written = lambda: int(output.read_text().split("\n")[-2]) if output.exists() and output.stat().st_size else 0  # noqa: E731
    try:
        server.start()
        peer.start()
        until("the first elements", lambda: written() > 0, 60 * PATIENCE)
        (begin, first) = (time.monotonic(), written())
        third = args.elements // 3
        until("a third of the elements", lambda: written() >= third, 60 * PATIENCE)
        rate = (written() - first) / max(time.monotonic() - begin, 0.001)
        print(f"   rate: Chappe to GSN, {kind}: {rate:.0f}/s", flush=True)
        peer.kill()
        peer.start()
        until("half", lambda: written() >= args.elements // 2, 60 * PATIENCE)
        server.stop(signal.SIGKILL)
        killed_at = written()
        server.start()
        until("all elements", lambda: written() >= args.elements, 120 * PATIENCE)
        expect(consumed() > 0, "GSN goes on after it was killed")
    finally:
        server.stop(signal.SIGTERM)
        peer.kill()
    rows = server.table("consumer", "timed, number, level, note")
    numbers = [int(row[0]) - BEGIN_MS for row in rows]
    # GSN answers before its database has the element: on a busy machine a kill costs it what it had answered last.
    missing = sorted(set(range(1, args.elements + 1)) - set(numbers))
    forgotten = [n for n in missing if killed_at - 2 * rate < n <= killed_at + WRITTEN_STEP]
    if forgotten:
        print(f"   GSN had answered {len(forgotten)} elements that it did not have after it was killed", flush=True)
    is_whole = missing == forgotten and numbers == sorted(set(numbers))
    expect(is_whole, f"GSN has each of {args.elements} elements once ({len(rows)} rows), but what it lost when it was "
           f"killed ({len(forgotten)})")
    exact = all(row[1:] == [str(2**53 + n), str(n / 8), f"größe {n}"] for n, row in zip(numbers, rows))
    expect(exact, "with exact values")


def per_second(counts: list, seconds: float = RATE_S) -> list[float]:
    """The rates of some counters, measured together."""
    before, begin = [count() for count in counts], time.monotonic()
    time.sleep(seconds)
    after, passed = [count() for count in counts], time.monotonic() - begin
    return [(last - first) / passed for first, last in zip(before, after)]


def not_slower(what: str, chappe: float, gsn: float, least: float) -> None:
    ratio = chappe / max(gsn, 0.1)
    expect(ratio >= least, f"{what}: {chappe:.0f}/s, {ratio:.2f} times GSN with itself ({gsn:.0f}/s)")


def rates(args: argparse.Namespace, work: pathlib.Path) -> None:
    """Each path next to GSN with itself, on the same server."""
    work.mkdir()
    server = Server(work / "gsn", args.libraries)
    server.sensor("producer", "multiformat", SIMULATED, rate=1)
    counter = lambda name: lambda: server.counters().get(name, 0)  # noqa: E731
    remove = lambda name: (server.folder / "virtual-sensors" / f"{name}.xml").unlink()  # noqa: E731
    directory = f'directory = "{HERE}:{DIRECTORY}"\nsensor = "producer"\n'
    kinds = {"async": f'address = "{HERE}:{PROXY}"\n', "sync": f'listen = "{HERE}:24000"\nstart = "new"\n'}
    peer: Peer | None = None

    def read(name: str, kind: str, **predicates: object) -> tuple[float, float, float]:
        """What GSN reads of its own producer alone, and what GSN and Chappe read of it together."""
        nonlocal peer
        server.sensor(name, f"zeromq-{kind}", SIMULATED, address=HERE, meta_port=DIRECTORY, vsensor="producer",
                      **predicates)
        until("GSN reads itself", lambda: counter(name)() > 0, 60 * PATIENCE)
        made, alone = per_second([counter("producer"), counter(name)])
        print(f"   rates: GSN reads {alone:.0f}/s of its own {made:.0f}/s, {kind}", flush=True)
        folder = work / kind
        folder.mkdir()
        (folder / "wrapper.toml").write_text(f'kind = "gsn-zeromq-{kind}"\n{kinds[kind]}{directory}')
        output = folder / "stored"
        peer = Peer(folder, args.peer, "wrap", str(folder / "wrapper.toml"), str(output))
        peer.start()
        until("Chappe reads GSN", lambda: len(stored(output)) > 0, 60 * PATIENCE)
        made, gsn, chappe = per_second([counter("producer"), counter(name), lambda: len(stored(output))])
        print(f"   rates: together, of {made:.0f}/s, GSN reads {gsn:.0f}/s and Chappe {chappe:.0f}/s, {kind}", flush=True)
        peer.kill()
        remove(name)
        return alone, gsn, chappe

    def chappe_writes(kind: str, text: str, pause_ms: int, **predicates: object) -> float:
        nonlocal peer
        folder, name = work / f"to-{kind}", f"from_chappe_{kind}"
        folder.mkdir()
        (folder / "exporter.toml").write_text(f'kind = "gsn-zeromq-{kind}"\nstreams = ["plant.line"]\n{text}')
        server.sensor(name, f"zeromq-{kind}", WRITTEN, **predicates)
        # More elements than GSN takes in this time.
        peer = Peer(folder, args.peer, "export", str(folder / "exporter.toml"), "plant.line", "100000000",
                    str(folder / "written"), str(pause_ms))
        peer.start()
        until("GSN reads Chappe", lambda: counter(name)() > 0, 60 * PATIENCE)
        (rate,) = per_second([counter(name)])
        peer.kill()
        remove(name)
        return rate

    try:
        server.start()
        until("GSN starts", lambda: counter("producer")() > 0, 60 * PATIENCE)
        # A JVM is slow at first.
        time.sleep(RATE_S)
        reading = {"async": read("itself", "async", data_port=PROXY)}
        # The last one: a killed receiver may stall a server's synchronous deliveries.
        reading["sync"] = read("copy", "sync", local_address="127.0.0.1", local_port=24_100)
        remove("producer")
        time.sleep(5)
        there = {"local_address": "127.0.0.1"}
        endpoint = lambda port: f'endpoint = "{HERE}:{port}"\n'  # noqa: E731
        known = {"address": HERE, "vsensor": "plant.line"}
        written = {"push": chappe_writes("push", endpoint(25_001), 0, **there, local_port=25_001)}
        text = endpoint(25_002) + f'directory = "{HERE}:26023"\n'
        written["sync"] = chappe_writes("sync", text, 0, **there, **known, local_port=25_002, meta_port=26_023)
        text = f'listen = "{HERE}:26022"\ndirectory = "{HERE}:26024"\n'
        # GSN's queue has no limit: it is given more than it takes, and not all at once.
        written["async"] = chappe_writes("async", text, 50, **known, data_port=26_022, meta_port=26_024)
    finally:
        server.stop(signal.SIGTERM)
        if peer is not None:
            peer.kill()
    for kind, (_, gsn, chappe) in reading.items():
        # Both read the same producer at the same time, and differ by what is on its way when ten seconds end.
        not_slower(f"GSN to Chappe, {kind}", chappe, gsn, 0.8)
    for kind, rate in written.items():
        not_slower(f"Chappe to GSN, {kind}", rate, reading["async" if kind == "async" else "sync"][0], 1)


def asynchronous(args: argparse.Namespace, work: pathlib.Path) -> None:
    """Both asynchronous directions: nothing is stored twice, and what is lost is counted."""
    work.mkdir()
    server = Server(work / "gsn", args.libraries)
    server.sensor("producer", "multiformat", SIMULATED, rate=1)
    (work / "wrapper.toml").write_text(
        f'kind = "gsn-zeromq-async"\naddress = "{HERE}:{PROXY}"\ndirectory = "{HERE}:{DIRECTORY}"\n'
        'sensor = "producer"\n')
    (work / "exporter.toml").write_text(
        f'kind = "gsn-zeromq-async"\nstreams = ["plant.line"]\nlisten = "{HERE}:26022"\ndirectory = "{HERE}:26023"\n')
    output = work / "stored"
    (work / "to").mkdir()
    reader = Peer(work, args.peer, "wrap", str(work / "wrapper.toml"), str(output))
    writer = Peer(work / "to", args.peer, "export", str(work / "exporter.toml"), "plant.line",
                  str(args.elements), str(work / "written"), "500")
    consumed = lambda: server.counters().get("consumer", 0)  # noqa: E731
    try:
        server.start()
        until("GSN starts", lambda: server.counters().get("producer", 0) > 0, 60 * PATIENCE)
        reader.start()
        count = lambda: len(stored(output))  # noqa: E731
        until("Chappe reads GSN", lambda: count() > 0, 60 * PATIENCE)
        # What is published while it is away is missed, and counts for nothing here.
        until("half of the elements", lambda: count() >= args.elements // 2, 120 * PATIENCE)
        reader.kill()
        reader.start()
        until("all elements", lambda: count() >= args.elements, 120 * PATIENCE)
        reader.kill()
        (server.folder / "virtual-sensors" / "producer.xml").unlink()
        # A structure is known after the first elements. The sensor asks for it every three seconds, and then subscribes;
        # it misses what was published before.
        server.sensor("consumer", "zeromq-async", WRITTEN, address=HERE, data_port=26_022, meta_port=26_023,
                      vsensor="plant.line")
        writer.start()
        until("GSN reads Chappe", lambda: consumed() > 0, 60 * PATIENCE)
        last = [0, time.monotonic()]

        def ended() -> bool:
            now = consumed()
            if now != last[0]:
                last[:] = [now, time.monotonic()]
            return now > 0 and time.monotonic() - last[1] > 5
        until("Chappe has published all", ended, args.elements / 100 + 120 * PATIENCE)
        print(f"   Chappe to GSN, asynchronous: {last[0]} of {args.elements} elements", flush=True)
    finally:
        server.stop(signal.SIGTERM)
        reader.kill()
        writer.kill()
    expect(last[0] > 0, "GSN reads Chappe's publications")
    times = stored(output)
    expect(len(times) == len(set(times)) > 0, "no published element of GSN is stored twice")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("peer")
    parser.add_argument("chappe")
    parser.add_argument("libraries", type=pathlib.Path)
    parser.add_argument("work", type=pathlib.Path)
    parser.add_argument("--elements", type=int, default=20_000)
    parser.add_argument("--only")
    args = parser.parse_args()
    args.libraries = args.libraries.resolve()
    args.work = args.work.resolve()
    args.peer = str(pathlib.Path(args.peer).resolve())
    args.chappe = str(pathlib.Path(args.chappe).resolve())
    enter(INSIDE, sys.argv)
    checks = {
        "from": from_gsn,
        "push": lambda args, work: to_gsn(args, work, "push"),
        "sync": lambda args, work: to_gsn(args, work, "sync"),
        "async": asynchronous,
        "rates": rates,
        "remote-to": remote.to_gsn,
        "remote-from": remote.from_server,
    }

    def check() -> None:
        for name, one in checks.items():
            if args.only in (None, name):
                print(f"   -- {name}", flush=True)
                one(args, args.work / name)
    run_in(args.work, check, (subprocess.SubprocessError, KeyError))


if __name__ == "__main__":
    main()
