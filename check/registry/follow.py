"""A subscriber to the registry by server-sent events, which resumes where it was when its node was killed."""

import http.client
import json
import threading
import time
import urllib.parse

from nodes import CheckFailed, Node

# The node sends a sign of life every 15 s.
SILENCE_S = 60
# Between two attempts to reach a node that is killed.
PAUSE_S = 0.05


class Follower:
    """Follows changes in a thread: the events are in `events`, each with the time of its arrival."""

    def __init__(self, node: Node, query: str = ""):
        self.node, self.path = node, "/api/v1/registry/changes?" + query
        self.events: list[tuple[float, str, dict]] = []
        self.opened = threading.Event()
        self.last_id, self.ends = "", False
        threading.Thread(target=self._run, daemon=True).start()
        if not self.opened.wait(SILENCE_S):
            raise CheckFailed("a subscription by server-sent events does not begin")

    def stop(self) -> None:
        self.ends = True

    def heard(self) -> list[tuple[str, str]]:
        """What happened to which entity."""
        return [(event, data.get("key", "")) for _, event, data in self.events]

    def _run(self) -> None:
        while not self.ends:
            try:
                self._follow()
            except (OSError, http.client.HTTPException):
                time.sleep(PAUSE_S)

    def _follow(self) -> None:
        address = urllib.parse.urlparse(self.node.url)
        connection = http.client.HTTPConnection(address.hostname, address.port, timeout=SILENCE_S)
        headers = {"Last-Event-ID": self.last_id} if self.last_id else {}
        try:
            connection.request("GET", self.path, headers=headers)
            answer = connection.getresponse()
            if answer.status != 200:
                raise OSError(f"status {answer.status}")
            fields: dict[str, str] = {}
            for line in answer:
                if self.ends:
                    return
                name, _, value = line.decode().rstrip("\n").partition(":")
                if name:
                    fields[name] = value.lstrip()
                elif line == b"\n":
                    self._event(fields)
                    fields = {}
        finally:
            connection.close()

    def _event(self, fields: dict[str, str]) -> None:
        self.last_id = fields.get("id", self.last_id)
        if "data" in fields:
            self.events.append((time.monotonic(), fields["event"], json.loads(fields["data"])))
        # The first message has an id and no event.
        self.opened.set()
