"""`home_assistant` and `sparkplug`, with mosquitto between Chappe and programs that others wrote.

    python check/connectors/mqtt.py CHAPPE WORK

PYSPARKPLUG, SPB_WRAPPER and HOME_ASSISTANT name the Python that has pysparkplug, mqtt-spb-wrapper and homeassistant; without
one, this Python is tried.

1. announced: entities that mosquitto_pub announces become streams with units; their numbers survive kills and a cut.
2. nodes:     edge nodes of pysparkplug and mqtt-spb-wrapper: each data type, and numbers through kills of node and peer.
3. hosts:     both libraries decode what Chappe publishes as an edge node, the elements of an outage as historical ones.
4. entities:  Home Assistant shows the fields of a stream with unit and class, and when Chappe is away.
5. browse:    the printed files are valid, and `try` reads with them.
6. devices:   announced devices are listed within a second, bound by meaning, told what to do, shown offline, and gone when
              they are retracted.
7. drives:    edge nodes of both libraries as devices; NCMD and DCMD, confirmed by their data.

CONNECTORS_KILLS says how often node and peers are killed (3). Runs as root on Linux, in namespaces of its own: what it
started ends with it.
"""

import http.client
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

sys.dont_write_bytecode = True
FOLDER = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER), str(FOLDER.parent / "wrappers"), str(FOLDER.parent)]
import mqtt_devices  # noqa: E402
import programs  # noqa: E402
from bench import THERE, Bench, Fed, Skipped, documents, judge, lines_of, need  # noqa: E402
from home_assistant import HomeAssistant  # noqa: E402
from network import Process, enter, expect, run_in, until  # noqa: E402

INSIDE = "CHAPPE_CONNECTORS_MQTT"
KILLS = int(os.environ.get("CONNECTORS_KILLS") or 3)
CUT_S = 5
PORT = 1883
SETTINGS = """listener {port} 0.0.0.0
allow_anonymous true
max_queued_messages 100000
log_dest file {folder}/log
user root
"""
BIG = 2**53 + 1
# What pysparkplug publishes, as the streams show it.
TYPES = {"int8": -5, "int16": -30000, "int32": -(2**31), "int64": -BIG, "uint8": 250, "uint16": 65535, "uint32": 2**32 - 1,
         "uint64": BIG, "float": 1.5, "double": 0.1, "boolean": True, "string": "grün", "time": "2026-01-02T03:04:05Z",
         "array": "[-30000,30000]", "flags": "[true,false,true]", "folder.texts": '["a","b"]'}


def python(variable: str, module: str) -> str:
    """The Python that has a library."""
    found = os.environ.get(variable) or sys.executable
    if subprocess.run([found, "-c", f"import {module}"], capture_output=True).returncode:
        raise Skipped(f"{module} is not installed; {variable} names the Python that has it")
    return found


class Broker:
    """mosquitto, which is started again after it was killed."""

    def __init__(self, bench: Bench):
        need("mosquitto", "mosquitto_pub")
        self.bench, self.starts = bench, 0
        folder = bench.work / "mosquitto"
        folder.mkdir()
        self.settings = folder / "mosquitto.conf"
        self.settings.write_text(SETTINGS.format(port=PORT, folder=folder))
        self.start()

    def start(self) -> None:
        self.starts += 1
        command = self.bench.far.command("mosquitto", "-c", str(self.settings))
        self.process = Process(command, self.bench.work / f"mosquitto-{self.starts}.log")
        until(20, "mosquitto answers", lambda: self.publish("check/ready", "", check=False) == 0)

    def publish(self, topic: str, payload: str, *more: str, check: bool = True) -> int:
        command = self.bench.far.command("mosquitto_pub", "-p", str(PORT), "-t", topic, "-m", payload, *more)
        return subprocess.run(command, check=check, capture_output=True).returncode


def field(bench: Bench, stream: str) -> dict:
    status, answer = bench.node.ask("GET", f"/api/v1/streams/{stream}")
    expect(status == 200, f"{stream} exists")
    return answer["fields"][0]


def value(bench: Bench, stream: str):
    found = bench.node.elements(stream) if bench.last(stream) else []
    return found[-1]["values"].get("value") if found else None


