#!/usr/bin/env python3
"""Records the demonstration and draws it as docs/demo.svg, the moving picture of the README.

    python3 check/recording.py PROGRAM [OUT]

The commands below are run, and each line of their output keeps its time, except that nothing happens for no longer than
PAUSE_MAX_S. Port 8470 has to be free. To record without the devices of your network:
unshare -rn sh -c 'ip link set lo up multicast on; ip route add 224.0.0.0/4 dev lo; python3 check/recording.py PROGRAM'
"""

import html
import pathlib
import signal
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
COLUMNS = 96
LINE_PX, MARGIN_PX, CHAR_PX = 19, 18, 8.1
PAUSE_MAX_S = 1.2
TYPE_S = 0.9  # from the end of one command's output to the first line of the next one's
HOLD_S = 8.0  # the whole picture stays
ROUNDS = 3  # then it stands still
START_S = 60  # reason: a debug build on a busy machine

# A command, how many lines of it are shown, and whether only the last ones are.
COMMANDS = [
    ("chappe find --interface lo", 4, True),
    ("chappe watch --stream heart-rate", 4, False),
    ("chappe query 'select count(*), avg(heart_rate) from \"heart-rate\"'", 2, False),
]
DEMO_LINES = 13


def start(program, command):
    words = ["sh", "-c", "exec " + command.replace("chappe", '"$0"', 1), program]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def read(process, most, keep_last=False):
    """Lines with their seconds since now: the first ones, or of all the last ones."""
    begin, lines = time.monotonic(), []
    watchdog = threading.Timer(START_S, process.kill)
    watchdog.start()
    for line in process.stdout:
        lines.append((time.monotonic() - begin, line.rstrip()))
        if len(lines) == most and not keep_last:
            break
    watchdog.cancel()
    if len(lines) < most:
        raise SystemExit(f"{process.args[2]}: only {len(lines)} of {most} lines: {lines}")
    return lines[-most:]


def drain(process):
    """Reads the rest, so that the program never waits for its output to be read."""
    threading.Thread(target=lambda: [None for _ in process.stdout], daemon=True).start()


def record(program):
    """The lines of the picture: seconds from the beginning, text, whether it is a command."""
    screen, clock = [], 0.5

    def show(command, lines, note=""):
        nonlocal clock
        screen.append((clock, f"$ {command}{note}", True))
        last = lines[0][0]
        clock += TYPE_S
        for at, text in lines:
            clock += min(at - last, PAUSE_MAX_S)
            last = at
            screen.append((clock, text, False))
        clock += TYPE_S

    demo = start(program, "chappe demo")
    try:
        show("chappe demo", read(demo, DEMO_LINES))
        drain(demo)
        for command, most, keep_last in COMMANDS:
            screen.append((clock, "", False))
            process = start(program, command)
            show(command, read(process, most, keep_last))
            process.send_signal(signal.SIGINT)
            drain(process)
            process.wait(START_S)
    finally:
        demo.send_signal(signal.SIGINT)
        demo.wait(START_S)
    return screen, clock + HOLD_S


def draw(screen, length):
    width = round(COLUMNS * CHAR_PX + 2 * MARGIN_PX)
    height = len(screen) * LINE_PX + 2 * MARGIN_PX
    frames, rows = [], []
    for number, (at, text, is_command) in enumerate(screen):
        if not text:
            continue
        shown = text if len(text) <= COLUMNS else text[: COLUMNS - 1] + "…"
        percent = 100 * at / length
        frames.append(f"@keyframes l{number}{{0%,{percent:.2f}%{{opacity:0}}{percent + 0.01:.2f}%,100%{{opacity:1}}}}")
        frames.append(f".l{number}{{animation-name:l{number}}}")
        kind = "c" if is_command else "o"
        y = MARGIN_PX + LINE_PX * number + 14
        rows.append(f'<text class="{kind} l{number}" x="{MARGIN_PX}" y="{y}" xml:space="preserve">{html.escape(shown)}</text>')
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">
<title>A terminal: the demonstration starts, devices are found, values arrive, and SQL counts them</title>
<style>
rect{{fill:#fdfbf6;stroke:#d9d2c3}}
text{{font:13.5px ui-monospace,"SF Mono","DejaVu Sans Mono",Menlo,Consolas,monospace;fill:#1f2937;
animation:{length:.1f}s linear {ROUNDS} both}}
.c{{fill:#1c4f82;font-weight:700}}
@media (prefers-color-scheme:dark){{rect{{fill:#181e27;stroke:#2d3541}}text{{fill:#e6e2d8}}.c{{fill:#86b7ea}}}}
{chr(10).join(frames)}
@media (prefers-reduced-motion:reduce){{text{{animation:none}}}}
</style>
<rect x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="6"/>
{chr(10).join(rows)}
</svg>
"""


def main():
    if len(sys.argv) not in (2, 3):
        raise SystemExit(__doc__)
    out = pathlib.Path(sys.argv[2]) if len(sys.argv) == 3 else ROOT / "docs/demo.svg"
    screen, length = record(str(pathlib.Path(sys.argv[1]).resolve()))
    out.write_text(draw(screen, length))
    print(f"{out}: {len(screen)} lines, {length:.0f} s, {out.stat().st_size} bytes")


main()
