"""Chappe's ZeroMQ with libzmq (pyzmq) and JeroMQ.

    python3 check/zeromq/run.py PEER FUZZ WORK JARS [INPUTS]

PEER and FUZZ are the examples zeromq_peer and zeromq_fuzz of chappe-transport, JARS a directory with JeroMQ.
1. pyzmq:  DEALER, ROUTER, REQ, REP, PUB and SUB of libzmq with ours, both directions, NULL and CURVE.
2. keys:   wrong keys, keys that are not allowed, another mechanism: refused, counted, and reported.
3. limits: large messages arrive, too large ones end the connection; a slow subscriber loses, counted.
4. jeromq: the same kinds by Java.
5. hostile: INPUTS fuzzed inputs against the bound ports; legitimate peers keep their rate.

Loopback only; all ports are free ones that the sockets take themselves.
"""

import json
import pathlib
import subprocess
import sys
import time

import zmq

sys.dont_write_bytecode = True
from sockets import PATIENCE_MS, Sockets, keys  # noqa: E402


class Failed(Exception):
    """A failed check."""


def hold(condition: bool, what: str) -> None:
    if not condition:
        raise Failed(what)


class Peer:
    """Our sockets, served by a separate process."""

    def __init__(self, program: str, *arguments: str) -> None:
        self.process = subprocess.Popen([program, "serve", *arguments], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        assert self.process.stdout
        for name, value in json.loads(self.process.stdout.readline()).items():
            setattr(self, name, value)

    def resident_kb(self) -> int:
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])

    def __enter__(self) -> "Peer":
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def ask(socket: zmq.Socket, question: str) -> str:
    socket.send_string(question)
    return socket.recv_string()


def until(what: str, condition) -> None:
    end = time.monotonic() + PATIENCE_MS / 1000
    while not condition():
        hold(time.monotonic() < end, f"{what}: not within {PATIENCE_MS} ms")
        time.sleep(0.01)


def run_ours(program: str, *arguments: str) -> subprocess.Popen:
    return subprocess.Popen([program, *arguments], stdout=subprocess.PIPE, text=True)


def result(process: subprocess.Popen) -> dict:
    out, _ = process.communicate(timeout=300)
    hold(process.returncode == 0, f"{process.args[1:3]} ended with {process.returncode}")
    return json.loads(out)


def pyzmq_with_ours(program: str, secured: bool) -> None:
    client, server = (keys(), keys()) if secured else (None, None)
    serving = ["--secret", server[1], "--allow", client[0]] if secured else []
    with Peer(program, *serving) as peer, Sockets(client, peer.key) as sockets:
        hold(not secured or peer.key == server[0], "the public key differs from libzmq's")
        dealer = sockets.connect(zmq.DEALER, peer.router, identity=b"foreign")
        sent = [[b"%d" % number, b"", b"x" * (number % 300)] for number in range(2_000)]

        for start in range(0, len(sent), 250):
            for frames in sent[start:start + 250]:
                dealer.send_multipart(frames)
            for frames in sent[start:start + 250]:
                hold(dealer.recv_multipart() == frames, "a DEALER's message came back changed")
        req = sockets.connect(zmq.REQ, peer.rep)
        for frames in sent[:200]:
            req.send_multipart([b"echo", *frames])
            hold(req.recv_multipart() == [b"echo", *frames], "an answer differs")
        sub = sockets.connect(zmq.SUB, peer.pub)
        sub.subscribe("room/1")
        sub.subscribe("b")
        until("subscriptions", lambda: ask(req, "subscriptions") == "b room/1")
        hold(ask(req, "publish roof 5 10") == "0", "nobody wanted the roof")
        hold(ask(req, "publish room/17 500 100") == "500", "one subscriber was to be reached")
        for number in range(500):
            frames = sub.recv_multipart()
            hold(frames == [b"room/17", b"%d" % number, b"x" * 100], f"publication {number} differs")
        sub.unsubscribe("room/1")
        until("unsubscribed", lambda: ask(req, "subscriptions") == "b")
        print(f"   libzmq connects: DEALER 2000, REQ 200, SUB 500, secured: {secured}", flush=True)


def ours_with_pyzmq(program: str, secured: bool) -> None:
    client, server = (keys(), keys()) if secured else (None, None)
    ours = ["--secret", client[1], "--server", server[0]] if secured else []
    with Sockets() as sockets:
        router, endpoint = sockets.bind(zmq.ROUTER, server)
        dealing = run_ours(program, "dealer", endpoint, "5000", *ours)
        for _ in range(5_000):
            router.send_multipart(router.recv_multipart())
        seconds = result(dealing)["seconds"]
        rep, endpoint = sockets.bind(zmq.REP, server)
        asking = run_ours(program, "req", endpoint, "200", *ours)
        for _ in range(200):
            rep.send_multipart(rep.recv_multipart())
        result(asking)
        pub, endpoint = sockets.bind(zmq.XPUB, server)
        subscribing = run_ours(program, "sub", endpoint, "500", "room", *ours)
        hold(pub.recv() == b"\x01room", "libzmq saw another subscription")
        for number in range(500):
            pub.send_multipart([b"roof", b"-"])
            pub.send_multipart([b"room", b"%03d" % number])
        hold(result(subscribing)["bytes"] == 500 * 7, "other bytes than published")
        print(f"   ours connects: DEALER 5000 in {seconds} s, REQ 200, SUB 500, secured: {secured}", flush=True)


def monitored(socket: zmq.Socket) -> zmq.Socket:
    monitor = socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
                                        | zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_DISCONNECTED)
    monitor.rcvtimeo = PATIENCE_MS
    return monitor


