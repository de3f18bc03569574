"""A node whose disk is full for a while, and a link that is cut, while peers at the other end of the link send.

    python check/connectors/outages.py CHAPPE WORK [PART...]

1. mqtt:         mosquitto_pub publishes numbers, mosquitto keeps what is not acknowledged.
2. influxdb:     influxdb-client writes points and counts those that were acknowledged.
3. remote_write: Prometheus sends its samples.
4. sensorthings: frost-sta-client creates observations and counts those that were acknowledged.
5. postgres:     psql writes rows, a wrapper reads them, and an exporter copies the stream (a program with the feature `postgres`).

The data directory of the node is a small file system. While it is full, nothing is acknowledged. Then the link is cut for
CONNECTORS_CUT seconds (3). In the end the node has what the peer counts, and each of it once.
"""

import glob
import pathlib
import random
import subprocess
import sys
import time
from collections.abc import Callable

sys.dont_write_bytecode = True
from shared import CUT_S, FOLDER, run  # noqa: E402
import influx  # noqa: E402
import prometheus  # noqa: E402
from bench import HERE, REST, THERE, Bench, Fed, Skipped, judge, need  # noqa: E402
from full import DATA_BYTES, filled  # noqa: E402
from network import Process, expect, until  # noqa: E402

# Time for answers that were on their way when the disk was full.
SETTLE_S = 1
FULL_S = 3
PORT = 1883
BROKER = """listener {port} 0.0.0.0
allow_anonymous true
max_queued_messages 1000000
sys_interval 1
user root
"""
OBSERVER = """
import pathlib, sys, time
import frost_sta_client as fsc
import requests
from frost_sta_client.service.auth_handler import AuthHandler
url, token, stream, state = sys.argv[1], sys.argv[2], sys.argv[3], pathlib.Path(sys.argv[4])
# The client itself waits for an answer without a limit, also if the connection is gone.
ask = requests.Session.request
requests.Session.request = lambda session, *words, **names: ask(session, *words, **{"timeout": 20, **names})
class Bearer(AuthHandler):
    def add_auth_header(self):
        def sign(request):
            request.headers["Authorization"] = f"Bearer {token}"
            return request
        return sign
service = fsc.SensorThingsService(url, auth_handler=Bearer())
number = 0
while True:
    number += 1
    try:
        service.create(fsc.Observation(result=number, datastream=fsc.Datastream(id=stream)))
    except Exception:
        time.sleep(0.1)
        continue
    with open(state, "a") as file:
        file.write(f"{number}\\n")
"""


def grows(what: str, count: Callable[[], float], patience_s: float = 40) -> None:
    before = count()
    until(patience_s, what, lambda: count() > before)


def is_full(bench: Bench) -> bool:
    return "full" in str(bench.node.ask("GET", "/ready")[1])


def disturb(bench: Bench, what: str, acknowledged: Callable[[], float]) -> None:
    """Fills the disk, and cuts the link; `acknowledged` counts what the peer was told is stored."""
    grows(f"{what}: something is acknowledged", acknowledged)
    # Some more, so that the disturbance comes in the middle.
    time.sleep(1)
    with filled(bench.folder / "data"):
        until(20, "the node says that its disk is full", lambda: is_full(bench))
        time.sleep(SETTLE_S)
        before = acknowledged()
        time.sleep(FULL_S)
        after = acknowledged()
        expect(after == before, f"{what}: on a full disk nothing is acknowledged ({before} before, {after} after {FULL_S} s)")
    grows(f"{what}: with room it goes on", acknowledged)
    bench.far.cut(CUT_S)
    grows(f"{what}: after {CUT_S:.0f} s without a link it goes on", acknowledged)
    print(f"   ok: {what}: it goes on with room, and after {CUT_S:.0f} s without a link", flush=True)


