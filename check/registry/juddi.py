"""The same generated requests to a node and to jUDDI; each difference between the answers has to have its reason.

    python3 check/registry/juddi.py CHAPPE WORK JARS [REQUESTS [SEED]]

A request names keys by what they stand for, and each registry is asked with its own. The answers are compared as trees
without keys that only one side gives, operators and names of publishers. What differs for a known reason (REASONS,
each with the rule of UDDI v2 behind it) is counted; anything else fails the check. JARS has jUDDI 3.3.10 with Apache
CXF and Derby; loopback only.
"""

import http.client
import os
import pathlib
import random
import re
import socket
import subprocess
import sys
import uuid
import xml.etree.ElementTree as ElementTree
from collections import Counter

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from network import CheckFailed, Process, expect, run_in  # noqa: E402
from nodes import Node  # noqa: E402
from run import CONFIGURATION  # noqa: E402

UDDI = "urn:uddi-org:api_v2"
ENVELOPE = "http://schemas.xmlsoap.org/soap/envelope/"
KEYWORDS = "uuid:A035A07C-F362-44DD-8F95-E2B134BF43B4"
INQUIRIES = ("find_", "get_bindingDetail", "get_businessDetail", "get_serviceDetail", "get_tModelDetail")
IS_KEY = {"businessKey": "business", "serviceKey": "service", "bindingKey": "binding", "tModelKey": "tModel"}
TEXT_KEYS = {"fromKey": "business", "toKey": "business", **IS_KEY}


class Registry:
    """One side: its addresses, its token, and its keys by what they stand for."""

    def __init__(self, name: str, inquiry: str, publish: str, user: str, credential: str):
        self.name, self.keys, self.names = name, {}, {}
        self.paths = {"inquiry": inquiry, "publish": publish}
        self.connections = {}
        answer = self.call(f'<get_authToken generic="2.0" xmlns="{UDDI}" userID="{user}" cred="{credential}"/>')
        self.token = answer.find(f"{{{UDDI}}}authInfo").text

    def call(self, text: str) -> ElementTree.Element:
        """The only child of the answer's Body."""
        name = re.match(r"<([\w]+)", text)[1]
        kind = "inquiry" if name.startswith(INQUIRIES) else "publish"
        host, _, path = self.paths[kind].removeprefix("http://").partition("/")
        connection = self.connections.setdefault(host, http.client.HTTPConnection(host, timeout=60))
        body = f'<s:Envelope xmlns:s="{ENVELOPE}"><s:Body>{text}</s:Body></s:Envelope>'
        connection.request("POST", f"/{path}", body.encode(),
                           {"Content-Type": "text/xml; charset=utf-8", "SOAPAction": '""'})
        answer = connection.getresponse().read()
        return ElementTree.fromstring(answer).find(f"{{{ENVELOPE}}}Body")[0]

    def ask(self, text: str) -> ElementTree.Element:
        """With its own keys and token in place of `{name}`."""
        text = text.replace("{token}", self.token)
        return self.call(re.sub(r"\{(\w+)\}", lambda found: self.keys[found[1]], text))

    def learn(self, handle: str, key: str) -> None:
        self.keys[handle] = key
        self.names[plain(key)] = handle


def plain(key: str) -> str:
    """A UUID in any of its forms: `uuid:` and `uddi:…:` before it, and capitals, are no difference."""
    return key.rpartition(":")[2].lower()


