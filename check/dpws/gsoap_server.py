#!/usr/bin/env python3
"""Our client calls a server that gSOAP makes of a WSDL, by the types that `chappe describe --rust` writes for it.

    check/dpws/gsoap_server.py CLIENT WORK    the built example `pump_client`, and a folder for gSOAP's sources

Answers with attributes, choices and lists, a fault whose detail alone says which it is, and a one-way message.
Exit code 1 when something differs.
"""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
WSDL = HERE / "gsoap/pump.wsdl"
# The longest time in seconds of a call.
LIMIT_S = 30


def main():
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    client, work = Path(sys.argv[1]), Path(sys.argv[2])
    subprocess.run([HERE / "gsoap/build", WSDL, HERE / "gsoap/pump.c", work, "addressing"], check=True)
    server = subprocess.Popen([work / "program"], stdout=subprocess.PIPE, text=True)
    try:
        word, port = server.stdout.readline().split()
        if word != "port":
            raise SystemExit(f"the server says {word}")
        address = f"http://127.0.7.3:{port}/"
        done = subprocess.run([client, address, WSDL], capture_output=True, text=True, timeout=LIMIT_S)
        print(done.stdout, end="")
        if done.returncode != 0:
            print(done.stderr, file=sys.stderr)
            sys.exit(1)
        stopped = server.stdout.readline().strip()
    finally:
        server.kill()
        server.wait()
    print(f"the one-way message: {stopped}")
    sys.exit(0 if stopped == "stopped north" else 1)


if __name__ == "__main__":
    main()
