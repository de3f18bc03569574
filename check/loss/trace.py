"""Parses strace output to ordered events, and the frames in the data written to the log. The frame's layout is
decoded here from its description, not with the program's code.

The frame's layout is decoded here from its description, not with the program's code.
"""

import dataclasses
import pathlib
import re
import struct

LINE = re.compile(r"^(\d+) +(?:\d+\.\d+ +)?(.*)$")
CALL = re.compile(r"^(\w+)\((.*)$", re.DOTALL)
RESUMED = re.compile(r"^<\.\.\. (\w+) resumed>(.*)$", re.DOTALL)
RESULT = re.compile(r"= (-?\d+|\?)[^=]*$")
HEX = re.compile(r"(?:\\x[0-9a-f]{2})+")
DESCRIPTOR = re.compile(r"^(\d+)<((?:\\x[0-9a-f]{2})+)")
HEADER_BYTES = 72
SEGMENT_HEADER_BYTES = 36
RECORDS, DEFINITION = 1, 2


@dataclasses.dataclass
class Call:
    """A system call: the lines of its start and end show the order of calls."""
    thread: int
    name: str
    path: str
    data: bytes
    start: int
    end: int | None
    result: int | None


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))


def calls(log: pathlib.Path) -> list[Call]:
    """The calls of a trace made with -f -y -xx."""
    done: list[Call] = []
    open_calls: dict[int, Call] = {}
    with open(log, errors="replace") as lines:
        for index, line in enumerate(lines):
            parts = LINE.match(line.rstrip("\n"))
            if not parts:
                continue
            thread, text = int(parts[1]), parts[2]
            resumed = RESUMED.match(text)
            if resumed:
                call = open_calls.pop(thread, None)
                if call:
                    _finish(call, resumed[2], index)
                continue
            match = CALL.match(text)
            if not match:
                continue
            call = _begin(thread, match[1], match[2], index)
            done.append(call)
            if text.endswith("<unfinished ...>"):
                open_calls[thread] = call
            else:
                _finish(call, text, index)
    return done


def _begin(thread: int, name: str, arguments: str, index: int) -> Call:
    descriptor = DESCRIPTOR.match(arguments)
    path = _bytes(descriptor[2]).decode(errors="replace") if descriptor else ""
    rest = arguments[descriptor.end():] if descriptor else arguments
    if name in ("write", "sendto", "writev", "sendmsg", "pwrite64"):
        data = b"".join(_bytes(piece) for piece in HEX.findall(rest))
    else:
        data = b""
        strings = HEX.findall(rest)
        path = path or (_bytes(strings[-1]).decode(errors="replace") if strings else "")
    return Call(thread, name, path, data, index, None, None)


def _finish(call: Call, text: str, index: int) -> None:
    result = RESULT.search(text)
    if result and result[1] != "?":
        call.end, call.result = index, int(result[1])


@dataclasses.dataclass
class Placed:
    """The write that contains a record."""
    write: Call
    epoch: str


class Frames:
    """Follows the writes to segments: which record is in which write."""

    def __init__(self):
        self.names: dict[int, str] = {}
        self.records: dict[tuple[str, int], Placed] = {}
        self.frames = 0

    def follow(self, call: Call) -> None:
        data = call.data
        at = SEGMENT_HEADER_BYTES if data.startswith(b"CHAPPElg") else 0
        while at + HEADER_BYTES <= len(data) and data[at:at + 4] == b"CHf1":
            kind = data[at + 4]
            body_bytes, stream, count = struct.unpack_from("<III", data, at + 8)
            epoch, first = struct.unpack_from("<QQ", data, at + 24)
            body = data[at + HEADER_BYTES:at + HEADER_BYTES + body_bytes]
            if kind == DEFINITION:
                length = struct.unpack_from("<I", body, 1)[0]
                self.names[stream] = body[5:5 + length].decode()
            elif kind == RECORDS and stream in self.names:
                for number in range(first, first + count):
                    place = Placed(call, f"{epoch:016x}")
                    self.records[self.names[stream], number] = place
            self.frames += 1
            at += HEADER_BYTES + body_bytes


def synced(write: Call, syncs: list[Call], before: int) -> bool:
    """Whether the file of this write was synced: the sync started after the write had ended, and succeeded."""
    return write.end is not None and write.result == len(write.data) and any(
        sync.path == write.path and sync.start > write.end and sync.result == 0
        and sync.end is not None and sync.end < before for sync in syncs)
