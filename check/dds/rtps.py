"""Messages of RTPS that a stranger forges."""

import socket
import struct

# Vendors, the first two bytes of the GUID of each of their participants.
ECLIPSE, OTHER_VENDOR = b"\x01\x10", b"\x01\x12"
# The built-in ends of a participant: for discovery, and for questions about types too (RTPS 2.5, table 9.4).
DISCOVERY_ENDS, TYPE_LOOKUP_ENDS = 0xC3F, 0xFC3F
DATA = 0x15


def parameter(number: int, value: bytes) -> bytes:
    return struct.pack("<HH", number, len(value)) + value


def submessage(kind: int, body: bytes) -> bytes:
    """Little-endian; of data, with a payload."""
    return bytes([kind, 0x05 if kind == DATA else 0x01]) + struct.pack("<H", len(body)) + body


def message(prefix: bytes, *submessages: bytes) -> bytes:
    return b"RTPS\x02\x03" + prefix[:2] + prefix + b"".join(submessages)


def announcement(prefix: bytes, address: str, port: int = 7_999, ends: int = DISCOVERY_ENDS) -> bytes:
    """The announcement of a participant at the address: RTPS 2.5, 8.5.3 and 9.6.3."""
    locator = struct.pack("<iI", 1, port) + bytes(12) + socket.inet_aton(address)
    parameters = [
        (0x15, b"\x02\x03\0\0"),  # version
        (0x16, prefix[:2] + b"\0\0"),  # vendor
        (0x50, prefix + b"\0\0\x01\xc1"),  # GUID
        (0x32, locator),  # for discovery
        (0x31, locator),  # for the rest
        (0x02, struct.pack("<iI", 100, 0)),  # lease
        (0x58, struct.pack("<I", ends)),
    ]
    listed = b"".join(parameter(*it) for it in parameters) + struct.pack("<HH", 1, 0)
    head = struct.pack("<HH", 0, 16) + bytes.fromhex("000100c7000100c2") + struct.pack("<iI", 0, 1)
    return message(prefix, submessage(DATA, head + b"\0\x03\0\0" + listed))
