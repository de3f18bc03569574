"""A running node that requires signatures, in the hands of zeep, xmlsec1, WSS4J and the library, over HTTP.

    signed_node.py CHAPPE SIGNED_UDDI CERTIFICATES WORK JARS

SIGNED_UDDI is the example of `chappe-transport`, CERTIFICATES the folder of certificates of the tests of
`chappe-identity`, JARS that of WSS4J's libraries (pom.xml). Each peer signs requests with the certificate of an account,
and verifies the signatures of the node's answers. Loopback only.
"""

import datetime
import http.server
import json
import os
import pathlib
import queue
import shutil
import subprocess
import sys
import threading
import urllib.error
import urllib.request
import uuid

import xmlsec
from lxml import etree
from zeep import Client
from zeep.exceptions import Fault, SignatureVerificationFailed
from zeep.wsse.signature import BinarySignature
from zeep.wsse.utils import WSU, get_security_header, get_timestamp

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
from network import Process  # noqa: E402
from signatures import (  # noqa: E402
    ADDRESSING, SOAP_1_1, SOAP_1_2, WSU_NAMESPACE, expect, identifiers, run, template)

CONFIGURATION = """
name = "ward-3"
data_directory = "data"
[http]
listen = "127.0.0.1:0"
[access]
read = "token"
[discovery]
enabled = false
contact = ["127.0.0.1/32"]
[signatures]
inquiry = "required"
publication = "required"
documents = "required"
metadata = "required"
subscriptions = "required"
authorities = "roots.pem"
revocation_lists = "root.crl"
certificate = "node.pem"
key = "node.key"
"""
UDDI = "urn:uddi-org:api_v2"
EVENTING = "http://schemas.xmlsoap.org/ws/2004/08/eventing"
SOAP_1_2_TYPE = "application/soap+xml; charset=utf-8"
SHA256 = {"signature_method": xmlsec.Transform.RSA_SHA256, "digest_method": xmlsec.Transform.SHA256}


class Signed:
    """zeep's signatures: requests with a timestamp by one certificate, answers by another."""

    def __init__(self, own: pathlib.Path, peer: pathlib.Path):
        self.own = BinarySignature(f"{own}.key", f"{own}.pem", **SHA256)
        self.peer = BinarySignature(f"{peer}.key", f"{peer}.pem")
        self.verified = 0

    def apply(self, message, headers):
        now = datetime.datetime.now(datetime.timezone.utc)
        stamp = WSU.Timestamp()
        stamp.append(WSU.Created(get_timestamp(now)))
        stamp.append(WSU.Expires(get_timestamp(now + datetime.timedelta(seconds=60))))
        get_security_header(message).append(stamp)
        return self.own.apply(message, headers)

    def verify(self, message):
        self.verified += 1
        return self.peer.verify(message)


def post(url: str, message: bytes, kind: str = "text/xml; charset=utf-8") -> tuple[int, bytes]:
    request = urllib.request.Request(url, message, {"Content-Type": kind, "SOAPAction": '""'})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def find(name: str) -> bytes:
    body = f'<find_business generic="2.0" xmlns="{UDDI}"><name>{name}</name></find_business>'
    return (f'<soap:Envelope xmlns:soap="{SOAP_1_1}" xmlns:t="urn:t"><soap:Header/><soap:Body>{body}</soap:Body>'
            '</soap:Envelope>').encode()


