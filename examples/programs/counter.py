"""A wrapper in Python: counts, and continues after the last stored mark.

    kind = "program"
    program = ["python3", "counter.py"]
    marks = true
    settings = { period_s = 0.1 }
"""

import json
import os
import sys
import threading
import time


def send(message):
    try:
        print(json.dumps(message), flush=True)
    except BrokenPipeError:
        # The node has ended. The interpreter must not write what is left to the closed pipe.
        os._exit(0)


def listen(stop):
    for line in sys.stdin:
        message = json.loads(line)
        if "stop" in message:
            break
        if "stored" in message:
            pass  # Everything up to message["stored"] is stored: a source could delete it now.
        if "command" in message:
            call = message["command"]
            if call["name"] == "echo":
                send({"answer": {"id": call["id"], "result": call["arguments"]}})
            else:
                send({"answer": {"id": call["id"], "error": "unknown command"}})
    # The end of standard input means the same as "stop".
    stop.set()


def main():
    line = sys.stdin.readline()
    if not line:
        return
    start = json.loads(line)["start"]
    period_s = start["settings"].get("period_s", 1)
    number = start["mark"] or 0
    send({"stream": {"name": "demo.counter", "fields": [{"name": "number", "type": "integer"}]}})
    stop = threading.Event()
    threading.Thread(target=listen, args=[stop], daemon=True).start()
    while not stop.wait(period_s):
        number += 1
        send({"element": {"number": number}, "mark": number})


main()