def announced(bench: Bench, broker: Broker) -> None:
    def announce(component: str, name: str, **config) -> None:
        broker.publish(f"homeassistant/{component}/room/{name}/config", json.dumps(config) if config else "", "-r", "-q", "1")

    bench.wrapper("home", f'kind = "home_assistant"\naddress = "mqtt://{THERE}:{PORT}"\nkeep_alive_s = 5\n')
    until(30, "the wrapper runs", lambda: bench.row("home")["state"])
    available = {"availability_topic": "room/lwt"}
    announce("sensor", "n", stat_t="room/state", val_tpl="{{ value_json.n }}", unit_of_meas="°C", dev_cla="temperature",
             device={"identifiers": ["room"], "name": "Living room"}, **available)
    announce("binary_sensor", "door", **{"~": "room", "state_topic": "~/door"})
    announce("sensor", "odd", state_topic="room/state", value_template="{{ value_json.n * 2 }}")
    until(30, "the template is a dead letter", lambda: any("template" in one["reason"] for one in bench.letters("home")))
    until(30, "states arrive", lambda: broker.publish("room/state", '{"n": 0}') == 0 and bench.last("home.sensor.room.n") > 0)
    found = field(bench, "home.sensor.room.n")
    expect(found["unit"] == "Cel" and found["observed_property"].endswith("Temperature"), f"unit and property are announced: {found}")
    broker.publish("room/door", "ON")
    until(20, "the door is open", lambda: value(bench, "home.binary_sensor.room.door") is True)
    broker.publish("room/lwt", "offline")
    until(20, "unavailable is no value", lambda: bench.node.elements("home.sensor.room.n")[-1]["quality"] == "bad")
    publisher = Fed(lambda: bench.far.command("mosquitto_pub", "-p", str(PORT), "-q", "1", "-l", "-t", "room/state"),
                    lambda number: f'{{"n": {number}}}\n', bench.work / "publisher.log")
    for _ in range(KILLS):
        time.sleep(0.5)
        bench.kill_node(random.uniform(0, 0.5))
        before = bench.last("home.sensor.room.n")
        until(40, "states arrive again", lambda: bench.last("home.sensor.room.n") > before + 10)
    bench.far.cut(CUT_S)
    before = bench.last("home.sensor.room.n")
    until(40, "states arrive again after the cut", lambda: bench.last("home.sensor.room.n") > before + 10)
    publisher.finish()
    bench.at_rest("home.sensor.room.n")
    numbers = [one for one in bench.numbers("home.sensor.room.n", "value") if one]
    # What is published while the node is away is missed: nothing else is.
    judge(f"home_assistant, {bench.node_kills} kills of the node and a cut", [int(one) for one in numbers],
          gaps_max=bench.node_kills + 2, doubles_max=0)
    refused = [one for one in bench.letters("home") if "template" in one["reason"]]
    expect(len(refused) == 1, "the refused announcement is one dead letter")
    announce("sensor", "n")
    last = bench.last("home.sensor.room.n")
    time.sleep(1)
    broker.publish("room/state", '{"n": -1}')
    time.sleep(1)
    expect(bench.last("home.sensor.room.n") == last, "a retracted entity gets no more elements")


