"""Documents that grow: small ones from a stranger, sent to a device or returned to a node that requests them.

A namespace in every name, declarations that are looked up repeatedly, schemas whose groups refer to each other
many times, WSDLs inside metadata, and many of them at once at an event receiver. The device has 1 GiB of
address space. The check measures peak memory, and that an honest client gets answers.
"""

import concurrent.futures
import gzip
import http.server
import json
import pathlib
import re
import socketserver
import threading
import time
import uuid

from datagrams import DIALECTS, SOAP, announce
from device import SOAP_TYPE, TRANSFER_GET, Target, message
from network import Cable, Process, expect, until
from wire import GROUP, Honest, Spoofer, Web, inside, measured

NAMES = DIALECTS["2009"]
WSDL, XSD = "http://schemas.xmlsoap.org/wsdl/", "http://www.w3.org/2001/XMLSchema"
MEX, EVENTING = "http://schemas.xmlsoap.org/ws/2004/09/mex", "http://schemas.xmlsoap.org/ws/2004/08/eventing"
STRANGER = "10.77.0.2"
DEVICE_GROWTH_MAX = 64 << 20
# A tree of 64 MiB as the limit counts it, twice while its vectors grow, and the documents.
NODE_GROWTH_MAX = 200 << 20
# Two trees of 64 MiB that are read at once, twice while they grow, and 64 MiB of bodies that wait.
EVENTS_GROWTH_MAX = 320 << 20
# Not a figure of merit: the stalls that are looked for took four seconds, or for ever.
HONEST_MAX_MS = 1_500
NEIGHBOURS = [f"10.77.0.{n}" for n in range(100, 124)]
AT_ONCE = 240
BODY_BYTES = 4 << 20  # ServerLimits::body_bytes


def peak_bytes(pid: int) -> int:
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"^VmHWM:\s+(\d+)", status, re.M).group(1)) * 1024


def from_here(pid: int) -> int:
    """Resets the memory peak; returns the current memory."""
    pathlib.Path(f"/proc/{pid}/clear_refs").write_text("5")
    return peak_bytes(pid)


