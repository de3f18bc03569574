"""The node's REST interface under attack: who may ask, what is asked, how long it may take."""

import json
import pathlib
import threading
import time
import urllib.parse

from network import Cable, Process, expect
from web import garbage, slow_peers
from wire import Honest, Web, measured, resident_bytes

TIME_LIMIT_S = 5.0  # limits.query_time_ms
# What the limits of one query allow: 64 MiB for joins and sorting, of which a query holds at most a quarter more than
# estimated, and 16 MiB of an answer; and what the allocator keeps of both.
QUERIES_GROWTH_MAX = 192 << 20
NEIGHBOUR_MAX_MS = 1_500
# A heavy query ends by its steps within a tenth of a second: some seconds of them overlap for certain.
HEAVY_S = 3.0

SQL = [
    "ATTACH DATABASE '/tmp/chappe-hostile.db' AS x", "SELECT load_extension('/tmp/x.so')",
    "SELECT readfile('/etc/passwd')", "SELECT writefile('/tmp/chappe-hostile.db', 'x')", "SELECT edit('x')",
    "VACUUM INTO '/tmp/chappe-hostile.db'", "PRAGMA database_list", "PRAGMA journal_mode=DELETE",
    "PRAGMA temp_store_directory='/tmp'", "SELECT * FROM pragma_database_list", "CREATE TABLE t(x)",
    "CREATE TEMP TABLE t AS SELECT 1", "CREATE VIRTUAL TABLE t USING fts5(x)", "DROP TABLE sqlite_master",
    "DELETE FROM sqlite_master", "INSERT INTO sqlite_master VALUES (1)", "UPDATE sqlite_master SET sql='x'",
    "SELECT 1; ATTACH DATABASE '/tmp/chappe-hostile.db' AS x", "BEGIN", "COMMIT", "REINDEX", "ANALYZE", "EXPLAIN",
    "SELECT * FROM sqlite_dbpage", "SELECT * FROM dbstat", "SELECT fts3_tokenizer('simple')",
    "DETACH DATABASE main", "SELECT * FROM '/etc/passwd'", "SELECT", "", ";", "\0", "SELECT '", "SELECT ?1000000",
    "WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM r) SELECT count(*) FROM r",
    "WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM r) SELECT x FROM r ORDER BY x DESC",
    "WITH RECURSIVE r(x) AS (SELECT 'a' UNION ALL SELECT x||x FROM r) SELECT max(length(x)) FROM r",
    "WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM r LIMIT 100000) SELECT count(*) FROM r a, r b, r c",
    "SELECT length(zeroblob(2000000000))", "SELECT length(randomblob(1000000000))", "SELECT hex(zeroblob(500000000))",
    "SELECT printf('%.*c', 1000000000, 'x')", "SELECT printf('%2000000000d', 1)",
    "SELECT replace(hex(zeroblob(100000)), '0', hex(zeroblob(100000)))",
    "WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM r) SELECT group_concat(hex(zeroblob(10000))) FROM r",
    "SELECT '" + "a" * 20_000 + "' LIKE '" + "%a" * 5_000 + "%b'", "SELECT '" + "a" * 50_000 + "' GLOB '" +
    "*a" * 200 + "*b'", "SELECT " + "(" * 5_000 + "1" + ")" * 5_000, "SELECT " + "+".join(["1"] * 50_000),
    "SELECT " + ",".join(["1"] * 50_000), "SELECT " + " UNION ALL SELECT ".join(["1"] * 5_000),
    "SELECT * FROM " + ",".join(f"(SELECT 1) t{n}" for n in range(200)), "SELECT " + "NOT " * 50_000 + "1",
    "SELECT json('" + "[" * 100_000 + "')", "SELECT '" + "x" * 900_000 + "'", "SELECT abs(-9223372036854775808)",
    "SELECT count(*) FROM " + ", ".join(f"(VALUES{','.join(f'({n})' for n in range(30))}) t{n}" for n in range(10)),
    "SELECT group_concat(a.column1) FROM " + ", ".join(
        f"(VALUES{','.join(f'({n})' for n in range(30))}) {t}" for t in "abcdefgh"),
    "SELECT CASE " + "WHEN 0 THEN 1 " * 50_000 + "END", "SELECT " + "-" * 50_000 + "1", "SELECT 1 -- " + "\n" * 50_000,
]

