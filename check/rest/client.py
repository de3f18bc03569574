"""A node driven by the generated client alone: no request is written by hand.

Live data is the exception that the generator imposes: the function that it makes waits for the end of the answer,
which never comes. Its description of the request is used, and the answer is read line by line.
"""

import io
import json

from chappe_client import AuthenticatedClient, Client
from chappe_client.api.accounts import add_account, get_self, list_accounts
from chappe_client.api.links import add_link
from chappe_client.api.node import get_health, get_node, list_drops, list_notices
from chappe_client.api.registry import publish_entity, query_registry, query_registry_by_post, search_entities
from chappe_client.api.streams import (
    create_stream, follow_streams, get_completeness, get_range, get_stream, list_elements, list_readers, list_streams,
    query_streams, write_elements,
)
from chappe_client.api.virtual_sensors import get_virtual_sensor, put_virtual_sensor
from chappe_client.models import (
    Completeness, Elements, Entity, FieldType, Level, Link, LinkKind, NewAccount, NewElement, NewEntity, NewField,
    NewLink, NewStream, Problem, Rows, SparqlForm, SparqlResults, Stream, StreamQuery, Written,
)
from chappe_client.types import UNSET, File
from network import expect, until

STREAM = "rest.room"
SENSOR = """
name = "rest-max"
[[source]]
alias = "room"
stream = "rest.room"
window = "1m"
[output]
sql = "select max(celsius) as celsius from room"
[[output.field]]
name = "celsius"
type = "double"
"""


def by(address: str, token: str) -> AuthenticatedClient:
    return AuthenticatedClient(base_url=address, token=token, timeout=60, raise_on_unexpected_status=True)


def element(number: int, celsius: float = 20.5) -> NewElement:
    made = NewElement(source_time=f"2026-11-20T10:{number // 60:02}:{number % 60:02}Z")
    made["n"], made["celsius"] = number, celsius
    return made


def definition(name: str = STREAM, *fields: NewField) -> NewStream:
    own = [NewField("n", FieldType.INTEGER), NewField("celsius", FieldType.DOUBLE, unit="Cel")]
    return NewStream(fields=list(fields) or own, name=name, level=Level.PROCESS)


def problem(what: str, answer, status: int, code: str) -> None:
    """The answer is a typed problem with this status and code."""
    parsed = answer.parsed
    right = isinstance(parsed, Problem) and (answer.status_code, parsed.status, parsed.code) == (status, status, code)
    expect(right, f"{what}: {status} {code}" + ("" if right else f", not {answer.status_code} {parsed}"))


def writing(node: AuthenticatedClient) -> None:
    made = create_stream.sync_detailed(client=node, body=definition())
    again = create_stream.sync_detailed(client=node, body=definition())
    expect((made.status_code, again.status_code) == (201, 200) and isinstance(made.parsed, Stream)
           and made.parsed.level == Level.PROCESS, "a stream is defined, and the definition repeated")
    one = write_elements.sync(STREAM, client=node, body=element(0))
    expect(isinstance(one, Written) and one.stored == 1 and one.level == Level.PROCESS, "one element is written")
    many = [element(number) for number in range(1, 101)]
    first = write_elements.sync(STREAM, client=node, body=many, idempotency_key="batch-1")
    second = write_elements.sync(STREAM, client=node, body=many, idempotency_key="batch-1")
    expect((first.stored, first.duplicates, second.stored, second.duplicates) == (100, 0, 0, 100),
           "a hundred are written once, although they are sent twice under one key")


