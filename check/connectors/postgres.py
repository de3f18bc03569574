"""Tables of PostgreSQL as streams, streams as tables, with psql as the judge of both.

    python check/connectors/postgres.py CHAPPE WORK

Several psql write rows whose transactions commit late and out of order. A wrapper reads them over TLS, an exporter copies
the stream into another table. The node and all processes of the server are killed in turn. Then each row is compared.

Needs Debian's postgresql and openssl, and a program with the feature `postgres`. CONNECTORS_KILLS says how often each is
killed (3). Unix sockets and loopback only.
"""

import glob
import json
import os
import pathlib
import random
import shutil
import socket
import subprocess
import sys
import time

sys.dont_write_bytecode = True
CHECK = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(CHECK), str(CHECK / "wrappers"), str(CHECK / "registry")]
from bench import Fed  # noqa: E402
from network import CheckFailed, expect, run_in, until  # noqa: E402
from nodes import Server  # noqa: E402
from write.node import CONFIGURATION, Node  # noqa: E402

KILLS = int(os.environ.get("CONNECTORS_KILLS") or 3)
WRITERS = 3
TABLE = """CREATE TABLE readings (id bigserial PRIMARY KEY, ts timestamptz NOT NULL DEFAULT clock_timestamp(), writer int,
    n bigint, exact numeric, x double precision, ok boolean, doc jsonb, raw bytea, note text)"""
