"""A subscriber of WS-Eventing built with the classes of sdc11073; it subscribes again when its subscription is gone.

    python subscriber.py ADDRESS NAMESPACE ELEMENT FIELD OUTPUT     ADDRESS of the device

Appends to OUTPUT a line `subscribed` for each subscription and one with the value of FIELD for each event.
"""

import os
import sys
import time

from lxml.etree import QName
from sdc11073.consumer.consumerimpl import SdcConsumer
from sdc11073.definitions_sdc import SdcV1Definitions
from sdc11073.dispatch import DispatchKey
from sdc11073.observableproperties import strongbind
from sdc11073.xml_types.dpws_types import DeviceEventingFilterDialectURI
from sdc11073.xml_types.eventing_types import FilterType


def subscribe(address: str, namespace: str, element: str, field: str, output: int) -> None:
    """Receives until the subscription is gone."""
    consumer = SdcConsumer(address, SdcV1Definitions, None, validate=False)
    consumer.start_all(check_get_service=False)
    try:
        hosted = consumer.host_description.relationship.Hosted[0]
        filter_type = FilterType()
        filter_type.text = f"{namespace}/StreamService/{element}"
        filter_type.Dialect = DeviceEventingFilterDialectURI.ACTION
        keys = [DispatchKey(filter_type.text, QName(namespace, element))]
        subscription = consumer.mk_subscription(hosted, filter_type, keys)

        def received(message) -> None:
            value = message.msg_node.findtext(f"{{{namespace}}}{field}")
            os.write(output, f"{value}\n".encode())

        strongbind(subscription, notification_msg=received)
        os.write(output, b"subscribed\n")
        subscription.subscribe(30)
        while subscription.is_subscribed and subscription.get_status() > 0:
            time.sleep(0.5)
    finally:
        consumer.stop_all(unsubscribe=False)


def main() -> None:
    address, namespace, element, field, path = sys.argv[1:]
    output = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    while True:
        try:
            subscribe(address, namespace, element, field, output)
        except Exception as fault:  # noqa: BLE001: the device is away
            print(repr(fault)[:300], file=sys.stderr, flush=True)
        time.sleep(0.3)


main()