HEAVY = "SELECT (COUNT(*) AS ?n) WHERE { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i . ?j ?k ?l . ?m ?n1 ?o . ?p ?q ?r }"
SPARQL = [
    "SELECT * WHERE { SERVICE <http://127.0.0.1:9/> { ?s ?p ?o } }",
    "SELECT * WHERE { SERVICE SILENT <http://169.254.169.254/> { ?s ?p ?o } }",
    "SELECT * FROM <http://127.0.0.1:9/x> WHERE { ?s ?p ?o }", "SELECT * FROM NAMED <file:///etc/passwd> WHERE { ?s ?p ?o }",
    "LOAD <file:///etc/passwd>", "LOAD <http://127.0.0.1:9/>", "INSERT DATA { <urn:a> <urn:b> <urn:c> }",
    "DELETE WHERE { ?s ?p ?o }", "DROP ALL", "CLEAR ALL", "CREATE GRAPH <urn:g>",
    "CONSTRUCT { ?s ?p ?o } WHERE { ?s ?p ?o }", "DESCRIBE ?s WHERE { ?s ?p ?o }", "", "SELECT", "\0", "ASK { ?s ?p",
    HEAVY, HEAVY.replace("(COUNT(*) AS ?n)", "*"), HEAVY.replace("SELECT (COUNT(*) AS ?n)", "ASK").replace(
        "?q ?r }", "?q ?r FILTER(false) }"),
    "SELECT (GROUP_CONCAT(?c) AS ?n) WHERE { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i . ?j ?k ?l . ?m ?n1 ?o }",
    "SELECT DISTINCT * WHERE { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i . ?j ?k ?l . ?m ?n1 ?o } ORDER BY ?a ?d ?g ?j ?m",
    "SELECT * WHERE { ?a (!<urn:x>|^!<urn:x>)* ?b . ?c (!<urn:x>|^!<urn:x>)* ?d . ?e (!<urn:x>|^!<urn:x>)* ?f }",
    "SELECT * WHERE { ?s ?p ?o FILTER(REGEX(?o, \"" + "(a*)*" * 200 + "b\")) }",
    "SELECT * WHERE { ?s ?p ?o FILTER(REGEX(?o, \"" + "a{1000}" * 20 + "\")) }",
    "SELECT * WHERE { ?s ?p ?o FILTER(REGEX(?o, \"((a{100}){100}){100}\")) }",
    "SELECT * WHERE " + "{" * 20_000 + "}" * 20_000,
    "SELECT * WHERE { ?s ?p ?o FILTER(" + "(" * 20_000 + "1" + ")" * 20_000 + ") }",
    "SELECT * WHERE { ?s ?p ?o FILTER(" + "!" * 100_000 + "true) }",
    "ASK { FILTER(" + "!(" * 20 + "1" + ")" * 20 + ") }",
    "SELECT * WHERE { ?s ?p ?o FILTER(" + "+".join(["1"] * 50_000) + " = 1) }",
    "SELECT * WHERE { ?s ?p ?o " + "OPTIONAL { ?s ?p ?o " * 5_000 + "}" * 5_000 + "}",
    "SELECT * WHERE { " + " UNION ".join(["{ ?s ?p ?o }"] * 5_000) + " }",
    "SELECT * WHERE { " + "?s ?p ?o . " * 20_000 + "}", "SELECT * WHERE { ?s " + "(" * 10_000 + "<urn:a>" +
    ")" * 10_000 + " ?o }", "SELECT * WHERE { ?s " + "^" * 50_000 + "<urn:a> ?o }",
    "SELECT * WHERE { VALUES ?x { " + "1 " * 100_000 + "} ?s ?p ?o . ?a ?b ?c . ?d ?e ?f }",
    "SELECT * WHERE { " + "[" * 20_000 + "]" * 20_000 + " ?p ?o }", "SELECT * WHERE { ?s ?p " + "(" * 20_000 + ")" * 20_000 + " }",
    "SELECT (SHA512(CONCAT(" + ",".join(["?o"] * 20_000) + ")) AS ?h) WHERE { ?s ?p ?o }",
    "SELECT (" + "STR(" * 20_000 + "?o" + ")" * 20_000 + " AS ?x) WHERE { ?s ?p ?o }",
    "SELECT * WHERE { { SELECT * WHERE " * 2_000 + "{ ?s ?p ?o }" + "}" * 2_000,
    "SELECT * WHERE { BIND(REPLACE(\"" + "a" * 100_000 + "\", \"a\", \"" + "b" * 10_000 + "\") AS ?x) }",
]


