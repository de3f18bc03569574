"""The registry in the hands of an account that may write and of strangers that may read: small documents, entities and
queries that would grow in memory or keep a core busy, names that are not theirs, and answers that nobody takes."""

import json
import os
import pathlib
import random
import socket
import time
import urllib.parse

from network import expect
from reading import asked, peak
from rest import Rest
from wire import measured

# One request may hold a tree of 32 MiB, or an answer of 32 MiB with its text.
MEMORY_MAX = 160 << 20
CPU_MAX_S = 6.0
UDDI = "https://chappe.example/ns/uddi#"
BUSINESS = "aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaa7"
TAKEN = "8609C81E-EE1F-4D5A-B202-3EB13AD01823"


def quoted(text: str) -> str:
    return urllib.parse.quote(text, safe="")


class Attacker:
    """An account with the role write, and strangers, against one node."""

    def __init__(self, rest: Rest):
        self.rest, self.bearer = rest, {"Authorization": f"Bearer {rest.token}"}

    def send(self, method: str, path: str, body: str | None, kind: str, **headers: str) -> tuple[int, dict, bytes]:
        data = body.encode() if body is not None else None
        return self.rest.web.ask(method, path, data, Content_Type=kind, **headers)

    def publish(self, entity: dict) -> int:
        return self.send("POST", "/api/v1/entities", json.dumps(entity), "application/json", **self.bearer)[0]

    def cost(self, what: str, work) -> tuple[int, dict, bytes]:
        """Does the work and judges what it costs the node."""
        stat = pathlib.Path(f"/proc/{self.rest.process.process.pid}/stat")

        def cpu() -> float:
            fields = stat.read_text().rsplit(")", 1)[1].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        before = cpu()
        answer, memory = peak(self.rest, work)
        spent = cpu() - before
        measured(what, f"status {answer[0]}, {memory >> 20} MiB, {spent:.2f} s of a core")
        expect(memory < MEMORY_MAX and spent < CPU_MAX_S, f"{what} costs little: {answer[2][:150]}")
        self.rest.alive()
        return answer


def documents(attacker: Attacker) -> None:
    """RDF that is short as a document and long as triples, or slow to parse."""
    names = "".join(f"<{number}> <p> <q>.\n" for number in range(9_000))
    attributes = "".join(f'a:x{number}="1" ' for number in range(60_000))
    scopes = "".join(f'xmlns:x{number}="a:{number}" ' for number in range(40_000))
    element = ('<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:a="a:"><rdf:Description '
               '{}/></rdf:RDF>')
    for what, kind, text in (
            ("a long base", "text/turtle", "@base <http://a/" + "x/" * 20_000 + "> ." + names),
            ("many attributes", "application/rdf+xml", element.format(attributes)),
            ("many namespaces", "application/rdf+xml", element.format(scopes))):
        answer = attacker.cost(f"RDF with {what}", lambda text=text, kind=kind: attacker.send(
            "PUT", "/api/v1/registry/ontologies/urn%3Aevil", text, kind, **attacker.bearer))
        expect(answer[0] == 422, f"RDF with {what} is refused: {answer[0]} {answer[2][:120]}")


def things(attacker: Attacker) -> None:
    """Prefixes that make long IRIs, and objects that take fifty times their text when they are searched."""
    shape = ('{"@context":["https://www.w3.org/2022/wot/td/v1.1",{"p":"a:%s"}],"title":"x","security":"n",'
             '"securityDefinitions":{"n":{"scheme":"nosec"}}%s}')
    td = "application/td+json"
    members = "".join(f',"p:{number}":"p:{number}"' for number in range(3_000))
    answer = attacker.cost("a thing with a long prefix", lambda: attacker.send(
        "POST", "/things", shape % ("x" * 60_000, members), td, **attacker.bearer))
    expect(answer[0] == 400, f"a thing with a long prefix is refused: {answer[0]}")
    small = shape % ("x", ',"x":[' + ",".join(['{"":1}'] * 16_000) + "]")
    made = {attacker.send("POST", "/things", small, td, **attacker.bearer)[0] for _ in range(30)}
    expect(made == {201}, f"things of small objects are registered: {made}")
    answer = attacker.cost("JSONPath over small objects", lambda: asked(
        attacker.rest, "GET", "/search/jsonpath?query=$..x"))
    expect(answer[0] == 400, f"JSONPath that needs all small objects at once is refused: {answer[0]}")


