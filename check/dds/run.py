"""DDS with Cyclone DDS (its Python package): samples of 5, 100 and 200 kB in both directions, none lost, none
repeated; a node that takes a typed stream from a Cyclone writer and publishes it to a Cyclone reader, both
with types made from the node's IDL, which Cyclone's compiler takes.

    python3 check/dds/run.py CHAPPE DDS_PEER WORK

Runs as root on Linux, in a network namespace of its own with nothing but loopback.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request

sys.dont_write_bytecode = True
from idl import generate  # noqa: E402

INSIDE = "CHAPPE_DDS_INSIDE"
HERE = pathlib.Path(__file__).resolve().parent
DOMAIN = "11"
SIZES = [5_000, 100_000, 200_000]
COUNT = 500
ELEMENTS = 400
# Loopback has no multicast: participants are looked for at its address.
CYCLONE = """<CycloneDDS><Domain><General><Interfaces><NetworkInterface name="lo" multicast="false"/></Interfaces>
<AllowMulticast>false</AllowMulticast></General><Discovery><ParticipantIndex>auto</ParticipantIndex>
<Peers><Peer address="127.0.0.1"/></Peers><MaxAutoParticipantIndex>20</MaxAutoParticipantIndex></Discovery>
</Domain></CycloneDDS>"""
CONFIGURATION = """
[http]
listen = "127.0.0.1:0"
[discovery]
enabled = false
[dds]
domain = 11
"""
WRAPPER = """
kind = "dds"
topic = "lab/in"
qos = { durability = "transient_local" }
[[stream]]
name = "lab.in"
fields = [
    { name = "flag", type = "boolean" },
    { name = "count", type = "integer" },
    { name = "level", type = "double", unit = "dB" },
    { name = "words", type = "text" },
    { name = "raw", type = "bytes" },
    { name = "wave", type = "samples", unit = "mV" },
]
"""
EXPORTER = """
kind = "dds"
streams = ["lab.in"]
topic = "lab/out"
acknowledge = "received"
qos = { durability = "transient_local" }
"""


def expect(held: bool, what: str) -> None:
    """Prints the property checked, and exits with 1 if it does not hold."""
    print(("   ok: " if held else "   FAILED: ") + what, flush=True)
    if not held:
        sys.exit(1)


def generated(idl: str, work: pathlib.Path) -> pathlib.Path:
    """Generates Python from IDL that Cyclone's compiler accepts too."""
    generate(idl, work)
    compiled = subprocess.run(["idlc", "-l", "c", "types.idl"], cwd=work, capture_output=True, text=True)
    expect(compiled.returncode == 0, f"Cyclone's compiler takes the IDL {compiled.stderr.strip()}")
    return work


class Pair:
    """A reader and a writer, each a program; both must exit with 0, the writer once the reader has all samples."""

    def __init__(self, reader: list[str], writer: list[str], environment: dict[str, str]):
        environment = {**os.environ, "CYCLONEDDS_URI": CYCLONE, **environment}
        start = lambda words: subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                               env=environment)
        self.reader = start(reader)
        line = self.reader.stdout.readline().strip()
        if line != "ready":
            raise SystemExit(f"{reader}: {line!r}")
        self.writer = start(writer)

    def ends(self) -> str:
        try:
            read = self.reader.communicate(timeout=900)[0].strip()
            written = self.writer.communicate(timeout=900)[0].strip()
        finally:
            self.writer.kill()
            self.reader.kill()
        return f"{written}; {read}"


def octets(peer: str, work: pathlib.Path) -> None:
    idl = subprocess.run([peer, "idl"], capture_output=True, text=True, check=True).stdout
    types = {"CHAPPE_IDL": str(generated(idl, work / "octets"))}
    cyclone = [sys.executable, str(HERE / "peer.py")]
    for size in SIZES:
        count, bytes_ = str(COUNT), str(size)
        for name, reader, writer in [
                ("Chappe to Cyclone", [*cyclone, "read-octets"], [peer, "write"]),
                ("Cyclone to Chappe", [peer, "read"], [*cyclone, "write-octets"]),
                ("Chappe to Chappe", [peer, "read"], [peer, "write"])]:
            topic = f"chappe/{size}/{name.replace(' ', '_')}"
            begun = time.monotonic()
            said = Pair([*reader, DOMAIN, topic, count], [*writer, DOMAIN, topic, count, bytes_], types).ends()
            took = time.monotonic() - begun
            right = f"written {COUNT}; read {COUNT} missing 0 repeated 0"
            expect(said.startswith(right), f"{name}, {COUNT} samples of {size} bytes in {took:.1f} s: {said}")


