"""`modbus`: devices built with pymodbus, over TCP, over a serial line that socat makes, and with its frames over TCP.

    python check/connectors/modbus.py CHAPPE WORK     with a Python that has pymodbus

1. values:   types, orders, scale, bits, texts and registers that do not exist, compared with what pymodbus holds.
2. late:     one answer in five comes after its time: no value is that of another register, and each missed poll is counted.
3. kills:    the node and each device are killed in turn (CONNECTORS_KILLS, 3 by default), and the cable is cut. The numbers
             that a device counts are stored once and in order; polls and missed polls together are all that were due.
4. commands: a write arrives at the device, and one that it refuses is reported.
5. browse:   the printed file is valid, and `try` reads with it.

Runs as root on Linux, in namespaces of its own: what it started ends with it.
"""

import pathlib
import random
import signal
import subprocess
import sys
import time

sys.dont_write_bytecode = True
from shared import CUT_S, FOLDER, KILLS, Peer, run  # noqa: E402
from bench import THERE, Bench, Skipped, judge, need  # noqa: E402
from network import CheckFailed, Process, expect, until  # noqa: E402

PERIOD_S = 0.1
TIMEOUT_MS = 300
KINDS = {"tcp": f"{THERE}:1502", "rtu-tcp": f"{THERE}:1503", "rtu": ""}

VALUES = """
[[poll]]
stream_name = "values.{kind}"
registers = [
    { name = "whole", table = "holding", address = 0, type = "i32" },
    { name = "exact", table = "holding", address = 10, type = "u64" },
    { name = "swapped", table = "holding", address = 20, type = "f32", word_order = "little" },
    { name = "tenths", table = "holding", address = 30, type = "i16", scale = 0.1 },
    { name = "name", table = "holding", address = 40, type = "text", length = 4 },
    { name = "bit_2", table = "holding", address = 60, type = "bool", bit = 2 },
    { name = "bit_3", table = "holding", address = 60, type = "bool", bit = 3 },
    { name = "reversed", table = "holding", address = 64, type = "f64", byte_order = "little", word_order = "little" },
    { name = "missing", table = "holding", address = 80, type = "u16" },
    { name = "coil_0", table = "coils", address = 0, type = "bool" },
    { name = "coil_1", table = "coils", address = 1, type = "bool" },
    { name = "input_3", table = "discrete", address = 3, type = "bool" },
    { name = "written", table = "holding", address = 70, type = "i32" },
]
[[command]]
name = "set"
table = "holding"
address = 70
type = "i32"
[[command]]
name = "far"
table = "holding"
address = 5000
type = "u16"
"""
EXPECTED = {"whole": -5, "exact": 2**53 + 1, "swapped": 21.5, "tenths": -12.3, "name": "pump 7", "bit_2": False,
            "bit_3": True, "reversed": None, "missing": None, "coil_0": True, "coil_1": False, "input_3": True}


