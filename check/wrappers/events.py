"""`dpws`: a subscriber built with sdc11073 receives the elements as events."""

import importlib.util
import pathlib
import signal
import sys

from bench import HERE, Bench, Skipped, lines_of
from network import CheckFailed, Process, expect, until
from programs import COUNTED

FOLDER = pathlib.Path(__file__).resolve().parent
PORT = 9004
NAMESPACE = "http://chappe.example/events"


class Events:
    """The event source of the node, and its subscriber at the other end of the cable."""

    kind = "dpws"

    def __init__(self, bench: Bench):
        if importlib.util.find_spec("sdc11073") is None:
            raise Skipped("not installed: sdc11073")
        self.bench, self.kills, self.output = bench, 0, bench.work / "events"
        self.cut: list[int] = []
        bench.far.before_cut.append(lambda: self.cut.append(self.newest()))
        bench.exporter("device", f'kind = "dpws"\nstreams = ["{COUNTED}"]\ninterfaces = ["{HERE}"]\nport = {PORT}\n'
                       f'namespace = "{NAMESPACE}"\nstart = "new"\n')

    def start(self) -> None:
        self.sink = Process(self.bench.far.command(
            sys.executable, str(FOLDER / "subscriber.py"), f"http://{HERE}:{PORT}/device", NAMESPACE, COUNTED, "number",
            str(self.output)), self.bench.work / "subscriber.log")

    def kill(self) -> None:
        self.sink.stop(signal.SIGKILL)
        self.kills += 1
        self.start()

    def turn(self) -> None:
        """Waits until events arrive again."""
        if self.cut and len(self.cut) == 1:
            # The source has queued 64 events, and drops the oldest for newer ones until the subscriber is abreast.
            self.await_events(100)
            self.cut.append(self.newest())
        self.await_events(3)

    def await_events(self, count: int) -> None:
        before = self.received()
        until(30, "events arrive", lambda: self.received() >= before + count)

    def received(self) -> int:
        return sum(line.isdigit() for line in lines_of(self.output))

    def newest(self) -> int:
        return max((int(line) for line in lines_of(self.output) if line.isdigit()), default=0)

    def finish(self) -> None:
        pass

    def judge(self) -> None:
        sessions: list[list[int]] = []
        for line in lines_of(self.output):
            if line == "subscribed":
                sessions.append([])
            elif line.isdigit():
                sessions[-1].append(int(line))
        self.sink.stop(signal.SIGKILL)
        sessions = [session for session in sessions if session]
        events = [number for session in sessions for number in session]
        gaps = [(before, after) for session in sessions for before, after in zip(session, session[1:])
                if after - before != 1]
        other = [gap for gap in gaps if not self.cut or gap[0] < self.cut[0] or gap[1] > self.cut[-1]]
        missing = sum(after - before - 1 for before, after in gaps)
        expect(not other and len(events) > 20, f"dpws: {len(events)} events in {len(sessions)} subscriptions, "
               f"{missing} missing after the cut, {self.kills} kills of the subscriber and {self.bench.node_kills} of "
               "the node" + (f"; others missing {other[:5]}" if other else ""))
        again = len(events) - len(set(events))
        stored = set(self.bench.numbers(COUNTED, "number"))
        expect(set(events) <= stored, f"each event is an element of the stream; {again} came again after a crash")
