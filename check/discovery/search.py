"""WSDiscovery (2005 dialect) as a client: prints endpoint, types and addresses of each device that answers."""

from wsdiscovery.discovery import ThreadedWSDiscovery


def main() -> None:
    discovery = ThreadedWSDiscovery()
    discovery.start()
    for service in discovery.searchServices(timeout=5):
        print(service.getEPR(), [str(name) for name in service.getTypes()], service.getXAddrs())
    discovery.stop()


if __name__ == "__main__":
    main()
