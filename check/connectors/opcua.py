"""`opcua`: servers built with asyncua, whose history survives a kill, and with node-opcua, at the other end of the cable.

    python check/connectors/opcua.py CHAPPE WORK     with a Python that has asyncua
    NODE_PATH=…                                      where node-opcua is, for that part

1. values:   types, units, statuses, and values that do not fit, compared with what asyncua holds.
2. security: policies and modes with certificates made by openssl, a user; a wrong fingerprint and an expired certificate.
3. overflow: a queue of the server that overflows is counted.
4. browse:   the printed file has the variables, and `try` reads with it.
5. kills:    the node and each server are killed in turn (CONNECTORS_KILLS, 3 by default), and the cable is cut: with history,
             the numbers in a stream are those in the history of the server, each once and in order.

Runs as root on Linux, in namespaces of its own: what it started ends with it.
"""

import datetime
import hashlib
import http.client
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

sys.dont_write_bytecode = True
FOLDER = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER), str(FOLDER.parent / "wrappers"), str(FOLDER.parent)]
from bench import THERE, Bench, Skipped, judge, lines_of, need  # noqa: E402
from network import CheckFailed, Process, enter, expect, run_in, until  # noqa: E402

INSIDE = "CHAPPE_CONNECTORS_OPCUA"
KILLS = int(os.environ.get("CONNECTORS_KILLS") or 3)
CUT_S = 60 if KILLS >= 20 else 3
POLICIES = ("Basic256Sha256", "Aes128_Sha256_RsaOaep", "Aes256_Sha256_RsaPss")

VALUES = """
[[nodes]]
stream_name = "values"
fields = [
    { name = "small", node = "ns=2;s=small", type = "integer" },
    { name = "exact", node = "/Objects/2:Plant 1/2:exact", type = "integer" },
    { name = "huge", node = "ns=2;s=huge", type = "integer" },
    { name = "rounded", node = "ns=2;s=exact", type = "double" },
    { name = "single", node = "ns=2;s=single", type = "double" },
    { name = "on", node = "ns=2;s=on", type = "boolean" },
    { name = "name", node = "ns=2;s=name", type = "text" },
    { name = "label", node = "ns=2;s=label", type = "text" },
    { name = "since", node = "ns=2;s=since", type = "text" },
    { name = "guid", node = "ns=2;s=guid", type = "text" },
    { name = "bytes", node = "ns=2;s=bytes", type = "bytes" },
    { name = "wave", node = "ns=2;s=wave", type = "samples", period_ns = 1000 },
    { name = "warm", node = "ns=2;s=warm", type = "double" },
    { name = "doubted", node = "ns=2;s=doubted", type = "double" },
    { name = "broken", node = "ns=2;s=broken", type = "double" },
    { name = "large", node = "ns=2;s=large", type = "text" },
    { name = "changing", node = "ns=2;s=text", type = "double" },
    { name = "nowhere", node = "ns=2;s=nowhere", type = "double" },
]
"""
EXPECTED = {"small": -5, "exact": 2**53 + 1, "single": 1.5, "on": True, "name": "pump 7 µ", "label": "open",
            "since": "2026-01-02T03:04:05.6Z", "guid": "72962b91-fa75-4ae6-8d28-b404dc7daf63", "warm": 21.5, "doubted": 3.0,
            "changing": 1.0}


class Server:
    """A server, which is started again after it was killed."""

    def __init__(self, bench: Bench, name: str, port: int, command: list[str], state: pathlib.Path, node: str):
        self.bench, self.name, self.port, self.node, self.kills = bench, name, port, node, 0
        self.command, self.state = command, state
        self.address = f"opc.tcp://{THERE}:{port}"
        self.stream = f"{name}.count"
        self.start()

    def start(self) -> None:
        log = self.bench.work / f"{self.name}-{self.kills}.log"
        self.process = Process(self.bench.far.command(*self.command), log)
        self.process.wait_line("ready", 60)

    def kill(self, pause_s: float) -> None:
        self.process.stop(signal.SIGKILL)
        self.kills += 1
        time.sleep(pause_s)
        self.start()

    def follow(self) -> None:
        self.bench.wrapper(f"{self.name}-count", f"""
kind = "opcua"
endpoint = "{self.address}"
history = true
publishing_ms = 200
sampling_ms = 50
[[nodes]]
stream_name = "{self.stream}"
fields = [{{ name = "n", node = "{self.node}", type = "integer" }}]
""")

    def turn(self) -> None:
        before = self.bench.last(self.stream)
        until(90, f"values of {self.name} arrive again", lambda: self.bench.last(self.stream) > before)


