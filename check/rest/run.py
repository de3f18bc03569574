"""The OpenAPI document in the hands of programs that others wrote.

    python check/rest/run.py CHAPPE WORK JAR

1. openapi-spec-validator reads the document that a running node serves.
2. openapi-python-client makes a client of it; `client.py` drives the node with that client and nothing else.
3. openapi-generator (the JAR, run by Java) makes clients in four languages; the one in Python is compiled.
4. schemathesis sends what the document allows, and what it does not, with an administrator's token.

Needs the Python packages of the group in `check/peers`; loopback only.
"""

import importlib
import json
import os
import pathlib
import subprocess
import sys
import time
import urllib.request

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
from network import CheckFailed, Process, expect, run_in  # noqa: E402

CONFIGURATION = """
name = "rest"
data_directory = "data"
sensors_directory = "sensors"
[http]
listen = "127.0.0.1:0"
[discovery]
enabled = false
[access]
read = "token"
"""
# What the generator has no code for. Text bodies have JSON or a form beside them, are read by other nodes, or are files of
# formats that have no JSON: WSDL, ontologies, exports of the registry.
UNSUPPORTED = {
    "application/x-ndjson", "text/csv", "application/toml", "application/sparql-query",
    "application/xml", "application/vnd.chappe.postcard", "application/vnd.msgpack",
    "application/openmetrics-text", "text/xml", "application/n-quads", "application/trig", "application/n-triples",
    "application/rdf+xml", "text/turtle", "application/x-protobuf", "text/plain",
}
NOT_GENERATED = {
    "POST /api/v1/exchange/contact-points/{link}/{secret}", "PUT /api/v1/registry/documents/{key}",
    "PUT /api/v1/registry/ontologies/{key}", "POST /api/v1/registry/import",
    "POST /api/v1/write", "POST /api/v2/write", "POST /write",
}
# Answers without end; schemathesis would wait for it.
ENDLESS = ("follow_streams", "pull_stream", "follow_registry", "follow_things", "follow_things_by_type")
# A body that schemathesis cannot make.
UNKNOWN_BODY = ("remote_write",)
CHECKS = ("not_a_server_error", "status_code_conformance", "content_type_conformance",
          "response_schema_conformance", "response_headers_conformance")
FUZZ_S = 45
# Real names reach the code behind the look-up; what they name is not removed.
NAMES = """
[parameters]
"path.name" = "fuzzed"
"path.key" = "urn:rest:fuzzed"
[[operations]]
include-operation-id = ["remove_stream", "remove_entity", "remove_link", "remove_virtual_sensor", "revoke_account"]
parameters = { "path.name" = "removed", "path.key" = "urn:rest:removed" }
"""
LANGUAGES = ("java", "go", "typescript-fetch", "python")
# What openapi-generator reports as an error and does not need: clients send a token.
NO_CERTIFICATES = "Unknown type `mutualTLS`"


def start(chappe: str, work: pathlib.Path, name: str) -> tuple[Process, str, str]:
    """Starts a node in a folder of its own; returns it with its address and its first administrator's token."""
    folder = work / name
    (folder / "sensors").mkdir(parents=True)
    (folder / "node.toml").write_text(CONFIGURATION)
    node = Process([chappe, "serve", str(folder / "node.toml"), "--json"], work / f"{name}.log")
    ready = node.wait_event("ready", 20)
    return node, ready["address"], (folder / "data" / "new-token").read_text().strip()


