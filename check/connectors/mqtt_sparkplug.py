"""Sparkplug B by two libraries of others, each in its own Python: their versions of protobuf exclude each other.

    python mqtt_sparkplug.py node HOST PORT STATE      pysparkplug: an edge node that counts; STATE keeps the last number
    python mqtt_sparkplug.py host HOST PORT OUTPUT     pysparkplug: a host application that appends what it decodes to OUTPUT
    python mqtt_sparkplug.py other-node HOST PORT STATE     mqtt-spb-wrapper: an edge node that counts
    python mqtt_sparkplug.py other-host HOST PORT OUTPUT    mqtt-spb-wrapper: an application that appends what it decodes
    python mqtt_sparkplug.py settable HOST PORT OUTPUT      pysparkplug: an edge node that does what it is told
    python mqtt_sparkplug.py commander HOST PORT OUTPUT     pysparkplug: an application that tells Chappe's edge node what to do
    python mqtt_sparkplug.py other-settable HOST PORT OUTPUT    mqtt-spb-wrapper: an edge node that does what it is told
"""

import datetime
import json
import pathlib
import sys
import threading
import time

PERIOD_S = 0.02
# The next number is no double.
BIG = 2**53 + 1
TIME = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.timezone.utc)


def numbers(state: pathlib.Path):
    """Numbers that rise for good: each is written down before it is used."""
    number = int(state.read_text()) if state.exists() else 0
    while True:
        number += 1
        state.with_suffix(".new").write_text(str(number))
        state.with_suffix(".new").rename(state)
        yield number
        time.sleep(PERIOD_S)


def node(host: str, port: int, state: pathlib.Path) -> None:
    import pysparkplug as spb

    def metric(name: str, kind: spb.DataType, value) -> spb.Metric:
        return spb.Metric(timestamp=spb.get_current_timestamp(), name=name, datatype=kind, value=value)

    types = spb.DataType
    fixed = [metric("Node Control/Rebirth", types.BOOLEAN, False), metric("int8", types.INT8, -5), metric("int16", types.INT16, -30000),
             metric("int32", types.INT32, -(2**31)), metric("int64", types.INT64, -BIG), metric("uint8", types.UINT8, 250),
             metric("uint16", types.UINT16, 65535), metric("uint32", types.UINT32, 2**32 - 1), metric("uint64", types.UINT64, BIG),
             metric("float", types.FLOAT, 1.5), metric("double", types.DOUBLE, 0.1), metric("boolean", types.BOOLEAN, True),
             metric("string", types.STRING, "grün"), metric("bytes", types.BYTES, b"\x00\xff"), metric("time", types.DATETIME, TIME),
             metric("array", types.INT16_ARRAY, (-30000, 30000)), metric("flags", types.BOOLEAN_ARRAY, (True, False, True)),
             metric("folder/texts", types.STRING_ARRAY, ("a", "b"))]
    asked = threading.Event()

    def commanded(_, message) -> None:
        if any(one.name == "Node Control/Rebirth" and one.value for one in message.payload.metrics):
            asked.set()

    edge = spb.EdgeNode("site", "py", fixed, cmd_callback=commanded)
    edge.register(spb.Device("counter", [metric("n", types.INT64, None)]))
    edge.connect(host, port=port, keepalive=5)
    time.sleep(0.3)
    for number in numbers(state):
        if asked.is_set():
            # It has no birth certificate of its own for a request: a new connection has one.
            asked.clear()
            edge.disconnect()
            edge.connect(host, port=port, keepalive=5)
            time.sleep(0.3)
        edge.update_device("counter", [metric("n", types.INT64, number)])


def host(host_name: str, port: int, output: pathlib.Path) -> None:
    import pysparkplug as spb
    lines, is_born = open(output, "a"), threading.Event()

    def received(_, message) -> None:
        topic, metrics = message.topic, getattr(message.payload, "metrics", ())
        found = [{"name": one.name, "value": one.value if isinstance(one.value, (int, float, str, bool)) else None,
                  "historical": one.is_historical, "time": one.timestamp} for one in metrics]
        lines.write(json.dumps({"type": str(topic.message_type.value), "device": topic.device_id, "metrics": found,
                                "seq": getattr(message.payload, "seq", None)}) + "\n")
        lines.flush()
        if topic.message_type == spb.MessageType.DBIRTH:
            is_born.set()

    client = spb.Client()
    for kind in ("NBIRTH", "NDEATH"):
        client.subscribe(spb.Topic(group_id="site", message_type=spb.MessageType(kind), edge_node_id="chappe"), spb.QoS(1), received)

    def of_devices(kind: str) -> None:
        topic = spb.Topic(group_id="site", message_type=spb.MessageType(kind), edge_node_id="chappe", device_id="+")
        client.subscribe(topic, spb.QoS(1), received)

    of_devices("DBIRTH")
    client.connect(host_name, port=port, keepalive=5)
    time.sleep(0.5)
    rebirth = spb.Metric(timestamp=spb.get_current_timestamp(), name="Node Control/Rebirth", datatype=spb.DataType.BOOLEAN, value=True)
    payload = spb.NCmd(timestamp=spb.get_current_timestamp(), metrics=(rebirth,))
    topic = spb.Topic(group_id="site", message_type=spb.MessageType.NCMD, edge_node_id="chappe")
    client.publish(spb.Message(topic=topic, payload=payload, qos=spb.QoS(0), retain=False), include_dtypes=True)
    # Data before its birth certificate ends the thread of pysparkplug.
    is_born.wait()
    of_devices("DDATA")
    threading.Event().wait()


