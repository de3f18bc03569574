"""DDS with Cyclone DDS (its Python package): samples of 5, 100 and 200 kB in both directions, none lost, none
repeated; a node that takes a typed stream from a Cyclone writer and publishes it to a Cyclone reader, both
with types made from the node's IDL, which Cyclone's compiler takes; types that Chappe did not define, as streams and in
`chappe dds topics` and `echo`.

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
# One is no multiple of four, and in fragments.
SIZES = [5_000, 100_001, 200_000]
COUNT = 500
ELEMENTS = 400
TURNS = 20_000
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
POSE = """
module lab {
  enum Mode { IDLE, MOVING, @value(7) FAILED };
  @mutable struct Extra { short load; string note; };
  @appendable struct Point { float x, y; };
  @appendable struct Pose {
    @key string robot;
    unsigned long long count;
    Mode mode;
    boolean isReady;
    Extra extra;
    Point at;
    sequence<octet> raw;
    sequence<long> ranges;
    sequence<Point> path;
  };
};
"""
IMU = """
module builtin_interfaces { module msg { struct Time { long sec; unsigned long nanosec; }; }; };
module std_msgs { module msg { struct Header { builtin_interfaces::msg::Time stamp; string frame_id; }; }; };
module geometry_msgs { module msg {
  struct Quaternion { double x, y, z, w; };
  struct Vector3 { double x, y, z; };
}; };
module sensor_msgs { module msg {
  typedef double Covariance[9];
  struct Imu {
    std_msgs::msg::Header header;
    geometry_msgs::msg::Quaternion orientation;
    Covariance orientation_covariance;
    geometry_msgs::msg::Vector3 angular_velocity;
    Covariance angular_velocity_covariance;
    geometry_msgs::msg::Vector3 linear_acceleration;
    Covariance linear_acceleration_covariance;
  };
}; };
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
        echo = [chappe, "dds", "echo", "lab/out", "--count", "1", "--json", "--domain", DOMAIN]
        sample = json.loads(subprocess.run(echo, capture_output=True, text=True).stdout or "{}")
        fields = ["flag", "count", "level", "words", "raw", "wave"]
        expect(sample.get("stream") == "lab.in" and list(sample)[-6:] == fields,
               f"`chappe dds echo` prints samples of a node: {sample}")
        mismatch(url, types, cyclone)
    finally:
        process.terminate()
        process.wait(120)