def mqtt(bench: Bench) -> None:
    need("mosquitto", "mosquitto_pub", "mosquitto_sub")
    settings = bench.work / "mosquitto.conf"
    settings.write_text(BROKER.format(port=PORT))
    broker = Process(bench.far.command("mosquitto", "-c", str(settings)), bench.work / "mosquitto.log")
    words = ("-h", "127.0.0.1", "-p", str(PORT))
    bench.wrapper("plant", f"""
kind = "mqtt"
address = "mqtt://{THERE}:{PORT}"
subscribe = ["plant/n"]
keep_alive_s = 5
format = "json"
[[stream]]
name = "plant.n"
fields = [{{ name = "n", type = "integer" }}]
""")

    def told(topic: str) -> int:
        done = subprocess.run(bench.far.command("mosquitto_sub", *words, "-t", topic, "-C", "1", "-W", "10"), capture_output=True,
                              text=True)
        return int(done.stdout or -1)

    until(20, "the node has subscribed", lambda: told("$SYS/broker/subscriptions/count") > 0
          and bench.row("plant")["state"] in ("running", "waiting"))
    publisher = Fed(lambda: bench.far.command("mosquitto_pub", *words, "-q", "1", "-l", "-t", "plant/n"),
                    lambda number: f'{{"n": {number}}}\n', bench.work / "publisher.log")
    # The broker keeps a message until it is acknowledged, so that its number only shows whether any is.
    with_room = told("$SYS/broker/store/messages/count")
    grows("numbers are stored", lambda: bench.last("plant.n"))
    with filled(bench.folder / "data"):
        until(20, "the node says that its disk is full", lambda: is_full(bench))
        time.sleep(SETTLE_S)
        kept, written = told("$SYS/broker/store/messages/count"), publisher.written
        time.sleep(FULL_S)
        sent = publisher.written - written
        # The broker renews its count once a second.
        until(5, "the broker keeps what is sent", lambda: told("$SYS/broker/store/messages/count") >= kept + sent)
        expect(sent > 20, f"mqtt: on a full disk the broker keeps all of {sent} messages: none is acknowledged")
    grows("with room it goes on", lambda: bench.last("plant.n"))
    bench.far.cut(CUT_S)
    grows("after the cut it goes on", lambda: bench.last("plant.n"), 60)
    publisher.finish()
    until(60, "the broker keeps nothing", lambda: told("$SYS/broker/store/messages/count") <= with_room + 5)
    bench.at_rest("plant.n")
    judge("mqtt, full disk and cut link", bench.numbers("plant.n"), last=publisher.written)
    broker.stop()


def influxdb(bench: Bench) -> None:
    if subprocess.run([sys.executable, "-c", "import influxdb_client"], capture_output=True).returncode:
        raise Skipped("influxdb-client is not installed")
    bench.wrapper("plant", influx.WRAPPER)
    until(20, "the wrapper runs", lambda: bench.node.ask("POST", "/write?db=plant", "", Content_Type="text/plain")[0] == 204)
    state = bench.work / "acknowledged"
    client = Process(bench.far.command(sys.executable, "-c", influx.WRITER, f"http://{HERE}:{REST}", bench.node.token, str(state), ""),
                     bench.work / "client.log")

    def acknowledged() -> int:
        return int(state.read_text()) if state.exists() else 0

    disturb(bench, "influxdb", acknowledged)
    client.stop()
    bench.at_rest("plant.counter")
    numbers = bench.numbers("plant.counter")
    # The batch that was not acknowledged may be there.
    expect(acknowledged() <= max(numbers) <= acknowledged() + 50, f"{acknowledged()} numbers were acknowledged to influxdb-client")
    judge("influxdb, full disk and cut link", numbers, last=max(numbers))


def remote_write(bench: Bench) -> None:
    need("prometheus")
    bench.wrapper("prometheus", prometheus.WRAPPER)
    until(20, "the wrapper runs", lambda: bench.row("prometheus")["state"])
    inside = tuple(bench.far.command())
    server = prometheus.Server(bench.work / "prometheus", bench.node, f"http://{HERE}:{REST}", THERE, inside)

    def acknowledged() -> float:
        # After a cut the first question may find no way.
        until(20, "Prometheus can be reached", server.answers)
        return prometheus.times(server)[1]

    disturb(bench, "remote_write", acknowledged)
    end = time.time()
    # Longer than two scrapes: the samples before the end are all scraped.
    time.sleep(4)
    until(60, "Prometheus has sent all samples", lambda: prometheus.sent(server))
    time.sleep(3)
    prometheus.compare("remote_write, full disk and cut link", bench.node, server, end, is_exact=True)
    server.process.stop()


