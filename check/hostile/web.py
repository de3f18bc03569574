"""HTTP of the device and of the node under attack: slow peers, garbage, bombs. An honest client is still served."""

import gzip
import socket
import time

from network import expect
from wire import Honest, Web, answer_of, measured, resident_bytes

CONNECTIONS = 600
HOLD_S = 6
# Not figures of merit: an answer later than both, and so many times as late as without attackers, means
# that somebody waits for them.
HONEST_MAX_MS, HONEST_MAX_TIMES = 2_000, 50
GROWTH_MAX = 48 << 20


def slow_peers(name: str, attackers: list[Web], path: str, ask, pid: int) -> None:
    """Half-open connections, with heads and bodies sent one byte at a time: more than are served at once."""
    before = Honest(ask)
    time.sleep(2)
    count, calm = before.stop()
    expect(not before.failures and count > 0, f"{name}: an honest client is answered")
    memory = resident_bytes(pid)
    head = f"POST {path} HTTP/1.1\r\nHost: {attackers[0].address[0]}\r\n"
    starts = [b"", head.encode(),
              (head + "Content-Type: application/soap+xml\r\nContent-Length: 900000\r\n\r\n<").encode()]
    during = Honest(ask)
    open_now: list[socket.socket] = []
    for number in range(CONNECTIONS):
        try:
            connection = attackers[number % len(attackers)].connect(2)
            connection.sendall(starts[number % 3])
            connection.setblocking(False)
            open_now.append(connection)
        except OSError:
            continue  # refused: as good
    end = time.monotonic() + HOLD_S
    while time.monotonic() < end:
        for number, connection in enumerate(open_now):
            try:
                connection.send(b"a" if number % 3 else b"")
            except OSError:
                continue
        time.sleep(0.5)
    growth = resident_bytes(pid) - memory
    asked, busy = during.stop()
    for connection in open_now:
        connection.close()
    measured(f"{name}: p99 of an honest client", f"{calm:.1f} ms before, {busy:.1f} ms beside {len(open_now)} "
             f"slow connections ({asked} asked, {len(during.failures)} failed)")
    measured(f"{name}: memory of {len(open_now)} slow connections", f"{growth >> 10} KiB")
    expect(not during.failures, f"{name}: it was always answered {during.failures[:3] or ''}")
    expect(busy <= max(HONEST_MAX_MS, HONEST_MAX_TIMES * calm), f"{name}: and in time")


def broken_requests(path: str) -> dict[str, bytes]:
    """Malformed requests, and requests that no server should accept."""
    host = "Host: 127.0.0.1\r\n"
    post = f"POST {path} HTTP/1.1\r\n{host}Content-Type: application/soap+xml\r\n"
    return {
        "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
        "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(20),
        "no HTTP": b"\x00\xff\x10EHLO\r\n\r\n",
        "HTTP/0.9": b"GET /\r\n\r\n",
        "header without colon": f"GET / HTTP/1.1\r\n{host}nothing\r\n\r\n".encode(),
        "header with NUL": f"GET / HTTP/1.1\r\n{host}x: a\0b\r\n\r\n".encode(),
        "head of 200 kB": f"GET / HTTP/1.1\r\n{host}x: {'A' * 200_000}\r\n\r\n".encode(),
        "5,000 headers": f"GET / HTTP/1.1\r\n{host}{''.join(f'x{n}: y{chr(13)}{chr(10)}' for n in range(5_000))}"
                         "\r\n".encode(),
        "target of 100 kB": f"GET /{'a' * 100_000} HTTP/1.1\r\n{host}\r\n".encode(),
        "negative length": f"{post}Content-Length: -1\r\n\r\n".encode(),
        "length beyond 64 bits": f"{post}Content-Length: 99999999999999999999999\r\n\r\n".encode(),
        "two lengths": f"{post}Content-Length: 3\r\nContent-Length: 5\r\n\r\nabcde".encode(),
        "chunk that is no number": f"{post}Transfer-Encoding: chunked\r\n\r\nzz\r\n".encode(),
        "chunk of 2^64": f"{post}Transfer-Encoding: chunked\r\n\r\nffffffffffffffff1\r\n".encode(),
        "chunk extension of 1 MB": f"{post}Transfer-Encoding: chunked\r\n\r\n1;{'a' * 1_000_000}\r\n".encode(),
        "unknown coding": f"{post}Transfer-Encoding: cow\r\n\r\n".encode(),
    }


def large_bodies(path: str) -> dict[str, bytes]:
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/soap+xml\r\nConnection: close\r\n"
    chunks = b"100000\r\n" + b"<" * 0x100000 + b"\r\n"
    bomb = gzip.compress(bytes(256 << 20), 9)
    return {
        "announced 1 GB": (head + "Content-Length: 1000000000\r\n\r\n<a>").encode(),
        "chunks of 16 MiB": (head + "Transfer-Encoding: chunked\r\n\r\n").encode() + chunks * 16,
        "gzip of 256 MiB": (head + f"Content-Encoding: gzip\r\nContent-Length: {len(bomb)}\r\n\r\n").encode() + bomb,
        "gzip that is none": (head + "Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\nabcd").encode(),
        "gzip of gzip": (head + "Content-Encoding: gzip, gzip\r\nContent-Length: 4\r\n\r\nabcd").encode(),
        "unknown encoding": (head + "Content-Encoding: br\r\nContent-Length: 4\r\n\r\nabcd").encode(),
    }


def garbage(name: str, web: Web, path: str, ask, pid: int) -> None:
    memory = resident_bytes(pid)
    statuses = {}
    for what, request in {**broken_requests(path), **large_bodies(path)}.items():
        status, _, _ = web.raw(request, 15)
        statuses[what] = status
        expect_refused = status == 0 or 400 <= status < 600
        if not expect_refused:
            expect(False, f"{name}: {what} is refused, not answered with {status}")
    measured(f"{name}: statuses (0 is a closed connection)", statuses)
    growth = resident_bytes(pid) - memory
    measured(f"{name}: memory after {len(statuses)} broken and oversized requests", f"{growth >> 10} KiB")
    expect(growth <= GROWTH_MAX, f"{name}: each is refused, with less than {GROWTH_MAX >> 20} MiB kept")
    expect(ask()[0] == 200, f"{name}: an honest client is answered after it")


def pipelined(web: Web, request: bytes) -> tuple[int, dict, bytes]:
    """Two requests that a proxy might see as one: the second must not be answered."""
    with web.connect() as connection:
        connection.sendall(request)
        return answer_of(connection)
