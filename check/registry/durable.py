"""What a node acknowledged in its registry, after it was killed and moved.

    python check/registry/durable.py CHAPPE WORK [SEED]

1. Clients publish entities over REST, businesses over UDDI, metadata, things, and files, while the node is killed with
   SIGKILL. Each acknowledged change is there after the restart, whole; each other one is there whole or not at all.
2. The answers of finds and of SPARQL, and an export, agree with the list of entities.
3. An export is imported into an empty node, which exports the same. What the first node itself says stays behind.
4. A subscriber that reconnects after a kill has what the registry has.

The standard library of Python only; loopback only; about 30 s.
"""

import http.client
import json
import os
import pathlib
import random
import re
import signal
import sys
import threading
import time
import urllib.parse
import xml.etree.ElementTree as ElementTree

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from network import CheckFailed, Process, expect, run_in  # noqa: E402

CLIENTS = 4
KILLS = 8
UDDI = "{urn:uddi-org:api_v2}"
LABEL = "http://www.w3.org/2000/01/rdf-schema#label"
CONFIGURATION = """
name = "durable"
data_directory = "data"
sensors_directory = "sensors"
[http]
listen = "127.0.0.1:0"
[discovery]
interfaces = ["lo"]
"""
THING = {"@context": "https://www.w3.org/2022/wot/td/v1.1", "security": "none",
         "securityDefinitions": {"none": {"scheme": "nosec"}}}
# Texts that formats have to escape or keep.
TEXTS = ["", " ", "\t", "a\r\nb", "]]>", "<&\"'", "\\u0041", "e\u0301", "\u202eabc", "\u00a0", "\U0001f600", "\u0085",
         "\u2028", "a\u0000b"]


def quoted(text: str) -> str:
    return urllib.parse.quote(text, safe="")


class Node:
    """A node in a folder, killed and started again."""

    def __init__(self, chappe: str, folder: pathlib.Path):
        self.chappe, self.folder, self.starts = chappe, folder, 0
        (folder / "sensors").mkdir(parents=True)
        (folder / "node.toml").write_text(CONFIGURATION)

    def start(self) -> None:
        self.starts += 1
        arguments = [self.chappe, "serve", str(self.folder / "node.toml"), "--json"]
        self.process = Process(arguments, self.folder / f"node-{self.starts}.log")
        self.address = self.process.wait_event("ready", 30)["address"].removeprefix("http://")
        self.token = (self.folder / "data" / "new-token").read_text().strip()

    def kill(self) -> None:
        self.process.stop(signal.SIGKILL)

    def ask(self, method: str, path: str, body: str = "", kind: str = "application/json") -> tuple[int, str]:
        connection = http.client.HTTPConnection(self.address, timeout=60)
        try:
            fields = {"Authorization": f"Bearer {self.token}", "Content-Type": kind}
            connection.request(method, path, body.encode(), fields)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def uddi(self, port: str, request: str, inner: str) -> ElementTree.Element | None:
        """The answer, or none if it is a fault."""
        body = (f'<Envelope xmlns="http://schemas.xmlsoap.org/soap/envelope/"><Body><{request} generic="2.0" '
                f'xmlns="urn:uddi-org:api_v2">{inner}</{request}></Body></Envelope>')
        status, text = self.ask("POST", f"/uddi/{port}", body, "text/xml")
        return ElementTree.fromstring(text) if status == 200 else None

    def entities(self, **criteria: str) -> dict[str, dict]:
        found, cursor = {}, {}
        while True:
            query = urllib.parse.urlencode({"limit": "50", **criteria, **cursor})
            page = json.loads(self.ask("GET", f"/api/v1/entities?{query}")[1])
            for entity in page["entities"]:
                expect_each(entity["key"] not in found, f"{entity['key']} is in a list twice")
                found[entity["key"]] = entity
            if page["next"] is None:
                return found
            cursor = {"cursor": page["next"]}

    def export(self) -> dict[str, list[str]]:
        """The statements of each entity that is not a node's, without the prefixes of blank nodes."""
        blocks: dict[str, list[str]] = {}
        lines: list[str] = []
        first = re.compile(r"<([^>]*)> <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <[^>]*> \.$")
        for line in self.ask("GET", "/api/v1/registry/export")[1].split("\n"):
            start = first.match(line)
            if start:
                lines = blocks[start[1]] = []
            if line:
                lines.append(re.sub(r"_:e\d+\.", "_:", line))
        owned = '<https://chappe.example/ns#owner> "node" .'
        return {key: lines for key, lines in blocks.items() if not any(line.endswith(owned) for line in lines)}


