#!/usr/bin/env python3
"""Clients that others wrote call devices made of Rust types, from nothing but their WSDL.

    check/dpws/run.py EXAMPLES WORK    the folder with the built examples `actuator` and `twenty_services`, and one for
                                       the programs that gSOAP makes

zeep reads the WSDL, adds the headers of WS-Addressing because the WSDL names actions, and receives answers,
faults with a detail, and the answer to a one-way message. gSOAP does the same with a client in C that it makes
of the WSDL. Both over IPv4 and IPv6. Exit code 1 when something differs.
"""

import re
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

import zeep
from zeep.exceptions import Fault

HERE = Path(__file__).resolve().parent
VALVE = "https://chappe.example/valve"
# Addresses of the loopback that no other group uses.
VALVE_ADDRESSES = ["127.0.7.1", "::1"]
RACK_ADDRESS = "127.0.7.2"
# The longest time in seconds of a device to start, and of an answer.
LIMIT_S = 20


class Device:
    """A running example, and where it serves."""

    def __init__(self, program, address):
        self.process = subprocess.Popen([program, address], stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        host = f"[{address}]" if ":" in address else address
        found = re.search(rf"{re.escape(host)}:(\d+)", line)
        if not found:
            self.process.kill()
            raise SystemExit(f"{program} says {line!r}, and no address")
        self.base = f"http://{found.group(0)}"

    def client(self, service):
        transport = zeep.Transport(timeout=LIMIT_S, operation_timeout=LIMIT_S)
        wsdl = f"{self.base}/{service}?wsdl"
        return zeep.Client(wsdl, transport=transport)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


failures = []


def expect(what, found, wanted):
    """Notes a difference."""
    same = found == wanted
    print(f"{'ok  ' if same else 'DIFF'} {what}" + ("" if same else f": {found!r}, not {wanted!r}"))
    if not same:
        failures.append(what)


def valve(program, address):
    """An answer, a fault with its detail, a fault that names the field, a one-way message."""
    with Device(program, address) as device:
        client = device.client("Valve")
        where = client.service._binding_options["address"]
        expect(f"the port has the address of the request, at {address}", where, f"{device.base}/Valve")
        expect("an answer", client.service.MoveTo(percent=40), 40)
        try:
            client.service.MoveTo(percent=140)
            expect("a fault", None, "OutOfRange")
        except Fault as fault:
            codes = [code.localname for code in fault.subcodes]
            expect("the fault's subcode", codes, ["OutOfRange"])
            expect("the fault's reason", fault.message, "the valve cannot move there")
            detail = fault.detail.find(f"{{{VALVE}}}OutOfRange")
            limits = [child.text for child in detail]
            expect("the fault's detail", limits, ["0", "100"])
            element = client.get_element(f"{{{VALVE}}}OutOfRange")
            expect("the detail by its schema", element.parse(detail, client.wsdl.types).to, 100)
        message = client.create_message(client.service, "MoveTo", percent=40)
        message.find(f".//{{{VALVE}}}percent").text = "half"
        headers = {"Content-Type": "application/soap+xml; charset=utf-8"}
        answer = client.transport.post_xml(where, message, headers)
        expect("the status of a wrong value", answer.status_code, 400)
        expect("its field", "MoveTo/percent" in answer.text, True)
        expect("a one-way message", client.service.Close(), None)


def gsoap(program, address, work):
    """The same by a client that gSOAP makes of the WSDL."""
    with Device(program, address) as device:
        work.mkdir(parents=True, exist_ok=True)
        with urllib.request.urlopen(f"{device.base}/Valve?wsdl", timeout=LIMIT_S) as answer:
            (work / "valve.wsdl").write_bytes(answer.read())
        subprocess.run([HERE / "gsoap/build", work / "valve.wsdl", HERE / "gsoap/valve.c", work, "addressing"],
                       check=True)
        done = subprocess.run([work / "program", f"{device.base}/Valve"], capture_output=True, text=True,
                              timeout=LIMIT_S)
        steps = ["answer 40", "relates to the request", "fault ns1:OutOfRange", "reason the valve cannot move there",
                 "limits 0 100", "closed"]
        expect(f"gSOAP at {address}", done.stdout.splitlines() or done.stderr, steps)


def rack(program):
    """Each of 20 services, with two port types."""
    with Device(program, RACK_ADDRESS) as device:
        for number in (1, 7, 20):
            client = device.client(f"Channel{number}")
            ports = sorted(client.wsdl.services[f"Channel{number}Service"].ports)
            expect(f"ports of channel {number}", ports, ["AlarmsPort", f"Channel{number}Port"])
            service = client.bind(f"Channel{number}Service", f"Channel{number}Port")
            answer = service.Calibrate(offset=0.5, age="PT1H")
            expect(f"an answer of channel {number}", answer.offset, 0.5)
            expect(f"a duration of channel {number}", answer.age.total_seconds(), 3600.0)
            alarms = client.bind(f"Channel{number}Service", "AlarmsPort")
            expect(f"the second port type of channel {number}", alarms.Confirm(text="seen"), None)


def main():
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    examples, work = Path(sys.argv[1]), Path(sys.argv[2])
    for address in VALVE_ADDRESSES:
        valve(examples / "actuator", address)
        if shutil.which("wsdl2h"):
            gsoap(examples / "actuator", address, work)
    if not shutil.which("wsdl2h"):
        print("skipped: dpws: gSOAP is not installed")
    rack(examples / "twenty_services")
    print(f"{len(failures)} differences")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