def bombs(size: int) -> dict[str, str]:
    """Elements of at most `size` bytes."""
    long = "urn:" + "x" * (size // 3)
    short = "urn:" + "x" * 1_000
    nested = "".join("<x" + "".join(f" xmlns:p{100 * level + n}='u'" for n in range(100)) + ">" for level in range(40))
    return {
        "a namespace of a third of the document": f"<x xmlns='{long}'>" + "<y/>" * (size // 8) + "</x>",
        "a namespace of 1,000 bytes": f"<x xmlns='{short}'>" + "<y/>" * (size // 5) + "</x>",
        "the same in attributes": f"<x xmlns:p='{short}'>" + "<y p:z=''/>" * (size // 12) + "</x>",
        "declarations at each depth": nested + "<p0:y/>" * ((size - 2 * len(nested)) // 8) + "</x>" * 40,
        "many elements": "<x>" + "<y/>" * (size // 5) + "</x>",
        "many blocks": "<x/>" * (size // 5),
    }


def nested_groups() -> str:
    """A schema of 8 kB with an element that refers to 20 groups to the power of 12."""
    groups = "".join(f"<s:attributeGroup name='g{n}'>" + f"<s:attributeGroup ref='g{n + 1}'/>" * 20
                     + "</s:attributeGroup>" for n in range(12))
    return (f"<s:schema xmlns:s='{XSD}' xmlns='urn:t' targetNamespace='urn:t'><s:element name='E'><s:complexType>"
            f"<s:attributeGroup ref='g0'/><s:attribute name='a'/></s:complexType></s:element>{groups}"
            "<s:attributeGroup name='g12'/></s:schema>")


def description(schema: str) -> str:
    return (f"<w:definitions xmlns:w='{WSDL}' xmlns:t='urn:t' xmlns:e='{EVENTING}' targetNamespace='urn:t'><w:types>"
            f"{schema}</w:types><w:message name='M'><w:part name='p' element='t:E'/></w:message>"
            "<w:portType name='P' e:EventSource='true'><w:operation name='O'><w:output message='t:M'/></w:operation>"
            "</w:portType></w:definitions>")


def reply(asked: bytes, action: str, body: str) -> bytes:
    relates = re.search(rb"MessageID[^>]*>([^<]+)<", asked)
    return (f"<s:Envelope xmlns:s='{SOAP}' xmlns:a='{NAMES['wsa']}' xmlns:p='{NAMES['dpws']}' xmlns:m='{MEX}'>"
            f"<s:Header><a:Action>{action}</a:Action><a:RelatesTo>{relates.group(1).decode() if relates else 'x'}"
            f"</a:RelatesTo></s:Header><s:Body>{body}</s:Body></s:Envelope>").encode()


def section(dialect: str, content: str) -> str:
    return f"<m:MetadataSection Dialect='{dialect}'>{content}</m:MetadataSection>"


class Stranger:
    """A device that answers Get with `get`, or correctly, and then its service's GetMetadata with `wsdl`."""

    def __init__(self, cable: Cable, get: str | None = None, wsdl: str = "", services: int = 1):
        self.services = services
        self.endpoint, self.asked, self.name = uuid.uuid4().urn, 0, f"stranger {uuid.uuid4().hex[:8]}"
        stranger = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                asked = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                stranger.asked += 1
                of_service = self.path.startswith("/service")
                if of_service:
                    body = f"<m:Metadata>{section(WSDL, wsdl)}</m:Metadata>"
                else:
                    body = get or stranger.metadata()
                answer = gzip.compress(reply(asked, f"{TRANSFER_GET}Response", body))
                self.send_response(200)
                for name, value in (("Content-Type", SOAP_TYPE), ("Content-Encoding", "gzip"),
                                    ("Content-Length", str(len(answer)))):
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_) -> None:
                pass

        class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
            daemon_threads = True

        with inside(cable.names["B"]):
            self.server = Server((STRANGER, 0), Handler)
        self.url = f"http://{STRANGER}:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        hello = announce("2009", "Hello", self.endpoint, f"{self.url}/device")
        Spoofer(cable.names["B"], STRANGER).send(STRANGER, GROUP, hello)

    def metadata(self) -> str:
        address = "<a:EndpointReference><a:Address>{}</a:Address></a:EndpointReference>"
        hosted = "".join(f"<p:Hosted>{address.format(f'{self.url}/service{n}')}<p:Types xmlns:t='urn:t'>t:P</p:Types>"
                         f"<p:ServiceId>urn:service{n}</p:ServiceId></p:Hosted>" for n in range(self.services))
        host = f"<p:Host>{address.format(self.endpoint)}<p:Types>p:Device</p:Types></p:Host>"
        dpws = NAMES["dpws"]
        return ("<m:Metadata>"
                + section(f"{dpws}/ThisModel", "<p:ThisModel><p:Manufacturer>x</p:Manufacturer><p:ModelName>x"
                                               "</p:ModelName></p:ThisModel>")
                + section(f"{dpws}/ThisDevice", f"<p:ThisDevice><p:FriendlyName>{self.name}</p:FriendlyName>"
                                                "</p:ThisDevice>")
                + section(f"{dpws}/Relationship", f"<p:Relationship Type='{dpws}/host'>{host}{hosted}"
                                                  "</p:Relationship>")
                + "</m:Metadata>")

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


def to_a_device(target: Target) -> None:
    pid = target.process.process.pid
    memory = from_here(pid)
    slowest = 0.0
    for what, body in bombs(240_000).items():
        packed = gzip.compress(message(TRANSFER_GET, target.endpoint, body))
        start = time.monotonic()
        status, _, answer = target.post("/device", packed, Content_Encoding="gzip")
        slowest = max(slowest, time.monotonic() - start)
        expect(status in (200, 400, 500), f"{what}, {len(packed)} bytes: answered with {status}, {len(answer)} bytes")
    parameters = "<a:ReferenceParameters><y xmlns=''>" + "<z/>" * 27_000 + "</y></a:ReferenceParameters>"
    to = f"<a:Address>http://{STRANGER}:9/x</a:Address>{parameters}"
    body = (f"<e:Subscribe><e:EndTo>{to}</e:EndTo><e:Delivery><e:NotifyTo>{to}</e:NotifyTo></e:Delivery></e:Subscribe>")
    packed = gzip.compress(message(f"{EVENTING}/Subscribe", target.endpoint, body))
    answers = {target.post(target.path, packed, Content_Encoding="gzip")[0] for _ in range(20)}
    expect(answers == {400}, f"what a subscriber wants back with each event is refused beyond a size: {answers}")
    growth = peak_bytes(pid) - memory
    measured("device: memory at its peak",
             f"{memory >> 10} + {growth >> 10} KiB, slowest answer {1000 * slowest:.0f} ms")
    expect(growth <= DEVICE_GROWTH_MAX, f"the device never grew by more than {DEVICE_GROWTH_MAX >> 20} MiB")
    expect(target.get()[0] == 200, "an honest Get is answered after it")


def to_a_node(cable: Cable, node: Process, address: str) -> None:
    pid = node.process.pid
    host, port = re.match(r"http://([\d.]+):(\d+)", address).groups()
    web = Web(cable.names["A"], host, int(port))

    def ask() -> tuple[int, dict, bytes]:
        return web.ask("GET", "/api/v1/devices")

    def of(stranger: Stranger) -> dict:
        try:
            devices = json.loads(ask()[2])["devices"]
        except OSError:
            return {}  # the honest client counts it
        found = [d for d in devices if d["key"].endswith(stranger.endpoint)]
        return found[0] if found else {}

    def judged(what: str, stranger: Stranger, is_done) -> None:
        memory, honest = from_here(pid), Honest(ask)
        until(30, f"the end of {what}", lambda: is_done(of(stranger)))
        count, p99 = honest.stop()
        growth = peak_bytes(pid) - memory
        device = of(stranger)
        measured(f"node: {what}", f"{growth >> 20} MiB at the peak, p99 of {count} honest requests {p99:.0f} ms; "
                 f"{device.get('state')}: {(device.get('reason') or '')[:120]}")
        expect(not honest.failures and p99 <= HONEST_MAX_MS and growth <= NODE_GROWTH_MAX,
               f"{what}: an honest client is answered in time, and less than {NODE_GROWTH_MAX >> 20} MiB are taken")
        stranger.close()

    for what, body in bombs(4_000_000).items():
        # Get has a smaller limit; it is asked, and the refusal shown, then it is asked again after a pause.
        judged(f"{what}, for Get", Stranger(cable, get=body), lambda device: "larger than" in (device.get("reason") or ""))
        stranger = Stranger(cable, wsdl=body)
        judged(what, stranger, lambda device, stranger=stranger: stranger.asked > 1 and device.get("reason") !=
               "it is being described")
    for what, body in bombs(250_000).items():
        judged(f"{what}, for Get and as long as may be", Stranger(cable, get=body), lambda device: device.get(
            "reason") not in (None, "it is being described"))
    stranger = Stranger(cable, wsdl=description(nested_groups()))
    # Get, GetMetadata, and then a Subscribe: the event has become a stream.
    judged("nested attribute groups", stranger, lambda _: stranger.asked > 2)
    inline = f"<w:definitions xmlns:w='{WSDL}' targetNamespace='urn:t'>{'<w:x/>' * 100_000}</w:definitions>"
    stranger = Stranger(cable, wsdl=inline, services=6)
    # Each has a tree of more than 20 MiB: a device may have 64 MiB of them.
    judged("six inline WSDLs", stranger, lambda _: b"description too large" in web.ask("GET", "/api/v1/drops")[2])
    judged_notifications(cable, node, ask)
    expect(node.process.poll() is None, "the node lives")


def notification_port(cable: Cable, pid: int) -> int:
    lines = cable.run("A", "ss", "-ltnpH").stdout.splitlines()
    found = [line.split()[3] for line in lines if f"pid={pid}," in line]
    ports = [int(address.rpartition(":")[2]) for address in found if address.startswith("10.77.0.1:")]
    return ports[0] if ports else 0


def judged_notifications(cable: Cable, node: Process, ask) -> None:
    """At an event receiver: many packed bombs at once, and incomplete bodies of the largest size."""
    pid = node.process.pid
    port = until(20, "the node to receive events", lambda: notification_port(cable, pid))
    stranger = Web(cable.names["B"], "10.77.0.1", port)
    status, _, body = stranger.ask("POST", "/events/x", b"<" * BODY_BYTES, Content_Type=SOAP_TYPE)
    expect(status == 404, f"a large event to an unknown path is refused before it is read: {status} {body[:60]}")
    bomb = gzip.compress(message("urn:x", "urn:y", bombs(4_000_000)["many elements"]))
    head = f"POST /events/x HTTP/1.1\r\nHost: x\r\nContent-Type: {SOAP_TYPE}\r\nContent-Length: {BODY_BYTES}\r\n\r\n"

    def send(web: Web) -> None:
        web.ask("POST", "/events/x", bomb, Content_Type=SOAP_TYPE, Content_Encoding="gzip", timeout_s=60)

    def hold(web: Web) -> None:
        web.raw(head.encode() + b" " * (BODY_BYTES - 1), 60)

    attacks = {f"{AT_ONCE} packed bodies of {len(bomb)} bytes": send, f"{AT_ONCE} bodies never whole": hold}
    for what, attack in attacks.items():
        memory, honest = from_here(pid), Honest(ask)
        webs = [Web(cable.names["B"], "10.77.0.1", port, NEIGHBOURS[n % len(NEIGHBOURS)]) for n in range(AT_ONCE)]
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as threads:
            # Refused, late or cut: what counts is the node.
            concurrent.futures.wait([threads.submit(attack, web) for web in webs])
        count, p99 = honest.stop()
        growth = peak_bytes(pid) - memory
        measured(f"node: {what}", f"{growth >> 20} MiB at the peak, p99 of {count} honest requests {p99:.0f} ms")
        expect(not honest.failures and p99 <= HONEST_MAX_MS and growth <= EVENTS_GROWTH_MAX,
               f"{what} where events are received: an honest client is answered, less than "
               f"{EVENTS_GROWTH_MAX >> 20} MiB")


def check(cable: Cable, target: Target, node: Process, address: str) -> None:
    to_a_device(target)
    to_a_node(cable, node, address)
