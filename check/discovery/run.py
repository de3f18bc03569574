"""Discovery with other implementations: wsdd, wsdd2 and WSDiscovery (2005 dialect) targets are found; WSDiscovery and
wsdd as clients find our device of the 2005 dialect, whose metadata wsdd reads too.
"""

import json
import pathlib
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from network import Cable, CheckFailed, expect, main, until  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
THERMOMETER = str(HERE.parent / "sdc" / "thermometer.toml")


def find(cable: Cable, chappe: str, end: str, *flags: str) -> list[dict]:
    """The summary of `chappe find` on one end: its last line."""
    interface = cable.INTERFACES[end]
    result = cable.run(end, chappe, "find", "--interface", interface, "--json", *flags)
    if result.returncode == 2:
        raise CheckFailed(f"find failed: {result.stderr.strip()}")
    return [json.loads(line) for line in result.stdout.splitlines()]


def wsdd_is_found(cable: Cable, chappe: str) -> None:
    cable.start("B", "wsdd", shutil.which("wsdd"), "-v", "-i", "b0", "-4", "-n", "PEERBOX")

    def seen() -> list[dict]:
        lines = find(cable, chappe, "A")
        return [d for d in lines if d.get("event") == "device" and d["dialect"] == "2005"]
    devices = until(15, "wsdd's device", seen)
    expect(len(devices) == 1 and devices[0]["addresses"], "wsdd is found and resolved to an address")
    expect(devices[0]["state"] == "usable" and "PEERBOX" in json.dumps(devices[0]).upper(),
           "wsdd's device describes itself")


def wsdd2_is_found(cable: Cable, chappe: str) -> None:
    # Over IPv6 it announces its host name, which we do not resolve.
    peer = cable.start("B", "wsdd2", shutil.which("wsdd2"), "-i", "b0", "-4", "-N", "PEERBOX2", "-w")

    def seen() -> list[dict]:
        lines = find(cable, chappe, "A")
        # It does not say its name over DPWS; it serves at the port of discovery.
        return [d for d in lines if d.get("event") == "device" and ":3702/" in "".join(d["addresses"])]
    device = until(15, "wsdd2's device", seen)[0]
    expect(device["state"] == "usable" and device["addresses"], "wsdd2's device is found and describes itself")
    peer.stop()


def ours_of_2005_is_found(cable: Cable, chappe: str) -> None:
    device = cable.start("B", "device-2005", chappe, "device", "run", THERMOMETER, "--address", "10.77.0.2", "--json",
                         "--dialect", "2005")
    endpoint = device.wait_event("ready", 20)["endpoint"]
    found = cable.run("A", sys.executable, str(HERE / "search.py"), timeout_s=20)
    lines = [line for line in found.stdout.splitlines() if endpoint in line]
    expect(len(lines) == 1 and "http://10.77.0.2" in lines[0], "WSDiscovery finds ours of 2005, with its address")
    # Its list, `-l PORT`, is not served with Python 3.10 and later, but it prints the name in the metadata.
    client = cable.start("A", "wsdd-client", shutil.which("wsdd"), "-v", "-i", "a0", "-4", "-o", "-D")
    log = cable.work / "wsdd-client.log"
    until(15, "ours is found by wsdd", lambda: "discovered Peer thermometer" in log.read_text())
    expect(True, "wsdd finds ours of 2005 and reads its metadata")
    client.stop()
    device.stop()


def wsdiscovery_is_found(cable: Cable, chappe: str) -> None:
    target = cable.start("B", "wsdiscovery", sys.executable, str(HERE / "target.py"))
    target.wait_line("ready", 20)

    def seen() -> list[dict]:
        lines = find(cable, chappe, "A")
        return [d for d in lines if "http://example.com/camera" in json.dumps(d)]
    device = until(15, "the target of WSDiscovery", seen)[0]
    expect(device["state"] == "attention" and device["reason"] and device["hint"],
           f"a target that only answers discovery needs attention: {device['reason']}")
    target.stop()


def ours_is_found(cable: Cable, chappe: str) -> None:
    device = cable.start("B", "device", chappe, "device", "run", THERMOMETER, "--address", "10.77.0.2", "--json")
    device.wait_event("ready", 20)
    lines = find(cable, chappe, "A", "--type", "Thermometer")
    devices = [d for d in lines if d.get("event") == "device"]
    expect([d["name"] for d in devices] == ["Peer thermometer"], "ours is found by its type alone")
    summary = lines[-1]
    expect((summary["seen"], summary["usable"], summary["attention"]) == (1, 1, 0), "the summary counts it")
    direct = find(cable, chappe, "A", "--host", "10.77.0.2", "--type", "Thermometer")
    expect(any(d.get("event") == "device" for d in direct), "it is found when its host is asked directly")
    device.stop()


def doctors_meet(cable: Cable, chappe: str) -> None:
    other = cable.start("B", "doctor", chappe, "doctor", "--answer", "--interface", "b0", "--json")

    def met() -> dict | None:
        result = cable.run("A", chappe, "doctor", "--interface", "a0", "--with", "10.77.0.2", "--json")
        checks = {check["name"]: check for check in json.loads(result.stdout)["checks"]}
        check = checks["with 10.77.0.2"]
        return check if check["state"] == "ok" else None
    check = until(15, "the other doctor", met)
    expect(check["state"] == "ok", f"one doctor reaches another: {check['detail']}")
    expect(other.stop() == 0, "the other one ends in order")


def check(cable: Cable, chappe: str) -> None:
    doctors_meet(cable, chappe)
    wsdd_is_found(cable, chappe)
    wsdd2_is_found(cable, chappe)
    wsdiscovery_is_found(cable, chappe)
    ours_is_found(cable, chappe)
    ours_of_2005_is_found(cable, chappe)


if __name__ == "__main__":
    main(check)
