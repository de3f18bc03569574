"""An sdc11073 consumer that finds a plain device, reads its metadata, subscribes and receives.

Usage: client.py ADDRESS [CERTIFICATE KEY AUTHORITY]. Prints one line for each step; exits with 1 at the first failure.
"""

import pathlib
import queue
import sys
import time

from lxml.etree import QName
from sdc11073.certloader import mk_ssl_contexts
from sdc11073.consumer.consumerimpl import SdcConsumer
from sdc11073.definitions_sdc import SdcV1Definitions
from sdc11073.dispatch import DispatchKey
from sdc11073.observableproperties import strongbind
from sdc11073.wsdiscovery import WSDiscovery
from sdc11073.xml_types.dpws_types import DeviceEventingFilterDialectURI
from sdc11073.xml_types.eventing_types import FilterType

NAMESPACE = "http://example.com/chappe/thermometer"
EVENTS = 10


def main() -> None:
    discovery = WSDiscovery(sys.argv[1])
    discovery.start()
    found = discovery.search_services(types=[QName(NAMESPACE, "Thermometer")], timeout=10)
    assert len(found) == 1, f"found {len(found)} devices"
    print("found by its type")

    # Its own way in wants a medical device; everything after that is the same for any device.
    contexts = None
    if len(sys.argv) > 2:
        certificate, key, authority = map(pathlib.Path, sys.argv[2:5])
        contexts = mk_ssl_contexts(key, certificate, authority)
    consumer = SdcConsumer(found[0].x_addrs[0], SdcV1Definitions, contexts, validate=False,
                           force_ssl_connect=contexts is not None)
    consumer.start_all(check_get_service=False)
    description = consumer.host_description
    name = description.this_device.FriendlyName[0].text
    assert name == "Peer thermometer", name
    hosted = description.relationship.Hosted
    print(f"metadata read: {name}, {len(hosted)} hosted service, with its WSDL")

    service = consumer.hosted_services[hosted[0].ServiceId]
    action = f"{NAMESPACE}/ThermometerService/Temperature"
    events = queue.Queue()
    filter_type = FilterType()
    filter_type.text = action
    filter_type.Dialect = DeviceEventingFilterDialectURI.ACTION
    keys = [DispatchKey(action, QName(NAMESPACE, "Temperature"))]
    subscription = consumer.mk_subscription(hosted[0], filter_type, keys)
    strongbind(subscription, notification_msg=events.put)
    subscription.subscribe(60)
    assert subscription.is_subscribed and service is not None
    print(f"subscribed for {subscription.granted_expires} s")

    for _ in range(EVENTS):
        message = events.get(timeout=60)
        value = message.msg_node.findtext(f"{{{NAMESPACE}}}value")
        assert 20 <= float(value) <= 60, value
    print(f"received {EVENTS} notifications, the last with {value}")

    granted = subscription.renew(30)
    assert granted > 0, granted
    remaining = subscription.get_status()
    assert 0 < remaining <= granted, remaining
    print(f"renewed for {granted} s, status says {remaining} s")
    subscription.unsubscribe()
    assert not subscription.is_subscribed
    while not events.empty():
        events.get_nowait()
    time.sleep(1.0)
    assert events.empty(), "events come after the subscription has ended"
    print("unsubscribed, and nothing comes any more")
    consumer.stop_all(unsubscribe=False)
    discovery.stop()


if __name__ == "__main__":
    main()
