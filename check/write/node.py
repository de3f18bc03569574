"""A node for checks that write: started, killed and started again over one data directory."""

import http.client
import json
import pathlib
import signal
import ssl

from network import CheckFailed, Process

CONFIGURATION = """
name = "written"
data_directory = "data"
sensors_directory = "sensors"
[http]
listen = "127.0.0.1:0"
[discovery]
enabled = false
"""


class Node:
    """A node on loopback, and requests to it with its first administrator's token."""

    def __init__(self, chappe: str, folder: pathlib.Path, more: str = "", configuration: str = CONFIGURATION):
        self.chappe, self.folder, self.starts = chappe, folder, 0
        (folder / "sensors").mkdir(parents=True)
        (folder / "node.toml").write_text(configuration + more)
        self.start()
        self.token = (folder / "data" / "new-token").read_text().strip()

    def start(self) -> None:
        self.starts += 1
        log = self.folder / f"node-{self.starts}.log"
        self.process = Process([self.chappe, "serve", str(self.folder / "node.toml"), "--json"], log)
        ready = self.process.wait_event("ready", 20)
        self.scheme, address = ready["address"].split("://")
        self.host, port = address.split(":")
        self.port, self.pid = int(port), ready["pid"]

    def kill(self) -> None:
        self.process.stop(signal.SIGKILL)

    def stop(self) -> None:
        if (code := self.process.stop()) != 0:
            raise CheckFailed(f"the node ended with {code}, see {self.process.log.name}")

    @property
    def authority(self) -> pathlib.Path:
        """The certificate of a node with TLS, which it has signed itself."""
        return self.folder / "data" / "http.pem"

    def connection(self, timeout_s: float = 60) -> http.client.HTTPConnection:
        if self.scheme == "http":
            return http.client.HTTPConnection(self.host, self.port, timeout=timeout_s)
        context = ssl.create_default_context(cafile=str(self.authority))
        return http.client.HTTPSConnection(self.host, self.port, timeout=timeout_s, context=context)

    def ask(self, method: str, path: str, body=None, token: str | None = "", timeout_s: float = 60, **headers):
        """The status of a request and the document of its answer; `token=None` sends no credential."""
        if isinstance(body, (dict, list)):
            body, headers = json.dumps(body), {"Content_Type": "application/json", **headers}
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        if token is not None:
            headers["Authorization"] = f"Bearer {token or self.token}"
        connection = self.connection(timeout_s)
        try:
            connection.request(method, path, body=body, headers=headers)
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        is_json = "json" in answer.headers.get("content-type", "")
        return answer.status, json.loads(text) if is_json and text else text.decode()

    def create(self, name: str, key: str | None = None, level: str = "process", **fields: str) -> None:
        made = [{"name": field, "type": kind} for field, kind in fields.items()]
        definition = {"name": name, "fields": made, "level": level, **({"key": key} if key else {})}
        status, answer = self.ask("POST", "/api/v1/streams", definition)
        if status not in (200, 201):
            raise CheckFailed(f"{name} cannot be defined: {status} {answer}")

    def elements(self, name: str) -> list[dict]:
        """All elements of a stream, page by page."""
        found, after = [], "0:0"
        while True:
            status, page = self.ask("GET", f"/api/v1/streams/{name}/elements?after={after}&limit=10000")
            if status != 200:
                raise CheckFailed(f"{name} cannot be read: {status} {page}")
            found += page["elements"]
            if not page["truncated"]:
                return found
            after = page["next_after"]

    def sql(self, statement: str) -> list[list]:
        status, answer = self.ask("POST", "/api/v1/streams/query", {"sql": statement})
        if status != 200:
            raise CheckFailed(f"{statement}: {status} {answer}")
        return answer["rows"]

    def resident_bytes(self, line: str = "VmRSS:") -> int:
        for text in pathlib.Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if text.startswith(line):
                return int(text.split()[1]) * 1024
        raise CheckFailed(f"process {self.pid} has no memory")
