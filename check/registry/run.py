"""UDDI v2 of a node in the hands of programs that others wrote.

    python check/registry/run.py CHAPPE WORK JARS

1. zeep (Python) reads the WSDL that the node serves, and drives the node with it.
2. SPARQLWrapper (Python) asks in every form of the SPARQL 1.1 Protocol and in every format.
3. UDDI4J over Axis 1.4 (the JARS, run by Java) does so over HTTP/1.0, with every call that it has.
4. UDDI4J and zeep find the service of a device that appears meanwhile by its name, read its binding, and zeep finds it by its
   WSDL.

Needs the Python packages and jars of the group in `check/peers`; loopback only.
"""

import os
import pathlib
import subprocess
import sys

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from network import CheckFailed, Process, run_in  # noqa: E402

CONFIGURATION = """
name = "registry"
data_directory = "data"
sensors_directory = "sensors"
[http]
listen = "127.0.0.1:0"
[discovery]
interfaces = ["lo"]
"""
DEVICE = """
name = "Peer pulse"
manufacturer = "Example"
model = "P1"
namespace = "http://example.com/pulse"
types = ["PeerPulse"]
[[event]]
name = "Beat"
period_ms = 100
recording = "beat.csv"
[[event.field]]
name = "rate"
type = "double"
"""


def run(arguments: list[str], what: str) -> None:
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=600)
    for line in done.stdout.splitlines():
        if line.startswith("ok: "):
            print(f"   {line}", flush=True)
    if done.returncode != 0 or not done.stdout.rstrip().endswith("done"):
        raise CheckFailed(f"{what}: {done.stdout[-500:]}{done.stderr[-2000:]}")


def check(chappe: str, work: pathlib.Path, jars: pathlib.Path) -> None:
    (work / "sensors").mkdir()
    (work / "node.toml").write_text(CONFIGURATION)
    node = Process([chappe, "serve", str(work / "node.toml"), "--json"], work / "node.log")
    try:
        url = node.wait_event("ready", 30)["address"]
        token = (work / "data" / "new-token").read_text().strip()
        print("-- zeep", flush=True)
        run([sys.executable, str(HERE / "zeep_peer.py"), url, "operator", token], "zeep")
        print("-- SPARQLWrapper", flush=True)
        run([sys.executable, str(HERE / "sparql_peer.py"), url, token], "SPARQLWrapper")
        print("-- UDDI4J", flush=True)
        classes = work / "classes"
        classes.mkdir()
        path = f"{jars}/*"
        subprocess.run(["javac", "-nowarn", "-cp", path, "-d", str(classes), str(HERE / "Uddi4jPeer.java")],
                       check=True, capture_output=True)
        peer = ["java", "-cp", f"{path}:{classes}", "Uddi4jPeer", f"{url}/uddi/inquiry", f"{url}/uddi/publish"]
        run([*peer, "operator", token], "UDDI4J")
        appears(chappe, work, url, token, peer)
    finally:
        node.stop()


def appears(chappe: str, work: pathlib.Path, url: str, token: str, peer: list[str]) -> None:
    """A device starts; its service is found, and ends with it."""
    print("-- a device", flush=True)
    (work / "beat.csv").write_text("rate\n60\n61\n")
    (work / "pulse.toml").write_text(DEVICE)
    device = Process([chappe, "device", "run", str(work / "pulse.toml"), "--address", "127.0.7.1",
                      "--announce-within", "0ms", "--json"], work / "device.log")
    try:
        device.wait_event("ready", 20)
        run([sys.executable, str(HERE / "zeep_peer.py"), url, "operator", token, "PeerPulse"], "zeep, a device")
        run([*peer, "operator", token, "PeerPulse"], "UDDI4J, a device")
    finally:
        device.stop()


def main() -> None:
    chappe, work, jars = (os.path.abspath(argument) for argument in sys.argv[1:4])
    folder = pathlib.Path(work)
    run_in(folder, lambda: check(chappe, folder, pathlib.Path(jars)), (subprocess.SubprocessError,))
    print("   all passed")


if __name__ == "__main__":
    main()
