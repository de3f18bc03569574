"""Mistakes of operators: each ends with exit code 2 (78: a wrong configuration of a node), one clear error and a `hint:`."""

import os
import pathlib
import subprocess
import time

from network import Cable, expect
from wire import measured

NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]

NODE_FILES = {
    "not TOML": "= nothing",
    "half a table": "[http",
    "a key twice": "name = 'a'\nname = 'b'",
    "no UTF-8": b"name = '\xff'",
    "an unknown key": "listen = '127.0.0.1:0'",
    "a misspelt key": "[http]\nlistn = '127.0.0.1:0'",
    "an unknown table": "[htp]\n",
    "a text for a number": "[http]\nmax_connections = 'many'",
    "a number out of range": "[http]\nmax_connections = 1",
    "a negative number": "[limits]\nquery_rows = -5",
    "a number beyond 64 bits": "[log]\nsegment_bytes = 99999999999999999999",
    "no address": "[http]\nlisten = 'localhost'",
    "an unknown word": "[access]\nread = 'opn'",
    "no prefix": "[discovery]\ncontact = ['10.0.0.0/99']",
    "an open door": "[http]\nlisten = '0.0.0.0:0'",
    "a structure of the future": "schema_version = 9",
    "a list for a table": "http = []",
    "an empty directory": "data_directory = ''",
    "depth": "a = " + "[" * 20_000,
}

LINK = '[[links]]\nname = "ward"\nkind = "{}"\naddress = "{}"\nstreams = ["*"]\n'
# Each with a part of its error or hint.
IN_THE_CLEAR = {
    "a token in clear text": ("[http]\nlisten = '0.0.0.0:0'\n[access]\nread = 'token'", "clear text"),
    "everybody reads over TLS": ("[http]\nlisten = '0.0.0.0:0'\n[http.tls]\nself_signed = true", "access.read"),
    "a link's token in clear text": (LINK.format("http_pull", "http://10.77.0.2:1") + "token_file = 'x'", "plain text"),
    "elements that come in clear text": (
        LINK.format("http_push", "http://127.0.0.1:1") + "contact = 'http://10.77.0.1:1'", "plain text"),
    "a link beyond this host without a key": (LINK.format("zeromq", "tcp://10.77.0.2:1"), "server_key"),
    "an exchange for every key": ("[exchange]\nlisten = '0.0.0.0:0'", "allowed_keys"),
    "an exchange for every key by access.insecure": (
        "[access]\ninsecure = true\n[exchange]\nlisten = '0.0.0.0:0'", "allowed_keys"),
    "a token in a file that others can read": (
        LINK.format("http_pull", "http://127.0.0.1:1") + "token = 'x'", "chmod 600"),
}

DEVICE_FILES = {
    "not TOML": "= nothing",
    "nothing": "",
    "no name": "manufacturer = 'x'",
    "an unknown key": "name = 'x'\nnamspace = 'http://x'",
    "a missing recording": "name='x'\nnamespace='http://x/y'\ntypes=['T']\n[[event]]\nname='E'\nperiod_ms=1\n"
                           "recording='nowhere.csv'\n[[event.field]]\nname='v'\ntype='double'\n",
    "a recording outside": "name='x'\nnamespace='http://x/y'\ntypes=['T']\n[[event]]\nname='E'\nperiod_ms=100\n"
                           "recording='/etc/shadow'\n[[event.field]]\nname='v'\ntype='double'\n",
    "an unknown type": "name='x'\nnamespace='http://x/y'\ntypes=['T']\n[[event]]\nname='E'\nperiod_ms=100\n"
                       "[[event.field]]\nname='v'\ntype='real'\n",
    "a name that is no XML": "name='x'\nnamespace='http://x/y'\ntypes=['a b<c']\n",
}


# What ended otherwise than it should.
unclear: list[str] = []


def wrong(what: str, arguments: list[str], words: str = "", cwd: pathlib.Path | None = None) -> None:
    """The program must end with exit code 2, or 78 for a node's configuration, an error and a hint."""
    start = time.monotonic()
    try:
        result = subprocess.run(arguments, capture_output=True, timeout=20, cwd=cwd)
    except subprocess.TimeoutExpired:
        unclear.append(f"{what}: it runs as if nothing were wrong")
        return
    text = result.stderr.decode("utf-8", "replace")
    clear = result.returncode in (2, 78) and "hint:" in text and "panicked" not in text and words in text
    if not clear:
        unclear.append(f"{what}: {result.returncode}: {text.strip()[:600]}")
        return
    first = text.strip().splitlines()
    print(f"      {what}: {first[0][:110]} | {[line for line in first if 'hint:' in line][0].strip()[:90]}")
    if time.monotonic() - start > 10:
        expect(False, f"{what}: told at once")


def none_unclear(what: str) -> None:
    for line in unclear:
        print(f"   unclear: {line}")
    expect(not unclear, what)


def files(chappe: str, work: pathlib.Path) -> None:
    for kind, table, verb in (("node", NODE_FILES, ["serve"]), ("device", DEVICE_FILES, ["device", "run"])):
        for number, (what, text) in enumerate(table.items()):
            path = work / f"{kind}-{number}.toml"
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
            wrong(f"{kind} file: {what}", [chappe, *verb, str(path)], cwd=work)
        wrong(f"{kind} file: none there", [chappe, *verb, str(work / "nowhere.toml")])
        wrong(f"{kind} file: a directory", [chappe, *verb, str(work)])
    none_unclear(f"{len(NODE_FILES) + len(DEVICE_FILES) + 4} wrong files end with code 2, an error and a hint")


