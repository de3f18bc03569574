"""The node: killed at the boundaries of its writes, with failing syncs, with a full disk, restored from a backup; and
the proof of its syncs."""

import concurrent.futures
import http.client
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import threading
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from life import Data, Life, content, devices  # noqa: E402
from model import Lost  # noqa: E402
from network import CheckFailed, expect, until  # noqa: E402
from trace import calls, synced  # noqa: E402
from writer import CALLS, proved  # noqa: E402

DEVICES = 2
# A boundary that is not reached within this is none of this run: the node is killed all the same.
UNREACHED_S = 4
LANES = 2
ELEMENT = re.compile(rb'"stream":"([^"]+)","epoch":"([0-9a-f]{16})","number":(\d+)')


def boundaries():
    """An endless sequence of boundaries: call, number of calls to let through, files, and whether opening counts."""
    rare = ("fsync", "openat", "rename", "unlink", "ftruncate")
    for nth in range(1, 10_000):
        yield "write", nth, "log", False
        yield "fdatasync", nth, "log", False
        yield "write", nth, "registry", True
        yield "fdatasync", nth, "log", True
        if nth <= 12:
            yield rare[nth % 5], nth // 5 + 1, "log", True
            yield rare[nth % 5], nth // 5 + 1, "registry", True
        yield "fdatasync", nth, "registry", True
        yield "write", nth, "log", True


class Kills:
    """Takes boundaries one by one until the time or their number is exhausted."""

    def __init__(self, chappe: str, work: pathlib.Path, seconds: float, most: int | None):
        self.chappe, self.work = chappe, work
        self.end = time.monotonic() + seconds if most is None else float("inf")
        self.most = most
        self.source = boundaries()
        self.lock = threading.Lock()
        self.hit, self.unreached, self.shown, self.judged = 0, 0, 0, 0

    def next(self):
        with self.lock:
            used_up = self.most is not None and self.hit >= self.most
            return None if used_up or time.monotonic() > self.end else next(self.source)

    def lane(self, lane: int) -> None:
        """Kills one node after another; new data at intervals, to keep judging fast."""
        data = None
        while boundary := self.next():
            if data is None or data.lives >= 30:
                data = self.fresh(data, lane)
            life, reached = self.one(data, *boundary)
            shown = life.took()
            data.check()
            with self.lock:
                self.hit += reached
                self.unreached += not reached
                self.shown += shown
        if data:
            self.fresh(data, lane)

    def fresh(self, data: Data | None, lane: int) -> Data:
        if data:
            last = data.start().ready()
            last.judge()
            last.registered(DEVICES)
            last.stop()
            if not data.check()["clean"]:
                raise Lost("an orderly end is not one")
            with self.lock:
                self.judged += data.ledger.judged
            shutil.rmtree(data.folder)
        return Data(self.chappe, self.work / f"lane-{lane}-{time.monotonic_ns()}")

    def one(self, data: Data, call: str, nth: int, part: str, opening: bool) -> tuple[Life, bool]:
        strace = ["strace", "-f", "-o", str(data.folder / "trace"), "-e", f"trace={','.join(CALLS)}",
                  "-e", f"inject={call}:signal=SIGKILL:when={nth}", *data.paths(part)]
        life = data.start(*(strace[:2] + ["-qq"] + strace[2:] if opening else []))
        tracer = None
        try:
            life.ready()
            life.judge()
            life.follow()
            if not opening:
                life.shows(1)
                tracer = attach(strace, life.pid)
            reached = life.wait_death(UNREACHED_S)
        except (CheckFailed, OSError, http.client.HTTPException, ValueError):
            # It ended in the middle of an answer: that is what is wanted.
            reached = life.wait_death(1)
            if not reached:
                raise
        life.kill()
        if tracer:
            tracer.stderr.read()
            tracer.wait(60)
        if reached and "SIGKILL" not in tail(data.folder / "trace"):
            raise CheckFailed(f"the node ended by itself, see {data.folder}")
        return life, reached


def tail(file: pathlib.Path) -> str:
    with open(file, "rb") as content:
        content.seek(max(0, file.stat().st_size - 4000))
        return content.read().decode(errors="replace")


