"""Canonical forms and signed messages beside xmllint, lxml, xmlsec1, zeep and WSS4J, both ways.

    signatures.py SIGNATURE_PEER CERTIFICATES WORK JARS

SIGNATURE_PEER is the example of `chappe-soap`, CERTIFICATES the folder of certificates of its tests, JARS that of
WSS4J's libraries (pom.xml).
"""

import datetime
import pathlib
import random
import shutil
import subprocess
import sys

import xmlsec
from lxml import etree
from zeep.exceptions import SignatureVerificationFailed
from zeep.wsse.signature import BinarySignature, Signature
from zeep.wsse.utils import WSU, get_security_header, get_timestamp

DOCUMENTS = 400
EXCLUSIVE = "http://www.w3.org/2001/10/xml-exc-c14n#"
DS = "http://www.w3.org/2000/09/xmldsig#"
WSSE = "http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-wssecurity-secext-1.0.xsd"
WSU_NAMESPACE = "http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-wssecurity-utility-1.0.xsd"
PROFILE = "http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-x509-token-profile-1.0#X509v3"
SOAP_1_1 = "http://schemas.xmlsoap.org/soap/envelope/"
SOAP_1_2 = "http://www.w3.org/2003/05/soap-envelope"
NOW = datetime.datetime.now(datetime.timezone.utc)
UNIX_S = str(int(NOW.timestamp()))
NAMESPACES = ["urn:1", "urn:2", "urn:3"]
PREFIXES = ["", "p", "q", "r"]


def expect(held: bool, what: str) -> None:
    """Prints the property checked, and exits with 1 if it does not hold."""
    print(("ok      " if held else "FAILED  ") + what, flush=True)
    if not held:
        sys.exit(1)


def run(*command: str, given: bytes = b"") -> subprocess.CompletedProcess:
    return subprocess.run(command, capture_output=True, timeout=240, input=given)


# -- canonical forms ------------------------------------------------------------------------------


def text(dice: random.Random) -> str:
    pieces = ["a", " ", "\n", "\t", "&amp;", "&lt;", "&gt;", "&#13;", "&quot;", "\u00e9", "\U0001f600", "&#9;"]
    return "".join(dice.choice(pieces) for _ in range(dice.randrange(6)))


def element(dice: random.Random, depth: int) -> str:
    """A random element; every prefix is bound by the root."""
    prefix = dice.choice(PREFIXES)
    name = f"{prefix}:e" if prefix else "e"
    parts = {}
    for bound in PREFIXES if depth == 0 else dice.sample(PREFIXES, dice.randrange(3)):
        namespace = dice.choice(NAMESPACES if bound else NAMESPACES + [""])
        parts["xmlns" + (":" + bound if bound else "")] = namespace
    for index in range(dice.randrange(3)):
        bound = dice.choice(PREFIXES)
        parts[f"{bound}:a{index}" if bound else f"a{index}"] = text(dice).replace("\n", "&#10;")
    if dice.random() < 0.1:
        parts["xml:lang"] = "de"
    attributes = list(parts.items())
    dice.shuffle(attributes)
    written = "".join(f'{dice.choice([" ", chr(10), "  "])}{key}="{value}"' for key, value in attributes)
    content = ""
    if depth < 5:
        for _ in range(dice.randrange(4)):
            kind = dice.random()
            content += (element(dice, depth + 1) if kind < 0.6 else text(dice) if kind < 0.8
                        else "<![CDATA[<&>]]>" if kind < 0.9 else "<?target some data ?>")
    return f"<{name}{written}>{content}</{name}>"


def canonical(peer: str, documents: list[bytes], prefixes: str) -> list[bytes]:
    result = run(peer, "canonical", prefixes, given=b"\0".join(documents))
    if result.returncode != 0:
        expect(False, f"canonical forms are written: {result.stderr.decode()}")
    return result.stdout.split(b"\0")[:-1]


