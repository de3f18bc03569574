"""The kind `remote_write` with a server of Prometheus, which scrapes itself and sends its samples to a node.

    python3 check/connectors/prometheus.py CHAPPE WORK

The node has TLS. It is killed with SIGKILL, CONNECTORS_KILLS times (3). Then each sample that Prometheus answers for a span of
time is in its stream once, with its value, and no other. After that Prometheus is killed as often: what it had not sent then it
never sends, but nothing is stored twice, and nothing that it does not have.
"""

import calendar
import json
import math
import pathlib
import random
import shutil
import sys
import time
import urllib.parse
import urllib.request

sys.dont_write_bytecode = True
from shared import KILLS, TLS, Peer, node_with, run  # noqa: E402
from network import CheckFailed, expect, until  # noqa: E402
from write.node import Node  # noqa: E402

WEB = 9090
WRAPPER = 'kind = "remote_write"\nlimits = { streams = 5000 }\n'
SETTINGS = """
global:
  scrape_interval: 1s
scrape_configs:
  - job_name: self
    static_configs: [{{ targets: ["127.0.0.1:{web}"] }}]
  - job_name: nobody
    static_configs: [{{ targets: ["127.0.0.1:9"] }}]
remote_write:
  - url: {url}/api/v1/write
    authorization: {{ credentials_file: {work}/token }}
    tls_config: {tls}
    queue_config: {{ batch_send_deadline: 1s, min_backoff: 100ms, max_backoff: 1s }}
"""


class Server(Peer):
    """Prometheus with its own folder, at an address; `inside` begins the command that runs it there."""

    def __init__(self, work: pathlib.Path, node: Node, url: str, host: str = "127.0.0.1", inside: tuple[str, ...] = ()):
        super().__init__("prometheus", work)
        self.host, self.inside = host, inside
        work.mkdir()
        (work / "token").write_text(node.token)
        tls = f"{{ ca_file: {node.authority} }}" if node.scheme == "https" else "{}"
        (work / "prometheus.yml").write_text(SETTINGS.format(web=WEB, url=url, work=work, tls=tls))
        self.start()

    def command(self) -> list[str]:
        return [*self.inside, "prometheus", f"--config.file={self.work}/prometheus.yml", f"--storage.tsdb.path={self.work}/data",
                f"--web.listen-address=0.0.0.0:{WEB}", "--web.enable-admin-api"]

    def is_ready(self) -> None:
        until(20, "Prometheus answers", self.answers)

    def ask(self, path: str) -> str:
        with urllib.request.urlopen(f"http://{self.host}:{WEB}{path}", timeout=120) as answer:
            return answer.read().decode()

    def answers(self) -> bool:
        try:
            return self.ask("/-/ready") != ""
        except OSError:
            return False

    def samples(self, until_s: float) -> dict[tuple[str, str, int], float]:
        """All samples up to a time, by metric, series and time in milliseconds."""
        query = urllib.parse.urlencode({"query": '{__name__=~".+"}[1h]', "time": f"{until_s:.3f}"})
        document = json.loads(self.ask(f"/api/v1/query?{query}"))
        found = {}
        for series in document["data"]["result"]:
            labels = dict(series["metric"])
            name = labels.pop("__name__")
            key = ",".join(f"{label}={labels[label]}" for label in sorted(labels))
            for at, value in series["values"]:
                found[name, key, round(at * 1000)] = float(value)
        return found


def stored(node: Node, until_s: float) -> tuple[dict[tuple[str, str, int], float], int, int]:
    """The samples that the node has up to a time, how many it has twice, and how many markers of ended series."""
    found, doubles, markers = {}, 0, 0
    status, listed = node.ask("GET", "/api/v1/streams?prefix=prometheus.")
    if status != 200:
        raise CheckFailed(f"the streams cannot be listed: {status} {listed}")
    for stream in listed["streams"]:
        name = stream["name"]
        for one in node.elements(name):
            at = milliseconds(one["source_time"])
            if at > until_s * 1000:
                continue
            if one["quality"] == "bad":
                markers += 1
                continue
            value = one["values"]["value"]
            key = (name.removeprefix("prometheus."), one["key"], at)
            doubles += key in found
            # JSON has no number for these.
            found[key] = math.nan if value is None else value
    return found, doubles, markers


def milliseconds(text: str) -> int:
    whole, _, fraction = text.rstrip("Z").partition(".")
    seconds = calendar.timegm(time.strptime(whole, "%Y-%m-%dT%H:%M:%S"))
    return seconds * 1000 + int((fraction + "000")[:3])


def part(name: str) -> str:
    """The name of a metric as a part of a name of a stream."""
    return name.lower().strip("_")


