"""A subscriber to the registry by WS-Eventing, written in Python from the W3C's text of 15 March 2006.

    python check/registry/eventing.py CHAPPE WORK

The sink is Python's http.server with xml.etree; it shares no code with Chappe. It subscribes to devices of a name, is
notified of each change and of the end of a lease, asks for its status, renews and ends its subscription. Another
subscription goes on when the node is stopped and when it is killed, and ends with its account. `chappe registry subscribe
--eventing` is the sink of another: it prints each change once, for longer than its lease. Loopback only.
"""

import http.server
import json
import os
import pathlib
import queue
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
import xml.etree.ElementTree as ET

sys.dont_write_bytecode = True
from nodes import CheckFailed, Node, run_in  # noqa: E402

SOAP = "http://www.w3.org/2003/05/soap-envelope"
WSA = "http://www.w3.org/2005/08/addressing"
WSE = "http://schemas.xmlsoap.org/ws/2004/08/eventing"
KILLS = 5
EVENTS = "https://chappe.example/ns/registry/"
# A sink on the loopback has to be named.
CONFIGURATION = """
[discovery]
enabled = false
contact = ["127.0.0.1/32"]
"""


class Sink:
    """Takes messages and answers 202, as one-way messages are answered over HTTP."""

    def __init__(self) -> None:
        self.messages: queue.Queue[tuple[str, ET.Element]] = queue.Queue()
        messages = self.messages

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:  # noqa: N802
                text = self.rfile.read(int(self.headers["Content-Length"]))
                envelope = ET.fromstring(text)
                action = envelope.findtext(f"{{{SOAP}}}Header/{{{WSA}}}Action", "").strip()
                messages.put((action, envelope.find(f"{{{SOAP}}}Body")[0]))
                self.send_response(202)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_arguments) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        # A node that is killed cuts its connections.
        self.server.handle_error = lambda _request, _address: None
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.address = f"http://127.0.0.1:{self.server.server_port}/events"

    def subscribe(self, source: str, token: str | None = None) -> str:
        """Subscribes to an event source, as an account with a token; returns the address of the subscription manager."""
        to = f"<a:Address>{self.address}</a:Address>"
        body = (f'<e:Subscribe><e:EndTo>{to}</e:EndTo><e:Delivery Mode="{WSE}/DeliveryModes/Push">'
                f"<e:NotifyTo>{to}</e:NotifyTo></e:Delivery><e:Expires>PT10M</e:Expires></e:Subscribe>")
        answer = expect(ask(source, "Subscribe", body, token), "SubscribeResponse")
        return answer.findtext(f"{{{WSE}}}SubscriptionManager/{{{WSA}}}Address").strip()

    def stop(self) -> None:
        self.server.shutdown()


def ask(url: str, action: str, body: str, token: str | None = None) -> ET.Element:
    """Sends a request; returns the first element of the answer's body, or the body if it is empty."""
    message = (f'<s:Envelope xmlns:s="{SOAP}" xmlns:a="{WSA}" xmlns:e="{WSE}"><s:Header>'
               f"<a:Action>{WSE}/{action}</a:Action><a:MessageID>urn:uuid:{uuid.uuid4()}</a:MessageID>"
               f"<a:ReplyTo><a:Address>{WSA}/anonymous</a:Address></a:ReplyTo><a:To>{url}</a:To>"
               f"</s:Header><s:Body>{body}</s:Body></s:Envelope>")
    headers = {"Content-Type": "application/soap+xml; charset=utf-8"} | ({"Authorization": f"Bearer {token}"} if token else {})
    request = urllib.request.Request(url, message.encode(), headers)
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


def changed(message: tuple[str, ET.Element]) -> tuple[str, str, str]:
    """The kind of a change, and the key and the name of its entity."""
    action, body = message
    kind = action.removeprefix(EVENTS)
    if body.tag != f"{{{EVENTS}}}{kind}":
        raise CheckFailed(f"a change expected, not {action} {ET.tostring(body)!r}")
    return kind, body.findtext(f"{{{EVENTS}}}Key", ""), body.findtext(f"{{{EVENTS}}}Name", "")


def next_of(sink: Sink, wanted: str) -> ET.Element:
    """The body of the next message with this action."""
    while True:
        action, body = sink.messages.get(timeout=60)
        if action == wanted:
            return body


