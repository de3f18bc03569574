"""Many links catch up at once, from an origin with damaged records, into a log whose queue is full."""

import os
import pathlib
import random
import re
import sys
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "loss"))
import life  # noqa: E402
from model import Lost  # noqa: E402
from network import expect, until  # noqa: E402
from pair import Node, content, place  # noqa: E402

LINKS, DEVICES, FLIPS = 16, 3, 60
# The log's queue holds 4 MiB. The origin has as much before the links begin, and each link fetches all of it.
BACKLOG_BYTES, PADDING = 4 << 20, "x" * 3000
# Every sync of the subscriber takes so long. Its files have the default size: each new one costs two syncs, and with
# files of 64 KiB those would be most of the time.
SYNC_MS, SEGMENT_BYTES = (1, 30, 500), 64 << 20
# Losses and documents share syncs. With a sync for each, catching up at 500 ms would take minutes.
CATCH_UP_S = 60
LINK = """
[[links]]
name = "c{n}"
kind = "{kind}"
address = "{address}"
as_prefix = "c{n}"
streams = ["*"]
"""
DAMAGED = re.compile(r"records \d+ to (\d+) of")
LOST = re.compile(r'^chappe_lost_total\{([^}]*)\} (\d+)', re.MULTILINE)


def full_queue(chappe: str, work: pathlib.Path, exchange: str, ports: tuple[int, int], zeromq: int, seed: int) -> None:
    """Each copy has every readable element of the origin once and in order, and names the rest as lost."""
    life.PADDING, before = PADDING, life.PADDING
    devices = life.devices(chappe, work / "devices", DEVICES)
    life.PADDING = before
    origin = Node(chappe, work / "origin", "origin", ports[0], True, exchange)
    try:
        origin.start().ready()
        until(60, "a backlog at the origin", lambda: sum(
            one["last"] for one in origin.streams().values()) * len(PADDING) > BACKLOG_BYTES)
        for device in devices:
            device.stop()
        origin.stop()
        flip(origin.folder / "data" / "log", random.Random(seed))
        origin.start().ready()
        for number, sync_ms in enumerate(SYNC_MS):
            links = "".join(LINK.format(n=n, **source(n, ports[0], zeromq)) for n in range(LINKS))
            node = Node(chappe, work / f"subscriber-{number}", "subscriber", ports[1], False, links, SEGMENT_BYTES)
            try:
                catch_up(origin, node, sync_ms)
            finally:
                node.kill()
    finally:
        for device in devices:
            if device.process.poll() is None:
                device.stop()
        if origin.process:
            origin.kill()


def source(n: int, http: int, zeromq: int) -> dict[str, str]:
    """Every fourth link pulls over HTTP."""
    if n % 4 == 3:
        return {"kind": "http_pull", "address": f"http://127.0.0.1:{http}"}
    return {"kind": "zeromq", "address": f"tcp://127.0.0.1:{zeromq}"}


def flip(log: pathlib.Path, chance: random.Random) -> None:
    """Flips bits in older files, distributed over all of them."""
    older = sorted(log.glob("*.segment"))[:-1]
    for number in range(FLIPS):
        with open(older[number % len(older)], "r+b") as file:
            at = chance.randrange(64, os.fstat(file.fileno()).st_size)
            file.seek(at)
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ (1 << chance.randrange(8))]))


def catch_up(origin: Node, node: Node, sync_ms: int) -> None:
    node.start("strace", "--seccomp-bpf", "-f", "-o", "/dev/null", "-e", "trace=fdatasync", "-e",
               f"inject=fdatasync:delay_enter={sync_ms * 1000}").ready()
    ends = {name: stream["last"] for name, stream in origin.streams().items() if stream["last"]}

    def arrived() -> bool:
        have = node.streams()
        return all(f"c{n}.{name}" in have and reached(node, f"c{n}.{name}") >= end
                   for n in range(LINKS) for name, end in ends.items())
    until(CATCH_UP_S, f"{LINKS} links have caught up with syncs of {sync_ms} ms", arrived)
    readable = {name: {one["number"]: content(one) for one in kept(origin, name)} for name in ends}
    lost = lost_elements(node)
    stored = missing = 0
    for name, end in ends.items():
        for n in range(LINKS):
            copy = f"c{n}.{name}"
            have = node.elements(copy)
            judge(copy, readable[name], have)
            if len(have) + lost.get(copy, 0) != end:
                raise Lost(f"{copy}: {end} elements at the origin, {len(have)} stored, {lost.get(copy, 0)} named lost")
            stored, missing = stored + len(have), missing + end - len(have)
    expect(missing > 0, f"{LINKS} links, a full queue, syncs of {sync_ms} ms, an origin with damaged records: "
           f"{stored} elements stored once, {missing} named lost")


def kept(node: Node, stream: str) -> list[dict]:
    """All readable elements of a node; a page ends with an error at a damaged element."""
    after, elements, more = "0000000000000000:0", [], True
    while more:
        page = node.get(f"/api/v1/streams/{stream}/elements?after={after}&limit=10000")
        if page["code"] == 410:
            epoch = node.streams()[stream]["epoch"]
            after = f"{epoch}:{DAMAGED.search(page['detail'])[1]}"
            continue
        elements += page["elements"]
        after, more = page["next_after"], page["truncated"]
    return elements


def reached(node: Node, copy: str) -> int:
    newest = node.get(f"/api/v1/streams/{copy}/elements?newest=1")["elements"]
    return (place(newest[-1]) or ("", 0))[1] if newest else 0


def judge(copy: str, readable: dict[int, str], have: list[dict]) -> None:
    """Every readable element of the origin exists once, in order."""
    numbers = [(place(one) or ("", 0))[1] for one in have]
    if numbers != sorted(set(numbers)):
        raise Lost(f"{copy}: elements are stored twice, or in another order")
    if skipped := sorted(set(readable) - set(numbers)):
        raise Lost(f"{copy}: the origin has {skipped[:5]} ({len(skipped)} elements), the copy has not")
    for number, one in zip(numbers, have):
        if number in readable and readable[number] != content(one):
            raise Lost(f"{copy}: number {number} has another content")


def lost_elements(node: Node) -> dict[str, int]:
    """Number of elements that a node counts as lost, by stream."""
    with urllib.request.urlopen(f"{node.address}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    counts: dict[str, int] = {}
    for labels, count in LOST.findall(text):
        stream = dict(re.findall(r'(\w+)="([^"]*)"', labels))["stream"]
        counts[stream] = counts.get(stream, 0) + int(count)
    return counts
