"""A CoAP server built with aiocoap, with resources that count.

    python coap_server.py HOST PORT STATE     STATE has the last number, written before it is told

/count: observable JSON, a new number each PERIOD_S. /quiet: the same, not observable. /label: a text that never changes.
"""

import asyncio
import json
import os
import pathlib
import sys

os.environ["AIOCOAP_SERVER_TRANSPORT"] = "simplesocketserver"
import aiocoap  # noqa: E402
from aiocoap import resource  # noqa: E402

PERIOD_S = 0.2
JSON = 50
HOST, PORT, STATE = sys.argv[1], int(sys.argv[2]), pathlib.Path(sys.argv[3])


class Number:
    def __init__(self) -> None:
        self.value = int(STATE.read_text()) if STATE.exists() else 0

    def rise(self) -> None:
        self.value += 1
        STATE.with_suffix(".new").write_text(str(self.value))
        STATE.with_suffix(".new").rename(STATE)


def message(number: Number) -> aiocoap.Message:
    return aiocoap.Message(payload=json.dumps({"n": number.value}).encode(), content_format=JSON, max_age=30)


class Count(resource.ObservableResource):
    def __init__(self, number: Number):
        super().__init__()
        self.number = number

    async def render_get(self, request: aiocoap.Message) -> aiocoap.Message:
        return message(self.number)


class Quiet(resource.Resource):
    def __init__(self, number: Number):
        super().__init__()
        self.number = number

    async def render_get(self, request: aiocoap.Message) -> aiocoap.Message:
        return message(self.number)


class Label(resource.Resource):
    async def render_get(self, request: aiocoap.Message) -> aiocoap.Message:
        return aiocoap.Message(payload=b"meadow", content_format=0)


async def main() -> None:
    number, site = Number(), resource.Site()
    count = Count(number)
    site.add_resource([".well-known", "core"], resource.WKCResource(site.get_resources_as_linkheader))
    for name, one in (("count", count), ("quiet", Quiet(number)), ("label", Label())):
        site.add_resource([name], one)
    await aiocoap.Context.create_server_context(site, bind=(HOST, PORT))
    print("ready", flush=True)
    while True:
        await asyncio.sleep(PERIOD_S)
        number.rise()
        count.updated_state()


asyncio.run(main())
