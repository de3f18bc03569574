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
from nodes import CheckFailed, Node, Process, run_in  # noqa: E402

CONFIGURATION = """
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


def uddi4j(work: pathlib.Path, jars: pathlib.Path, url: str) -> list[str]:
    """The command that runs UDDI4J with a node, without its account."""
    classes = work / "classes"
    classes.mkdir()
    subprocess.run(["javac", "-nowarn", "-cp", f"{jars}/*", "-d", str(classes), str(HERE / "Uddi4jPeer.java")],
                   check=True, capture_output=True)
    return ["java", "-cp", f"{jars}/*:{classes}", "Uddi4jPeer", f"{url}/uddi/inquiry", f"{url}/uddi/publish"]


def device(chappe: str, work: pathlib.Path) -> Process:
    """Starts a device of the type PeerPulse, which announces itself at once."""
    (work / "beat.csv").write_text("rate\n60\n61\n")
    (work / "pulse.toml").write_text(DEVICE)
    return Process([chappe, "device", "run", str(work / "pulse.toml"), "--address", "127.0.7.1",
                    "--announce-within", "0ms", "--json"], work / "device.log")


def check(chappe: str, work: pathlib.Path, jars: pathlib.Path) -> None:
    node = Node(chappe, work / "registry", CONFIGURATION)
    try:
        url, token = node.url, node.token
        print("-- zeep", flush=True)
        run([sys.executable, str(HERE / "zeep_peer.py"), url, "operator", token], "zeep")
        print("-- SPARQLWrapper", flush=True)
        run([sys.executable, str(HERE / "sparql_peer.py"), url, token], "SPARQLWrapper")
        print("-- UDDI4J", flush=True)
        peer = uddi4j(work, jars, url)
        run([*peer, "operator", token], "UDDI4J")
        appears(chappe, work, url, token, peer)
    finally:
        node.process.stop()


def appears(chappe: str, work: pathlib.Path, url: str, token: str, peer: list[str]) -> None:
    """A device starts; its service is found, and ends with it."""
    print("-- a device", flush=True)
    pulse = device(chappe, work)
    try:
        pulse.wait_event("ready", 20)
        run([sys.executable, str(HERE / "zeep_peer.py"), url, "operator", token, "PeerPulse"], "zeep, a device")
        run([*peer, "operator", token, "PeerPulse"], "UDDI4J, a device")
    finally:
        pulse.stop()


def main() -> None:
    chappe, work, jars = (os.path.abspath(argument) for argument in sys.argv[1:4])
    folder = pathlib.Path(work)
    run_in(folder, lambda: check(chappe, folder, pathlib.Path(jars)), (subprocess.SubprocessError,))
    print("   all passed")


if __name__ == "__main__":
    main()