def restarted(node: Node, sink: Sink, manager: str, publish) -> None:
    """A subscription goes on when the node is stopped, and when it is killed."""
    publish("urn:x:4", "Pump four")
    sink.messages.get(timeout=60)
    node.process.stop()
    node.start()
    publish("urn:x:5", "Pump five")
    found = changed(sink.messages.get(timeout=60))
    if found != ("Added", "urn:x:5", "Pump five"):
        raise CheckFailed(f"urn:x:5 expected after a restart, and nothing twice, not {found}")
    for number in range(KILLS):
        # The node is killed while the sink may have the event and the node not know it.
        publish(f"urn:x:kill-{number}", f"Pump {number}")
        node.process.stop(signal.SIGKILL)
        node.start()
    wanted = {f"urn:x:kill-{number}" for number in range(KILLS)}
    repeated = 0
    while wanted:
        kind, key, _ = changed(sink.messages.get(timeout=60))
        if kind != "Added":
            raise CheckFailed(f"{kind} of {key} after a kill")
        repeated += key not in wanted
        wanted.discard(key)
    path = urllib.parse.urlparse(manager).path
    expect(ask(node.url + path, "GetStatus", "<e:GetStatus/>"), "GetStatusResponse")
    print(f"   ok: a subscription outlives a restart, and {KILLS} kills, which repeat {repeated} events and lose none", flush=True)
    ask(node.url + path, "Unsubscribe", "<e:Unsubscribe/>")


def by_the_program(chappe: str, node: Node, publish) -> None:
    """A sink of the command line with a lease of four seconds: what is published within several of them arrives once."""
    command = [chappe, "registry", "subscribe", "valve", "--eventing", "--json", "--lease", "4s", "--node", node.url]
    environment = {**os.environ, "CHAPPE_TOKEN": node.token}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    lines: queue.Queue[dict] = queue.Queue()
    threading.Thread(target=lambda: [lines.put(json.loads(line)) for line in process.stdout], daemon=True).start()
    try:
        heard, end = [], None
        for number in range(10_000):
            publish(f"urn:x:valve-{number}", f"Valve {number}")
            try:
                # The first of them precede the subscription.
                heard.append(lines.get(timeout=0.1 if not heard else 60))
            except queue.Empty:
                continue
            end = end or time.monotonic() + 13
            if time.monotonic() > end:
                break
        numbers = [int(line["key"].rpartition("-")[2]) for line in heard if line["event"] == "added"]
        if len(numbers) != len(heard) or numbers != list(range(numbers[0], numbers[0] + len(numbers))):
            raise CheckFailed(f"one change after the other expected, not {heard}")
        process.send_signal(signal.SIGINT)
        if process.wait(60) != 0:
            raise CheckFailed(f"the exit code 0 expected after an interrupt, not {process.returncode}")
        print(f"   ok: `chappe registry subscribe --eventing`: {len(numbers)} changes over three leases, each once", flush=True)
    finally:
        process.kill()


def check(chappe: str, work: pathlib.Path) -> None:
    sink = Sink()
    node = Node(chappe, work / "eventing", CONFIGURATION)
    try:
        def publish(key: str, name: str, **more: int) -> None:
            node.rest("POST", "entities", {"key": key, "name": name, **more})

        def subscribe() -> str:
            return sink.subscribe(f"{node.url}/registry/events?prefix=pump")

        manager = subscribe()
        publish("urn:x:1", "Monitor")
        publish("urn:x:2", "Pump Ärzte")
        publish("urn:x:2", "Pump two", lease_s=1)
        for kind, name in [("Added", "Pump Ärzte"), ("Changed", "Pump two"), ("Removed", "Pump two")]:
            found = changed(sink.messages.get(timeout=60))
            if found != (kind, "urn:x:2", name):
                raise CheckFailed(f"{kind} of {name} expected, not {found}")
        expect(ask(manager, "GetStatus", "<e:GetStatus/>"), "GetStatusResponse")
        expect(ask(manager, "Renew", "<e:Renew><e:Expires>PT20M</e:Expires></e:Renew>"), "RenewResponse")
        print("   ok: WS-Eventing from Python: changes and the end of a lease, in order; status and renewal", flush=True)
        ended = ask(manager, "Unsubscribe", "<e:Unsubscribe/>")
        if ended.tag != f"{{{SOAP}}}Body":
            raise CheckFailed(f"Unsubscribe: {ET.tostring(ended)!r}")
        publish("urn:x:3", "Pump three")
        manager = subscribe()
        restarted(node, sink, manager, publish)
        ada = node.rest("POST", "accounts", {"name": "ada", "roles": ["read"]})["token"]
        sink.subscribe(f"{node.url}/registry/events?key=urn:x:9", ada)
        node.rest("DELETE", "accounts/ada")
        publish("urn:x:9", "Pump nine")
        end = next_of(sink, f"{WSE}/SubscriptionEnd")
        if "SourceCancelling" not in end.findtext(f"{{{WSE}}}Status", ""):
            raise CheckFailed(f"SourceCancelling expected, not {ET.tostring(end)!r}")
        print("   ok: nothing after Unsubscribe; SubscriptionEnd when the account ends", flush=True)
        by_the_program(chappe, node, publish)
    finally:
        node.process.stop()
        sink.stop()


def main() -> None:
    chappe, folder = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2]).absolute()
    run_in(folder, lambda: check(chappe, folder), (subprocess.SubprocessError, queue.Empty))
    print("   all passed")


if __name__ == "__main__":
    main()
