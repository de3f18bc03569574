#!/usr/bin/env python3
"""All tests of the workspace. One that fails is repeated alone: a machine with two busy processors makes a test wait
longer than its author thought of, and the run would have to start over.

A test that fails again has failed, and so have doctests, more than a few tests, and whatever doesn't compile. What
passed only when it was repeated is named at the end: it is a fault of the test, or a race.
"""

import re
import subprocess
import sys

COMMAND = ["cargo", "test", "--locked"]
# More than these are no accident.
REPEATED_MAX = 3


def run(arguments):
    """Runs cargo, passes its output on, and returns whether it succeeded and the output's lines."""
    with subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace") as process:
        lines = []
        for line in process.stdout:
            sys.stdout.write(line)
            sys.stdout.flush()
            lines.append(line.rstrip("\n"))
    return process.returncode == 0, lines


def failed(lines):
    """The failed tests, as arguments that select each; `None` if something else failed."""
    found, names = [], []
    for line in lines:
        if name := re.fullmatch(r"test (\S+)( - should panic)? \.\.\. FAILED", line):
            names.append(name[1])
        elif target := re.fullmatch(r"error: test failed, to rerun pass `(.+)`", line):
            if not names:
                return None
            # Of one package alone, dependencies would have other features, and be built again.
            of = re.sub(r"^-p \S+", "--workspace", target[1]).split()
            found += [[*of, "--", "--exact", name] for name in names]
            names = []
        elif line.startswith("error: doctest failed") or "could not compile" in line:
            return None
    return None if names else found


def main():
    succeeded, lines = run(["--workspace", "--no-fail-fast"])
    if succeeded:
        return
    tests = failed(lines)
    if not tests or len(tests) > REPEATED_MAX:
        sys.exit(f"{len(tests)} tests failed, too many to repeat" if tests else "more than a test failed")
    for test in tests:
        print(f"\n== repeated: {test[-1]}")
        succeeded, lines = run(test)
        if not succeeded or not any(line.startswith("test result: ok. 1 passed") for line in lines):
            sys.exit(f"{test[-1]} failed twice")
    print("\n" + "\n".join(f"passed only when repeated: {test[-1]}" for test in tests))


main()
