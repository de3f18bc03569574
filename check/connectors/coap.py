"""`coap`: libcoap's server with its client, and a server built with aiocoap, at the other end of the cable.

    python check/connectors/coap.py CHAPPE WORK     with a Python that has aiocoap

1. values: states that libcoap's client puts, texts, states in blocks, and resources that are polled, compared with the servers'.
2. kills:  the node and both servers are killed in turn (CONNECTORS_KILLS, 3 by default), the cable is cut, and loses datagrams:
           the numbers in each stream only rise, none is stored twice, and the newest is there in the end.
3. browse: the printed file is valid, and `try` reads with it.

Runs as root on Linux, in namespaces of its own: what it started ends with it.
"""

import json
import pathlib
import random
import shutil
import subprocess
import sys
import time

sys.dont_write_bytecode = True
from shared import CUT_S, FOLDER, KILLS, Peer, run  # noqa: E402
from bench import THERE, Bench, Fed, Skipped, judge, need  # noqa: E402
from network import expect, until  # noqa: E402

LOSS_S = 15
SILENCE_S = 3


class Aiocoap(Peer):
    """aiocoap, which is started again after it was killed."""

    name, port = "aiocoap", 5683

    def __init__(self, bench: Bench):
        super().__init__(self.name, bench.work)
        self.bench = bench
        self.state = bench.work / "aiocoap-state"
        self.start()
        self.streams = []
        for path in ("count", "quiet"):
            stream = f"aiocoap.{path}"
            self.streams.append(stream)
            bench.wrapper(f"aiocoap-{path}", f"""
kind = "coap"
address = "coap://{THERE}:{self.port}"
resources = ["/{path}"]
silence_s = {SILENCE_S}
poll_s = 1
format = "json"
[[stream]]
name = "{stream}"
fields = [{{ name = "n", type = "integer" }}]
""")
        bench.wrapper("aiocoap-label", f"""
kind = "coap"
address = "coap://{THERE}:{self.port}"
resources = ["/label"]
pattern = "/{{kind}}"
poll_s = 1
format = {{ regex = {{ pattern = '(?<value>.*)', whole = true }} }}
[[stream]]
name = "aiocoap.text"
key = "{{kind}}"
fields = [{{ name = "value", type = "text" }}]
""")

    def command(self) -> list[str]:
        return self.bench.far.command(sys.executable, str(FOLDER / "coap_server.py"), THERE, str(self.port), str(self.state))

    def is_ready(self) -> None:
        self.process.wait_line("ready", 20)

    def last(self) -> int:
        return int(self.state.read_text())


class Libcoap(Peer):
    """libcoap's server, into whose resource its client puts numbers."""

    name, port, streams = "libcoap", 5684, ["libcoap.count"]

    def __init__(self, bench: Bench):
        programs = {("coap-server-notls", "coap-client-notls"), ("coap-server", "coap-client")}
        found = [pair for pair in programs if all(shutil.which(program) for program in pair)]
        if not found:
            need("coap-server-notls", "coap-client-notls")
        super().__init__(self.name, bench.work)
        (self.server, self.client), self.bench = found[0], bench
        self.start()
        bench.wrapper("libcoap-count", f"""
kind = "coap"
address = "coap://{THERE}:{self.port}"
resources = ["/count"]
accept = 50
silence_s = {SILENCE_S}
poll_s = 1
format = "json"
[[stream]]
name = "libcoap.count"
fields = [{{ name = "n", type = "integer" }}]
""")
        bench.wrapper("libcoap-large", f"""
kind = "coap"
address = "coap://{THERE}:{self.port}"
resources = ["/large"]
accept = 50
silence_s = {SILENCE_S}
format = "json"
[[stream]]
name = "libcoap.large"
fields = [{{ name = "n", type = "integer" }}, {{ name = "padding", type = "text" }}]
""")
        self.sent = Fed(lambda: self.bench.far.command("sh", "-c", PUTS, "sh", self.client, f"coap://{THERE}:{self.port}/count"),
                        lambda number: f'{{"n": {number}}}\n', bench.work / "coap-client.log", period_s=0.1)

    def command(self) -> list[str]:
        return self.bench.far.command(self.server, "-A", THERE, "-p", str(self.port), "-d", "10")

    def last(self) -> int:
        return self.sent.written

    def put(self, number: int) -> str:
        """Puts a state that takes blocks; returns its padding."""
        padding = chr(ord("a") + number % 26) * 3_000
        document = json.dumps({"n": number, "padding": padding})
        command = [self.client, "-B", "5", "-t", "50", "-m", "put", "-e", document, f"coap://{THERE}:{self.port}/large"]
        subprocess.run(self.bench.far.command(*command), check=True, capture_output=True)
        return padding


# Puts each line of standard input.
PUTS = 'while read -r line; do "$1" -B 2 -t 50 -m put -e "$line" "$2"; done'


