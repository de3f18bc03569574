"""What the checks of connectors share: the settings of a run, peers that are killed, certificates, and how a check starts.

CONNECTORS_KILLS says how often the node and its peers are killed (3), CONNECTORS_CUT for how many seconds a link is cut (3),
CONNECTORS_SEED repeats a run.
"""

import http.client
import os
import pathlib
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER.parent), str(FOLDER.parent / "wrappers")]
from network import CheckFailed, Process, enter, run_in  # noqa: E402
from write.node import Node  # noqa: E402

INSIDE = "CHAPPE_CONNECTORS_INSIDE"
KILLS = int(os.environ.get("CONNECTORS_KILLS") or 3)
CUT_S = float(os.environ.get("CONNECTORS_CUT") or 3)
REST = 8470
CONFIGURATION = f"""
name = "connected"
data_directory = "data"
sensors_directory = "sensors"
[http]
listen = "127.0.0.1:{REST}"
[log]
level = "power"
max_bytes = 2147483648
[discovery]
enabled = false
"""
TLS = "[http.tls]\nself_signed = true\n"


def run(check: Callable[[str, pathlib.Path, random.Random], None]) -> None:
    """Runs a check with the program and the folder of the command line, in namespaces of its own."""
    chappe, work = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2]).absolute()
    enter(INSIDE, sys.argv)
    seed = int(os.environ.get("CONNECTORS_SEED") or random.randrange(1 << 32))
    print(f"   seed: {seed}", flush=True)
    failures = (http.client.HTTPException, subprocess.SubprocessError, KeyError)
    run_in(work, lambda: check(chappe, work, random.Random(seed)), failures, f", CONNECTORS_SEED={seed}")


class Peer:
    """A program that is started again after it was killed."""

    def __init__(self, name: str, work: pathlib.Path):
        self.name, self.work, self.kills = name, work, 0
        self.process: Process | None = None

    def command(self) -> list[str]:
        raise NotImplementedError

    def is_ready(self) -> None:
        """Waits until it answers."""

    def start(self) -> None:
        self.process = Process(self.command(), self.work / f"{self.name}-{self.kills}.log")
        self.is_ready()

    def kill(self, pause_s: float = 0) -> None:
        self.process.stop(signal.SIGKILL)
        self.kills += 1
        time.sleep(pause_s)
        self.start()


def certificate(folder: pathlib.Path, name: str, authority: str | None = None) -> None:
    """NAME.pem and NAME.key: an authority, or the certificate of a server at 127.0.0.1 that AUTHORITY has signed."""
    more = ["-addext", "basicConstraints=critical,CA:TRUE"]
    if authority:
        more = ["-addext", "basicConstraints=critical,CA:FALSE", "-addext", "subjectAltName=IP:127.0.0.1",
                "-CA", str(folder / f"{authority}.pem"), "-CAkey", str(folder / f"{authority}.key")]
    made = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "5", "-subj",
         f"/CN=check {name}", "-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.pem"), *more],
        capture_output=True, text=True)
    if made.returncode:
        raise CheckFailed(f"openssl makes no {name}: {made.stderr}")


def node_with(chappe: str, folder: pathlib.Path, more: str = "", **wrappers: str) -> Node:
    """A node with these files of wrappers."""
    for name in ("wrappers", "exporters"):
        (folder / name).mkdir(parents=True)
    for name, text in wrappers.items():
        (folder / "wrappers" / f"{name}.toml").write_text(text)
    return Node(chappe, folder, more, CONFIGURATION)
