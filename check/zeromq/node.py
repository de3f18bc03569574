"""The directory and PUB of a real node with libzmq (pyzmq) and JeroMQ; hostile sessions at its bound port.

    python3 check/zeromq/node.py CHAPPE WORK JARS

A node with devices that send every 20 ms, without and with CURVE. Both foreign programs list its streams,
ask one by name for its structure, subscribe to it, and get what the node itself has stored under the
same numbers, without a gap. Malformed questions get an empty answer and are counted; a key that is not
allowed gets nothing at all. Sessions that break the exchange protocol end with the right code and harm nobody
(sessions.py). Runs as root on Linux, in namespaces of its own.
"""

import base64
import io
import pathlib
import subprocess
import sys
import time
import xml.etree.ElementTree

import msgpack
import zmq

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "links"))
from pair import Node  # noqa: E402
from life import devices  # noqa: E402
from network import CheckFailed, enter, expect, run_in, until  # noqa: E402
from sessions import hostile  # noqa: E402
from sockets import Sockets, keys  # noqa: E402

INSIDE = "CHAPPE_ZEROMQ_INSIDE"
HTTP_PORT = 18480
DEVICES = 2
ELEMENTS = 150
EXCHANGE = """
[exchange]
listen = "127.0.0.1:0"
publish = "127.0.0.1:0"
directory = "127.0.0.1:0"
{more}
"""


def structures(answer: bytes) -> dict[str, list[dict]]:
    """The structures in the directory's XML answer, by stream."""
    found = {}
    for line in answer.decode().splitlines():
        document = xml.etree.ElementTree.fromstring(line)
        if document.tag != "structure" or document.get("stream") in found:
            raise CheckFailed(f"no structure, or a second one: {line}")
        found[document.get("stream")] = [dict(field.attrib) for field in document]
    return found


def read_xml(topic: bytes, payload: bytes) -> list[dict]:
    """An element in the form of the node's REST API: number, time, values."""
    element = xml.etree.ElementTree.fromstring(payload)
    stream, _, form = topic.decode().rpartition(" ")
    if (element.tag, element.get("stream"), form) != ("stream-element", stream, "xml"):
        raise CheckFailed(f"under {topic!r} came {payload!r}")
    values = {}
    for field in element:
        text = field.text or ""
        if field.get("encoding") == "base64":
            text = base64.b64decode(text).decode()
        if field.get("is-null") != "true":
            values[field.get("name")] = float(text) if field.get("type") == "double" else text
    return [{"stream": stream, "epoch": element.get("epoch"), "number": int(element.get("number")),
             "values": values}]


def read_message_pack(topic: bytes, payload: bytes) -> list[dict]:
    """The same from MessagePack, which has several elements in a message."""
    document = msgpack.unpackb(payload)
    stream, _, form = topic.decode().rpartition(" ")
    if (document["type"], document["stream"], form) != ("elements", stream, "message_pack"):
        raise CheckFailed(f"under {topic!r} came {document}")
    return [{"stream": stream, "epoch": element["epoch"], "number": element["number"],
             "values": {name: value for name, value in zip(document["fields"], element["values"])
                        if value is not None}}
            for element in document["elements"]]


def same(node: Node, stream: str, got: list[dict]) -> None:
    """A subscriber received what the node has stored, without a gap."""
    numbers = [element["number"] for element in got]
    if numbers != list(range(numbers[0], numbers[0] + len(numbers))):
        raise CheckFailed(f"{stream}: the numbers are {numbers}")
    stored = {element["number"]: element for element in node.elements(stream)}
    for element in got:
        here = stored[element["number"]]
        values = {name: value for name, value in here["values"].items() if value is not None}
        epoch = element["epoch"] if isinstance(element["epoch"], str) else f"{element['epoch']:016x}"
        if (values, here["epoch"]) != (element["values"], epoch):
            raise CheckFailed(f"{stream}: the node has {here}, the subscriber got {element}")


def like_rest(node: Node, listed: dict[str, list[dict]], named: dict[str, list[dict]], stream: str) -> None:
    """The directory agrees with REST."""
    known = node.streams()
    if set(listed) != set(known) or any(listed.values()):
        raise CheckFailed(f"the directory lists {listed}, REST {list(known)}")
    fields = [(field["name"], field["type"], field.get("unit")) for field in known[stream]["fields"]]
    told = [(field["name"], field["type"], field.get("unit")) for field in named[stream]]
    if list(named) != [stream] or told != fields:
        raise CheckFailed(f"the directory tells {named}, REST {fields}")


def drops(node: Node) -> list[tuple[str, str]]:
    return [(drop["at_hop"], drop["reason"]) for drop in node.get("/api/v1/drops")["drops"]]


