"""`chappe export` and the exporters of kinds `parquet`, `arrow` and `csv`, read by pyarrow and DuckDB.

    python check/connectors/columns.py CHAPPE WORK

A stream with all types of fields is exported in each form, and each value, type and unit is compared with what was written.
Exporters roll files while the node is killed; together the files have each element once. Then a long stream is exported, and
the memory of the command is compared with that for a short one.

Needs pyarrow and duckdb, and a program with the feature `parquet`. CONNECTORS_KILLS says how often the node is killed (3),
COLUMNS_ROWS how many elements the long stream has.
"""

import base64
import datetime
import glob
import json
import math
import os
import pathlib
import subprocess
import sys
import time

sys.dont_write_bytecode = True
CHECK = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(CHECK), str(CHECK / "wrappers")]
from network import CheckFailed, expect, run_in, until  # noqa: E402
from write.node import CONFIGURATION, Node  # noqa: E402

KILLS = int(os.environ.get("CONNECTORS_KILLS") or 3)
ROWS = int(os.environ.get("COLUMNS_ROWS") or 200_000)
SMALL = 500
FIELDS = [
    {"name": "celsius", "type": "double", "unit": "Cel", "observed_property": "urn:temperature"},
    {"name": "count", "type": "integer"}, {"name": "ok", "type": "boolean"}, {"name": "note", "type": "text"},
    {"name": "raw", "type": "bytes"},
]
OWN = ["epoch", "sequence", "source_time", "receive_time", "key", "quality"]


def element(number: int) -> dict:
    time_of = datetime.datetime(2026, 11, 21, tzinfo=datetime.UTC) + datetime.timedelta(seconds=number)
    if number % 7 == 0:
        return {"source_time": time_of.isoformat().replace("+00:00", "Z"), "celsius": None, "count": None, "ok": False,
                "note": None, "raw": None}
    return {"source_time": time_of.isoformat().replace("+00:00", "Z"), "celsius": number / 7, "count": 2**53 + number,
            "ok": number % 2 == 0, "note": "" if number % 5 == 0 else f'a, "{number}"\n',
            "raw": base64.b64encode(bytes([number % 256, 0])).decode()}


def write(node: Node, stream: str, first: int, count: int) -> None:
    for start in range(first, first + count, 5_000):
        numbers = range(start, min(start + 5_000, first + count))
        body = "".join(json.dumps(element(number)) + "\n" for number in numbers)
        status, answer = node.ask("POST", f"/api/v1/streams/{stream}/elements", body.encode(),
                                  Content_Type="application/x-ndjson")
        if status != 200 or answer.get("refused"):
            raise CheckFailed(f"{stream} takes no elements: {status} {answer}")


def create(node: Node, stream: str) -> None:
    status, answer = node.ask("POST", "/api/v1/streams", {"name": stream, "fields": FIELDS, "level": "process"})
    if status not in (200, 201):
        raise CheckFailed(f"{stream}: {status} {answer}")


def export(chappe: str, node: Node, *words: str) -> tuple[dict, int]:
    """The summary, and the most memory that the command had."""
    command = [chappe, "export", *words, "--json", "--node", f"http://{node.host}:{node.port}", "--token", node.token]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    output = process.stdout.read()
    _, code, usage = os.wait4(process.pid, 0)
    if code:
        raise CheckFailed(f"chappe export {words}: {process.stderr.read()}{output}")
    return json.loads(output), usage.ru_maxrss * 1024


def table_of(path: pathlib.Path):
    import pyarrow.feather
    import pyarrow.parquet
    return pyarrow.parquet.read_table(path) if path.suffix == ".parquet" else pyarrow.feather.read_table(path)


def rows_of(table) -> list[dict]:
    """The rows; a datetime of Python has no nanoseconds, which the time of receipt has."""
    return table.drop_columns(["receive_time"]).to_pylist()


