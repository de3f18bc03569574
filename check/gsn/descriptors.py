"""The same descriptors in a GSN server and in a node: the same input gives the same elements.

Each file of `descriptors/` runs in both at the same time, over files of its own that are written alike. What the server
stored in its database is compared with the stream of the node: times and values of each element. Where docs/reference/gsn.md
explains a difference, exactly this difference is expected. Then each file becomes TOML and XML again, and the results
run in both in the same way.
"""

import argparse
import datetime
import math
import pathlib
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "write"))
from network import PATIENCE, CheckFailed, expect  # noqa: E402
from node import Node  # noqa: E402
from server import Server, until  # noqa: E402

FILES = pathlib.Path(__file__).resolve().parent / "descriptors"
MORE = '[limits]\nelements = 100000\n[access]\nread = "token"\n'
BEGIN_MS = 1_700_000_000_000
# The period of the sensors that follow the clock.
PERIOD_MS = 2_000
# Files that are written at once: the time in milliseconds after the first, the number, the value, the device. One
# element has the time of another, and one is late.
RISING = [(k * 1_000, k, k / 2, "ab"[k % 2]) for k in range(12)]
PAST = [*RISING, (20_000, 12, None, "a"), (20_000, 13, 7.0, "b"), (15_000, 14, 8.0, "a"), (30_000, 15, 9.0, "b")]
MINUTES = [(k * 17_300, k, k / 2, "a") for k in range(14)]
HOURS = [(k * 17_300 * 60, k, k / 2, "a") for k in range(14)]
# Each device has its own order: the second is ten seconds behind, and the third element of each is late.
DEVICES = [(step, n, float(n), device) for n, (step, device) in enumerate(
    (at - (10_500 if device == "2" else 0), device)
    for at in (20_000, 21_000, 20_500, 23_000, 24_000) for device in "12")]
# Files that are written as time passes, in seconds after the first: bursts that are far apart.
BURST_S = [0, 0.35, 0.7, 1.0]
BURSTS_S = [begin + offset for begin in (0, 4, 8, 12) for offset in BURST_S]
SLOW_S = [begin + offset for begin in (0, 8, 16) for offset in BURST_S]

# Fields of `functions` with a sine and a logarithm.
TRANSCENDENTAL = {"f20", "f26"}

Row = tuple[int, dict[str, object]]
Rows = list[Row]


def times(rows: Rows) -> list[int]:
    return [at for at, _ in rows]


def values(rows: Rows) -> list[dict[str, object]]:
    return [row for _, row in rows]


def equal(gsn: Rows, chappe: Rows) -> bool:
    return gsn == chappe


def equal_values(gsn: Rows, chappe: Rows) -> bool:
    """GSN gives the elements the server's time."""
    now_ms = time.time_ns() // 1_000_000
    return values(gsn) == values(chappe) and all(now_ms - 600_000 < at <= now_ms for at in times(gsn))


def not_in_gsn(gsn: Rows, chappe: Rows) -> bool:
    """A counter becomes SQL over the number of an element, which GSN's statements do not have."""
    return gsn == [] and [row["counter"] for row in values(chappe)] == list(range(1, len(RISING) + 1))


def newest(gsn: Rows, chappe: Rows) -> bool:
    """A node keeps up to a sixteenth more than its retention, and at least 16 more."""
    return 3 <= len(gsn) <= 4 and chappe[-len(gsn):] == gsn and len(chappe) <= 19


def in_place_of(field: str, pairs: dict[object, object]) -> Callable[[Rows, Rows], bool]:
    """One field differs: the values in GSN, and in Chappe in their place."""
    def is_so(gsn: Rows, chappe: Rows) -> bool:
        expected = [(at, {**row, field: pairs.get(row[field], row[field])}) for at, row in gsn]
        return expected == chappe and gsn != chappe
    return is_so


def with_texts(gsn: Rows, chappe: Rows) -> bool:
    """GSN stores nothing of a text column of its wrapper that a statement passes on."""
    return all(row["device"] is None for row in values(gsn)) and \
        [(at, {**row, "device": row["name"]}) for at, row in gsn] == chappe


def with_the_edge(gsn: Rows, chappe: Rows) -> bool:
    """With a slide of elements, GSN's window of time includes the element that is exactly as old as it is long."""
    more = [a["n"] - b["n"] for a, b in zip(values(gsn), values(chappe))]
    return times(gsn) == times(chappe) and more == [0, 1, 1, 1, 1, 1, 0]