def get(url: str) -> str:
    return urllib.request.urlopen(url, timeout=60).read().decode()


def once_defined(url: str) -> str:
    """The status of a stream, which is defined on disk while the node already serves."""
    ends = time.monotonic() + 30
    while True:
        try:
            return get(url)
        except urllib.error.HTTPError as error:
            if error.code != 404 or time.monotonic() > ends:
                raise
        time.sleep(0.05)


def node(chappe: str, work: pathlib.Path) -> None:
    directory = work / "node"
    directory.mkdir()
    (directory / "node.toml").write_text(CONFIGURATION)
    for folder, text in [("wrappers", WRAPPER), ("exporters", EXPORTER)]:
        (directory / folder).mkdir()
        (directory / folder / "lab.toml").write_text(text)
    process = subprocess.Popen([chappe, "serve", str(directory / "node.toml"), "--json"],
                               stdout=subprocess.PIPE, text=True)
    try:
        url = json.loads(process.stdout.readline())["address"].rstrip("/")
        idl = once_defined(f"{url}/api/v1/dds/idl/lab.in")
        types = {"CHAPPE_IDL": str(generated(idl, work / "elements")), "TYPE": "Lab_in"}
        cyclone = [sys.executable, str(HERE / "peer.py")]
        count = str(ELEMENTS)
        said = Pair([*cyclone, "read-elements", DOMAIN, "lab/out", count],
                    [*cyclone, "write-elements", DOMAIN, "lab/in", count], types).ends()
        right = f"written {ELEMENTS}; read {ELEMENTS} missing 0 repeated 0"
        expect(said == right, f"Cyclone to node to Cyclone, typed elements: {said}")
        stored = json.loads(get(f"{url}/api/v1/streams/lab.in"))
        expect(stored["last"] == ELEMENTS, f"the node has stored {stored['last']}")
        status = json.loads(get(f"{url}/api/v1/dds"))
        subscription, participant = status["subscriptions"][0], status["participant"]
        clean = {key: subscription[key] for key in ("repeated", "malformed", "foreign", "early")}
        expect(not any(clean.values()), f"nothing was dropped: {clean}")
        troubles = {key: participant[key] for key in ("restarts", "panics", "stalls")}
        expect(not any(troubles.values()), f"the library ran through: {troubles}")
        mismatch(url, types, cyclone)
    finally:
        process.terminate()
        process.wait(120)


def mismatch(url: str, types: dict[str, str], cyclone: list[str]) -> None:
    """A peer that requests more than is offered is reported with both sides' values."""
    environment = {**os.environ, "CYCLONEDDS_URI": CYCLONE, **types, "CHAPPE_DEADLINE": "1"}
    reader = subprocess.Popen([*cyclone, "read-elements", DOMAIN, "lab/out", "1"], env=environment,
                              stdout=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 240
        words = []
        while not words and time.monotonic() < end:
            writers = json.loads(get(f"{url}/api/v1/dds"))["participant"]["writers"]
            words = [text for writer in writers if writer["topic"] == "lab/out" for text in writer["mismatched"]]
            time.sleep(0.1)
    finally:
        reader.kill()
        reader.wait()
    named = words and all(word in words[0] for word in ("in deadline", "no deadline", "deadline 100 ms"))
    expect(bool(named), f"what does not fit is named: {words}")


def main(chappe: str, peer: str, work: str) -> None:
    if not os.environ.get(INSIDE):
        words = ["unshare", "--net", "--", sys.executable, *sys.argv]
        sys.exit(subprocess.run(words, env={**os.environ, INSIDE: "1"}).returncode)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    shutil.rmtree(work, ignore_errors=True)
    octets(peer, pathlib.Path(work))
    if chappe != "-":
        node(chappe, pathlib.Path(work))


main(*sys.argv[1:])