def reading(node: AuthenticatedClient) -> None:
    numbers, after, pages = [], "0:0", 0
    while True:
        page = list_elements.sync(STREAM, client=node, after=after, limit=9)
        numbers += [one.values["n"] for one in page.elements]
        after, pages = page.next_after, pages + 1
        if not page.truncated:
            break
    expect(isinstance(page, Elements) and numbers == list(range(101)), f"{pages} pages have all elements in order")
    span = {"from_": "2026-11-20T10:00:10Z", "to": "2026-11-20T10:00:40Z"}
    numbers, after = [], UNSET
    while True:
        page = list_elements.sync(STREAM, client=node, after=after, limit=7, **span)
        numbers += [one.values["n"] for one in page.elements]
        after = page.next_after
        if not page.truncated:
            break
    expect(numbers == list(range(10, 40)), "so have the pages of a span of time")
    rows = query_streams.sync(client=node, body=StreamQuery(sql=f'SELECT count(*), sum(n) FROM "{STREAM}"'))
    expect(isinstance(rows, Rows) and rows.rows == [[101, 5050]] and not rows.partial, "SQL counts and adds them")
    known = get_completeness.sync(STREAM, client=node)
    expect(isinstance(known, Completeness) and known.stored == 101 and not known.lost.additional_properties,
           "completeness: 101 stored, none lost")
    buckets = get_range.sync(STREAM, client=node, buckets=10)
    expect(buckets.elements == 101 and sum(buckets.count) == 101, "buckets have all elements")


def lists(node: AuthenticatedClient, address: str) -> None:
    for number in range(5):
        create_stream.sync(client=node, body=definition(f"rest.list-{number}"))
        entity = NewEntity(key=f"urn:rest:{number}", name="Pump" if number % 2 else f"Pump {number}")
        expect(isinstance(publish_entity.sync(client=node, body=entity), Entity), f"entity {number} is published")
        add_account.sync(client=node, body=NewAccount(name=f"reader-{number}", roles=["read"]))
    for _ in range(3):
        get_self.sync_detailed(client=by(address, "unknown"))
    listed = {
        "streams": lambda **part: names(list_streams.sync(client=node, prefix="rest.", **part), "streams", "name"),
        "accounts": lambda **part: names(list_accounts.sync(client=node, **part), "accounts", "name"),
        "entities": lambda **part: names(search_entities.sync(client=node, prefix="pump", **part), "entities", "key"),
        "drops": lambda **part: names(list_drops.sync(client=node, **part), "drops", "reason"),
        "notices": lambda **part: names(list_notices.sync(client=node, **part), "notices", "text"),
        "readers": lambda **part: names(list_readers.sync(client=node, **part), "readers", "reader"),
    }
    for what, read in listed.items():
        (whole, end), found, cursor = read(), [], UNSET
        while True:
            part, cursor = read(limit=2, cursor=cursor)
            found += part
            if not cursor:
                break
        expect(end is None and found == whole and len(set(found)) == len(found) or what == "readers" and found == whole,
               f"{what} in parts of two: {len(whole)}")
    foreign = list_streams.sync(client=node, limit=1).next_
    problem("a cursor of another list", list_drops.sync_detailed(client=node, cursor=foreign), 400, "bad_request")
    problem("no cursor at all", list_streams.sync_detailed(client=node, cursor="b"), 400, "bad_request")


def names(answer, items: str, name: str) -> tuple[list[str], str | None]:
    return [getattr(one, name) for one in getattr(answer, items)], answer.next_


def registry(node: AuthenticatedClient) -> None:
    query = "SELECT ?s WHERE { ?s ?p ?o } LIMIT 3"
    found = query_registry.sync(client=node, query=query)
    form = query_registry_by_post.sync(client=node, body=SparqlForm(query=query))
    for answer in (found, form):
        bindings = answer.results.bindings if isinstance(answer, SparqlResults) else []
        expect(len(bindings) == 3 and all(one["s"].value for one in bindings), "SPARQL has typed solutions")


def sensors(node: AuthenticatedClient) -> None:
    put = put_virtual_sensor.sync_detailed("rest-max", client=node, body=File(payload=io.BytesIO(SENSOR.encode())))
    expect(put.status_code == 204, "a virtual sensor is written")
    until(20, "the sensor runs",
          lambda: getattr(get_virtual_sensor.sync("rest-max", client=node), "state", None) == "running")


