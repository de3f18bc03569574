"""`mqtt`: mosquitto, with its own publisher and subscriber, at the other end of the cable.

One broker is never killed: nothing may be missing or stored twice, whatever happens to the node and the cable. The other
is killed with SIGKILL, and may lose what it has not written to its disk.
"""

import json
import pathlib
import signal
import subprocess

from bench import THERE, Bench, Fed, judge, lines_of, need
from network import Process, expect, until
from programs import COUNTED

PORTS = {"steady": 1883, "killed": 1884}
SETTINGS = """listener {port} 0.0.0.0
allow_anonymous true
persistence true
persistence_location {folder}/
autosave_interval 1
autosave_on_changes true
max_queued_messages 100000
max_inflight_messages 20
log_dest file {folder}/log
user root
"""
VERSIONS = {"3": ("3.1.1", "mqttv311"), "5": ("5.0", "mqttv5")}


class Broker:
    """mosquitto with a publisher for each version of the protocol and quality of service."""

    kind = "mqtt"

    def __init__(self, bench: Bench, how: str):
        need("mosquitto", "mosquitto_pub", "mosquitto_sub")
        self.bench, self.how, self.kills = bench, how, 0
        self.folder, self.port = bench.work / f"mosquitto-{how}", PORTS[how]
        self.folder.mkdir()
        self.settings = self.folder / "mosquitto.conf"
        self.settings.write_text(SETTINGS.format(port=self.port, folder=self.folder))
        self.streams = []
        for version, (name, _) in VERSIONS.items():
            for qos in (1, 2):
                stream = f"mqtt.{how}-{version}-{qos}"
                self.streams.append((stream, version, qos))
                bench.wrapper(stream.replace(".", "-"), f"""
kind = "mqtt"
address = "mqtt://{THERE}:{self.port}"
version = "{name}"
subscribe = ["plant/{version}/{qos}/{{how}}"]
qos = {qos}
keep_alive_s = 5
format = "json"
[[stream]]
name = "{stream}"
fields = [{{ name = "n", type = "integer" }}]
""")

    def far(self, *arguments: str) -> list[str]:
        return self.bench.far.command(*arguments)

    def serve(self) -> None:
        self.process = Process(self.far("mosquitto", "-c", str(self.settings)), self.folder / "output")
        ask = self.far("mosquitto_pub", "-p", str(self.port), "-t", "x", "-n")
        until(20, "mosquitto answers", lambda: subprocess.run(ask, capture_output=True).returncode == 0)

    def listen(self) -> None:
        """Starts a subscriber, and only then the exporter: a broker keeps nothing for those that come later."""
        self.heard = self.folder / "heard"
        self.output = open(self.heard, "wb")
        self.subscriber = subprocess.Popen(
            self.far("mosquitto_sub", "-p", str(self.port), "-V", "mqttv5", "-c", "-i", "listener", "-q", "1", "-t", "out/#"),
            stdout=self.output, stderr=subprocess.DEVNULL, start_new_session=True)
        # A retained message comes with the subscription.
        subprocess.run(self.far("mosquitto_pub", "-p", str(self.port), "-r", "-t", "out/ready", "-m", "ready"), check=True)
        until(20, "mosquitto_sub listens", lambda: "ready" in "".join(lines_of(self.heard)))
        self.bench.exporter("broker", f'kind = "mqtt"\nstreams = ["{COUNTED}"]\n'
                            f'address = "mqtt://{THERE}:{self.port}"\ntopic = "out/{{stream}}"\nkeep_alive_s = 5\n')

    def start(self) -> None:
        self.serve()
        if self.how == "steady":
            self.listen()
        # Without its session a broker keeps nothing for the node.
        for stream, _, _ in self.streams:
            name = stream.replace(".", "-")
            until(30, f"{name} is connected", lambda: self.bench.row(name)["state"] in ("waiting", "running"))
        self.publishers = [Fed(lambda v=version, q=qos: self.far(
            "mosquitto_pub", "-p", str(self.port), "-V", VERSIONS[v][1], "-q", str(q), "-l", "-t", f"plant/{v}/{q}/n"),
            lambda number: f'{{"n": {number}}}\n', self.folder / f"publisher-{stream}") for stream, version, qos in self.streams]

    def kill(self) -> None:
        if self.how == "killed":
            self.process.stop(signal.SIGKILL)
            self.kills += 1
            self.serve()

    def turn(self) -> None:
        """Waits until messages arrive again."""
        for stream, _, _ in self.streams:
            before = self.bench.last(stream)
            until(40, f"messages arrive in {stream} again", lambda: self.bench.last(stream) > before)

    def finish(self) -> None:
        for publisher in self.publishers:
            publisher.finish()

    def judge(self) -> None:
        for (stream, _, qos), publisher in zip(self.streams, self.publishers):
            self.bench.at_rest(stream)
            # A killed broker loses what it has not saved, and its publisher what it was sending. What the broker then
            # repeats to the node is older than what the node remembers, or comes from a publisher that sends again.
            breaks = self.kills + publisher.starts - 1
            judge(f"mqtt, {stream}, {self.kills} kills of mosquitto and {self.bench.node_kills} of the node",
                  self.bench.numbers(stream), gaps_max=3 * breaks, doubles_max=100 * breaks, ordered=breaks == 0,
                  last=publisher.written + breaks)
        if self.how == "steady":
            self.judge_exporter()

    def judge_exporter(self) -> None:
        wanted = {one["values"]["number"] for one in self.bench.node.elements(COUNTED)}

        def found() -> list[int]:
            return numbers(self.heard)

        until(40, "the exporter to mosquitto", lambda: set(found()) >= wanted)
        again, breaks = len(found()) - len(wanted), self.bench.node_kills + self.bench.far.cuts
        expect(again <= 256 * breaks, f"mqtt: {len(wanted)} elements reached mosquitto_sub, {again} again")
        self.subscriber.terminate()


def numbers(path: pathlib.Path) -> list[int]:
    found = []
    for line in lines_of(path):
        try:
            found.append(json.loads(line)["number"])
        except (ValueError, KeyError):
            continue
    return found
