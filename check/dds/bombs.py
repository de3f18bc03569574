"""Messages of a stranger that are small to send and large to read, at a participant of Chappe:

1. A question about a type of sequences within each other, 6 bytes for each: up to the limit it is answered, beyond it is
   dropped. The participant continues.
2. Fragments of a sample that claims 600 MB and never ends: none is kept.
3. Whole samples of 4 MB after one that never comes: a node keeps them up to a limit, and then starts its participant again.

    python3 check/dds/bombs.py CHAPPE

Runs as root on Linux, in a network namespace of its own with nothing but loopback.
"""

import json
import os
import pathlib
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request

sys.dont_write_bytecode = True
from rtps import ECLIPSE, TYPE_LOOKUP_ENDS, announcement, message, submessage  # noqa: E402

INSIDE = "CHAPPE_DDS_BOMBS_INSIDE"
DOMAIN = 11
# The first participant of the domain on this host.
VICTIM = ("127.0.0.1", 7_400 + 250 * DOMAIN + 10)
OWN_PORT = 7_999
PREFIX = ECLIPSE + b"\x42" * 10
# The built-in reader and writer of questions about types (DDS-XTypes 1.3, clause 7.6.3.3.4).
READER, WRITER = bytes.fromhex("000300c4"), bytes.fromhex("000300c3")
FRAGMENT = 60_000
# Levels within and beyond 256 KiB.
LEVELS = [40_000, 100_000]
CLAIMED, SENT = 600_000_000, 300_000_000
GROWTH_MAX_KB = 16 * 1024
# A sample of this many fragments is one that a participant takes. It keeps 256 MiB, and what comes within a second.
FRAGMENTS, KEPT_SAMPLES = 66, 120
KEPT_GROWTH_MAX_KB = 420 * 1024


def heartbeat(count: int, last: int = 1) -> bytes:
    return message(PREFIX, submessage(0x07, READER + WRITER + struct.pack("<iIiII", 0, 1, 0, last, count)))


def fragment(number: int, part: bytes, total: int, sample: int = 1) -> bytes:
    where = struct.pack("<iIIHHI", 0, sample, number, 1, FRAGMENT, total)
    return message(PREFIX, submessage(0x16, struct.pack("<HH", 0, 28) + READER + WRITER + where + part))


def question(levels: int) -> bytes:
    """TypeLookup_Request for one identifier: plain sequences within each other, in delimited CDR 2."""
    head = bytes(16) + struct.pack("<iI", 0, 1) + struct.pack("<I", 1) + bytes(4)
    # Kind (small plain sequence), equivalence (both), padding, flags, bound; the innermost is an int32.
    at, made = len(head) + 28, bytearray()
    for _ in range(levels):
        made += b"\x80\xf3"
        at += 2
        if at % 2:
            made += b"\0"
            at += 1
        made += b"\x01\0\0"
        at += 3
    identifiers = struct.pack("<I", 1) + bytes(made) + b"\x04"
    member = struct.pack("<I", len(identifiers)) + identifiers
    asked = struct.pack("<II", 0x40000000 | (206790757 & 0x0FFFFFFF), len(member)) + member
    call = struct.pack("<iI", 25318099, len(asked)) + asked
    body = head + struct.pack("<I", len(call)) + call
    padding = -len(body) % 4
    return b"\0\x07\0" + bytes([padding]) + body + bytes(padding)


def resident_kb(process: subprocess.Popen) -> int:
    text = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("VmRSS"))


