"""A Modbus device built with pymodbus.

    python modbus_server.py KIND WHERE STATE     KIND: tcp, rtu-tcp (WHERE is HOST:PORT) or rtu (WHERE is a serial line)

The input registers 0 and 1 count how often they were read: STATE has the last number, written before the answer.
Holding registers from 100 on have their address as value, and one answer in five about them takes LATE_S. STATE.written has a
line for each write.
"""

import asyncio
import pathlib
import random
import struct
import sys

from pymodbus.framer import FramerType
from pymodbus.server import ModbusSerialServer, ModbusTcpServer
from pymodbus.simulator import DataType, SimData, SimDevice

LATE_S = 0.45
READ_INPUT, READ_HOLDING = 4, 3


def registers(data: bytes) -> list[int]:
    return list(struct.unpack(f">{len(data) // 2}H", data))


# Address: registers. What they mean is in modbus.py.
HOLDING = {
    0: registers(struct.pack(">i", -5)),
    10: registers(struct.pack(">Q", 2**53 + 1)),
    20: registers(struct.pack(">f", 21.5))[::-1],
    30: registers(struct.pack(">h", -123)),
    40: registers(b"pump 7\0\0"),
    60: [0b1000],
    64: registers(struct.pack("<d", 0.1)),
    70: [0, 0],
    100: list(range(100, 110)),
}


def main() -> None:
    kind, where, state = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
    number = int(state.read_text()) if state.exists() else 0
    writes = open(state.with_suffix(".written"), "a", buffering=1)

    async def action(function, start, address, count, current, values):
        nonlocal number
        if values is not None:
            writes.write(f"{function} {address} {values}\n")
        elif function == READ_INPUT:
            number += 1
            state.with_suffix(".new").write_text(str(number))
            state.with_suffix(".new").rename(state)
            current[-start:2 - start] = [number >> 16, number & 0xFFFF]
        elif function == READ_HOLDING and address >= 100 and random.random() < 0.2:
            await asyncio.sleep(LATE_S)

    holding = [SimData(at, values=values, datatype=DataType.REGISTERS) for at, values in HOLDING.items()]
    bits = [SimData(0, values=[True, False, False, True] * 4, datatype=DataType.BITS)]
    counter = [SimData(0, values=[0, 0], datatype=DataType.REGISTERS)]
    device = SimDevice(1, simdata=(bits, bits, holding, counter), action=action)

    async def serve() -> None:
        if kind == "rtu":
            server = ModbusSerialServer(device, port=where, framer=FramerType.RTU, baudrate=115200, stopbits=2)
        else:
            host, port = where.split(":")
            framer = FramerType.RTU if kind == "rtu-tcp" else FramerType.SOCKET
            server = ModbusTcpServer(device, address=(host, int(port)), framer=framer)
        await server.serve_forever()

    asyncio.run(serve())


main()
