"""The tools for developers of devices, on devices that others wrote.

    check/dpws/tools.py CHAPPE WORK

1. `chappe device check` finds nothing in our own device, of either dialect, and says what it finds in an SDC provider
   (sdc11073) and in wsdd.
2. `chappe device record` records the provider; `chappe device run` replays it to sdc11073's own consumer, which reads
   its description and receives its reports.
3. `chappe trace --http` shows the whole conversation of the two, with the time of each answer; the same from a capture
   that tcpdump wrote, if there is one.
4. `chappe watch` goes on with a device that was killed and came back at another port, without its Hello.
"""

import json
import pathlib
import shutil
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from network import Cable, CheckFailed, expect, main, until  # noqa: E402

SDC = pathlib.Path(__file__).resolve().parent.parent / "sdc"
HERE = pathlib.Path(__file__).resolve().parent
SDC_NAME = "SDC monitor"
# Clauses that a device without events or scopes gives no occasion to see.
FEW = 25
# The longest time in seconds until a restarted device is watched again: silence is noticed after 3 s, its absence and its
# new address after 3 s each, and a search takes 3 s.
AGAIN_S = 30


def events_of(text: str, event: str) -> list[dict]:
    return [one for one in map(json.loads, text.splitlines()) if one.get("event") == event]


def checked(cable: Cable, chappe: str, end: str, device: str, *flags: str) -> tuple[int, list[dict], dict]:
    interface = cable.INTERFACES[end]
    ran = cable.run(end, chappe, "device", "check", device, "--interface", interface, "--json", *flags, timeout_s=60)
    summary = events_of(ran.stdout, "summary")
    if not summary:
        raise CheckFailed(f"no summary of {device}: {ran.stderr.strip()}")
    (cable.work / f"check-{end}-{device.replace(':', '-')}.jsonl").write_text(ran.stdout)
    for note in events_of(ran.stdout, "note"):
        print(f"   note: {note['text']}")
    return ran.returncode, events_of(ran.stdout, "finding"), summary[0]


def found(cable: Cable, chappe: str, name: str) -> str:
    """The endpoint of the only device."""
    def seen() -> list[dict]:
        ran = cable.run("A", chappe, "find", "--interface", "a0", "--timeout", "8s", "--json")
        return events_of(ran.stdout, "device")

    devices = until(15, name, seen)
    expect(len(devices) == 1, f"{name} is found: {[device['endpoint'] for device in devices]}")
    return devices[0]["endpoint"]


def shown(name: str, findings: list[dict], summary: dict) -> None:
    for finding in findings:
        print(f"   {name}: {finding['severity']} {finding['clause']} ({finding['rule']}): {finding['problem']}; "
              f"sent {finding['sent']}, came {finding['came'][:160]}")
    expect(summary["kept"] >= FEW, f"{name}: {summary['kept']} clauses kept, {summary['violated']} violated, "
           f"{len(summary['not_seen'])} not seen, {summary['questions']} questions")


def ours_has_no_finding(cable: Cable, chappe: str) -> None:
    for dialect in ("2009", "2005"):
        device = cable.start("A", f"device-{dialect}", chappe, "device", "run", str(SDC / "thermometer.toml"),
                             "--address", "10.77.0.1", "--announce-within", "100ms", "--dialect", dialect, "--json")
        ready = device.wait_event("ready", 20)
        code, findings, summary = checked(cable, chappe, "B", ready["endpoint"])
        shown(f"our device of {dialect}", findings, summary)
        expect(code == 0 and not findings, f"our device of {dialect} has no finding")
        device.stop()
    gone = cable.run("B", chappe, "device", "check", "http://10.77.0.1:9/device")
    expect(gone.returncode == 2, "a device that does not answer gives exit code 2")


def others_are_checked(cable: Cable, chappe: str) -> None:
    provider = cable.start("B", "provider", sys.executable, str(SDC / "provider.py"), "10.77.0.2", "900")
    provider.wait_line("ready", 20)
    endpoint = found(cable, chappe, "sdc11073")
    code, findings, summary = checked(cable, chappe, "A", SDC_NAME)
    shown("sdc11073", findings, summary)
    expect(code in (0, 1), f"sdc11073 is checked to the end, exit code {code}")
    record_and_replay(cable, chappe, endpoint, provider)
    wsdd = shutil.which("wsdd")
    if not wsdd:
        print("   skipped: wsdd is not installed")
        return
    cable.start("B", "wsdd", wsdd, "-v", "-i", "b0", "-4", "-n", "PEERBOX")
    code, findings, summary = checked(cable, chappe, "A", found(cable, chappe, "wsdd"))
    shown("wsdd", findings, summary)
    expect(code in (0, 1), f"wsdd is checked to the end, exit code {code}")