def expect_each(condition: bool, message: str) -> None:
    """Like `expect`, but says nothing if it holds: it is asked thousands of times."""
    if not condition:
        raise CheckFailed(message)


class Client:
    """Changes what it alone changes, and remembers what was acknowledged."""

    def __init__(self, node: Node, number: int, seed: int):
        self.node, self.number, self.random = node, number, random.Random(f"{seed} {number}")
        # What is there by the last acknowledgement, and what may be there instead.
        self.known: dict[tuple[str, str], tuple[object, list]] = {}
        self.count = self.acknowledged = 0
        self.token = ""
        self.is_over = False

    def change(self, what: str, key: str, value: object, request) -> None:
        before, others = self.known.get((what, key), (None, []))
        self.known[what, key] = (before, [*others, value])
        if request():
            self.known[what, key] = (value, [])
            self.acknowledged += 1

    def run(self) -> None:
        while not self.is_over:
            self.count += 1
            text = f"{self.number}.{self.count}"
            step = self.random.choice([self.entity, self.thing, self.piece, self.business, self.file])
            try:
                step(text)
            except (OSError, http.client.HTTPException, ElementTree.ParseError):
                # The node was killed, and needs the processor to start.
                time.sleep(0.02)

    def sent(self, method: str, path: str, document: object = None, kind: str = "application/json") -> bool:
        body = "" if document is None else json.dumps(document)
        status, text = self.node.ask(method, path, body, kind)
        expect_each(status < 300 or status in (404, 429, 503, 507), f"{method} {path} answers {status} {text}")
        return status < 300

    def entity(self, text: str) -> None:
        key = f"urn:entity:{self.number}:{self.random.randrange(6)}"
        if self.known.get(("entity", key), (None, []))[0] and self.random.random() < 0.3:
            self.change("entity", key, None, lambda: self.sent("DELETE", f"/api/v1/entities/{quoted(key)}"))
            return
        triples = [{"predicate": "urn:text", "object": text}, {"predicate": "urn:node", "object": "_:b", "object_kind": "blank"},
                   {"subject": "_:b", "predicate": "urn:odd", "object": self.random.choice(TEXTS)}]
        document = {"key": key, "name": text, "triples": triples}
        self.change("entity", key, text, lambda: self.sent("POST", "/api/v1/entities", document))

    def thing(self, text: str) -> None:
        key = f"urn:thing:{self.number}:{self.random.randrange(4)}"
        path = f"/things/{quoted(key)}"
        if self.known.get(("thing", key), (None, []))[0] and self.random.random() < 0.5:
            patch = {"title": text, "odd": self.random.choice(TEXTS)}
            self.change("thing", key, text, lambda: self.sent("PATCH", path, patch, "application/merge-patch+json"))
            return
        document = {**THING, "id": key, "title": text}
        self.change("thing", key, text, lambda: self.sent("PUT", path, document, "application/td+json"))

    def piece(self, text: str) -> None:
        keys = [key for (what, key), (value, _) in self.known.items() if what == "piece" and value]
        document = {"subject": "urn:subject", "type": "urn:type", "value": text}
        if len(keys) < 4:
            status, answer = self.node.ask("POST", "/api/v1/registry/metadata", json.dumps(document))
            if status < 300:
                self.known["piece", json.loads(answer)["key"]] = (text, [])
                self.acknowledged += 1
            return
        key = self.random.choice(keys)
        path = f"/api/v1/registry/metadata/{quoted(key)}"
        if self.random.random() < 0.5:
            self.change("piece", key, None, lambda: self.sent("DELETE", path))
        else:
            self.change("piece", key, text, lambda: self.sent("PUT", path, document))

    def business(self, text: str) -> None:
        keys = [key for (what, key), (value, _) in self.known.items() if what == "business" and value]
        key = self.random.choice(keys) if len(keys) > 3 else ""
        token = f"<authInfo>{self.token}</authInfo>"
        if key and self.random.random() < 0.3:
            inner = f"{token}<businessKey>{key}</businessKey>"
            self.change("business", key, None,
                        lambda: self.node.uddi("publish", "delete_business", inner) is not None)
            return
        services = "".join(
            f'<businessService serviceKey=""><name>{text}/{number}</name><bindingTemplates><bindingTemplate bindingKey="">'
            f'<accessPoint URLType="http">http://{text}/{number}</accessPoint><tModelInstanceDetails/></bindingTemplate>'
            "</bindingTemplates></businessService>" for number in range(self.random.randint(1, 4)))
        inner = (f'{token}<businessEntity businessKey="{key}"><name>{text}</name><businessServices>{services}'
                 "</businessServices></businessEntity>")
        if key:
            self.change("business", key, text, lambda: self.node.uddi("publish", "save_business", inner) is not None)
            return
        saved = self.node.uddi("publish", "save_business", inner)
        if saved is not None:
            key = saved.find(f".//{UDDI}businessEntity").get("businessKey")
            self.known["business", key] = (text, [])
            self.acknowledged += 1

    def file(self, text: str) -> None:
        keys = [f"urn:file:{self.number}:{number}" for number in range(self.random.randint(1, 5))]
        lines = "".join(f'<{key}> <{LABEL}> "{text}" .\n<{key}> <urn:text> "{text}" <{key}> .\n' for key in keys)
        for key in keys:
            before, others = self.known.get(("entity", key), (None, []))
            self.known["entity", key] = (before, [*others, text])
        status, _ = self.node.ask("POST", "/api/v1/registry/import", lines, "application/n-quads")
        if status == 200:
            self.known.update({("entity", key): (text, []) for key in keys})
            self.acknowledged += 1

    def settle(self, there: dict[str, dict]) -> None:
        """Compares what is there with what was acknowledged."""
        for (what, key), (value, others) in self.known.items():
            entity = there.get(key if what != "business" else f"urn:uuid:{key.lower()}")
            found = entity and entity["name"]
            if what == "piece" and entity:
                values = [it["object"] for it in entity["triples"] if it["predicate"].endswith("#metadataValue")]
                found = values[0]
            if what == "entity" and entity:
                texts = [it["object"] for it in entity["triples"] if it["predicate"] == "urn:text"]
                expect_each(texts == [found], f"{key} is whole: {entity}")
            if what == "business" and entity:
                detail = self.node.uddi("inquiry", "get_businessDetail", f"<businessKey>{key}</businessKey>")
                names = [it.findtext(f"{UDDI}name") for it in detail.iter(f"{UDDI}businessService")]
                addresses = [it.text for it in detail.iter(f"{UDDI}accessPoint")]
                numbers = range(len(names))
                expect_each(names == [f"{found}/{it}" for it in numbers], f"{key} has its services: {names}")
                expect_each(addresses == [f"http://{found}/{it}" for it in numbers], f"{key} has its bindings: {addresses}")
            expect_each(found == value or found in others, f"{key} is {found!r}, acknowledged {value!r}, or one of {others}")
            self.known[what, key] = (found, [])