def asyncua(bench: Bench) -> Server:
    journal = bench.work / "asyncua-journal"
    command = [sys.executable, str(FOLDER / "opcua_server.py"), THERE, "4840", str(journal)]
    return Server(bench, "asyncua", 4840, command, journal, "ns=2;s=count")


def node_opcua(bench: Bench) -> Server:
    need("node")
    folder = bench.work / "node-opcua-files"
    folder.mkdir()
    found = subprocess.run(["node", "-e", "require('node-opcua')"], capture_output=True)
    if found.returncode:
        raise Skipped("node-opcua is not in NODE_PATH")
    command = ["node", str(FOLDER / "opcua_server.js"), THERE, "4841", str(folder / "state"), str(folder)]
    return Server(bench, "node-opcua", 4841, command, folder / "state", "ns=1;s=count")


def last_of(server: Server) -> int:
    if server.name == "asyncua":
        return int(lines_of(server.state)[-1].split()[0])
    return int(server.state.read_text())


def merged(bench: Bench) -> dict:
    """The newest value of each field."""
    found = {}
    for one in bench.node.elements("values") if bench.last("values") else []:
        found |= {name: value for name, value in one["values"].items() if value is not None}
    return found


def values(bench: Bench, server: Server) -> None:
    bench.wrapper("opcua-values", f'kind = "opcua"\nendpoint = "{server.address}"\n{VALUES}')
    until(30, "values arrive", lambda: set(EXPECTED) <= set(merged(bench)))
    bench.at_rest("values")
    elements, found = bench.node.elements("values"), merged(bench)
    wrong = {name: found.get(name) for name, value in EXPECTED.items()
             if found.get(name) != value or type(found.get(name)) is not type(value)}
    expect(not wrong, f"{len(EXPECTED)} values are those of asyncua {wrong or ''}")
    wave = found.get("wave") or {}
    expect(wave.get("values") == [1.0, 2.5, -3.0] and wave.get("period_s") == 1e-6, f"an array is a row of samples: {wave}")
    qualities = sorted(one["quality"] for one in elements if one["quality"] != "good")
    expect(qualities == ["bad", "questionable"], f"a bad and an uncertain value have their quality: {qualities}")
    reasons = sorted(letter["reason"] for letter in bench.letters("opcua-values"))
    expect(len(reasons) == 3 and all(f'"{name}"' in " ".join(reasons) for name in ("huge", "rounded", "large")),
           f"what does not fit is a dead letter that names its node: {reasons}")
    status, stream = bench.node.ask("GET", "/api/v1/streams/values")
    fields = {field["name"]: field.get("unit") for field in stream["fields"]}
    expect(status == 200 and fields["warm"] == "Cel", f"the unit of the server is taken: {fields['warm']}")
    until(20, "the row names the node that is not there", lambda: "ns=2;s=nowhere" in (bench.row("opcua-values")["reason"] or ""))
    write(server, "switch", 1)
    until(20, "a value of another type is a dead letter",
          lambda: any('"changing"' in letter["reason"] for letter in bench.letters("opcua-values")))
    (bench.folder / "wrappers" / "opcua-values.toml").unlink()


def write(server: Server, name: str, value: int) -> None:
    script = (f"import asyncio\nfrom asyncua import Client, ua\nasync def main():\n"
              f"    async with Client('{server.address}') as client:\n"
              f"        await client.get_node('ns=2;s={name}').write_value(ua.Variant({value}, ua.VariantType.Int32))\n"
              f"asyncio.run(main())")
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)


def certificate(folder: pathlib.Path, name: str, uri: str) -> tuple[pathlib.Path, pathlib.Path]:
    der, key = folder / f"{name}.der", folder / f"{name}.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-sha256", "-days", "30", "-subj", f"/CN={name}",
                    "-addext", f"subjectAltName=URI:{uri},IP:{THERE}", "-outform", "der", "-out", str(der), "-keyout", str(key)],
                   check=True, capture_output=True)
    return der, key


