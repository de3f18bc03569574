"""The exchange's HTTP routes under attack: strangers' contact points, pulls that are never read, hostile documents at
a link's contact point, and an origin that sends false answers to the node's own links."""

import http.server
import json
import random
import socket
import threading
import time

from network import CheckFailed, expect, until
from rest import Rest, problem
from wire import Honest, Listener, Web, answer_of, inside, measured, resident_bytes

SEED = 11
PULLS_OF_ONE = 80  # more than the 64 that one peer may have
ADDRESSES = 6
CONNECTIONS_MAX = 256  # http.max_connections
HOLD_S = 5
MUTATED = 300
GROWTH_MAX = 64 << 20
ANSWER_MAX = 64 << 20  # of an answer without end: a document's limit, and what sockets hold
NEIGHBOUR_MAX_MS = 1_500
FORMS = {"xml": "application/xml", "postcard": "application/vnd.chappe.postcard",
         "message_pack": "application/vnd.msgpack"}
STREAMS, SUBSCRIPTIONS = "/api/v1/exchange/streams", "/api/v1/exchange/subscriptions"


class Origin(http.server.ThreadingHTTPServer):
    """An origin and contact point whose behaviour depends on the path."""

    daemon_threads = True

    def __init__(self, namespace: str):
        with inside(namespace):
            super().__init__(("127.0.0.1", 0), Answers)
        self.contacts: list[str] = []
        self.subscribed = threading.Condition()
        self.taken: list[int] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, *_: object) -> None:
        """Ignores connections that the node closes, as it should."""


