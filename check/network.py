"""Two network namespaces connected by a virtual cable, created and removed by the check that uses them."""

import json
import os
import pathlib
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable


# Limits of time are those of a machine at leisure, times this: what has to happen is waited for longer on
# one that is slow or busy.
PATIENCE = 8


class CheckFailed(Exception):
    """A check found something else than expected."""


def expect(condition: bool, message: str) -> None:
    if not condition:
        raise CheckFailed(message)
    print(f"   ok: {message}", flush=True)


def expect_figure(measure: Callable[[], tuple[bool, str]], times: int = 3) -> None:
    """Expects that a figure holds in one of several measurements: what else a machine does for a while doesn't decide."""
    for repeated in range(times):
        holds, message = measure()
        if holds:
            break
        print(f"   missed ({repeated + 1} of {times}): {message}", flush=True)
    expect(holds, message)


def enter(variable: str, arguments: list[str]) -> None:
    """Restarts this program in its own namespaces, marked by `variable`, with a loopback that has a multicast route."""
    if variable not in os.environ:
        apart = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        os.execvpe("unshare", [*apart, sys.executable, *arguments], {**os.environ, variable: "1"})
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    subprocess.run(["ip", "route", "add", "239.0.0.0/8", "dev", "lo"], check=False)


def run_in(work: pathlib.Path, check: Callable[[], None], failures: tuple[type[Exception], ...],
           more: str = "") -> None:
    """Runs a check with an empty folder, which is kept with its logs if the check fails."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    try:
        check()
    except (CheckFailed, OSError, *failures) as failure:
        sys.exit(f"   FAILED: {failure}\n   logs are in {work}{more}")
    shutil.rmtree(work)


class Process:
    """A program and its output lines; ended by its pid."""

    def __init__(self, arguments: list[str], log: pathlib.Path, env: dict[str, str] | None = None):
        self.log = open(log, "w")
        self.name = pathlib.Path(log).stem
        self.process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=self.log, text=True,
                                        env={**os.environ, **(env or {})}, start_new_session=True)
        self.lines: queue.Queue[tuple[float, str] | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self.process.stdout:
            self.lines.put((time.time(), line.rstrip("\n")))
        self.lines.put(None)

    def wait_line(self, start: str, timeout_s: float) -> tuple[float, str]:
        """Returns the first line with this prefix, and its time."""
        timeout_s *= PATIENCE
        end = time.monotonic() + timeout_s
        while True:
            try:
                item = self.lines.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                raise CheckFailed(f"{self.name} did not print {start!r} within {timeout_s} s") from None
            if item is None:
                raise CheckFailed(f"{self.name} ended with {self.process.wait()}, see {self.log.name}")
            if item[1].startswith(start):
                return item

    def wait_event(self, event: str, timeout_s: float) -> dict:
        """Returns the first JSON line with this event."""
        return self.wait_event_at(event, timeout_s)[1]

    def wait_event_at(self, event: str, timeout_s: float) -> tuple[float, dict]:
        """The same with its time."""
        end = time.monotonic() + timeout_s * PATIENCE
        while True:
            at, line = self.wait_line("{", (end - time.monotonic()) / PATIENCE)
            document = json.loads(line)
            if document.get("event") == event:
                return at, document

    def stop(self, number: int = signal.SIGTERM, timeout_s: float = 60) -> int:
        if self.process.poll() is None:
            os.killpg(self.process.pid, number)
            try:
                self.process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
        self.log.close()
        return self.process.returncode


FETCH = """
import sys, urllib.request
request = urllib.request.Request(sys.argv[1], headers={"Accept": "application/json, */*"})
sys.stdout.write(urllib.request.urlopen(request, timeout=60).read().decode())
"""


class Cable:
    """Namespaces A and B with addresses 10.77.0.1 and 10.77.0.2 on interfaces a0 and b0."""

    ADDRESSES = {"A": "10.77.0.1", "B": "10.77.0.2"}
    INTERFACES = {"A": "a0", "B": "b0"}

    def __init__(self, work: pathlib.Path):
        self.work = work
        work.mkdir(parents=True, exist_ok=True)
        self.names = {end: f"chappe-{os.getpid()}-{end}" for end in "AB"}
        self.processes: list[Process] = []

    def __enter__(self) -> "Cable":
        def ip(*words: str) -> None:
            subprocess.run(["ip", *words], check=True)
        a, b = self.names["A"], self.names["B"]
        ip("netns", "add", a)
        ip("netns", "add", b)
        ip("link", "add", "a0", "netns", a, "type", "veth", "peer", "name", "b0", "netns", b)
        for end in "AB":
            name, interface = self.names[end], self.INTERFACES[end]
            ip("-n", name, "addr", "add", f"{self.ADDRESSES[end]}/24", "dev", interface)
            ip("-n", name, "link", "set", interface, "up")
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "route", "add", "239.0.0.0/8", "dev", interface)
        return self

    def __exit__(self, *_) -> None:
        for process in reversed(self.processes):
            process.stop()
        for name in self.names.values():
            subprocess.run(["ip", "netns", "del", name], check=False)

    def command(self, end: str, *arguments: str) -> list[str]:
        return ["ip", "netns", "exec", self.names[end], *arguments]

    def start(self, end: str, name: str, *arguments: str, **options) -> Process:
        process = Process(self.command(end, *arguments), self.work / f"{name}.log", **options)
        self.processes.append(process)
        return process

    def run(self, end: str, *arguments: str, timeout_s: float = 30) -> subprocess.CompletedProcess:
        return subprocess.run(self.command(end, *arguments), capture_output=True, text=True,
                              timeout=timeout_s * PATIENCE)

    def get(self, end: str, url: str) -> str:
        """Sends a GET from inside a namespace."""
        result = self.run(end, sys.executable, "-c", FETCH, url)
        if result.returncode:
            raise CheckFailed(f"GET {url}: {result.stderr.strip().splitlines()[-1:]}")
        return result.stdout

    def node(self, chappe: str, end: str = "A", config: str = "") -> tuple[Process, str]:
        """Starts a node on one end that listens on its loopback; returns it with its address."""
        folder = self.work / f"node-{end}"
        (folder / "sensors").mkdir(parents=True, exist_ok=True)
        text = f"""
name = "peers"
data_directory = "{folder}/data"
sensors_directory = "{folder}/sensors"
[http]
listen = "127.0.0.1:0"
[discovery]
interfaces = ["{self.INTERFACES[end]}"]
{config}
"""
        (folder / "node.toml").write_text(text)
        node = self.start(end, f"node-{end}", chappe, "serve", str(folder / "node.toml"), "--json")
        return node, node.wait_event("ready", 20)["address"]


def until(timeout_s: float, what: str, question):
    """Polls until the answer is true, and returns it."""
    timeout_s *= PATIENCE
    end = time.monotonic() + timeout_s
    while True:
        answer = question()
        if answer:
            return answer
        if time.monotonic() > end:
            raise CheckFailed(f"not within {timeout_s} s: {what}")
        time.sleep(0.1)


def main(check) -> None:
    """Runs a check with the program and the folder from the command line."""
    chappe, work = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2]).absolute()
    shutil.rmtree(work, ignore_errors=True)
    try:
        with Cable(work) as cable:
            check(cable, chappe)
    except CheckFailed as failure:
        sys.exit(f"   FAILED: {failure}\n   logs are in {work}")
