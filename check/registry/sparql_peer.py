"""SPARQLWrapper asks a running node in every form of the protocol and every format that both have.

    python check/registry/sparql_peer.py URL CREDENTIAL
"""

import json
import sys
import urllib.parse
import urllib.request

from SPARQLWrapper import CSV, GET, JSON, N3, POST, POSTDIRECTLY, RDFXML, TSV, TURTLE, URLENCODED, XML, SPARQLWrapper

KINDS = "http://example.com/sparql-peer/kinds"
ONTOLOGY = f"""
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
<{KINDS}#Ecg> rdfs:subClassOf <{KINDS}#Monitor> .
<{KINDS}#Monitor> rdfs:subClassOf <{KINDS}#Ecg> .
"""


def expect(condition: bool, what: str) -> None:
    if not condition:
        raise SystemExit(f"not so: {what}")
    print(f"ok: {what}", flush=True)


def send(url: str, credential: str, method: str, kind: str, body: bytes) -> None:
    headers = {"Authorization": f"Bearer {credential}", "Content-Type": kind}
    with urllib.request.urlopen(urllib.request.Request(url, body, headers, method=method)) as answer:
        expect(answer.status in (200, 201), f"{method} {urllib.parse.urlsplit(url).path.split('/')[-2]}")


def wrapper(url: str, query: str, form: str = GET, inferred: bool = False) -> SPARQLWrapper:
    asked = SPARQLWrapper(f"{url}/api/v1/sparql")
    asked.setMethod(POST if form != GET else GET)
    asked.setRequestMethod(form if form != GET else URLENCODED)
    asked.setQuery(query)
    if inferred:
        asked.addParameter("inferred", "true")
    return asked


def main() -> None:
    url, credential = sys.argv[1:]
    rdf_type = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
    for name, about in [("ward", "ward"), ("note", "ward")]:
        entity = {"key": f"urn:sparql-peer:{name}", "name": name, "triples": [
            {"subject": f"urn:sparql-peer:{about}", "predicate": rdf_type, "object": f"{KINDS}#Ecg", "object_kind": "iri"},
            {"subject": f"urn:sparql-peer:{about}", "predicate": f"urn:peer:{name}", "object": "a <&> \"b\"\n"}]}
        send(f"{url}/api/v1/entities", credential, "POST", "application/json", json.dumps(entity).encode())
    key = urllib.parse.quote(KINDS, safe="")
    send(f"{url}/api/v1/registry/ontologies/{key}", credential, "PUT", "text/turtle", ONTOLOGY.encode())

    values = "SELECT ?g ?v WHERE { GRAPH ?g { <urn:sparql-peer:ward> ?p ?v FILTER(isLiteral(?v) && STRSTARTS(STR(?p), 'urn:peer:')) } }"
    for form in (GET, URLENCODED, POSTDIRECTLY):
        asked = wrapper(url, values, form)
        asked.setReturnFormat(JSON)
        found = {row["g"]["value"]: row["v"]["value"] for row in asked.query().convert()["results"]["bindings"]}
        expect(found == {f"urn:sparql-peer:{name}": "a <&> \"b\"\n" for name in ("ward", "note")},
               f"who says what, by {form}")
    for kind, check in [
        (XML, lambda answer: len(answer.toxml().split("<result>")) == 3),
        (CSV, lambda answer: answer.decode().splitlines()[0] == "g,v"),
        (TSV, lambda answer: answer.decode().splitlines()[0] == "?g\t?v"),
    ]:
        asked = wrapper(url, values)
        asked.setReturnFormat(kind)
        expect(check(asked.query().convert()), f"rows as {kind}")
    build = "CONSTRUCT { ?g <urn:peer:says> ?v } WHERE { GRAPH ?g { <urn:sparql-peer:ward> <urn:peer:note> ?v } }"
    for kind in (TURTLE, RDFXML, N3):
        asked = wrapper(url, build)
        asked.setReturnFormat(kind)
        answer = asked.query().convert()
        text = answer.serialize(format="nt") if hasattr(answer, "serialize") else answer.decode()
        expect("urn:sparql-peer:note" in text and "urn:peer:says" in text, f"a graph as {kind}")
    asked = wrapper(url, "DESCRIBE <urn:sparql-peer:note>")
    asked.setReturnFormat(TURTLE)
    answer = asked.query().convert()
    expect(b"note" in (answer if isinstance(answer, bytes) else answer.serialize(format="nt").encode()), "DESCRIBE")
    asked = wrapper(url, "SELECT * WHERE { ?s <urn:peer:ward> ?v }")
    asked.addDefaultGraph("urn:sparql-peer:note")
    asked.setReturnFormat(JSON)
    expect(asked.query().convert()["results"]["bindings"] == [], "the default graph is chosen by the request")
    for inferred in (False, True):
        asked = wrapper(url, f"ASK {{ <urn:sparql-peer:ward> a <{KINDS}#Monitor> }}", inferred=inferred)
        asked.setReturnFormat(JSON)
        expect(asked.query().convert()["boolean"] is inferred, f"a superclass, inferred: {inferred}")
    print("done", flush=True)


main()