def sampled(gsn: Rows, chappe: Rows) -> bool:
    """GSN selects by the last digits of the time, which are all zero here, and a node by the element's position."""
    everything = {(at + BEGIN_MS, n) for at, n, _, _ in PAST}
    some = [(at, row["n"]) for at, row in chappe]
    return len(gsn) == 14 and 0 < len(some) < 14 and set(some) <= everything and some == sorted(some)


def rounded(gsn: Rows, chappe: Rows) -> bool:
    """H2 multiplies before it rounds, and so may reach a tie that the number is just below."""
    pairs = [(a["x"], b["x"]) for a, b in zip(values(gsn), values(chappe)) if a["x"] is not None]
    less = [a for a, b in pairs if a != b]
    return times(gsn) == times(chappe) and 0 < len(less) < 4 and all(0 <= a - b < 0.0101 for a, b in pairs)


def to_13_digits(gsn: Rows, chappe: Rows) -> bool:
    """The last bits of a sine differ, and H2 rounds a logarithm to 15 digits. All else is equal."""
    changed = set()
    for theirs, ours in zip(values(gsn), values(chappe)):
        differing = [name for name in ours if theirs[name] != ours[name]]
        changed.update(differing)
        if not all(math.isclose(theirs[name], ours[name], rel_tol=1e-13) for name in differing):
            return False
    return times(gsn) == times(chappe) and changed <= TRANSCENDENTAL


def at_rest(gsn: Rows, chappe: Rows) -> bool:
    """Slides of time begin with GSN's server, and at multiples of their length in a node: what both give in each pause
    is the same."""
    found = dict(gsn), dict(chappe)
    ends = [at for at in times(chappe) if all(not 0 < other - at < 2_000 for other in times(chappe))]
    return len(ends) >= 3 and all(end in found[0] and found[0][end] == found[1][end] for end in ends)


def ticks(gsn: Rows, chappe: Rows) -> bool:
    """GSN gives the elements the server's time when its timer runs, the node the end of the period."""
    exact = [(round(at / PERIOD_MS) * PERIOD_MS, row) for at, row in gsn]
    if any(abs(at - other) > 500 for at, other in zip(times(gsn), times(exact))):
        return False
    last = min(exact[-1][0], chappe[-1][0])
    until_last = [[row for row in rows if row[0] <= last] for rows in (exact, chappe)]
    return until_last[0] == until_last[1] and len(until_last[0]) > 6


class Case:
    """What a descriptor reads, and how its elements in GSN and in Chappe compare."""

    def __init__(self, relation=equal, past=None, live=None, why: str = "", again=None):
        self.relation, self.past, self.live, self.why = relation, past, live, why
        # The relation after it was TOML.
        self.again = again or relation
        if past is None and live is None:
            self.past = PAST


CASES = {
    "plain": Case(),
    "everything": Case(),
    "elements_1_3": Case(), "elements_3": Case(), "elements_2_3": Case(), "elements_5_2": Case(),
    "rows_3": Case(), "rows_3_unique": Case(),
    "minutes_1_2": Case(past=MINUTES), "hours_1_3": Case(past=HOURS),
    "selected": Case(), "nulls": Case(), "fewer": Case(), "lacking": Case(), "stream_count": Case(),
    "partial_order": Case(past=DEVICES),
    "types": Case(), "functions": Case(to_13_digits, past=RISING, why="transcendental functions to 13 digits"),
    "statistics": Case(), "filtered": Case(), "fallen_back": Case(),
    "seconds_2": Case(live=BURSTS_S), "stream_rate": Case(live=BURSTS_S), "output_rate": Case(live=BURSTS_S),
    "joined": Case(live=SLOW_S[::2]), "streams": Case(live=BURSTS_S),
    "scheduled": Case(ticks, live=BURSTS_S, why="times are the ends of the periods"),
    "elements_3_2s": Case(at_rest, live=SLOW_S, why="slides begin elsewhere"),
    "seconds_4_2s": Case(at_rest, live=SLOW_S, why="slides begin elsewhere"),
    "seconds_edge": Case(with_the_edge, why="GSN includes the edge of the window"),
    "no_time": Case(equal_values, why="GSN gives the server's time"),
    "counter": Case(equal_values, past=RISING, why="GSN gives the server's time", again=not_in_gsn),
    "history": Case(newest, why="a node keeps some elements more"),
    "sampled": Case(sampled, why="another choice of elements"),
    "texts": Case(with_texts, why="GSN stores no text of a file"),
    "texts_of_statements": Case(in_place_of("place", {"roof": "Roof"}), why="GSN changes texts to lower case"),
    "rounded": Case(rounded, why="H2 rounds up what is just below a tie"),
}


