"""Broken, endless and costly input: it is refused, or kept as a dead letter with its reason, at bounded memory."""

import gzip
import json
import os
import pathlib
import signal
import socket
import subprocess
import time

import web
from bench import HERE, REST, THERE, Bench, need
from network import CheckFailed, Process, expect, until
from programs import children

# What a node may take more than at its start, for all of this together.
MEMORY_BYTES = 256 << 20
PORT = 9011
NUMBERS = [
    # What is sent, the value that is stored or None, and a part of the reason.
    ('{"n": 9007199254740993}', 9007199254740993, ""),
    ('{"n": -9223372036854775808}', -9223372036854775808, ""),
    ('{"n": 9223372036854775808}', None, "integer"),
    ('{"n": 1.5}', None, "integer"),
    ('{"x": 1e308}', 1e308, ""),
    ('{"x": 1e309}', None, ""),
    ('{"x": NaN}', None, ""),
    ('{"x": "NaN"}', None, "finite"),
    ('{"x": "-inf"}', None, "finite"),
    ('{"n": 1, "at": "1970-01-01T00:00:01Z"}', 1, ""),
    ('{"n": 2, "at": "2099-01-01T00:00:00Z"}', None, "ahead"),
    ('{"n": 3, "at": "9999-12-31T23:59:59Z"}', None, ""),
    ('{"n": 4, "at": "0001-01-01T00:00:00Z"}', None, ""),
    ('{"n": 5', None, ""),
    ('{"n": 6}{"n": 7}', None, ""),
    ("[" * 100_000, None, ""),
]


class Watch:
    """The memory of a node since this watch began."""

    def __init__(self, bench: Bench):
        self.bench, self.begin = bench, bench.node.resident_bytes()

    def judge(self, what: str) -> None:
        more = self.bench.node.resident_bytes("VmHWM:") - self.begin
        expect(more < MEMORY_BYTES, f"{what}: the node took at most {more >> 20} MiB more")


def text_file(bench: Bench, name: str, path: pathlib.Path, more: str = "") -> None:
    bench.wrapper(name, f'kind = "file"\npath = "{path}"\nformat = "json"\npoll_ms = 50\n{more}\n'
                  f'[[stream]]\nname = "{name}"\nfields = [{{ name = "n", type = "integer" }}]\n')


def stored(bench: Bench, stream: str, count: int) -> None:
    until(20, f"{count} elements in {stream}, which has {bench.last(stream)}", lambda: bench.last(stream) >= count)


def broken_files(bench: Bench) -> None:
    path = bench.work / "half.log"
    path.write_text('{"n": 1}\n{"n": 2')
    text_file(bench, "half", path)
    stored(bench, "half", 1)
    time.sleep(0.5)
    expect(bench.numbers("half") == [1], "a line without an end is not read yet")
    with open(path, "a") as file:
        file.write("2}\n")
    stored(bench, "half", 2)
    path.write_text('{"n": 3}\n')
    stored(bench, "half", 3)
    row = bench.row("half")
    is_right = bench.numbers("half") == [1, 22, 3] and "file_replaced" in row["lost"] and not row["dead_letters"]
    expect(is_right, f"a file that is emptied and written again is counted as perhaps lost: {row['lost']}")
    # A name may come to stand for what is no file.
    path.unlink()
    path.mkdir()
    time.sleep(0.5)
    path.rmdir()
    path.write_text('{"n": 4}\n')
    stored(bench, "half", 4)


