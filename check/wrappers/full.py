"""A data directory on a small disk that is full for a while, and an exporter whose file is on such a disk."""

import contextlib
import pathlib
import subprocess
import time

import files
import lines
import programs
import tables
import web
from bench import Bench, Skipped
from network import expect, until

DATA_BYTES = 48 << 20


@contextlib.contextmanager
def filled(folder: pathlib.Path):
    """A file system without a free byte."""
    ballast = folder / "ballast"
    with contextlib.suppress(OSError), open(ballast, "wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    try:
        yield
    finally:
        ballast.unlink()


def troubled(bench: Bench, names: list[str], table: str = "wrappers") -> bool:
    rows = [bench.row(name, table) for name in names]
    return all(row["state"] == "trouble" and "space" in row["reason"] or "full" in (row["reason"] or "") for row in rows)


def check(bench: Bench) -> None:
    nginx = web.Nginx(bench)
    try:
        peers = [programs.Counter(bench), files.Log(bench, "create"), tables.Table(bench, "wal"),
                 lines.Lines(bench, "listen"), lines.Lines(bench, "udp"), web.Webhook(bench),
                 files.Export(bench, programs.COUNTED), web.Poll(bench, nginx, "plain")]
    except Skipped as reason:
        raise Skipped(str(reason)) from None
    exported = bench.work / "exported"
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k,mode=0755", "exported", str(exported)], check=True)
    try:
        bench.kill_node()
        for peer in peers:
            peer.start()
        time.sleep(3)
        with filled(bench.folder / "data"):
            bench.fills += 1
            names = ["log-create", "table-wal", "counter"]
            until(20, "the wrappers say that the disk is full", lambda: troubled(bench, names))
            expect(True, f"on a full disk {' '.join(names)} are in trouble: {bench.row(names[0])['reason']}")
            before = bench.last("log-create")
            time.sleep(2)
            expect(bench.last("log-create") == before, "and store nothing")
        until(20, "stored again", lambda: bench.last("log-create") > before)
        expect(True, "with room they go on")
        with filled(exported):
            until(20, "the exporters say so", lambda: troubled(bench, ["to-json", "to-csv"], "exporters"))
            expect(True, f"a file that cannot grow: {bench.row('to-csv', 'exporters')['reason']}")
        with filled(bench.folder / "data"):
            bench.fills += 1
            time.sleep(2)
            bench.node.kill()
            bench.node_kills += 1
        bench.node.start()
        time.sleep(2)
        for peer in peers:
            peer.finish()
        for peer in peers:
            peer.judge()
        nginx.stop()
    finally:
        subprocess.run(["umount", "--lazy", str(exported)], check=False)
