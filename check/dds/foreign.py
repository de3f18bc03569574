"""Types that Chappe did not define, written by Cyclone DDS: `sensor_msgs/Imu` of ROS 2, and a type with what ROS 2 does not
have (keys, enumerations, appendable and mutable structs, sequences of structs).

    foreign.py imu DOMAIN COUNT                   writes rt/imu, in version 1 of CDR
    foreign.py pose DOMAIN COUNT PARTITION        writes lab/pose, in version 2, the only one for its types in Cyclone DDS
    foreign.py turns DOMAIN COUNT                 writes lab/turns: two types in turn at first, then many samples of one
    foreign.py read-imu DOMAIN COUNT              reads rt/imu_back and compares the samples with those of rt/imu
    foreign.py read-pose DOMAIN COUNT PARTITION   the same of lab/pose_back, whose `path` is empty

A writer begins once a reader is there, and runs until its input ends.
"""

import sys
import time
from dataclasses import dataclass, replace

from cyclonedds.core import Policy, Qos
from cyclonedds.domain import DomainParticipant
from cyclonedds.idl import IdlEnum, IdlStruct
from cyclonedds.idl import annotations as annotate
from cyclonedds.idl import types
from cyclonedds.pub import DataWriter, Publisher
from cyclonedds.sub import DataReader, Subscriber
from cyclonedds.topic import Topic
from cyclonedds.util import duration

PATIENCE_S = 120
TURNS = 200


@dataclass
@annotate.final
class Time(IdlStruct, typename="builtin_interfaces.msg.dds_.Time_"):
    sec: types.int32
    nanosec: types.uint32


@dataclass
@annotate.final
class Header(IdlStruct, typename="std_msgs.msg.dds_.Header_"):
    stamp: Time
    frame_id: str


@dataclass
@annotate.final
class Quaternion(IdlStruct, typename="geometry_msgs.msg.dds_.Quaternion_"):
    x: types.float64
    y: types.float64
    z: types.float64
    w: types.float64


@dataclass
@annotate.final
class Vector3(IdlStruct, typename="geometry_msgs.msg.dds_.Vector3_"):
    x: types.float64
    y: types.float64
    z: types.float64


@dataclass
@annotate.final
class Imu(IdlStruct, typename="sensor_msgs.msg.dds_.Imu_"):
    header: Header
    orientation: Quaternion
    orientation_covariance: types.array[types.float64, 9]
    angular_velocity: Vector3
    angular_velocity_covariance: types.array[types.float64, 9]
    linear_acceleration: Vector3
    linear_acceleration_covariance: types.array[types.float64, 9]


def imu(number: int) -> Imu:
    return Imu(header=Header(stamp=Time(sec=1_700_000_000 + number, nanosec=250_000_000), frame_id="base_link"),
               orientation=Quaternion(x=0.0, y=0.0, z=0.5, w=number / 4),
               orientation_covariance=[float(i) for i in range(9)],
               angular_velocity=Vector3(x=0.25, y=-0.5, z=float(number)),
               angular_velocity_covariance=[0.0] * 9,
               linear_acceleration=Vector3(x=0.0, y=0.0, z=9.8125),
               linear_acceleration_covariance=[-1.0] + [0.0] * 8)


class Mode(IdlEnum, typename="lab.Mode", default="IDLE"):
    IDLE = 0
    MOVING = 1
    FAILED = 7


@dataclass
@annotate.mutable
class Extra(IdlStruct, typename="lab.Extra"):
    load: types.int16
    note: str


@dataclass
@annotate.appendable
class Point(IdlStruct, typename="lab.Point"):
    x: types.float32
    y: types.float32


@dataclass
@annotate.appendable
class Pose(IdlStruct, typename="lab.Pose"):
    robot: str
    annotate.key("robot")
    count: types.uint64
    mode: Mode
    isReady: bool
    extra: Extra
    at: Point
    raw: types.sequence[types.uint8]
    ranges: types.sequence[types.int32]
    path: types.sequence[Point]


