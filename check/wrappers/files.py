"""`file`: logs that logrotate rotates while a program writes them, and files that the node writes."""

import json
import pathlib
import signal
import subprocess
import sys
import time

from bench import Bench, documents, lines_of, need
from network import CheckFailed, Process, expect, until

HERE = pathlib.Path(__file__).resolve().parent
PERIOD_S = 0.01


def logrotate(folder: pathlib.Path, path: pathlib.Path, options: str) -> None:
    """Runs logrotate once over a file, with a state file."""
    configuration = folder / f"{path.name}.conf"
    configuration.write_text(f"{path} {{\n    rotate 1000\n    nocompress\n    missingok\n    notifempty\n{options}\n}}\n")
    done = subprocess.run(["logrotate", "--force", "--state", str(folder / f"{path.name}.state"), str(configuration)],
                          capture_output=True, text=True, timeout=60)
    if done.returncode:
        raise CheckFailed(f"logrotate: {done.stderr.strip()}")


class Log:
    """A log that is rotated while it is written, and the wrapper that follows it."""

    kind = "file"

    def __init__(self, bench: Bench, how: str):
        need("logrotate")
        self.bench, self.how, self.name = bench, how, f"log-{how}"
        self.folder = bench.work / self.name
        self.folder.mkdir(mode=0o755)
        self.path = self.folder / "app.log"
        self.rotations, self.kills = 0, 0
        bench.wrapper(self.name, f"""
kind = "file"
path = "{self.path}"
format = "json"
start = "oldest"
poll_ms = 50
[[stream]]
name = "{self.name}"
fields = [{{ name = "n", type = "integer" }}]
""")

    def start(self) -> None:
        self.writer = Process([sys.executable, str(HERE / "writer.py"), str(self.path), str(self.folder / "number"),
                               str(PERIOD_S)], self.folder / "writer.log")

    def kill(self) -> None:
        self.writer.stop(signal.SIGKILL)
        self.kills += 1
        self.start()

    def turn(self) -> None:
        """Rotates the log."""
        if self.how == "create":
            pid = f"{self.path}.pid"
            options = f"    create\n    postrotate\n        kill -HUP $(cat {pid}) || true\n    endscript"
        else:
            options = "    copytruncate\n    dateext\n    dateformat -%Y%m%d-%s"
            # Two copies of one second would have one name.
            time.sleep(1.1)
        logrotate(self.folder, self.path, options)
        self.rotations += 1

    def finish(self) -> None:
        self.writer.stop(signal.SIGKILL)

    def texts(self) -> list[str]:
        """All lines of all files."""
        files = [path for path in self.folder.iterdir()
                 if path.name == "app.log" or path.name.startswith(("app.log.", "app.log-"))]
        endings = (".pid", ".conf", ".state")
        files = [path for path in files if not path.name.endswith(endings)]
        return [line for path in files for line in lines_of(path) if line.strip()]

    def aside(self) -> set[int]:
        """The numbers of lines that are dead letters: after a copy that ends within a line, the next line in the emptied
        file may be the rest of that one, and is put aside."""
        if self.how == "create":
            return set()
        return {one["n"] for one in documents([one["text"] for one in self.bench.letters(self.name)]) if "n" in one}

    def judge(self) -> None:
        texts = self.texts()
        wanted = [one["n"] for one in documents(texts) if "n" in one]
        expect(len(wanted) == len(set(wanted)), f"{self.name}: {len(wanted)} lines in {self.rotations + 1} files")
        stored = lambda: self.bench.last(self.name)  # noqa: E731
        arrived = lambda: stored() + len(self.aside())  # noqa: E731
        until(30, f"{self.name}: {len(wanted)} stored, not {arrived()}", lambda: arrived() >= len(wanted))
        self.bench.at_rest(self.name, 1)
        found = self.bench.numbers(self.name)
        missing, more = sorted(set(wanted) - set(found) - self.aside()), sorted(set(found) - set(wanted))
        last = int((self.folder / "number").read_text())
        # logrotate loses lines between copying and emptying; the wrapper may have read them.
        is_right = not missing and len(found) == len(set(found)) and found == sorted(found) and not [
            n for n in more if self.how == "create" or n > last]
        expect(is_right, f"{self.name}: {len(found)} elements; each line of the files is stored once and in order, "
               f"after {self.rotations} rotations, {self.kills} kills of the writer and {self.bench.node_kills} of the "
               "node" + ("" if is_right else f"; missing {missing[:5]}, not in a file {more[:5]}, "
                         f"again {sorted(n for n in set(found) if found.count(n) > 1)[:5]}"))
        if self.how == "create":
            garbled = {line for line in texts if not documents([line])}
            # What the last kill cut may still go on: no other writer has ended it, and the file has no successor.
            garbled -= {line for line in self.path.read_text(errors="replace").splitlines(keepends=True)
                        if not line.endswith("\n")}
            letters = {one["text"].strip() for one in self.bench.letters(self.name)}
            expect(garbled <= letters, f"{self.name}: {len(garbled)} lines that a kill cut are dead letters"
                   + ("" if garbled <= letters else f"; missing {sorted(garbled - letters)[:3]}"))


class Export:
    """The exporter `file`, in both of its forms; the JSON is rotated while it grows."""

    kind = "file"

    def __init__(self, bench: Bench, stream: str):
        self.bench, self.stream = bench, stream
        self.folder = bench.work / "exported"
        self.folder.mkdir(mode=0o755)
        for form in ("json", "csv"):
            bench.exporter(f"to-{form}", f'kind = "file"\npath = "{self.folder}/out.{form}"\nformat = "{form}"\n'
                           f'streams = ["{stream}"]\n')
        self.rotations = 0

    def start(self) -> None:
        pass

    kill = start
    finish = start

    def turn(self) -> None:
        if (self.folder / "out.json").exists():
            logrotate(self.folder, self.folder / "out.json", "    nocreate")
            self.rotations += 1

    def written(self, form: str) -> list[str]:
        paths = [path for path in self.folder.iterdir() if path.name.startswith(f"out.{form}")
                 and not path.name.endswith((".conf", ".state"))]
        lines = [line for path in paths for line in lines_of(path)]
        if form == "csv":
            return [line.split(",")[0] for line in lines if not line.startswith("position")]
        return [f"{one['epoch']}:{one['number']}" for one in (json.loads(line) for line in lines)]

    def judge(self) -> None:
        elements = self.bench.node.elements(self.stream)
        wanted = {f"{one['epoch']}:{one['number']}" for one in elements}
        for form in ("json", "csv"):
            until(30, f"the exporter to {form}", lambda form=form: set(self.written(form)) >= wanted)
            found = self.written(form)
            is_right = len(found) == len(wanted)
            expect(is_right, f"file ({form}): each of {len(wanted)} elements is in the file once, after "
                   f"{self.bench.node_kills} kills" + (f" and {self.rotations} rotations" if form == "json" else "")
                   + ("" if is_right else f"; {len(found) - len(wanted)} again"))
        values = {f"{one['epoch']}:{one['number']}": one["values"] for one in elements}
        lines = [json.loads(line) for path in self.folder.glob("out.json*")
                 if not path.name.endswith((".conf", ".state")) for line in lines_of(path)]
        same = all(line["values"] == values[f"{line['epoch']}:{line['number']}"] for line in lines)
        expect(same, "and has the same values")
