"""A target service of WSDiscovery (2005 dialect) that only answers discovery."""

import time

from wsdiscovery import QName, Scope
from wsdiscovery.publishing import ThreadedWSPublishing


def main() -> None:
    publisher = ThreadedWSPublishing()
    publisher.start()
    publisher.publishService(
        types=[QName("http://example.com/camera", "Camera")],
        scopes=[Scope("http://example.com/yard")],
        xAddrs=["http://10.77.0.2:9/camera"],
    )
    print("ready", flush=True)
    time.sleep(1_200)


if __name__ == "__main__":
    main()