class Follower(threading.Thread):
    """Follows all entities of the kind other, and reconnects."""

    def __init__(self, node: Node):
        super().__init__(daemon=True)
        self.node, self.names, self.last = node, {}, None

    def run(self) -> None:
        while True:
            try:
                self.follow()
            except (OSError, http.client.HTTPException):
                # The node was killed, and needs the processor to start.
                time.sleep(0.1)

    def follow(self) -> None:
        connection = http.client.HTTPConnection(self.node.address, timeout=30)
        fields = {"Authorization": f"Bearer {self.node.token}"}
        fields |= {"Last-Event-ID": self.last} if self.last else {}
        connection.request("GET", "/api/v1/registry/changes?kind=other&present=true", headers=fields)
        event: dict[str, str] = {}
        for line in connection.getresponse():
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name:
                event[name] = value
                continue
            self.last = event.get("id", self.last)
            if "data" in event:
                self.apply(event["event"], json.loads(event["data"]))
            event = {}

    def apply(self, name: str, data: dict) -> None:
        match name:
            case "resync":
                self.names = {}
            case "added" | "changed":
                self.names[data["key"]] = data["name"]
            case "removed":
                self.names.pop(data["key"], None)


def names_by_sparql(node: Node) -> list[tuple[str, str]]:
    query = f"SELECT ?s ?name {{ ?s <{LABEL}> ?name ; a <https://chappe.example/ns#Other> }}"
    answer = json.loads(node.ask("GET", f"/api/v1/sparql?query={quoted(query)}")[1])
    return sorted((row["s"]["value"], row["name"]["value"]) for row in answer["results"]["bindings"])


