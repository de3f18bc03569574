"""`http_poll`, `http_push` and `webhook`: nginx serves, takes and passes on, and curl sends."""

import json
import os
import pathlib
import signal
import subprocess
import threading
import time

from bench import HERE, REST, THERE, Bench, judge, lines_of, need
from network import CheckFailed, Process, expect, until
from programs import COUNTED

PLAIN, TLS = 8080, 8443
READINGS = 5
NGINX = """
daemon off;
user root;
worker_processes 1;
pid {work}/nginx.pid;
error_log {work}/error.log warn;
events {{ }}
http {{
    log_format all '$status $request_method $uri key=$http_idempotency_key tag=$http_if_none_match';
    access_log {work}/access.log all;
    client_body_temp_path {work}/bodies;
    types {{ application/json json; }}
    server {{
        listen {there}:{plain};
        root {work}/www;
        location /bomb {{ default_type application/json; add_header Content-Encoding gzip; }}
        # Each body stays as a file.
        location /sink {{ client_body_in_file_only on; proxy_pass http://{there}:8081/; }}
        location = /status/301 {{ return 301 /sink; }}
        location = /status/400 {{ return 400; }}
        location = /status/413 {{ client_max_body_size 10; proxy_pass http://{there}:8081/; }}
        location = /status/429 {{ return 429; }}
        location = /status/503 {{ return 503; }}
        location /rest/ {{ proxy_pass http://{here}:{rest}/; }}
    }}
    server {{
        listen {there}:{tls} ssl;
        ssl_certificate {work}/certificate.pem;
        ssl_certificate_key {work}/certificate.key;
        root {work}/www;
    }}
    server {{ listen {there}:8081; return 204; }}
}}
"""
SEND = """#!/bin/sh
# Sends numbered messages with curl, each until the answer is 200; the state is the last such number.
n=$(cat {work}/number || echo 0)
while :; do
    n=$((n + 1))
    until code=$(curl -s -o /dev/null -w '%{{http_code}}' --max-time 20 -H 'Authorization: Bearer {token}' \\
        -H 'Content-Type: application/json' -d "{{\\"n\\": $n}}" {url}); [ "$code" = 200 ]; do
        echo "$code" >> {work}/codes
        sleep 0.1
    done
    echo $n > {work}/number.new && mv {work}/number.new {work}/number
done
"""


class Nginx:
    """The server at the other end of the cable."""

    def __init__(self, bench: Bench, name: str = "nginx"):
        self.bench, self.work, self.kills, self.process = bench, bench.work / name, 0, None
        self.is_prepared = False

    def prepare(self) -> None:
        """Makes its certificate and its configuration, once."""
        need("nginx", "openssl")
        if self.is_prepared:
            return
        self.is_prepared = True
        (self.work / "www").mkdir(parents=True)
        self.certificate("authority", "CA:TRUE")
        self.certificate("certificate", "CA:FALSE", "-CA", str(self.work / "authority.pem"), "-CAkey",
                         str(self.work / "authority.key"), "-addext", f"subjectAltName=IP:{THERE}")
        (self.work / "nginx.conf").write_text(NGINX.format(
            work=self.work, there=THERE, here=HERE, plain=PLAIN, tls=TLS, rest=REST))

    def certificate(self, name: str, constraints: str, *more: str) -> None:
        made = subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "5",
             "-subj", f"/CN=nginx {name}", "-addext", f"basicConstraints=critical,{constraints}", "-keyout",
             str(self.work / f"{name}.key"), "-out", str(self.work / f"{name}.pem"), *more],
            capture_output=True, text=True)
        if made.returncode:
            raise CheckFailed(f"openssl makes no {name}: {made.stderr}")

    def start(self) -> None:
        if self.process is None:
            self.process = Process(self.bench.far.command("nginx", "-c", str(self.work / "nginx.conf")),
                                   self.work / "nginx.log")

    def kill(self) -> None:
        """Ends master and workers at once."""
        self.process.stop(signal.SIGKILL)
        self.process, self.kills = None, self.kills + 1
        self.start()

    def stop(self) -> None:
        if self.process is not None:
            self.process.stop()

    def requests(self, uri: str, *words: str) -> int:
        lines = (line for line in lines_of(self.work / "access.log") if f" {uri} " in line)
        return sum(all(word in line for word in words) for line in lines)