def same(found, wanted) -> bool:
    if isinstance(wanted, float) and isinstance(found, float):
        return found == wanted or (math.isnan(found) and math.isnan(wanted))
    return found == wanted


def compare(rows: list[dict], first: int, what: str) -> None:
    for number, row in enumerate(rows, first):
        wanted = element(number)
        raw = wanted["raw"]
        wanted["raw"] = None if raw is None else base64.b64decode(raw)
        for name in ("celsius", "count", "ok", "note", "raw"):
            if not same(row[name], wanted[name]):
                raise CheckFailed(f"{what}: element {number} has {name} {row[name]!r}, not {wanted[name]!r}")
        if row["sequence"] != number or row["quality"] != "good":
            raise CheckFailed(f"{what}: element {number} has {row}")


def forms(chappe: str, node: Node, work: pathlib.Path) -> None:
    import duckdb
    import pyarrow
    create(node, "lab.all")
    write(node, "lab.all", 1, SMALL)
    for ending in ("parquet", "arrow", "csv"):
        path = work / f"all.{ending}"
        summary, _ = export(chappe, node, "lab.all", "--out", str(path))
        row = summary["files"][0]
        expect(summary["complete"] and row["elements"] == SMALL and row["bytes"] == path.stat().st_size,
               f"chappe export wrote {row['elements']} elements, {row['bytes']} bytes, as {ending}")
        if ending == "csv":
            found = duckdb.sql(f"SELECT count(*), sum(count), count(note), min(source_time) FROM read_csv('{path}', "
                               "allow_quoted_nulls=false)").fetchall()[0]
            values = [element(number) for number in range(1, SMALL + 1)]
            wanted = (SMALL, sum(one["count"] or 0 for one in values), sum(one["note"] is not None for one in values))
            expect(found[:3] == wanted, f"DuckDB reads the same from the CSV: {found[:3]}")
            continue
        table = table_of(path)
        expect(table.column_names[:6] == OWN and table.num_rows == SMALL, f"pyarrow reads {SMALL} rows of {ending}")
        schema = table.schema
        utc = pyarrow.timestamp("ns", "UTC")
        types = [schema.field(name).type for name in ("source_time", "sequence", "celsius", "count", "ok", "note", "raw")]
        expect(types == [utc, pyarrow.uint64(), pyarrow.float64(), pyarrow.int64(), pyarrow.bool_(), pyarrow.string(),
                         pyarrow.binary()], f"the types of {ending} are those of the fields")
        metadata = schema.field("celsius").metadata
        expect(metadata[b"unit"] == b"Cel" and metadata[b"observed_property"] == b"urn:temperature"
               and schema.metadata[b"chappe.stream"] == b"lab.all", f"units and the stream are metadata of {ending}")
        compare(rows_of(table), 1, ending)
        expect(table["source_time"][0].as_py().isoformat() == "2026-11-21T00:00:01+00:00", f"times of {ending} are in UTC")
    path = work / "all.parquet"
    found = duckdb.sql(f"SELECT count(*), sum(count), max(epoch(source_time)) FROM '{path}'").fetchall()[0]
    values = [element(number)["count"] or 0 for number in range(1, SMALL + 1)]
    seconds = datetime.datetime(2026, 11, 21, tzinfo=datetime.UTC).timestamp() + SMALL
    expect(found == (SMALL, sum(values), seconds), f"DuckDB finds count, sum and newest time: {found}")
    keys = duckdb.sql(f"SELECT decode(key) FROM parquet_kv_metadata('{path}')").fetchall()
    expect(("chappe.stream",) in keys and ("chappe.device",) in keys, "DuckDB finds the stream and the device in the metadata")
    part = work / "part.parquet"
    summary, _ = export(chappe, node, "lab.all", "--from", "2026-11-21T00:00:11Z", "--to", "2026-11-21T00:00:21Z", "--out", str(part))
    compare(rows_of(table_of(part)), 11, "a range")
    expect(summary["files"][0]["elements"] == 10, "a range of time has its elements, without the end")
    left = [name for name in os.listdir(work) if name.endswith(".tmp")]
    expect(not left, "no temporary file is left")


