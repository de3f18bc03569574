"""Subscriptions by e-mail with aiosmtpd as the server.

    python check/registry/mail.py CHAPPE WORK

A node sends changes of its registry to aiosmtpd, which demands a login over STARTTLS with a certificate that
this program makes with openssl. Loopback only.
"""

import json
import os
import pathlib
import queue
import socket
import ssl
import subprocess
import sys
import urllib.request

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from network import CheckFailed, Process, run_in  # noqa: E402

CONFIGURATION = """
name = "mail"
data_directory = "data"
sensors_directory = "sensors"
[http]
listen = "127.0.0.1:0"
[discovery]
enabled = false
[mail]
server = "localhost"
port = {port}
authorities = "server.pem"
user = "chappe"
password_file = "password"
sender = "chappe@example.org"
recipients = ["@example.org"]
bundle_s = 1
"""


class Taken:
    def __init__(self) -> None:
        self.mails: queue.Queue = queue.Queue()

    async def handle_DATA(self, server, session, envelope):  # noqa: N802
        self.mails.put((envelope.rcpt_tos, envelope.content.decode(), session.authenticated))
        return "250 taken"


def check(chappe: str, work: pathlib.Path) -> None:
    (work / "sensors").mkdir()
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                    "-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=critical,CA:FALSE", "-keyout", str(work / "server.key"),
                    "-out", str(work / "server.pem")], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(work / "server.pem", work / "server.key")
    taken = Taken()

    def log_in(server, session, envelope, mechanism, data):
        return AuthResult(success=data.login == b"chappe" and data.password == b"secret")

    # The controller connects to its port to see that it runs, so the port is chosen here.
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        port = chosen.getsockname()[1]
    server = Controller(taken, hostname="127.0.0.1", port=port, tls_context=context, require_starttls=True,
                        authenticator=log_in, auth_required=True)
    server.start()
    (work / "password").write_text("secret\n")
    (work / "node.toml").write_text(CONFIGURATION.format(port=port))
    node = Process([chappe, "serve", str(work / "node.toml"), "--json"], work / "node.log")
    try:
        url = node.wait_event("ready", 30)["address"]
        token = (work / "data" / "new-token").read_text().strip()

        def post(path: str, body: dict) -> None:
            request = urllib.request.Request(url + path, json.dumps(body).encode(), {
                "Authorization": f"Bearer {token}", "Content-Type": "application/json"})
            urllib.request.urlopen(request, timeout=30).read()

        post("/api/v1/registry/subscriptions", {"mail": "ops@example.org", "prefix": "pump"})
        post("/api/v1/entities", {"key": "urn:x:1", "name": "Pump Ärzte"})
        post("/api/v1/entities", {"key": "urn:x:2", "name": "Pump two", "lease_s": 2})
        heard = ""
        while "removed: Pump two" not in heard:
            recipients, text, is_known = taken.mails.get(timeout=60)
            if recipients != ["ops@example.org"] or not is_known:
                raise CheckFailed(f"mail to {recipients}, authenticated: {is_known}")
            heard += text
        if "added: Pump two <urn:x:2>" not in heard:
            raise CheckFailed(f"the mail lacks a change: {heard}")
        print("   ok: changes and the end of a lease by mail over STARTTLS, with a login", flush=True)
    finally:
        node.stop()
        server.stop()


def main() -> None:
    chappe, folder = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2]).absolute()
    run_in(folder, lambda: check(chappe, folder), (subprocess.SubprocessError, queue.Empty))
    print("   all passed")


if __name__ == "__main__":
    main()