class Poll:
    """A document that is replaced atomically, in plain and over TLS."""

    kind = "http_poll"

    def __init__(self, bench: Bench, nginx: Nginx, how: str):
        self.bench, self.nginx, self.how, self.name = bench, nginx, how, f"poll-{how}"
        nginx.prepare()
        self.path = nginx.work / "www" / f"{how}.json"
        trust = f'server = {{ authorities = "{nginx.work}/authority.pem" }}' if how == "tls" else ""
        address = f"https://{THERE}:{TLS}" if how == "tls" else f"http://{THERE}:{PLAIN}"
        bench.wrapper(self.name, f"""
kind = "http_poll"
address = "{address}/{how}.json"
period_s = 1
{trust}
format = {{ json = {{ each = "$.readings[*]" }} }}
[[stream]]
name = "{self.name}"
variables = {{ version = "$$.version" }}
fields = [{{ name = "n", type = "integer" }}, {{ name = "version", path = "$$.version", type = "integer" }}]
""")
        self.version, self.is_over = 0, threading.Event()

    def replace(self) -> None:
        """Puts the next version there. All have one length, as nginx names a version by length and second."""
        self.version += 1
        readings = [{"n": f"{self.version * READINGS + at:08}"} for at in range(READINGS)]
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps({"version": f"{self.version:08}", "readings": readings}))
        new.rename(self.path)

    def _replace(self) -> None:
        while not self.is_over.is_set():
            if self.how == "tls":
                # Faster than it is asked for: versions between two requests are missed.
                time.sleep(0.4)
            elif self.has(self.version):
                time.sleep(self.bench.chance.uniform(0, 0.3))
            else:
                time.sleep(0.05)
                continue
            self.replace()

    def has(self, version: int) -> bool:
        try:
            status, page = self.bench.node.ask("GET", f"/api/v1/streams/{self.name}/elements?newest=1", timeout_s=5)
        except Exception:  # noqa: BLE001: the node was killed
            return False
        return status == 200 and any(one["values"]["version"] == version for one in page["elements"])

    def start(self) -> None:
        self.replace()
        self.nginx.start()
        self.thread = threading.Thread(target=self._replace, daemon=True)
        self.thread.start()

    def kill(self) -> None:
        """The kills of nginx are those of [`Push`]."""

    def turn(self) -> None:
        pass

    def finish(self) -> None:
        self.is_over.set()
        self.thread.join()

    def judge(self) -> None:
        until(20, f"{self.name}: the last version; before it was {self.bench.row(self.name)['reason']}",
              lambda: self.has(self.version))
        elements = [one["values"] for one in self.bench.node.elements(self.name)]
        versions = [values["version"] for values in elements][::READINGS]
        whole = [values["n"] for values in elements] == [
            version * READINGS + at for version in versions for at in range(READINGS)]
        expect(whole, f"{self.name}: each of {len(versions)} versions is stored whole")
        judge(f"http_poll ({self.how}), {self.nginx.kills} kills of nginx and {self.bench.node_kills} of the node", versions,
              gaps_max=0 if self.how == "plain" else self.version, last=self.version)
        if self.how == "plain":
            named = lambda: self.nginx.requests(f"/{self.how}.json", "304 GET", "tag=\\x22")  # noqa: E731
            until(5, "nginx answers 304", named)
            expect(True, f"nginx answered 304 to {named()} requests that named the last version")


