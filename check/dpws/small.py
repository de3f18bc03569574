"""A small device, with and without TLS: its length, its size, its memory, and that it works where there is little.

    check/dpws/small.py CHAPPE EXAMPLES WORK    the folder with the examples `thermometer` and `secure_device`, built by
                                                `--profile small --no-default-features` (docs/reference/device-library.md)

Each is started on a loopback of its own, found, called or described, and sends events to `chappe watch`; then once more in
a memory group (cgroup) of 8 MiB, in which the pages of the program count, too. Runs as root. Exit code 1 beyond a bound.
"""

import hashlib
import os
import pathlib
import re
import shutil
import ssl
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from network import CheckFailed, Process, enter, expect, run_in  # noqa: E402

SOURCE = HERE.parent.parent / "crates/device/examples"
# What a device may cost: lines of its source, bytes of the stripped program, and resident bytes at most.
LINES_MAX = 40
SIZE_MAX = 3 << 20
RESIDENT_MAX = 6 << 20
# The memory of the smallest board of the papers.
GROUP_BYTES = 8 << 20
EVENTS = 5


class Group:
    """A memory group of cgroup version 1 or 2 below the own one."""

    def __init__(self, name: str):
        root, own = pathlib.Path("/sys/fs/cgroup"), pathlib.Path("/proc/self/cgroup").read_text()
        first = re.search(r"^\d+:(?:[^:]*,)?memory(?:,[^:]*)?:(.*)$", own, re.MULTILINE)
        second = re.search(r"^0::(.*)$", own, re.MULTILINE)
        if first:
            parent, limit, peak = root / "memory" / first[1].lstrip("/"), "memory.limit_in_bytes", "memory.max_usage_in_bytes"
        elif second:
            parent, limit, peak = root / second[1].lstrip("/"), "memory.max", "memory.peak"
        else:
            raise OSError("no memory groups")
        self.folder = parent / name
        self.peak = self.folder / peak
        self.folder.mkdir()
        (self.folder / limit).write_text(str(GROUP_BYTES))

    def started(self, arguments: list[str]) -> list[str]:
        """The command that joins the group, and becomes the program."""
        return ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(self.folder / "cgroup.procs"), *arguments]


def certificate(work: pathlib.Path) -> tuple[list[str], str]:
    """The flags of a client with a certificate, and its fingerprint."""
    made, key = work / "client.pem", work / "client.key"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days",
                    "2", "-subj", "/CN=client", "-keyout", key, "-out", made], check=True, capture_output=True)
    key.chmod(0o600)
    digest = hashlib.sha256(ssl.PEM_cert_to_DER_cert(made.read_text())).hexdigest()
    return ["--certificate", str(made), "--key", str(key)], digest


def uncached(program: pathlib.Path, copy: pathlib.Path) -> pathlib.Path:
    """A copy whose pages count where they are first used."""
    shutil.copy(program, copy)
    with open(copy, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return copy


def memory(pid: int, what: str) -> int:
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(rf"{what}:\s+(\d+) kB", status)[1]) << 10


def asked(chappe: str, work: pathlib.Path, *arguments: str) -> str:
    done = subprocess.run([chappe, *arguments], capture_output=True, text=True, timeout=300, cwd=work)
    if done.returncode:
        raise CheckFailed(f"chappe {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def used(chappe: str, work: pathlib.Path, program: pathlib.Path, group: Group | None, number: int) -> int:
    """Uses the device, and returns what it had resident at most."""
    is_secured = program.name == "secure_device"
    address = f"127.0.7.{10 + number}"
    arguments, flags = [str(program), address], []
    if is_secured:
        flags, digest = certificate(work)
        arguments.append(digest)
    log = work / f"{program.name}-{number}.log"
    device = Process(group.started(arguments) if group else arguments, log, env={"TMPDIR": str(work)})
    try:
        if is_secured:
            flags += ["--device-fingerprint", device.wait_line("certificate ", 20)[1].split()[1]]
        name = "Secure thermometer" if is_secured else "Small thermometer"
        device.wait_line("", 20)
        asked(chappe, work, "describe", name, "--timeout", "10s", *flags)
        if not is_secured:
            asked(chappe, work, "call", name, "SetPeriod", "seconds=0.2", "--timeout", "10s")
        seen = asked(chappe, work, "watch", name, "--count", str(EVENTS), "--timeout", "10s", "--json", *flags)
        values = [line for line in seen.splitlines() if "celsius" in line]
        expect(len(values) >= EVENTS, f"{program.name} is described and sends events")
        return memory(device.process.pid, "VmHWM")
    finally:
        device.stop()


def check(chappe: str, examples: pathlib.Path, work: pathlib.Path) -> None:
    (work / "uncached").mkdir()
    lines = len((SOURCE / "thermometer.rs").read_text().splitlines())
    expect(lines <= LINES_MAX, f"the thermometer has {lines} lines (at most {LINES_MAX})")
    for number, name in enumerate(("thermometer", "secure_device")):
        program = work / name
        shutil.copy(examples / name, program)
        subprocess.run(["strip", program], check=True)
        size = program.stat().st_size
        expect(size <= SIZE_MAX, f"{name}: {size / 2**20:.2f} MiB stripped (at most {SIZE_MAX >> 20})")
        resident = used(chappe, work, program, None, 2 * number)
        expect(resident <= RESIDENT_MAX, f"{name}: {resident / 2**20:.2f} MiB resident at most ({RESIDENT_MAX >> 20})")
        try:
            group = Group(f"chappe-small-{os.getpid()}-{number}")
        except OSError as error:
            print(f"   skipped: {name} in a group of 8 MiB: {error}")
            continue
        try:
            used(chappe, work, uncached(program, work / "uncached" / name), group, 2 * number + 1)
            if group.peak.exists():
                print(f"   {name}: {int(group.peak.read_text()) / 2**20:.2f} MiB in the group, all memory at most")
        finally:
            group.folder.rmdir()


if __name__ == "__main__":
    if len(sys.argv) != 4:
        raise SystemExit(__doc__)
    enter("CHAPPE_SMALL", sys.argv)
    chappe_program, folder = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[3]).absolute()
    built = pathlib.Path(sys.argv[2]).absolute()
    run_in(folder, lambda: check(chappe_program, built, folder), (subprocess.SubprocessError, KeyError))
