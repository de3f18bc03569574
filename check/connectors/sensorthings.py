"""OGC SensorThings in the hands of frost-sta-client, the Python client of Fraunhofer's server.

    python check/connectors/sensorthings.py CHAPPE WORK

The client reads the streams of a node as datastreams, creates a thing with its datastreams, and queries with filters,
expanded links, orders and pages. Then it creates observations one after the other while the node is killed, three times or
CONNECTORS_KILLS times: every observation that was answered with 201 is there once.
"""

import datetime
import os
import pathlib
import sys
import threading
import time

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "write")]
import frost_sta_client as fsc  # noqa: E402
import requests  # noqa: E402
from frost_sta_client.model.ext.unitofmeasurement import UnitOfMeasurement  # noqa: E402
from frost_sta_client.service.auth_handler import AuthHandler  # noqa: E402
from geojson import Point  # noqa: E402
from network import CheckFailed, expect, run_in  # noqa: E402
from node import CONFIGURATION, Node  # noqa: E402

KILLS = int(os.environ.get("CONNECTORS_KILLS", "3"))
MEASUREMENT = "http://www.opengis.net/def/observationType/OGC-OM/2.0/OM_Measurement"
START = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)
MINUTE = datetime.timedelta(minutes=1)


class Bearer(AuthHandler):
    """The token of an account, where the client expects a name and a password."""

    def __init__(self, token: str):
        super().__init__()
        self.token = token

    def add_auth_header(self):
        def sign(request):
            request.headers["Authorization"] = f"Bearer {self.token}"
            return request
        return sign


def service(node: Node) -> fsc.SensorThingsService:
    url = f"http://{node.host}:{node.port}/sensorthings/v1.1"
    return fsc.SensorThingsService(url, auth_handler=Bearer(node.token))


def check_streams(node: Node, frost: fsc.SensorThingsService) -> None:
    """A stream of the node, read."""
    node.create("lab.room", temperature="double", people="integer")
    elements = [{"source_time": (START + at * MINUTE).isoformat(), "temperature": 20 + at / 10, "people": at} for at in range(250)]
    status, answer = node.ask("POST", "/api/v1/streams/lab.room/elements", elements)
    expect(status == 200, f"250 elements are written over REST ({status})")
    found = {one.id: one for one in frost.datastreams().query().expand("Thing,ObservedProperty,Sensor").list()}
    datastream = found["lab.room:people"]
    expect(datastream.thing.name == "lab.room" and datastream.sensor.name == "lab.room", "each field is a datastream of a thing")
    observations = datastream.get_observations().query().top(100).list()
    results = [one.result for one in observations]
    expect(results == list(range(250)), f"{len(results)} observations are read in pages of 100, in order")
    newest = datastream.get_observations().query().orderby("phenomenonTime", "desc").top(1).list()
    expect(newest.entities[0].result == 249, "the newest is the first in descending order of time")
    after = (START + 239 * MINUTE).isoformat().replace("+00:00", "Z")
    late = datastream.get_observations().query().filter(f"phenomenonTime gt {after} and result mod 2 eq 0").count().list()
    expect(late.count == 5 and [one.result for one in late] == [240, 242, 244, 246, 248], "time and result are filtered")
    one = frost.observations().find(observations.entities[7].id)
    expect(one.result == 7, "an observation is found by its id")


def create(frost: fsc.SensorThingsService) -> fsc.Datastream:
    """A thing with a location and a datastream, in one request, then a second datastream."""
    place = fsc.Location(name="here", description="in the house", encoding_type="application/geo+json", location=Point((8.4, 49.0)))
    unit = UnitOfMeasurement(name="degree Celsius", symbol="°C", definition="ucum:Cel")
    probe = fsc.Sensor(name="DHT22", description="probe", encoding_type="application/pdf", metadata="https://example.com/dht22.pdf")
    heat = fsc.ObservedProperty(name="temperature", description="of air", definition="https://qudt.org/vocab/quantitykind/Temperature")
    air = fsc.Datastream(name="air", description="temperature of the air", observation_type=MEASUREMENT, unit_of_measurement=unit,
                         sensor=probe, observed_property=heat)
    thing = fsc.Thing(name="room 7", description="a room", properties={"floor": 2}, locations=[place], datastreams=[air])
    frost.create(thing)
    same = frost.things().find(thing.id)
    expect(same.name == "room 7" and same.properties["floor"] == 2, f"a thing is created with the id {thing.id}")
    expect([one.name for one in same.get_locations().query().list()] == ["here"], "its location is there")
    made = same.get_datastreams().query().expand("Sensor,ObservedProperty").list().entities
    expect([one.name for one in made] == ["air"] and made[0].sensor.name == "DHT22", "its datastream has its sensor")
    other = fsc.Datastream(name="wall", description="temperature of the wall", observation_type=MEASUREMENT, unit_of_measurement=unit,
                           thing=same, sensor=made[0].sensor, observed_property=made[0].observed_property)
    frost.create(other)
    count = frost.datastreams().query().filter("Thing/name eq 'room 7'").count().list()
    expect(count.count == 2, "datastreams are found by the name of their thing")
    return frost.datastreams().find(made[0].id)