def sensorthings(bench: Bench) -> None:
    if subprocess.run([sys.executable, "-c", "import frost_sta_client"], capture_output=True).returncode:
        raise Skipped("frost-sta-client is not installed")
    bench.node.create("lab.n", level="power", n="integer")
    state = bench.work / "acknowledged"
    client = Process(bench.far.command(sys.executable, "-c", OBSERVER, f"http://{HERE}:{REST}/sensorthings/v1.1", bench.node.token,
                                       "lab.n:n", str(state)), bench.work / "client.log")

    def acknowledged() -> list[int]:
        return [int(line) for line in state.read_text().splitlines()] if state.exists() else []

    disturb(bench, "sensorthings", lambda: len(acknowledged()))
    client.stop()
    bench.at_rest("lab.n")
    numbers, told = bench.numbers("lab.n"), acknowledged()
    missing = set(told) - set(numbers)
    expect(not missing, f"each of {len(told)} observations that were answered with 201 is there")
    # One whose answer was lost is not sent again: those of the full disk, the cut and the end.
    others = len(numbers) - len(told)
    expect(len(set(numbers)) == len(numbers) and others <= 3, f"none is there twice, and {others} besides them")


def postgres(bench: Bench) -> None:
    if not glob.glob("/usr/lib/postgresql/*/bin"):
        raise Skipped("not installed: postgresql")
    sys.path.insert(0, str(FOLDER.parent / "registry"))
    from nodes import Server
    for folder in (bench.work.parent, bench.work):
        folder.chmod(0o755)
    server = Server(bench.work, (f"listen_addresses={THERE}",), tuple(bench.far.command()))
    (server.work / "data" / "pg_hba.conf").write_text(f"local all all trust\nhost all all {HERE}/32 trust\n")
    server.query("SELECT pg_reload_conf()")
    # Large enough to fill a file of the log that is there already within seconds.
    server.query("CREATE TABLE readings (id bigserial PRIMARY KEY, n bigint, padding text DEFAULT repeat('x', 8000))")
    common = f'address = "postgres://chappe@{THERE}/postgres?sslmode=disable"\n'
    bench.wrapper("plant", f"""
kind = "postgres"
{common}table = "readings"
cursor = "id"
poll_ms = 100
[[stream]]
name = "plant.n"
fields = [{{ name = "n", type = "integer" }}, {{ name = "padding", type = "text" }}]
""")
    until(20, "the wrapper runs", lambda: bench.row("plant")["state"])
    if "built without" in str(bench.row("plant")["error"]):
        raise Skipped("the program has no kind `postgres`")
    bench.exporter("copied", f'kind = "postgres"\nstreams = ["plant.n"]\n{common}table = "copied"\ncreate = true\n')
    psql = [f"{server.programs}/psql", "-X", "-q", "-h", str(server.work), "-U", "chappe", "-d", "postgres"]
    writer = Fed(lambda: psql, lambda number: f"INSERT INTO readings (n) VALUES ({number});\n", bench.work / "writer.log")
    disturb(bench, "postgres", lambda: bench.last("plant.n"))
    writer.finish()
    rows = int(server.query("SELECT count(*) FROM readings"))
    until(60, f"{rows} rows are stored", lambda: bench.last("plant.n") >= rows)
    judge("postgres, full disk and cut link", bench.numbers("plant.n"), last=writer.written)
    until(60, f"{rows} rows are copied", lambda: int(server.query("SELECT count(*) FROM copied")) >= rows)
    counts = server.query("SELECT count(*), count(DISTINCT n), min(n), max(n) FROM copied")
    expect(counts == f"{rows}|{rows}|1|{rows}", f"the copy has each element once: {counts}")
    exported = bench.row("copied", "exporters")["elements"]
    expect(exported <= rows, f"the exporter counts only what it has copied: {exported}")
    server.kill()


PARTS = {part.__name__: part for part in (mqtt, influxdb, remote_write, sensorthings, postgres)}


def check(chappe: str, work: pathlib.Path, chance: random.Random) -> None:
    for name in sys.argv[3:] or PARTS:
        print(f"-- {name}", flush=True)
        bench = Bench(chappe, work / name, chance.randrange(1 << 32), DATA_BYTES)
        try:
            PARTS[name](bench)
        except Skipped as reason:
            print(f"   skipped: {name}: {reason}", flush=True)
        finally:
            bench.end()


if __name__ == "__main__":
    run(check)
