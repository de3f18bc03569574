"""Captures and messages of strangers: what is lost is shown, what a terminal would obey is not, large values are read.

1. A capture with a lost packet: the messages before and after the gap are printed, and the gap.
2. A capture with control characters, to a terminal (a pseudo-terminal): none reaches it.
3. Damaged and endless captures end within a limit of time and memory, with exit code 0 or 2.
4. A message by EXI with a value beyond 64 KiB is read as its text is.
"""

import os
import pathlib
import pty
import random
import re
import struct
import subprocess
import threading
import time
import uuid

from datagrams import DIALECTS, SOAP
from device import Target
from network import expect
from wire import measured

SEED = 20_261_127
HOSTS = ("10.0.0.1", "10.0.0.2")
SECONDS_MAX, KIB_MAX = 60, 256 << 10
DAMAGED = 12
LARGE = 140_000
WSA = DIALECTS["2009"]["wsa"]
# What a terminal obeys: C0 but line ends and tabs, DEL, C1 in UTF-8, and reversed text.
OBEYED = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\xc2[\x80-\x9f]|\xe2\x80[\xaa-\xae]")
HOSTILE = "&#x9b;31m&#x85;&#x202e;"


def message(action: str) -> bytes:
    return (f"<s:Envelope xmlns:s='{SOAP}' xmlns:a='{WSA}'><s:Header><a:Action>{action}</a:Action>"
            f"<a:To>http://10.0.0.2/</a:To><a:MessageID>{uuid.uuid4().urn}</a:MessageID></s:Header>"
            f"<s:Body><q>{'x' * 2_000}</q></s:Body></s:Envelope>").encode()


def request(body: bytes, line: bytes = b"POST /x HTTP/1.1", more: bytes = b"") -> bytes:
    head = b"Host: 10.0.0.2\r\nContent-Type: application/soap+xml\r\n"
    return line + b"\r\n" + head + more + b"Content-Length: %d\r\n\r\n" % len(body) + body


def address(text: str) -> bytes:
    return bytes(map(int, text.split(".")))


def packet(sequence: int, flags: int, payload: bytes = b"", port: int = 4_000) -> bytes:
    """TCP over IPv4 from the first host to port 80 of the second."""
    tcp = struct.pack(">HHIIBBHHH", port, 80, sequence & 0xFFFF_FFFF, 200, 0x50, flags, 65_535, 0, 0) + payload
    lengths = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(tcp), 0, 0, 64, 6, 0)
    return lengths + address(HOSTS[0]) + address(HOSTS[1]) + tcp


