"""A host that claims the serial number of a device neither delays the device nor leads it into another stream."""

import json
import os
import shutil
import signal
import time

from forged import last
from network import Cable, Process, expect, until
from wire import measured

# Hosts of 10.77.0.0/24, all at end B.
DEVICE, SILENT, FLAPPING, HONEST = "10.77.0.100", "10.77.0.101", "10.77.0.102", "10.77.0.103"
ROUNDS = 3
# A look at a host that takes connections and answers none takes nine seconds.
USABLE_S_MAX = 3
TEXT = """
name = "{name}"
manufacturer = "Example"
model = "T1"
serial_number = "{serial}"
namespace = "https://example.org/{name}"
types = ["Device"]
"""
EVENT = """
[[event]]
name = "Reading{number}"
period_ms = 100
recording = "one.csv"
[[event.field]]
name = "value"
type = "double"
"""


class Claims:
    """A node at end A, and devices at end B."""

    def __init__(self, cable: Cable, chappe: str, address: str):
        self.cable, self.chappe, self.address = cable, chappe, address

    def start(self, name: str, host: str, serial: str, events: int = 1, fresh: bool = False) -> Process:
        """Starts a device; unless `fresh`, it has its previous endpoint address."""
        folder = self.cable.work / "claims" / name
        if fresh:
            shutil.rmtree(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "one.csv").write_text("value\n" + "".join(f"{row}.5\n" for row in range(100)))
        (folder / "device.toml").write_text(
            TEXT.format(name=name, serial=serial) + "".join(EVENT.format(number=n) for n in range(events)))
        return self.cable.start("B", f"claims-{name}", self.chappe, "device", "run", str(folder / "device.toml"),
                                "--address", host, "--announce-within", "10ms")

    def shown(self, name: str) -> list[dict]:
        devices = json.loads(self.cable.get("A", f"{self.address}/api/v1/devices"))["devices"]
        return [device for device in devices if device["name"] == name]

    def streams(self, name: str) -> list[str]:
        """The streams of a usable device."""
        usable = [device for device in self.shown(name) if device["state"] == "usable"]
        return usable[0]["streams"] if usable else []

    def gone(self, name: str) -> bool:
        return all(device["state"] == "gone" for device in self.shown(name))

    def goes_on(self, stream: str) -> bool:
        before = last(self.cable, self.address, stream)
        return bool(until(20, f"the stream {stream}", lambda: last(self.cable, self.address, stream) > before))


def returns(claims: Claims, device: Process, stream: str, fresh: bool = False) -> tuple[Process, float]:
    """Restarts the device; returns the time until it is usable."""
    device.stop()
    until(20, "the device gone", lambda: claims.gone("claimed"))
    start = time.monotonic()
    device = claims.start("claimed", DEVICE, "SN77", fresh=fresh)
    until(20, "the device usable", lambda: claims.streams("claimed"))
    seconds = time.monotonic() - start
    expect(claims.streams("claimed") == [stream] and claims.goes_on(stream), f"it goes on in {stream}")
    return device, seconds


def flapping(claims: Claims) -> None:
    """A host announces devices whose predecessor does not answer, and withdraws them at once."""
    slowest = 0.0
    for number in range(ROUNDS):
        flap = claims.start(f"flap-{number}", FLAPPING, "SN77")
        until(20, "it is known", lambda: claims.shown(f"flap-{number}"))
        flap.stop()
        start = time.monotonic()
        honest = claims.start(f"honest-{number}", HONEST, f"H{number}")
        until(20, "the honest device usable", lambda: claims.streams(f"honest-{number}"))
        slowest = max(slowest, time.monotonic() - start)
        honest.stop()
    measured("the slowest honest device usable, while claimants flap", f"{slowest:.2f} s")
    expect(slowest < USABLE_S_MAX, "devices that claim a serial number and leave delay no other")


def check(cable: Cable, chappe: str, address: str) -> None:
    claims = Claims(cable, chappe, address)
    device = claims.start("claimed", DEVICE, "SN77")
    until(20, "the device usable", lambda: claims.streams("claimed"))
    stream = claims.streams("claimed")[0]
    stranger = claims.start("stranger", SILENT, "SN77", events=3)
    until(20, "the stranger usable", lambda: len(claims.streams("stranger")) == 3)
    expect(stream not in claims.streams("stranger"), "the stranger has streams of its own")
    device, seconds = returns(claims, device, stream, fresh=True)
    measured("the device returns under another endpoint while the stranger answers", f"{seconds:.2f} s")
    os.killpg(stranger.process.pid, signal.SIGSTOP)
    try:
        device, seconds = returns(claims, device, stream)
        measured("the device returns under its endpoint while the stranger is silent", f"{seconds:.2f} s")
        expect(seconds < USABLE_S_MAX, "a device that has its streams waits for no stranger")
        flapping(claims)
    finally:
        os.killpg(stranger.process.pid, signal.SIGCONT)
    stranger.stop()
    until(20, "the stranger gone", lambda: claims.gone("stranger"))
    device, seconds = returns(claims, device, stream, fresh=True)
    measured("the device returns under another endpoint when the stranger has left", f"{seconds:.2f} s")
    device.stop()
