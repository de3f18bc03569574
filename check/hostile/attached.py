"""Attached devices that attack their node: documents made of comments, reports of thousands of changes, events with
foreign children, endless names. Meanwhile an honest client of the node gets answers, and memory is bounded.
"""

import gzip
import re
import time
import uuid

from datagrams import SOAP
from device import SOAP_TYPE
from documents import (EVENTING, HONEST_MAX_MS, NAMES, NODE_GROWTH_MAX, STRANGER, XSD, Stranger, description,
                       from_here, peak_bytes, reply)
from network import Cable, Process, expect, until
from wire import Honest, Web, measured

SDC = "http://standards.ieee.org/downloads/11073/11073-20701-2018"
BICEPS = "http://standards.ieee.org/downloads/11073/11073-10207-2017"
MODIFIED = f"{SDC}/DescriptionEventService/DescriptionModificationReport"
REPORTED = f"{SDC}/StateEventService/EpisodicMetricReport"
SPACES = (f"xmlns:m='{BICEPS}/message' xmlns:q='{BICEPS}/participant' "
          "xmlns:x='http://www.w3.org/2001/XMLSchema-instance' SequenceId='urn:s'")
METRICS, SERVICES, COMMENT_BYTES = 512, 16, 4_000_000
LONG = "x" * 1_000_000  # what is named without end
NAMED, HANDLES, HANDLE_BYTES = 1_000, 100, 3_500_000
SETTLED_S = 2  # a report is answered before it is read


class Attached(Stranger):
    """A device that grants subscriptions, serves schemas of comments, and posts events."""

    def __init__(self, cable: Cable, types: str, wsdl: str, services: int = 1, metrics: str = "", system: str = "d"):
        self.metrics, self.system = metrics, system
        self.types, self.notify_to, self.action, self.fetched = types, "", "", 0
        super().__init__(cable, wsdl=wsdl, services=services)
        self.namespace = cable.names["B"]
        handler = self.server.RequestHandlerClass
        metadata, device = handler.do_POST, self
        schema = gzip.compress(f"<s:schema xmlns:s='{XSD}'><!--{'x' * COMMENT_BYTES}--></s:schema>".encode())

        class Handler(handler):
            def do_POST(self) -> None:
                length = int(self.headers.get("Content-Length", 0))
                asked = self.rfile.peek(length) if length < 4_096 else b""
                known = next((name for name in (b"/Subscribe<", b"/Renew<", b"/GetMdib<") if name in asked), b"")
                if not known:
                    return metadata(self)
                asked = self.rfile.read(length)
                body = device.granted(asked) if known != b"/GetMdib<" else device.mdib()
                self.answer(reply(asked, "urn:answer", body), SOAP_TYPE)

            def do_GET(self) -> None:
                device.fetched += 1
                self.answer(schema, "text/xml", "gzip")

            def answer(self, body: bytes, kind: str, encoding: str = "identity") -> None:
                self.send_response(200)
                for name, value in (("Content-Type", kind), ("Content-Encoding", encoding),
                                    ("Content-Length", str(len(body)))):
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

        self.server.RequestHandlerClass = Handler

    def metadata(self) -> str:
        return super().metadata().replace("<p:Types xmlns:t='urn:t'>t:P</p:Types>", self.types)

    def granted(self, asked: bytes) -> str:
        to = re.search(rb"NotifyTo>.*?Address[^>]*>([^<]+)<", asked, re.S)
        if to:
            self.notify_to = to.group(1).decode()
            self.action = re.search(rb"Filter[^>]*>\s*([^<\s]+)", asked).group(1).decode()
        answer = "SubscribeResponse" if to else "RenewResponse"
        manager = f"<e:SubscriptionManager><a:Address>{self.url}/m</a:Address></e:SubscriptionManager>" if to else ""
        return f"<e:{answer} xmlns:e='{EVENTING}'>{manager}<e:Expires>PT1H</e:Expires></e:{answer}>"

    def mdib(self) -> str:
        metrics = self.metrics or "".join(f"<q:Metric x:type='q:NumericMetricDescriptor' Handle='{handle(n)}'>"
                                          "<q:Unit Code='262656'/></q:Metric>" for n in range(METRICS))
        return (f"<m:GetMdibResponse {SPACES} MdibVersion='1'><m:Mdib><q:MdDescription><q:Mds Handle='{self.system}'>"
                f"{metrics}</q:Mds></q:MdDescription></m:Mdib></m:GetMdibResponse>")

    def post(self, action: str, body: str) -> int:
        host, port, path = re.match(r"http://([\d.]+):(\d+)(/.*)", self.notify_to).groups()
        text = (f"<s:Envelope xmlns:s='{SOAP}' xmlns:a='{NAMES['wsa']}'><s:Header><a:Action>{action}</a:Action>"
                f"<a:MessageID>{uuid.uuid4().urn}</a:MessageID><a:To>{self.notify_to}</a:To></s:Header>"
                f"<s:Body>{body}</s:Body></s:Envelope>")
        web = Web(self.namespace, host, int(port), STRANGER)
        return web.ask("POST", path, gzip.compress(text.encode(), 1), 120, Content_Type=SOAP_TYPE,
                       Content_Encoding="gzip")[0]


