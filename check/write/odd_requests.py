"""Requests in odd shapes: credentials in the wrong place, two requests in one, names that look like the node's own."""

import socket

from network import expect
from node import Node


def raw(node: Node, *lines: str, body: bytes = b"") -> tuple[int, bytes]:
    """The first status of what the node answers, and all its bytes."""
    head = "\r\n".join([*lines, "Connection: close", "", ""]).encode()
    text = b""
    with socket.create_connection((node.host, node.port), timeout=10) as connection:
        connection.sendall(head + body)
        try:
            while part := connection.recv(65_536):
                text += part
        except OSError:
            pass
    return (int(text.split()[1]) if text.startswith(b"HTTP/") else 0), text


def credentials(node: Node) -> None:
    own, host = f"Authorization: Bearer {node.token}", "Host: 127.0.0.1"
    change = "DELETE /api/v1/streams/odd HTTP/1.1"
    for what, lines in {
        "a token in the query": [f"DELETE /api/v1/streams/odd?token={node.token} HTTP/1.1", host],
        "two credentials": [change, host, "Authorization: Bearer " + "A" * 43, own],
        "a list of tokens": [change, host, own + "," + "A" * 43],
        "another scheme": [change, host, f"Authorization: Basic {node.token}"],
        "no scheme": [change, host, f"Authorization: {node.token}"],
        "a token with a tail": [change, host, own + "A"],
        "a cookie": [change, host, f"Cookie: token={node.token}"],
    }.items():
        status, text = raw(node, *lines)
        expect(status in (400, 401), f"{what} is no credential: {status}" + ("" if status in (400, 401) else f" {text!r}"))
    status, _ = node.ask("GET", "/api/v1/streams/odd")
    expect(status == 200, "the stream is still there")


def smuggled(node: Node) -> None:
    """A body that contains a request is no request."""
    inner = f"DELETE /api/v1/streams/odd?force=true HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {node.token}\r\n\r\n"
    bodies = {
        "two lengths": (["Content-Length: 4", f"Content-Length: {4 + len(inner)}"], b"null"),
        "a length and chunks": (["Content-Length: 5", "Transfer-Encoding: chunked"], b"0\r\n\r\n"),
        "an odd transfer coding": (["Transfer-Encoding: chunked, identity"], b"0\r\n\r\n"),
        "a length with a sign": (["Content-Length: +4"], b"null"),
    }
    for what, (lines, body) in bodies.items():
        _, text = raw(node, "POST /api/v1/streams/query HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json",
                      *lines, body=body + inner.encode())
        statuses = [part.split()[1] for part in text.split(b"\r\n") if part.startswith(b"HTTP/1.1 ")]
        expect(b"204" not in statuses and len(statuses) <= 1, f"{what}: one answer, {statuses}")
    status, _ = node.ask("GET", "/api/v1/streams/odd")
    expect(status == 200, "no hidden request was obeyed")


def names(node: Node) -> None:
    for key in ("urn:chappe:stream:odd", "URN:chappe:stream:odd", "urn:CHAPPE:node:x", "Urn:Chappe:clients"):
        status, _ = node.ask("POST", "/api/v1/entities", {"key": key, "kind": "device", "name": "mine"})
        expect(status == 422, f"{key} is the node's own: {status}")
    for name in ("chappe.audit", "chappe_audit", "chappe-audit", "Odd", "odd/..", "odd%2e", "", "a" * 200):
        status, _ = node.ask("POST", "/api/v1/streams", {"name": name, "fields": [{"name": "v", "type": "double"}]})
        expect(status == 422, f"the name {name[:20]!r} is refused: {status}")


def audit(node: Node) -> None:
    """Reading is open, but nobody else sees that there is an audit stream, or how much is in it."""
    node.ask("POST", "/api/v1/streams", {"name": "chappe.audit", "fields": []})
    for path in ("/metrics", "/api/v1/streams", "/api/v1/directory", "/api/v1/readers", "/api/v1/drops",
                 "/api/v1/why/chappe.audi?kind=stream", "/api/v1/entities?prefix=chappe", "/api/v1/node"):
        status, text = node.ask("GET", path, token=None)
        shown = str(text).replace("chappe.audi'", "").replace("chappe.audi\"", "")
        expect(status == 200 and "chappe.audit" not in shown, f"a stranger's {path} does not name it")
    status, why = node.ask("GET", "/api/v1/why/chappe.audit", token=None)
    expect(status == 200 and why["kind"] is None, "a stranger's question why finds no such stream")
    status, text = node.ask("GET", "/metrics")
    expect('stream="chappe.audit"' in text, "an administrator's metrics have it")
    for sql in ('select * from "chappe.audit"', "select * from chappe_audit", "select * from completeness('chappe.audit')"):
        status, _ = node.ask("POST", "/api/v1/streams/query", {"sql": sql}, token=None)
        expect(status in (400, 403), f"a stranger's {sql} is refused: {status}")


def revoked(node: Node) -> None:
    """An open answer ends when its account is revoked, and has nothing that came later."""
    _, account = node.ask("POST", "/api/v1/accounts", {"name": "leaver", "roles": ["read"]})
    connection = socket.create_connection((node.host, node.port), timeout=20)
    connection.sendall(f"GET /api/v1/exchange/streams/odd HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                       f"Authorization: Bearer {account['token']}\r\n\r\n".encode())
    text = connection.recv(65_536)
    node.ask("DELETE", "/api/v1/accounts/leaver")
    node.ask("POST", "/api/v1/streams/odd/elements", {"t": "AFTERWARDS"})
    # The last chunk.
    while not text.endswith(b"\r\n0\r\n\r\n") and (part := connection.recv(65_536)):
        text += part
    connection.close()
    expect(b"AFTERWARDS" not in text, "the endless answer to a revoked account ends")


def check(node: Node) -> None:
    node.create("odd", t="text")
    credentials(node)
    smuggled(node)
    names(node)
    audit(node)
    revoked(node)
