"""Devices that are announced over MQTT: listed, bound by meaning, told what to do, offline, gone. Parts of `mqtt.py`."""

import json
import os
import pathlib
import subprocess
import time
import urllib.parse

from bench import THERE, Bench, Skipped, lines_of
from network import CheckFailed, Process, expect, until

FOLDER = pathlib.Path(__file__).resolve().parent
PORT = 1883
# What a person waits for without noticing it.
LISTED_S = 1.0
TEMPERATURE = "http://qudt.org/vocab/quantitykind/Temperature"
SENSOR = """name = "{name}"
[[source]]
alias = "room"
query = {{ {query} }}
[output]
sql = "select value as doubled from room"
[[output.field]]
name = "doubled"
type = "double"
"""


def device(bench: Bench, name: str) -> dict | None:
    status, answer = bench.node.ask("GET", "/api/v1/devices")
    if status != 200:
        raise CheckFailed(f"devices: {status} {answer}")
    found = [one for one in answer["devices"] if one["name"] == name]
    return found[0] if found else None


def call(bench: Bench, name: str, operation: str, **arguments) -> tuple[int, dict]:
    key = urllib.parse.quote(device(bench, name)["key"], safe="")
    path = f"/api/v1/devices/{key}/operations/{urllib.parse.quote(operation, safe='')}"
    return bench.node.ask("POST", path, arguments)


def drops(bench: Bench, reason: str) -> int:
    status, answer = bench.node.ask("GET", f"/api/v1/drops?reason={reason}")
    if status != 200:
        raise CheckFailed(f"drops: {status} {answer}")
    return sum(one["count"] for one in answer["drops"])


def sensor(bench: Bench, name: str, query: str) -> None:
    (bench.folder / "sensors" / f"{name}.toml").write_text(SENSOR.format(name=name, query=query))


def bound(bench: Bench, name: str) -> list[str]:
    status, row = bench.node.ask("GET", f"/api/v1/virtual-sensors/{name}")
    return [one["stream"] for source in row["sources"] for one in source["bound"]] if status == 200 else []


def announced_devices(bench: Bench, broker) -> None:
    def announce(topic: str, config: dict | None, key: str = "kitchen-1") -> None:
        about = {"identifiers": [key], "name": "Kitchen" if key == "kitchen-1" else key, "manufacturer": "Acme", "model": "T1"}
        payload = json.dumps({"device": about, "availability_topic": "kitchen/lwt", **config}) if config else ""
        broker.publish(f"homeassistant/{topic}/config", payload, "-r", "-q", "1")

    bench.wrapper("home", f'kind = "home_assistant"\naddress = "mqtt://{THERE}:{PORT}"\nkeep_alive_s = 5\n[limits]\nstreams = 4\n')
    sensor(bench, "warm", f'observed_property = "{TEMPERATURE}", unit = "Cel"')
    until(30, "the wrapper is connected", lambda: "announced" in (bench.row("home")["reason"] or ""))
    announce("sensor/kitchen/t", {"stat_t": "kitchen/t", "unit_of_meas": "°C", "dev_cla": "temperature"})
    began = time.monotonic()
    until(20, "the device is listed", lambda: device(bench, "Kitchen"))
    took = time.monotonic() - began
    expect(took < LISTED_S, f"an announced device is listed after {took * 1000:.0f} ms")
    announce("switch/kitchen/relay", {"stat_t": "kitchen/relay", "cmd_t": "kitchen/relay/set"})
    announce("number/kitchen/target", {"cmd_t": "kitchen/target/set", "min": 5, "max": 30, "cmd_tpl": '{"t": {{ value }}}'})
    announce("button/kitchen/identify", {"cmd_t": "kitchen/identify"})
    until(20, "all operations are known", lambda: len(device(bench, "Kitchen")["operations"]) == 3)
    found = device(bench, "Kitchen")
    expect((found["state"], found["found_by"], found["wrapper"], found["manufacturer"], found["model"])
           == ("usable", ["home_assistant"], "home", "Acme", "T1"), f"it has its source, maker and model: {found}")
    until(20, "the sensor is bound by meaning", lambda: bound(bench, "warm") == ["home.sensor.kitchen.t"])
    broker.publish("kitchen/t", "21.5")
    until(20, "values come", lambda: bench.last("warm") and bench.numbers("warm", "doubled")[-1] == 21.5)
    status, thing = bench.node.ask("GET", "/things/" + urllib.parse.quote(found["key"], safe=""))
    expect(status == 200 and set(thing["actions"]) == {one["name"] for one in found["operations"]}, "it is a thing with actions")

    heard = bench.work / "heard"
    with heard.open("w") as output:
        listener = subprocess.Popen(bench.far.command("mosquitto_sub", "-p", str(PORT), "-v", "-t", "kitchen/+/set", "-t", "kitchen/identify"),
                                    stdout=output)
        until(20, "the peer listens", lambda: broker.publish("kitchen/identify", "ready") == 0 and "ready" in heard.read_text())
        for operation, arguments in (("switch/kitchen/relay", {"value": True}), ("number/kitchen/target", {"value": 21.5}),
                                     ("button/kitchen/identify", {})):
            status, answer = call(bench, "Kitchen", operation, **arguments)
            expect((status, answer.get("acknowledged")) == (200, True), f"{operation}: {status} {answer}")
        wanted = {"kitchen/relay/set ON", 'kitchen/target/set {"t": 21.5}', "kitchen/identify PRESS"}
        until(20, "the peer has each command", lambda: wanted <= set(heard.read_text().splitlines()))
        for operation, arguments in (("number/kitchen/target", {"value": 31}), ("switch/kitchen/relay", {"value": "ON"}),
                                     ("button/kitchen/identify", {"value": 1})):
            status, answer = call(bench, "Kitchen", operation, **arguments)
            expect(status == 422, f"refused before it is sent: {answer['detail']}")
        listener.terminate()
        listener.wait(10)
    shown = subprocess.run([bench.node.chappe, "device", "list", "--node", f"http://{bench.node.host}:{bench.node.port}"],
                           capture_output=True, text=True, env={**os.environ, "CHAPPE_TOKEN": bench.node.token})
    expect("Kitchen" in shown.stdout and "home_assistant home" in shown.stdout, f"chappe device list shows it {shown.stderr}")

    broker.publish("kitchen/lwt", "offline")
    until(20, "it is offline", lambda: device(bench, "Kitchen")["state"] == "offline")
    expect(device(bench, "Kitchen")["reason"] and device(bench, "Kitchen")["state_since"], "it says why and since when")
    status, answer = call(bench, "Kitchen", "switch/kitchen/relay", value=True)
    expect(status == 422 and "not available" in answer["detail"], f"one that is away is not called: {answer}")
    broker.publish("kitchen/lwt", "online")
    until(20, "it is usable again", lambda: device(bench, "Kitchen")["state"] == "usable")

    for number in range(6):
        announce(f"button/forged/{number}", {"cmd_t": "x"}, f"forged-{number}")
    until(20, "announcements beyond the limit are counted", lambda: drops(bench, "too_many_devices") or
          any("operations already" in one["reason"] for one in bench.letters("home")))
    expect(device(bench, "Kitchen")["state"] == "usable", "no other announcement takes the place of a device")
    for topic in ("sensor/kitchen/t", "switch/kitchen/relay", "number/kitchen/target", "button/kitchen/identify"):
        announce(topic, None)
    until(20, "a retracted device is gone", lambda: device(bench, "Kitchen") is None)
    until(20, "the sensor is unbound", lambda: not bound(bench, "warm"))


