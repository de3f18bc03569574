"""A GSN 2.0.1 server as a process: its configuration, its sensors, its counters, its database."""

import os
import pathlib
import socket
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from network import CheckFailed, Process  # noqa: E402

MONITOR, PROXY, DIRECTORY = 22_001, 22_022, 22_023
CLASSES = {
    "zeromq-async": "ch.epfl.gsn.networking.zeromq.ZeroMQWrapperAsync",
    "zeromq-sync": "ch.epfl.gsn.networking.zeromq.ZeroMQWrapperSync",
    "zeromq-push": "ch.epfl.gsn.networking.zeromq.ZeroMQWrapperPush",
    "remote-api": "ch.epfl.gsn.wrappers.general.RemoteRestAPIWrapper",
    "multiformat": "ch.epfl.gsn.wrappers.MultiFormatWrapper",
}
# What its simulator produces.
SIMULATED = {"light": "double", "temperature": "double", "packet_type": "int"}


class Server:
    """One server in a folder of its own. It outlives its process: start, stop and kill it at will."""

    def __init__(self, folder: pathlib.Path, libraries: pathlib.Path):
        self.folder, self.libraries = folder, libraries
        self.process: Process | None = None
        self.runs = 0
        for part in ("conf", "virtual-sensors", "logs"):
            (folder / part).mkdir(parents=True)
        # Without WRITE_DELAY=0 the database loses what it has answered for when it is killed.
        self.database = f"jdbc:h2:{folder}/database;WRITE_DELAY=0;MV_STORE=FALSE"
        (folder / "conf/gsn.xml").write_text(
            f"<gsn><monitor-port>{MONITOR}</monitor-port><zmq-enable>true</zmq-enable><zmqproxy>{PROXY}</zmqproxy>"
            f"<zmqmeta>{DIRECTORY}</zmqmeta><storage driver=\"org.h2.Driver\" url=\"{self.database}\" user=\"sa\" "
            "password=\"\"/></gsn>")
        (folder / "conf/wrappers.properties").write_text("".join(f"{k}={v}\n" for k, v in CLASSES.items()))

    def sensor(self, name: str, wrapper: str, fields: dict[str, str], **predicates: object) -> None:
        """Writes a descriptor, under another name first, because the server watches the folder."""
        structure = "".join(f"<field name=\"{name}\" type=\"{kind}\">x</field>" for name, kind in fields.items())
        keys = "".join(f"<predicate key=\"{key}\">{value}</predicate>" for key, value in predicates.items())
        # A sensor to which elements are pushed has no other structure.
        own = f"<output-structure>{structure}</output-structure>" if wrapper == "zeromq-push" else ""
        text = (
            f"<virtual-sensor name=\"{name}\" priority=\"10\"><processing-class>"
            "<class-name>ch.epfl.gsn.vsensor.BridgeVirtualSensor</class-name>"
            f"<output-structure>{structure}</output-structure></processing-class><description>x</description>"
            "<life-cycle pool-size=\"10\"/><addressing/><storage history-size=\"100000h\"/><streams>"
            "<stream name=\"stream\"><source alias=\"source\" sampling-rate=\"1\" storage-size=\"1\">"
            f"<address wrapper=\"{wrapper}\">{keys}{own}</address><query>select * from wrapper</query></source>"
            "<query>select * from source</query></stream></streams></virtual-sensor>")
        path = self.folder / "virtual-sensors" / f"{name}.xml"
        path.with_suffix(".new").write_text(text)
        path.with_suffix(".new").rename(path)

    def start(self) -> None:
        self.runs += 1
        opened = [f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in ("lang", "util", "nio")]
        command = ["java", "-Xmx512m", *opened, "-Djava.awt.headless=true", "-cp", f"{self.libraries}/*",
                   "ch.epfl.gsn.Main", "conf", "virtual-sensors"]
        folder = os.getcwd()
        os.chdir(self.folder)
        try:
            self.process = Process(command, self.folder / f"gsn{self.runs}.log")
        finally:
            os.chdir(folder)

    def stop(self, number: int) -> None:
        if self.process is not None:
            self.process.stop(number)
            self.process = None

    def counters(self) -> dict[str, int]:
        """What its monitor says: the elements that each sensor has produced."""
        text = b""
        try:
            with socket.create_connection(("127.0.0.1", MONITOR), 5) as monitor:
                monitor.settimeout(5)
                monitor.sendall(b"GET / HTTP/1.0\r\n\r\n")
                while piece := monitor.recv(65_536):
                    text += piece
        except OSError:
            return {}
        counts = {}
        for line in text.decode(errors="replace").splitlines():
            name, _, number = line.strip().rpartition(" ")
            if name.startswith("vs.") and name.endswith(".output.produced.counter"):
                counts[name.removeprefix("vs.").removesuffix(".output.produced.counter")] = int(float(number))
        return counts

    def table(self, sensor: str, columns: str) -> list[list[str]]:
        """What its database holds of a sensor, once it is stopped."""
        query = f"call csvwrite('{self.folder}/{sensor}.csv', 'select {columns} from {sensor} order by timed', " \
                "'charset=UTF-8 fieldDelimiter= fieldSeparator=;')"
        command = ["java", "-cp", str(next(self.libraries.glob("h2-*.jar"))), "org.h2.tools.Shell", "-url",
                   self.database, "-user", "sa", "-password", "", "-sql", query]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        path = self.folder / f"{sensor}.csv"
        if not path.exists():
            raise CheckFailed(f"the database of GSN cannot be read: {done.stdout} {done.stderr}")
        return [line.split(";") for line in path.read_text().splitlines()[1:]]


def until(what: str, done, within_s: float) -> float:
    """Waits; returns how long it took."""
    begin = time.monotonic()
    while not done():
        if time.monotonic() - begin > within_s:
            raise CheckFailed(f"within {within_s:.0f} s not: {what}")
        time.sleep(0.2)
    return time.monotonic() - begin
