"""`sqlite`: tables that the program sqlite3 writes, with a rollback journal and with a write-ahead log."""

import json
import subprocess

from bench import Bench, Fed, need
from network import expect, until


class Table:
    """A table that grows, and the wrapper that reads it."""

    kind = "sqlite"

    def __init__(self, bench: Bench, mode: str):
        need("sqlite3")
        self.bench, self.mode, self.name = bench, mode, f"table-{mode}"
        self.path = bench.work / f"{mode}.db"
        self.kills = 0
        self.ask(f"PRAGMA journal_mode = {mode}; CREATE TABLE readings "
                 "(id INTEGER PRIMARY KEY AUTOINCREMENT, n INTEGER, celsius REAL, note TEXT)")
        bench.wrapper(self.name, f"""
kind = "sqlite"
path = "{self.path}"
table = "readings"
cursor = "id"
poll_ms = 50
[[stream]]
name = "{self.name}"
fields = [{{ name = "id", type = "integer" }}, {{ name = "n", type = "integer" }},
    {{ name = "celsius", type = "double" }}, {{ name = "note", type = "text" }}]
""")

    def ask(self, statement: str) -> list[dict]:
        done = subprocess.run(["sqlite3", "-json", "-cmd", ".timeout 20000", str(self.path), statement],
                              capture_output=True, text=True, check=True, timeout=60)
        # `PRAGMA journal_mode` answers too.
        return json.loads(done.stdout) if done.stdout.startswith("[") and statement.startswith("SELECT") else []

    @staticmethod
    def line(number: int) -> str:
        row = f"INSERT INTO readings (n, celsius, note) VALUES ({number}, {number} / 8.0, 'it''s {number}');"
        return f"BEGIN; {row} {row} COMMIT;\n"

    def start(self) -> None:
        self.writer = Fed(lambda: ["sqlite3", "-batch", "-cmd", ".timeout 20000", str(self.path)], self.line,
                          self.bench.work / f"{self.name}.log")

    def kill(self) -> None:
        self.writer.kill()
        self.kills += 1

    def turn(self) -> None:
        pass

    def finish(self) -> None:
        self.writer.finish()

    def judge(self) -> None:
        wanted = self.ask("SELECT id, n, celsius, note FROM readings ORDER BY id")
        until(30, f"{self.name}: {len(wanted)} rows", lambda: self.bench.last(self.name) >= len(wanted))
        found = [one["values"] for one in self.bench.node.elements(self.name)]
        is_right = found == wanted and len(wanted) > 20
        expect(is_right, f"{self.name}: {len(wanted)} rows of sqlite3 are stored once each, in order, with equal values, "
               f"after {self.kills} kills of sqlite3 and {self.bench.node_kills} of the node"
               + ("" if is_right else f"; stored {len(found)}"))
