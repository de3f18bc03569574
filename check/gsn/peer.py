"""The example of chappe-wrappers as a process, and what it has stored."""

import pathlib
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from network import CheckFailed, Process  # noqa: E402


class Peer:
    """The example, which can be killed and started again."""

    def __init__(self, work: pathlib.Path, peer: str, *arguments: str):
        self.arguments = [peer, *arguments]
        self.log = work
        self.runs = 0
        self.process: Process | None = None

    def start(self) -> None:
        self.runs += 1
        self.process = Process(self.arguments, self.log / f"peer{self.runs}.log")
        self.process.wait_line("ready", 30)

    def kill(self) -> None:
        if self.process is not None:
            self.process.stop(signal.SIGKILL)
            self.process = None


def stored(path: pathlib.Path) -> list[int]:
    """The times of the elements in the file of a wrapper, in order."""
    if not path.exists():
        return []
    words = (line.split(" ")[1:] for line in path.read_text().splitlines())
    flat = [word for line in words for word in line]
    if "undecodable" in flat:
        raise CheckFailed("an element cannot be decoded")
    return [int(word) for word in flat]