def with_zeep(url: str, folder: pathlib.Path) -> None:
    signed = Signed(folder / "rsa", folder / "p256")
    publish = Client(f"{url}/uddi/publish?wsdl", wsse=signed).service
    inquire = Client(f"{url}/uddi/inquiry?wsdl", wsse=signed).service
    business = {"businessKey": "", "name": [{"_value_1": "Signed by zeep"}]}
    saved = publish.save_business(generic="2.0", authInfo="", businessEntity=[business])
    expect(saved.businessEntity[0].authorizedName == "ada", "zeep publishes with a signature and no token")
    found = inquire.find_business(generic="2.0", name=[{"_value_1": "Signed"}])
    infos = found.businessInfos.businessInfo
    expect([info.name[0]._value_1 for info in infos] == ["Signed by zeep"], "... and finds what it published")
    documents = Client(f"{url}/uddi/wsdl?wsdl", wsse=signed)
    expect(documents.service is not None, "... and binds the interface of WSDL documents")
    expect(signed.verified >= 2, f"zeep verified the node's signature of {signed.verified} answers")
    try:
        strict = Signed(folder / "rsa", folder / "rsa")
        Client(f"{url}/uddi/inquiry?wsdl", wsse=strict).service.find_business(generic="2.0", name=[{"_value_1": "S"}])
        expect(False, "... and would refuse those of another key")
    except (SignatureVerificationFailed, xmlsec.Error):
        expect(True, "... and would refuse those of another key")
    bare = Client(f"{url}/uddi/inquiry?wsdl").service
    try:
        bare.find_business(generic="2.0", name=[{"_value_1": "Signed"}])
        expect(False, "without a signature zeep gets a fault")
    except Fault as fault:
        expect("FailedAuthentication" in str(fault.code), f"without a signature zeep gets a fault: {fault.message}")


def verify_with_xmlsec1(answer: bytes, certificate: pathlib.Path, work: pathlib.Path) -> bool:
    path = work / "answer.xml"
    path.write_bytes(answer)
    return run("xmlsec1", "--verify", "--pubkey-cert-pem", str(certificate), *identifiers(), str(path)).returncode == 0


def with_xmlsec1(url: str, folder: pathlib.Path, work: pathlib.Path) -> None:
    algorithm = "http://www.w3.org/2001/04/xmldsig-more#rsa-sha256"
    unsigned = work / "template.xml"
    unsigned.write_bytes(template(folder / "rsa.pem", algorithm, find("Signed")))
    signed = run("xmlsec1", "--sign", "--privkey-pem", str(folder / "rsa.key"), *identifiers(), str(unsigned)).stdout
    status, answer = post(f"{url}/uddi/inquiry", signed.replace(b">Signed<", b">%<"))
    expect(status == 500 and b"wsse:" in answer, "the node refuses a request of xmlsec1 that was changed")
    status, answer = post(f"{url}/uddi/inquiry", signed)
    expect(status == 200 and b"Signed by zeep" in answer, "the node answers a request that xmlsec1 signed")
    expect(verify_with_xmlsec1(answer, folder / "p256.pem", work), "xmlsec1 verifies the answer")
    changed = answer.replace(b"Signed by zeep", b"Signed by Zeep")
    expect(not verify_with_xmlsec1(changed, folder / "p256.pem", work), "... and refuses another one")
    status, answer = post(f"{url}/uddi/publish", signed)
    expect(status == 500 and b"wsse:FailedAuthentication" in answer, "the node refuses the same request at another interface")


def with_wss4j(url: str, folder: pathlib.Path, work: pathlib.Path, jars: str) -> None:
    sources = HERE / "Wss4jPeer.java"
    compiled = run("javac", "-cp", f"{jars}/*", "-d", str(work), str(sources))
    expect(compiled.returncode == 0, f"the peer with WSS4J is compiled: {compiled.stderr.decode()[:200]}")
    wss4j = ("java", "-cp", f"{jars}/*:{work}", "Wss4jPeer")
    store, trusted = work / "rsa.p12", work / "trusted.p12"
    run("openssl", "pkcs12", "-export", "-inkey", str(folder / "rsa.key"), "-in", str(folder / "rsa.pem"), "-name", "rsa",
        "-passout", "pass:password", "-out", str(store))
    run("keytool", "-importcert", "-noprompt", "-alias", "root", "-file", str(folder / "root.pem"), "-keystore", str(trusted),
        "-storetype", "PKCS12", "-storepass", "password")
    message = work / "request.xml"
    message.write_bytes(find("Signed"))
    made = run(*wss4j, "sign", str(store), "rsa", str(message))
    expect(made.returncode == 0, f"WSS4J signs a request: {made.stderr.decode()[:200]}")
    status, answer = post(f"{url}/uddi/inquiry", (work / "request.xml.signed").read_bytes())
    expect(status == 200 and b"Signed by zeep" in answer, "... and the node answers it")
    answers = [work / "answer.xml", work / "changed.xml"]
    answers[0].write_bytes(answer)
    answers[1].write_bytes(answer.replace(b"Signed by zeep", b"Signed by Zeep"))
    verified = run(*wss4j, "verify", str(trusted), "-", *map(str, answers)).stdout.decode().splitlines()
    kinds = [line.split(":")[0] for line in verified]
    expect(kinds == ["accepted", "refused"], f"WSS4J verifies the answer, and refuses a changed one: {verified}")