def turn(bench: Bench, streams: list[str]) -> None:
    for stream in streams:
        before = bench.last(stream)
        until(40, f"states arrive in {stream} again", lambda: bench.last(stream) > before)


def values(bench: Bench, servers: list) -> None:
    for server in servers:
        turn(bench, server.streams)
    for server in servers:
        for stream in server.streams:
            last = server.last()
            until(20, f"{stream} has a number of {server.name} from {last} on", lambda: bench.numbers(stream)[-1] >= last)
    for server in servers:
        if server.name == "libcoap":
            blocks(bench, server)
    if any(server.name == "aiocoap" for server in servers):
        time.sleep(3)
        texts = [(one["key"], one["values"]["value"]) for one in bench.node.elements("aiocoap.text")]
        expect(texts == [("label", "meadow")], f"a polled text that does not change is stored once: {texts}")


def blocks(bench: Bench, server: Libcoap) -> None:
    for number in range(1, 6):
        padding = server.put(number)
        until(20, f"state {number} in blocks is stored", lambda: bench.last("libcoap.large") > 0
              and bench.node.elements("libcoap.large")[-1]["values"] == {"n": number, "padding": padding})
    judge("coap (libcoap.large)", bench.numbers("libcoap.large"), last=5)


def kills(bench: Bench, servers: list) -> None:
    for number in range(KILLS):
        bench.kill_node(bench.chance.uniform(0, 0.5))
        for server in servers:
            server.kill(bench.chance.uniform(0, 0.5))
        for server in servers:
            turn(bench, server.streams)
        print(f"   round {number + 1} of {KILLS}: the node and each server killed", flush=True)
    bench.far.cut(CUT_S)
    for server in servers:
        turn(bench, server.streams)
    loss(bench, servers)
    for server in servers:
        if server.name == "libcoap":
            server.sent.finish()
    time.sleep(2 * SILENCE_S)
    for server in servers:
        wanted = server.last()
        if server.name == "aiocoap":
            # It ends before its number is looked at, so that the newest state is one that was told.
            for stream in server.streams:
                until(20, f"{stream} keeps up", lambda: bench.numbers(stream)[-1] >= wanted)
        else:
            until(20, f"the newest number of {server.name} is stored", lambda: bench.numbers(server.streams[0])[-1] == wanted)
        for stream in server.streams:
            found = bench.numbers(stream)
            # CoAP promises only the newest state, so that any number may be passed over.
            judge(f"coap ({stream}), {server.kills} kills of {server.name} and {bench.node_kills} of the node", found,
                  gaps_max=len(found) + 1, doubles_max=0)


def loss(bench: Bench, servers: list) -> None:
    """A cable that loses, delays and doubles datagrams, both ways."""
    words = ["qdisc", "add", "dev", "far0", "root", "netem", "loss", "20%", "delay", "50ms", "40ms", "duplicate", "10%"]
    done = subprocess.run(["tc", "-n", bench.far.name, *words], capture_output=True, text=True)
    if done.returncode:
        print(f"   skipped: a cable that loses datagrams: {done.stderr.strip()[:100]}", flush=True)
        return
    time.sleep(LOSS_S)
    subprocess.run(["tc", "-n", bench.far.name, "qdisc", "del", "dev", "far0", "root"], check=True)
    for server in servers:
        turn(bench, server.streams)
    row = bench.row("aiocoap-count")
    print(f"   ok: the cable lost, doubled and reordered datagrams for {LOSS_S} s; counted: {row['lost']}", flush=True)


def browse(bench: Bench, chappe: str, server) -> None:
    address = f"coap://{THERE}:{server.port}"
    done = subprocess.run([chappe, "wrapper", "browse", address], capture_output=True, text=True)
    expect(done.returncode == 0 and '"/count"' in done.stdout, f"browse lists the resources of {server.name} {done.stderr.strip()}")
    file = bench.work / f"browsed-{server.name}.toml"
    file.write_text(done.stdout)
    tried = subprocess.run([chappe, "wrapper", "try", str(file), "--count", "1"], capture_output=True, text=True)
    expect(tried.returncode == 0, f"try reads with it: {tried.stdout.strip()[:100]} {tried.stderr.strip()[:200]}")


def check(chappe: str, work: pathlib.Path, chance: random.Random) -> None:
    bench = Bench(chappe, work / "coap", chance.randrange(1 << 32))
    try:
        servers = []
        for make in (Aiocoap, Libcoap):
            try:
                servers.append(make(bench))
            except Skipped as reason:
                print(f"   skipped: {make.name}: {reason}", flush=True)
        print("-- values", flush=True)
        values(bench, servers)
        print("-- browse", flush=True)
        for server in servers:
            browse(bench, chappe, server)
        print("-- kills", flush=True)
        kills(bench, servers)
    finally:
        bench.end()


if __name__ == "__main__":
    try:
        import aiocoap  # noqa: F401
    except ImportError:
        print("   skipped: this Python has no aiocoap")
        sys.exit()
    run(check)