def wrong_keys(program: str) -> None:
    client, server, other = keys(), keys(), keys()
    with Peer(program, "--secret", server[1], "--allow", client[0]) as peer:
        with Sockets(client, peer.key) as good:
            req = good.connect(zmq.REQ, peer.rep)
            hold(ask(req, "hello") == "hello", "the right key is not let in")
            for what, own, theirs, reason in [
                ("another server key", client, other[0], "wrong key"),
                ("a key that is not allowed", other, server[0], "key not allowed"),
                # libzmq closes on our greeting, before it has sent its own whole.
                ("no key", None, "", "closed during the handshake"),
            ]:
                with Sockets(own, theirs) as bad:
                    dealer = bad.context.socket(zmq.DEALER)
                    bad.secure(dealer)
                    monitor = monitored(dealer)
                    dealer.connect(peer.router)
                    monitor.recv_multipart()
                    dealer.disable_monitor()
                until(what, lambda: f"{reason}: " in ask(req, "drops"))
                print(f"   {what}: refused and counted as '{reason}'", flush=True)
    with Sockets() as sockets:
        _, endpoint = sockets.bind(zmq.ROUTER, server)
        for what, ours in [("another server key", ["--secret", client[1], "--server", other[0]]), ("no key", [])]:
            process = subprocess.run([program, "dealer", endpoint, "1", *ours], capture_output=True, text=True, timeout=300)
            hold(process.returncode == 1, f"libzmq let in a dealer with {what}")
            print(f"   libzmq refuses us with {what}: {process.stderr.strip()[:100]}", flush=True)


def limits(program: str) -> None:
    with Peer(program, "--max-message-bytes", "3000000", "--send-messages", "100") as peer, Sockets() as sockets:
        req = sockets.connect(zmq.REQ, peer.rep)
        dealer = sockets.connect(zmq.DEALER, peer.router)
        for size in (1_000, 255, 256, 70_000, 3_000_000):
            dealer.send(b"m" * size)
            hold(dealer.recv() == b"m" * size, f"{size} bytes came back changed")
        dealer.send(b"m" * 3_000_001)
        until("too large", lambda: "beyond a limit: " in ask(req, "drops"))
        # A subscriber that does not read: its queue of ours is 100, libzmq's is 1, the rest is TCP's.
        slow = sockets.context.socket(zmq.SUB)
        slow.rcvhwm, slow.linger = 1, 0
        slow.setsockopt(zmq.RCVBUF, 4096)
        slow.connect(peer.pub)
        slow.subscribe("s")
        until("subscribed", lambda: ask(req, "subscriptions") == "s")
        before = peer.resident_kb()
        for _ in range(20):
            ask(req, "publish s 1000 10000")
        dropped, grown = int(ask(req, "dropped")), peer.resident_kb() - before
        hold(dropped > 0, "nothing was dropped for a subscriber that does not read")
        hold(grown < 50_000, f"200 MB published, memory grew by {grown} kB")
        hold(f"subscriber too slow: {dropped}" in ask(req, "drops"), "the drops are not in the record")
        print(f"   up to 3 MB echoed, 3 MB + 1 refused; slow subscriber lost {dropped} of 20000, counted; "
              f"memory grew by {grown} kB", flush=True)


def jeromq(program: str, jars: str, work: pathlib.Path) -> None:
    source = pathlib.Path(__file__).resolve().parent / "JeroPeer.java"
    path = ":".join(str(jar) for jar in sorted(pathlib.Path(jars).glob("*.jar")))
    subprocess.run(["javac", "-nowarn", "-cp", path, "-d", str(work), str(source)], check=True)
    for secured in (False, True):
        client, server = (keys(), keys()) if secured else (None, None)
        serving = ["--secret", server[1], "--allow", client[0]] if secured else []
        with Peer(program, *serving) as peer:
            own = [peer.key, *client] if secured else []
            run = subprocess.run(["java", "-cp", f"{path}:{work}", "JeroPeer", peer.router, peer.rep, peer.pub, *own],
                                 capture_output=True, text=True, timeout=600)
            hold(run.returncode == 0, f"JeroMQ: {run.stdout[-500:]}{run.stderr[-1500:]}")
            print(f"   {run.stdout.strip()}, secured: {secured}", flush=True)
        binding = [*server] if secured else []
        java = subprocess.Popen(["java", "-cp", f"{path}:{work}", "JeroPeer", "bind", *binding],
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            router, pub = java.stdout.readline().split()
            ours = ["--secret", client[1], "--server", server[0]] if secured else []
            result(run_ours(program, "dealer", router, "2000", *ours))
            result(run_ours(program, "sub", pub, "200", "room", *ours))
            print(f"   ours connects to JeroMQ: DEALER 2000, SUB 200, secured: {secured}", flush=True)
        finally:
            java.kill()
            java.wait()


def main() -> None:
    program, fuzz, work, jars = sys.argv[1:5]
    inputs = sys.argv[5] if len(sys.argv) > 5 else "1000000"
    folder = pathlib.Path(work)
    folder.mkdir(parents=True, exist_ok=True)
    print(f"libzmq {zmq.zmq_version()}, pyzmq {zmq.__version__}", flush=True)
    hold(zmq.has("curve"), "this libzmq has no CURVE")
    for secured in (False, True):
        pyzmq_with_ours(program, secured)
        ours_with_pyzmq(program, secured)
    wrong_keys(program)
    limits(program)
    jeromq(program, jars, folder)
    subprocess.run([fuzz, inputs], check=True)


if __name__ == "__main__":
    try:
        main()
    except Failed as failed:
        sys.exit(f"FAILED: {failed}")