class Sink:
    """Takes notifications as they are sent, and answers 202."""

    def __init__(self):
        self.messages = messages = queue.Queue()

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:  # noqa: N802
                messages.put(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(202)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_arguments) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.address = f"http://127.0.0.1:{self.server.server_port}/events"


HEADERS = ("Action", "MessageID", "To")


def subscribe(source: str, sink: Sink) -> bytes:
    """An unsigned Subscribe, whose headers have identifiers."""
    values = (f"{EVENTING}/Subscribe", f"urn:uuid:{uuid.uuid4()}", source.replace("&", "&amp;"))
    headers = "".join(f'<a:{name} wsu:Id="{name}">{value}</a:{name}>' for name, value in zip(HEADERS, values))
    to = f"<a:Address>{sink.address}</a:Address>"
    return (f'<soap:Envelope xmlns:soap="{SOAP_1_2}" xmlns:t="urn:t" xmlns:a="{ADDRESSING}" xmlns:e="{EVENTING}">'
            f'<soap:Header>{headers}</soap:Header><soap:Body><e:Subscribe><e:EndTo>{to}</e:EndTo><e:Delivery>'
            f'<e:NotifyTo>{to}</e:NotifyTo></e:Delivery><e:Expires>PT10M</e:Expires></e:Subscribe></soap:Body>'
            '</soap:Envelope>').encode()


def publish(url: str, token: str, number: int) -> None:
    entity = json.dumps({"key": f"urn:x:{number}", "name": f"Pump {number}"}).encode()
    fields = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
    urllib.request.urlopen(urllib.request.Request(f"{url}/api/v1/entities", entity, fields), timeout=60).close()


def subscriptions(url: str, token: str, folder: pathlib.Path, work: pathlib.Path, jars: str) -> None:
    """Subscribe of xmlsec1 and WSS4J; both verify its answer and the notifications."""
    source = f"{url}/registry/events?prefix=pump"
    own, node = folder / "rsa.pem", folder / "p256.pem"
    sinks = {"xmlsec1": Sink(), "WSS4J": Sink()}
    unsigned = work / "subscribe.xml"
    algorithm = "http://www.w3.org/2001/04/xmldsig-more#rsa-sha256"
    unsigned.write_bytes(template(own, algorithm, subscribe(source, sinks["xmlsec1"]), HEADERS))
    by_xmlsec1 = run("xmlsec1", "--sign", "--privkey-pem", str(folder / "rsa.key"), *identifiers(), str(unsigned)).stdout
    declared = f'<soap:Envelope xmlns:wsu="{WSU_NAMESPACE}" '.encode()
    unsigned.write_bytes(subscribe(source, sinks["WSS4J"]).replace(b"<soap:Envelope ", declared))
    wss4j = ("java", "-cp", f"{jars}/*:{work}", "Wss4jPeer")
    made = run(*wss4j, "sign", str(work / "rsa.p12"), "rsa", str(unsigned))
    expect(made.returncode == 0, f"WSS4J signs Subscribe: {made.stderr.decode()[:200]}")
    by_wss4j = (work / "subscribe.xml.signed").read_bytes()
    status, _ = post(source, by_xmlsec1.replace(b"PT10M", b"PT20M"), SOAP_1_2_TYPE)
    expect(status == 400, "the node refuses a Subscribe of xmlsec1 that was changed")
    answers = {}
    for peer, message in (("xmlsec1", by_xmlsec1), ("WSS4J", by_wss4j)):
        status, answers[peer] = post(source, message, SOAP_1_2_TYPE)
        expect(status == 200 and b"SubscribeResponse" in answers[peer], f"the node takes a Subscribe that {peer} signed: "
               f"{status} {answers[peer][:300] if status != 200 else ''}")
    publish(url, token, 1)
    events = {peer: sink.messages.get(timeout=60) for peer, sink in sinks.items()}
    expect(all(b"urn:x:1" in event for event in events.values()), "... and both receive a notification")
    for what, message in (("the answer", answers["xmlsec1"]), ("the notification", events["xmlsec1"])):
        expect(verify_with_xmlsec1(message, node, work), f"xmlsec1 verifies {what}")
    changed = events["xmlsec1"].replace(b"Pump 1", b"Pump 2")
    expect(changed != events["xmlsec1"] and not verify_with_xmlsec1(changed, node, work), "... and refuses another one")
    files = [work / f"event-{index}.xml" for index in range(3)]
    for file, message in zip(files, (answers["WSS4J"], events["WSS4J"], events["WSS4J"].replace(b"Pump 1", b"Pump 2"))):
        file.write_bytes(message)
    verified = run(*wss4j, "verify", str(work / "trusted.p12"), "-", *map(str, files)).stdout.decode().splitlines()
    kinds = [line.split(":")[0] for line in verified]
    expect(kinds == ["accepted", "accepted", "refused"],
           f"WSS4J verifies the answer and the notification, and refuses another one: {verified}")


