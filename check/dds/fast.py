"""DDS with Fast DDS (Debian's libfastrtps-dev): samples in both directions, without security and with the files that
`chappe dds keys` makes. A participant without files, or of another authority, gets none. The participant with the lower hash
of its certificate's subject begins the handshake: `there` is b0ea8c46f61c, `here` bd51fe510a48, and each program is both.

    python3 check/dds/fast.py CHAPPE DDS_PEER WORK

Runs as root on Linux, in a network namespace of its own with nothing but loopback. CHAPPE and DDS_PEER are built with the
feature `dds-security`.
"""

import os
import pathlib
import shutil
import subprocess
import sys

INSIDE = "CHAPPE_DDS_FAST_INSIDE"
HERE = pathlib.Path(__file__).resolve().parent
DOMAIN = "12"
COUNT = "200"
SIZES = ["1000", "100000"]
# A refused reader is observed while another gets all samples.
PATIENCE_S = 300


def expect(held: bool, what: str) -> None:
    """Prints the property checked, and exits with 1 if it does not hold."""
    print(("   ok: " if held else "   FAILED: ") + what, flush=True)
    if not held:
        sys.exit(1)


def start(words: list[str]) -> subprocess.Popen:
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def exchange(name: str, reader: list[str], writer: list[str], refused: list[list[str]]) -> None:
    """A reader and a writer must end with all samples, and none of the other readers has one."""
    others = [start(words) for words in refused]
    processes = list(others)
    try:
        for other in others:
            other.stdout.readline()
        reads = start(reader)
        processes.append(reads)
        expect(reads.stdout.readline().strip() == "ready", f"{name}: the reader is ready")
        writes = start(writer)
        processes.append(writes)
        read = reads.communicate(timeout=PATIENCE_S)[0].strip()
        written = writes.communicate(timeout=PATIENCE_S)[0].strip()
        got = f"written {COUNT}; read {COUNT} missing 0 repeated 0"
        expect(f"{written}; {read}".startswith(got), f"{name}: {written}; {read}")
        # One that has all samples ends.
        expect(all(other.poll() is None for other in others), f"{name}: {len(others)} refused readers have none")
    finally:
        for process in processes:
            process.kill()
            process.wait()


def main(chappe: str, peer: str, work: str) -> None:
    if not os.environ.get(INSIDE):
        words = ["unshare", "--net", "--", sys.executable, *sys.argv]
        sys.exit(subprocess.run(words, env={**os.environ, INSIDE: "1"}).returncode)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    shutil.rmtree(work, ignore_errors=True)
    directory = pathlib.Path(work).absolute()
    directory.mkdir(parents=True)
    fast = str(directory / "fast")
    built = shutil.which("g++") and subprocess.run(["g++", "-O1", "-std=c++14", HERE / "fast.cpp", "-o", fast, "-lfastrtps"],
                                                   capture_output=True, text=True)
    if not built or built.returncode:
        print("   skipped: Fast DDS (apt-get install g++ libfastrtps-dev)")
        return
    for size in SIZES:
        for name, reader, writer in [("Chappe to Fast DDS", [fast], [peer]), ("Fast DDS to Chappe", [peer], [fast])]:
            topic = f"plain/{size}/{name.replace(' ', '_')}"
            exchange(f"{name}, {COUNT} samples of {size} bytes", [*reader, "read", DOMAIN, topic, COUNT],
                     [*writer, "write", DOMAIN, topic, COUNT, size], [])
    for authority, name in [("own", "here"), ("own", "there"), ("other", "stranger")]:
        subprocess.run([chappe, "dds", "keys", str(directory / authority), name], check=True, capture_output=True)
    own, other = str(directory / "own"), str(directory / "other")
    secure = {peer: lambda name: [peer, "--security", own, name], fast: lambda _: [fast]}
    files = {peer: lambda _: [], fast: lambda name: [own, name]}
    for first, subjects in [("Chappe", {peer: "there", fast: "here"}), ("Fast DDS", {peer: "here", fast: "there"})]:
        for name, reads, writes in [("Chappe to Fast DDS", fast, peer), ("Fast DDS to Chappe", peer, fast)]:
            topic = f"secure/{first}/{name}".replace(" ", "_")
            strangers = [[peer, "read", DOMAIN, topic, COUNT],
                         [peer, "--security", other, "stranger", "read", DOMAIN, topic, COUNT]]
            exchange(f"{name}, secure, {first} begins, {COUNT} samples",
                     [*secure[reads](subjects[reads]), "read", DOMAIN, topic, COUNT, *files[reads](subjects[reads])],
                     [*secure[writes](subjects[writes]), "write", DOMAIN, topic, COUNT, SIZES[0],
                      *files[writes](subjects[writes])], strangers)


main(*sys.argv[1:])
