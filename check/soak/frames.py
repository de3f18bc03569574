"""The records of a node's log, read from its files while they are written.

The layout is decoded here from its description in crates/log, not with the program's code. Each record is
archived when its frame is first complete, so neither retention nor later damage removes it.
"""

import array
import os
import pathlib
import struct
import typing
import zlib

SEGMENT_HEADER_BYTES, HEADER_BYTES, RECORD_BYTES = 36, 72, 12
MAGIC = b"CHf1"
RECORDS, DEFINITION, FILL = 1, 2, 6
# The flag in a record's leading varint that says that its position at the origin follows.
ORIGIN_FOLLOWS = 1 << 8
MASK = (1 << 64) - 1


class Unreadable(Exception):
    """A file was removed before it was read: the archive is incomplete and no verdict is possible."""


class Record(typing.NamedTuple):
    """A stored element: its own position, its position at its origin (0, 0 for none), and a checksum of its
    source time, key, values and quality."""
    epoch: int
    number: int
    origin_epoch: int
    origin_number: int
    content: int


def _mix(x: int) -> int:
    x = (x + 0x9e3779b97f4a7c15) & MASK
    x = ((x ^ (x >> 30)) * 0xbf58476d1ce4e5b9) & MASK
    x = ((x ^ (x >> 27)) * 0x94d049bb133111eb) & MASK
    return x ^ (x >> 31)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number, shift = 0, 0
    while True:
        byte = data[at]
        number |= (byte & 0x7f) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number, at


class Segment:
    """One file: the position up to which it was read, and its salt once its header is known."""

    def __init__(self, path: pathlib.Path, number: int):
        self.file = open(path, "rb")
        self.inode = os.fstat(self.file.fileno()).st_ino
        self.number, self.offset, self.salt = number, 0, b""

    def store(self) -> int | None:
        """The store's number from the header."""
        header = os.pread(self.file.fileno(), SEGMENT_HEADER_BYTES, 0)
        return struct.unpack_from("<Q", header, 16)[0] if len(header) == SEGMENT_HEADER_BYTES else None

    def frames(self, store: int) -> typing.Iterator[tuple[bytes, bytes]]:
        """Header and body of each complete frame that was not read before."""
        self.salt = struct.pack("<Q", _mix(store ^ _mix(self.number)))
        self.offset = max(self.offset, SEGMENT_HEADER_BYTES)
        self.file.seek(self.offset)
        data, base, at = self.file.read(), self.offset, 0
        while True:
            frame = self._frame(data, base, at)
            if frame is None:
                # Damaged bytes, or a frame that is still being written: go on at the next whole one.
                at = self._next(data, base, at)
                if at is None:
                    return
                continue
            yield frame
            at += HEADER_BYTES + len(frame[1])
            self.offset = base + at

    def _frame(self, data: bytes, base: int, at: int) -> tuple[bytes, bytes] | None:
        header = data[at:at + HEADER_BYTES]
        if len(header) < HEADER_BYTES or header[:4] != MAGIC:
            return None
        body_bytes, body_crc, crc = (struct.unpack_from("<I", header, n)[0] for n in (8, 64, 68))
        body = data[at + HEADER_BYTES:at + HEADER_BYTES + body_bytes]
        place = self.salt + struct.pack("<I", base + at)
        whole = len(body) == body_bytes and zlib.crc32(body) == body_crc
        return (header, body) if whole and zlib.crc32(header[:68], zlib.crc32(place)) == crc else None

    def _next(self, data: bytes, base: int, at: int) -> int | None:
        while (at := data.find(MAGIC, at + 1)) >= 0:
            if self._frame(data, base, at):
                return at
        return None


class Log:
    """The archive of one log directory."""

    def __init__(self, folder: pathlib.Path, store: int | None = None):
        self.folder, self.store = folder, store
        self.segments: dict[int, Segment] = {}
        self.newest = 0
        # A segment that was removed before it was read.
        self.unread: int | None = None
        self.names: dict[int, str] = {}
        self.streams: dict[str, array.array] = {}
        self.last: dict[str, Record] = {}

    def poll(self) -> "Log":
        """Reads all data written since the last call."""
        numbers = {int(path.name.split(".")[0]): path for path in self.folder.glob("*.segment")}
        followed = bool(self.segments)
        for segment in list(self.segments.values()):
            self._read(segment)
        for number, path in sorted(numbers.items()):
            known = self.segments.get(number)
            try:
                # A file that recovery wrote anew is another one.
                if known is None or path.stat().st_ino != known.inode:
                    # One that a full disk cut off is removed at once: what it was to hold comes in the next.
                    self.unread = self.newest + 1 if followed and number > self.newest + 1 else self.unread
                    self.segments[number] = Segment(path, number)
                    self.newest = max(self.newest, number)
                    self._read(self.segments[number])
                    if known:
                        known.file.close()
            except FileNotFoundError:
                continue
        for number in set(self.segments) - set(numbers):
            self.segments.pop(number).file.close()
        return self

    def records(self, stream: str) -> typing.Iterator[Record]:
        """All records ever stored in a stream, in the order of the files; records rewritten by recovery occur again."""
        fields = self.streams.get(stream, array.array("Q"))
        return (Record(*fields[n:n + 5]) for n in range(0, len(fields), 5))

    def _read(self, segment: Segment) -> None:
        self.store = segment.store() if self.store is None else self.store
        if self.store is None:
            return
        for header, body in segment.frames(self.store):
            stream, count = struct.unpack_from("<II", header, 12)
            epoch, first = struct.unpack_from("<QQ", header, 24)
            if header[4] == DEFINITION:
                length = struct.unpack_from("<I", body, 1)[0]
                self.names[stream] = body[5:5 + length].decode()
            elif header[4] in (RECORDS, FILL) and stream in self.names:
                last = self.last.get(self.names[stream])
                if self.unread and header[4] == RECORDS and last and first > last.number + 1:
                    raise Unreadable(f"{self.folder}: segment {self.unread} was removed unread")
                self._take(self.names[stream], epoch, first, count, body)

    def _take(self, name: str, epoch: int, first: int, count: int, body: bytes) -> None:
        fields = self.streams.setdefault(name, array.array("Q"))
        at = 0
        for number in range(first, first + count):
            time, length = struct.unpack_from("<8sI", body, at)
            payload = body[at + RECORD_BYTES:at + RECORD_BYTES + length]
            at += RECORD_BYTES + length
            lead, rest = _varint(payload, 0)
            origin = (0, 0)
            if lead & ORIGIN_FOLLOWS:
                origin_epoch, rest = _varint(payload, rest)
                origin_number, rest = _varint(payload, rest)
                origin = (origin_epoch, origin_number)
            # The distance of the receive time is each node's own.
            _, rest = _varint(payload, rest)
            record = Record(epoch, number, *origin, zlib.crc32(time + payload[rest:]))
            fields.extend(record)
            last = self.last.get(name)
            if last is None or record.number >= last.number:
                self.last[name] = record
