"""Hostile sessions at a node's bound port: valid ZMTP (libzmq) that carries invalid frames of the exchange protocol.

Frames are made here from docs/reference/exchange-protocol.md, not by the product. The node stays up, sends Goodbye with the right code
or closes the connection, counts ended sessions, frees their memory, and keeps serving an honest session.
"""

import pathlib
import random
import time
import zlib

import zmq

from network import CheckFailed, expect, until
from pair import Node
from sockets import PATIENCE_MS, Sockets

SEED = 13
MUTATED = 3_000
SILENT = 100
UNREAD_S, UNREAD_GROWTH_MAX = 3, 16 << 20
SESSIONS_MAX = 64  # exchange.max_sessions_per_peer
CHANNELS = 8_400  # more than twice the 4,096 at a time: beyond those they are refused, and then it is enough
GROWTH_MAX = 64 << 20
HELLO, WELCOME, GOODBYE, SUBSCRIBE, ACCEPTED, REFUSED, RECORDS, ACKNOWLEDGE = 1, 2, 3, 4, 5, 6, 8, 10
PING, PONG, UNSUBSCRIBE, FETCH, FETCHED, STAGE = 13, 14, 15, 17, 18, 19
CODES = {1: "version", 2: "malformed", 4: "too large", 5: "unexpected", 6: "unknown channel", 7: "too many channels",
         8: "acknowledged unsent", 9: "went back", 13: "handshake", 3: "damaged", 11: "contradiction", 14: "misuse"}
MANY = 2**64 - 1


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def text(words: bytes | str) -> bytes:
    data = words.encode() if isinstance(words, str) else words
    return varint(len(data)) + data


def message(kind: int, *parts: bytes | int) -> bytes:
    body = b"".join(varint(part) if isinstance(part, int) else part for part in parts)
    return bytes([kind]) + varint(len(body)) + body


def frame(*messages: bytes) -> bytes:
    body = b"".join(messages)
    return zlib.crc32(body).to_bytes(4, "little") + body


def hello(versions: tuple[int, int] = (2, 2), largest: int = 1 << 20, window: int = 1 << 20) -> bytes:
    return message(HELLO, b"CHPF", *versions, b"session!", largest, window, 10, 20_000)


def subscribe(stream: str | bytes, channel: int = 0, credit: tuple[int, int] = (1 << 20, 100_000)) -> bytes:
    return message(SUBSCRIBE, channel, b"\x00", 0, b"\x02", *credit, text("postcard"), text(stream), 0)


def acknowledge(stored: int, channel: int = 0, limit: int = 1 << 30) -> bytes:
    # channel, stage, stored, elements and bytes stored, limits, dead letters
    return message(ACKNOWLEDGE, channel, 0, stored, stored, 0, limit, limit, 0)


def heard(data: bytes) -> list[tuple[int, bytes]]:
    """The messages of a frame: kind and body."""
    if zlib.crc32(data[4:]) != int.from_bytes(data[:4], "little"):
        raise CheckFailed("a frame of the node has another checksum")
    found, at = [], 4
    while at < len(data):
        kind, length, shift = data[at], 0, 0
        at += 1
        while True:
            byte = data[at]
            at += 1
            length |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        found.append((kind, data[at:at + length]))
        at += length
    return found


class Session:
    """A connection that sends arbitrary messages."""

    def __init__(self, sockets: Sockets, endpoint: str, answers_max: int = 1_000):
        self.socket = sockets.secure(sockets.context.socket(zmq.DEALER))
        self.socket.rcvhwm = answers_max
        # Gone is gone. Without dialling again libzmq would forget what it has not given out yet.
        self.socket.reconnect_ivl = 3_600_000
        ends = zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_CONNECT_RETRIED
        self.ends = self.socket.get_monitor_socket(ends)
        self.socket.connect(endpoint)

    def say(self, *parts: bytes) -> "Session":
        self.socket.send_multipart(parts)
        return self

    def hear(self, *kinds: int) -> tuple[int, bytes]:
        """The next message of one of these kinds."""
        while True:
            for kind, body in heard(self.socket.recv_multipart()[-1]):
                if kind in kinds:
                    return kind, body

    def hear_or_end(self, *kinds: int) -> tuple[int, bytes] | None:
        """The same; None: the node has closed the connection without one."""
        poller = zmq.Poller()
        poller.register(self.socket, zmq.POLLIN)
        poller.register(self.ends, zmq.POLLIN)
        while ready := dict(poller.poll(PATIENCE_MS)):
            if self.socket in ready:
                for kind, body in heard(self.socket.recv_multipart()[-1]):
                    if kind in kinds:
                        return kind, body
            elif self.ends in ready and not self.socket.poll(100):
                return None
        raise CheckFailed("the node neither answers nor hangs up")

    def close(self) -> None:
        self.socket.disable_monitor()
        self.socket.close(0)


def begin(sockets: Sockets, endpoint: str) -> Session:
    """Starts a session and awaits the welcome. The node closes connections that come too often; then it retries."""
    def one() -> Session | None:
        session = Session(sockets, endpoint).say(frame(hello()))
        if session.hear_or_end(WELCOME):
            return session
        session.close()
        return None
    return until(20, "a welcome", one)


