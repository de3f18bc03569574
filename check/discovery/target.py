"""A target service of WSDiscovery (2005 dialect) that only answers discovery."""

import sys
import time

from wsdiscovery import QName, Scope
from wsdiscovery.publishing import ThreadedWSPublishing


def main() -> None:
    address = sys.argv[1] if len(sys.argv) > 1 else "10.77.0.2"
    publisher = ThreadedWSPublishing()
    publisher.start()
    publisher.publishService(
        types=[QName("http://example.com/camera", "Camera")],
        scopes=[Scope("http://example.com/yard")],
        xAddrs=[f"http://{address}:9/camera"],
    )
    print("ready", flush=True)
    time.sleep(1_200)


if __name__ == "__main__":
    main()
