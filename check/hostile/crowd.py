"""One host against its neighbours: names of others, a full table, endless questions."""

import contextlib
import http.server
import json
import os
import pathlib
import re
import socket
import threading
import time
import urllib.parse
import uuid

from datagrams import DIALECTS, SOAP, announce, probe, resolve
from forged import device_of, dropped, last
from network import Cable, Process, expect, until
from wire import DISCOVERY_PORT, GROUP, Paced, Spoofer, inside, measured, resident_bytes

# Hosts of 10.77.0.0/24, all at end B.
STRANGER, FLOODER, NEIGHBOUR = "10.77.0.100", "10.77.0.101", "10.77.0.102"
TABLE = 20
FLOOD_PER_S, SECONDS = 49, 15
LARGE, LARGE_PER_S = 8_000, 1_000
# 4,096 descriptions of 8 KiB in the table of the protocol and in that of the client are 64 MiB; as much again is for the
# allocator and for descriptions that are being read, which are more on a busy machine.
LARGE_GROWTH_MAX = 128 << 20
MEX = "http://schemas.xmlsoap.org/ws/2004/09/mex"
GET_RESPONSE = "http://schemas.xmlsoap.org/ws/2004/09/transfer/GetResponse"


def metadata(question: bytes) -> bytes:
    """The answer to any Get: a device without services."""
    names = DIALECTS["2009"]
    asked = re.search(rb"MessageID[^>]*>([^<]*)<", question)
    relates = asked[1].decode() if asked else ""
    section = "".join(
        f"<m:MetadataSection Dialect='{names['dpws']}/{name}'><p:{name}>{inner}</p:{name}></m:MetadataSection>"
        for name, inner in (("ThisModel", "<p:Manufacturer>Stranger</p:Manufacturer><p:ModelName>S</p:ModelName>"),
                            ("ThisDevice", "<p:FriendlyName>stranger</p:FriendlyName>")))
    return (f"<s:Envelope xmlns:s='{SOAP}' xmlns:a='{names['wsa']}' xmlns:m='{MEX}' xmlns:p='{names['dpws']}'>"
            f"<s:Header><a:Action>{GET_RESPONSE}</a:Action><a:MessageID>{uuid.uuid4().urn}</a:MessageID>"
            f"<a:RelatesTo>{relates}</a:RelatesTo></s:Header>"
            f"<s:Body><m:Metadata>{section}</m:Metadata></s:Body></s:Envelope>").encode()


class Answering(http.server.BaseHTTPRequestHandler):
    """Answers for any device."""

    def do_POST(self) -> None:
        answer = metadata(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.send_header("Content-Type", "application/soap+xml; charset=utf-8")
        self.send_header("Content-Length", str(len(answer)))
        with contextlib.suppress(ConnectionError):  # the node may have forgotten the device meanwhile
            self.end_headers()
            self.wfile.write(answer)

    def log_message(self, *_) -> None:
        pass


class Host:
    """A host at end B that speaks discovery, and HTTP for every device that it claims to be."""

    def __init__(self, cable: Cable, address: str):
        with inside(cable.names["B"]):
            self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self.http = http.server.ThreadingHTTPServer((address, 0), Answering)
        self.udp.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(address))
        self.udp.bind((address, 0))
        self.udp.setblocking(False)
        self.address, self.answered = address, set()
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def send(self, payload: bytes) -> None:
        self.udp.sendto(payload, (GROUP, DISCOVERY_PORT))

    def hello(self, endpoint: str) -> None:
        self.send(announce("2009", "Hello", endpoint, f"http://{self.address}:{self.http.server_port}/"))

    def ask(self, number: int, endpoint: str) -> str:
        """Sends a Probe and a Resolve in turn; returns the message that the answer relates to."""
        question = resolve("2009", endpoint) if number % 2 else probe("2009", "p:Device")
        self.send(question)
        return re.search(rb"urn:uuid:[^<]*", question)[0].decode()

    def listen(self) -> None:
        while True:
            try:
                text = self.udp.recv(65_535)
            except BlockingIOError:
                return
            if found := re.search(rb"RelatesTo[^>]*>([^<]*)<", text):
                self.answered.add(found[1].decode())

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()
        self.udp.close()


def names(cable: Cable, address: str, stranger: Host, stream: str) -> None:
    """A device named like a stream, or like a link, gets none of their elements."""
    key = f"urn:chappe:stream:{stream}"
    url = f"{address}/api/v1/entities/{urllib.parse.quote(key, safe='')}"

    def entity() -> dict:
        return json.loads(cable.get("A", url))
    before = entity()

    def judged() -> bool:
        return entity() != before or dropped(cable, address).get("discovery: endpoint refused", 0) >= 2
    for endpoint in (key, "urn:chappe:link:plant"):
        stranger.hello(endpoint)
    until(20, "devices with names of others refused, or followed", judged)
    expect(entity() == before, "the entity of a stream is not replaced by a device that is called like it")
    keys = [device["key"] for device in json.loads(cable.get("A", f"{address}/api/v1/devices"))["devices"]]
    expect(not any(key.startswith(("urn:chappe:stream:", "urn:chappe:link:")) for key in keys),
           "no device has the key of a stream or of a link")


