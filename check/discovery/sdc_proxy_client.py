"""sdc11073 as client of a discovery proxy: Hello, Probe, Resolve, Subscribe and Bye by its SoapClient.

    python check/discovery/sdc_proxy_client.py URL

The messages are those of the library's own client of discovery proxies (`wsd_types`, `eventing_types`).
"""

import http.server
import queue
import socket
import sys
import threading
from urllib.parse import urlsplit

from lxml import etree
from sdc11073.definitions_sdc import SdcV1Definitions
from sdc11073.loghelper import get_logger_adapter
from sdc11073.namespaces import default_ns_helper as nsh
from sdc11073.pysoap.msgfactory import MessageFactory
from sdc11073.pysoap.msgreader import MessageReader
from sdc11073.pysoap.soapclient import SoapClient
from sdc11073.xml_types import eventing_types, wsd_types
from sdc11073.xml_types.addressing_types import HeaderInformationBlock

TO = "urn:docs-oasis-open-org:ws-dd:ns:discovery:2009:01"
EPR = "urn:uuid:0a6dc791-2be6-4991-9af1-454778a19170"
TYPE = etree.QName("http://example.com/monitor", "Monitor")


def main() -> None:
    address = urlsplit(sys.argv[1])
    logger = get_logger_adapter("sdc.proxy")
    factory = MessageFactory(SdcV1Definitions, None, logger=logger)
    reader = MessageReader(SdcV1Definitions, None, logger=logger)
    client = SoapClient(address.netloc, socket_timeout=10, logger=logger, ssl_context=None,
                        sdc_definitions=SdcV1Definitions, msg_reader=reader)
    with socket.create_connection((address.hostname, address.port)) as probe:
        own = probe.getsockname()[0]

    def ask(payload: object) -> object:
        block = HeaderInformationBlock(action=payload.action, addr_to=TO)
        message = factory.mk_soap_message(block, payload, ns_list=[nsh.S12, nsh.WSA, nsh.WSD], use_defaults=False)
        return client.post_message_to(address.path, message)

    arrived: queue.Queue[str] = queue.Queue()

    class Sink(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            arrived.put(self.rfile.read(int(self.headers["Content-Length"])).decode())
            self.send_response(202)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    sink = http.server.HTTPServer((own, 0), Sink)
    threading.Thread(target=sink.serve_forever, daemon=True).start()

    subscribe = eventing_types.Subscribe()
    subscribe.Delivery.NotifyTo.Address = f"http://{own}:{sink.server_port}/"
    subscribe.Expires = 60
    subscribe.set_filter("", dialect="http://discoproxy")
    answer = ask(subscribe)
    granted = eventing_types.SubscribeResponse.from_node(answer.p_msg.msg_node)
    print(f"   ok: subscribed for {granted.Expires} s", flush=True)

    hello = wsd_types.HelloType()
    hello.Types = [TYPE]
    hello.XAddrs = [f"http://{own}:9/monitor"]
    hello.EndpointReference.Address = EPR
    ask(hello)
    event = arrived.get(timeout=30)
    assert "Hello" in event and EPR in event, event
    print("   ok: the subscriber was told of the Hello", flush=True)

    probe = wsd_types.ProbeType()
    probe.Types = [TYPE]
    matches = wsd_types.ProbeMatchesType.from_node(ask(probe).p_msg.msg_node)
    found = [match.EndpointReference.Address for match in matches.ProbeMatch]
    assert found == [EPR], found
    everything = wsd_types.ProbeMatchesType.from_node(ask(wsd_types.ProbeType()).p_msg.msg_node)
    print(f"   ok: Probe is answered with {len(everything.ProbeMatch)} matches", flush=True)

    resolve = wsd_types.ResolveType()
    resolve.EndpointReference.Address = EPR
    resolved = wsd_types.ResolveMatchesType.from_node(ask(resolve).p_msg.msg_node)
    assert list(resolved.ResolveMatch.XAddrs) == hello.XAddrs, resolved.ResolveMatch.XAddrs
    print("   ok: Resolve is answered with its address", flush=True)

    bye = wsd_types.ByeType()
    bye.EndpointReference.Address = EPR
    ask(bye)
    event = arrived.get(timeout=30)
    assert "Bye" in event and EPR in event, event
    matches = wsd_types.ProbeMatchesType.from_node(ask(probe).p_msg.msg_node)
    assert matches.ProbeMatch == [], matches.ProbeMatch
    print("   ok: after its Bye it is gone, and the subscriber was told", flush=True)


if __name__ == "__main__":
    main()
