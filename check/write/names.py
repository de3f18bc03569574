"""Renamed streams: what a live client, a link, a share and an account with a restricted role make of their names."""

import http.client
import json
import threading
import time

from network import CheckFailed, expect
from node import Node

CLIENTS = 10
SENSOR = """name = "{name}"
[[source]]
alias = "a"
stream = "{stream}"
{more}[output]
sql = "select count(*) as c from a"
[[output.field]]
name = "c"
type = "integer"
"""
SECOND_SOURCE = '[[source]]\nalias = "b"\nstream = "{stream}"\nwindow = "1m"\n'


class Live:
    """A client of live data; `got` has the stream and number of each element, `notices` the other events."""

    def __init__(self, node: Node, streams: str, token: str = ""):
        self.got, self.notices = [], []
        self.connection = http.client.HTTPConnection(node.host, node.port, timeout=60)
        headers = {"Authorization": f"Bearer {token or node.token}"}
        self.connection.request("GET", f"/api/v1/live?streams={streams}", headers=headers)
        self.answer = self.connection.getresponse()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self) -> None:
        event = None
        try:
            while line := self.answer.readline():
                text = line.decode().rstrip("\n")
                if text.startswith("event: "):
                    event = text[7:]
                elif text.startswith("data: ") and event == "elements":
                    self.got += [(one["stream"], one["number"]) for one in json.loads(text[6:])["elements"]]
                elif text.startswith("data: "):
                    self.notices.append(text[6:])
        except (OSError, ValueError, AttributeError, http.client.HTTPException):
            pass  # the check is over

    def numbers(self, stream: str) -> list[int]:
        return [number for name, number in self.got if name == stream]


def account(node: Node, name: str, *roles: str) -> str:
    return asked(node, 201, "POST", "/api/v1/accounts", {"name": name, "roles": list(roles)})["token"]


def asked(node: Node, expected: int, *request, **more):
    status, answer = node.ask(*request, **more)
    if status != expected:
        raise CheckFailed(f"{request}: {status} {answer}")
    return answer


def write(node: Node, stream: str, *values: int) -> None:
    asked(node, 200, "POST", f"/api/v1/streams/{stream}/elements", [{"v": value} for value in values])


def rename(node: Node, stream: str, name: str, token: str = "") -> None:
    asked(node, 200, "POST", f"/api/v1/streams/{stream}/rename", {"name": name}, token=token)


def until(limit_s: float, condition) -> bool:
    end = time.monotonic() + limit_s
    while not (holds := condition()) and time.monotonic() < end:
        time.sleep(0.05)
    return holds


def live(node: Node) -> None:
    node.create("busy", v="integer")
    over = threading.Event()

    def keep_busy() -> None:
        while not over.is_set():
            write(node, "busy", 1)

    busy = threading.Thread(target=keep_busy)
    busy.start()
    try:
        for number in range(CLIENTS):
            stream, name = f"s{number}", f"nick{number}"
            node.create(stream, v="integer")
            write(node, stream, 0)
            client = Live(node, f"busy,{name}")
            time.sleep(0.3)
            rename(node, stream, name)
            for value in (1, 2, 3):
                write(node, name, value)
            if not until(5, lambda: client.numbers(name)[-3:] == [2, 3, 4]):
                raise CheckFailed(f"client {number} got {client.numbers(name)} of the renamed stream, {client.notices}")
    finally:
        over.set()
        busy.join()
    expect(True, f"{CLIENTS} live clients got all elements of a stream since it has the name they asked for")

    reader = account(node, "ward-reader", "read=ward.*")
    node.create("ward.x", v="integer")
    client = Live(node, "*", reader)
    time.sleep(0.3)
    for name, value in (("ward.x", 1), ("lab.x", 2), ("ward.x", 3)):
        if name != "ward.x" or value == 3:
            rename(node, "ward.x" if name == "lab.x" else "lab.x", name)
        write(node, name, value)
        time.sleep(0.3)
    until(5, lambda: len(client.got) == 3)
    expect(client.numbers("ward.x") == [1, 2, 3], "a stream that left an account's names and returned has no gap there")