def pose(number: int) -> Pose:
    return Pose(robot=f"r{number % 2}", count=number, mode=[Mode.IDLE, Mode.MOVING, Mode.FAILED][number % 3],
                isReady=number % 2 == 0, extra=Extra(load=-number, note=f"ärger {number}"),
                at=Point(x=0.5, y=float(number)), raw=[number % 256] * 3, ranges=[number, -2],
                path=[Point(x=1.0, y=2.0)] * (number % 3))


@dataclass
@annotate.final
class Turn(IdlStruct, typename="lab.Turn"):
    count: types.int32


@dataclass
@annotate.final
class LongTurn(IdlStruct, typename="lab.LongTurn"):
    count: types.int32
    more: types.float64


def turns(participant: DomainParticipant, qos: Qos, count: int) -> None:
    short, long = (DataWriter(participant, Topic(participant, "lab/turns", kind), qos=qos) for kind in (Turn, LongTurn))
    for writer in (short, long):
        await_reader(writer)
    for number in range(count):
        if number < TURNS and number % 2:
            long.write(LongTurn(count=number, more=0.5))
        else:
            short.write(Turn(count=number))
    if not all(writer.wait_for_acks(duration(seconds=PATIENCE_S)) for writer in (short, long)):
        sys.exit("not all is acknowledged")
    print(f"written {count}", flush=True)
    sys.stdin.read()


def await_reader(writer: DataWriter) -> None:
    end = time.monotonic() + PATIENCE_S
    while not writer.get_matched_subscriptions():
        if time.monotonic() > end:
            sys.exit("no reader is there")
        time.sleep(0.01)


def write(writer: DataWriter, samples) -> None:
    await_reader(writer)
    count = 0
    for sample in samples:
        writer.write(sample)
        count += 1
    if not writer.wait_for_acks(duration(seconds=PATIENCE_S)):
        sys.exit("not all is acknowledged")
    print(f"written {count}", flush=True)
    sys.stdin.read()


def read(reader: DataReader, count: int, expected) -> None:
    """Each sample is one of the expected ones. A stream keeps the order of each writer."""
    end = time.monotonic() + PATIENCE_S
    read, equal = 0, 0
    while read < count and time.monotonic() < end:
        for sample in reader.take(N=100):
            read += 1
            equal += sample in expected
            if sample not in expected:
                print(sample, file=sys.stderr)
        time.sleep(0.01)
    print(f"read {read} equal {equal}", flush=True)


def main(what: str, domain: str, count: str, partition: str = "") -> None:
    participant = DomainParticipant(int(domain))
    name = what.removeprefix("read-")
    representation = Policy.DataRepresentation(use_cdrv0_representation=name == "imu",
                                               use_xcdrv2_representation=name == "pose")
    qos = Qos(Policy.Reliability.Reliable(duration(seconds=10)), Policy.History.KeepAll,
              Policy.Durability.TransientLocal, representation,
              Policy.DurabilityService(0, Policy.History.KeepAll, -1, -1, -1))
    partitions = Qos(Policy.Partition([partition])) if partition else Qos()
    if what == "turns":
        return turns(participant, qos, int(count))
    topic_name, kind, make = ("rt/imu", Imu, imu) if name == "imu" else ("lab/pose", Pose, pose)
    samples = [make(number) for number in range(1, int(count) + 1)]
    if name == what:
        topic = Topic(participant, topic_name, kind)
        return write(DataWriter(Publisher(participant, qos=partitions), topic, qos=qos), samples)
    # No field holds a sequence of structs.
    expected = [replace(sample, path=[]) if name == "pose" else sample for sample in samples]
    topic = Topic(participant, f"{topic_name}_back", kind)
    read(DataReader(Subscriber(participant, qos=partitions), topic, qos=qos), int(count), expected)


main(*sys.argv[1:])
