"""An OPC UA server built with asyncua, whose history survives a kill.

    python opcua_server.py HOST PORT JOURNAL [CERTIFICATE KEY]

The node `ns=2;s=count` counts ten times a second. Each number goes to the file JOURNAL before it goes to the node, with its
time, and the history of the node is that file. With a certificate, all policies are offered, and the user `plant` with the
password `secret`. `ns=2;s=text` changes its type after a write to `ns=2;s=switch`.
"""

import asyncio
import datetime
import os
import pathlib
import sys
import uuid

from asyncua import Server, ua
from asyncua.crypto.permission_rules import User, UserRole
from asyncua.server.history import HistoryStorageInterface
from asyncua.server.user_managers import UserManager

PERIOD_S = 0.1
UTC = datetime.timezone.utc
UNECE = "http://www.opcfoundation.org/UA/units/un/cefact"


class Journal(HistoryStorageInterface):
    def __init__(self, path: pathlib.Path):
        super().__init__()
        self.entries = []
        text = path.read_text() if path.exists() else ""
        for line in text.splitlines(keepends=True):
            if line.endswith("\n"):
                number, micros = line.split()
                self.entries.append((int(number), datetime.datetime.fromtimestamp(0, UTC)
                                     + datetime.timedelta(microseconds=int(micros))))
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    @property
    def last(self) -> int:
        return self.entries[-1][0] if self.entries else 0

    def record(self) -> tuple[int, datetime.datetime]:
        time = datetime.datetime.now(UTC)
        number = self.last + 1
        micros = (time - datetime.datetime.fromtimestamp(0, UTC)) // datetime.timedelta(microseconds=1)
        os.write(self.file, f"{number} {micros}\n".encode())
        self.entries.append((number, time))
        return number, time

    async def init(self):
        pass

    async def stop(self):
        pass

    async def read_node_history(self, node_id, start, end, nb_values):
        def aware(time):
            return time if time.tzinfo else time.replace(tzinfo=UTC)
        if node_id.Identifier != "count":
            raise ua.UaStatusCodeError(ua.StatusCodes.BadHistoryOperationUnsupported)
        found = [(number, time) for number, time in self.entries if aware(start) <= time <= aware(end)]
        page = found[:nb_values] if nb_values else found
        rest = found[len(page):]
        values = [ua.DataValue(ua.Variant(number, ua.VariantType.Int64), SourceTimestamp=time) for number, time in page]
        return values, rest[0][1] if rest else None


class Users(UserManager):
    def get_user(self, iserver, username=None, password=None, certificate=None):
        is_right = username is None or (username, password) == ("plant", "secret")
        return User(role=UserRole.User) if is_right else None


async def main() -> None:
    host, port, path = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
    journal = Journal(path)
    server = Server(user_manager=Users())
    await server.init()
    server.set_endpoint(f"opc.tcp://{host}:{port}/plant")
    await server.set_application_uri("urn:plant")
    if len(sys.argv) > 4:
        await server.load_certificate(sys.argv[4])
        await server.load_private_key(sys.argv[5])
        policies = ["NoSecurity"] + [f"{policy}_{mode}" for policy in ("Basic256Sha256", "Aes128Sha256RsaOaep", "Aes256Sha256RsaPss")
                                     for mode in ("Sign", "SignAndEncrypt")]
        server.set_security_policy([getattr(ua.SecurityPolicyType, name) for name in policies
                                    if hasattr(ua.SecurityPolicyType, name)])
    else:
        server.set_security_policy([ua.SecurityPolicyType.NoSecurity])
    server.iserver.history_manager.set_storage(journal)
    await server.register_namespace("urn:plant:nodes")
    plant = await server.nodes.objects.add_object(ua.NodeId("plant", 2), ua.QualifiedName("Plant 1", 2))

    async def add(name, value, kind):
        return await plant.add_variable(ua.NodeId(name, 2), ua.QualifiedName(name, 2), ua.Variant(value, kind))

    kinds = ua.VariantType
    await add("small", -5, kinds.SByte)
    await add("exact", 2**53 + 1, kinds.UInt64)
    await add("huge", 2**64 - 1, kinds.UInt64)
    await add("single", 1.5, kinds.Float)
    await add("on", True, kinds.Boolean)
    await add("name", "pump 7 µ", kinds.String)
    await add("label", ua.LocalizedText("open", "en"), kinds.LocalizedText)
    await add("since", datetime.datetime(2026, 1, 2, 3, 4, 5, 600_000), kinds.DateTime)
    await add("guid", uuid.UUID("72962b91-fa75-4ae6-8d28-b404dc7daf63"), kinds.Guid)
    await add("bytes", b"\x01\x02", kinds.ByteString)
    await add("wave", [1.0, 2.5, -3.0], kinds.Double)
    broken = await add("broken", 1.0, kinds.Double)
    doubted = await add("doubted", 2.0, kinds.Double)
    for node, status in ((broken, ua.StatusCodes.BadSensorFailure), (doubted, ua.StatusCodes.UncertainLastUsableValue)):
        kept = 3.0 if node is doubted else None
        value = ua.Variant(kept, kinds.Double) if kept is not None else ua.Variant()
        await node.write_value(ua.DataValue(value, ua.StatusCode(status),
                                            SourceTimestamp=datetime.datetime.now(UTC)))
    warm = await add("warm", 21.5, kinds.Double)
    units = ua.EUInformation(NamespaceUri=UNECE, UnitId=int.from_bytes(b"CEL", "big"),
                             DisplayName=ua.LocalizedText("°C"), Description=ua.LocalizedText("degree Celsius"))
    await warm.add_property(ua.NodeId("warm.unit", 2), ua.QualifiedName("EngineeringUnits", 0), units)
    await warm.add_property(ua.NodeId("warm.range", 2), ua.QualifiedName("EURange", 0), ua.Range(-20.0, 60.0))
    large = await add("large", "x" * 700_000, kinds.String)
    text = await add("text", 1.0, kinds.Double)
    switch = await add("switch", 0, kinds.Int32)
    await switch.set_writable()
    count = await add("count", journal.last, kinds.Int64)
    del large
    async with server:
        print("ready", flush=True)
        while True:
            number, time = journal.record()
            await count.write_value(ua.DataValue(ua.Variant(number, kinds.Int64), SourceTimestamp=time))
            if await switch.read_value():
                # A value of another type is accepted only where there is none.
                server.iserver.aspace[text.nodeid].attributes[ua.AttributeIds.Value].value = None
                await server.write_attribute_value(text.nodeid, ua.DataValue(ua.Variant("hot", kinds.String)))
            await asyncio.sleep(PERIOD_S)


asyncio.run(main())
