"""Shared by the attacks: sockets inside a namespace, spoofed datagrams, counted answers, raw HTTP."""

import collections
import contextlib
import ctypes
import os
import pathlib
import socket
import struct
import threading
import time

LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNET = 0x40000000
SOL_PACKET, PACKET_IGNORE_OUTGOING, SO_RCVBUFFORCE = 263, 23, 33
ETH_P_IP = 0x0800
GROUP = "239.255.255.250"
DISCOVERY_PORT = 3702


@contextlib.contextmanager
def inside(namespace: str):
    """Moves this thread to a namespace; sockets created there stay there."""
    with open("/proc/thread-self/ns/net") as home, open(f"/run/netns/{namespace}") as there:
        for target in (there, home):
            if LIBC.setns(target.fileno(), CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), f"cannot enter {namespace}")
            if target is there:
                try:
                    yield
                except BaseException:
                    LIBC.setns(home.fileno(), CLONE_NEWNET)
                    raise


def resident_bytes(pid: int) -> int:
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"process {pid} has no memory")


def datagram(source: str, port: int, to: str, payload: bytes, to_port: int = DISCOVERY_PORT) -> bytes:
    """An IPv4 packet with UDP inside; IPv4 allows omitting the UDP checksum."""
    ttl, protocol = 1 if to.startswith("239.") else 64, socket.IPPROTO_UDP
    head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 28 + len(payload), 0, 0, ttl, protocol, 0,
                       socket.inet_aton(source), socket.inet_aton(to))
    return head + struct.pack("!HHHH", port, to_port, 8 + len(payload), 0) + payload


class Spoofer:
    """Sends datagrams from any address, and counts them per address."""

    def __init__(self, namespace: str, address: str):
        with inside(namespace):
            self.socket = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
        self.socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(address))
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
        self.bytes: collections.Counter[str] = collections.Counter()
        self.sent = 0

    def send(self, source: str, to: str, payload: bytes, port: int = 40_000, to_port: int = DISCOVERY_PORT) -> None:
        self.socket.sendto(datagram(source, port, to, payload, to_port), (to, 0))
        self.bytes[source] += len(payload)
        self.sent += 1


class Paced:
    """Limits a loop to a rate."""

    def __init__(self, per_s: float):
        self.per_s, self.start, self.count = per_s, time.monotonic(), 0

    def wait(self) -> None:
        self.count += 1
        early = self.start + self.count / self.per_s - time.monotonic()
        if early > 0.002:
            time.sleep(early)


class Answers:
    """Counts traffic from an address by destination: bytes of UDP payload, and TCP connections started."""

    def __init__(self, namespace: str, interface: str, sender: str):
        with inside(namespace):
            self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_IP))
        self.socket.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
        self.socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
        self.socket.bind((interface, ETH_P_IP))
        self.socket.settimeout(0.2)
        self.sender = socket.inet_aton(sender)
        self.bytes: collections.Counter[str] = collections.Counter()
        self.packets: collections.Counter[str] = collections.Counter()
        self.connections: collections.Counter[str] = collections.Counter()
        self.running = True
        self.thread = threading.Thread(target=self._count, daemon=True)
        self.thread.start()

    def _count(self) -> None:
        while self.running:
            try:
                packet = self.socket.recv(65_535)
            except TimeoutError:
                continue
            if packet[12:16] != self.sender:
                continue
            to = socket.inet_ntoa(packet[16:20])
            if packet[9] == socket.IPPROTO_TCP and packet[33] & 0x12 == 0x02:
                self.connections[to] += 1
            if packet[9] != socket.IPPROTO_UDP:
                continue
            size = struct.unpack_from("!H", packet, 24)[0] - 8
            self.bytes[to] += size
            self.packets[to] += 1

    def stop(self) -> None:
        self.running = False
        self.thread.join()


class Listener:
    """Counts the connections that reach it; sends nothing."""

    def __init__(self, namespace: str, address: str, port: int = 0):
        with inside(namespace):
            self.socket = socket.create_server((address, port), backlog=512)
        self.port = self.socket.getsockname()[1]
        self.peers: list[str] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, peer = self.socket.accept()
            except OSError:
                return
            self.peers.append(peer[0])
            connection.close()

    def close(self) -> None:
        self.socket.shutdown(socket.SHUT_RDWR)  # wakes the thread, which holds the port
        self.socket.close()


class Web:
    """Raw HTTP to one server, from one namespace and address."""

    def __init__(self, namespace: str, host: str, port: int, source: str | None = None):
        self.namespace, self.address, self.source = namespace, (host, port), source

    def connect(self, timeout_s: float = 20) -> socket.socket:
        with inside(self.namespace):
            connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        connection.settimeout(timeout_s)
        if self.source:
            connection.bind((self.source, 0))
        connection.connect(self.address)
        return connection

    def raw(self, request: bytes, timeout_s: float = 20) -> tuple[int, dict[str, str], bytes]:
        """Sends bytes; returns status, headers and body. Status 0: closed without an answer."""
        with self.connect(timeout_s) as connection:
            try:
                connection.sendall(request)
            except (BrokenPipeError, ConnectionResetError):
                pass  # refused before the end: the answer may still be there
            return answer_of(connection)

    def ask(self, method: str, target: str, body: bytes = b"", timeout_s: float = 20,
            **headers: str) -> tuple[int, dict[str, str], bytes]:
        lines = {"Host": f"{self.address[0]}:{self.address[1]}", "Connection": "close"}
        lines.update({name.replace("_", "-"): value for name, value in headers.items()})
        if body or method in ("POST", "PUT"):
            lines.setdefault("Content-Length", str(len(body)))
        head = f"{method} {target} HTTP/1.1\r\n" + "".join(f"{n}: {v}\r\n" for n, v in lines.items() if v)
        return self.raw(head.encode("utf-8", "surrogateescape") + b"\r\n" + body, timeout_s)


def answer_of(connection: socket.socket) -> tuple[int, dict[str, str], bytes]:
    data = b""
    try:
        while b"\r\n\r\n" not in data:
            more = connection.recv(65_536)
            if not more:
                return 0, {}, data
            data += more
        head, body = data.split(b"\r\n\r\n", 1)
        lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        length = int(headers.get("content-length", -1))
        while length < 0 or len(body) < length:
            more = connection.recv(65_536)
            if not more:
                break
            body += more
    except ConnectionResetError:
        return 0, {}, data
    return int(lines[0].split()[1]), headers, body


class Honest:
    """Sends requests continuously, and records the duration of each answer and the failures."""

    def __init__(self, ask, period_s: float = 0.05):
        self.ask, self.period_s = ask, period_s
        self.times: list[float] = []
        self.failures: list[str] = []
        self.running = True
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        while self.running:
            start = time.monotonic()
            try:
                status = self.ask()[0]
                if status not in (200, 202):
                    self.failures.append(f"status {status}")
            except OSError as error:
                self.failures.append(str(error))
            self.times.append(time.monotonic() - start)
            time.sleep(self.period_s)

    def stop(self) -> tuple[int, float]:
        """Returns the number of requests, and the 99th percentile in milliseconds."""
        self.running = False
        self.thread.join()
        return len(self.times), p99_ms(self.times)


def p99_ms(times: list[float]) -> float:
    ordered = sorted(times)
    return 1000 * ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))] if ordered else float("nan")


def measured(what: str, value) -> None:
    print(f"   measured: {what}: {value}", flush=True)


def open_files(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))
