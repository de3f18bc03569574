"""Links under attack: documents of blank lines, contact points on the node's own host, and strangers who end the
subscriptions of others."""

import json

from exchange import FORMS, SUBSCRIPTIONS, Exchange, Origin
from network import CheckFailed, expect, until
from rest import problem
from wire import Listener, measured

BLANK = b"\n" * 60_000
# A proxy that is trusted says each of these of a client elsewhere, who may have sent the first address itself.
ELSEWHERE = [{"Forwarded": "for=192.0.2.9"}, {"Forwarded": "for=127.0.0.1, for=192.0.2.9;proto=https"},
             {"X_Forwarded_For": "192.0.2.9"}, {"X_Forwarded_For": "127.0.0.1, 192.0.2.9"},
             {"Forwarded": "for=unknown"}, {"Forwarded": "for=\"[2001:db8::9]:4711\""}]


def subscribe(exchange: Exchange, contact: str, **headers: str) -> tuple[int, dict, bytes]:
    body = json.dumps({"stream": exchange.stream, "contact_point": contact}).encode()
    return exchange.ask("POST", SUBSCRIPTIONS, body, Content_Type="application/json", **headers)


def blank_lines(exchange: Exchange, origin: Origin) -> None:
    exchange.link("blank", "http_pull", origin, ["blank"], "pulled")
    until(20, "the blank lines at a link that pulls",
          lambda: exchange.shown("blank")["bytes_received"] >= len(BLANK))
    exchange.rest.alive()
    exchange.link("pushed", "http_push", origin, [exchange.stream], "copy")
    with origin.subscribed:
        if not origin.subscribed.wait_for(lambda: origin.contacts, 20):
            raise CheckFailed("the link does not subscribe")
    contact = "/" + origin.contacts[-1].split("/", 3)[3]
    status, _, body = exchange.ask("PUT", contact, BLANK + b"<alive/>", Content_Type=FORMS["xml"])
    exchange.rest.alive()
    expect(status == 204, f"{len(BLANK):,} blank lines end no subscriber{'' if status == 204 else body[:200]}")
    for link in ("blank", "pushed"):
        exchange.ask("DELETE", f"/api/v1/links/{link}", **exchange.bearer)


def own_host(plain: Exchange, proxied: Exchange) -> None:
    """A client behind a proxy on this host cannot make the node call local ports."""
    inside = Listener(plain.namespace, "127.0.0.1")
    contact = f"http://127.0.0.1:{inside.port}/"
    answer = subscribe(plain, contact)
    problem("a contact point on the node's host", answer, 403)
    expect("exchange" in json.loads(answer[2]).get("hint", ""), "which is told with the key that allows it")
    for headers in ELSEWHERE:
        problem(f"a contact point of {headers}", subscribe(proxied, contact, **headers), 403)
    both = {"Forwarded": "for=127.0.0.1", "X_Forwarded_For": "192.0.2.9"}
    problem("two clients in one request", subscribe(proxied, contact, **both), 400)
    expect(not inside.peers, f"contact points on this host are refused to {len(ELSEWHERE) + 2} clients of a proxy")
    inside.close()


def strangers(exchange: Exchange, origin: Origin) -> None:
    """Knowing only a subscription's id does not suffice to renew or end it."""
    def made() -> dict:
        status, _, body = subscribe(exchange, f"{origin.url}/confirms")
        expect(status == 201, f"a subscriber on this host that is allowed subscribes{'' if status == 201 else body[:200]}")
        return json.loads(body)

    one = made()
    target = f"{SUBSCRIPTIONS}/{one['id']}"
    for secret in ("", "0" * 32, one["id"], one["secret"][:-1]):
        headers = {"Chappe_Subscription_Secret": secret} if secret else {}
        for method in ("PUT", "DELETE"):
            problem(f"{method} by a stranger with {secret[:8]!r}", exchange.ask(method, target, **headers), 403)
    own = {"Chappe_Subscription_Secret": one["secret"]}
    renewed, ended = (exchange.ask(method, target, **own)[0] for method in ("PUT", "DELETE"))
    expect((renewed, ended) == (200, 204), "a stranger ends no subscription; its subscriber does")
    status = exchange.ask("DELETE", f"{SUBSCRIPTIONS}/{made()['id']}", **exchange.bearer)[0]
    expect(status == 204, "and so does the operator")


def check(plain: Exchange, proxied: Exchange) -> None:
    origin = Origin(plain.namespace)
    blank_lines(plain, origin)
    own_host(plain, proxied)
    strangers(proxied, origin)
    measured("drops at the node behind a proxy", json.loads(proxied.ask("GET", "/api/v1/drops")[2])["drops"][0])
    origin.shutdown()
