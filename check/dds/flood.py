"""Thousands of participants are announced to a reader and a writer that exchange samples. The writer comes in the middle of
them, and is found although its announcements may be lost; then all samples arrive. The memory of a participant stays bounded.

    python3 check/dds/flood.py DDS_PEER

Runs as root on Linux, in a network namespace of its own with nothing but loopback.
"""

import os
import pathlib
import socket
import struct
import subprocess
import sys
import threading
import time

sys.dont_write_bytecode = True
from rtps import OTHER_VENDOR, announcement  # noqa: E402

INSIDE = "CHAPPE_DDS_FLOOD_INSIDE"
DOMAIN = 11
COUNT, BYTES = 20_000, 1_000
# Twenty times the participants that are remembered.
ANNOUNCED = 20_000
RATE_PER_S = 5_000
# A remembered participant takes some 30 kB; the rest is room for the samples and for what is being removed.
GROWTH_MAX_KB = 96 * 1024
# An announcement that is lost is repeated every five seconds; two may be.
LATER_MAX_S = 15
# A volatile topic loses some samples that are written while reader and writer discover each other: docs/reference/dds.md.
MISSING_MAX = 64
PATIENCE_S = 240


def memory_kb(process: subprocess.Popen) -> int:
    """The largest resident memory so far."""
    text = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("VmHWM"))


def flood(stop: threading.Event, sent: list[int]) -> None:
    """Announces participants to the first three of the domain until all are announced or the exchange has ended."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as forger:
        begun = time.monotonic()
        for number in range(ANNOUNCED):
            if stop.is_set():
                break
            prefix = OTHER_VENDOR + struct.pack("<Q", number) + b"\xcc\xcc"
            for participant in range(3):
                port = 7_400 + 250 * DOMAIN + 10 + 2 * participant
                forger.sendto(announcement(prefix, "127.0.0.1"), ("127.0.0.1", port))
            sent[0] += 1
            ahead = number / RATE_PER_S - (time.monotonic() - begun)
            if ahead > 0:
                time.sleep(ahead)


def exchange(words: list[str], topic: str, flooded: bool) -> tuple[float, int, str]:
    """Seconds of an exchange of samples, the memory in kB of a participant of its own, and what the reader says."""
    started = []

    def start(*arguments: str) -> subprocess.Popen:
        process = subprocess.Popen([*words, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(process)
        return process

    stop, sent = threading.Event(), [0]
    flooder = threading.Thread(target=flood, args=(stop, sent))
    try:
        # Readers end with their last sample: this one has none, and is measured.
        measured = start("read", str(DOMAIN), f"{topic}/none", "1")
        reader = start("read", str(DOMAIN), topic, str(COUNT))
        for process in (measured, reader):
            if process.stdout.readline().strip() != "ready":
                sys.exit("   FAILED: a reader is not ready")
        if flooded:
            flooder.start()
            # Half of them come before the writer, which the reader must find nevertheless.
            while sent[0] < ANNOUNCED // 2:
                time.sleep(0.05)
        begun = time.monotonic()
        start("write", str(DOMAIN), topic, str(COUNT), str(BYTES))
        said = reader.stdout.readline().strip()
        took = time.monotonic() - begun
        if flooded:
            flooder.join(PATIENCE_S)
            # The last announcements are processed.
            time.sleep(2)
        return took, memory_kb(measured), said
    finally:
        stop.set()
        for process in started:
            process.kill()
            process.wait()


def main(*words: str) -> None:
    if not os.environ.get(INSIDE):
        again = ["unshare", "--net", "--", sys.executable, *sys.argv]
        sys.exit(subprocess.run(again, env={**os.environ, INSIDE: "1"}).returncode)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    plain, before, _ = exchange(list(words), "chappe/flood/0", False)
    took, after, said = exchange(list(words), "chappe/flood/1", True)
    words_said = said.split()
    held = words_said[:3] == ["read", str(COUNT), "missing"] and int(words_said[3]) <= MISSING_MAX
    held &= took < plain + LATER_MAX_S
    bounded = after - before < GROWTH_MAX_KB
    print(f"   {'ok' if held else 'FAILED'}: {COUNT} samples take {plain:.1f} s, and {took:.1f} s while {ANNOUNCED} "
          f"participants are announced: {said}", flush=True)
    print(f"   {'ok' if bounded else 'FAILED'}: a participant takes {before} kB, and {after} kB with them", flush=True)
    sys.exit(0 if held and bounded else 1)


main(*sys.argv[1:])