def is_same(own: float, value: float) -> bool:
    if math.isnan(value):
        return math.isnan(own) or math.isinf(own)
    return own == value


def compare(what: str, node: Node, server: Server, until_s: float, is_exact: bool) -> None:
    own = {(part(name), key, at): value for (name, key, at), value in server.samples(until_s).items()}
    found, doubles, markers = stored(node, until_s)
    missing = [key for key in own if key not in found]
    foreign = [key for key in found if key not in own]
    wrong = [key for key in own if key in found and not is_same(own[key], found[key])]
    right = not foreign and not wrong and doubles == 0 and (not is_exact or not missing)
    shown = "" if right else f" missing {missing[:3]} foreign {foreign[:3]} wrong {[(k, own[k], found[k]) for k in wrong[:3]]}"
    expect(right and len(found) > 1000, f"{what}: of {len(own)} samples of Prometheus {len(found)} are stored, {len(missing)} "
           f"missing, {len(foreign)} foreign, {len(wrong)} with another value, {doubles} twice; {markers} markers{shown}")


def sent(server: Server) -> bool:
    """Whether Prometheus has sent everything that it has."""
    highest, acknowledged = times(server)
    # It has none of these before its first sample.
    return acknowledged > 0 and highest - acknowledged <= 3


def times(server: Server) -> tuple[float, float]:
    """The newest second of which Prometheus has samples to send, and the newest of which they were acknowledged."""
    numbers = {}
    for line in server.ask("/metrics").splitlines():
        for name in ("prometheus_remote_storage_queue_highest_sent_timestamp_seconds",
                     "prometheus_remote_storage_highest_timestamp_in_seconds"):
            if line.startswith(name):
                numbers[name] = float(line.rsplit(" ", 1)[1])
    return (numbers.get("prometheus_remote_storage_highest_timestamp_in_seconds", 0),
            numbers.get("prometheus_remote_storage_queue_highest_sent_timestamp_seconds", 0))


def check(chappe: str, work: pathlib.Path, chance: random.Random) -> None:
    if shutil.which("prometheus") is None:
        print("   skipped: prometheus is not installed", flush=True)
        return
    node = node_with(chappe, work / "node", TLS, prometheus=WRAPPER)
    refusals(node)
    server = Server(work / "prometheus", node, f"https://127.0.0.1:{node.port}")
    until(30, "samples arrive", lambda: node.ask("GET", "/api/v1/streams/prometheus.up")[0] == 200)
    for number in range(1, KILLS + 1):
        time.sleep(chance.uniform(1, 2))
        node.kill()
        time.sleep(chance.uniform(0, 2))
        node.start()
        print(f"   round {number} of {KILLS}: the node killed", flush=True)
    time.sleep(2)
    end = time.time()
    time.sleep(4)
    until(30, "Prometheus has sent all samples", lambda: sent(server))
    time.sleep(3)
    compare("kills of the node", node, server, end, is_exact=True)
    for number in range(1, KILLS + 1):
        time.sleep(chance.uniform(1, 3))
        server.kill()
        print(f"   round {number} of {KILLS}: Prometheus killed", flush=True)
    time.sleep(3)
    end = time.time()
    until(30, "Prometheus has sent all samples", lambda: sent(server))
    time.sleep(3)
    compare("kills of Prometheus", node, server, end, is_exact=False)
    status, row = node.ask("GET", "/api/v1/wrappers/prometheus")
    expect(status == 200 and row["dead_letters"] == 1, "nothing of Prometheus was refused")
    units = {field["name"]: field["unit"] for field in
             node.ask("GET", "/api/v1/streams/prometheus.process_cpu_seconds_total")[1]["fields"]}
    expect(units["value"] == "s", f"the unit of a metric is known by its name: {units}")
    server.process.stop()
    node.stop()


def refusals(node: Node) -> None:
    """Requests that are none."""
    kind = {"Content_Type": "application/x-protobuf"}
    until(20, "the wrapper runs", lambda: node.ask("POST", "/api/v1/write", b"\x00", Content_Encoding="snappy", **kind)[0] == 204)
    answers = [node.ask("POST", "/api/v1/write", b"x", **kind)[0],
               node.ask("POST", "/api/v1/write", b"x", Content_Type="text/plain", Content_Encoding="snappy")[0],
               node.ask("POST", "/api/v1/write", b"no snappy", Content_Encoding="snappy", **kind)[0],
               node.ask("POST", "/api/v1/write", b"\x00", Content_Encoding="snappy", **kind)[0]]
    expect(answers == [415, 415, 400, 204], f"other bodies are refused, an empty request is not: {answers}")


if __name__ == "__main__":
    run(check)
