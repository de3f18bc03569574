"""Chappe under attack: the real programs, over real sockets, in namespaces made here.

    python3 check/hostile/run.py CHAPPE WORK [PART...]     parts: discovery forged crowd claims device documents
                                                           attached rest reading registry exchange links clear
                                                           proxy captures mistakes

1. discovery: a flood of generated datagrams from forged addresses; outgoing traffic is counted.
2. forged:    Byes and Hellos that lie about a live, bound device.
   crowd:     one host against its neighbours: names of others, a full table, endless questions.
   claims:    a host that claims the serial number of a device, and answers nothing.
3. device, rest: HTTP of device and node: slow peers, garbage, bombs, strangers as sinks, hostile queries.
4. documents: small documents that grow in memory or keep a parser busy, to a device and to a node.
   attached:  devices that the node has attached, with reports and events that grow.
5. reading:   partial answers, memory of one query, queries started by a page of another site.
   registry:  documents, entities and queries of the registry that grow, names of others, exports that nobody takes.
6. exchange:  HTTP between nodes: strangers' contact points, pulls that are never read, hostile documents and origins.
7. links:     blank lines, contact points on the node's own host behind a proxy, strangers who unsubscribe.
8. clear:     elements that would be sent in clear text, and CURVE keys that are not allowed.
9. proxy:     a network with many addresses fills the subscriptions of a discovery proxy, and its sinks never answer.
   captures:  captures with losses, damage and control characters; large values by EXI.
10. mistakes: mistakes of operators; each ends with exit code 2, an error and a hint.

Standard library only; runs as root. Each part prints and judges its figures.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import time

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
import attached  # noqa: E402
import captures  # noqa: E402
import claims  # noqa: E402
import clear  # noqa: E402
import crowd  # noqa: E402
import device as device_part  # noqa: E402
import discovery  # noqa: E402
import documents  # noqa: E402
import exchange  # noqa: E402
import forged  # noqa: E402
import links  # noqa: E402
import mistakes  # noqa: E402
import proxy  # noqa: E402
import reading  # noqa: E402
import registry  # noqa: E402
import rest as rest_part  # noqa: E402
from network import Cable, CheckFailed, Process, until  # noqa: E402
from wire import measured  # noqa: E402

PARTS = ["discovery", "forged", "crowd", "claims", "device", "documents", "attached", "rest", "reading", "registry",
         "exchange", "links", "clear", "proxy", "captures", "mistakes"]
ON_THIS_HOST = '[exchange]\ncontact = ["127.0.0.0/8"]\n'
THERMOMETER = HERE.parent / "sdc" / "thermometer.toml"


def prepare(cable: Cable) -> None:
    """Allows datagrams of 64 kB; adds routes for answers to spoofed addresses, and addresses for strangers."""
    def ip(end: str, *words: str) -> None:
        subprocess.run(["ip", "-n", cable.names[end], *words], check=True)
    for end in "AB":
        ip(end, "link", "set", cable.INTERFACES[end], "mtu", "65535")
    for n in [*range(100, 124), 250]:
        ip("B", "addr", "add", f"10.77.0.{n}/24", "dev", "b0")
    for network in ("10.66.0.0/16", "192.0.2.0/24"):
        ip("A", "route", "add", network, "via", "10.77.0.2")
    for name in ("all", "a0", "default"):
        subprocess.run(cable.command("A", "sysctl", "-qw", f"net.ipv4.conf.{name}.rp_filter=0"), check=False)


def start_device(cable: Cable, chappe: str, end: str, name: str, period_ms: int = 100,
                 memory_bytes: int = 0) -> tuple[Process, dict]:
    folder = cable.work / name
    folder.mkdir()
    text = THERMOMETER.read_text().replace("period_ms = 100", f"period_ms = {period_ms}")
    (folder / "device.toml").write_text(text.replace("Peer thermometer", name))
    shutil.copy(THERMOMETER.with_suffix(".csv"), folder)
    limited = ["prlimit", f"--as={memory_bytes}"] if memory_bytes else []
    process = cable.start(end, name, *limited, chappe, "device", "run", str(folder / "device.toml"), "--address",
                          cable.ADDRESSES[end], "--announce-within", "200ms", "--json")
    return process, process.wait_event("ready", 20)


def start_node(cable: Cable, chappe: str, name: str, more: str = "") -> tuple[Process, dict, pathlib.Path]:
    folder = cable.work / name
    (folder / "sensors").mkdir(parents=True)
    (folder / "node.toml").write_text(
        f'name = "{name}"\ndata_directory = "{folder}/data"\nsensors_directory = "{folder}/sensors"\n'
        f'[discovery]\ninterfaces = ["a0"]\n[http]\nlisten = "127.0.0.1:0"\n{more}')
    process = cable.start("A", name, chappe, "serve", str(folder / "node.toml"), "--json")
    told = process.wait_event("ready", 20)
    told["token"] = pathlib.Path(told["token_file"]).read_text().strip()
    return process, told, folder


def under_attack(cable: Cable, node: Process, told: dict, endpoint: str) -> exchange.Exchange:
    """A node's exchange, with the first stream of the device that it found."""
    bound = until(20, "the device bound", lambda: forged.device_of(cable, told["address"], endpoint))
    return exchange.Exchange(rest_part.Rest(cable, node, told["address"], told["token"]), bound["streams"][0])