def attach(strace: list[str], pid: int) -> subprocess.Popen:
    tracer = subprocess.Popen([*strace, "-p", str(pid)], stderr=subprocess.PIPE, text=True)
    if "attached" not in tracer.stderr.readline():
        raise CheckFailed("strace could not attach")
    return tracer


def killed(chappe: str, work: pathlib.Path, seconds: float, most: int | None) -> None:
    kills = Kills(chappe, work, seconds, most)
    with concurrent.futures.ThreadPoolExecutor(LANES) as pool:
        for lane in [pool.submit(kills.lane, lane) for lane in range(LANES)]:
            lane.result()
    expect(kills.hit >= 20 and kills.shown > 0, f"the node was killed at {kills.hit} boundaries of its "
           f"writes (and {kills.unreached} times in between): {kills.shown} elements shown, "
           f"{kills.judged} judged, nothing lost, doubled or renumbered, the registry whole")


def synced_before_shown(chappe: str, work: pathlib.Path) -> None:
    data = Data(chappe, work / "proof")
    trace = data.folder / "trace"
    life = data.start("strace", "-f", "-qq", "-y", "-xx", "-s", "1000000", "-o", str(trace),
                      "-e", "trace=write,writev,sendto,sendmsg,fdatasync").ready()
    life.follow()
    life.shows(200, 40)
    life.stop()
    shown = life.took()
    log = calls(trace)
    records, syncs, frames = proved(log, f"{data.folder}/data/log/")
    proofs = 0
    begun: dict[str, bytes] = {}
    for call in log:
        if call.name == "fdatasync" or call.path.startswith("/") or not call.data:
            continue
        # An element may be cut in two by the socket: it is shown when its number is.
        text = begun.get(call.path, b"") + call.data[:call.result]
        end = 0
        for element in ELEMENT.finditer(text):
            name, epoch, number = element[1].decode(), element[2].decode(), int(element[3])
            placed = records.get((name, number))
            if not placed or placed.epoch != epoch:
                raise Lost(f"{name} {number} was shown and is in no write")
            if not synced(placed.write, syncs, call.start):
                raise Lost(f"{name} {number} was shown before its file was synced")
            proofs, end = proofs + 1, element.end()
        begun[call.path] = text[end:][-200:]
    expect(proofs >= shown >= 200, f"{proofs} elements went to the socket after their write and then an "
           f"fdatasync that returned 0 ({frames} frames, {len(syncs)} syncs)")


def failed_sync(chappe: str, work: pathlib.Path) -> None:
    data = Data(chappe, work / "failed")
    life = data.start().ready()
    life.follow()
    life.shows(20)
    tracer = attach(["strace", "-f", "-o", str(data.folder / "trace"), "-e", "trace=fdatasync,write",
                     "-e", "inject=fdatasync:error=EIO:when=5+", *data.paths("log")], life.pid)
    answer = until(10, "the node is not ready", lambda: not_ready(life))
    expect("sync" in json.dumps(answer) and "error" in json.dumps(answer),
           f"after a failed sync GET /ready gives 503 and says why: {answer['reasons']}")
    time.sleep(1)
    shown = len(life.live.elements)
    time.sleep(1)
    syncs = (data.folder / "trace").read_text().count("fdatasync(")
    expect(len(life.live.elements) == shown and syncs == 5,
           f"nothing is shown and nothing synced any more ({shown} elements were shown before)")
    expect(life.get("/health")["code"] == 200, "it goes on answering")
    life.kill()
    tracer.stderr.read()
    tracer.wait(60)
    life.took()
    life = data.start().ready()
    life.judge()
    expect(life.get("/ready")["code"] == 200, "started again it is ready and has all that was shown")
    life.stop()


