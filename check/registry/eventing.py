"""A subscriber to the registry by WS-Eventing, written in Python from the W3C's text of 15 March 2006.

    python check/registry/eventing.py CHAPPE WORK

The sink is Python's http.server with xml.etree; it shares no code with Chappe. It subscribes to devices of a name, is
notified of each change and of the end of a lease, asks for its status, renews, ends its subscription, and receives
SubscriptionEnd when the node stops. Loopback only.
"""

import http.server
import json
import os
import pathlib
import queue
import subprocess
import sys
import threading
import urllib.error
import urllib.request
import uuid
import xml.etree.ElementTree as ET

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from network import CheckFailed, Process, run_in  # noqa: E402

SOAP = "http://www.w3.org/2003/05/soap-envelope"
WSA = "http://www.w3.org/2005/08/addressing"
WSE = "http://schemas.xmlsoap.org/ws/2004/08/eventing"
EVENTS = "https://chappe.example/ns/registry/"
CONFIGURATION = """
name = "eventing"
data_directory = "data"
sensors_directory = "sensors"
[http]
listen = "127.0.0.1:0"
[discovery]
enabled = false
contact = ["127.0.0.1/32"]
"""


class Sink(http.server.BaseHTTPRequestHandler):
    """Takes messages and answers 202, as one-way messages are answered over HTTP."""

    protocol_version = "HTTP/1.1"
    messages: queue.Queue = queue.Queue()

    def do_POST(self) -> None:  # noqa: N802
        text = self.rfile.read(int(self.headers["Content-Length"]))
        envelope = ET.fromstring(text)
        action = envelope.findtext(f"{{{SOAP}}}Header/{{{WSA}}}Action", "").strip()
        Sink.messages.put((action, envelope.find(f"{{{SOAP}}}Body")[0]))
        self.send_response(202)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_arguments) -> None:
        pass


def ask(url: str, action: str, body: str, to: str | None = None) -> ET.Element:
    """Sends a request; returns the first element of the answer's body, or the body if it is empty."""
    message = (f'<s:Envelope xmlns:s="{SOAP}" xmlns:a="{WSA}" xmlns:e="{WSE}"><s:Header>'
               f"<a:Action>{WSE}/{action}</a:Action><a:MessageID>urn:uuid:{uuid.uuid4()}</a:MessageID>"
               f"<a:ReplyTo><a:Address>{WSA}/anonymous</a:Address></a:ReplyTo><a:To>{to or url}</a:To>"
               f"</s:Header><s:Body>{body}</s:Body></s:Envelope>")
    request = urllib.request.Request(url, message.encode(), {"Content-Type": "application/soap+xml; charset=utf-8"})
    try:
        answer = urllib.request.urlopen(request, timeout=30).read()
    except urllib.error.HTTPError as error:
        answer = error.read()
        if not answer.lstrip().startswith(b"<"):
            raise CheckFailed(f"{action}: {error}: {answer[:200]!r}") from error
    body = ET.fromstring(answer).find(f"{{{SOAP}}}Body")
    return next(iter(body), body)


def expect(element: ET.Element, name: str) -> ET.Element:
    if element.tag != f"{{{WSE}}}{name}":
        raise CheckFailed(f"{name} expected, not {ET.tostring(element)!r}")
    return element


def check(chappe: str, work: pathlib.Path) -> None:
    (work / "sensors").mkdir()
    (work / "node.toml").write_text(CONFIGURATION)
    sink = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Sink)
    threading.Thread(target=sink.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{sink.server_port}/events"
    node = Process([chappe, "serve", str(work / "node.toml"), "--json"], work / "node.log")
    try:
        url = node.wait_event("ready", 30)["address"]
        token = (work / "data" / "new-token").read_text().strip()

        def post(path: str, body: dict) -> None:
            request = urllib.request.Request(url + path, json.dumps(body).encode(), {
                "Authorization": f"Bearer {token}", "Content-Type": "application/json"})
            urllib.request.urlopen(request, timeout=30).read()

        def subscribe() -> str:
            source = f"{url}/registry/events?prefix=pump"
            answer = expect(ask(source, "Subscribe", f"<e:Subscribe><e:EndTo><a:Address>{address}</a:Address></e:EndTo>"
                                f'<e:Delivery Mode="{WSE}/DeliveryModes/Push"><e:NotifyTo><a:Address>{address}'
                                "</a:Address></e:NotifyTo></e:Delivery><e:Expires>PT10M</e:Expires></e:Subscribe>"),
                            "SubscribeResponse")
            return answer.findtext(f"{{{WSE}}}SubscriptionManager/{{{WSA}}}Address").strip()

        manager = subscribe()
        post("/api/v1/entities", {"key": "urn:x:1", "name": "Monitor"})
        post("/api/v1/entities", {"key": "urn:x:2", "name": "Pump Ärzte"})
        post("/api/v1/entities", {"key": "urn:x:2", "name": "Pump two", "lease_s": 1})
        for kind, name in [("Added", "Pump Ärzte"), ("Changed", "Pump two"), ("Removed", "Pump two")]:
            action, body = Sink.messages.get(timeout=60)
            said = (action, body.tag, body.findtext(f"{{{EVENTS}}}Key"), body.findtext(f"{{{EVENTS}}}Name"))
            if said != (EVENTS + kind, f"{{{EVENTS}}}{kind}", "urn:x:2", name):
                raise CheckFailed(f"{kind} of {name} expected, not {said}")
        expect(ask(manager, "GetStatus", "<e:GetStatus/>"), "GetStatusResponse")
        expect(ask(manager, "Renew", "<e:Renew><e:Expires>PT20M</e:Expires></e:Renew>"), "RenewResponse")
        print("   ok: WS-Eventing from Python: changes and the end of a lease, in order; status and renewal", flush=True)
        ended = ask(manager, "Unsubscribe", "<e:Unsubscribe/>")
        if ended.tag != f"{{{SOAP}}}Body":
            raise CheckFailed(f"Unsubscribe: {ET.tostring(ended)!r}")
        post("/api/v1/entities", {"key": "urn:x:3", "name": "Pump three"})
        subscribe()
        node.stop()
        action, body = Sink.messages.get(timeout=60)
        if action != f"{WSE}/SubscriptionEnd" or "SourceShuttingDown" not in body.findtext(f"{{{WSE}}}Status", ""):
            raise CheckFailed(f"SubscriptionEnd expected, not {action} {ET.tostring(body)!r}")
        print("   ok: nothing after Unsubscribe; SubscriptionEnd when the node stops", flush=True)
    finally:
        node.stop()
        sink.shutdown()


def main() -> None:
    chappe, folder = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2]).absolute()
    run_in(folder, lambda: check(chappe, folder), (subprocess.SubprocessError, queue.Empty))
    print("   all passed")


if __name__ == "__main__":
    main()
