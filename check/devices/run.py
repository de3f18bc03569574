"""Devices at a node whose disk is slow: strace delays every sync of the log, which is in memory, so that the disk of
this machine adds nothing.

1. A device with 500 events is attached while each sync takes 20 ms: the node keeps answering HTTP.
2. Forty devices send a waveform block every 25 ms while each sync takes 30 ms: storage never lags far
   behind.
3. Forty devices leave at once while each sync takes 500 ms: a device that arrives then does not wait for them.
4. The disk is full for a while as a device sends, and again while the node ends: the stored elements are a
   contiguous run of those sent, in order, none lost or duplicated.
"""

import contextlib
import itertools
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from network import Cable, Process, expect, expect_figure, main, until  # noqa: E402

METRICS = 500
DEVICES = 40
PERIOD_MS = 25
BEHIND_MS_MAX = 200
# A process that is not scheduled for a while must not decide: the bound above is that of 99 of 100 answers.
STALL_MS_MAX = 1000
# One after another, forty devices take 40 s to leave.
LATER_S_MAX = 5
ANSWER_MS_MAX = 20
# On a busy machine, so many times as long as before the device is there.
ANSWER_TIMES_MAX = 10
# Rows of a recording, which a device sends again and again.
ROWS = 100
# The file system of all nodes, and the one of the node in the fourth part.
ALL_BYTES = 1 << 30
DISK_BYTES = 48 << 20
PROBE = str(pathlib.Path(__file__).resolve().parent / "probe.py")


def node(cable: Cable, chappe: str, name: str, sync_ms: int, log: str = "") -> tuple[Process, str]:
    """A node that looks for devices on the loopback, with slow syncs and these settings of its log."""
    folder = cable.work / name
    (folder / "sensors").mkdir(parents=True, exist_ok=True)
    (folder / "node.toml").write_text(f"""
name = "slow"
data_directory = "{folder}/data"
sensors_directory = "{folder}/sensors"
[http]
listen = "127.0.0.1:0"
[discovery]
interfaces = ["lo"]
[log]
{log}
""")
    strace = ["strace", "-f", "--seccomp-bpf", "-qq", "-o", "/dev/null", "-e", "trace=fdatasync", "-e",
              f"inject=fdatasync:delay_exit={sync_ms * 1000}"]
    started = cable.start("A", name, *strace, chappe, "serve", str(folder / "node.toml"), "--json")
    return started, started.wait_event("ready", 20)["address"]


def device(cable: Cable, chappe: str, name: str, number: int, events: str) -> Process:
    folder = cable.work / "devices" / name
    folder.mkdir(parents=True)
    (folder / "one.csv").write_text("value\n" + "".join(f"{row}.5\n" for row in range(ROWS)))
    path = folder / "device.toml"
    path.write_text(f"""
name = "{name}"
manufacturer = "Example"
model = "T1"
namespace = "https://example.org/device"
types = ["Device"]
{events}
""")
    return cable.start("A", name, chappe, "device", "run", str(path), "--address",
                       f"127.0.2.{number}", "--announce-within", "10ms")


def get(cable: Cable, url: str) -> dict:
    return json.loads(cable.get("A", url))


def probe(cable: Cable, name: str, *arguments: str) -> Process:
    return cable.start("A", name, sys.executable, PROBE, *arguments)


def attached(cable: Cable, chappe: str) -> None:
    events = "".join(f"""
[[event]]
name = "Reading{number}"
period_ms = 60000
recording = "one.csv"
[[event.field]]
name = "value"
type = "double"
""" for number in range(METRICS))
    attempts = itertools.count(1)

    def measure() -> tuple[bool, str]:
        attempt = next(attempts)
        started, address = node(cable, chappe, f"attaching/{attempt}", 20)
        answers = probe(cable, "answers", "answers", address, str(METRICS))
        answers.wait_line("asking", 10)
        many = device(cable, chappe, f"many-{attempt}", 1, events)
        _, line = answers.wait_line("{", 60)
        result = json.loads(line)
        print(f"   {json.dumps(result)}")
        expect(started.stop() == 0, "the node ends with 0")
        many.stop()
        return result["p99_ms"] <= max(ANSWER_MS_MAX, ANSWER_TIMES_MAX * result["before_p99_ms"]), (
            f"until {METRICS} streams can be used, {result['answers']} answers took {result['p99_ms']:.1f} ms at p99, "
            f"{result['max_ms']:.1f} ms at most, within {result['seconds']:.2f} s; {result['before_p99_ms']:.1f} ms at p99 "
            "before")
    expect_figure(measure)


WAVE = f"""
[[event]]
name = "Wave"
period_ms = {PERIOD_MS}
recording = "one.csv"
[[event.field]]
name = "at"
type = "dateTime"
[[event.field]]
name = "value"
type = "double"
sample_period_ms = 5
"""


