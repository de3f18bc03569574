"""Exchange between nodes: the subscriber has every element that the origin accepted exactly once.

    python3 check/links/run.py CHAPPE WORK [--seconds N] [--kills N] [--only NAME] [--seed N]

Real nodes: an origin with devices that send every 20 ms, a subscriber linked to it through a relay in
user space. For every reliable kind of link: the relay cut, dropped, stalled one way, slowed; either node killed with
SIGKILL at random times (--kills), and before one of its writes after another (--seconds); a
subscriber without room on its disk; with failing syncs; stopped for a while; the origin or the
subscriber restored from a backup; many links that fill the subscriber's queue while they catch up from an
origin with damaged records. The judge compares all that both have stored.
Runs as root on Linux, in namespaces of its own: what it started ends with it.
"""

import argparse
import http.client
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "loss"))
import backlog  # noqa: E402
import pair as pairs  # noqa: E402
from life import devices  # noqa: E402
from model import Lost  # noqa: E402
from network import CheckFailed, enter, expect, run_in, until  # noqa: E402
from node import CALLS, attach, tail  # noqa: E402
from pair import Node, Pair  # noqa: E402

INSIDE = "CHAPPE_LINKS_INSIDE"
DEVICES = 3
# In a network namespace of its own every port is free.
HTTP_PORTS, ZEROMQ_PORT = (18470, 18471), 22022
EXCHANGE = f"""
[exchange]
listen = "127.0.0.1:{ZEROMQ_PORT}"
contact = ["127.0.0.0/8"]
"""
LINK = """
[[links]]
name = "origin"
kind = "{kind}"
address = "{scheme}://{{address}}"
streams = ["*"]
{more}
"""
# Kind of link, scheme of its address, the port that the relay leads to, and more of its settings.
KINDS = {
    "zeromq": ("tcp", ZEROMQ_PORT, ""),
    "http_pull": ("http", HTTP_PORTS[0], ""),
    "http_push": ("http", HTTP_PORTS[0], 'contact = "http://{contact}"'),
}
# Kills on the same data before all is judged and new data begun.
LIVES = 40


