"""An sdc11073 consumer of a replayed provider: the description, the states, and the reports that change them.

Usage: replayed.py ADDRESS ENDPOINT. Prints one line for each step; exits with 1 at the first failure.
"""

import sys
import threading

from sdc11073 import observableproperties
from sdc11073.consumer.consumerimpl import SdcConsumer
from sdc11073.definitions_sdc import SdcV1Definitions
from sdc11073.mdib.consumermdib import ConsumerMdib
from sdc11073.wsdiscovery import WSDiscovery

# Changes of states that are waited for.
CHANGES = 5
# The longest time in seconds of each step.
LIMIT_S = 60


def main() -> None:
    address, endpoint = sys.argv[1:3]
    discovery = WSDiscovery(address)
    discovery.start()
    found = [one for one in discovery.search_services(timeout=10) if one.epr == endpoint]
    assert found, f"{endpoint} is not found"
    print("the consumer finds the replayed provider")
    consumer = SdcConsumer.from_wsd_service(found[0], ssl_context_container=None, validate=False)
    consumer.start_all()
    mdib = ConsumerMdib(consumer)
    mdib.init_mdib()
    handles = [state.DescriptorHandle for state in mdib.states.objects]
    assert "heart_rate" in handles, handles
    print(f"it reads {len(mdib.descriptions.objects)} descriptors and {len(handles)} states")

    enough = threading.Event()
    changes = []

    def changed(by_handle: dict) -> None:
        changes.extend(by_handle)
        if len(changes) >= CHANGES:
            enough.set()

    observableproperties.bind(mdib, metrics_by_handle=changed)
    assert enough.wait(LIMIT_S), f"only {len(changes)} states have changed"
    value = mdib.states.descriptor_handle.get_one("heart_rate").MetricValue.Value
    assert value == 75, value
    print(f"its reports change {sorted(set(changes))}; the heart rate is {value}")
    consumer.stop_all()
    discovery.stop()
    print("it unsubscribes")


if __name__ == "__main__":
    main()