def link(node: Node, chappe: str, folder) -> None:
    reader = Node(chappe, folder)
    try:
        node.create("one", v="integer")
        node.create("two", v="integer")
        write(node, "one", *range(10))
        rename(node, "one", "nick")
        address = f"http://{node.host}:{node.port}"
        link = {"name": "far", "kind": "http_pull", "address": address, "streams": ["nick"], "as_prefix": "far",
                "token": node.token}
        asked(reader, 201, "POST", "/api/v1/links", link)
        values = lambda: [one["values"]["v"] for one in reader.elements("far.nick")]  # noqa: E731
        until(20, lambda: reader.ask("GET", "/api/v1/streams/far.nick")[0] == 200 and len(values()) == 10)
        rename(node, "one", "x")
        asked(node, 200, "DELETE", "/api/v1/streams/one/former-names/nick")
        rename(node, "two", "nick")
        write(node, "one", *range(50, 55))
        write(node, "two", *range(100, 105))
        until(30, lambda: 104 in values())
        found = values()
        expect(set(range(100, 105)) <= set(found) and not set(range(50, 55)) & set(found),
               f"a link follows a name that was freed to the stream that has it now: {found[-8:]}")
    finally:
        reader.stop()


def shares(node: Node) -> None:
    ann, bob = account(node, "ann", "write"), account(node, "bob", "write", "operate")
    for token, name in ((ann, "zz.removed"), (bob, "aa.own")):
        definition = {"name": name, "fields": [{"name": "v", "type": "text"}], "level": "process"}
        asked(node, 201, "POST", "/api/v1/streams", definition, token=token)
    asked(node, 204, "DELETE", "/api/v1/streams/zz.removed?force=true", token=bob)
    rename(node, "aa.own", "zz.removed", bob)
    for _ in range(6):
        asked(node, 200, "POST", "/api/v1/streams/zz.removed/elements", [{"v": "x" * 50_000}] * 10, token=bob)

    def use() -> dict:
        accounts = asked(node, 200, "GET", "/api/v1/accounts")["accounts"]
        return {one["name"]: (one["use"]["bytes"], one["use"]["streams"]) for one in accounts}

    node.stop()
    node.start()
    found = use()
    expect(found["ann"] == (0, 0) and found["bob"][1] == 1 and found["bob"][0] > 2_900_000,
           f"a stream with the name of a removed one counts for its own account: {found['ann']}, {found['bob']}")


def hidden(node: Node) -> None:
    for stream in ("ward.a", "ward-hid", "ward.old"):
        node.create(stream, v="integer")
    reader, operator = account(node, "reader", "read=ward.*"), account(node, "oper", "operate=ward.*", "write=ward.*")
    rename(node, "ward.old", "secret.plan-x")
    for name in ("ward.old", "ward.hid"):
        answer = asked(node, 409, "POST", "/api/v1/streams/ward.a/rename", {"name": name}, token=operator)
        expect("secret" not in str(answer) and "ward-hid" not in str(answer), f"renaming to {name}: {answer['detail']}")
    definition = {"name": "ward.hid", "fields": [{"name": "v", "type": "integer"}]}
    answer = asked(node, 409, "POST", "/api/v1/streams", definition, token=operator)
    expect("ward-hid" not in str(answer), f"defining it: {answer['detail']}")
    former, none = (node.ask("GET", f"/api/v1/streams/ward.{name}", token=reader)[0] for name in ("old", "none"))
    expect(former == none == 404, "a former name of a hidden stream answers like a name of none")


def readers(node: Node) -> None:
    node.create("room", v="integer")
    node.create("hall", v="integer")
    sensors = [("twice", "room", SECOND_SOURCE.format(stream="room"))]
    sensors += [(f"sensor{number}", "hall", "") for number in range(6)]
    for name, stream, more in sensors:
        text = SENSOR.format(name=name, stream=stream, more=more)
        status, answer = node.ask("PUT", f"/api/v1/virtual-sensors/{name}", text, Content_Type="application/toml")
        if status not in (200, 201, 204):
            raise CheckFailed(f"{name}: {status} {answer}")
    write(node, "room", *range(20))
    write(node, "hall", *range(20))

    def listed(query: str = "") -> tuple[list, str]:
        page = asked(node, 200, "GET", f"/api/v1/readers?limit=2{query}")
        return [(one["stream"], one["kind"], one["reader"]) for one in page["readers"]], page["next"]

    def pages() -> list:
        found, cursor = listed()
        while cursor:
            time.sleep(0.2)
            more, cursor = listed(f"&cursor={cursor}")
            found += more
        return found

    expected = [(stream, "sensor", name) for name, stream, _ in sensors]
    expect(until(20, lambda: sorted(pages()) == sorted(expected)), f"pages of two list {len(expected)} readers, each once")


def check(node: Node, chappe: str, folder) -> None:
    live(node)
    link(node, chappe, folder / "reader")
    shares(node)
    hidden(node)
    readers(node)