def line(at_ms: int, n: int, x: float | None, device: str) -> str:
    at = datetime.datetime.fromtimestamp(at_ms / 1000, datetime.timezone.utc)
    return f"{at:%Y-%m-%d %H:%M:%S}.{at_ms % 1000:03},{n},{'null' if x is None else x},{device}\n"


class Pair:
    """A server and a node that run the same descriptors."""

    def __init__(self, work: pathlib.Path, args: argparse.Namespace, texts: dict[str, str]):
        self.texts = texts
        self.server = Server(work / "gsn", args.libraries)
        (self.server.folder / "data").mkdir()
        self.node = Node(args.chappe, work / "node", MORE)
        (work / "node/sensors/data").mkdir()
        self.data = [self.server.folder / "data", work / "node/sensors/data"]
        for name, text in texts.items():
            for folder, file in ((folder, file) for folder in self.data
                                 for file in re.findall(r"data/(\w+\.csv)", text)):
                (folder / file).touch()
            for folder in (self.server.folder / "virtual-sensors", work / "node/sensors"):
                path = folder / f"{name}.xml"
                path.with_suffix(".new").write_text(text)
                path.with_suffix(".new").rename(path)

    def write(self, file: str, text: str) -> None:
        for folder in self.data:
            with open(folder / f"{file}.csv", "a") as out:
                out.write(text)

    def feed(self) -> None:
        """Writes the files, the last of them after some seconds."""
        for name, case in CASES.items():
            self.write(name, "".join(line(BEGIN_MS + at, *rest) for at, *rest in case.past or ()))
        steps = []
        for name, case in CASES.items():
            for n, offset in enumerate(case.live or ()):
                steps.append((offset, name, n, n / 2))
                if name in ("joined", "streams"):
                    steps.append((offset + 1.5 if name == "joined" else offset + 0.1, f"{name}_b", n, -1.0 - n))
        # The elements of a burst are within a period.
        begin_ms = (time.time_ns() // 1_000_000 // PERIOD_MS + 1) * PERIOD_MS + 200
        for offset, file, n, x in sorted(steps):
            at_ms = begin_ms + round(offset * 1_000)
            time.sleep(max(0.0, at_ms / 1_000 - time.time()))
            self.write(file, line(at_ms, n, x, "a"))

    def settle(self) -> None:
        """Waits until neither stores any more, but for the sensor that follows the clock."""
        # As long as a node waits for the end of a slide of two seconds.
        time.sleep(6)

        def state() -> object:
            counters = self.server.counters()
            counters.pop("scheduled", None)
            return counters, {name: len(self.node.elements(name)) for name in CASES if name != "scheduled"}
        last = [state(), time.monotonic()]

        def is_settled() -> bool:
            now = state()
            if now != last[0]:
                last[:] = [now, time.monotonic()]
            return time.monotonic() - last[1] > 3
        until("server and node have stored all", is_settled, 30 * PATIENCE)

    def run(self) -> tuple[dict[str, Rows], dict[str, Rows]]:
        """What the server and the node have stored of each."""
        try:
            self.server.start()
            until("GSN has loaded all descriptors", lambda: self.server.counters().keys() >= self.texts.keys(),
                  60 * PATIENCE)
            until("the node runs them", lambda: not self.faults(), 20 * PATIENCE)
            self.feed()
            self.settle()
            chappe = {name: of_node(self.node.elements(name)) for name in self.texts}
        except CheckFailed as failure:
            lacking = sorted(self.texts.keys() - self.server.counters().keys())
            raise CheckFailed(f"{failure}; not in GSN: {lacking}; not in the node: {self.faults()}") from failure
        finally:
            self.server.stop(signal.SIGKILL)
            self.node.kill()
        stored = self.server.rows(list(self.texts))
        return {name: of_server(stored[name], chappe[name]) for name in self.texts}, chappe

    def faults(self) -> dict[str, object]:
        """Descriptors that the node does not run, with the reasons."""
        found = {}
        for name in self.texts:
            _, answer = self.node.ask("GET", f"/api/v1/virtual-sensors/{name}")
            if answer.get("state") != "running" and not self.is_empty(name):
                found[name] = answer.get("error") or answer.get("state")
        return found

    def is_empty(self, name: str) -> bool:
        """Whether a sensor waits for the first line of its file."""
        _, answer = self.node.ask("GET", f"/api/v1/virtual-sensors/{name}")
        return answer.get("state") == "waiting" and not self.node.elements(name)


def of_node(elements: list[dict]) -> Rows:
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
    rows = []
    for element in elements:
        at = datetime.datetime.fromisoformat(element["source_time"].replace("Z", "+00:00"))
        rows.append((round((at - epoch) / datetime.timedelta(milliseconds=1)), element["values"]))
    return sorted(rows, key=lambda row: (row[0], repr(row[1])))


def of_server(stored: list[dict[str, str | None]], like: Rows) -> Rows:
    """The rows of a table, with values of the types that the node has in the same field."""
    kinds = {}
    for _, row in like:
        kinds |= {name: type(value) for name, value in row.items() if value is not None}

    def value(name: str, text: str | None) -> object:
        kind = kinds.get(name, str)
        if text is None or kind is str:
            return text
        return int(text) if kind is int else float(text)
    rows = []
    for row in stored:
        row = {name.lower(): text for name, text in row.items()}
        row.pop("pk")
        at = int(row.pop("timed"))
        rows.append((at, {name: value(name, text) for name, text in row.items()}))
    return sorted(rows, key=lambda row: (row[0], repr(row[1])))


def converted(chappe: str, work: pathlib.Path, texts: dict[str, str]) -> dict[str, str]:
    """Each descriptor as TOML, and as XML again."""
    work.mkdir()
    again = {}
    for name, text in texts.items():
        path = work / f"{name}.xml"
        path.write_text(text)
        for suffix in (".toml", ".again.xml"):
            done = subprocess.run([chappe, "sensor", "convert", str(path)], capture_output=True, text=True, check=False)
            expect_quietly(done.returncode == 0, f"{path.name} cannot be converted: {done.stderr}")
            path = work / f"{name}{suffix}"
            path.write_text(done.stdout)
        again[name] = path.read_text()
    return again


def expect_quietly(condition: bool, message: str) -> None:
    if not condition:
        raise CheckFailed(message)


def judge(run: str, gsn: dict[str, Rows], chappe: dict[str, Rows], is_again: bool = False) -> None:
    wrong = []
    for name, case in CASES.items():
        ours, theirs = chappe[name], gsn[name]
        relation = case.again if is_again else case.relation
        is_right = bool(ours) and (bool(theirs) or relation is not_in_gsn) and relation(theirs, ours)
        print(f"   {'ok' if is_right else 'WRONG'}: {run}: {name}: {len(theirs)} elements in GSN, {len(ours)} in Chappe"
              f"{', ' + case.why if case.why else ''}", flush=True)
        if not is_right:
            wrong.append(name)
            for kind, rows in (("GSN", theirs), ("Chappe", ours)):
                print("".join(f"      {kind:6} {at} {row}\n" for at, row in rows), end="", flush=True)
    expect(not wrong, f"{run}: {len(CASES)} descriptors give the same in GSN and in Chappe, but for the differences that "
           f"docs/reference/gsn.md explains (wrong: {wrong})")


def compare(args: argparse.Namespace, work: pathlib.Path) -> None:
    """Each descriptor in GSN and in Chappe, and after it was TOML."""
    work.mkdir()
    texts = {path.stem: path.read_text() for path in sorted(FILES.glob("*.xml"))}
    expect(texts.keys() == CASES.keys(), f"{len(texts)} descriptors")
    once = Pair(work / "once", args, texts).run()
    judge("as written", *once)
    again = converted(args.chappe, work / "converted", texts)
    twice = Pair(work / "twice", args, again).run()
    judge("after TOML", *twice, is_again=True)
    timeless = [name for name, case in CASES.items() if case.live is None and case.relation is not equal_values]
    for side, first, second in zip(("GSN", "Chappe"), once, twice):
        # A node chooses the elements of a sample by their position, which has a new epoch here.
        changed = [name for name in timeless if first[name] != second[name] and name != "sampled"]
        expect(not changed, f"in {side}, XML that was TOML gives the same as before (changed: {changed})")
