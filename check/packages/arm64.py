#!/usr/bin/env python3
"""The program for arm64 under qemu-user: it finds devices, serves, and reads a stream over a link.

    arm64.py PROGRAM_ARM64 PROGRAM DIRECTORY     in a network namespace with nothing but loopback

The devices and the origin of the link are the demonstration of PROGRAM, the one for this machine.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

# Emulation takes some ten times the processor time.
LIMIT_S = 60


def events(process, name):
    """The first event of a kind that a program prints."""
    for line in process.stdout:
        event = json.loads(line)
        if event["event"] == name:
            return event
    raise RuntimeError(f"the program ended before its event {name!r}")


def start(*command, **more):
    return subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, text=True, **more)


def output(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=LIMIT_S)
    if done.returncode:
        raise RuntimeError(f"{command}: exit status {done.returncode}: {done.stderr}")
    return done.stdout


def main():
    # An alarm ends a run that waits for ever.
    signal.alarm(10 * LIMIT_S)
    emulated, native, directory = sys.argv[1:]
    arm64 = ["qemu-aarch64-static", emulated]
    directory = Path(directory)
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    started = []
    try:
        print("ok:", output(*arm64, "--version").strip())
        demo = start(native, "demo", "--json", "--listen", "127.0.0.1:0")
        started.append(demo)
        origin = events(demo, "ready")["address"]
        events(demo, "first_element")
        found = output(*arm64, "find", "--interface", "lo", "--json")
        usable = json.loads(found.splitlines()[-1])["usable"]
        if not usable:
            raise RuntimeError(f"found no usable device: {found}")
        print("ok: found", usable, "usable devices")
        configuration = directory / "node.toml"
        configuration.write_text('data_directory = "data"\n[http]\nlisten = "127.0.0.1:0"\n[discovery]\nenabled = false\n')
        begin = time.monotonic()
        node = start(*arm64, "serve", configuration, "--json")
        started.append(node)
        ready = events(node, "ready")
        print(f"ok: serves after {time.monotonic() - begin:.1f} s")
        token = Path(ready["token_file"]).read_text().strip()
        output(*arm64, "link", "add", "plant", origin, "--node", ready["address"], "--token", token)
        count = elements(arm64, ready["address"])
        print("ok: the link brought", count, "elements of a stream")
        node.send_signal(signal.SIGTERM)
        if node.wait(LIMIT_S):
            raise RuntimeError(f"the node ended with exit status {node.returncode}")
        print("ok: ends on SIGTERM")
    finally:
        for process in started:
            if process.poll() is None:
                process.terminate()
                process.wait(LIMIT_S)


def elements(program, node):
    """The number of elements of a linked stream, as soon as there are some."""
    query = 'select count(*) from "electrocardiograph.wave"'
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        done = subprocess.run([*program, "query", "--node", node, "--format", "csv", query], capture_output=True,
                              text=True, env={**os.environ, "CHAPPE_LOG": "error"})
        lines = done.stdout.split()
        if done.returncode == 0 and int(lines[-1]) > 0:
            return int(lines[-1])
        time.sleep(0.5)  # reason: a query under emulation is itself slow
    raise RuntimeError(f"no element over the link within {LIMIT_S} s: {done.stderr}")


main()