def sparse_files(bench: Bench) -> None:
    watch = Watch(bench)
    path = bench.work / "huge.log"
    with open(path, "wb") as file:
        file.truncate(100 << 30)
    text_file(bench, "huge-end", path, 'start = "end"')
    text_file(bench, "huge-current", path)
    begun = time.monotonic()
    until(20, "the wrapper is at the end", lambda: (bench.row("huge-end")["reason"] or "").startswith("everything"))
    print(f"   100 GB of zeros: the wrapper is at their end after {time.monotonic() - begun:.1f} s", flush=True)
    with open(path, "ab") as file:
        file.write(b'\n{"n": 1}\n')
    stored(bench, "huge-end", 1)
    letters = bench.letters("huge-end")
    expect(len(letters) == 1 and "too long" in letters[0]["reason"], f"their line is a dead letter: {letters[0]['reason']}")
    (bench.folder / "wrappers" / "huge-current.toml").unlink()
    until(5, "the wrapper that reads all of it is removed",
          lambda: bench.node.ask("GET", "/api/v1/wrappers/huge-current")[0] == 404)
    path.unlink()
    path = bench.work / "large.log"
    with open(path, "wb") as file:
        file.truncate(1 << 30)
        file.seek(0, os.SEEK_END)
        file.write(b'\n{"n": 1}\n')
    text_file(bench, "large", path)
    stored(bench, "large", 1)
    expect(len(bench.letters("large")) == 1, "a line of 1 GB is one dead letter, and the next line is read")
    watch.judge("files of 100 GB")


def bombs(bench: Bench) -> None:
    nginx, watch = web.Nginx(bench, "nginx-bombs"), Watch(bench)
    nginx.prepare()
    bomb = nginx.work / "www" / "bomb"
    with gzip.open(bomb, "wb") as file:
        for _ in range(1 << 10):
            file.write(bytes(1 << 20))
    fine = nginx.work / "www" / "bomb.fine"
    fine.write_bytes(gzip.compress(b'{"n": 1}'))
    nginx.start()
    stream = '[[stream]]\nname = "{name}"\nfields = [{{ name = "n", type = "integer" }}]\n'
    for name, uri in (("bomb", "bomb"), ("fine", "bomb.fine")):
        bench.wrapper(name, f'kind = "http_poll"\naddress = "http://{THERE}:{web.PLAIN}/{uri}"\nperiod_s = 1\n'
                      f'format = "json"\n{stream.format(name=name)}')
    stored(bench, "fine", 1)
    until(20, "trouble", lambda: bench.row("bomb")["state"] == "trouble")
    expect("large" in bench.row("bomb")["reason"] or "limit" in bench.row("bomb")["reason"],
           f"1 GiB in {bomb.stat().st_size >> 10} KiB of gzip from nginx: {bench.row('bomb')['reason']}")
    bench.wrapper("bombed", f'kind = "webhook"\nformat = "json"\n{stream.format(name="bombed")}')
    until(20, "the webhook", lambda: bench.node.ask("GET", "/api/v1/wrappers/bombed")[0] == 200)
    # A node takes no compressed requests.
    for path, wanted in ((bomb, "415"), (fine, "415")):
        done = subprocess.run(bench.far.command(
            "curl", "-s", "-o", str(bench.work / "answer"), "-w", "%{http_code}", "-H", "Content-Encoding: gzip",
            "-H", f"Authorization: Bearer {bench.node.token}", "--data-binary", f"@{path}",
            f"http://{HERE}:{REST}/api/v1/wrappers/bombed/messages"), capture_output=True, text=True, timeout=60)
        expect(done.stdout == wanted, f"curl sends {path.name} with gzip: {done.stdout}")
    watch.judge("bombs")
    nginx.stop()


def numbers(bench: Bench) -> None:
    fields = '[{ name = "n", type = "integer" }, { name = "x", type = "double" }]'
    bench.wrapper("numbers", 'kind = "webhook"\nformat = { json = { time = "$.at" } }\n'
                  f'[[stream]]\nname = "numbers"\nfields = {fields}\n')
    until(20, "the webhook", lambda: bench.node.ask("GET", "/api/v1/wrappers/numbers")[0] == 200)
    wanted, refused = [], 0
    for text, value, reason in NUMBERS:
        status, receipt = bench.node.ask("POST", "/api/v1/wrappers/numbers/messages", text)
        counts = (receipt["elements"], receipt["undecodable"] + receipt["refused"]) if status == 200 else status
        if counts != ((1, 0) if value is not None else (0, 1)):
            raise CheckFailed(f"{text[:60]}: {status} {receipt}")
        if value is None:
            refused += 1
            newest = max(bench.letters("numbers"), key=lambda one: one["number"])
            if reason not in newest["reason"] or newest["text"][:60] != text[:60]:
                raise CheckFailed(f"{text[:60]}: {newest['reason']} {newest['text'][:60]}")
        else:
            wanted.append(value)
    elements = bench.node.elements("numbers")
    found = [one["values"]["n"] if one["values"]["n"] is not None else one["values"]["x"] for one in elements]
    expect(found == wanted, f"{len(wanted)} numbers are stored as they are: {found}")
    expect(elements[-1]["source_time"].startswith("1970-01-01T00:00:01"), "also one of 1970, under its time")
    # What a node shows of a wrapper is a second old.
    until(5, "the counts", lambda: bench.row("numbers")["dead_letters"] == refused)
    expect(bench.row("numbers")["undecodable"] == refused, f"{refused} others are dead letters, each with its reason")
    if pathlib.Path("/usr/bin/sqlite3").exists():
        infinite(bench)