class Check:
    """Shared state of all scenarios."""

    def __init__(self, chappe: str, work: pathlib.Path, seed: int):
        self.chappe, self.work = chappe, work
        self.random = random.Random(seed)
        self.made = 0

    def pair(self, kind: str = "zeromq") -> Pair:
        self.made += 1
        scheme, port, more = KINDS[kind]
        link = LINK.format(kind=kind, scheme=scheme, more=more)
        return Pair(self.chappe, self.work / f"pair-{self.made}", link, EXCHANGE, port, HTTP_PORTS)

    def cuts(self, kind: str, rounds: int) -> None:
        pair = self.pair(kind).start()
        try:
            pair.moves()
            for turn in range(rounds):
                fault = ("drop", "cut", "toward", "back", "slow")[turn % 5]
                for relay in pair.relays:
                    if fault == "drop":
                        relay.drop()
                    elif fault == "cut":
                        relay.cut()
                    elif fault == "slow":
                        relay.rate_bytes_per_s, relay.delay_s = 20_000, 0.05
                    else:
                        relay.stalled[fault] = True
                time.sleep(self.random.uniform(0.05, 1.0))
                for relay in pair.relays:
                    relay.heal()
                    relay.rate_bytes_per_s, relay.delay_s = None, 0.0
            made = pair.relays[0].connections
            judged = pair.judge()
            expect(made >= 2, f"{kind}: {rounds} cuts, drops, stalls each way and slow times, {made} "
                   f"connections: {judged} elements are at the subscriber exactly once")
        finally:
            pair.end()

    def kills(self, kind: str, count: int) -> None:
        done, judged, at_origin = 0, 0, 0
        while done < count:
            pair = self.pair(kind).start()
            try:
                pair.moves()
                for _ in range(min(LIVES, count - done)):
                    origin = self.random.random() < 0.3
                    node = pair.origin if origin else pair.subscriber
                    time.sleep(self.random.uniform(0, 0.4))
                    node.kill()
                    node.start().ready()
                    done, at_origin = done + 1, at_origin + origin
                judged += pair.judge()
            finally:
                pair.end()
        expect(judged > 0, f"{kind}: SIGKILL at {done} random moments ({at_origin} of them at the origin): "
               f"{judged} elements exactly once at the subscriber")

    def boundaries(self, kind: str, seconds: float) -> None:
        end, hit, unreached, judged, nth = time.monotonic() + seconds, 0, 0, 0, 0
        # On a slow machine for longer, until there is something to judge.
        latest = end + 20 * seconds
        goes_on = lambda: time.monotonic() < (end if hit >= 10 else latest)
        while goes_on():
            pair = self.pair(kind).start()
            try:
                pair.moves()
                for _ in range(LIVES):
                    if not goes_on():
                        break
                    nth += 1
                    node = pair.origin if nth % 3 == 0 else pair.subscriber
                    call = ("write", "fdatasync", "write", "fdatasync", "openat", "rename")[nth % 6]
                    reached = self.kill_at(node, call, nth // 6 + 1)
                    hit, unreached = hit + reached, unreached + (not reached)
                    node.start().ready()
                judged += pair.judge()
            finally:
                pair.end()
        expect(hit >= 10, f"{kind}: killed before {hit} writes, syncs, opens and renames of the log (and "
               f"{unreached} times in between): {judged} elements exactly once at the subscriber")

    def kill_at(self, node: Node, call: str, nth: int) -> bool:
        folder = node.folder / "data" / "log"
        newest = max((int(one.name.split(".")[0]) for one in folder.glob("*.segment")), default=0)
        names = [f"{n:010}.segment" for n in range(max(1, newest - 1), newest + 12)]
        paths = [f"-P{folder}", *(f"-P{folder}/{name}" for name in names)]
        trace = node.folder / "trace"
        tracer = attach(["strace", "-f", "-o", str(trace), "-e", f"trace={','.join(CALLS)}", "-e",
                         f"inject={call}:signal=SIGKILL:when={nth}", *paths], node.pid)
        reached = node.wait_death(2)
        node.kill()
        tracer.stderr.read()
        tracer.wait(60)
        if reached and "SIGKILL" not in tail(trace):
            raise CheckFailed(f"the node ended by itself, see {node.folder}")
        return reached

    def full_disk(self) -> None:
        pair = self.pair()
        data = pair.subscriber.folder / "data"
        data.mkdir(parents=True)
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m,mode=0700", "tmpfs", str(data)]).returncode:
            print("   -- a file system of its own cannot be mounted here: the full disk is left out")
            return pair.end()
        try:
            pair.start().moves()
            ballast = data / "ballast"
            with open(ballast, "wb", buffering=0) as file:
                try:
                    while file.write(bytes(4096)):
                        pass
                except OSError:
                    pass
            until(20, "the subscriber says that its disk is full",
                  lambda: "full" in str(pair.subscriber.get("/ready")))
            stored = pair.stored()
            time.sleep(2)
            expect(pair.stored() <= stored + 200, "without room the subscriber stores nothing more")
            os.remove(ballast)
            pair.moves(100, 30)
            expect(pair.judge() > 0, "with room it takes up what the origin held meanwhile, exactly once")
        finally:
            pair.subscriber.kill()
            subprocess.run(["umount", str(data)], check=True)
            pair.end()

    def failed_sync(self) -> None:
        pair = self.pair().start()
        try:
            pair.moves()
            node = pair.subscriber
            folder = node.folder / "data" / "log"
            names = [f"{n:010}.segment" for n in range(1, 60)]
            tracer = attach(["strace", "-f", "-o", str(node.folder / "trace"), "-e", "trace=fdatasync", "-e",
                             "inject=fdatasync:error=EIO:when=3+", f"-P{folder}",
                             *(f"-P{folder}/{name}" for name in names)], node.pid)
            until(20, "the subscriber is not ready", lambda: node.get("/ready")["code"] == 503)
            stored = pair.stored()
            time.sleep(1)
            expect(pair.stored() == stored, "after a failed sync nothing more is stored or acknowledged")
            node.kill()
            tracer.stderr.read()
            tracer.wait(60)
            node.start().ready()
            expect(pair.judge() > 0, "started again it has everything, exactly once")
        finally:
            pair.end()

    def stopped(self, seconds: float) -> None:
        pair = self.pair().start()
        try:
            pair.moves()
            os.kill(pair.subscriber.pid, signal.SIGSTOP)
            time.sleep(seconds)
            os.kill(pair.subscriber.pid, signal.SIGCONT)
            expect(pair.judge() > 0, f"stopped for {seconds:.0f} s and going on: everything, exactly once")
        finally:
            pair.end()

    def restored_subscriber(self) -> None:
        pair = self.pair().start()
        try:
            node = pair.subscriber
            pair.moves(30)
            node.stop()
            backup = pair.work / "backup"
            shutil.copytree(node.folder / "data", backup)
            node.start().ready()
            pair.moves(60)
            node.stop()
            shutil.rmtree(node.folder / "data")
            backup.rename(node.folder / "data")
            node.start().ready()
            expect(pair.judge() > 0, "a subscriber restored from a backup fetches again what it had forgotten")
        finally:
            pair.end()

    def restored_origin(self) -> None:
        pair = self.pair().start()
        try:
            node = pair.origin
            pair.moves(30)
            node.stop()
            backup = pair.work / "backup"
            shutil.copytree(node.folder / "data", backup)
            node.start().ready()
            pair.moves(60)
            had = {name: node.elements(name) for name in node.streams()}
            ends = {name: elements[-1]["number"] for name, elements in had.items()}
            until(20, "the subscriber has them", lambda: all(pair._reached(*end) for end in ends.items()))
            epochs = self.put_back(pair, backup)
            judged = 0
            for name, before in had.items():
                # The origin is read last: it has everything that the subscriber got.
                got = pair.subscriber.elements(name)
                now = [one for one in node.elements(name) if one["epoch"] == epochs[name]]
                last = pairs.place(got[-1])[1]
                now = [one for one in now if one["number"] <= last]
                kept = {(one["epoch"], one["number"]) for one in before}
                first = [one for one in got if pairs.place(one) in kept]
                judged += pairs.judge(before, first, name)
                judged += pairs.judge(now, [one for one in got if pairs.place(one)[0] == epochs[name]], name)
            notices = str(pair.subscriber.get("/api/v1/notices"))
            expect("was rolled back" in notices, f"an origin restored from a backup: the subscriber says so, keeps "
                   f"what it had and takes the new epoch ({judged} elements judged)")
            self.put_back(pair, backup)
            copies = {name: [pairs.place(one) for one in pair.subscriber.elements(name)] for name in had}
            for name, places in copies.items():
                if len(set(places)) < len(places):
                    raise Lost(f"{name}: {len(places)} elements, {len(set(places))} of them distinct")
            expect(True, f"restored from the same backup again: none of the "
                   f"{sum(len(places) for places in copies.values())} elements at the subscriber is there twice")
        finally:
            pair.end()

    @staticmethod
    def put_back(pair: Pair, backup: pathlib.Path) -> dict[str, str]:
        """Starts the origin with the backup's data; returns the epochs of its streams once the subscriber has
        elements of them."""
        node = pair.origin
        node.stop()
        shutil.rmtree(node.folder / "data")
        shutil.copytree(backup, node.folder / "data")
        node.start().ready()
        epochs = {name: stream["epoch"] for name, stream in node.streams().items()}
        until(30, "elements of the new epochs at the subscriber", lambda: all(
            any(pairs.place(one)[0] == epoch for one in pair.subscriber.get(
                f"/api/v1/streams/{name}/elements?newest=5")["elements"])
            for name, epoch in epochs.items()))
        return epochs


def check(chappe: str, work: pathlib.Path, options: argparse.Namespace) -> None:
    expect(True, f"the judge finds {pairs.prove_yourself()} planted losses of as many")
    one = Check(chappe, work, options.seed)
    scenarios = {
        "cuts": lambda: [one.cuts(kind, options.cuts) for kind in KINDS],
        "kills": lambda: [one.kills("zeromq", options.kills),
                          one.kills("http_pull", max(10, options.kills // 10)),
                          one.kills("http_push", max(10, options.kills // 10))],
        "boundaries": lambda: one.boundaries("zeromq", options.seconds),
        "full": one.full_disk,
        "sync": one.failed_sync,
        "stopped": lambda: one.stopped(options.stopped),
        "subscriber": one.restored_subscriber,
        "origin": one.restored_origin,
    }
    started = devices(chappe, work / "devices", DEVICES)
    try:
        for name, scenario in scenarios.items():
            if options.only in (None, name):
                scenario()
    finally:
        for device in started:
            device.stop()
    if options.only in (None, "queue"):
        backlog.full_queue(chappe, work / "backlog", EXCHANGE, HTTP_PORTS, ZEROMQ_PORT, options.seed)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("chappe", type=pathlib.Path)
    parser.add_argument("work", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=40)
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--cuts", type=int, default=15)
    parser.add_argument("--stopped", type=float, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only")
    options = parser.parse_args()
    enter(INSIDE, sys.argv)
    chappe, work = options.chappe.resolve(), options.work.resolve()
    run_in(work, lambda: check(str(chappe), work, options), (Lost, http.client.HTTPException))


if __name__ == "__main__":
    main()