def drops(node: Node) -> set[str]:
    return {row["reason"] for row in node.get("/api/v1/drops")["drops"] if row["at_hop"] == "exchange"}


def resident_bytes(node: Node) -> int:
    for line in pathlib.Path(f"/proc/{node.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise CheckFailed("the node has no memory")


def honest(sockets: Sockets, endpoint: str, stream: str) -> None:
    """A session that keeps the protocol receives elements."""
    session = begin(sockets, endpoint)
    session.say(frame(subscribe(stream))).hear(ACCEPTED)
    session.hear(RECORDS)
    session.say(frame(message(GOODBYE, b"\x00", 2, 2, text("")))).close()


def broken(stream: str) -> dict[str, tuple[int, list[bytes]]]:
    """Violations of the protocol after Hello: the code of the Goodbye, and the frames."""
    open_one = frame(subscribe(stream))
    return {
        "a kind that is none": (2, [frame(message(77))]),
        "a kind of version 1": (2, [frame(message(11, 0, 0, 1, 5))]),
        "a wrong checksum": (3, [b"\xff" * 100]),
        "a body cut short": (2, [frame(bytes([SUBSCRIBE, 100]) + b"x")]),
        "a body that is too long": (2, [frame(message(PING, 1, 2, 3))]),
        "a number in a longer form": (2, [frame(bytes([PING, 2, 0x81, 0x00]))]),
        "a number beyond 64 bits": (2, [frame(bytes([PING, 11]) + b"\xff" * 11)]),
        "a length beyond everything": (2, [frame(bytes([PING]) + varint(MANY))]),
        "a name that is no UTF-8": (2, [frame(subscribe(b"\xff\xfe"))]),
        "a name of 100 kB": (2, [frame(subscribe("a" * 100_000))]),
        "a second Hello": (11, [frame(hello())]),
        "a stream subscribed twice on one channel": (11, [open_one, open_one]),
        "a stage of the origin's": (5, [frame(message(STAGE, 0, 1, 1, 0, 1))]),
        "a Welcome from a subscriber": (5, [frame(message(WELCOME, b"CHPF", 2, b"session!", 1 << 20, 20_000))]),
        "an acknowledgement of a channel that is none": (6, [frame(acknowledge(1, 9))]),
        "an acknowledgement from the future": (8, [open_one, frame(acknowledge(MANY - 10))]),
        "credit that is taken back": (9, [open_one, frame(acknowledge(0)), frame(acknowledge(0, limit=1))]),
        "more channels than there may be": (7, [frame(*(subscribe(stream, n) for n in range(at, at + 100)))
                                                for at in range(0, CHANNELS, 100)]),
        "a channel beyond all numbers": (2, [frame(subscribe(stream, 1 << 20))]),
    }


def one_by_one(sockets: Sockets, endpoint: str, stream: str) -> None:
    wrong = []
    for what, (code, frames) in broken(stream).items():
        session = begin(sockets, endpoint)
        for one in frames:
            session.say(one)
        try:
            said = CODES.get(session.hear(GOODBYE)[1][0], "?")
        except zmq.Again:
            said = "nothing"
        if said != CODES[code]:
            wrong.append(f"{what}: {said}, not {CODES[code]}")
        session.close()
    expect(not wrong, f"{len(broken(stream))} ways to break the protocol, each ended with its code {wrong or ''}")
    version = Session(sockets, endpoint).say(frame(hello((7, 9))))
    expect(version.hear(GOODBYE)[1][0] == 1, "another version: Goodbye with the node's own")
    version.close()
    unknown = begin(sockets, endpoint).say(frame(subscribe("no.such.stream")))
    expect(unknown.hear(REFUSED)[0] == REFUSED, "a stream that is not there is refused, and the session goes on")
    unknown.say(frame(subscribe(stream, 1))).hear(ACCEPTED)
    unknown.close()
    for what, parts in {"three frames": (b"a", b"b", b"c"), "two that are no question": (b"X", b"y"), "an empty one": (b"",),
                        "damaged ones": (b"\xff" * 100,), "4 MiB": (bytes(4 << 20),)}.items():
        session = begin(sockets, endpoint)
        for _ in range(100):
            session.say(*parts)
        session.close()
        expect(True, f"a hundred messages: {what}")


def mutated(rng: random.Random, sound: list[bytes]) -> bytes:
    data = bytearray(rng.choice(sound))
    for _ in range(rng.choice([1, 1, 2, 8])):
        at = rng.randrange(len(data) + 1)
        end = min(len(data), at + rng.choice([1, 2, 9]))
        data[at:end] = rng.choice([rng.randbytes(end - at), b"", b"\xff" * 9 + b"\x01", b"\x00", data[at:end] * 3])
    # The checksum is right: what is wrong is behind it.
    return frame(bytes(data)) if rng.random() < 0.95 else rng.randbytes(40)


def odd(rng: random.Random, stream: str) -> bytes:
    """A well-formed message with random numbers."""
    def n() -> int:
        return rng.choice([0, 0, 1, 1, 2, 3, 7, 4_095, 65_535, 1 << 32, MANY - 1, MANY])
    return frame(rng.choice([
        subscribe(stream, rng.randrange(8), (n(), n())), acknowledge(rng.choice([0, 1, 2, 3, n()]), rng.randrange(3), n()),
        message(FETCH, n(), rng.randrange(3), n(), n(), n(), n()),
        message(FETCHED, n(), n(), 0), message(UNSUBSCRIBE, rng.randrange(8), b"\x00", text("x")), message(PONG, n()), hello()]))


def storm(sockets: Sockets, endpoint: str, stream: str) -> None:
    """Messages with random numbers or changed bytes, in sessions that are restarted when the node ends them."""
    rng = random.Random(SEED)
    sound = [hello(), subscribe(stream), subscribe(stream, 1), acknowledge(1), acknowledge(3),
             message(PING, 7), message(PONG, 7), message(UNSUBSCRIBE, 0, b"\x00", text("x")),
             message(FETCH, 1, 0, 1, 1, 5, 1_000), message(FETCHED, 1, 1, 0),
             message(GOODBYE, b"\x00", 2, 2, text("x"))]
    sessions = ended = 0
    session = None
    for number in range(MUTATED):
        if session is None:
            session, sessions = begin(sockets, endpoint), sessions + 1
            session.say(frame(subscribe(stream)))
        session.say(mutated(rng, sound) if rng.random() < 0.3 else odd(rng, stream))
        if number % 3 == 2:
            # What was said is answered, or it is over.
            session.say(frame(message(PING, 99)))
            answer = session.hear_or_end(PONG, GOODBYE)
            if not answer or answer[0] == GOODBYE:
                session.close()
                session, ended = None, ended + 1
    if session:
        session.close()
    print(f"   measured: {MUTATED} messages, odd or mutated, in {sessions} sessions, of which {ended} were ended", flush=True)
    expect(ended > MUTATED / 30, "those that break the protocol end their session, and no other")


def silent(sockets: Sockets, endpoint: str, stream: str, node: Node) -> None:
    """More sessions than allowed, which read everything and acknowledge nothing."""
    sessions, most = [], 0
    for _ in range(SILENT):
        session = Session(sockets, endpoint).say(frame(hello()))
        # Welcomed or not: beyond the limit one of them has to give way.
        if session.hear_or_end(WELCOME):
            session.say(frame(*(subscribe(stream, n, (1 << 40, 1 << 40)) for n in range(50))))
        sessions.append(session)
        most = max(most, len(node.get("/api/v1/links")["peers"]))
    for session in sessions:
        session.close()
    expect(0 < most <= SESSIONS_MAX, f"of {SILENT} sessions of one peer that acknowledge nothing at most {most} were served at once")
    until(20, "their places are free", lambda: not node.get("/api/v1/links")["peers"])


def unread(sockets: Sockets, endpoint: str, stream: str, node: Node) -> None:
    """Sessions that send requests without end and read no answer."""
    questions = {"questions to the directory": (b"D", b"*\nxml"),
                 "pings": (frame(*[message(PING, MANY)] * 20_000),),
                 "subscriptions said again": (frame(*[subscribe(stream)] * 2_000),)}
    for what, parts in questions.items():
        memory, asked = resident_bytes(node), 0
        session = Session(sockets, endpoint, answers_max=1).say(frame(hello()))
        end = time.monotonic() + UNREAD_S
        while time.monotonic() < end:
            try:
                session.socket.send_multipart(parts, zmq.NOBLOCK)
                asked += 1
            except zmq.Again:
                time.sleep(0.01)
        growth = resident_bytes(node) - memory
        session.close()
        print(f"   measured: {asked} messages of {what} unread: {growth >> 10} KiB", flush=True)
        expect(growth <= UNREAD_GROWTH_MAX,
               f"{what} are not answered beyond {UNREAD_GROWTH_MAX >> 20} MiB to one that does not read")


def hostile(node: Node, endpoint: str, stream: str) -> None:
    memory, last = resident_bytes(node), node.streams()[stream]["last"]
    began = time.monotonic()
    with Sockets() as sockets:
        honest(sockets, endpoint, stream)
        one_by_one(sockets, endpoint, stream)
        storm(sockets, endpoint, stream)
        silent(sockets, endpoint, stream, node)
        unread(sockets, endpoint, stream, node)
        honest(sockets, endpoint, stream)
    expect(node.running(), "the node lives")
    counted = drops(node)
    expect("session failed" in counted, f"it counted them: {', '.join(sorted(counted))}")
    growth, elements = resident_bytes(node) - memory, node.streams()[stream]["last"] - last
    print(f"   measured: memory {memory >> 10} + {growth >> 10} KiB; {elements} elements of its own in "
          f"{time.monotonic() - began:.0f} s", flush=True)
    expect(growth <= GROWTH_MAX and elements > 0, f"with less than {GROWTH_MAX >> 20} MiB kept, and its stream went on")
