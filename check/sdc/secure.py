"""SDC with TLS: certificates at both ends, made with openssl.

1. A provider (sdc11073) demands a certificate of its clients. Chappe finds, describes, calls and watches it, with trust
   by an authority and the role of SDC, and with trust by fingerprint; a node stores its metrics.
2. A certificate that expired, lacks the role, names another device, comes from a stranger or is missing is named with
   the reason, and nothing is sent without TLS.
3. A consumer (sdc11073) reads the metadata of our device with TLS, subscribes, receives, renews and unsubscribes.
"""

import json
import pathlib
import sys
import uuid

from certificates import BOTH_ENDS, EXPIRED, ROLE, Authority, fingerprint
from network import Cable, CheckFailed, Process, expect, until

HERE = pathlib.Path(__file__).resolve().parent
PROVIDER = "SDC monitor"


class Participants:
    def __init__(self, work: pathlib.Path):
        self.endpoint = str(uuid.uuid4())
        uri = f"URI:urn:uuid:{self.endpoint}"
        self.authority = Authority(work / "authority", "ward authority")
        self.stranger = Authority(work / "stranger", "another authority")
        self.provider = self.authority.sign("provider", uri)
        self.client = self.authority.sign("client")
        self.device = self.authority.sign("device", "IP:10.77.0.1")
        self.consumer = self.authority.sign("consumer", "IP:10.77.0.2")
        self.refused = {
            "expired": (self.authority.sign("expired", uri, dates=EXPIRED), "it has expired"),
            "role": (self.authority.sign("role", uri, usages=BOTH_ENDS), f"usage {ROLE}"),
            "usage": (self.authority.sign("usage", uri, usages=f"clientAuth,{ROLE}"), "not made for this usage"),
            "other": (self.authority.sign("other", f"URI:urn:uuid:{uuid.uuid4()}"), "that of another device"),
            "unknown": (self.stranger.sign("unknown", uri), "not signed by a trusted authority"),
        }

    def flags(self, own: tuple[pathlib.Path, pathlib.Path] | None = None) -> list[str]:
        certificate, key = own or self.client
        return ["--authorities", str(self.authority.file), "--usage", ROLE, "--certificate", str(certificate),
                "--key", str(key)]


def provider(cable: Cable, them: Participants, own: tuple[pathlib.Path, pathlib.Path], name: str) -> Process:
    started = cable.start("B", f"secure-{name}", sys.executable, str(HERE / "provider.py"), "10.77.0.2", "600",
                          them.endpoint, *map(str, own), str(them.authority.file))
    started.wait_line("ready", 20)
    return started


def find(cable: Cable, chappe: str, *flags: str) -> dict:
    """What find says of the provider."""
    found = cable.run("A", chappe, "find", "--interface", "a0", "--json", *flags, timeout_s=20)
    lines = [json.loads(line) for line in found.stdout.splitlines()]
    devices = [line for line in lines if line["event"] == "device"]
    if len(devices) != 1:
        raise CheckFailed(f"find sees {len(devices)} devices: {found.stdout} {found.stderr}")
    return devices[0]