class Answers(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Origin

    def log_message(self, *_: object) -> None:
        pass

    def say(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def endless(self, part: bytes) -> None:
        """An endless answer; counts how much of it the node reads."""
        self.send_response(200)
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        taken = 0
        try:
            while taken <= 2 * ANSWER_MAX:
                taken += self.wfile.write(part)
        except OSError:
            pass
        self.server.taken.append(taken)

    def hostile(self, kind: str) -> None:
        if kind == "silent":
            self.rfile.read(1)  # until the node hangs up
        elif kind == "endless":
            self.endless(b"<" * 65_536)
        elif kind == "lines":
            self.endless(b"<nothing/>\n" * 4_096)
        elif kind == "redirect":
            self.say(302, Location="http://169.254.169.254/latest")
        elif kind == "length":
            self.say(200, b"\xff" * 9 + b"\x01" + bytes(4_096))
        elif kind == "head":
            self.say(200, X="a" * 200_000)
        elif kind == "wrong":
            self.say(200, b'{"confirmed": 1}')
        elif kind == "blank":
            self.say(200, b"\n" * 60_000 + b"<alive/>\n")
        elif kind == "status":
            self.wfile.write(b"HTTP/9.9 99999 \xff\r\n\r\n")
        else:
            self.close_connection = True

    def do_GET(self) -> None:
        self.hostile(self.path.split("?")[0].rpartition("/")[2])

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        # A renewal is refused: the link subscribes anew, and begins its receiving end anew.
        self.say(204 if self.path == "/confirms" else 404)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path == "/confirms":
            return self.say(200, json.dumps({"confirmed": json.loads(body)["confirm"]}).encode())
        if self.path != SUBSCRIPTIONS:
            return self.hostile(self.path.rpartition("/")[2])
        self.say(201, json.dumps({"id": "a1", "secret": "b2", "lease_s": 3, "after": None}).encode())
        with self.server.subscribed:
            self.server.contacts.append(json.loads(body)["contact_point"])
            self.server.subscribed.notify_all()


class Exchange:
    """The node's exchange under attack, with one of the node's streams."""

    def __init__(self, rest: Rest, stream: str):
        self.rest, self.stream, self.namespace = rest, stream, rest.cable.names["A"]
        self.bearer = {"Authorization": f"Bearer {rest.token}"}

    def web(self, address: str | None = None) -> Web:
        return Web(self.namespace, self.rest.host, int(self.rest.port), address)

    def ask(self, method: str, target: str, body: bytes = b"", **headers: str) -> tuple[int, dict, bytes]:
        return self.rest.web.ask(method, target, body, **headers)

    def begin_pull(self, web: Web, target: str, receive_bytes: int = 0) -> tuple[int, socket.socket]:
        """Starts a pull; returns its status and its connection, which is never read again."""
        connection = web.connect(20)
        if receive_bytes:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        connection.sendall(f"GET {target} HTTP/1.1\r\nHost: {self.rest.host}:{self.rest.port}\r\n\r\n".encode())
        try:
            line = connection.recv(12)
        except ConnectionResetError:
            line = b""
        return int(line.split()[1]) if line.startswith(b"HTTP/1.1 ") else 0, connection

    def status(self, target: str) -> int:
        status, connection = self.begin_pull(self.web(), target)
        connection.close()
        return status

    def link(self, name: str, kind: str, origin: Origin, streams: list[str], prefix: str) -> None:
        body = json.dumps({"name": name, "kind": kind, "address": origin.url, "streams": streams,
                           "as_prefix": prefix, "limits": {"directory_s": 1}}).encode()
        status, _, answer = self.ask("POST", "/api/v1/links", body, **self.bearer)
        expect(status == 201, f"a link to an origin that is hostile{'' if status == 201 else answer[:200]}")

    def shown(self, link: str) -> dict:
        return json.loads(self.ask("GET", f"/api/v1/links/{link}")[2])

    def last(self, stream: str) -> int:
        status, _, body = self.ask("GET", f"/api/v1/streams/{stream}")
        return json.loads(body)["last"] if status == 200 else 0


def contact_points(exchange: Exchange, origin: Origin) -> None:
    """Nobody can make the node contact others, and a contact point that does not confirm receives nothing."""
    exchange.rest.cable.run("A", "ip", "addr", "add", "169.254.169.254/32", "dev", "lo")
    cable = exchange.rest.cable
    seen = {"metadata service": Listener(cable.names["A"], "169.254.169.254", 80),
            "neighbour": Listener(cable.names["B"], "10.77.0.119")}
    neighbour = f"10.77.0.119:{seen['neighbour'].port}"

    def subscribe(contact: object, **more: object) -> tuple[int, dict, bytes]:
        body = {"stream": exchange.stream, "contact_point": contact, **more}
        return exchange.ask("POST", SUBSCRIPTIONS, json.dumps(body).encode(), Content_Type="application/json")

    strangers = ["http://169.254.169.254/latest", f"http://{neighbour}/x", "http://localhost/x", "file:///etc/passwd",
                 f"http://127.0.0.1@{neighbour}/", "http://[::ffff:169.254.169.254]/", "http://2852039166/", "",
                 "http://0x7f.1/x", "http://127.0.0.1:99999/", "http://127.0.0.1/\r\nX: y", "http://" + "a" * 50_000,
                 f"https://{neighbour}/", "ftp://127.0.0.1/", None, 7, ["http://127.0.0.1/"]]
    for contact in strangers:
        problem(f"the contact point {str(contact)[:40]!r}", subscribe(contact), 400, 403, 422)
    for more in ({"stream": "no.such"}, {"after": "x"}, {"after": "1:" + "9" * 30}, {"start": "never"},
                 {"serialization": "yaml"}, {"nothing": 1}, {"stream": "a" * 50_000}, {"stream": "../x"}):
        problem(f"a subscription with {str(more)[:40]}", subscribe(f"{origin.url}/wrong", **more), 400, 404, 422)
    for body in (b"", b"{", b"[" * 500_000, b"null", b"\xff", b'{"stream":' + b'{"a":' * 100_000):
        answer = exchange.ask("POST", SUBSCRIPTIONS, body, Content_Type="application/json")
        problem(f"a subscription that is {body[:10]!r}", answer, 400)
    for name in ("x", "%00", "../x", "a" * 5_000, "%ff"):
        for method in ("PUT", "DELETE"):
            # A path that is no operation needs a credential.
            problem(f"{method} of subscription {name[:10]}",
                    exchange.ask(method, f"{SUBSCRIPTIONS}/{name}"), 400, 401, 404, 405)
    slowest = 0.0
    for kind in ("wrong", "silent", "endless", "redirect", "head", "status", "close"):
        start = time.monotonic()
        problem(f"a contact point that is {kind}", subscribe(f"{origin.url}/{kind}"), 400, 403, 422, 502, 504)
        slowest = max(slowest, time.monotonic() - start)
    measured("the slowest contact point that confirmed nothing was refused after", f"{slowest:.1f} s")
    reached = {name: len(listener.peers) for name, listener in seen.items()}
    expect(not any(reached.values()), f"{len(strangers)} contact points of strangers are refused; none is reached")
    for listener in seen.values():
        listener.close()


def pulls(exchange: Exchange) -> None:
    """More pulls than the limit, none of them read; and malformed ones."""
    path = f"{STREAMS}/{exchange.stream}"
    for target in ("after=zzz", "after=1:" + "9" * 30, "start=never", "serialization=yaml", "nothing=1",
                   "after=1:1&after=2:2", "after=%ff"):
        if (status := exchange.status(f"{path}?{target}")) != 400:
            expect(False, f"a pull with {target} is refused, not {status}")
    for name in ("no.such", "%00", "..%2f..%2fkey.pem", "a" * 8_000, "%ff"):
        if not 400 <= (status := exchange.status(f"{STREAMS}/{name}")) < 500:
            expect(False, f"a pull of {name[:20]} is refused, not {status}")
    if (status := exchange.status(f"{path}?after=ffffffffffffffff:18446744073709551615")) not in (200, 400, 409):
        expect(False, f"a position from nowhere is answered, not {status}")
    held: list[socket.socket] = []
    statuses: dict[int, int] = {}
    for number in range(ADDRESSES * PULLS_OF_ONE):
        web = exchange.web(f"127.0.0.{2 + number % ADDRESSES}")
        form = list(FORMS)[number % 3]
        status, connection = exchange.begin_pull(web, f"{path}?start=first&serialization={form}", 4_096)
        statuses[status] = statuses.get(status, 0) + 1
        held.append(connection)
    before = exchange.last(exchange.stream)
    time.sleep(HOLD_S)
    went_on = exchange.last(exchange.stream) - before
    readers = len(json.loads(exchange.ask("GET", "/api/v1/links")[2])["peers"])
    measured(f"{len(held)} pulls that are not read, by status (0 is a closed connection)", statuses)
    measured("readers that are left", readers)
    # Beyond the limit of connections the node lets go of one of whoever has most.
    expect(0 < readers <= min(CONNECTIONS_MAX, ADDRESSES * 64), "no more are served than there are places")
    expect(not set(statuses) - {0, 200, 503}, "and the others refused, or closed")
    expect(went_on > 0, f"the stream goes on meanwhile: {went_on} elements")
    for connection in held:
        connection.close()
    took = until(20, "a pull afterwards", lambda: exchange.status(path) == 200)
    measured("a pull afterwards is served after", f"{took:.1f} s")


def real_documents(exchange: Exchange, form: str) -> bytes:
    """Real answers of the node for its stream."""
    with exchange.web().connect() as connection:
        target = f"{STREAMS}/{exchange.stream}?start=first&serialization={form}"
        connection.sendall(f"GET {target} HTTP/1.0\r\nHost: {exchange.rest.host}:{exchange.rest.port}\r\n\r\n".encode())
        data, end = b"", time.monotonic() + 1
        # It goes on as long as the stream does.
        while time.monotonic() < end and (more := connection.recv(65_536)):
            data += more
    return data.split(b"\r\n\r\n", 1)[1]


def mutated(rng: random.Random, body: bytes) -> bytes:
    """A document with some bytes changed, cut, repeated or invented."""
    data = bytearray(body if rng.random() < 0.9 else body[:rng.randrange(len(body))])
    for _ in range(rng.choice([1, 1, 1, 2, 40])):
        at = rng.randrange(len(data) + 1)
        end = min(len(data), at + rng.choice([1, 1, 1, 8, 100]))
        kind = rng.choice([-1, -1, -1, 0, 0, 1, 2, 3, 4])
        if kind < 0:  # most likely another number, or another letter
            data[at:end] = bytes(byte ^ rng.choice([0, 1]) for byte in data[at:end])
        elif kind == 0:
            data[at:end] = rng.randbytes(end - at)
        elif kind == 1:
            del data[at:end]
        elif kind == 2:
            data[at:at] = data[at:end] * rng.choice([1, 2, 50])
        elif kind == 3:
            data[at:end] = rng.choice([b"\xff" * 9 + b"\x01", b"18446744073709551615", b"\xdd\xff\xff\xff\xff", b"<", b""])
        else:
            data[at:at] = rng.choice([b"\x00", b"\xc0", b"&#0;", b"-1", b"\xcf" + b"\xff" * 8])
    return bytes(data)


def made_up(stream: str) -> dict[str, list[bytes]]:
    """Documents that no real origin would send."""
    name = stream.encode()
    element = b'<stream-element stream="%b" epoch="%b" number="%b" timestamp="0" schema="%b" version="0"/>'
    return {
        "xml": [b"<", b"<a>" * 500_000, b"<!DOCTYPE x [<!ENTITY a 'b'>]><alive/>", b"\xff\xfe" * 1_000,
                b"<alive after='x'/>", b'<alive after="1:18446744073709551615"/>', b"<alive/>" * 100_000,
                b'<lost stream="%b" epoch="00000000000000a1" from="1" next="18446744073709551615" reason="trimmed"/>' % name,
                b'<lost stream="%b" epoch="00000000000000a1" from="9" next="1" reason="never"/>' % name,
                b'<rollback stream="%b" next="ffffffffffffffff:18446744073709551615"/>' % name,
                element % (name, b"ffffffffffffffff", b"18446744073709551615", b"0" * 16),
                element % (name, b"x", b"-1", b"zz"), b"<stream-element " + b" ".join(b'a%d=""' % n for n in range(50_000)) + b"/>",
                b'<structure stream="%b" schema="%b" version="0">' % (name, b"0" * 16) + b"<field/>" * 100_000 + b"</structure>"],
        "postcard": [b"\xff" * 9 + b"\x01", b"\xff" * 100, b"\x80" * 1_000_000, bytes(1_000_000), b"\x05hello"],
        "message_pack": [b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff",
                         b"\x91" * 500_000, b"\x81" * 500_000, b"\xc1", b"\x80" * 100_000, b"\x81\xa4type\xa8elements"],
    }


def documents(exchange: Exchange, origin: Origin) -> None:
    """At the contact point of a link: real documents, mutated ones, and invented ones."""
    rng = random.Random(SEED)
    exchange.link("pushed", "http_push", origin, [exchange.stream], "copy")

    def contact() -> str:
        return "/" + origin.contacts[-1].split("/", 3)[3]

    with origin.subscribed:
        if not origin.subscribed.wait_for(lambda: origin.contacts, 20):
            raise CheckFailed("the link does not subscribe")
    statuses: dict[int, int] = {}
    nothing = f'<lost stream="{exchange.stream}" epoch="{1:016x}" from="1" next="1" reason="trimmed"/>'.encode()
    refused = 0
    for form, media_type in FORMS.items():
        body = real_documents(exchange, form)
        honest = exchange.ask("PUT", contact(), body, Content_Type=media_type)
        expect(honest[0] == 204, f"what an origin really sends in {form} is stored: {len(body)} bytes")
        hostile = made_up(exchange.stream)[form] + [mutated(rng, body) for _ in range(MUTATED)]
        for payload in hostile:
            count = len(origin.contacts)
            status, headers, answer = exchange.ask("PUT", contact(), payload, Content_Type=media_type)
            exchange.rest.alive()
            statuses[status] = statuses.get(status, 0) + 1
            if status not in (204, 400, 404, 409, 413, 422):
                expect(False, f"{payload[:60]!r} in {form} is refused, not {status} {headers} {answer[:200]}")
            if status == 404 and exchange.ask("PUT", contact(), nothing, Content_Type=FORMS["xml"])[0] == 404:
                # It named no other stream: this one was refused, and is subscribed to anew.
                refused += 1
                with origin.subscribed:
                    origin.subscribed.wait_for(lambda: len(origin.contacts) > count, 20)
    measured("hostile documents at a contact point, by status", f"{statuses}; the stream refused {refused} times")
    expect(statuses.get(404, 0) < sum(statuses.values()) / 2, "most of them get as far as the stream")
    for what, target in {"another secret": contact()[:-4] + "0000", "no link": "/api/v1/exchange/contact-points/x/y"}.items():
        problem(what, exchange.ask("PUT", target, b"<alive/>", Content_Type="application/xml"), 404)
    problem("no media type", exchange.ask("PUT", contact(), b"<alive/>"), 415)
    large = exchange.ask("PUT", contact(), b" " * (5 << 20), Content_Type="application/xml")
    expect(large[0] in (0, 413), "more than a document may have is refused")
    status, _, answer = exchange.ask("DELETE", "/api/v1/links/pushed", **exchange.bearer)
    expect(status == 204, f"the link is removed{'' if status == 204 else answer[:200]}")
    # A link that was not lied to takes the same documents.
    exchange.link("honest", "http_push", origin, [exchange.stream], "again")
    count = len(origin.contacts)
    with origin.subscribed:
        origin.subscribed.wait_for(lambda: "/honest/" in origin.contacts[-1] or len(origin.contacts) > count, 20)
    body = real_documents(exchange, "postcard")
    until(20, "the contact point of another link", lambda: exchange.ask(
        "PUT", contact(), body, Content_Type=FORMS["postcard"])[0] == 204)
    stored = exchange.last(f"again.{exchange.stream}")
    expect(stored > 0, f"another link stores what it is really sent: {stored} elements")


def origins(exchange: Exchange, origin: Origin) -> None:
    """Links that pull from origins whose answers are endless, empty or false."""
    kinds = ["silent", "endless", "lines", "redirect", "length", "head", "status", "close"]
    for form in FORMS:
        body = json.dumps({"name": f"pulls-{form}", "kind": "http_pull", "address": origin.url, "streams": kinds,
                           "serialization": form, "as_prefix": form.replace("_", "-")}).encode()
        status = exchange.ask("POST", "/api/v1/links", body, **exchange.bearer)[0]
        expect(status == 201, f"a link that pulls in {form}")
    until(30, "answers without end were taken", lambda: len(origin.taken) >= 6)
    for form in FORMS:
        # One of its streams is answered now and then, which ends the error.
        error = until(20, "an error of the link", lambda: exchange.shown(f"pulls-{form}")["last_error"])
        print(f"   ok: {form}: the link says: {error[:80]}", flush=True)
        exchange.ask("DELETE", f"/api/v1/links/pulls-{form}", **exchange.bearer)
    measured("answers without end: the most that was taken of one", f"{max(origin.taken) >> 20} MiB of {len(origin.taken)}")
    expect(max(origin.taken) <= ANSWER_MAX, "each is cut off")


def check(exchange: Exchange) -> None:
    rest, stream, origin = exchange.rest, exchange.stream, Origin(exchange.namespace)
    pid = rest.process.process.pid
    until(10, "elements of its own", lambda: exchange.last(stream) > 20)
    memory, first = resident_bytes(pid), exchange.last(stream)
    neighbour = Honest(rest.get)
    start = time.monotonic()
    for part in (lambda: contact_points(exchange, origin), lambda: pulls(exchange),
                 lambda: documents(exchange, origin), lambda: origins(exchange, origin)):
        part()
        rest.alive()
        measured("memory of the node", f"{memory >> 10} + {(resident_bytes(pid) - memory) >> 10} KiB")
    seconds = time.monotonic() - start
    asked, late = neighbour.stop()
    growth, elements = resident_bytes(pid) - memory, exchange.last(stream) - first
    measured("p99 of a neighbour's requests beside all that", f"{late:.1f} ms ({asked} asked)")
    measured("its own stream", f"{elements} elements in {seconds:.0f} s at 10 a second")
    expect(not neighbour.failures and late <= NEIGHBOUR_MAX_MS, "a neighbour's requests go on")
    expect(elements >= 0.5 * 10 * seconds, "and so does its own stream")
    expect(growth <= GROWTH_MAX, f"with less than {GROWTH_MAX >> 20} MiB kept")
    origin.shutdown()
