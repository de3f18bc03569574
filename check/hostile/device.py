"""The device's SOAP endpoint under attack: malformed messages, bombs, strangers as sinks."""

import re
import socket
import threading
import time
import urllib.parse
import uuid

from datagrams import BOMB, DIALECTS, SOAP, endpoint
from network import Cable, CheckFailed, Process, expect
from web import garbage, slow_peers
from wire import Listener, Web, inside, measured, open_files, resident_bytes

EVENTING = "http://schemas.xmlsoap.org/ws/2004/08/eventing"
TRANSFER_GET = "http://schemas.xmlsoap.org/ws/2004/09/transfer/Get"
SOAP_TYPE = "application/soap+xml; charset=utf-8"
SUBSCRIBE_TRIES = 3_000
SUBSCRIPTIONS_MAX, SUBSCRIPTIONS_PER_PEER_MAX = 1_000, 64
GROWTH_MAX = 16 << 20
STRANGERS = [f"10.77.0.{n}" for n in range(100, 124)]


def message(action: str, to: str, body: str, extra: str = "") -> bytes:
    return (f"<s:Envelope xmlns:s='{SOAP}' xmlns:a='{DIALECTS['2009']['wsa']}' xmlns:e='{EVENTING}'>"
            f"<s:Header><a:Action>{action}</a:Action><a:MessageID>{uuid.uuid4().urn}</a:MessageID>"
            f"<a:To>{to}</a:To>{extra}</s:Header><s:Body>{body}</s:Body></s:Envelope>").encode()


def subscribe(to: str, notify_to: str, end_to: str = "", expires: str = "PT30S") -> bytes:
    address = "<a:Address>{}</a:Address>"
    end = f"<e:EndTo>{address.format(end_to)}</e:EndTo>" if end_to else ""
    body = f"<e:Subscribe>{end}<e:Delivery><e:NotifyTo>{address.format(notify_to)}</e:NotifyTo></e:Delivery>" \
           f"<e:Expires>{expires}</e:Expires></e:Subscribe>"
    return message(f"{EVENTING}/Subscribe", to, body)


class Target:
    """A device and the data that a client needs to reach it."""

    def __init__(self, cable: Cable, process: Process, ready: dict):
        self.process, self.cable = process, cable
        host, port = re.match(r"(?:http://)?([\d.]+):(\d+)", ready["addresses"][0]).groups()
        self.host, self.port, self.endpoint = host, int(port), ready["endpoint"]
        self.web = Web(cable.names["B"], host, self.port, "10.77.0.2")
        status, _, body = self.get()
        service = re.search(rb"http://[\d.:]+(/[^<]*)</[^>]*Address>(?=(?:(?!Relationship).)*ServiceId)", body)
        paths = [p for p in re.findall(rb"http://[\d.]+:\d+(/[^<\"']+)<", body) if p != b"/device"]
        if status != 200 or not paths:
            raise CheckFailed(f"the device does not describe itself: {status} {body[:300]} {service}")
        self.path = paths[0].decode()
        self.url = f"http://{host}:{port}{self.path}"

    def get(self) -> tuple[int, dict, bytes]:
        return self.post("/device", message(TRANSFER_GET, self.endpoint, ""))

    def post(self, path: str, body: bytes, web: Web | None = None, kind: str = SOAP_TYPE, **headers: str):
        return (web or self.web).ask("POST", path, body, Content_Type=kind, **headers)


