"""Hostile and honest discovery datagrams, made from a seed."""

import random
import uuid

SOAP = "http://www.w3.org/2003/05/soap-envelope"
DIALECTS = {
    "2009": {"wsa": "http://www.w3.org/2005/08/addressing",
             "wsd": "http://docs.oasis-open.org/ws-dd/ns/discovery/2009/01",
             "to": "urn:docs-oasis-open-org:ws-dd:ns:discovery:2009:01",
             "dpws": "http://docs.oasis-open.org/ws-dd/ns/dpws/2009/01"},
    "2005": {"wsa": "http://schemas.xmlsoap.org/ws/2004/08/addressing",
             "wsd": "http://schemas.xmlsoap.org/ws/2005/04/discovery",
             "to": "urn:schemas-xmlsoap-org:ws:2005:04:discovery",
             "dpws": "http://schemas.xmlsoap.org/ws/2006/02/devprof"},
}


def envelope(dialect: str, kind: str, body: str, extra: str = "", message_id: str = "") -> bytes:
    names = DIALECTS[dialect]
    message_id = message_id or uuid.uuid4().urn
    return (f"<s:Envelope xmlns:s='{SOAP}' xmlns:a='{names['wsa']}' xmlns:d='{names['wsd']}' "
            f"xmlns:p='{names['dpws']}'><s:Header><a:Action>{names['wsd']}/{kind}</a:Action>"
            f"<a:MessageID>{message_id}</a:MessageID><a:To>{names['to']}</a:To>{extra}</s:Header>"
            f"<s:Body>{body}</s:Body></s:Envelope>").encode()


def probe(dialect: str = "2009", types: str = "", message_id: str = "") -> bytes:
    inner = f"<d:Types>{types}</d:Types>" if types else ""
    return envelope(dialect, "Probe", f"<d:Probe>{inner}</d:Probe>", message_id=message_id)


def endpoint(address: str) -> str:
    return f"<a:EndpointReference><a:Address>{address}</a:Address></a:EndpointReference>"


def resolve(dialect: str, address: str) -> bytes:
    return envelope(dialect, "Resolve", f"<d:Resolve>{endpoint(address)}</d:Resolve>")


def announce(dialect: str, kind: str, address: str, xaddrs: str = "", instance: int = 1, number: int = 1,
             version: int = 1) -> bytes:
    """A Hello or a Bye."""
    sequence = f"<d:AppSequence InstanceId='{instance}' MessageNumber='{number}'/>"
    rest = "" if kind == "Bye" else f"<d:Types>p:Device</d:Types><d:XAddrs>{xaddrs}</d:XAddrs>" \
                                    f"<d:MetadataVersion>{version}</d:MetadataVersion>"
    return envelope(dialect, kind, f"<d:{kind}>{endpoint(address)}{rest}</d:{kind}>", sequence)


def matches(dialect: str, address: str, xaddrs: str) -> bytes:
    relates = f"<a:RelatesTo>{uuid.uuid4().urn}</a:RelatesTo><d:AppSequence InstanceId='1' MessageNumber='1'/>"
    body = f"<d:ProbeMatches><d:ProbeMatch>{endpoint(address)}<d:XAddrs>{xaddrs}</d:XAddrs>" \
           "<d:MetadataVersion>1</d:MetadataVersion></d:ProbeMatch></d:ProbeMatches>"
    return envelope(dialect, "ProbeMatches", body, relates)


def valid(rng: random.Random, target: str) -> bytes:
    """A valid discovery message of any kind."""
    dialect = rng.choice(list(DIALECTS))
    other = uuid.UUID(int=rng.getrandbits(128)).urn
    kind = rng.randrange(8)
    if kind < 2:
        return probe(dialect)
    if kind == 2:
        return probe(dialect, "p:Device")
    if kind == 3:
        return resolve(dialect, target if rng.random() < 0.7 else other)
    if kind == 4:
        return announce(dialect, "Hello", other, f"http://10.66.{rng.randrange(250)}.9:80/x", rng.getrandbits(32))
    if kind == 5:
        return announce(dialect, "Bye", other)
    if kind == 6:
        return matches(dialect, other, "http://169.254.169.254/latest")
    return probe(dialect, "p:Printer")


BOMB = "<!DOCTYPE x [<!ENTITY a 'aaaaaaaaaaaaaaaa'>" + "".join(
    f"<!ENTITY {chr(98 + n)} '{'&' + chr(97 + n) + ';'}{('&' + chr(97 + n) + ';') * 9}'>" for n in range(9)) + "]>"


def malformed(rng: random.Random, target: str) -> bytes:
    """Bytes that are not a discovery message, from 1 byte to 64 kB."""
    sound = valid(rng, target)
    kind = rng.randrange(16)
    if kind == 0:
        return b"<:/>"
    if kind == 1:
        return rng.randbytes(rng.randrange(1, 1_400))
    if kind == 2:
        return rng.randbytes(rng.choice([16_000, 32_767, 32_768, 60_000, 65_000]))
    if kind in (3, 4):
        return sound[:rng.randrange(1, len(sound) - 1)]
    if kind == 5:
        return BOMB.encode() + sound.replace(b"</a:To>", b"&j;</a:To>")
    if kind == 6:
        return b"<!DOCTYPE s [<!ENTITY x SYSTEM 'file:///etc/passwd'>]>" + sound
    if kind == 7:
        return probe().replace(b"<d:Probe>", b"<d:Probe>" + b"<x>" * rng.choice([200, 2_000, 10_000]))
    if kind == 8:
        deep = rng.choice([100, 1_000, 5_000])
        return probe().replace(b"<d:Probe>", b"<d:Probe>" + b"<x>" * deep + b"</x>" * deep)
    if kind == 9:
        many = b" ".join(b"a%d='%d'" % (n, n) for n in range(rng.choice([300, 5_000])))
        return probe().replace(b"<s:Envelope", b"<s:Envelope " + many)
    if kind == 10:
        return probe().replace(b"<d:Probe", b"<d:Probe x='" + b"A" * rng.choice([33_000, 60_000]) + b"'")
    if kind == 11:
        return sound.replace(SOAP.encode(), b"http://schemas.xmlsoap.org/soap/envelope/")
    if kind == 12:
        return b"".join(bytes([b if rng.random() > 0.02 else 0xff]) for b in sound) + b"\xff"
    if kind == 13:
        return b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" + b"A" * rng.randrange(100)
    if kind == 14:
        return sound.replace(b"s:Body", b"s:Bodies")
    return sound.replace(b"<a:MessageID>", b"<a:Message>")
