"""Two nodes with one registry in PostgreSQL, killed again and again.

    python check/registry/postgres.py CHAPPE WORK

Publishers save services in one business at both nodes over SOAP, while nodes and PostgreSQL are killed with SIGKILL.
Then every acknowledged service is at both nodes once, none is there in part, and no two have one position, so no
update was lost. Before that, the time is measured until a change at one node is visible at the other.

Needs Debian's postgresql, and a program with the feature `postgres`; Unix socket and loopback only. KILLS says how
often (default 12).
"""

import glob
import http.client
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.parse

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from network import CheckFailed, Process, expect, run_in  # noqa: E402

CLIENTS = 4
VISIBLE = 200
KILLS = int(os.environ.get("KILLS", "12"))
NAMESPACE = "urn:uddi-org:api_v2"


class Server:
    """PostgreSQL, as the user nobody."""

    def __init__(self, work: pathlib.Path):
        self.programs = sorted(glob.glob("/usr/lib/postgresql/*/bin"))[-1]
        self.work, self.process = work / "postgres", None
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
                    [*self.user("postgres"), "-D", f"{self.work}/data", "-k", str(self.work), "-c", "listen_addresses="],
                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            if self.answers():
                return
            # It needs the processor to start.
            time.sleep(0.05)
        raise CheckFailed("PostgreSQL does not start")

    def answers(self) -> bool:
        return subprocess.run([*self.user("pg_isready"), "-q", "-h", str(self.work)], check=False).returncode == 0

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
    def __init__(self, chappe: str, work: pathlib.Path, name: str, server: Server):
        self.chappe, self.folder, self.starts = chappe, work / name, 0
        (self.folder / "sensors").mkdir(parents=True)
        (self.folder / "node.toml").write_text(f"""
name = "{name}"
data_directory = "data"
sensors_directory = "sensors"
[http]
listen = "127.0.0.1:0"
[discovery]
enabled = false
[registry]
store = "postgres"
[registry.postgres]
url = "postgres://chappe@/postgres?host={server.work}"
""")
        self.start()
        self.token = (self.folder / "data" / "new-token").read_text().strip()

    def start(self) -> None:
        self.starts += 1
        log = self.folder / f"log.{self.starts}"
        self.process = Process([self.chappe, "serve", str(self.folder / "node.toml"), "--json"], log)
        self.url = self.process.wait_event("ready", 60)["address"]
        self.session = None

    def request(self, method: str, path: str, body: str | None = None, kind: str = "text/xml") -> tuple[int, str]:
        address = urllib.parse.urlparse(self.url)
        connection = http.client.HTTPConnection(address.hostname, address.port, timeout=120)
        try:
            connection.request(method, path, body, {"Content-Type": kind, "SOAPAction": '""'})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def soap(self, path: str, name: str, inner: str, attributes: str = "") -> tuple[int, str]:
        return self.request("POST", path, (
            '<s:Envelope xmlns:s="http://schemas.xmlsoap.org/soap/envelope/"><s:Body>'
            f'<{name} generic="2.0" xmlns="{NAMESPACE}" {attributes}>{inner}</{name}></s:Body></s:Envelope>'))

    def publish(self, name: str, inner: str) -> tuple[int, str]:
        if self.session is None:
            _, text = self.soap("/uddi/publish", "get_authToken", "", f'userID="operator" cred="{self.token}"')
            self.session = re.search(r"authInfo>([^<]+)<", text).group(1)
        return self.soap("/uddi/publish", name, f"<authInfo>{self.session}</authInfo>{inner}")

    def names(self, business: str) -> list[tuple[str, str]]:
        """The names and positions of all services."""
        query = f"""PREFIX u: <https://chappe.example/ns/uddi#>
            SELECT ?name ?position WHERE {{ ?s u:businessKey <urn:uuid:{business.lower()}> ; u:name ?name ;
            u:position ?position }}"""
        status, text = self.request("GET", "/api/v1/sparql?query=" + urllib.parse.quote(query))
        expect_quiet(status == 200, text)
        rows = json.loads(text)["results"]["bindings"]
        return sorted((row["name"]["value"], row["position"]["value"]) for row in rows)


def expect_quiet(condition: bool, message: str) -> None:
    if not condition:
        raise CheckFailed(message)


def service(business: str, name: str) -> str:
    text = "x" * 200
    return (f'<businessService serviceKey="" businessKey="{business}"><name>{name}</name>'
            f"<description>{text}</description></businessService>")


