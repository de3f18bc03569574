"""UDDI v2 of a node in the hands of programs that others wrote.

    python check/registry/run.py CHAPPE WORK JARS

1. zeep (Python) reads the WSDL that the node serves, and drives the node with it.
2. SPARQLWrapper (Python) asks in every form of the SPARQL 1.1 Protocol and in every format.
3. UDDI4J over Axis 1.4 (the JARS, run by Java) does so over HTTP/1.0, with every call that it has.

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
enabled = false
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
    finally:
        node.stop()


def main() -> None:
    chappe, work, jars = (os.path.abspath(argument) for argument in sys.argv[1:4])
    folder = pathlib.Path(work)
    run_in(folder, lambda: check(chappe, folder, pathlib.Path(jars)), (subprocess.SubprocessError,))
    print("   all passed")


if __name__ == "__main__":
    main()
