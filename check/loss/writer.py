"""A small program that appends, killed before each of its writes, syncs, opens, renames and removals
of files, also while it trims streams and creates and removes others; with failing syncs and writes;
with a full disk; and the proof of its syncs."""

import concurrent.futures
import math
import os
import pathlib
import shutil
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from model import Ledger, Lost  # noqa: E402
from network import CheckFailed, expect  # noqa: E402
from trace import Call, Frames, calls, synced  # noqa: E402

RECORDS = 150
# With trims and removals: fewer, since each of these is synced apart.
TRIMMED_RECORDS = 80
CALLS = ("write", "fdatasync", "fsync", "openat", "rename", "unlink", "ftruncate")
# More boundaries of one call than any run has.
MOST = 500


class Session:
    """One run of the program, from its lines."""

    def __init__(self, output: str):
        self.lines = output.splitlines()
        # The last line may be cut off by the kill.
        if output and not output.endswith("\n"):
            self.lines.pop()

    def of(self, word: str) -> list[list[str]]:
        return [line.split(" ", 4)[1:] for line in self.lines if line.startswith(f"{word} ")]

    def found(self) -> list[str]:
        """The findings of opening."""
        opened = [line for line in self.lines if line.startswith("opened ")]
        return opened[0].split(" ") if opened else []

    def has(self, line: str) -> bool:
        return line in self.lines


class Place:
    """A directory for one log, and all records ever seen of it."""

    def __init__(self, program: str, work: pathlib.Path, name: str):
        self.program, self.work = program, work / name
        self.work.mkdir(parents=True)
        self.log = self.work / "log"
        self.log.mkdir()
        self.ledger = Ledger()
        self.runs = 0

    def paths(self) -> list[str]:
        segments = [f"{n:010}.segment" for n in range(1, 24)]
        names = ["marker", "marker.new", *segments, *(f"{name}.new" for name in segments)]
        return [f"-P{self.log}", *(f"-P{self.log}/{name}" for name in names)]

    def command(self, records: int, *more: str) -> list[str]:
        return [self.program, str(self.log), f"r{self.runs}", str(records), *more]

    def _judge(self, output: pathlib.Path) -> Session:
        session = Session(output.read_text())
        if session.found() and "corrupt=0" not in session.found():
            raise Lost(f"opening found corruption: {session.found()}")
        if session.has("ready") or session.has("closed"):
            streams = {"a", "b", *(key[0] for key in self.ledger.acknowledged)}
            for stream in streams | {line[0] for line in session.of("has")}:
                held = [(e, int(n), content) for s, e, n, content in session.of("has") if s == stream]
                self.ledger.holds(stream, held)
        for stream, epoch, number, content in session.of("ack"):
            self.ledger.shown(stream, epoch, int(number), content)
        for requested, acknowledged in (("trimming", "trimmed"), ("removing", "removed")):
            for word in (requested, acknowledged):
                for stream, *first in session.of(word):
                    before = int(first[0]) if first else math.inf
                    self.ledger.trimmed(stream, before, word == acknowledged)
        return session

    def run(self, records: int, *inject: str, more: tuple[str, ...] = ()) -> tuple[Session, int]:
        """Runs it, under strace if a fault is to be injected from the start."""
        self.runs += 1
        output = self.work / f"out-{self.runs}"
        command = self.command(records, *more)
        if inject:
            command = [*self.strace(inject), *command]
        with open(output, "wb") as out:
            ended = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=out, timeout=300)
        return self._judge(output), ended.returncode

    def strace(self, inject: tuple[str, ...]) -> list[str]:
        rules = [word for rule in inject for word in ("-e", f"inject={rule}")]
        return ["strace", "-f", "-qq", "-o", str(self.work / "trace"),
                "-e", f"trace={','.join(CALLS)}", *rules, *self.paths()]

    def run_attached(self, records: int, inject: str, *more: str) -> tuple[Session, int]:
        """Runs it with strace attached only after opening: counting starts with its appends."""
        self.runs += 1
        output = self.work / f"out-{self.runs}"
        with open(output, "wb") as out:
            child = subprocess.Popen(self.command(records, *more), stdin=subprocess.PIPE, stdout=out)
        try:
            while "ready\n" not in output.read_text() and child.poll() is None:
                time.sleep(0.001)
            attach = [word for word in self.strace((inject,)) if word != "-qq"]
            tracer = subprocess.Popen([*attach, "-p", str(child.pid)], stderr=subprocess.PIPE, text=True)
            if "attached" not in tracer.stderr.readline():
                raise CheckFailed("strace could not attach")
            child.stdin.close()
            code = child.wait(300)
            tracer.stderr.read()
            tracer.wait(60)
        finally:
            if child.poll() is None:
                child.kill()
                child.wait()
        return self._judge(output), code

    def finish(self) -> Session:
        """Continues to an orderly end, then reads everything once more."""
        for records in (6, 0):
            session, code = self.run(records)
            if code or not session.has("closed"):
                raise Lost(f"it does not go on: {session.lines[-1:]}")
        if "clean=true" not in session.found():
            raise Lost(f"an orderly end is not one: {session.found()}")
        return session