class Device(Peer):
    """pymodbus, which is started again after it was killed, and the wrappers that read it."""

    def __init__(self, bench: Bench, kind: str):
        super().__init__(f"pymodbus-{kind}", bench.work)
        self.bench, self.kind = bench, kind
        self.state = bench.work / f"device-{kind}"
        self.where = KINDS[kind]
        if kind == "rtu":
            need("socat")
            ends = [bench.work / "line-node", bench.work / "line-device"]
            self.line = Process(["socat", *(f"PTY,link={end},raw,echo=0" for end in ends)], bench.work / "socat.log")
            until(10, "socat has made a line", lambda: all(end.exists() for end in ends))
            self.where = str(ends[1])
            self.address = f'serial = {{ path = "{ends[0]}", baud = 115200, parity = "none" }}'
        else:
            scheme = "modbus" if kind == "tcp" else "modbus+rtu"
            self.address = f'address = "{scheme}://{self.where}"'
        self.start()
        # A serial line has one owner, so that one file has all polls.
        polls = "".join(self.poll(f"late-{number}.{kind}", f"v{number}", number, "holding", "u16")
                        for number in (101, 102, 103))
        self.wrapper(VALUES.replace("{kind}", kind) + self.poll(f"n.{kind}", "n", 0, "input", "u32", PERIOD_S) + polls)

    @staticmethod
    def poll(stream: str, name: str, address: int, table: str, word: str, period_s: float = 0.2) -> str:
        return (f'[[poll]]\nstream_name = "{stream}"\nperiod_ms = {int(1000 * period_s)}\n'
                f'registers = [{{ name = "{name}", table = "{table}", address = {address}, type = "{word}" }}]\n')

    def wrapper(self, text: str) -> None:
        self.wrapper_name = f"modbus-{self.kind}"
        self.bench.wrapper(self.wrapper_name, f'kind = "modbus"\n{self.address}\ntimeout_ms = {TIMEOUT_MS}\ngap = 100\n{text}')

    def command(self) -> list[str]:
        command = [sys.executable, str(FOLDER / "modbus_server.py"), self.kind, self.where, str(self.state)]
        return command if self.kind == "rtu" else self.bench.far.command(*command)

    def turn(self) -> None:
        """Waits until it is read again."""
        before = self.bench.last(f"n.{self.kind}")
        until(20, f"{self.kind} is read again", lambda: self.bench.last(f"n.{self.kind}") > before)

    def lost(self) -> int:
        """Polls of all its streams that were missed, for any reason."""
        return sum((self.bench.row(self.wrapper_name)["lost"] or {}).values())

    def stored(self) -> int:
        return self.bench.last(f"n.{self.kind}")


def same(found: object, wanted: object) -> bool:
    return found == wanted and type(found) is type(wanted)


def values(bench: Bench, device: Device) -> None:
    stream = f"values.{device.kind}"
    until(20, f"{stream} has an element", lambda: bench.last(stream) > 0)
    found = bench.node.elements(stream)[-1]["values"]
    wanted = dict(EXPECTED)
    # pymodbus holds these four registers as they are, the least significant byte first.
    wanted["reversed"] = 0.1
    wrong = {name: found.get(name) for name, value in wanted.items() if not same(found.get(name), value)}
    expect(not wrong, f"{device.kind}: {len(wanted)} values are those of pymodbus, the missing register is null {wrong or ''}")
    until(20, "the reason names the register",
          lambda: "holding 80 (missing): exception 2" in (bench.row(device.wrapper_name)["reason"] or ""))
    print(f"   ok: {device.kind}: the row names the register that the device refuses", flush=True)


def late(bench: Bench, device: Device) -> None:
    before = device.lost()
    names = {f"late-{number}.{device.kind}": number for number in (101, 102, 103)}
    until(60, f"{device.kind}: late answers are counted", lambda: device.lost() >= before + 5
          and all(bench.last(name) > 20 for name in names))
    count = 0
    for name, number in names.items():
        found = bench.numbers(name, f"v{number}")
        count += len(found)
        expect(set(found) == {number}, f"{name}: each of {len(found)} values is that of its register")
    expect(count > 60, f"{device.kind}: {count} values among late answers, {device.lost()} polls counted as missed")


def counted(bench: Bench, device: Device) -> None:
    """Polls and missed polls of one stream together are those that were due."""
    stream = f"n.{device.kind}"

    def state() -> tuple[int, float]:
        return device.stored() + losses(bench, stream), time.monotonic()

    first, begun = state()
    device.process.stop(signal.SIGKILL)
    time.sleep(3)
    device.kills += 1
    device.start()
    device.turn()
    last, ended = state()
    due = (ended - begun) / PERIOD_S
    # A batch may wait at each end, and the polls of other streams delay one by up to a few timeouts.
    expect(abs(last - first - due) <= 16, f"{device.kind}: {last - first} polls stored or counted in a time of {due:.0f} periods")