class Push:
    """Elements to nginx, which keeps each body; and through nginx to the webhook of a node."""

    kind = "http_push"

    def __init__(self, bench: Bench, nginx: Nginx):
        self.bench, self.nginx = bench, nginx
        nginx.prepare()
        bench.wrapper("mirror", 'kind = "webhook"\nformat = { json = { each = "$[*]", time = "$.source_time" } }\n'
                      '[[stream]]\nname = "mirror"\n'
                      'fields = [{ name = "number", path = "$.values.number", type = "integer" }]\n')
        bench.exporter("push", f'kind = "http_push"\nstreams = ["{COUNTED}"]\naddress = "http://{THERE}:{PLAIN}/sink"\n')
        bench.exporter("mirror", f'kind = "http_push"\nstreams = ["{COUNTED}"]\n'
                       f'address = "http://{THERE}:{PLAIN}/rest/api/v1/wrappers/mirror/messages"\n'
                       f'server = {{ token_file = "{bench.folder}/token" }}\n')

    def start(self) -> None:
        self.nginx.start()

    def kill(self) -> None:
        self.nginx.kill()

    turn = start
    finish = start

    def bodies(self) -> list[list[dict]]:
        found = []
        for path in (self.nginx.work / "bodies").iterdir():
            try:
                found.append(json.loads(path.read_text()))
            except ValueError:
                pass  # A kill of nginx came in between; the request has no answer.
        return found

    def judge(self) -> None:
        elements = self.bench.node.elements(COUNTED)
        wanted = {one["number"]: one["values"] for one in elements}

        def found() -> list[dict]:
            return [one for body in self.bodies() for one in body]

        until(40, "the exporter to nginx", lambda: {one["number"] for one in found()} >= set(wanted))
        again, breaks = len(found()) - len(wanted), self.nginx.kills + self.bench.node_kills + self.bench.far.cuts
        same = all(one["values"] == wanted[one["number"]] for one in found())
        expect(same and again <= 256 * 2 * breaks, f"http_push: {len(wanted)} elements reached nginx with equal values, "
               f"{again} again, after {self.nginx.kills} kills of nginx and {self.bench.node_kills} of the node")
        keys = [line.split("key=")[1].split(" ")[0] for line in lines_of(self.nginx.work / "access.log")
                if " POST /sink " in line]
        expect(all(key.startswith(f"{COUNTED}:") for key in keys), f"{len(keys)} requests, {len(set(keys))} keys")
        newest = max(values["number"] for values in wanted.values())
        until(40, "the exporter through nginx", lambda: newest in self.bench.numbers("mirror", "number"))
        judge("http_push through nginx to the webhook of a node", self.bench.numbers("mirror", "number"), ordered=False,
              doubles_max=256 * 2 * breaks, last=newest)


class Webhook:
    """curl, which sends each message until the answer is 200."""

    kind = "webhook"

    def __init__(self, bench: Bench):
        need("curl")
        self.bench, self.kills, self.work = bench, 0, bench.work / "curl"
        self.work.mkdir()
        url = f"http://{HERE}:{REST}/api/v1/wrappers/hook/messages"
        (self.work / "send.sh").write_text(SEND.format(work=self.work, token=bench.node.token, url=url))
        bench.wrapper("hook", 'kind = "webhook"\nformat = "json"\n[[stream]]\nname = "hook"\n'
                      'fields = [{ name = "n", type = "integer" }]\n')

    def start(self) -> None:
        self.sender = Process(self.bench.far.command("sh", str(self.work / "send.sh")), self.work / "send.log")

    def kill(self) -> None:
        self.sender.stop(signal.SIGKILL)
        self.kills += 1
        self.start()

    def turn(self) -> None:
        pass

    def finish(self) -> None:
        self.sender.stop(signal.SIGKILL)

    def judge(self) -> None:
        acknowledged = int((self.work / "number").read_text())
        self.bench.at_rest("hook", 1)
        breaks = self.kills + self.bench.node_kills + self.bench.far.cuts + 8 * self.bench.fills + 1
        judge(f"webhook, {self.kills} kills of curl and {self.bench.node_kills} of the node; each message until 200",
              self.bench.numbers("hook"), doubles_max=breaks, last=acknowledged + 1
              if acknowledged + 1 in self.bench.numbers("hook") else acknowledged)
        # A node that has just started may not know the wrapper yet.
        codes = [code for code in lines_of(self.work / "codes") if code not in ("000", "503", "507")]
        expect(set(codes) <= {"404"} and len(codes) <= 4 * self.bench.node_kills,
               f"and all others were none, 503, 507 or, after a start, 404: {len(codes)}")