def in_the_clear(chappe: str, work: pathlib.Path) -> None:
    for number, (what, (text, words)) in enumerate(IN_THE_CLEAR.items()):
        path = work / f"clear-{number}.toml"
        path.write_text(text)
        for verb in (["serve"], ["config", "check"]):
            wrong(f"{' '.join(verb)}: {what}", [chappe, *verb, str(path)], words, cwd=work)
    for address in ("0.0.0.0:0", "[::]:0", "10.77.0.1:0"):
        wrong(f"a demonstration for everybody at {address}", [chappe, "demo", "--run-for", "1s", "--listen", address], "127.0.0.1")
    none_unclear(f"{len(IN_THE_CLEAR)} files and a demonstration that would speak in the clear are refused")


def directories(chappe: str, work: pathlib.Path) -> None:
    locked = work / "locked"
    locked.mkdir(mode=0o700)
    (locked / "x").mkdir()
    a_file = work / "a-file"
    a_file.write_text("")
    others = work / "others"
    others.mkdir()
    os.chown(others, 65534, 65534)
    exposed = others / "exposed"

    def serve(data: pathlib.Path, *more: str) -> list[str]:
        return [chappe, "serve", "--set", "http.listen=127.0.0.1:0", "--set", f"data_directory={data}", "--set",
                "discovery.enabled=false", *more]
    work.chmod(0o755)
    wrong("data directory of another user", [*NOBODY, *serve(locked)], str(locked))
    wrong("data directory below another user's", [*NOBODY, *serve(locked / "y")], str(locked))
    wrong("data directory that cannot be made", [*NOBODY, *serve(pathlib.Path("/proc/chappe"))])
    wrong("data directory that is a file", serve(a_file), str(a_file))
    with subprocess.Popen([*NOBODY, *serve(exposed, "--json")], stdout=subprocess.PIPE, text=True) as first:
        first.stdout.readline()
        wrong("data directory in use", [*NOBODY, *serve(exposed)], str(first.pid))
        first.terminate()
        expect(first.wait(10) == 0, "the node that has it goes on, and ends with 0")
    for name in ("key.pem", "token"):
        (exposed / name).chmod(0o644)
        wrong(f"{name} that others can read", [*NOBODY, *serve(exposed)], name)
        (exposed / name).chmod(0o600)
    for name in ("http.pem", "links.json", "subscriptions.json"):
        (exposed / name).write_text("[]")
        wrong(f"{name} that others can read", serve(exposed), name)
        (exposed / name).unlink()
    exposed.chmod(0o755)
    wrong("data directory that others can read", [*NOBODY, *serve(exposed)], "0755")
    exposed.chmod(0o700)
    for name, damaged in (("key.pem", "no key"), ("token", "no token")):
        whole = (exposed / name).read_bytes()
        (exposed / name).write_text(damaged)
        wrong(f"{name} that is none", [*NOBODY, *serve(exposed)], name)
        (exposed / name).write_bytes(whole)
    none_unclear("directories and files that cannot be used are named, with the remedy")


# A command in a directory that is mounted read-only, as its working and temporary directory.
READ_ONLY = ["unshare", "--mount", "sh", "-ec", 'mount --bind "$0" "$0"; mount -o remount,ro,bind "$0"; cd "$0"; '
             'TMPDIR=$0 HOME=$0 exec "$@"']


def read_only(chappe: str, work: pathlib.Path) -> None:
    place = work / "read-only"
    (place / "plant").mkdir(parents=True)
    (place / "plant/node.toml").write_text("[http]\nlisten = '127.0.0.1:0'\n[discovery]\nenabled = false\n")
    (place / "former.toml").write_text("[dds]\nlibrary = 'x'\n")
    for what, command, words in (
            ("demo", ["demo", "--listen", "127.0.0.1:0"], "chappe demo --data"),
            ("demo --data", ["demo", "--listen", "127.0.0.1:0", "--data", "demo"], "chappe demo --data"),
            ("up", ["up", "plant"], "--set data_directory="),
            ("serve", ["serve", "plant/node.toml"], "--set data_directory="),
            ("init", ["init", "new", "--timeout", "100ms", "--interface", "lo"], "chappe init DIR"),
            ("config migrate", ["config", "migrate", "former.toml"], "--dry-run")):
        wrong(f"{what} on a read-only disk", [*READ_ONLY, str(place), chappe, *command], words)
    none_unclear("a read-only disk is named, with the next command")


def ports(cable: Cable, chappe: str, address: str, work: pathlib.Path) -> None:
    listen = address.removeprefix("http://")
    second = cable.command("A", chappe, "serve", "--set", f"http.listen={listen}", "--set",
                           f"data_directory={work / 'second'}", "--set", "discovery.enabled=false")
    wrong("a port that is taken", second, listen)
    elsewhere = [chappe, "serve", "--set", "http.listen=192.0.2.1:0", "--set", f"data_directory={work / 'third'}",
                 "--set", "access.insecure=true"]
    wrong("an address of another host", elsewhere, "192.0.2.1")
    wrong("an option that is none", [chappe, "serve", "--set", "nothing"])
    wrong("an interface that is none", cable.command("A", chappe, "find", "--interface", "nowhere0"), "nowhere0")
    wrong("a device's address that is none", [chappe, "device", "run", str(DEVICE), "--address", "192.0.2.9"], "192.0.2.9")
    none_unclear("ports, addresses and interfaces that cannot be had are named, with the remedy")


DEVICE = pathlib.Path(__file__).resolve().parent.parent / "sdc" / "thermometer.toml"


def check(cable: Cable, chappe: str, address: str) -> None:
    work = cable.work / "mistakes"
    work.mkdir()
    start = time.monotonic()
    files(chappe, work)
    in_the_clear(chappe, work)
    directories(chappe, work)
    read_only(chappe, work)
    ports(cable, chappe, address, work)
    measured("mistakes tried in", f"{time.monotonic() - start:.1f} s")
