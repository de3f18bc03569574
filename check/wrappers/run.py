"""Each kind of wrapper and exporter with programs that others wrote, which are killed, as is the node.

    python3 check/wrappers/run.py CHAPPE WORK [PART...]     parts: kills host full odd

1. kills: logrotate, sqlite3, socat, mosquitto, nginx, curl, sdc11073 and the examples of programs, all on one node. The node and
          each peer are killed with SIGKILL in turn, and the cable between them is cut. Then each number that a peer
          sent is counted in its stream: docs/reference/wrappers-and-exporters.md says how often it may be there.
2. host:  the kind `system` compared with /proc and df.
3. full:  a data directory on a small disk that is full for a while.
4. odd:   input that is broken, endless, or made to cost memory.

WRAPPERS_KILLS says how often (3; from 20 on the cut takes 60 s and not 5), WRAPPERS_ONLY which kinds part 1 takes,
WRAPPERS_SEED which random numbers. Runs as root on Linux, in namespaces of its own: what it started ends with it.
"""

import http.client
import os
import pathlib
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable

sys.dont_write_bytecode = True
FOLDER = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER), str(FOLDER.parent)]
import broker  # noqa: E402
import events  # noqa: E402
import files  # noqa: E402
import full  # noqa: E402
import host  # noqa: E402
import lines  # noqa: E402
import odd  # noqa: E402
import programs  # noqa: E402
import tables  # noqa: E402
import web  # noqa: E402
from bench import Bench, Skipped  # noqa: E402
from network import enter, expect, run_in  # noqa: E402

INSIDE = "CHAPPE_WRAPPERS_INSIDE"
KILLS = int(os.environ.get("WRAPPERS_KILLS") or 3)
CUT_S = 60 if KILLS >= 20 else 5


def peers(bench: Bench) -> list:
    """The peers that are installed."""
    only = os.environ.get("WRAPPERS_ONLY", "").split()
    # The stream of this one is what the exporters write; it ends before they are judged.
    found: list = [programs.Counter(bench)]

    def add(kind: str, *make: Callable) -> None:
        if only and kind not in only:
            return
        try:
            found.extend([one() for one in make])
        except Skipped as reason:
            print(f"   skipped: {kind}: {reason}", flush=True)

    nginx = web.Nginx(bench)
    add("file", lambda: files.Log(bench, "create"), lambda: files.Log(bench, "copytruncate"))
    add("file", lambda: files.Export(bench, programs.COUNTED))
    add("sqlite", lambda: tables.Table(bench, "delete"), lambda: tables.Table(bench, "wal"))
    add("tcp", lambda: lines.Lines(bench, "listen"), lambda: lines.Lines(bench, "connect"))
    add("mqtt", lambda: broker.Broker(bench, "steady"), lambda: broker.Broker(bench, "killed"))
    add("udp", lambda: lines.Lines(bench, "udp"))
    add("webhook", lambda: web.Webhook(bench))
    add("program", lambda: programs.Unmarked(bench), lambda: programs.Append(bench))
    add("http_poll", lambda: web.Poll(bench, nginx, "plain"), lambda: web.Poll(bench, nginx, "tls"))
    add("http_push", lambda: web.Push(bench, nginx))
    add("dpws", lambda: events.Events(bench))
    return found


def kills(bench: Bench) -> None:
    present = peers(bench)
    # The node starts with all files, as a node in a plant does.
    bench.kill_node()
    for peer in present:
        peer.start()
    for round_number in range(KILLS):
        time.sleep(bench.chance.uniform(0.5, 1.5))
        bench.kill_node(bench.chance.uniform(0, 0.5))
        time.sleep(bench.chance.uniform(0.5, 1.5))
        for peer in present:
            peer.kill()
        for peer in present:
            peer.turn()
        print(f"   round {round_number + 1} of {KILLS}: the node and each peer killed", flush=True)
    bench.far.cut(CUT_S)
    print(f"   the cable was cut for {CUT_S} s", flush=True)
    for peer in present:
        peer.turn()
    time.sleep(2)
    for peer in present:
        peer.finish()
    bench.kill_node()
    for peer in present:
        peer.judge()


def documented() -> None:
    """Each kind that docs/reference/wrappers-and-exporters.md makes a promise for names the test that shows it there."""
    docs = FOLDER.parents[1] / "docs"
    page, shown = ((docs / name).read_text() for name in ("reference/wrappers-and-exporters.md", "evidence/wrappers.md"))
    promises = page.split("## Guarantees")[1].split("\n## ")[0]
    kinds = re.findall(r"^\| `([a-z_-]+)` \|.*\|", promises, re.MULTILINE)
    rows = set(re.findall(r"^\| `([a-z_-]+)…?` \|", shown, re.MULTILINE))
    families = tuple(row for row in rows if row.endswith("-"))
    missing = [kind for kind in kinds if kind not in rows and not kind.startswith(families)]
    expect(len(kinds) > 15 and not missing, f"docs/reference/wrappers-and-exporters.md names a test for each of {len(kinds)} rows {missing or ''}")


PARTS = {"kills": kills, "host": host.check, "full": full.check, "odd": odd.check}


def check(chappe: str, work: pathlib.Path, parts: list[str], seed: int) -> None:
    documented()
    for part in parts:
        print(f"-- {part}", flush=True)
        begun = time.monotonic()
        bench = Bench(chappe, work / part, seed, full.DATA_BYTES if part == "full" else 0)
        try:
            PARTS[part](bench)
        except Skipped as reason:
            print(f"   skipped: {part}: {reason}", flush=True)
        finally:
            bench.end()
        print(f"   time of this part: {time.monotonic() - begun:.0f} s", flush=True)


def main() -> None:
    chappe, work = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2]).absolute()
    parts = sys.argv[3:] or list(PARTS)
    if unknown := set(parts) - set(PARTS):
        sys.exit(f"no part {', '.join(unknown)}; parts: {' '.join(PARTS)}")
    enter(INSIDE, sys.argv)
    seed = int(os.environ.get("WRAPPERS_SEED") or random.randrange(1 << 32))
    print(f"   seed: {seed}", flush=True)
    failures = (http.client.HTTPException, subprocess.SubprocessError, KeyError)
    run_in(work, lambda: check(chappe, work, parts, seed), failures, f", WRAPPERS_SEED={seed}")


if __name__ == "__main__":
    main()
