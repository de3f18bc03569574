"""Appends numbered lines to a log file as a daemon does: opened once, and again after SIGHUP.

    python3 writer.py PATH STATE PERIOD_S      STATE keeps the last number, PATH.pid the process

Every second line is written in two halves: SIGKILL or a rotation may come between them.
"""

import json
import os
import pathlib
import signal
import sys
import time


def opened(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)


def main() -> None:
    path, state, period_s = sys.argv[1], pathlib.Path(sys.argv[2]), float(sys.argv[3])
    hangups = []
    signal.signal(signal.SIGHUP, lambda *_: hangups.append(1))
    pathlib.Path(path + ".pid").write_text(str(os.getpid()))
    number = int(state.read_text()) if state.exists() else 0
    output = opened(path)
    while True:
        if hangups:
            hangups.clear()
            os.close(output)
            output = opened(path)
        number += 1
        # Before the line, so that no number is used twice.
        state.with_suffix(".new").write_text(str(number))
        state.with_suffix(".new").rename(state)
        line = (json.dumps({"n": number}) + "\n").encode()
        if number % 2:
            os.write(output, line)
        else:
            os.write(output, line[:5])
            time.sleep(period_s / 2)
            os.write(output, line[5:])
        time.sleep(period_s)


main()