def rolled(node: Node, work: pathlib.Path) -> None:
    """Files of the exporters over kills of the node."""
    create(node, "lab.rolled")
    (node.folder / "exporters").mkdir(exist_ok=True)
    for kind in ("parquet", "arrow", "csv"):
        (node.folder / "exporters" / f"{kind}.toml").write_text(
            f'kind = "{kind}"\nstreams = ["lab.rolled"]\ndirectory = "{work}/{kind}"\nroll_s = 1\nroll_bytes = 65536\n')
    written = 0
    for _ in range(KILLS):
        for _ in range(3):
            write(node, "lab.rolled", written + 1, 2_000)
            written += 2_000
            time.sleep(0.3)
        node.kill()
        node.start()
    write(node, "lab.rolled", written + 1, 10)
    written += 10
    for kind in ("parquet", "arrow", "csv"):
        check_rolled(work / kind, kind, written)


def check_rolled(folder: pathlib.Path, kind: str, written: int) -> None:
    import duckdb

    def names() -> list[str]:
        """By the first number; each kill begins an epoch, and epochs have no order."""
        return sorted(glob.glob(f"{folder}/*.{kind}"), key=lambda path: pathlib.Path(path).stem.rsplit("-", 2)[1])

    until(60, f"{kind}: the last file is finished", lambda: names() and int(names()[-1].rsplit("-", 1)[1].split(".")[0]) == written)
    expected = 1
    for path in names():
        stream, epoch, first, last = pathlib.Path(path).stem.rsplit("-", 3)
        if (stream, int(first), len(epoch)) != ("lab.rolled", expected, 16):
            raise CheckFailed(f"{path} does not begin at {expected}")
        expected = int(last) + 1
    found = []
    for path in names():
        if kind == "csv":
            found += [row[0] for row in duckdb.sql(f"SELECT sequence FROM read_csv('{path}')").fetchall()]
        else:
            rows = rows_of(table_of(pathlib.Path(path)))
            if rows:
                compare(rows, rows[0]["sequence"], path)
            found += [row["sequence"] for row in rows]
    expect(found == list(range(1, written + 1)),
           f"{kind}: {len(names())} files have each of {written} elements once, in order, after {KILLS} kills of the node")
    left = [name for name in os.listdir(folder) if name.endswith(".tmp")]
    expect(not left, f"{kind}: nothing unfinished is left")


def memory(chappe: str, node: Node, work: pathlib.Path) -> None:
    import pyarrow.parquet
    create(node, "lab.long")
    used = []
    for count in (ROWS // 4, ROWS):
        write(node, "lab.long", 1 if not used else ROWS // 4 + 1, count if not used else count - ROWS // 4)
        summary, bytes_used = export(chappe, node, "lab.long", "--out", str(work / "long.parquet"))
        rows = pyarrow.parquet.read_metadata(work / "long.parquet").num_rows
        expect(summary["files"][0]["elements"] == rows == count, f"{rows} elements are exported, with {bytes_used >> 20} MiB of memory")
        used.append(bytes_used)
    # The first one may not have filled a row group.
    expect(used[1] < used[0] + (64 << 20), "four times as many elements take no more than a row group more memory")


def check(chappe: str, work: pathlib.Path) -> None:
    node = Node(chappe, work / "node", configuration=CONFIGURATION)
    try:
        forms(chappe, node, work)
        rolled(node, work)
        memory(chappe, node, work)
    finally:
        node.process.stop()


def main() -> None:
    try:
        import duckdb  # noqa: F401
        import pyarrow  # noqa: F401
    except ImportError as reason:
        print(f"   skipped: not installed: {reason.name}")
        return
    chappe, work = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2]).absolute()
    run_in(work, lambda: check(chappe, work), (subprocess.SubprocessError, KeyError))
    print("   all passed")


if __name__ == "__main__":
    main()
