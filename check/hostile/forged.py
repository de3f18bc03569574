"""Forged Byes and Hellos against a live, bound device: it stays bound, and nobody else is contacted."""

import json
import random
import re
import time

from datagrams import DIALECTS, announce, matches
from network import Cable, CheckFailed, Process, expect, until
from wire import GROUP, Answers, Listener, Paced, Spoofer, measured, resident_bytes

SEED = 7
FORGED = 10_000
RATE_PER_S = 1_500
GROWTH_MAX = 32 << 20
DEVICE, NODE = "10.77.0.2", "10.77.0.1"


def overruns(cable: Cable) -> int:
    """Number of datagrams that the kernel dropped at the node's end because the sockets were full."""
    lines = cable.run("A", "cat", "/proc/net/snmp").stdout.splitlines()
    names, values = (line.split() for line in lines if line.startswith("Udp:"))
    return int(dict(zip(names, values))["RcvbufErrors"])


def dropped(cable: Cable, address: str) -> dict[str, int]:
    """Dropped messages, by hop and reason."""
    rows = re.findall(r'^chappe_(?:messages_)?dropped_total\{([^}]*)\} (\d+)', cable.get("A", f"{address}/metrics"), re.M)
    counts = {}
    for labels, count in rows:
        words = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        counts[f"{words.get('hop')}: {words.get('reason')}"] = int(count)
    return counts


def device_of(cable: Cable, address: str, endpoint: str) -> dict | None:
    devices = json.loads(cable.get("A", f"{address}/api/v1/devices"))["devices"]
    found = [device for device in devices if device["endpoint"] == endpoint and device["state"] == "usable"]
    return found[0] if found and found[0]["streams"] else None


def last(cable: Cable, address: str, stream: str) -> int:
    return json.loads(cable.get("A", f"{address}/api/v1/streams/{stream}"))["last"]


def listeners(cable: Cable) -> dict[str, Listener]:
    cable.run("A", "ip", "addr", "add", "169.254.169.254/32", "dev", "lo")
    return {"loopback": Listener(cable.names["A"], "127.0.0.1"),
            "metadata service": Listener(cable.names["A"], "169.254.169.254", 80),
            "neighbour": Listener(cable.names["B"], "10.77.0.119"),
            "the device's own address": Listener(cable.names["B"], DEVICE)}


def forge(rng: random.Random, endpoint: str, xaddrs: list[str]) -> tuple[str, bytes]:
    """A message that claims that the device leaves or has moved."""
    dialect = rng.choice(list(DIALECTS))
    xaddr = rng.choice(xaddrs)
    instance = rng.choice([0, 1, 4_294_967_295, rng.getrandbits(32)])
    number, version = rng.getrandbits(31), rng.choice([1, 2, 4_294_967_295])
    kind = rng.random()
    if kind < 0.5:
        return "Bye", announce(dialect, "Bye", endpoint, "", instance, number)
    if kind < 0.9:
        return "Hello", announce(dialect, "Hello", endpoint, xaddr, instance, number, version)
    return "ProbeMatches", matches(dialect, endpoint, xaddr)


def check(cable: Cable, device: Process, ready: dict, node: Process, address: str) -> None:
    endpoint = ready["endpoint"]
    known = until(20, "the device bound", lambda: device_of(cable, address, endpoint))
    stream = known["streams"][0]
    until(10, "its stream", lambda: last(cable, address, stream) > 3)
    seen = listeners(cable)
    xaddrs = [f"http://127.0.0.1:{seen['loopback'].port}/x", "http://169.254.169.254/latest",
              f"http://10.77.0.119:{seen['neighbour'].port}/x", f"http://10.66.1.1:{seen['neighbour'].port}/x",
              f"http://{DEVICE}:{seen['the device' + chr(39) + 's own address'].port}/x", "http://localhost/x"]
    sources = [DEVICE, "10.77.0.100", "10.77.0.119", "10.77.0.250", "10.66.1.1", "10.66.200.7", "192.0.2.1"]
    rng = random.Random(SEED)
    counted = Answers(cable.names["B"], "b0", NODE)
    spoofer, paced = Spoofer(cable.names["B"], DEVICE), Paced(RATE_PER_S)
    memory, before, first = resident_bytes(node.process.pid), dropped(cable, address), last(cable, address, stream)
    overrun = overruns(cable)
    start, sent = time.monotonic(), {"Bye": 0, "Hello": 0, "ProbeMatches": 0}
    for number in range(FORGED):
        kind, payload = forge(rng, endpoint, xaddrs)
        spoofer.send(rng.choice(sources), GROUP, payload, rng.choice([3702, 40_000]))
        sent[kind] += 1
        paced.wait()
        if number % 2_000 == 1_999 and not device_of(cable, address, endpoint):
            raise CheckFailed(f"the device is no longer usable after {number} forged messages")
    time.sleep(7)  # what was begun ends: a Bye is looked into for five seconds
    seconds = time.monotonic() - start
    counted.stop()
    events = last(cable, address, stream) - first
    measured("forged messages", f"{sent} in {seconds:.1f} s")
    expect(device_of(cable, address, endpoint) is not None, "the device is usable as before")
    expect(device_of(cable, address, endpoint)["addresses"] == known["addresses"], "at the same addresses")
    measured("its stream went on", f"{events} elements in {seconds:.1f} s at 10 a second")
    expect(events >= 0.2 * 10 * seconds, "its stream went on")
    reached = {name: len(listener.peers) for name, listener in seen.items()}
    expect(not any(reached.values()), f"no connection reached a stranger: {reached}")
    measured("connections to the device, to see whether it still listens", counted.connections[DEVICE])
    expect(counted.connections[DEVICE] <= 200, "a flood of forged Byes makes no flood of connections")
    measured("bytes the node sent for them", f"{sum(counted.bytes.values())} for {sum(spoofer.bytes.values())}")
    after = dropped(cable, address)
    rose = {reason: count - before.get(reason, 0) for reason, count in after.items() if count > before.get(reason, 0)}
    measured("what was counted", rose)
    # A loaded machine loses datagrams before the node reads them.
    overrun = overruns(cable) - overrun
    measured("datagrams that did not fit into the kernel's queues", overrun)
    total = overrun + sum(count for reason, count in rose.items() if reason.startswith(("discovery", "address")))
    # What is not refused is a hint: the device is asked whether it is so, 512 times and 50 times a second.
    asked = 512 + 50 * seconds
    expect(total >= FORGED - asked, f"each is refused and counted ({total}), or a hint that was looked into")
    rows = json.loads(cable.get("A", f"{address}/api/v1/drops"))["drops"]
    expect(any("believed" in row["reason"] for row in rows), "and the drops say why")
    growth = resident_bytes(node.process.pid) - memory
    measured("memory of the node", f"{memory >> 10} + {growth >> 10} KiB")
    expect(growth <= GROWTH_MAX, f"which grew by less than {GROWTH_MAX >> 20} MiB")
    for listener in seen.values():
        listener.close()