def keep(chappe: str) -> tuple[int, int]:
    """The restarts of a node's participant, and what its memory has grown by, in kB."""
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        (place / "node.toml").write_text(f"[http]\nlisten = \"127.0.0.1:0\"\n[discovery]\nenabled = false\n[dds]\n"
                                         f"domain = {DOMAIN}\n")
        (place / "wrappers").mkdir()
        (place / "wrappers" / "any.toml").write_text('kind = "dds_any"\ntopic = "any"\n')
        node = subprocess.Popen([chappe, "serve", str(place / "node.toml"), "--json"], stdout=subprocess.PIPE, text=True)
        try:
            url = json.loads(node.stdout.readline())["address"].rstrip("/")
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
                stranger.bind(("127.0.0.1", OWN_PORT))
                for _ in range(30):
                    stranger.sendto(announcement(PREFIX, "127.0.0.1", OWN_PORT, TYPE_LOOKUP_ENDS), VICTIM)
                    time.sleep(0.1)
                before = most = resident_kb(node)
                stranger.sendto(heartbeat(1, 2 + KEPT_SAMPLES), VICTIM)
                time.sleep(0.3)
                for sample in range(2, 2 + KEPT_SAMPLES):
                    for number in range(1, FRAGMENTS + 1):
                        stranger.sendto(fragment(number, bytes(FRAGMENT), FRAGMENTS * FRAGMENT, sample), VICTIM)
                        time.sleep(0.0005)
                    most = max(most, resident_kb(node))
            time.sleep(3)
            status = json.loads(urllib.request.urlopen(f"{url}/api/v1/dds", timeout=60).read())
            return status["participant"]["restarts"], most - before
        finally:
            node.kill()
            node.wait()


def exchange(chappe: str, send) -> tuple[bool, int]:
    """Whether a participant lives after a stranger has sent, and what its memory has grown by, in kB."""
    victim = subprocess.Popen([chappe, "dds", "topics", "--domain", str(DOMAIN), "--seconds", "60"],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            stranger.bind(("127.0.0.1", OWN_PORT))
            # Until its ports are open, and it knows the stranger.
            for _ in range(30):
                stranger.sendto(announcement(PREFIX, "127.0.0.1", OWN_PORT, TYPE_LOOKUP_ENDS), VICTIM)
                time.sleep(0.1)
            before = resident_kb(victim)
            stranger.sendto(heartbeat(1), VICTIM)
            time.sleep(0.3)
            send(stranger)
            stranger.sendto(heartbeat(2), VICTIM)
            time.sleep(2)
        return victim.poll() is None, resident_kb(victim) - before if victim.poll() is None else 0
    finally:
        victim.kill()
        victim.wait()


def main(chappe: str) -> None:
    if not os.environ.get(INSIDE):
        again = ["unshare", "--net", "--", sys.executable, *sys.argv]
        sys.exit(subprocess.run(again, env={**os.environ, INSIDE: "1"}).returncode)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    failed = False

    def report(is_well: bool, text: str) -> None:
        nonlocal failed
        failed |= not is_well
        print(f"   {'ok' if is_well else 'FAILED'}: {text}", flush=True)

    for levels in LEVELS:
        asked = question(levels)

        def ask(stranger: socket.socket, asked: bytes = asked) -> None:
            for number, at in enumerate(range(0, len(asked), FRAGMENT)):
                stranger.sendto(fragment(number + 1, asked[at:at + FRAGMENT], len(asked)), VICTIM)
                time.sleep(0.002)

        lives, _ = exchange(chappe, ask)
        report(lives, f"a question about {levels} sequences within each other, {len(asked)} bytes, ends no participant")

    def claim(stranger: socket.socket) -> None:
        for number in range(SENT // FRAGMENT):
            stranger.sendto(fragment(number + 1, bytes(FRAGMENT), CLAIMED), VICTIM)
            time.sleep(0.0005)

    lives, grown = exchange(chappe, claim)
    report(lives and grown < GROWTH_MAX_KB, f"{SENT // 1_000_000} MB of a sample that claims {CLAIMED // 1_000_000} MB "
           f"take {grown} kB")
    restarts, grown = keep(chappe)
    report(restarts >= 1 and grown < KEPT_GROWTH_MAX_KB,
           f"{KEPT_SAMPLES * FRAGMENTS * FRAGMENT // 1_000_000} MB of samples after a gap take {grown} kB, with {restarts} "
           "restarts of the participant")
    sys.exit(failed)


main(*sys.argv[1:])
