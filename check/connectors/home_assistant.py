"""Home Assistant with a broker of MQTT, set up by its files as if a person had done it, and asked over its REST interface."""

import json
import pathlib
import subprocess
import time

from bench import Bench
from network import Process

REST = 18123
KEY, TOKEN, USER = "0" * 128, "1" * 32, "2" * 32
CONFIGURATION = f"http:\n  server_host: 127.0.0.1\n  server_port: {REST}\napi:\n"
SIGN = "import jwt, sys; print(jwt.encode({'iss': sys.argv[1], 'iat': int(sys.argv[3]), 'exp': int(sys.argv[3]) + 10**8}, sys.argv[2]))"
GROUPS = {"system-admin": "Administrators", "system-users": "Users", "system-read-only": "Read Only"}
STARTED = "2024-01-01T00:00:00.000000+00:00"


class HomeAssistant:
    """The program, at the other end of the cable."""

    def __init__(self, bench: Bench, python: str, port: int):
        self.bench, self.python = bench, python
        self.folder = bench.work / "home-assistant"
        storage = self.folder / ".storage"
        storage.mkdir(parents=True)

        def store(key: str, version: int, data: dict) -> None:
            document = {"version": version, "minor_version": 1, "key": key, "data": data}
            (storage / key).write_text(json.dumps(document))

        store("onboarding", 4, {"done": ["user", "core_config", "analytics", "integration"]})
        user = {"id": USER, "group_ids": ["system-admin"], "is_owner": True, "is_active": True, "name": "check",
                "system_generated": False, "local_only": False}
        token = {"id": TOKEN, "user_id": USER, "client_id": None, "client_name": "check", "client_icon": None,
                 "token_type": "long_lived_access_token", "created_at": STARTED, "access_token_expiration": 315360000.0,
                 "token": "3" * 128, "jwt_key": KEY, "last_used_at": None, "last_used_ip": None, "credential_id": None,
                 "version": "2024.3.3", "expire_at": None}
        groups = [{"id": key, "name": name} for key, name in GROUPS.items()]
        store("auth", 1, {"users": [user], "groups": groups, "credentials": [], "refresh_tokens": [token]})
        entry = {"entry_id": "4" * 32, "version": 1, "minor_version": 1, "domain": "mqtt", "title": "broker",
                 "data": {"broker": "127.0.0.1", "port": port, "discovery": True, "discovery_prefix": "homeassistant"},
                 "options": {}, "pref_disable_new_entities": False, "pref_disable_polling": False, "source": "user",
                 "unique_id": None, "disabled_by": None}
        store("core.config_entries", 1, {"entries": [entry]})
        (self.folder / "configuration.yaml").write_text(CONFIGURATION)
        signed = subprocess.run([python, "-c", SIGN, TOKEN, KEY, str(int(time.time()))], capture_output=True, text=True, check=True)
        self.token = signed.stdout.strip()

    def start(self) -> None:
        program = str(pathlib.Path(self.python).parent / "hass")
        command = self.bench.far.command(program, "-c", str(self.folder), "--skip-pip")
        self.process = Process(command, self.bench.work / "home-assistant.log")

    def ask(self, path: str):
        """The document of an answer; nothing while it starts."""
        fetch = self.bench.far.command("curl", "-s", "-m", "5", "-H", f"Authorization: Bearer {self.token}",
                                       f"http://127.0.0.1:{REST}/api/{path}")
        answer = subprocess.run(fetch, capture_output=True, text=True).stdout
        try:
            return json.loads(answer)
        except ValueError:
            return None

    def states(self) -> list[dict]:
        return self.ask("states") or []

    def state(self, entity: str) -> dict:
        found = self.ask(f"states/{entity}") or {}
        return {"state": None, "attributes": {}, **found}

    def number(self, entity: str) -> float | None:
        try:
            return float(self.state(entity)["state"])
        except (TypeError, ValueError):
            return None