def _kill(program: str, work: pathlib.Path, phase: str, call: str, nth: int) -> tuple[bool, int, int]:
    """Kills before the nth call of a phase; returns whether there was one, and the findings."""
    place = Place(program, work, f"{phase}-{call}-{nth}")
    rule = f"{call}:signal=SIGKILL:when={nth}"
    if phase == "appending":
        _, code = place.run_attached(RECORDS, rule)
    elif phase == "trimming":
        _, code = place.run_attached(TRIMMED_RECORDS, rule, "0", "trim")
    else:
        if phase == "recovering":
            _, code = place.run_attached(RECORDS, "fdatasync:signal=SIGKILL:when=9")
            if code != -9:
                raise CheckFailed("the run before was not killed")
        # It only opens; what the writer's own thread does belongs to the other phase.
        _, code = place.run(0, rule)
    place.finish()
    acknowledged, judged = len(place.ledger.acknowledged), place.ledger.judged
    shutil.rmtree(place.work)
    return code != 0, acknowledged, judged


def killed_everywhere(program: str, work: pathlib.Path) -> None:
    total, acknowledged, judged = 0, 0, 0
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for phase in ("creating", "appending", "trimming", "recovering"):
            hit: dict[str, int] = {}
            for call in CALLS:
                for first in range(1, MOST, 4):
                    batch = [pool.submit(_kill, program, work, phase, call, nth)
                             for nth in range(first, first + 4)]
                    results = [future.result() for future in batch]
                    struck = sum(1 for killed, _, _ in results if killed)
                    hit[call] = hit.get(call, 0) + struck
                    acknowledged += sum(result[1] for result in results)
                    judged += sum(result[2] for result in results)
                    if struck < len(results):
                        break
            counts = ", ".join(f"{count} {call}" for call, count in hit.items() if count)
            removed = phase != "trimming" or hit["unlink"] > 0
            expect(hit["write"] > 0 and hit["fdatasync"] > 0 and removed,
                   f"{phase}: killed before each call until a run passed untouched: {counts}")
            total += sum(hit.values())
    expect(total >= 60, f"{total} boundaries of the writer: {acknowledged} acknowledged, "
           f"{judged} elements judged, nothing lost, doubled or renumbered")


def proved(log: list[Call], directory: str) -> tuple[dict, list[Call], int]:
    """The records that a trace shows as written, the syncs, and the frames."""
    frames = Frames()
    for call in log:
        if call.name == "write" and call.path.startswith(directory):
            frames.follow(call)
    syncs = [call for call in log if call.name == "fdatasync"]
    return frames.records, syncs, frames.frames


def synced_before_acknowledged(program: str, work: pathlib.Path) -> None:
    place = Place(program, work, "proof")
    output = place.work / "out"
    with open(output, "wb") as out:
        subprocess.run(["strace", "-f", "-qq", "-y", "-xx", "-s", "1000000", "-o", str(place.work / "trace"),
                        "-e", "trace=write,fdatasync", *place.command(300)],
                       stdin=subprocess.DEVNULL, stdout=out, check=True, timeout=300)
    log = calls(place.work / "trace")
    records, syncs, frames = proved(log, str(place.log))
    proofs = 0
    for call in log:
        if call.path != str(output) or not call.data.startswith(b"ack "):
            continue
        _, stream, epoch, number, _ = call.data.decode().split(" ", 4)
        placed = records.get((stream, int(number)))
        if not placed or int(placed.epoch, 16) != int(epoch, 16):
            raise CheckFailed(f"{stream} {number} was acknowledged and is in no write")
        if not synced(placed.write, syncs, call.start):
            raise CheckFailed(f"{stream} {number} was acknowledged before its file was synced")
        proofs += 1
    expect(proofs == 300, f"{proofs} of 300 acknowledgements came after the write and then an fdatasync "
           f"that returned 0 ({frames} frames, {len(syncs)} syncs)")