class Rest:
    """The REST interface of the node under attack."""

    def __init__(self, cable: Cable, process: Process, address: str, token: str):
        self.host, self.port = address.removeprefix("http://").split(":")
        self.process, self.token = process, token
        self.web = Web(cable.names["A"], self.host, int(self.port))
        self.cable = cable

    def get(self):
        return self.web.ask("GET", "/api/v1/node")

    def sql(self, text: str):
        body = json.dumps({"sql": text}).encode()
        return self.web.ask("POST", "/api/v1/streams/query", body, Content_Type="application/json")

    def sparql(self, text: str):
        body = text.encode()
        return self.web.ask("POST", "/api/v1/sparql", body, Content_Type="application/sparql-query")

    def alive(self) -> None:
        if self.process.process.poll() is not None:
            expect(False, f"the node lives (it ended with {self.process.process.returncode})")


def problem(what: str, answer: tuple[int, dict, bytes], *statuses: int) -> None:
    """The request was refused with this status, in the standard form of errors."""
    status, headers, body = answer
    shape = headers.get("content-type", "").startswith("application/problem+json")
    document = json.loads(body) if shape and body else {}
    if status not in statuses or not shape or not document.get("detail"):
        expect(False, f"{what} ends with a problem of {statuses}, not {status} {headers} {body[:300]}")


def admission(rest: Rest) -> None:
    ask, host = rest.web.ask, f"{rest.host}:{rest.port}"
    bearer = {"Authorization": f"Bearer {rest.token}"}
    for name in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "localhost.evil.example",
                 "[::1].evil.example", "user@evil.example", "evil.example#127.0.0.1", "0x7f000001.evil"):
        lines = f"Host: {name}\r\n" if name else ""
        answer = rest.web.raw(f"GET /api/v1/node HTTP/1.1\r\n{lines}Connection: close\r\n\r\n".encode())
        problem(f"Host {name!r}", answer, 421, 400)
    two = rest.web.raw(f"GET /api/v1/node HTTP/1.1\r\nHost: {host}\r\nHost: evil.example\r\n\r\n".encode())
    problem("two Hosts", two, 421, 400)
    for origin in ("http://evil.example", "null", f"http://{rest.host}:1", f"https://{host}.evil.example", "file://",
                   f"http://user@{host}", f"http://{host}/"):
        problem(f"Origin {origin}", ask("GET", "/api/v1/node", Origin=origin), 403)
        problem(f"PUT of {origin}", ask("PUT", "/api/v1/virtual-sensors/x", b"a=1", Origin=origin, **bearer), 403)
    problem("another site's script", ask("GET", "/api/v1/node", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="no-cors"), 403)
    for method in ("PUT", "DELETE"):
        for credential in ("", "Bearer wrong", "Basic Og==", "Bearer ", f"Bearer {rest.token}x", f"Bearer {rest.token[:-1]}",
                           "Bearer " + "A" * 20_000):
            headers = {"Authorization": credential} if credential else {}
            problem(f"{method} with {credential[:20]!r}", ask(method, "/api/v1/virtual-sensors/x", b"name='x'", **headers), 401)
    absolute = f"GET http://evil.example/api/v1/node HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()
    problem("a target at another host", rest.web.raw(absolute), 421)
    for method in ("TRACE", "CONNECT", "OPTIONS", "PATCH", "POST", "PUT", "DELETE", "BREW"):
        answer = ask(method, "/api/v1/node", Origin="http://evil.example")
        if answer[0] < 400 or any(name.startswith("access-control-allow") for name in answer[1]):
            expect(False, f"{method} of another origin is refused, not {answer[:2]}")
    expect(True, "wrong Host, foreign Origin and missing or wrong token are refused with their reason")