def pyzmq(node: Node, client: tuple[str, str] | None, told: dict, stream: str) -> None:
    with Sockets(client, told.get("curve_key") or "") as sockets:
        directory = sockets.connect(zmq.REQ, told["directory"])

        def ask(question: str) -> bytes:
            directory.send_string(question)
            return directory.recv()
        like_rest(node, structures(ask("")), structures(ask(stream)), stream)
        packed = list(msgpack.Unpacker(io.BytesIO(ask(f"{stream}\nmessage_pack"))))
        expect([one["stream"] for one in packed] == [stream] and packed[0]["type"] == "structure",
               "the structure in MessagePack is read by another library")
        beginning = stream[:-1] + "*"
        expect(stream in structures(ask(beginning)), f"asked for {beginning!r}")
        expect(ask("no.such.stream") == b"" and ask("NO SUCH\nxml") == b"" and ask("a\nyaml") == b"",
               "a stream that is not there, and no question at all: empty answers")
        expect(("exchange", "directory question") in drops(node), "what is no question is counted")
        for form, read in (("xml", read_xml), ("message_pack", read_message_pack)):
            sub = sockets.connect(zmq.SUB, told["publish"])
            sub.subscribe(f"{stream} {form}")
            got: list[dict] = []
            while len(got) < ELEMENTS:
                got += read(*sub.recv_multipart())
            same(node, stream, got)
            print(f"   ok: libzmq: {len(got)} elements in {form} as stored", flush=True)
        every = sockets.connect(zmq.SUB, told["publish"])
        every.subscribe("")
        seen: set[str] = set()
        while len(seen) < DEVICES * 3:
            seen.add(every.recv_multipart()[0].decode())
        expect(True, f"libzmq: subscribed to everything: {len(seen)} topics, all forms")


def jeromq(node: Node, client: tuple[str, str] | None, told: dict, stream: str, classes: str) -> None:
    own = [told["curve_key"], *client] if client else []
    run = subprocess.run(["java", "-cp", classes, "JeroPeer", "node", told["directory"], told["publish"], stream,
                          str(ELEMENTS), *own], capture_output=True, text=True, timeout=600)
    if run.returncode:
        raise CheckFailed(f"JeroMQ: {run.stdout[-500:]}{run.stderr[-1500:]}")
    answers: dict[str, list[str]] = {"list": [], "named": [], "element": []}
    for line in run.stdout.splitlines():
        kind, _, rest = line.partition(" ")
        answers[kind].append(rest)
    listed, named = (structures("\n".join(answers[kind]).encode()) for kind in ("list", "named"))
    like_rest(node, listed, named, stream)
    got = []
    for line in answers["element"]:
        got += read_xml(f"{stream} xml".encode(), line.encode())
    expect(len(got) == ELEMENTS, f"JeroMQ: {len(listed)} streams, the structure of {stream}, {len(got)} elements")
    same(node, stream, got)


def strangers(node: Node, told: dict) -> None:
    """A key that is not allowed, and no key at all."""
    for own, key in ((keys(), told["curve_key"]), (None, "")):
        with Sockets(own, key) as sockets:
            directory = sockets.connect(zmq.REQ, told["directory"], immediate=1)
            directory.rcvtimeo = directory.sndtimeo = 2_000
            try:
                directory.send_string("")
                directory.recv()
            except zmq.Again:
                continue
            raise CheckFailed("a stranger was answered")
    counted = drops(node)
    expect(("exchange", "key not allowed") in counted, "a key that is not allowed gets no answer, and is counted")


def check(chappe: str, work: pathlib.Path, jars: str) -> None:
    classes = ":".join(str(jar) for jar in sorted(pathlib.Path(jars).glob("*.jar"))) + f":{work}"
    source = pathlib.Path(__file__).resolve().parent / "JeroPeer.java"
    subprocess.run(["javac", "-nowarn", "-cp", classes, "-d", str(work), str(source)], check=True)
    sending = devices(chappe, work / "devices", DEVICES)
    try:
        for secured in (False, True):
            client = keys() if secured else None
            more = f'allowed_keys = ["{client[0]}"]' if client else ""
            folder = work / ("curve" if secured else "plain")
            node = Node(chappe, folder, "origin", HTTP_PORT + secured, True, EXCHANGE.format(more=more))
            node.start().ready()
            try:
                until(20, "elements of all devices", lambda: sum(
                    one["last"] > 10 for one in node.streams().values()) >= DEVICES)
                told = node.get("/api/v1/links")["listening"]
                stream = sorted(name for name, one in node.streams().items() if one["last"])[0]
                expect(bool(told["curve_key"]) == secured, f"a node with CURVE: {secured}")
                pyzmq(node, client, told, stream)
                jeromq(node, client, told, stream, classes)
                if secured:
                    strangers(node, told)
                else:
                    hostile(node, told["sessions"], stream)
                node.stop()
            finally:
                node.kill()
    finally:
        for device in sending:
            device.stop()


def main() -> None:
    chappe, work, jars = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve(), sys.argv[3]
    enter(INSIDE, sys.argv)
    began = time.monotonic()
    run_in(work, lambda: check(str(chappe), work, jars), (zmq.ZMQError,))
    print(f"   {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