STREAM = """
[[stream]]
name = "plant.readings"
fields = [
    { name = "id", type = "integer" }, { name = "writer", type = "integer" }, { name = "n", type = "integer" },
    { name = "exact", type = "text" }, { name = "x", type = "double" }, { name = "ok", type = "boolean" },
    { name = "doc", type = "text" }, { name = "raw", type = "bytes" }, { name = "note", type = "text" },
]
"""
# Values of both tables that are compared; the source has them in types of its own.
SAME = """SELECT count(*) FROM readings AS r JOIN copied AS c ON c.id = r.id
    WHERE c.n IS NOT DISTINCT FROM r.n AND c.exact IS NOT DISTINCT FROM r.exact::text AND c.x IS NOT DISTINCT FROM r.x
      AND c.ok IS NOT DISTINCT FROM r.ok AND c.doc::jsonb IS NOT DISTINCT FROM r.doc AND c.raw IS NOT DISTINCT FROM r.raw
      AND c.note IS NOT DISTINCT FROM r.note AND c.source_time = r.ts"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def certificates(folder: pathlib.Path) -> None:
    """An authority, and a certificate of the server that the user nobody can read."""
    folder.mkdir()
    folder.chmod(0o755)

    def openssl(*words: str) -> None:
        done = subprocess.run(["openssl", *words], cwd=folder, capture_output=True, text=True)
        if done.returncode:
            raise CheckFailed(f"openssl: {done.stderr}")

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2")
    for name in ("ca", "other"):
        openssl("req", "-x509", *key, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.pem")
    openssl("req", "-new", *key, "-subj", "/CN=localhost", "-keyout", "server.key", "-out", "server.csr")
    (folder / "names").write_text("subjectAltName=DNS:localhost\nbasicConstraints=CA:FALSE\n")
    openssl("x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2",
            "-extfile", "names", "-out", "server.pem")
    for name in ("server.key", "server.pem"):
        shutil.chown(folder / name, "nobody", "nogroup")
        (folder / name).chmod(0o600)


class Plant:
    """The server, the node, and those that write."""

    def __init__(self, chappe: str, work: pathlib.Path):
        self.chappe, self.work, self.chance = chappe, work, random.Random(7)
        work.chmod(0o755)
        certificates(work / "tls")
        self.port = free_port()
        tls = work / "tls"
        self.server = Server(work, ("listen_addresses=localhost", f"port={self.port}", "ssl=on",
                                    f"ssl_cert_file={tls}/server.pem", f"ssl_key_file={tls}/server.key"))
        self.psql(TABLE)
        self.node = Node(chappe, work / "node", configuration=CONFIGURATION)
        self.writers: list[Fed] = []

    def command(self, *words: str) -> list[str]:
        return [f"{self.server.programs}/psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-h", str(self.server.work),
                "-p", str(self.port), "-U", "chappe", "-d", "postgres", *words]

    def psql(self, statement: str) -> str:
        done = subprocess.run(self.command("-A", "-t", "-c", statement), capture_output=True, text=True, timeout=120)
        if done.returncode:
            raise CheckFailed(f"psql: {done.stderr}")
        return done.stdout.strip()

    def file(self, directory: str, name: str, text: str) -> None:
        folder = self.work / "node" / directory
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.toml").write_text(text)

    def row(self, table: str, name: str) -> dict:
        status, row = self.node.ask("GET", f"/api/v1/{table}/{name}")
        return row if status == 200 else {}

    def last(self, stream: str) -> int:
        status, answer = self.node.ask("GET", f"/api/v1/streams/{stream}")
        return answer["last"] or 0 if status == 200 else 0

    def address(self) -> str:
        return f"postgres://chappe@localhost:{self.port}/postgres"

    def write(self) -> None:
        def line(writer: int):
            def text(number: int) -> str:
                values = (f"({writer}, {number}, '9007199254740993.{number}', {number} / 7.0::float8, {number % 2 == 0}, "
                          f"'{{\"n\": [{number}, null]}}', decode(md5('{number}'), 'hex'), "
                          + ("NULL)" if number % 3 == 0 else f"'it''s \"{number}\"')"))
                insert = f"INSERT INTO readings (writer, n, exact, x, ok, doc, raw, note) VALUES {values};"
                # The second row of a transaction has a number above those of others that are committed first.
                pause = f"SELECT pg_sleep({self.chance.uniform(0, 0.05):.3f}) \\g /dev/null\n"
                return f"BEGIN; {insert}\n{pause}{insert} NOTIFY readings; COMMIT;\n"
            return text
        self.writers = [Fed(lambda: self.command(), line(writer), self.work / f"writer-{writer}.log", 0.05)
                        for writer in range(WRITERS)]

    def kill_server(self) -> None:
        self.server.kill()
        time.sleep(self.chance.uniform(0, 0.5))
        self.server.start()

    def grows(self, what: str, ask) -> None:
        before = ask()
        until(30, f"{what} grows again", lambda: ask() > before)

    def copied(self) -> int:
        return int(self.psql("SELECT coalesce(max(sequence), 0) FROM copied"))


def both_ways(plant: Plant) -> None:
    common = f'address = "{plant.address()}"\nauthorities = "{plant.work}/tls/ca.pem"\n'
    plant.file("wrappers", "readings", f'kind = "postgres"\n{common}table = "readings"\ncursor = "id"\npoll_ms = 2000\n'
               f'channel = "readings"\nformat = {{ json = {{ time = "$.ts" }} }}\n{STREAM}')
    plant.file("exporters", "copied", f'kind = "postgres"\nstreams = ["plant.readings"]\n{common}table = "copied"\n'
               "create = true\n")
    plant.write()
    until(30, "rows are stored", lambda: plant.last("plant.readings") > 20)
    until(30, "rows are copied", lambda: plant.psql("SELECT to_regclass('copied')") and plant.copied() > 20)
    for number in range(KILLS):
        time.sleep(plant.chance.uniform(0.3, 1.0))
        plant.node.kill()
        time.sleep(plant.chance.uniform(0, 0.3))
        plant.node.start()
        plant.grows("the copy", plant.copied)
        time.sleep(plant.chance.uniform(0.3, 1.0))
        plant.kill_server()
        plant.grows("the copy", plant.copied)
        print(f"   round {number + 1} of {KILLS}: the node and all processes of PostgreSQL killed", flush=True)
    for writer in plant.writers:
        writer.finish()
    judge(plant)


def judge(plant: Plant) -> None:
    rows = int(plant.psql("SELECT count(*) FROM readings"))
    until(60, f"{rows} rows are stored", lambda: plant.last("plant.readings") >= rows)
    found = plant.node.elements("plant.readings")
    ids = [one["values"]["id"] for one in found]
    wanted = [int(line) for line in plant.psql("SELECT id FROM readings ORDER BY id").splitlines()]
    late = int(plant.psql("SELECT count(*) FROM (SELECT id, lag(xmin::text::bigint) OVER (ORDER BY id) AS before, "
                          "xmin::text::bigint AS own FROM readings) AS r WHERE own < before"))
    expect(ids == wanted and late > 0, f"{len(wanted)} rows are stored once each, in order, over TLS, though {late} were "
           f"committed after higher ones, after {KILLS} kills of the server and of the node"
           + ("" if ids == wanted else f"; missing {sorted(set(wanted) - set(ids))[:5]}, {len(ids) - len(set(ids))} twice"))
    until(60, f"{rows} rows are copied", lambda: plant.copied() >= len(found))
    counts = plant.psql("SELECT count(*), count(DISTINCT sequence), min(sequence), max(sequence) FROM copied")
    expect(counts == f"{rows}|{rows}|1|{rows}", f"the copy has each element once: {counts}")
    same = int(plant.psql(SAME))
    expect(same == rows, f"psql finds {same} of {rows} rows equal in both tables, in all columns")


def odd_values(plant: Plant) -> None:
    """NaN, infinity and numbers beyond 2^53, into fields that take them and that do not."""
    plant.psql("CREATE TABLE odd (id int PRIMARY KEY, x double precision, exact numeric)")
    plant.psql("INSERT INTO odd VALUES (1, 'NaN', 'NaN'), (2, '-Infinity', 9007199254740993), (3, NULL, 1.50), "
               "(4, 0.1, 123456789012345678901234567890.5)")
    plant.file("wrappers", "odd", f'kind = "postgres"\naddress = "postgres://chappe@/postgres?host={plant.server.work}'
               f'&port={plant.port}"\nquery = "SELECT * FROM odd -- all"\ncursor = "id"\npoll_ms = 100\n'
               '[[stream]]\nname = "odd"\nfields = [{ name = "x", type = "double" }, { name = "exact", type = "text" }]\n')
    until(20, "the odd rows are stored", lambda: plant.last("odd") >= 2)
    found = [one["values"] for one in plant.node.elements("odd")]
    expect(found == [{"x": None, "exact": "1.50"}, {"x": 0.1, "exact": "123456789012345678901234567890.5"}],
           "a null is null, and a decimal number keeps its digits in a text")
    until(20, "dead letters", lambda: plant.row("wrappers", "odd").get("dead_letters") == 2)
    expect(True, "NaN and an infinite number are dead letters of a double")


def changed_schema(plant: Plant) -> None:
    """A table whose column gets another type and another name, and that is away for a while."""
    plant.psql("CREATE TABLE changing (id int PRIMARY KEY, x double precision)")
    plant.psql("INSERT INTO changing VALUES (1, 1.5)")
    plant.file("wrappers", "changing", f'kind = "postgres"\naddress = "postgres://chappe@/postgres?host={plant.server.work}'
               f'&port={plant.port}"\ntable = "changing"\ncursor = "id"\npoll_ms = 100\n'
               '[[stream]]\nname = "changing"\nfields = [{ name = "x", type = "double" }]\n')

    def seen() -> int:
        return plant.last("changing") + (plant.row("wrappers", "changing").get("dead_letters") or 0)

    until(20, "the first row is stored", lambda: seen() == 1)
    plant.psql("ALTER TABLE changing ALTER COLUMN x TYPE text USING x::text")
    plant.psql("INSERT INTO changing VALUES (2, 'warm')")
    until(20, "a text in place of a number is seen", lambda: seen() == 2)
    expect(plant.last("changing") == 1, "a text in place of a number is a dead letter")
    plant.psql("ALTER TABLE changing RENAME TO away")
    until(20, "the wrapper names the table", lambda: "changing" in str(plant.row("wrappers", "changing").get("reason")))
    plant.psql("ALTER TABLE away RENAME TO changing")
    plant.psql("ALTER TABLE changing RENAME COLUMN x TO y")
    plant.psql("INSERT INTO changing VALUES (3, '2.5')")
    until(40, "a row without the column is seen", lambda: seen() == 3)
    found = [one["values"]["x"] for one in plant.node.elements("changing")]
    expect(found in ([1.5], [1.5, None]), f"after another name of its column each row is stored or a dead letter: {found}")


def refusals(plant: Plant) -> None:
    """What cannot work is named."""
    plant.psql("CREATE TABLE narrow (sequence bigint, id int, writer bigint, n bigint, exact text, x double precision, ok bool, "
               "doc text, raw bytea, note text)")
    common = f'address = "{plant.address()}"\nauthorities = "{plant.work}/tls/{{}}.pem"\n'
    plant.file("exporters", "narrow", f'kind = "postgres"\nstreams = ["plant.readings"]\n{common.format("ca")}table = "narrow"\n')

    def error(table: str, name: str) -> str:
        row = plant.row(table, name)
        return json.dumps([row.get("reason"), row.get("hint"), row.get("error")])

    until(20, "a wrong type is named", lambda: "has type int4, not bigint" in error("exporters", "narrow"))
    expect("ALTER TABLE" in error("exporters", "narrow"), "a column of another type is named, with the statement that repairs it")
    plant.psql("ALTER TABLE narrow ALTER COLUMN id TYPE bigint")
    until(60, "it goes on", lambda: plant.psql("SELECT count(*) FROM narrow") == plant.psql("SELECT count(*) FROM copied"))
    expect(True, "after that statement it goes on, from the first element")
    plant.file("wrappers", "stranger", f'kind = "postgres"\n{common.format("other")}table = "readings"\ncursor = "id"\n'
               '[[stream]]\nname = "stranger"\nfields = [{ name = "n", type = "integer" }]\n')
    until(20, "a stranger is refused", lambda: "ertificate" in error("wrappers", "stranger"))
    expect(plant.last("stranger") == 0, "a server whose certificate another authority signed is refused")
    (plant.work / "node" / "wrappers" / "stranger.toml").unlink()


def browse(plant: Plant) -> None:
    made = subprocess.run([plant.chappe, "wrapper", "browse", plant.address()], capture_output=True, text=True,
                          env={**os.environ, "PGSSLROOTCERT": f"{plant.work}/tls/ca.pem"})
    expect(made.returncode == 0 and "kind = \"postgres\"" in made.stdout and "another table" in made.stdout,
           f"chappe wrapper browse prints the tables {made.stderr}")
    text = made.stdout.replace("kind =", f'authorities = "{plant.work}/tls/ca.pem"\nkind =', 1)
    path = plant.work / "browsed.toml"
    path.write_text(text)
    tried = subprocess.run([plant.chappe, "wrapper", "try", str(path), "--count", "1"], capture_output=True, text=True, timeout=120)
    expect(tried.returncode == 0 and tried.stdout.strip() != "", f"the file that it prints reads rows {tried.stderr}")


def check(chappe: str, work: pathlib.Path) -> None:
    plant = Plant(chappe, work)
    try:
        both_ways(plant)
        odd_values(plant)
        changed_schema(plant)
        refusals(plant)
        browse(plant)
    finally:
        for writer in plant.writers:
            writer.kill()
        plant.node.process.stop()
        plant.server.kill()


def main() -> None:
    chappe, work = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2]).absolute()
    if not glob.glob("/usr/lib/postgresql/*/bin") or not shutil.which("openssl"):
        print("   skipped: not installed: postgresql or openssl")
        return
    run_in(work, lambda: check(chappe, work), (subprocess.SubprocessError, KeyError))
    print("   all passed")


if __name__ == "__main__":
    main()
