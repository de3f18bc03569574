"""The kind `influxdb` with programs of InfluxDB: influxdb-client and `influx -import` write to a node, which writes to influxd.

    python3 check/connectors/influx.py CHAPPE WORK

The node, the client and the server are killed with SIGKILL in turn, CONNECTORS_KILLS times each (3). Then each number that was
acknowledged is in its stream once, and influxd has as many points as the stream. The node has TLS, influxd TLS and a password.
"""

import base64
import http.client
import json
import pathlib
import random
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.parse

sys.dont_write_bytecode = True
from shared import KILLS, REST, TLS, Peer, certificate, node_with, run  # noqa: E402
from bench import judge  # noqa: E402
from network import CheckFailed, expect, until  # noqa: E402
from write.node import Node  # noqa: E402

INFLUX, UDP, TCP = 8086, 8089, 8094
WRAPPER = 'kind = "influxdb"\ndatabases = ["plant"]\n'
LINES = """kind = "{kind}"
listen = "127.0.0.1:{port}"
format = "line_protocol"
[[stream]]
name = "lines.{kind}"
when = {{ measurement = "counter" }}
fields = [{{ name = "n", type = "integer" }}]
"""
EXPORTER = f"""kind = "influxdb"
streams = ["plant.counter"]
address = "https://127.0.0.1:{INFLUX}"
version = "1"
database = "copy"
user = "chappe"
password_file = "influx.password"
server = {{ authorities = "authority.pem" }}
"""
# Writes batches of numbered points with the client's own retries off, each until it is acknowledged; the state is the
# last such number. A number always has the same time.
WRITER = """
import pathlib, sys, time
from influxdb_client import InfluxDBClient
from influxdb_client.client.write_api import SYNCHRONOUS
url, token, state = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
number = int(state.read_text()) if state.exists() else 0
client = InfluxDBClient(url=url, token=token, org="plant", enable_gzip=True, timeout=20_000, ssl_ca_cert=sys.argv[4])
writer = client.write_api(write_options=SYNCHRONOUS)
while True:
    points = [f"counter,host=h{n % 3} n={n}i,half={n}.5 {1_795_255_200_000_000_000 + n}" for n in range(number + 1, number + 51)]
    while True:
        try:
            writer.write(bucket="plant", record=points)
            break
        except Exception:
            time.sleep(0.1)
    number += 50
    new = state.with_suffix(".new")
    new.write_text(str(number))
    new.rename(state)
"""
SERVER = """
reporting-disabled = true
bind-address = "127.0.0.1:0"
[meta]
dir = "{work}/meta"
[data]
dir = "{work}/data"
wal-dir = "{work}/wal"
[http]
bind-address = "127.0.0.1:{port}"
auth-enabled = true
https-enabled = true
https-certificate = "{work}/influx.pem"
https-private-key = "{work}/influx.key"
log-enabled = false
[monitor]
store-enabled = false
"""


class Client(Peer):
    """influxdb-client, started again when it is killed."""

    def __init__(self, node: Node, work: pathlib.Path):
        super().__init__("client", work)
        self.node, self.state = node, work / "acknowledged"
        self.start()

    def command(self) -> list[str]:
        # The base address with `/influxdb` is that for clients that ask for the health.
        address = f"{self.node.scheme}://127.0.0.1:{REST}" + ("/influxdb" if self.kills % 2 else "")
        return [sys.executable, "-c", WRITER, address, self.node.token, str(self.state), str(self.node.authority)]

    def acknowledged(self) -> int:
        return int(self.state.read_text()) if self.state.exists() else 0


class Server(Peer):
    """influxd 1.6 with TLS, a user and its own folders."""

    def __init__(self, work: pathlib.Path):
        super().__init__("influxd", work)
        work.mkdir()
        (work / "influx.conf").write_text(SERVER.format(work=work, port=INFLUX))
        certificate(work, "authority")
        certificate(work, "influx", "authority")
        self.start()
        self.query("CREATE USER chappe WITH PASSWORD 'secret of the plant' WITH ALL PRIVILEGES", user=None)
        self.query("CREATE DATABASE copy")

    def command(self) -> list[str]:
        return ["influxd", "run", "-config", str(self.work / "influx.conf")]

    def is_ready(self) -> None:
        until(20, "influxd answers", self.answers)

    def answers(self) -> bool:
        try:
            return self.ask("GET", "/ping")[0] == 204
        except OSError:
            return False

    def ask(self, method: str, path: str) -> tuple[int, str]:
        context = ssl.create_default_context(cafile=str(self.work / "authority.pem"))
        connection = http.client.HTTPSConnection("127.0.0.1", INFLUX, timeout=60, context=context)
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def query(self, statement: str, user: str | None = "chappe") -> str:
        who = {"u": user, "p": "secret of the plant"} if user else {}
        query = urllib.parse.urlencode({"q": statement, "db": "copy", "epoch": "ns", **who})
        status, text = self.ask("POST", f"/query?{query}")
        if status != 200:
            raise CheckFailed(f"{statement}: {status} {text}")
        return text

    def numbers(self) -> list[int]:
        result = json.loads(self.query('SELECT "n" FROM "plant.counter"'))["results"][0]
        return [row[1] for series in result.get("series", []) for row in series["values"]]


