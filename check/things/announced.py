"""The directory of things in DNS-SD, in the hands of zeroconf, a client of multicast DNS in Python.

Two nodes on one host announce their directories. zeroconf browses for directories, reads the records of both, and hears
that one of them ends. The Thing Description is where they say.
"""

import json
import pathlib
import queue
import urllib.parse
import urllib.request

from network import Process, expect, until

KIND = "_wot._tcp.local."
DIRECTORIES = "_directory._sub." + KIND
CONFIGURATION = """
name = "{name}"
data_directory = "{folder}/data"
sensors_directory = "{folder}/sensors"
[http]
listen = "127.0.0.1:0"
[discovery]
interfaces = ["lo"]
dns_sd = true
"""
PATIENCE_MS = 10_000


def start(chappe: str, work: pathlib.Path, name: str) -> tuple[Process, str]:
    folder = work / name
    (folder / "sensors").mkdir(parents=True)
    (folder / "node.toml").write_text(CONFIGURATION.format(folder=folder, name=name))
    node = Process([chappe, "serve", str(folder / "node.toml"), "--json"], folder / "node.log")
    return node, node.wait_event("ready", 30)["address"]


def described(address: str, host: str) -> dict:
    """The Thing Description at an address, asked by the name of the host."""
    request = urllib.request.Request(address, headers={"Host": host})
    return json.loads(urllib.request.urlopen(request, timeout=30).read())


def check(chappe: str, work: pathlib.Path) -> None:
    try:
        from zeroconf import IPVersion, ServiceBrowser, ServiceListener, Zeroconf
    except ImportError:
        print("   skipped: zeroconf is not installed", flush=True)
        return

    class Heard(ServiceListener):
        def __init__(self) -> None:
            self.added, self.removed = queue.Queue(), queue.Queue()

        def add_service(self, zc, type_, name) -> None:
            self.added.put(name)

        def remove_service(self, zc, type_, name) -> None:
            self.removed.put(name)

        def update_service(self, zc, type_, name) -> None:
            pass

    print("-- zeroconf", flush=True)
    client = Zeroconf(interfaces=["127.0.0.1"], ip_version=IPVersion.V4Only)
    nodes = {name: start(chappe, work, name) for name in ("north", "south")}
    try:
        heard = Heard()
        browser = ServiceBrowser(client, DIRECTORIES, heard)
        found = sorted(heard.added.get(timeout=60) for _ in nodes)
        expect([name.split()[0] for name in found] == ["north", "south"], f"both directories of one host are found: {found}")
        for instance in found:
            _, url = nodes[instance.split()[0]]
            info = client.get_service_info(KIND, instance, PATIENCE_MS)
            port = urllib.parse.urlparse(url).port
            expect((info.parsed_addresses(), info.port) == (["127.0.0.1"], port), f"address and port of {instance}")
            texts = {key.decode(): value.decode() for key, value in info.properties.items()}
            expect(texts["type"] == "Directory" and texts["scheme"] == "http", f"what it says: {texts}")
            host = info.server.rstrip(".")
            thing = described(f"http://127.0.0.1:{port}{texts['td']}", f"{host}:{port}")
            expect("ThingDirectory" in json.dumps(thing["@type"]), f"its Thing Description, asked as {host}")
        nodes["south"][0].stop()
        until(20, "the end of a directory", lambda: not heard.removed.empty())
        expect(heard.removed.get().startswith("south"), "a node that stops takes its directory back")
        browser.cancel()
    finally:
        client.close()
        for node, _ in nodes.values():
            node.stop()