def handle(number: int) -> str:
    """Two characters that column names cannot contain, so all metrics map to the same name."""
    return "é" + chr(0x4E00 + number)


def modified(version: int, parts: str) -> str:
    name = "m:DescriptionModificationReport"
    return f"<{name} {SPACES} MdibVersion='{version}'>{parts}</{name}>"


def part(kind: str, descriptors: str, parent: str = "d") -> str:
    return f"<m:ReportPart ModificationType='{kind}' ParentDescriptor='{parent}'>{descriptors}</m:ReportPart>"


def reports() -> dict[str, str]:
    """The bodies of reports, each below 4 MiB."""
    def units(turn: int) -> str:
        return "".join(f"<m:Descriptor x:type='q:NumericMetricDescriptor' Handle='{handle(n)}'>"
                       f"<q:Unit Code='{1_000 * turn + n}'/></m:Descriptor>" for n in range(METRICS))
    circle = "".join(part("Upt", f"<m:Descriptor Handle='c{n}'/>", f"c{(n + 1) % 64}") for n in range(64))
    below = "".join(f"<m:Descriptor x:type='q:NumericMetricDescriptor' Handle='{handle(n)}'><q:Unit Code='262656'/>"
                    "</m:Descriptor>" for n in range(METRICS))
    return {
        "a tree that is a circle": modified(2, circle + part("Upt", below, "c0")),
        "100,000 removals": modified(3, part("Del", "<m:Descriptor Handle='z'/>" * 100_000)),
        "30,000 removals, each by itself": modified(4, part("Del", "<m:Descriptor Handle='z'/>") * 30_000),
        "30,000 changes of metrics of one name": modified(5, "".join(part("Upt", units(n)) for n in range(60))),
    }


def reported(states: str, sequence: str = "urn:s") -> str:
    name = "m:EpisodicMetricReport"
    spaces = SPACES.replace("urn:s", sequence)
    return f"<{name} {spaces} MdibVersion='1'><m:ReportPart>{states}</m:ReportPart></{name}>"


def state(of: str) -> str:
    return f"<m:MetricState DescriptorHandle='{of}'/>"


def wide() -> str:
    fields = "".join(f"<s:element name='f{n}' type='s:int' minOccurs='0'/>" for n in range(1_000))
    return description(f"<s:schema xmlns:s='{XSD}' xmlns='urn:t' targetNamespace='urn:t'><s:element name='E'>"
                       f"<s:complexType><s:sequence>{fields}</s:sequence></s:complexType></s:element></s:schema>")