def line(node: Node, path: str, body: str, **headers: str) -> tuple[int, object]:
    return node.ask("POST", path, body, token=None, **headers)


def interfaces(node: Node) -> None:
    """Credentials, partial writes and what clients ask."""
    token = node.token
    account = node.ask("GET", "/api/v1/self")[1]["name"]
    basic = base64.b64encode(f"{account}:{token}".encode()).decode()
    at = "1795255200000000000"
    accepted = {
        "Token": line(node, "/api/v2/write?org=o&bucket=plant", f"forms,as=token v=1 {at}", Authorization=f"Token {token}"),
        "Basic": line(node, "/write?db=plant", f"forms,as=basic v=1 {at}", Authorization=f"Basic {basic}"),
        "u and p": line(node, f"/write?db=plant&u={account}&p={token}", f"forms,as=query v=1 {at}"),
        "Bearer": line(node, "/influxdb/write?db=plant&precision=s", "forms,as=bearer v=1 1795255200",
                       Authorization=f"Bearer {token}"),
    }
    expect(all(status == 204 for status, _ in accepted.values()), f"each form of the credential is accepted: {list(accepted)} "
           f"{[one for one in accepted.values() if one[0] != 204] or ''}")
    refused = [line(node, "/write?db=plant", "forms v=1")[0], line(node, "/write?db=plant&u=x&p=y", "forms v=1")[0],
               line(node, f"/write?db=plant&u=other&p={token}", "forms v=1")[0]]
    expect(refused == [401] * 3, f"others are refused: {refused}")
    keys = {one["key"] for one in node.elements("plant.forms")}
    expect(keys == {"as=token", "as=basic", "as=query", "as=bearer"}, f"their points are stored: {sorted(keys)}")
    own = {"Authorization": f"Token {token}"}
    status, answer = line(node, "/write?db=plant", f"mixed v=1 {at}\nmixed v=2i {at}\nno point\nmixed v=3 {at}", **own)
    expect(status == 400 and "dropped=2" in answer["error"] and "field type conflict" in answer["error"],
           f"a partial write is answered with its reason: {status} {answer}")
    values = [one["values"]["v"] for one in node.elements("plant.mixed")]
    expect(values == [1.0, 3.0], f"the other points are stored: {values}")
    # The row is renewed once a second.
    until(5, "the refused points are a dead letter", lambda: node.ask("GET", "/api/v1/wrappers/plant")[1]["dead_letters"] == 1)
    again = line(node, "/write?db=plant", f"mixed v=3 {at}\nmixed v=3 {at}", **own)[0]
    values = [one["values"]["v"] for one in node.elements("plant.mixed")]
    expect(again == 204 and values == [1.0, 3.0], "a point that is repeated is stored once")
    status, answer = line(node, "/write?db=other", "a v=1", **own)
    expect(status == 404, f"a database that no wrapper names is not found: {answer['detail']}")
    big = f"exact v=9007199254740993i {at}"
    status, _ = line(node, "/write?db=plant", big, **own)
    expect(status == 204 and node.elements("plant.exact")[0]["values"]["v"] == 9007199254740993, "integers beyond 2^53 are exact")
    ping = node.ask("GET", "/ping", token=None)[0]
    query = node.ask("GET", "/query?q=SHOW+DATABASES", **own, token=None)
    other = node.ask("GET", "/query?q=SELECT+*+FROM+a", **own, token=None)[0]
    expect(ping == 204 and "plant" in str(query[1]) and other == 400, f"clients are answered: {query[1]}")


