"""Nodes with a registry, and PostgreSQL for them, which checks kill and start again."""

import asyncio
import glob
import http.client
import json
import math
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys
import time
import urllib.parse

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from network import CheckFailed, Process, expect, run_in  # noqa: E402, F401

NAMESPACE = "urn:uddi-org:api_v2"


class Server:
    """PostgreSQL, as the user nobody."""

    def __init__(self, work: pathlib.Path, settings: tuple[str, ...] = ("listen_addresses=",), inside: tuple[str, ...] = ()):
        """`inside` begins the command, to run it in a namespace."""
        self.inside = inside
        self.programs = sorted(glob.glob("/usr/lib/postgresql/*/bin"))[-1]
        self.work, self.process, self.settings = work / "postgres", None, settings
        self.work.mkdir()
        self.work.chmod(0o777)
        for parent in self.work.parents:
            if not parent.stat().st_mode & 0o001:
                raise CheckFailed(f"the user nobody cannot enter {parent}")
        subprocess.run([*self.user("initdb"), "--auth=trust", "--username=chappe", "-D", f"{self.work}/data"],
                       check=True, capture_output=True)
        self.start()

    def user(self, program: str) -> list[str]:
        return ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "--", f"{self.programs}/{program}"]

    def start(self) -> None:
        end = time.monotonic() + 60
        while time.monotonic() < end:
            if self.process is None or self.process.poll() is not None:
                # After a kill the processes of the one before still end.
                self.process = subprocess.Popen(
                    [*self.inside, *self.user("postgres"), "-D", f"{self.work}/data", "-k", str(self.work),
                     *(word for setting in self.settings for word in ("-c", setting))],
                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            if self.answers():
                return
            # It needs the processor to start.
            time.sleep(0.05)
        raise CheckFailed("PostgreSQL does not start")

    @property
    def port(self) -> str:
        """The port, which names the Unix socket too."""
        ports = [setting.removeprefix("port=") for setting in self.settings if setting.startswith("port=")]
        return ports[0] if ports else "5432"

    def answers(self) -> bool:
        ask = [*self.user("pg_isready"), "-q", "-h", str(self.work), "-p", self.port]
        return subprocess.run(ask, check=False).returncode == 0

    def kill(self) -> None:
        """Kills all processes of the server, as a power cut would: one that is left could still commit."""
        self.process.send_signal(signal.SIGSTOP)
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        for child in children:
            try:
                os.kill(int(child), signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.kill()
        self.process.wait()

    def query(self, sql: str) -> str:
        done = subprocess.run([*self.user("psql"), "-h", str(self.work), "-U", "chappe", "-d", "postgres", "-XqAtc", sql],
                              check=True, capture_output=True, text=True)
        return done.stdout.strip()


class Node:
    """A node with its REST interface, in a folder; killed and started again."""

    def __init__(self, chappe: str, folder: pathlib.Path, configuration: str):
        """The configuration begins with keys of `[http]`."""
        self.chappe, self.folder, self.starts = chappe, folder, 0
        (folder / "sensors").mkdir(parents=True, exist_ok=True)
        (folder / "node.toml").write_text(f"""
name = "{folder.name}"
data_directory = "data"
sensors_directory = "sensors"
[http]
listen = "127.0.0.1:0"
{configuration}
""")
        self.start()
        self.token = (folder / "data" / "new-token").read_text().strip()

    def start(self) -> None:
        """Starts it, or starts it again after a kill."""
        self.starts += 1
        log = self.folder / f"log.{self.starts}"
        self.process = Process([self.chappe, "serve", str(self.folder / "node.toml"), "--json"], log)
        self.url = self.process.wait_event("ready", 60)["address"]

    def request(self, method: str, path: str, body: str | None = None, token: str | None = None,
                kind: str = "text/xml") -> tuple[int, str]:
        address = urllib.parse.urlparse(self.url)
        connection = http.client.HTTPConnection(address.hostname, address.port, timeout=600)
        headers = {"Content-Type": kind} | ({"Authorization": f"Bearer {token}"} if token else {})
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def rest(self, method: str, path: str, document: dict | None = None, token: str | None = None) -> dict:
        """The answer to a request in JSON, which is the operator's without a token."""
        body = None if document is None else json.dumps(document)
        status, text = self.request(method, "/api/v1/" + path, body, token or self.token, "application/json")
        expect_quiet(status < 300, f"{method} {path}: {status} {text}")
        return json.loads(text) if text else {}


class RegistryNode(Node):
    """A node with a registry of its own in the log, or one in PostgreSQL, to which many publish."""

    def __init__(self, chappe: str, work: pathlib.Path, name: str, server: Server | None = None):
        # Room for all that many rounds publish: a full share of an account is refused.
        store = """[registry]
max_bytes = 4000000000
max_entities = 10000000
"""
        store += "" if server is None else f'''store = "postgres"
[registry.postgres]
url = "postgres://chappe@/postgres?host={server.work}"'''
        super().__init__(chappe, work / name, f"""max_connections = 4096
[limits]
query_rows = 1000000
query_time_ms = 600000
[discovery]
enabled = false
{store}""")

    def publish(self, name: str, inner: str) -> tuple[int, str]:
        return self.request("POST", "/uddi/publish", soap(name, inner), self.token)

    def inquire(self, name: str, inner: str) -> tuple[int, str]:
        return self.request("POST", "/uddi/inquiry", soap(name, inner))

    async def post_soon(self, path: str, body: str, kind: str) -> tuple[int, str]:
        """Like request, without a thread; OSError or EOFError if the answer is not whole."""
        address = urllib.parse.urlparse(self.url)
        sent = body.encode()
        head = (f"POST {path} HTTP/1.0\r\nHost: {address.netloc}\r\nContent-Type: {kind}\r\n"
                f"Authorization: Bearer {self.token}\r\nContent-Length: {len(sent)}\r\n\r\n")
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        try:
            writer.write(head.encode() + sent)
            answer = await reader.read()
        finally:
            writer.transport.abort()
        head, end, text = answer.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
        if not end or length is None or len(text) != int(length[1]):
            raise EOFError("the answer is not whole")
        return int(head.split(b" ", 2)[1]), text.decode()

    async def publish_soon(self, name: str, inner: str) -> tuple[int, str]:
        """Like publish, without a thread."""
        return await self.post_soon("/uddi/publish", soap(name, inner), "text/xml")

    def select(self, query: str) -> list[dict[str, str]]:
        query = "PREFIX u: <https://chappe.example/ns/uddi#> " + query
        status, text = self.request("GET", "/api/v1/sparql?query=" + urllib.parse.quote(query))
        expect_quiet(status == 200, text)
        rows = json.loads(text)["results"]["bindings"]
        return [{name: value["value"] for name, value in row.items()} for row in rows]

    def services(self, business: str) -> list[tuple[str, str, str]]:
        """The names and positions of all services, and how many bindings each has."""
        rows = self.select(f"""SELECT ?name ?position (COUNT(?b) AS ?bindings) WHERE {{
            ?s u:businessKey <urn:uuid:{business.lower()}> ; u:name ?name ; u:position ?position
            OPTIONAL {{ ?b u:serviceKey ?s ; u:accessPoint ?address }} }} GROUP BY ?s ?name ?position""")
        return sorted((row["name"], row["position"], row["bindings"]) for row in rows)


def expect_quiet(condition: bool, message: str) -> None:
    if not condition:
        raise CheckFailed(message)


def soap(name: str, inner: str) -> str:
    return ('<s:Envelope xmlns:s="http://schemas.xmlsoap.org/soap/envelope/"><s:Body>'
            f'<{name} generic="2.0" xmlns="{NAMESPACE}">{inner}</{name}></s:Body></s:Envelope>')


def new_business(node: RegistryNode) -> str:
    """The key of a new business."""
    patience = time.monotonic() + 20
    while True:
        status, text = node.publish("save_business", '<businessEntity businessKey=""><name>all</name></businessEntity>')
        # Another node that starts at the same time may be faster again and again.
        if "E_busy" not in text or time.monotonic() > patience:
            break
        time.sleep(0.1)
    expect_quiet(status == 200, text)
    return re.search(r'businessKey="([^"]+)"', text).group(1)


def service(business: str, name: str) -> str:
    """A new service with two bindings."""
    binding = ('<bindingTemplate bindingKey=""><accessPoint URLType="http">http://192.0.2.1/</accessPoint>'
               "<tModelInstanceDetails/></bindingTemplate>")
    return (f'<businessService serviceKey="" businessKey="{business}"><name>{name}</name>'
            f"<bindingTemplates>{2 * binding}</bindingTemplates></businessService>")


class Publishers:
    """Saves services at several nodes at the same time, each with some in flight, and notes what was acknowledged."""

    def __init__(self, nodes: list[RegistryNode], business: str, count: int):
        self.nodes, self.business, self.count = nodes, business, count
        self.stored, self.refused, self.unknown = set(), set(), set()
        self.is_up = {node: asyncio.Event() for node in nodes}
        for event in self.is_up.values():
            event.set()
        self.ends = False
        # New publications wait at this many stored ones: a node that starts reads them all, which would take longer
        # with each round.
        self.enough = math.inf
        # Together at most a thousand attempts a second: a refusal costs the processor that a change needs.
        self.pause_s = count / 1000
        # Each connection is a descriptor.
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))

    async def run(self) -> None:
        await asyncio.gather(*(self.publish(index) for index in range(self.count)))

    async def publish(self, index: int) -> None:
        node, number = self.nodes[index % len(self.nodes)], 0
        while not self.ends:
            await self.is_up[node].wait()
            if len(self.stored) >= self.enough:
                await asyncio.sleep(0.05)
                continue
            name = f"p{index}-{number}"
            number += 1
            try:
                status, text = await node.publish_soon("save_service", service(self.business, name))
            except (OSError, EOFError, ValueError):
                # The node was killed: it may have stored the service.
                self.unknown.add(name)
                await asyncio.sleep(self.pause_s)
                continue
            if status == 200:
                self.stored.add(name)
            else:
                # PostgreSQL is away, or the node has too much to do. Another reason would stop the publishing.
                expect_quiet("E_busy" in text or status == 503, f"refused for being busy: {status} {text[:300]}")
                self.refused.add(name)
                await asyncio.sleep(self.pause_s)

    async def kill(self, node: RegistryNode) -> None:
        """Kills a node and starts it again."""
        self.is_up[node].clear()
        node.process.stop(signal.SIGKILL)
        await asyncio.to_thread(node.start)
        self.is_up[node].set()

    def check(self) -> None:
        """Compares what is there with what was acknowledged."""
        patience = time.monotonic() + 120
        first = self.nodes[0].services(self.business)
        while any(node.services(self.business) != first for node in self.nodes) and time.monotonic() < patience:
            time.sleep(0.1)
            first = self.nodes[0].services(self.business)
        if len(self.nodes) > 1:
            expect(all(node.services(self.business) == first for node in self.nodes), "all nodes have the same services")
        names = [name for name, _, _ in first]
        expect(len(set(names)) == len(names), f"none of {len(names)} services is there twice")
        missing = self.stored - set(names)
        expect(not missing, f"all {len(self.stored)} acknowledged services are there {sorted(missing)[:5] or ''}")
        part = [name for name, _, bindings in first if bindings != "2"]
        expect(not part, f"each is there whole, with its bindings {part[:5] or ''}")
        wrong = self.refused & set(names)
        expect(not wrong, f"none of {len(self.refused)} refused services is there {sorted(wrong)[:5] or ''}")
        positions = [position for _, position, _ in first]
        expect(len(set(positions)) == len(positions), "no update was lost: no two services have one position")
        extra = set(names) - self.stored - self.unknown
        expect(not extra, f"{len(self.unknown)} outcomes were unknown because a node was killed; nothing else is there")
