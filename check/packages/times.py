#!/usr/bin/env python3
"""Time from a downloaded package to the first value, of Chappe and of three programs that people know,
one after the other on this machine.

    times.py DIRECTORY CHAPPE...     Chappe's packages: FILE.whl, FILE.deb, or a static program

Each is downloaded before, with all that it needs, and installed from these files, in its usual way:
pip, dpkg or npm; a static program is copied. The first value is what a newcomer sees first: a reading
of a device of the demonstration; a message from a publisher to a subscriber; the answer to a query
after one triple was added; the answer of a flow that computes. Fails if a package of Chappe exceeds its
budget, and reports which programs are quicker.
"""

import json
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

# Repetitions; the medians are compared. Reason: the first of each reads its files from the disk.
RUNS = 5
LIMIT_S = 60
# Budgets of Chappe: a newcomer who waits longer looks elsewhere.
INSTALL_MAX_S = 5
FIRST_VALUE_MAX_S = 2
NATS = "nats-server"
OXIGRAPH = "oxigraph==0.5.13"
NODE_RED = "node-red@4.1.8"


class Skipped(Exception):
    """A peer that cannot be had."""


def run(*command, **more):
    subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, **more)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def until(attempt):
    """Repeats an attempt until it has a result."""
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        try:
            result = attempt()
        except (OSError, urllib.error.URLError):
            result = None
        if result:
            return result
        time.sleep(0.005)
    raise TimeoutError(f"no value within {LIMIT_S} s")


def http(url, body=None, kind=None, method=None):
    request = urllib.request.Request(url, body, {"Content-Type": kind} if kind else {}, method=method)
    with urllib.request.urlopen(request, timeout=2) as answer:
        return answer.read() or b"done"


class Started:
    """A program that ends with the block."""

    def __init__(self, *command, **more):
        self.command, self.more = [str(word) for word in command], {"stderr": subprocess.DEVNULL, **more}

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, **self.more)
        return self.process

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


def resident_mb(process):
    """Resident memory of a program, and the part that no file backs: the
    system can drop the rest."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return [int(status.split(f"{key}:")[1].split()[0]) / 1024 for key in ("VmRSS", "RssAnon")]


class Chappe:
    """A package of Chappe, then `chappe demo`."""

    def __init__(self, package):
        self.package = package

    def install(self, place):
        return lambda: shutil.copy(self.package, self.program(place))

    def program(self, place):
        return place / "chappe"

    def value(self, place):
        with Started(self.program(place), "demo", "--listen", "127.0.0.1:0", "--json") as process:
            for line in process.stdout:
                if json.loads(line)["event"] == "first_element":
                    return
        raise TimeoutError("the demonstration ended without a value")

    def idle(self, place):
        (place / "node.toml").write_text(
            f'data_directory = "{place}/data"\n[http]\nlisten = "127.0.0.1:0"\n[discovery]\nenabled = false\n')
        said = place / "said"
        with said.open("w") as errors, \
                Started(self.program(place), "serve", place / "node.toml", "--json", stderr=errors) as process:
            if not any(json.loads(line)["event"] == "ready" for line in process.stdout):
                raise RuntimeError(f"the node ended before it was ready: {said.read_text()}")
            time.sleep(3)  # reason: what a start needs has been given back
            return resident_mb(process)


class Wheel(Chappe):
    def install(self, place):
        run(sys.executable, "-m", "venv", "--without-pip", place / "venv")
        return lambda: pip_install(place, self.package)

    def program(self, place):
        return place / "venv/bin/chappe"


class Debian(Chappe):
    def install(self, place):
        return unpacked(place, self.package)

    def program(self, place):
        return place / "tree/usr/bin/chappe"


def unpacked(place, package):
    """An action that has dpkg unpack a package into a tree of its own, without its scripts."""
    tree = place / "tree"
    (tree / "var/lib/dpkg/updates").mkdir(parents=True)
    (tree / "var/lib/dpkg/info").mkdir()
    (tree / "var/lib/dpkg/status").touch()
    return lambda: run("dpkg", f"--root={tree}", "--force-depends", "--force-script-chrootless", "--no-triggers",
                       "--unpack", package)


def chappe(package):
    """The form of a package, by the name of its file."""
    kinds = {".whl": ("Chappe, pip", Wheel), ".deb": ("Chappe, dpkg", Debian)}
    name, kind = kinds.get(package.suffix, ("Chappe, file", Chappe))
    return name, kind(package)


class Oxigraph:
    """The package of PyPI that carries the program; one triple, one query."""

    def __init__(self, store):
        self.store = store
        run(sys.executable, "-m", "pip", "download", "--quiet", "--dest", store, OXIGRAPH)

    def install(self, place):
        run(sys.executable, "-m", "venv", "--without-pip", place / "venv")
        return lambda: pip_install(place, "--find-links", self.store, OXIGRAPH)

    def value(self, place):
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        triple = b"<http://example.org/a> <http://example.org/b> 21.5 ."
        query = b"SELECT ?value { ?s <http://example.org/b> ?value }"
        with Started(place / "venv/bin/oxigraph", "serve", "--bind", f"127.0.0.1:{port}"):
            until(lambda: http(f"{url}/store?default", triple, "text/turtle"))
            until(lambda: b"21.5" in http(f"{url}/query", query, "application/sparql-query"))


class Nats:
    """Debian's package; a subscriber and a publisher by the text protocol, as with telnet."""

    def __init__(self, store):
        store.mkdir(parents=True, exist_ok=True)
        run("apt-get", "download", "-qq", NATS, cwd=store)
        self.package = next(store.glob("nats-server_*.deb"))

    def install(self, place):
        return unpacked(place, self.package)

    def value(self, place):
        port = free_port()
        with Started(place / "tree/usr/sbin/nats-server", "--addr", "127.0.0.1", "--port", port):
            connection = until(lambda: socket.create_connection(("127.0.0.1", port)))
            with connection:
                connection.settimeout(LIMIT_S)
                connection.sendall(b'CONNECT {"verbose":false}\r\nSUB room 1\r\nPUB room 4\r\n21.5\r\n')
                received = b""
                while b"MSG room 1 4\r\n21.5" not in received:
                    received += connection.recv(4096)

    def idle(self, place):
        port = free_port()
        with Started(place / "tree/usr/sbin/nats-server", "--addr", "127.0.0.1", "--port", port) as process:
            until(lambda: socket.create_connection(("127.0.0.1", port))).close()
            time.sleep(3)  # reason: as for Chappe
            return resident_mb(process)