def hostile_messages(to: str) -> dict[str, bytes]:
    sound = message(TRANSFER_GET, to, "")
    deep, many = 100_000, b" ".join(b"a%d='1'" % n for n in range(50_000))
    return {
        "nothing": b"",
        "no XML": b"hello",
        "half a message": sound[:len(sound) // 2],
        "<:/>": b"<:/>",
        "EXI": b"$EXI\x80\x40" + bytes(300),
        "EXI without cookie": b"\x80" + bytes(range(256)),
        "UTF-16": sound.decode().encode("utf-16"),
        "no UTF-8": sound.replace(b"</s:Body>", b"\xff\xfe</s:Body>"),
        "NUL": sound.replace(b"</s:Body>", b"\0</s:Body>"),
        "entity bomb": BOMB.encode() + sound.replace(b"</a:To>", b"&j;</a:To>"),
        "entity of a file": b"<!DOCTYPE s [<!ENTITY x SYSTEM 'file:///etc/passwd'>]>"
                            + sound.replace(b"</a:To>", b"&x;</a:To>"),
        "entity of an address": b"<!DOCTYPE s SYSTEM 'http://10.77.0.2:9/x.dtd'>" + sound,
        "depth of 100,000": sound.replace(b"<s:Body>", b"<s:Body>" + b"<x>" * deep + b"</x>" * deep),
        "50,000 attributes": sound.replace(b"<s:Body>", b"<s:Body><x " + many + b"/>"),
        "a name of 1 MB": sound.replace(b"<s:Body>", b"<s:Body><" + b"x" * 1_000_000 + b"/>"),
        "500,000 elements": sound.replace(b"<s:Body>", b"<s:Body>" + b"<x/>" * 500_000),
        "50,000 namespaces": sound.replace(b"<s:Body>", b"<s:Body><x " + b" ".join(
            b"xmlns:n%d='u:%d'" % (n, n) for n in range(50_000)) + b"/>"),
        "SOAP 1.1": sound.replace(SOAP.encode(), b"http://schemas.xmlsoap.org/soap/envelope/"),
        "two actions": sound.replace(b"<a:MessageID>", b"<a:Action>x</a:Action><a:MessageID>"),
        "no action": sound.replace(b"a:Action", b"a:Axtion"),
        "a header that must be understood": sound.replace(
            b"</s:Header>", b"<x xmlns='u:x' s:mustUnderstand='1'/></s:Header>"),
        "an unknown action": message("urn:nothing", to, ""),
        "another endpoint": message(TRANSFER_GET, "urn:uuid:00000000-0000-0000-0000-000000000001", ""),
        "an answer wanted elsewhere": sound.replace(
            b"</s:Header>", b"<a:ReplyTo><a:Address>http://10.77.0.119:9/</a:Address></a:ReplyTo></s:Header>"),
        "a Renew of nothing": message(f"{EVENTING}/Renew", to, "<e:Renew/>"),
        "an expiration of ages": subscribe(to, "http://10.77.0.2:9/", expires="P99999999999999999Y"),
        "an expiration in the past": subscribe(to, "http://10.77.0.2:9/", expires="1970-01-01T00:00:00Z"),
    }


def bad_messages(target: Target) -> None:
    pid = target.process.process.pid
    memory = resident_bytes(pid)
    statuses, slowest = {}, 0.0
    for path in ("/device", target.path):
        for what, body in hostile_messages(target.endpoint if path == "/device" else target.url).items():
            start = time.monotonic()
            status, headers, answer = target.post(path, body)
            slowest = max(slowest, time.monotonic() - start)
            statuses[what] = status
            if not 400 <= status < 600 or b"root:" in answer:
                expect(False, f"{what} at {path} is refused, not answered with {status} {answer[:200]}")
            if status in (400, 500) and answer and b"Fault" not in answer:
                expect(False, f"{what} at {path} gets a SOAP fault, not {answer[:200]}")
    measured("device: statuses of hostile messages", statuses)
    measured("device: the slowest refusal", f"{1000 * slowest:.0f} ms")
    growth = resident_bytes(pid) - memory
    measured("device: memory after hostile messages", f"{growth >> 10} KiB")
    expect(growth <= GROWTH_MAX, f"hostile messages get faults and leave less than {GROWTH_MAX >> 20} MiB")
    get = message(TRANSFER_GET, target.endpoint, "")
    for kind in ("text/plain", "application/x-www-form-urlencoded", "text/xml", "", "multipart/form-data"):
        status, _, _ = target.post("/device", get, kind=kind)
        if status != 415:
            expect(False, f"a message sent as {kind!r} is refused with 415, not {status}")
    expect(True, "a message is taken as application/soap+xml alone: no page of a browser can send one unasked")
    for target_path in ("/..%2f..%2fetc/passwd", "/device/../../etc/passwd", "//", "/%00", "/device?wsdl=../../x"):
        status, _, body = target.web.ask("GET", target_path)
        if status < 400 and b"root:" in body:
            expect(False, f"{target_path} gives a file")
    expect(target.get()[0] == 200, "an honest Get is answered after it")


def strangers_as_sinks(cable: Cable, target: Target) -> None:
    neighbour = Listener(cable.names["B"], "10.77.0.119")
    local = Listener(cable.names["A"], "127.0.0.1")
    cable.run("A", "ip", "addr", "add", "169.254.169.254/32", "dev", "lo")
    metadata = Listener(cable.names["A"], "169.254.169.254", 80)
    addresses = [f"http://10.77.0.119:{neighbour.port}/x", f"http://127.0.0.1:{local.port}/x",
                 f"http://localhost:{local.port}/x", "http://169.254.169.254/latest", "http://[::1]:80/",
                 f"http://10.77.0.119:{neighbour.port}@10.77.0.2/", "soap.udp://10.77.0.119:3702", "file:///etc/passwd",
                 f"http://0.0.0.0:{local.port}/", "http://10.77.0.1:80/", "http://255.255.255.255/", "x" * 100_000]
    own = "http://10.77.0.2:9/own"
    for address in addresses:
        for body in (subscribe(target.url, address), subscribe(target.url, own, address)):
            status, _, answer = target.post(target.path, body)
            if status < 400 or b"Fault" not in answer:
                expect(False, f"a sink at {address[:60]} is refused, not {status} {answer[:200]}")
    time.sleep(2)  # a sink that was granted would have had twenty events
    seen = {name: len(listener.peers) for name, listener in
            (("neighbour", neighbour), ("loopback", local), ("metadata service", metadata))}
    measured("connections that reached the strangers named as NotifyTo or EndTo", seen)
    expect(not any(seen.values()), f"{2 * len(addresses)} Subscribes that name a stranger get a fault, he nothing")
    for listener in (neighbour, local, metadata):
        listener.close()


def sink(cable: Cable, address: str) -> int:
    """An event sink that accepts everything."""
    with inside(cable.names["B"]):
        server = socket.create_server((address, 0), backlog=512)

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
                connection.settimeout(2)
                connection.recv(65_536)
                connection.sendall(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                connection.close()
            except TimeoutError:
                continue
            except OSError:
                return
    threading.Thread(target=serve, daemon=True).start()
    return server.getsockname()[1]


def is_alive(target: Target, web: Web, granted: bytes) -> bool:
    """Whether a subscription has not ended; `granted` is the response to its Subscribe."""
    manager = re.search(rb"SubscriptionManager.*?Address[^<>]*>([^<>]+)<", granted, re.DOTALL)[1].decode()
    status, _, answer = target.post(urllib.parse.urlparse(manager).path, message(
        f"{EVENTING}/GetStatus", manager, "<e:GetStatus/>"), web)
    if status != 200 and b"Fault" not in answer:
        raise CheckFailed(f"GetStatus is answered with {status} {answer[:200]}")
    return status == 200


def many_subscriptions(cable: Cable, target: Target) -> None:
    pid = target.process.process.pid
    memory = resident_bytes(pid)
    granted: dict[str, list[bytes]] = {address: [] for address in STRANGERS}
    refused = 0
    sinks = {address: (Web(cable.names["B"], target.host, target.port, address), sink(cable, address))
             for address in STRANGERS}
    for number in range(SUBSCRIBE_TRIES):
        address = STRANGERS[0 if number < 100 else number % len(STRANGERS)]
        web, port = sinks[address]
        status, _, answer = target.post(target.path, subscribe(
            target.url, f"http://{address}:{port}/{number}", expires="PT10M"), web)
        if status == 200:
            granted[address].append(answer)
        elif b"EventSourceUnableToProcess" in answer:
            refused += 1
        else:
            expect(False, f"a Subscribe too many gets a fault, not {status} {answer[:200]}")
    growth = resident_bytes(pid) - memory
    # A host with a smaller share takes the place of the oldest subscription of the one with the largest.
    alive = [sum(is_alive(target, sinks[address][0], one) for one in granted[address]) for address in STRANGERS]
    measured("subscriptions", f"{sum(map(len, granted.values()))} of {SUBSCRIBE_TRIES} granted, {refused} refused, "
             f"{sum(alive)} are left, {min(alive)} to {max(alive)} of one address, {growth >> 10} KiB, "
             f"{open_files(pid)} open files")
    expect(sum(alive) <= SUBSCRIPTIONS_MAX and max(map(len, granted.values())) <= SUBSCRIPTIONS_PER_PEER_MAX,
           f"at most {SUBSCRIPTIONS_MAX} are there, and {SUBSCRIPTIONS_PER_PEER_MAX} of one address")
    expect(max(alive) <= min(alive) + 1, "each address has the same share")
    expect(refused > 0 and growth <= GROWTH_MAX, f"the others get a fault; less than {GROWTH_MAX >> 20} MiB")
    expect(target.get()[0] == 200, "an honest client is answered beside them")


def check(cable: Cable, target: Target, quiet: Target) -> None:
    attackers = [Web(cable.names["B"], target.host, target.port, address) for address in STRANGERS]
    pid = target.process.process.pid
    garbage("device", target.web, "/device", target.get, pid)
    bad_messages(target)
    strangers_as_sinks(cable, target)
    slow_peers("device", attackers, "/device", target.get, pid)
    many_subscriptions(cable, quiet)


__all__ = ["Target", "check", "endpoint"]