def check_kills(node: Node, datastream_id: str) -> None:
    """Observations that are created while the node is killed."""
    stored: dict[str, int] = {}
    attempts = 0
    done = threading.Event()
    problems: list[str] = []

    def write() -> None:
        nonlocal attempts
        while not done.is_set():
            attempts += 1
            observation = fsc.Observation(result=attempts, phenomenon_time=START + attempts * MINUTE / 60,
                                          datastream=fsc.Datastream(id=datastream_id))
            try:
                service(node).create(observation)
            except requests.exceptions.HTTPError as problem:
                if problem.response.status_code not in (429, 503):
                    problems.append(f"{problem}: {problem.response.text}")
                    return
            except requests.exceptions.RequestException:
                # It may be stored or not, and is not sent again. The node takes a moment to start.
                time.sleep(0.02)
            else:
                stored[observation.id] = attempts

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    for _ in range(KILLS):
        count, end = len(stored), time.monotonic() + 120
        while len(stored) < count + 20 and not problems and time.monotonic() < end:
            time.sleep(0.01)
        node.kill()
        node.start()
    end, count = time.monotonic() + 120, len(stored)
    while len(stored) < count + 20 and not problems and time.monotonic() < end:
        time.sleep(0.01)
    done.set()
    writer.join(60)
    if problems:
        raise CheckFailed(f"an observation is refused: {problems[0]}")
    datastream = service(node).datastreams().find(datastream_id)
    found = [(one.id, one.result) for one in datastream.get_observations().query().top(500).list()]
    ids, results = [one for one, _ in found], [result for _, result in found]
    expect(len(set(ids)) == len(ids) and len(set(results)) == len(results), f"{len(found)} observations of {attempts} attempts, none twice")
    expect(len(stored) >= 20 * (KILLS + 1), "at least 20 were created before each kill, and after the last")
    kept = dict(found)
    expect(all(kept.get(one) == result for one, result in stored.items()),
           f"each of {len(stored)} that were answered with 201 is there, through {KILLS} kills of the node")
    expect(len(found) <= len(stored) + KILLS, "besides them at most one for each kill")


def check_arrays(node: Node, frost: fsc.SensorThingsService, datastream_id: str) -> None:
    tomorrow = (datetime.datetime.now(datetime.timezone.utc) + 1440 * MINUTE).isoformat()
    body = [{"Datastream": {"@iot.id": datastream_id}, "components": ["phenomenonTime", "result"],
             "dataArray": [[tomorrow if at == 2 else "2025-01-01T00:00:00Z", at] for at in range(3)]}]
    status, answers = node.ask("POST", "/sensorthings/v1.1/CreateObservations", body)
    expect(status == 201 and [one.startswith("error") for one in answers] == [False, False, True],
           "data arrays are stored, and a time in the future is refused with its reason")
    early = frost.datastreams().find(datastream_id).get_observations().query().filter("phenomenonTime lt 2026-01-01T00:00:00Z")
    expect([one.result for one in early.list()] == [0, 1], "their observations are found by time")


def check(chappe: str, work: pathlib.Path) -> None:
    os.chdir(work)
    node = Node(chappe, work, configuration=CONFIGURATION.replace('"data"', f'"{work}/data"').replace('"sensors"', f'"{work}/sensors"'))
    try:
        frost = service(node)
        check_streams(node, frost)
        datastream = create(frost)
        check_kills(node, datastream.id)
        frost = service(node)
        check_arrays(node, frost, datastream.id)
        thing = frost.datastreams().query().expand("Thing").filter(f"id eq '{datastream.id}'").list().entities[0].thing
        expect(thing.name == "room 7", "the thing outlives the kills")
        frost.delete(frost.things().find(thing.id))
        left = frost.datastreams().query().filter("Thing/name eq 'room 7'").count().list()
        expect(left.count == 0, "a removed thing takes its datastreams with it")
        node.stop()
    finally:
        node.process.stop()


def main() -> None:
    chappe, work = (os.path.abspath(argument) for argument in sys.argv[1:3])
    folder = pathlib.Path(work)
    run_in(folder, lambda: check(chappe, folder), (requests.exceptions.RequestException,))
    print("   all passed")


main()