def problems(node: AuthenticatedClient, address: str) -> None:
    stranger = Client(base_url=address, timeout=60)
    problem("no token", create_stream.sync_detailed(client=stranger, body=definition()), 401, "no_credential")
    reader = add_account.sync(client=node, body=NewAccount(name="only-reads", roles=["read"]))
    reads = by(address, reader.token)
    refused = write_elements.sync_detailed(STREAM, client=reads, body=element(1))
    problem("writing with the role read", refused, 403, "role_missing")
    problem("an unknown stream", get_stream.sync_detailed("rest.none", client=node), 404, "not_found")
    other = definition(STREAM, NewField("n", FieldType.TEXT))
    problem("another definition", create_stream.sync_detailed(client=node, body=other), 409, "conflict")
    invalid = definition("rest.bad", NewField("celsius", FieldType.DOUBLE, unit="degrees"))
    problem("an unknown unit", create_stream.sync_detailed(client=node, body=invalid), 422, "invalid")
    wrong = write_elements.sync_detailed(STREAM, client=node, body=element(1, "warm"))
    expect(wrong.status_code == 422 and isinstance(wrong.parsed, Written) and wrong.parsed.refused == 1
           and "double" in wrong.parsed.refusals[0].reason, "an element of another type: 422, with the line and its reason")
    guesser = by(address, "A" * 43)
    problem("an unknown token", get_self.sync_detailed(client=guesser), 401, "bad_credential")
    for _ in range(100):
        last = get_self.sync_detailed(client=guesser)
        if last.status_code == 429:
            break
    problem("many unknown tokens", last, 429, "too_many_failures")
    expect(int(last.headers["retry-after"]) > 0, "with Retry-After")
    expect(get_self.sync(client=node).name == "operator", "a valid token from the same address is accepted")


def live(node: AuthenticatedClient) -> None:
    request = follow_streams._get_kwargs(streams=STREAM, after=f"{STREAM}@{last_position(node)}")
    write_elements.sync(STREAM, client=node, body=[element(200), element(201)])
    numbers = []
    with node.get_httpx_client().stream(**request) as answer:
        expect(answer.headers["content-type"].startswith("text/event-stream"), "live data is an event stream")
        for line in answer.iter_lines():
            if line.startswith("data:") and '"elements"' in line:
                numbers += [one["values"]["n"] for one in json.loads(line[5:])["elements"]]
            if len(numbers) >= 2:
                break
    expect(numbers == [200, 201], "live data has the new elements, from the position asked for")


def last_position(node: AuthenticatedClient) -> str:
    return list_elements.sync(STREAM, client=node, newest=1).next_after


def check(address: str, token: str) -> None:
    with by(address, token) as node:
        expect(get_health.sync(client=node).status == "ok" and get_node.sync(client=node).name == "rest",
               "the client reaches the node")
        writing(node)
        reading(node)
        sensors(node)
        lists(node, address)
        registry(node)
        live(node)
        problems(node, address)


def prepare(address: str, token: str) -> None:
    """A stream, an entity, an account, a link and a virtual sensor that requests by the document name."""
    with by(address, token) as node:
        for name in ("fuzzed", "removed"):
            create_stream.sync(client=node, body=definition(name))
            publish_entity.sync(client=node, body=NewEntity(key=f"urn:rest:{name}", name=name))
            add_account.sync(client=node, body=NewAccount(name=name, roles=["read"]))
            link = NewLink(name=name, kind=LinkKind.HTTP_PULL, address="http://127.0.0.1:9", streams=["*"], as_prefix="far")
            expect(isinstance(add_link.sync(client=node, body=link), Link), f"a link {name} is added")
            sensor = SENSOR.replace("rest-max", name).replace("rest.room", "fuzzed")
            sensor = sensor.replace("[output]", f'[output]\nstream = "{name}-max"')
            put = put_virtual_sensor.sync_detailed(name, client=node, body=File(payload=io.BytesIO(sensor.encode())))
            expect(put.status_code == 204, f"and a virtual sensor {name}")
        write_elements.sync("fuzzed", client=node, body=[element(number) for number in range(50)])


def alive(address: str, token: str) -> None:
    with by(address, token) as node:
        expect(get_health.sync(client=node).status == "ok", "the node answers afterwards")