def fetch(address: str, token: str) -> dict:
    """The document that the node serves."""
    request = urllib.request.Request(f"{address}/api/v1/openapi.json", headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def warnings_of(output: str) -> list[str]:
    """The generator's warnings: the operation, and what it cannot do."""
    found = []
    for block in output.split("WARNING ")[1:]:
        lines = [line.strip() for line in block.splitlines() if line.strip()]
        found.append(f"{lines[0]} {lines[1] if len(lines) > 1 else ''}")
    return found


def generate(work: pathlib.Path, document: dict) -> None:
    """Generates the client, and judges each warning."""
    (work / "openapi.json").write_text(json.dumps(document))
    (work / "generator.yml").write_text("post_hooks: []\npackage_name_override: chappe_client\n")
    tool = pathlib.Path(sys.executable).with_name("openapi-python-client")
    done = subprocess.run([tool, "generate", "--path", work / "openapi.json", "--config", work / "generator.yml",
                           "--output-path", work / "generated"], capture_output=True, text=True, timeout=300)
    output = done.stdout + done.stderr
    (work / "generator.log").write_text(output)
    expect(done.returncode == 0, "openapi-python-client generates a client")
    for warning in warnings_of(output):
        known = "nsupported content" in warning and any(kind in warning for kind in UNSUPPORTED)
        missing = "will not be generated" in warning and not any(one in warning for one in NOT_GENERATED)
        if not known or missing:
            raise CheckFailed(f"the generator warns: {warning}")
    operations = [operation["operationId"] for path, methods in document["paths"].items()
                  for method, operation in methods.items() if f"{method.upper()} {path}" not in NOT_GENERATED]
    api = work / "generated" / "chappe_client" / "api"
    made = {path.stem for path in api.rglob("*.py")}
    expect(set(operations) <= made, f"it has all {len(operations)} operations: {sorted(set(operations) - made)} missing")


def other_languages(work: pathlib.Path, jar: str) -> None:
    """Generates clients with openapi-generator."""
    for language in LANGUAGES:
        done = subprocess.run(["java", "-jar", jar, "generate", "-g", language, "-i", work / "openapi.json",
                               "-o", work / language], capture_output=True, text=True, errors="replace", timeout=300)
        output = done.stdout + done.stderr
        (work / f"{language}.log").write_text(output)
        errors = [line for line in output.splitlines() if " ERROR " in line and NO_CERTIFICATES not in line]
        expect(done.returncode == 0 and not errors, f"openapi-generator generates a client: {language} {errors[:3] or ''}")
    compiled = subprocess.run([sys.executable, "-m", "compileall", "-q", work / "python" / "openapi_client"],
                              capture_output=True, text=True, timeout=300)
    expect(compiled.returncode == 0, f"the one in Python compiles {compiled.stdout[:300]}")


def fuzz(work: pathlib.Path, address: str, token: str) -> None:
    """Sends requests by the document; each answer must be one that the document describes, and no failure."""
    (work / "schemathesis.toml").write_text(NAMES)
    tool = pathlib.Path(sys.executable).with_name("schemathesis")
    leave_out = [word for operation in ENDLESS + UNKNOWN_BODY for word in ("--exclude-operation-id", operation)]
    done = subprocess.run(
        [tool, "--config-file", work / "schemathesis.toml", "run", work / "openapi.json", "--url", address,
         "--header", f"Authorization: Bearer {token}", "--checks", ",".join(CHECKS), *leave_out,
         "--phases", "coverage,fuzzing", "--max-examples", "20", "--max-time", str(FUZZ_S), "--seed", "11",
         "--generation-database", "none", "--request-timeout", "30", "--continue-on-failure", "--no-color",
         "--suppress-health-check", "all", "--warnings", "off"],
        capture_output=True, text=True, errors="replace", timeout=600, cwd=work)
    output = done.stdout + done.stderr
    (work / "schemathesis.log").write_text(output)
    cases = [line.strip() for line in output.splitlines() if "generated," in line or "Tested:" in line]
    failed = [line for line in output.splitlines() if line.startswith("- ") or "___" in line]
    expect(done.returncode == 0, f"schemathesis finds nothing: {'; '.join(cases)}"
           + (f" {failed[:20]}, see schemathesis.log" if done.returncode else ""))


def check(chappe: str, work: pathlib.Path, jar: str) -> None:
    begun = time.monotonic()
    node, address, token = start(chappe, work, "node")
    try:
        document = fetch(address, token)
        importlib.import_module("openapi_spec_validator").validate(document)
        print("   ok: openapi-spec-validator finds the document valid", flush=True)
        generate(work, document)
        other_languages(work, jar)
        sys.path.insert(0, str(work / "generated"))
        importlib.import_module("client").check(address, token)
    finally:
        code = node.stop()
    expect(code == 0, "the node ends in order")
    node, address, token = start(chappe, work, "fuzzed")
    try:
        importlib.import_module("client").prepare(address, token)
        fuzz(work, address, token)
        importlib.import_module("client").alive(address, token)
    finally:
        code = node.stop()
    log = (work / "fuzzed.log").read_text()
    expect(code == 0 and "panicked" not in log, "the node lives through it, and ends in order")
    print(f"   time of this group: {time.monotonic() - begun:.0f} s", flush=True)


def main() -> None:
    chappe, work = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2]).absolute()
    run_in(work, lambda: check(chappe, work, os.path.abspath(sys.argv[3])), (subprocess.SubprocessError,))


if __name__ == "__main__":
    main()