def followed(cable: Cable, chappe: str) -> None:
    started, address = node(cable, chappe, "following", 30)
    devices = [device(cable, chappe, f"wave-{number}", number + 1, WAVE) for number in range(DEVICES)]
    streams = f"{address}/api/v1/streams"
    until(60, f"{DEVICES} streams with elements", lambda: sum(
        1 for stream in get(cable, streams)["streams"] if stream["last"]) >= DEVICES)

    def measure() -> tuple[bool, str]:
        behind = probe(cable, "behind", "behind", address, "10")
        _, line = behind.wait_line("{", 60)
        result = json.loads(line)
        print(f"   {json.dumps(result)}")
        rate, period_s = result["rate_min"], PERIOD_MS / 1000
        return result["p99_ms"] <= BEHIND_MS_MAX and result["max_ms"] <= STALL_MS_MAX and rate >= 0.9 / period_s, (
            f"{result['streams']} streams were {result['p99_ms']:.0f} ms behind at p99, {result['max_ms']:.0f} ms at "
            f"most, {result['median_ms']:.0f} ms in the middle, with syncs of 30 ms; each stored {rate:.1f} stretches "
            f"a second at least")
    expect_figure(measure)
    expect(started.stop() == 0, "the node drains and ends with 0")
    for one in devices:
        one.stop()


def rows(cable: Cable, address: str, stream: str) -> list[int]:
    """The recording's rows in the waveform blocks of a stream, oldest first."""
    after, all_rows = "0000000000000000:0", []
    while True:
        page = get(cable, f"{address}/api/v1/streams/{stream}/elements?after={after}&limit=1000")["elements"]
        all_rows += [int(value) for element in page for value in element["values"]["value"]["values"]]
        if len(page) < 1000:
            return all_rows
        after = f"{page[-1]['epoch']}:{page[-1]['number']}"


def is_run(numbers: list[int]) -> bool:
    return all(later == (earlier + 1) % ROWS for earlier, later in zip(numbers, numbers[1:]))


@contextlib.contextmanager
def disk(cable: Cable, folder: pathlib.Path, size: int):
    """A file system in memory, for as long as the processes of the check run."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "chappe-check", str(folder)], check=True)
    try:
        yield
    finally:
        for process in cable.processes:
            process.stop()
        subprocess.run(["umount", str(folder)], check=True)


def full_in_between(cable: Cable, chappe: str) -> None:
    data = cable.work / "full" / "data"
    with disk(cable, data, DISK_BYTES):
        fill_and_free(cable, chappe, data)


def fill_and_free(cable: Cable, chappe: str, data: pathlib.Path) -> None:
    settings = f"min_free_bytes = {16 << 20}\nmax_bytes = {16 << 20}\nsegment_bytes = {1 << 20}"
    started, address = node(cable, chappe, "full", 1, settings)
    one = device(cable, chappe, "filled", 1, WAVE)
    filler = data / "filler"

    def last() -> int:
        streams = [stream for stream in get(cable, f"{address}/api/v1/streams")["streams"] if stream["last"]]
        return streams[0]["last"] if streams else 0

    def fill() -> None:
        free = os.statvfs(data).f_bavail * os.statvfs(data).f_frsize
        filler.write_bytes(bytes(free - (8 << 20)))

    def stalls() -> bool:
        before = last()
        time.sleep(40 * PERIOD_MS / 1000)
        return last() == before

    for _ in range(3):
        before = until(20, "elements", last)
        until(20, "more of them", lambda: last() > before + 20)
        fill()
        until(20, "nothing is stored any more", stalls)
        filler.unlink()
    before = last()
    until(30, "elements after the disk was full", lambda: last() > before + 200)
    stream = get(cable, f"{address}/api/v1/streams")["streams"][0]["name"]
    found = rows(cable, address, stream)
    expect(is_run(found), f"{len(found)} samples are in order, none missing or twice, though the disk was full thrice")
    fill()
    until(20, "nothing is stored any more", stalls)
    expect(started.stop() == 0, "the node ends with 0 while its disk is full")
    filler.unlink()
    one.stop()
    started, address = node(cable, chappe, "full", 1, settings)
    left = rows(cable, address, stream)
    expect(is_run(left) and len(left) >= len(found), f"its {len(left)} samples are in order after that")
    started.stop()


def left(cable: Cable, chappe: str) -> None:
    started, address = node(cable, chappe, "leaving", 500)

    def states() -> dict[str, str]:
        return {one["name"]: one["state"] for one in get(cable, f"{address}/api/v1/devices")["devices"]}

    def comes(name: str, number: int) -> tuple[Process, float]:
        start = time.monotonic()
        one = device(cable, chappe, name, number, WAVE)
        until(60, f"{name} usable", lambda: states().get(name) == "usable")
        return one, time.monotonic() - start
    first, alone = comes("first", 1)
    many = [device(cable, chappe, f"leaving-{number}", number + 2, WAVE) for number in range(DEVICES)]
    until(60, f"{DEVICES} devices usable", lambda: list(states().values()).count("usable") == DEVICES + 1)
    for one in many:
        os.killpg(one.process.pid, signal.SIGTERM)
    until(20, "one that is gone", lambda: "gone" in states().values())
    last, among = comes("last", DEVICES + 2)
    expect(among <= alone + LATER_S_MAX, f"a device is usable after {among:.1f} s while {DEVICES} leave, after "
           f"{alone:.1f} s when it comes alone, with syncs of 500 ms")
    until(60, "all others gone", lambda: list(states().values()).count("gone") == DEVICES)
    expect(started.stop() == 0, "the node drains and ends with 0")
    for one in (first, last, *many):
        one.stop()


def check(cable: Cable, chappe: str) -> None:
    for name, part in (("attaching", attached), ("following", followed), ("leaving", left)):
        with disk(cable, cable.work / name, ALL_BYTES):
            part(cable, chappe)
    full_in_between(cable, chappe)


if __name__ == "__main__":
    main(check)
