#!/usr/bin/env python3
"""A static program in a tree that has nothing else, no C library either: it finds devices, serves,
resolves names, and reads a stream over a link.

    static.py PROGRAM NATIVE DIRECTORY [QEMU]     in namespaces of the network, with nothing but
                                                  loopback, and of mounts

The devices and the origin of the link are the demonstration of NATIVE, a program for this machine.
QEMU runs a PROGRAM for another one.
"""

import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

# Emulation takes some ten times the processor time.
LIMIT_S = 60
# Sources of names that /etc/nsswitch.conf of other systems has, before those that a static program reads.
NSSWITCH = "hosts: trap files dns\npasswd: trap files\ngroup: trap files\n"
# A library for such a source: it ends the process that loads it.
TRAP = "__attribute__((constructor)) static void trap(void) { __builtin_trap(); }"


def events(process, name):
    """The first event of a kind that a program prints."""
    for line in process.stdout:
        event = json.loads(line)
        if event["event"] == name:
            return event
    raise RuntimeError(f"the program ended before its event {name!r}")


def start(*command):
    return subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, text=True)


def output(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if done.returncode:
        raise RuntimeError(f"{command}: exit status {done.returncode}: {done.stderr}")
    return done.stdout


def empty_tree(tree, program, qemu):
    """A tree with the program, and the command that runs it there."""
    for name in ("etc", "node", "proc", "tmp", "lib/x86_64-linux-gnu"):
        (tree / name).mkdir(parents=True)
    shutil.copy2(program, tree / "chappe")
    command = ["chroot", tree]
    if qemu:
        shutil.copy2(qemu, tree / "qemu")
        command.append("/qemu")
    else:
        # The trap is for this machine's processor.
        library = tree / "lib/x86_64-linux-gnu/libnss_trap.so.2"
        subprocess.run(["gcc", "-shared", "-fPIC", "-nostdlib", "-x", "c", "-", "-o", library], input=TRAP, text=True, check=True)
    subprocess.run(["mount", "-t", "proc", "proc", tree / "proc"], check=True)
    (tree / "etc/nsswitch.conf").write_text(NSSWITCH)
    (tree / "etc/hosts").write_text("127.0.0.1 localhost file.example\n")
    (tree / "etc/resolv.conf").write_text("nameserver 127.0.0.1\n")
    return [*command, "/chappe"]


def serve_names(name):
    """A server of DNS that knows one name, 127.0.0.1; of every other name it says that there is none."""
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("127.0.0.1", 53))
    wanted = b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0"

    def run():
        while True:
            query, sender = server.recvfrom(512)
            end = query.index(b"\0", 12) + 5
            question = query[12:end]
            is_known = question[:-4].lower() == wanted
            is_answered = is_known and question[-4:-2] == b"\0\1"  # type A
            flags = 0x8180 if is_known else 0x8183
            head = query[:2] + struct.pack(">5H", flags, 1, int(is_answered), 0, 0)
            # The name of the answer is a pointer to the question's; class IN, 60 s, 4 bytes.
            answer = struct.pack(">HHHIH4B", 0xC00C, 1, 1, 60, 4, 127, 0, 0, 1) if is_answered else b""
            server.sendto(head + question + answer, sender)

    threading.Thread(target=run, daemon=True).start()


def main():
    # An alarm ends a run that waits for ever.
    signal.alarm(10 * LIMIT_S)
    program, native, directory, *qemu = sys.argv[1:]
    tree = Path(directory)
    shutil.rmtree(tree, ignore_errors=True)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    # A node refuses variables of the packaging, such as CHAPPE_LAB.
    for name in [name for name in os.environ if name.startswith("CHAPPE_")]:
        del os.environ[name]
    os.environ["CHAPPE_LOG"] = "error"
    command = empty_tree(tree, program, qemu[0] if qemu else None)
    serve_names("dns.example")
    started = []
    try:
        print("ok:", output(*command, "--version").strip(), "runs in an empty tree")
        demo = start(native, "demo", "--json", "--listen", "127.0.0.1:0")
        started.append(demo)
        origin = events(demo, "ready")["address"]
        events(demo, "first_element")
        find(command, is_emulated=bool(qemu))
        (tree / "node/node.toml").write_text(
            'data_directory = "data"\n[http]\nlisten = "127.0.0.1:0"\nhosts = ["file.example", "dns.example"]\n'
            "[discovery]\nenabled = false\n"
        )
        begin = time.monotonic()
        node = start(*command, "serve", "/node/node.toml", "--json")
        started.append(node)
        ready = events(node, "ready")
        print(f"ok: serves after {time.monotonic() - begin:.1f} s")
        token = (tree / ready["token_file"].lstrip("/")).read_text().strip()
        output(*command, "link", "add", "plant", origin, "--node", ready["address"], "--token", token)
        print("ok: the link brought", elements(command, ready["address"], token), "elements of a stream")
        for name in ("file.example", "dns.example"):
            address = ready["address"].replace("127.0.0.1", name)
            output(*command, "query", "--node", address, "--token", token, "select 1")
        print("ok: resolves names of /etc/hosts and of DNS, and loads no library for other sources of names")
        node.send_signal(signal.SIGTERM)
        if node.wait(LIMIT_S):
            raise RuntimeError(f"the node ended with exit status {node.returncode}")
        print("ok: ends on SIGTERM")
    finally:
        for process in started:
            if process.poll() is None:
                process.terminate()
                process.wait(LIMIT_S)


def find(command, is_emulated):
    """Finds the devices of the demonstration."""
    if is_emulated:
        # qemu-user 7.2 passes the option by which a socket joins a group (IP_ADD_MEMBERSHIP with struct ip_mreqn) on
        # without the interface, so that no program of another processor takes part in multicast.
        print("skipped: finding devices: qemu-user does not pass on the interface of a multicast group")
        return
    found = output(*command, "find", "--interface", "lo", "--json")
    usable = json.loads(found.splitlines()[-1])["usable"]
    if not usable:
        raise RuntimeError(f"found no usable device: {found}")
    print("ok: found", usable, "usable devices")


def elements(command, node, token):
    """The number of elements of a linked stream, as soon as there are some."""
    query = 'select count(*) from "electrocardiograph.wave"'
    words = [*command, "query", "--node", node, "--token", token, "--format", "csv", query]
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        lines = done.stdout.split()
        if done.returncode == 0 and int(lines[-1]) > 0:
            return int(lines[-1])
        time.sleep(0.5)  # reason: a query under emulation is itself slow
    raise RuntimeError(f"no element over the link within {LIMIT_S} s: {done.stderr}")


main()
