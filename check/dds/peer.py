"""Cyclone DDS with types made from our IDL.

    peer.py write-octets DOMAIN TOPIC COUNT BYTES
    peer.py read-octets DOMAIN TOPIC COUNT
    peer.py write-elements DOMAIN TOPIC COUNT     elements of the type in `chappe`, named by TYPE
    peer.py read-elements DOMAIN TOPIC COUNT

A writer runs until all samples are acknowledged, and then until its input ends. The directory of the generated Python is in CHAPPE_IDL, the struct of elements in TYPE.
"""

import importlib
import os
import sys
import time

from cyclonedds.core import Policy, Qos
from cyclonedds.domain import DomainParticipant
from cyclonedds.pub import DataWriter
from cyclonedds.sub import DataReader
from cyclonedds.topic import Topic
from cyclonedds.util import duration

sys.path.insert(0, os.environ["CHAPPE_IDL"])
types = importlib.import_module("chappe")
PATIENCE_S = 120
# What is written to a volatile topic while reader and writer still find each other may be lost.
RELIABLE = Qos(Policy.Reliability.Reliable(duration(seconds=10)), Policy.History.KeepAll,
               Policy.Durability.TransientLocal,
               Policy.DurabilityService(0, Policy.History.KeepAll, -1, -1, -1))
if os.environ.get("CHAPPE_DEADLINE"):
    RELIABLE = RELIABLE + Qos(Policy.Deadline(duration(milliseconds=100)))


def value(name: str, number: int):
    """The value of a field in the element with this number."""
    return {"flag": number % 2 == 0, "count": -number, "level": number / 4, "words": f"ärger {number}",
            "raw": [number % 256] * (number % 7)}[name]


def wave(number: int):
    return types.Samples(start_ns=number, period_ns=1000, values=[number / 2, -1.5])


def writer(participant, topic) -> DataWriter:
    made = DataWriter(participant, topic, qos=RELIABLE)
    end = time.monotonic() + PATIENCE_S
    while made.get_matched_subscriptions() == []:
        if time.monotonic() > end:
            sys.exit("no reader is there")
        time.sleep(0.01)
    return made


def write(participant, topic, samples) -> None:
    made = writer(participant, topic)
    count = 0
    for sample in samples:
        made.write(sample)
        count += 1
    if not made.wait_for_acks(duration(seconds=PATIENCE_S)):
        sys.exit("not all is acknowledged")
    print(f"written {count}", flush=True)
    # A volatile writer stays until its reader has taken everything: not every library keeps it.
    sys.stdin.read()


def read(participant, topic, count: int, fits) -> None:
    """Reads until the sample with the number `count` arrives; `fits` checks each sample."""
    reader = DataReader(participant, topic, qos=RELIABLE)
    print("ready", flush=True)
    newest = missing = repeated = 0
    end = time.monotonic() + PATIENCE_S
    while newest < count:
        if time.monotonic() > end:
            sys.exit(f"{newest} of {count} came")
        for sample in reader.take(N=256):
            if not fits(sample):
                sys.exit(f"sample {sample.number} holds something else: {str(sample)[:300]}")
            if sample.number <= newest:
                repeated += 1
            else:
                missing += sample.number - newest - 1
                newest = sample.number
        time.sleep(0.002)
    print(f"read {count} missing {missing} repeated {repeated}", flush=True)


def octets_fit(sample) -> bool:
    return bytes(sample.data).strip(bytes([sample.number % 251])) == b""


def element(kind, number: int):
    return kind(stream="lab.in", instance="", epoch=77, number=number, previous=0,
                source_time_ns=1_700_000_000_000_000_000 + number, quality=types.Quality.GOOD,
                absent=[3] if number % 5 == 0 else [], flag=value("flag", number), count=value("count", number),
                level=value("level", number), words="" if number % 5 == 0 else value("words", number),
                raw=value("raw", number), wave=wave(number))


def element_fits(sample) -> bool:
    number = -sample.count
    wanted = element(type(sample), number)
    same = all(getattr(sample, name) == getattr(wanted, name)
               for name in ("absent", "flag", "level", "words", "source_time_ns", "quality"))
    return same and list(sample.raw) == wanted.raw and sample.wave.values == wanted.wave.values


def main(verb: str, domain: str, name: str, count: str, size: str = "0") -> None:
    participant = DomainParticipant(int(domain))
    kind = types.Octets if "octets" in verb else getattr(types, os.environ["TYPE"])
    topic = Topic(participant, name, kind)
    numbers = range(1, int(count) + 1)
    if verb == "write-octets":
        rest = int(size) - 28
        write(participant, topic, (types.Octets(source=1, number=number, time_ns=0,
                                                data=bytes([number % 251]) * rest) for number in numbers))
    elif verb == "read-octets":
        read(participant, topic, int(count), octets_fit)
    elif verb == "write-elements":
        write(participant, topic, (element(kind, number) for number in numbers))
    else:
        read(participant, topic, int(count), element_fits)


main(*sys.argv[1:])