def token(node: Node) -> str:
    body = ('<Envelope xmlns="http://schemas.xmlsoap.org/soap/envelope/"><Body><get_authToken generic="2.0" userID="operator" '
            f'cred="{node.token}" xmlns="urn:uddi-org:api_v2"/></Body></Envelope>')
    return ElementTree.fromstring(node.ask("POST", "/uddi/publish", body, "text/xml")[1]).findtext(f".//{UDDI}authInfo")


def run_until_killed(node: Node, clients: list[Client], seconds: float) -> None:
    failures: list[CheckFailed] = []

    def run(client: Client) -> None:
        try:
            client.run()
        except CheckFailed as failure:
            failures.append(failure)
    threads = [threading.Thread(target=run, args=(client,)) for client in clients]
    for client, thread in zip(clients, threads, strict=True):
        client.is_over, client.token = False, token(node)
        thread.start()
    time.sleep(seconds)
    node.kill()
    for client, thread in zip(clients, threads, strict=True):
        client.is_over = True
        thread.join()
    if failures:
        raise failures[0]


def compare(node: Node, follower: Follower) -> None:
    others = {key: entity["name"] for key, entity in node.entities(kind="other").items()}
    expect(names_by_sparql(node) == sorted(others.items()), f"SPARQL finds the {len(others)} entities of the list")
    patience = time.monotonic() + 60
    while follower.names != others and time.monotonic() < patience:
        time.sleep(0.1)
    expect(follower.names == others, "a subscriber that reconnected has them too")
    names = node.uddi("inquiry", "find_business", "<name>%</name>")
    businesses = node.entities(type="{https://chappe.example/ns/uddi#}businessEntity")
    found = [it.get("businessKey") for it in names.iter(f"{UDDI}businessInfo")]
    expect(sorted(f"urn:uuid:{key.lower()}" for key in found) == sorted(businesses), "find_business finds the businesses")


def moves(chappe: str, work: pathlib.Path, node: Node) -> None:
    exported = node.export()
    text = node.ask("GET", "/api/v1/registry/export")[1]
    second = Node(chappe, work / "second")
    second.start()
    try:
        status, answer = second.ask("POST", "/api/v1/registry/import", text, "application/n-quads")
        expect(status == 200, f"the export is imported: {answer}")
        there = second.export()
        differ = [key for key in exported.keys() | there.keys() if exported.get(key) != there.get(key)]
        expect_each(not differ, f"the other node exports something else for {differ[:3]}")
        expect(len(there) > 100, f"the other node exports the same {len(there)} entities")
        own = [len(it.entities(owner="node", type="{https://chappe.example/ns/uddi#}businessEntity")) for it in (node, second)]
        expect(own == [1, 1], "each node has its own business only")
    finally:
        second.kill()


def check(chappe: str, work: pathlib.Path, seed: int) -> None:
    node = Node(chappe, work / "first")
    node.start()
    expect(node.ask("POST", "/api/v1/entities", '{"key": "urn:subject", "name": "subject"}')[0] == 201, "a node starts")
    clients = [Client(node, number, seed) for number in range(CLIENTS)]
    follower = Follower(node)
    follower.start()
    moments = random.Random(seed)
    try:
        for _ in range(KILLS):
            run_until_killed(node, clients, moments.uniform(0.3, 1.2))
            node.start()
            there = node.entities()
            for client in clients:
                client.settle(there)
        total = sum(client.acknowledged for client in clients)
        expect(total > 100, f"{total} acknowledged changes are there after {KILLS} kills, each whole")
        compare(node, follower)
        moves(chappe, work, node)
    finally:
        node.kill()


def main() -> None:
    chappe, work = (os.path.abspath(argument) for argument in sys.argv[1:3])
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    folder = pathlib.Path(work)
    run_in(folder, lambda: check(chappe, folder, seed), (AttributeError,), f" (seed {seed})")
    print("   all passed")


if __name__ == "__main__":
    main()