def other_node(host_name: str, port: int, state: pathlib.Path) -> None:
    import mqtt_spb_wrapper as spb
    edge = spb.MqttSpbEntityEdgeNode("site", "other")
    edge.data.set_value("n", 0)
    edge.attributes.set_value("maker", "mqtt-spb-wrapper")
    if not edge.connect(host_name, port):
        sys.exit("no connection")
    edge.publish_birth()
    for number in numbers(state):
        edge.data.set_value("n", number)
        edge.publish_data()


def other_host(host_name: str, port: int, output: pathlib.Path) -> None:
    import mqtt_spb_wrapper as spb
    lines = open(output, "a")

    def received(topic, payload) -> None:
        lines.write(json.dumps({"type": topic.message_type, "device": topic.eon_device_name, "payload": payload}, default=str) + "\n")
        lines.flush()

    application = spb.MqttSpbEntityApp("site", "watcher", callback_birth=received, callback_data=received, callback_death=received)
    if not application.connect(host_name, port):
        sys.exit("no connection")
    threading.Event().wait()


def settable(host_name: str, port: int, output: pathlib.Path) -> None:
    import pysparkplug as spb

    def metric(name: str, kind: spb.DataType, value) -> spb.Metric:
        return spb.Metric(timestamp=spb.get_current_timestamp(), name=name, datatype=kind, value=value)

    types = spb.DataType
    asked = threading.Event()

    def node_commanded(_, message) -> None:
        if any(one.name == "Node Control/Rebirth" and one.value for one in message.payload.metrics):
            asked.set()

    def device_commanded(edge, message) -> None:
        for one in message.payload.metrics:
            # `Stuck` does not move.
            if one.name == "Setpoint":
                edge.update_device("drive", [metric("Setpoint", types.DOUBLE, one.value)])

    edge = spb.EdgeNode("site", "drives", [metric("Node Control/Rebirth", types.BOOLEAN, False)], cmd_callback=node_commanded)
    fixed = [metric("Setpoint", types.DOUBLE, 0.5), metric("Stuck", types.INT16, 0)]
    edge.register(spb.Device("drive", fixed, cmd_callback=device_commanded))
    edge.connect(host_name, port=port, keepalive=5)
    while True:
        asked.wait()
        asked.clear()
        edge.disconnect()
        edge.connect(host_name, port=port, keepalive=5)


def commander(host_name: str, port: int, output: pathlib.Path) -> None:
    import pysparkplug as spb
    client = spb.Client()
    client.connect(host_name, port=port, keepalive=5)
    while True:
        time.sleep(0.5)
        one = spb.Metric(timestamp=spb.get_current_timestamp(), name="doubled", datatype=spb.DataType.DOUBLE, value=1.0)
        payload = spb.DCmd(timestamp=spb.get_current_timestamp(), metrics=(one,))
        topic = spb.Topic(group_id="site", message_type=spb.MessageType.DCMD, edge_node_id="chappe", device_id="speed")
        client.publish(spb.Message(topic=topic, payload=payload, qos=spb.QoS(0), retain=False), include_dtypes=True)


def other_settable(host_name: str, port: int, output: pathlib.Path) -> None:
    import mqtt_spb_wrapper as spb
    edge = spb.MqttSpbEntityEdgeNode("site", "other")
    edge.data.set_value("level", 0)
    edge.commands.set_value("level", 0)

    def commanded(payload) -> None:
        for one in payload["metrics"]:
            if one["name"] == "level":
                with open(output, "a") as lines:
                    lines.write(f"{one['value']}\n")
                edge.data.set_value("level", one["value"])
                edge.publish_data()

    edge.on_command = commanded
    if not edge.connect(host_name, port):
        sys.exit("no connection")
    edge.publish_birth()
    threading.Event().wait()


def main() -> None:
    role, host_name, port, path = sys.argv[1:]
    roles = {"node": node, "host": host, "other-node": other_node, "other-host": other_host, "settable": settable,
             "commander": commander, "other-settable": other_settable}
    roles[role](host_name, int(port), pathlib.Path(path))


main()
