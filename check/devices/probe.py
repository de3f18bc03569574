"""Asks a node over HTTP from inside its namespace, and prints what it saw as one line of JSON.

answers ADDRESS STREAMS: the durations of answers until usable devices have that many streams. A request is due
every 5 ms even if the previous one is not answered, so that a stall counts for as long as it lasts.
Before that, the same for two seconds, while there is no device.
behind ADDRESS SECONDS: how far the newest stored element of each stream lags behind the clock.
"""

import datetime
import http.client
import json
import sys
import threading
import time
import urllib.parse

EVERY_S = 0.005
BEFORE_S = 2


def connection(address: str) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(urllib.parse.urlparse(address).netloc, timeout=120)


def ask(client: http.client.HTTPConnection, path: str) -> dict:
    """Returns an answer; if a stalled node drops the connection, asks again."""
    while True:
        try:
            client.request("GET", path, headers={"Accept": "application/json"})
            return json.loads(client.getresponse().read())
        except (ConnectionError, http.client.HTTPException):
            client.close()


def part(sorted_values: list[float], share: float) -> float:
    return sorted_values[min(len(sorted_values) - 1, int(share * len(sorted_values)))]


def answers(address: str, streams: int) -> dict:
    attached = threading.Event()

    def look() -> None:
        client = connection(address)
        def usable() -> int:
            devices = ask(client, "/api/v1/devices")["devices"]
            return sum(len(device["streams"]) for device in devices if device["state"] == "usable")

        while usable() < streams:
            time.sleep(0.05)
        attached.set()

    client = connection(address)
    took, began = [], time.monotonic()

    def ask_until(done) -> None:
        due = time.monotonic()
        while not done():
            time.sleep(max(0.0, due - time.monotonic()))
            ask(client, "/api/v1/node")
            took.append((time.monotonic() - due) * 1000)
            due += EVERY_S

    ask_until(lambda: time.monotonic() - began >= BEFORE_S)
    before = part(sorted(took), 0.99)
    took.clear()
    print("asking", flush=True)
    threading.Thread(target=look, daemon=True).start()
    began = time.monotonic()
    ask_until(attached.is_set)
    took.sort()
    return {"answers": len(took), "p99_ms": part(took, 0.99), "max_ms": took[-1], "seconds": time.monotonic() - began,
            "before_p99_ms": before}


def behind(address: str, seconds: float) -> dict:
    client = connection(address)
    names = [stream["name"] for stream in ask(client, "/api/v1/streams")["streams"]]
    lags, first, last = [], {}, {}
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for name in names:
            page = ask(client, f"/api/v1/streams/{name}/elements?newest=1")["elements"]
            now = time.time()
            element = page[-1]
            sent = datetime.datetime.fromisoformat(element["source_time"].replace("Z", "+00:00")).timestamp()
            lags.append(((now - sent) * 1000, name))
            last[name] = (now, element["number"])
            first.setdefault(name, last[name])
    lags.sort()
    rates = [(last[name][1] - first[name][1]) / (last[name][0] - first[name][0]) for name in names]
    times = [lag for lag, _ in lags]
    return {"streams": len(names), "asked": len(lags), "max_ms": times[-1], "slowest": lags[-1][1],
            "median_ms": part(times, 0.5), "p99_ms": part(times, 0.99), "rate_min": min(rates)}


if __name__ == "__main__":
    question = {"answers": answers, "behind": behind}[sys.argv[1]]
    print(json.dumps(question(sys.argv[2], int(sys.argv[3]))), flush=True)