class NodeRed:
    """The package of npm from its cache; a flow of three nodes, deployed with the start."""

    FLOW = [
        {"id": "tab", "type": "tab", "label": "first"},
        {"id": "in", "type": "http in", "z": "tab", "url": "/value", "method": "get", "wires": [["compute"]]},
        {"id": "compute", "type": "change", "z": "tab", "wires": [["out"]],
         "rules": [{"t": "set", "p": "payload", "pt": "msg", "to": "20 + 1.5", "tot": "jsonata"}]},
        {"id": "out", "type": "http response", "z": "tab", "statusCode": "200", "wires": []},
    ]

    def __init__(self, store):
        if not shutil.which("npm"):
            raise Skipped("there is no npm")
        self.cache = store
        self.npm(store / "first", "--prefer-online")

    def npm(self, place, how):
        place.mkdir(parents=True, exist_ok=True)
        run("npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", how, "--cache", self.cache,
            "--prefix", place, NODE_RED)

    def install(self, place):
        return lambda: self.npm(place, "--offline")

    def value(self, place):
        port = free_port()
        flows = place / "flows.json"
        flows.write_text(json.dumps(self.FLOW))
        with Started("node", place / "node_modules/node-red/red.js", "--userDir", place, "--port", port, flows):
            until(lambda: b"21.5" in http(f"http://127.0.0.1:{port}/value"))


def pip_install(place, *what):
    run(sys.executable, "-m", "pip", "--python", place / "venv/bin/python", "install", "--quiet", "--no-index",
        "--disable-pip-version-check", *what)


def seconds(action):
    start = time.monotonic()
    action()
    return time.monotonic() - start


def median(values):
    return sorted(values)[len(values) // 2]


def main():
    directory = Path(sys.argv[1]).resolve()
    shutil.rmtree(directory, ignore_errors=True)
    programs = dict(chappe(Path(name).resolve()) for name in sys.argv[2:])
    own = list(programs)
    for name, make in {"nats-server": Nats, "Oxigraph": Oxigraph, "Node-RED": NodeRed}.items():
        try:
            programs[name] = make(directory / "store" / name)
        except (Skipped, subprocess.CalledProcessError, StopIteration) as error:
            print(f"skipped: {name}: {error}")
    results, memory = measure(directory, programs)
    print(f"{'':13} {'install':>8} {'first value':>12} {'together':>9}   (s, medians of {RUNS})")
    for name, (install, value, together) in results.items():
        print(f"{name:13} {install:8.2f} {value:12.2f} {together:9.2f}")
    for name, (resident, anonymous) in memory.items():
        print(f"{name}: {resident:.1f} MB resident, idle, {anonymous:.1f} MB of it anonymous")
    best = min(own, key=lambda name: results[name][2])
    for name in results:
        if name not in own and results[name][2] < results[best][2]:
            print(f"{name} is quicker than {best}, by {results[best][2] - results[name][2]:.2f} s")
    late = [name for name in own if results[name][0] > INSTALL_MAX_S or results[name][1] > FIRST_VALUE_MAX_S]
    print(f"failed: over budget: {'; '.join(late)}" if late else "ok: within the budgets")
    return 1 if late else 0


def measure(directory, programs):
    """Medians of the times of each program, and the memory of those that can idle."""
    times, memory = {}, {}
    # In turn, so that what else the machine does falls on all.
    for turn in range(RUNS):
        for name, program in programs.items():
            place = directory / f"place-{turn}"
            place.mkdir(parents=True)
            install = seconds(program.install(place))
            value = seconds(lambda: program.value(place))
            times.setdefault(name, []).append((install, value, install + value))
            if turn == 0 and hasattr(program, "idle"):
                memory[name] = program.idle(place)
            shutil.rmtree(place)
    return {name: [median(column) for column in zip(*rows)] for name, rows in times.items()}, memory


sys.exit(main())