def uddi(attacker: Attacker) -> None:
    """UDDI data whose nodes are shared, and a key that is another's in another case."""
    full = (f'<> <{UDDI}name> "B" ; <http://purl.org/dc/terms/modified> '
            '"2026-01-01T00:00:00.000Z"^^<http://www.w3.org/2001/XMLSchema#dateTime> . ')
    contacts, addresses, lines = range(90), range(50), range(50)
    shared = full + "".join(
        [f'<> <{UDDI}contact> _:c{c} . _:c{c} <{UDDI}personName> "p" . ' for c in contacts]
        + [f"_:c{c} <{UDDI}address> _:a{a} . " for c in contacts for a in addresses]
        + [f"_:a{a} <{UDDI}addressLine> _:l{line} . " for a in addresses for line in lines]
        + [f'_:l{line} <{UDDI}value> "{"x" * 80}" . ' for line in lines])
    status = attacker.publish({"key": f"urn:uuid:{BUSINESS}", "name": "evil",
                               "types": [f"{{{UDDI}}}businessEntity"], "turtle": shared})
    expect(status == 201, f"an entity with shared nodes is published: {status}")
    message = ('<s:Envelope xmlns:s="http://schemas.xmlsoap.org/soap/envelope/"><s:Body>{}</s:Body></s:Envelope>')
    keys = f"<businessKey>{BUSINESS}</businessKey>" * 900
    detail = message.format(f'<get_businessDetail xmlns="urn:uddi-org:api_v2" generic="2.0">{keys}</get_businessDetail>')
    attacker.cost("get_businessDetail of shared nodes",
                  lambda: attacker.send("POST", "/uddi/inquiry", detail, "text/xml"))
    attacker.publish({"key": f"urn:uuid:{TAKEN}", "name": "evil", "types": [f"{{{UDDI}}}tModel"], "turtle": full})
    find = message.format('<find_tModel xmlns="urn:uddi-org:api_v2" generic="2.0"><name>%</name></find_tModel>')
    found = attacker.send("POST", "/uddi/inquiry", find, "text/xml")[2].decode()
    expect(found.count(TAKEN) == 1, f"{found.count(TAKEN)} tModel has a key that another took in another case")
    claim = {"key": "urn:evil:claim", "name": "x",
             "triples": [{"subject": "urn:x", "predicate": "https://chappe.example/ns#owner", "object": "node"}]}
    expect((status := attacker.publish(claim)) == 422, f"a forged owner is refused: {status}")


def paths(attacker: Attacker) -> None:
    """A path between two unknown nodes, over a graph in which most nodes lead to most others."""
    dice = random.Random(1)
    for number in range(12):
        edges = " ".join(f"<n:{dice.randrange(3_000)}> <p:{dice.randrange(3)}> <n:{dice.randrange(3_000)}> ."
                         for _ in range(8_000))
        status = attacker.publish({"key": f"urn:edges:{number}", "name": "edges", "turtle": edges})
        expect(status == 201, f"edges are published: {status}")
    for query in ("SELECT (count(*) AS ?n) { ?a (<p:0>/<p:1>/<p:2>)+ ?b }", "SELECT (count(*) AS ?n) { ?a (!<p:x>)* ?b }"):
        answer = attacker.cost("a SPARQL path", lambda query=query: attacker.rest.sparql(query))
        expect(answer[0] == 400 and b"limit" in answer[2], f"the path ends at a limit: {answer[2][:150]}")


def exports(attacker: Attacker) -> None:
    """Exports that nobody takes: strangers can still ask."""
    for number in range(30):
        triples = [{"predicate": "urn:p", "object": f"{one} " + "x" * 16_000} for one in range(30)]
        status = attacker.publish({"key": f"urn:bulk:{number}", "name": "bulk", "triples": triples})
        expect(status == 201, f"bulk is published: {status}")
    rest, held = attacker.rest, []
    for _ in range(8):
        connection = rest.web.connect(60)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        connection.sendall(f"GET /api/v1/registry/export HTTP/1.1\r\nHost: {rest.host}:{rest.port}\r\n\r\n".encode())
        held.append(connection)
    end, status = time.monotonic() + 20, 0
    while status != 200 and time.monotonic() < end:
        time.sleep(0.2)
        status = rest.sparql("ASK {}")[0]
    expect(status == 200, f"strangers ask while 8 exports wait for their clients: {status}")
    for connection in held:
        connection.close()


def check(rest: Rest) -> None:
    attacker = Attacker(rest)
    for part in (documents, things, uddi, paths, exports):
        part(attacker)
