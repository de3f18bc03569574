"""The memory of a DDS writer is bounded by the samples that it may have unacknowledged: 30,000 samples of 5 kB a second
for a time, as fast as the machine goes where that is less, and no lost sample.

    python3 check/dds/memory.py CHAPPE [SECONDS]

The whole size is 600 seconds. Runs on the loopback.
"""

import json
import os
import subprocess
import sys
import threading

DOMAIN = 100 + os.getpid() % 100
RATE = 30_000
SIZE = 5_000
WINDOW = 1_000
# What both ends need anew for a window of samples, and for what the library keeps of a reader's.
GROWTH_BYTES_MAX = 2 * 9 * WINDOW * SIZE
# The memory at this time after the start is compared with that at the end.
SETTLED_S = 10


def perf(chappe: str, *words: str) -> subprocess.Popen:
    common = ["--json", "--over", "dds", "--domain", str(DOMAIN), "--address", "127.0.0.1", "--window", str(WINDOW),
              "--interval", "1s"]
    return subprocess.Popen([chappe, "perf", *words, *common], stdout=subprocess.PIPE, text=True)


def read(process: subprocess.Popen, events: list[dict]) -> None:
    for line in process.stdout:
        events.append(json.loads(line))


def main(chappe: str, seconds: int) -> None:
    seen = {"publisher": [], "subscriber": []}
    words = {"publisher": ["pub", "--rate", str(RATE), "--size", str(SIZE), "--warm-up", "1s", "--duration",
                           f"{seconds}s"],
             "subscriber": ["sub"]}
    processes = {name: perf(chappe, *words[name]) for name in seen}
    threads = [threading.Thread(target=read, args=(processes[name], seen[name])) for name in seen]
    for thread in threads:
        thread.start()
    try:
        codes = [process.wait(seconds + 120) for process in processes.values()]
    finally:
        for process in processes.values():
            process.kill()
    for thread in threads:
        thread.join()
    failures = []
    if codes != [0, 0]:
        failures.append(f"ended with {codes}")
    for name, events in seen.items():
        rows = [event for event in events if event["event"] == "interval" and event["at_s"] >= SETTLED_S]
        settled, peak, last = (rows[0]["resident_bytes"], max(row["resident_bytes"] for row in rows),
                               rows[-1]["resident_bytes"])
        print(f"   {name}: {settled / 1e6:.0f} MB after {SETTLED_S} s, {peak / 1e6:.0f} MB at most, "
              f"{last / 1e6:.0f} MB after {rows[-1]['at_s']:.0f} s")
        if peak > settled + GROWTH_BYTES_MAX:
            failures.append(f"the {name} grew by {(peak - settled) / 1e6:.0f} MB")
    outcome = seen["subscriber"][-1]
    rate = outcome["received"] / (seconds + 1)
    print(f"   {outcome['received']} samples of {SIZE} bytes, {rate:.0f} a second, {outcome['lost']} lost")
    if outcome["lost"] or outcome["received"] < RATE * seconds / 10:
        failures.append("samples are missing")
    if failures:
        sys.exit("   FAILED: " + "; ".join(failures))
    print(f"   ok: the memory of both ends is bounded for {seconds} s")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 60)
