"""The round trips of an sdc11073 consumer with an sdc11073 provider.

Usage: invoke.py ADDRESS ROUNDS. Prints one line a call, its operation and nanoseconds, and `end`.
"""

import sys
import time

from sdc11073.consumer.consumerimpl import SdcConsumer
from sdc11073.definitions_sdc import SdcV1Definitions
from sdc11073.wsdiscovery import WSDiscovery


def main() -> None:
    address, rounds = sys.argv[1], int(sys.argv[2])
    discovery = WSDiscovery(address)
    discovery.start()
    found = discovery.search_services(types=SdcV1Definitions.MedicalDeviceTypesFilter, timeout=3)
    if not found:
        sys.exit("error: no provider was found")
    consumer = SdcConsumer(found[0].x_addrs[0], SdcV1Definitions, None, validate=False)
    consumer.start_all(not_subscribed_actions=[])
    subscription = next(iter(consumer.subscription_mgr.subscriptions.values()))
    contexts = consumer.context_service_client
    calls = {
        "GetStatus": subscription.get_status,
        "Renew": lambda: subscription.renew(1),
        "GetContextStates": contexts.get_context_states,
    }
    for name, call in calls.items():
        # One in ten is called before and not counted.
        for number in range(-(rounds // 10), rounds):
            start = time.monotonic_ns()
            call()
            if number >= 0:
                print(name, time.monotonic_ns() - start)
    print("end", flush=True)
    consumer.stop_all(unsubscribe=False)
    discovery.stop()


if __name__ == "__main__":
    main()
