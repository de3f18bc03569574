"""A cable in user space: forwards TCP connections; can be cut, stalled and slowed in each direction."""

import contextlib
import random
import selectors
import socket
import threading
import time

CHUNK = 64 * 1024
# What one direction holds before it stops reading: a buffer as of a switch.
HELD = 256 * 1024


class Way:
    """One direction of one connection."""

    def __init__(self, source: socket.socket, target: socket.socket, name: str):
        self.source, self.target, self.name = source, target, name
        self.held: list[tuple[float, bytes]] = []
        self.bytes = 0


class Relay(threading.Thread):
    """Listens on `port` of `address` and forwards to `target`; faults are set from outside. `toward` is the direction
    from the connecting to the listening side, `back` the other one."""

    def __init__(self, target: tuple[str, int], address: str = "127.0.0.1", port: int = 0, seed: int = 1):
        super().__init__(daemon=True)
        self.target = target
        self.listener = socket.create_server((address, port))
        self.listener.setblocking(False)
        self.address = self.listener.getsockname()
        self.random = random.Random(seed)
        self.is_cut = False
        self.stalled = {"toward": False, "back": False}
        self.delay_s = 0.0
        self.rate_bytes_per_s: float | None = None
        self.forwarded = {"toward": 0, "back": 0}
        self.connections = 0
        self.cuts = 0
        self._ways: list[Way] = []
        self._lock = threading.Lock()
        self._running = True
        self.start()

    def cut(self) -> None:
        """Resets all connections and accepts no new ones."""
        self.is_cut = True
        self.cuts += 1
        self._drop_all()

    def drop(self) -> None:
        """Resets all connections; accepts new ones."""
        self.cuts += 1
        self._drop_all()

    def heal(self) -> None:
        """Accepts connections and forwards in both directions."""
        self.is_cut = False
        self.stalled = {"toward": False, "back": False}

    def stop(self) -> None:
        """Stops the relay."""
        self._running = False
        self.join(5)
        self._drop_all()
        self.listener.close()

    def _drop_all(self) -> None:
        with self._lock:
            ways, self._ways = self._ways, []
        for way in ways:
            with contextlib.suppress(OSError):
                # A reset, not an orderly end: what is on the way is lost.
                way.source.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            way.source.close()

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError, OSError):
            dialled, _ = self.listener.accept()
            if self.is_cut:
                dialled.close()
                return
            try:
                listening = socket.create_connection(self.target, timeout=1)
            except OSError:
                dialled.close()
                return
            for end in (dialled, listening):
                end.setblocking(False)
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.connections += 1
            with self._lock:
                self._ways += [Way(dialled, listening, "toward"), Way(listening, dialled, "back")]

    def _pull(self, way: Way, now: float) -> bool:
        """Reads available data; false if the direction has ended."""
        if sum(len(data) for _, data in way.held) >= HELD:
            return True
        try:
            data = way.source.recv(CHUNK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if not data:
            return False
        way.held.append((now + self.delay_s * self.random.uniform(0.5, 1.5), data))
        return True

    def _push(self, way: Way, now: float, allowance: int) -> int:
        """Writes data that is due; returns the number of bytes, -1 if the direction has ended."""
        sent = 0
        while way.held and way.held[0][0] <= now and sent < allowance:
            due, data = way.held[0]
            try:
                n = way.target.send(data[:allowance - sent])
            except BlockingIOError:
                break
            except OSError:
                return -1
            sent += n
            if n < len(data):
                way.held[0] = (due, data[n:])
                break
            way.held.pop(0)
        self.forwarded[way.name] += sent
        return sent

    def run(self) -> None:
        before = time.monotonic()
        with selectors.DefaultSelector() as waiting:
            waiting.register(self.listener, selectors.EVENT_READ)
            while self._running:
                waiting.select(0.002 if self._ways else 0.05)
                now = time.monotonic()
                rate = self.rate_bytes_per_s
                allowance = CHUNK * 16 if rate is None else int(rate * (now - before)) + 1
                before = now
                self._accept()
                with self._lock:
                    ways = list(self._ways)
                for way in ways:
                    if self.stalled[way.name]:
                        continue
                    if not self._pull(way, now) or self._push(way, now, allowance) < 0:
                        self._end(way)

    def _end(self, way: Way) -> None:
        pair = {way.source, way.target}
        with self._lock:
            gone = [one for one in self._ways if one.source in pair or one.target in pair]
            self._ways = [one for one in self._ways if one not in gone]
        for one in gone:
            # What the other side had sent in order is still delivered.
            with contextlib.suppress(OSError):
                one.target.setblocking(True)
                one.target.settimeout(0.2)
                one.target.sendall(b"".join(data for _, data in one.held))
        for one in gone:
            one.source.close()
