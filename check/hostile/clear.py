"""Clear text and keys: elements must not be sent in clear text, nor to CURVE keys that are not allowed.

Three nodes on one host, at an address that other machines can reach: an origin, a node whose key it allows, and
a stranger. `access.insecure`, which opens HTTP, admits no key.
"""

import json

from exchange import SUBSCRIPTIONS, Exchange
from network import Cable, expect, until
from rest import problem
from wire import Listener, measured

FOREIGN = "10.77.0.2"
CONTACTS = f'[exchange]\ncontact = ["{FOREIGN}"]\n'
INSECURE = "[access]\ninsecure = true\n"


def origin_config(friend: str) -> str:
    return INSECURE + f'[exchange]\nlisten = "10.77.0.1:0"\nallowed_keys = ["{friend}"]\ncontact = ["{FOREIGN}"]\n'


def curve_key(address: str, cable: Cable) -> str:
    return json.loads(cable.get("A", f"{address}/api/v1/node"))["curve_key"]


def subscribe(exchange: Exchange, contact: str) -> tuple[int, dict, bytes]:
    body = json.dumps({"stream": exchange.stream, "contact_point": contact}).encode()
    return exchange.ask("POST", SUBSCRIPTIONS, body, Content_Type="application/json")


def pushed(closed: Exchange, insecure: Exchange) -> None:
    """A contact point that the node may contact receives no elements in clear text unless the configuration allows
    it."""
    contact = Listener(closed.rest.cable.names["B"], FOREIGN)
    http, https = (f"{scheme}://{FOREIGN}:{contact.port}/x" for scheme in ("http", "https"))
    answer = subscribe(closed, http)
    problem("a contact point in clear text", answer, 403)
    told = json.loads(answer[2])
    expect("clear text" in told["detail"] and "access.insecure" in told["hint"], f"it is told why: {told['detail']}")
    problem("a contact point of https without a fingerprint", subscribe(closed, https), 400)
    expect(not contact.peers, "elements are pushed beyond this host over TLS, or not at all")
    problem("a contact point that confirms nothing", subscribe(insecure, http), 422)
    expect(contact.peers, "access.insecure allows clear text")
    contact.close()


def keys(origin: Exchange, address: str, friend: Exchange, stranger: Exchange) -> None:
    """Of two nodes that read over CURVE, only the one with an allowed key receives elements."""
    link = {"name": "ward", "kind": "zeromq", "address": address, "streams": [origin.stream],
            "as_prefix": "copy", "server_key": curve_key(f"http://{origin.rest.host}:{origin.rest.port}", origin.rest.cable)}

    def begin(reader: Exchange) -> None:
        status, _, answer = reader.ask("POST", "/api/v1/links", json.dumps(link).encode(), **reader.bearer)
        expect(status == 201, f"a link over CURVE{'' if status == 201 else answer[:200]}")

    begin(stranger)
    begin(friend)
    copy = f"copy.{origin.stream}"
    until(20, "elements at the node whose key is named", lambda: friend.last(copy) > 0)
    until(20, "the stranger's link to be refused", lambda: stranger.shown("ward")["last_error"])
    shown = stranger.shown("ward")
    measured("the stranger's link", f"{shown['state']}: {shown['last_error']}")
    expect(stranger.last(copy) == 0 and shown["bytes_received"] == 0, "access.insecure admits no CURVE key")
    problem("a link without the key", without_key(stranger, link), 400, 422)


def without_key(reader: Exchange, link: dict) -> tuple[int, dict, bytes]:
    plain = {name: value for name, value in link.items() if name != "server_key"} | {"name": "plain"}
    return reader.ask("POST", "/api/v1/links", json.dumps(plain).encode(), **reader.bearer)


def check(origin: Exchange, address: str, friend: Exchange, stranger: Exchange) -> None:
    pushed(stranger, origin)
    keys(origin, address, friend, stranger)
