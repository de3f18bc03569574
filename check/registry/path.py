"""From a device that appears to a virtual sensor that binds by what somebody says of it, and to those who hear of it.

    python check/registry/path.py CHAPPE WORK JARS

1. UDDI4J looks for a service. Its device appears; within a second UDDI4J finds it by find_service and reads its binding,
   and zeep finds it by its WSDL, by findServicesByInterface.
2. An account attaches metadata to the device, and a virtual sensor that asks for this metadata of this author binds to the
   device's stream. The same metadata of another author binds nothing.
3. The metadata is deleted, or in a second round its lease ends, and the sensor releases the stream.
4. A subscriber by server-sent events, one by WS-Eventing and one by e-mail hear of each of these changes, and that the device leaves.

Needs the Python packages and jars of the group `registry` in `check/peers`. Enters namespaces of its own, so that no other
device or node is found.
"""

import os
import pathlib
import queue
import subprocess
import sys
import urllib.parse

from zeep import Client

sys.dont_write_bytecode = True
import eventing  # noqa: E402
import mail  # noqa: E402
import run  # noqa: E402
from follow import Follower  # noqa: E402
from network import enter, until  # noqa: E402
from nodes import Node, Process, expect, run_in  # noqa: E402

SERVICE = "PeerPulse"
# From the moment at which the device is ready.
FOUND_MAX_S = 1.0
LEASE_S = 2
TYPE, VALUE = "urn:example:quality", "calibrated"
CONFIGURATION = """
[discovery]
interfaces = ["lo"]
contact = ["127.0.0.1/32"]
"""
SENSOR = f"""
name = "calibrated"
[[source]]
alias = "s"
query = {{ name_prefix = "", metadata = [{{ type = "{TYPE}", value = "{VALUE}", by = ["ada"] }}] }}
[output]
sql = "select rate from s"
[[output.field]]
name = "rate"
type = "double"
"""


class Subscribers:
    """One of each kind, who follow all changes."""

    def __init__(self, node: Node, work: pathlib.Path, server: mail.MailServer):
        self.server, self.sink = server, eventing.Sink()
        self.sink.subscribe(f"{node.url}/registry/events")
        node.rest("POST", "registry/subscriptions", {"mail": "ops@example.org"})
        self.follower = Follower(node)
        self.posted: list[tuple[str, str]] = []
        self.mailed = ""

    def drain(self) -> None:
        """Reads what has come."""
        while not self.sink.messages.empty():
            kind, key, _ = eventing.changed(self.sink.messages.get())
            self.posted.append((kind.lower(), key))
        while not self.server.mails.empty():
            # A long line is folded by quoted-printable.
            self.mailed += self.server.next().replace("=\r\n", "").replace("=\n", "")

    def hear(self, change: str, key: str, what: str) -> None:
        def all_heard() -> bool:
            self.drain()
            by_mail = any(line.startswith(f"{change}: ") and f"<{key}>" in line for line in self.mailed.splitlines())
            return (change, key) in self.follower.heard() and (change, key) in self.posted and by_mail
        until(20, f"{change} {key} at each subscriber", all_heard)
        expect(True, f"by server-sent events, WS-Eventing and e-mail: {what}")

    def stop(self) -> None:
        self.follower.stop()
        self.sink.stop()


def appear(chappe: str, work: pathlib.Path, node: Node, jars: pathlib.Path) -> tuple[Process, str]:
    """A device appears and is found; returns it and the key of its service in UDDI."""
    inquire, documents = (Client(f"{node.url}/uddi/{path}?wsdl").service for path in ("inquiry", "wsdl"))
    peer = Process([*run.uddi4j(work, jars, node.url), "operator", node.token, SERVICE], work / "uddi4j.log")
    peer.wait_line("waiting", 60)
    device = run.device(chappe, work)
    appeared, _ = device.wait_event_at("ready", 20)
    found, _ = peer.wait_line("ok: find_service", 30)
    expect(found - appeared < FOUND_MAX_S,
           f"UDDI4J finds the service {found - appeared:.2f} s after its device appeared")
    peer.wait_line("ok: its binding has the device's address", 30)
    peer.wait_line("done", 30)
    expect(True, "UDDI4J reads its binding")
    infos = inquire.find_service(generic="2.0", name=[{"_value_1": SERVICE}]).serviceInfos.serviceInfo
    by_wsdl = documents.findServicesByInterface(interface=f"{SERVICE}Service").serviceInfo
    expect([one.serviceKey for one in by_wsdl] == [one.serviceKey for one in infos],
           "findServicesByInterface finds it by its WSDL")
    return device, f"urn:uuid:{infos[0].serviceKey.lower()}"


def bound(node: Node) -> list[str]:
    source = node.rest("GET", "virtual-sensors/calibrated")["sources"][0]
    return [one["stream"] for one in source["bound"]]


def check(chappe: str, work: pathlib.Path, jars: pathlib.Path) -> None:
    server = mail.MailServer(work / "server")
    (work / "path" / "sensors").mkdir(parents=True)
    (work / "path" / "sensors" / "calibrated.toml").write_text(SENSOR)
    node = Node(chappe, work / "path", CONFIGURATION + server.configuration)
    device, subscribers = None, Subscribers(node, work, server)
    try:
        device, service = appear(chappe, work, node, jars)
        (found,) = node.rest("GET", "entities?kind=device")["entities"]
        key = found["key"]
        for of, what in [(key, "the device"), (service, "its service in UDDI")]:
            subscribers.hear("added", of, f"{what} appeared")
        tokens = {name: node.rest("POST", "accounts", {"name": name, "roles": ["write"]})["token"] for name in ("ada", "eve")}

        def attach(author: str, **more: int) -> str:
            piece = {"subject": key, "type": TYPE, "value": VALUE, **more}
            return node.rest("POST", "registry/metadata", piece, tokens[author])["key"]

        of_eve = attach("eve")
        subscribers.hear("added", of_eve, "eve's metadata")
        expect(not bound(node), "metadata of another author binds nothing")
        for lease in [{}, {"lease_s": LEASE_S}]:
            piece = attach("ada", **lease)
            until(20, "the sensor binds", lambda: bound(node))
            expect(True, f"the sensor binds to {bound(node)[0]} by ada's metadata")
            subscribers.hear("added", piece, "ada's metadata")
            if not lease:
                node.rest("DELETE", "registry/metadata/" + urllib.parse.quote(piece, safe=""), token=tokens["ada"])
            until(20, "the sensor unbinds", lambda: not bound(node))
            how = "the lease of her metadata is over" if lease else "she deletes it"
            expect(True, f"the sensor releases it when {how}")
            subscribers.hear("removed", piece, "its end")
        device.stop()
        subscribers.hear("removed", key, "the device left")
    finally:
        if device is not None:
            device.stop()
        subscribers.stop()
        node.process.stop()
        server.stop()


def main() -> None:
    chappe, work, jars = (os.path.abspath(argument) for argument in sys.argv[1:4])
    enter("CHAPPE_PATH_APART", [os.path.abspath(__file__), chappe, work, jars])
    folder = pathlib.Path(work)
    run_in(folder, lambda: check(chappe, folder, pathlib.Path(jars)), (subprocess.SubprocessError, queue.Empty))
    print("   all passed")


main()
