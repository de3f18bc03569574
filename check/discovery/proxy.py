"""Managed discovery across routers that forward no multicast: 100 devices are found, described, subscribed to and called through
a discovery proxy; when it is killed, clients are back at multicast within 10 s, and they use it again when it is back.
sdc11073's SoapClient asks our proxy, and WSDiscovery says Hello to it.

    python check/discovery/proxy.py CHAPPE WORK

DEVICES is the number of devices, 100 by default. Network namespaces: A the clients, B the proxy with half of the devices,
C the other half, and R, which routes between them.
"""

import json
import os
import pathlib
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from network import Cable, CheckFailed, Process, expect, main, until  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
DEVICES = int(os.environ.get("DEVICES", "100"))
PORT = 8474
PROXY = f"http://10.78.2.2:{PORT}/"
DEVICE = """
name = "pump {number}"
manufacturer = "Peer Works"
model = "P1"
namespace = "http://example.com/chappe/pump"
types = ["Pump"]

[[event]]
name = "Flow"
period_ms = 2000
recording = "flow.csv"

[[event.field]]
name = "value"
type = "double"
unit = "mL/min"

[[value]]
name = "Limit"
type = "double"
initial = "{number}.5"
"""


class Routed(Cable):
    """Namespaces A, B and C, each with a network of its own, and the router R between them."""

    ADDRESSES = {"A": "10.78.1.2", "B": "10.78.2.2", "C": "10.78.3.2"}
    INTERFACES = {"A": "a0", "B": "b0", "C": "c0"}

    def __init__(self, work: pathlib.Path):
        super().__init__(work)
        self.names = {end: f"chappe-{os.getpid()}-proxy-{end}" for end in "ABCR"}

    def __enter__(self) -> "Routed":
        def ip(*words: str) -> None:
            subprocess.run(["ip", *words], check=True)
        for name in self.names.values():
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        router = self.names["R"]
        for number, (end, interface) in enumerate(self.INTERFACES.items(), 1):
            name = self.names[end]
            ip("link", "add", interface, "netns", name, "type", "veth", "peer", "name", f"r{number}", "netns", router)
            ip("-n", name, "addr", "add", f"{self.ADDRESSES[end]}/24", "dev", interface)
            ip("-n", name, "link", "set", interface, "up")
            ip("-n", router, "addr", "add", f"10.78.{number}.1/24", "dev", f"r{number}")
            ip("-n", router, "link", "set", f"r{number}", "up")
            ip("-n", name, "route", "add", "default", "via", f"10.78.{number}.1")
            ip("-n", name, "route", "add", "239.0.0.0/8", "dev", interface)
        subprocess.run(self.command("R", "sysctl", "-qw", "net.ipv4.ip_forward=1"), check=True)
        return self


def status(cable: Routed, address: str) -> dict:
    return json.loads(cable.get("A", f"{address}/api/v1/discovery-proxies"))


def devices(cable: Routed, address: str) -> list[dict]:
    """All devices that a node knows, page by page."""
    found, cursor = [], ""
    while True:
        page = json.loads(cable.get("A", f"{address}/api/v1/devices?limit=100{cursor}"))
        found += page["devices"]
        if not page.get("next"):
            return found
        cursor = f"&cursor={page['next']}"


def start_devices(cable: Routed, chappe: str) -> None:
    """Half of the devices beside the proxy, which finds them by multicast, and half that register with it."""
    (cable.work / "flow.csv").write_text("value\n1.5\n2.5\n3.5\n")
    started = []
    for number in range(DEVICES):
        file = cable.work / f"pump-{number}.toml"
        file.write_text(DEVICE.format(number=number))
        end = "BC"[number % 2]
        flags = ["--address", cable.ADDRESSES[end], "--announce-within", "1s", "--json"]
        if end == "C":
            flags += ["--proxy", PROXY]
        started.append(cable.start(end, f"pump-{number}", chappe, "device", "run", str(file), *flags))
    for device in started:
        device.wait_event("ready", 60)


def proxy_node(cable: Routed, chappe: str) -> Process:
    node, _ = cable.node(chappe, "B", f'[discovery.proxy]\nlisten = "0.0.0.0:{PORT}"')
    return node


LISTEN = """
import socket, struct, sys, time
listening = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
listening.bind(("239.255.255.250", 3702))
member = socket.inet_aton("239.255.255.250") + socket.inet_aton("10.78.1.2")
listening.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
print("ready", flush=True)
while True:
    data = listening.recv(65535)
    if b"discovery/Probe<" in data or b"2009/01/Probe<" in data:
        print("probe", flush=True)
"""


def find(cable: Routed, chappe: str, *flags: str) -> tuple[list[dict], list[dict]]:
    """The devices and the proxies that `chappe find` prints."""
    result = cable.run("A", chappe, "find", "--interface", "a0", "--json", *flags, timeout_s=60)
    if result.returncode == 2:
        raise CheckFailed(f"find failed: {result.stderr.strip()}")
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    return ([one for one in lines if one["event"] == "device"], [one for one in lines if one["event"] == "proxy"])


