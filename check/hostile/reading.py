"""Readers of streams: no answer is partly true in silence, none costs more memory than its bound, and no page
of another site starts a query. Two virtual sensors make more elements than SQLite's tables hold, and large ones."""

import contextlib
import datetime
import http.client
import json
import pathlib
import subprocess
import threading
import time
from typing import Callable

from network import Cable, Process, expect, until
from rest import NEIGHBOUR_MAX_MS, Rest, problem
from wire import Honest, measured

TEXT_BYTES = 20_000
LARGE = 6_000
MANY = 110_000
# HistoryLimits::bytes is 64 MiB, which SQLite holds, with its pages and the answer.
SQL_MAX = 128 << 20
PAGE_MAX = 48 << 20
LIVE_CLIENTS = 64  # http.max_live_clients
LIVE_S = 10.0
# What is judged here is whether answers are whole; the time limit is judged by the part "rest". An unoptimized
# build on a busy machine may need longer than the default of 5 s for 100,000 elements.
PATIENT = "[limits]\nquery_time_ms = 120000\n"
DIGITS = "(values (0),(1),(2),(3),(4),(5),(6),(7),(8),(9))"
BROWSER = "Mozilla/5.0 (X11; Linux x86_64) Chrome/140.0"


def sensor(alias: str, tables: int, columns: str, more: str, fields: str) -> bytes:
    digits = "".join(f", {DIGITS} d{n}" for n in range(tables))
    return (f'name = "{alias}"\n[[source]]\nalias = "body"\n'
            'query = { observed_property = "http://qudt.org/vocab/quantitykind/Temperature" }\n'
            f'[output]\nstream = "hostile.{alias}"\nlevel = "memory"\n'
            f"sql = \"select {columns} from body{digits} {more}\"\n{fields}").encode()


FIELD = '[[output.field]]\nname = "{}"\ntype = "{}"\n'
SENSORS = {
    "many": sensor("many", 4, "1 as n", "limit 5000", FIELD.format("n", "integer")),
    "large": sensor("large", 3, f"1 as n, printf('%.*c', {TEXT_BYTES}, 'x') as t", "limit 150",
                    FIELD.format("n", "integer") + FIELD.format("t", "text")),
}