def forms(peer: str) -> None:
    dice = random.Random(7)
    documents = [element(dice, 0).encode() for _ in range(DOCUMENTS)]
    for prefixes in ("", "p", "q r"):
        found = canonical(peer, documents, prefixes)
        by_lxml = [etree.tostring(etree.fromstring(document), method="c14n", exclusive=True, with_comments=False,
                                  inclusive_ns_prefixes=prefixes.split() or None) for document in documents]
        wrong = [index for index, form in enumerate(found) if form != by_lxml[index]]
        expect(len(found) == DOCUMENTS and not wrong,
               f"{DOCUMENTS} forms with the prefix list {prefixes!r} are those of lxml")
    found = canonical(peer, documents, "")
    by_xmllint = [run("xmllint", "--exc-c14n", "-", given=document).stdout for document in documents]
    # xmllint ends the form of a document with a line end in some versions.
    same = [one == other.rstrip(b"\n") or one == other for one, other in zip(found, by_xmllint)]
    expect(all(same), f"{DOCUMENTS} forms are those of xmllint")


# -- messages -------------------------------------------------------------------------------------


def envelope(soap: str) -> bytes:
    return (f'<soap:Envelope xmlns:soap="{soap}" xmlns="urn:default"><soap:Header/><soap:Body><x:Set xmlns:x="urn:x" '
            'xmlns:t="urn:t" unit="%">70 &lt; <x:Kind>t:Pump</x:Kind></x:Set></soap:Body></soap:Envelope>').encode()


def is_accepted(peer: str, message: bytes, roots: pathlib.Path, *options: str) -> bool:
    result = run(peer, "verify", str(roots), UNIX_S, *options, given=message)
    if result.returncode > 1:
        expect(False, f"the verifier runs: {result.stderr.decode()}")
    if result.returncode == 1:
        print("        " + result.stderr.decode().strip())
    return result.returncode == 0


ADDRESSING = "http://www.w3.org/2005/08/addressing"
IDENTIFIERS = [f"--id-attr:Id={namespace}:{name}" for namespace, name in (
    (SOAP_1_1, "Body"), (SOAP_1_2, "Body"), (WSU_NAMESPACE, "Timestamp"), (WSSE, "BinarySecurityToken"),
    *((ADDRESSING, header) for header in ("Action", "MessageID", "RelatesTo", "ReplyTo", "To")))]


def identifiers() -> list[str]:
    options = []
    for option in IDENTIFIERS:
        name, _, value = option.partition("=")
        options += [name, value]
    return options


def template(certificate: pathlib.Path, algorithm: str, message: bytes | None = None, headers: tuple[str, ...] = ()) -> bytes:
    """A message that xmlsec1 completes: a token, a timestamp and a Body with a list of prefixes, and headers of the message
    by their identifiers."""
    token = "".join(line for line in certificate.read_text().splitlines() if not line.startswith("---"))
    now = datetime.datetime.now(datetime.timezone.utc)
    times = [moment.strftime("%Y-%m-%dT%H:%M:%SZ") for moment in (now, now + datetime.timedelta(seconds=60))]
    reference = (f'<ds:Reference URI="#{{}}"><ds:Transforms><ds:Transform Algorithm="{EXCLUSIVE}">'
                 f'<ec:InclusiveNamespaces xmlns:ec="{EXCLUSIVE}" PrefixList="t soap #default"/></ds:Transform></ds:Transforms>'
                 '<ds:DigestMethod Algorithm="http://www.w3.org/2001/04/xmlenc#sha256"/><ds:DigestValue/>'
                 '</ds:Reference>')
    references = "".join(reference.format(name) for name in ("body", "time", "token", *headers))
    security = (f'<wsse:Security xmlns:wsse="{WSSE}"><wsse:BinarySecurityToken wsu:Id="token" ValueType="{PROFILE}">'
                f'{token}</wsse:BinarySecurityToken><wsu:Timestamp wsu:Id="time"><wsu:Created>{times[0]}</wsu:Created>'
                f'<wsu:Expires>{times[1]}</wsu:Expires></wsu:Timestamp><ds:Signature xmlns:ds="{DS}"><ds:SignedInfo>'
                f'<ds:CanonicalizationMethod Algorithm="{EXCLUSIVE}"/><ds:SignatureMethod Algorithm="{algorithm}"/>'
                f'{references}</ds:SignedInfo><ds:SignatureValue/><ds:KeyInfo><wsse:SecurityTokenReference>'
                f'<wsse:Reference URI="#token" ValueType="{PROFILE}"/></wsse:SecurityTokenReference></ds:KeyInfo>'
                '</ds:Signature></wsse:Security>')
    message = (message or envelope(SOAP_1_2)).decode()
    message = message.replace("<soap:Header/>", "<soap:Header></soap:Header>")
    message = message.replace("<soap:Header>", f"<soap:Header>{security}")
    message = message.replace("<soap:Body>", '<soap:Body wsu:Id="body">')
    return message.replace("<soap:Envelope ", f'<soap:Envelope xmlns:wsu="{WSU_NAMESPACE}" ').encode()


