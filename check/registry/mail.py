"""Subscriptions by e-mail with aiosmtpd as the server.

    python check/registry/mail.py CHAPPE WORK

A node sends changes of its registry to aiosmtpd, which demands a login over STARTTLS with a certificate that
this program makes with openssl. Loopback only.
"""

import os
import pathlib
import queue
import socket
import ssl
import subprocess
import sys

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult

sys.dont_write_bytecode = True
from nodes import CheckFailed, Node, run_in  # noqa: E402

CONFIGURATION = """
[discovery]
enabled = false
"""


class MailServer:
    """Takes mail of one sender, who has to log in over STARTTLS."""

    def __init__(self, folder: pathlib.Path):
        self.mails: queue.Queue[tuple[list[str], str, bool]] = queue.Queue()
        folder.mkdir(exist_ok=True)
        key, certificate = folder / "server.key", folder / "server.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                        "-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=critical,CA:FALSE",
                        "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        (folder / "password").write_text("secret\n")

        def log_in(server, session, envelope, mechanism, data):
            return AuthResult(success=data.login == b"chappe" and data.password == b"secret")

        # The controller connects to its port to see that it runs, so the port is chosen here.
        with socket.socket() as chosen:
            chosen.bind(("127.0.0.1", 0))
            port = chosen.getsockname()[1]
        self.controller = Controller(self, hostname="127.0.0.1", port=port, tls_context=context, require_starttls=True,
                                     authenticator=log_in, auth_required=True)
        self.controller.start()
        self.configuration = f"""
[mail]
server = "localhost"
port = {port}
authorities = "{certificate}"
user = "chappe"
password_file = "{folder}/password"
sender = "chappe@example.org"
recipients = ["@example.org"]
bundle_s = 1
"""

    async def handle_DATA(self, server, session, envelope):  # noqa: N802
        self.mails.put((envelope.rcpt_tos, envelope.content.decode(), session.authenticated))
        return "250 taken"

    def next(self) -> str:
        """The text of the next mail to the subscriber."""
        recipients, text, is_known = self.mails.get(timeout=60)
        if recipients != ["ops@example.org"] or not is_known:
            raise CheckFailed(f"mail to {recipients}, authenticated: {is_known}")
        return text

    def stop(self) -> None:
        self.controller.stop()


def check(chappe: str, work: pathlib.Path) -> None:
    server = MailServer(work / "server")
    node = Node(chappe, work / "mail", CONFIGURATION + server.configuration)
    try:
        node.rest("POST", "registry/subscriptions", {"mail": "ops@example.org", "prefix": "pump"})
        node.rest("POST", "entities", {"key": "urn:x:1", "name": "Pump Ärzte"})
        node.rest("POST", "entities", {"key": "urn:x:2", "name": "Pump two", "lease_s": 2})
        heard = ""
        while "removed: Pump two" not in heard:
            heard += server.next()
        if "added: Pump two <urn:x:2>" not in heard:
            raise CheckFailed(f"the mail lacks a change: {heard}")
        print("   ok: changes and the end of a lease by mail over STARTTLS, with a login", flush=True)
    finally:
        node.process.stop()
        server.stop()


def main() -> None:
    chappe, folder = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2]).absolute()
    run_in(folder, lambda: check(chappe, folder), (subprocess.SubprocessError, queue.Empty))
    print("   all passed")


if __name__ == "__main__":
    main()
