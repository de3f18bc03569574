"""Senders, readers and brokers that attack a node with its protocols: bombs, floods, forged names, lies of brokers.

    python3 check/connectors/hostile.py CHAPPE WORK [PART...]

1. bombs:   small requests that grow: snappy, gzip, protocol buffers with forged lengths.
2. floods:  slow bodies, and filters of SensorThings without end: others are served meanwhile.
   order:   samples out of order, again, without a number, of the last times there are.
3. names:   names that run together, series that are forged, columns without end; also after a restart.
4. brokers: a broker of MQTT that says nothing, ends in mid-frame, forges lengths, floods, repeats messages and has topics
            without end.
5. entities: announcements of Home Assistant and edge nodes of Sparkplug that are made up.
6. expired: a server whose certificate has expired.

Each part bounds the memory of the node and the time of its answers. Standard library, mosquitto and openssl; about a minute.
"""

import gzip
import json
import pathlib
import random
import socket
import struct
import sys
import threading
import time
import urllib.parse
from collections.abc import Callable

sys.dont_write_bytecode = True
from shared import node_with, run  # noqa: E402
from bench import Skipped, need  # noqa: E402
from network import PATIENCE, CheckFailed, Process, expect, until  # noqa: E402
from tls.run import Authority  # noqa: E402
from write.node import Node  # noqa: E402

# What a node may hold more than before, whatever it is sent; reason: some times the largest request without its compression.
GROWTH_BYTES = 320 << 20
ANSWER_S = 5
MIB = 1 << 20
LIMITS = "[limits]\nquery_time_ms = 1000\n"
PROTOBUF = {"Content_Encoding": "snappy", "Content_Type": "application/x-protobuf"}
SECOND = {**PROTOBUF, "Content_Type": "application/x-protobuf;proto=io.prometheus.write.v2.Request"}


