"""zeep as a client of `chappe-lab bench invoke`: calls the device from its WSDL.

    invoke_zeep.py call ADDRESS:PORT kept|new ROUNDS LOAD...    LOAD: integers-N or characters-N

Prints one line a call: the load, the nanoseconds until the device had read the request, and those until the client had
read the answer.
"""

import sys
import time

import zeep

NAMESPACE = "https://chappe.example/study"
# The longest time in seconds of an answer.
LIMIT_S = 60


def main() -> None:
    _, address, connection, rounds, *loads = sys.argv[1:]
    rounds = int(rounds)
    transport = zeep.Transport(timeout=LIMIT_S, operation_timeout=LIMIT_S)
    if connection == "new":
        transport.session.headers["Connection"] = "close"
    client = zeep.Client(f"http://{address}/Study?wsdl", transport=transport)
    # The device names its own address, and a relay may be in front of it.
    service = client.create_service(f"{{{NAMESPACE}}}StudyBinding", f"http://{address}/Study")
    for load in loads:
        kind, count = load.split("-")
        count = int(count)
        if kind == "integers":
            values = [1_000_000_000 + index * 7_919_017 % 1_147_483_647 for index in range(count)]
            call, arguments = service.TakeIntegers, {"value": values}
        else:
            call, arguments = service.TakeCharacters, {"text": "x" * count}
        # One in ten is called before and not counted.
        for number in range(-(rounds // 10), rounds):
            start = time.monotonic_ns()
            answer = call(**arguments)
            round_trip = time.monotonic_ns() - start
            if answer.count != count:
                sys.exit(f"error: {answer.count} of {load} arrived")
            if number >= 0:
                print(load, answer.at_ns - start, round_trip)
        sys.stdout.flush()


if __name__ == "__main__":
    main()