def kind_of(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


def tree(registry: Registry, element: ElementTree.Element) -> tuple:
    """An answer as (name, attributes, text, children), with handles for keys."""
    name = kind_of(element)
    attributes = {}
    for key, value in element.attrib.items():
        key = key.rpartition("}")[2]
        if key in ("operator", "authorizedName", "generic"):
            continue
        attributes[key] = registry.names.get(plain(value), plain(value)) if key in IS_KEY else value
    text = (element.text or "").strip()
    if name in TEXT_KEYS:
        text = registry.names.get(plain(text), plain(text))
    children = (child for child in element if not is_of_registry(child))
    return name, tuple(sorted(attributes.items())), text, tuple(tree(registry, child) for child in children)


def is_of_registry(element: ElementTree.Element) -> bool:
    """Whether it is the address that the node adds to each business (API, save_business). No request of this check has any,
    and jUDDI's version 2 adds none."""
    return kind_of(element) == "discoveryURLs" and all(
        one.get("useType") == "businessEntity" and "?businessKey=" in (one.text or "") for one in element)


def code(answer: ElementTree.Element) -> str | None:
    """The error of a fault."""
    if kind_of(answer) != "Fault":
        return None
    found = answer.find(f".//{{{UDDI}}}errInfo")
    return found.get("errCode") if found is not None else "fault"


class Generator:
    """Requests about what it has made; random, but the same for one seed."""

    WORDS = ("pulse", "glucose", "pump", "ventilator", "bed", "ward", "scale", "Oxygen", "ECG", "infusion")
    # Different in any case: with a wildcard in a name jUDDI compares values without it, as version 3 allows.
    COLOURS = ("red", "green", "blue", "black")

    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.number = 0
        self.alive = {"business": [], "service": [], "binding": [], "tModel": []}
        self.dead = {"business": [], "service": [], "binding": [], "tModel": []}
        self.parent = {}
        self.assertions = []
        # Businesses that were saved a second time.
        self.again = set()

    # Parts of requests.

    def name(self) -> str:
        self.number += 1
        return f"{self.random.choice(self.WORDS)} {self.number:04}"

    def reference(self) -> str:
        model = self.random.choice([f"{{{name}}}" for name in self.alive["tModel"]] or [KEYWORDS])
        value = self.random.choice(self.COLOURS)
        return f'<keyedReference tModelKey="{model}" keyName="colour" keyValue="{value}"/>'

    def bag(self, kind: str, least: int = 0) -> str:
        # A reference twice, or two values of one tModel, are wanted as well.
        references = "".join(self.reference() for _ in range(self.random.randint(least, 2)))
        return f"<{kind}>{references}</{kind}>" if references else ""

    def described(self, name: str, most: int = 2) -> str:
        languages = self.random.sample(["en", "de", "fr"], self.random.randint(0, most))
        return f'<name xml:lang="en">{name}</name>' + "".join(
            f'<description xml:lang="{one}">{one} text</description>' for one in languages)

    def binding(self, handle: str | None, service: str | None, key: str = "") -> tuple[str, list[str]]:
        handle = handle or self.made("binding")
        models = self.random.sample(self.alive["tModel"], min(len(self.alive["tModel"]), self.random.randint(0, 2)))
        infos = "".join(f'<tModelInstanceInfo tModelKey="{{{one}}}"/>' for one in models)
        infos = f"<tModelInstanceDetails>{infos}</tModelInstanceDetails>"
        parent = f' serviceKey="{{{service}}}"' if service else ""
        port = self.random.randint(1, 999)
        return (f'<bindingTemplate bindingKey="{key}"{parent}><accessPoint URLType="http">http://device{port}.example/'
                f'</accessPoint>{infos}</bindingTemplate>', [handle])

    def service(self, handle: str | None, business: str | None, key: str = "") -> tuple[str, list[str]]:
        handle = handle or self.made("service")
        bindings = [self.binding(None, None) for _ in range(self.random.randint(0, 2))]
        texts = "".join(text for text, _ in bindings)
        texts = f"<bindingTemplates>{texts}</bindingTemplates>" if texts else ""
        parent = f' businessKey="{{{business}}}"' if business else ""
        text = (f'<businessService serviceKey="{key}"{parent}>{self.described(self.name())}{texts}'
                f'{self.bag("categoryBag")}</businessService>')
        return text, [handle, *(one for _, more in bindings for one in more)]

    def made(self, kind: str) -> str:
        self.number += 1
        return f"{kind}{self.number}"

    def some(self, kind: str) -> str | None:
        return self.random.choice(self.alive[kind]) if self.alive[kind] else None

    # Requests: the text, and the handles of the keys in the answer of a save, in the order of the document.

    def save_tModel(self):
        handle, key = self.made("tModel"), ""
        if self.alive["tModel"] and self.random.random() < 0.2:
            handle = self.some("tModel")
            key = f"{{{handle}}}"
        document = "<overviewDoc><overviewURL>http://example.com/model</overviewURL></overviewDoc>"
        return (f'<save_tModel generic="2.0" xmlns="{UDDI}"><authInfo>{{token}}</authInfo><tModel tModelKey="{key}">'
                f'<name>{self.name()}</name>{document}{self.bag("identifierBag")}{self.bag("categoryBag")}</tModel>'
                '</save_tModel>', [handle])

    def save_business(self):
        handle, key = self.made("business"), ""
        if self.alive["business"] and self.random.random() < 0.25:
            handle = self.some("business")
            key = f"{{{handle}}}"
            self.again.add(handle)
        services = [self.service(None, None) for _ in range(self.random.randint(0, 2))]
        texts = "".join(text for text, _ in services)
        texts = f"<businessServices>{texts}</businessServices>" if texts else ""
        contact = "<contacts><contact useType=\"technical\"><personName>Ada</personName><phone>1</phone></contact></contacts>"
        contact = contact if self.random.random() < 0.5 else ""
        text = (f'<save_business generic="2.0" xmlns="{UDDI}"><authInfo>{{token}}</authInfo><businessEntity '
                f'businessKey="{key}">{self.described(self.name())}{contact}{texts}{self.bag("identifierBag")}'
                f'{self.bag("categoryBag")}</businessEntity></save_business>')
        return text, [handle, *(one for _, more in services for one in more)]

    def save_service(self):
        business = self.some("business")
        if not business:
            return self.save_business()
        handle, key = None, ""
        if self.alive["service"] and self.random.random() < 0.3:
            handle = self.some("service")
            key, business = f"{{{handle}}}", self.parent[handle]
        text, handles = self.service(handle, business, key)
        return (f'<save_service generic="2.0" xmlns="{UDDI}"><authInfo>{{token}}</authInfo>{text}</save_service>', handles)

    def save_binding(self):
        service = self.some("service")
        if not service:
            return self.save_service()
        handle, key = None, ""
        if self.alive["binding"] and self.random.random() < 0.3:
            handle = self.some("binding")
            key, service = f"{{{handle}}}", self.parent[handle]
        text, handles = self.binding(handle, service, key)
        return (f'<save_binding generic="2.0" xmlns="{UDDI}"><authInfo>{{token}}</authInfo>{text}</save_binding>', handles)

    def delete(self):
        kind = self.random.choice(["binding", "service", "business"])
        handle = self.some(kind)
        if not handle or self.random.random() < 0.1:
            key = str(uuid.UUID(int=self.random.getrandbits(128))).upper()
            handle, key = None, key
        else:
            key = f"{{{handle}}}"
        return (f'<delete_{kind} generic="2.0" xmlns="{UDDI}"><authInfo>{{token}}</authInfo><{kind}Key>{key}</{kind}Key>'
                f'</delete_{kind}>', [("gone", handle)] if handle else [])

    def pattern(self) -> str:
        word = self.random.choice(self.WORDS)
        return self.random.choice([word, word.upper(), word[:3], f"%{self.random.randint(0, 9)}", f"{word[:2]}%1",
                                   "%", f"{word} {self.number // 2:04}", "nothing like it"])

    def qualifiers(self, *more: str) -> str:
        chosen = []
        if self.random.random() < 0.3:
            chosen.append("exactNameMatch")
        if self.random.random() < 0.2:
            chosen.append("caseSensitiveMatch")
        chosen += [one for one in more if self.random.random() < 0.3]
        # An order is always asked for: what the default order is, the specification leaves open where names are equal.
        chosen.append(self.random.choice(["sortByNameAsc", "sortByNameDesc"]))
        return "<findQualifiers>" + "".join(f"<findQualifier>{one}</findQualifier>" for one in chosen) + "</findQualifiers>"

    def models(self) -> str:
        model = self.some("tModel")
        if not model or self.random.random() < 0.6:
            return ""
        return f"<tModelBag><tModelKey>{{{model}}}</tModelKey></tModelBag>"

    def find_business(self):
        # All with a wildcard or none: jUDDI takes the others exactly.
        patterns = [self.pattern() for _ in range(2)]
        patterns = patterns if len({"%" in one for one in patterns}) == 1 else patterns[:1]
        names = "".join(f"<name>{one}</name>" for one in patterns)
        # jUDDI sorts capitals first, and has a business of its own: with a wildcard the first rows would be others.
        rows = f' maxRows="{self.random.randint(1, 5)}"' if "%" not in names and self.random.random() < 0.4 else ""
        bags = self.random.choice(["", "", self.bag("categoryBag"), self.bag("identifierBag"), self.models()])
        return (f'<find_business generic="2.0" xmlns="{UDDI}"{rows}>{self.qualifiers("orAllKeys")}{names}{bags}'
                '</find_business>', [])

    def find_service(self):
        business = self.some("business")
        parent = f' businessKey="{{{business}}}"' if business and self.random.random() < 0.3 else ""
        bags = self.random.choice(["", "", self.bag("categoryBag"), self.models()])
        return (f'<find_service generic="2.0" xmlns="{UDDI}"{parent}>{self.qualifiers("orAllKeys")}<name>{self.pattern()}'
                f'</name>{bags}</find_service>', [])

    def find_tModel(self):
        bags = self.random.choice(["", "", self.bag("categoryBag"), self.bag("identifierBag")])
        return (f'<find_tModel generic="2.0" xmlns="{UDDI}">{self.qualifiers()}<name>{self.pattern()}</name>{bags}'
                '</find_tModel>', [])

    def find_binding(self):
        service, model = self.some("service"), self.some("tModel")
        if not service or not model:
            return self.find_business()
        return (f'<find_binding generic="2.0" xmlns="{UDDI}" serviceKey="{{{service}}}"><tModelBag><tModelKey>{{{model}}}'
                '</tModelKey></tModelBag></find_binding>', [])

    def get(self):
        kind = self.random.choice(["business", "service", "binding", "tModel"])
        alive = self.alive[kind]
        keys = [f"{{{one}}}" for one in self.random.sample(alive, min(len(alive), self.random.randint(1, 2)))]
        if not keys or self.random.random() < 0.1:
            key = str(uuid.UUID(int=self.random.getrandbits(128)))
            keys.append(f"uuid:{key}" if kind == "tModel" else key)
        elif self.dead[kind] and self.random.random() < 0.1:
            keys.append(f"{{{self.random.choice(self.dead[kind])}}}")
        text = "".join(f"<{kind}Key>{key}</{kind}Key>" for key in keys)
        return f'<get_{kind}Detail generic="2.0" xmlns="{UDDI}">{text}</get_{kind}Detail>', []

    def assertion(self) -> str:
        one, other = self.random.sample(self.alive["business"], 2)
        relation = "uuid:807A2C6A-EE22-470D-ADC7-E0424A337C03"
        # jUDDI has one assertion of two businesses, whatever the relationship: a second replaces the first there.
        value = "parent-child" if one < other else "peer-peer"
        return (f"<publisherAssertion><fromKey>{{{one}}}</fromKey><toKey>{{{other}}}</toKey><keyedReference "
                f'tModelKey="{relation}" keyName="how" keyValue="{value}"/></publisherAssertion>')

    def assertions_of(self):
        if len(self.alive["business"]) < 2:
            return self.save_business()
        action = self.random.choice(["add", "add", "delete"])
        if action == "add" or not self.assertions:
            self.assertions.append(self.assertion())
            action, text = "add", self.assertions[-1]
        else:
            text = self.random.choice(self.assertions)
        for handle in re.findall(r"\{(\w+)\}", text):
            if handle not in self.alive["business"]:
                return self.find_related()
        return (f'<{action}_publisherAssertions generic="2.0" xmlns="{UDDI}"><authInfo>{{token}}</authInfo>{text}'
                f'</{action}_publisherAssertions>', [])

    def find_related(self):
        business = self.some("business")
        if not business:
            return self.save_business()
        return (f'<find_relatedBusinesses generic="2.0" xmlns="{UDDI}"><businessKey>{{{business}}}</businessKey>'
                '</find_relatedBusinesses>', [])

    def report(self):
        return self.random.choice([
            (f'<get_publisherAssertions generic="2.0" xmlns="{UDDI}"><authInfo>{{token}}</authInfo></get_publisherAssertions>', []),
            (f'<get_assertionStatusReport generic="2.0" xmlns="{UDDI}"><authInfo>{{token}}</authInfo>'
             '</get_assertionStatusReport>', []),
            (f'<get_registeredInfo generic="2.0" xmlns="{UDDI}"><authInfo>{{token}}</authInfo></get_registeredInfo>', []),
        ])

    def wrong(self):
        if len(self.alive["business"]) < 2:
            return self.save_business()
        one, other = (f"{{{one}}}" for one in self.random.sample(self.alive["business"], 2))
        long = "x" * 256
        return self.random.choice([
            (f'<find_business generic="2.0" xmlns="{UDDI}"><name>{long}</name></find_business>', []),
            (f'<find_business generic="2.0" xmlns="{UDDI}"><findQualifiers><findQualifier>sideways</findQualifier>'
             '</findQualifiers><name>a</name></find_business>', []),
            (f'<find_business generic="2.0" xmlns="{UDDI}"><findQualifiers><findQualifier>sortByNameAsc</findQualifier>'
             '<findQualifier>sortByNameDesc</findQualifier></findQualifiers><name>a</name></find_business>', []),
            (f'<find_business generic="2.0" xmlns="{UDDI}">{"".join(f"<name>n{i}</name>" for i in range(6))}</find_business>', []),
            (f'<find_business generic="3.1" xmlns="{UDDI}"><name>a</name></find_business>', []),
            (f'<save_business generic="2.0" xmlns="{UDDI}"><authInfo>none</authInfo><businessEntity businessKey="">'
             '<name>a</name></businessEntity></save_business>', []),
            (f'<save_service generic="2.0" xmlns="{UDDI}"><authInfo>{{token}}</authInfo><businessService serviceKey="" '
             f'businessKey="{uuid.UUID(int=7)}"><name>a</name></businessService></save_service>', []),
            (f'<save_business generic="2.0" xmlns="{UDDI}"><authInfo>{{token}}</authInfo><businessEntity businessKey="'
             f'{uuid.UUID(int=8)}"><name>a</name></businessEntity></save_business>', []),
            (f'<save_business generic="2.0" xmlns="{UDDI}"><authInfo>{{token}}</authInfo><businessEntity businessKey="">'
             f'<name>{long}</name></businessEntity></save_business>', []),
            (f'<delete_publisherAssertions generic="2.0" xmlns="{UDDI}"><authInfo>{{token}}</authInfo><publisherAssertion>'
             f'<fromKey>{one}</fromKey><toKey>{other}</toKey><keyedReference tModelKey="{KEYWORDS}" keyName="a" '
             'keyValue="none"/></publisherAssertion></delete_publisherAssertions>', []),
            (f'<get_assertionStatusReport generic="2.0" xmlns="{UDDI}"><authInfo>{{token}}</authInfo><completionStatus>'
             'status:unknown</completionStatus></get_assertionStatusReport>', []),
        ])

    def next(self):
        choices = [(self.save_tModel, 6), (self.save_business, 12), (self.save_service, 12), (self.save_binding, 8),
                   (self.delete, 3), (self.find_business, 14), (self.find_service, 14), (self.find_tModel, 8),
                   (self.find_binding, 6), (self.get, 18), (self.assertions_of, 5), (self.find_related, 3),
                   (self.report, 2), (self.wrong, 5)]
        make = self.random.choices([one for one, _ in choices], [weight for _, weight in choices])[0]
        return make()


def keys_of(answer: ElementTree.Element) -> list[tuple[str, str, str | None]]:
    """(kind, key, parent's key) of all structures in an answer, in the order of the document."""
    names = {"businessEntity": "business", "businessService": "service", "bindingTemplate": "binding", "tModel": "tModel"}
    found = []

    def visit(element, parent):
        kind = names.get(kind_of(element))
        if kind:
            key = element.get(f"{kind}Key")
            found.append((kind, key, parent))
            parent = key
        for child in element:
            visit(child, parent)

    visit(answer, None)
    return found


def differences(ours: tuple, theirs: tuple, path: str = "") -> list[tuple[str, object, object]]:
    """Places where two trees differ, each with both sides; not below a place that differs itself."""
    here = f"{path}/{ours[0]}"
    if ours[0] != theirs[0]:
        return [(path, ours[0], theirs[0])]
    found = []
    mine, other = dict(ours[1]), dict(theirs[1])
    found += [(f"{here}@{key}", mine.get(key), other.get(key)) for key in sorted({*mine, *other})
              if mine.get(key) != other.get(key)]
    if ours[2] != theirs[2]:
        found.append((f"{here}/text()", ours[2], theirs[2]))
    if [one[0] for one in ours[3]] != [one[0] for one in theirs[3]]:
        return [*found, (f"{here}/*", [one[:3] for one in ours[3]], [one[:3] for one in theirs[3]])]
    for one, another in zip(ours[3], theirs[3]):
        found += differences(one, another, here)
    return found


def without_details(one: tuple, known: set[str]) -> tuple:
    """A tree without what REASONS explains in every answer, and without what no request of this check has made."""
    name, attributes, text, children = one
    attributes = tuple((key, value) for key, value in attributes
                       if key != "truncated" and value != "" and not (
                           name == "businessService" and key == "businessKey" or
                           name == "bindingTemplate" and key == "serviceKey"))
    children = [child for child in children if not child[0].endswith("Info") or all(
        value in known for key, value in child[1] if key in ("businessKey", "serviceKey", "tModelKey"))]
    return name, attributes, text, tuple(without_details(child, known) for child in children)


def keys_below(one: tuple) -> set[str]:
    """All handles in a tree."""
    found = {one[2], *(value for _, value in one[1])}
    return found.union(*(keys_below(child) for child in one[3]))


def in_any_order(one: tuple) -> tuple:
    return (*one[:3], tuple(sorted(in_any_order(child) for child in one[3])))


def matches_whole(text: str, name: str) -> bool:
    """Whether a name is one of those of a request as a whole: only `%` stands for more."""
    flags = 0 if "caseSensitiveMatch" in text else re.IGNORECASE
    patterns = re.findall(r"<name>([^<]*)</name>", text)
    return any(re.fullmatch(".*".join(map(re.escape, one.split("%"))), name, flags) for one in patterns)


def taken_whole(node: Registry, text: str, known: set[str]) -> tuple:
    """The node's answer if a name had to match as a whole."""
    rows = re.search(r' maxRows="(\d+)"', text)
    answer = without_details(tree(node, node.ask(text.replace(rows[0], "") if rows else text)), known)
    name, attributes, inner, lists = answer
    whole = [one for one in lists[0][3] if matches_whole(text, next(part[2] for part in one[3] if part[0] == "name"))]
    whole = whole[:int(rows[1])] if rows else whole
    return name, attributes, inner, ((*lists[0][:3], tuple(whole)),)


def services_of(business: tuple) -> tuple:
    """The serviceInfos of a businessInfo."""
    return next((part[3] for part in business[3] if part[0] == "serviceInfos"), ())


def reading(node: Registry, peer: Registry, again: set[str], text: str, mine: tuple, other: tuple) -> str | None:
    """How jUDDI reads or orders a whole answer otherwise, if that explains it."""
    request, known = re.match(r"<(\w+)", text)[1], set(node.keys)
    mine, other = without_details(mine, known), without_details(other, known)
    if mine == other:
        return "each registry has structures of its own, such as canonical tModels" if request.startswith(
            ("find", "get_registered")) else None
    if in_any_order(mine) == in_any_order(other):
        return ("details are in the order of the keys, and children in the order in which they were saved (API, "
                "get_…Detail); jUDDI has the order of its database")
    is_by_name = request in ("find_business", "find_service", "find_tModel") and "<name>" in text
    if is_by_name and "exactNameMatch" not in text and in_any_order(taken_whole(node, text, known)) == in_any_order(other):
        return "a name matches from the left (API, find_…, name); jUDDI compares the whole name, as version 3 does"
    if request == "find_business" and "maxRows" in text:
        whole, rows = taken_whole(node, text, known), int(re.search(r'maxRows="(\d+)"', text)[1])
        pairs = [(services_of(one), services_of(another)) for one, another in zip(whole[3][0][3], other[3][0][3])]
        is_cut = all({*fewer} <= {*services} and len(fewer) == min(rows, len(services)) for services, fewer in pairs)
        if is_cut and [one[:2] for one in whole[3][0][3]] == [one[:2] for one in other[3][0][3]]:
            return "maxRows is a number of businesses (API, find_business); jUDDI cuts the services of each as well"
    if request == "find_tModel" and "<identifierBag>" in text:
        less = re.sub("<identifierBag>.*</identifierBag>", "", text)
        if in_any_order(taken_whole(node, less, known)) == in_any_order(other):
            return "an identifierBag selects (API, find_tModel); jUDDI ignores it"
    if request == "get_assertionStatusReport" and not other[3]:
        return "without a status all assertions are reported (API, get_assertionStatusReport); jUDDI reports none"
    if request in ("get_publisherAssertions", "find_relatedBusinesses"):
        lists = [one[3] if request == "get_publisherAssertions" else one[3][-1][3] for one in (mine, other)]
        lost = [one for one in lists[0] if one not in lists[1]]
        asked = re.findall(r"\{(\w+)\}", text)
        if {*lists[1]} <= {*lists[0]} and all(again.intersection([*asked, *keys_below(one)]) for one in lost):
            return "an assertion stays when its business is saved again (API, save_business); jUDDI removes it"
    if request == "get_registeredInfo" and not other[3][0][3]:
        if in_any_order(mine[3][1]) == in_any_order(other[3][1]):
            return "the publisher's businesses are registered info (API); jUDDI lists tModels only"
    return None


# Why an answer of jUDDI differs: (name, does it explain this difference?).
REASONS = [
    ("`truncated` is optional and false without it (schema)",
     lambda request, place, ours, theirs: place.endswith("@truncated") and {ours, theirs} <= {None, "false"}),
    ("jUDDI calls whole details truncated",
     lambda request, place, ours, theirs: request.startswith("<get_") and place.endswith("Detail@truncated")
     and ours == "false"),
    ("a child below its parent needs no parent's key (schema: optional); jUDDI leaves it out",
     lambda request, place, ours, theirs: place.endswith(("/businessService@businessKey", "/bindingTemplate@serviceKey"))
     and theirs is None),
    ("jUDDI writes an attribute that nobody gave, without a value",
     lambda request, place, ours, theirs: ours is None and theirs == ""),
    ("success is E_success in an errInfo (schema: optional); jUDDI leaves it out",
     lambda request, place, ours, theirs: place == "/dispositionReport/result/*" and theirs == []),
    ("`%` is a character of an exact name (API, appendix E); jUDDI has the rule of version 3, and its code",
     lambda request, place, ours, theirs: "exactNameMatch" in request and "%" in request and theirs == "E_invalidCombination"),
    ("an unknown completion status is E_invalidCompletionStatus (API, get_assertionStatusReport); jUDDI ignores it",
     lambda request, place, ours, theirs: ours == "E_invalidCompletionStatus" and theirs is None),
    ("a name above 255 characters is E_nameTooLong (API); jUDDI's code is for any text",
     lambda request, place, ours, theirs: (ours, theirs) == ("E_nameTooLong", "E_valueNotAllowed")),
    ("contrary qualifiers are E_tooManyOptions; jUDDI has the code of version 3",
     lambda request, place, ours, theirs: (ours, theirs) == ("E_tooManyOptions", "E_invalidCombination")),
    ("more than five names are E_tooManyOptions, a long one E_nameTooLong (API, find_…, name); jUDDI takes them",
     lambda request, place, ours, theirs: request.startswith("<find_") and theirs is None
     and ours in ("E_tooManyOptions", "E_nameTooLong")),
    ("an unknown qualifier is E_unsupported (API, appendix E); jUDDI ignores it",
     lambda request, place, ours, theirs: "<findQualifier>" in request and (ours, theirs) == ("E_unsupported", None)),
    ("an unknown generic is E_unrecognizedVersion (API); jUDDI has another code",
     lambda request, place, ours, theirs: (ours, theirs) == ("E_unrecognizedVersion", "E_unsupported")),
    ("the registry assigns keys, an unknown one is E_invalidKeyPassed (API, save_…); jUDDI takes it, as version 3 does",
     lambda request, place, ours, theirs: request.startswith("<save_") and (ours, theirs) == ("E_invalidKeyPassed", None)),
    ("an assertion stays when its business is saved again (API, save_business); jUDDI removes it",
     lambda request, place, ours, theirs: request.startswith("<delete_publisherAssertions") and
     (ours, theirs) == (None, "E_assertionNotFound")),
]


def explained(request: str, place: str, ours, theirs) -> str | None:
    for name, applies in REASONS:
        if applies(request, place, ours, theirs):
            return name
    return None


def compare(node: Registry, peer: Registry, count: int, seed: int) -> tuple[Counter, list]:
    generator, reasons, unexplained = Generator(seed), Counter(), []
    for number in range(count):
        text, handles = generator.next()
        answers = {}
        for registry in (node, peer):
            try:
                answers[registry.name] = registry.ask(text)
            except (http.client.HTTPException, ElementTree.ParseError) as reason:
                raise CheckFailed(f"{registry.name} on request {number}, {text}: {reason!r}") from None
        ours, theirs = answers[node.name], answers[peer.name]
        codes = code(ours), code(theirs)
        if codes == (None, None) and handles:
            if handles[0][0] == "gone":
                gone(generator, handles[0][1])
            else:
                learn(generator, (node, ours), (peer, theirs), handles)
        request = re.match(r"<(\w+)", text)[1]
        if codes != (None, None):
            found = [("code", *codes)] if codes[0] != codes[1] else []
        else:
            mine, other = tree(node, ours), tree(peer, theirs)
            found = differences(mine, other)
            if found:
                whole = reading(node, peer, generator.again, text, mine, other)
                if whole:
                    reasons[whole] += 1
                    found = []
        for place, mine, other in found:
            reason = explained(text, place, mine, other)
            if reason:
                reasons[reason] += 1
            else:
                unexplained.append((number, request, place, mine, other, text))
    return reasons, unexplained


def learn(generator: Generator, ours, theirs, handles: list[str]) -> None:
    (node, mine), (peer, other) = ours, theirs
    mine, other = keys_of(mine), keys_of(other)
    # What was in the tree before and is not in the new one is gone.
    old = [handle for handle, parent in generator.parent.items() if parent == handles[0]]
    for handle in old:
        if handles[0] in generator.alive["business"] or handles[0] in generator.alive["service"]:
            gone(generator, handle)
    if len(mine) != len(handles) or len(other) != len(handles):
        raise CheckFailed(f"{len(handles)} structures were saved; answers have {len(mine)} and {len(other)}")
    by_key = {key: handle for (_, key, _), handle in zip(mine, handles)}
    for handle, (kind, key, parent), (_, their_key, _) in zip(handles, mine, other):
        node.learn(handle, key)
        peer.learn(handle, their_key)
        if handle not in generator.alive[kind]:
            generator.alive[kind].append(handle)
        if parent:
            generator.parent[handle] = by_key[parent]
    # A service or binding that was saved alone names its parent in the answer.
    for element, handle in [(one, handles[0]) for one in ours[1]]:
        for attribute in ("businessKey", "serviceKey"):
            key = element.get(attribute)
            name = key and node.names.get(plain(key))
            if name and name != handle:
                generator.parent[handle] = name


def gone(generator: Generator, handle: str) -> None:
    for child in [one for one, parent in generator.parent.items() if parent == handle]:
        gone(generator, child)
    generator.parent.pop(handle, None)
    for kind, alive in generator.alive.items():
        if handle in alive:
            alive.remove(handle)
            generator.dead[kind].append(handle)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


PERSISTENCE = """<persistence xmlns="http://java.sun.com/xml/ns/persistence" version="2.0">
  <persistence-unit name="juddiDatabase" transaction-type="RESOURCE_LOCAL">
    <provider>org.hibernate.jpa.HibernatePersistenceProvider</provider>
    <jar-file>file:{jar}</jar-file>
    <properties>
      <property name="javax.persistence.jdbc.driver" value="org.apache.derby.jdbc.EmbeddedDriver"/>
      <property name="javax.persistence.jdbc.url" value="jdbc:derby:{database};create=true"/>
      <property name="hibernate.dialect" value="org.hibernate.dialect.DerbyTenSevenDialect"/>
      <property name="hibernate.hbm2ddl.auto" value="update"/>
    </properties>
  </persistence-unit>
</persistence>
"""

# What jUDDI does not start or answer without; limits per publisher are off, and its timers are idle.
JUDDI = {
    "server/baseurl": "http://127.0.0.1", "server/baseurlsecure": "https://127.0.0.1",
    "nodeId": "uddi:juddi.apache.org:node1", "root/publisher": "root",
    "root/businessId": "uddi:juddi.apache.org:businesses-asf", "root/partition": "uddi:juddi.apache.org",
    "seed/always": "false", "persistenceunit/name": "juddiDatabase", "configuration/reload/delay": "100000000",
    "locale": "en_US", "operatorEmailAddress": "root@localhost", "maxNameLength": "255", "maxNameElementsAllowed": "5",
    "maxRows": "1000", "maxInClause": "1000", "maxBusinessesPerPublisher": "-1", "maxServicesPerBusiness": "-1",
    "maxBindingsPerService": "-1", "maxTModelsPerPublisher": "-1", "transfer/expiration/days": "3",
    "subscription/expiration/days": "30", "subscription/chunkexpiration/minutes": "5", "subscription/maxentities": "1000",
    "uuidgen": "org.apache.juddi.uuidgen.DefaultUUIDGen", "cryptor": "org.apache.juddi.v3.client.cryptor.DefaultCryptor",
    "keygenerator": "org.apache.juddi.keygen.DefaultKeyGenerator", "notification/interval": "100000000",
    "notification/start/buffer": "100000000", "auth/Inquiry": "false",
    "auth/authenticator/class": "org.apache.juddi.v3.auth.JUDDIAuthenticator", "auth/token/Timeout": "600",
    "auth/token/Expiration": "600", "auth/token/enforceSameIPRule": "false",
    "validation/enforceReferentialIntegrity": "true", "validation/rejectInvalidSignatures/enable": "false",
}


def start_juddi(work: pathlib.Path, jars: pathlib.Path) -> tuple[Process, str]:
    settings = work / "settings"
    (settings / "META-INF").mkdir(parents=True)
    jar = jars / "juddi-core-3.3.10.jar"
    (settings / "META-INF" / "persistence.xml").write_text(PERSISTENCE.format(jar=jar, database=work / "derby"))
    root = ElementTree.Element("config")
    top = ElementTree.SubElement(root, "juddi")
    for path, value in JUDDI.items():
        element = top
        for step in path.split("/"):
            found = element.find(step)
            element = found if found is not None else ElementTree.SubElement(element, step)
        element.text = value
    ElementTree.ElementTree(root).write(settings / "juddiv3.xml")
    (settings / "log4j.properties").write_text("log4j.rootLogger=WARN, out\nlog4j.appender.out=org.apache.log4j.ConsoleAppender\n"
                                               "log4j.appender.out.target=System.err\n"
                                               "log4j.appender.out.layout=org.apache.log4j.SimpleLayout\n")
    classes = work / "classes"
    classes.mkdir()
    subprocess.run(["javac", "-nowarn", "-cp", f"{jars}/*", "-d", str(classes), str(HERE / "JuddiPeer.java")],
                   check=True, capture_output=True)
    port = free_port()
    peer = Process(["java", "-Dderby.stream.error.file=" + str(work / "derby.log"), "-cp",
                    f"{settings}:{classes}:{jars}/*", "JuddiPeer", str(port)], work / "juddi.log")
    peer.wait_line("ready", 120)
    return peer, f"http://127.0.0.1:{port}"


def check(chappe: str, work: pathlib.Path, jars: pathlib.Path, count: int, seed: int) -> None:
    node = Node(chappe, work / "node", CONFIGURATION)
    peer, peer_url = start_juddi(work, jars)
    try:
        paths = (f"{node.url}/uddi/inquiry", f"{node.url}/uddi/publish")
        ours = Registry("Chappe", *paths, "operator", node.token)
        theirs = Registry("jUDDI", f"{peer_url}/inquiry", f"{peer_url}/publish", "root", "root")
        reasons, unexplained = compare(ours, theirs, count, seed)
        for reason, often in reasons.most_common():
            print(f"   differs {often} times: {reason}", flush=True)
        kinds = {}
        for one in unexplained:
            kinds.setdefault(one[1:3] if one[2] != "code" else one[1:5], []).append(one)
        for (request, place, *_), those in kinds.items():
            number, _, _, mine, other, text = those[0]
            print(f"   {request} {place}, {len(those)} times; request {number}: {text[:500]}\n      node:  {str(mine)[:500]}\n"
                  f"      jUDDI: {str(other)[:500]}", flush=True)
        expect(not unexplained, f"{count} requests of seed {seed}: every difference has its reason"
               + (f"; {len(unexplained)} have none" if unexplained else ""))
    finally:
        node.process.stop()
        peer.stop()


def main() -> None:
    chappe, work, jars = (os.path.abspath(argument) for argument in sys.argv[1:4])
    count = int(sys.argv[4]) if len(sys.argv) > 4 else 1000
    seed = int(sys.argv[5]) if len(sys.argv) > 5 else 1
    folder = pathlib.Path(work)
    run_in(folder, lambda: check(chappe, folder, pathlib.Path(jars), count, seed), (subprocess.SubprocessError,))
    print("   all passed")


main()
