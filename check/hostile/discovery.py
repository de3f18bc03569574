"""Discovery under a flood: what it sends in reply, and what it costs.

A device and a node at one end of a cable; at the other a stranger who sends datagrams from forged addresses.
Every outgoing datagram is counted on the cable, including repetitions.
"""

import json
import random
import time
import uuid

from datagrams import announce, malformed, probe, valid
from network import Cable, Process, expect, until
from wire import GROUP, Answers, Paced, Spoofer, inside, measured, open_files, resident_bytes

SEED = 20_261_121
DATAGRAMS = 100_000
RATE_PER_S = 8_000
AMPLIFICATION_MAX = 3.0
DEVICE_GROWTH_MAX = 16 << 20
# The node remembers 4,096 strangers in two tables and shows 2,000 of them (discovery.max_devices), with descriptions
# of up to 8 KiB. Measured: 33 MiB after this flood, 63 MiB after one four times as long, 67 MiB after nine times.
NODE_GROWTH_MAX = 64 << 20
DEVICE = "10.77.0.1"
NOWHERE, NOWHERE_PER_S = 1_800, 300
# A process has 1,024 by default; 256 devices are asked at once whether they are there.
OPEN_FILES_MAX = 512


def honest_probe(cable: Cable, timeout_s: float, to: str = DEVICE) -> float | None:
    """Time until a Probe is answered; None after the time-out."""
    import socket
    with inside(cable.names["B"]):
        asker = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with asker:
        asker.bind(("10.77.0.2", 0))
        asker.settimeout(timeout_s)
        start = time.monotonic()
        asker.sendto(probe(), (to, 3702))
        try:
            answer = asker.recv(65_535)
        except TimeoutError:
            return None
        return time.monotonic() - start if b"ProbeMatch" in answer else None


def flood(cable: Cable, endpoint: str, counted: Answers) -> tuple[Spoofer, dict[str, int]]:
    """Malformed datagrams from 10.66.0.0/17, valid ones from 10.66.128.0/17, all to device, node and group."""
    rng = random.Random(SEED)
    spoofer, paced = Spoofer(cable.names["B"], "10.77.0.2"), Paced(RATE_PER_S)
    bad = [malformed(rng, endpoint) for _ in range(3_000)]
    replayed = [valid(rng, endpoint) for _ in range(50)]
    sent = {"malformed": 0, "valid": 0, "replayed": 0}
    answered = asked = 0
    next_honest = time.monotonic()
    for number in range(DATAGRAMS):
        to = GROUP if rng.random() < 0.5 else DEVICE
        kind = rng.random()
        if kind < 0.6:
            low, payload, name = 0, rng.choice(bad), "malformed"
        elif kind < 0.9:
            low, payload, name = 128, valid(rng, endpoint), "valid"
        else:
            low, payload, name = 128, rng.choice(replayed), "replayed"
        source = f"10.66.{low + rng.randrange(120)}.{rng.randrange(1, 255)}"
        spoofer.send(source, to, payload)
        sent[name] += 1
        paced.wait()
        if time.monotonic() > next_honest:
            asked, answered = asked + 1, answered + bool(honest_probe(cable, 0.2))
            next_honest = time.monotonic() + 0.5
    measured("honest Probes answered while it lasted", f"{answered} of {asked}")
    return spoofer, sent


def judge(spoofer: Spoofer, counted: Answers) -> None:
    def bad(address: str) -> bool:
        return address.startswith("10.66.") and int(address.split(".")[2]) < 128
    to_bad = sum(size for address, size in counted.bytes.items() if bad(address))
    expect(to_bad == 0, "malformed datagrams were answered with 0 bytes")
    good = {a: s for a, s in spoofer.bytes.items() if a.startswith("10.66.") and not bad(a)}
    out = {a: counted.bytes[a] for a in good}
    in_sum, out_sum = sum(good.values()), sum(out.values())
    expect(out_sum > 0, f"sound ones were answered: {out_sum} bytes for {in_sum}")
    worst = max(out[a] / good[a] for a in good)
    measured("amplification of sound datagrams in sum", round(out_sum / in_sum, 3))
    measured("amplification towards the worst single source", round(worst, 3))
    expect(out_sum <= AMPLIFICATION_MAX * in_sum and worst <= AMPLIFICATION_MAX,
           f"no more than {AMPLIFICATION_MAX} bytes leave for each that came, in sum and to each source")
    everything = sum(spoofer.bytes.values())
    group = counted.bytes[GROUP]
    measured("bytes to the group", f"{group} for {everything} that came, in {counted.packets[GROUP]} datagrams")
    expect(group <= AMPLIFICATION_MAX * everything, "nor to the group")


def nowhere(cable: Cable, node: Process) -> None:
    """Devices at unassigned addresses of the link, so that connecting takes long."""
    rng = random.Random(SEED)
    spoofer, paced, most = Spoofer(cable.names["B"], "10.77.0.2"), Paced(NOWHERE_PER_S), 0
    for number in range(NOWHERE):
        source = f"10.77.0.{rng.randrange(125, 249)}"
        spoofer.send(source, GROUP, announce("2009", "Hello", uuid.uuid4().urn, f"http://{source}:{1_000 + number}/"))
        paced.wait()
        if number % 50 == 0:
            most = max(most, open_files(node.process.pid))
    measured(f"open files of the node while {NOWHERE} devices are announced where nobody is", most)
    expect(most <= OPEN_FILES_MAX, f"no more than {OPEN_FILES_MAX}")


def check(cable: Cable, device: Process, ready: dict, node: Process, address: str) -> None:
    counted = Answers(cable.names["B"], "b0", DEVICE)
    until(10, "an honest Probe answered before", lambda: honest_probe(cable, 2))
    before = {p.name: resident_bytes(p.process.pid) for p in (device, node)}
    peak = dict(before)
    start = time.monotonic()
    spoofer, sent = flood(cable, ready["endpoint"], counted)
    seconds = time.monotonic() - start
    for process in (device, node):
        peak[process.name] = resident_bytes(process.process.pid)
    time.sleep(4)  # the standard's delay and the repeats of the last answers
    counted.stop()
    size = sum(spoofer.bytes.values())
    measured("datagrams", f"{spoofer.sent} ({sent}), {size >> 20} MiB in {seconds:.1f} s")
    judge(spoofer, counted)
    for process, bound in ((device, DEVICE_GROWTH_MAX), (node, NODE_GROWTH_MAX)):
        growth = peak[process.name] - before[process.name]
        measured(f"memory of {process.name}", f"{before[process.name] >> 10} + {growth >> 10} KiB")
        expect(growth <= bound, f"{process.name} grew by no more than {bound >> 20} MiB")
        expect(process.process.poll() is None, f"{process.name} lives")
    took = until(10, "an honest Probe answered afterwards", lambda: honest_probe(cable, 2))
    measured("an honest Probe afterwards was answered after", f"{1000 * took:.1f} ms")
    drops = json.loads(cable.get("A", f"{address}/api/v1/drops"))["drops"]
    reasons = {row["reason"] for row in drops if row["at_hop"] == "discovery"}
    measured("reasons the node gives", ", ".join(sorted(reasons)) or "none")
    nowhere(cable, node)
