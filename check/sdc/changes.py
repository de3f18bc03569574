"""A device whose description changes while it publishes: every state that it sent is stored exactly once.

1. The tree changes every two seconds, and a waveform block is sent every 25 ms: the stored values equal the
   provider's own count of accepted states, and none is refused.
2. A unit toggles 600 times, between 1 and per cent. The stored values are read in the last one.
3. The node ends while the device publishes: a state is stored if its report was accepted, and only then.
"""

import collections
import json
import pathlib
import sys
import time
from collections.abc import Callable

from network import Cable, Process, expect, until

HERE = pathlib.Path(__file__).resolve().parent
PAGE = 1_000
TOGGLES = 600


class Monitor:
    """The provider, with the folder whose files control when it publishes."""

    def __init__(self, cable: Cable, mode: str, fail: int = 0):
        self.folder = cable.work / f"changing-{mode}-{fail}"
        self.folder.mkdir()
        self.process = cable.start("B", self.folder.name, sys.executable, str(HERE / "changing.py"), "10.77.0.2",
                                   str(self.folder), mode, "--fail", str(fail))
        self.process.wait_line("ready", 20)
        self.streams = ""

    def is_usable(self, cable: Cable, address: str) -> bool:
        found = device(cable, address)
        if not found or found["state"] != "usable" or len(found["streams"]) < 4:
            return False
        # What the names of its streams begin with.
        self.streams = found["streams"][0].rpartition(".")[0]
        return True

    def begin(self) -> None:
        (self.folder / "go").touch()

    def end(self) -> tuple[dict[str, list[float]], int, list[int]]:
        """Returns the accepted values, the number of changes of the description, and the HTTP statuses of refusals."""
        (self.folder / "go").unlink()
        sent = self.folder / "sent.json"
        until(20, "the provider has written its count", sent.exists)
        told = json.loads(sent.read_text())
        return told["sent"], told["changes"], told["refused"]


def device(cable: Cable, address: str) -> dict | None:
    devices = json.loads(cable.get("A", f"{address}/api/v1/devices"))["devices"]
    found = [d for d in devices if (d["serial_number"] or "").startswith("SN-43-") and d["state"] != "gone"]
    return found[0] if found else None


def stored(cable: Cable, address: str, stream: str) -> list[float]:
    """The values of a stream, oldest first."""
    streams = json.loads(cable.get("A", f"{address}/api/v1/streams"))["streams"]
    if stream not in [known["name"] for known in streams]:
        return []
    values, after = [], "0000000000000000:0"
    while True:
        url = f"{address}/api/v1/streams/{stream}/elements?after={after}&limit={PAGE}"
        page = json.loads(cable.get("A", url))["elements"]
        for element in page:
            value = next(iter(element["values"].values()))
            values.append(value["values"][0] if isinstance(value, dict) else value)
        if len(page) < PAGE:
            return values
        after = f"{page[-1]['epoch']}:{page[-1]['number']}"


def per_cent(cable: Cable, address: str, stream: str) -> int:
    """What a value of a stream is in per cent."""
    fields = json.loads(cable.get("A", f"{address}/api/v1/streams/{stream}"))["fields"]
    return {"1": 100, "%": 1}[fields[0]["unit"]]


def agrees(cable: Cable, address: str, monitor: Monitor, sent: dict[str, list[float]], what: str,
           factor: Callable[[], int] = lambda: 1) -> None:
    """Every accepted state is stored exactly once, in order. The factor of the values may change until the last change of
    the description is read."""
    for handle, values in sorted(sent.items()):
        stream, end = f"{monitor.streams}.{handle}", time.monotonic() + 10
        while True:
            before, held, after = factor(), stored(cable, address, stream), factor()
            held = [round(value * before, 6) for value in held]
            if held == values and before == after or time.monotonic() > end:
                break
            time.sleep(0.5)
        counted = [collections.Counter(numbers) for numbers in (values, held)]
        lost, twice = [sorted((one - other).elements()) for one, other in (counted, counted[::-1])]
        expect(not twice and not lost and held == values,
               f"{what}: {len(values)} values of {handle} accepted, {len(held)} stored; lost {lost[:5]}, twice {twice[:5]}")


def tree_changes(cable: Cable, chappe: str, seconds: float) -> None:
    node, address = cable.node(chappe)
    monitor = Monitor(cable, "tree", fail=2)
    found = until(10, "the device shown with a reason", lambda: (d := device(cable, address)) and d["reason"] and d)
    expect(found["state"] == "attention", f"a service that fails is shown: {found['reason']}")
    until(20, "the device usable", lambda: monitor.is_usable(cable, address))
    expect(True, "it is usable when metadata and description are read")
    monitor.begin()
    wait(seconds)
    sent, changes, refused = monitor.end()
    stretches = len(sent["ecg_lead_2"])
    expect(not refused, f"the node refused no report; statuses {refused[:5]}")
    expect(changes >= seconds / 2 - 5 and stretches >= 20 * seconds,
           f"the tree changed {changes} times in {seconds:.0f} s, {stretches} stretches were sent")
    agrees(cable, address, monitor, sent, "changing tree")
    ends_cleanly(cable, chappe, node, monitor, stretches)


def ends_cleanly(cable: Cable, chappe: str, node: Process, monitor: Monitor, before: int = 0) -> None:
    """`before`: waveform blocks that were sent before."""
    (monitor.folder / "sent.json").unlink(missing_ok=True)
    monitor.begin()
    wait(3)
    expect(node.stop() == 0, "the node ends with 0 while the device publishes")
    sent, _, refused = monitor.end()
    accepted = len(sent["ecg_lead_2"]) - before
    expect(accepted >= 60, f"{accepted} stretches were accepted before the end, {len(refused)} reports refused in it")
    # Nothing new comes: what the node has is what it was given before.
    monitor.process.stop()
    node, address = cable.node(chappe)
    agrees(cable, address, monitor, sent, "ended node")
    node.stop()


def units_toggle(cable: Cable, chappe: str) -> None:
    node, address = cable.node(chappe)
    monitor = Monitor(cable, "units")
    until(20, "the device usable", lambda: monitor.is_usable(cable, address))
    monitor.begin()
    stream = f"{monitor.streams}.heart_rate"
    # A change of the descriptor sends the state as it is; then there is another value.
    until(120, f"{TOGGLES} toggles", lambda: len(stored(cable, address, stream)) >= 2 * TOGGLES)
    sent, changes, refused = monitor.end()
    expect(changes >= TOGGLES, f"the unit toggled {changes} times")
    expect(not refused, f"the node refused no report; statuses {refused[:5]}")
    agrees(cable, address, monitor, sent, "toggling unit", lambda: per_cent(cable, address, stream))
    found = device(cable, address)
    expect(found["state"] == "usable", "the device is usable")
    monitor.process.stop()
    node.stop()


def wait(seconds: float) -> None:
    """Lets the device publish for this long."""
    time.sleep(seconds)


def check(cable: Cable, chappe: str, seconds: float) -> None:
    tree_changes(cable, chappe, seconds)
    units_toggle(cable, chappe)
