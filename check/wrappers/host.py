"""`system`: the streams of the host compared with /proc and df."""

import datetime
import pathlib
import subprocess
import sys
import time

from bench import HERE, REST, Bench
from network import expect, until

PERIOD_S = 1
FETCH = "import sys, urllib.request; urllib.request.urlopen(sys.argv[1]).read()"


def counters() -> dict[str, tuple[int, int]]:
    """Received and sent bytes of each interface."""
    found = {}
    for line in pathlib.Path("/proc/net/dev").read_text().splitlines()[2:]:
        name, numbers = line.split(":")
        found[name.strip()] = (int(numbers.split()[0]), int(numbers.split()[8]))
    return found


def memory() -> dict[str, int]:
    lines = (line.split() for line in pathlib.Path("/proc/meminfo").read_text().splitlines())
    return {words[0].rstrip(":"): int(words[1]) * 1024 for words in lines}


def processors() -> tuple[int, int]:
    """All ticks so far, and the idle ones."""
    ticks = [int(word) for word in pathlib.Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
    return sum(ticks), ticks[3] + ticks[4]


def disks() -> dict[str, int]:
    lines = subprocess.run(["df", "-B1", "--output=target,size"], capture_output=True, text=True).stdout.splitlines()
    return {line.rsplit(None, 1)[0]: int(line.rsplit(None, 1)[1]) for line in lines[1:]}


def seconds(text: str) -> float:
    return datetime.datetime.fromisoformat(text[:26].rstrip("Z") + "+00:00").timestamp()


def check(bench: Bench) -> None:
    before, loads, ticks = counters(), set(), []
    bench.wrapper("machine", f'kind = "system"\nperiod_s = {PERIOD_S}\n')
    end = time.monotonic() + 6 * PERIOD_S
    while time.monotonic() < end:
        loads.add(tuple(float(word) for word in pathlib.Path("/proc/loadavg").read_text().split()[:3]))
        ticks.append((time.time(), *processors()))
        time.sleep(0.05)
    done = subprocess.run(bench.far.command(sys.executable, "-c", FETCH, f"http://{HERE}:{REST}/api/v1/openapi.json"))
    expect(done.returncode == 0, "traffic crosses the cable")
    count = bench.last("machine.memory")
    bench.kill_node()
    until(20, "measured again", lambda: bench.last("machine.memory") >= count + 2)
    after = counters()
    elements = {name: bench.node.elements(f"machine.{name}") for name in ("cpu", "memory", "load", "disk", "network")}
    now = memory()
    expect(all(one["values"]["total"] == now["MemTotal"] for one in elements["memory"]), "memory.total is that of /proc/meminfo")
    near = abs(elements["memory"][-1]["values"]["available"] - now["MemAvailable"]) / now["MemTotal"]
    expect(near < 0.1, f"memory.available is near it ({near:.3f} of the total)")
    own = [one for one in elements["load"] if seconds(one["receive_time"]) < ticks[-1][0]]
    seen = sum((one["values"]["one"], one["values"]["five"], one["values"]["fifteen"]) in loads for one in own)
    expect(seen == len(own) > 3, f"each of {len(own)} loads is one that /proc/loadavg had")
    worst, compared = 0.0, 0
    for one in elements["cpu"]:
        to = seconds(one["source_time"])
        if not ticks[0][0] + PERIOD_S < to < ticks[-1][0]:
            continue
        newer = min(ticks, key=lambda tick: abs(tick[0] - to))
        older = min(ticks, key=lambda tick: abs(tick[0] - to + PERIOD_S))
        busy = 100 * (1 - (newer[2] - older[2]) / max(1, newer[1] - older[1]))
        worst, compared = max(worst, abs(busy - one["values"]["busy"])), compared + 1
    expect(worst < 20 and compared > 1, f"{compared} values of cpu.busy differ from /proc/stat by {worst:.1f} points at most")
    known = disks()
    expect(all(known.get(one["key"]) == one["values"]["total"] for one in elements["disk"]),
           f"disk.total is that of df: {sorted({one['key'] for one in elements['disk']})}")
    for name, (received, sent) in after.items():
        own = [one["values"] for one in elements["network"] if one["key"] == name]
        rising = own == sorted(own, key=lambda one: (one["received"], one["sent"]))
        within = own and before[name][0] <= own[0]["received"] and own[-1]["received"] <= received
        within = within and before[name][1] <= own[0]["sent"] and own[-1]["sent"] <= sent
        expect(bool(rising and within), f"network: the bytes of {name} rise, between those of /proc/net/dev")
    times = [one["source_time"] for one in elements["memory"]]
    expect(times == sorted(set(times)), f"{len(times)} measurements, none twice, through a kill of the node")