def comments() -> str:
    imports = "".join(f"<s:import namespace='urn:i{n}' schemaLocation='/{n}'/>" for n in range(32))
    return description(f"<s:schema xmlns:s='{XSD}' xmlns='urn:t' targetNamespace='urn:t'>{imports}"
                       "<s:element name='E' type='s:int'/></s:schema>")


def check(cable: Cable, node: Process, address: str) -> None:
    host, port = re.match(r"http://([\d.]+):(\d+)", address).groups()
    web = Web(cable.names["A"], host, int(port))

    def ask() -> tuple[int, dict, bytes]:
        return web.ask("GET", "/api/v1/devices")

    def judged(what: str, attack) -> None:
        memory, honest = from_here(node.process.pid), Honest(ask)
        attack()
        count, _ = honest.stop()
        slowest = 1000 * max(honest.times)
        growth = peak_bytes(node.process.pid) - memory
        measured(what, f"{growth >> 20} MiB at the peak, the slowest of {count} honest answers {slowest:.0f} ms")
        expect(not honest.failures and slowest <= HONEST_MAX_MS and growth <= NODE_GROWTH_MAX,
               f"{what}: an honest client is answered in time, and less than {NODE_GROWTH_MAX >> 20} MiB are taken")

    services = " ".join(f"t:{name}Service" for name in ("Get", "StateEvent", "DescriptionEvent", "Waveform"))
    medical = Attached(cable, f"<p:Types xmlns:t='{SDC}'>{services}</p:Types>", "")
    until(20, "a medical device attached", lambda: medical.notify_to and b'"usable"' in ask()[2])
    for what, body in reports().items():
        judged(what, lambda body=body: expect(medical.post(MODIFIED, body) == 202, "the report is taken"))

    def name(bodies: list[str]) -> None:
        for body in bodies:
            medical.post(REPORTED, body)
        time.sleep(SETTLED_S)
    judged(f"a sequence of {len(LONG)} bytes, named by {NAMED} states",
           lambda: name([reported(state("h") * NAMED, LONG)]))
    judged(f"{HANDLES} handles of {HANDLE_BYTES} bytes",
           lambda: name([reported(state(f"{n}{'x' * HANDLE_BYTES}")) for n in range(HANDLES)]))
    medical.close()
    below = "".join(f"<q:Metric Handle='{n}'/>" for n in range(NAMED))
    described = Attached(cable, f"<p:Types xmlns:t='{SDC}'>{services}</p:Types>", "", 1, below, LONG)

    def read() -> None:
        until(20, "a description read", lambda: described.notify_to)
        time.sleep(SETTLED_S)
    judged(f"{NAMED} descriptors below a handle of {len(LONG)} bytes", read)
    described.close()
    names = " ".join(f"t:A{n}" for n in range(250))
    typed = Attached(cable, f"<p:Types xmlns:t='urn:{'n' * 1_000}'>{names}</p:Types>", wide(), 60)
    until(20, "a device with names of types described", lambda: typed.notify_to)
    size = len(ask()[2])
    expect(size <= 1 << 20, f"the list of devices does not repeat 15,000 names of a kilobyte: {size} bytes")
    typed.close()
    flat = Attached(cable, "<p:Types xmlns:t='urn:t'>t:P</p:Types>", wide())
    until(20, "a device with a wide event attached", lambda: flat.notify_to)
    event = f"<E xmlns='urn:t'>{'<g/>' * 300_000}</E>"
    judged("300,000 foreign children", lambda: expect(flat.post(flat.action, event) == 202, "the event is taken"))
    flat.close()
    talker = Attached(cable, "<p:Types xmlns:t='urn:t'>t:P</p:Types>", comments(), SERVICES)
    judged("schemas of comments", lambda: until(20, "hundreds of schemas", lambda: talker.fetched > 30 * SERVICES // 2))
    talker.close()
    expect(node.process.poll() is None, "the node lives")
