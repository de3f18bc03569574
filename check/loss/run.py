"""No acknowledged element is lost, shown on the real program.

    python3 check/loss/run.py CHAPPE WORK [--seconds N | --boundaries N]

1. A small writer on the same log: an fdatasync before every acknowledgement; killed with SIGKILL
   before every one of its writes, syncs, opens, renames, removals, also while it trims and removes
   streams; failing writes and syncs; a disk without room.
2. A node with devices that send every 20 ms and a client of its live data: the same proof; a
   restored backup; a failed sync; a full disk; then killed at one boundary of its writes after
   another for --seconds (120), or at so many boundaries.

A kill cannot show the loss of data that was written but not synced; the simulation shows that.
Runs as root on Linux, in namespaces of its own: what it started ends with it.
"""

import argparse
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import model  # noqa: E402
import node  # noqa: E402
import writer  # noqa: E402
from network import enter, expect, run_in  # noqa: E402

INSIDE = "CHAPPE_LOSS_INSIDE"


def writer_program(chappe: pathlib.Path) -> str:
    """Builds the writer in the program's directory."""
    profile = ["--release"] if chappe.parent.name == "release" else []
    root = pathlib.Path(__file__).resolve().parent.parent.parent
    subprocess.run(["cargo", "build", "--locked", "--quiet", *profile, "-p", "chappe-transport",
                    "--example", "append"], cwd=root, check=True)
    return str(chappe.parent / "examples" / "append")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("chappe", type=pathlib.Path)
    parser.add_argument("work", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--boundaries", type=int)
    parser.add_argument("--only", choices=("writer", "node"))
    options = parser.parse_args()
    enter(INSIDE, sys.argv)
    chappe, work = options.chappe.resolve(), options.work.resolve()

    def check() -> None:
        expect(True, f"the judge finds {model.prove_yourself()} planted losses of as many")
        if options.only != "node":
            writer.check(writer_program(chappe), work / "writer")
        if options.only != "writer":
            node.check(str(chappe), work / "node", options.seconds, options.boundaries)

    run_in(work, check, (model.Lost,))


if __name__ == "__main__":
    main()
