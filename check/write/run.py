"""Clients that write, under kills and attacks.

    python3 check/write/run.py CHAPPE WORK [PART...]       parts: killed bodies requests functions shares

1. killed:    a node that is killed while clients write stores what they send again exactly once.
2. bodies:    bodies that grow in memory or stall; each is answered soon, at bounded cost.
3. requests:  credentials in odd places, requests within requests, names like the node's own, the audit stream.
4. functions: SQL functions of time compared with exact arithmetic.
5. shares:    accounts that fill the room for definitions, the registry and the audit stream; others are served.

WRITE_SEED says which random numbers. Standard library only; loopback only.
"""

import http.client
import os
import pathlib
import random
import sys
import time

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
import bodies  # noqa: E402
import functions  # noqa: E402
import killed  # noqa: E402
import odd_requests  # noqa: E402
import shares  # noqa: E402
from network import run_in  # noqa: E402
from node import Node  # noqa: E402

PARTS = {
    "killed": lambda node, seed: killed.check(node, seed),
    "bodies": lambda node, _: bodies.check(node),
    "requests": lambda node, _: odd_requests.check(node),
    "functions": lambda node, seed: functions.check(node, seed),
    "shares": lambda node, _: shares.check(node),
}
CONFIGURATIONS = {"shares": shares.CONFIGURATION}


def check(chappe: str, work: pathlib.Path, parts: list[str], seed: int) -> None:
    for part in parts:
        print(f"-- {part}", flush=True)
        begun = time.monotonic()
        node = Node(chappe, work / part, CONFIGURATIONS.get(part, ""))
        try:
            PARTS[part](node, seed)
        finally:
            if node.process.process.poll() is None:
                node.stop()
        print(f"   time of this part: {time.monotonic() - begun:.0f} s", flush=True)


def main() -> None:
    chappe, work = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2]).absolute()
    parts = sys.argv[3:] or list(PARTS)
    if unknown := set(parts) - set(PARTS):
        sys.exit(f"no part {', '.join(unknown)}; parts: {' '.join(PARTS)}")
    seed = int(os.environ.get("WRITE_SEED") or random.randrange(1 << 32))
    print(f"   seed: {seed}", flush=True)
    run_in(work, lambda: check(chappe, work, parts, seed), (http.client.HTTPException,), f", WRITE_SEED={seed}")


if __name__ == "__main__":
    main()