def record_and_replay(cable: Cable, chappe: str, endpoint: str, provider) -> None:
    folder = cable.work / "recording"
    recorded = cable.run("A", chappe, "device", "record", SDC_NAME, str(folder), "--interface", "a0",
                         "--events", "6s", "--json", timeout_s=60)
    summary = events_of(recorded.stdout, "recorded")
    if not summary:
        raise CheckFailed(f"no recording: {recorded.stderr.strip()}")
    summary = summary[0]
    for note in summary["notes"]:
        print(f"   note: {note}")
    expect(summary["answers"] >= 3 and summary["events"] >= 10,
           f"the provider is recorded: {summary['documents']} documents, {summary['answers']} answers, "
           f"{summary['events']} events")
    provider.stop()
    replayed = cable.start("B", "replayed", chappe, "device", "run", str(folder), "--address", "10.77.0.2",
                           "--announce-within", "100ms", "--json")
    expect(replayed.wait_event("ready", 20)["endpoint"] == endpoint, "the replayed device has the endpoint")
    traced = cable.start("A", "trace", chappe, "trace", "--http", "--device", "10.77.0.2", "--interface", "a0", "--json")
    capture = cable.work / "conversation.pcap"
    tcpdump = shutil.which("tcpdump")
    captured = tcpdump and cable.start("A", "tcpdump", tcpdump, "-i", "a0", "-U", "-w", str(capture))
    consumer = cable.run("A", sys.executable, str(HERE / "replayed.py"), "10.77.0.1", endpoint, timeout_s=60)
    (cable.work / "consumer.log").write_text(consumer.stdout + consumer.stderr)
    if consumer.returncode:
        raise CheckFailed(f"the consumer failed: {consumer.stderr.strip().splitlines()[-1:]}")
    for line in consumer.stdout.splitlines():
        expect(True, line)
    lines = []
    while not any(line.get("action", "") and line["action"].endswith("/Unsubscribe") for line in lines):
        lines.append(traced.wait_event("message", 20))
    shows_the_conversation(lines, "the trace")
    traced.stop()
    replayed.stop()
    if not captured:
        print("   skipped: tcpdump is not installed, so no capture of it is read")
        return
    captured.stop()
    read = cable.run("A", chappe, "trace", "--capture", str(capture), "--json")
    expect(read.returncode == 0, "the capture is read to its end")
    shows_the_conversation(events_of(read.stdout, "message"), "the capture")


def shows_the_conversation(lines: list[dict], what: str) -> None:
    last = {(line["action"] or "").rsplit("/", 1)[-1] for line in lines}
    wanted = {"Probe", "ProbeMatches", "Get", "GetResponse", "Subscribe", "SubscribeResponse", "EpisodicMetricReport"}
    wanted = {word for word in wanted if not word.startswith("Probe")} if what == "the trace" else wanted
    expect(wanted <= last, f"{what} has {len(lines)} messages of {len(last)} kinds")
    answers = sorted(line["answer_us"] for line in lines if line["answer_us"] is not None)
    expect(len(answers) > 10, f"{what} has the times of {len(answers)} answers, the median {answers[len(answers) // 2]:.0f} us")


def watch_outlives_a_restart(cable: Cable, chappe: str) -> None:
    def start(name: str):
        # Its Hello comes too late to matter.
        device = cable.start("A", name, chappe, "device", "run", str(SDC / "thermometer.toml"), "--address", "10.77.0.1",
                             "--announce-within", "10m", "--json")
        return device, device.wait_event("ready", 20)

    first, ready = start("restarted-1")
    watched = cable.start("B", "watched", chappe, "watch", ready["endpoint"], "--interface", "b0", "--host", "10.77.0.1",
                          "--json")
    watched.wait_line('{"', 20)
    first.stop(signal.SIGKILL)
    killed = time.time()
    second, again = start("restarted-2")
    expect(again["endpoint"] == ready["endpoint"] and again["addresses"] != ready["addresses"],
           "the device is back at another port")
    while True:
        at, _ = watched.wait_line('{"', AGAIN_S)
        if at > killed + 1:
            break
    expect(at - killed < AGAIN_S, f"watch receives events again {at - killed:.1f} s after the device was killed")
    watched.stop()
    second.stop()


def check(cable: Cable, chappe: str) -> None:
    ours_has_no_finding(cable, chappe)
    watch_outlives_a_restart(cable, chappe)
    others_are_checked(cable, chappe)


if __name__ == "__main__":
    main(check)
