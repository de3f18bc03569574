"""The node's TLS with curl and openssl: its own certificate, both versions, refused connections, and clients by their
certificates, over REST and SOAP."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

CONFIGURATION = """
[http]
listen = "127.0.0.1:0"
[http.tls]
self_signed = true
[discovery]
enabled = false
"""


def expect(held: bool, what: str) -> None:
    """Prints the property checked, and exits with 1 if it does not hold."""
    print(("ok      " if held else "FAILED  ") + what, flush=True)
    if not held:
        sys.exit(1)


def run(*command: str) -> subprocess.CompletedProcess:
    return subprocess.run(command, capture_output=True, text=True, timeout=240, stdin=subprocess.DEVNULL)


def main(chappe: str, work: pathlib.Path) -> None:
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    configuration = work / "node.toml"
    configuration.write_text(CONFIGURATION)
    node = subprocess.Popen([chappe, "serve", str(configuration), "--json"],
                            stdout=subprocess.PIPE, text=True)
    try:
        ready = json.loads(node.stdout.readline())
        check(chappe, ready, configuration, work / "chappe-data" / "http.pem")
    finally:
        node.terminate()
        node.wait(120)
    ending(chappe, work)
    clients(chappe, work)


AUTHORITY = """
[ca]
default_ca = this
[this]
database = {folder}/index.txt
new_certs_dir = {folder}
serial = {folder}/serial
crlnumber = {folder}/crlnumber
certificate = {folder}/ca.pem
private_key = {folder}/ca.key
default_md = sha256
default_crl_days = 30
policy = any
unique_subject = no
[any]
commonName = supplied
[leaf]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = clientAuth
"""


class Authority:
    """An authority of `openssl ca`."""

    def __init__(self, work: pathlib.Path, name: str):
        self.folder = work / name.replace(" ", "-")
        self.folder.mkdir()
        (self.folder / "index.txt").write_text("")
        (self.folder / "serial").write_text("1000")
        (self.folder / "crlnumber").write_text("01")
        self.configuration = self.folder / "ca.conf"
        self.configuration.write_text(AUTHORITY.format(folder=self.folder))
        made = run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30",
                   "-subj", f"/CN={name}", "-addext", "keyUsage=critical,keyCertSign,cRLSign",
                   "-keyout", str(self.folder / "ca.key"), "-out", str(self.folder / "ca.pem"))
        expect(made.returncode == 0, f"openssl makes the authority {name}: {made.stderr[-200:] if made.returncode else ''}")

    @property
    def certificate(self) -> str:
        return (self.folder / "ca.pem").read_text()

    def issue(self, file: str, common_name: str, *options: str) -> tuple[str, str]:
        """A certificate of a client, and its key; `options` are of `openssl ca`."""
        key, request, certificate = (self.folder / f"{file}.{kind}" for kind in ("key", "csr", "pem"))
        run("openssl", "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj",
            f"/CN={common_name}", "-keyout", str(key), "-out", str(request))
        made = run("openssl", "ca", "-batch", "-notext", "-config", str(self.configuration), "-extensions", "leaf", "-in",
                   str(request), "-out", str(certificate), *(options or ("-days", "30")))
        expect(made.returncode == 0, f"... and a certificate {file}: {made.stderr[-200:] if made.returncode else ''}")
        key.chmod(0o600)
        return str(certificate), str(key)

    def revoke(self, certificate: str) -> str:
        """Revokes a certificate, and returns the list."""
        run("openssl", "ca", "-config", str(self.configuration), "-revoke", certificate)
        made = run("openssl", "ca", "-config", str(self.configuration), "-gencrl")
        expect("BEGIN X509 CRL" in made.stdout, "... and a list of revoked ones")
        return made.stdout


SAVE = ('<s:Envelope xmlns:s="http://schemas.xmlsoap.org/soap/envelope/"><s:Body><save_business generic="2.0" '
        'xmlns="urn:uddi-org:api_v2"><businessEntity businessKey=""><name>Ward</name></businessEntity></save_business>'
        '</s:Body></s:Envelope>')


def clients(chappe: str, work: pathlib.Path) -> None:
    """An account's certificate lets its holder in, and no other does."""
    ward, other, stranger = (Authority(work, name) for name in ("Ward CA", "Other CA", "Strange CA"))
    own = ward.issue("own", "ada")
    plain = other.issue("plain", "eve")
    refused = {
        "of a stranger": stranger.issue("stranger", "ada"),
        "that has expired": ward.issue("expired", "ada", "-startdate", "20200101000000Z", "-enddate", "20210101000000Z"),
        "that was revoked": ward.issue("revoked", "ada"),
    }
    (work / "client-ca.pem").write_text(ward.certificate + other.certificate)
    (work / "client-ca.crl").write_text(ward.revoke(refused["that was revoked"][0]))
    configuration = work / "clients.toml"
    configuration.write_text(CONFIGURATION.replace("self_signed = true", "\n".join((
        "self_signed = true", 'client_authorities = "client-ca.pem"', 'client_revocation_lists = "client-ca.crl"')))
        + '[access]\nread = "token"\n')
    shutil.rmtree(work / "chappe-data")
    node = subprocess.Popen([chappe, "serve", str(configuration), "--json"], stdout=subprocess.PIPE, text=True)
    try:
        ready = json.loads(node.stdout.readline())
        url, trust = ready["address"], str(work / "chappe-data" / "http.pem")
        os.environ["CHAPPE_TOKEN"] = (work / "chappe-data" / "new-token").read_text().strip()
        reach = ("--node", url, "--fingerprint", ready["fingerprint"])
        for name, certificate in (("ada", "CN=ada;issuer=CN=Ward CA"), ("eve", "CN=eve")):
            added = run(chappe, "account", "add", name, "--role", "read", "--role", "write", "--certificate", certificate, *reach)
            expect(added.returncode == 0, f"the account {name} has the certificate {certificate!r} {added.stderr.strip()}")
        del os.environ["CHAPPE_TOKEN"]

        def rest(certificate: tuple[str, str] | None) -> subprocess.CompletedProcess:
            shown = ("--cert", certificate[0], "--key", certificate[1]) if certificate else ()
            return run("curl", "-sS", "-w", " %{http_code}", "--cacert", trust, *shown, url + "/api/v1/self")

        def soap(certificate: tuple[str, str] | None) -> subprocess.CompletedProcess:
            shown = ("--cert", certificate[0], "--key", certificate[1]) if certificate else ()
            return run("curl", "-sS", "--cacert", trust, *shown, "-H", "Content-Type: text/xml", "-d", SAVE, url + "/uddi/publish")

        for name, certificate in (("ada", own), ("eve", plain)):
            got = rest(certificate).stdout
            expect(f'"name":"{name}"' in got and got.endswith(" 200"), f"REST knows {name} by the certificate: {got}")
            got = soap(certificate).stdout
            expect(f'authorizedName="{name}"' in got, f"SOAP lets {name} publish by the certificate")
        for what, certificate in refused.items():
            for way, ask in (("REST", rest), ("SOAP", soap)):
                got = ask(certificate)
                expect(got.returncode != 0 and "Ward" not in got.stdout, f"{way} refuses a certificate {what}: {got.stderr.strip()}")
        same_name = other.issue("same", "ada")
        got = rest(same_name).stdout
        expect('"name":"ada"' not in got, f"the same subject of another authority is not ada: {got}")
        got = soap(same_name).stdout
        expect("E_authTokenRequired" in got, "... and may not publish")
        got = run("curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", "--cacert", trust, url + "/api/v1/node").stdout
        expect(got == "401", f"without a certificate nobody reads: {got}")
        expect("E_authTokenRequired" in soap(None).stdout, "... and nobody publishes")
    finally:
        node.terminate()
        node.wait(120)