class Publisher(threading.Thread):
    """Saves services at one node, and notes what was acknowledged."""

    def __init__(self, node: Node, business: str, name: str, end: threading.Event):
        super().__init__()
        self.node, self.business, self.prefix, self.end = node, business, name, end
        self.stored, self.refused, self.unknown = set(), set(), set()

    def run(self) -> None:
        number = 0
        while not self.end.is_set():
            name = f"{self.prefix}-{number}"
            number += 1
            try:
                status, text = self.node.publish("save_service", service(self.business, name))
            except (OSError, http.client.HTTPException, AttributeError):
                # The node was killed: it may have stored the service.
                self.unknown.add(name)
                # It is started again meanwhile.
                time.sleep(0.05)
                continue
            if status == 200:
                self.stored.add(name)
            elif "E_authToken" in text:
                self.node.session = None
            else:
                self.refused.add(name)
                # PostgreSQL is away.
                time.sleep(0.02)


def measure_visible(nodes: list[Node], business: str) -> list[float]:
    times = []
    for number in range(VISIBLE):
        writer, reader = nodes[number % 2], nodes[1 - number % 2]
        name = f"visible-{number}"
        status, text = writer.publish("save_service", service(business, name))
        expect_quiet(status == 200, text)
        begun = time.monotonic()
        while name not in reader.soap("/uddi/inquiry", "find_service", f"<name>{name}</name>")[1]:
            expect_quiet(time.monotonic() - begun < 30, f"{name} is not visible at the other node")
        times.append((time.monotonic() - begun) * 1000)
    return sorted(times)


def check(chappe: str, work: pathlib.Path) -> None:
    server = Server(work)
    nodes = []
    try:
        nodes = [Node(chappe, work, name, server) for name in ("north", "south")]
        status, text = nodes[0].publish("save_business", '<businessEntity businessKey=""><name>all</name></businessEntity>')
        expect_quiet(status == 200, text)
        business = re.search(r'businessKey="([^"]+)"', text).group(1)
        times = measure_visible(nodes, business)
        median, p99 = times[len(times) // 2], times[len(times) * 99 // 100 - 1]
        print(f"   visible at the other node: median {median:.1f} ms, p99 {p99:.1f} ms, with the question", flush=True)
        end = threading.Event()
        publishers = [Publisher(nodes[at % 2], business, f"p{at}", end) for at in range(2 * CLIENTS)]
        for publisher in publishers:
            publisher.start()
        for number in range(KILLS):
            # Publishers work between two faults.
            time.sleep(1)
            if number % 3 == 2:
                server.kill()
                ready = [node.request("GET", "/ready") for node in nodes]
                found = nodes[0].names(business)
                expect_quiet(len(found) >= VISIBLE, "reads go on while PostgreSQL is away")
                if number == 2:
                    time.sleep(0.5)
                    ready = [node.request("GET", "/ready") for node in nodes]
                    expect(all(status == 503 and "registry" in text for status, text in ready),
                           "without PostgreSQL, /ready names the registry, and reads go on")
                server.start()
            else:
                node = nodes[number % 2]
                node.process.stop(signal.SIGKILL)
                node.start()
        # And after the last one.
        time.sleep(3)
        end.set()
        for publisher in publishers:
            publisher.join()
        stored, refused, unknown = (set().union(*(getattr(publisher, kind) for publisher in publishers))
                                    for kind in ("stored", "refused", "unknown"))
        patience = time.monotonic() + 60
        while nodes[0].names(business) != nodes[1].names(business) and time.monotonic() < patience:
            time.sleep(0.1)
        found = nodes[0].names(business)
        expect(found == nodes[1].names(business), "both nodes have the same services")
        names = [name for name, _ in found]
        expect(len(set(names)) == len(names), f"none of {len(names)} services is there twice")
        missing = stored - set(names)
        expect(not missing, f"all {len(stored)} acknowledged services are there {sorted(missing)[:5] or ''}")
        wrong = refused & set(names)
        expect(not wrong, f"none of {len(refused)} refused services is there {sorted(wrong)[:5] or ''}")
        positions = [position for _, position in found]
        expect(len(set(positions)) == len(positions), "no update was lost: no two services have one position")
        extra = {name for name in names if not name.startswith("visible")} - stored - unknown
        expect(not extra, f"{len(unknown)} outcomes were unknown because a node was killed; nothing else is there")
        doubled = server.query("SELECT count(*) - count(DISTINCT body) FROM chappe.registry_record")
        expect(doubled == "0", "no record is in the database twice")
    finally:
        for node in nodes:
            node.process.stop()
        server.kill()


def main() -> None:
    chappe, work = (os.path.abspath(argument) for argument in sys.argv[1:3])
    folder = pathlib.Path(work)
    run_in(folder, lambda: check(chappe, folder), (subprocess.SubprocessError,))
    print("   all passed")


if __name__ == "__main__":
    main()