def infinite(bench: Bench) -> None:
    path = bench.work / "numbers.db"
    subprocess.run(["sqlite3", str(path), "CREATE TABLE r (id INTEGER PRIMARY KEY, n INTEGER, x REAL); INSERT INTO r "
                    "VALUES (1, 9007199254740993, 0.1), (2, 2, 9e999), (3, 3, -9e999), (4, 4, NULL)"], check=True)
    bench.wrapper("infinite", f'kind = "sqlite"\npath = "{path}"\ntable = "r"\ncursor = "id"\npoll_ms = 50\n[[stream]]\n'
                  'name = "infinite"\nfields = [{ name = "n", type = "integer" }, { name = "x", type = "double" }]\n')
    stored(bench, "infinite", 2)
    found = [(one["values"]["n"], one["values"]["x"]) for one in bench.node.elements("infinite")]
    letters = bench.letters("infinite")
    is_right = found == [(9007199254740993, 0.1), (4, None)] and all("finite" in one["reason"] for one in letters)
    expect(is_right and len(letters) == 2, f"infinite numbers of sqlite3 are dead letters: {[one['reason'] for one in letters]}")


def statuses(bench: Bench) -> None:
    """What nginx answers decides whether elements are sent again or become dead letters."""
    nginx = web.Nginx(bench)
    nginx.prepare()
    nginx.start()
    bench.node.create("pushed", n="integer")
    status, _ = bench.node.ask("POST", "/api/v1/streams/pushed/elements", [{"n": n} for n in range(3)])
    expect(status == 200, "three elements are written")
    codes = (301, 400, 413, 429, 503)
    for code in codes:
        bench.exporter(f"status-{code}", f'kind = "http_push"\nstreams = ["pushed"]\n'
                       f'address = "http://{THERE}:{web.PLAIN}/status/{code}"\n')
    for code in codes:
        def row(code=code) -> dict:
            return bench.row(f"status-{code}", "exporters")
        if code in (400, 413):
            until(20, f"dead letters after {code}", lambda: row()["dead_letters"] == 3)
            expect(row()["refused"] == 3 and row()["streams"][0]["read"] == 3, f"after {code} they are dead letters")
        else:
            until(20, f"trouble after {code}", lambda code=code: str(code) in (row()["reason"] or ""))
            expect(row()["dead_letters"] == 0, f"after {code} they are sent again: {row()['reason']}")
    nginx.stop()


CHILDREN = {
    # Its script, its keys, the elements that are stored, and a part of the reason of dead letters.
    "stall": ("printf 'n=1\\nn=2'; sleep 1000", 'output = "elements"\nformat = "key_value"', [1], None),
    "long": ("head -c 300000000 /dev/zero; echo; echo n=1; sleep 1000", 'output = "elements"\nformat = "key_value"', [1],
             "too long"),
}


