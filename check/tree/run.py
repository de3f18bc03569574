"""One device on a notification tree, and 40 sinks in two subnets without multicast between them.

Each subnet has a node of the distributed hash table, and the device publishes itself there. Each
sink is a process (`chappe watch --tree`); it enters the table by the node of its subnet, finds the device by its
name, subscribes, and counts. A tenth of them is killed without a word in the midst and started again. An sdc11073 consumer, which
knows no trees, is among them. Shown: no live sink misses an event or is given one twice, and most events
came by the tree.

Usage: run.py CHAPPE WORK
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from network import CheckFailed, Process, expect  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
SINKS = 40
KILLED = SINKS // 10
EVENTS = int(os.environ.get("TREE_EVENTS", "1000"))
PERIOD_MS = int(os.environ.get("TREE_PERIOD_MS", "50"))
# Name, address, and which side of the router: the device, sinks beside it, sdc11073, sinks beyond; the nodes.
HOSTS = {"D": ("10.77.1.2", 1), "A": ("10.77.1.3", 1), "S": ("10.77.1.4", 1), "B": ("10.77.2.3", 2),
         "N": ("10.77.1.5", 1), "M": ("10.77.2.5", 2)}
# The node by which each enters the table.
ENTRANCES = {"D": "10.77.1.5:8473", "A": "10.77.1.5:8473", "B": "10.77.2.5:8473"}
NODE = """
name = "node-{host}"
data_directory = "data"
sensors_directory = "sensors"

[http]
listen = "127.0.0.1:8470"

[discovery]
enabled = false

[kad]
listen = "{address}:8473"
entrances = [{entrances}]
open = true
"""
DEVICE = """
name = "Peer thermometer"
manufacturer = "Peer Works"
model = "T1"
namespace = "http://example.com/chappe/thermometer"
types = ["Thermometer"]

[[event]]
name = "Temperature"
period_ms = {period}
recording = "events.csv"

[[event.field]]
name = "value"
type = "double"
unit = "Cel"

