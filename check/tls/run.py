"""The node's TLS with curl and openssl: its own certificate, both versions, and refused connections."""

import json
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
