"""A forged announcement names addresses outside the networks of a participant's interfaces. The participant must send
nothing to any of them, neither through a gateway nor by another device. It does send to addresses inside, which
shows that the counters work. A participant on 127.0.0.1 reaches nobody else.

    python3 check/dds/forged.py DDS_PEER

Runs as root on Linux, in a network namespace of its own with two links that end in it.
"""

import os
import socket
import subprocess
import sys
import time

sys.dont_write_bytecode = True
from rtps import OTHER_VENDOR, announcement  # noqa: E402

INSIDE = "CHAPPE_DDS_FORGED_INSIDE"
DOMAIN = 11
LINKS = {"one": "10.77.0.1", "two": "10.78.0.1"}
GATEWAY = "10.77.0.2"
# Neighbours that answer no question for their hardware addresses.
NEIGHBOURS = {"one": [GATEWAY, "10.77.0.9"], "two": ["10.78.0.9"]}
WAIT = 3.0


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def links() -> dict[str, socket.socket]:
    """Creates the links; packets that leave by each are read from its other end."""
    subprocess.run(["sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1"], check=False)
    ip("link", "set", "lo", "up")
    ends = {}
    for link, address in LINKS.items():
        ip("link", "add", link, "type", "veth", "peer", "name", f"{link}-end")
        ip("addr", "add", f"{address}/24", "dev", link)
        ip("link", "set", link, "up")
        ip("link", "set", f"{link}-end", "up")
        for neighbour in NEIGHBOURS[link]:
            ip("neigh", "add", neighbour, "lladdr", "02:00:00:00:00:09", "dev", link)
        ends[link] = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
        ends[link].bind((f"{link}-end", 0x0800))
        ends[link].setblocking(False)
    ip("route", "add", "default", "via", GATEWAY)
    return ends


def came(ends: dict[str, socket.socket], address: str) -> int:
    """Number of packets for the address that arrived at the other ends."""
    count = 0
    for end in ends.values():
        while True:
            try:
                frame, (_, _, kind, *_) = end.recvfrom(65_535)
            except BlockingIOError:
                break
            count += kind != socket.PACKET_OUTGOING and frame[30:34] == socket.inet_aton(address)
    return count


def trial(words: list[str], ends: dict[str, socket.socket], interface: str, address: str, number: int) -> int:
    """Number of packets that a participant on the interface sends to the forged address."""
    reader = subprocess.Popen([*words, "--interface", interface, "read", str(DOMAIN), "chappe/forged", "1"],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        if reader.stdout.readline().strip() != "ready":
            sys.exit("   FAILED: the reader is not ready")
        came(ends, address)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as forger:
            forger.bind((interface, 0))
            for participant in range(3):
                port = 7_400 + 250 * DOMAIN + 10 + 2 * participant
                forger.sendto(announcement(OTHER_VENDOR + bytes([number]) * 10, address), (interface, port))
        time.sleep(WAIT)
        return came(ends, address)
    finally:
        reader.kill()
        reader.wait()


def main(*words: str) -> None:
    if not os.environ.get(INSIDE):
        again = ["unshare", "--net", "--", sys.executable, *sys.argv]
        sys.exit(subprocess.run(again, env={**os.environ, INSIDE: "1"}).returncode)
    ends = links()
    held = True
    trials = [("10.77.0.1", "10.77.0.9", True), ("10.77.0.1", "10.99.0.1", False), ("10.77.0.1", "10.78.0.9", False),
              ("127.0.0.1", "10.77.0.9", False), ("127.0.0.1", "10.99.0.1", False)]
    for number, (interface, address, within) in enumerate(trials, 1):
        count = trial(list(words), ends, interface, address, number)
        right = (count > 0) == within
        held &= right
        print(f"   {'ok' if right else 'FAILED'}: DDS on {interface} sends {count} packets to {address}, which was forged "
              f"and is {'within' if within else 'beyond'} its network", flush=True)
    sys.exit(0 if held else 1)


main(*sys.argv[1:])