def provider_is_used(cable: Cable, chappe: str, them: Participants) -> None:
    running = provider(cable, them, them.provider, "provider")
    untrusted = find(cable, chappe)
    pin = fingerprint(them.provider[0])
    expect("no certificate is trusted here" in untrusted["reason"] and pin in untrusted["hint"],
           "without trust, find shows the fingerprint of the provider")
    expect(all(address.startswith("https://") for address in untrusted["addresses"]), "the provider has https alone")
    pinned = ["--fingerprint", pin, "--certificate", str(them.client[0]), "--key", str(them.client[1])]
    for how, flags in [("an authority and the role of SDC", them.flags()), ("fingerprint", pinned)]:
        found = find(cable, chappe, *flags)
        expect(found["state"] == "usable", f"the provider is described with trust by {how}: {found['offers']}")
    called = cable.run("A", chappe, "call", PROVIDER, "GetMdDescription", "--interface", "a0", "--json", *them.flags())
    expect(called.returncode == 0 and "GetMdDescriptionResponse" in called.stdout, f"it is called {called.stderr}")
    watched = cable.run("A", chappe, "watch", PROVIDER, "--interface", "a0", "--json", "--count", "10", *them.flags(),
                        timeout_s=60)
    expect(watched.returncode == 0 and len(watched.stdout.splitlines()) == 10,
           f"its events come with TLS, and its certificate is demanded {watched.stderr}")
    address = untrusted["addresses"][0]
    checked = cable.run("A", chappe, "doctor", "--interface", "a0", "--device", address, "--json", *them.flags())
    answers = [c for c in json.loads(checked.stdout)["checks"] if c["name"] == f"device {address}"]
    expect("that of another device" not in answers[0]["detail"], f"doctor says: {answers[0]['detail']}")
    refusals = [("without a certificate", ["--authorities", str(them.authority.file)], "certificate"),
                ("with that of a stranger", them.flags(them.refused["unknown"][0]), "authority"),
                ("with one that has expired", them.flags(them.refused["expired"][0]), "expired")]
    for how, flags, word in refusals:
        found = find(cable, chappe, *flags)
        expect(found["state"] == "attention" and word in found["reason"], f"{how}: {found['reason']}")
    node_stores(cable, chappe, them)
    running.stop()


def node_stores(cable: Cable, chappe: str, them: Participants) -> None:
    certificate, key = them.client
    node, address = cable.node(chappe, config=f"""
[devices.tls]
authorities = "{them.authority.file}"
certificate = "{certificate}"
key = "{key}"
usages = ["{ROLE}"]
""")
    api = f"{address}/api/v1"

    def rate() -> bool:
        streams = json.loads(cable.get("A", f"{api}/streams"))["streams"]
        return any(s["name"].endswith("heart_rate") and s["last"] for s in streams)

    until(20, "the heart rate is stored", rate)
    expect(node.stop() == 0, "a node with [devices.tls] stores its metrics")


def certificates_are_refused(cable: Cable, chappe: str, them: Participants) -> None:
    for name, (own, reason) in them.refused.items():
        running = provider(cable, them, own, name)
        found = find(cable, chappe, *them.flags())
        expect(found["state"] == "attention" and reason in found["reason"], f"{name}: {found['reason']}")
        running.stop()


def consumer_uses_our_device(cable: Cable, chappe: str, them: Participants) -> None:
    text = (HERE / "thermometer.toml").read_text()
    table = f'[tls]\ncertificate = "{them.device[0]}"\nkey = "{them.device[1]}"\n' \
            f'authorities = "{them.authority.file}"\nusages = ["{ROLE}"]\n'
    description = HERE / "thermometer.csv"
    (cable.work / "thermometer.csv").write_text(description.read_text())
    (cable.work / "thermometer.toml").write_text(f"{text}\n{table}")
    device = cable.start("A", "secure-device", chappe, "device", "run", str(cable.work / "thermometer.toml"),
                         "--address", "10.77.0.1", "--json")
    ready = device.wait_event("ready", 20)
    expect(ready["fingerprint"] == fingerprint(them.device[0]), "our device says which certificate it has")
    client = cable.run("B", sys.executable, str(HERE / "client.py"), "10.77.0.2", *map(str, them.consumer),
                       str(them.authority.file), timeout_s=60)
    (cable.work / "secure-client.log").write_text(client.stdout + client.stderr)
    if client.returncode:
        raise CheckFailed(f"the consumer failed: {client.stderr.strip().splitlines()[-1:]}")
    for line in client.stdout.splitlines():
        expect(True, f"with TLS: {line}")
    device.stop()


def check(cable: Cable, chappe: str) -> None:
    them = Participants(cable.work / "certificates")
    provider_is_used(cable, chappe, them)
    certificates_are_refused(cable, chappe, them)
    consumer_uses_our_device(cable, chappe, them)
