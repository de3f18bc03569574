"""Nodes are killed again and again while many clients publish at the same time.

    python check/registry/kills.py CHAPPE WORK log|postgres

With `log`, one node with a registry of its own is killed with SIGKILL; with `postgres`, two nodes on one registry, and
each third time PostgreSQL. Then every acknowledged service is there once and whole, at each node, and after another
start; none that was refused is there; and no two have one position, so no update was lost. Entities with short leases
are published meanwhile: each lease ends once, and none early.

KILLS says how often (default 6), PUBLISHES how many publish at the same time (default 200). The whole size is
KILLS=100 PUBLISHES=1000. `postgres` needs Debian's postgresql, and a program with the feature `postgres`.
"""

import asyncio
import os
import pathlib
import random
import subprocess
import sys

sys.dont_write_bytecode = True
from leases import Leases  # noqa: E402
from nodes import RegistryNode, Publishers, Server, expect, expect_quiet, new_business, run_in  # noqa: E402

KILLS = int(os.environ.get("KILLS", "6"))
PUBLISHES = int(os.environ.get("PUBLISHES", "200"))
# Changes between two kills, unless the machine is too slow for them.
CHANGES = 50
# Changes of a round after which no new publication starts; those in flight end.
ENOUGH = 200
PATIENCE_S = 20


async def kill_again_and_again(publishers: Publishers, leases: Leases, server: Server | None) -> None:
    running = asyncio.gather(publishers.run(), leases.run())
    chance = random.Random(1)
    for number in range(KILLS):
        before, waited = len(publishers.stored), 0.0
        publishers.enough = before + ENOUGH
        while len(publishers.stored) < before + CHANGES and waited < PATIENCE_S:
            await asyncio.sleep(0.05)
            waited += 0.05
        # At any moment of a change.
        await asyncio.sleep(chance.random() * 0.2)
        if server is not None and number % 3 == 2:
            await asyncio.to_thread(server.kill)
            await asyncio.sleep(chance.random() * 0.5)
            await asyncio.to_thread(server.start)
        else:
            await publishers.kill(publishers.nodes[number % len(publishers.nodes)])
        if number % 10 == 9:
            print(f"   {number + 1} kills, {len(publishers.stored)} services stored", flush=True)
    before = len(publishers.stored)
    publishers.enough = before + ENOUGH
    end = asyncio.get_running_loop().time() + PATIENCE_S
    while len(publishers.stored) == before:
        # And after the last one.
        expect_quiet(asyncio.get_running_loop().time() < end, "changes are taken after the last kill")
        await asyncio.sleep(0.05)
    publishers.ends = leases.ends = True
    await running


def check(chappe: str, work: pathlib.Path, store: str) -> None:
    server = Server(work) if store == "postgres" else None
    nodes = []
    try:
        for name in ["north", "south"] if server else ["only"]:
            nodes.append(RegistryNode(chappe, work, name, server))
        publishers = Publishers(nodes, new_business(nodes[0]), PUBLISHES)
        expect_quiet(len(nodes[-1].token) > 0, "a node has no token")
        leases = Leases(nodes, publishers.is_up)
        asyncio.run(kill_again_and_again(publishers, leases, server))
        expect(True, f"killed {KILLS} times during {PUBLISHES} concurrent publishes")
        publishers.check()
        leases.check()
        leases.stop()
        for node in nodes:
            node.process.stop()
            node.start()
        print("   after another start", flush=True)
        publishers.check()
        if server is not None:
            doubled = server.query("SELECT count(*) - count(DISTINCT body) FROM chappe.registry_record")
            expect(doubled == "0", "no record is in the database twice")
    finally:
        for node in nodes:
            node.process.stop()
        if server is not None:
            server.kill()


def main() -> None:
    chappe, work = (os.path.abspath(argument) for argument in sys.argv[1:3])
    folder = pathlib.Path(work)
    run_in(folder, lambda: check(chappe, folder, sys.argv[3]), (subprocess.SubprocessError,))
    print("   all passed")


if __name__ == "__main__":
    main()
