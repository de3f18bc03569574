"""A processor in Python: the mean of the last elements of each input.

    kind = "program"
    program = ["python3", "mean.py"]
    inputs = ["room.*"]
    settings = { field = "celsius", window = 5 }

    [[stream]]
    name = "mean.celsius"
    key = "{input}"
    fields = [{ name = "celsius", type = "double", unit = "Cel" }]
"""

import json
import sys


def send(message):
    print(json.dumps(message), flush=True)


def main():
    line = sys.stdin.readline()
    if not line:
        return
    start = json.loads(line)["start"]
    field = start["settings"].get("field", "value")
    window = start["settings"].get("window", 5)
    # The last values of each input, as they were after the last stored batch.
    last = start["state"] or {}
    for line in sys.stdin:
        message = json.loads(line)
        if "element" in message:
            element = message["element"]
            value = element["values"].get(field)
            if value is None:
                continue
            values = last.setdefault(element["stream"], [])
            values.append(value)
            del values[:-window]
            mean = sum(values) / len(values)
            send({"element": {field: mean, "key": element["stream"], "source_time": element["source_time"]}})
        elif "mark" in message:
            send({"stored": message["mark"], "state": last})
        elif "stop" in message:
            break


main()