def edge_devices(bench: Bench, broker, python) -> None:
    bench.wrapper("line", f'kind = "sparkplug"\naddress = "mqtt://{THERE}:{PORT}"\nhost_id = "chappe"\nkeep_alive_s = 5\n')
    until(30, "the wrapper is connected", lambda: "edge node" in (bench.row("line")["reason"] or ""))
    running = {}

    def start(role: str, variable: str, module: str) -> None:
        command = bench.far.command(python(variable, module), str(FOLDER / "mqtt_sparkplug.py"), role, "127.0.0.1", str(PORT),
                                    str(bench.work / f"{role}.heard"))
        running[role] = Process(command, bench.work / f"{role}.log")

    start("settable", "PYSPARKPLUG", "pysparkplug")
    sensor(bench, "speed", 'name_prefix = "line.site.drives.drive.setpoint"')
    until(30, "the device is listed", lambda: device(bench, "drive"))
    found = device(bench, "drive")
    expect((found["state"], found["found_by"]) == ("usable", ["sparkplug"]), f"it is usable: {found}")
    until(20, "the sensor is bound", lambda: bound(bench, "speed") == ["line.site.drives.drive.setpoint"])
    for number in (-1500.5, 7.25):
        status, answer = call(bench, "drive", "Setpoint", value=number)
        expect((status, answer.get("confirmed")) == (200, True), f"DCMD {number}: {status} {answer}")
        until(20, "the value is stored", lambda n=number: bench.last("speed") and bench.numbers("speed", "doubled")[-1] == n)
    began = time.monotonic()
    status, answer = call(bench, "drive", "Stuck", value=1)
    expect(status == 422 and "confirmed" in answer["detail"], f"without data in {time.monotonic() - began:.0f} s: {answer['detail']}")
    status, answer = call(bench, "drive", "Setpoint", value="fast")
    expect(status == 422, f"another type is not sent: {answer['detail']}")
    status, answer = call(bench, "drives", "Node Control/Rebirth", value=True)
    expect((status, answer.get("confirmed")) == (200, True), f"NCMD rebirth: {status} {answer}")
    running["settable"].stop()
    until(60, "its death is shown", lambda: device(bench, "drive")["state"] == "offline" and device(bench, "drives")["state"] == "offline")

    bench.exporter("line", f'kind = "sparkplug"\nstreams = ["speed"]\naddress = "mqtt://{THERE}:{PORT}"\ngroup = "site"\n'
                           'edge_node = "chappe"\nkeep_alive_s = 5\n')
    start("commander", "PYSPARKPLUG", "pysparkplug")
    until(60, "commands to what Chappe publishes are counted", lambda: drops(bench, "command_refused"))
    expect(True, f"{drops(bench, 'command_refused')} commands to an edge node that only publishes are refused")
    running["commander"].stop()
    try:
        start("other-settable", "SPB_WRAPPER", "mqtt_spb_wrapper")
    except Skipped as reason:
        print(f"   skipped: other-settable: {reason}", flush=True)
        return
    until(30, "the device of mqtt-spb-wrapper is listed", lambda: device(bench, "other"))
    status, answer = call(bench, "other", "CMD/level", value=42)
    expect((status, answer.get("confirmed")) == (200, True), f"NCMD to mqtt-spb-wrapper: {status} {answer}")
    expect("42" in "".join(lines_of(bench.work / "other-settable.heard")), "it has the command")
    running["other-settable"].stop()