def asked(rest: Rest, method: str, path: str, body: dict | None = None, **headers: str) -> tuple[int, dict, bytes]:
    """Like Web.ask, for chunked answers."""
    with rest.web.connect(600) as socket:
        connection = http.client.HTTPConnection(rest.host, int(rest.port))
        connection.sock = socket
        text = json.dumps(body) if body is not None else None
        connection.request(method, path, text, {name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        fields = {name.lower(): value for name, value in answer.getheaders()}
        return answer.status, fields, answer.read()


def sql(rest: Rest, text: str, **more) -> tuple[int, dict, bytes]:
    return asked(rest, "POST", "/api/v1/streams/query", {"sql": text, **more})


def peak(rest: Rest, work: Callable[[], object]) -> tuple[object, int]:
    """Returns the result of the work, and the rise of the node's resident memory."""
    folder = pathlib.Path(f"/proc/{rest.process.process.pid}")

    def line(name: str) -> int:
        lines = folder.joinpath("status").read_text().splitlines()
        return next(int(one.split()[1]) * 1024 for one in lines if one.startswith(name))

    folder.joinpath("clear_refs").write_text("5")
    before = line("VmRSS:")
    result = work()
    return result, line("VmHWM:") - before


def filled(rest: Rest, device: Process) -> dict[str, int]:
    """Fills the streams, stops the device, and returns the number of elements of each."""
    for name, text in SENSORS.items():
        answer = rest.web.ask("PUT", f"/api/v1/virtual-sensors/{name}", text, Authorization=f"Bearer {rest.token}")
        expect(answer[0] in (200, 201, 204), f"the virtual sensor {name} is taken ({answer[0]} {answer[2][:300]})")

    def counts() -> dict[str, int]:
        streams = json.loads(rest.web.ask("GET", "/api/v1/streams")[2])["streams"]
        return {one["name"]: one["last"] for one in streams}

    def enough() -> bool:
        now = counts()
        return now.get("hostile.many", 0) >= MANY and now.get("hostile.large", 0) >= LARGE

    until(120, "enough elements", enough)
    device.stop()
    settled = {}

    def quiet() -> bool:
        nonlocal settled
        before, settled = settled, counts()
        return before == settled
    until(60, "the streams are quiet", quiet)
    return settled


def whole(rest: Rest, cable: Cable, chappe: str, counts: dict[str, int]) -> None:
    text = 'select count(*), sum(n) from "hostile.many"'
    # In one pass, and by SQLite.
    for each in (text, 'select count(*), sum(n + 0) from "hostile.many"'):
        start = time.monotonic()
        status, headers, body = sql(rest, each)
        took = time.monotonic() - start
        answer = json.loads(body)
        kept = answer["read"][0]["kept"]
        whole = "chappe-partial" not in headers and not answer["partial"] and answer["read"][0]["complete"]
        expect(status == 200 and whole and answer["rows"] == [[kept] * 2] and kept >= counts["hostile.many"],
               f"all {kept} elements are counted: {status} {body[:200]} after {took:.1f} s")
    # Groups of long texts for each element need more than SQLite's memory; the newest fit.
    wide = f"""select count(*), max(length(t)) from
               (select n, sequence, printf('%.*c', 20000, 'x') || sequence as t from "hostile.many" group by t)"""
    problem("more than SQLite's memory", sql(rest, wide), 400)
    first = asked(rest, "GET", "/api/v1/streams/hostile.many/elements?after=0:0&limit=1")
    begin = json.loads(first[2])["elements"][0]["source_time"]
    after = datetime.datetime.fromisoformat(begin[:26].rstrip("Z") + "+00:00") + datetime.timedelta(milliseconds=1)
    status, headers, body = sql(rest, text, to=after.isoformat())
    rows = json.loads(body)["rows"]
    expect(status == 200 and rows[0][0] in range(5_000, counts["hostile.many"]) and "chappe-partial" not in headers,
           f"an older time is read whole: {rows[0][0]} elements")
    for flags in ([], ["--partial"], ["--json"]):
        command = cable.command("A", chappe, "query", *flags, "--node", f"http://{rest.host}:{rest.port}", text)
        ended = subprocess.run(command, capture_output=True, text=True, timeout=300)
        expect(ended.returncode == 0 and ended.stderr == "" and str(counts["hostile.many"]) in ended.stdout,
               f"chappe query {' '.join(flags)} answers whole: {ended.stdout.strip()[:90]} {ended.stderr.strip()[:90]}")
    rows = 'select n from "hostile.many"'
    for flags, code in (["--limit", "20000"], 2), (["--limit", "20000", "--partial"], 0):
        command = cable.command("A", chappe, "query", *flags, "--node", f"http://{rest.host}:{rest.port}", rows)
        ended = subprocess.run(command, capture_output=True, text=True, timeout=300)
        expect(ended.returncode == code and "10000 rows" in ended.stderr,
               f"chappe query {' '.join(flags)} ends with {code} and says: {ended.stderr.strip()[:90]}")


def memory(rest: Rest, counts: dict[str, int]) -> None:
    """Each query alone, then as many at once as may run."""
    large = counts["hostile.large"]

    def page(which: str) -> None:
        status, _, body = asked(rest, "GET", f"/api/v1/streams/hostile.large/elements?{which}")
        expect(status == 200 and body.count(b'"number":') == min(large, 10_000), f"{which} gives all, {len(body) >> 20} MiB")

    def live() -> None:
        with rest.web.connect(600) as connection:
            request = "GET /api/v1/live?streams=hostile.large&after=hostile.large@0:0 HTTP/1.1\r\n"
            connection.sendall(f"{request}Host: {rest.host}:{rest.port}\r\n\r\n".encode())
            left = LARGE // 2 * TEXT_BYTES
            while left > 0:
                left -= len(connection.recv(1 << 20))

    texts = 'select count(*), sum(length(t)) from "hostile.large"'

    def together() -> None:
        threads = [threading.Thread(target=sql, args=(rest, texts)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    for name, work, bound in (
            ("newest=10000", lambda: page("newest=10000"), PAGE_MAX),
            ("after=0:0", lambda: page("after=0:0&limit=10000"), PAGE_MAX),
            ("live data", live, PAGE_MAX),
            ("SQL over numbers", lambda: sql(rest, 'select count(*), max(n) from "hostile.large"'), SQL_MAX),
            ("SQL over texts", lambda: sql(rest, texts), SQL_MAX),
            ("a range in buckets", lambda: asked(rest, "GET", "/api/v1/streams/hostile.large/range"), PAGE_MAX),
            ("four at once", together, 4 * SQL_MAX)):
        _, grown = peak(rest, work)
        measured(f"resident memory for {name} of {large} elements of {TEXT_BYTES} bytes", f"{grown >> 10} KiB")
        expect(grown < bound, f"that is below {bound >> 20} MiB")
    rest.alive()


def slow_live_clients(rest: Rest) -> None:
    """The maximum number of live clients, each far behind and reading 160 kB/s. Beyond the time bound, another
    client's answer waits for their events."""
    request = "GET /api/v1/live?streams=hostile.large&after=hostile.large@0:0 HTTP/1.1\r\n"
    request = f"{request}Host: {rest.host}:{rest.port}\r\n\r\n".encode()
    neighbour = Honest(rest.get)
    clients = [rest.web.connect() for _ in range(LIVE_CLIENTS)]
    received = [0] * LIVE_CLIENTS
    for client in clients:
        client.sendall(request)
        client.setblocking(False)
    end = time.monotonic() + LIVE_S
    while time.monotonic() < end:
        for number, client in enumerate(clients):
            with contextlib.suppress(BlockingIOError):
                received[number] += len(client.recv(16_384))
        time.sleep(0.1)
    asked, late = neighbour.stop()
    for client in clients:
        client.close()
    measured(f"p99 of a neighbour's requests while {LIVE_CLIENTS} clients of live data read slowly",
             f"{late:.1f} ms ({asked} asked); each client has read at least {min(received) >> 10} KiB")
    expect(min(received) > TEXT_BYTES, "each of them gets elements")
    expect(not neighbour.failures and late <= NEIGHBOUR_MAX_MS, f"a neighbour does not wait for them {neighbour.failures[:3] or ''}")


def another_site(rest: Rest) -> None:
    query = "/api/v1/sparql?query=ASK%20%7B%20%3Fs%20%3Fp%20%3Fo%20%7D"
    for target in (query, "/api/v1/streams/hostile.large/elements?newest=10000", "/api/v1/live", "/metrics"):
        for site in ("cross-site", "same-site"):
            for mode in ("navigate", "no-cors", "cors"):
                answer = rest.web.ask("GET", target, User_Agent=BROWSER, Sec_Fetch_Site=site, Sec_Fetch_Mode=mode)
                problem(f"{site} {mode} to {target}", answer, 403)
    problem("a browser that names no site", rest.web.ask("GET", query, User_Agent=BROWSER), 403)
    page = rest.web.ask("GET", "/", User_Agent=BROWSER, Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate")
    typed = rest.web.ask("GET", query, User_Agent=BROWSER, Sec_Fetch_Site="none", Sec_Fetch_Mode="navigate")
    program = rest.web.ask("GET", query)
    expect([page[0], typed[0], program[0]] == [200] * 3, "another site opens the console, and nothing else of the node")


def check(cable: Cable, chappe: str, rest: Rest, device: Process) -> None:
    counts = filled(rest, device)
    whole(rest, cable, chappe, counts)
    memory(rest, counts)
    slow_live_clients(rest)
    another_site(rest)
