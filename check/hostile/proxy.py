"""A node that is a discovery proxy, and strangers who fill its subscriptions from one network.

All hosts are at the other end of a cable, and have IPv6 addresses: those of one network of 64 bits belong to one host, which
has as many addresses as it wants.
"""

import http.client
import socket
import threading
import uuid

from datagrams import DIALECTS, SOAP
from network import Cable, Process, expect
from wire import inside, measured, resident_bytes

PROXY, PORT = "fd77::1", 8474
CONFIG = f'[discovery.proxy]\nlisten = "[{PROXY}]:{PORT}"\n'
# As docs/reference/discovery-proxy.md says.
OF_ONE_NETWORK, OF_ALL = 8, 64
ADDRESSES, NETWORKS, ATTEMPTS = 10, 9, 10
HELLOS = 600
# 64 subscribers for whom at most 512 changed devices wait, which share what they are told.
GROWTH_MAX = 96 << 20
EVENTING = "http://schemas.xmlsoap.org/ws/2004/08/eventing"
NAMES = DIALECTS["2009"]
ACTIONS = f"{NAMES['wsd']}/Hello {NAMES['wsd']}/Bye"


def envelope(action: str, body: str) -> bytes:
    return (f"<s:Envelope xmlns:s='{SOAP}' xmlns:a='{NAMES['wsa']}' xmlns:d='{NAMES['wsd']}' xmlns:e='{EVENTING}' "
            f"xmlns:p='{NAMES['dpws']}'><s:Header><a:Action>{action}</a:Action><a:MessageID>{uuid.uuid4().urn}"
            f"</a:MessageID><a:To>urn:docs-oasis-open-org:ws-dd:ns:discovery:2009:01</a:To></s:Header>"
            f"<s:Body>{body}</s:Body></s:Envelope>").encode()


def subscribe(sink: str) -> bytes:
    padding = f"<x:r xmlns:x='urn:x'>{'y' * 3_000}</x:r>"
    return envelope(f"{EVENTING}/Subscribe", (
        f"<e:Subscribe><e:Delivery><e:NotifyTo><a:Address>{sink}</a:Address><a:ReferenceParameters>{padding}"
        f"</a:ReferenceParameters></e:NotifyTo></e:Delivery><e:Expires>PT1H</e:Expires>"
        f"<e:Filter Dialect='{NAMES['dpws']}/Action'>{ACTIONS}</e:Filter></e:Subscribe>"))


def hello(number: int, host: str, version: int) -> bytes:
    scopes = " ".join(f"http://s.example/{version}/{one}/{'z' * 80}" for one in range(30))
    return envelope(f"{NAMES['wsd']}/Hello", (
        f"<d:Hello><a:EndpointReference><a:Address>urn:uuid:00000000-0000-0000-0000-{number:012}</a:Address>"
        f"</a:EndpointReference><d:Types>p:Device</d:Types><d:Scopes>{scopes}</d:Scopes>"
        f"<d:XAddrs>http://[{host}]:9/{version}</d:XAddrs><d:MetadataVersion>{version}</d:MetadataVersion></d:Hello>"))


class Host:
    """A host at end B whose event sink accepts connections, and never answers."""

    def __init__(self, cable: Cable, address: str):
        self.address = address
        with inside(cable.names["B"]):
            self.sink = socket.create_server((address, 0), family=socket.AF_INET6, backlog=64)
            self.connection = http.client.HTTPConnection(PROXY, PORT, timeout=60, source_address=(address, 0))
            self.connection.connect()
        self.held: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                self.held.append(self.sink.accept()[0])
            except OSError:
                return

    def post(self, body: bytes) -> bytes:
        self.connection.request("POST", "/", body, {"Content-Type": "application/soap+xml"})
        return self.connection.getresponse().read()

    def subscribed(self, count: int) -> int:
        sink = f"http://[{self.address}]:{self.sink.getsockname()[1]}"
        return sum(b"SubscribeResponse" in self.post(subscribe(f"{sink}/{one}")) for one in range(count))

    def close(self) -> None:
        self.connection.close()
        self.sink.close()
        for one in self.held:
            one.close()


def prepare(cable: Cable) -> tuple[list[str], list[str]]:
    """Addresses of one network, and of networks of their own."""
    def ip(end: str, *words: str) -> None:
        cable.run(end, "ip", "-6", *words).check_returncode()
    ip("A", "addr", "add", f"{PROXY}/64", "dev", "a0", "nodad")
    of_one = [f"fd77::1:{number:x}" for number in range(1, ADDRESSES + 1)]
    of_many = [f"fd78:0:0:{number:x}::2" for number in range(1, NETWORKS + 1)]
    ip("A", "route", "add", "fd78::/48", "dev", "a0")
    for address in [*of_one, *of_many]:
        ip("B", "addr", "add", f"{address}/{64 if address in of_one else 48}", "dev", "b0", "nodad")
    return of_one, of_many


def check(cable: Cable, of_one: list[str], of_many: list[str], node: Process) -> None:
    hosts = [Host(cable, address) for address in of_one]
    granted = sum(host.subscribed(ATTEMPTS) for host in hosts)
    measured(f"subscriptions of {ADDRESSES} addresses of one /64, {ATTEMPTS} asked by each", granted)
    expect(0 < granted <= OF_ONE_NETWORK, f"one network has at most {OF_ONE_NETWORK}, whatever address it uses")
    others = [Host(cable, address) for address in of_many]
    each = [host.subscribed(ATTEMPTS) for host in others]
    measured(f"subscriptions of {NETWORKS} other networks", each)
    expect(all(0 < one <= OF_ONE_NETWORK for one in each), "each other network gets some, and at most as many")
    before = resident_bytes(node.process.pid)
    for version in range(HELLOS):
        number = version % len(others)
        others[number].post(hello(number, others[number].address, version + 1))
    growth = resident_bytes(node.process.pid) - before
    measured(f"memory of the proxy after {HELLOS} changes that no sink takes", f"{before >> 10} + {growth >> 10} KiB")
    expect(growth <= GROWTH_MAX, f"it grew by no more than {GROWTH_MAX >> 20} MiB")
    for host in [*hosts, *others]:
        host.close()
    expect(node.process.poll() is None, "the proxy lives")