def attack(cable: Cable, chappe: str, parts: list[str]) -> None:
    prepare(cable)
    for part in parts:
        print(f"-- {part}", flush=True)
        start = time.monotonic()
        processes = []
        of_one, of_many = proxy.prepare(cable) if part == "proxy" else ([], [])
        if part not in ("device", "crowd", "captures"):
            # Contact points on this host are tried out by the part "exchange".
            more = {"exchange": ON_THIS_HOST, "clear": clear.CONTACTS, "reading": reading.PATIENT,
                    "proxy": proxy.CONFIG}.get(part, "")
            node, told, folder = start_node(cable, chappe, f"node-{part}", more)
            processes.append(node)
        if part == "discovery":
            device, ready = start_device(cable, chappe, "A", "device-flooded")
            processes.append(device)
            discovery.check(cable, device, ready, node, told["address"])
        if part == "forged":
            device, ready = start_device(cable, chappe, "B", "device-bound")
            processes.append(device)
            forged.check(cable, device, ready, node, told["address"])
        if part == "crowd":
            node, address = cable.node(chappe, "A", f"max_devices = {crowd.TABLE}")
            device, ready = start_device(cable, chappe, "B", "device-first")
            processes += [node, device]

            def start_alone() -> tuple[Process, dict]:
                processes.append((alone := start_device(cable, chappe, "A", "device-alone"))[0])
                return alone
            crowd.check(cable, node, address, ready, start_alone)
        if part == "claims":
            claims.check(cable, chappe, told["address"])
        if part == "device":
            device, ready = start_device(cable, chappe, "A", "device-attacked")
            quiet, quiet_ready = start_device(cable, chappe, "A", "device-quiet", 3_600_000)
            processes += [device, quiet]
            device_part.check(cable, device_part.Target(cable, device, ready),
                              device_part.Target(cable, quiet, quiet_ready))
        if part == "documents":
            device, ready = start_device(cable, chappe, "A", "device-documents", memory_bytes=1 << 30)
            processes.append(device)
            documents.check(cable, device_part.Target(cable, device, ready), node, told["address"])
        if part == "attached":
            attached.check(cable, node, told["address"])
        if part == "rest":
            rest_part.check(cable, rest_part.Rest(cable, node, told["address"], told["token"]), folder)
        if part == "reading":
            device, ready = start_device(cable, chappe, "B", "device-measured")
            under = rest_part.Rest(cable, node, told["address"], told["token"])
            reading.check(cable, chappe, under, device)
        if part == "registry":
            registry.check(rest_part.Rest(cable, node, told["address"], told["token"]))
        if part == "exchange":
            device, ready = start_device(cable, chappe, "B", "device-read")
            processes.append(device)
            exchange.check(under_attack(cable, node, told, ready["endpoint"]))
        if part == "links":
            device, ready = start_device(cable, chappe, "B", "device-linked")
            other, other_told, _ = start_node(
                cable, chappe, "node-proxied", 'trusted_proxies = ["127.0.0.1"]\n' + ON_THIS_HOST)
            processes += [device, other]
            links.check(*(under_attack(cable, *one, ready["endpoint"]) for one in ((node, told), (other, other_told))))
        if part == "clear":
            device, ready = start_device(cable, chappe, "B", "device-read-in-clear")
            friend, friend_told, _ = start_node(cable, chappe, "node-friend")
            named = clear.curve_key(friend_told["address"], cable)
            origin, origin_told, _ = start_node(cable, chappe, "node-origin", clear.origin_config(named))
            processes += [device, friend, origin]
            nodes = ((origin, origin_told), (friend, friend_told), (node, told))
            attacked, *readers = (under_attack(cable, *one, ready["endpoint"]) for one in nodes)
            clear.check(attacked, origin_told["exchange"]["sessions"], *readers)
        if part == "proxy":
            proxy.check(cable, of_one, of_many, node)
        if part == "captures":
            device, ready = start_device(cable, chappe, "A", "device-coded")
            processes.append(device)
            captures.check(chappe, cable.work, device_part.Target(cable, device, ready))
        if part == "mistakes":
            mistakes.check(cable, chappe, told["address"])
        for process in processes:
            if (code := process.stop()) != 0:
                raise CheckFailed(f"{process.name} ended with {code}, see {process.log.name}")
        measured("time of this part", f"{time.monotonic() - start:.0f} s")


def main() -> None:
    chappe, work = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2]).absolute()
    parts = sys.argv[3:] or PARTS
    if unknown := set(parts) - set(PARTS):
        sys.exit(f"no part {', '.join(unknown)}; parts: {' '.join(PARTS)}")
    shutil.rmtree(work, ignore_errors=True)
    try:
        with Cable(work) as cable:
            attack(cable, chappe, parts)
    except CheckFailed as failure:
        sys.exit(f"   FAILED: {failure}\n   logs are in {work}")


if __name__ == "__main__":
    main()