def losses(bench: Bench, stream: str) -> int:
    """Elements of a stream that are on record as lost."""
    status, answer = bench.node.ask("GET", f"/api/v1/streams/{stream}/completeness")
    if status != 200:
        raise CheckFailed(f"completeness of {stream}: {status} {answer}")
    return sum(count["elements"] for count in answer["lost"].values())


def kills(bench: Bench, devices: list[Device]) -> None:
    for number in range(KILLS):
        bench.kill_node(bench.chance.uniform(0, 0.5))
        for device in devices:
            device.kill(bench.chance.uniform(0, 0.5))
        for device in devices:
            device.turn()
        print(f"   round {number + 1} of {KILLS}: the node and each device killed", flush=True)
    bench.far.cut(CUT_S)
    for device in devices:
        device.turn()
    bench.kill_node()
    for device in devices:
        device.process.stop(signal.SIGKILL)
        stream = f"n.{device.kind}"
        bench.at_rest(stream)
        found, last = bench.numbers(stream), int(device.state.read_text())
        # A number is missing where the device or the node ended between the count and the storage, or the answer
        # came too late because the device was asked about a late register before.
        judge(f"modbus ({device.kind}), {device.kills} kills of pymodbus and {bench.node_kills} of the node", found,
              gaps_max=2 * (device.kills + bench.node_kills + bench.far.cuts), last=last)


def commands(bench: Bench, device: Device) -> None:
    path = f"/api/v1/wrappers/{device.wrapper_name}/commands"
    value = -random.randrange(1, 1 << 30)

    def written() -> bool:
        status, answer = bench.node.ask("POST", f"{path}/set", {"value": value})
        # The device may be late with an answer about another register.
        return status == 200 and answer.get("acknowledged") is True

    until(20, f"{device.kind}: the command is acknowledged", written)
    lines = device.state.with_suffix(".written").read_text().splitlines()
    wanted = [value >> 16 & 0xFFFF, value & 0xFFFF]
    expect(any(line == f"16 70 {wanted}" for line in lines), f"{device.kind}: pymodbus received {wanted}")
    stream = f"values.{device.kind}"
    until(20, f"{device.kind}: the written value is read",
          lambda: bench.node.elements(stream)[-1]["values"]["written"] == value)
    status, answer = bench.node.ask("POST", f"{path}/far", {"value": 1})
    expect(status >= 400 and "exception 2" in str(answer), f"{device.kind}: a refused write is reported: {status}")


def browse(bench: Bench, chappe: str) -> None:
    done = subprocess.run([chappe, "wrapper", "browse", f"modbus://{KINDS['tcp']}/1"], capture_output=True, text=True)
    expect(done.returncode == 0, f"browse prints a file {done.stderr.strip()}")
    expect("# answers: holding 100 to 109" in done.stdout and "# answers: input 0 to 1" in done.stdout,
           "it has the registers that pymodbus has")
    file = bench.work / "browsed.toml"
    file.write_text(done.stdout)
    tried = subprocess.run([chappe, "wrapper", "try", str(file)], capture_output=True, text=True)
    expect(tried.returncode == 0 and '"holding_109":109' in tried.stdout.replace(" ", ""),
           f"try reads with it {tried.stderr.strip()[:200]}")


def check(chappe: str, work: pathlib.Path, chance: random.Random) -> None:
    bench = Bench(chappe, work / "modbus", chance.randrange(1 << 32))
    try:
        devices = []
        for kind in KINDS:
            try:
                devices.append(Device(bench, kind))
            except Skipped as reason:
                print(f"   skipped: {kind}: {reason}", flush=True)
        for device in devices:
            device.turn()
        for part in (values, late, commands, counted):
            print(f"-- {part.__name__}", flush=True)
            for device in devices:
                part(bench, device)
        print("-- browse", flush=True)
        browse(bench, chappe)
        print("-- kills", flush=True)
        kills(bench, devices)
    finally:
        bench.end()


if __name__ == "__main__":
    try:
        import pymodbus  # noqa: F401
    except ImportError:
        print("   skipped: this Python has no pymodbus")
        sys.exit()
    run(check)