def paths(rest: Rest, folder: pathlib.Path) -> None:
    bearer = {"Authorization": f"Bearer {rest.token}"}
    before = sorted(str(path) for path in folder.rglob("*.toml"))
    tricks = ["/../../../../etc/passwd", "/%2e%2e/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd", "/..%2f..%2fetc%2fpasswd",
              "/assets/../../../etc/passwd", "/assets/..%2f..%2f..%2fetc%2fpasswd", "/%00", "/api/v1/%00",
              "/api/v1/devices/%ff%fe", "/api/v1/devices/..%2f..%2f", "/api/v1/streams/%2e%2e%2fkey.pem/elements",
              "/api/v1//node", "/api/v1/../../key.pem", "/key.pem", "/token", "/.git/config", "/" + "a/" * 8_000,
              "/api/v1/entities/" + "%41" * 5_000, "/\\..\\..\\etc\\passwd", "/%5c..%5c"]
    for target in tricks:
        status, headers, body = rest.web.ask("GET", target)
        if (status < 400 and "text/html" not in headers.get("content-type", "")) or b"root:" in body or b"PRIVATE" in body:
            expect(False, f"{target[:60]} gives nothing, not {status} {body[:100]}")
    names = ["..%2f..%2fhostile", "%2e%2e", ".", "%2fetc%2fhostile", "a%00b", "a%2fb", "%20", "a" * 300, "con%0d%0aX:%20y",
             "..%5chostile", "%ff", "-", "a.toml%2f..%2fb"]
    for name in names:
        answer = rest.web.ask("PUT", f"/api/v1/virtual-sensors/{name}", b"[[source]]\n", **bearer)
        if not 400 <= answer[0] < 500:
            expect(False, f"a virtual sensor named {name[:30]!r} is refused, not {answer[0]} {answer[2][:200]}")
    after = sorted(str(path) for path in folder.rglob("*.toml"))
    expect(before == after, f"{len(tricks)} tricks with paths read nothing, {len(names)} with names wrote nothing")


def parameters(rest: Rest) -> None:
    ask, long = rest.web.ask, "A" * 20_000
    for target in (f"/api/v1/entities?prefix={long}", f"/api/v1/entities?scope={long}", "/api/v1/entities?limit=-1",
                   "/api/v1/entities?limit=99999999999999999999", "/api/v1/entities?limit=18446744073709551615",
                   "/api/v1/entities?nothing=1", "/api/v1/entities?kind=" + long, "/api/v1/entities?prefix=%ff",
                   "/api/v1/entities?" + "&".join(["prefix=a"] * 2_000), "/api/v1/streams/x/elements?newest=99999999999",
                   "/api/v1/streams/x/elements?after=zzz", "/api/v1/live?streams=" + ",".join(["x"] * 5_000)[:20_000] + "&a=b"):
        answer = ask("GET", target)
        if answer[0] != 200:
            problem(target[:60], answer, 400, 404, 414, 431)
    for body in (b"", b"{", b"[" * 500_000, b'{"sql":1}', b'{"sql":"SELECT 1","x":1}', b'{"sql":"SELECT 1","limit":-1}',
                 b'{"sql":"SELECT 1","limit":1e999}', b'{"sql":"\\ud800"}', b"\xff\xfe", b'{"a":' * 100_000, b"null",
                 b'{"sql":"a","sql":"b"}'):
        problem(f"JSON {body[:20]!r}", ask("POST", "/api/v1/streams/query", body, Content_Type="application/json"), 400)
    large = b'{"sql":"' + b"a" * (2 << 20) + b'"}'
    answer = ask("POST", "/api/v1/streams/query", large, Content_Type="application/json")
    if answer[0]:  # closed in the middle of the body is as good
        problem("a body of 2 MiB", answer, 413)
    expect(True, "odd parameters and bodies end with a clear problem")


