"""Bodies that grow in memory or keep a parser busy: each is answered soon, and costs bounded memory."""

import gzip
import json
import socket
import time

from network import expect
from node import Node

GROWTH_MAX = 96 << 20
ANSWER_MAX_S = 20.0
WRITERS = 140

ELEMENTS = "/api/v1/streams/attacked/elements"
QUERY = "/api/v1/streams/query"


def bodies() -> list[tuple[str, str, str, bytes]]:
    """The name of each body, its path, its content type and its bytes."""
    json_kind, lines, csv = "application/json", "application/x-ndjson", "text/csv"
    many = 1_000_000
    elements = [
        ("open brackets", json_kind, b"[" * many), ("open objects", json_kind, b'{"v":' * (many // 2)),
        ("a deep value", json_kind, b'{"v":' + b"[" * many), ("a deep line", lines, b'{"v":' + b"[" * many + b"\n"),
        ("a long number", json_kind, b'{"v":' + b"9" * many + b"}"), ("a huge exponent", json_kind, b'{"v":1e999999999}'),
        ("an integer with a long fraction", json_kind, b'{"i":1.' + b"0" * many + b"1}"),
        ("an integer with a huge exponent", csv, b"i\n1e2147483647\n"), ("no number", json_kind, b'{"v":NaN}'),
        ("many odd integers", json_kind, b"[" + b'{"i":1.5},' * 200_000 + b'{"i":1.5}]'),
        ("an endless cell", csv, b'v,t\n1,"' + b"x" * (40 * many)), ("an endless line", lines, b'{"t":"' + b"x" * (40 * many)),
        ("many columns", csv, b"v," * (3 * many) + b"\n"), ("a column twice", csv, b"v,v\n1,2\n"),
        ("many quotes", csv, b"v,t\n" + b'"' * (3 * many)), ("many bad lines", lines, b"x\n" * (2 * many)),
        ("an archive", lines, gzip.compress(b'{"v":1}\n' * (2 * many))), ("many empty objects", json_kind, b"[" + b"{}," * many + b"{}]"),
        ("a long text", json_kind, b'{"t":"' + b"y" * (30 * many) + b'"}'), ("nothing", json_kind, b""),
    ]
    queries = ["select " + "(" * 5_000 + "1" + ")" * 5_000, "select length(zeroblob(900000000)), length(randomblob(500000000))",
               "select length(replace(hex(zeroblob(100000000)), '0', 'aaaaaaaa'))"]
    return [(name, ELEMENTS, kind, body) for name, kind, body in elements] + [
        (f"query {number}", QUERY, json_kind, json.dumps({"sql": sql}).encode()) for number, sql in enumerate(queries)]


def each_alone(node: Node) -> None:
    before, slowest = node.resident_bytes(), (0.0, "")
    for name, path, kind, body in bodies():
        begun = time.monotonic()
        try:
            status, _ = node.ask("POST", path, body, Content_Type=kind)
        except (BrokenPipeError, ConnectionResetError):
            # Refused before the body was sent.
            status = 413
        slowest = max(slowest, (time.monotonic() - begun, name))
        if status == 200 or status >= 500:
            expect(False, f"{name} is refused as the client's fault, not {status}")
    grown = node.resident_bytes("VmHWM:") - before
    expect(slowest[0] < ANSWER_MAX_S, f"hostile bodies are answered in {slowest[0]:.1f} s at most ({slowest[1]})")
    expect(grown < GROWTH_MAX, f"and cost {grown >> 20} MiB at most")
    stored = node.sql("select count(*) from attacked")[0][0]
    expect(stored == 0, "nothing of them is stored")


def slow_writers(node: Node) -> None:
    """More clients than may write at once begin a request and stall."""
    status, account = node.ask("POST", "/api/v1/accounts", {"name": "slow", "roles": ["write=attacked"]})
    expect(status == 201, "an account that may write one stream")
    head = (f"POST {ELEMENTS} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/x-ndjson\r\n"
            f"Content-Length: 60000000\r\nAuthorization: Bearer {account['token']}\r\n\r\n").encode()
    open_ones = []
    for _ in range(WRITERS):
        one = socket.create_connection((node.host, node.port), timeout=10)
        one.sendall(head + b'{"t":"')
        open_ones.append(one)
    begun, status = time.monotonic(), 0
    while status != 200 and time.monotonic() - begun < 60:
        status, answer = node.ask("POST", "/api/v1/streams/quiet/elements", {"v": 1})
        if status not in (200, 429):
            break
        time.sleep(0.5)
    waited = time.monotonic() - begun
    for one in open_ones:
        one.close()
    expect(status == 200, f"{WRITERS} stalled writers keep another out for {waited:.0f} s at most: {status}")


def check(node: Node) -> None:
    node.create("attacked", v="double", i="integer", t="text")
    node.create("quiet", v="double")
    each_alone(node)
    slow_writers(node)
    status, _ = node.ask("POST", ELEMENTS, {"v": 1, "t": "good"})
    expect(status == 200, "the stream is written as before")