def expired(folder: pathlib.Path, key: pathlib.Path) -> pathlib.Path:
    """A certificate whose time is over, with the key of another."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    private = serialization.load_pem_private_key(key.read_bytes(), None)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "expired")])
    now = datetime.datetime.now(datetime.timezone.utc)
    made = (x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(private.public_key())
            .serial_number(7).not_valid_before(now - datetime.timedelta(days=2)).not_valid_after(now - datetime.timedelta(days=1))
            .add_extension(x509.SubjectAlternativeName([x509.UniformResourceIdentifier("urn:plant")]), False)
            .sign(private, hashes.SHA256()))
    path = folder / "expired.der"
    path.write_bytes(made.public_bytes(serialization.Encoding.DER))
    return path


def security(bench: Bench) -> None:
    need("openssl")
    folder = bench.work / "certificates"
    folder.mkdir()
    der, key = certificate(folder, "server", "urn:plant")
    own, own_key = certificate(folder, "client", "urn:client")
    (folder / "password").write_text("secret\n")
    (folder / "wrong").write_text("other\n")
    fingerprint = hashlib.sha256(der.read_bytes()).hexdigest()
    command = [sys.executable, str(FOLDER / "opcua_server.py"), THERE, "4842", str(bench.work / "secure-journal"), str(der), str(key)]
    server = Server(bench, "secure", 4842, command, bench.work / "secure-journal", "ns=2;s=count")
    cases = [(policy, mode, "", True) for policy in POLICIES for mode in ("Sign", "SignAndEncrypt")]
    user = f'user = "plant"\npassword_file = "{folder}/%s"\n'
    cases += [("Basic256Sha256", "SignAndEncrypt", user % "password", True), ("Basic256Sha256", "SignAndEncrypt", user % "wrong", False)]
    for number, (policy, mode, more, is_right) in enumerate(cases):
        # Those of the program itself, and those of openssl.
        files = f'certificate = "{own}"\nkey_file = "{own_key}"\n' if number % 2 else ""
        known = f'server_certificate = "{der}"' if number % 3 else f'server_fingerprint = "{fingerprint}"'
        name, what = f"secure-{number}", f"{policy} {mode}{' with a user' if more else ''}"
        secure(bench, name, server, f'security_policy = "{policy}"\nsecurity_mode = "{mode}"\n{known}\n{files}{more}')
        if is_right:
            until(60, f"{what}: values arrive", lambda name=name: bench.last(name) > 2)
            judge(f"opcua ({what})", bench.numbers(name), first=bench.numbers(name)[0])
        else:
            until(60, f"{what} and a wrong password: refused",
                  lambda name=name: "Bad" in (bench.row(name)["reason"] or "") and bench.last(name) == 0)
        (bench.folder / "wrappers" / f"{name}.toml").unlink()
    policy = 'security_policy = "Basic256Sha256"\n'
    secure(bench, "secure-other", server, f'{policy}server_fingerprint = "{"0" * 64}"\n')
    until(30, "another certificate than the known one: refused",
          lambda: fingerprint in (bench.row("secure-other")["reason"] or "") and bench.last("secure-other") == 0)
    server.process.stop(signal.SIGKILL)
    old = expired(folder, key)
    server.command[-2] = str(old)
    server.kills += 1
    server.start()
    secure(bench, "secure-old", server, f'{policy}server_certificate = "{old}"\n')
    until(30, "an expired certificate: refused", lambda: "expired" in (bench.row("secure-old")["reason"] or ""))
    expect(bench.last("secure-old") == 0, "nothing of it is stored")
    for name in ("secure-other", "secure-old"):
        (bench.folder / "wrappers" / f"{name}.toml").unlink()
    server.process.stop(signal.SIGKILL)


def secure(bench: Bench, name: str, server: Server, text: str) -> None:
    bench.wrapper(name, f"""
kind = "opcua"
endpoint = "{server.address}"
publishing_ms = 200
sampling_ms = 50
{text}
[[nodes]]
stream_name = "{name}"
fields = [{{ name = "n", node = "{server.node}", type = "integer" }}]
""")


def overflow(bench: Bench, server: Server) -> None:
    bench.wrapper("opcua-overflow", f"""