def failing(program: str, work: pathlib.Path) -> None:
    """A failed sync or write, once or permanently: nothing is acknowledged after it."""
    runs = 0
    for call, error in (("fdatasync", "EIO"), ("write", "EIO")):
        for lasting in ("", "+"):
            for nth in range(1, MOST):
                place = Place(program, work, f"fail-{call}-{nth}{'-on' if lasting else ''}")
                session, code = place.run_attached(30, f"{call}:error={error}:when={nth}{lasting}")
                struck = "INJECTED" in (place.work / "trace").read_text()
                if struck:
                    runs += 1
                    if code != 1 or not session.lines[-1].startswith("failed "):
                        raise Lost(f"{call} failed and nobody was told: {session.lines[-1]}")
                    injected_then_acknowledged(place, session)
                place.finish()
                shutil.rmtree(place.work)
                if not struck:
                    break
    expect(runs >= 40, f"{runs} runs with a failed write or sync: the log stops and says so, "
           "acknowledges nothing more, and loses nothing")


def injected_then_acknowledged(place: Place, session: Session) -> None:
    """After the failure the trace has no further write to the log, and no sync."""
    lines = (place.work / "trace").read_text().splitlines()
    first = next(n for n, line in enumerate(lines) if "INJECTED" in line)
    later = [line for line in lines[first + 1:] if " write(" in line or " fdatasync(" in line]
    if later:
        raise Lost(f"after a failure the log goes on: {later[0]}")
    good = sum(1 for line in lines[:first] if " fdatasync(" in line and line.endswith("= 0"))
    # Two definitions are synced first; each later sync covers at most two batches of three.
    most = max(0, good - 2) * 6
    if len(session.of("ack")) > most:
        raise Lost(f"{len(session.of('ack'))} acknowledged with {good} syncs")


def full(program: str, work: pathlib.Path) -> None:
    """No room: refuses, resumes automatically, duplicates nothing."""
    runs = 0
    for nth in range(1, MOST):
        place = Place(program, work, f"full-{nth}")
        session, code = place.run_attached(30, f"write:error=ENOSPC:when={nth}..{nth + 5}")
        struck = "INJECTED" in (place.work / "trace").read_text()
        closing = session.lines[-1].startswith("failed ") and len(session.of("ack")) == 30
        if code and not closing:
            raise Lost(f"it did not resume: {session.lines[-1]}")
        place.finish()
        runs += struck
        shutil.rmtree(place.work)
        if not struck:
            break
    expect(runs >= 10, f"{runs} runs with writes that found no room: each went on by itself")
    really_full(program, work)


def really_full(program: str, work: pathlib.Path) -> None:
    place = Place(program, work, "tmpfs")
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(place.log)])
    if mounted.returncode:
        print("   -- a file system of its own cannot be mounted here: the full disk is left out")
        return
    try:
        ballast = place.log / "ballast"
        ballast.write_bytes(bytes(440 * 1024))
        place.runs += 1
        output = place.work / "out-1"
        with open(output, "wb") as out:
            child = subprocess.Popen(place.command(600), stdin=subprocess.DEVNULL, stdout=out)
        while output.read_text().count("full\n") < 20 and child.poll() is None:
            time.sleep(0.001)
        refused_at = len(Session(output.read_text()).of("ack"))
        os.remove(ballast)
        code = child.wait(300)
        session = place._judge(output)
        expect(code == 0 and session.has("closed") and 0 < refused_at < 600 == len(session.of("ack")),
               f"a full file system refused after {refused_at} records; with room all 600 were taken")
        place.finish()
    finally:
        subprocess.run(["umount", str(place.log)], check=True)


def check(program: str, work: pathlib.Path) -> None:
    work.mkdir(parents=True)
    synced_before_acknowledged(program, work)
    killed_everywhere(program, work)
    failing(program, work)
    full(program, work)