def programs(bench: Bench) -> None:
    watch = Watch(bench)
    stream = '[[stream]]\nname = "{name}"\nfields = [{{ name = "n", type = "integer" }}]\n'
    for name, (script, keys, wanted, reason) in CHILDREN.items():
        (bench.folder / "wrappers" / f"{name}.sh").write_text(script)
        bench.wrapper(name, f'kind = "program"\nprogram = ["sh", "{name}.sh"]\n{keys}\n{stream.format(name=name)}')
        stored(bench, name, len(wanted))
        if reason is not None:
            until(20, f"{name}: a dead letter", lambda name=name: bench.letters(name))
            expect(reason in bench.letters(name)[0]["reason"], f"a child ({name}): {bench.letters(name)[0]['reason']}")
        time.sleep(0.3)
        found = bench.numbers(name)
        expect(set(found) == set(wanted), f"a child ({name}): only its whole lines are elements: {sorted(set(found))}")
        (bench.folder / "wrappers" / f"{name}.toml").unlink()
        until(20, f"{name} has ended", lambda name=name: not children(bench.node.pid, f"{name}.sh"))
    # Floods: with marks that never come, and without.
    (bench.folder / "wrappers" / "flood.sh").write_text("yes '{\"element\":{\"n\":1}}'\n")
    bench.wrapper("unmarked-flood", 'kind = "program"\nprogram = ["sh", "flood.sh"]\nmarks = true\n'
                  + stream.format(name="unmarked-flood"))
    until(20, "the flood without marks is refused", lambda: "without a mark" in (bench.row("unmarked-flood")["reason"] or ""))
    expect(bench.last("unmarked-flood") == 0, bench.row("unmarked-flood")["reason"])
    (bench.folder / "wrappers" / "unmarked-flood.toml").unlink()
    bench.wrapper("flood", 'kind = "program"\nprogram = ["sh", "flood.sh"]\n' + stream.format(name="flood"))
    until(20, "the flood", lambda: bench.last("flood") > 20_000)
    slowest = 0.0
    for _ in range(20):
        begun = time.monotonic()
        bench.node.ask("GET", "/api/v1/wrappers")
        slowest = max(slowest, time.monotonic() - begun)
        time.sleep(0.05)
    print(f"   while a child floods, {bench.last('flood')} elements are stored and an answer takes {slowest * 1000:.0f} ms at most", flush=True)
    (bench.folder / "wrappers" / "flood.toml").unlink()
    until(20, "the flood has ended", lambda: not children(bench.node.pid, "flood.sh"))
    watch.judge("children")


def garbage(bench: Bench) -> None:
    watch = Watch(bench)
    bench.wrapper("garbage", f'kind = "tcp"\nlisten = "{HERE}:{PORT}"\nformat = "json"\nlimits = {{ dead_letters = 100 }}\n'
                  '[[stream]]\nname = "garbage"\nfields = [{ name = "n", type = "integer" }]\n')
    until(20, "it listens", lambda: (bench.row("garbage")["reason"] or "").startswith("no line"))
    lines = 2_000
    with socket.create_connection((HERE, PORT)) as peer:
        for number in range(lines):
            peer.sendall(b"nonsense %d\n" % number)
        peer.sendall(b"x" * (10 << 20) + b"\n" + os.urandom(10_000).replace(b"\n", b" ") + b"\n")
        peer.sendall(b'{"n": 1}\n')
    stored(bench, "garbage", 1)
    until(20, "all are counted", lambda: bench.row("garbage")["undecodable"] >= lines + 2)
    row = bench.row("garbage")
    letters = bench.letters("garbage")
    expect(row["undecodable"] == lines + 2 and len(letters) <= 100, f"{row['undecodable']} lines that are nothing are "
           f"counted, and the last {len(letters)} of them are kept, with reasons such as: {letters[-1]['reason'][:80]}")
    _, answer = bench.node.ask("GET", "/api/v1/drops?reason=undecodable")
    counted = sum(one["count"] for one in answer["drops"] if one["peer"] == "garbage")
    expect(counted == lines + 2, f"the record of drops has all {counted}")
    watch.judge("lines of nonsense, and one of 10 MB")


def check(bench: Bench) -> None:
    need("nginx", "curl", "openssl")
    for one in (broken_files, numbers, programs, garbage, statuses, bombs, sparse_files):
        print(f"   -- {one.__name__.replace('_', ' ')}", flush=True)
        one(bench)