def foreign(chappe: str, work: pathlib.Path) -> None:
    """Topics of types that Chappe did not define become streams: `sensor_msgs/Imu` of ROS 2 as announced by its writer, and
    lab::Pose of two writers in a partition, checked against an IDL file that fits and one that does not."""
    directory = work / "foreign"
    (directory / "wrappers").mkdir(parents=True)
    (directory / "node.toml").write_text(CONFIGURATION)
    (directory / "wrappers" / "pose.idl").write_text(POSE)
    (directory / "wrappers" / "other.idl").write_text(POSE.replace("short load", "long load"))
    keep = 'durability = "transient_local"'
    for name, text in [
            ("imu", f'topic = "/imu"\ntime = "header.stamp"\nqos = {{ {keep} }}'),
            ("pose", f'topic = "lab/pose"\nidl = "pose.idl"\nqos = {{ {keep}, partitions = ["north"] }}'),
            ("other", f'topic = "lab/pose"\nidl = "other.idl"\nqos = {{ {keep}, partitions = ["north"] }}'),
            ("turns", f'topic = "lab/turns"\nqos = {{ {keep}, max_samples = 65536 }}'),
            ("south", f'topic = "lab/pose"\nqos = {{ {keep}, partitions = ["south"] }}')]:
        (directory / "wrappers" / f"{name}.toml").write_text(f'kind = "dds_any"\n{text}\n')
    (directory / "exporters").mkdir()
    (directory / "exporters" / "imu.idl").write_text(IMU)
    (directory / "exporters" / "pose.idl").write_text(POSE)
    (directory / "exporters" / "short.idl").write_text(IMU.replace("Header header;", "Header header; long more;"))
    for name, text in [
            ("imu", f'streams = ["imu"]\ntopic = "/imu_back"\nidl = "imu.idl"\nqos = {{ {keep} }}'),
            ("pose", f'streams = ["pose"]\ntopic = "lab/pose_back"\nidl = "pose.idl"\nmissing = "default"\n'
                     f'qos = {{ {keep}, partitions = ["north"] }}'),
            ("short", 'streams = ["imu"]\ntopic = "/imu_short"\nidl = "short.idl"')]:
        (directory / "exporters" / f"{name}.toml").write_text(f'kind = "dds_any"\n{text}\n')
    environment = {**os.environ, "CYCLONEDDS_URI": CYCLONE}
    start = lambda *words: subprocess.Popen([sys.executable, str(HERE / "foreign.py"), *words], env=environment,
                                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    writers = []
    process = subprocess.Popen([chappe, "serve", str(directory / "node.toml"), "--json"],
                               stdout=subprocess.PIPE, text=True)
    try:
        url = json.loads(process.stdout.readline())["address"].rstrip("/")
        for words in [("imu", DOMAIN, "20"), ("pose", DOMAIN, "20", "north"), ("pose", DOMAIN, "20", "north")]:
            writers.append(start(*words))
            expect(writers[-1].stdout.readline().strip() == "written 20", f"Cyclone wrote {' '.join(words)}")
        elements = lambda stream: json.loads(get(f"{url}/api/v1/streams/{stream}/elements?limit=100"))["elements"]
        once_defined(f"{url}/api/v1/streams/imu")
        once_defined(f"{url}/api/v1/streams/pose")
        end = time.monotonic() + 60
        while (len(elements("imu")), len(elements("pose"))) != (20, 40) and time.monotonic() < end:
            time.sleep(0.1)
        imu, pose = elements("imu"), elements("pose")
        expect((len(imu), len(pose)) == (20, 40), f"{len(imu)} elements of Imu and {len(pose)} of Pose are stored")
        expect_imu(imu[-1])
        expect_pose(pose)
        absent = urllib.request.Request(f"{url}/api/v1/streams/south")
        try:
            urllib.request.urlopen(absent, timeout=60)
            expect(False, "nothing of another partition is read")
        except urllib.error.HTTPError as error:
            expect(error.code == 404, "nothing of another partition is read")
        status = json.loads(get(f"{url}/api/v1/dds"))
        other = [one for one in status["subscriptions"] if one["stream"] == "other"][0]
        expect(other["malformed"] == 40, f"a type other than the file's is refused: {other['malformed']}")
        letters = get(f"{url}/api/v1/wrappers/other/dead-letters")
        expect("extra.load: announced as int16, expected int32" in letters, "the member that differs is named")
        writers.append(start("turns", DOMAIN, str(TURNS)))
        expect(writers[-1].stdout.readline().strip() == f"written {TURNS}", "Cyclone wrote two types on one topic")
        last = lambda: json.loads(once_defined(f"{url}/api/v1/streams/turns"))["last"]
        end = time.monotonic() + 60
        while last() < TURNS and time.monotonic() < end:
            time.sleep(0.1)
        restarts = json.loads(get(f"{url}/api/v1/wrappers/turns"))["restarts"]
        expect((last(), restarts) == (TURNS, 0), f"{last()} of {TURNS} are stored, with {restarts} restarts")
        back(url, start)
        tools(chappe)
    finally:
        for writer in writers:
            writer.kill()
        process.terminate()
        process.wait(120)


def back(url: str, start) -> None:
    """Cyclone reads what it wrote, by way of streams: equal samples, and none of a type that does not fit."""
    for words in [("read-imu", DOMAIN, "20"), ("read-pose", DOMAIN, "40", "north")]:
        reader = start(*words)
        try:
            said = reader.communicate(timeout=120)[0].strip()
        finally:
            reader.kill()
            reader.wait()
        expect(said == f"read {words[2]} equal {words[2]}", f"Cyclone reads what the node publishes: {words[0]}, {said}")
    end = time.monotonic() + 60
    failure = ""
    while "more" not in failure and time.monotonic() < end:
        exporters = json.loads(get(f"{url}/api/v1/exporters"))["exporters"]
        failure = json.dumps([one for one in exporters if one["name"] == "short"])
        time.sleep(0.1)
    expect("more: the stream has no field more for this int32" in failure, f"a member without a field is named: {failure}")


def expect_imu(element: dict) -> None:
    values = element["values"]
    expect(values["header_frame_id"] == "base_link" and values["linear_acceleration_z"] == 9.8125
           and values["orientation_w"] == 5.0, f"nested structs are fields: {sorted(values)}")
    covariance = values["orientation_covariance"]
    expect(list(covariance["values"]) == [float(i) for i in range(9)], "an array of numbers is samples")
    expect("2023-11-14T22:13:40.25" in str(element["source_time"]), f"header.stamp is the time: {element['source_time']}")


def expect_pose(elements: list[dict]) -> None:
    names = {"IDLE", "MOVING", "FAILED"}
    expect({one["values"]["mode"] for one in elements} == names, "enumerations are text")
    expect({one["key"] for one in elements} == {"r0", "r1"}, "the key member is the element's key")
    right = [one for one in elements if one["values"]["extra_load"] == -one["values"]["count"]
             and one["values"]["extra_note"] == f"ärger {one['values']['count']}"]
    expect(len(right) == len(elements), "mutable and appendable parts in version 2 of CDR")


def tools(chappe: str) -> None:
    """What is on the domain, and samples, without a node."""
    run = lambda *words: subprocess.run([chappe, "dds", *words, "--domain", DOMAIN], capture_output=True, text=True)
    listed = json.loads(run("topics", "--json").stdout)
    imu = [topic for topic in listed if topic["topic"] == "/imu"]
    expect(bool(imu) and imu[0]["type"] == "sensor_msgs/msg/Imu" and imu[0]["dds_topic"] == "rt/imu",
           "`chappe dds topics` shows ROS 2's names")
    members = {member["path"]: member["type"] for member in imu[0]["members"] or []}
    expect(members.get("orientation_covariance") == "double[9]", f"with the members of the type: {len(members)}")
    shown = run("topics", "--types").stdout
    expect("reliable, transient_local" in shown and "north" in shown, "with quality of service and partitions")
    echoed = run("echo", "/imu", "--count", "2", "--json").stdout.splitlines()
    samples = [json.loads(line) for line in echoed]
    expect([sample["orientation"]["w"] for sample in samples] == [0.25, 0.5], f"`chappe dds echo` prints samples: {echoed}")
    text = run("echo", "lab/pose", "--count", "1").stdout
    expect('mode: "MOVING"' in text and "load: -1" in text, "also as text, and in the partitions of the writers")
    nothing = run("echo", "/nothing", "--seconds", "1")
    expect(nothing.returncode == 2 and "hint: list the topics" in nothing.stderr, "a topic without a writer is an error")


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
        foreign(chappe, pathlib.Path(work))


main(*sys.argv[1:])