def nodes(bench: Bench, broker: Broker) -> None:
    bench.wrapper("line", f'kind = "sparkplug"\naddress = "mqtt://{THERE}:{PORT}"\nhost_id = "chappe"\nkeep_alive_s = 5\n')
    peers = {}
    for role, variable, module, stream in (("node", "PYSPARKPLUG", "pysparkplug", "line.site.py.counter.n"),
                                           ("other-node", "SPB_WRAPPER", "mqtt_spb_wrapper", "line.site.other.data.n")):
        try:
            peers[role] = (python(variable, module), stream)
        except Skipped as reason:
            print(f"   skipped: {role}: {reason}", flush=True)
    running, starts = {}, {}

    def start(role: str) -> None:
        starts[role] = starts.get(role, 0) + 1
        command = bench.far.command(peers[role][0], str(FOLDER / "mqtt_sparkplug.py"), role, "127.0.0.1", str(PORT),
                                    str(bench.work / f"{role}.state"))
        running[role] = Process(command, bench.work / f"{role}-{starts[role]}.log")

    for role in peers:
        start(role)
        until(60, f"numbers of the {role} arrive", lambda r=role: bench.last(peers[r][1]) > 20)
    if "node" in peers:
        until(30, "all types have streams", lambda: bench.last("line.site.py.folder.texts") > 0)
        found = {name: value(bench, f"line.site.py.{name}") for name in TYPES}
        wrong = {name: found[name] for name in TYPES if found[name] != TYPES[name]}
        expect(not wrong, f"{len(TYPES)} types of pysparkplug are exact {wrong or ''}")
    for _ in range(KILLS):
        time.sleep(0.5)
        bench.kill_node(random.uniform(0, 0.5))
        for role, (_, stream) in peers.items():
            before = bench.last(stream)
            # mqtt-spb-wrapper answers no request for a rebirth by its standard name: it is started again.
            if role == "other-node":
                running[role].stop(signal.SIGKILL)
                start(role)
            until(60, f"numbers of the {role} arrive again", lambda s=stream, b=before: bench.last(s) > b + 10)
        if "node" in peers:
            running["node"].stop(signal.SIGKILL)
            stream = peers["node"][1]
            until(60, "the death certificate is no value", lambda: bench.node.elements(stream)[-1]["quality"] == "bad")
            start("node")
            before = bench.last(stream)
            until(60, "numbers arrive after the peer's start", lambda: bench.last(stream) > before + 10)
    for role, (_, stream) in peers.items():
        running[role].stop()
        bench.at_rest(stream)
        numbers = [one for one in bench.numbers(stream, "value") if one]
        breaks = KILLS + starts[role]
        judge(f"sparkplug, {role}, {starts[role] - 1} kills of it and {KILLS} of the node", numbers, gaps_max=2 * breaks,
              doubles_max=2 * breaks)


def hosts(bench: Bench, broker: Broker) -> None:
    counter = programs.Counter(bench)
    bench.exporter("line", f'kind = "sparkplug"\nstreams = ["{programs.COUNTED}"]\naddress = "mqtt://{THERE}:{PORT}"\n'
                           'group = "site"\nedge_node = "chappe"\nkeep_alive_s = 5\n')
    until(60, "elements are published", lambda: bench.last(programs.COUNTED) > 20)
    peers = {}
    for role, variable, module in (("host", "PYSPARKPLUG", "pysparkplug"), ("other-host", "SPB_WRAPPER", "mqtt_spb_wrapper")):
        try:
            command = bench.far.command(python(variable, module), str(FOLDER / "mqtt_sparkplug.py"), role, "127.0.0.1", str(PORT),
                                        str(bench.work / f"{role}.heard"))
        except Skipped as reason:
            print(f"   skipped: {role}: {reason}", flush=True)
            continue
        peers[role] = (Process(command, bench.work / f"{role}.log"), bench.work / f"{role}.heard")
    if "host" not in peers:
        return

    def heard() -> list[dict]:
        """The metrics of data, as pysparkplug has decoded them."""
        found = [one for one in documents(lines_of(peers["host"][1])) if one["type"] == "DDATA"]
        return [metric for one in found for metric in one["metrics"] if metric["name"] == "number"]

    until(60, "data arrives", lambda: len(heard()) > 20)
    for _ in range(KILLS):
        time.sleep(0.5)
        bench.kill_node(random.uniform(0, 0.5))
        before = len(heard())
        until(60, "data arrives again", lambda: len(heard()) > before + 20)
    historical = sum(1 for one in heard() if one["historical"])
    bench.far.cut(3 * CUT_S)
    before = len(heard())
    until(60, "data arrives after the cut", lambda: len(heard()) > before + 20)
    counter.finish()
    bench.at_rest(programs.COUNTED)
    wanted = set(bench.numbers(programs.COUNTED, "number"))
    # Elements of before the peer's subscription are not for it.
    first = min(one["value"] for one in heard())
    wanted = {number for number in wanted if number >= first}
    until(60, "each number is decoded", lambda: {one["value"] for one in heard()} >= wanted)
    found = [one["value"] for one in heard()]
    again = len(found) - len(set(found))
    expect(set(found) == wanted, f"sparkplug: {len(wanted)} elements reached pysparkplug, {again} again")
    expect(sum(1 for one in heard() if one["historical"]) > historical, "elements of the cut are historical")
    births = [one for one in documents(lines_of(peers["host"][1])) if one["type"] == "NBIRTH"]
    expect(len(births) > bench.node_kills, f"{len(births)} birth certificates, one of them on request")
    if "other-host" in peers:
        until(30, "mqtt-spb-wrapper has decoded the last number",
              lambda: f'"{max(wanted)}"' in "".join(lines_of(peers["other-host"][1])[-500:]))
        expect(True, "mqtt-spb-wrapper decodes the same data")
    for process, _ in peers.values():
        process.stop()