[[event.field]]
name = "number"
type = "long"
"""


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


class Subnets:
    """Two subnets and a router between them, which forwards no multicast."""

    def __init__(self, work: pathlib.Path):
        self.work = work
        self.processes: list[Process] = []
        self.names = {host: f"chappe-{os.getpid()}-{host}" for host in ["R", *HOSTS]}

    def __enter__(self) -> "Subnets":
        router = self.names["R"]
        for name in self.names.values():
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        for side in (1, 2):
            ip("-n", router, "link", "add", f"br{side}", "type", "bridge", "mcast_snooping", "0")
            ip("-n", router, "addr", "add", f"10.77.{side}.1/24", "dev", f"br{side}")
            ip("-n", router, "link", "set", f"br{side}", "up")
        for host, (address, side) in HOSTS.items():
            name, port = self.names[host], f"p{host}"
            ip("link", "add", port, "netns", router, "type", "veth", "peer", "name", "e0", "netns", name)
            ip("-n", router, "link", "set", port, "master", f"br{side}")
            ip("-n", router, "link", "set", port, "up")
            ip("-n", name, "addr", "add", f"{address}/24", "dev", "e0")
            ip("-n", name, "link", "set", "e0", "up")
            ip("-n", name, "route", "add", "default", "via", f"10.77.{side}.1")
            ip("-n", name, "route", "add", "239.0.0.0/8", "dev", "e0")
        subprocess.run(["ip", "netns", "exec", router, "sysctl", "-qw", "net.ipv4.ip_forward=1"], check=True)
        return self

    def __exit__(self, *_) -> None:
        for process in reversed(self.processes):
            process.stop()
        for name in self.names.values():
            subprocess.run(["ip", "netns", "del", name], check=False)

    def start(self, host: str, log: str, *arguments: str) -> Process:
        command = ["ip", "netns", "exec", self.names[host], *arguments]
        process = Process(command, self.work / f"{log}.log")
        self.processes.append(process)
        return process


class Sink:
    """A process that prints its events."""

    def __init__(self, subnets: Subnets, chappe: str, number: int, life: int, *more: str):
        self.number = number
        self.host = "A" if number % 2 else "B"
        self.seen: list[int] = []
        self.ended = False
        self.process = subnets.start(self.host, f"sink-{number}-{life}", chappe, "watch", "Peer thermometer",
                                     "--entrance", ENTRANCES[self.host], "--interface", "e0", "--timeout", "60s",
                                     "--tree", "--json", *more)

    def take(self) -> None:
        """The events since the last call."""
        while not self.process.lines.empty():
            item = self.process.lines.get()
            if item is None:
                self.ended = True
                return
            document = json.loads(item[1])
            if "values" in document:
                self.seen.append(int(document["values"]["number"]))

    def judge(self) -> None:
        """No event is missing after the first, and none occurs twice."""
        if len(set(self.seen)) != len(self.seen):
            twice = sorted(n for n in set(self.seen) if self.seen.count(n) > 1)
            raise CheckFailed(f"sink {self.number} was given twice: {twice[:10]}")
        # The newest may still be on their way, and come in any order.
        first, last = min(self.seen), max(self.seen)
        missing = sorted(set(range(first, last - 200)) - set(self.seen))
        if missing:
            raise CheckFailed(f"sink {self.number} missed {len(missing)} of {last - first}: {missing[:10]}")


def until(sinks: list[Sink], what: str, timeout_s: float, condition) -> None:
    end = time.monotonic() + timeout_s
    while True:
        for sink in sinks:
            sink.take()
            if sink.ended:
                raise CheckFailed(f"sink {sink.number} ended, see {sink.process.log.name}")
        if condition():
            return
        if time.monotonic() > end:
            least = min(sinks, key=lambda sink: len(sink.seen))
            raise CheckFailed(f"{what}: not within {timeout_s} s; sink {least.number} has {len(least.seen)}")
        time.sleep(0.05)


def node(subnets: Subnets, chappe: str, host: str, entrance: str) -> None:
    """A node that only serves the hash table."""
    folder = subnets.work / f"node-{host}"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "sensors").mkdir(parents=True)
    (folder / "node.toml").write_text(NODE.format(host=host, address=HOSTS[host][0], entrances=entrance))
    process = subnets.start(host, f"node-{host}", chappe, "serve", str(folder / "node.toml"), "--json")
    process.wait_event("ready", 60)


def check(subnets: Subnets, chappe: str) -> None:
    work = subnets.work
    node(subnets, chappe, "N", "")
    node(subnets, chappe, "M", '"10.77.1.5:8473"')
    description = work / "thermometer.toml"
    description.write_text(DEVICE.format(period=PERIOD_MS))
    rows = "".join(f"{36 + n % 10 / 10},{n}\n" for n in range(1_000_000))
    (work / "events.csv").write_text("value,number\n" + rows)
    shutil.rmtree(work / "device-tree", ignore_errors=True)
    device = subnets.start("D", "device", chappe, "device", "run", str(description), "--address", HOSTS["D"][0],
                           "--announce-within", "0ms", "--entrance", ENTRANCES["D"],
                           "--tree", str(work / "device-tree"), "--json")
    device.wait_event("ready", 60)
    # What was seen by those that are to be killed is on disk.
    seen = {number: ["--seen", str(work / f"seen-{number}")] for number in range(KILLED)}
    for _, folder in seen.values():
        shutil.rmtree(folder, ignore_errors=True)
    sinks = [Sink(subnets, chappe, number, 1, *seen.get(number, [])) for number in range(SINKS)]
    until(sinks, "every sink has its first events", 300, lambda: all(len(s.seen) >= 5 for s in sinks))
    expect(True, f"{SINKS} sinks in two subnets have found the device in the distributed hash table, and subscribed")
    consumer = subnets.start("S", "sdc11073", sys.executable, str(HERE.parent / "sdc" / "client.py"),
                             HOSTS["S"][0])
    third = EVENTS // 3
    until(sinks, "a third", 600, lambda: all(len(s.seen) >= third for s in sinks))
    dead = sinks[:KILLED]
    for sink in dead:
        sink.process.stop(signal.SIGKILL)
        sink.take()
    living = sinks[KILLED:]
    before = [len(sink.seen) for sink in living]
    until(living, "events past the dead", 600,
          lambda: all(len(s.seen) >= n + third // 3 for s, n in zip(living, before)))
    again = [Sink(subnets, chappe, sink.number, 2, *seen[sink.number]) for sink in dead]
    until(living, "all events", 1200, lambda: all(len(s.seen) >= EVENTS + 200 for s in living))
    until(again, "events of those that came again", 300, lambda: all(len(s.seen) >= 5 for s in again))
    for sink in [*living, *dead, *again]:
        sink.judge()
    for first, second in zip(dead, again):
        twice = sorted(set(first.seen) & set(second.seen))
        expect(not twice, f"what sink {first.number} had before it was killed it was not given again: {twice[:10]}")
    told = sum(len(sink.seen) for sink in [*living, *dead, *again])
    expect(True, f"{len(living)} live sinks had {EVENTS} events each; {told} deliveries in all, none lost, none twice")
    expect(True, f"{KILLED} were killed, and went on after their restart without a gap")
    consumer.wait_line("received", 60)
    expect(True, "sdc11073 got its standard notifications")
    # How they came: the last line that each sink prints when it is asked to end.
    by_tree = 0
    for sink in living:
        sink.process.stop(signal.SIGINT)
        sink.take()
        notes = pathlib.Path(sink.process.log.name).read_text()
        found = [json.loads(line) for line in notes.splitlines() if line.startswith("{")]
        by_tree += sum(one["delivered"] for one in found if one.get("event") == "tree")
    share = 100 * by_tree / sum(len(sink.seen) for sink in living)
    expect(share > 80, f"{share:.1f} % of what the live sinks had came by the tree")


def main() -> int:
    chappe, work = sys.argv[1], pathlib.Path(sys.argv[2])
    work.mkdir(parents=True, exist_ok=True)
    try:
        with Subnets(work) as subnets:
            check(subnets, chappe)
    except CheckFailed as failure:
        print(f"   FAILED: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