kind = "opcua"
endpoint = "{server.address}"
publishing_ms = 2000
sampling_ms = 50
queue_size = 3
[[nodes]]
stream_name = "overflow"
fields = [{{ name = "n", node = "ns=1;s=fast", type = "integer" }}]
""")
    until(40, "a queue that overflows is counted", lambda: "overflow" in (bench.row("opcua-overflow")["lost"] or {}))
    (bench.folder / "wrappers" / "opcua-overflow.toml").unlink()


def browse(bench: Bench, chappe: str, server: Server, wanted: list[str]) -> None:
    done = subprocess.run([chappe, "wrapper", "browse", server.address], capture_output=True, text=True)
    missing = [text for text in wanted if text not in done.stdout]
    expect(done.returncode == 0 and not missing, f"browse lists the variables of {server.name} {missing or ''} {done.stderr.strip()[:200]}")
    file = bench.work / f"browsed-{server.name}.toml"
    file.write_text(done.stdout)
    tried = subprocess.run([chappe, "wrapper", "try", str(file), "--count", "3"], capture_output=True, text=True)
    # Values that do not fit are told, and are its exit code.
    misfits = [name for name in ("huge", "large") if f'undecodable: "{name}"' in tried.stderr]
    expect(tried.returncode == (1 if misfits else 0) and '"count"' in tried.stdout, f"try reads with it {tried.stdout[-200:]} {tried.stderr.strip()[:300]}")


def kills(bench: Bench, servers: list[Server]) -> None:
    for server in servers:
        server.follow()
    for server in servers:
        server.turn()
    for number in range(KILLS):
        bench.kill_node(bench.chance.uniform(0, 0.5))
        for server in servers:
            server.kill(bench.chance.uniform(0, 0.5))
        for server in servers:
            server.turn()
        print(f"   round {number + 1} of {KILLS}: the node and each server killed", flush=True)
    bench.far.cut(CUT_S)
    for server in servers:
        server.turn()
    bench.kill_node()
    for server in servers:
        server.turn()
        wanted = last_of(server)
        until(60, f"{server.stream} keeps up", lambda server=server, wanted=wanted: (bench.numbers(server.stream) or [0])[-1] >= wanted)
        found = bench.numbers(server.stream)
        # The history of node-opcua is in memory: what was not passed on at a kill is gone with it, and it starts with its last
        # number, at a new time.
        gaps = 0 if server.name == "asyncua" else server.kills
        judge(f"opcua ({server.name}), {server.kills} kills of it and {bench.node_kills} of the node, {CUT_S} s of cut cable", found,
              gaps_max=gaps, doubles_max=gaps, first=found[0])


def check(chappe: str, work: pathlib.Path, seed: int) -> None:
    bench = Bench(chappe, work / "opcua", seed)
    try:
        servers = []
        for make in (asyncua, node_opcua):
            try:
                servers.append(make(bench))
            except Skipped as reason:
                print(f"   skipped: {make.__name__}: {reason}", flush=True)
        print("-- values", flush=True)
        values(bench, servers[0])
        print("-- browse", flush=True)
        for server in servers:
            wanted = ['unit = "Cel"', "range -20 to 60", "ns=2;s=wave"] if server.name == "asyncua" else ["ns=1;s=fast"]
            browse(bench, chappe, server, ["ns=", *wanted])
        print("-- security", flush=True)
        try:
            security(bench)
        except Skipped as reason:
            print(f"   skipped: {reason}", flush=True)
        print("-- overflow", flush=True)
        for server in servers[1:]:
            overflow(bench, server)
        print("-- kills", flush=True)
        kills(bench, servers)
    finally:
        bench.end()


def main() -> None:
    chappe, work = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2]).absolute()
    try:
        import asyncua  # noqa: F401
    except ImportError:
        print("   skipped: this Python has no asyncua")
        sys.exit()
    enter(INSIDE, sys.argv)
    seed = int(os.environ.get("CONNECTORS_SEED") or random.randrange(1 << 32))
    print(f"   seed: {seed}", flush=True)
    failures = (CheckFailed, http.client.HTTPException, subprocess.SubprocessError, KeyError)
    run_in(work, lambda: check(chappe, work, seed), failures, f", CONNECTORS_SEED={seed}")


if __name__ == "__main__":
    main()