def with_xmlsec1(peer: str, folder: pathlib.Path, work: pathlib.Path, roots: pathlib.Path) -> None:
    algorithms = {"rsa": "rsa-sha256", "p256": "ecdsa-sha256"}
    for name, algorithm in algorithms.items():
        key, certificate = folder / f"{name}.key", folder / f"{name}.pem"
        for soap in (SOAP_1_1, SOAP_1_2):
            signed = run(peer, "sign", str(key), str(certificate), UNIX_S, given=envelope(soap))
            message = work / "message.xml"
            message.write_bytes(signed.stdout)
            by_xmlsec1 = run("xmlsec1", "--verify", "--pubkey-cert-pem", str(certificate), *identifiers(), str(message))
            version = "1.1" if soap == SOAP_1_1 else "1.2"
            expect(by_xmlsec1.returncode == 0, f"xmlsec1 verifies a message of SOAP {version} with {algorithm}")
            message.write_bytes(signed.stdout.replace(b">70 ", b">71 "))
            by_xmlsec1 = run("xmlsec1", "--verify", "--pubkey-cert-pem", str(certificate), *identifiers(), str(message))
            expect(by_xmlsec1.returncode != 0, "... and refuses it with another Body")
        unsigned = work / "template.xml"
        unsigned.write_bytes(template(certificate, f"http://www.w3.org/2001/04/xmldsig-more#{algorithm}"))
        signed = run("xmlsec1", "--sign", "--privkey-pem", str(key), *identifiers(), str(unsigned))
        expect(signed.returncode == 0, f"xmlsec1 signs with {algorithm}: {signed.stderr.decode()[:200]}")
        expect(is_accepted(peer, signed.stdout, roots), "... and the message is accepted")
        for old, new in ((b">70 ", b">71 "), (b'xmlns:t="urn:t"', b'xmlns:t="urn:u"'), (b'Id="body"', b'Id="b"')):
            changed = signed.stdout.replace(old, new)
            expect(changed != signed.stdout and not is_accepted(peer, changed, roots),
                   f"... but not with {new.decode()}")


def zeep_message(signature) -> bytes:
    document = etree.fromstring(envelope(SOAP_1_1))
    stamp = WSU.Timestamp()
    stamp.append(WSU.Created(get_timestamp(NOW)))
    stamp.append(WSU.Expires(get_timestamp(NOW + datetime.timedelta(seconds=60))))
    get_security_header(document).append(stamp)
    signed, _ = signature.apply(document, {})
    return etree.tostring(signed)