def queries(rest: Rest) -> None:
    memory = resident_bytes(rest.process.process.pid)
    neighbour = Honest(rest.get)
    for name, ask, texts in (("SQL", rest.sql, SQL), ("SPARQL", rest.sparql, SPARQL)):
        statuses: dict[int, int] = {}
        slowest, which = 0.0, ""
        for text in texts:
            start = time.monotonic()
            answer = ask(text)
            took = time.monotonic() - start
            rest.alive()
            statuses[answer[0]] = statuses.get(answer[0], 0) + 1
            if took > slowest:
                slowest, which = took, text
            if answer[0] != 200:
                problem(f"{name} {text[:60]!r}", answer, 400, 403, 413)
            elif b"root:" in answer[2]:
                expect(False, f"{name} {text[:60]!r} reads a file")
        measured(f"{name}: {len(texts)} hostile queries, by status", statuses)
        measured(f"{name}: the slowest", f"{slowest:.2f} s: {which[:60]!r}")
        expect(slowest <= TIME_LIMIT_S + 2, f"hostile {name} ends within its time")
    asked, late = neighbour.stop()
    growth = resident_bytes(rest.process.process.pid) - memory
    measured("p99 of a neighbour's requests beside them", f"{late:.1f} ms ({asked} asked)")
    measured("memory after hostile queries", f"{growth >> 10} KiB")
    expect(not neighbour.failures and late <= NEIGHBOUR_MAX_MS, "and a neighbour's requests go on")
    expect(growth <= QUERIES_GROWTH_MAX, f"with less than {QUERIES_GROWTH_MAX >> 20} MiB kept")
    expect(not pathlib.Path("/tmp/chappe-hostile.db").exists(), "and no file was written")


def at_once(rest: Rest) -> None:
    """More heavy queries than may run: the excess ones are asked to retry, and reads continue."""
    answers: list[tuple[int, dict, bytes]] = []
    end = time.monotonic() + HEAVY_S

    def ask() -> None:
        while time.monotonic() < end:
            answers.append(rest.sparql(HEAVY))

    threads = [threading.Thread(target=ask) for _ in range(16)]
    neighbour = Honest(rest.get)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    asked, late = neighbour.stop()
    busy = sum(answer[0] == 503 for answer in answers)
    measured("sixteen at a time that ask heavy queries",
             f"{busy} of {len(answers)} told to come again; a neighbour's p99 {late:.1f} ms ({asked} asked)")
    expect(not neighbour.failures and late <= NEIGHBOUR_MAX_MS and busy > 0, "heavy queries at once are bounded")
    problem("the one too many", next(a for a in answers if a[0] == 503), 503)


def check(cable: Cable, rest: Rest, folder: pathlib.Path) -> None:
    pid = rest.process.process.pid
    admission(rest)
    paths(rest, folder)
    parameters(rest)
    garbage("node", rest.web, "/api/v1/sparql", rest.get, pid)
    attackers = [Web(cable.names["A"], rest.host, int(rest.port), f"127.0.0.{n}") for n in range(2, 14)]
    slow_peers("node", attackers, "/api/v1/sparql", rest.get, pid)
    queries(rest)
    at_once(rest)
    expect(rest.web.ask("GET", "/health" + urllib.parse.quote(""))[0] == 200, "the node is well")