def ending(chappe: str, work: pathlib.Path) -> None:
    """A certificate that expires in five days is reported."""
    made = run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
               "-days", "5", "-subj", "/CN=ending", "-addext", "subjectAltName=IP:127.0.0.1",
               "-keyout", str(work / "key.pem"), "-out", str(work / "certificate.pem"))
    expect(made.returncode == 0, "openssl makes a certificate for five days")
    (work / "key.pem").chmod(0o600)
    configuration = work / "ending.toml"
    configuration.write_text(CONFIGURATION.replace(
        "self_signed = true", f'certificate = "{work}/certificate.pem"\nkey = "{work}/key.pem"'))
    node = subprocess.Popen([chappe, "serve", str(configuration), "--json"], stdout=subprocess.PIPE, text=True)
    try:
        url = json.loads(node.stdout.readline())["address"]
        trust = ("--cacert", str(work / "certificate.pem"))
        notices = run("curl", "-sS", *trust, url + "/api/v1/notices").stdout
        expect("expires within 7 days" in notices, "a notice tells that it expires within 7 days")
        metrics = run("curl", "-sS", *trust, url + "/metrics").stdout
        line = next(line for line in metrics.splitlines() if line.startswith("chappe_certificate_end_seconds"))
        days = (float(line.split()[-1]) - time.time()) / 86_400
        expect(4.9 < days < 5.1, f"and the metric when: in {days:.2f} days")
    finally:
        node.terminate()
        node.wait(120)


def check(chappe: str, ready: dict, configuration: pathlib.Path, own: pathlib.Path) -> None:
    url, address = ready["address"], ready["address"].removeprefix("https://")
    for version in ("1.2", "1.3"):
        got = run("curl", "-sS", f"--tlsv{version}", "--tls-max", version, "--cacert", str(own), url + "/health")
        expect(got.stdout == '{"status":"ok"}', f"curl over TLS {version}")
    named = url.replace("127.0.0.1", "localhost")
    got = run("curl", "-sS", "--cacert", str(own), named + "/health")
    expect(got.returncode == 0, "curl by name")
    expect(run("curl", "-sS", url + "/health").returncode == 60, "curl refuses what it does not know")
    got = run("curl", "-sS", "--tls-max", "1.1", "--insecure", url + "/health")
    expect(got.returncode != 0, "TLS 1.1 is refused")
    got = run("curl", "-sS", "-w", " %{http_code}", f"http://{address}/health")
    expect("https://" in got.stdout and got.stdout.endswith(" 400"), "plain HTTP is told so")
    shown = run("openssl", "x509", "-in", str(own), "-noout", "-fingerprint", "-sha256").stdout
    shown = shown.split("=", 1)[1].strip().replace(":", "").lower()
    key = json.loads(run(chappe, "key", "show", str(configuration), "--json").stdout)
    expect(shown == key["fingerprint"] == ready["fingerprint"], "openssl and chappe see one fingerprint")
    verified = run("openssl", "verify", "-CAfile", str(own), "-x509_strict", str(own))
    expect(verified.returncode == 0, "openssl verifies the certificate: " + verified.stderr.strip())
    asked = run(chappe, "query", "select 1 as one", "--node", url, "--fingerprint", shown, "--json")
    expect(asked.returncode == 0, "chappe trusts the fingerprint")
    asked = run(chappe, "query", "select 1", "--node", url, "--fingerprint", "00" * 32)
    hints = [line for line in asked.stderr.splitlines() if line.startswith("hint: ")]
    expect(asked.returncode == 2 and any(shown in line for line in hints), f"and no other: {hints}")


if __name__ == "__main__":
    main(sys.argv[1], pathlib.Path(sys.argv[2]))