def capture(packets: list[bytes]) -> bytes:
    parts = [struct.pack("<IHHiIII", 0xA1B2_C3D4, 2, 4, 0, 0, 262_144, 101)]
    for number, one in enumerate(packets):
        time_of = (1_700_000_000 + number // 1_000, number % 1_000 * 1_000)
        parts.append(struct.pack("<IIII", *time_of, len(one), len(one)) + one)
    return b"".join(parts)


def stream(*messages: bytes) -> list[bytes]:
    """A connection with these messages, each of which begins a packet."""
    packets, sequence = [packet(99, 2)], 100
    for data in messages:
        packets += [packet(sequence + at, 0x18, data[at:at + 1_400]) for at in range(0, len(data), 1_400)]
        sequence += len(data)
    return packets


def traced(chappe: str, work: pathlib.Path, data: bytes, *flags: str) -> bytes:
    """What a trace prints, with its errors."""
    file = work / "hostile.pcap"
    file.write_bytes(data)
    limited = ["prlimit", f"--data={KIB_MAX << 10}"]
    done = subprocess.run([*limited, chappe, "trace", "--capture", str(file), *flags], capture_output=True,
                          timeout=SECONDS_MAX)
    text = done.stdout + done.stderr
    if done.returncode not in (0, 2) or b"panicked" in text:
        (work / "failed.pcap").write_bytes(data)
        expect(False, f"a trace ends with {done.returncode}: {done.stderr[-200:]!r}")
    return text


def on_terminal(chappe: str, *arguments: str) -> bytes:
    """What a program prints to a terminal."""
    ours, theirs = pty.openpty()
    output = bytearray()

    def read() -> None:
        while True:
            try:
                output.extend(os.read(ours, 65_536))
            except OSError:  # the last writer has closed it
                return
    reader = threading.Thread(target=read)
    reader.start()
    subprocess.run([chappe, *arguments], stdout=theirs, stderr=theirs, stdin=subprocess.DEVNULL, timeout=SECONDS_MAX,
                   env={**os.environ, "NO_COLOR": "1"})
    os.close(theirs)
    reader.join()
    os.close(ours)
    return bytes(output)


def gap(chappe: str, work: pathlib.Path) -> None:
    names = [f"urn:check:{name}" for name in ("first", "second", "third")]
    packets = stream(*(request(message(name)) for name in names))
    # Each message has two; the last of the second one is lost.
    text = traced(chappe, work, capture(packets[:4] + packets[5:])).decode()
    expect("gap" in text and names[0] in text and names[2] in text,
           "a capture without one packet shows the gap, and the messages before and after it")


def terminal(chappe: str, work: pathlib.Path) -> None:
    texts = [message(f"urn:x{HOSTILE}"), b"\x1b]0;title\x07 no xml \xc2\x9b31m"]
    lines = [b"POST /\x1b[2Jx HTTP/1.1", b"POST /y HTTP/1.1"]
    data = b"".join(request(text, line, b"X: \x1b[31m\r\n") for text, line in zip(texts, lines, strict=True))
    file = work / "terminal.pcap"
    file.write_bytes(capture(stream(data)))
    for flags in ((), ("--raw",), ("--raw", "--json")):
        output = on_terminal(chappe, "trace", "--capture", str(file), *flags)
        obeyed = OBEYED.findall(output)
        what = " ".join(["trace", *flags])
        expect(b"31m" in output or not flags, f"{what} prints the messages to a terminal")
        expect(not obeyed, f"and nothing that it obeys: {obeyed[:5]}")


def damaged(chappe: str, work: pathlib.Path) -> None:
    rng = random.Random(SEED)
    head = b"POST / HTTP/1.1\r\n"
    endless = {
        "chunks": capture(stream(head + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 100_000)),
        "a header": capture(stream(head + b"X: y\r\n" * 200_000)),
        "gaps": capture([packet(99, 2)] + [packet(1_000 + n * 1_500, 0x18, b"x" * 1_400) for n in range(10_000)]),
        "bytes backwards": capture([packet(99, 2)] + [packet(10_100 - n, 0x18, b"x") for n in range(10_000)]),
        "connections": capture([packet(1, 0x18, head + b"Content-Length: 9999999\r\n\r\n" + b"x" * 200, 1_000 + n)
                                for n in range(20_000)]),
    }
    start = time.monotonic()
    for name, data in endless.items():
        traced(chappe, work, data)
        measured(f"a trace of endless {name}", f"{len(data) >> 10} KiB")
    whole = capture(stream(request(message("urn:x"))))
    for _ in range(DAMAGED):
        data = bytearray(whole)
        for _ in range(rng.randint(1, 5)):
            data[rng.randrange(len(data))] = rng.choice([0, 255, rng.randrange(256)])
        traced(chappe, work, bytes(data[:rng.randrange(24, len(data))] if rng.random() < 0.3 else data))
    seconds = time.monotonic() - start
    expect(True, f"{len(endless)} endless and {DAMAGED} damaged captures end within {seconds:.0f} s")


def exi(chappe: str, device: Target) -> None:
    """A device answers a message by EXI as it answers its text."""
    def post(body: bytes, **headers: str) -> bytes:
        return re.sub(rb"urn:uuid:[^<]*", b"", device.post(device.path, body, **headers)[2])
    coding = ["--compression", "--preserve.prefixes", "--preserve.lexicalValues", "--schema", "dev1"]
    for size in (1_000, LARGE):
        text = message("urn:x").replace(b"<q>", b"<q>" + b"y" * size)
        coded = subprocess.run([chappe, "exi", "encode", *coding], input=text, capture_output=True, check=True).stdout
        answers = [post(text), post(coded, Content_Encoding="exi")]
        expect(b"ActionNotSupported" in answers[0] and answers[0] == answers[1],
               f"a value of {size} characters is read from EXI as from text")


def check(chappe: str, work: pathlib.Path, device: Target) -> None:
    gap(chappe, work)
    terminal(chappe, work)
    damaged(chappe, work)
    exi(chappe, device)
