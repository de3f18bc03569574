"""Two nodes with one registry in PostgreSQL: what one sees of the other, and what both do while PostgreSQL is away.

    python check/registry/postgres.py CHAPPE WORK

The time is measured until a change at one node is visible at the other. Then PostgreSQL is killed and started again
some times: reads go on, changes fail with the reason, /ready names the registry; and the first change after it returned
is planned on the changes that the other node made meanwhile. An ontology of one node is followed at the other.

Needs Debian's postgresql, and a program with the feature `postgres`; Unix socket and loopback only. kills.py kills
nodes too, while many publish.
"""

import os
import pathlib
import re
import subprocess
import sys
import time
import urllib.parse

sys.dont_write_bytecode = True
from nodes import RegistryNode, Server, expect, expect_quiet, new_business, run_in, service  # noqa: E402

VISIBLE = int(os.environ.get("VISIBLE", "400"))
OUTAGES = 3
# The goal: 99 of 100 changes are visible at the other node within this time.
VISIBLE_P99_MS = 100


def measure_visible(nodes: list[RegistryNode], business: str) -> list[float]:
    times = []
    for number in range(VISIBLE):
        writer, reader = nodes[number % 2], nodes[1 - number % 2]
        name = f"visible-{number}"
        status, text = writer.publish("save_service", service(business, name))
        expect_quiet(status == 200, text)
        begun = time.monotonic()
        while name not in reader.inquire("find_service", f"<name>{name}</name>")[1]:
            expect_quiet(time.monotonic() - begun < 30, f"{name} is not visible at the other node")
        times.append((time.monotonic() - begun) * 1000)
    return sorted(times)


def until(what: str, is_so) -> None:
    end = time.monotonic() + 60
    while not is_so():
        expect_quiet(time.monotonic() < end, f"not within 60 s: {what}")
        time.sleep(0.01)


def outage(server: Server, nodes: list[RegistryNode], business: str, number: int) -> None:
    known = nodes[0].services(business)
    server.kill()
    until("/ready names the registry", lambda: all(
        status == 503 and "registry" in text for status, text in (node.request("GET", "/ready") for node in nodes)))
    for node in nodes:
        expect_quiet(node.services(business) == known, "reads go on while PostgreSQL is away")
        status, text = node.publish("save_service", service(business, f"lost-{number}"))
        expect_quiet(status == 500 and "E_busy" in text, f"a change without PostgreSQL: {status} {text}")
    reason = re.search(r"errInfo[^>]*>([^<]*)<", text).group(1)
    print(f"   the reason: {reason}", flush=True)
    server.start()
    # One node changes a service, the other the same one at once: it has to have read that change.
    until("north accepts changes", lambda: nodes[0].publish(
        "save_service", service(business, f"north-{number}"))[0] == 200)
    until("south accepts changes", lambda: nodes[1].publish(
        "save_service", service(business, f"south-{number}"))[0] == 200)
    until("both agree", lambda: nodes[0].services(business) == nodes[1].services(business))
    found = nodes[0].services(business)
    names = [name for name, _, _ in found]
    positions = [int(position) for _, position, _ in found]
    expect_quiet(len(set(positions)) == len(positions), "the first change was made on all before it")
    expect_quiet(f"lost-{number}" not in names, "a refused change is there")
    expect_quiet(len(found) == len(known) + 2, f"{len(found)} services instead of {len(known) + 2}")
    until("both are ready", lambda: all(node.request("GET", "/ready")[0] == 200 for node in nodes))


def ontologies(nodes: list[RegistryNode]) -> None:
    """An ontology that one node reads is followed at the other one, and leaves with its file."""
    north, south = nodes
    folder = north.folder / "ontologies"
    folder.mkdir()
    document = folder / "pumps.ttl"
    document.write_text("<urn:t#Pump> <http://www.w3.org/2000/01/rdf-schema#subClassOf> <urn:t#Device> .")
    south.rest("POST", "entities", {"key": "urn:x:pump", "name": "Pump", "types": ["{urn:t#}Pump"]})
    query = urllib.parse.urlencode({"type": "{urn:t#}Device", "inferred": "true"})

    def found() -> list[str]:
        return [one["key"] for one in south.rest("GET", "entities?" + query)["entities"]]

    expect_quiet(found() == [], "nothing is inferred without an ontology")
    for is_there in (True, False):
        if not is_there:
            document.unlink()
        north.process.stop()
        north.start()
        until("south follows the ontology" if is_there else "the ontology leaves", lambda: bool(found()) == is_there)
    expect(True, "an ontology that one node reads is followed at the other, and leaves with its file")


def check(chappe: str, work: pathlib.Path) -> None:
    server = Server(work)
    nodes = []
    try:
        for name in ("north", "south"):
            nodes.append(RegistryNode(chappe, work, name, server))
        business = new_business(nodes[0])
        until("south has the business", lambda: business in nodes[1].inquire("find_business", "<name>all</name>")[1])
        times = measure_visible(nodes, business)
        median, p99 = times[len(times) // 2], times[len(times) * 99 // 100 - 1]
        expect(p99 < VISIBLE_P99_MS, f"a change is visible at the other node after {median:.1f} ms (median), "
                                     f"{p99:.1f} ms (p99), with the question")
        for number in range(OUTAGES):
            outage(server, nodes, business, number)
        expect(True, f"in {OUTAGES} outages of PostgreSQL reads went on, changes failed with the reason, /ready named "
                     "the registry, and the first change after each was made on all before it")
        ontologies(nodes)
    finally:
        for node in nodes:
            node.process.stop()
        server.kill()


def main() -> None:
    chappe, work = (os.path.abspath(argument) for argument in sys.argv[1:3])
    folder = pathlib.Path(work)
    run_in(folder, lambda: check(chappe, folder), (subprocess.SubprocessError,))
    print("   all passed")


if __name__ == "__main__":
    main()