def imported(node: Node, work: pathlib.Path) -> None:
    """The command of InfluxDB 1.6 imports a file of points."""
    if shutil.which("influx") is None:
        print("   skipped: influx is not installed", flush=True)
        return
    count = 12_000
    points = [f"imported,host=h{n % 5} n={n}i {1_795_255_200 + n}" for n in range(count)]
    path = work / "points.txt"
    path.write_text("# DML\n# CONTEXT-DATABASE: plant\n" + "\n".join(points) + "\n")
    account = node.ask("GET", "/api/v1/self")[1]["name"]
    done = subprocess.run(["influx", "-ssl", "-unsafeSsl", "-host", "127.0.0.1", "-port", str(REST), "-username", account, "-password", node.token,
                           "-import", "-path", str(path), "-precision", "s"], capture_output=True, text=True, timeout=300)
    numbers = [one["values"]["n"] for one in node.elements("plant.imported")]
    expect(sorted(numbers) == list(range(count)), f"influx -import: {len(numbers)} of {count} points are stored "
           f"{'' if len(numbers) == count else done.stderr[-500:]}")


def sent_lines(node: Node) -> None:
    """The line protocol over UDP and TCP."""
    for kind, port in (("udp", UDP), ("tcp", TCP)):
        (node.folder / "wrappers" / f"lines-{kind}.toml").write_text(LINES.format(kind=kind, port=port))
    until(20, "the listeners run", lambda: all(
        node.ask("GET", f"/api/v1/wrappers/lines-{kind}")[0] == 200 for kind in ("udp", "tcp")))

    def arrived(kind: str) -> bool:
        how = socket.SOCK_DGRAM if kind == "udp" else socket.SOCK_STREAM
        try:
            with socket.socket(socket.AF_INET, how) as sender:
                sender.connect(("127.0.0.1", UDP if kind == "udp" else TCP))
                sender.sendall(b"counter,host=a n=7i\n")
                time.sleep(0.3)
        except OSError:
            return False
        status, page = node.ask("GET", f"/api/v1/streams/lines.{kind}/elements?newest=1")
        return status == 200 and [one["values"]["n"] for one in page["elements"]] == [7]

    for kind in ("udp", "tcp"):
        until(20, f"a point over {kind} is stored", lambda: arrived(kind))
        print(f"   ok: the line protocol over {kind}", flush=True)


def check(chappe: str, work: pathlib.Path, chance: random.Random) -> None:
    folder = work / "node"
    node = node_with(chappe, folder, TLS, plant=WRAPPER)
    until(20, "the wrapper runs", lambda: node.ask("POST", "/write?db=plant", "", Content_Type="text/plain")[0] == 204)
    interfaces(node)
    imported(node, work)
    sent_lines(node)
    try:
        import influxdb_client  # noqa: F401
    except ImportError:
        print("   skipped: influxdb-client is not installed", flush=True)
        return
    server = None
    if missing := [one for one in ("influxd", "openssl") if shutil.which(one) is None]:
        print(f"   skipped: the exporter: not installed: {' '.join(missing)}", flush=True)
    else:
        server = Server(work / "influxd")
        shutil.copy(server.work / "authority.pem", folder / "exporters" / "authority.pem")
        (folder / "exporters" / "influx.password").write_text("secret of the plant\n")
        (folder / "exporters" / "copy.toml").write_text(EXPORTER)
    client = Client(node, work)
    for number in range(1, KILLS + 1):
        before = client.acknowledged()
        time.sleep(chance.uniform(0.5, 1.5))
        node.kill()
        time.sleep(chance.uniform(0, 0.5))
        node.start()
        time.sleep(chance.uniform(0.5, 1.5))
        client.kill()
        if server:
            server.kill(chance.uniform(0, 0.5))
        until(30, "more is acknowledged", lambda: client.acknowledged() > before)
        print(f"   round {number} of {KILLS}: node, client and server killed", flush=True)
    until(30, "more is acknowledged", lambda: client.acknowledged() > before)
    client.process.stop(signal.SIGKILL)
    last = client.acknowledged()
    time.sleep(1)
    numbers = [one["values"]["n"] for one in node.elements("plant.counter")]
    # The batch that was not acknowledged may be there.
    expect(last <= max(numbers) <= last + 50, f"{last} numbers were acknowledged, the last one stored is {max(numbers)}")
    judge("influxdb-client", numbers, last=max(numbers))
    if server:
        wanted = sorted(numbers)
        until(30, "influxd has all points", lambda: len(server.numbers()) == len(wanted))
        expect(sorted(server.numbers()) == wanted, f"influxd has the {len(wanted)} points of the stream, none twice, "
               f"after {server.kills} kills of it")
        server.process.stop()
    node.stop()


if __name__ == "__main__":
    run(check)