def entities(bench: Bench, broker: Broker) -> None:
    peer = HomeAssistant(bench, python("HOME_ASSISTANT", "homeassistant"), PORT)
    bench.wrapper("machine", 'kind = "system"\nperiod_s = 1\n')
    bench.exporter("home", 'kind = "mqtt"\nstreams = ["machine.memory"]\nhome_assistant = true\n'
                           f'address = "mqtt://{THERE}:{PORT}"\nkeep_alive_s = 5\n')
    peer.start()
    wanted = "sensor.machine_memory_total"
    total = until(90, f"Home Assistant has {wanted}", lambda: peer.number(wanted))
    state = peer.state(wanted)["attributes"]
    expect(total > 1 << 20 and state["unit_of_measurement"] == "B" and state["device_class"] == "data_size",
           f"{wanted} has unit and class: {state}")
    bench.node.kill()
    until(60, "it is unavailable without Chappe", lambda: peer.state(wanted)["state"] == "unavailable")
    bench.node.start()
    until(90, "it is available again", lambda: peer.number(wanted))
    print(f"   ok: {len(peer.states())} states, unavailable while Chappe is away", flush=True)
    peer.process.stop()


def browse(bench: Bench, broker: Broker) -> None:
    other = bench.work / "browse"
    other.mkdir()

    def run(*words: str) -> subprocess.CompletedProcess:
        return subprocess.run([bench.node.chappe, "wrapper", *words], capture_output=True, text=True, cwd=other)

    for name, topic, payload, kind in (("plain", "hall/climate", '{"celsius": 21.5}', "mqtt"),
                                       ("home", "homeassistant/sensor/hall/config",
                                        '{"stat_t": "hall/climate", "val_tpl": "{{ value_json.celsius }}"}', "home_assistant")):
        broker.publish(topic, payload, "-r")
        shown = run("browse", f"mqtt://{THERE}:{PORT}")
        expect(shown.returncode == 0 and f'kind = "{kind}"' in shown.stdout, f"browse prints a file of kind {kind} {shown.stderr}")
        (other / f"{name}.toml").write_text(shown.stdout)
        tried = run("try", f"{name}.toml", "--count", "1", "--json")
        expect("21.5" in tried.stdout, f"try reads with it {tried.stderr}")


PARTS = {"announced": announced, "nodes": nodes, "hosts": hosts, "entities": entities, "browse": browse,
         "devices": mqtt_devices.announced_devices,
         "drives": lambda bench, broker: mqtt_devices.edge_devices(bench, broker, python)}


def check(chappe: str, work: pathlib.Path, parts: list[str]) -> None:
    for part in parts:
        print(f"-- {part}", flush=True)
        bench = Bench(chappe, work / part, random.randrange(1 << 32), 0)
        try:
            PARTS[part](bench, Broker(bench))
        except Skipped as reason:
            print(f"   skipped: {part}: {reason}", flush=True)
        finally:
            bench.end()


def main() -> None:
    chappe, work = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2]).absolute()
    parts = sys.argv[3:] or list(PARTS)
    enter(INSIDE, sys.argv)
    failures = (http.client.HTTPException, subprocess.SubprocessError, KeyError, ValueError)
    run_in(work, lambda: check(chappe, work, parts), failures)


main()