def crowd(cable: Cable, address: str, stranger: Host) -> None:
    """One host answers for as many devices as the table holds, and some more."""
    for _ in range(TABLE + 4):
        stranger.hello(uuid.uuid4().urn)
    until(20, "a table that is full",
          lambda: dropped(cable, address).get("discovery: too many devices", 0) > 0)

    def table() -> list[dict]:
        return json.loads(cable.get("A", f"{address}/api/v1/devices"))["devices"]
    until(20, "all in it described", lambda: all(device["state"] == "usable" for device in table()))
    devices = table()
    expect(len(devices) == TABLE, f"a table of {TABLE} is full of devices that answer")
    measured("devices of one address in a table of 20",
             sum(any(STRANGER in xaddr for xaddr in device["addresses"]) for device in devices))


def cpu_seconds(pid: int) -> float:
    """Processor time used by a process."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def descriptions(cable: Cable, address: str, node: Process, known: dict) -> None:
    """The most expensive datagrams: strangers at 200 forged addresses send long descriptions."""
    def hello(source: str, scopes: int) -> bytes:
        said = " ".join(f"urn:{'s' * 1_000}:{n}" for n in range(scopes))
        return announce("2009", "Hello", uuid.uuid4().urn, f"http://{source}/").replace(
            b"<d:XAddrs>", f"<d:Scopes>{said}</d:Scopes><d:XAddrs>".encode())
    spoofer, paced = Spoofer(cable.names["B"], STRANGER), Paced(LARGE_PER_S)
    for name, scopes in (("as long as is kept", 7), ("too long", 30)):
        memory, cpu = resident_bytes(node.process.pid), cpu_seconds(node.process.pid)
        for number in range(LARGE):
            source = f"10.77.0.{20 + number % 60}" if number % 2 else f"10.66.1.{1 + number % 250}"
            spoofer.send(source, GROUP, hello(source, scopes))
            paced.wait()
        grown = resident_bytes(node.process.pid) - memory
        measured(f"memory after {LARGE} descriptions that are {name}", f"{grown >> 10} KiB")
        spent = (cpu_seconds(node.process.pid) - cpu) / LARGE
        measured("processor time of each, with all else that the node does", f"{1e6 * spent:.0f} µs")
        expect(grown <= LARGE_GROWTH_MAX, f"the node grew by no more than {LARGE_GROWTH_MAX >> 20} MiB")
    expect(dropped(cable, address).get("discovery: too_large", 0) > 0, "what is too long is dropped and counted")
    expect(bool(device_of(cable, address, known["endpoint"])), "and the device of another host is still known")


def rates(endpoint: str, flooder: Host, neighbour: Host) -> None:
    """One host asks 49 times a second, another of its subnet once a second."""
    asked, start = [], time.monotonic()
    for number in range(FLOOD_PER_S * SECONDS):
        flooder.ask(number, endpoint)
        if number % FLOOD_PER_S == 0:
            asked.append(neighbour.ask(number // FLOOD_PER_S, endpoint))
        neighbour.listen()
        flooder.listen()
        time.sleep(max(0.0, start + (number + 1) / FLOOD_PER_S - time.monotonic()))
    until(5, "the last answer", lambda: neighbour.listen() or asked[-1] in neighbour.answered
          or time.monotonic() > start + SECONDS + 5)
    count = len(neighbour.answered.intersection(asked))
    measured("answers to the host that floods", f"{len(flooder.answered)} of {FLOOD_PER_S * SECONDS}")
    measured("answers to its neighbour", f"{count} of {len(asked)}")
    expect(count == len(asked), "a host that floods silences no neighbour")


def check(cable: Cable, node: Process, node_address: str, known: dict, start_alone) -> None:
    """`known` is the output of the device at end B; `start_alone` starts a device at end A."""
    bound = until(20, "the device bound", lambda: device_of(cable, node_address, known["endpoint"]))
    stream = bound["streams"][0]
    until(10, "its stream", lambda: last(cable, node_address, stream) > 3)
    hosts = [Host(cable, address) for address in (STRANGER, FLOODER, NEIGHBOUR)]
    try:
        names(cable, node_address, hosts[0], stream)
        crowd(cable, node_address, hosts[0])
        _, ready = start_alone()
        alone = until(20, "a device of another host bound",
                      lambda: device_of(cable, node_address, ready["endpoint"]))
        expect(bool(alone["streams"]), "a device of another host is usable beside a host that fills the table")
        before = last(cable, node_address, stream)
        until(10, "its stream", lambda: last(cable, node_address, stream) > before)
        expect(True, "and the device that was there before goes on")
        rates(ready["endpoint"], *hosts[1:])
        descriptions(cable, node_address, node, known)
    finally:
        for host in hosts:
            host.close()