def with_library(signed_uddi: str, url: str, folder: pathlib.Path) -> None:
    body = f'<find_business generic="2.0" xmlns="{UDDI}"><name>Signed</name></find_business>'.encode()
    ask = (signed_uddi, f"{url}/uddi/inquiry", str(folder / "rsa.pem"), str(folder / "rsa.key"), str(folder / "roots.pem"))
    asked = run(*ask, given=body)
    expect(asked.returncode == 0 and b"Signed by zeep" in asked.stdout,
           f"the library reads what is signed of an answer: {asked.stderr.decode()}")
    stranger = (*ask[:2], str(folder / "p256.pem"), str(folder / "p256.key"), ask[4])
    asked = run(*stranger, given=body)
    expect(asked.returncode == 1 and b"E_unknownUser" in asked.stderr,
           f"a certificate of no account is nobody's: {asked.stderr.decode().strip()}")


def main(chappe: str, signed_uddi: str, certificates: pathlib.Path, work: pathlib.Path, jars: str) -> None:
    folder = work / "node"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for file in certificates.iterdir():
        target = folder / file.name
        target.write_bytes(file.read_bytes())
        target.chmod(0o600)
    # Peers send one certificate, so that its issuer must be trusted itself.
    (folder / "roots.pem").write_text((folder / "root.pem").read_text() + (folder / "intermediate.pem").read_text())
    for kind in ("pem", "key"):
        (folder / f"node.{kind}").write_bytes((folder / f"p256.{kind}").read_bytes())
        (folder / f"node.{kind}").chmod(0o600)
    (folder / "node.toml").write_text(CONFIGURATION)
    node = Process([chappe, "serve", str(folder / "node.toml"), "--json"], work / "node.log")
    try:
        url = node.wait_event("ready", 30)["address"]
        token = (folder / "data" / "new-token").read_text().strip()
        names = "O=Ward 3,CN=rsa;issuer=O=Ward 3,CN=intermediate"
        add = [chappe, "account", "add", "ada", "--role", "read", "--role", "write", "--certificate", names, "--node", url]
        added = subprocess.run(add, env={**os.environ, "CHAPPE_TOKEN": token}, capture_output=True, text=True, timeout=60)
        expect(added.returncode == 0, f"an account has the certificate of subject and issuer {added.stderr.strip()}")
        with_zeep(url, folder)
        with_xmlsec1(url, folder, work)
        with_wss4j(url, folder, work, jars)
        with_library(signed_uddi, url, folder)
        subscriptions(url, token, folder, work, jars)
    finally:
        node.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3]), pathlib.Path(sys.argv[4]), sys.argv[5])
