"""Entities with short leases, published while nodes are killed: each lease ends once, at no node early."""

import asyncio
import collections
import json
import random
import time
from dataclasses import dataclass

from follow import Follower
from nodes import RegistryNode, expect, expect_quiet

# Seconds of a lease: some end between two kills, and others only after the last one.
LEASES_S = range(1, 6)
# A node records once a minute how much time has passed, so a kill lengthens a lease by up to two.
PATIENCE_S = 180
# Between two entities of one publisher: few enough that the services are most of what is published.
PAUSE_S = 0.2
PREFIX = "lease-"
KEY_PREFIX = "urn:check:"


@dataclass
class Lease:
    """The lease of one entity. It counts from the last grant, which came after the client asked for it."""

    asked: float
    length_s: int
    is_stored: bool


class Leases:
    """Publishes entities with leases at several nodes, renews some, and follows the changes at each node."""

    def __init__(self, nodes: list[RegistryNode], is_up: dict[RegistryNode, asyncio.Event]):
        self.nodes, self.is_up, self.ends = nodes, is_up, False
        self.leases: dict[str, Lease] = {}
        self.followers = [Follower(node, "prefix=" + PREFIX) for node in nodes]

    async def run(self) -> None:
        await asyncio.gather(*(self.publish(index) for index in range(2 * len(self.nodes))))

    async def publish(self, index: int) -> None:
        node, number, chance = self.nodes[index % len(self.nodes)], 0, random.Random(index)
        while not self.ends:
            await self.is_up[node].wait()
            name = f"{PREFIX}{index}-{number}"
            key, length_s = KEY_PREFIX + name, chance.choice(LEASES_S)
            number += 1
            document = {"key": key, "name": name, "lease_s": length_s}
            self.leases[key] = Lease(time.monotonic(), length_s, False)
            self.leases[key].is_stored = await self.ask(node, "/api/v1/entities", document)
            await asyncio.sleep(PAUSE_S)
            if number % 3 == 0:
                asked = time.monotonic()
                if await self.ask(node, f"/api/v1/entities/{key}/renew", None):
                    self.leases[key].asked = asked

    @staticmethod
    async def ask(node: RegistryNode, path: str, document: dict | None) -> bool:
        """Whether the node says that it is done. It may be done otherwise, if the node was killed."""
        try:
            status, _ = await node.post_soon(path, json.dumps(document), "application/json")
        except (OSError, EOFError, ValueError):
            return False
        return status < 300

    def left(self, node: RegistryNode) -> list[dict]:
        return node.rest("GET", f"entities?prefix={PREFIX}&limit=1")["entities"]

    def check(self) -> None:
        """Waits until all leases are over, and compares them with the removals that each node told."""
        stored = {key for key, lease in self.leases.items() if lease.is_stored}
        end = time.monotonic() + PATIENCE_S
        while (any(self.left(node) for node in self.nodes)
               or any(stored - set(self.removals(one)) for one in self.followers)) and time.monotonic() < end:
            time.sleep(0.2)
        for node, follower in zip(self.nodes, self.followers):
            name = node.folder.name
            expect_quiet(not self.left(node), f"{name}: leases are not over: {self.left(node)}")
            reasons = [data["reason"] for _, event, data in follower.events if event == "resync"]
            expect_quiet(not reasons, f"{name}: the subscriber has to start again: {reasons}")
            removals = self.removals(follower)
            missing = stored - set(removals)
            expect_quiet(not missing, f"{name}: {len(missing)} removals were not told: {sorted(missing)[:5]}")
            twice = [key for key, times in removals.items() if len(times) != 1]
            expect_quiet(not twice, f"{name}: removed more than once: {twice[:5]}")
            early = [key for key, (at,) in removals.items()
                     if at < self.leases[key].asked + self.leases[key].length_s]
            expect_quiet(not early, f"{name}: removed before the lease was over: {early[:5]}")
        expect(len(stored) > 0, f"each of {len(stored)} leases ended once and none early")

    @staticmethod
    def removals(follower: Follower) -> dict[str, list[float]]:
        """The times of each entity's removals. A position that is told again, after a kill, is one removal."""
        found: dict[str, dict[int, float]] = collections.defaultdict(dict)
        for at, event, data in list(follower.events):
            # After a subscriber resumed, a removal may name an entity that did not match.
            if event == "removed" and data["key"].startswith(KEY_PREFIX):
                found[data["key"]].setdefault(data["position"], at)
        return {key: list(times.values()) for key, times in found.items()}

    def stop(self) -> None:
        for follower in self.followers:
            follower.stop()
