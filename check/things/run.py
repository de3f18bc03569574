"""The directory of things in the hands of node-wot, the W3C's reference implementation of a consumer.

    python check/things/run.py CHAPPE WORK MODULES

A node finds a DPWS device on the loopback. node-wot (in MODULES, run by Node.js) explores the directory by its
own Thing Description, validates each Thing Description with its JSON Schema, reads a property and an event of
the device by their forms, and registers, finds, follows, changes and removes a thing. announced.py finds directories by
DNS-SD with zeroconf.

Enters namespaces of its own, so that no other device or node is found.
"""

import os
import pathlib
import queue
import subprocess
import sys

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
sys.path.insert(0, str(HERE))
import announced  # noqa: E402
from network import CheckFailed, Process, enter, run_in  # noqa: E402

DEVICE = str(HERE.parent / "sdc" / "thermometer.toml")
CONFIGURATION = """
name = "things"
data_directory = "{folder}/data"
sensors_directory = "{folder}/sensors"
[http]
listen = "127.0.0.1:0"
[access]
read = "{read}"
[discovery]
interfaces = ["lo"]
"""


def check(chappe: str, work: pathlib.Path, modules: str) -> None:
    for read in ["open", "token"]:
        print(f"-- node-wot, access.read = {read}", flush=True)
        folder = work / read
        (folder / "sensors").mkdir(parents=True)
        (folder / "node.toml").write_text(CONFIGURATION.format(folder=folder, read=read))
        node = Process([chappe, "serve", str(folder / "node.toml"), "--json"], folder / "node.log")
        device = Process([chappe, "device", "run", DEVICE, "--address", "127.0.0.1"], folder / "device.log")
        try:
            url = node.wait_event("ready", 30)["address"]
            token = (folder / "data" / "new-token").read_text().strip()
            done = subprocess.run(["node", str(HERE / "explore.mjs"), url, token, read], capture_output=True, text=True,
                                  timeout=600, env={**os.environ, "MODULES": modules})
            for line in done.stdout.splitlines():
                if line.startswith("ok: "):
                    print(f"   {line}", flush=True)
            if done.returncode != 0 or not done.stdout.rstrip().endswith("done"):
                raise CheckFailed(f"node-wot: {done.stdout[-500:]}{done.stderr[-2000:]}")
        finally:
            device.stop()
            node.stop()


def both(chappe: str, work: pathlib.Path, modules: str) -> None:
    check(chappe, work, modules)
    announced.check(chappe, work)


def main() -> None:
    chappe, work, modules = (os.path.abspath(argument) for argument in sys.argv[1:4])
    enter("CHAPPE_THINGS_APART", [str(HERE / "run.py"), chappe, work, modules])
    # The group of multicast DNS.
    subprocess.run(["ip", "route", "add", "224.0.0.0/24", "dev", "lo"], check=False)
    folder = pathlib.Path(work)
    run_in(folder, lambda: both(chappe, folder, modules), (subprocess.SubprocessError, queue.Empty))
    print("   all passed")


main()