def with_zeep(peer: str, folder: pathlib.Path, roots: pathlib.Path) -> None:
    files = (str(folder / "rsa.key"), str(folder / "rsa.pem"))
    sha256 = {"signature_method": xmlsec.Transform.RSA_SHA256, "digest_method": xmlsec.Transform.SHA256}
    for kind in (BinarySignature, Signature):
        message = zeep_message(kind(*files, **sha256))
        expect(is_accepted(peer, message, roots), f"a message of zeep's {kind.__name__} with SHA-256 is accepted")
        changed = message.replace(b">70 ", b">71 ")
        expect(not is_accepted(peer, changed, roots), "... but not with another Body")
    message = zeep_message(BinarySignature(*files))
    expect(not is_accepted(peer, message, roots), "a message with zeep's default, SHA-1, is refused")
    expect(is_accepted(peer, message, roots, "--sha1"), "... but accepted where the policy allows it")
    strangers = folder / "other.pem"
    message = zeep_message(BinarySignature(*files, **sha256))
    expect(not is_accepted(peer, message, strangers), "a message is refused without a chain to a trusted root")
    for name in ("rsa", "p256"):
        certificate = folder / f"{name}.pem"
        signed = run(peer, "sign", str(folder / f"{name}.key"), str(certificate), UNIX_S, given=envelope(SOAP_1_1))
        verifier = BinarySignature(str(folder / f"{name}.key"), str(certificate))
        verifier.verify(etree.fromstring(signed.stdout))
        expect(True, f"zeep verifies a message with the key {name}")
        try:
            verifier.verify(etree.fromstring(signed.stdout.replace(b">70 ", b">71 ")))
            expect(False, "... and refuses it with another Body")
        except SignatureVerificationFailed:
            expect(True, "... and refuses it with another Body")


def with_wss4j(peer: str, folder: pathlib.Path, work: pathlib.Path, roots: pathlib.Path, jars: str) -> None:
    sources = pathlib.Path(__file__).parent / "Wss4jPeer.java"
    compiled = run("javac", "-cp", f"{jars}/*", "-d", str(work), str(sources))
    expect(compiled.returncode == 0, f"the peer with WSS4J is compiled: {compiled.stderr.decode()[:200]}")
    wss4j = ("java", "-cp", f"{jars}/*:{work}", "Wss4jPeer")
    trusted = work / "trusted.p12"
    for name in ("root", "intermediate"):
        made = run("keytool", "-importcert", "-noprompt", "-alias", name, "-file", str(folder / f"{name}.pem"),
                   "-keystore", str(trusted), "-storetype", "PKCS12", "-storepass", "password")
        expect(made.returncode == 0, f"keytool stores the certificate {name}")
    for name in ("rsa", "p256"):
        key, certificate = folder / f"{name}.key", folder / f"{name}.pem"
        store = work / f"{name}.p12"
        made = run("openssl", "pkcs12", "-export", "-inkey", str(key), "-in", str(certificate), "-name", name,
                   "-passout", "pass:password", "-out", str(store))
        expect(made.returncode == 0, f"openssl stores the key {name}")
        message = work / f"{name}.xml"
        message.write_bytes(envelope(SOAP_1_2))
        made = run(*wss4j, "sign", str(store), name, str(message))
        expect(made.returncode == 0, f"WSS4J signs with the key {name}: {made.stderr.decode()[:200]}")
        signed = (work / f"{name}.xml.signed").read_bytes()
        expect(is_accepted(peer, signed, roots), "... and the message is accepted")
        expect(not is_accepted(peer, signed.replace(b">70 ", b">71 "), roots), "... but not with another Body")
        ours = []
        for soap in (SOAP_1_1, SOAP_1_2):
            signed = run(peer, "sign", str(key), str(certificate), UNIX_S, given=envelope(soap)).stdout
            for changed in (signed, signed.replace(b">70 ", b">71 ")):
                ours.append(work / f"ours-{name}-{len(ours)}.xml")
                ours[-1].write_bytes(changed)
        verified = run(*wss4j, "verify", str(trusted), "-", *map(str, ours)).stdout.decode().splitlines()
        kinds = [line.split(":")[0] for line in verified]
        expect(kinds == ["accepted", "refused"] * 2, f"WSS4J accepts messages with the key {name}: {verified}")


def main(peer: str, folder: pathlib.Path, work: pathlib.Path, jars: str) -> None:
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    # Peers send one certificate, so that its issuer must be trusted itself.
    roots = work / "roots.pem"
    roots.write_text((folder / "root.pem").read_text() + (folder / "intermediate.pem").read_text())
    forms(peer)
    with_xmlsec1(peer, folder, work, roots)
    with_zeep(peer, folder, roots)
    with_wss4j(peer, folder, work, roots, jars)


if __name__ == "__main__":
    main(sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]), sys.argv[4])