def varint(number: int) -> bytes:
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def field(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


class Snappy:
    """A block of literals and repeated patterns, which are a few bytes whatever their length."""

    def __init__(self) -> None:
        self.out, self.length = bytearray(), 0

    def literal(self, data: bytes) -> "Snappy":
        self.length += len(data)
        for start in range(0, len(data), 60):
            piece = data[start:start + 60]
            self.out += bytes([(len(piece) - 1) << 2]) + piece
        return self

    def repeated(self, pattern: bytes, count: int) -> "Snappy":
        self.literal(pattern)
        left, offset = len(pattern) * (count - 1), len(pattern).to_bytes(2, "little")
        self.length += left
        whole, rest = divmod(left, 64)
        self.out += (bytes([63 << 2 | 2]) + offset) * whole
        if rest:
            self.out += bytes([(rest - 1) << 2 | 2]) + offset
        return self

    def block(self) -> bytes:
        return varint(self.length) + bytes(self.out)


class Watch:
    """The memory of a node while something is done to it."""

    def __init__(self, node: Node, what: str):
        self.node, self.what = node, what

    def __enter__(self) -> "Watch":
        self.before, self.begun = self.node.resident_bytes(), time.monotonic()
        return self

    def __exit__(self, kind, *_) -> None:
        if kind is None:
            grown, took = self.node.resident_bytes("VmHWM:") - self.before, time.monotonic() - self.begun
            expect(grown < GROWTH_BYTES, f"{self.what}: {grown / MIB:.0f} MiB more at most, {took:.1f} s")


def sent(node: Node, what: str, wanted: tuple[int, ...], path: str, body: bytes, **headers: str) -> object:
    begun = time.monotonic()
    status, answer = node.ask("POST", path, body, timeout_s=ANSWER_S * PATIENCE, **headers)
    took = time.monotonic() - begun
    expect(status in wanted, f"{what}: {len(body)} bytes are answered with {status} after {took:.1f} s"
           + ("" if status in wanted else f": {answer}"))
    return answer


def of_series(labels: bytes, long_label: int, sample: bytes, samples: int) -> Snappy:
    """A request with one series: its labels, another one of so many bytes, and so often the same sample."""
    head = field(1, b"a") + varint(2 << 3 | 2) + varint(long_label)
    label = varint(1 << 3 | 2) + varint(len(head) + long_label) + head
    length = len(labels) + len(label) + long_label + len(sample) * samples
    block = Snappy().literal(varint(1 << 3 | 2) + varint(length) + labels + label)
    return block.repeated(b"x", long_label).repeated(sample, samples)


def bombs(chappe: str, work: pathlib.Path, chance: random.Random) -> None:
    node = node_with(chappe, work, plant='kind = "influxdb"\n', prometheus='kind = "remote_write"\n')
    until(20, "the wrappers run", lambda: node.ask("POST", "/write?db=x", b"ready v=1")[0] == 204
          and node.ask("POST", "/api/v1/write", b"\0", **PROTOBUF)[0] == 204)
    up = field(1, field(1, b"__name__") + field(2, b"up"))
    with Watch(node, "snappy"):
        sent(node, "a length of 4 GiB", (400, 413), "/api/v1/write", varint(1 << 32) + b"\0x", **PROTOBUF)
        sent(node, "64 MiB in a block", (400, 413), "/api/v1/write", Snappy().repeated(b"\x0a\x00", 32 * MIB).block(), **PROTOBUF)
        sent(node, "a copy from before the start", (400,), "/api/v1/write", varint(64) + b"\xfe\x40\x00", **PROTOBUF)
    with Watch(node, "samples that repeat a long label"):
        for labels, sample, what, wanted in (
                (up, field(2, b""), "without a time", 400), (b"", field(2, b""), "without a name", 400),
                (up, field(2, b"\x10\x01"), "of a megabyte, whose elements would have 30 GiB", 413)):
            block = of_series(labels, 8_000, sample, 3 * MIB).block()
            sent(node, f"3 million samples of one series {what}", (wanted,), "/api/v1/write", block, **PROTOBUF)
    with Watch(node, "protocol buffers"):
        for what, document in (("a length beyond the end", varint(1 << 3 | 2) + varint((1 << 63) - 1) + b"x"),
                               ("a number without end", b"\xff" * 64), ("levels", field(1, field(1, field(1, field(1, b"\x0a\x7f"))))),
                               ("an unknown wire type", b"\x0f\x0e\x0d")):
            for kind in (PROTOBUF, SECOND):
                sent(node, what, (204, 400), "/api/v1/write", Snappy().literal(document).block(), **kind)
        references = Snappy().literal(field(4, b"")).literal(field(5, field(1, varint(1 << 31) * 8) + field(2, b"\x10\x01")))
        sent(node, "symbols that are not there", (400,), "/api/v1/write", references.block(), **SECOND)
    with Watch(node, "gzip"):
        zeros = gzip.compress(bytes(512 * MIB), 9)
        sent(node, "512 MiB of zeros", (400, 413), "/write?db=x", zeros, Content_Encoding="gzip")
        points = gzip.compress(b"gz v=1 1\n" * 1000)
        sent(node, "an end that is cut off", (400,), "/write?db=x", points[:-9], Content_Encoding="gzip")
        sent(node, "no gzip", (400,), "/write?db=x", b"m v=1", Content_Encoding="gzip")
    with Watch(node, "points with long tags"):
        lines = b"\n".join(b"m,t=%d_" % number + b"x" * 15_000 + b" v=1" for number in range(1_000))
        sent(node, "a thousand series of 15 kB", (204, 400), "/write?db=x", gzip.compress(lines), Content_Encoding="gzip")
        sent(node, "a point of a million bytes", (400,), "/write?db=x", b"m,t=" + b"y" * 900_000 + b" v=1")
        sent(node, "ten thousand fields", (400,), "/write?db=x", b"m " + b",".join(b"f%d=1" % n for n in range(10_000)) + b" 1")
    with Watch(node, "bytes without sense"):
        statuses: dict[int, int] = {}
        for number in range(400):
            tokens = [b"m", b",", b" ", b"=", b'"', b"\\", b"\n", b"1", b"i", b"v=1", b"-", b"9223372036854775807", b"\r", b"#",
                      b"\0", b"\xff"]
            body = b"".join(chance.choice(tokens) for _ in range(chance.randrange(30)))
            path, headers = "/write?db=x", {}
            if number % 2:
                body = bytes(chance.choice([8, 10, 16, 18, 42, 34, 0, 1, 2, 255, 127]) for _ in range(chance.randrange(60)))
                path, headers = "/api/v1/write", chance.choice([PROTOBUF, SECOND])
                body = Snappy().literal(body).block() if number % 4 == 1 else body
            status = node.ask("POST", path, body, **headers)[0]
            statuses[status] = statuses.get(status, 0) + 1
        expect(set(statuses) <= {204, 400}, f"requests of random pieces are stored or refused: {statuses}")
    good = Snappy().literal(field(1, up + field(2, b"\x09" + struct.pack("<d", 1.5) + b"\x10\x05"))).block()
    sent(node, "a request of another client", (204,), "/api/v1/write", good, **PROTOBUF)
    node.stop()


def floods(chappe: str, work: pathlib.Path, chance: random.Random) -> None:
    node = node_with(chappe, work, LIMITS, plant='kind = "influxdb"\n')
    status, slow = node.ask("POST", "/api/v1/accounts", {"name": "slow", "roles": ["write"]})
    expect(status in (200, 201), f"an account that writes ({status})")
    until(20, "the wrapper runs", lambda: node.ask("POST", "/write?db=x", b"ready v=1")[0] == 204)
    sockets = []
    with Watch(node, "200 bodies that never end"):
        head = (f"POST /write?db=x HTTP/1.1\r\nHost: {node.host}\r\nAuthorization: Token {slow['token']}\r\n"
                "Content-Length: 1000000\r\n\r\nm v=1")
        for _ in range(200):
            sockets.append(socket.create_connection((node.host, node.port)))
            sockets[-1].sendall(head.encode())
        sent(node, "another account meanwhile", (204,), "/write?db=x", b"m v=2")
    for one in sockets:
        one.close()
    node.create("lab.wide", **{f"f{number}": "double" for number in range(150)})
    node.ask("POST", "/api/v1/streams/lab.wide/elements", [{"f0": number} for number in range(200)])
    path = "Thing/Datastreams/Thing/Datastreams/Sensor/name"
    fields = "Thing/Datastreams/name"
    filters = {
        "paths through sets": " or ".join([path] * 120),
        "large sets compared with each other": f"{fields} eq {fields}",
        "levels": "(" * 4_000 + "1 eq 1" + ")" * 4_000,
        "not": "not " * 1_000 + "true",
    }
    with Watch(node, "filters"):
        for what, text in filters.items():
            address = "/sensorthings/v1.1/Datastreams?$top=0&$filter=" + urllib.parse.quote(text, safe="/")
            begun = time.monotonic()
            status, answer = node.ask("GET", address, timeout_s=ANSWER_S * PATIENCE)
            expect(status == 400, f"{what}: {status} after {time.monotonic() - begun:.1f} s {str(answer)[:90]}")
        address = "/sensorthings/v1.1/Datastreams?$top=0&$filter=" + urllib.parse.quote(filters["paths through sets"], safe="/")

        def give_up() -> None:
            try:
                node.ask("GET", address, timeout_s=0.5)
            except OSError:
                pass

        threads = [threading.Thread(target=give_up) for _ in range(40)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        until(ANSWER_S, "a query is answered after forty readers have left",
              lambda: node.ask("POST", "/api/v1/streams/query", {"sql": "select 1"})[0] == 200)
    node.stop()


def order(chappe: str, work: pathlib.Path, chance: random.Random) -> None:
    node = node_with(chappe, work, prometheus='kind = "remote_write"\n')
    until(20, "the wrapper runs", lambda: node.ask("POST", "/api/v1/write", b"\0", **PROTOBUF)[0] == 204)
    stale = struct.unpack("<d", struct.pack("<Q", 0x7FF0_0000_0000_0002))[0]
    start = 1_700_000_000_000
    samples = [(3.0, start + 3), (1.0, start + 1), (float("nan"), start + 2), (stale, start + 4), (9_007_199_254_740_992.0, start),
               (3.0, start + 3), (4.0, start + 3), (5.0, (1 << 63) - 1)]
    encoded = b"".join(field(2, b"\x09" + struct.pack("<d", value) + b"\x10" + varint(at)) for value, at in samples)
    block = Snappy().literal(field(1, field(1, field(1, b"__name__") + field(2, b"up")) + encoded)).block()
    for _ in range(2):
        sent(node, "samples out of order, one of them beyond the times there are", (400,), "/api/v1/write", block, **PROTOBUF)
    found = sorted((one["source_time"][20:23], one["values"]["value"], one["quality"]) for one in node.elements("prometheus.up")
                   if one["values"]["value"] is not None)
    expect(found == [("", 9_007_199_254_740_992.0, "good"), ("001", 1.0, "good"), ("003", 3.0, "good"), ("003", 4.0, "good")],
           f"each is stored once with its time: {found}")
    others = sorted(one["quality"] for one in node.elements("prometheus.up") if one["values"]["value"] is None)
    expect(others == ["bad", "good"], f"a NaN is a value, the end of a series is not: {others}")
    node.stop()


def names(chappe: str, work: pathlib.Path, chance: random.Random) -> None:
    node = node_with(chappe, work, plant='kind = "influxdb"\nlimits = { streams = 30 }\n')

    def write(text: str) -> int:
        status, answer = node.ask("POST", "/write?db=x", text)
        return status if status != 503 else until(10, "the wrapper answers", lambda: node.ask("POST", "/write?db=x", text)[0])

    until(20, "the wrapper runs", lambda: node.ask("POST", "/write?db=x", "ready v=1")[0] == 204)
    first = [write("CPU Idle=1,idle=2 1"), write("cpu Idle=100 2")]
    wide = ",".join(f"a_column_of_a_wide_stream_{number}=1" for number in range(200))
    first.append(write(f"wide {wide} 1"))
    expect(first == [204, 400, 204], f"measurements that differ in case have no stream together: {first}")
    forged = [write("room,bed=1\\,ward\\=a v=1 1"), write("room,bed=1,ward=a v=2 1")]
    keys = {one["key"] for one in node.elements("plant.room")}
    expect(forged == [204, 204] and len(keys) == 2, f"a tag that looks like two has a key of its own: {sorted(keys)}")
    node.kill()
    node.start()
    until(20, "the wrapper runs", lambda: node.ask("POST", "/write?db=x", "ready v=1")[0] == 204)
    after = [write("cpu Idle=100 3"), write("CPU idle=4,Idle=3 3"), write("wide one_more=1 2")]
    expect(after == [400, 204, 204], f"after a restart they are what they were, and a wide stream gets another column: {after}")
    rows = [[one["values"][name] for name in ("idle", "idle_2")] for one in node.elements("plant.cpu")]
    expect(rows == [[1.0, 2.0], [3.0, 4.0]], f"columns that differ in case are not exchanged: {rows}")
    with Watch(node, "names without end"):
        answers = [write("\n".join(f"flood{number}_{piece} v=1" for number in range(500))) for piece in range(10)]
        expect(set(answers) == {400}, "measurements beyond limits.streams are refused")
        status, listed = node.ask("GET", "/api/v1/streams?prefix=plant.")
        expect(len(listed["streams"]) == 30, f"the wrapper has {len(listed['streams'])} streams")
        expect(write("room v=3 9") == 204, "streams that it has are still written")
    node.stop()


class Broker:
    """A broker of MQTT 3.1.1 that accepts every client and subscription, and then does what it likes to the connection."""

    def __init__(self, act: Callable[[socket.socket], None]):
        self.act, self.connections = act, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self.greet, args=(connection,), daemon=True).start()

    def greet(self, connection: socket.socket) -> None:
        try:
            while True:
                kind, body = self.packet(connection)
                if kind >> 4 == 1:
                    connection.sendall(b"\x20\x02\x00\x00")
                elif kind >> 4 == 8:
                    connection.sendall(b"\x90\x03" + body[:2] + b"\x01")
                    self.act(connection)
                elif kind >> 4 == 12:
                    connection.sendall(b"\xd0\x00")
        except (OSError, IndexError):
            connection.close()

    @staticmethod
    def packet(connection: socket.socket) -> tuple[int, bytes]:
        def take(count: int) -> bytes:
            data = b""
            while len(data) < count:
                piece = connection.recv(count - len(data))
                if not piece:
                    raise OSError("closed")
                data += piece
            return data
        kind, length, shift = take(1)[0], 0, 0
        while True:
            byte = take(1)[0]
            length |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return kind, take(length)


def publish(topic: str, payload: bytes, number: int | None = None, is_again: bool = False) -> bytes:
    """A PUBLISH of quality of service 0, or 1 with a number."""
    name = topic.encode()
    body = struct.pack(">H", len(name)) + name + (struct.pack(">H", number) if number else b"") + payload
    return bytes([0x30 | (2 if number else 0) | (8 if is_again else 0)]) + varint(len(body)) + body


MQTT = """kind = "mqtt"
address = "mqtt://127.0.0.1:{port}"
version = "3.1.1"
subscribe = ["{topic}"]
limits = {{ streams = 20, dead_letters = 50 }}
keep_alive_s = 5
format = "json"
[[stream]]
name = "{name}"
fields = [{{ name = "n", type = "integer" }}]
"""


def brokers(chappe: str, work: pathlib.Path, chance: random.Random) -> None:
    node = node_with(chappe, work)

    def flood(connection: socket.socket) -> None:
        # Acknowledgements are not waited for, and the numbers of packets come round.
        for number in range(1, 30_000):
            connection.sendall(publish("plant/n", b'{"n": %d}' % number, number % 65_535 + 1))

    def again(connection: socket.socket) -> None:
        for number in range(1, 31):
            connection.sendall(publish("plant/n", b'{"n": %d}' % number, number))
        for number in range(1, 31):
            connection.sendall(publish("plant/n", b'{"n": %d}' % number, number, is_again=True))

    def topics(connection: socket.socket) -> None:
        for number in range(5_000):
            connection.sendall(publish(f"plant/t{number}{'x' * 200}", b'{"n": 1}', number % 65_535 + 1))

    def raw(data: bytes) -> Callable[[socket.socket], None]:
        def act(connection: socket.socket) -> None:
            connection.sendall(data)
            connection.close()
        return act

    def silent(connection: socket.socket) -> None:
        # Not even whether the broker is there is answered.
        time.sleep(600)

    acts = {"silent": silent, "flood": flood, "again": again, "topics": topics, "mid_frame": raw(publish("plant/n", b'{"n": 1}', 1)[:-4]),
            "length": raw(b"\x32\xff\xff\xff\x7f" + bytes(100_000)), "lengths": raw(b"\x32\xff\xff\xff\xff\xff\xff"),
            "no_topic": raw(b"\x32\x04\xff\xff\x00\x01"), "no_packet": raw(b"\xf0\x02\x00\x00"),
            "large": raw(publish("plant/n", b'{"n": 1, "text": "' + b"x" * 8 * MIB + b'"}', 7))}
    running = {name: Broker(act) for name, act in acts.items()}
    with Watch(node, "brokers that lie"):
        for name, broker in running.items():
            shape = ("plant/{t}", "topics.{t}") if name == "topics" else ("plant/n", name)
            text = MQTT.format(port=broker.port, topic=shape[0], name=shape[1])
            (node.folder / "wrappers" / f"{name.replace('_', '-')}.toml").write_text(text)

        def row(name: str) -> dict:
            status, found = node.ask("GET", f"/api/v1/wrappers/{name.replace('_', '-')}")
            return found if status == 200 else {"state": None, "reason": None, "undecodable": 0}

        for name in ("mid_frame", "length", "lengths", "no_topic", "no_packet"):
            until(20, f"{name}: the wrapper connects again", lambda n=name: running[n].connections > 1)
            expect(row(name)["state"] != "running" or row(name)["reason"], f"{name}: {row(name)['state']}: {row(name)['reason']}")
        until(20, "silent: the wrapper connects again", lambda: running["silent"].connections > 1)
        until(20, "each message of the flood is stored", lambda: len(set(numbers(node, "flood"))) == 29_999)
        expect(True, "a flood of 29,999 messages is stored, and acknowledged as far as the broker listens")
        until(20, "messages that are repeated are stored", lambda: len(numbers(node, "again")) >= 30)
        # Time for a wrong one more to be stored.
        time.sleep(1)
        found = numbers(node, "again")[:30]
        expect(found == list(range(1, 31)), "a message that the broker sends again is stored once")
        until(30, "topics without end", lambda: row("topics")["undecodable"] + sum((row("topics").get("lost") or {}).values()) > 4_000
              or row("topics")["dead_letters_dropped"] > 4_000)
        status, listed = node.ask("GET", "/api/v1/streams?prefix=topics.")
        expect(len(listed["streams"]) <= 20, f"topics without end: {len(listed['streams'])} streams, the others are dead letters")
        until(20, "the large message is a dead letter", lambda: row("large")["dead_letters"] > 0)
        expect(True, "a message of 8 MiB is a dead letter")
    for broker in running.values():
        broker.listener.close()
    node.stop()


def numbers(node: Node, stream: str) -> list[int]:
    return [one["values"]["n"] for one in node.elements(stream)] if node.ask("GET", f"/api/v1/streams/{stream}")[0] == 200 else []


def entities(chappe: str, work: pathlib.Path, chance: random.Random) -> None:
    need("mosquitto")
    node = node_with(chappe, work)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = work / "mosquitto.conf"
    settings.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\nmax_queued_messages 0\nuser root\n")
    broker = Process(["mosquitto", "-c", str(settings)], work / "mosquitto.log")

    def connected() -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", port), timeout=20)
        connection.sendall(b"\x10\x13\x00\x04MQTT\x04\x02\x00\x3c\x00\x07" + b"hostile")
        if Broker.packet(connection) != (0x20, b"\x00\x00"):
            raise CheckFailed("mosquitto refuses the attacker")
        return connection

    until(20, "mosquitto answers", lambda: socket.socket().connect_ex(("127.0.0.1", port)) == 0)
    attacker = connected()
    for name, kind in (("home", "home_assistant"), ("line", "sparkplug")):
        (node.folder / "wrappers" / f"{name}.toml").write_text(f'kind = "{kind}"\naddress = "mqtt://127.0.0.1:{port}"\n')
    for name in ("home", "line"):
        until(20, f"{name} is connected", lambda n=name: node.ask("GET", f"/api/v1/wrappers/{n}")[1].get("state") in ("running", "waiting"))
    time.sleep(1)
    with Watch(node, "a thousand entities that read one topic"):
        attacker.sendall(publish("homeassistant/sensor/ok/config", b'{"stat_t": "k/ok", "unit_of_meas": "W"}'))
        parts = {f"t{number}": {"p": "sensor", "name": "x"} for number in range(999)}
        device = {"dev": {"ids": "d"}, "o": {"name": "x"}, "stat_t": "k/s", "cmps": parts}
        attacker.sendall(publish("homeassistant/device/d1/config", json.dumps(device).encode()))

        def row() -> dict:
            return node.ask("GET", "/api/v1/wrappers/home")[1]

        def spoken(topic: str, payload: bytes) -> bool:
            attacker.sendall(publish(topic, payload))
            time.sleep(1)
            return row()["elements"] >= 999

        # The topic is subscribed to after the announcement.
        until(30, "the entities read their topic", lambda: spoken("k/s", b"5"))
        before = row()["undecodable"]
        for number in range(3):
            attacker.sendall(publish("k/s", b"%d" % number + b"x" * 1_000_000))
        until(30, "each of the large messages is a dead letter", lambda: row()["undecodable"] >= before + 3)
        until(30, "an honest entity is stored", lambda: spoken("k/ok", b"7")
              and node.ask("GET", "/api/v1/streams/home.sensor.ok")[0] == 200)
        expect(True, f"{row()['elements']} states are stored, {row()['undecodable']} messages are dead letters")
    with Watch(node, "edge nodes that were never born"):
        for number in range(20_000):
            attacker.sendall(publish(f"spBv1.0/forged/NDATA/{number}", b"\x18\x00"))
        metric = field(2, field(1, b"speed") + varint(4 << 3) + varint(10) + varint(13 << 3 | 1) + bytes(8))
        until(30, "an honest edge node is stored", lambda: attacker.sendall(
            publish("spBv1.0/real/NBIRTH/press", metric + varint(3 << 3) + varint(0)))
            or node.ask("GET", "/api/v1/streams/line.real.press.speed")[0] == 200)
        lost = node.ask("GET", "/api/v1/wrappers/line")[1]["lost"]
        until(20, "they are counted", lambda: sum((node.ask("GET", "/api/v1/wrappers/line")[1]["lost"] or {}).values()) > 10_000)
        expect(True, f"messages of edge nodes without a birth certificate are counted: {lost}")
    attacker.close()
    broker.stop()
    node.stop()


def expired(chappe: str, work: pathlib.Path, chance: random.Random) -> None:
    need("mosquitto", "openssl")
    node = node_with(chappe, work)
    authority = Authority(work, "plant")
    past = ("-startdate", "20200101000000Z", "-enddate", "20210101000000Z")
    file, key = authority.issue("expired", "localhost", *past)
    settings = work / "mosquitto.conf"
    settings.write_text(f"listener 8883 127.0.0.1\nallow_anonymous true\ncertfile {file}\nkeyfile {key}\nuser root\n")
    broker = Process(["mosquitto", "-c", str(settings)], work / "mosquitto.log")
    (node.folder / "wrappers" / "expired.toml").write_text(
        MQTT.format(port=8883, topic="a", name="a").replace("mqtt://127.0.0.1", "mqtts://localhost")
        .replace("limits", f'server = {{ authorities = "{authority.folder}/ca.pem" }}\nlimits', 1))

    def reason() -> str:
        return str(node.ask("GET", "/api/v1/wrappers/expired")[1].get("reason"))

    until(20, "the certificate is refused", lambda: "xpired" in reason())
    expect(True, f"a broker whose certificate has expired is refused: {reason()[:120]}")
    broker.stop()
    node.stop()


PARTS = {part.__name__: part for part in (bombs, floods, order, names, brokers, entities, expired)}


def check(chappe: str, work: pathlib.Path, chance: random.Random) -> None:
    for name in sys.argv[3:] or PARTS:
        print(f"-- {name}", flush=True)
        begun = time.monotonic()
        try:
            PARTS[name](chappe, work / name, chance)
        except Skipped as reason:
            print(f"   skipped: {name}: {reason}", flush=True)
        print(f"   {time.monotonic() - begun:.1f} s", flush=True)


if __name__ == "__main__":
    run(check)