def all_are_found(cable: Routed, chappe: str) -> None:
    without, _ = find(cable, chappe)
    expect(without == [], "no multicast crosses the router")

    def found() -> list[dict] | None:
        seen, proxies = find(cable, chappe, "--proxy", PROXY, "--timeout", "20s")
        expect([proxy["answers"] for proxy in proxies] == [True], "the proxy answers")
        usable = [one for one in seen if one["state"] == "usable"]
        return usable if len(usable) == DEVICES else None
    usable = until(20, f"{DEVICES} usable devices", found)
    names = {one["name"] for one in usable}
    expect(len(names) == DEVICES, f"{DEVICES} devices are found and described through the proxy")


def all_are_called(cable: Routed, chappe: str) -> None:
    called = [cable.command("A", chappe, "call", f"pump {number}", "GetLimit", "--interface", "a0",
                            "--proxy", PROXY, "--timeout", "20s", "--json") for number in range(DEVICES)]
    answered = 0
    # Five at a time: each describes devices until it finds its own.
    for start in range(0, len(called), 5):
        running = [subprocess.Popen(one, stdout=subprocess.PIPE, text=True) for one in called[start:start + 5]]
        for offset, process in enumerate(running):
            text, _ = process.communicate(timeout=240)
            answered += process.returncode == 0 and f"{start + offset}.5" in text
    expect(answered == DEVICES, f"{answered} of {DEVICES} devices are called through the proxy")


def all_are_subscribed_to(cable: Routed, address: str) -> None:
    def streaming() -> bool:
        states = [device["state"] for device in devices(cable, address)]
        return states.count("streaming") == DEVICES
    until(60, f"{DEVICES} devices stream to the node", streaming)
    expect(True, f"a node has subscribed to {DEVICES} devices that the proxy named, and gets their events")


def killed_and_back(cable: Routed, chappe: str, proxy: Process, address: str, listener: Process) -> Process:
    expect(listener.lines.empty() or drained(listener) >= 0, "the group was heard")
    time.sleep(3)  # Any multicast of the time before the proxy was checked has passed.
    drained(listener)
    killed = time.monotonic()
    proxy.stop(9)
    until(10, "the node knows that the proxy is gone", lambda: not status(cable, address)["asked"][0]["answers"])
    listener.wait_line("probe", 10)
    took = time.monotonic() - killed
    expect(took <= 10, f"{took:.1f} s after the proxy was killed its client asks by multicast")
    seen, proxies = find(cable, chappe, "--proxy", PROXY)
    expect([one["answers"] for one in proxies] == [False] and seen == [], "find falls back to multicast as well")
    proxy = proxy_node(cable, chappe)
    back = time.monotonic()
    until(10, "the node uses the proxy again", lambda: status(cable, address)["asked"][0]["answers"])
    print(f"   used again {time.monotonic() - back:.1f} s after its start", flush=True)
    all_are_found(cable, chappe)
    return proxy


def drained(listener: Process) -> int:
    """The Probes in the group so far."""
    count = 0
    while not listener.lines.empty():
        count += listener.lines.get() is not None
    return count


def others(cable: Routed, chappe: str) -> None:
    result = cable.run("C", sys.executable, str(HERE / "sdc_proxy_client.py"), PROXY, timeout_s=60)
    print(result.stdout, end="")
    expect(result.returncode == 0, f"sdc11073 uses the proxy by its SoapClient {result.stderr[-400:]}")
    target = cable.start("B", "wsdiscovery", sys.executable, str(HERE / "target.py"), cable.ADDRESSES["B"])
    target.wait_line("ready", 20)

    def registered() -> bool:
        seen, _ = find(cable, chappe, "--proxy", PROXY)
        return any("http://example.com/yard" in one["scopes"] for one in seen)
    until(20, "the target of WSDiscovery at the proxy", registered)
    expect(True, "WSDiscovery said Hello to the proxy, which names its target")
    target.stop()


def check(_: Cable, chappe: str) -> None:
    work = pathlib.Path(sys.argv[2]).absolute() / "routed"
    with Routed(work) as cable:
        proxy = proxy_node(cable, chappe)
        start_devices(cable, chappe)
        all_are_found(cable, chappe)
        node, address = cable.node(chappe, "A", f'proxies = ["{PROXY}"]')
        until(20, "the proxy is used", lambda: status(cable, address)["asked"][0]["answers"])
        all_are_subscribed_to(cable, address)
        listener = cable.start("A", "listener", sys.executable, "-c", LISTEN)
        listener.wait_line("ready", 10)
        others(cable, chappe)
        all_are_called(cable, chappe)
        proxy = killed_and_back(cable, chappe, proxy, address, listener)
        expect(proxy.stop() == 0, "the proxy ends in order")
        expect(node.stop() == 0, "its client ends in order")


if __name__ == "__main__":
    main(check)
