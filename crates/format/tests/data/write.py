#!/usr/bin/env python3
"""Writes the fixtures of this folder that other programs made. Needs pynmea2 and influxdb-client."""

import csv
import datetime
import logging
import struct
from pathlib import Path

import pynmea2
from influxdb_client import Point, WritePrecision

FOLDER = Path(__file__).parent
TIME = datetime.datetime(2026, 11, 21, 9, 30, tzinfo=datetime.timezone.utc)
ROWS = [
    [TIME.isoformat(), "press 1", 21.5, 3, 'door "open", north'],
    [TIME.isoformat(sep=" "), "press;2", 1e-7, -9007199254740993, "two\nlines"],
    [TIME.isoformat(), "", 1e300, 0, ""],
]
COLUMNS = ["time", "machine", "celsius", "people", "note"]

for name, options in [
    ("python-csv-excel.csv", {"dialect": "excel"}),
    ("python-csv-unix.csv", {"dialect": "unix"}),
    ("python-csv-tab.csv", {"dialect": "excel-tab"}),
]:
    with open(FOLDER / name, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, **options)
        writer.writerow(COLUMNS)
        writer.writerows(ROWS)

points = [
    Point("climate").tag("line", "3").tag("machine", "Press 1, north=a")
    .field("celsius", 21.5).field("people", 9007199254740993).field("on", True)
    .field("note", 'a "b" \\ c, d=e').time(TIME, WritePrecision.NS),
    Point("climate").tag("line", "4").tag("machine", "x\\").field("celsius", 1e-7)
    .field("people", -1).time(TIME, WritePrecision.NS),
]
(FOLDER / "influxdb-client.txt").write_text("".join(point.to_line_protocol() + "\n" for point in points))

sentences = [
    pynmea2.RMC("GP", "RMC", ("093000.00", "A", "4807.500", "N", "01130.000", "W", "10.0", "084.4", "211126", "", "")),
    pynmea2.GGA("GN", "GGA", ("093000.00", "3300.000", "S", "01131.000", "E", "1", "08", "0.9", "545.4", "M", "46.9", "M", "", "")),
    pynmea2.VTG("GP", "VTG", ("084.4", "T", "077.8", "M", "010.0", "N", "018.5", "K")),
]
(FOLDER / "pynmea2.txt").write_text("".join(f"{sentence}\r\n" for sentence in sentences))

records = b"".join(struct.pack("<BhIfd", n, -n, 2**32 - 1, n / 2, n / 3) for n in range(1, 4))
(FOLDER / "python-struct.bin").write_bytes(struct.pack("<4sH", b"lab", 7) + records)

formatter = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
lines = []
for value in [180.5, -1.0]:
    record = logging.LogRecord("oven.north", logging.INFO, "", 0, "celsius=%s", (value,), None)
    record.created, record.msecs = TIME.timestamp(), 250
    formatter.converter = lambda seconds: datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).timetuple()
    lines.append(formatter.format(record) + "\n")
(FOLDER / "python-logging.txt").write_text("".join(lines))
