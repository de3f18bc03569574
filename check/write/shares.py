"""Accounts that take as much as they can: of the room for definitions, of the registry, of the audit stream, and
of the processor by requests whose answer nobody reads. Others are served, and the log goes on."""

import json
import socket
import time

from network import CheckFailed, expect
from node import Node

# A segment is shorter than the definitions of one account, with which the next ones begin.
CONFIGURATION = """
[log]
segment_bytes = 4194304
max_bytes = 134217728
[registry]
max_bytes = 67108864
"""


def account(node: Node, name: str, **more) -> str:
    status, answer = node.ask("POST", "/api/v1/accounts", {"name": name, "roles": ["write"], **more})
    if status != 201:
        raise CheckFailed(f"no account {name}: {status} {answer}")
    return answer["token"]


def fill(node: Node, megabytes: int) -> None:
    for _ in range(2 * megabytes):
        status, answer = node.ask("POST", "/api/v1/streams/filled/elements", [{"v": "x" * 50_000}] * 10)
        if status != 200:
            raise CheckFailed(f"the log does not go on: {status} {answer}")


def wide(name: str) -> dict:
    fields = [{"name": f"f{number}", "type": "double", "description": "d" * 1_000} for number in range(60)]
    return {"name": name, "level": "process", "fields": fields}


def definitions(node: Node, ann: str, bob: str) -> None:
    node.create("filled", v="text")
    fill(node, 120)
    made = 0
    while (answer := node.ask("POST", "/api/v1/streams", wide(f"ann.{made}"), token=ann))[0] == 201:
        made += 1
    status, code = answer[0], answer[1].get("code")
    expect((status, code) == (507, "share_of_definitions"), f"after {made} long definitions: {status} {code}")
    status, answer = node.ask("POST", "/api/v1/streams", wide("bob.own"), token=bob)
    expect(status == 201, f"another account still defines a stream: {status}")
    fill(node, 200)
    node.kill()
    node.start()
    fill(node, 60)
    expect(node.ask("GET", "/ready")[0] == 200, "the log makes room, also after a kill, in segments shorter than the definitions")


def entities(node: Node, ann: str, bob: str) -> None:
    def entity(number: int) -> dict:
        texts = [f"{number} {text} " + "y" * 16_000 for text in range(31)]
        triples = [{"predicate": "urn:p", "object": text} for text in texts]
        return {"key": f"urn:x:{number}", "name": f"n{number}", "triples": triples}

    made = 0
    while (answer := node.ask("POST", "/api/v1/entities", entity(made), token=ann))[0] == 201:
        made += 1
    status, code = answer[0], answer[1].get("code")
    expect((status, code) == (507, "share_of_registry"), f"after {made} large entities: {status} {code}")
    status, _ = node.ask("POST", "/api/v1/entities", entity(1_000), token=bob)
    expect(status == 201, f"another account still publishes: {status}")


def audit(node: Node, ann: str) -> None:
    count = "select count(*) from \"chappe.audit\" where account = 'ann'"
    before = node.sql(count)[0][0]
    for _ in range(50):
        status, _ = node.ask("POST", "/api/v1/streams", wide("ann.0"), token=ann)
        if status != 200:
            raise CheckFailed(f"a repeated definition is refused: {status}")
    for _ in range(600):
        node.ask("POST", "/api/v1/streams", {"name": "ann.wrong", "fields": []}, token=ann)
    more = node.sql(count)[0][0] - before
    expect(more < 600, f"650 requests that change nothing add {more} records to the audit stream")


def changes(node: Node, eve: str, ola: str, bob: str) -> None:
    """Changes that an account may repeat without end: the contents of an entity, the name of a stream."""
    first = 'select source_time, subject from "chappe.audit" order by source_time limit 1'
    before = node.sql(first)

    def entity(number: int):
        return node.ask("POST", "/api/v1/entities", {"key": "urn:eve", "name": f"n{number % 2}"}, token=eve)

    def rename(number: int):
        old, new = ("to", "fro") if number % 2 else ("fro", "to")
        return node.ask("POST", f"/api/v1/streams/{old}/rename", {"name": new}, token=ola)

    node.create("fro", v="integer")
    for name, change in {"eve": entity, "ola": rename}.items():
        made = 0
        while (answer := change(made))[0] in (200, 201) and made < 20_000:
            made += 1
        status, code = answer[0], answer[1].get("code")
        expect((status, code) == (429, "share_of_audit"), f"{name} after {made} changes: {status} {code}")
        count = node.sql(f"select count(*) from \"chappe.audit\" where account = '{name}'")[0][0]
        expect(count == made, f"each of the {made} changes is recorded: {count}")
    status, _ = node.ask("POST", "/api/v1/entities", {"key": "urn:bob", "name": "n"}, token=bob)
    expect(status == 201, f"another account still changes something: {status}")
    node.kill()
    node.start()
    again = 0
    while entity(again)[0] == 200 and again < 20_000:
        again += 1
    expect(again < 200, f"a kill returns {again} changes")
    expect(node.sql(first) == before, "the first record is still there")


def abandoned(node: Node) -> None:
    """Ranges of time that are asked for over connections that close at once."""
    node.create("long", v="integer", t="text")
    times = ["2020-01-01T00:00:00Z", "2026-01-01T00:00:00Z"]
    line = [json.dumps({"v": 1, "t": "x" * 60, "source_time": time}) for time in times]
    body = "\n".join(line * 25_000)
    for _ in range(24):
        status, _ = node.ask("POST", "/api/v1/streams/long/elements", body, Content_Type="application/x-ndjson")
        if status != 200:
            raise CheckFailed(f"elements are refused: {status}")

    def used_s() -> float:
        text = open(f"/proc/{node.pid}/stat").read().rsplit(")", 1)[1]
        return sum(map(int, text.split()[11:13])) / 100

    path = "/api/v1/streams/long/elements?from=2023-01-01T00:00:00Z&to=2023-01-02T00:00:00Z&limit=1"
    begun = used_s()
    statuses = {node.ask("GET", path)[0] for _ in range(5)}
    one, count, begun = (used_s() - begun) / 5, 100, used_s()
    for _ in range(count):
        with socket.create_connection((node.host, node.port)) as connection:
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: {node.host}:{node.port}\r\n\r\n".encode())
            time.sleep(0.005)
    last, idle = used_s(), 0
    while idle < 2:
        time.sleep(0.5)
        now = used_s()
        last, idle = now, idle + 1 if now - last < 0.1 else 0
    spent = used_s() - begun
    expect(statuses == {200} and spent < count * one / 4,
           f"{count} requests that nobody waits for cost {spent:.1f} s, one costs {one:.2f} s")


def check(node: Node) -> None:
    ann, bob = account(node, "ann"), account(node, "bob")
    definitions(node, ann, bob)
    entities(node, ann, bob)
    audit(node, ann)
    changes(node, account(node, "eve"), account(node, "ola", roles=["operate"]), bob)
    abandoned(node)
    small = account(node, "small", share={"requests_percent": 1})
    status, _ = node.ask("POST", "/api/v1/streams/filled/elements?atomic=true", [{"v": "1"}], token=small)
    expect(status == 200, f"one percent of the requests is one atomic request: {status}")
