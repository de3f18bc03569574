"""Chappe with sdc11073, in both directions.

1. A provider starts while `chappe serve` runs: within two seconds its metrics and its waveform are streams,
   with units and meaning in the registry; only the interface is configured.
   When it restarts under another endpoint reference, its streams continue.
2. `chappe call` gets states of that provider, whose WSDL gives actions as `soapAction` alone.
3. A consumer finds our device, reads its metadata, subscribes, receives, renews and unsubscribes.
4. All of this with TLS and certificates at both ends (secure.py).
5. A provider changes its description while it publishes, for 40 s or as many as SDC_SECONDS says: every
   state that it sent is stored once.
"""

import datetime
import json
import os
import pathlib
import sys
import urllib.parse
from collections.abc import Callable

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import changes  # noqa: E402
import secure  # noqa: E402
from network import Cable, CheckFailed, Process, expect, main, until  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
ECG = "urn:oid:1.2.840.10004.1.1.1.0.0.1.131330"


def epoch_s(text: str) -> float:
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def provider_becomes_streams(cable: Cable, chappe: str) -> None:
    node, address = cable.node(chappe)
    provider = cable.start("B", "provider", sys.executable, str(HERE / "provider.py"), "10.77.0.2", "600")
    ready_at, _ = provider.wait_line("ready", 20)
    api = f"{address}/api/v1"

    def stream(suffix: str) -> dict | None:
        streams = json.loads(cable.get("A", f"{api}/streams"))["streams"]
        found = [s for s in streams if s["name"].endswith(suffix) and s["last"]]
        return found[0] if found else None

    for suffix, unit, kind in [("heart_rate", "{beat}/min", "double"), ("ecg_lead_2", "mV", "samples"),
                               ("body_temperature", "Cel", "double"), ("probe_site", "1", "text")]:
        found = until(10, f"a stream {suffix}", lambda: stream(suffix))
        url = f"{api}/streams/{found['name']}/elements?after=0000000000000000:0&limit=1"
        elements = json.loads(cable.get("A", url))["elements"]
        late_s = epoch_s(elements[0]["receive_time"]) - ready_at
        field = found["fields"][0]
        expect(field["unit"] == unit and field["type"] == kind, f"{suffix} is a stream of {kind} in {unit}")
        expect(late_s <= 30, f"{suffix} had its first element {late_s:.2f} s after the provider was ready")
    ecg = stream("ecg_lead_2")
    expect(ecg["fields"][0]["observed_property"] == ECG, "the waveform's meaning is its 11073-10101 code")
    query = urllib.parse.quote(f"ASK {{ ?s ?p <{ECG}> }}")
    answer = json.loads(cable.get("A", f"{api}/sparql?query={query}"))
    expect(answer["boolean"] is True, "the registry knows what the waveform observes")
    until(10, "twenty stretches", lambda: stream("ecg_lead_2")["last"] >= 20)
    page = json.loads(cable.get("A", f"{api}/streams/{ecg['name']}/elements?newest=20"))["elements"]
    samples = [next(iter(e["values"].values())) for e in page]
    expect(all(len(s["values"]) == 20 and abs(s["period_s"] - 0.005) < 1e-9 for s in samples),
           "each stretch holds 20 samples 5 ms apart")
    numbers = sorted(e["number"] for e in page)
    expect(numbers == list(range(numbers[0], numbers[0] + 20)), "the elements are numbered without a gap")
    device = [d for d in json.loads(cable.get("A", f"{api}/devices"))["devices"] if d["state"] == "usable"]
    expect(len(device) == 1 and device[0]["serial_number"] == "SN-42", "the device says who it is")
    provider = restarted_provider_goes_on(cable, api, provider, stream)
    expect(node.stop() == 0, "the node drains and ends with 0")
    operations_are_called(cable, chappe, "SDC monitor")
    provider.stop()


def restarted_provider_goes_on(cable: Cable, api: str, provider: Process, stream: Callable) -> Process:
    """A provider has another endpoint reference each time it starts, and the same serial number."""
    def names() -> list[str]:
        return sorted(s["name"] for s in json.loads(cable.get("A", f"{api}/streams"))["streams"])

    before = names()
    provider.stop()
    last = stream("ecg_lead_2")["last"]
    again = cable.start("B", "provider-again", sys.executable, str(HERE / "provider.py"), "10.77.0.2", "600")
    again.wait_line("ready", 20)
    until(30, "the stream goes on", lambda: stream("ecg_lead_2")["last"] >= last + 20)
    expect(names() == before, f"a provider that restarts under another endpoint uses the same {len(before)} streams")
    devices = json.loads(cable.get("A", f"{api}/devices"))["devices"]
    texts = [notice["text"] for notice in json.loads(cable.get("A", f"{api}/notices"))["notices"]]
    continued = [t for t in texts if "continues the streams of" in t and all(d["endpoint"] in t for d in devices)]
    expect(len(devices) == 2 and len(continued) == 1, f"a notice names both endpoints: {continued}")
    return again


def operations_are_called(cable: Cable, chappe: str, device: str) -> None:
    def call(operation: str, *flags: str) -> dict:
        called = cable.run("A", chappe, "call", device, operation, "--interface", "a0", "--json", *flags)
        if called.returncode:
            raise CheckFailed(f"{operation} of {device}: {called.stderr.strip()}")
        return json.loads(called.stdout)

    message = "http://standards.ieee.org/downloads/11073/11073-10207-2017/message"
    body = f"<m:GetMdState xmlns:m='{message}'><m:HandleRef>heart_rate</m:HandleRef></m:GetMdState>"
    for flags, count in [([], None), (["--body", body], 1)]:
        answer = call("GetMdState", *flags)
        states = [s for c in answer["children"] for s in c["children"]]
        expect(answer["name"] == f"{{{message}}}GetMdStateResponse" and states
               and (count is None or len(states) == count), f"GetMdState of the provider gives {len(states)} states")
    answer = call("GetMdDescription")
    expect(answer["name"].endswith("GetMdDescriptionResponse"), "GetMdDescription is answered too")


def consumer_uses_our_device(cable: Cable, chappe: str) -> None:
    device = cable.start("A", "device", chappe, "device", "run", str(HERE / "thermometer.toml"),
                         "--address", "10.77.0.1", "--json")
    device.wait_event("ready", 20)
    client = cable.run("B", sys.executable, str(HERE / "client.py"), "10.77.0.2", timeout_s=60)
    (cable.work / "client.log").write_text(client.stdout + client.stderr)
    if client.returncode:
        raise CheckFailed(f"the consumer failed: {client.stderr.strip().splitlines()[-1:]}")
    for line in client.stdout.splitlines():
        expect(True, line)
    device.stop()


def check(cable: Cable, chappe: str) -> None:
    provider_becomes_streams(cable, chappe)
    consumer_uses_our_device(cable, chappe)
    secure.check(cable, chappe)
    changes.check(cable, chappe, float(os.environ.get("SDC_SECONDS", "40")))


if __name__ == "__main__":
    main(check)