def slow_sync(chappe: str, work: pathlib.Path) -> None:
    """A node answers while the disk takes three seconds for each sync of a file with a new link."""
    data = Data(chappe, work / "slow")
    life = data.start().ready()
    token = (data.folder / "data" / "new-token").read_text().strip()
    tracer = attach(["strace", "-f", "-o", str(data.folder / "trace"), "-e", "trace=fsync",
                     "-e", "inject=fsync:delay_enter=3000000"], life.pid)
    link = {"name": "ward-3", "address": "http://127.0.0.1:9", "kind": "http_pull", "streams": ["ecg.*"]}
    change = urllib.request.Request(f"{life.address}/api/v1/links", json.dumps(link).encode(), {
        "Authorization": f"Bearer {token}", "Content-Type": "application/json"})
    begun, answers = time.monotonic(), []
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        made = pool.submit(lambda: urllib.request.urlopen(change, timeout=30).status)
        while not made.done():
            asked = time.monotonic()
            life.get("/api/v1/streams")
            answers.append(time.monotonic() - asked)
    took = time.monotonic() - begun
    answers.sort()
    p99 = answers[len(answers) * 99 // 100]
    # An answer that waits for the sync would be one of few, and take seconds.
    expect(made.result() == 201 and took > 2.5 and p99 < 1 and answers[-1] < 2.5,
           f"while a link takes {took:.1f} s to be kept, {len(answers)} other answers take {p99 * 1e3:.0f} ms at p99, "
           f"{answers[-1] * 1e3:.0f} ms at most")
    tracer.terminate()
    tracer.wait(60)
    life.stop()


def not_ready(life: Life) -> dict | None:
    answer = life.get("/ready")
    return answer if answer["code"] == 503 else None


def full_disk(chappe: str, work: pathlib.Path) -> None:
    data = Data(chappe, work / "full")
    folder = data.folder / "data"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m,mode=0700", "tmpfs", str(folder)]).returncode:
        print("   -- a file system of its own cannot be mounted here: the full disk is left out")
        return
    try:
        life = data.start().ready()
        life.follow()
        life.shows(20)
        ballast = folder / "ballast"
        with open(ballast, "wb", buffering=0) as file:
            try:
                while file.write(bytes(4096)):
                    pass
            except OSError:
                pass
        answer = until(20, "the node is not ready", lambda: not_ready(life))
        expect("full" in json.dumps(answer), f"on a full disk GET /ready gives 503: {answer['reasons']}")
        shown = len(life.live.elements)
        time.sleep(2)
        os.remove(ballast)
        until(20, "the node is ready again", lambda: life.get("/ready")["code"] == 200)
        life.shows(shown + 20)
        expect(True, "with room it resumes by itself")
        life.stop()
        life.took()
        life = data.start().ready()
        life.judge()
        life.stop()
        expect(data.check()["clean"], f"and all {len(data.ledger.acknowledged)} that were shown are there")
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def restored(chappe: str, work: pathlib.Path) -> None:
    data = Data(chappe, work / "restored")
    folder, backup = data.folder / "data", data.folder / "backup"
    life = data.start().ready()
    life.follow()
    life.shows(60)
    life.stop()
    life.took()
    subprocess.run(["cp", "-r", str(folder), str(backup)], check=True)
    life = data.start().ready()
    before = life.judge()
    life.follow()
    life.shows(60)
    life.stop()
    life.took()
    old = dict(data.numbers)
    shutil.rmtree(folder)
    backup.rename(folder)
    expect(data.check()["copied"], "a restored backup is recognized as a copy")
    life = data.start().ready()
    epochs = {stream["name"]: stream["epoch"] for stream in life.get("/api/v1/streams")["streams"]}
    expect(set(epochs) == set(before) and all(epochs[name] != before[name] for name in before),
           f"each of its {len(epochs)} streams has a new epoch")
    live = life.follow()
    until(20, "rollback events", lambda: len(live.rollbacks) >= len(before))
    expect({event["stream"] for event in live.rollbacks} == set(before),
           f"a client with its old position is told of the rollback: {live.rollbacks[0]}")
    until(20, "elements in the new epochs",
          lambda: {e["stream"] for e in live.elements if e["epoch"] == epochs[e["stream"]]} == set(before))
    again = [e for e in live.elements if e["number"] <= old[e["stream"]]]
    for element in live.elements:
        key = (element["stream"], element["epoch"], element["number"])
        if data.ledger.seen.get(key, content(element)) != content(element):
            raise Lost(f"{key} was another element before the restore")
    life.stop()
    expect(len(again) > 0, f"{len(again)} numbers come again, told apart by their epoch")


def check(chappe: str, work: pathlib.Path, seconds: float, most: int | None) -> None:
    started = devices(chappe, work / "devices", DEVICES)
    try:
        synced_before_shown(chappe, work)
        restored(chappe, work)
        failed_sync(chappe, work)
        slow_sync(chappe, work)
        full_disk(chappe, work)
        killed(chappe, work, seconds, most)
    finally:
        for device in started:
            device.stop()
